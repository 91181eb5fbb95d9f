"""`pbc learn --plan`: the same run again, byte for byte but for the date; `pbc plan` for robots."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint

Pbc = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--environments", 20, "--test-environments", 10)
CONTINUOUS = ("--steps", 2, "--draws", 2)
WAYS = {
    "grid": ("vehicle", "--method", "best", "--range-noise", 0.05, "--ball", "kl:0.05"),
    "family": ("vehicle", "--policy", "linear", *CONTINUOUS, "--set", "family=true"),
    "one": ("vehicle", "--policy", "network", "--certify", "one", "--set", "candidates=3"),
    "drone": ("swing", "--seed", 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_plan_makes_the_same_run_again_but_for_the_date(quick: Pbc, tmp_path: Path, way: str):
    assert quick("learn", *WAYS[way], *SMALL, "--out", "run").returncode == 0
    again = quick("learn", "--plan", "run/plan.json", "--out", "again")
    assert again.returncode == 0, again.stderr
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {path.name for path in (tmp_path / "again").iterdir()}
    for name in files - {"manifest.json"}:
        first, second = (tmp_path / folder / name for folder in ("run", "again"))
        assert first.read_bytes() == second.read_bytes(), name
    manifests = [json.loads((tmp_path / f / "manifest.json").read_text()) for f in ("run", "again")]
    for manifest in manifests:
        del manifest["created"], manifest["seal"]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"environments": 20}, "plan.json names no task: the run was made in Python"),
        ({"task": "boat"}, "task 'boat' is unknown"),
        ({"task": "vehicle", "options": {"sails": 2}}, "there is no field 'sails'"),
        ({"task": "vehicle", "options": {"policy": "kite"}}, "policy = 'kite' must be grid"),
        ({"task": "vehicle", "delta": 2}, "delta = 2"),
        ([1], "a plan is a record of fields by name"),
    ],
)
def test_a_plan_that_is_wrong_is_told_in_one_line(quick: Pbc, tmp_path: Path, plan, words: str):
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert words in complaint(quick("learn", "--plan", "plan.json", "--out", "run"))
    assert not (tmp_path / "run").exists()


def test_neither_a_task_nor_a_plan_is_told(quick: Pbc):
    assert "name the task to learn for, or give --plan FILE" in complaint(
        quick("learn", "--out", "run")
    )
    assert "no.json" in complaint(quick("learn", "--plan", "no.json"))


# ---- pbc plan, with simulation ------------------------------------------------------------------

TRIALS = 60
JOINED = ("--simulated", "paired.csv", "--more-simulated", "many.csv")
ASSUMED = ("--bound", 0.3, "--failure-rate", 0.2, "--agreement", 0.97)


def write(name: str, failed: dict[str, np.ndarray], first: int = 0) -> None:
    rows = [
        f"{policy},s{i},{int(not each)}"
        for policy, outcomes in failed.items()
        for i, each in enumerate(outcomes, first)
    ]
    Path(name).write_text("\n".join(["policy,environment,success", *rows]) + "\n")


@pytest.fixture
def logs(quick: Pbc) -> Pbc:
    """Two policies on the robot, in simulation of the same environments and in further ones."""
    simulated = {"new": np.arange(TRIALS) % 5 == 0, "old": np.arange(TRIALS) % 2 == 0}
    write("robot.csv", {name: f ^ (np.arange(TRIALS) == 7) for name, f in simulated.items()})
    write("paired.csv", simulated)
    write("many.csv", {name: np.tile(f, 80) for name, f in simulated.items()}, TRIALS)
    return quick


def test_a_plan_tells_the_trials_on_the_robot_with_simulation_and_without(quick: Pbc):
    result = quick("plan", *ASSUMED, "--json", "p.json")
    assert result.returncode == 0, result.stderr
    record = json.loads(Path("p.json").read_text())
    assert 50 < record["environments"] < 80
    assert record["without"] == 175
    assert record["power"] >= 0.9
    assert (record["bound"], record["agreement"]) == (0.3, 0.97)
    assert record["simulated_environments"] == 10_000
    words = " ".join(result.stdout.split())
    assert f"About {record['environments']} trials on the robot" in words
    assert "Without simulation: 175. Assumed" in words
    assert "decided on before the trials" in words
    few = quick("plan", *ASSUMED, "--agreement", "0.97:700", "--json", "p.json")
    assert json.loads(Path("p.json").read_text())["environments"] > record["without"]
    assert "Simulation does not help here" in few.stdout


def test_a_plan_after_some_trials_tells_how_many_more_for_each_policy(logs: Pbc):
    asked = ("--bound", 0.27, "--candidates", 3, "--json", "p.json")
    result = logs("plan", "robot.csv", *asked, *JOINED)
    assert result.returncode == 0, result.stderr
    record = json.loads(Path("p.json").read_text())
    new, old = record["policies"]
    assert (new["name"], new["trials"], new["agreement"]) == ("new", TRIALS, 1 - 1 / TRIALS)
    assert 0 < new["with_simulation"]["more"] < new["without"]["more"] / 1.5
    assert new["with_simulation"]["trials"] == TRIALS + new["with_simulation"]["more"]
    assert record["environments"] == new["with_simulation"]["trials"]
    assert old["with_simulation"] == {"trials": None, "more": None}
    assert "is not below the bound 0.27" in old["reasons"]["more"]
    words = " ".join(result.stdout.split())
    assert "for 3 policies" in words
    assert "“old”: no number of trials suffices" in words
    assert "decided on before the trials" in words


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "no rate": (("--agreement", 0.9, "--bound", 0.3), "--bound needs --failure-rate"),
    "no bound": (("--agreement", 0.9, "--schedule", "a.csv"), "--schedule and --policies"),
    "agreement and logs": (
        ("robot.csv", "--bound", 0.3, "--agreement", 0.9),
        "--agreement is for --bound with --failure-rate, before any trial",
    ),
    "low agreement": ((*ASSUMED, "--agreement", 0.7), "0.7 must lie in [0.8, 1]"),
    "high rate": ((*ASSUMED, "--failure-rate", 0.3), "no number of trials suffices"),
    "few further": ((*ASSUMED, "--agreement", "0.97:50"), "simulate more"),
    "no share": ((*ASSUMED, "--agreement", "often"), "--agreement often: give a share, as 0.97"),
    "no number": ((*ASSUMED, "--agreement", "0.97:few"), "give a share, as 0.97, or 0.97:50000"),
    "picture": ((*ASSUMED, "--picture", "p.svg"), "--picture is for a plan without simulation"),
    "no logs": (
        ("--bound", 0.3, "--failure-rate", 0.2, "--simulated", "paired.csv"),
        "--simulated is for logs with trials so far",
    ),
    "no bound for logs": (("robot.csv", *JOINED), "give --bound"),
    "more alone": (
        ("robot.csv", "--bound", 0.3, "--more-simulated", "many.csv"),
        "--more-simulated needs --simulated",
    ),
    "pairs alone": (
        ("robot.csv", "--bound", 0.3, "--simulated", "paired.csv"),
        "simulation of the same environments alone does not help",
    ),
    "no file": (("robot.csv", "--bound", 0.3, "--simulated", "no.csv"), "no file or folder"),
    "output": (("robot.csv", "--bound", 0.3, *JOINED, "--json", "many.csv"), "is the input"),
    "no names": (("unnamed.csv", "--bound", 0.3, *JOINED), "paired with simulation by the names"),
    "graded": (("graded.csv", "--bound", 0.3, *JOINED), "for trials that succeed or fail"),
    "one trial": (("one.csv", "--bound", 0.3, *JOINED), "policy “new” has one trial"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_with_simulation_that_cannot_be_made_is_told_in_one_line(logs: Pbc, name: str):
    Path("unnamed.csv").write_text(
        "policy,episode,success\n" + "".join(f"new,{i},1\nold,{i},0\n" for i in range(9))
    )
    costs = [f"new,s{i},{0.5 if i else 0}" for i in range(TRIALS)]
    Path("graded.csv").write_text("\n".join(["policy,environment,cost", *costs]) + "\n")
    write("one.csv", {"new": np.zeros(1), "old": np.zeros(9)})
    arguments, words = WRONG[name]
    assert words in complaint(logs("plan", *arguments))
