"""The file with the state of a monitor: reading it, and checking that it is consistent.

The file may hold anything when it is read. While every outcome is a point of the history (the
stride is 1), all of the evidence is recomputed from it. Later, when the history has fewer points,
the evidence must not exceed what the sums of the outcomes allow. The names and hashes of files
cannot be recomputed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import pacbayes_control
from pacbayes_control.bounds import sequential
from pacbayes_control.bounds.sequential import BettingState, bets
from pacbayes_control.certify import files
from pacbayes_control.certify.certificate import Certificate

if TYPE_CHECKING:
    from pacbayes_control.deploy.monitor.reports import Promise

FORMAT = 2  # format 1, which is still read, has no seal and no fingerprint of a verified run
MOST_TRIALS = 2**53  # beyond, sums of outcomes are not exact
POINTS = 2048  # of the history, at most
NEGLIGIBLE = 450.0  # a bet whose wealth is e⁻⁴⁵⁰ of the largest may be rounded to zero
KINDS = {
    "format": int,
    "certificate": str,
    "alpha": float,
    "trials": int,
    "total": float,
    "binary": bool,
    "wealth": list[float],
    "scale": float,
    "log_e": float,
    "largest": float,
    "alarm_at": int | None,
    "batches": list[tuple[str, int, str, bool]],  # as in `Batch`
    "stride": int,
    "history": list[tuple[int, float, float]],  # trials, sum of costs, ln e-value
    "verified": dict[str, str] | None,
    "seal": str | None,
}
Floats = NDArray[np.float64]


def require(condition: bool, message: str) -> None:
    """Raise ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)


class Batch(NamedTuple):
    """A file of outcomes that was counted."""

    name: str
    trials: int
    sha: str  # SHA-256 of its outcomes
    again: bool  # whether it was counted although a file of this name had been counted before

    def begins(self, values: NDArray) -> bool:
        """Whether these outcomes begin with those of the batch."""
        long_enough = self.trials <= len(values)
        return long_enough and files.sha256(values[: self.trials].tobytes()) == self.sha


def stride_of(trials: int) -> int:
    """The number of outcomes between two points of the history: a power of two, 1 at first."""
    stride = 1
    while trials // stride > POINTS:
        stride *= 2
    return stride


def certificate_digest(certificate: Certificate | Promise) -> str:
    """A digest of a certificate that is the same in every version of this library."""
    record = certificate.to_dict()
    if isinstance(certificate, Certificate):  # the digest has no fields of later formats than 3
        statistic = {name: record[name] for name in ("of", "exceeded") if certificate.of != "mean"}
        record = replace(certificate, format=3).to_dict() | {"sentence": record["sentence"]}
        record |= statistic  # but for these, by which the same outcomes count otherwise
    return files.sha256(files.json_bytes(record))


def fingerprint(folder: Path) -> dict[str, str]:
    """The hash of a run and the version of this library, to recognise a run that was verified."""
    manifest = files.hash_file(folder / "manifest.json")
    return {"manifest": manifest, "version": pacbayes_control.__version__}


# ---- reading ------------------------------------------------------------------------------------


def read_state(path: Path) -> dict[str, Any]:
    """The record in a state file; an error unless it has the fields, types and seal of one."""
    record = files.read_json(path)
    if isinstance(record, dict) and record.get("format") == 1:
        record |= {"verified": None, "seal": None}
    try:
        files.check_record(record, KINDS)
        _check_values(record)
    except ValueError as error:
        raise ValueError(f"{path} is not the state of a monitor: {error}") from None
    if record["format"] != 1 and record["seal"] != files.seal(record):
        raise ValueError(f"{path} was altered: its seal does not match")
    return record


def _check_values(record: Mapping[str, Any]) -> None:
    """An error for values of the right types that are impossible."""
    trials, wealth, scale = record["trials"], record["wealth"], record["scale"]
    run = record["verified"] or {"manifest": "0" * 64, "version": ""}
    possible = {
        "format": record["format"] in (1, FORMAT),
        "alpha": 0 < record["alpha"] < 1,
        "stride": 1 <= record["stride"] <= MOST_TRIALS,
        "total": 0 <= record["total"] <= trials <= MOST_TRIALS,
        "alarm_at": record["alarm_at"] is None or 0 < record["alarm_at"] <= trials,
        "wealth": bool(wealth) and min(*wealth, scale) >= 0 and max(wealth) <= 1e110,
        # After millions of successes at once, all bets may have lost everything.
        "scale": scale == 0 or max(wealth, default=0) > 0,
        "batches": all(size >= 1 and _is_sha(sha) for _, size, sha, _ in record["batches"]),
        "history": all(1 <= n <= trials and 0 <= total <= n for n, total, _ in record["history"]),
        "verified": run.keys() == {"manifest", "version"} and _is_sha(run["manifest"]),
    }
    for name, is_possible in possible.items():
        require(is_possible, f"bad {name}")


