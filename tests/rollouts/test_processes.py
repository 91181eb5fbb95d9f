"""Processes of this machine: their start, their share of the cores, and rollouts that hang."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from numpy.typing import NDArray
from small_robots import TASKS, goal, policies, rolled_out

from pacbayes_control.rollouts import Execution, Processes, Progress, RolloutError, evaluate, pools
from pacbayes_control.rollouts.conformance import check_task
from pacbayes_control.rollouts.processes import THREADS, ProcessEnded, cores
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from polling import wait_until, wait_until_gone

ENVIRONMENTS = TASKS["hit"].environments(30, stream="train")
COLUMNS = 3
EXPECTED = evaluate(TASKS["hit"], policies(COLUMNS), ENVIRONMENTS).values
WORST = EXPECTED.copy()
WORST[7, 1] = WORST[20, 0] = 1


# ---- how they start -----------------------------------------------------------------------------


def settings() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in THREADS}


def test_libraries_in_each_get_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch):
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    with Processes(cores()) as some:
        assert set(some.submit(settings).result().values()) == {"1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # a user's word counts
    with Processes(1) as one, Processes(1, threads=3) as told:
        assert one.submit(settings).result()["OMP_NUM_THREADS"] == "7"
        assert one.submit(settings).result()["MKL_NUM_THREADS"] == str(cores())
        assert set(told.submit(settings).result().values()) == {"3"}


def threads_of_torch() -> int:
    import torch

    return torch.get_num_threads()


def torch_threads(policy: NDArray, environment: Mapping[str, Any]) -> float:  # noqa: ARG001
    """A cost that tells how many threads torch has."""
    return threads_of_torch() / 64


@pytest.mark.slow
def test_torch_has_its_share_in_every_kind_of_process(monkeypatch: pytest.MonkeyPatch):
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    before = threads_of_torch()
    task = FunctionTask(torch_threads, robots.draw, "torch", 2)
    threaded = BatchTask(
        lambda rows, drawn: np.full((len(drawn["goal"]), len(rows)), threads_of_torch() / 64),
        robots.draw_many,
        "torch threads",
        2,
        releases_gil=True,
    )
    share = max(1, cores() // 2) / 64
    spawn = get_context("spawn")
    with ProcessPoolExecutor(2, spawn) as theirs:
        for workers in (2, theirs):
            costs = evaluate(task, policies(2), ENVIRONMENTS, execution=Execution(workers))
            assert set(costs.values.ravel()) == {share}
    costs = evaluate(threaded, policies(2), ENVIRONMENTS, execution=Execution(2))
    assert set(costs.values.ravel()) == {share}
    assert threads_of_torch() == before  # of this process, afterwards


SHADOWED = """
import sys
import numpy as np
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.tasks import FunctionTask

sys.path.insert(0, sys.argv[1])

def draw(rng):
    return {"goal": rng.random()}

def rollout(policy, environment):
    import copy, queue, helper
    assert "lib" in queue.__file__ and "lib" in copy.__file__, (queue.__file__, copy.__file__)
    return float(environment["goal"] > helper.level)

