"""A robot of another package: installed beside ours, it is learnt, shown and reproduced by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Pbc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that holds nothing but the rover's."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, *options, "--target", str(folder), str(ROOT / "examples" / "rover")], check=True
    )
    return folder


@pytest.fixture
def pbc(installed: Path, quick: Pbc, monkeypatch: pytest.MonkeyPatch) -> Pbc:
    """The command as it is where the rover is installed."""
    monkeypatch.syspath_prepend(str(installed))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        done = quick(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.mark.slow
def test_a_robot_of_another_package_is_learnt_shown_and_reproduced_by_name(
    pbc: Pbc, tmp_path: Path
):
    assert "keeps every promise" in pbc("check", "rover", "--environments", 4).stdout
    words = pbc("learn", "rover", "--help").stdout
    assert "--rock" in words
    assert "Radius of the rock, in m." in words
    pbc("learn", "rover", "--environments", 80, "--rock", 0.3, "--out", "run", "--json", "r.json")
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["policies"] == 7
    assert record["test_environments"] == 1000
    assert (tmp_path / "run" / "rocks.png").read_bytes().startswith(b"\x89PNG")

    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (plan["task"], plan["options"]) == ("rover", {"rock": 0.3})
    pbc("learn", "--plan", "run/plan.json", "--out", "again")
    for file in ("certificate.json", "costs.npy", "posterior.json", "plan.json", "rocks.png"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()

    assert "run again, and cost what is recorded" in pbc("verify", "run", "--again", 20).stdout
    pbc("report", "run", "--json", "page.json")
    assert json.loads((tmp_path / "page.json").read_text())["replays"] > 0
    assert "Where the rocks of new fields lie." in (tmp_path / "run.html").read_text()

    pbc("reproduce", "rover-table", "--draws", 3, "--json", "table.json")
    assert len(json.loads((tmp_path / "table.json").read_text())["bounds"]) == 3
    assert (tmp_path / "runs" / "rover-table" / "bounds.txt").exists()
    assert "A rock is drawn ahead" in pbc("rover", "describe").stdout


def test_without_the_package_there_is_no_such_robot(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "pacbayes_control", "learn", "rover"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "task 'rover' is unknown: choose grasping, swing, vehicle, or write" in done.stderr
