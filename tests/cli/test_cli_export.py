"""`pbc export`, `pbc cite`, and `pbc report` of several runs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.trials import Trials
from pacbayes_control.learn import learn_finite
from pacbayes_control.study.sweep import sweep
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.trials.comparing import compare, save_comparison

Pbc = Callable[..., subprocess.CompletedProcess[str]]
NAMES = [r"\input{/etc/passwd}", "100 % of_$x$ & δ"]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder with runs a and b, the comparison c and the sweep s."""
    for seed, name in enumerate("ab"):
        failed = np.random.default_rng(seed).random((60, 2)) < 0.2
        learn_finite(Costs(failed, NAMES, {"graded": False}), method="kl").save(tmp_path / name)
    costs = (np.random.default_rng(7).random((40, 2)) < [0.1, 0.6]).astype(float)
    trials = Trials.from_costs(costs, NAMES, graded=False)
    save_comparison(compare(trials, *NAMES), trials, tmp_path / "c")
    over = {"environments": [10, 20]}
    sweep(Stopping(), None, over, folder=tmp_path / "s", draws=2, test_environments=50)
    return tmp_path


def test_a_run_a_comparison_and_a_sweep_are_exported(quick: Pbc, folders: Path):
    result = quick("export", "a", "c", "s/sweep.json", "--out", "paper", "--json", "files.json")
    assert result.returncode == 0, result.stderr
    listed = {Path(name) for name in json.loads((folders / "files.json").read_text())["files"]}
    written = {path.relative_to(folders) for path in (folders / "paper").iterdir()}
    assert listed == written
    names = {path.name for path in written}
    assert {"a-table-certificate.tex", "a-figure-methods.pdf", "c-table-verdict.csv"} <= names
    assert {"s-table-sweep.tex", "s-table-sweep.csv", "s-figure-sweep.pdf"} <= names
    for path in written:
        stem = folders / path.with_suffix("")
        assert stem.with_suffix(".tex").exists()
        assert stem.with_suffix(".pdf").exists() or stem.with_suffix(".csv").exists()
    every = "".join(file.read_text() for file in (folders / "paper").glob("*.tex"))
    assert not re.search(r"(?<!textbackslash\{\})input\\?\{", every)
    with (folders / "paper" / "s-table-sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = json.loads((folders / "s" / "sweep.json").read_text())["rows"]
    assert [float(row["bound"]) for row in rows] == [row["bound"] for row in found]
    assert [int(row["N"]) for row in rows] == [10, 20]


def test_the_same_export_has_the_same_bytes_and_no_dates(quick: Pbc, folders: Path):
    for out in ("one", "two"):
        assert quick("export", "c", "s", "--out", out).returncode == 0
    for path in (folders / "one").iterdir():
        assert path.read_bytes() == (folders / "two" / path.name).read_bytes()
        assert b"CreationDate" not in path.read_bytes()


def test_a_run_that_does_not_verify_is_named_and_nothing_is_written(quick: Pbc, folders: Path):
    (folders / "b" / "posterior.json").write_text("{}")
    for command in (("export", "a", "b"), ("report", "a", "b")):
        out = "paper" if command[0] == "export" else "page.html"
        line = quick(*command, "--out", out, "--json", "why.json")
        assert line.returncode == 1
        assert "NOT VERIFIED: b: " in line.stderr
        assert json.loads((folders / "why.json").read_text())["verified"] is False
        assert not (folders / out).exists()
    (folders / "c" / "trials.json").write_text("{}")
    line = quick("export", "a", "c", "--out", "paper")
    assert (line.returncode, "NOT VERIFIED: c: " in line.stderr) == (1, True)
    assert not (folders / "paper").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("export", "a"), "say where to write: --out"),
        (("export", "a", "--out", "a"), "is the input a"),
        (("export", "a", "--out", "a/tex"), "is the input a, or lies in it"),
        (("export", "a", "./a", "--out", "x"), "a folder is named twice"),
        (("export", "nothing", "--out", "x"), "no run, comparison or sweep at nothing"),
        (("export", "a", "--out", "x", "--width", "1"), "give one from 3 to 12"),
        (("export", "a", "--out", "x", "--width", "nan"), "give one from 3 to 12"),
        (("export", "a", "--out", "a/costs.npy"), "is a file"),
        (("cite", "s"), "s is a sweep, which has no certificate"),
        (("cite", "nothing"), "no run, comparison or sweep at nothing"),
        (("cite", "a", "--out", "x.txt"), "references are a .bib file"),
        (("report", "s"), "s is a sweep, and no run"),
        (("report", "a", "s"), "s is a sweep, and no run"),
        (("report", "a", "c"), "c is a comparison, which promises no cost"),
        (("report", "a", "./a"), "a run is named twice"),
        (("report", "a", "b", "--task", "x:y"), "--task is for the rollouts of one run"),
        (("report", "a", "b", "--out", "b/page.html"), "whose files are sealed"),
        (("report", "a", "b", "--format", "pdf"), "--format is for plots"),
        (("report", *["a"] * 51), "from 2 to 50"),
    ],
    ids=lambda value: " ".join(map(str, value[:4])) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line(quick: Pbc, folders: Path, asked: tuple[str, ...], said: str):
    before = sorted(folders.rglob("*"))
    assert said in complaint(quick(*asked))
    assert sorted(folders.rglob("*")) == before


def test_a_file_of_the_author_is_not_replaced_unless_asked_for(quick: Pbc, folders: Path):
    asked = ("export", "s", "--out", "paper")
    assert quick(*asked).returncode == 0
    assert quick(*asked).returncode == 0  # its own files
    mine = folders / "paper" / "s-table-sweep.tex"
    mine.write_text("my words")
    assert "was not written by pbc export" in complaint(quick(*asked))
    assert mine.read_text() == "my words"
    assert quick(*asked, "--force").returncode == 0
    assert r"\toprule" in mine.read_text()


def test_references_of_a_run_and_of_a_comparison_are_printed_or_written(quick: Pbc, folders: Path):
    printed = quick("cite", "a", "--json", "keys.json").stdout
    assert re.findall(r"@\w+\{([^,]+),", printed) == [
        "majumdar2021pac",
        "maurer2004note",
        "pacbayes-control",
    ]
    assert json.loads((folders / "keys.json").read_text())["bibtex"] == printed
    assert quick("cite", "c", "--out", "c.bib").returncode == 0
    assert "@book{ville1939etude," in (folders / "c.bib").read_text()
    assert quick("cite").stdout.count("\n@") == 1  # the paper, and this software


def test_several_runs_are_reported_with_a_warning(quick: Pbc, folders: Path):
    result = quick("report", "a", "b", "--plots", "plots", "--json", "all.json")
    assert result.returncode == 0, result.stderr
    assert "With confidence 98 %, all 2 certificates hold together" in result.stdout
    assert "to pick one of them by its bound costs confidence" in result.stdout
    assert (folders / "side-by-side.html").exists()
    assert (folders / "plots" / "bounds-side-by-side.svg").exists()
    assert json.loads((folders / "all.json").read_text())["joint_delta"] == 0.02
