"""The file that keeps a monitor's outcomes so far, which may hold anything when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pacbayes_control.certificate import Certificate
from pacbayes_control.monitor.reports import Promise
from pacbayes_control.run import json_bytes

FORMAT = 1
MOST_TRIALS = 2**53  # beyond, sums of outcomes are no longer exact


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


def certificate_digest(certificate: Certificate | Promise) -> str:
    """What tells a certificate from others."""
    return sha(json_bytes(certificate.to_dict()))


def is_state(record: Any) -> bool:
    """Whether a file that may hold anything has the fields and types of a state."""
    kinds = {
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
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return False
    if any(type(record.get(name)) is not kind for name, kind in kinds.items()):
        return False
    alarm, trials = record.get("alarm_at", 0), record["trials"]
    return (
        0 < record["alpha"] < 1
        and 1 <= record["stride"] <= MOST_TRIALS
        and 0 <= record["total"] <= trials <= MOST_TRIALS
        and _numbers([record["log_e"], record["largest"]])
        and (alarm is None or (type(alarm) is int and 0 < alarm <= trials))
        and _numbers([*record["wealth"], record["scale"]])
        and _is_purse(record["wealth"], record["scale"])
        and all(_is_batch(batch) for batch in record["batches"])
        and all(_is_point(point, trials) for point in record["history"])
    )


def _is_purse(wealth: list[float], scale: float) -> bool:
    """Numbers that bets can go on from: none negative, none that would overflow."""
    if not wealth or min(*wealth, scale) < 0 or max(wealth) > 1e110:
        return False
    return max(wealth) > 0


def _is_batch(batch: Any) -> bool:
    kinds = [type(entry) for entry in batch] if isinstance(batch, list) else []
    return kinds == [str, int, str, bool] and batch[1] >= 1


def _is_point(point: Any, trials: int) -> bool:
    """Trials, the sum of their costs, and the logarithm of the e-value."""
    if not isinstance(point, list) or len(point) != 3 or not _numbers(point):
        return False
    return type(point[0]) is int and 1 <= point[0] <= trials and 0 <= point[1] <= point[0]


def _numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and abs(value) < 1e300 for value in values)