def _is_sha(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


# ---- consistency --------------------------------------------------------------------------------


def alarm_threshold(alpha: float, trials: int) -> float:
    """ln 1/α, plus a bound on the rounding error of sums of logarithms."""
    return -math.log(alpha) + 1e-9 * (1 + math.sqrt(trials))


def check_consistent(state: Mapping[str, Any], bound: float) -> None:
    """An error that names the first contradiction in the record of a state."""
    trials, stride = state["trials"], state["stride"]
    _check_batches([Batch(*entry) for entry in state["batches"]], trials)
    require(stride == stride_of(trials), "the stride is not that of its number of trials")
    n, sums, path = np.array([[0, 0.0, 0.0], *state["history"]], float).T
    _check_history(state, n, sums, path)
    betting = BettingState(np.array(state["wealth"], float), float(state["scale"]), trials)
    # A bound on the difference of two logarithms of e-values that were summed differently.
    tolerance, largest_bet = 1e-9 * (1 + math.sqrt(trials)) + 1e-14 * trials, bets(bound)[0].max()
    if not state["binary"]:  # differences of sums lose digits, and a large bet amplifies this
        tolerance += 1e-13 * trials * state["total"] * float(largest_bet)
    known = len(betting.wealth) == len(bets(bound)[0])
    require(known, "the wealth is on other bets than those of the bound")
    same = abs(betting.log_value(bound) - state["log_e"]) <= tolerance
    require(same, "the e-value is not that of the wealth")
    if stride == 1:
        reached = path
        _replay(betting, n, sums, path=path, bound=bound, tolerance=tolerance)
    else:
        reached = np.append(0.0, path[:-1] + float(largest_bet) * np.diff(sums) + tolerance)
        possible = not np.any(path > reached)
        require(possible, "the history's e-values are out of reach for its outcomes")
    _check_alarm(state, n, path, reached)


def _check_batches(batches: Sequence[Batch], trials: int) -> None:
    """Whether the files can have been counted as they are listed, and are not too many."""
    counted, last = 0, dict[str, Batch]()
    for batch in batches:
        before, new, possible = last.get(batch.name), batch.trials, True
        if before is None:
            possible = not batch.again
        elif not batch.again:  # it has grown
            new -= before.trials
            possible = new > 0 and not before.again
        require(possible, f"the file {batch.name!r} cannot have been counted as it is listed")
        counted += new
        last[batch.name] = batch
    require(counted <= trials, "its files have more outcomes than it counts")


def _check_history(state: Mapping[str, Any], n: Floats, sums: Floats, path: Floats) -> None:
    """Whether the points rise to the current values, and are those that are kept."""
    trials, stride = state["trials"], state["stride"]
    current = (n[-1], sums[-1], path[-1]) == (trials, state["total"], state["log_e"])
    require(current, "the history does not end at the current values")
    rise, costs = np.diff(n), np.diff(sums)
    wrong = np.any(rise <= 0) or np.any(costs < 0) or np.any(costs > rise + 1e-15 * trials)
    require(not wrong, "the history does not rise as outcomes from 0 to 1 do")
    kept = int(np.count_nonzero(n[:-1] % stride)) <= 1
    require(kept, "the history has points that would have been dropped")
    whole = bool(np.all(sums == np.floor(sums)))
    possible = state["binary"] == whole or not (state["binary"] or stride == 1)
    require(possible, "it is wrong about whether all outcomes are 0 or 1")


def _check_alarm(state: Mapping[str, Any], n: Floats, path: Floats, reached: Floats) -> None:
    """Whether the largest e-value and the alarm agree with the history.

    path: ln of the e-value at each point. reached: its largest possible value since the point
    before.
    """
    largest, alarm, level = state["largest"], state["alarm_at"], -math.log(state["alpha"])
    possible = path.max() <= largest <= max(reached.max(), path.max())
    require(possible, "the largest e-value is not that of the history")
    threshold = alarm_threshold(state["alpha"], state["trials"])
    if alarm is None:
        called = largest >= threshold
        require(not called, "the largest e-value calls for an alarm, and there is none")
        return
    at = int(np.searchsorted(n, alarm))
    exact = n[at] == alarm
    first = not np.any(path[:at] >= threshold) and (path if exact else reached)[at] >= level
    first = first and largest >= level and (exact or state["stride"] > 1)
    require(first, "the alarm is not at the first e-value of 1/α")


def _replay(
    state: BettingState, n: Floats, sums: Floats, *, path: Floats, bound: float, tolerance: float
) -> None:
    """Repeat the updates for every outcome: one by one, or by counts if several came at once."""
    trials, costs = np.diff(n).astype(int), np.diff(sums)
    again, repeated = BettingState.initial(bound), [np.zeros(1)]
    starts = np.flatnonzero((trials > 1) | (np.diff(trials, prepend=2) != 0))
    for start, stop in pairwise([*starts, len(trials)]):
        if trials[start] == 1:
            again, part = sequential.update_wealth(again, np.clip(costs[start:stop], 0, 1), bound)
        else:
            count = int(trials[start])
            again = sequential.update_wealth_by_counts(again, costs[start], count, bound)
            part = np.array([again.log_value(bound)])
        repeated.append(part)
    different = np.abs(np.concatenate(repeated) - path) > tolerance
    require(not different.any(), "the history's e-values are not those of its outcomes")
    with np.errstate(divide="ignore"):
        logs = np.array([np.log(each.wealth) + each.scale for each in (again, state)])
    logs = np.maximum(logs, max(float(logs.max()), 0.0) - NEGLIGIBLE)
    different = np.abs(logs[0] - logs[1]) > tolerance
    require(not different.any(), "the wealth is not that of the outcomes")
