"""Learning from a campaign that grows: each look is recorded, and paid for, before its bound."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, files
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.learn import Plan, learn_task, planned
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.rollouts.manifest import known_looks
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.verify import verify

Pbc = Callable[..., subprocess.CompletedProcess[str]]

ROBOT = """
import numpy as np
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def miss(policy, environment):
    return float(abs(policy[0] - environment["goal"]) > 0.3)

def made(**known):
    return FunctionTask(miss, draw, "jump", parameters=1, **known)

task = made(policies=np.linspace(0, 1, 5)[:, None])
bare = made()
continuous = made(prior=pbc.DiagonalGaussian([0.2], 0.05))
"""


@pytest.fixture
def robot(tmp_path: Path) -> str:
    (tmp_path / "robot.py").write_text(ROBOT)
    return "robot.py:task"


def learnt(campaign: Path, environments: int = 40, **fields: Any) -> Run[Any]:
    plan = Plan(environments=environments, campaign=str(campaign), test_environments=0, **fields)
    return learn_task(Stopping(), plan)


def test_each_look_at_a_grown_campaign_adds_its_delta(tmp_path: Path):
    first = learnt(tmp_path / "c").certificate
    assert (first.delta, first.format, first.looks) == (0.01, 9, ())
    second = learnt(tmp_path / "c", 80, delta=0.02).certificate
    assert second.delta == pytest.approx(0.03)
    run = learnt(tmp_path / "c", 160, method="best")
    c = verify(run.save(tmp_path / "run")).certificate
    assert c.delta == pytest.approx(0.04)
    assert [(look.environments, look.delta) for look in c.looks] == [
        (40, 0.01),
        (80, 0.02),
        (160, 0.01),
    ]
    assert "the third look at a growing campaign, after 40 and 80 environments" in c.sentence
    assert Plan.from_dict(run.plan).campaign == str(tmp_path / "c")


def test_a_look_that_is_repeated_gives_the_same_run_byte_for_byte(tmp_path: Path):
    for name in ("first", "again"):
        learnt(tmp_path / "c").save(tmp_path / name)
    learnt(tmp_path / "c", 80).save(tmp_path / "second")
    learnt(tmp_path / "c", 80).save(tmp_path / "third")
    assert files(tmp_path / "first") == files(tmp_path / "again")
    assert files(tmp_path / "second") == files(tmp_path / "third")


def test_a_look_is_recorded_before_its_bound_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(planned, "learn_finite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learnt(tmp_path / "c")
    assert [look["delta"] for look in known_looks(tmp_path / "c")["looks"]] == [0.01]


def test_a_refused_look_is_not_recorded(tmp_path: Path):
    learnt(tmp_path / "c", 80)
    with pytest.raises(ValueError, match="was looked at after 80 environments"):
        learnt(tmp_path / "c", 40)
    assert len(known_looks(tmp_path / "c")["looks"]) == 1


def test_declared_looks_share_one_delta(tmp_path: Path):
    fields: dict[str, Any] = {"looks": (40, 80, 160), "delta": 0.03}
    certificates = [learnt(tmp_path / "c", n, **fields).certificate for n in (40, 80)]
    certificates.append(learnt(tmp_path / "c", 160, delta=0.03).certificate)  # known by now
    for number, c in enumerate(certificates):
        assert c.delta == 0.03
        assert c.budget["occam"] == pytest.approx(0.01)
        assert len(c.looks) == number + 1
        assert list(c.declared_looks) == [40, 80, 160]
    assert "this is the second of 3 looks at a growing campaign" in certificates[1].sentence
    assert known_looks(tmp_path / "c")["declared_looks"] == [40, 80, 160]
    verify(learnt(tmp_path / "c", 160, **fields).save(tmp_path / "run"))


def test_looks_cannot_be_declared_after_one_nor_changed(tmp_path: Path):
    learnt(tmp_path / "late", 40, delta=0.005)
    for n in (40, 80):  # also of the same look
        with pytest.raises(ValueError, match="late was looked at before: looks are declared bef"):
            learnt(tmp_path / "late", n, looks=(40, 80))
    learnt(tmp_path / "c", 40, looks=(40, 80))
    with pytest.raises(ValueError, match="were declared as 40 and 80: they stay so"):
        learnt(tmp_path / "c", 160, looks=(40, 80, 160))
    with pytest.raises(ValueError, match="look at 160 environments was not declared: the looks"):
        learnt(tmp_path / "c", 160)
    with pytest.raises(ValueError, match=r"spent 0.005 of delta, more than the share 0.0005"):
        learnt(tmp_path / "c", 80, delta=0.001)


def test_looks_cannot_be_declared_after_a_look_in_python_either(tmp_path: Path):
    task = Stopping()
    train = task.environments(40, stream="train")
    evaluate(task, task.policies, train, execution=Execution(store=tmp_path / "c"))
    with pytest.raises(ValueError, match="c was looked at before: looks are declared before"):
        learnt(tmp_path / "c", 40, looks=(40, 80))


def test_a_look_is_not_repeated_by_another_method_for_the_same_delta(tmp_path: Path):
    learnt(tmp_path / "c", 40)
    weights = tmp_path / "weights.csv"
    weights.write_text("0.3,0.1,0.2,0.2,0.2\n")
    pilot = learn_task(Stopping(), Plan(environments=30, test_environments=0, seed=1))
    piloted = {"pilot": str(pilot.save(tmp_path / "pilot"))}
    for other in ({"method": "kl"}, {"objective": "pinsker"}, {"prior": str(weights)}, piloted):
        with pytest.raises(ValueError, match="to keep the better of two bounds would be a choice"):
            learnt(tmp_path / "c", 40, **other)
    paid = learnt(tmp_path / "c", 40, method="kl", delta=0.02).certificate
    assert paid.delta == pytest.approx(0.03)
    for same in ({}, {"method": "occam"}):  # the first look, once more
        assert learnt(tmp_path / "c", 40, **same).certificate.delta == 0.01
    assert learnt(tmp_path / "c", 40, method="kl", delta=0.02).certificate == paid


def test_a_look_by_a_pilot_is_that_of_its_costs_wherever_they_lie(tmp_path: Path):
    folders = []
    for seed in (1, 2):
        plan = Plan(environments=30, test_environments=0, seed=seed)
        folders.append(learn_task(Stopping(), plan).save(tmp_path / str(seed)))
    first, other = folders
    run = learnt(tmp_path / "c", 40, pilot=str(first))
    assert run.certificate.prior.startswith("from a pilot of 30 other environments")
    again = learnt(tmp_path / "c", 40, pilot=str(first / "costs.npy"))
    assert again.certificate == run.certificate
    with pytest.raises(ValueError, match="to keep the better of two bounds would be a choice"):
        learnt(tmp_path / "c", 40, pilot=str(other))


def test_a_pilot_that_is_refused_costs_no_look(tmp_path: Path):
    path = tmp_path / "pilot.npy"
    costs = learnt(tmp_path / "first", 40).costs
    np.save(path, costs.values[:30])
    with pytest.raises(ValueError, match="name the environments in its table to tell"):
        learnt(tmp_path / "c", 40, pilot=str(path))
    assert learnt(tmp_path / "c", 40, method="occam").certificate.delta == 0.01


def test_the_table_of_a_campaign_is_not_certified_as_one_that_nobody_has_looked_at(tmp_path: Path):
    learnt(tmp_path / "c", 40)
    with pytest.raises(
        ValueError, match="which knows how often it was looked at: learn from it by"
    ):
        read_campaign(tmp_path / "c" / "costs.npy")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"looks": (40, 80)}, "environments = 1000 is not one of the declared looks, 40 and 80"),
        ({"looks": (1000,)}, "two or more numbers of environments"),
        ({"looks": (2000, 1000)}, "each larger than the one before"),
        ({"looks": (1000, 2000), "campaign": None}, "looks is about a campaign: name its folder"),
        ({"unseen": True, "campaign": None}, "unseen is about a campaign: name its folder"),
    ],
)
def test_a_plan_with_looks_is_checked(fields: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        Plan(**{"campaign": "c", **fields})


def test_added_policies_need_a_declaration(tmp_path: Path):
    few, more = tmp_path / "few.npy", tmp_path / "more.npy"
    np.save(few, np.linspace(0.5, 1.5, 4)[:, None])
    np.save(more, np.r_[np.linspace(0.5, 1.5, 4), 0.9, 1.1][:, None])
    learnt(tmp_path / "c", policies=str(few))
    with pytest.raises(ValueError, match="2 policies were added after the campaign was looked at"):
        learnt(tmp_path / "c", policies=str(more))
    run = learnt(tmp_path / "c", policies=str(more), unseen=True)
    assert run.certificate.delta == pytest.approx(0.02)
    assert "after 40 (with 4 policies) environments" in run.certificate.sentence
    told = verify(run.save(tmp_path / "run")).told
    assert any("policies added after a look were made without knowledge" in x for x in told)
    with pytest.raises(ValueError, match="leaving some out would be a choice by their costs"):
        learnt(tmp_path / "c", 80, policies=str(few))


def test_the_command_keeps_a_campaign_and_makes_the_same_run_from_it(
    pbc: Pbc, robot: str, tmp_path: Path
):
    given = (robot, "--environments", 40, "--workers", 0, "--campaign", "kept")
    for out in ("one", "two"):
        done = pbc("learn", *given, "--test-environments", 0, "--out", out)
        assert done.returncode == 0, done.stderr
        assert {path.name for path in tmp_path.iterdir()} >= {"kept", out}
        assert not list(tmp_path.glob("*.checkpoint*"))
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert json.loads((tmp_path / "one" / "plan.json").read_text())["campaign"] == "kept"


def test_the_command_grows_a_campaign_and_verifies_it(pbc: Pbc, quick: Pbc, robot: str):
    small = ("--test-environments", 0, "--workers", 0, "--campaign", "kept", "--looks", "40,80")
    for n, out in ((40, "one"), (80, "two")):
        done = pbc("learn", robot, *small, "--environments", n, "--out", out)
        assert done.returncode == 0, done.stderr
    words = "the second of 2 looks at a growing campaign that were declared beforehand, at 40 and"
    assert words in done.stdout.replace("\n", " ")
    done = quick("verify", "two", "--json", "-")
    record = json.loads(done.stdout)
    assert record["verified"]
    assert [look["environments"] for look in record["looks"]] == [40, 80]
    assert record["declared_looks"] == [40, 80]
    assert quick("report", "two", "--task", robot, "--out", "page.html").returncode == 0
    undeclared = quick("learn", robot, *small[:-2], "--environments", 90, "--out", "three")
    assert "a look at 90 environments was not declared" in complaint(undeclared)


def test_the_command_refuses_what_cannot_grow(quick: Pbc, robot: str):  # noqa: ARG001
    kept = ("--campaign", "kept")
    assert "campaign is for a list of policies: a search rolls out other policies" in complaint(
        quick("learn", "robot.py:continuous", *kept, "--environments", 40)
    )
    words = "looks = 40,x must be int,…"
    assert words in complaint(quick("learn", "robot.py:task", *kept, "--looks", "40,x"))
    for campaign, out in (("runs/a", "runs/a"), ("runs/a/b", "runs/a"), ("runs", "runs/a")):
        line = complaint(quick("learn", "robot.py:task", "--campaign", campaign, "--out", out))
        assert f"the campaign {campaign} and the run {out} need folders of their own" in line
