"""The manifest of a campaign: everything that its costs depend on, and the looks at them.

A campaign is continued only where all of it is the same, so that no costs are mixed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pacbayes_control
from pacbayes_control.certify import files
from pacbayes_control.certify.looks import MOST as MOST_LOOKS
from pacbayes_control.certify.looks import Look, list_digest, looks_from
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.jobs import FreshDraws, Job
from pacbayes_control.tasks.identity import code_digest, identity

FORMAT = 4
MANIFEST, LOCK = "campaign.json", "lock"
WORDS = {  # for keys of a description, where those do not read well
    "environments": "set of environments",
    "first environments": "draw of environments",
    "policies": "list of policies",
    "rollout_timeout": "limit of time for a rollout",
    "version": "version of this library",
}
COVERED = "one delta covers all numbers"  # in the way of looks as environments are added
COUNTED = ("retries", "code changes", "resumed")  # incidents of earlier calls
NEEDED = ("id", "size", "code", "tables", "looks", "ways")
KINDS = {  # of what a description is relied on for, and of what is added to it
    "id": str,  # digest of the description that it began with; each chunk has it too
    "size": tuple[int, int],
    "code": str,
    "tables": dict[str, dict[str, Any]],
    "looks": list[dict[str, Any]],
    "ways": dict[str, str],  # how each look was taken: method, objective, prior
    "declared_looks": list[int],
    **dict.fromkeys(COUNTED, int),
}
COUNTS = {"shape": tuple[int, int], "raised": int, "overdue": list[tuple[int, int]], "retries": int}


def locked_campaign(folder: Path) -> AbstractContextManager[None]:
    """A campaign for this process alone; an error if another one has it."""
    busy = f"another process keeps its rollouts in {folder}: wait for it"
    return files.locked(folder / LOCK, busy)


def described_job(job: Job, size: Sequence[int], execution: Execution) -> dict[str, Any]:
    """Everything that the costs of the first rows and columns depend on, as plain values."""
    rows, columns = size
    environments, noise = job.environments[:rows], job.noise
    origin = {name: fact for name, fact in environments.origin.items() if name != "stop"}
    if isinstance(job.policies, FreshDraws):
        draws, posterior = job.policies, files.sha256(job.policies.posterior.to_bytes())
        policies: dict[str, Any] = {"posterior": posterior, "draws": draws.draws}
        policies |= {"stream": draws.stream, "seed": draws.seed}
    else:
        listed = job.policies[..., :columns, :]
        policies = {"policies": columns, "sha256": list_digest(listed)}
    return {
        "format": FORMAT,
        "version": pacbayes_control.__version__,
        "task": _hashed(identity(job.task)),
        "code": code_digest(job.task),
        "device": job.task.hardware or None,
        "environments": origin,
        "first environments": environments[: environments.block].digest(),
        "policies": policies,
        "noise": {"stream": noise.stream, "seed": noise.seed, "of": noise.kind} if noise else None,
        "surrogate": job.surrogate,
        "rollout_timeout": execution.rollout_timeout,
        "size": [rows, columns],
    }


def continued(folder: Path, job: Job, execution: Execution) -> dict[str, Any]:
    """The description in a folder, empty if the folder is new.

    Raises ValueError if the job differs from it in anything but the code, and does not extend it.
    """
    if not (folder / MANIFEST).exists():
        return {}
    known = read_manifest(folder)
    size, (rows, columns) = known["size"], job.shape
    if rows < size[0] or columns < size[1]:
        raise ValueError(
            f"{folder} holds rollouts of {size[0]:,} environments × {size[1]:,} policies, more "
            f"than the {rows:,} × {columns:,} that are asked for: ask for as many, or more, or "
            "choose another folder"
        )
    for key, value in described_job(job, size, execution).items():
        if key not in ("code", "size") and known.get(key) != value:
            what, found = WORDS.get(key, key), _short(known.get(key))
            raise ValueError(
                f"{folder} holds rollouts of another {what}: {found}, not {_short(value)}; "
                "choose another folder, or delete it to begin again"
            )
    if columns > size[1]:
        more = f"{folder} holds rollouts of {size[1]:,} policies, and {columns:,} are given"
        if not execution.policies_unseen:
            raise ValueError(
                f"{more}: policies may be added if they were made without knowledge of these "
                "environments and their costs; if so, say it (policies_unseen=True, or --set "
                "unseen=true), which the certificate will tell"
            )
        finished = [[*table["shape"]] for table in known["tables"].values()]
        if size not in finished:
            raise ValueError(f"{more}: finish it with the first {size[1]:,} before adding others")
    return known


def read_manifest(folder: Path) -> dict[str, Any]:
    """The description in a folder, checked as far as this module relies on it."""
    path = folder / MANIFEST
    record = files.read_json(path)
    try:
        if not files.has_type(record, dict[str, Any]) or record.get("seal") != files.seal(record):
            raise ValueError
        del record["seal"]
        kinds = {name: kind for name, kind in KINDS.items() if name in {*NEEDED, *record}}
        files.check_record({name: record.get(name) for name in kinds}, kinds)
        for table in record["tables"].values():
            files.check_record(table, COUNTS)
        looks_from(record["looks"])
    except ValueError:
        raise ValueError(f"{path} is corrupt: choose another folder") from None
    return record


def _hashed(words: str) -> str:
    """A long text, such as that of a large array, shortened to its beginning and its digest."""
    if len(words) <= 2000:
        return words
    return f"{words[:100]}… {files.sha256(words.encode())}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 160 else text[:157] + "…"


def known_looks(folder: Path) -> dict[str, Any]:
    """The looks at a campaign so far, and those that were declared; empty if it is new."""
    record = read_manifest(folder) if (folder / MANIFEST).exists() else {}
    return {name: record[name] for name in ("looks", "declared_looks") if name in record}


def record_look(folder: Path, look: Look, way: str, earlier: Sequence[Look]) -> None:
    """Record in a campaign that a certificate is made from it, before it is made.

    An error if it was made in another way: to keep the better of two would be a choice by the data.

    Args:
        folder: of the campaign
        look: which is taken now
        way: the method and so on by which the bound will be computed
        earlier: the looks that its δ pays for
    """
    with locked_campaign(folder):
        record = read_manifest(folder)
        known = [x for x in looks_from(record["looks"]) if x.delta or not x.same_costs(look)]
        if any(x != look and x not in earlier for x in known) and look not in known:
            raise ValueError(f"another process has looked at {folder} meanwhile: do the same again")
        key = _key(look)
        if record["ways"].setdefault(key, way) != way:
            raise ValueError(
                f"{folder} was looked at with the same environments, policies and delta by "
                f"{record['ways'][key]}, not by {way}: to keep the better of two bounds would be a "
                "choice by the costs (method best, chosen beforehand, pays for it)"
            )
        if look not in known:  # one that is repeated stays where it was among the others
            record["looks"] = with_look(folder, known, look)
        write_manifest(folder, record)


def record_covered_look(folder: Path, look: Look, way: str) -> None:
    """Record a look at environments that are being added, before its bound is computed.

    One δ covers all such looks, so that the last one stands for all of them. An error if there
    were looks of another kind.

    Args:
        folder: of the campaign
        look: which is taken now
        way: the method and so on, by which the bounds of all of them are computed
    """
    with locked_campaign(folder):
        record = read_manifest(folder)
        check_covered_looks(folder, record, look, way)
        record["looks"] = [asdict(look)]
        record["ways"][_key(look)] = way
        write_manifest(folder, record)


def check_covered_looks(folder: Path, record: dict[str, Any], look: Look, way: str) -> None:
    """Raise ValueError unless all looks so far were taken as this one is; one may be unfinished."""
    for known in looks_from(record["looks"]):
        begun = known.delta is None and known.same_costs(look)
        same = known.policies == look.policies and known.delta == look.delta
        if not begun and not (same and record["ways"].get(_key(known)) == way):
            raise ValueError(
                f"{folder} was looked at in another way, after {known.environments:,} "
                f"environments: delta would not cover it; delete the folder to begin again"
            )
    if record.get("declared_looks"):
        raise ValueError(f"the looks at {folder} were declared beforehand: they stay so")


def check_uncovered(folder: Path) -> None:
    """Raise ValueError if the number of environments in a folder was chosen by their costs."""
    record = read_manifest(folder) if (folder / MANIFEST).exists() else {"ways": {}}
    if any(COVERED in way for way in record["ways"].values()):
        raise ValueError(
            f"environments were added to {folder} until a bound was reached: their number depends "
            "on their costs, so that no other certificate holds for it; use another seed and folder"
        )


def _key(look: Look) -> str:
    """A look, as its way is found by."""
    return f"{look.environments} environments, policies {look.policies}, delta {look.delta!r}"


def with_look(folder: Path, known: Sequence[Look], look: Look) -> list[dict[str, Any]]:
    """The looks with one more, as they are recorded."""
    if len(known) >= MOST_LOOKS:
        raise ValueError(f"{folder} was looked at {MOST_LOOKS} times, and that is all it keeps")
    return [asdict(each) for each in (*known, look)]


def write_manifest(folder: Path, record: dict[str, Any]) -> None:
    """Write the manifest, with a seal by which damage is found."""
    sealed = record | {"seal": files.seal(record)}
    files.write_atomic(folder / MANIFEST, files.json_bytes(sealed))
