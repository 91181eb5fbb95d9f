"""`pbc monitor` as users meet it: day by day, with files that are right and files that are not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import command, complaint
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn import learn_finite

Pbc = Callable[..., subprocess.CompletedProcess[str]]

KEYS = {
    "trials", "mean_cost", "bound", "p_value", "e_value", "largest_e_value", "anytime_p_value",
    "alarm_at", "interval", "alpha", "verdict", "error_rate", "above", "sentence",
}  # fmt: skip


@pytest.fixture(scope="module")
def learnt() -> Run[Categorical]:
    """A run with the bound of the paper's drone."""
    failed = np.random.default_rng(0).random((1000, 4)) < [0.05, 0.2, 0.4, 0.5]
    run = learn_finite(failed, delta=0.02)
    return replace(run, certificate=replace(run.certificate, bound=0.114))


@pytest.fixture
def run(learnt: Run[Categorical], tmp_path: Path) -> Path:
    return learnt.save(tmp_path / "run")


@pytest.fixture
def state(run: Path, tmp_path: Path) -> Path:
    """Twenty outcomes, two of them failures."""
    monitor = Monitor(Run.load(run).certificate)
    monitor.observe([1, 1] + [0] * 18)
    monitor.save(tmp_path / "state.json")
    return tmp_path / "state.json"


