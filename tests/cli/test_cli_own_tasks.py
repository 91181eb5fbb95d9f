"""A task of one's own on the command line: checked, learnt, interrupted, and how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, files
from pacbayes_control.certify.tables.campaigns import read_policies
from pacbayes_control.cli.learning import RunOptions, _learn
from pacbayes_control.cli.options import ExecutionOptions
from pacbayes_control.learn import Plan
from pacbayes_control.rollouts import conformance
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.tasks.registry import load_task
from polling import wait_until, wait_until_gone

Pbc = Callable[..., subprocess.CompletedProcess[str]]

ROBOT = """
import numpy as np
import pacbayes_control as pbc
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def miss(policy, environment):
    return float(abs(policy[0] - environment["goal"]) > 0.3)

def distance(policy, environment):
    return min(1.0, abs(float(policy[0]) - float(environment["goal"])))

def made(rollout=miss, **known):
    return FunctionTask(rollout, draw, "jump", parameters=1, **known)

grid = np.linspace(0, 1, 5)[:, None]
task = made(policies=grid)
graded = made(distance, policies=grid)
continuous = made(distance, prior=pbc.DiagonalGaussian([0.2], 0.05))
bare = made()

class Robot:
    name = "jump"
    policies = grid
    environments = staticmethod(task.environments)
    costs = staticmethod(task.costs)

def factory():
    return task
"""


MODULES = ("robot", "bad", "slow", "syntax", "exits", "lacks", "arm", "neighbour")


def forget(*names: str) -> None:
    """Forget modules, as a new process knows none of them."""
    for name in names:
        for known in (name, f"task_{name}"):
            sys.modules.pop(known, None)


@pytest.fixture
def quick(quick: Pbc) -> Iterator[Pbc]:
    """The command within this process, which knows no module from the command before."""
    path = list(sys.path)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        sys.path[:] = path
        forget(*MODULES)
        return quick(*arguments)

    yield run
    sys.path[:] = path
    forget(*MODULES)


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    path = tmp_path / "robot.py"
    path.write_text(ROBOT)
    return path


def learnt(run: Pbc, task: str, *options: object, n: int = 60) -> dict[str, Any]:
    """Learn, verify, and return the result."""
    out = options[options.index("--out") + 1] if "--out" in options else "run"
    extra = () if "--out" in options else ("--out", "run")
    result = run("learn", task, "--environments", n, *options, *extra, "--json", "r.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert run("verify", out).returncode == 0
    return json.loads(Path("r.json").read_text())


def but_for_incidents(folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """A run's files without what tells of incidents, and the date; and the incidents."""
    content = files(folder)
    manifest = content.pop("manifest.json")
    certificate = json.loads(content.pop("certificate.json"))
    incidents = certificate.pop("incidents")
    assert manifest["origin"].pop("incidents", {}) == incidents
    del certificate["sentence"]
    return content | {"certificate": certificate, "origin": manifest["origin"]}, incidents


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "checkpoint" in path.name)


# ---- pbc check ----------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed is measured for a moment, not for seconds."""
    brief = partial(conformance.check_task, seconds=0.01)
    monkeypatch.setattr(conformance, "check_task", brief)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty", "robot")
