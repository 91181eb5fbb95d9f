"""Many draws of the training environments, summarised for the tables of experiments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.certify.costs import Costs
from pacbayes_control.rollouts import Execution, Progress

PARTS = 10  # draws of a smaller N that are taken from one draw of the largest, at most


class Tally:
    """Progress of several evaluations in a row, reported as that of one.

    >>> tally = Tally(Execution(progress=lambda now: print(now.done, "of", now.total)), 10)
    >>> for done in (2, 4):  # of an evaluation of four rollouts
    ...     tally.execution.tell(done, 4)
    2 of 10
    4 of 10
    >>> tally.execution.tell(6, 6)
    10 of 10
    """

    def __init__(self, execution: Execution | None, total: int) -> None:
        self.whole, self.total = execution or Execution(), total
        self.before = 0  # rollouts of the evaluations that are complete
        self.execution = replace(self.whole, progress=self._told)

    def _told(self, now: Progress) -> None:
        self.whole.tell(self.before + now.done, self.total)
        if now.done == now.total:
            self.before += now.total


def disjoint(costs: Costs, n: int) -> Iterator[Costs]:
    """Costs in disjoint parts of n environments each, which are independent draws.

    >>> len(list(disjoint(Costs([[0], [1], [0], [1], [0], [1]]), 2)))
    3
    """
    for part in range(min(PARTS, costs.environments // n)):
        rows = costs.values[part * n : (part + 1) * n]
        yield Costs(rows, costs.names, parameters=costs.parameters)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Bound and true cost of one setting, over all draws of the training environments."""

    bound: float  # mean over draws
    bound_std: float  # standard deviation over draws; 0 for one draw
    bound_min: float
    bound_max: float
    true_cost: float  # mean over draws, each estimated on the same test environments
    true_cost_std: float
    violations: int  # draws whose bound is below the estimate of the true cost
    draws: int


def over_draws(bounds: ArrayLike, true_costs: ArrayLike) -> dict[str, Any]:
    """The fields of a `Spread`.

    >>> over_draws([0.2, 0.3], [0.1, 0.1])["bound"]
    0.25
    """
    bounds, truths = np.asarray(bounds, float), np.asarray(true_costs, float)
    several = len(bounds) > 1
    return {
        "bound": float(bounds.mean()),
        "bound_std": float(bounds.std(ddof=1)) if several else 0.0,
        "bound_min": float(bounds.min()),
        "bound_max": float(bounds.max()),
        "true_cost": float(truths.mean()),
        "true_cost_std": float(truths.std(ddof=1)) if several else 0.0,
        "violations": int(np.sum(bounds < truths)),
        "draws": len(bounds),
    }
