"""Rollouts on a real Dask cluster: the same costs, whichever of its parts is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from distributed import Client, LocalCluster
from small_robots import (
    TASKS,
    goal,
    kept,
    lines_of,
    policies,
    released,
    robot_task,
    rolled_out,
    waiting,
)

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.rollouts import (
    Draws,
    Execution,
    Progress,
    RolloutError,
    cluster,
    evaluate,
    mean_costs,
    open_workers,
    sample_costs,
)
from pacbayes_control.rollouts.evaluation import PROBES
from pacbayes_control.rollouts.jobs import CHUNK
from polling import wait_until

pytestmark = pytest.mark.slow

POSTERIOR = DiagonalGaussian([1.0, 2.0], 0.5)
COLUMNS = 5


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process of its own; the last tests kill them, and Dask replaces them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as two,
        Client(two, set_as_default=False) as client,
    ):
        yield client


# ---- a cluster that works -----------------------------------------------------------------------


def test_a_client_its_executor_and_its_address_give_the_same_costs(client: Client, tmp_path: Path):
    assert client.scheduler is not None
    address = str(client.scheduler.address)
    given: Any = client
    for name in ("slip", "trip", "slip_all", "hit_all"):
        task = TASKS[name]
        train = task.environments(40, stream="train")[5:]
        expected = evaluate(task, policies(COLUMNS), train)
        one = evaluate(task, policies(COLUMNS), train, execution=Execution(workers=given))
        executor, out = client.get_executor(), tmp_path / name
        two = evaluate(
            task, policies(COLUMNS), train, execution=Execution(workers=executor, store=out)
        )
        assert one.digests == two.digests == expected.digests
    task = TASKS["trip"]
    train = task.environments(CHUNK + 40, stream="train")
    with cluster(address) as executor:
        for shared in (False, True):
            drawn = sample_costs(
                task, POSTERIOR, train[:40], Draws(4, shared=shared), Execution(workers=executor)
            )
            here = sample_costs(task, POSTERIOR, train[:40], Draws(4, shared=shared))
            assert drawn.digests == here.digests
        means = mean_costs(task, policies(2), train, execution=Execution(workers=executor))
        assert np.array_equal(means, mean_costs(task, policies(2), train))
        with open_workers(task, Execution(executor)) as opened:
            costs = evaluate(task, policies(COLUMNS), train[:40], execution=opened)
            assert costs.digests == evaluate(task, policies(COLUMNS), train[:40]).digests


def test_a_failing_rollout_is_tried_on_another_worker_and_reported(client: Client, tmp_path: Path):
    log, out = tmp_path / "log", tmp_path / "out"
    train = TASKS["hit"].environments(30, stream="train")
    task = robot_task(log, trouble=((goal(train, 13), 2),), kind="unpicklable")
    with pytest.raises(RolloutError, match=r"policy 2 in environment 13 .*149 of 150 rollouts are"):
        evaluate(
            task,
            policies(COLUMNS),
            train,
            execution=Execution(workers=client.get_executor(), store=out),
        )
    tried = [pid for row, number, pid in rolled_out(log, train) if (row, number) == (13, 2)]
    assert len(tried) == len(set(tried)) == 2


def test_a_worker_that_is_killed_halfway_makes_no_difference(client: Client, tmp_path: Path):
    log, out, half = tmp_path / "log", tmp_path / "out", 75
    task = robot_task(log, holds=(half,))
    train = task.environments(30, stream="train")
    state: dict[str, Any] = {}

    def kill() -> None:
        assert wait_until(lambda: len(waiting(log, half)) == 2)
        time.sleep(0.5)  # the scheduler is told a little later which results are kept
        state.update(done=kept(out), lines=lines_of(log), pid=min(waiting(log, half)))
        os.kill(state["pid"], signal.SIGKILL)
        released(log, half).touch()

    killer = threading.Thread(target=kill)
    killer.start()
    executor = client.get_executor()
    costs = evaluate(
        task, policies(COLUMNS), train, execution=Execution(workers=executor, store=out, retries=1)
    )
    killer.join()
    assert costs.incidents["retries"] >= 1
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train).digests
    assert costs.values.tobytes() == np.load(out / "costs.npy").tobytes()
    assert state["done"]
    after = {(row, number) for row, number, _ in rolled_out(log, train, state["lines"])}
    assert not after & state["done"]
    assert {pid for *_, pid in rolled_out(log, train)} != {state["pid"]}


def test_a_worker_that_is_killed_is_refused_although_dask_hides_it(client: Client, tmp_path: Path):
    log, out = tmp_path / "log", tmp_path / "out"
    train = TASKS["hit"].environments(30, stream="train")
    at = (goal(train, 13), 2)
    task = robot_task(log, trouble=(at,), kind="once killed")
    given: Any = client
    words = r"failed at first \(its worker died\), but not when it was run again"
    with pytest.raises(RolloutError, match=words) as caught:
        evaluate(task, policies(COLUMNS), train, execution=Execution(workers=given, store=out))
    assert "150 of 150 rollouts are kept" in str(caught.value)
    costs = evaluate(task, policies(COLUMNS), train, execution=Execution(store=out, retries=1))
    assert costs.incidents["retries"] >= 1
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train).digests
    calm = evaluate(robot_task(log), policies(COLUMNS), train, execution=Execution(workers=given))
    assert calm.incidents == {}


# ---- a cluster of processes that this test starts -----------------------------------------------


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([robots.HERE, os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path} | more


def end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()


@contextmanager
def scheduler(port: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", "scheduler", *arguments],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        end(process)


@contextmanager
def worker(
    port: int, name: str, python: str = sys.executable, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    arguments += ["--name", name]
    process = subprocess.Popen(
        [python, "-m", "dask", "worker", *arguments],
        env=env or environment(),
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        end(process)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def names(client: Client) -> set[Any]:
    return {known["name"] for known in client.scheduler_info()["workers"].values()}


def has_a_worker(port: int) -> bool:
    def answers() -> bool:
        with suppress(OSError), Client(f"127.0.0.1:{port}", timeout=60, set_as_default=False) as it:
            it.wait_for_workers(1, timeout=120)
            return True
        return False

    return wait_until(answers)


def test_a_scheduler_that_is_killed_is_a_clear_error_and_another_goes_on(
    client: Client, tmp_path: Path
):
    log, out, port = tmp_path / "log", tmp_path / "out", free_port()
    task = robot_task(log, seconds=0.001)
    train = task.environments(60, stream="train")

    def roll(executor: Any, progress: Any = None) -> Costs:
        return evaluate(
            task,
            policies(COLUMNS),
            train,
            execution=Execution(workers=executor, store=out, progress=progress),
        )

    with scheduler(port) as first, worker(port, "only"):
        assert has_a_worker(port)

        def kill(now: Progress) -> None:
            if now.done >= 30:
                end(first)

        words = "the scheduler was lost"
        with (
            cluster(f"127.0.0.1:{port}") as executor,
            pytest.raises(RolloutError, match=words) as caught,
        ):
            roll(executor, kill)
    done, before = kept(out), lines_of(log)
    assert "\n" not in str(caught.value)
    assert f"{len(done):,} of 300 rollouts are kept in {out}: do the same to go on" in str(
        caught.value
    )
    costs = roll(client.get_executor())
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train).digests
    repeated = [(r, n) for r, n, _ in rolled_out(log, train, before) if (r, n) in done]
    assert len(repeated) <= PROBES


def test_no_scheduler_at_an_address_is_an_error_in_a_line():
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(OSError, match=f"^no Dask scheduler answers at {address}: ") as caught,
        cluster(address),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["nowhere", "carrier-pigeon://roof", ""])
def test_what_is_no_address_is_an_error_in_a_line(address: str):
    with (
        pytest.raises(OSError, match=r"^no Dask scheduler answers at ") as caught,
        cluster(address),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_worker_without_this_package_is_named(client: Client, tmp_path: Path):
    """Its interpreter has everything that this one has, but for the package itself."""
    assert client.scheduler is not None
    packages, port = tmp_path / "packages", int(str(client.scheduler.address).rpartition(":")[2])
    packages.mkdir()
    for path in Path(np.__file__).parent.parent.iterdir():
        if "pacbayes" not in path.name and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    python = str(Path(sys.executable).resolve())
    with worker(port, "bare", python, environment(PYTHONPATH=str(packages))):
        assert wait_until(lambda: "bare" in names(client))
        words = (
            r"^the worker tcp://127\.0\.0\.1:\d+ has no pacbayes-control: install version \S+ the"
        )
        with pytest.raises(ValueError, match=words), cluster(f"127.0.0.1:{port}"):
            pass
    assert wait_until(lambda: "bare" not in names(client))