def test_check_tells_of_kept_promises_and_exits_with_0(quick: Pbc, tmp_path: Path):
    result = quick("check", "robot.py:task", "--environments", 3, "--json", "c.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "It keeps every promise that was tried." in result.stdout
    record = json.loads((tmp_path / "c.json").read_text())
    assert record.keys() == {"passed", "checks"}
    assert record["passed"] is True
    assert len(record["checks"]) == 11
    for check in record["checks"]:
        assert check.keys() == {"name", "passed", "detail", "warning"}
        assert check["passed"] is True
        assert check["detail"]
        assert check["name"].split()[0] in result.stdout
    assert "15 rollouts" not in record["checks"][2]["detail"]  # three policies, not all five
    assert record["checks"][2]["detail"].startswith("9 rollouts cost between 0 and 1")


def test_check_tells_of_broken_promises_and_exits_with_1(quick: Pbc, tmp_path: Path):
    (tmp_path / "bad.py").write_text(
        ROBOT + "\ndef twice(policy, environment):\n    return 2 * distance(policy, environment)\n"
        "far = made(twice, policies=grid + 1)\n"
    )
    result = quick("check", "bad.py:far", "--json", "-")
    assert result.returncode == 1
    record = json.loads(result.stdout)  # alone: the words are on standard error
    assert record["passed"] is False
    assert [check["passed"] for check in record["checks"]] == [True, True] + [False] * 8
    assert "is outside [0, 1]" in record["checks"][2]["detail"]
    assert "FAILED" in result.stderr
    assert "worth nothing: fix it first" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_takes_policies_from_a_file_and_a_limit_of_time(
    quick: Pbc, robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    del robot
    given = []

    def spy(task: Any, policies: Any, *rest: Any, rollout_timeout: float | None) -> Any:
        del task, rest
        given.append((np.asarray(policies).tolist(), rollout_timeout))
        return [conformance.Check("a promise", True, "kept")]

    monkeypatch.setattr(conformance, "check_task", spy)
    (tmp_path / "p.csv").write_text("0.25\n0.75\n")
    for limit in ((), ("--rollout-timeout", 2)):
        result = quick("check", "robot.py:bare", "--policies", "p.csv", *limit)
        assert result.returncode == 0, result.stderr
    assert given == [([[0.25], [0.75]], None), ([[0.25], [0.75]], 2.0)]


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_module_in_a_file_may_import_its_neighbours_also_in_workers(quick: Pbc, tmp_path: Path):
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "neighbour.py").write_text(ROBOT)
    (lab / "arm.py").write_text(
        "from neighbour import made, grid, draw\nimport neighbour\n"
        "def rollout(policy, environment):\n    return neighbour.miss(policy, environment)\n"
        "task = made(rollout, policies=grid)\n"
    )
    result = quick("check", "lab/arm.py:task")  # which sends it to other processes
    assert result.returncode == 0, result.stdout


# ---- what cannot be loaded ----------------------------------------------------------------------

CANNOT = {
    "no colon": ("robot.py", "write MODULE:TASK, such as robots.arm:task"),
    "no name": ("robot.py:", "task 'robot.py:' is unknown: choose"),
    "no module": (":task", "task ':task' is unknown: choose"),
    "a missing file": ("nowhere/robot.py:task", "there is no file nowhere/robot.py"),
    "a missing module": ("no_such_robot:task", "No module named 'no_such_robot'"),
    "a missing part of a package": ("json.robots:task", "No module named 'json.robots'"),
    "a missing name": ("robot.py:tusk", "robot.py has no 'tusk': write MODULE:TASK"),
    "a name that is no task": (
        "robot.py:grid",
        "robot.py:grid is not a task: it has no method costs",
    ),
    "a function of no task": ("robot.py:draw", "cannot be called to make a task"),
    "a function that makes no task": ("robot.py:made_none", "is not a task: it has no name"),
    "a module that raises": ("bad.py:task", "bad.py cannot be imported: KeyError: 'no licence'"),
    "a syntax error": ("syntax.py:task", "syntax.py cannot be imported: SyntaxError"),
    "a module that exits": ("exits.py:task", "exits.py cannot be imported: SystemExit: 3"),
    "a module that lacks another": ("lacks.py:task", "lacks.py cannot be imported: ModuleNotFound"),
}
BADLY = {
    "robot.py": ROBOT + "\ndef made_none():\n    return None\n",
    "bad.py": "raise KeyError('no licence')\n",
    "syntax.py": "def task(:\n    pass\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "lacks.py": "import no_such_simulator\n",
}


@pytest.fixture
def bad_files(tmp_path: Path) -> None:
    for name, text in BADLY.items():
        (tmp_path / name).write_text(text)


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize("what", CANNOT)
def test_what_is_no_task_is_told_in_one_line(quick: Pbc, what: str, tmp_path: Path):
    text, words = CANNOT[what]
    for command in (("check", text), ("learn", text, "--out", "run")):
        result = quick(*command)
        assert words in complaint(result)
        assert result.stdout == ""
    assert not (tmp_path / "run").exists()
    assert left_over(tmp_path) == []


@pytest.mark.slow
def test_a_module_that_raises_is_one_line_for_the_command_itself_too(pbc: Pbc, tmp_path: Path):
    (tmp_path / "bad.py").write_text("raise KeyError('no licence')\n")
    assert "bad.py cannot be imported: KeyError: 'no licence'" in complaint(
        pbc("check", "bad.py:task")
    )


@pytest.mark.parametrize("kind", ["ValueError", "FileNotFoundError"])
def test_whatever_a_module_raises_its_name_is_told(quick: Pbc, tmp_path: Path, kind: str):
    (tmp_path / "bad.py").write_text(f"raise {kind}('no licence')\n")
    line = complaint(quick("check", "bad.py:task"))
    assert f"bad.py cannot be imported: {kind}: no licence" in line


@pytest.mark.parametrize("raised", ["RuntimeError('no licence')", "KeyError('x')", "SystemExit(0)"])
def test_a_function_for_a_task_that_raises_is_one_line(quick: Pbc, tmp_path: Path, raised: str):
    (tmp_path / "bad.py").write_text(f"def task():\n    raise {raised}\n")
    assert "bad.py:task" in complaint(quick("check", "bad.py:task"))


@pytest.mark.parametrize("command", ["check", "learn"])
def test_a_task_whose_environments_raise_is_told_in_one_line(
    quick: Pbc, tmp_path: Path, command: str
):
    text = "class task(Robot):\n    def environments(self, n):\n        return None\n"
    (tmp_path / "bad.py").write_text(ROBOT + text)
    result = quick(command, "bad.py:task")
    assert "Traceback" not in result.stderr
    assert result.returncode in (1, 2)


@pytest.fixture
def path_put_back() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget("robot", "fleet", "fleet.arm")


@pytest.mark.usefixtures("path_put_back")
def test_a_class_and_a_function_are_called_for_a_task(robot: Path, monkeypatch: Any):
    monkeypatch.chdir(robot.parent)
    for name in ("task", "Robot", "factory"):
        task = load_task(f"robot.py:{name}")
        assert task.name == "jump"
        assert len(task.environments(3, stream="train")) == 3


@pytest.mark.usefixtures("path_put_back")
def test_a_module_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "arm.py").write_text(ROBOT)
    assert load_task("fleet.arm:task").name == "jump"


