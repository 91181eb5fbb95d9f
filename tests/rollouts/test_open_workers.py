"""Workers that are opened once, for many evaluations."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import small_robots as robots
from small_robots import TASKS, policies

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import Plan, SearchSettings, learn_finite, learn_gaussian
from pacbayes_control.rollouts import Execution, evaluate, mean_costs, open_workers, sample_costs
from pacbayes_control.rollouts.pools import WorkerPool

PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)
QUICK = SearchSettings(steps=3, pairs=4, natural=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hit_all", "trip"])
def test_learning_with_open_workers_gives_the_very_same_run(name: str, two_processes: Executor):
    task = TASKS[name]
    train = task.environments(30, stream="train")
    plan = Plan(search=QUICK, draws=5)
    alone = learn_gaussian(task, train, PRIOR, plan)
    with open_workers(task, Execution(two_processes)) as opened:
        together = learn_gaussian(task, train, PRIOR, plan, opened)
    assert together.certificate == alone.certificate
    assert together.posterior.to_bytes() == alone.posterior.to_bytes()
    assert together.costs.digests == alone.costs.digests
    assert together.costs.origin == alone.costs.origin
    assert alone.posterior.to_bytes() != PRIOR.to_bytes()


@pytest.mark.slow
def test_the_rollouts_are_run_by_the_workers(tmp_path: Path, two_processes: Executor):
    task = robots.robot_task(tmp_path / "log")
    train = task.environments(40, stream="train")
    with open_workers(task, Execution(two_processes)) as opened:
        costs = evaluate(task, policies(5), train, execution=opened)
        means = mean_costs(task, policies(5), train, execution=opened)
    assert costs.digests == evaluate(TASKS["hit"], policies(5), train).digests
    assert np.array_equal(means, mean_costs(TASKS["hit"], policies(5), train))
    pids = {pid for *_, pid in robots.rolled_out(tmp_path / "log", train)}
    assert len(pids) == 2
    assert robots.os.getpid() not in pids
    assert learn_finite(costs).certificate.bound <= 1


def test_costs_of_open_workers_may_be_kept(tmp_path: Path):
    task = TASKS["slip"]
    train = task.environments(40, stream="train")
    stores = [Execution(store=tmp_path / name) for name in ("out", "drawn")]
    with ThreadPoolExecutor(2) as executor, open_workers(task, Execution(executor)) as opened:
        out, drawn = (Execution(opened.workers, store=each.store) for each in stores)
        kept = evaluate(task, policies(5), train, execution=out)
        sampled = sample_costs(task, PRIOR, train, 3, drawn)
    assert kept.digests == evaluate(task, policies(5), train, execution=stores[0]).digests
    assert sampled.digests == sample_costs(task, PRIOR, train, 3).digests


def test_workers_are_opened_once():
    task = TASKS["slip"]
    with open_workers(task, Execution(2)) as outer, open_workers(task, outer) as inner:
        assert isinstance(outer.workers, WorkerPool)
        assert inner.workers is outer.workers
    for workers in (None, 0):  # this process
        with open_workers(task, Execution(workers)) as opened:
            assert opened.workers.executor is None
