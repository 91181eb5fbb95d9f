"""Benchmarks that take minutes, at a size that a test can afford: what they count and divide."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from loading import load
from pacbayes_control.learn.search import SearchSettings

bets, continuous, rollouts, scale, swing, trials, vector = map(
    load, ("bets", "continuous", "rollouts", "scale", "swing", "trials", "vector")
)


def once(work: Callable[[], Any], at_least: float = 0.0) -> tuple[Any, float]:  # noqa: ARG001
    return work(), 2.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed twice, and searches have two steps of two pairs."""
    monkeypatch.setattr(swing, "repeat", once)
    monkeypatch.setattr(continuous, "repeat", once)
    monkeypatch.setattr(continuous, "SearchSettings", lambda **_: SearchSettings(steps=2, pairs=2))


def test_the_swing_is_measured_beside_the_vehicle_by_rays_and_steps_that_were_taken():
    found = swing.bench_swing(environments=3)
    assert found.rollouts_per_second == 3 * found.policies / 2.0
    ours, theirs = found.nanoseconds_per_ray_and_step, found.vehicle_nanoseconds_per_ray_and_step
    assert found.ratio == theirs / ours
    rays, most = 20, 200  # of the camera, and more steps than the longest rollout takes
    assert ours > 1e9 * 2.0 / (3 * found.policies * rays * most)


def test_bets_are_measured_beside_chernoffs_inequality_and_the_other_methods():
    excess, chernoff = bets.excesses(np.random.default_rng(0), 100, draws=2)
    assert 0 < excess < chernoff
    for binary in (False, True):
        row = bets.side_by_side(np.random.default_rng(1), 60, draws=1, binary=binary)
        assert row.observed < row.occam < row.kl < row.pinsker
        assert row.occam < row.chernoff
        assert (row.betting < row.kl) == (not binary)


def test_comparisons_are_measured_beside_other_tests_on_the_same_outcomes():
    pair = trials.compared(np.random.default_rng(0), 0.1, 0.6, 200, draws=40)
    assert pair.ratio == pair.ours / pair.turner
    assert 0.5 < pair.ratio < 1.15
    assert pair.ours <= pair.ours_90
    assert pair.fisher <= pair.mcnemar <= pair.ours_90 * 2
    assert trials.false_alarms(np.random.default_rng(1), 0.3, nulls=100, pairs=50) <= 0.12


def test_the_tests_of_a_fixed_number_have_the_power_at_their_number():
    rng = np.random.default_rng(2)
    n = trials.mcnemar_needed(0.1, 0.4)
    a, b = (rng.random((4000, n)) < rate for rate in (0.1, 0.4))
    only_b, only_a = (b & ~a).sum(axis=1), (a & ~b).sum(axis=1)
    significant = binom.sf(only_b - 1, only_a + only_b, 0.5) <= 0.025
    assert significant.mean() == pytest.approx(0.9, abs=0.03)
    n = trials.fisher_needed(0.1, 0.4)
    k_a, k_b = rng.binomial(n, 0.1, 4000), rng.binomial(n, 0.4, 4000)
    significant = hypergeom.sf(k_b - 1, 2 * n, k_a + k_b, n) <= 0.025
    assert significant.mean() == pytest.approx(0.9, abs=0.03)


def test_the_e_process_of_turner_ly_and_gruenwald_is_one():
    rng, last = np.random.default_rng(3), []
    for _ in range(400):
        outcomes = (rng.random((2, 30)) < 0.3).astype(bool)
        last.append(np.exp(trials.turner_path(*outcomes)[-1]))
    assert np.mean(last) < 1 + 3 * np.std(last) / 20


def test_a_search_is_measured_with_more_environments_and_more_policies():
    found = continuous.scale_search(16)
    assert [scale.environments for scale in found] == [16, 32, 64, 16, 16]
    assert [scale.policies for scale in found] == [64, 64, 64, 128, 256]


def test_sizes_of_a_search_are_compared_by_their_rollouts_and_bounds():
    found = continuous.compare_sizes(20)
    assert [size.batch for size in found] == [20, 2, 1, 1, 1, 1]
    assert all(s.rollouts == s.steps * s.policies * s.batch for s in found)
    assert all(len({*size.bounds}) == 2 for size in found)


@pytest.mark.slow
def test_fresh_draws_are_measured_beside_the_papers():
    found = continuous.bench_continuous(reference_draws=400)
    assert (found.environments, found.steps, found.population) == (100, 2, 4)
    assert (found.rollouts, found.reference_rollouts) == (400, 40_000)
    assert found.slack == pytest.approx(math.log(1000) / 400)
    assert found.reference_slack == pytest.approx(math.log(2000) / 400)
    assert found.ratio == found.reference_seconds / found.seconds
    assert found.search_microseconds == pytest.approx(found.search_seconds / (2 * 4 * 100) * 1e6)
    assert found.network_microseconds == found.linear_microseconds == 2.0 / (64 * 1024) * 1e6
    assert [scale.environments for scale in found.scaling] == [1024, 2048, 4096, 1024, 1024]
    assert [size.batch for size in found.sizes] == [1000, 100, 10, 40, 20, 2]


def test_what_evaluate_adds_is_measured_with_and_without_a_folder(monkeypatch: pytest.MonkeyPatch):
    overhead, folders, shares = rollouts._overhead, [], []

    def small(_: float, __: int, rounds: int, folder: Path | None = None) -> float:
        folders.append(folder)
        shares.append(overhead(1e-5, 20, rounds, folder))
        return shares[-1]

    monkeypatch.setattr(rollouts, "_overhead", small)
    monkeypatch.setattr(rollouts, "_speedup", lambda _, n, **__: float(n))
    monkeypatch.setattr(rollouts, "_large_task", lambda _, n: n / 2)
    found = rollouts.bench_rollouts(rounds=1, speedup_rollouts=30, rollouts=200)
    assert [folder is None for folder in folders] == [True, True, False]
    assert found.rollouts == 200
    assert [found.overhead_1ms, found.overhead_10ms, found.overhead_kept_1ms] == shares
    assert found.large_task_overhead == 15
    assert found.speedup_2_processes == 30
    assert found.seconds > 0
    assert found.bare_seconds > 0


@pytest.mark.slow
def test_two_processes_are_measured_beside_one():
    task = rollouts.FunctionTask(rollouts.trivial, rollouts.draw, "trivial", 1)
    assert rollouts._speedup(task, 40) > 0
    assert rollouts._large_task(1e-5, 40, size=100_000) > -1


def test_a_chunk_is_measured_without_a_cluster(tmp_path: Path):
    seconds, files = scale._client(20, tmp_path)
    assert seconds > 0
    assert files > 0


def test_batches_of_episodes_are_measured_against_one_after_another():
    found = vector.bench_vector(rounds=1, environments=2, steps=20)
    assert all(value > 0 for value in vars(found).values())