@pytest.mark.parametrize(
    ("text", "name"),
    [("vehicle", "vehicle"), ("a/b/arm.py:task", "arm"), ("robots.arm:task", "arm"), ("x:y", "x")],
)
def test_a_run_is_named_after_its_module(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    taken = Path("runs") / name
    taken.mkdir(parents=True)
    (taken / "mine.txt").touch()
    with pytest.raises(ValueError, match=f"^{taken} is not empty"):
        _learn(Stopping(), Plan(task=text), ExecutionOptions(), RunOptions())


# ---- policies from a file -----------------------------------------------------------------------


def test_policies_are_read_from_numpy_and_csv_files(tmp_path: Path):
    rows = np.array([[0.5, -1e-17], [3, 4]])
    np.save(tmp_path / "p.npy", rows)
    np.testing.assert_array_equal(read_policies(tmp_path / "p.npy")[0], rows)
    np.save(tmp_path / "whole.npy", np.array([[1, 2], [3, 4]]))
    assert read_policies(tmp_path / "whole.npy")[0].dtype == np.float64
    for text in ("0.5,-1e-17\n3,4\n", "0.5;-1e-17\n3;4", "0.5\t-1e-17\n3\t4\n"):
        (tmp_path / "p.csv").write_text(text)
        np.testing.assert_array_equal(read_policies(tmp_path / "p.csv")[0], rows)


WRONG_POLICIES = {
    "text.csv": (b"left,right\n1,2\n", "text.csv: policies are rows of numbers"),
    "gap.csv": (b"1,\n2,3\n", "gap.csv: policies are rows of numbers"),
    "nan.csv": (b"1,nan\n2,3\n", "nan.csv: policies are rows of finite numbers"),
    "ragged.csv": (b"1,2\n3\n", "ragged.csv is ragged"),
    "empty.csv": (b"", "empty.csv has no rows"),
    "junk.npy": (b"no array", "junk.npy is corrupt"),
    "wide.csv": (b"1,2\n3,4\n", "policies of 2 parameters were given to task jump, whose policies"),
}


@pytest.mark.parametrize("name", WRONG_POLICIES)
def test_what_are_no_policies_is_told_in_one_line(
    quick: Pbc, robot: Path, tmp_path: Path, name: str
):
    del robot
    content, words = WRONG_POLICIES[name]
    (tmp_path / name).write_bytes(content)
    assert words in complaint(quick("check", "robot.py:task", "--policies", name))
    assert words in complaint(
        quick("learn", "robot.py:task", "--policies", name, "--workers", 0, "--out", "run")
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "array", [np.zeros(3), np.array([["a"]]), np.array([[np.inf]]), np.zeros((2, 2, 2))]
)
def test_arrays_that_are_no_rows_of_numbers_are_refused(tmp_path: Path, array: Any):
    np.save(tmp_path / "p.npy", array)
    with pytest.raises(ValueError, match=r"p\.npy: policies are rows of finite numbers"):
        read_policies(tmp_path / "p.npy")


def test_a_missing_file_of_policies_is_told_in_one_line(quick: Pbc, robot: Path):
    del robot
    for command in ("check", "learn"):
        result = quick(command, "robot.py:task", "--policies", "no.csv")
        assert complaint(result) == "pbc: there is no file no.csv"


def test_words_that_stand_for_costs_are_no_parameters(tmp_path: Path):
    (tmp_path / "p.csv").write_text("pass,fail\n1,0\n")
    with pytest.raises(ValueError, match="policies are rows of numbers"):
        read_policies(tmp_path / "p.csv")


def test_endings_may_be_in_capitals(tmp_path: Path):
    with (tmp_path / "p.NPY").open("wb") as file:
        np.save(file, np.ones((2, 1)))
    assert read_policies(tmp_path / "p.NPY")[0].shape == (2, 1)


# ---- pbc learn: what it learns ------------------------------------------------------------------


def test_learn_chooses_among_a_tasks_policies(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    record = learnt(quick, "robot.py:task", "--workers", 0)
    assert record["policies"] == 5
    assert record["environments"] == 60
    assert 0 < record["bound"] < 1
    assert "true_cost" not in record
    assert left_over(tmp_path) == []
    stored = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert stored["bound"] == record["bound"]


def test_the_run_of_a_task_goes_to_a_folder_named_after_its_module(quick: Pbc, robot: Path):
    del robot
    result = quick("learn", "robot.py:task", "--environments", 20, "--workers", 0)
    assert result.returncode == 0, result.stderr
    assert "With confidence 99 %" in result.stdout
    assert "pbc verify runs/robot" in result.stdout
    assert "pbc report runs/robot --task robot.py:task" in result.stdout
    assert quick("verify", "runs/robot").returncode == 0
    again = quick("learn", "robot.py:task", "--environments", 20, "--workers", 0)
    assert "runs/robot" in complaint(again)
    forced = quick("learn", "robot.py:task", "--environments", 20, "--workers", 0, "--force")
    assert forced.returncode == 0


@pytest.mark.parametrize("name", ["p.npy", "p.csv"])
def test_learn_chooses_among_the_policies_of_a_file(
    quick: Pbc, robot: Path, tmp_path: Path, name: str
):
    del robot
    np.save(tmp_path / "p.npy", np.array([[0.5], [0.1]]))
    (tmp_path / "p.csv").write_text("0.5\n0.1\n")
    for task in ("robot.py:bare", "robot.py:task"):  # those of the file, not its own
        record = learnt(quick, task, "--policies", name, "--workers", 0, "--force")
        assert record["policies"] == 2


def test_learn_takes_a_prior_over_the_policies_of_a_file(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    (tmp_path / "p.csv").write_text("0.5\n0.1\n")
    (tmp_path / "prior.csv").write_text("0.9,0.1\n")
    options = "--policies", "p.csv", "--workers", 0, "--force"
    informed = learnt(quick, "robot.py:task", *options, "--prior", "prior.csv")["bound"]
    assert informed < learnt(quick, "robot.py:task", *options)["bound"]


@pytest.mark.parametrize("name", ["prior.csv", "prior.json"])
def test_learn_takes_a_prior_over_a_tasks_own_policies(
    quick: Pbc, robot: Path, tmp_path: Path, name: str
):
    del robot
    (tmp_path / "prior.csv").write_text("0.1,0.1,0.6,0.1,0.1\n")
    (tmp_path / "prior.json").write_text("[0.1, 0.1, 0.6, 0.1, 0.1]")
    assert learnt(quick, "robot.py:task", "--prior", name, "--workers", 0)["policies"] == 5


FEW_STEPS = "--steps", 3, "--workers", 0


def test_learn_searches_from_a_tasks_prior(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    record = learnt(quick, "robot.py:continuous", *FEW_STEPS, "--draws", 3)
    assert record["draws"] == 3
    assert 0 < record["bound"] <= 1
    assert left_over(tmp_path) == []
    assert len(np.load(tmp_path / "run" / "costs.npy")[0]) == 3


def test_the_size_of_a_search_is_chosen_and_kept_in_the_plan(
    quick: Pbc, robot: Path, tmp_path: Path
):
    del robot
    size = "--steps", 3, "--pairs", 4, "--batch", 7
    learnt(quick, "robot.py:continuous", *size, "--draws", 2, "--workers", 0)
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["search"] == {"steps": 3, "pairs": 4, "batch": 7}


LOUD = """
from pacbayes_control.report import console
console.FIRST = console.UNMEASURED = console.LONG = 0.0  # as if the work took long
from pacbayes_control.__main__ import main
main()
"""


@pytest.mark.slow
def test_a_log_tells_what_each_part_of_the_work_costs(robot: Path, tmp_path: Path):
    del robot
    arguments = "learn", "robot.py:continuous", "--environments", 20, "--out", "run", "--json", "-"
    size = "--steps", 3, "--draws", 2, "--test-environments", 5, "--workers", 0
    done = subprocess.run(
        [sys.executable, "-c", LOUD, *map(str, arguments), *map(str, size)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["environments"] == 20
    said = done.stderr.splitlines()
    search = "learning the posterior: 3 steps of 64 policies in 20 environments, 3,840 rollouts"
    assert said[0] == "trying the task: a few rollouts, to see whether it keeps its promises"
    assert any(line.startswith(f"{search} (then 40 to certify), about ") for line in said)
    assert any(line.startswith("learning the posterior: 3,840 of 3,840, done in ") for line in said)
    assert not any("\x1b" in line for line in said)


def test_learn_searches_from_the_prior_of_a_file(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    learnt(quick, "robot.py:continuous", *FEW_STEPS, "--out", "own")
    prior = json.loads((tmp_path / "own" / "prior.json").read_text())
    (tmp_path / "prior.json").write_text(json.dumps(prior))
    learnt(quick, "robot.py:bare", *FEW_STEPS, "--prior", "prior.json")
    given = json.loads((tmp_path / "run" / "prior.json").read_text())
    assert given == prior


@pytest.mark.parametrize("certify", ["draw", "one"])
def test_learn_certifies_one_policy(quick: Pbc, robot: Path, certify: str):
    del robot
    options = FEW_STEPS if certify == "draw" else ("--set", "candidates=4", "--workers", 0)
    record = learnt(quick, "robot.py:continuous", "--certify", certify, *options)
    assert record["method"] == ("single-draw" if certify == "draw" else "occam")
    assert record["policy"] is not None
    assert record["policies"] == (None if certify == "draw" else 4)


def test_learn_estimates_the_true_cost_where_it_is_asked_to(quick: Pbc, robot: Path):
    del robot
    record = learnt(quick, "robot.py:task", "--test-environments", 50, "--workers", 0)
    assert record["test_environments"] == 50
    assert record["true_cost"] < record["bound"]


def test_learn_prints_json_alone(quick: Pbc, robot: Path):
    del robot
    result = quick("learn", "robot.py:task", "--environments", 20, "--workers", 0, "--json", "-")
    assert result.returncode == 0
    assert json.loads(result.stdout)["environments"] == 20
    assert "With confidence 99 %" in result.stderr


# ---- pbc learn: who rolls out -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("graded", ()),
        ("continuous", ("--steps", 3, "--draws", 4)),
        ("continuous", ("--certify", "one", "--set", "candidates=4")),
    ],
    ids=["finite", "continuous", "one"],
)
def test_one_and_two_workers_leave_the_same_bytes(
    quick: Pbc, robot: Path, tmp_path: Path, task: str, options: tuple[object, ...]
):
    del robot
    for workers in (1, 2):
        learnt(quick, f"robot.py:{task}", "--workers", workers, *options, "--out", f"run{workers}")
    one, two = (but_for_incidents(tmp_path / run) for run in ("run1", "run2"))
    assert {"costs.npy", "certificate"} <= one[0].keys()
    assert one == two


def test_a_scheduler_that_nobody_runs_is_told_in_one_line(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    result = quick("learn", "robot.py:task", "--set", "scheduler=tcp://127.0.0.1:9", "--out", "run")
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in complaint(result)
    assert not (tmp_path / "run").exists()


# ---- pbc learn: interrupted ---------------------------------------------------------------------

SLOW = """
import itertools, os, time
from pathlib import Path

LOG, calls = Path(__file__).with_name("log"), itertools.count(1)

def logged(policy, environment):
    with LOG.open("a") as log:
        log.write(f"{os.getpid()} {policy[0]!r} {environment['goal']!r}\\n")
    if next(calls) == int(os.environ.get("PBC_TEST_STUCK", -1)):
        with LOG.with_name("stuck").open("a") as stuck:
            stuck.write(f"{os.getpid()}\\n")
        time.sleep(600)
    return distance(policy, environment)

slow = made(logged, policies=grid)
slow_continuous = made(logged, prior=pbc.DiagonalGaussian([0.2], 0.05))
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """The log of a robot, in which it is stuck for ever where it is told to."""
    (tmp_path / "slow.py").write_text(ROBOT + SLOW)
    return tmp_path / "log"


def killed(folder: Path, workers: int, stuck: int, *arguments: object) -> None:
    """Start a command, kill it when all are stuck, after so many rollouts each; workers end."""
    file = folder / "stuck"
    process = subprocess.Popen(
        [sys.executable, "-m", "pacbayes_control", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PBC_TEST_STUCK": str(stuck)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: lines(file) == max(1, workers) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    pids = file.read_text().split()
    assert (str(process.pid) in pids) == (workers == 0)
    wait_until_gone(*map(int, pids))


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_killed_command_goes_on_where_it_was_and_its_workers_end(
    quick: Pbc, tmp_path: Path, slow: Path, workers: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pacbayes_control.rollouts.evaluation.PROBING", 3600.0)
    command = "learn", "slow.py:slow", "--environments", 40, "--workers", workers
    killed(tmp_path, workers, 120 // max(1, workers), *command, "--out", "run")
    assert not (tmp_path / "run").exists()
    done = 0
    for path in (tmp_path / "run.checkpoint.rollouts").glob("*.npz"):
        first_row, last_row, first, last = map(int, re.findall(r"\d+", path.name))
        done += (last_row - first_row) * (last - first)
    assert 0 < done < 200

    command = (*command[:-1], 0)  # from now on in this process
    other = quick(*command, "--seed", 1, "--out", "run")  # before it is taken up
    words = complaint(other)
    assert "run.checkpoint.rollouts holds rollouts of another set of environments" in words
    assert "choose another folder, or delete it to begin again" in words

    before = lines(slow)
    result = quick(*command, "--out", "run")
    assert result.returncode == 0, result.stderr
    assert lines(slow) - before == 200 - done + min(16, done)  # and a few to see if they repeat
    assert left_over(tmp_path) == []
    assert quick("verify", "run").returncode == 0

    assert quick(*command, "--out", "whole").returncode == 0
    resumed, whole = but_for_incidents(tmp_path / "run"), but_for_incidents(tmp_path / "whole")
    assert resumed == (whole[0], {"resumed": 1})
    assert whole[1] == {}


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(quick: Pbc, tmp_path: Path, slow: Path):
    command = (
        "learn", "slow.py:slow_continuous", "--environments", 6, "--workers", 0,
        "--steps", 14, "--draws", 3,
    )  # fmt: skip
    assert quick(*command, "--out", "whole").returncode == 0
    whole = lines(slow)
    slow.unlink()
    killed(tmp_path, 0, int(0.9 * whole), *command, "--out", "run")
    assert not (tmp_path / "run").exists()
    assert left_over(tmp_path) == ["run.checkpoint.search"]
    before = lines(slow)
    result = quick(*command, "--out", "run")
    assert result.returncode == 0, result.stderr
    assert lines(slow) - before < 0.7 * whole
    assert left_over(tmp_path) == []
    assert quick("verify", "run").returncode == 0
    assert but_for_incidents(tmp_path / "run") == but_for_incidents(tmp_path / "whole")


def test_a_folder_may_have_brackets_in_its_name(quick: Pbc, robot: Path, tmp_path: Path):
    del robot
    learnt(quick, "robot.py:task", "--workers", 0, "--out", "run[1]")
    assert left_over(tmp_path) == []


# ---- pbc learn: what goes wrong -----------------------------------------------------------------

STUCK = """
def stuck(policy, environment):
    if policy[0] == 0.5 and {guard}:
        raise RuntimeError("the arm\\nis stuck")
    return distance(policy, environment)

task = made(stuck, policies=grid)
"""


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_rollout_that_raises_is_told_and_once_mended_the_rest_is_done(
    quick: Pbc, tmp_path: Path, workers: int
):
    from pacbayes_control.tasks import FunctionTask

    bad = tmp_path / "bad.py"
    bad.write_text(ROBOT + STUCK.format(guard="0.6 < environment['goal'] < 0.62"))
    command = "learn", "bad.py:task", "--environments", 100, "--workers", workers, "--out", "run"
    here = "learn", "bad.py:task", "--environments", 100, "--workers", 0, "--out"
    line = complaint(quick(*command))
    task: FunctionTask = load_task(str(bad) + ":task")
    goals = task.environments(100, stream="train").arrays()["goal"]
    stuck = np.flatnonzero((goals > 0.6) & (goals < 0.62))
    assert 1 <= len(stuck) < 10
    expected = {f"the rollout of policy 2 in environment {i} of stream 'train'" for i in stuck}
    assert any(words in line for words in expected)
    assert "RuntimeError: the arm is stuck" in line
    kept = 500 - len(stuck)
    assert f"{kept} of 500 rollouts are kept in run.checkpoint.rollouts: fix the task" in line
    assert not (tmp_path / "run").exists()

    bad.write_text(ROBOT + STUCK.format(guard="False"))
    assert "the code of the task has changed since run.checkpoint.rollouts was begun" in complaint(
        quick(*here, "run")
    )
    result = quick(*command, "--set", "allow_code_change=true")
    assert result.returncode == 0, result.stderr
    assert left_over(tmp_path) == []
    assert quick("verify", "run").returncode == 0
    assert quick(*here, "whole").returncode == 0
    mended, whole = but_for_incidents(tmp_path / "run"), but_for_incidents(tmp_path / "whole")
    assert mended == (whole[0], {"code changes": 1, "resumed": 1})
    assert whole[1] == {}


FLAKY = """
import itertools
calls = itertools.count()

def flaky(policy, environment):
    if next(calls) in (100, 130):
        raise RuntimeError("robot fell over")
    return miss(policy, environment)

task = made(flaky, policies=grid)
continuous = made(flaky, prior=pbc.DiagonalGaussian([0.2], 0.05))
"""


@pytest.mark.parametrize("task", ["task", "continuous --steps 2 --draws 4 --certify posterior"])
def test_a_rollout_that_fails_only_once_is_refused_without_retries_and_told_with_them(
    quick: Pbc, tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bad.py").write_text(ROBOT + FLAKY)
    monkeypatch.setattr("pacbayes_control.rollouts.conformance.refuse_broken", lambda *_: None)
    name, *options = task.split()
    command = "learn", f"bad.py:{name}", "--environments", 60, "--workers", 0, *options
    for _ in range(2):
        line = complaint(quick(*command, "--out", "run"))
        words = r"failed at first \(RuntimeError: robot fell over \(bad\.py:\d+\)\), but not"
        assert re.search(words, line)
        assert "allow retries (retries=1, --set retries=1), which the certificate will say" in line
    result = quick(*command, "--set", "retries=1", "--out", "allowed")
    assert result.returncode == 0, result.stderr
    certificate = json.loads((tmp_path / "allowed" / "certificate.json").read_text())
    if name == "task":
        assert certificate["incidents"] == {"retries": 2}
        assert "2 rollouts count that had failed before they" in " ".join(result.stdout.split())
        result = quick(*command, "--set", "retries=1", "--out", "run")  # kept, and still told
        assert result.returncode == 0, result.stderr
        certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
        assert certificate["incidents"]["retries"] >= 2


def test_a_task_that_was_changed_meanwhile_is_not_continued(quick: Pbc, tmp_path: Path):
    bad = tmp_path / "bad.py"
    bad.write_text(ROBOT + STUCK.format(guard="0.6 < environment['goal'] < 0.62"))
    command = "learn", "bad.py:task", "--environments", 100, "--workers", 0, "--out", "run"
    complaint(quick(*command))
    mended = STUCK.format(guard="False").replace("return distance", "return 0.9 * distance")
    bad.write_text(ROBOT + mended)
    line = complaint(
        quick(*command, "--set", "allow_code_change=true")
    )  # so it says, and is not believed
    assert "run.checkpoint.rollouts cannot be continued: the rollout of policy" in line
    assert "not the same; try pbc check on it, or delete the folder" in line


def test_a_cost_outside_its_range_is_one_line(quick: Pbc, tmp_path: Path):
    (tmp_path / "bad.py").write_text(ROBOT + "\ntask = made(lambda p, e: 1.3, policies=grid)\n")
    line = complaint(quick("learn", "bad.py:task", "--workers", 0, "--out", "run"))
    assert "cost 1.3 at environment 0, policy 0 is outside [0, 1]: rescale the costs" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("robot.py:task", "--policy", "grid"), "No such option: --policy"),
        (("robot.py:task", "--wheel-slip", 0.1), "No such option: --wheel-slip"),
        (("robot.py:continuous", "--range-noise", 0.1), "No such option: --range-noise"),
        (("robot.py:continuous", "--family"), "--family: write --set family=true"),
        (("robot.py:continuous", "--share", 0.1), "--share: write --set share=VALUE"),
        (("robot.py:continuous", "--set", "share=0.1"), "share is for prior = split"),
        (("robot.py:continuous", "--set", "pairs"), "--set pairs: write FIELD=VALUE, with a field"),
        (
            ("robot.py:continuous", "--set", "magic=3"),
            "write FIELD=VALUE, with a field of",
        ),
        (("robot.py:continuous", "--set", "pairs=many"), "pairs = many must be int"),
        (("robot.py:continuous", "--population", 64), "--population: write --pairs N, for 2N"),
        (("robot.py:continuous", "--batch", 0), "Invalid value for '--batch'"),
        (("robot.py:continuous", "--batch", 2000), "batch = 2000: there are 1000 environments"),
        (("robot.py:task", "--batch", 5), "(--steps and its like) has no use where nothing is"),
        (("robot.py:continuous", "--set", "family=maybe"), "family = maybe must be bool"),
        (("robot.py:continuous", "--set", "estimator=magic"), "must be evolution | differences"),
        (("robot.py:continuous", "--prior", "no.json"), "no.json"),
        (("robot.py:task", "--draws", 5), "draws is for continuous policies"),
        (("robot.py:task", "--set", "shared_draws=yes"), "shared_draws is for continuous policies"),
        (("robot.py:task", "--certify", "one"), "certify is for continuous policies"),
        (("robot.py:task", "--set", "candidates=3"), "candidates is for continuous policies"),
        (("robot.py:task", "--steps", 3), "(--steps and its like) has no use where nothing is"),
        (("robot.py:continuous", "--set", "candidates=3"), "candidates is for certify = one"),
        (
            ("robot.py:continuous", "--certify", "draw", "--draws", 3),
            "draws is for certify = posterior",
        ),
        (
            ("robot.py:continuous", "--certify", "one", "--steps", 3),
            "(--steps and its like) has no",
        ),
        (
            ("robot.py:continuous", "--set", "allow_code_change=true"),
            "allow_code_change is for a list of policies",
        ),
        (("robot.py:task", "--retries", -1), "--retries: write --set retries=VALUE"),
        (("robot.py:task", "--set", "retries=-1"), "retries = -1: at least 0 is needed"),
        (("vehicle", "--policies", "p.csv"), "No such option: --policies"),
        (("vehicle", "--workers", 2), "No such option: --workers"),
        (("vehicle", "--set", "workers=1"), "--set workers=1: write FIELD=VALUE, with a field of"),
        (
            ("robot.py:task", "--workers", 2, "--set", "scheduler=tcp://127.0.0.1:9"),
            "give --workers or a scheduler, not both",
        ),
        (("robot.py:task", "--workers", -1), "--workers"),
        (("robot.py:bare",), "has neither policies nor a prior: give --policies or --prior a file"),
        (("robot.py:task", "--method", "no"), "no"),
        (("robot.py:task", "--delta", 1.5), "1.5"),
    ],
)
def test_options_without_effect_are_refused(
    quick: Pbc, robot: Path, tmp_path: Path, arguments: tuple[object, ...], words: str
):
    del robot
    (tmp_path / "p.csv").write_text("0.5\n")
    assert words in complaint(quick("learn", *arguments, "--out", "run"))
    assert not (tmp_path / "run").exists()
    assert left_over(tmp_path) == []
