"""`pbc evaluate`: from a task to a table, and back in through `pbc certify` and `pbc choose`."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.cli.commands import app  # noqa: F401 - registers every command
from pacbayes_control.cli.evaluating import EvaluatedTasks
from pacbayes_control.learn.finite import learn_in_parts

Pbc = Callable[..., subprocess.CompletedProcess[str]]

ROBOT = """
import os
import time
from pathlib import Path
import numpy as np
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random(), "distance": rng.random()}

def miss(policy, environment):
    return min(1.0, abs(float(policy[0]) - float(environment["goal"])))

def fragile(policy, environment):
    if Path("broken").exists() and environment["goal"] > 0.5:
        raise RuntimeError("the arm is stuck")
    return miss(policy, environment)

def late(policy, environment):
    if environment["goal"] > 0.9:
        time.sleep(60)
    return miss(policy, environment)

def unlucky(rng):
    return {"goal": rng.random(), "ground": rng.choice(["ice", "=A1"])}

def made(rollout=miss, draw=draw, **known):
    return FunctionTask(rollout, draw, "jump", parameters=1, **known)

grid = np.linspace(0, 1, 3)[:, None]
task = made(policies=grid, policy_names=("left", "middle", "right"))
formula = made(policies=grid, policy_names=("=1", "b", "c"))
stuck = made(fragile, policies=grid)
worded = made(fragile, unlucky, policies=grid)
slow = made(late, policies=grid)
listless = made(prior=pbc.DiagonalGaussian([0.2], 0.05))
"""


@pytest.fixture
def run(quick: Pbc, tmp_path: Path) -> Pbc:
    (tmp_path / "jumping.py").write_text(ROBOT)

    def called(*arguments: object) -> subprocess.CompletedProcess[str]:
        sys.modules.pop("jumping", None)
        return quick(*arguments)

    return called


def evaluated(run: Pbc, *options: object, out: str = "costs.csv") -> str:
    usual = ("--environments", 40, "--workers", 0, "--out", out)
    result = run("evaluate", "jumping.py:task", *usual, *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.mark.parametrize("out", ["costs.csv", "costs.parquet"])
def test_the_table_of_a_task_gives_the_bound_that_learning_gives(run: Pbc, out: str):
    said = evaluated(run, "--json", "r.json", out=out)
    assert "120 rollouts are in" in said
    assert "Nothing is certified" in said
    record = json.loads(Path("r.json").read_text())
    assert (record["environments"], record["policies"], record["certified"]) == (40, 3, False)
    assert [*record["mean_costs"]] == ["left", "middle", "right"]
    usual = ("--workers", 0, "--environments", 40, "--test-environments", 0)
    assert run("learn", "jumping.py:task", *usual, "--out", "learnt").returncode == 0
    assert run("certify", out, "--out", "table").returncode == 0
    certificates = [
        json.loads(Path(d, "certificate.json").read_text()) for d in ("learnt", "table")
    ]
    assert certificates[0] == certificates[1]
    for name in ("costs.npy", "policies.npy", "environments.csv"):
        assert Path("learnt", name).read_bytes() == Path("table", name).read_bytes()
    again = ("--again", 3, "--task", "jumping.py:task")
    assert run("verify", "table", "--costs", out, *again).returncode == 0
    assert not [path for path in Path().iterdir() if "checkpoint" in path.name]


@pytest.mark.parametrize("out", ["costs.csv", "costs.parquet"])
@pytest.mark.parametrize("method", ["occam", "kl"])
def test_parts_of_the_world_are_certified_as_by_learning(run: Pbc, out: str, method: str):
    evaluated(run, out=out)
    declared = ("--parts", "goal<0.5,goal>=0.5&distance<0.8", "--method", method)
    usual = ("--workers", 0, "--environments", 40, "--test-environments", 0, "--out", "learnt")
    assert run("learn", "jumping.py:task", *usual, *declared).returncode == 0
    result = run("certify", out, *declared, "--out", "table")
    assert result.returncode == 0, result.stderr
    assert "“goal >= 0.5 & distance < 0.8” (" in result.stdout
    assert (
        Path("learnt/certificate.json").read_bytes() == Path("table/certificate.json").read_bytes()
    )
    again = ("--again", 3, "--task", "jumping.py:task")
    assert run("verify", "table", "--costs", out, *again).returncode == 0


def test_parameters_that_were_changed_in_a_run_are_not_those_of_its_table(run: Pbc):
    evaluated(run)
    costs = read_campaign("costs.csv").costs
    goal = 1 - costs.described["goal"]
    known = {"origin": costs.origin, "parameters": costs.parameters}
    forged = Costs(costs.values, costs.names, **known, described={"goal": goal})
    learn_in_parts(forged, ["goal<0.5"]).save("forged")
    assert run("verify", "forged").returncode == 0  # as taken as told
    for more in (("--costs", "costs.csv"), ("--again", 2, "--task", "jumping.py:task")):
        result = run("verify", "forged", *more)
        assert result.returncode == 1
        assert "environments.csv of the run is not what" in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--parts", "rain<8"), "environments have no parameter 'rain', but goal, distance"),
        (("--parts", ""), "no part of the world"),
        (("--parts", "goal<0.5,goal < 0.5"), "declared twice"),
        (("--parts", "goal<0.5", "--method", "best"), "--parts is for the mean cost"),
        (("--parts", "goal<0.5", "--method", "betting"), "--parts is for the mean cost"),
        (("--parts", "goal<0.5", "--ball", "kl:0.1"), "--parts is for the mean cost"),
        (("--parts", "goal<0.5", "--of", "cvar:0.1"), "--parts is for the mean cost"),
        (("--parts", "goal<0.5", "--at-least", "0.1:left"), "--parts is for the mean cost"),
    ],
)
def test_parts_that_cannot_be_certified_get_one_line(
    run: Pbc, options: tuple[str, ...], words: str
):
    evaluated(run)
    assert words in complaint(run("certify", "costs.csv", *options))


def test_parameters_that_a_table_cannot_hold_are_told_before_any_rollout(run: Pbc):
    Path("broken").touch()  # a rollout would fail
    words = complaint(run("evaluate", "jumping.py:worded", "--out", "c.csv", "--workers", 0))
    assert "word of “ground” “=A1” would be a formula" in words
    assert {path.name for path in Path().iterdir()} <= {"broken", "jumping.py", "__pycache__"}


def test_rollouts_that_took_too_long_are_told(run: Pbc):
    limited = ("--rollout-timeout", 0.3, "--environments", 20, "--workers", 2)
    result = run("evaluate", "jumping.py:slow", *limited, "--out", "c.csv")
    assert result.returncode == 0, result.stderr
    goals = [row["goal"] for row in csv.DictReader(Path("c.csv").read_text().splitlines())]
    ended = sum(float(goal) > 0.9 for goal in goals)
    assert f"Note that {ended} rollouts count as failures" in result.stdout
    rows = csv.DictReader(Path("c.csv").read_text().splitlines())
    assert {row["cost"] for row in rows if row["timed_out"] == "1"} == {"1.0"}
    assert "took longer than the time limit" in run("certify", "c.csv").stdout


def test_a_comparison_takes_the_cost_of_such_a_table_and_no_parameter(run: Pbc):
    for out in ("costs.csv", "costs.parquet"):
        evaluated(run, out=out)
        result = run("choose", out)  # although “distance” may be an outcome in another table
        assert result.returncode == 0, result.stderr
        assert "3 policies × 40 environments" in result.stdout
    text = Path("costs.csv").read_text().replace("39,right,0.", "39,right,0.0")
    Path("costs.csv").write_text(text)
    assert "it was altered" in complaint(run("choose", "costs.csv"))


def test_policies_names_streams_and_seeds_are_those_that_were_asked_for(run: Pbc):
    np.save("two.npy", [[0.1], [0.2]])
    evaluated(run, "--policies", "two.npy", "--names", "a,b", "--stream", "held-out", "--seed", 7)
    origin = json.loads(Path("costs.csv.json").read_text())["origin"]
    assert (origin["stream"], origin["seed"]) == ("held-out", 7)
    assert Path("costs.csv").read_text().splitlines()[2].startswith("0,b,")


def test_finished_rollouts_are_kept_until_the_table_is_complete(run: Pbc):
    usual = ("evaluate", "jumping.py:stuck", "--environments", 30, "--workers", 0)
    usual = (*usual, "--out", "costs.csv")
    first = run(*usual, "--out", "whole.csv")
    assert first.returncode == 0, first.stderr
    from pacbayes_control.rollouts import conformance

    with pytest.MonkeyPatch.context() as patch:  # it breaks after it was tried
        patch.setattr(conformance, "refuse_broken", lambda *_: Path("broken").touch())
        words = complaint(run(*usual))
    assert "the arm is stuck" in words
    assert "costs.csv.checkpoint.rollouts" in words
    assert not Path("costs.csv").exists()
    Path("broken").unlink()
    words = complaint(run(*usual))
    assert "--set retries=1" in words
    assert run(*usual, "--set", "retries=1").returncode == 0
    assert Path("costs.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not Path("costs.csv.checkpoint.rollouts").exists()
    result = run("certify", "costs.csv")
    assert "had failed before they were run again" in result.stdout
    assert "pbc certify does" in complaint(run("choose", "costs.csv"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("jumping.py:task",), "name the table to write: --out costs.csv"),
        (("jumping.py:task", "--out", "c.xlsx"), "a .csv or a .parquet file"),
        (("jumping.py:task", "--out", "nowhere/c.csv"), "there is no folder nowhere"),
        (("jumping.py:task", "--out", "jumping.py"), "a .csv or a .parquet file"),
        (("jumping.py:task", "--out", "c.csv", "--json", "c.csv"), "is the input"),
        (("jumping.py:task", "--out", "c.csv", "--json", "c.csv.json"), "is the input"),
        (("jumping.py:task", "--out", "p.csv", "--policies", "p.csv"), "is the input"),
        (("jumping.py:task", "--out", "there.csv"), "there.csv is there: choose another name"),
        (("jumping.py:task", "--out", "c.csv", "--environments", 1), "--environments"),
        (("jumping.py:task", "--out", "c.csv", "--names", "a,b"), "2 names for 3 policies"),
        (("jumping.py:task", "--out", "c.csv", "--set", "steps=3"), "with a field of scheduler"),
        (("jumping.py:formula", "--out", "c.csv"), "would be a formula in a spreadsheet"),
        (("jumping.py:listless", "--out", "c.csv"), "has no list of policies: give one"),
        (("jumping.py:nothing", "--out", "c.csv"), "has no 'nothing'"),
        (("nothing", "--out", "c.csv"), "'nothing' is unknown"),
    ],
)
def test_bad_input_gets_one_line(run: Pbc, arguments: tuple[Any, ...], words: str):
    Path("there.csv").write_text("mine")
    Path("p.csv").write_text("1\n2\n")
    assert words in complaint(run("evaluate", *arguments))
    assert Path("there.csv").read_text() == "mine"


def test_a_table_is_replaced_by_force(run: Pbc):
    evaluated(run)
    before = Path("costs.csv").read_bytes()
    evaluated(run, "--force", "--seed", 1)
    assert Path("costs.csv").read_bytes() != before
    assert run("certify", "costs.csv").returncode == 0


def test_fields_are_listed_and_robots_have_their_own_options(run: Pbc):
    assert "allow_code_change" in run("evaluate", "jumping.py:task", "--fields").stdout
    command = EvaluatedTasks().get_command(None, "vehicle")
    names = {option.opts[0] for option in command.params}
    assert {"--wheel-slip", "--environments", "--stream", "--out", "--json"} < names
    assert "--workers" not in names  # it uses all cores by itself
    assert "Example: pbc evaluate vehicle" in command.help
