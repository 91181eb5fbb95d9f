"""Many draws of the training environments, summarised for the tables of experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.rollouts import Execution, Progress, evaluate, mean_costs
from pacbayes_control.tasks import Task

PARTS = 10  # draws of a smaller N that are taken from one draw of the largest, at most


def check_draws(draws: int) -> None:
    """Raise ValueError unless there is a draw of the training environments."""
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")


class Experiment:
    """Rollouts of a task's policies, whose progress is reported as one, and what they lead to.

    >>> told = Execution(progress=lambda now: print(now.done, "of", now.total))
    >>> experiment = Experiment(draws=1, seed=0, rollouts=10, execution=told)
    >>> for done in (2, 4):  # of an evaluation of four rollouts
    ...     experiment.execution.tell(done, 4)
    2 of 10
    4 of 10
    >>> experiment.execution.tell(6, 6)
    10 of 10
    """

    def __init__(
        self, draws: int, seed: int, rollouts: int, execution: Execution | None = None
    ) -> None:
        """Begin an experiment.

        Args:
            draws: of the training environments
            seed: of every random stream
            rollouts: how many there will be in all
            execution: where they run
        """
        check_draws(draws)
        self.draws, self.seed, self.total = draws, seed, rollouts
        self.whole = execution or Execution()
        self.before = 0  # rollouts of the evaluations that are complete
        # for each setting, the bound and the true cost of every draw
        self.outcomes: defaultdict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
        self.execution = replace(self.whole, progress=self._told)

    def _told(self, now: Progress) -> None:
        self.whole.tell(self.before + now.done, self.total, now.remark)
        if now.done == now.total:
            self.before += now.total

    def true_costs(self, task: Task, n: int, stream: str) -> NDArray[np.float64]:
        """Estimates of the policies' true costs, on n environments."""
        test = task.environments(n, stream=stream, seed=self.seed)
        return mean_costs(task, task.policies, test, execution=self.execution)

    def costs(self, task: Task, n: int, stream: str) -> Iterator[Costs]:
        """Costs of the policies in each draw of n training environments."""
        for draw in range(self.draws):
            train = task.environments(n, stream=f"{stream} {draw}", seed=self.seed)
            names = task.policy_names
            yield evaluate(task, task.policies, train, names, execution=self.execution)

    def samples(
        self, task: Task, sizes: Collection[int], stream: str
    ) -> Iterator[tuple[int, Costs]]:
        """Disjoint parts of each draw of the largest size: how many environments, and costs."""
        for costs in self.costs(task, max(sizes), stream):
            for n in sizes:
                for part in disjoint(costs, n):
                    yield n, part

    def add(self, run: Run[Categorical], true_costs: NDArray[np.float64], *setting: Any) -> None:
        """Count what was learnt from one draw in some setting."""
        true_cost = float(run.posterior.probabilities @ true_costs)
        self.outcomes[setting].append((run.certificate.bound, true_cost))

    def spread(self, *setting: Any) -> dict[str, Any]:
        """The fields of a `Spread`, for one setting."""
        return over_draws(*np.array(self.outcomes[setting]).T)


def disjoint(costs: Costs, n: int) -> Iterator[Costs]:
    """Costs in disjoint parts of n environments each, which are independent draws.

    >>> len(list(disjoint(Costs([[0], [1], [0], [1], [0], [1]]), 2)))
    3
    """
    for first in range(0, min(PARTS, costs.environments // n) * n, n):
        origin = {}
        if costs.range:  # so that the environments of one part are told from those of another
            start = costs.range.start + first
            origin = costs.range._replace(start=start, stop=start + n)._asdict()
        rows = costs.values[first : first + n]
        yield Costs(rows, costs.names, origin, parameters=costs.parameters)


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
    spread: dict[str, Any] = {"violations": int(np.sum(bounds < truths)), "draws": len(bounds)}
    for name, values in (("bound", bounds), ("true_cost", truths)):
        spread[name] = float(values.mean())
        spread[f"{name}_std"] = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return spread | {"bound_min": float(bounds.min()), "bound_max": float(bounds.max())}


def cells(row: Spread) -> tuple[str, str, str]:
    """The bound, its standard deviation and the true cost, for a table to read."""
    deviation = f"{row.bound_std:.3f}" if row.draws > 1 else "-"
    return f"{row.bound:.3f}", deviation, f"{row.true_cost:.3f}"
