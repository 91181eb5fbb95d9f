"""Trials of two policies in pairs: in the same environment, or in the order of recording."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.text import quoted
from pacbayes_control.certify.trials import Trials

Numbers = NDArray[np.intp]

FEW = 7  # trials that are sorted by chance now and then
RARE = 0.01  # the probability of an order by chance, below which it was none


@dataclass(frozen=True, eq=False)
class Pairs:
    """Trials of two policies, each beside one of the other, in the order of their completion.

    There is at least one pair.
    """

    trials: Numbers  # (pairs, 2): the numbers of the trials of A and of B
    differences: NDArray[np.float64]  # (pairs,): the cost of B less that of A
    in_same_environment: bool  # else they are independent, and paired in the order of recording
    together: int  # pairs in a round, of one of each task of a fixed list; else 1
    left_out: int  # trials of A or B without a partner


def policy_number(trials: Trials, name: str) -> int:
    """The number of a policy; an error that lists the policies if there is none of the name."""
    if name in trials.policies:
        return trials.policies.index(name)
    near = get_close_matches(name, trials.policies, 1)
    meant = f"did you mean {quoted(near[0])}?" if near else "policies are "
    if not near:
        meant += ", ".join(quoted(each) for each in trials.policies[:8])
        meant += " …" if len(trials.policies) > 8 else ""
    raise ValueError(f"there are no trials of {quoted(name)}: {meant}")


def pairs_of(trials: Trials, a: int, b: int, untried: bool = False) -> Pairs:
    """The trials of two policies in pairs.

    In the same environment where there are such; else the first of each, the second of each, and
    so on. With a fixed list of tasks, in rounds of one pair of each task.
    """
    first, second = trials.of(a), trials.of(b)
    common, of_a, of_b = np.intersect1d(
        trials.environment[first], trials.environment[second], return_indices=True
    )
    same = trials.shared and len(common) > 0
    if same:
        matched = np.column_stack((first[of_a], second[of_b]))
        _check_untried(trials, (first, second), matched, untried)
    else:
        _check_unsorted(trials, (first, second))
        matched = _by_recording(trials, first, second)
    matched = matched[np.argsort(matched.max(axis=1), kind="stable")]
    together = 1
    if trials.task is not None:
        matched, together = _in_rounds(trials, matched), len(trials.tasks)
    d = trials.costs[matched[:, 1]] - trials.costs[matched[:, 0]]
    left_out = len(first) + len(second) - matched.size
    return Pairs(matched, d, same, together, left_out)


def _check_unsorted(trials: Trials, both: tuple[Numbers, Numbers]) -> None:
    """An error if outcomes decide which trials are pairs: such pairs prove nothing.

    So it is if the trials of both policies are sorted by outcome, or those of the one that has
    more of them: only its first ones have partners.
    """
    orders = [trials.costs[mine] for mine in both]
    wrong = [mine for mine, costs in zip(both, orders, strict=True) if _is_sorted(costs)]
    if len(wrong) < 2:
        longer = [mine for mine in wrong if len(mine) > min(map(len, both))]
        wrong = [mine for mine in longer if _chance_of_order(trials.costs[mine]) < RARE]
    if not wrong:
        return
    whose = " and ".join(quoted(trials.policies[trials.policy[mine[0]]]) for mine in wrong)
    raise ValueError(
        f"the trials of {whose} are sorted by outcome: give them in the order of recording, since "
        "they are paired in it"
    )


def _is_sorted(costs: NDArray[np.float64]) -> bool:
    """Whether costs that are not all equal, and not few, only rise or only fall."""
    steps = np.diff(costs)
    return len(steps) >= FEW and bool(steps.any()) and not ((steps > 0).any() and (steps < 0).any())


def _chance_of_order(costs: NDArray[np.float64]) -> float:
    """The probability that these costs in random order are sorted, upwards or downwards."""
    counts = np.unique(costs, return_counts=True)[1]
    log_orders = math.lgamma(len(costs) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return math.exp(min(math.log(2) - log_orders, 0.0))


def _by_recording(trials: Trials, first: Numbers, second: Numbers) -> Numbers:
    """The n-th trial of one beside the n-th of the other; within each task of a fixed list."""
    tasks = (
        np.zeros(len(trials.environments), dtype=np.intp) if trials.task is None else trials.task
    )
    rows = []
    for task in range(max(1, len(trials.tasks))):
        one, other = (each[tasks[trials.environment[each]] == task] for each in (first, second))
        count = min(len(one), len(other))
        rows.append(np.column_stack((one[:count], other[:count])))
    return np.concatenate(rows)


def _in_rounds(trials: Trials, matched: Numbers) -> Numbers:
    """Pairs in rounds: the first pair of every task, the second of every task, and so on."""
    assert trials.task is not None
    tasks = trials.task[trials.environment[matched[:, 0]]]
    rows = [matched[tasks == task] for task in range(len(trials.tasks))]
    counts = [len(each) for each in rows]
    if min(counts) < max(counts) or not max(counts):
        least, most = (counts.index(limit) for limit in (min(counts), max(counts)))
        raise ValueError(
            f"there are {counts[least]} pairs of the task {quoted(trials.tasks[least])} and "
            f"{counts[most]} of {quoted(trials.tasks[most])}: --tasks fixed needs as many of each"
        )
    return np.stack(rows, axis=1).reshape(-1, 2)


def _check_untried(
    trials: Trials, both: tuple[Numbers, Numbers], matched: Numbers, untried: bool
) -> None:
    """An error if one policy lacks a trial that is not simply still to come.

    Trials recorded after the last pair was completed may wait for their partners.
    """
    for mine, column in zip(both, matched.T, strict=True):
        alone = np.setdiff1d(mine, column)
        waiting = alone > matched.max()
        if untried or waiting.all():
            continue
        trial = int(alone[~waiting][0])
        where = quoted(trials.environments[trials.environment[trial]])
        whose = quoted(trials.policies[trials.policy[trial]])
        raise ValueError(
            f"{np.sum(~waiting)} of {len(mine)} trials of {whose}, such as the one in {where}, "
            "have no partner: say --missing untried if the other policy was not tried there, for "
            "reasons that do not depend on how it would have done"
        )
