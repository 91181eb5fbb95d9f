"""Whether the numbers of a monitor's state agree with one another, like those of a run.

As long as every outcome is a point of the history (the stride is 1), all of the evidence is
recomputed from it. Later, when the history is thinned, the evidence must not exceed what the sums
of the outcomes allow. The names and hashes of files cannot be recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.sequential import Purse, bets, wager, wager_on_counts
from pacbayes_control.deploy.monitor.state import Batch, stride_of

NEGLIGIBLE = 450.0  # a stake whose wealth is e⁻⁴⁵⁰ of the largest may be rounded to zero
Floats = NDArray[np.float64]


def alarm_threshold(alpha: float, trials: int) -> float:
    """ln 1/α, and a little more for what sums of logarithms lose."""
    return -math.log(alpha) + 1e-9 * (1 + math.sqrt(trials))


def check_consistent(state: Mapping[str, Any], bound: float) -> None:
    """An error that names the first contradiction in a state, which has the fields and types."""
    _check_batches([Batch(*entry) for entry in state["batches"]], state["trials"])
    if state["stride"] != stride_of(state["trials"]):
        raise ValueError("the stride is not that of so many outcomes")
    n, sums, path = np.array([[0, 0.0, 0.0], *state["history"]], float).T
    _check_history(state, n, sums, path)
    purse = Purse(np.array(state["wealth"], float), float(state["scale"]), state["trials"])
    slack = _rounding(state, bound)
    if len(purse.wealth) != len(bets(bound)[0]):
        raise ValueError("the wealth is on other bets than those of the bound")
    if not abs(purse.log_value(bound) - state["log_e"]) <= slack:
        raise ValueError("the e-value is not what the wealth amounts to")
    if state["stride"] == 1:
        reached = path
        _replay(purse, n, sums, path, bound, slack)
    else:
        largest_stake = float(bets(bound)[0].max())
        reached = np.append(0.0, path[:-1] + largest_stake * np.diff(sums) + slack)
        if np.any(path > reached):
            raise ValueError("the history's e-values are out of reach for its outcomes")
    _check_alarm(state, n, path, reached)


def _check_batches(batches: Sequence[Batch], trials: int) -> None:
    """Whether the files can have been taken in as they are listed, and are not too many."""
    counted, last = 0, dict[str, Batch]()
    for batch in batches:
        before, new, possible = last.get(batch.name), batch.trials, True
        if before is None:
            possible = not batch.again
        elif not batch.again:  # it has grown
            new -= before.trials
            possible = new > 0 and not before.again
        if not possible:
            raise ValueError(f"the file {batch.name!r} cannot have been counted as it is listed")
        counted += new
        last[batch.name] = batch
    if counted > trials:
        raise ValueError("its files have more outcomes than it counts")


def _check_history(state: Mapping[str, Any], n: Floats, sums: Floats, path: Floats) -> None:
    """Whether the points rise to where the state is, and are those that are kept."""
    trials = state["trials"]
    if (n[-1], sums[-1], path[-1]) != (trials, state["total"], state["log_e"]):
        raise ValueError("the history does not end where the state is")
    rise, costs = np.diff(n), np.diff(sums)
    if np.any(rise <= 0) or np.any(costs < 0) or np.any(costs > rise + 1e-15 * trials):
        raise ValueError("the history does not rise as outcomes from 0 to 1 do")
    if np.count_nonzero(n[:-1] % state["stride"]) > 1:
        raise ValueError("the history has points that would have been dropped")
    whole = bool(np.all(sums == np.floor(sums)))
    if state["binary"] != whole and (state["binary"] or state["stride"] == 1):
        raise ValueError("it is wrong about whether all outcomes are 0 or 1")


def _check_alarm(state: Mapping[str, Any], n: Floats, path: Floats, reached: Floats) -> None:
    """Whether the largest e-value and the alarm agree with the history.

    path: ln of the e-value at each point. reached: the most that it can have been since the last.
    """
    largest, alarm, level = state["largest"], state["alarm_at"], -math.log(state["alpha"])
    if not path.max() <= largest <= max(reached.max(), path.max()):
        raise ValueError("the largest e-value is not that of the history")
    threshold = alarm_threshold(state["alpha"], state["trials"])
    if alarm is None:
        if largest >= threshold:
            raise ValueError("the largest e-value calls for an alarm, and there is none")
        return
    at = int(np.searchsorted(n, alarm))
    exact = n[at] == alarm
    if (
        np.any(path[:at] >= threshold)
        or (path if exact else reached)[at] < level
        or (state["stride"] == 1 and not exact)
        or largest < level
    ):
        raise ValueError("the alarm is not where the e-value reached 1/α first")


def _rounding(state: Mapping[str, Any], bound: float) -> float:
    """How far logarithms of e-values may be apart that were summed up in another order."""
    trials = state["trials"]
    slack = 1e-9 * (1 + math.sqrt(trials)) + 1e-14 * trials
    if not state["binary"]:  # differences of sums lose digits, which a large stake multiplies
        slack += 1e-13 * trials * state["total"] * float(bets(bound)[0].max())
    return slack


def _replay(
    purse: Purse, n: Floats, sums: Floats, path: Floats, bound: float, slack: float
) -> None:
    """Bet on every outcome again: one by one, or on counts where several came at once."""
    trials, costs = np.diff(n).astype(int), np.diff(sums)
    again, repeated = Purse.full(bound), [np.zeros(1)]
    starts = np.flatnonzero((trials > 1) | (np.diff(trials, prepend=2) != 0))
    for start, stop in pairwise([*starts, len(trials)]):
        if trials[start] == 1:
            again, part = wager(again, np.clip(costs[start:stop], 0, 1), bound)
        else:
            again = wager_on_counts(again, costs[start], int(trials[start]), bound)
            part = np.array([again.log_value(bound)])
        repeated.append(part)
    if np.any(np.abs(np.concatenate(repeated) - path) > slack):
        raise ValueError("the history's e-values are not those of its outcomes")
    with np.errstate(divide="ignore"):
        logs = np.array([np.log(bag.wealth) + bag.scale for bag in (again, purse)])
    logs = np.maximum(logs, max(float(logs.max()), 0.0) - NEGLIGIBLE)
    if np.any(np.abs(logs[0] - logs[1]) > slack):
        raise ValueError("the wealth is not that of the outcomes")
