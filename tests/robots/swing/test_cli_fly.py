"""`pbc swing fly`: flights, rehearsed faults, signals, and bad input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from aloft import certified, read_record
from commands import complaint
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.swing import Net, Swing
from pacbayes_control.robots.swing.flight import stages
from pacbayes_control.robots.swing.flight.simulated import VirtualClock
from pacbayes_control.robots.swing.flight.stages import read_obstacles
from pacbayes_control.robots.swing.flight.world import Fault, WorldSetup
from polling import wait_until

Result = subprocess.CompletedProcess[str]
Pbc = Callable[..., Result]

ADDRESS = "e0:14:d0:63:3d:d0"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified().save(tmp_path_factory.mktemp("run") / "swing")


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "swing")


@pytest.fixture
def room(tmp_path: Path) -> Path:
    path = tmp_path / "room.csv"
    path.write_text("x,y,radius\n-2.5,8,0.3\n2.5,9,0.3\n-2.5,10,0.3\n")
    return path


def answer(result: Result, path: Path, code: int = 0) -> dict[str, Any]:
    assert result.returncode == code, result.stderr
    assert result.stderr == ""
    return json.loads(path.read_text())


# ---- flights ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_simulated_flights_are_logged_and_counted(quick: Pbc, run: Path, tmp_path: Path):
    arguments = ("swing", "fly", "swing", "--virtual", "--json", "r.json")
    result = quick(*arguments, "--flights", 3)
    record = answer(result, tmp_path / "r.json")
    assert [flight["cost"] in (0, 1) for flight in record["flights"]] == [True] * 3
    assert record["monitor"]["trials"] == 3
    lines = [line for line in result.stdout.splitlines() if line.startswith("Flight ")]
    assert [line.split(":")[0] for line in lines] == ["Flight 1", "Flight 2", "Flight 3"]
    assert "verdict" in result.stdout
    assert "drawn afresh" in result.stdout
    folder = run.with_name("swing.flights")
    first = (folder / "flight-0001.csv").read_bytes()
    again = answer(quick(*arguments), tmp_path / "r.json")
    assert again["monitor"]["trials"] == 4
    assert (folder / "flight-0004.json").exists()
    assert (folder / "flight-0001.csv").read_bytes() == first
    table = (folder / "outcomes.csv").read_text().splitlines()
    assert table[0] == "flight,cost,end,reason"
    assert [line.split(",")[0] for line in table[1:]] == ["1", "2", "3", "4"]
    same = quick("monitor", "swing", folder / "outcomes.csv", "--column", "cost")
    assert "outcomes          4" in same.stdout


def test_a_rehearsed_fault_is_shown_and_not_counted(quick: Pbc, run: Path, tmp_path: Path):
    result = quick(
        "swing",
        "fly",
        run,
        "--virtual",
        "--fault",
        "tracker-silent@2.5",
        "--json",
        "r.json",
        "--out",
        "f",
    )
    record = answer(result, tmp_path / "r.json", code=1)
    [flight] = record["flights"]
    assert (flight["end"], flight["fault"], flight["cost"]) == ("tracking lost", True, 1)
    assert flight["landing_acknowledged"]
    assert record["monitor"] is None
    assert "rehearsals" in result.stdout
    assert "no outcome to test yet" in result.stdout


def test_obstacles_from_a_file_count_once(quick: Pbc, run: Path, room: Path):
    arguments = ("swing", "fly", run, "--virtual", "--obstacles", room)
    result = quick(*arguments)
    assert result.returncode == 0, result.stderr
    assert "has the obstacles of flight 1" in complaint(quick(*arguments))


def test_words_go_to_standard_error_where_json_goes_to_the_terminal(quick: Pbc, run: Path):
    result = quick("swing", "fly", run, "--virtual", "--json", "-")
    assert json.loads(result.stdout)["flights"]
    assert "Flight 1" in result.stderr


# ---- signals, with real processes ---------------------------------------------------------------


def start(run: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pacbayes_control", "swing", "fly", str(run), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def recorded(folder: Path, what: str) -> list[dict[str, Any]]:
    """Entries of the world's record of the first flight."""
    record = read_record(folder / "flight-0001.world")
    return [entry for entry in record if entry["what"] == what]


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "flight-0001.json").read_text())


