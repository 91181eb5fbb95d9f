"""How many more trials a promise needs, after some were carried out.

To add trials until the bound for a fixed number of them is small enough voids the promise: its δ
covers one number, chosen before any outcome was seen. Three ways are valid:

- the bound that holds at every number of trials at once, which may be looked at after each of them;
- a second look at all trials with the exact bound, at another share of δ. To plan a number by the
  outcomes so far is a choice among numbers, which has to be paid for too: only 2, 4, 8, … times the
  trials so far are looked at, at 1/2, 1/4, 1/8, … of that share, so that every choice is covered;
- the exact bound on new trials alone. The outcomes so far may choose their number, and the policy,
  so that only one candidate has to be paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.bounds.anytime import outcomes_needed
from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import check_delta, clopper_pearson
from pacbayes_control.trials.plans.environments import (
    MOST,
    at_most,
    checked_level,
    environments_needed,
    failures_allowed,
)


@dataclass(frozen=True)
class MoreEnvironments:
    """Further trials until a promise is reached, in three valid ways; None where it never is."""

    trials: int  # so far
    mean: float  # their mean cost
    anytime: int | None  # with the bound that holds at every number, if costs go on as observed
    second_look: int | None  # with a second look at all trials, with enough power
    new_alone: int | None  # with the exact bound on new trials alone, with enough power
    total_delta: float  # of the first look and the second together
    reasons: Mapping[str, str] = field(default_factory=dict)  # by field, where it is None

    @property
    def words(self) -> str:
        """The three ways, a line each."""
        ways = {
            "anytime": "bound for every number of trials, if costs go on as observed",
            "second_look": f"second look at all trials, delta {self.total_delta:g} in all",
            "new_alone": f"exact bound on new trials alone, delta {self.total_delta:g} in all",
        }
        return "\n".join(f"{words}: {self._answer(name)}" for name, words in ways.items())

    def _answer(self, name: str) -> str:
        number = getattr(self, name)
        if number is None:
            return self.reasons[name]
        return f"{number:,} more" if number else "reached already"


def more_environments(
    costs: ArrayLike,
    bound: float,
    *,
    delta: float = 0.05,
    candidates: int = 1,
    second_delta: float | None = None,
    power: float = 0.9,
) -> MoreEnvironments:
    """How many more trials of a policy until its expected cost is promised to be at most b.

    To add trials until the bound for a fixed number of them is small enough voids the promise. The
    ways counted here do not.

    Args:
        costs: of the policy so far, in [0, 1]; (trials,)
        bound: b, to be promised
        delta: probability of error of the first look, or of the bound for every number instead
        candidates: policies among which it was chosen by these trials, each at delta/candidates
        second_delta: probability of error of the second look, on top; default as much as delta
        power: the least probability that the exact bounds reach b, if the policy goes on to fail at
            the rate observed

    >>> print(more_environments([0] * 45 + [1] * 5, 0.15).words)
    bound for every number of trials, if costs go on as observed: 423 more
    second look at all trials, delta 0.1 in all: 750 more
    exact bound on new trials alone, delta 0.1 in all: 408 more
    """
    level = checked_level(bound, delta, candidates)
    second = delta if second_delta is None else second_delta
    check_delta(second, "second_delta")
    check_delta(power, "power")
    costs = in_unit_interval(costs, "a cost")
    if costs.ndim != 1 or costs.size == 0:
        raise ValueError("there are no trials yet: give the cost of at least one")
    mean, ways = float(costs.mean()), {}
    if mean < bound:
        ways["anytime"] = _anytime(costs, bound, level)
        ways |= _exact(costs, bound, levels=(level, second / candidates, second), power=power)
    else:
        reason = f"the mean cost so far, {mean:.3g}, is not below the bound {bound:g}"
        ways = dict.fromkeys(("anytime", "second_look", "new_alone"), reason)
    numbers = {name: way if isinstance(way, int) else None for name, way in ways.items()}
    reasons = {name: way for name, way in ways.items() if isinstance(way, str)}
    total = delta + second
    return MoreEnvironments(len(costs), mean, total_delta=total, reasons=reasons, **numbers)


def _anytime(costs: Floats, bound: float, level: float) -> int | str:
    """Further trials until `highest_cost` is at most b, if the costs repeat; or why not."""
    needed = outcomes_needed(1 - costs, 1 - bound, level)
    if needed is None or needed > MOST:
        mean = float(costs.mean())
        return f"the mean cost so far, {mean:.3g}, is too close to the bound {bound:g} for it"
    return max(needed - len(costs), 0)


def _exact(
    costs: Floats, bound: float, *, levels: tuple[float, float, float], power: float
) -> dict[str, int | str]:
    """Further trials for both exact ways, or why not.

    levels: of the first look, of the second for each candidate, and of new trials alone
    """
    if not np.all((costs == 0) | (costs == 1)):
        reason = "costs between 0 and 1 have no exact tail"
        return {"second_look": reason, "new_alone": reason}
    trials, failures = len(costs), int(costs.sum())
    first, second, alone = levels
    if clopper_pearson(failures, trials, first) <= bound:
        return {"second_look": 0, "new_alone": 0}
    try:
        new: int | str = environments_needed(
            bound, failures / trials, delta=alone, power=power
        ).environments
    except ValueError as error:  # more than MOST
        new = str(error)
    return {"second_look": _second_look(trials, failures, bound, second, power), "new_alone": new}


def _second_look(trials: int, failures: int, bound: float, level: float, power: float) -> int | str:
    """Further trials to 2, 4, 8, … times as many, looked at with 1/2, 1/4, 1/8, … of the level."""
    rate, total = failures / trials, 2 * trials
    while total <= MOST:
        level /= 2
        spare = max(int(failures_allowed(total, bound, level)) - failures, -1)
        if at_most(spare, total - trials, rate) >= power:
            return total - trials
        total *= 2
    return f"a bound of {bound:g} at a rate of {rate:.3g} needs more than {MOST:,} trials"
