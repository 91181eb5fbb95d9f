"""Continuous policies: the search, and fresh draws against the paper's."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measuring import Scale, conclude, main, peak_mib, repeat
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.learn import Plan, learn_gaussian
from pacbayes_control.learn.search import GaussianSearch, SearchSettings
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Linear, network_start, paper_prior
from pacbayes_control.robots.vehicle.pretrained import NETWORK
from pacbayes_control.rollouts import Draws, sample_costs
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import first_environments


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
    sizes: list[SearchSize]  # of the search, and the bounds that they lead to


@dataclass(frozen=True)
class SearchSize:
    """Searches of one size on 1,000 environments, and the bounds of two seeds."""

    steps: int
    policies: int  # a step
    batch: int  # environments a step
    rollouts: int
    bounds: list[float]


class Balance(Task):
    """Eight gains that should follow a reference through noise: 1 where the error is too large."""

    name, parameters = "balance", 8
    prior = DiagonalGaussian(np.zeros(8), 1.0)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """States, and pushes from outside."""
        return first_environments(self._draw, self.name, n, stream=stream, seed=seed)

    def costs(self, policies: NDArray, environments: Environments, *_: Noise) -> NDArray:
        """Shape (environments, policies)."""
        drawn = environments.arrays()
        answer = (policies * drawn["state"][:, None]).sum(axis=-1)
        wanted = drawn["state"] @ [1, -1, 0.5, 0.5, -0.5, 0, 0, 1] + drawn["push"]
        return np.abs(answer - wanted[:, None]) > 1

    @staticmethod
    def _draw(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"state": rng.normal(size=(n, 8)), "push": 0.3 * rng.normal(size=n)}


def bench_continuous(reference_draws: int = 30_000, seed: int = 0) -> ContinuousBench:
    """Search and certify as in the paper, N = 100, with fresh draws and with the paper's."""
    n, delta = 100, 0.001
    task = Vehicle(controller=Linear())
    train = task.environments(n, stream="bench continuous", seed=seed)
    task.costs(paper_prior().mean[None], train[:1])  # compiles
    search = GaussianSearch(paper_prior(), n, 0.009, "pinsker", SearchSettings(), seed)
    started = time.perf_counter()
    search_posterior(task, train, search)
    search_seconds = time.perf_counter() - started
    draws = reference_draws // n
    started = time.perf_counter()
    sample_costs(task, search.posterior, train, Draws(draws, seed))
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    sample_costs(task, search.posterior, train, Draws(reference_draws, seed, shared=True))
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
        scaling=scale_search(seed=seed),
        sizes=compare_sizes(seed=seed),
    )


def scale_search(environments: int = 1024, seed: int = 0) -> list[Scale]:
    """Time of a few steps of a search with more environments, then with a larger population."""
    task = Vehicle(controller=Linear())
    scales = []
    for times, pairs in ((1, 32), (2, 32), (4, 32), (1, 64), (1, 128)):
        n = times * environments
        train = task.environments(n, stream="bench search", seed=seed)
        settings = SearchSettings(pairs=pairs, steps=4)
        search = GaussianSearch(paper_prior(), n, 0.009, "kl", settings, seed)
        started = time.perf_counter()
        search_posterior(task, train, search)
        seconds = time.perf_counter() - started
        per_rollout = seconds / (4 * n * 2 * pairs) * 1e6
        scales.append(Scale(n, 2 * pairs, per_rollout, peak_mib()))
    return scales


def compare_sizes(n: int = 1000, seed: int = 0) -> list[SearchSize]:
    """Bounds after searches with fewer environments, policies and steps."""
    task, sizes = Balance(), []
    train = task.environments(n, stream="bench sizes", seed=seed)
    for steps, pairs, share in (
        (200, 32, 1), (200, 32, 10), (200, 32, 100), (200, 8, 25), (100, 32, 50), (200, 32, 500),
    ):  # fmt: skip
        batch, bounds = max(1, n // share), []
        settings = SearchSettings(steps=steps, pairs=pairs, batch=batch)
        for other in (seed, seed + 1):
            plan = Plan(search=settings, seed=other)
            bounds.append(learn_gaussian(task, train, task.prior, plan).certificate.bound)
        sizes.append(SearchSize(steps, 2 * pairs, batch, steps * 2 * pairs * batch, bounds))
    return sizes


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure the search for continuous policies, and fresh draws against the paper's.

    Example: .venv/bin/python benchmarks/continuous.py --json bench.json
    """
    check_json(json_file)
    conclude("continuous", bench_continuous(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
