"""Learning over finitely many policies against the paper's programmes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from measuring import conclude, main, repeat
from pacbayes_control.bounds import kl_inverse, mcallester_pinsker
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.learn.gibbs import minimise
from pacbayes_control.learn.relative_entropy import Programmes, solve_programmes
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate


@dataclass(frozen=True)
class LearnBench:
    """The exact minimiser of C_PAC against the paper's hundred relative entropy programmes."""

    policies: int
    environments: int
    solver: str
    seconds: float
    reference_seconds: float
    ratio: float
    objective: float
    reference_objective: float
    million_policies_seconds: float
    million_graded_policies_seconds: float
    inversions_per_second: float


def bench_learn(solver: str = "clarabel", seed: int = 0) -> LearnBench:
    """Minimise C_PAC for the vehicle's 50 policies both ways, then for a million policies."""
    task = Vehicle()
    grid = task.policies
    n, delta = 1000, 0.01
    costs = evaluate(task, grid, task.environments(n, stream="bench learn", seed=seed))
    prior = Categorical.uniform(costs.policies)

    def objective(posterior: Categorical) -> float:
        cost = posterior.probabilities @ costs.means
        return float(mcallester_pinsker(cost, posterior.kl(prior), n, delta))

    posterior, seconds = repeat(
        lambda: minimise(costs.means, n, prior, delta=delta, objective="pinsker")
    )
    problem = Programmes(costs.means, n, prior, delta)
    solve_programmes(problem, solver=solver, lambdas=1)  # loads the solver
    started = time.perf_counter()
    raw = solve_programmes(problem, solver=solver, lambdas=100)
    reference_seconds = time.perf_counter() - started

    rng = np.random.default_rng(seed)
    many = Categorical.uniform(1_000_000)
    binary = rng.binomial(n, rng.beta(2, 8, len(many))) / n
    graded = rng.beta(2, 8, len(many))
    q, c = rng.random(1_000_000) ** 2, 10.0 ** rng.uniform(-5, 0, 1_000_000)
    _, binary_seconds = repeat(lambda: minimise(binary, n, many, delta=delta, objective="pinsker"))
    _, graded_seconds = repeat(lambda: minimise(graded, n, many, delta=delta, objective="pinsker"))
    _, inversion_seconds = repeat(lambda: kl_inverse(q, c))
    return LearnBench(
        policies=costs.policies,
        environments=n,
        solver=solver,
        seconds=seconds,
        reference_seconds=reference_seconds,
        ratio=reference_seconds / seconds,
        objective=objective(posterior),
        reference_objective=objective(Categorical.project(raw)),
        million_policies_seconds=binary_seconds,
        million_graded_policies_seconds=graded_seconds,
        inversions_per_second=len(q) / inversion_seconds,
    )


def command(
    solver: Annotated[str, typer.Option(help="Solver of the programmes.")] = "clarabel",
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure learning over finitely many policies against the paper's programmes.

    Example: .venv/bin/python benchmarks/learn.py --json bench.json
    """
    check_json(json_file)
    conclude("learn", bench_learn(solver, seed), json_file)


if __name__ == "__main__":
    main(command)