def answer(quick: Pbc, folder: Path, *arguments: object) -> dict[str, Any]:
    """The JSON record of a command that works."""
    result = quick("monitor", *arguments, "--json", "answer.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads((folder / "answer.json").read_text())


def evidence(record: dict[str, Any]) -> list[float]:
    return [
        record[key] for key in ("trials", "mean_cost", "p_value", "e_value", "largest_e_value")
    ] + record["interval"]


# ---- what works ---------------------------------------------------------------------------------


def test_the_paper_s_flights_are_no_evidence_yet(quick: Pbc, run: Path, tmp_path: Path):
    result = quick("monitor", run, "--failures", 2, "--trials", 20, "--json", "m.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "No evidence yet" in result.stdout
    record = json.loads((tmp_path / "m.json").read_text())
    assert record.keys() == KEYS
    assert record["p_value"] == pytest.approx(0.6825, abs=1e-4)
    assert record["verdict"] == "no evidence yet"
    assert 0 < record["e_value"] < 1
    assert record["interval"][0] < record["mean_cost"] == 0.1 < record["interval"][1]
    assert (record["trials"], record["bound"], record["alpha"]) == (20, 0.114, 0.05)
    assert record["error_rate"] == pytest.approx(0.02 + 0.05)
    assert record["alarm_at"] is None
    assert not (tmp_path / "state.json").exists()  # nothing is kept unless it is asked for


def test_a_promise_without_a_run_is_watched(quick: Pbc, run: Path, tmp_path: Path):
    options = "--failures", 2, "--trials", 20
    with_run = answer(quick, tmp_path, run, *options)
    without = answer(quick, tmp_path, "--promise", 0.114, "--delta", 0.02, *options)
    assert without == with_run


@pytest.mark.slow
def test_a_violation_is_told_with_both_chances_of_error(run: Path):
    options = "--failures", 12, "--trials", 20, "--alpha", 0.01, "--json", "-"
    result = command(run.parent, "monitor", run, *options)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)  # alone: the words go to the other end
    assert record["verdict"] == "violated at level 0.01"
    assert record["alarm_at"] == 20
    assert "δ + α = 0.02 + 0.01" in record["sentence"]
    assert "δ + α = 0.02 + 0.01" in " ".join(result.stderr.split())


def test_a_file_and_single_outcomes_are_read_in_order(quick: Pbc, run: Path, tmp_path: Path):
    (tmp_path / "flights.csv").write_text("site,cost\nA,0\nB,1\nC,0.25\n")
    from_file = answer(quick, tmp_path, run, "flights.csv")
    single = answer(
        quick, tmp_path, run, "--outcome", 0, "--outcome", 1, "--outcome", 0.25
    )  # fmt: skip
    assert single == from_file
    (tmp_path / "flights.csv").write_text("late,cost\n0,1\n1,1\n0.25,1\n")
    assert answer(quick, tmp_path, run, "flights.csv", "--column", "late") == from_file


def test_day_by_day_is_the_same_as_all_at_once(quick: Pbc, run: Path, tmp_path: Path):
    rng = np.random.default_rng(3)
    days = [[str(int(x)) for x in rng.random(n) < 0.2] for n in (30, 1, 70)]
    for day, outcomes in enumerate(days):
        (tmp_path / f"day{day}.csv").write_text("cost\n" + "\n".join(outcomes))
        kept = answer(quick, tmp_path, run, f"day{day}.csv", "--state", "s.json")
    (tmp_path / "all.csv").write_text("\n".join(cell for day in days for cell in day))
    at_once = answer(quick, tmp_path, run, "all.csv")
    assert evidence(kept) == pytest.approx(evidence(at_once), rel=1e-9)
    for key in ("verdict", "alarm_at", "sentence"):
        assert kept[key] == at_once[key]
    before = (tmp_path / "s.json").read_bytes()
    assert answer(quick, tmp_path, run, "--state", "s.json") == kept  # only to look
    assert (tmp_path / "s.json").read_bytes() == before
    assert not list(tmp_path.glob("*.part"))


def test_outcomes_of_all_kinds_go_to_one_state(quick: Pbc, run: Path, tmp_path: Path):
    (tmp_path / "day.csv").write_text("pass\nfail\npass\n")
    options = "day.csv", "--outcome", 1, "--failures", 2, "--trials", 6, "--state", "s.json"
    record = answer(quick, tmp_path, run, *options)
    assert (record["trials"], record["mean_cost"]) == (10, 0.4)
    monitor = Monitor.load(tmp_path / "s.json", Run.load(run).certificate)
    assert (monitor.trials, monitor.total, monitor.binary) == (10, 4, True)


def test_the_same_file_counts_twice_only_if_that_is_said(quick: Pbc, run: Path, tmp_path: Path):
    (tmp_path / "day.csv").write_text("0\n1\n0\n")
    options = run, "day.csv", "--state", "s.json"
    assert answer(quick, tmp_path, *options)["trials"] == 3
    before = (tmp_path / "s.json").read_bytes()
    refusal = complaint(quick("monitor", *options))
    assert "day.csv was appended before" in refusal
    assert "--again" in refusal
    assert (tmp_path / "s.json").read_bytes() == before
    record = answer(quick, tmp_path, *options, "--again")
    assert (record["trials"], record["mean_cost"]) == (6, pytest.approx(1 / 3))
    (tmp_path / "next.csv").write_text("0\n1\n0\n0\n")  # another that went the same way
    assert answer(quick, tmp_path, run, "next.csv", "--state", "s.json")["trials"] == 10
    (tmp_path / "day.csv").write_text("1\n0\n0\n")  # the same name with other outcomes
    assert "day.csv was appended before" in complaint(quick("monitor", *options))
    assert answer(quick, tmp_path, *options, "--again")["trials"] == 13


def test_of_a_file_that_has_grown_what_is_new_counts(quick: Pbc, run: Path, tmp_path: Path):
    options = run, "log.csv", "--state", "s.json"
    lines = ["cost", "0", "1", "0", "0", "1", "1", "0"]
    for length in (3, 4, 8):
        (tmp_path / "log.csv").write_text("\n".join(lines[:length]) + "\n")
        if length > 3:
            before = (tmp_path / "s.json").read_bytes()
            assert "if it has grown, say --grown" in complaint(quick("monitor", *options))
            assert (tmp_path / "s.json").read_bytes() == before
        record = answer(quick, tmp_path, *options, *(["--grown"] if length > 3 else []))
        assert record["trials"] == length - 1
    before = (tmp_path / "s.json").read_bytes()
    assert answer(quick, tmp_path, *options, "--grown") == record  # by nothing, this time
    assert (tmp_path / "s.json").read_bytes() == before
    (tmp_path / "log.csv").write_text("\n".join([*lines[:3], "1", *lines[4:], "0"]))
    refusal = complaint(quick("monitor", *options, "--grown"))
    assert "log.csv does not begin with the 7 outcomes that were appended before" in refusal
    assert (tmp_path / "s.json").read_bytes() == before
    (tmp_path / "log.csv").write_text("\n".join(lines))
    at_once = answer(quick, tmp_path, run, "log.csv")
    assert evidence(record) == pytest.approx(evidence(at_once), rel=1e-9)


def test_how_many_outcomes_were_added_is_told(quick: Pbc, run: Path, state: Path, tmp_path: Path):
    (tmp_path / "day.csv").write_text("0\n1\n")
    assert "outcomes added" not in quick("monitor", run, "day.csv").stdout
    for added, options in ((2, ("day.csv",)), (0, ("day.csv", "--grown")), (0, ())):
        told = " ".join(quick("monitor", run, *options, "--state", state).stdout.split())
        assert f"{added} outcomes added, 22 in all." in told


def test_the_level_is_that_of_the_state_unless_it_is_given(quick: Pbc, run: Path, tmp_path: Path):
    options = run, "--outcome", 0, "--state", "s.json"
    assert answer(quick, tmp_path, *options, "--alpha", 0.2)["alpha"] == 0.2
    assert answer(quick, tmp_path, *options)["alpha"] == 0.2
    assert answer(quick, tmp_path, *options, "--alpha", 0.2)["trials"] == 3


def test_a_picture_is_drawn(quick: Pbc, run: Path, state: Path, tmp_path: Path):
    result = quick("monitor", run, "--state", state, "--outcome", 1, "--plot", "m.svg")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "<svg" in (tmp_path / "m.svg").read_text()
    assert "Picture: m.svg" in result.stdout


@pytest.mark.slow
def test_a_picture_of_a_single_look_is_drawn(quick: Pbc, run: Path, tmp_path: Path):
    result = quick("monitor", run, "--failures", 9, "--trials", 20, "--plot", "m.png")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_help_has_an_example(quick: Pbc):
    result = quick("monitor", "--help")
    assert result.returncode == 0
    assert "Example: pbc monitor" in result.stdout
    for option in ("--failures", "--trials", "--state", "--again", "--grown", "--alpha", "--json"):
        assert option in result.stdout


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1.5\n", "day.csv, line 2: a cost of 1.5 is outside [0, 1]"),
        ("cost\n0\n-1\n", "day.csv, line 3: a cost of -1 is outside [0, 1]"),
        ("0\nnan\n", "day.csv, line 2: the cost is missing"),
        ("0\ncrash\n", "day.csv, line 2: 'crash' is not a cost"),
        ("n/a\n0\n", "day.csv, line 1: the cost is missing"),
        ("did it crash\n0\n", "day.csv, line 1: 'did it crash' is not a cost"),
        ("success\n1\n0\n", "day.csv, line 1: 'success' is among numbers"),
        ("0\n0_1\n", "day.csv, line 2: '0_1' is not a cost"),
        ("", "day.csv has no rows"),
        ("cost\n", "day.csv: there are no outcomes below the header"),
        ("site,cost\nA,0\nB\n", "day.csv is ragged: line 3 has 1 cells"),
        ("0,1\n1,1\n", "say which column to read"),
        ('site,cost\n"A,0\n' + "B,1\n" * 50_000, "day.csv is not a CSV file"),
    ],
)
def test_a_bad_file_gets_one_clear_line_and_leaves_the_state(
    quick: Pbc, run: Path, state: Path, tmp_path: Path, content: str, message: str
):
    (tmp_path / "day.csv").write_text(content)
    before, options = state.read_bytes(), ("--state", state, "--json", "m")
    assert message in complaint(quick("monitor", run, "day.csv", *options))
    assert state.read_bytes() == before
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("none.csv",), "there is no file none.csv"),
        (("--outcome", 0, "--outcome", 1.5), "--outcome, outcome 2: a cost of 1.5 is outside"),
        (("day.csv", "--outcome", -1), "--outcome, outcome 1: a cost of -1 is outside"),
        (("--outcome", "nan"), "--outcome, outcome 1: a cost of nan is outside"),
        (("--outcome", "pass"), "Invalid value for '--outcome'"),
        (("--failures", 3, "--trials", 2), "3 failures in 2 trials"),
        (("--outcome", 1, "--failures", 3, "--trials", 2), "3 failures in 2 trials"),
        (("--failures", 3), "--failures and --trials belong together"),
        (("--trials", 3), "--failures and --trials belong together"),
        (("--failures", -1, "--trials", 2), "Invalid value for '--failures'"),
        (("--failures", 0, "--trials", 0), "Invalid value for '--trials'"),
        (("--outcome", 0, "--alpha", 0.01), "started with alpha = 0.05"),
        (("--outcome", 0, "--json", "none/m.json"), "there is no folder none"),
        (("--outcome", 0, "--plot", "none/m.svg"), "there is no folder none"),
        (("--outcome", 0, "--json", "state.json"), "state.json is the input"),
        (("--outcome", 0, "--plot", "state.json"), "a picture is an .svg, a .pdf or a .png file"),
        (("--outcome", 0, "--plot", "m.jpg"), "m.jpg: a picture is an .svg, a .pdf or a .png file"),
        (("--outcome", 0, "--delta", 0.1), "--delta is for --promise"),
        (("day.csv", "--again", "--grown"), "--again counts all of a file, --grown a part"),
        (("day.csv", "--column", "cost"), "day.csv has no column 'cost'"),
        (("day.csv", "--json", "day.csv"), "day.csv is the input"),
        (("--outcome", 0, "--again"), "are for a file of outcomes"),
        (("--outcome", 0, "--column", "cost"), "are for a file of outcomes"),
        (("--outcome", 0, "--json", "m.svg", "--plot", "m.svg"), "cannot be both the picture"),
    ],
)
def test_bad_options_get_one_clear_line_and_leave_the_state(
    quick: Pbc, run: Path, state: Path, options: tuple, message: str
):
    (state.parent / "day.csv").write_text("0\n1\n")
    before = state.read_bytes()
    assert message in complaint(quick("monitor", run, *options, "--state", state))
    assert state.read_bytes() == before


