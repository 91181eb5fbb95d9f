"""`pbc learn --plan`: the same run again, byte for byte but for the date."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

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
