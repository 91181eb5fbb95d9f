"""Rollouts on a real Dask cluster: the same costs, whichever of its parts is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robots
from distributed import Client, LocalCluster
from robots import TASKS, goal, lines_of, policies, robot_task, rolled_out

from pacbayes_control.distributions import DiagonalGaussian
from pacbayes_control.rollouts import (
    RolloutError,
    cluster,
    evaluate,
    mean_costs,
    sample_costs,
    spread,
)
from pacbayes_control.rollouts.evaluation import PROBES

POSTERIOR = DiagonalGaussian([1.0, 2.0], 0.5)
COLUMNS = 5


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process of its own, which are replaced when they die."""
    options: dict[str, Any] = {"dashboard_address": None}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as two,
        Client(two, set_as_default=False) as client,
    ):
        yield client


def kept(out: Path) -> set[tuple[int, int]]:
    lines = (out / "finished.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    return {divmod(i, COLUMNS) for r in records for i in range(r["first"], r["last"])}


# ---- a cluster that works -----------------------------------------------------------------------


def test_a_client_its_executor_and_its_address_give_the_same_costs(client: Client, tmp_path: Path):
    assert client.scheduler is not None
    address = str(client.scheduler.address)
    for name in ("slip", "trip", "slip_all", "hit_all"):
        task = TASKS[name]
        train = task.environments(120, stream="train")[5:]
        expected = evaluate(task, policies(COLUMNS), train)
        given: Any = client
        one = evaluate(task, policies(COLUMNS), train, executor=given)
        two = evaluate(
            task,
            policies(COLUMNS),
            train,
            executor=client.get_executor(),
            out=tmp_path / name,
        )
        assert one.digests == two.digests == expected.digests
    task = TASKS["trip"]
    train = task.environments(1100, stream="train")
    with cluster(address) as executor:
        for shared in (False, True):
            drawn = sample_costs(task, POSTERIOR, train[:90], 6, shared=shared, executor=executor)
            here = sample_costs(task, POSTERIOR, train[:90], 6, shared=shared)
            assert drawn.digests == here.digests
        means = mean_costs(task, policies(COLUMNS), train, executor=executor)
        assert np.array_equal(means, mean_costs(task, policies(COLUMNS), train))
        with spread(task, executor) as far:
            costs = evaluate(far, policies(COLUMNS), train)
            assert costs.digests == evaluate(task, policies(COLUMNS), train).digests


def test_a_failing_rollout_is_tried_on_another_worker_and_reported(client: Client, tmp_path: Path):
    log, out = tmp_path / "log", tmp_path / "out"
    train = TASKS["hit"].environments(30, stream="train")
    task = robot_task(log, trouble=((goal(train, 13), 2),), kind="unpicklable", seconds=0.002)
    with pytest.raises(RolloutError, match=r"policy 2 in environment 13 .*149 of 150 rollouts are"):
        evaluate(task, policies(COLUMNS), train, executor=client.get_executor(), out=out)
    tried = [pid for row, number, pid in rolled_out(log, train) if (row, number) == (13, 2)]
    assert len(tried) == len(set(tried)) == 2


def test_a_worker_that_is_killed_halfway_makes_no_difference(client: Client, tmp_path: Path):
    log, out = tmp_path / "log", tmp_path / "out"
    task = robot_task(log, seconds=0.01)
    train = task.environments(120, stream="train")
    state: dict[str, Any] = {}

    def progress(done: int, total: int) -> None:
        if done >= total // 2 and not state:
            state.update(done=kept(out), lines=lines_of(log), pid=rolled_out(log, train)[-1][2])
            os.kill(state["pid"], signal.SIGKILL)

    costs = evaluate(
        task,
        policies(COLUMNS),
        train,
        executor=client.get_executor(),
        out=out,
        progress=progress,
        retries=1,
    )
    assert costs.incidents["retries"] >= 1
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train).digests
    assert costs.values.tobytes() == np.load(out / "costs.npy").tobytes()
    assert len(state["done"]) >= 300
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
        evaluate(task, policies(COLUMNS), train, executor=given, out=out)
    assert "150 of 150 rollouts are kept" in str(caught.value)
    costs = evaluate(task, policies(COLUMNS), train, out=out, retries=1)
    assert costs.incidents["retries"] >= 1
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train).digests
    calm = evaluate(robot_task(log), policies(COLUMNS), train, executor=given)
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
    port: int, python: str = sys.executable, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
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


