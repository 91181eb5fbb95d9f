"""A schedule of trials to carry out by hand, in an order that favours no policy."""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pacbayes_control.certify.checks import check_names
from pacbayes_control.tasks.environments import generator

COLUMNS = ("trial", "policy", "environment", "success")
FORMULA = tuple("=+-@＝＋－＠")  # a spreadsheet computes a cell that begins with one of these
MOST = 1_000_000  # trials of a schedule


class ScheduledTrial(NamedTuple):
    """One trial to carry out."""

    trial: int  # its number, from 1
    policy: str
    environment: str


@dataclass(frozen=True)
class Schedule:
    """Trials in the order in which to carry them out, and the seed that makes it again."""

    trials: tuple[ScheduledTrial, ...]
    seed: int


def schedule(
    policies: Sequence[str], environments: Sequence[str] | int, *, seed: int | None = None
) -> Schedule:
    """Every policy once in every environment, in random order.

    Environments come in random order, and in each of them all policies, again in random order: so
    pairs are complete early, and neither warm motors nor a practised operator favours a policy.

    Args:
        policies: their names
        environments: their names, or how many: "environment 1", …
        seed: from 0 to 2⁶⁴ - 1; by default from the system

    >>> for trial in schedule(["a", "b"], 2, seed=0).trials:
    ...     print(*trial)
    1 a environment 1
    2 b environment 1
    3 b environment 2
    4 a environment 2
    """
    names = _names(environments)
    if not policies or isinstance(policies, str):
        raise ValueError("a schedule needs a list with the name of at least one policy")
    check_names(policies, len(policies))
    check_names(names, len(names), "environment")
    if len(names) * len(policies) > MOST:
        raise ValueError(f"a schedule has at most {MOST:,} trials")
    seed = secrets.randbits(48) if seed is None else seed
    rng = generator(seed, "schedule")
    trials = []
    for place in map(int, rng.permutation(len(names))):
        for chosen in map(int, rng.permutation(len(policies))):
            trials.append(ScheduledTrial(len(trials) + 1, policies[chosen], names[place]))
    return Schedule(tuple(trials), seed)


def schedule_csv(planned: Schedule) -> str:
    """A schedule as CSV, with an empty column for the successes: fill in 1 or 0.

    >>> print(schedule_csv(schedule(["a"], ["shelf"], seed=1)), end="")
    trial,policy,environment,success
    1,a,shelf,
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for trial in planned.trials:
        for name in trial[1:]:
            if name.lstrip().startswith(FORMULA):
                raise ValueError(
                    f"the name {name!r} begins with {name.lstrip()[0]!r}, which a spreadsheet "
                    "takes for a formula: begin it with a letter"
                )
        writer.writerow([*trial, ""])
    return text.getvalue()


def _names(environments: Sequence[str] | int) -> Sequence[str]:
    """The names of environments."""
    if isinstance(environments, str) or not environments:
        raise ValueError("a schedule needs a list of environments, or their number, at least 1")
    if not isinstance(environments, int):
        return environments
    if not 1 <= environments <= MOST:
        raise ValueError(f"{environments} environments: a number from 1 to {MOST:,} is needed")
    return [f"environment {number}" for number in range(1, environments + 1)]
