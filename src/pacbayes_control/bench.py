"""Measured speed, always as a ratio to a reference in the same run: machines are noisy."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pacbayes_control.bounds import kl_inverse, mcallester_pinsker
from pacbayes_control.distributions import Categorical
from pacbayes_control.learn.finite import minimise
from pacbayes_control.learn.relative_entropy import solve_programmes
from pacbayes_control.learn.search import GaussianSearch, Settings
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.rollouts import Progress, evaluate, mean_costs, sample_costs
from pacbayes_control.tasks import Vehicle
from pacbayes_control.tasks.vehicle import Linear, network_start, paper_prior
from pacbayes_control.tasks.vehicle.bullet import bullet_costs
from pacbayes_control.tasks.vehicle.pretrained import NETWORK

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """One size of a run that shows how time and memory grow."""

    environments: int
    policies: int
    microseconds: float  # a rollout
    peak_mib: float  # of the whole process so far


@dataclass(frozen=True)
class VehicleBench:
    """Ours on all cores against PyBullet in one process, on the same environments."""

    environments: int
    policies: int
    rollouts_per_second: float
    reference_rollouts_per_second: float
    ratio: float
    agreement: float  # share of rollouts that end alike
    mean_cost: float
    reference_mean_cost: float
    scaling: list[Scale]


def bench_vehicle(
    environments: int = 120,
    scale_to: int = 16_384,
    seed: int = 0,
    progress: Progress | None = None,
) -> VehicleBench:
    """Time both simulators on the paper's 50 policies, then ours at growing sizes."""
    task = Vehicle()
    policies = task.gain_grid()
    sample = task.environments(environments, stream="bench", seed=seed)
    task.costs(policies, sample[:1])  # compiles
    ours, seconds = repeat(lambda: task.costs(policies, sample))
    bullet_costs(task, policies[:1], sample[:1])  # loads PyBullet
    started = time.perf_counter()
    reference = bullet_costs(task, policies, sample, progress)
    reference_seconds = time.perf_counter() - started
    return VehicleBench(
        environments=environments,
        policies=len(policies),
        rollouts_per_second=ours.size / seconds,
        reference_rollouts_per_second=reference.size / reference_seconds,
        ratio=reference_seconds / seconds,
        agreement=float((ours == reference).mean()),
        mean_cost=float(ours.mean()),
        reference_mean_cost=float(reference.mean()),
        scaling=scale_vehicle(scale_to, seed),
    )


