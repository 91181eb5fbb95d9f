"""Killed at any moment: the same call goes on, and what comes out is what would have come out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import small_robots as robots
from small_robots import TASKS, kept, lines_of, policies, released, robot_task, rolled_out, waiting

from pacbayes_control.certify.costs import Costs
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.rollouts.evaluation import PROBES
from pacbayes_control.tasks import Environments
from polling import wait_until, wait_until_gone
from sizes import sized

pytestmark = pytest.mark.slow

N, COLUMNS = sized((20, 10), full=(60, 10))
HOLD = 60  # lines, after which a robot waits
KILLS = sized(4, full=20)
ROUNDS = sized(1, full=3)  # with two workers

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small_robots import policies, robot_task
from pacbayes_control.rollouts import Execution, evaluate

log, out, workers = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
n, columns, seconds, *holds = map(float, sys.argv[5:])
task = robot_task(log, seconds=seconds, holds=tuple(map(int, holds)))
train = task.environments(int(n), stream="train")
how = Execution(None if workers == 1 else workers, out)
evaluate(task, policies(int(columns)), train, execution=how)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def train(log: Path) -> Environments:
    return robot_task(log).environments(N, stream="train")


def expected(log: Path) -> Costs:
    return evaluate(TASKS["hit"], policies(COLUMNS), train(log))


@contextmanager
def started(
    log: Path, out: Path, workers: int, seconds: float = 0, holds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A process that rolls out, of which nothing is left afterwards."""
    arguments = [robots.HERE, log, out, workers, N, COLUMNS, seconds, *holds]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def run_since(log: Path, before: int) -> list[tuple[int, int]]:
    return [(row, number) for row, number, _ in rolled_out(log, train(log), before)]


def test_killed_many_times_at_random_moments_it_ends_with_the_same_bytes(
    log: Path, out: Path, tmp_path: Path
):
    whole = evaluate(
        TASKS["hit"], policies(COLUMNS), train(log), execution=Execution(store=tmp_path / "whole")
    )
    table = (tmp_path / "whole" / "costs.npy").read_bytes()
    rng = np.random.default_rng(2)
    kills, killed_here, ended, late = 0, 0, 0, 0
    while kills < KILLS or not ended:
        before, done = lines_of(log), kept(out)
        with started(log, out, 1, 0.003) as process:
            if kills < KILLS:
                if kills % 2 == 0:  # at work; otherwise before it does anything, as well
                    wait_until(
                        lambda n=before, p=process: lines_of(log) > n or p.poll() is not None
                    )
                time.sleep(rng.uniform(0, 0.3))
                if process.poll() is None:
                    process.kill()
                    kills, killed_here = kills + 1, killed_here + 1
            _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors
        late += process.returncode != 0 and lines_of(log) > before
        again = run_since(log, before)
        assert len(again) == len(set(again))
        assert len([cell for cell in again if cell in done]) <= PROBES
        assert done <= kept(out)
        if process.returncode == 0:
            ended += 1
            assert (out / "costs.npy").read_bytes() == table
            assert len(kept(out)) == N * COLUMNS
            costs = evaluate(
                robot_task(log, seconds=0.003),
                policies(COLUMNS),
                train(log),
                execution=Execution(store=out),
            )
            assert costs.digests == whole.digests
            assert costs.incidents.get("resumed", 0) <= killed_here
            assert set(costs.incidents) <= {"resumed"}
            killed_here = 0
            shutil.rmtree(out)
            log.unlink()
    assert late >= KILLS // 2


def test_killed_with_two_workers_these_end_too_and_it_goes_on_to_the_same_bytes(
    log: Path, out: Path
):
    holds = tuple(HOLD * (1 + turn) for turn in range(ROUNDS))
    for hold in holds:
        before, done = lines_of(log), kept(out)
        with started(log, out, 2, holds=holds) as process:
            assert wait_until(lambda h=hold: len(waiting(log, h)) == 2)
            assert process.pid not in waiting(log, hold)
            process.kill()
            process.wait()
            wait_until_gone(*waiting(log, hold))
        assert len([cell for cell in run_since(log, before) if cell in done]) <= PROBES
        assert done < kept(out)
        released(log, hold).touch()
    costs = evaluate(
        robot_task(log, holds=holds), policies(COLUMNS), train(log), execution=Execution(store=out)
    )
    assert costs.digests == expected(log).digests
    assert costs.incidents == {"resumed": ROUNDS}


@pytest.mark.parametrize(
    ("workers", "alone"),
    [(1, False), (2, False), (2, True)],
    ids=["one", "two from a terminal", "two that are not told"],
)
def test_ctrl_c_ends_it_with_its_workers_and_loses_nothing_that_was_finished(
    log: Path, out: Path, workers: int, alone: bool
):
    """A terminal interrupts the workers as well."""
    with started(log, out, workers, holds=(HOLD,)) as process:
        assert wait_until(lambda: len(waiting(log, HOLD)) == workers)
        done = kept(out)
        (os.kill if alone else os.killpg)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode not in (0, -signal.SIGKILL)
        assert "KeyboardInterrupt" in errors
        wait_until_gone(*waiting(log, HOLD))
    assert done
    assert done <= kept(out)
    done, before = kept(out), lines_of(log)
    released(log, HOLD).touch()
    costs = evaluate(
        robot_task(log, holds=(HOLD,)),
        policies(COLUMNS),
        train(log),
        execution=Execution(store=out),
    )
    assert costs.digests == expected(log).digests
    assert len([cell for cell in run_since(log, before) if cell in done]) <= PROBES