def struck_in_flight(run: Path, number: signal.Signals) -> tuple[Path, int, str, str]:
    """A process that gets a signal once its drone is steered: its flights, code and words.

    A machine that is busy enough may end a flight before: then another one is flown.
    """
    folder = run.with_name(f"flights-{len(list(run.parent.iterdir()))}")
    process = start(run, "--flights", "3", "--out", str(folder))
    wait_until(lambda: recorded(folder, "steer") or process.poll() is not None, 120)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)  # as Ctrl-C does, to all in the foreground
    out, err = process.communicate(timeout=120)
    if summary(folder).get("end") in (None, "terminated"):
        return folder, process.returncode, out, err
    return struck_in_flight(run, number)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
)
def test_a_process_that_is_told_to_end_lands_first(run: Path, number: signal.Signals):
    folder, code, out, err = struck_in_flight(run, number)
    assert code == 1, err
    assert f"failure, {number.name} was received" in out
    assert "Flight 2" not in out
    assert "Traceback" not in err
    wait_until(lambda: recorded(folder, "land") and recorded(folder, "on the ground"))
    assert (summary(folder)["end"], summary(folder)["cost"]) == ("terminated", 1)
    assert (folder / "outcomes.csv").read_text().splitlines()[1].startswith("1,1,terminated,")


@pytest.mark.slow
def test_a_process_that_is_killed_is_landed_by_its_keeper(run: Path, quick: Pbc):
    folder, *_ = struck_in_flight(run, signal.SIGKILL)
    wait_until(lambda: recorded(folder, "land") and recorded(folder, "on the ground"))
    assert summary(folder)["state"] == "in flight"
    result = quick("swing", "fly", run, "--virtual", "--out", folder)  # which finds what was left
    assert result.returncode == 0, result.stderr
    table = (folder / "outcomes.csv").read_text().splitlines()
    assert table[1] == "1,1,killed,the process ended in flight"
    assert table[2].startswith("2,")


# ---- wrong input --------------------------------------------------------------------------------


def test_a_run_of_another_task_is_refused(quick: Pbc, tmp_path: Path):
    certified(Vehicle()).save(tmp_path / "vehicle")
    assert "not of the Swing" in complaint(quick("swing", "fly", "vehicle"))
    learn_finite(np.eye(60, 3)).save(tmp_path / "table")
    assert "not of the Swing" in complaint(quick("swing", "fly", "table"))


def test_a_run_that_does_not_verify_is_refused(quick: Pbc, run: Path):
    file = run / "costs.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    words = complaint(quick("swing", "fly", run), code=1)
    assert "NOT VERIFIED" in words
    assert not run.with_name("swing.flights").exists()


def test_a_run_that_is_not_there_is_told(quick: Pbc):
    assert "there is no run at nowhere" in complaint(quick("swing", "fly", "nowhere"))


