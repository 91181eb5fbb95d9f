"""A continuous task with graded costs, from the command line: bets on its draws."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Pbc = Callable[..., subprocess.CompletedProcess[str]]

ROBOT = """
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def distance(policy, environment):
    return min(1.0, abs(float(policy[0]) - float(environment["goal"])))

prior = pbc.DiagonalGaussian([0.2], 0.05)
graded = FunctionTask(distance, draw, "jump", parameters=1, prior=prior, graded=True)
"""


def test_a_graded_posterior_is_learnt_verified_run_again_and_reported(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds to it
    (tmp_path / "graded_jump.py").write_text(ROBOT)
    task, size = "graded_jump.py:graded", ("--environments", 20, "--steps", 2, "--draws", 15)
    done = quick("learn", task, *size, "--workers", 0, "--out", "run", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert "(15 policies for each environment, by bets)" in done.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["environments"], record["draws"], record["grid"]) == (20, 15, 8192)
    assert record["empirical_cost"] < record["training_cost_bound"] < record["bound"]
    again = quick("verify", "run", "--again", 10, "--task", task)
    assert again.returncode == 0, again.stderr
    report = quick("report", "run", "--out", "run.html")
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "run.html").exists()
