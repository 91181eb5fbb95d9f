"""A task whose rollouts are spread over workers, given to whatever takes a task."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import small_robots as robots
from small_robots import TASKS, policies

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import Plan, SearchSettings, learn_finite, learn_gaussian
from pacbayes_control.rollouts import Execution, evaluate, mean_costs, sample_costs, spread
from pacbayes_control.tasks import Noise

PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)
QUICK = SearchSettings(steps=3, pairs=4, natural=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hit_all", "trip"])
def test_learning_with_a_spread_task_gives_the_very_same_run(name: str, two_processes: Executor):
    task = TASKS[name]
    train = task.environments(30, stream="train")
    alone = learn_gaussian(task, train, PRIOR, Plan(search=QUICK, draws=5))
    with spread(task, two_processes) as shared:
        assert shared is not task
        together = learn_gaussian(
            shared, shared.environments(30, stream="train"), PRIOR, Plan(search=QUICK, draws=5)
        )
    assert together.certificate == alone.certificate
    assert together.posterior.to_bytes() == alone.posterior.to_bytes()
    assert together.costs.digests == alone.costs.digests
    assert together.costs.origin == alone.costs.origin
    assert alone.posterior.to_bytes() != PRIOR.to_bytes()


@pytest.mark.slow
def test_the_rollouts_are_run_by_the_workers(tmp_path: Path, two_processes: Executor):
    task = robots.robot_task(tmp_path / "log")
    train = task.environments(40, stream="train")
    with spread(task, two_processes) as shared:
        costs = evaluate(shared, policies(5), train)
        means = mean_costs(shared, policies(5), train)
    assert costs.digests == evaluate(TASKS["hit"], policies(5), train).digests
    assert np.array_equal(means, mean_costs(TASKS["hit"], policies(5), train))
    pids = {pid for *_, pid in robots.rolled_out(tmp_path / "log", train)}
    assert len(pids) == 2
    assert robots.os.getpid() not in pids
    assert learn_finite(costs).certificate.bound <= 1


@pytest.mark.parametrize("name", ["trip", "slip_all"])
def test_a_spread_task_says_what_the_task_says_when_it_is_asked_itself(name: str):
    task = TASKS[name]
    train = task.environments(40, stream="train")
    with ThreadPoolExecutor(2) as executor, spread(task, executor) as shared:
        for noise in ((), (Noise("wind", 3),)):
            actual = shared.costs(policies(5), train, *noise)  # type: ignore[call-arg]
            expected = task.costs(policies(5), train, *noise)
            assert np.array_equal(np.asarray(actual, float), np.asarray(expected, float))
        assert (shared.name, repr(shared)) == (task.name, repr(task))
        assert shared.noise_kind == task.noise_kind  # type: ignore[attr-defined]
        assert shared.surrogate is None


def test_a_spread_task_may_have_its_costs_kept(tmp_path: Path):
    task = TASKS["slip"]
    train = task.environments(40, stream="train")
    with ThreadPoolExecutor(2) as executor, spread(task, executor) as shared:
        kept = evaluate(shared, policies(5), train, execution=Execution(store=tmp_path / "out"))
        drawn = sample_costs(shared, PRIOR, train, 3, Execution(store=tmp_path / "drawn"))
    assert (
        kept.digests
        == evaluate(task, policies(5), train, execution=Execution(store=tmp_path / "out")).digests
    )
    assert drawn.digests == sample_costs(task, PRIOR, train, 3).digests


def test_one_worker_is_the_task_itself():
    task = TASKS["slip"]
    for executor in (None, 1):
        with spread(task, executor) as shared:
            assert shared is task
