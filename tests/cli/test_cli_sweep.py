"""`pbc sweep`: its files, its table, going on after a kill, and one line for each bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import complaint
from pacbayes_control.study.sweep import FIGURES, load_sweep
from polling import wait_until

Pbc = Callable[..., subprocess.CompletedProcess[str]]
STOPPING = "pacbayes_control.tasks.demo:Stopping"
SMALL = ("--draws", 3, "--test-environments", 100, "--workers", 0)

SLOW = """
import time
import numpy as np
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def rollout(policy, environment):
    time.sleep(0.002)
    with open("rollouts.txt", "a") as file:
        file.write(f"{float(policy[0])} {environment['goal']}\\n")
    return float(abs(policy[0] - environment["goal"]) > 0.3)

task = FunctionTask(rollout, draw, "slow", parameters=1, policies=np.linspace(0, 1, 3)[:, None])
"""


def test_a_sweep_writes_its_rows_a_table_and_a_plot(quick: Pbc, tmp_path: Path):
    asked = ("sweep", STOPPING, "--over", "environments=20,60", "--over", "method=occam,kl")
    asked = (*asked, "--set", "delta=0.05", *SMALL, "--out", "s", "--json", "all.json")
    result = quick(*asked)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["folder"] == "s"
    assert {*found["rows"][0]} == {"environments", "method", *FIGURES}
    assert [row["environments"] for row in found["rows"]] == [20, 20, 60, 60]
    assert found["plan"]["delta"] == 0.05
    made = load_sweep(tmp_path / "s")
    assert made.rows == found["rows"]
    for cells in made.cells():
        assert all(cell in result.stdout for cell in cells)
    words = " ".join(result.stdout.split())
    assert made.caption in words
    assert "with probability at least 95 %" in words
    assert "a choice that its δ does not pay for" in words
    assert (tmp_path / "s" / "sweep.svg").read_text().startswith("<?xml")
    assert len((tmp_path / "s" / "sweep.csv").read_text().splitlines()) == 5
    again = quick(*asked)
    assert again.stdout == result.stdout


def test_fields_that_can_be_swept_are_listed(quick: Pbc):
    words = quick("sweep", "vehicle", "--fields").stdout
    for name in ("environments", "delta", "method", "steps", "policy"):
        assert f"│ {name} " in words
    assert "│ seed " not in words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--over", "environments=20"), "name the folder of the sweep: --out"),
        (("--out", "s"), "name a field to sweep over"),
        (("--out", "s", "--over", "environments"), "write --over FIELD=A,B"),
        (("--out", "s", "--over", "environments="), "write --over FIELD=A,B"),
        (("--out", "s", "--over", "environments=20,x"), "environments = x must be int"),
        (("--out", "s", "--over", "environments=20,20"), "listed twice"),
        (("--out", "s", "--over", "delta=0.1", "--over", "delta=0.2"), "given twice"),
        (("--out", "s", "--over", "delta=0.1", "--set", "delta=0.2"), "delta is swept over"),
        (("--out", "s", "--over", "speed=1"), "there is no field 'speed'"),
        (("--out", "s", "--over", "task.speed=1"), "no field of the task"),
        (("--out", "s", "--over", "delta=0.1", "--set", "nothing"), "write --set FIELD=A"),
        (("--out", "s", "--over", "delta=0.1", "--set", "task.x=1"), "write --over task.x=1"),
        (("--out", "s", "--over", "delta=0.1", "--set", "looks=1,2"), "keeps its own rollouts"),
        (("--out", "s", "--over", "delta=0.1", "--draws", 0), "draws"),
        (("--out", "s", "--over", "delta=0.1", "--json", "s/sweep.json"), "no folder s"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(
    quick: Pbc, tmp_path: Path, asked: tuple[Any, ...], words: str
):
    assert words in complaint(quick("sweep", STOPPING, *asked))
    assert not [*tmp_path.iterdir()]


def test_a_folder_of_another_sweep_is_refused(quick: Pbc):
    asked = ("sweep", STOPPING, *SMALL, "--out", "s", "--over")
    assert quick(*asked, "delta=0.1,0.2", "--set", "environments=10").returncode == 0
    other = complaint(quick(*asked, "delta=0.1,0.3", "--set", "environments=10"))
    assert "s holds another sweep, with over" in other
    inside = ("--set", "environments=10", "--json", "s/other.json")
    assert "a sweep.json of its own" in complaint(quick(*asked, "delta=0.1,0.2", *inside))
    assert "unknown" in complaint(quick("sweep", "nowhere", "--out", "t", "--over", "delta=0.1"))


@pytest.mark.slow
def test_a_killed_sweep_goes_on_without_its_finished_rollouts(pbc: Pbc, tmp_path: Path):
    (tmp_path / "robot.py").write_text(SLOW)
    asked = ["sweep", "robot.py:task", "--over", "environments=20,100", "--draws", 3]
    asked += ["--test-environments", 50, "--workers", 0, "--out", "s"]
    words = [sys.executable, "-m", "pacbayes_control", *map(str, asked)]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        kept = tmp_path / "s" / "rollouts-0.train"
        wait_until(lambda: kept.is_dir() and [*kept.glob("rows-*.npz")])
        process.send_signal(signal.SIGKILL)
    chunks = [path.name for path in kept.glob("rows-*.npz")]
    before = len((tmp_path / "rollouts.txt").read_text().splitlines())
    result = pbc(*asked)
    assert result.returncode == 0, result.stderr
    after = len((tmp_path / "rollouts.txt").read_text().splitlines()) - before
    finished = sum(_rollouts(name) for name in chunks)
    assert finished > 0
    assert after <= 3 * (300 + 50) - finished + 16  # some are run again to compare their costs
    assert load_sweep(tmp_path / "s").rows[1]["draws"] == 3


def _rollouts(chunk: str) -> int:
    first_row, last_row, first, last = (int(n) for n in chunk[:-4].split("-") if n.isdecimal())
    return (last_row - first_row) * (last - first)
