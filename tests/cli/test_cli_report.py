"""`pbc report`: what it writes, and how it fails."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import json_bytes
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate
from pacbayes_control.verify import verify
from pages import draw_only

Result = subprocess.CompletedProcess[str]
Pbc = Callable[..., Result]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over three policies."""
    failed = np.random.default_rng(0).random((200, 3)) < [0.3, 0.05, 0.1]
    return learn_finite(failed, 0.01).save(tmp_path_factory.mktemp("saved") / "mine")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The run in the folder that the commands are run in."""
    return shutil.copytree(saved, tmp_path / "runs" / "mine")


@pytest.fixture
def quick(quick: Pbc, monkeypatch: pytest.MonkeyPatch) -> Pbc:
    """The command within this process, with plots left blank."""
    draw_only((), monkeypatch)
    return quick


@pytest.mark.slow
def test_a_page_is_written_beside_the_run_which_stays_valid(pbc: Pbc, folder: Path):
    result = pbc("report", "runs/mine", "--json", "r.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    page = folder.with_name("mine.html")
    assert "runs/mine.html" in result.stdout
    assert page.read_bytes().startswith(b"<!doctype html>")
    record = json.loads((folder.parent.parent / "r.json").read_text())
    assert record == {
        "page": "runs/mine.html",
        "bytes": page.stat().st_size,
        "replays": 0,
        "environments": 200,
        "policies": 3,
        "hardest": record["hardest"],
        "again": {"tried": 0, "different": 0, "first": "", "devices": "", "excused": 0},
    }
    verify(folder)


@pytest.mark.slow
def test_the_vehicle_comes_with_its_rollouts(quick: Pbc, tmp_path: Path):
    learnt = quick("learn", "vehicle", "--environments", 4, "--test-environments", 0)
    assert learnt.returncode == 0, learnt.stderr
    result = quick("report", "runs/vehicle", "--json", "-", "--out", "v.html")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["replays"] == 200
    assert "200 rollouts to watch" in result.stderr
    assert "<title>vehicle: what is promised</title>" in (tmp_path / "v.html").read_text()


@pytest.mark.slow
def test_costs_that_are_not_reproduced_are_told_loudly(quick: Pbc, tmp_path: Path):
    """The task has changed since, or the costs are not of its rollouts."""
    task = Vehicle()
    rolled = evaluate(task, task.policies, task.environments(12, "train"))
    others = Costs(1 - rolled.values, (), rolled.origin, parameters=rolled.parameters)
    learn_finite(others).save(tmp_path / "forged")
    result = quick("report", "forged", "--json", "r.json")
    assert result.returncode == 0, result.stderr
    assert "NOT REPRODUCED: 24 of 24 rollouts that were run again" in result.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["again"]["tried"], record["again"]["different"]) == (24, 24)
    assert record["again"]["first"] in result.stdout


def test_environments_have_their_names_in_json(quick: Pbc, tmp_path: Path):
    costs = Costs([[0], [1], [0]] * 3, sites=[f"hall {i}" for i in range(9)])
    learn_finite(costs, method="occam").save(tmp_path / "named")
    assert quick("report", "named", "--json", "r.json").returncode == 0
    hardest = json.loads((tmp_path / "r.json").read_text())["hardest"]
    assert hardest[0] == {"environment": 1, "name": "hall 1", "cost": 1.0}
    assert len(hardest) == 3


def test_a_page_is_replaced_and_other_files_are_not(quick: Pbc, folder: Path, tmp_path: Path):
    for _ in range(2):
        assert quick("report", folder).returncode == 0
    page = folder.with_name("mine.html")
    first = page.read_bytes()
    page.write_text("my own notes")
    assert "mine.html was not written by pbc report" in complaint(quick("report", folder))
    assert page.read_text() == "my own notes"
    assert quick("report", folder, "--force").returncode == 0
    assert page.read_bytes() == first
    assert not (tmp_path / "mine.html").exists()


@pytest.mark.parametrize("named", [".", "../mine/", "certificate.json"])
def test_a_run_may_be_named_in_many_ways(
    quick: Pbc, folder: Path, named: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    result = quick("report", named)
    assert result.returncode == 0, result.stderr
    assert "mine: what is promised" in folder.with_name("mine.html").read_text()


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_plots_are_kept_where_they_are_asked_for(
    quick: Pbc, folder: Path, tmp_path: Path, suffix: str
):
    result = quick("report", folder, "--plots", "plots", "--format", suffix)
    assert result.returncode == 0, result.stderr
    names = {file.name for file in (tmp_path / "plots").iterdir()}
    assert f"bound-against-environments.{suffix}" in names
    assert len(names) == 5
    assert all(f"plots/{name}" in result.stdout for name in names)


def test_a_run_that_does_not_hold_gets_no_page(quick: Pbc, folder: Path, tmp_path: Path):
    costs = np.load(folder / "costs.npy")
    np.save(folder / "costs.npy", 1 - costs)
    result = quick("report", folder, "--json", "r.json")
    assert complaint(result, 1).startswith("pbc: NOT VERIFIED: costs.npy was altered")
    assert json.loads((tmp_path / "r.json").read_text())["verified"] is False
    assert not folder.with_name("mine.html").exists()


def test_an_incomplete_run_is_bad_input(quick: Pbc, folder: Path):
    (folder / "prior.json").unlink()
    assert "incomplete: prior.json is missing" in complaint(quick("report", folder))
    (folder / "manifest.json").write_bytes(json_bytes([]))
    assert "not a manifest" in complaint(quick("report", folder))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("runs/none",), "there is no run at runs/none"),
        (("runs/mine", "--out", "runs/mine/p.html"), "lies in runs/mine, whose files are sealed"),
        (("runs/mine", "--out", "runs"), "runs is a folder, not a file to write a page to"),
        (("runs/mine", "--out", "none/p.html"), "there is no folder none to write p.html in"),
        (("runs/mine", "--out", "p.pdf"), "p.pdf: a page is an .html file"),
        (("runs/mine", "--format", "pdf"), "--format is for plots: give --plots too"),
        (("runs/mine", "--plots", "p", "--format", "gif"), "svg, pdf or png, not as 'gif'"),
        (("runs/mine", "--plots", "runs/mine/p"), "is the run, or lies in it"),
        (("runs/mine", "--plots", "runs/mine/costs.npy"), "is the run, or lies in it"),
        (("runs/mine", "--json", "runs/mine/j"), "lies in runs/mine, which is the input"),
        (("runs/mine", "--json", "p.html", "--out", "p.html"), "both the page and the JSON"),
    ],
)
def test_bad_input_is_told_in_one_line(
    quick: Pbc, folder: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
):
    before = sorted(tmp_path.rglob("*"))
    assert folder.is_dir()
    assert message in complaint(quick("report", *arguments))
    assert sorted(tmp_path.rglob("*")) == before
