"""Errors of a user's code: one line with its cause and place, and all of it with --traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from commands import complaint
from pacbayes_control.tasks.environments import in_a_line

Pbc = Callable[..., CompletedProcess[str]]

ROBOT = """
import json
import os
import numpy as np
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"x": rng.random()}

def steps(speed):
    return 1 / speed

def rollout(policy, environment):
    return steps(0)

def chained(policy, environment):
    try:
        return steps(0)
    except ZeroDivisionError as error:
        raise RuntimeError("no plan") from error

def library(policy, environment):
    return json.loads("{")

def no_draw(rng):
    return {"x": {}["missing"]}

def made():
    raise OSError("no licence")

def ends(policy, environment):
    if environment["x"] > 0.6:
        os._exit(3)
    return 0.0

def unregistered(policy, environment):
    import gymnasium
    return gymnasium.make("Nowhere-v0")

both = np.array([[0.0], [1.0]])
task = FunctionTask(rollout, draw, "r", policies=both)
chain = FunctionTask(chained, draw, "c", policies=both)
deep = FunctionTask(library, draw, "l", policies=both)
undrawn = FunctionTask(rollout, no_draw, "n", policies=both)
ending = FunctionTask(ends, draw, "e", policies=both)
making = FunctionTask(unregistered, draw, "u", policies=both)
"""


@pytest.fixture(autouse=True)
def robot(tmp_path: Path) -> None:
    (tmp_path / "robot.py").write_text(ROBOT)


def line_of(text: str) -> int:
    return ROBOT[: ROBOT.index(text)].count("\n") + 1


CASES = {
    "task": (f"ZeroDivisionError: division by zero (robot.py:{line_of('return 1 /')})", "in steps"),
    "chain": (
        "RuntimeError: no plan, caused by ZeroDivisionError: division by zero "
        f"(robot.py:{line_of('return 1 /')})",
        "direct cause",
    ),
    "deep": (f"column 2 (char 1) (robot.py:{line_of('return json')})", "raw_decode"),
    "undrawn": (f"KeyError: 'missing' (robot.py:{line_of('missing')})", "in no_draw"),
    "made": (f"OSError: no licence (robot.py:{line_of('raise OSError')})", "in made"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_of_a_users_code_is_told_in_a_line_with_its_place(quick: Pbc, name: str):
    line = complaint(quick("learn", f"robot.py:{name}", "--workers", 0, "--environments", 20))
    assert CASES[name][0] in line


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("front", [True, False])
def test_all_of_it_is_shown_on_request_before_the_line(quick: Pbc, name: str, front: bool):
    arguments = ["learn", f"robot.py:{name}", "--workers", 0, "--environments", 20]
    arguments.insert(0 if front else 3, "--traceback")
    result = quick(*arguments)
    *trace, line = result.stderr.splitlines()
    assert result.returncode == 2
    assert trace[0] == "Traceback (most recent call last):"
    assert any(CASES[name][1] in words for words in trace)
    assert line.startswith("pbc: ")
    assert CASES[name][0] in line


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--traceback",)])
def test_the_traceback_of_a_worker_is_shown_too(quick: Pbc, option: tuple[str, ...]):
    result = quick("learn", "robot.py:task", "--workers", 2, "--environments", 20, *option)
    assert result.returncode == 2
    *trace, line = result.stderr.splitlines()
    assert CASES["task"][0] in line
    assert ("in steps" in result.stderr) == bool(trace) == bool(option)


def test_check_shows_tracebacks_and_its_json_does_not(quick: Pbc, tmp_path: Path):
    plain = quick("check", "robot.py:task", "--json", "plain.json")
    shown = quick("check", "robot.py:task", "--json", "shown.json", "--traceback")
    assert plain.returncode == shown.returncode == 1
    assert not plain.stderr
    assert shown.stderr.count("in steps") == shown.stderr.count("return 1 / speed") > 0
    assert CASES["task"][0] in " ".join(shown.stdout.split())
    records = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "shown")]
    assert records[0] == records[1]
    assert set(records[0]["checks"][0]) == {"name", "passed", "detail", "warning"}


def test_bad_input_keeps_its_line_and_help_tells_of_the_option(quick: Pbc):
    result = quick("verify", "nowhere", "--traceback")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "pbc: there is no run at nowhere"
    assert "there is no run" in complaint(quick("verify", "nowhere"))
    assert "--traceback" in quick("--help").stdout
    last = quick("--traceback").stderr.splitlines()[-1]
    assert last == "pbc: name a command: see pbc --help"


def raised(make: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any
        make()
    return caught.value


def test_the_line_names_the_innermost_cause_once():
    def outer(message: str) -> None:
        try:
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("b") from error
        except ValueError as error:
            raise RuntimeError(message) from error

    place = r" (test_tracebacks.py:"
    assert in_a_line(raised(lambda: outer("c"))).startswith(
        f"RuntimeError: c, caused by KeyError: 'a'{place}"
    )
    known = "no c: KeyError: 'a'"
    assert in_a_line(raised(lambda: outer(known))).startswith(f"RuntimeError: {known}{place}")


def test_the_line_of_an_error_without_a_users_code_has_no_place():
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert in_a_line(ValueError("a\nb")) == "ValueError: a b"
    assert in_a_line(OddError()) == "OddError, which cannot be shown"
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert in_a_line(one) == "ValueError: one, caused by ValueError: two"


@pytest.mark.slow
def test_a_simulator_that_ends_its_process_is_named_and_not_the_end_of_the_command(quick: Pbc):
    line = complaint(quick("learn", "robot.py:ending", "--workers", 1, "--environments", 20))
    assert "failed, also when it was tried again: its worker died with code 3" in line


@pytest.mark.slow
def test_an_id_that_only_this_process_knows_is_told_with_the_remedy(quick: Pbc):
    line = complaint(quick("learn", "robot.py:making", "--workers", 1, "--environments", 20))
    assert "; import the module that registers it within the rollout" in line