@pytest.mark.parametrize("alpha", [0, 2, "nan"])
def test_a_level_that_is_none_is_refused(quick: Pbc, run: Path, tmp_path: Path, alpha: object):
    options = run, "--failures", 2, "--trials", 20, "--alpha", alpha, "--state", "s.json"
    assert "must lie strictly between 0 and 1" in complaint(quick("monitor", *options))
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none", "--outcome", 0), "there is no run at none"),
        (("run",), "there are no outcomes"),
        ((), "give the folder of a run"),
        (("--promise", 1.5, "--outcome", 0), "the bound 1.5 must lie in [0, 1]"),
        (("--promise", "nan", "--outcome", 0), "the bound nan must lie in [0, 1]"),
        (("--promise", 0.1, "--delta", 0, "--outcome", 0), "delta = 0.0 must lie strictly between"),
        (("run", "day.csv", "--promise", 0.1), "give a run or --promise, not both"),
        (("day.csv", "run"), "the run comes first: pbc monitor run day.csv"),
        (("run", "--outcome", 0, "--state", "folder"), "folder is a folder"),
        (("run", "--outcome", 0, "--state", "run"), "run is the input"),
        (("run", "--outcome", 0, "--state", "run/state.json"), "lies in run, which is the input"),
        (("run", "--outcome", 0, "--json", "run/manifest.json"), "lies in run, which is the input"),
        (("run", "--outcome", 0, "--json", "run/new.json"), "lies in run, which is the input"),
        (("run", "--outcome", 0, "--plot", "run/picture.svg"), "lies in run, which is the input"),
        (("run", "--outcome", 0, "--plot", "link/new.svg"), "which is the input"),
        (("link", "--outcome", 0, "--state", "run/state.json"), "which is the input"),
        (("run", "day.csv", "--state", "day.csv"), "day.csv is the input"),
    ],
)
@pytest.mark.usefixtures("run")
def test_other_bad_arguments_get_one_clear_line(
    quick: Pbc, tmp_path: Path, arguments: tuple, message: str
):
    (tmp_path / "day.csv").write_text("0\n1\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert message in complaint(quick("monitor", *arguments))
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert (tmp_path / "day.csv").read_text() == "0\n1\n"


def test_the_state_of_another_certificate_is_refused_and_left(
    quick: Pbc, run: Path, state: Path, tmp_path: Path
):
    loaded, before = Run.load(run), state.read_bytes()
    other = replace(loaded, certificate=replace(loaded.certificate, bound=0.2))
    other.save(tmp_path / "other")
    for who in (("other",), ("--promise", 0.114)):
        result = quick("monitor", *who, "--outcome", 0, "--state", state)
        assert "belongs to another certificate" in complaint(result)
        assert state.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"", b"{ not json", b"{}", b"\xff\xfe", b'{"format": 1, "alpha": NaN}', b"[" * 100_000],
)
def test_a_corrupt_state_is_refused_and_left(quick: Pbc, run: Path, state: Path, content: bytes):
    state.write_bytes(content)
    assert "state.json" in complaint(quick("monitor", run, "--outcome", 0, "--state", state))
    assert state.read_bytes() == content