def scale_vehicle(largest: int, seed: int = 0) -> list[Scale]:
    """Time and memory for a quarter, a half and all of `largest` environments, then of policies."""
    task = Vehicle()
    grid = task.gain_grid()
    sizes = [(max(1, largest // 4), 1), (max(1, largest // 2), 1), (largest, 1)]
    sizes += [(max(1, largest // 4), 2), (max(1, largest // 4), 4)]
    scales = []
    for n, copies in sizes:
        policies = np.concatenate([grid] * copies)
        environments = task.environments(n, stream="bench scale", seed=seed)
        started = time.perf_counter()
        mean_costs(task, policies, environments)
        seconds = time.perf_counter() - started
        per_rollout = seconds / (n * len(policies)) * 1e6
        scales.append(Scale(n, len(policies), per_rollout, peak_mib()))
    return scales


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
    grid = task.gain_grid()
    n, delta = 1000, 0.01
    costs = evaluate(task, grid, task.environments(n, stream="bench learn", seed=seed))
    prior = Categorical.uniform(costs.policies)

    def objective(posterior: Categorical) -> float:
        cost = posterior.probabilities @ costs.means
        return float(mcallester_pinsker(cost, posterior.kl(prior), n, delta))

    posterior, seconds = repeat(lambda: minimise(costs.means, n, prior, delta, "pinsker"))
    solve_programmes(costs.means, n, prior, delta, solver=solver, lambdas=1)  # loads the solver
    started = time.perf_counter()
    raw = solve_programmes(costs.means, n, prior, delta, solver=solver, lambdas=100)
    reference_seconds = time.perf_counter() - started

    rng = np.random.default_rng(seed)
    many = Categorical.uniform(1_000_000)
    binary = rng.binomial(n, rng.beta(2, 8, len(many))) / n
    graded = rng.beta(2, 8, len(many))
    q, c = rng.random(1_000_000) ** 2, 10.0 ** rng.uniform(-5, 0, 1_000_000)
    _, binary_seconds = repeat(lambda: minimise(binary, n, many, delta, "pinsker"))
    _, graded_seconds = repeat(lambda: minimise(graded, n, many, delta, "pinsker"))
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


@dataclass(frozen=True)
class ContinuousBench:
    """Algorithm 2 in the paper's setting: the search, and the final bound both ways."""

    environments: int
    steps: int
    population: int
    search_seconds: float
    search_microseconds: float  # a rollout, with all that the search does
    rollouts: int  # of the final bound with fresh draws
    slack: float  # ln(1/δ')/M, of it
    seconds: float
    reference_rollouts: int  # with the paper's draws, shared by all environments
    reference_slack: float  # ln(2/δ')/L
    reference_seconds: float
    ratio: float  # of the seconds
    network_microseconds: float  # a rollout of sixteen hidden units
    linear_microseconds: float
    scaling: list[Scale]  # of one step of the search


def bench_continuous(reference_draws: int = 30_000, seed: int = 0) -> ContinuousBench:
    """Search and certify as in the paper, N = 100, with fresh draws and with the paper's."""
    n, delta = 100, 0.001
    task = Vehicle(controller=Linear())
    train = task.environments(n, stream="bench continuous", seed=seed)
    task.costs(paper_prior().mean[None], train[:1])  # compiles
    search = GaussianSearch(paper_prior(), n, 0.009, "pinsker", Settings(), seed)
    started = time.perf_counter()
    search_posterior(task, train, search)
    search_seconds = time.perf_counter() - started
    draws = reference_draws // n
    started = time.perf_counter()
    sample_costs(task, search.posterior, train, draws, seed=seed)
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    sample_costs(task, search.posterior, train, reference_draws, seed=seed, shared=True)
    reference_seconds = time.perf_counter() - started
    many = task.environments(1024, stream="bench continuous", seed=seed)
    network = Vehicle(controller=NETWORK)
    networks = network_start(NETWORK).sample(np.random.default_rng(seed), 64)
    lines = paper_prior().sample(np.random.default_rng(seed), 64)
    network.costs(networks, many[:1])
    _, network_seconds = repeat(lambda: network.costs(networks, many))
    _, linear_seconds = repeat(lambda: task.costs(lines, many))
    return ContinuousBench(
        environments=n,
        steps=search.step,
        population=search.population,
        search_seconds=search_seconds,
        search_microseconds=search_seconds / (search.step * search.population * n) * 1e6,
        rollouts=draws * n,
        slack=float(-np.log(delta) / (draws * n)),
        seconds=seconds,
        reference_rollouts=reference_draws * n,
        reference_slack=float(np.log(2 / delta) / reference_draws),
        reference_seconds=reference_seconds,
        ratio=reference_seconds / seconds,
        network_microseconds=network_seconds / (64 * len(many)) * 1e6,
        linear_microseconds=linear_seconds / (64 * len(many)) * 1e6,
        scaling=scale_search(seed),
    )


def scale_search(seed: int = 0) -> list[Scale]:
    """Time of a few steps of a search with more environments, then with a larger population."""
    task = Vehicle(controller=Linear())
    scales = []
    for n, pairs in ((1024, 32), (2048, 32), (4096, 32), (1024, 64), (1024, 128)):
        train = task.environments(n, stream="bench search", seed=seed)
        settings = Settings(pairs=pairs, steps=4)
        search = GaussianSearch(paper_prior(), n, 0.009, "kl", settings, seed)
        started = time.perf_counter()
        search_posterior(task, train, search)
        seconds = time.perf_counter() - started
        per_rollout = seconds / (4 * n * 2 * pairs) * 1e6
        scales.append(Scale(n, 2 * pairs, per_rollout, peak_mib()))
    return scales


def repeat(work: Callable[[], T], at_least: float = 1.0) -> tuple[T, float]:
    """Run until `at_least` seconds are spent; the result and the mean seconds of one run."""
    count, started = 0, time.perf_counter()
    while True:
        result = work()
        count += 1
        spent = time.perf_counter() - started
        if spent >= at_least:
            return result, spent / count


def peak_mib() -> float:
    """The largest memory that this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