task = FunctionTask(rollout, draw, "shadowed", 1)
train = task.environments(20, stream="train")
print(evaluate(task, np.zeros((2, 1)), train, execution=Execution(2)).means)
"""


@pytest.mark.slow
def test_files_of_the_working_folder_are_not_taken_for_the_standard_library(tmp_path: Path):
    """The parent has loaded its own by the time that these are there."""
    for name in ("queue", "copy", "loky", "struct", "numbers", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    (tmp_path / "helper.py").write_text("level = 2.0\n")
    run = subprocess.run(
        [sys.executable, "-P", "-c", SHADOWED, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[0. 0.]\n"


# ---- the task travels once ----------------------------------------------------------------------


class Heavy:
    """A rollout with a load that leaves a line whenever it is unpacked."""

    def __init__(self, log: str, size: int) -> None:
        self.log, self.load = log, b"\0" * size

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
        return robots.hit(policy, environment)

    def __repr__(self) -> str:
        return "Heavy()"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        robots.append(self.log, f"{os.getpid()}")


@pytest.mark.parametrize("size", [10, 2 * pools.LARGE])
@pytest.mark.slow
def test_a_task_is_sent_to_each_worker_once(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pools, "Pace", lambda _: robots.Erratic([3]))
    sent: list[int] = []
    submit = pools.WorkerPool.submit

    def counted(workers: pools.WorkerPool, avoid: Any, fn: Any, *arguments: Any) -> Any:
        sent.append(len(arguments[1] or b""))
        return submit(workers, avoid, fn, *arguments)

    monkeypatch.setattr(pools.WorkerPool, "submit", counted)
    log = tmp_path / "log"
    task = FunctionTask(Heavy(str(log), size), robots.draw, "heavy", 2)
    costs = evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=Execution(2))
    assert np.array_equal(costs.values, EXPECTED)
    loaded = log.read_text().split()
    assert len(loaded) == len(set(loaded)) <= 2
    assert len(sent) > 30
    if size > pools.LARGE:
        assert sum(bytes_sent > 0 for bytes_sent in sent) <= 4  # pieces in flight at the start


# ---- rollouts that hang, and processes that die -------------------------------------------------


class Hanging:
    """A rollout that does not end for a few goals and policies."""

    def __init__(self, log: Path, hangs: set[tuple[float, int]]) -> None:
        self.log, self.hangs = str(log), hangs

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
        at = float(environment["goal"]), int(policy[0])
        robots.append(self.log, f"{at[0]!r} {at[1]} {os.getpid()}")
        if at in self.hangs:
            time.sleep(600)
        return robots.hit(policy, environment)

    def __repr__(self) -> str:
        return "Hanging()"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 2])
def test_a_rollout_that_takes_too_long_costs_1_and_is_never_run_again(
    tmp_path: Path, workers: int | None
):
    log = tmp_path / "log"
    hangs = {(goal(ENVIRONMENTS, 7), 1), (goal(ENVIRONMENTS, 20), 0)}
    task = FunctionTask(Hanging(log, hangs), robots.draw, "hanging", 2)
    how = Execution(workers, tmp_path / "out", rollout_timeout=1.5)
    costs = evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=how)
    assert np.array_equal(costs.values, WORST)
    assert costs.origin["incidents"] == {"timeouts": 2}
    assert costs.origin["timed_out"] == [[7, 1], [20, 0]]
    assert costs.origin["rollout_timeout"] == 1.5
    tried = [at for *at, _ in rolled_out(log, ENVIRONMENTS)]
    assert tried.count([7, 1]) == tried.count([20, 0]) == 1
    again = evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=how)  # with its probes
    assert (again.digests, again.origin) == (costs.digests, costs.origin)
    assert [at for *at, _ in rolled_out(log, ENVIRONMENTS)].count([7, 1]) == 1
    with pytest.raises(ValueError, match="holds rollouts of another limit of time for a rollout"):
        evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=Execution(store=tmp_path / "out"))


@pytest.mark.slow
def test_a_check_names_a_rollout_that_takes_too_long(tmp_path: Path):
    train = TASKS["hit"].environments(8, stream="conformance")
    hanging = Hanging(tmp_path / "log", {(goal(train, 3), 1)})
    task = FunctionTask(hanging, robots.draw, "hanging", 2)
    checks = check_task(task, policies(2), rollout_timeout=1.0)
    failed = next(check for check in checks if not check.passed)
    assert failed.detail == "policy 1 in environment 3 took longer than 1 s"


@pytest.mark.slow
def test_a_batch_is_timed_one_rollout_at_a_time():
    train = TASKS["hit_all"].environments(30, stream="train")
    bad = goal(train, 4)

    def rollouts(rows: NDArray, drawn: Mapping[str, NDArray]) -> NDArray:
        if bad in drawn["goal"] and 1 in rows[..., 0]:
            time.sleep(600)
        return robots.hit_all(rows, drawn)

    task = BatchTask(rollouts, robots.draw_many, "hanging batch", 2)
    costs = evaluate(task, policies(2), train, execution=Execution(2, rollout_timeout=1.0))
    assert costs.origin["timed_out"] == [[4, 1]]
    calm = evaluate(TASKS["hit_all"], policies(2), train).values.copy()
    calm[4, 1] = 1
    assert np.array_equal(costs.values, calm)


def test_only_processes_that_are_started_here_can_be_ended():
    with ThreadPoolExecutor(1) as threads:
        how = Execution(threads, rollout_timeout=1.0)
        with pytest.raises(ValueError, match="can be ended only in processes that are started he"):
            evaluate(TASKS["hit"], policies(2), ENVIRONMENTS, execution=how)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan"), "1"])
def test_a_limit_of_time_is_a_positive_number(seconds: Any):
    with pytest.raises(ValueError, match=r"^rollout_timeout = .* is not a positive number of sec"):
        evaluate(
            TASKS["hit"], policies(2), ENVIRONMENTS, execution=Execution(rollout_timeout=seconds)
        )


@pytest.mark.slow
def test_without_a_limit_a_rollout_that_takes_long_is_named_on_the_way(tmp_path: Path):
    log = tmp_path / "log"
    task = robots.robot_task(log, holds=(60,))
    told: list[Progress] = []

    def progress(now: Progress) -> None:
        told.append(now)
        if now.remark:
            robots.released(log, 60).touch()

    how = Execution(2, progress=progress)
    costs = evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=how)
    assert np.array_equal(costs.values, EXPECTED)
    remarks = [now.remark for now in told if now.remark]
    assert remarks
    assert all(" in environment " in remark and " s so far" in remark for remark in remarks)


def test_a_process_that_dies_says_where_it_was_and_is_replaced(two_processes: Processes):
    future = two_processes.submit(os._exit, 3)
    with pytest.raises(ProcessEnded, match="its worker died with code 3"):
        future.result()
    first = two_processes.submit(os.getpid).result()
    name = next(one.name for one in two_processes.processes if one.name.endswith(f" {first}"))
    assert two_processes.submit(os.getpid, avoid=name).result() != first


@pytest.mark.slow
def test_a_simulator_that_ends_its_process_is_named_without_a_search_for_it(tmp_path: Path):
    """In one run of its piece and one more of its own, however long the piece is."""
    log = tmp_path / "log"
    task = robots.robot_task(log, trouble=((goal(ENVIRONMENTS, 23), 2),), kind="dies")
    with pytest.raises(RolloutError, match=r"policy 2 in environment 23 .*: its worker died"):
        evaluate(task, policies(COLUMNS), ENVIRONMENTS, execution=Execution(2))
    tried = [at for *at, _ in rolled_out(log, ENVIRONMENTS)]
    assert tried.count([23, 2]) == 2


@pytest.mark.slow
def test_a_process_that_lets_no_thread_run_ends_with_its_parent(tmp_path: Path):
    """A call into C that keeps Python's lock keeps a thread of its process from ending it too."""
    script = """
import ctypes, os, sys
from pacbayes_control.rollouts import Processes

def stuck(path):
    import ctypes, os
    open(path, "w").write(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)

with Processes(1) as one:
    one.submit(stuck, sys.argv[1]).result()
"""
    file = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", script, str(file)])
    wait_until(lambda: file.exists() and file.read_text() != "")
    parent.kill()
    parent.wait()
    wait_until_gone(int(file.read_text()))


def test_bytes_are_sent_as_they_are(two_processes: Processes):
    content = os.urandom(1_000_000)
    assert two_processes.submit(len, content).result() == len(content)
    echoed = two_processes.submit(bytes.__add__, content, b"").result()
    assert echoed == content


def test_what_a_process_raises_is_raised_here(two_processes: Processes):
    with pytest.raises(ValueError, match="invalid literal"):
        two_processes.submit(int, "seven").result()
    with pytest.raises(RuntimeError, match="UnpicklableError: stuck, 3 times"):
        two_processes.submit(robots.unpicklable).result()


def test_processes_that_were_stopped_take_no_more_calls():
    with Processes(1) as some:
        pass
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        some.submit(int)
