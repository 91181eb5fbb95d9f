"""The description of a folder of rollouts: everything its costs depend on, so none are mixed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import pacbayes_control
from pacbayes_control.certify.files import read_json
from pacbayes_control.rollouts.jobs import FreshDraws, Job
from pacbayes_control.tasks.identity import code_digest, identity

FORMAT = 2


def described_job(job: Job) -> dict[str, Any]:
    """Everything that the costs of a job depend on, as plain values."""
    environments = job.environments
    if isinstance(job.policies, FreshDraws):
        draws = job.policies
        policies: dict[str, Any] = {
            "posterior": hashlib.sha256(draws.posterior.to_bytes()).hexdigest(),
            "draws": draws.draws,
            "stream": draws.stream,
            "seed": draws.seed,
        }
    else:
        array = np.ascontiguousarray(job.policies)
        sha = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
        sha.update(array.data)
        policies = {"policies": job.shape[1], "sha256": sha.hexdigest()}
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
            raise ValueError(
                f"{path.parent} holds rollouts of another {_words(key)}: {_short(known.get(key))}, "
                f"not {_short(value)}; choose another folder, or delete it to begin again"
            )
    return known


def _words(key: str) -> str:
    words = {
        "environments": "set of environments",
        "first environments": "draw of environments",
        "policies": "list of policies",
        "version": "version of this library",
    }
    return words.get(key, key)


def _hashed(words: str) -> str:
    """A long text, such as that of a large array, shortened to its beginning and its digest."""
    if len(words) <= 2000:
        return words
    return f"{words[:100]}… {hashlib.sha256(words.encode()).hexdigest()}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 160 else text[:157] + "…"
