"""The numbers of the page's section on trials: every policy, environment and task of a log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.issuing import ANYTIME
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import percent_up, quoted, round_up
from pacbayes_control.certify.trials import ANONYMOUS, LOOKS, Trials
from pacbayes_control.report.links import linked_trials
from pacbayes_control.report.projection import projected_bound, why_no_projection
from pacbayes_control.trials.choosing import Choice, choose

POLICIES = 200  # in the table
COLUMNS = 16  # policies in the map of environments and in the table of tasks
ROWS = 60  # environments in the map
NAMED = 60  # environments in a list
TASKS = 200  # in the table
LEVELS = 5  # shades of a cell beside none
FAILS, SUCCEEDS = 0.5, 0.05  # graded costs from which, and below which, a trial is counted so


@dataclass(frozen=True)
class Cell:
    """A policy in an environment."""

    cost: float | None  # None where it was not tried
    level: int  # of its colour, from 0 to LEVELS


@dataclass(frozen=True)
class EnvironmentMap:
    """The costs of the hardest environments, by policy, and how many there are of each kind."""

    policies: tuple[str, ...]  # of the columns
    rows: tuple[tuple[str, float, tuple[Cell, ...]], ...]  # name, mean cost, cells
    policies_left_out: int
    environments_left_out: int
    everybody_fails: tuple[str, ...]  # names, at most NAMED
    more_fail: int  # beyond those
    nobody_fails: int


def trial_values(run: Run[Any], trials: Trials) -> dict[str, Any]:
    """The values that the template of the section reads, by name."""
    choice = choice_of(run, trials)
    rows = choice.by_bound
    numbers = [trials.policies.index(row.name) for row in rows]
    links, links_left_out = linked_trials(trials, numbers)
    return {
        "trials": trials,
        "choice": choice,
        "candidates": rows[:POLICIES],
        "candidates_left_out": len(rows) - len(rows[:POLICIES]),
        "behind": behind_words(run.certificate),
        "map": environment_map(trials, numbers) if compared(trials) else None,
        "task_table": task_rows(trials, numbers[:COLUMNS])[:TASKS],
        "tasks_left_out": max(0, len(trials.tasks) - TASKS),
        "policies_without_tasks": max(0, len(numbers) - COLUMNS),
        "task_policies": [trials.policies[i] for i in numbers[:COLUMNS]],
        "links": links,
        "links_left_out": links_left_out,
        "sources": [(Path(file).name, digest) for file, digest in trials.sources.items()],
        "rate": rate,
        "at_most": percent_up if not trials.graded else round_up,
        "cannot_say": list(cannot_say(run, trials)),
    }


def choice_of(run: Run[Any], trials: Trials) -> Choice:
    """Every policy, certified anew as it was for the choice; without a shift.

    With simulation, the run holds that of its own policy only: the bounds of the others are not
    known, and are infinite here.
    """
    c = run.certificate
    spent = c.budget.get(LOOKS, 0.0)
    delta = c.delta - spent - (c.ball.delta if c.ball else 0.0)
    stopping = "anytime" if c.method == ANYTIME else "fixed"
    again = choose(trials, delta, stopping=stopping, candidates=c.candidates, spent=spent)
    if c.simulation is not None:
        known = {c.policy_name: c.bound_on_training}
        rows = [replace(row, bound=known.get(row.name, math.inf)) for row in again.policies]
        again = replace(again, policies=tuple(rows))
    return replace(again, run=run)  # which may be of another policy than the smallest bound's


def behind_words(c: Certificate) -> str:
    """By which numbers policies stand behind those that are shown."""
    return "larger bounds" if c.simulation is None else "higher means"


def compared(trials: Trials) -> bool:
    """Whether several policies were tried in the same environments."""
    return trials.shared and len(trials.policies) > 1 and len(trials) > len(trials.environments)


def rate(value: float, trials: Trials) -> str:
    """A failure rate, or a mean cost if trials are graded."""
    return f"{value:.4f}" if trials.graded else f"{100 * value:.1f} %"


def environment_map(trials: Trials, policies: Sequence[int]) -> EnvironmentMap:
    """Costs by environment and policy, the environments of highest mean cost first."""
    where, size = trials.environment, len(trials.environments)
    tried = np.bincount(where, minlength=size)
    means = np.bincount(where, weights=trials.costs, minlength=size) / tried
    least, most = np.ones(size), np.zeros(size)
    np.minimum.at(least, where, trials.costs)
    np.maximum.at(most, where, trials.costs)
    shown = np.argsort(-means, kind="stable")[:ROWS]
    columns = list(policies[:COLUMNS])
    costs = _costs_in(trials, shown)
    rows = tuple(
        (trials.environments[e], float(means[e]), tuple(_cell(costs[i, p]) for p in columns))
        for i, e in enumerate(shown)
    )
    fails = np.flatnonzero((least >= FAILS) & (tried > 1))
    return EnvironmentMap(
        policies=tuple(trials.policies[p] for p in columns),
        rows=rows,
        policies_left_out=len(policies) - len(columns),
        environments_left_out=size - len(rows),
        everybody_fails=tuple(trials.environments[e] for e in fails[:NAMED]),
        more_fail=max(0, len(fails) - NAMED),
        nobody_fails=int(np.sum(most < SUCCEEDS)),
    )


def _costs_in(trials: Trials, environments: np.ndarray) -> np.ndarray:
    """Costs by policy in these environments, NaN where one was not tried."""
    place = np.full(len(trials.environments), -1)
    place[environments] = np.arange(len(environments))
    inside = np.flatnonzero(place[trials.environment] >= 0)
    costs = np.full((len(environments), len(trials.policies)), np.nan)
    costs[place[trials.environment[inside]], trials.policy[inside]] = trials.costs[inside]
    return costs


def _cell(cost: float) -> Cell:
    known = not math.isnan(cost)
    return Cell(float(cost) if known else None, math.ceil(cost * LEVELS) if known else 0)


def task_rows(trials: Trials, policies: Sequence[int]) -> list[tuple[str, list[float | None]]]:
    """The mean cost of each policy in each task of a fixed list; empty without one."""
    if trials.task is None:
        return []
    sums, counts = (np.zeros((len(trials.tasks), len(trials.policies))) for _ in range(2))
    where = trials.task[trials.environment], trials.policy
    np.add.at(sums, where, trials.costs)
    np.add.at(counts, where, 1)
    return [
        (name, [float(sums[i, p] / counts[i, p]) if counts[i, p] else None for p in policies])
        for i, name in enumerate(trials.tasks)
    ]


# ---- words --------------------------------------------------------------------------------------


def cannot_say(run: Run[Any], trials: Trials) -> Iterator[str]:
    """Sentences on the limits of a choice by trials, of those that apply."""
    c = run.certificate
    if c.tasks is None:
        yield "Environments of another kind: the bounds are for those like the ones in the log."
    else:
        yield (
            f"Other tasks: the bounds are for the mean over these {c.tasks:,} tasks, and for new "
            "episodes like those in the log."
        )
    yield "One environment: a bound on the mean does not say in which ones a policy fails."
    yield _left_out_words(c, trials)
    yield from repeated_words(trials)
    if c.method != ANYTIME:
        yield (
            "Trials that were stopped after a look at them: the numbers of trials are taken to be "
            "decided beforehand."
        )
    if why_not := why_no_projection(c):
        yield f"How more trials would go. {why_not}"
        return
    n = c.environments
    with_four = projected_bound(run, 4 * n)
    shown = round_up(with_four) if trials.graded else percent_up(with_four)
    yield (
        f"How more trials would go. If {4 * n:,} trials in place of {n:,} had the same mean, the "
        f"bound would be about {shown}."
    )


def _left_out_words(c: Certificate, trials: Trials) -> str:
    counted = f"{c.candidates:,} policies were counted"
    if c.candidates == 1:
        counted = "one policy was counted"
    if (c.candidates or 0) > len(trials.policies):
        counted += f", {(c.candidates or 0) - len(trials.policies):,} of them without trials here"
    return (
        f"Policies that were tried and left out of the log: {counted}, and with more of them "
        "every bound would be larger."
    )


def repeated_words(trials: Trials) -> Iterator[str]:
    """Sentences on environments that may have been tried more than once."""
    unit = quoted(trials.unit)
    if trials.unit.casefold() in ANONYMOUS:
        yield (
            f"Whether environments repeat: each {unit} counts as drawn afresh. If several were in "
            "the same place, or from the same seed, the bounds may be too small."
        )
    elif trials.unit.casefold() == "seed":
        yield (
            "Seeds that the policies have seen: if they were trained or tuned on these seeds, the "
            "bounds do not hold."
        )
    if trials.episodes != 1:
        yield (
            f"More episodes in the same {unit}: they are one trial, with their mean. Only another "
            f"{unit} adds a trial."
        )
