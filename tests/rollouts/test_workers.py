"""The same costs, bit for bit, whoever rolls out: threads, processes, or a strange executor."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_robots as robots
from small_robots import TASKS, Scrambled, policies

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import (
    Draws,
    Execution,
    Quantity,
    certifying_draws,
    estimate_true_cost,
    evaluate,
    mean_costs,
    pool,
    sample_costs,
    sampled_mean,
)
from pacbayes_control.rollouts.jobs import CHUNK

KINDS = ("threads", "scrambled", "processes", "ours")
POSTERIOR = DiagonalGaussian([1.0, 2.0], [0.5, 0.1])
TASK_NAMES = pytest.mark.parametrize("name", list(TASKS))


@pytest.fixture(scope="module")
def executors(two_processes: Executor) -> Iterator[dict[str, Executor]]:
    with ExitStack() as stack:
        spawn = multiprocessing.get_context("spawn")
        yield {
            "threads": stack.enter_context(ThreadPoolExecutor(3)),
            "scrambled": stack.enter_context(Scrambled()),
            "processes": stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn)),
            "ours": two_processes,
        }


@pytest.fixture(params=[*KINDS[:2], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[2:])])
def executor(executors: dict[str, Executor], request: pytest.FixtureRequest) -> Executor:
    return executors[request.param]


def same(a: Costs, b: Costs) -> bool:
    return a.digests == b.digests and a.origin == b.origin and a.draws == b.draws


@TASK_NAMES
def test_evaluate_gives_the_same_record_on_workers(name: str, executor: Executor):
    task = TASKS[name]
    environments = task.environments(230, stream="train", seed=2)[7:]
    expected = evaluate(task, policies(9), environments)
    assert same(
        evaluate(task, policies(9), environments, execution=Execution(workers=executor)), expected
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ["miss", "trip", "slip_all"])
def test_sampled_costs_are_the_same_on_workers(name: str, shared: bool, executor: Executor):
    task = TASKS[name]
    environments = task.environments(90, stream="train")[3:]
    for draw in (sample_costs, certifying_draws):
        expected = draw(task, POSTERIOR, environments, Draws(6, 1, shared))
        actual = draw(task, POSTERIOR, environments, Draws(6, 1, shared), Execution(executor))
        assert same(actual, expected)


@pytest.mark.parametrize("name", ["miss", "trip", "slip_all", "hit_all"])
def test_means_on_workers_are_exactly_those_of_this_process(name: str, executor: Executor):
    task = TASKS[name]
    environments = task.environments(2 * CHUNK + 90, stream="test")[50:]
    expected = mean_costs(task, policies(3), environments)
    assert np.array_equal(
        mean_costs(task, policies(3), environments, execution=Execution(workers=executor)), expected
    )
    assert 0 < expected.min() < expected.max() < 1


def test_means_of_a_function_of_the_costs_are_the_same_on_workers(executor: Executor):
    task = TASKS["slip"]
    environments = task.environments(CHUNK + 9, stream="test")
    here = mean_costs(task, policies(3), environments, of=Quantity(function=np.expm1))
    assert np.array_equal(
        mean_costs(
            task,
            policies(3),
            environments,
            of=Quantity(function=np.expm1),
            execution=Execution(workers=executor),
        ),
        here,
    )
    assert not np.array_equal(mean_costs(task, policies(3), environments), here)


@pytest.mark.slow
def test_estimates_on_workers_are_exactly_those_of_this_process(executor: Executor):
    task = TASKS["trip"]
    environments = task.environments(CHUNK + 40, stream="test")
    expected = sampled_mean(task, POSTERIOR, environments, draws=3)
    assert (
        sampled_mean(task, POSTERIOR, environments, draws=3, execution=Execution(workers=executor))
        == expected
    )
    run = learn_finite(evaluate(task, policies(4), task.environments(100, stream="train")))
    expected = estimate_true_cost(task, run, environments)
    assert estimate_true_cost(task, run, environments, Execution(workers=executor)) == expected


def test_kept_costs_are_the_same_bytes_on_workers(tmp_path: Path, executor: Executor):
    task = TASKS["slip"]
    environments = task.environments(150, stream="train")
    here = evaluate(task, policies(5), environments, execution=Execution(store=tmp_path / "here"))
    there = evaluate(
        task,
        policies(5),
        environments,
        execution=Execution(store=tmp_path / "there", workers=executor),
    )
    assert same(here, there)
    for name in ("costs.npy", "campaign.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


@pytest.mark.parametrize("name", ["trip", "slip_all"])
def test_no_worker_is_this_process_and_one_is_another(name: str):
    task = TASKS[name]
    environments = task.environments(60, stream="train")
    expected = evaluate(task, policies(4), environments)
    for workers in (0, 1):
        how = Execution(workers=workers)
        assert same(evaluate(task, policies(4), environments, execution=how), expected)
        with pool(task, workers) as executor:
            assert (executor is None) == (workers == 0)


def test_workers_are_threads_where_a_task_releases_the_lock_and_processes_otherwise():
    task = TASKS["miss_all"]
    with pool(task, 2) as executor:
        assert not isinstance(executor, ThreadPoolExecutor)
    threaded = replace(task, releases_gil=True)  # type: ignore[type-var]
    with pool(threaded, 2) as executor:
        assert isinstance(executor, ThreadPoolExecutor)
    with pool(threaded, 1) as executor:
        assert executor is None
    environments = task.environments(3000, stream="train")
    expected = evaluate(task, policies(4), environments)
    assert same(
        evaluate(threaded, policies(4), environments, execution=Execution(workers=2)), expected
    )


def test_the_vehicle_is_the_same_on_workers(executors: dict[str, Executor]):
    task = Vehicle(wheel_slip=0.1)
    environments = task.environments(120, stream="train")
    expected = evaluate(task, task.policies[:5], environments)
    for kind in ("threads", "scrambled"):
        actual = evaluate(
            task, task.policies[:5], environments, execution=Execution(workers=executors[kind])
        )
        assert same(actual, expected)


@pytest.mark.slow
def test_a_number_of_workers_is_enough_and_every_rollout_is_run_once(tmp_path: Path):
    log = tmp_path / "log"
    task = robots.robot_task(log)
    environments = task.environments(60, stream="train")
    costs = evaluate(task, policies(5), environments, execution=Execution(workers=2))
    assert costs.digests == evaluate(TASKS["hit"], policies(5), environments).digests
    done = robots.rolled_out(log, environments)
    assert sorted((row, number) for row, number, _ in done) == [
        (row, number) for row in range(60) for number in range(5)
    ]
    assert len({pid for *_, pid in done} - {os.getpid()}) == 2


def test_progress_on_workers_grows_to_the_total(executor: Executor):
    task, told = TASKS["miss"], []
    environments = task.environments(100, stream="train")
    evaluate(
        task,
        policies(4),
        environments,
        execution=Execution(
            workers=executor, progress=lambda now: told.append((now.done, now.total))
        ),
    )
    done = [one for one, _ in told]
    assert {total for _, total in told} == {400}
    assert done == sorted(set(done))
    assert done[-1] == 400
    assert len(done) > 1


def test_there_are_no_fewer_workers_than_none():
    task = TASKS["miss"]
    few = task.environments(5, stream="train")
    with pytest.raises(ValueError, match=r"^-2 workers were asked for: give 1 or more, or 0 for"):
        evaluate(task, policies(2), few, execution=Execution(workers=-2))


def test_a_task_that_uses_all_cores_is_given_no_workers():
    class Greedy(robots.FunctionTask):
        uses_all_cores = True

    task = Greedy(robots.miss, robots.draw, "greedy", 2)
    with pytest.raises(ValueError, match=r"^the task greedy uses all cores by itself: leave out"):
        evaluate(
            task, policies(2), task.environments(5, stream="train"), execution=Execution(workers=2)
        )


def test_an_executor_that_was_given_is_not_shut_down():
    task = TASKS["miss"]
    with ThreadPoolExecutor(2) as executor:
        evaluate(
            task,
            policies(2),
            task.environments(5, stream="train"),
            execution=Execution(workers=executor),
        )
        assert executor.submit(int, "7").result() == 7
