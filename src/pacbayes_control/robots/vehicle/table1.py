"""The paper's first table: bound and true cost of the vehicle's policy for N = 100 … 10,000.

The paper shows one draw of the training environments, and at N = 100 its bound varies by ±0.03
between draws. Here every row is a mean over draws, with the spread beside it. One draw of the
largest N also serves the smaller ones, cut into disjoint parts: environments are i.i.d., so
disjoint parts are independent draws, and no rollout is run twice. The environments that estimate
the true cost come from a stream of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.learn.repeated import Spread, Tally, disjoint, over_draws
from pacbayes_control.report.console import say, show
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import Execution, evaluate, mean_costs

DELTA = 0.01
PAPER = {100: (0.178, 0.087), 500: (0.135, 0.084), 1000: (0.121, 0.088), 10000: (0.096, 0.083)}


def _paper(costs: Costs) -> Run[Categorical]:
    """Algorithm 1: minimise C_PAC from the uniform prior, and report Maurer's bound."""
    uniform = Categorical.uniform(costs.policies)
    return learn_finite(costs, DELTA, "kl-maurer", "pinsker", uniform)


# Ours start from the uniform prior over the 46 policies that differ: y₀ = 0 is K = 0 for any x₀.
METHODS: dict[str, Callable[[Costs], Run[Categorical]]] = {
    "paper": _paper,
    "kl": lambda costs: learn_finite(costs, DELTA, "kl"),
    "occam": lambda costs: learn_finite(costs, DELTA, "occam"),
}


@dataclass(frozen=True)
class Table1Row(Spread):
    """One method at one N, over all draws of the training environments."""

    environments: int
    method: str  # paper, kl or occam
    paper_bound: float
    paper_true_cost: float


def table1(
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    execution: Execution | None = None,
) -> list[Table1Row]:
    """The table from `draws` draws of 10,000 environments, and ten times as many for smaller N."""
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    task = Vehicle()
    policies = task.policies
    largest = max(PAPER)
    tally = Tally(execution, (test_environments + draws * largest) * len(policies))
    test = task.environments(test_environments, stream="table1 test", seed=seed)
    true_costs = mean_costs(task, policies, test, execution=tally.execution)
    # (N, method) -> one pair of bound and true cost for each draw
    results: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for draw in range(draws):
        train = task.environments(largest, stream=f"table1 train {draw}", seed=seed)
        costs = evaluate(task, policies, train, execution=tally.execution)
        for n in PAPER:
            for sample in disjoint(costs, n):
                for method, learn in METHODS.items():
                    run = learn(sample)
                    truth = float(run.posterior.probabilities @ true_costs)
                    results[n, method].append((run.certificate.bound, truth))
    return [_row(n, method, np.array(pairs)) for (n, method), pairs in results.items()]


def _row(n: int, method: str, pairs: NDArray[np.float64]) -> Table1Row:
    paper_bound, paper_true_cost = PAPER[n]
    return Table1Row(
        environments=n,
        method=method,
        paper_bound=paper_bound,
        paper_true_cost=paper_true_cost,
        **over_draws(*pairs.T),
    )


def show_table1(rows: Sequence[Table1Row]) -> None:
    """Print the paper's numbers beside ours."""
    table = Table(title="Table 1: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("N", "draws", "method", "bound", "± s.d.", "true", "paper: bound", "true"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in rows:
        published = row.method == "paper"
        table.add_row(
            f"{row.environments:,}" if published else "",
            f"{row.draws}" if published else "",
            row.method,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}" if published else "",
            f"{row.paper_true_cost:.3f}" if published else "",
            end_section=row.method == "occam",
        )
    show(table)
    say(
        "paper: minimises C_PAC, reports Maurer's bound (Algorithm 1). kl: minimises the kl bound "
        "with ξ(N). occam: the best single policy. The last two pay once for policies that are "
        "equal. Means over draws of the training environments; the paper's own columns show one."
    )
