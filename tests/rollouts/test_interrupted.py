"""Killed at any moment: the same call goes on, and what comes out is what would have come out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import robots
from robots import TASKS, lines_of, policies, robot_task, rolled_out

from pacbayes_control.rollouts import evaluate
from pacbayes_control.rollouts.evaluation import PROBES
from pacbayes_control.tasks import Environments

N, COLUMNS = 60, 10
KILLS = 20

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from robots import policies, robot_task
from pacbayes_control.rollouts import evaluate

log, out, workers, seconds = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
task = robot_task(log, seconds=seconds)
train = task.environments(60, stream="train")
evaluate(task, policies(10), train, executor=None if workers == 1 else workers, out=out)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def train(log: Path) -> Environments:
    return robot_task(log).environments(N, stream="train")


def start(log: Path, out: Path, workers: int, seconds: float) -> subprocess.Popen[str]:
    arguments = [robots.HERE, log, out, workers, seconds]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kept(out: Path) -> set[tuple[int, int]]:
    """The rollouts that whole lines tell of."""
    path = out / "finished.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith(b"\n")]
    cells = [divmod(i, COLUMNS) for r in records for i in range(r["first"], r["last"])]
    assert len(cells) == len(set(cells))
    return set(cells)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a session that a test started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_killed_twenty_times_at_random_moments_it_ends_with_the_same_bytes(
    log: Path, out: Path, tmp_path: Path
):
    expected = evaluate(TASKS["hit"], policies(COLUMNS), train(log), out=tmp_path / "whole")
    table = (tmp_path / "whole" / "costs.npy").read_bytes()
    rng = np.random.default_rng(2)
    kills, killed_here, ended, early, late = 0, 0, 0, 0, 0
    while kills < KILLS or not ended:
        before, done = lines_of(log), kept(out) if out.exists() else set()
        process = start(log, out, 1, 0.003)
        began = time.monotonic()
        if kills >= KILLS:
            delay = None
        elif kills % 2:  # of its life, before it does anything as well
            delay = float(rng.uniform(0, 0.6))
        else:  # of its work
            wait_for(lambda n=before, p=process: lines_of(log) > n or p.poll() is not None, 20)
            delay = time.monotonic() - began + float(rng.uniform(0, 0.8))
        try:
            left = None if delay is None else max(0.0, delay - (time.monotonic() - began))
            _, errors = process.communicate(timeout=left)
            assert process.returncode == 0, errors
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills, killed_here = kills + 1, killed_here + 1
            early, late = early + (lines_of(log) == before), late + (lines_of(log) > before)
        again = [(row, number) for row, number, _ in rolled_out(log, train(log), before)]
        assert len(again) == len(set(again))
        assert len([cell for cell in again if cell in done]) <= PROBES
        assert done <= (kept(out) if out.exists() else set())
        if process.returncode == 0:
            ended += 1
            assert (out / "costs.npy").read_bytes() == table
            assert len(kept(out)) == N * COLUMNS
            again = evaluate(robot_task(log, seconds=0.003), policies(COLUMNS), train(log), out=out)
            assert again.digests == expected.digests
            assert again.incidents.get("resumed", 0) <= killed_here
            assert set(again.incidents) <= {"resumed"}
            killed_here = 0
            shutil.rmtree(out)
            log.unlink()
    assert early > 2
    assert late > 8


def test_killed_with_two_workers_it_goes_on_and_ends_with_the_same_bytes(log: Path, out: Path):
    for _ in range(3):
        before, done = lines_of(log), kept(out) if out.exists() else set()
        process = start(log, out, 2, 0.008)
        try:
            assert wait_for(lambda n=done: out.exists() and len(kept(out)) > len(n) + 60, 30)
            process.kill()
            process.wait()
        finally:
            end(process)
        again = [(row, number) for row, number, _ in rolled_out(log, train(log), before)]
        assert len([cell for cell in again if cell in done]) <= PROBES
        assert done < kept(out)
    costs = evaluate(robot_task(log, seconds=0.008), policies(COLUMNS), train(log), out=out)
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train(log)).digests
    assert costs.incidents == {"resumed": 3}


def test_workers_of_a_killed_process_are_gone_soon(log: Path, out: Path):
    process = start(log, out, 2, 0.02)
    try:
        assert wait_for(lambda: len({pid for *_, pid in rolled_out(log, train(log))}) == 2, 30)
        pids = {pid for *_, pid in rolled_out(log, train(log))}
        assert process.pid not in pids
        process.kill()
        process.wait()
        assert wait_for(lambda: not any(map(psutil.pid_exists, pids)), 20)
    finally:
        end(process)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_it_soon_and_loses_nothing_that_was_finished(
    log: Path, out: Path, workers: int
):
    """As from a terminal, which interrupts the workers as well."""
    process = start(log, out, workers, 0.005)
    try:
        assert wait_for(lambda: out.exists() and len(kept(out)) > 20, 30)
        done = kept(out)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        _, errors = process.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert process.returncode != 0
        assert "KeyboardInterrupt" in errors
    finally:
        end(process)
    assert done <= kept(out)
    pids = {pid for *_, pid in rolled_out(log, train(log))}
    assert wait_for(lambda: not any(map(psutil.pid_exists, pids)), 20)
    done, before = kept(out), lines_of(log)
    costs = evaluate(robot_task(log, seconds=0.005), policies(COLUMNS), train(log), out=out)
    assert costs.digests == evaluate(TASKS["hit"], policies(COLUMNS), train(log)).digests
    again = [(row, number) for row, number, _ in rolled_out(log, train(log), before)]
    assert len([cell for cell in again if cell in done]) <= PROBES


def test_an_interrupt_to_this_process_alone_stops_its_workers_too(log: Path, out: Path):
    process = start(log, out, 2, 0.02)
    try:
        assert wait_for(lambda: out.exists() and len(kept(out)) > 20, 30)
        pids = {pid for *_, pid in rolled_out(log, train(log))}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode != 0
        assert wait_for(lambda: not any(map(psutil.pid_exists, pids)), 20)
    finally:
        end(process)
