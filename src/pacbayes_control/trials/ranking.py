"""All policies compared with each other, with one probability of error for all pairs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.anytime import MARGIN, log_e_of_difference
from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.certify.text import confidence_percent, quoted
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.comparing import finite_exp
from pacbayes_control.trials.pairing import pairs_of

MOST = 100  # policies


@dataclass(frozen=True, eq=False)
class Ranking:
    """Which policies are certified to be better than which, from the lowest mean cost on."""

    policies: tuple[str, ...]
    means: NDArray[np.float64]  # (policies,): costs
    trials: NDArray[np.intp]  # (policies,)
    pairs: NDArray[np.intp]  # (policies, policies): trials of both that were compared
    log_e: NDArray[np.float64]  # (policies, policies): against "the row is not better"
    better: NDArray[np.bool_]  # (policies, policies): the row is better than the column
    alpha: float  # probability that any of these is wrong, at any time
    graded: bool

    @property
    def ranks(self) -> list[tuple[int, int]]:
        """The best and the worst rank that each policy may have."""
        wins, losses = self.better.sum(axis=1), self.better.sum(axis=0)
        return [
            (1 + int(lost), len(self.policies) - int(won))
            for won, lost in zip(wins, losses, strict=True)
        ]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The largest sets of policies of which no two can be told apart, the best first."""
        apart = self.better | self.better.T
        alike = [set(np.flatnonzero(~row).tolist()) - {i} for i, row in enumerate(apart)]
        return tuple(sorted(_cliques(alike)))

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        confidence = f"With confidence {confidence_percent(self.alpha)}"
        best = [i for i, (rank, _) in enumerate(self.ranks) if rank == 1]
        decided, of = int(self.better.sum()), len(self.policies) * (len(self.policies) - 1) // 2
        first = f"the best is among {', '.join(quoted(self.policies[i]) for i in best[:8])}"
        first += f" and {len(best) - 8} more" if len(best) > 8 else ""
        if len(best) == 1:
            first = f"{quoted(self.policies[best[0]])} is the best"
        return f"{confidence}, {first}; {decided} of {of} pairs can be told apart."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = [
            {
                "name": name,
                "trials": int(self.trials[i]),
                "mean": float(self.means[i]),
                "best_rank": self.ranks[i][0],
                "worst_rank": self.ranks[i][1],
                "better_than": [self.policies[j] for j in np.flatnonzero(self.better[i])],
            }
            for i, name in enumerate(self.policies)
        ]
        groups = [[self.policies[i] for i in group] for group in self.groups]
        e_values = [[finite_exp(value) for value in row] for row in self.log_e]
        return {
            "policies": rows,
            "groups": groups,
            "e_values": e_values,
            "alpha": self.alpha,
            "sentence": self.sentence,
        }


def rank(
    trials: Trials, *, alpha: float = 0.05, in_order: bool = False, untried: bool = False
) -> Ranking:
    """Compare all policies with each other, and say which can be told apart.

    One e-value for each ordered pair, against "the first is not better"; 1/e is a p-value at any
    time, and Holm's rule makes the probability of any wrong statement at most α: the largest of m
    e-values must reach m/α, the next one (m-1)/α, and so on, up to the first that does not.

    Args:
        trials: of all policies, paired where they were tried in the same environments
        alpha: probability that anything is wrong
        in_order: whether trials were carried out in random order, as recorded
        untried: whether environments in which one of two was not tried may be left out

    >>> trials = Trials.from_costs([[0, 1, 0], [0, 1, 0], [1, 1, 0]] * 5, ["new", "old", "other"])
    >>> print(rank(trials).sentence)
    With confidence 95 %, the best is among “other”, “new”; 2 of 3 pairs can be told apart.
    """
    check_delta(alpha, "alpha")
    count = len(trials.policies)
    if count < 2:
        raise ValueError("one policy cannot be ranked: give trials of two or more")
    if count > MOST:
        raise ValueError(f"{count} policies are too many to compare: at most {MOST}")
    means = np.array([trials.costs[trials.of(i)].mean() for i in range(count)])
    order = np.lexsort((np.arange(count), means))
    log_e, compared = np.zeros((count, count)), np.zeros((count, count), dtype=np.intp)
    for i, first in enumerate(order):
        for j in range(i + 1, count):
            pairs = pairs_of(trials, int(first), int(order[j]), untried)
            compared[i, j] = compared[j, i] = len(pairs.differences)
            log_e[i, j] = _log_e(pairs.differences, pairs.together, in_order)
            log_e[j, i] = _log_e(-pairs.differences, pairs.together, in_order)
    rejected = holm(log_e, alpha)
    return Ranking(
        policies=tuple(trials.policies[i] for i in order),
        means=means[order],
        trials=trials.counts[order],
        pairs=compared,
        log_e=log_e,
        better=rejected & ~rejected.T,  # looks on the way that contradict each other say nothing
        alpha=alpha,
        graded=bool(trials.graded),
    )


def holm(log_e: NDArray[np.float64], alpha: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected by their e-values, by Holm's rule; the diagonal has none.

    >>> holm(np.log([[1, 900], [1, 1]]), 0.05).tolist()
    [[False, True], [False, False]]
    """
    count = len(log_e)
    flat = np.where(np.eye(count, dtype=bool), -np.inf, log_e).ravel()
    largest, hypotheses = np.argsort(-flat, kind="stable"), count * (count - 1)
    rejected = np.zeros(count * count, dtype=bool)
    for done, place in enumerate(largest[:hypotheses]):
        if flat[place] < np.log((hypotheses - done) / alpha) + MARGIN:
            break
        rejected[place] = True
    return rejected.reshape(count, count)


def _log_e(differences: NDArray[np.float64], together: int, in_order: bool) -> float:
    """ln of the e-value against "the mean difference is at most 0"."""
    path = log_e_of_difference(differences)[together - 1 :: together]
    return float(path.max() if in_order else path[-1])


def _cliques(neighbours: list[set[int]]) -> list[tuple[int, ...]]:
    """The largest sets of nodes that are all neighbours (Bron and Kerbosch, with a pivot)."""
    found: list[tuple[int, ...]] = []

    def extend(chosen: list[int], open_: set[int], done: set[int]) -> None:
        if not open_ and not done:
            found.append(tuple(sorted(chosen)))
            return
        pivot = max(open_ | done, key=lambda node: len(neighbours[node] & open_))
        for node in sorted(open_ - neighbours[pivot]):
            near = neighbours[node]
            extend([*chosen, node], open_ & near, done & near)
            open_ = open_ - {node}
            done = done | {node}

    extend([], set(range(len(neighbours))), set())
    return found
