"""The examples do what they say at their beginning, from a fresh folder."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(path.name for path in EXAMPLES.glob("*.py"))
FEW = 8
Pbc = Callable[..., subprocess.CompletedProcess[str]]


def commands(name: str) -> list[list[str]]:
    """The commands in the docstring of an example."""
    words = ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or ""
    return [shlex.split(line)[1:] for line in words.splitlines() if line.strip().startswith("pbc ")]


@pytest.fixture
def run(quick: Pbc, tmp_path: Path) -> Pbc:
    """A command in a folder with the examples."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    return quick


def with_few(arguments: list[str]) -> list[str]:
    """The same command with fewer environments."""
    if "--environments" not in arguments:
        return [*arguments, "--environments", str(FEW)]
    at = arguments.index("--environments") + 1
    return [*arguments[:at], str(FEW), *arguments[at + 1 :]]


def test_there_are_examples_and_each_tells_how_to_learn_from_it():
    assert {"cartpole.py", "pendulum_mujoco.py"} <= {*FILES}
    for name in FILES:
        assert any(arguments[0] == "learn" for arguments in commands(name)), name
        assert all(f"examples/{name}:" in arguments[1] for arguments in commands(name)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_commands_of_an_example_work(run: Pbc, tmp_path: Path, name: str):
    runs = []
    for arguments in commands(name):
        one = arguments[0] == "learn" and name != "bicycle.py"  # which uses all cores by itself
        result = run(*with_few(arguments), *(("--workers", 0) if one else ()))
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stderr == ""
        if arguments[0] == "learn":
            runs.append(tmp_path / arguments[arguments.index("--out") + 1])
            assert json.loads((runs[-1] / "certificate.json").read_text())["environments"] == FEW
            assert run("verify", runs[-1]).returncode == 0
        else:
            assert "It keeps every promise that was tried." in result.stdout
    assert runs
    assert sorted((tmp_path / "runs").iterdir()) == sorted(runs)  # no leftovers


@pytest.mark.slow
def test_cartpole_learns_over_all_linear_controllers_too(run: Pbc, tmp_path: Path):
    options = "--environments", 4, "--steps", 1, "--draws", 2, "--workers", 0, "--out", "run"
    result = run("learn", "examples/cartpole.py:continuous", *options)
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert record["draws"] == 2
    assert run("verify", "run").returncode == 0


@pytest.mark.slow
def test_cartpole_costs_differ_between_environments_and_policies(run: Pbc):
    options = "--environments", 12, "--workers", 0, "--out", "run"
    assert run("learn", "examples/cartpole.py:task", *options).returncode == 0
    costs = np.load("run/costs.npy")
    assert costs.shape == (12, 27)
    assert 0 < costs.mean() < 1
    assert costs.std(axis=0).max() > 0
    assert costs.mean(axis=0).std() > 0