def has_a_worker(port: int) -> bool:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        try:
            with Client(f"127.0.0.1:{port}", timeout=5, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=30)
                return True
        except OSError:
            time.sleep(0.2)
    return False


SCRIPT = """
import sys
from pathlib import Path
from robots import policies, robot_task
from pacbayes_control.rollouts import cluster, evaluate

task = robot_task(Path(sys.argv[2]), seconds=0.01)
with cluster(sys.argv[1]) as executor:
    costs = evaluate(
        task, policies(5), task.environments(120, stream="train"), executor=executor,
        out=sys.argv[3],
    )
print(costs.digests["costs"])
"""


def test_a_scheduler_that_is_killed_is_a_clear_error_and_a_new_one_goes_on(tmp_path: Path):
    log, out, port = tmp_path / "log", tmp_path / "out", free_port()
    command = [sys.executable, "-c", SCRIPT, f"127.0.0.1:{port}", str(log), str(out)]
    train = robot_task(log).environments(120, stream="train")
    with scheduler(port) as first, worker(port):
        assert has_a_worker(port)
        script = subprocess.Popen(
            command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + 40
            while not (out / "finished.jsonl").exists() or len(kept(out)) < 60:
                assert time.monotonic() < deadline
                assert script.poll() is None
                time.sleep(0.05)
            end(first)
            began = time.monotonic()
            _, errors = script.communicate(timeout=60)
            took = time.monotonic() - began
        finally:
            end(script)
    assert script.returncode != 0
    assert took < 50
    last = [line for line in errors.splitlines() if "RolloutError" in line]
    assert last, errors
    assert "the scheduler was lost" in last[-1]
    done, before = kept(out), lines_of(log)
    assert f"{len(done):,} of 600 rollouts are kept in {out}: do the same to go on" in last[-1]

    with scheduler(port), worker(port):
        assert has_a_worker(port)
        again = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )
    assert again.returncode == 0, again.stderr
    expected = evaluate(TASKS["hit"], policies(COLUMNS), train).digests["costs"]
    assert again.stdout.strip() == expected
    repeated = [(r, n) for r, n, _ in rolled_out(log, train, before) if (r, n) in done]
    assert len(repeated) <= PROBES


def test_no_scheduler_at_an_address_is_an_error_in_a_line():
    began = time.monotonic()
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(OSError, match=f"^no Dask scheduler answers at {address}: ") as caught,
        cluster(address),
    ):
        pass
    assert time.monotonic() - began < 16
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["nowhere", "carrier-pigeon://roof", ""])
def test_what_is_no_address_is_an_error_in_a_line(address: str):
    with (
        pytest.raises(OSError, match=r"^no Dask scheduler answers at ") as caught,
        cluster(address),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_worker_without_this_package_is_named(tmp_path: Path):
    """Its interpreter has everything that this one has, but for the package itself."""
    packages, port = tmp_path / "packages", free_port()
    packages.mkdir()
    installed = Path(np.__file__).parent.parent
    for path in installed.iterdir():
        if "pacbayes" not in path.name and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    python = str(Path(sys.executable).resolve())
    bare = environment(PYTHONPATH=str(packages))
    lacking = subprocess.run(
        [python, "-c", "import numpy, distributed; import pacbayes_control"],
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'pacbayes_control'" in lacking.stderr
    with scheduler(port), worker(port, python, bare):
        assert has_a_worker(port)
        words = (
            r"^the worker tcp://127\.0\.0\.1:\d+ has no pacbayes-control: install version \S+ the"
        )
        with pytest.raises(ValueError, match=words), cluster(f"127.0.0.1:{port}"):
            pass