def test_a_state_that_is_cut_off_is_refused_and_left(quick: Pbc, run: Path, state: Path):
    state.write_bytes(state.read_bytes()[:-40])
    before = state.read_bytes()
    assert "corrupt" in complaint(quick("monitor", run, "--outcome", 0, "--state", state))
    assert state.read_bytes() == before


FULL = [("--json", "/dev/full", "No space left")] if Path("/dev/full").exists() else []


@pytest.mark.parametrize(
    ("option", "target", "message"),
    [
        ("--json", "nowhere.json", "No such file"),
        ("--plot", "nowhere.svg", "No such file"),
        *FULL,
    ],
)
def test_what_cannot_be_told_is_not_kept_and_can_be_repeated(
    quick: Pbc, run: Path, state: Path, tmp_path: Path, option: str, target: str, message: str
):
    """The state comes last: otherwise the outcomes would count, and be refused when repeated."""
    for link in ("nowhere.json", "nowhere.svg"):  # found out only when they are written
        (tmp_path / link).symlink_to(tmp_path / "none" / link)
    (tmp_path / "day.csv").write_text("0\n1\n")
    before, options = state.read_bytes(), (run, "day.csv", "--state", state)
    assert message in complaint(quick("monitor", *options, option, target))
    assert state.read_bytes() == before
    assert not list(tmp_path.glob("*.part"))
    assert answer(quick, tmp_path, *options)["trials"] == 22
    assert state.read_bytes() != before


def test_a_new_state_is_not_begun_if_the_answer_cannot_be_written(
    quick: Pbc, run: Path, tmp_path: Path
):
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "none" / "nowhere.json")
    options = run, "--outcome", 0, "--state", "s.json", "--json", "nowhere.json"
    assert "No such file" in complaint(quick("monitor", *options))
    assert not (tmp_path / "s.json").exists()
