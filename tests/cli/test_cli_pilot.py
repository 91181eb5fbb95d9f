"""`--pilot`: a prior from a pilot campaign, for a table of costs and for a task."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint

Pbc = Callable[..., subprocess.CompletedProcess[str]]

RATES = [0.5, 0.4, 0.1, 0.4, 0.5, 0.4]
ROBOT = """\
from pacbayes_control.tasks.demo import Stopping

task = Stopping()
continuous = Stopping()
continuous.policies = None
"""


def table(path: Path, of: str, seed: int, names: str = "a,b,c,d,e,f") -> Path:
    failed = (np.random.default_rng(seed).random((80, len(RATES))) < RATES).astype(int).tolist()
    rows = [",".join([f"{of} {i}", *map(str, row)]) for i, row in enumerate(failed)]
    path.write_text("\n".join([f"site,{names}", *rows]) + "\n")
    return path


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Beside a pilot in other halls."""
    table(tmp_path / "pilot.csv", "hall", 1)
    return table(tmp_path / "costs.csv", "site", 2)


def certified(quick: Pbc, *options: object) -> dict:
    result = quick("certify", "costs.csv", "--method", "occam", *options, "--json", "j.json")
    assert result.returncode == 0, result.stderr
    return json.loads(Path("j.json").read_text())["chosen"]


@pytest.mark.usefixtures("campaign")
def test_a_pilot_lowers_the_bound_of_a_table_and_the_certificate_tells_of_it(quick: Pbc):
    plain = certified(quick)
    piloted = certified(quick, "--pilot", "pilot.csv", "--out", "run")
    assert piloted["bound"] < plain["bound"]
    assert piloted["policy_name"] == "c"
    assert piloted["prior"].startswith("from a pilot of 80 other environments: weights fall with")
    said = quick("verify", "run")
    assert said.returncode == 0
    assert "from a pilot of 80 other environments" in " ".join(said.stdout.split())


def test_a_pilot_may_have_its_policies_in_another_order(quick: Pbc, campaign: Path):
    expected = certified(quick, "--pilot", "pilot.csv")
    lines = [line.split(",") for line in Path("pilot.csv").read_text().splitlines()]
    turned = [",".join([line[0], *line[:0:-1]]) for line in lines]
    campaign.with_name("pilot.csv").write_text("\n".join(turned) + "\n")
    assert certified(quick, "--pilot", "pilot.csv") == expected


@pytest.mark.parametrize(
    ("pilot", "message"),
    [
        ("costs.csv", "learnt from environments of the same names, such as “site"),
        ("none.csv", "there is no file none.csv"),
        ("few.csv", "few.csv has costs of 2 policies, and there are 6"),
        (
            "named.csv",
            "“f” is a policy of one table and not of the other: name the policies of named.csv",
        ),
        ("unnamed.npy", "name the environments in both tables to tell"),
        (".", "is not the folder of a run: give a run, or a table of costs"),
    ],
)
@pytest.mark.usefixtures("campaign")
def test_bad_pilots_get_one_clear_line(quick: Pbc, tmp_path: Path, pilot: str, message: str):
    (tmp_path / "few.csv").write_text("site,a,b\nx,0,1\ny,1,1\n")
    table(tmp_path / "named.csv", "hall", 1, names="a,b,c,d,e,g")
    np.save(tmp_path / "unnamed.npy", np.zeros((40, 6)))
    assert message in complaint(quick("certify", "costs.csv", "--pilot", pilot))


def test_a_pilot_and_a_prior_are_one_too_many(quick: Pbc, campaign: Path):
    (campaign.with_name("prior.csv")).write_text("0.5,0.1,0.1,0.1,0.1,0.1\n")
    both = quick("certify", "costs.csv", "--pilot", "pilot.csv", "--prior", "prior.csv")
    assert "a pilot gives the prior: leave out --prior or --pilot" in complaint(both)
    header, rest = campaign.read_text().split("\n", 1)
    campaign.write_text(f"{header}\nprior,0.5,0.1,0.1,0.1,0.1,0.1\n{rest}")
    result = quick("certify", "costs.csv", "--pilot", "pilot.csv")
    assert "costs.csv has a prior of its own: give one, not two" in complaint(result)


# ---- for a task ---------------------------------------------------------------------------------

LEARN = ("learn", "robot.py:task", "--workers", 0, "--test-environments", 0, "--method", "occam")


@pytest.fixture
def robot(quick: Pbc, tmp_path: Path) -> Path:
    """With a run in other environments for a pilot."""
    path = tmp_path / "robot.py"
    path.write_text(ROBOT)
    done = quick(*LEARN, "--environments", 60, "--seed", 1, "--out", "pilot")
    assert done.returncode == 0, done.stderr
    return path


def learnt(quick: Pbc, *options: object) -> dict:
    options = "--environments", 40, *options, "--json", "j.json", "--force"
    result = quick(*LEARN, *options)
    assert result.returncode == 0, result.stderr
    return json.loads(Path("j.json").read_text())


@pytest.mark.usefixtures("robot")
def test_the_run_of_another_seed_is_a_pilot_of_a_task(quick: Pbc):
    plain = learnt(quick, "--out", "plain")
    piloted = learnt(quick, "--pilot", "pilot", "--out", "run")
    assert piloted["bound"] < plain["bound"]
    assert piloted["prior"].startswith("from a pilot of 60 other environments")
    assert quick("verify", "run").returncode == 0
    assert json.loads(Path("run/plan.json").read_text())["pilot"] == "pilot"
    assert (
        quick("learn", "--plan", "run/plan.json", "--workers", 0, "--out", "again").returncode == 0
    )
    assert json.loads(Path("again/certificate.json").read_text())["bound"] == piloted["bound"]


@pytest.mark.usefixtures("robot")
def test_a_table_of_named_environments_is_a_pilot_of_a_task(quick: Pbc, tmp_path: Path):
    rows = [f"hall {i},1,0,{i % 10 == 0:d},0,1" for i in range(30)]
    (tmp_path / "halls.csv").write_text("\n".join(["site,a,b,c,d,e", *rows]) + "\n")
    assert "a pilot of 30 other" in learnt(quick, "--pilot", "halls.csv", "--out", "run")["prior"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pilot", "none.csv"), "there is no file none.csv"),
        (("--pilot", "pilot", "--seed", 1), "pilot was learnt from some of these environments"),
        (("--pilot", "pilot", "--prior", "p.csv"), "a pilot gives the prior: leave out --prior or"),
        (("--pilot", "few.csv"), "few.csv has costs of 2 policies, and there are 5"),
        (("--pilot", "copy.npy"), "name the environments in its table to tell"),
    ],
)
@pytest.mark.usefixtures("robot")
def test_bad_pilots_of_a_task_get_one_clear_line(
    quick: Pbc, tmp_path: Path, options: tuple[object, ...], message: str
):
    (tmp_path / "few.csv").write_text("site,a,b\nx,0,1\ny,1,1\n")
    (tmp_path / "copy.npy").write_bytes((tmp_path / "pilot" / "costs.npy").read_bytes())
    assert message in complaint(quick(*LEARN, "--environments", 40, *options, "--out", "run"))


@pytest.mark.usefixtures("robot")
def test_continuous_policies_have_no_pilot(quick: Pbc):
    result = quick("learn", "robot.py:continuous", "--workers", 0, "--pilot", "pilot")
    assert "pilot is for a list of policies" in complaint(result)
