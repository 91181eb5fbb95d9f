"""`--simulated` and `--more-simulated`: a promise about the robot, from few trials there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint

Pbc = Callable[..., subprocess.CompletedProcess[str]]

TRIALS, FURTHER = 60, 2000
JOINED = "--simulated", "same.csv", "--more-simulated", "more.csv"


def outcomes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    simulated = (rng.random((TRIALS + FURTHER, 2)) < [0.3, 0.5]).astype(int)
    agrees = rng.random((TRIALS, 2)) < 0.97
    return np.where(agrees, simulated[:TRIALS], 1 - simulated[:TRIALS]), simulated


def write_table(path: Path, values: np.ndarray, first: int, header: str = "site,a,b") -> None:
    rows = [",".join([f"room {first + i}", *map(str, row)]) for i, row in enumerate(values)]
    path.write_text("\n".join([header, *rows]) + "\n")


def write_log(path: Path, values: np.ndarray, first: int, column: str = "seed") -> None:
    cells = [
        f"{name},{first + i},{1 - cost}"
        for i, row in enumerate(values.tolist())
        for name, cost in zip("ab", row, strict=True)
    ]
    path.write_text("\n".join([f"policy,{column},success", *cells]) + "\n")


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    robot, simulated = outcomes()
    write_table(tmp_path / "robot.csv", robot, 0)
    write_table(tmp_path / "same.csv", simulated[:TRIALS], 0)
    write_table(tmp_path / "more.csv", simulated[TRIALS:], TRIALS)
    return tmp_path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    robot, simulated = outcomes()
    write_log(tmp_path / "robot.csv", robot, 0)
    write_log(tmp_path / "same.csv", simulated[:TRIALS], 0)
    write_log(tmp_path / "more.csv", simulated[TRIALS:], TRIALS)
    return tmp_path


@pytest.mark.usefixtures("campaign")
def test_tables_in_simulation_lower_the_bound_of_a_table_from_the_robot(quick: Pbc):
    plain = quick("certify", "robot.csv", "--json", "plain.json", "--method", "occam")
    assert plain.returncode == 0, plain.stderr
    result = quick("certify", "robot.csv", *JOINED, "--out", "run", "--json", "j.json")
    assert result.returncode == 0, result.stderr
    alone, joined = (
        json.loads(Path(name).read_text())["chosen"] for name in ("plain.json", "j.json")
    )
    assert joined["bound"] < alone["bound"] == joined["simulation"]["bound_without"]
    assert joined["simulation"]["equivalent_trials"] > TRIALS
    said = " ".join(result.stdout.split())
    assert " % of environments, fails there as on the robot" in said
    assert f"as good as about {int(joined['simulation']['equivalent_trials'])} trials" in said
    assert "policy “a” fails on the robot in at most" in said
    verified = quick("verify", "run")
    assert verified.returncode == 0
    assert "the further environments are drawn like those of the trials" in verified.stdout


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize("stopping", ["fixed", "anytime"])
def test_logs_in_simulation_lower_the_bound_of_trials_by_their_seeds(quick: Pbc, stopping: str):
    options = ("--stopping", stopping, "--json", "j.json", "--out", "run", "--force")
    assert quick("choose", "robot.csv", *options).returncode == 0
    alone = json.loads(Path("j.json").read_text())
    result = quick("choose", "robot.csv", *JOINED, *options)
    assert result.returncode == 0, result.stderr
    joined = json.loads(Path("j.json").read_text())
    assert joined["certificate"]["bound"] < alone["certificate"]["bound"]
    without = joined["certificate"]["simulation"]["bound_without"]
    assert without == pytest.approx(alone["certificate"]["bound"])
    assert "Simulation" in result.stdout
    assert quick("verify", "run").returncode == 0


@pytest.mark.usefixtures("campaign")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--more-simulated", "more.csv"), "--more-simulated needs --simulated"),
        (("--simulated", "same.csv"), "simulation of the same environments alone does not help"),
        (("--simulated", "none.csv"), "there is no file none.csv"),
        (("--simulated", "more.csv"), "environment “room 0” of the robot is not simulated (60 of"),
        (("--simulated", "same.csv", "--more-simulated", "same.csv"), "is among the further ones"),
        (("--simulated", "same.csv", "--more-simulated", "easy.csv"), "they are not drawn alike"),
        (
            ("--simulated", "same.csv", "--more-simulated", "other.csv"),
            "policy “b” is not in all tables",
        ),
        ((*JOINED, "--method", "kl"), "simulation joins the mean cost of one policy of a list"),
        ((*JOINED, "--method", "best"), "simulation joins the mean cost of one policy of a list"),
        ((*JOINED, "--of", "cvar:0.1"), "simulation joins the mean cost of one policy of a list"),
        ((*JOINED, "--at-least", "0.2:a"), "simulation joins the mean cost of one policy"),
        ((*JOINED, "--json", "more.csv"), "more.csv is the input: write to another file"),
    ],
)
def test_bad_simulation_gets_one_clear_line(
    quick: Pbc, tmp_path: Path, options: tuple[str, ...], message: str
):
    easy = np.zeros((400, 2), int)
    write_table(tmp_path / "easy.csv", easy, 9000)
    write_table(tmp_path / "other.csv", easy, 9000, "site,a,c")
    assert message in complaint(quick("certify", "robot.csv", *options))


@pytest.mark.usefixtures("logs")
def test_trials_that_nothing_names_are_paired_only_if_that_is_said(quick: Pbc, tmp_path: Path):
    robot, simulated = outcomes()
    write_log(tmp_path / "robot.csv", robot, 0, "episode")
    write_log(tmp_path / "same.csv", simulated[:TRIALS], 0, "episode")
    write_log(tmp_path / "more.csv", simulated[TRIALS:], TRIALS, "episode")
    result = quick("choose", "robot.csv", *JOINED)
    assert "nothing tells which these are: name their column, or say --paired" in complaint(result)
    said = quick("choose", "robot.csv", *JOINED, "--paired", "--json", "j.json")
    assert said.returncode == 0, said.stderr
    assert json.loads(Path("j.json").read_text())["certificate"]["simulation"]["agreement"] > 0.9


@pytest.mark.usefixtures("logs")
def test_a_growing_table_takes_no_simulation(quick: Pbc):
    result = quick("choose", "--follow", "robot.csv", "--candidates", 2, *JOINED)
    assert "--follow takes no simulation" in complaint(result)