REAL = ("--drone", ADDRESS, "--tracker", "udp://127.0.0.1:5005")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fault", "meteor@2"), "fault 'meteor' is unknown: choose from tracker-silent"),
        (("--fault", "wind"), "needs a time: give seconds"),
        (("--fault", "killed@2", "--virtual"), "needs real processes: leave out --virtual"),
        (("--fault", "wind@2", *REAL), "--fault is for simulated flights"),
        (("--virtual", *REAL), "--virtual is for simulated flights"),
        (("--pitch", "40"), "--pitch is for a real drone"),
        (("--yes",), "--yes is for real flights"),
        (("--drone", "swing"), "'swing' is not a Bluetooth address"),
        (("--drone", ADDRESS), "a real drone needs a real tracker"),
        (REAL[2:], "a real tracker does not see a simulated drone"),
        (("--drone", ADDRESS, "--tracker", "vicon"), "'vicon' is not the address of a tracker"),
        (REAL, "give --obstacles FILE"),
        (
            ("--seed", "3", *REAL),
            "--seed is for simulated flights: the draw of a real one must be unpredictable",
        ),
        (
            (*REAL, "--obstacles", "few.csv"),
            "few.csv: there are 1 cylinders, and 3 to 6 were certified",
        ),
        (("--draw", "next.csv", "--seed", "3"), "--seed has no effect with --draw"),
        (("--draw", "next.csv", "--virtual"), "--virtual has no effect with --draw"),
        (("--draw", "room.csv"), "room.csv exists already"),
        (("--draw", "swing.flights/next.csv"), "where the flights are kept"),
        (("--draw", "nowhere/next.csv"), "there is no folder nowhere"),
        (("--flights", "2", "--obstacles", "room.csv"), "every flight needs its own environment"),
        (
            ("--flights", "2", "--obstacles", "room.csv", "--obstacles", "room.csv"),
            "room.csv has the obstacles of room.csv",
        ),
        (("--obstacles", "none.csv"), "there is no file none.csv"),
        (("--obstacles", "bad.csv"), "no column radius; obstacles have x, y, radius in m"),
        (("--obstacles", "start.csv"), "stands where the drone starts"),
        (("--obstacles", "outside.csv"), "is outside the net"),
        (("--out", "swing/inside"), "is the run, or lies in it"),
        (("--out", "room.csv"), "is a file"),
        (("--flights", "0"), "--flights"),
        (("--json", "nowhere/r.json"), "there is no folder nowhere"),
        (("--json", "swing/r.json"), "which is the input"),
        (("--json", "swing.flights/r.json"), "where the flights are kept"),
    ],
)
def test_wrong_input_is_one_clear_line(
    quick: Pbc, run: Path, room: Path, arguments: tuple[str, ...], words: str
):
    for name, text in {
        "bad": "x,y\n1,8\n",
        "few": "x,y,radius\n1,8,0.3\n",
        "start": "x,y,radius\n0,1.4,0.3\n",
        "outside": "x,y,radius\n9,8,0.3\n",
    }.items():
        room.with_name(f"{name}.csv").write_text(text)
    run.with_name("swing.flights").mkdir()
    assert words in complaint(quick("swing", "fly", run, *arguments))


