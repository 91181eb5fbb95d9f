"""The paper's first table: bound and true cost of the vehicle's policy for N = 100 … 10,000.

The paper shows one draw of the training environments, and at N = 100 its bound varies by ±0.03
between draws. Here every row is a mean over draws, with the spread beside it. One draw of the
largest N also serves the smaller ones, cut into disjoint parts: environments are i.i.d., so
disjoint parts are independent draws, and no rollout is run twice. The environments that estimate
the true cost come from a stream of their own, and so do the pilots of one more row, Occam's bound
with a prior from 100 other environments: a new pilot for each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import pilot_prior
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite, repeated
from pacbayes_control.report.console import print_table, say
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import Execution

DELTA = 0.01
PILOT, PILOT_SIZE = "occam, pilot", 100  # name of the row, and environments of a pilot
PAPER = {100: (0.178, 0.087), 500: (0.135, 0.084), 1000: (0.121, 0.088), 10000: (0.096, 0.083)}


def _paper(costs: Costs) -> Run[Categorical]:
    """Algorithm 1: minimise C_PAC from the uniform prior, and report Maurer's bound."""
    uniform = Categorical.uniform(costs.policies)
    return learn_finite(costs, DELTA, method="kl-maurer", objective="pinsker", prior=uniform)


# Ours start from the uniform prior over the 46 policies that differ: y₀ = 0 is K = 0 for any x₀.
METHODS: dict[str, Callable[[Costs], Run[Categorical]]] = {
    "paper": _paper,
    "kl": lambda costs: learn_finite(costs, DELTA, method="kl"),
    "occam": lambda costs: learn_finite(costs, DELTA, method="occam"),
}


@dataclass(frozen=True)
class Table1Row(repeated.Spread):
    """One method at one N, over all draws of the training environments."""

    environments: int
    method: str  # paper, kl, occam or PILOT
    paper_bound: float
    paper_true_cost: float


def table1(
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    execution: Execution | None = None,
) -> list[Table1Row]:
    """The table from `draws` draws of 10,000 environments, and ten times as many for smaller N."""
    task = Vehicle()
    pilots = repeated.PARTS * PILOT_SIZE
    rollouts = (test_environments + draws * (max(PAPER) + pilots)) * len(task.policies)
    experiment = repeated.Experiment(draws, seed, rollouts, execution)
    true_costs = experiment.true_costs(task, test_environments, "table1 test")
    drawn = experiment.costs(task, max(PAPER), "table1 train")
    piloted = experiment.costs(task, pilots, "table1 pilot")
    for costs, other in zip(drawn, piloted, strict=True):
        priors = [pilot_prior(part) for part in repeated.disjoint(other, PILOT_SIZE)]
        for n in PAPER:
            for sample, prior in zip(repeated.disjoint(costs, n), priors, strict=False):
                for method, learn in METHODS.items():
                    experiment.add(learn(sample), true_costs, n, method)
                run = learn_finite(sample, DELTA, method="occam", prior=prior)
                experiment.add(run, true_costs, n, PILOT)
    return [
        Table1Row(n, method, *PAPER[n], **experiment.spread(n, method))
        for n in PAPER
        for method in (*METHODS, PILOT)
    ]


def show_table1(rows: Sequence[Table1Row]) -> None:
    """Print the paper's numbers beside ours."""

    def shown(row: Table1Row) -> list[str]:
        figures = [row.method, *repeated.cells(row)]
        if row.method != "paper":
            return ["", "", *figures, "", ""]
        published = f"{row.paper_bound:.3f}", f"{row.paper_true_cost:.3f}"
        return [f"{row.environments:,}", f"{row.draws}", *figures, *published]

    print_table(
        "Table 1: the vehicle, δ = 0.01",
        ("N", "draws", "method", "bound", "± s.d.", "true", "paper: bound", "true"),
        map(shown, rows),
        left=("method",),
        section=len(METHODS) + 1,
    )
    say(
        "paper: minimises C_PAC, reports Maurer's bound (Algorithm 1). kl: minimises the kl bound "
        "with ξ(N). occam: the best single policy; with a pilot, from a prior by its costs in "
        f"{PILOT_SIZE} other environments. All but the first pay once for policies that are equal. "
        "Means over draws of the training environments; the paper's own columns show one."
    )
