"""Rollouts that raise, workers that die, and costs that are none: said clearly, never counted."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from numpy.typing import NDArray
from small_robots import (
    TASKS,
    Erratic,
    Scrambled,
    goal,
    policies,
    released,
    robot_task,
    rolled_out,
    waiting,
)

from pacbayes_control.certify.costs import Costs
from pacbayes_control.rollouts import (
    Execution,
    Progress,
    RolloutError,
    evaluate,
    failures,
    mean_costs,
    pools,
)
from pacbayes_control.rollouts.failures import Failure
from pacbayes_control.rollouts.processes import Processes
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from polling import wait_until

ENVIRONMENTS = TASKS["miss"].environments(40, stream="train", seed=8)[10:]  # those of every robot
N = len(ENVIRONMENTS)
COLUMNS = 4
EXPECTED = evaluate(TASKS["hit"], policies(COLUMNS), ENVIRONMENTS).values
AT = (goal(ENVIRONMENTS, 13), 2)  # environment 23, policy 2
NAMED = (
    r"^the rollout of policy 2 in environment 23 of stream 'train' \(seed 8\) failed, also when it "
    r"was tried again: "
)
ONCE = (
    r"^the rollout of policy 2 in environment 23 of stream 'train' \(seed 8\) failed at first "
    r"\(.*\), but not when it was run again: the task is not deterministic, or the infrastructure "
    r"fails; if that is it, allow retries \(retries=1, --set retries=1\), which the certificate "
    r"will say; or declare the error a failure in advance \(the task's `failures`\)"
)


def how(**options: Any) -> Execution:
    """An execution, by the short names of these tests."""
    names = {"executor": "workers", "out": "store"}
    return Execution(**{names.get(name, name): value for name, value in options.items()})


def roll(task: Any, **options: Any) -> NDArray:
    return record(task, **options).values


def record(task: Any, **options: Any) -> Costs:
    return evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=how(**options))


def times(log: Path) -> Counter[tuple[int, int]]:
    return Counter((row, number) for row, number, _ in rolled_out(log, ENVIRONMENTS))


# ---- rollouts that raise ------------------------------------------------------------------------


def test_a_rollout_that_raises_is_reported_with_all_that_is_needed_to_run_it_again(tmp_path: Path):
    task = robot_task(tmp_path / "log", trouble=(AT,))
    with pytest.raises(RolloutError, match=NAMED + "KeyError: 'the arm") as caught:
        roll(task)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert times(tmp_path / "log")[13, 2] == 2


@pytest.mark.parametrize("row", [4, 13, 20, 29])
@pytest.mark.slow
def test_a_rollout_that_raises_is_tried_once_more_on_another_process(
    tmp_path: Path, two_processes: Executor, row: int
):
    log = tmp_path / "log"
    task = robot_task(log, trouble=((goal(ENVIRONMENTS, row), 2),))
    with pytest.raises(
        RolloutError, match=rf"policy 2 in environment {10 + row} .* KeyError"
    ) as no:
        roll(task, executor=two_processes, out=tmp_path / "out")
    (failure,) = no.value.failures
    assert (failure.row, failure.column) == (row, 2)
    assert "in raises" in "".join(no.value.__notes__)  # the traceback of there
    first, second = processes_at(log, row)
    assert first != second
    assert os.getpid() not in (first, second)
    assert failure.worker.endswith(f" {second}")


def processes_at(log: Path, row: int) -> list[int]:
    """Those that tried to roll out policy 2 in an environment, in order."""
    return [pid for *at, pid in rolled_out(log, ENVIRONMENTS) if at == [row, 2]]


@pytest.mark.slow
def test_rollouts_that_raise_at_a_time_are_tried_on_another_process_too(
    tmp_path: Path, two_processes: Executor
):
    log, rows = tmp_path / "log", (4, 13, 20, 21, 22, 29)
    task = robot_task(log, trouble=tuple((goal(ENVIRONMENTS, row), 2) for row in rows))
    with pytest.raises(RolloutError) as caught:
        roll(task, executor=two_processes, out=tmp_path / "out")
    assert {failure.row for failure in caught.value.failures} == set(rows)
    for row in rows:
        first, second = processes_at(log, row)
        assert first != second


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("kind", ["once raises", "once unpicklable"])
def test_a_rollout_that_fails_only_once_is_refused_unless_retries_are_allowed(
    tmp_path: Path, workers: int | None, kind: str, two_processes: Executor
):
    executor = two_processes if workers else None
    task = robot_task(tmp_path / "log", trouble=(AT,), kind=kind)
    with pytest.raises(RolloutError, match=ONCE) as caught:
        roll(task, executor=executor)
    assert "\n" not in str(caught.value)
    assert times(tmp_path / "log")[13, 2] == 2
    task = robot_task(tmp_path / "another log", trouble=(AT,), kind=kind)
    costs = record(task, executor=executor, retries=1)
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents == {"retries": 1}
    assert times(tmp_path / "another log")[13, 2] == 2


@pytest.mark.parametrize("workers", [None, 2])
def test_the_others_are_kept_and_the_mended_task_goes_on(
    tmp_path: Path, workers: int | None, two_processes: Executor
):
    log, out, mended = tmp_path / "log", tmp_path / "out", tmp_path / "mended"
    executor = two_processes if workers else None
    trouble = (AT, (goal(ENVIRONMENTS, 2), 0))
    task = robot_task(log, trouble=trouble, mended=str(mended))
    with pytest.raises(RolloutError) as caught:
        roll(task, executor=executor, out=out)
    assert len(caught.value.failures) == 2
    message = str(caught.value)
    assert "\n" not in message
    assert "; 1 others failed too" in message
    assert f"118 of 120 rollouts are kept in {out}: fix the task and do the same with" in message
    assert set(times(log)) == {(row, number) for row in range(N) for number in range(COLUMNS)}

    before = robots.lines_of(log)
    mended.touch()
    costs = record(task, executor=executor, out=out, retries=1)  # its code is the same
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents == {"retries": 2, "resumed": 1}
    again = [(row, number) for row, number, _ in rolled_out(log, ENVIRONMENTS, before)]
    assert {(13, 2), (2, 0)} <= set(again)
    assert len(again) <= 2 + 16  # those, and the probes


def test_many_failures_stop_everything_soon(tmp_path: Path):
    log = tmp_path / "log"
    task = robot_task(log, kind="always raises")
    with pytest.raises(RolloutError, match=r"KeyError.*; 9 others failed too") as caught:
        roll(task, out=tmp_path / "out")
    assert len(caught.value.failures) == failures.MOST_FAILURES == 10
    assert len(times(log)) == 10
    assert set(times(log).values()) == {2}


def test_many_failures_stop_two_processes_soon(tmp_path: Path, two_processes: Executor):
    log = tmp_path / "log"
    task = robot_task(log, kind="always raises")
    with pytest.raises(RolloutError, match=r"KeyError.*; \d+ others failed too") as caught:
        roll(task, out=tmp_path / "out", executor=two_processes)
    assert 10 <= len(caught.value.failures) <= 10 + 3
    assert len(times(log)) <= 10 + 4


def test_without_a_folder_the_first_failure_is_the_end(tmp_path: Path):
    task = robot_task(tmp_path / "log", kind="always raises")
    with pytest.raises(RolloutError) as caught:
        roll(task)
    assert len(caught.value.failures) == 1
    assert sum(times(tmp_path / "log").values()) == 2


@pytest.mark.parametrize("kind", ["unpicklable", "raises"])
def test_an_exception_that_cannot_be_pickled_does_no_harm(
    tmp_path: Path, kind: str, two_processes: Executor
):
    task = robot_task(tmp_path / "log", trouble=(AT,), kind=kind)
    with pytest.raises(RolloutError, match=NAMED):
        roll(task, executor=two_processes)
    assert np.array_equal(roll(TASKS["hit"], executor=two_processes), EXPECTED)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be put in words")


def unprintable(policy: NDArray, environment: Mapping[str, Any]) -> float:  # noqa: ARG001
    raise UnprintableError


def test_an_exception_that_cannot_be_printed_is_reported_too():
    task = FunctionTask(unprintable, robots.draw, "unprintable", 2)
    with pytest.raises(RolloutError, match=r"policy 0 in environment 10 of stream 'train'"):
        roll(task)


def pickled_and_back() -> tuple[str, list[Failure], bool]:
    again = pickle.loads(pickle.dumps(RolloutError("all is lost", [Failure("words")])))
    return str(again), again.failures, "distributed" in sys.modules


@pytest.mark.slow
def test_the_error_itself_can_be_pickled(two_processes: Executor):
    """Whoever calls evaluate in a process of a pool must be told; Dask has a remedy of its own."""
    assert two_processes.submit(pickled_and_back).result() == (
        "all is lost",
        [Failure("words")],
        False,
    )


@pytest.mark.parametrize("kind", ["scrambled", pytest.param("one", marks=pytest.mark.slow)])
def test_a_failing_rollout_is_tried_again_where_there_is_no_other_process(
    tmp_path: Path, kind: str
):
    """Of a Dask worker with two threads, or a pool that has not started its other processes."""
    task = robot_task(tmp_path / "log", kind="always raises")
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=spawn) if kind == "one" else Scrambled() as executor,
        pytest.raises(RolloutError, match="KeyError"),
    ):
        evaluate(task, policies(1), ENVIRONMENTS[:2], execution=Execution(workers=executor))
    assert max(times(tmp_path / "log").values()) == 2


# ---- batches ------------------------------------------------------------------------------------


BATCHES = BatchTask(robots.hit_all, robots.draw_many, "batches", 2)


def batch_environments() -> Environments:
    return BATCHES.environments(300, stream="train", seed=8)[10:]


def fragile_at(file: Path, bad: set[tuple[float, int]]) -> Callable[..., NDArray]:
    """Rollouts that raise where a file says so, until it says something else."""
    file.write_text(json.dumps(sorted(bad)))

    def rollouts(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
        goals, numbers = environments["goal"], policies[..., 0]
        wrong = json.loads(file.read_text())
        if any([float(g), int(n)] in wrong for g in goals for n in np.ravel(numbers)):
            raise FloatingPointError("diverged")
        return robots.hit_all(policies, environments)

    return rollouts


@pytest.mark.parametrize("workers", [None, 2])
def test_a_batch_that_raises_is_halved_until_it_is_known_which_rollout_it_was(
    tmp_path: Path, workers: int | None, two_processes: Executor
):
    environments = batch_environments()
    bad = {(goal(environments, 101), 2), (goal(environments, 250), 0)}
    task = BatchTask(fragile_at(tmp_path / "bad", bad), robots.draw_many, "fragile", 2)
    executor = two_processes if workers else None
    with pytest.raises(RolloutError) as caught:
        evaluate(
            task,
            policies(COLUMNS),
            environments,
            execution=Execution(workers=executor, store=tmp_path / "out"),
        )
    failed = {(failure.row, failure.column) for failure in caught.value.failures}
    assert failed == {(101, 2), (250, 0)}
    words = r"FloatingPointError: diverged \(test_failures\.py:\d+\); 1 others failed too"
    assert re.search(words, str(caught.value))
    assert "1,158 of 1,160 rollouts are kept" in str(caught.value)
    (tmp_path / "bad").write_text("[]")
    kept = evaluate(
        task,
        policies(COLUMNS),
        environments,
        execution=Execution(store=tmp_path / "out", retries=1),
    )
    assert kept.incidents == {"retries": 2, "resumed": 1}
    assert kept.digests == evaluate(BATCHES, policies(COLUMNS), environments).digests


def test_a_batch_that_raises_here_without_a_folder_names_the_rollout_too(tmp_path: Path):
    environments = batch_environments()
    bad = fragile_at(tmp_path / "bad", {(goal(environments, 101), 2)})
    task = BatchTask(bad, robots.draw_many, "fragile", 2)
    with pytest.raises(RolloutError, match=r"policy 2 in environment 111 .* diverged"):
        evaluate(task, policies(COLUMNS), environments)
    with pytest.raises(RolloutError, match=r"policy 2 in environment 111 .* diverged"):
        mean_costs(task, policies(COLUMNS), environments)


def test_a_batch_that_raises_once_here_is_halved_and_what_is_done_is_not_repeated():
    calls: list[int] = []

    def rollouts(rows: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
        calls.append(len(environments["goal"]))
        if len(calls) == 2:
            raise FloatingPointError("diverged")
        return np.zeros((calls[-1], len(rows)))

    task = BatchTask(rollouts, robots.draw_many, "once", 2)
    environments = task.environments(2500, stream="train")
    with pytest.raises(RolloutError, match=r"one of 4,096 rollouts in environments 1024 to 2047 "):
        evaluate(task, policies(COLUMNS), environments)
    assert calls == [1024, 1024, 512, 512]  # refused at once, without the last environments
    calls.clear()
    costs = evaluate(task, policies(COLUMNS), environments, execution=Execution(retries=1))
    assert costs.incidents == {"retries": 1}
    assert calls == [1024, 1024, 512, 512, 452]


# ---- workers that die ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["once dies", "once killed"])
def test_a_worker_that_dies_is_refused_unless_retries_are_allowed(
    tmp_path: Path, kind: str, two_processes: Executor
):
    task = robot_task(tmp_path / "log", trouble=(AT,), kind=kind)
    with pytest.raises(
        RolloutError, match=r"failed at first \(its worker died [^)]* [79]\), but not "
    ):
        roll(task, executor=two_processes)
    task = robot_task(tmp_path / "another log", trouble=(AT,), kind=kind)
    costs = record(task, executor=two_processes, retries=1)
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents["retries"] >= 1
    assert times(tmp_path / "another log")[13, 2] >= 2


@pytest.mark.slow
def test_a_rollout_that_always_kills_its_worker_is_reported_and_the_others_survive(
    tmp_path: Path, two_processes: Executor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pools, "Pace", lambda _: Erratic([2]))
    log, out = tmp_path / "log", tmp_path / "out"
    task = robot_task(log, trouble=(AT,), kind="dies", mended=str(tmp_path / "mended"))
    with pytest.raises(
        RolloutError, match=NAMED + "its worker died with code 7; 119 of 120 rollouts"
    ) as error:
        roll(task, executor=two_processes, out=out)
    assert [(f.row, f.column) for f in error.value.failures] == [(13, 2)]
    (tmp_path / "mended").touch()
    before = robots.lines_of(log)
    costs = record(task, executor=two_processes, out=out, retries=1)
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents == {"retries": 1, "resumed": 1}
    assert robots.lines_of(log) - before <= 1 + 16


@pytest.mark.slow
def test_workers_killed_from_outside_make_no_difference(tmp_path: Path, two_processes: Executor):
    """Out of memory, say: twice, amid rollouts."""
    log, moments = tmp_path / "log", (20, 80)
    task = robot_task(log, holds=moments)

    def kill() -> None:
        for lines in moments:
            assert wait_until(lambda n=lines: bool(waiting(log, n)))
            os.kill(min(waiting(log, lines)), signal.SIGKILL)
            released(log, lines).touch()

    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill)
        costs = record(task, executor=two_processes, out=tmp_path / "out", retries=1)
        killed.result()
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents.keys() == {"retries"}


@pytest.mark.slow
def test_a_worker_that_dies_while_costs_are_being_kept_makes_no_difference(
    tmp_path: Path, two_processes: Processes
):
    task = robot_task(tmp_path / "log")
    killed = []

    def progress(now: Progress) -> None:
        assert now.total == N * COLUMNS
        if now.done > 4 and not killed:
            popen = next(iter(two_processes.processes)).popen
            killed.append(popen.pid)
            os.kill(popen.pid, signal.SIGKILL)
            popen.wait()

    costs = roll(task, executor=two_processes, progress=progress, retries=1)
    assert np.array_equal(costs, EXPECTED)
    assert killed


def test_a_given_pool_that_was_shut_down_is_a_clear_error():
    with ThreadPoolExecutor(1) as executor:
        pass
    with pytest.raises(RuntimeError, match="the executor takes no more work: cannot schedule"):
        roll(TASKS["hit"], executor=executor)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in a rollout", "between two"])
def test_a_given_pool_that_breaks_is_a_clear_error_and_what_is_finished_is_kept(
    tmp_path: Path, moment: str
):
    log, out = tmp_path / "log", tmp_path / "out"
    inside = moment == "in a rollout"
    task = robot_task(log, trouble=(AT,) if inside else (), kind="once dies")
    spawn = multiprocessing.get_context("spawn")
    executor: Any = ProcessPoolExecutor(2, mp_context=spawn)
    killed = []

    def progress(now: Progress) -> None:
        assert now.total == N * COLUMNS
        if not inside and now.done > 4 and not killed:
            killed.append(rolled_out(log, ENVIRONMENTS)[0][2])
            os.kill(killed[0], signal.SIGKILL)
            assert wait_until(lambda: bool(executor._broken))

    with (
        executor,
        pytest.raises(RuntimeError, match=r"^a worker died, .* the same with retries=1 \(--set re"),
    ):
        roll(task, executor=executor, out=out, progress=progress)
    assert list(out.glob("*.npz"))
    before = robots.lines_of(log)
    told = []
    costs = record(task, out=out, progress=lambda now: told.append(now.done), retries=1)
    assert np.array_equal(costs.values, EXPECTED)
    assert costs.incidents["resumed"] == 1
    assert 1 <= costs.incidents["retries"] <= 4  # pieces in flight
    assert told[0] > 0
    assert robots.lines_of(log) - before <= N * COLUMNS - told[0] + 16
    with pytest.raises(ValueError, match=r"keeps \d rollouts that had failed before they"):
        roll(task, out=out)


def test_a_rollout_that_exits_is_a_failure_like_any_other(tmp_path: Path, two_processes: Executor):
    task = robot_task(tmp_path / "log", trouble=(AT,), kind="exits")
    try:
        with pytest.raises(RolloutError, match=NAMED):
            roll(task, executor=two_processes)
    except SystemExit:
        pytest.fail("the process that called evaluate was about to exit")


# ---- costs that are none ------------------------------------------------------------------------

WRONG = {
    "two": "cost 1.5 at environment 23, policy 2 is outside [0, 1]: rescale the costs",
    "negative": "cost -1e-09 at environment 23, policy 2 is outside [0, 1]: rescale the costs",
    "infinite": "cost inf at environment 23, policy 2 is outside [0, 1]: rescale the costs",
    "nan": "the cost at environment 23, policy 2 is NaN: every rollout needs a cost",
    "none": "environment 23",
    "words": "policy 2 in environment 23 of stream 'train' (seed 8) failed, also when it was tried"
    " again: TypeError: a rollout came to 'far away', and a cost is a number from 0 to 1",
    "list": "policy 2 in environment 23 of stream 'train' (seed 8) failed, also when it was tried",
}


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize(("kind", "words"), WRONG.items(), ids=list(WRONG))
def test_what_is_no_cost_is_refused_with_the_pair_and_never_counted(
    tmp_path: Path, kind: str, words: str, workers: int | None, two_processes: Executor
):
    task = robot_task(tmp_path / "log", trouble=(AT,), kind=kind)
    executor = two_processes if workers else None
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        roll(task, executor=executor)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=re.escape(words)):
        roll(task, executor=executor, out=tmp_path / "out")
    told = []
    sound = robot_task(tmp_path / "log", trouble=(AT,), kind=kind, mended=str(tmp_path))
    with pytest.raises(ValueError, match="holds rollouts of another task"):
        roll(sound, out=tmp_path / "out", progress=lambda now: told.append(now.done))
    with pytest.raises(ValueError, match=re.escape(words)):
        mean_costs(task, policies(COLUMNS), ENVIRONMENTS, execution=Execution(workers=executor))


def test_a_cost_that_is_a_string_of_digits_is_refused(tmp_path: Path):
    task = robot_task(tmp_path / "log", trouble=(AT,), kind="digits")
    with pytest.raises(ValueError, match=r"policy 2 in environment 23"):
        roll(task)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (lambda costs: costs[:-1], r"returned costs of shape \(29, 4\) for 30 environments × 4 po"),
        (lambda costs: costs.T, r"returned costs of shape \(4, 30\) for 30 environments × 4 pol"),
        (lambda costs: costs[..., None], r"returned costs of shape \(30, 4, 1\) for 30 environme"),
        (lambda _: None, r"returned costs that are not numbers \(dtype object\)"),
        (lambda costs: costs + 1.0, r"cost 2 at environment 10, policy \d is outside \[0, 1\]"),
        (lambda costs: np.where(costs, np.nan, 0), r"cost at environment 10, policy \d is NaN"),
        (
            lambda costs: np.where(costs, "x", "0"),
            r"returned costs that are not numbers \(dtype <U",
        ),
    ],
    ids=["a row missing", "transposed", "three axes", "None", "above 1", "NaN", "words"],
)
def test_batches_that_are_no_costs_are_refused_and_not_tried_again(
    spoilt: Callable[[NDArray], Any], words: str
):
    calls = []

    def rollouts(policies: NDArray, environments: Mapping[str, NDArray]) -> Any:
        calls.append(len(environments["goal"]))
        return spoilt(robots.hit_all(policies, environments))

    task = BatchTask(rollouts, robots.draw_many, "spoilt", 2)
    environments = task.environments(40, stream="train", seed=8)[10:]
    with pytest.raises(RolloutError, match=words) as caught:
        evaluate(task, policies(COLUMNS), environments)
    assert "\n" not in str(caught.value)
    assert calls == [30]
    with (
        ThreadPoolExecutor(2) as executor,
        pytest.raises(RolloutError, match=r"returned costs|is outside|is NaN"),
    ):
        evaluate(task, policies(COLUMNS), environments, execution=Execution(workers=executor))


# ---- tasks that cannot be sent ------------------------------------------------------------------


def test_a_task_that_cannot_be_pickled_is_refused_with_what_to_do(two_processes: Executor):
    lock = threading.Lock()

    def locked(policy: NDArray, environment: Mapping[str, Any]) -> float:
        with lock:
            return robots.hit(policy, environment)

    task = FunctionTask(locked, robots.draw, "locked", 2)
    with pytest.raises(
        ValueError,
        match=r"^task locked cannot be sent to workers: .*lock.*roll out in this process",
    ) as caught:
        roll(task, executor=two_processes)
    assert "\n" not in str(caught.value)
    assert np.array_equal(roll(task), EXPECTED)
    with ThreadPoolExecutor(2) as executor, pytest.raises(ValueError, match="cannot be sent"):
        roll(task, executor=executor)  # each thread is to have a task of its own


class Homesick:
    """It can be sent, and does not arrive."""

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
        return robots.hit(policy, environment)

    def __reduce__(self) -> Any:
        return _arrive, (os.getpid(),)


def _arrive(home: int) -> Homesick:
    if os.getpid() != home:
        raise ImportError("no simulator here")
    return Homesick()


def test_a_task_that_does_not_arrive_is_refused_with_what_to_do(two_processes: Executor):
    task = FunctionTask(Homesick(), robots.draw, "homesick", 2)
    with pytest.raises(
        RolloutError,
        match=r"^a worker cannot load the task \(ImportError: no simulator here "
        r"\(test_failures\.py:\d+\)\): ins",
    ):
        roll(task, executor=two_processes)


@pytest.mark.slow
def test_tasks_from_a_script_or_a_notebook_reach_the_processes(two_processes: Executor):
    scale = 0.25

    def near(policy: NDArray, environment: Mapping[str, Any]) -> float:
        return scale * robots.hit(policy, environment)

    task = FunctionTask(near, lambda rng: robots.draw(rng), "near", 2)
    assert np.array_equal(roll(task, executor=two_processes), EXPECTED * 0.25)
