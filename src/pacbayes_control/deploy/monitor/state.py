"""The file that keeps a monitor's outcomes so far, which may hold anything when it is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

import pacbayes_control
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.run import hash_file, json_bytes, read_json, seal
from pacbayes_control.deploy.monitor.reports import Promise

FORMAT = 2
READABLE = (1, FORMAT)  # those of format 1 have no seal, and do not tell what was verified
MOST_TRIALS = 2**53  # beyond, sums of outcomes are no longer exact
POINTS = 2048  # of the history, at most
PROMISED = (  # a certificate's fields in its format 3: later ones do not make it another
    *("bound", "method", "delta", "environments", "set_aside", "policies", "parameters"),
    *("empirical_cost", "training_cost_bound", "draws", "shared_draws", "kl", "policy"),
    *("policy_name", "binary", "noise", "prior", "objective", "constraints", "budget", "ball"),
    *("bound_without_shift", "tilt", "hashes", "versions", "sentence"),
)


class Batch(NamedTuple):
    """A file of outcomes that was taken in."""

    name: str
    trials: int
    sha: str  # SHA-256 of its outcomes
    again: bool  # whether it was counted although its name had been before

    def begins(self, values: NDArray) -> bool:
        """Whether these outcomes begin with its own."""
        alike = self.trials <= len(values)
        return alike and sha(values[: self.trials].tobytes()) == self.sha


def sha(content: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def stride_of(trials: int) -> int:
    """Every so many outcomes there is a point in the history: a power of two, 1 at first."""
    stride = 1
    while trials // stride > POINTS:
        stride *= 2
    return stride


def certificate_digest(certificate: Certificate | Promise) -> str:
    """A digest that tells a certificate from others, the same in every version of this library."""
    record = certificate.to_dict()
    if isinstance(certificate, Certificate):
        record = {name: record[name] for name in PROMISED} | {"format": 3}
    return sha(json_bytes(record))


def fingerprint(folder: Path) -> dict[str, str]:
    """A run and the version of this library, to know both again once the run was verified."""
    manifest = hash_file(folder / "manifest.json")
    return {"manifest": manifest, "version": pacbayes_control.__version__}


def read_state(path: Path) -> dict[str, Any]:
    """The record of a state file, if it has the fields and types of one, and its seal."""
    record = read_json(path)
    if isinstance(record, dict) and record.get("format") == 1:
        record |= {"verified": None, "seal": None}
    if not _is_state(record):
        raise ValueError(f"{path} is not the state of a monitor")
    if record["format"] != 1 and record["seal"] != seal(record):
        raise ValueError(f"{path} was altered: its seal does not match")
    return record


def _is_state(record: Any) -> bool:
    """Whether a file that may hold anything has the fields and types of a state."""
    kinds = {
        "format": int,
        "certificate": str,
        "alpha": float,
        "trials": int,
        "total": float,
        "binary": bool,
        "log_e": float,
        "largest": float,
        "stride": int,
        "wealth": list,
        "scale": float,
        "batches": list,
        "history": list,
    }
    if not isinstance(record, dict) or set(record) != {*kinds, "alarm_at", "verified", "seal"}:
        return False
    if any(type(record[name]) is not kind for name, kind in kinds.items()):
        return False
    alarm, trials = record["alarm_at"], record["trials"]
    return (
        record["format"] in READABLE
        and 0 < record["alpha"] < 1
        and 1 <= record["stride"] <= MOST_TRIALS
        and 0 <= record["total"] <= trials <= MOST_TRIALS
        and _numbers([record["log_e"], record["largest"]])
        and (alarm is None or (type(alarm) is int and 0 < alarm <= trials))
        and _numbers([*record["wealth"], record["scale"]])
        and _is_purse(record["wealth"], record["scale"])
        and all(_is_batch(batch) for batch in record["batches"])
        and all(_is_point(point, trials) for point in record["history"])
        and (record["verified"] is None or _is_fingerprint(record["verified"]))
    )


def _is_purse(wealth: list[float], scale: float) -> bool:
    """Numbers that bets can go on from: none negative, none that would overflow."""
    if not wealth or min(*wealth, scale) < 0 or max(wealth) > 1e110:
        return False
    return max(wealth) > 0 or scale == 0  # bets on millions of successes at once lose everything


def _is_batch(batch: Any) -> bool:
    kinds = [type(entry) for entry in batch] if isinstance(batch, list) else []
    return kinds == [str, int, str, bool] and batch[1] >= 1 and _is_sha(batch[2])


def _is_fingerprint(record: Any) -> bool:
    if not isinstance(record, dict) or set(record) != {"manifest", "version"}:
        return False
    return type(record["version"]) is str and _is_sha(record["manifest"])


def _is_sha(text: Any) -> bool:
    return type(text) is str and re.fullmatch("[0-9a-f]{64}", text) is not None


def _is_point(point: Any, trials: int) -> bool:
    """Trials, the sum of their costs, and the logarithm of the e-value."""
    if not isinstance(point, list) or len(point) != 3 or not _numbers(point):
        return False
    return type(point[0]) is int and 1 <= point[0] <= trials and 0 <= point[1] <= point[0]


def _numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and abs(value) < 1e300 for value in values)
