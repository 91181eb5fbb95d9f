"""The description of a folder of rollouts: everything its costs depend on, so none are mixed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import pacbayes_control
from pacbayes_control.certify.files import read_json, sha256
from pacbayes_control.rollouts.jobs import FreshDraws, Job
from pacbayes_control.tasks.identity import identity
from pacbayes_control.tasks.sources import code_digest

FORMAT = 2
WORDS = {  # for keys of a description, where those do not read well
    "environments": "set of environments",
    "first environments": "draw of environments",
    "policies": "list of policies",
    "version": "version of this library",
}


def described_job(job: Job) -> dict[str, Any]:
    """Everything that the costs of a job depend on, as plain values."""
    environments = job.environments
    if isinstance(job.policies, FreshDraws):
        draws, posterior = job.policies, sha256(job.policies.posterior.to_bytes())
        policies: dict[str, Any] = {"posterior": posterior, "draws": draws.draws}
        policies |= {"stream": draws.stream, "seed": draws.seed}
    else:
        array = np.ascontiguousarray(job.policies)
        digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
        digest.update(array.data)
        policies = {"policies": job.shape[1], "sha256": digest.hexdigest()}
    noise = job.noise
    return {
        "format": FORMAT,
        "version": pacbayes_control.__version__,
        "task": _hashed(identity(job.task)),
        "code": code_digest(job.task),
        "environments": environments.origin,
        "first environments": environments[: environments.block].digest(),
        "policies": policies,
        "noise": {"stream": noise.stream, "seed": noise.seed, "of": noise.kind} if noise else None,
        "surrogate": job.surrogate,
    }


def known_job(path: Path, description: dict[str, Any]) -> dict[str, Any]:
    """The description in a folder, empty if the folder is new.

    Raises ValueError if it differs from the given one in anything but the code.
    """
    known: Any = read_json(path) if path.exists() else {}
    if not isinstance(known, dict):
        raise ValueError(f"{path} is corrupt: choose another folder")
    for key, value in description.items() if known else ():
        if key != "code" and known.get(key) != value:
            what, found = WORDS.get(key, key), _short(known.get(key))
            raise ValueError(
                f"{path.parent} holds rollouts of another {what}: {found}, not {_short(value)}; "
                "choose another folder, or delete it to begin again"
            )
    return known


def _hashed(words: str) -> str:
    """A long text, such as that of a large array, shortened to its beginning and its digest."""
    if len(words) <= 2000:
        return words
    return f"{words[:100]}… {sha256(words.encode())}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 160 else text[:157] + "…"
