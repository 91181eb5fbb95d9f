"""`pbc rollout`: one rollout, its files, and how it fails."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest

from commands import complaint, examples_forgotten
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.cli import rolling_out
from pacbayes_control.cli.rolling_out import Rollouts
from pacbayes_control.learn import learn_finite
from pacbayes_control.report import videos
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate
from pacbayes_control.study.one_rollout import rollout_of
from pacbayes_control.tasks.registry import load_task

Pbc = Callable[..., subprocess.CompletedProcess[str]]
EXAMPLES = Path(__file__).parents[2] / "examples"
CARTPOLE, BRAKING = (f"{EXAMPLES / name}.py:task" for name in ("cartpole", "braking"))

ROBOT = r"""
import numpy as np
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

class Fell(Exception):
    pass

def draw(rng):
    return {"goal": rng.random(), "word": "\x1b[2K"}

def rollout(policy, environment, rng):
    if policy[0] == 1:
        raise RuntimeError("lost\x1b[2K")
    if policy[0] == 2:
        raise Fell("over")
    return 2.0 if policy[0] == 3 else float(0.5 * rng.random())

def made(**known):
    return FunctionTask(rollout, draw, "jump", parameters=1, failures=(Fell,), **known)

names = ["calm", "raises", "falls", "wrong"]
task = made(policies=np.arange(4.0)[:, None], policy_names=names)
single = made(policies=np.zeros((1, 1)))
continuous = made(prior=pbc.DiagonalGaussian([0.0], 1.0))
bare = made()
"""


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    (tmp_path / "robot.py").write_text(ROBOT)
    return tmp_path


@pytest.fixture(scope="module")
def braking(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run[Any], Path]:
    """A run of noisy rollouts, over twenty policies."""
    with examples_forgotten():
        task = load_task(BRAKING)
        train = task.environments(30, stream="train")
        run = learn_finite(evaluate(task, task.policies, train), method="occam")
    return run, run.save(tmp_path_factory.mktemp("runs") / "braking")


def test_a_rollout_is_the_training_rollout_of_its_cell(
    quick: Pbc, braking: tuple[Run[Any], Path], tmp_path: Path
):
    run, folder = braking
    for arguments in ((), ("--run", folder)):
        chosen = ("--environment", 7, "--policy", 3, "--json", "r.json", *arguments)
        result = quick("rollout", BRAKING, *chosen)
        assert result.returncode == 0, result.stderr
        record = json.loads((tmp_path / "r.json").read_text())
        assert record["cost"] == run.costs.values[7, 3]
        assert record["environment"] == {n: c[7] for n, c in run.costs.described.items()}
        assert record["parameters"] == run.costs.parameters[3].tolist()  # type: ignore[index]
        assert record["recorded_cost"] == (record["cost"] if arguments else None)
    assert "(recorded: " in result.stdout
    named = quick("rollout", BRAKING, "--environment", 7, "--policy", "policy 3", "--json", "-")
    assert json.loads(named.stdout)["cost"] == run.costs.values[7, 3]


def test_the_certified_policy_is_the_best_of_a_run(quick: Pbc, braking: tuple[Run[Any], Path]):
    run, folder = braking
    record = json.loads(quick("rollout", BRAKING, "--run", folder, "--json", "-").stdout)
    assert record["policy"] == f"policy {run.certificate.policy}"
    elsewhere = quick("rollout", BRAKING, "--run", folder, "--stream", "test", "--json", "-")
    assert json.loads(elsewhere.stdout)["recorded_cost"] is None
    later = quick("rollout", BRAKING, "--run", folder, "--environment", 30, "--json", "-")
    assert json.loads(later.stdout)["recorded_cost"] is None
    assert "does not have this rollout: it counts environments 0 to 29." in later.stderr
    assert "environments 0 to 29 of “train”, seed 0." in elsewhere.stderr


def test_the_best_policy_is_that_of_the_run_which_was_learnt_last(
    quick: Pbc, braking: tuple[Run[Any], Path], tmp_path: Path
):
    assert "learn it, give its run" in complaint(quick("rollout", BRAKING))
    run, folder = replace(braking[0], plan={"task": BRAKING}), tmp_path / "runs" / "braking"
    run.save(folder)
    told = quick("rollout", BRAKING, "--environment", 7, "--json", "r.json")
    assert "The certified policy of runs/braking." in told.stdout
    record, certificate = json.loads((tmp_path / "r.json").read_text()), run.certificate
    assert record["policy"] == f"policy {certificate.policy}"
    assert record["recorded_cost"] == run.costs.values[7, certificate.policy]
    replace(run, plan={"task": "other.py:task"}).save(folder, overwrite=True)
    assert "learn it, give its run" in complaint(quick("rollout", BRAKING))
    (folder / "plan.json").write_text("[")
    assert "learn it, give its run" in complaint(quick("rollout", BRAKING))


def test_a_run_of_a_table_has_no_policies_to_roll_out(quick: Pbc, tmp_path: Path):
    learn_finite(Costs(np.eye(40)[:, :2])).save(tmp_path / "table")
    told = complaint(quick("rollout", BRAKING, "--run", "table"))
    assert "the run was made from a table of costs" in told


def test_a_rollout_that_timed_out_has_no_recorded_cost(braking: tuple[Run[Any], Path]):
    costs = braking[0].costs
    values = costs.values.copy()
    values[7, 3] = 1
    told = {"rollout_timeout": 9.0, "timed_out": [[7, 3]], "incidents": {"timeouts": 1}}
    ended = replace(costs, values=values, origin={**costs.origin, **told})
    with examples_forgotten():
        one = rollout_of(learn_finite(ended), load_task(BRAKING), 7, "3")
    assert one.recorded is None
    assert "ended by its time limit" in one.note


def test_another_cost_than_the_recorded_one_is_not_reproduced(
    quick: Pbc, braking: tuple[Run[Any], Path], tmp_path: Path
):
    costs = braking[0].costs
    forged = Costs(costs.values / 2, origin=costs.origin, parameters=costs.parameters)
    learn_finite(forged).save(tmp_path / "forged")
    result = quick("rollout", BRAKING, "--run", "forged", "--policy", 3)
    assert result.returncode == 1
    assert "NOT REPRODUCED: the cost is " in result.stdout


def test_an_altered_run_and_one_of_another_task_are_not_used(
    quick: Pbc, braking: tuple[Run[Any], Path], robot: Path
):
    other = complaint(quick("rollout", "robot.py:task", "--run", braking[1]))
    assert "the run is of 'braking" in other
    braking[0].save(robot / "altered")
    (robot / "altered" / "costs.npy").write_bytes(b"")
    result = quick("rollout", BRAKING, "--run", "altered")
    assert "NOT VERIFIED" in complaint(result, code=1)


def test_an_error_comes_with_its_traceback_and_code_one(quick: Pbc, robot: Path):
    result = quick("rollout", "robot.py:task", "--policy", "raises", "--json", "r.json")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert 'raise RuntimeError("lost' in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("pbc: the rollout raised RuntimeError: lost")
    assert "(robot.py:14)" in last
    assert "\x1b" not in result.stderr + result.stdout
    record = json.loads((robot / "r.json").read_text())
    assert record["cost"] is None
    assert "RuntimeError" in record["traceback"]


def test_a_declared_failure_is_shown_and_costs_one(quick: Pbc, robot: Path):
    result = quick("rollout", "robot.py:task", "--policy", "falls", "--json", "-")
    assert result.returncode == 0
    assert json.loads(result.stdout)["cost"] == 1
    assert "A declared failure, which costs 1: Fell: over" in result.stderr
    untold = quick("rollout", "robot.py:task", "--policy", "calm", "--trajectory", "t.csv")
    assert "the task does not tell its steps: t.csv was not written" in untold.stdout
    assert not (robot / "t.csv").exists()
    assert "Traceback" in result.stderr


def test_a_cost_outside_its_range_is_an_error_of_the_rollout(quick: Pbc, robot: Path):
    assert robot
    result = quick("rollout", "robot.py:task", "--policy", "wrong")
    assert result.returncode == 1
    assert "outside [0, 1]" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("robot.py:task",), "give its run (--run RUN), or write a number from 0 to 3"),
        (("robot.py:task", "--policy", "4"), "there is no policy “4”: write a number from 0 to 3"),
        (("robot.py:task", "--policy", "-1"), "or one of “calm”, “raises”"),
        (("robot.py:task", "--policy", "mean"), "no prior"),
        (("robot.py:bare", "--policy", "0"), "lists no policies: give --run RUN"),
        (("robot.py:task", "--policy", "0", "--video", "v.mp4"), "jump cannot be filmed"),
        (("robot.py:task", "--policy", "0", "--video", "v.avi"), "an .mp4 or a .gif"),
        (("robot.py:task", "--policy", "0", "--trajectory", "t.txt"), "a .csv file"),
        (("robot.py:task", "--policy", "0", "--video", "no/v.mp4"), "there is no folder no"),
        (("robot.py:task", "--video", "v.mp4", "--show"), "not both"),
        (("robot.py:task", "--video", "a.gif", "--json", "a.gif"), "files of their own"),
        (("robot.py:task", "--run", "no"), "there is no run at no"),
        (("robot.py:task", "--run", ".", "--policies", "p.npy"), "without a run"),
        (("robot.py:task", "--policies", "robot.py"), "robot.py"),
        (("robot.py:task", "--set", "x=1"), "--set x=1"),
        (("robot.py:task", "--environment", "-1"), "environment"),
        (("robot.py:none",), "has no 'none'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], told: str, quick: Pbc, robot: Path):
    assert told in complaint(quick("rollout", *arguments))
    assert {path.name for path in robot.iterdir()} <= {"robot.py", "__pycache__"}


def test_one_policy_is_the_best_and_a_prior_has_a_mean(quick: Pbc, robot: Path):
    assert robot
    assert quick("rollout", "robot.py:single").returncode == 0
    result = quick("rollout", "robot.py:continuous", "--policy", "mean")
    assert result.returncode == 0
    assert "No certificate is about the mean" in result.stdout
    np.save(robot / "mine.npy", np.zeros((3, 1)))
    mine = quick("rollout", "robot.py:bare", "--policies", "mine.npy", "--policy", 2)
    assert mine.returncode == 0


def test_a_video_and_a_trajectory_of_cartpole(quick: Pbc, tmp_path: Path):
    files = ("--video", "v.gif", "--trajectory", "t.csv", "--json", "r.json")
    result = quick("rollout", CARTPOLE, "--policy", 6, "--environment", 18, *files)
    assert result.returncode == 0, result.stderr
    assert "Video: v.gif" in result.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    steps = record["steps"]
    assert len(record["rewards"]) == len(record["actions"]) == steps
    assert len(record["observations"]) == steps + 1
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == [str(n) for n in range(steps + 1)]
    assert [float(rows[4][f"observation[{i}]"]) for i in range(4)] == record["observations"][4]
    frames = imageio.imread(tmp_path / "v.gif", index=...)
    assert frames.shape[1:] == (320, 480, 3)
    assert frames.shape[0] > 1


def test_a_robot_in_the_plane_is_drawn_and_takes_its_options_by_set(quick: Pbc, tmp_path: Path):
    arguments = ("--policy", 7, "--environment", 3, "--json", "-", "--set", "policy=ratio")
    bad = complaint(quick("rollout", "vehicle", *arguments))
    assert "policy = 'ratio' must be grid | linear" in bad
    result = quick("rollout", "vehicle", *arguments[:-2], "--video", "v.mp4")
    assert result.returncode == 0, result.stderr
    task = Vehicle()
    [[path]] = task.paths(task.policies[7:8], task.environments(4, "train")[3:])
    record = json.loads(result.stdout)
    assert record["path"] == path.tolist()
    assert b"ftyp" in (tmp_path / "v.mp4").read_bytes()[:12]


def test_a_missing_extra_and_a_missing_display_are_one_line(
    quick: Pbc, monkeypatch: pytest.MonkeyPatch
):
    arguments = ("rollout", BRAKING, "--policy", 0)
    monkeypatch.setattr(rolling_out, "without_display", lambda: True)
    assert "write a file, with --video" in complaint(quick(*arguments, "--show"))
    monkeypatch.setattr(videos, "find_spec", lambda _: None)
    told = complaint(quick(*arguments, "--video", "v.mp4"))
    assert "pip install 'pacbayes-control[video]'" in told


def test_a_window_shows_the_frames_or_says_that_there_is_none(
    quick: Pbc, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rolling_out, "without_display", lambda: False)
    arguments = ("rollout", "vehicle", "--policy", 7, "--show")
    assert "Matplotlib cannot open a window" in complaint(quick(*arguments))


@pytest.mark.parametrize("task", ["vehicle", "swing", BRAKING])
def test_the_help_has_an_example_and_the_same_options_for_every_task(task: str):
    command = Rollouts().get_command(None, task)
    names = [p.opts[0] for p in command.params if not p.hidden]
    assert "--set" in names
    assert len(names) <= 15
    assert f"Example: pbc rollout {task}" in command.help
