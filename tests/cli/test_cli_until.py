"""`pbc learn --until`: as a user runs it, with a page that shows how the bound fell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import complaint

Pbc = Callable[..., subprocess.CompletedProcess[str]]

ROBOT = """
import numpy as np
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def miss(policy, environment):
    return float(0.5 * abs(policy[0] - environment["goal"]))

def made(**known):
    return FunctionTask(miss, draw, "jump", parameters=1, **known)

task = made(policies=np.linspace(0, 1, 5)[:, None])
continuous = made(prior=pbc.DiagonalGaussian([0.2], 0.05))
"""
LEARN = ("learn", "robot.py:task", "--test-environments", 0, "--out", "run")


@pytest.fixture(autouse=True)
def robot(tmp_path: Path) -> None:
    (tmp_path / "robot.py").write_text(ROBOT)


def test_a_bound_is_reached_verified_and_shown(quick: Pbc, tmp_path: Path):
    done = quick(*LEARN, "--until", 0.18, "--at-most", 2000, "--json", "c.json")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout
    c = json.loads((tmp_path / "c.json").read_text())
    assert c["bound"] <= c["until"] == 0.18
    assert 100 < c["environments"] < c["at_most"] == 2000
    assert quick("verify", "run", "--again", 3, "--task", "robot.py:task").returncode == 0
    assert not (tmp_path / "run.checkpoint.rollouts").exists()
    assert quick("report", "run", "--plots", "plots").returncode == 0
    page = (tmp_path / "run.html").read_text()
    assert "The bound as environments were added" in page
    assert "Each point is a valid bound; all hold at once" in page
    assert (tmp_path / "plots" / "bound-as-environments-were-added.svg").exists()


def test_a_bound_that_is_not_reached_is_a_warning(quick: Pbc):
    done = quick(*LEARN, "--until", 0.05, "--at-most", 105)
    assert done.returncode == 0, done.stderr
    [warning] = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert "after 105 environments, the most that were allowed" in warning
    assert "it did not come down to 0.05" in warning


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--until", 0.1, "--method", "kl"), "until needs the method betting"),
        (("--until", 0.1, "--environments", 300), "until adds environments: at_most (--at-most)"),
        (("--at-most", 300), "at_most is for until"),
        (("--until", 2), "until = 2 must lie strictly between 0 and 1"),
    ],
)
def test_what_does_not_go_with_it_is_refused(quick: Pbc, tmp_path: Path, given: tuple, words: str):
    assert words in complaint(quick(*LEARN, *given))
    assert not (tmp_path / "run").exists()


def test_continuous_policies_are_refused(quick: Pbc):
    given = ("learn", "robot.py:continuous", "--until", 0.1, "--out", "run")
    assert "until is for a list of policies" in complaint(quick(*given))
