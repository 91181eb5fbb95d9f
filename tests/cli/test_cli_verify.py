"""`pbc verify`: rollouts run again, the table that a run rests on, and what is believed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate

Pbc = Callable[..., subprocess.CompletedProcess[str]]
CAMPAIGN = "site,slow,fast\nyard,0,1\nroof,0,0\nfield,1,1\nbarn,0,1\n"

ROBOT = """
import numpy as np
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"gap": rng.random()}

def rollout(policy, environment):
    return float(policy[0] > environment["gap"])

task = FunctionTask(rollout, draw, "jump", 1, policies=np.array([[0.1], [0.5]]))
"""


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    (tmp_path / "campaign.csv").write_text(CAMPAIGN)
    run = learn_finite(read_campaign(tmp_path / "campaign.csv").costs, 0.05)
    return run.save(tmp_path / "run")


@pytest.fixture(scope="module")
def honest() -> Run:
    task = Vehicle()
    train = task.environments(40, stream="train")
    return learn_finite(evaluate(task, task.policies[::10], train), 0.05)


def invented(run: Run) -> Run:
    """A run of costs that nobody rolled out, and whose every number follows from them."""
    costs = run.costs
    better = Costs(
        np.zeros_like(costs.values), costs.names, costs.origin, parameters=costs.parameters
    )
    return learn_finite(better, 0.05)


@pytest.mark.usefixtures("campaign")
def test_what_is_believed_is_listed(quick: Pbc, tmp_path: Path):
    result = quick("verify", "run", "--json", "out.json")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["verified"] is True
    assert record["told"]
    words = " ".join(result.stdout.split())
    assert "Taken as told" in words
    assert all(" ".join(line.split()) in words for line in record["told"])


def test_rollouts_are_run_again(quick: Pbc, honest: Run, tmp_path: Path):
    honest.save(tmp_path / "run")
    result = quick("verify", "run", "--again", "30", "--json", "out.json")
    assert result.returncode == 0, result.stderr
    assert "30 rollouts were run again, and cost what is recorded." in result.stdout
    assert json.loads((tmp_path / "out.json").read_text())["again"]["tried"] == 30


@pytest.mark.slow
def test_costs_that_were_invented_do_not_survive(quick: Pbc, honest: Run, tmp_path: Path):
    invented(honest).save(tmp_path / "run")
    assert quick("verify", "run").returncode == 0  # the files agree with each other
    result = quick("verify", "run", "--again", "200", "--json", "out.json")
    words = complaint(result, code=1)
    assert "NOT VERIFIED" in words
    assert "rollouts that were run again do not cost what is recorded: policy" in words
    assert result.stdout == ""
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["verified"] is False
    assert 0 < record["again"]["different"] <= 200


@pytest.mark.slow
def test_a_task_of_the_users_is_run_again(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def alone(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.delitem(sys.modules, "robot", raising=False)  # as in a process of its own
        return quick(*arguments)

    verified = partial(alone, "verify", "run")
    (tmp_path / "robot.py").write_text(ROBOT)
    learnt = ("learn", "robot.py:task", "--environments", "30", "--workers", "0", "--out", "run")
    assert alone(*learnt).returncode == 0
    result = verified("--again", "0", "--task", "robot.py:task")
    assert result.returncode == 0, result.stderr
    assert "60 rollouts were run again" in result.stdout
    assert "--task MODULE:TASK" in complaint(verified("--again", "5"))
    assert "give --again K too" in complaint(verified("--task", "robot.py:task"))
    (tmp_path / "robot.py").write_text(ROBOT.replace(">", "<"))
    result = verified("--again", "60", "--task", "robot.py:task")
    assert "60 of 60 rollouts" in complaint(result, code=1)


@pytest.mark.usefixtures("campaign")
def test_a_table_cannot_be_run_again(quick: Pbc):
    assert "--task MODULE:TASK" in complaint(quick("verify", "run", "--again", "5"))


@pytest.mark.usefixtures("campaign")
def test_a_run_rests_on_the_very_table(quick: Pbc, tmp_path: Path):
    result = quick("verify", "run", "--costs", "campaign.csv")
    assert result.returncode == 0, result.stderr
    assert "It rests on campaign.csv" in result.stdout
    shutil.copy(tmp_path / "campaign.csv", tmp_path / "copy.csv")
    assert quick("verify", "run", "--costs", "copy.csv").returncode == 0
    for name, other in {
        "cost": CAMPAIGN.replace("barn,0,1", "barn,0,0"),
        "site": CAMPAIGN.replace("yard", "park"),
        "policy": CAMPAIGN.replace("fast", "quick"),
        "space": CAMPAIGN.replace("roof,0", "roof, 0"),
        "row": CAMPAIGN + "hill,0,0\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(other)
        result = quick("verify", "run", "--costs", f"{name}.csv")
        assert "NOT VERIFIED" in complaint(result, code=1)
    assert "no file" in complaint(quick("verify", "run", "--costs", "none.csv"))


def test_a_hash_alone_does_not_make_a_run_rest_on_a_table(
    quick: Pbc, campaign: Path, tmp_path: Path
):
    run = Run.load(campaign)
    zeros = Costs(np.zeros((4, 2)), run.costs.names, run.costs.origin, sites=run.costs.sites)
    learn_finite(zeros, 0.05).save(campaign, overwrite=True)
    assert quick("verify", "run").returncode == 0
    words = complaint(quick("verify", "run", "--costs", "campaign.csv"), code=1)
    assert "the costs or names of the run are not those of campaign.csv" in words
    renamed = replace(run, costs=replace_sites(run.costs))
    shutil.rmtree(campaign)
    learn_finite(renamed.costs, 0.05).save(tmp_path / "run")
    assert quick("verify", "run", "--costs", "campaign.csv").returncode == 1


def replace_sites(costs: Costs) -> Costs:
    return Costs(costs.values, costs.names, costs.origin, sites=list("abcd"))


@pytest.mark.parametrize("reading", [7, {"path": "/etc/passwd"}, {"header": "yes"}, {"graded": 2}])
def test_a_forged_record_of_how_a_table_was_read_is_refused(
    quick: Pbc, campaign: Path, reading: object
):
    run = Run.load(campaign)
    origin = {**run.costs.origin, "reading": reading}
    costs = Costs(run.costs.values, run.costs.names, origin, sites=run.costs.sites)
    learn_finite(costs, 0.05).save(campaign, overwrite=True)
    assert "how its table was read" in complaint(
        quick("verify", "run", "--costs", "campaign.csv"), code=1
    )