def test_a_real_flight_needs_an_operator(
    quick: Pbc, run: Path, room: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pacbayes_control.robots.swing.flight.parrot.pyparrot_swing", lambda: None)
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 - closed below
    words = complaint(quick("swing", "fly", run, *REAL, "--obstacles", room))
    sys.stdin.close()
    assert "waits for an operator: use a terminal, or give --yes" in words


def test_the_question_says_what_will_be_flown(
    quick: Pbc, run: Path, room: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    def confirm(text: str, **_: object) -> None:
        asked.append(text)
        raise typer.Abort

    monkeypatch.setattr("pacbayes_control.robots.swing.flight.parrot.pyparrot_swing", lambda: None)
    monkeypatch.setattr(
        "pacbayes_control.robots.swing.flight.session.sys.stdin.isatty", lambda: True, raising=False
    )
    monkeypatch.setattr("typer.confirm", confirm)
    quick("swing", "fly", run, *REAL, "--obstacles", room, "--pitch", "43")
    [text] = asked
    for words in (ADDRESS, "3 cylinders", "50 commands in 5 s at 2 m/s", "a pitch of 43 %"):
        assert words in text
    assert "x = ±3.5, y = 0 to 18 m" in text


def virtually(monkeypatch: pytest.MonkeyPatch, room: Path, *faults: str) -> None:
    """Have real flights take place in a simulated world."""
    task = Swing()
    place = stages.place_of(task, read_obstacles(room, task))
    parsed = tuple(Fault.parse(text) for text in faults)

    @contextmanager
    def real_stage(*_: object) -> Iterator[stages.Stage]:
        yield stages.virtual_stage(WorldSetup(place, faults=parsed))

    monkeypatch.setattr("pacbayes_control.robots.swing.flight.parrot.pyparrot_swing", lambda: None)
    monkeypatch.setattr(stages, "real_stage", real_stage)


def test_no_real_flight_follows_one_that_a_fault_has_ended(
    quick: Pbc, run: Path, room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    virtually(monkeypatch, room, "tracker-silent@2")
    other = room.with_name("other.csv")
    other.write_text(room.read_text().replace("8,0.3", "8,0.4"))
    files = ("--obstacles", room, "--obstacles", other)
    result = quick("swing", "fly", run, *REAL, "--yes", "--flights", 2, *files, "--json", "r.json")
    record = answer(result, tmp_path / "r.json", code=1)
    assert [flight["end"] for flight in record["flights"]] == ["tracking lost"]
    assert record["seed"] is None
    assert "Flight 2" not in result.stdout
    kept = json.loads((run.with_name("swing.flights") / "flight-0001.json").read_text())
    assert kept["hardware"]["pitch"] == 50
    assert kept["hardware"]["address"] == ADDRESS
    assert kept["hardware"]["tracker"] == "udp://127.0.0.1:5005"


def test_an_environment_is_drawn_to_be_set_up(
    quick: Pbc, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, again, after = (tmp_path / f"{name}.csv" for name in ("first", "again", "after"))
    told = answer(
        quick("swing", "fly", run, "--draw", first, "--json", "r.json"), tmp_path / "r.json"
    )
    assert told["trial"] == 1
    assert 3 <= len(told["obstacles"]) <= 6
    quick("swing", "fly", run, "--draw", again)
    assert again.read_text() == first.read_text()  # the draw cannot be repeated
    virtually(monkeypatch, first)
    result = quick("swing", "fly", run, *REAL, "--yes", "--obstacles", first)
    assert "Flight 1" in result.stdout, result.stderr
    kept = json.loads((run.with_name("swing.flights") / "flight-0001.json").read_text())
    assert kept["obstacles_drawn"] is True
    quick("swing", "fly", run, "--draw", after)
    assert after.read_text() != first.read_text()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Swing(range_noise=0.1), "certified with a range noise of 0.1"),
        (Swing(arena=Net(length=150.0)), "the net reaches 150 m, and real ones at most 100 m"),
        (Swing(steps=700), "flights take 70 s, and real ones at most 60 s"),
    ],
    ids=["noise", "net", "steps"],
)
def test_a_run_that_cannot_be_flown_is_refused(
    quick: Pbc, tmp_path: Path, room: Path, task: Swing, words: str
):
    run = certified(task).save(tmp_path / "odd")
    assert words in complaint(quick("swing", "fly", run, *REAL, "--yes", "--obstacles", room))
    assert not run.with_name("odd.flights").exists()


def test_a_real_flight_needs_pyparrot(
    quick: Pbc, run: Path, room: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pacbayes_control.robots.swing.flight.parrot.find_spec", lambda _: None)
    words = complaint(quick("swing", "fly", run, *REAL, "--obstacles", room, "--yes"))
    assert "pip install 'pacbayes-control[swing]'" in words


def test_a_real_flight_without_a_tracker_stays_on_the_ground(
    quick: Pbc, run: Path, room: Path, monkeypatch: pytest.MonkeyPatch
):
    """The three seconds pass at once."""
    clock = VirtualClock()
    monkeypatch.setattr(stages.simulated, "RealClock", lambda: clock)
    monkeypatch.setattr(stages.UdpTracker, "wait", lambda _, seconds: clock.sleep(seconds))
    monkeypatch.setattr("pacbayes_control.robots.swing.flight.parrot.pyparrot_swing", lambda: None)
    arguments = ("--drone", ADDRESS, "--tracker", "udp://127.0.0.1:50607", "--yes")
    result = quick("swing", "fly", run, *arguments, "--obstacles", room)
    assert result.returncode == 1, result.stderr
    assert "no trial, 0 frames of the tracker in 3 s" in result.stdout
    assert "no outcome to test yet" in result.stdout
