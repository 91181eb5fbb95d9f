"""Choose, compare, rank and plan through the command: results, exit codes, refusals in a line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.trials.comparing import load_comparison
from pacbayes_control.verify import verify

Pbc = Callable[..., subprocess.CompletedProcess[str]]

RNG = np.random.default_rng(3)
SUCCESS = {"old": 0.4, "new": 0.97, "other": 0.45}
OUTCOMES = {name: (RNG.random(40) < rate).astype(int) for name, rate in SUCCESS.items()}


def rows(names: Iterable[str] = SUCCESS, environments: int = 40) -> list[str]:
    return [f"{name},s{i},{OUTCOMES[name][i]}" for i in range(environments) for name in names]


def write(path: Path, lines: list[str], header: str = "policy,environment,success") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log.csv", rows())


# ---- choose -------------------------------------------------------------------------------------


def test_choose_writes_a_table_json_a_run_and_a_summary(quick: Pbc, log: Path):
    result = quick(
        "choose", log, "--out", "run", "--json", "choice.json", "--summary", "summary.md"
    )
    assert result.returncode == 0, result.stderr
    assert "3 policies × 40 environments" in result.stdout
    assert "Every policy counts that was ever tried" in " ".join(result.stdout.split())
    record = json.loads(Path("choice.json").read_text())
    assert record["chosen"] == "new"
    assert [each["name"] for each in record["policies"]] == ["old", "new", "other"]
    for each in record["policies"]:
        low, high = each["usual_interval"]
        assert low <= each["mean"] <= high
        assert each["mean"] == pytest.approx(1 - OUTCOMES[each["name"]].mean())
        assert each["trials"] == 40
        assert each["mean"] < each["bound"] <= 1
    assert verify("run").certificate.bound == record["certificate"]["bound"]
    assert "new" in Path("summary.md").read_text()
    for command in (("verify", "run"), ("shift", "run", "--ball", "kl:0.01", "--out", "shifted")):
        assert quick(*command).returncode == 0
    assert verify("shifted").run.trials is not None
    assert quick("choose", log, "--out", "run").returncode == 2
    assert quick("choose", log, "--out", "run", "--force", "--stopping", "anytime").returncode == 0
    assert verify("run").certificate.method == "anytime"


def test_choose_pays_for_policies_that_are_not_in_the_log(quick: Pbc, log: Path):
    bounds = []
    for options in ((), ("--candidates", 30), ("--candidates", 30, "--spent", 0.05)):
        assert quick("choose", log, "--json", "choice.json", *options).returncode == 0
        certificate = json.loads(Path("choice.json").read_text())["certificate"]
        bounds.append((certificate["bound"], certificate["delta"]))
    assert bounds[0][0] < bounds[1][0] == bounds[2][0]
    assert [delta for _, delta in bounds] == [0.05, 0.05, 0.1]
    assert "only 2 candidates" in complaint(quick("choose", log, "--candidates", 2))


def test_choose_asks_how_unequal_numbers_came_about(quick: Pbc, tmp_path: Path):
    log = write(tmp_path / "log.csv", rows()[:-1])
    line = complaint(quick("choose", log))
    assert "“other” has 39 trials and “old” has 40" in line
    assert "--stopping fixed" in line
    assert quick("choose", log, "--stopping", "fixed").returncode == 0
    assert quick("choose", log, "--stopping", "anytime").returncode == 0


# ---- compare ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "verdict", "code"),
    [("new", "old", "better", 0), ("old", "new", "worse", 1), ("old", "other", "undecided", 3)],
)
def test_the_exit_code_of_compare_is_its_verdict(
    quick: Pbc, log: Path, a: str, b: str, verdict: str, code: int
):
    result = quick("compare", a, b, log, "--json", "-", "--out", "kept", "--summary", "s.md")
    assert result.returncode == code, result.stderr
    record = json.loads(result.stdout)
    assert record["verdict"] == verdict
    low, high = record["difference"]
    assert (low > 0, high < 0) == (verdict == "better", verdict == "worse")
    assert (record["e_value"] >= 40) == (verdict != "undecided")
    assert (record["decided_after"] is None) == (verdict == "undecided")
    assert load_comparison("kept")[0].verdict == verdict
    assert verdict in Path("s.md").read_text().casefold()
    assert quick("verify", "kept").returncode == 0
    assert quick("report", "kept", "--out", "kept.html").returncode == 0


def test_a_margin_has_to_be_exceeded(quick: Pbc, log: Path):
    assert quick("compare", "new", "old", log).returncode == 0
    assert quick("compare", "new", "old", log, "--margin", 0.4).returncode == 3
    assert quick("compare", "new", "old", log, "--alpha", 1e-9).returncode == 3


def test_an_altered_comparison_is_not_verified(quick: Pbc, log: Path):
    quick("compare", "old", "other", log, "--out", "kept")
    file = Path("kept/comparison.json")
    record = json.loads(file.read_text()) | {"verdict": "better"}
    file.write_text(json.dumps(record))
    for command in ("verify", "report"):
        line = complaint(quick(command, "kept"), 1)
        assert line.startswith("pbc: NOT VERIFIED: ")


@pytest.mark.parametrize("command", [("shift",), ("monitor", "--failures", 1, "--trials", 9)])
def test_a_comparison_is_not_a_run(quick: Pbc, log: Path, command: tuple[object, ...]):
    quick("compare", "old", "other", log, "--out", "kept")
    done = quick(command[0], "kept", *command[1:])
    assert (done.returncode, "kept is a comparison, which" in done.stderr) == (2, True)
    done = quick("verify", "kept", "--costs", log)
    assert (done.returncode, "--costs is for a run" in done.stderr) == (2, True)


def test_no_error_of_compare_exits_with_1(quick: Pbc, log: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("pacbayes_control.trials.comparing.compare", fail)
    result = quick("compare", "new", "old", log)
    assert result.returncode == 70
    assert "a bug" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_no_full_disk_or_closed_pipe_exits_with_1(log: Path, stream: str):
    """Neither for a verdict that cannot be printed, nor for an error that cannot."""
    command = [sys.executable, "-m", "pacbayes_control", "compare", "new", "old"]
    for name in (log, "nothing.csv"):
        with Path("/dev/full").open("w") as full:
            streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            result = subprocess.run([*command, str(name)], **streams | {stream: full}, check=False)
        expected = (0, 2, 120) if name == log else (2, 120)  # 120: Python could not flush
        assert result.returncode in expected


BAD = {
    "two rates": (("plan", "--tell-apart", "0.1"), "give two rates as 0.1:0.2"),
    "equal rates": (("plan", "--tell-apart", "0.1:0.1"), "no number of trials tells them apart"),
    "no rate": (("plan", "--bound", "0.1"), "--bound needs --failure-rate"),
    "no bound": (("plan", "--failure-rate", "0.1"), "--bound with --failure-rate"),
    "nothing": (("plan",), "give --bound with --failure-rate"),
    "impossible": (
        ("plan", "--bound", "0.1", "--failure-rate", "0.2"),
        "no number of trials suffices",
    ),
    "power": (
        ("plan", "--bound", "0.1", "--failure-rate", "0.05", "--power", "1.5"),
        "power = 1.5 must lie",
    ),
    "schedule": (("plan", "--schedule", "a.csv"), "--schedule and --policies go together"),
    "same policy": (("compare", "new", "new", "log.csv"), "cannot be compared with itself"),
    "unknown policy": (("compare", "new", "olds", "log.csv"), "did you mean “old”?"),
    "alpha": (("compare", "new", "old", "log.csv", "--alpha", "0"), "alpha = 0.0 must lie"),
    "margin": (("compare", "new", "old", "log.csv", "--margin", "-0.1"), "margin of -0.1"),
    "no logs": (("compare", "new", "old"), "give logs, or a table to --follow"),
    "both": (("choose", "log.csv", "--follow", "log.csv"), "not both"),
    "stopping": (("choose", "log.csv", "--stopping", "later"), "fixed or anytime"),
    "until": (("choose", "log.csv", "--until", "0.1"), "--until is a bound"),
    "candidates": (("choose", "--follow", "log.csv"), "--follow needs --candidates"),
    "growing tasks": (
        ("compare", "new", "old", "--follow", "log.csv", "--tasks", "fixed"),
        "--follow cannot know a fixed list of tasks",
    ),
    "delta": (("choose", "log.csv", "--delta", "2"), "strictly between 0 and 1"),
    "spent": (("choose", "log.csv", "--spent", "-1"), "from 0 to 1"),
    "summary": (("rank", "log.csv", "--summary", "log.csv"), "is the input"),
    "picture": (("rank", "log.csv", "--picture", "a.txt"), "a picture is an .svg"),
    "folder to write": (("choose", "log.csv", "--out", "log.csv"), "is a file"),
    "no log": (("rank", "nothing.csv"), "there is no file or folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line(quick: Pbc, log: Path, name: str):
    assert log.name == "log.csv"
    arguments, words = BAD[name]
    assert words in complaint(quick(*arguments))


# ---- rank and plan ------------------------------------------------------------------------------


def test_rank_names_groups_and_draws_a_picture(quick: Pbc, log: Path):
    result = quick("rank", log, "--json", "rank.json", "--picture", "r.svg", "--summary", "r.md")
    assert result.returncode == 0, result.stderr
    record = json.loads(Path("rank.json").read_text())
    first = record["policies"][0]
    assert first["name"] == "new"
    assert first["better_than"] == ["other", "old"] or first["better_than"] == ["old", "other"]
    assert (first["best_rank"], first["worst_rank"]) == (1, 1)
    assert [sorted(group) for group in record["groups"]] == [["new"], ["old", "other"]]
    assert Path("r.svg").read_text().count("<svg") == 1
    assert "new" in Path("r.md").read_text()


def test_plan_says_how_many(quick: Pbc, log: Path):
    known = ("plan", "--bound", 0.3, "--failure-rate", 0.1)
    assert quick(*known, "--json", "p.json", "--picture", "p.svg").returncode == 0
    record = json.loads(Path("p.json").read_text())
    assert (record["environments"], record["failures"]) == (37, 6)
    assert Path("p.svg").exists()
    assert quick("plan", log, "--bound", 0.3, "--json", "p.json").returncode == 0
    policies = {each["name"]: each for each in json.loads(Path("p.json").read_text())["policies"]}
    assert policies["old"]["anytime"] is None
    assert policies["new"]["anytime"] == 0
    assert quick("plan", "--tell-apart", "0.1:0.4", "--json", "p.json").returncode == 0
    assert json.loads(Path("p.json").read_text())["environments"] == 70


def test_a_schedule_is_a_log_once_it_is_filled_in(quick: Pbc):
    made = ("plan", "--schedule", "today.csv", "--policies", "a,b", "--environments", 12)
    assert quick(*made, "--seed", 1).returncode == 0
    assert "exists, and may have outcomes" in complaint(quick(*made))
    table = Path("today.csv")
    assert "the outcome of" in complaint(quick("compare", "a", "b", table))
    lines = table.read_text().splitlines()
    filled = [lines[0], *(line + str(int(",a," in line)) for line in lines[1:])]
    table.write_text("\n".join(filled) + "\n")
    assert quick("compare", "a", "b", table).returncode == 0
    table.write_text("\n".join([*filled[:-3], *lines[-3:]]) + "\n")  # three trials are to come
    assert quick("compare", "a", "b", "--follow", table).returncode == 0


# ---- follow -------------------------------------------------------------------------------------


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pacbayes_control", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_compare_follows_a_table_until_it_is_decided(tmp_path: Path):
    table = write(tmp_path / "today.csv", [])
    process = start(tmp_path, "compare", "new", "old", "--follow", "today.csv", "--json", "c.json")
    with table.open("a") as stream:
        for line in rows(("new", "old")):
            if process.poll() is not None:
                break
            stream.write(line[:-1])
            stream.flush()
            time.sleep(0.02)
            stream.write(line[-1] + "\n")
            stream.flush()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "pairs: e-value" in out
    assert json.loads((tmp_path / "c.json").read_text())["verdict"] == "better"


@pytest.mark.slow
def test_an_interruption_ends_the_trials_and_the_result_is_kept(tmp_path: Path):
    write(tmp_path / "today.csv", rows(("old", "other")))
    for arguments, code in (
        (("compare", "old", "other", "--json", "result.json"), 3),
        (("choose", "--candidates", 2, "--json", "result.json", "--until", "0.01"), 0),
    ):
        process = start(tmp_path, *arguments, "--follow", "today.csv")
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("after"):
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert json.loads((tmp_path / "result.json").read_text())
