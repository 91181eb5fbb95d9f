"""`pbc swing identify`: its output, its files, and its errors."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.robots.swing.identification.identified import IdentifiedModel
from pacbayes_control.robots.swing.identification.logs import FlightLog, read_log, write_log
from pacbayes_control.robots.swing.identification.swing import identify_swing
from pacbayes_control.robots.swing.identification.synthetic import SyntheticDrone, excitation
from pacbayes_control.robots.swing.pictures import draw_identified

Result = subprocess.CompletedProcess[str]
Pbc = Callable[..., Result]

HEADER = "time,yaw_percent,x,y,yaw\n"


@pytest.fixture
def log(tmp_path: Path) -> FlightLog:
    """A minute at 10 Hz, in log.csv, of the folder that the commands are run in."""
    write_log(SyntheticDrone(rate=10).log(), tmp_path / "log.csv")
    return read_log(tmp_path / "log.csv")


@pytest.mark.slow
def test_a_newcomer_has_an_example_and_identifies_it(pbc: Pbc, quick: Pbc, tmp_path: Path):
    written = quick("swing", "identify", "--example", "log.csv")
    assert written.returncode == 0, written.stderr
    assert "pbc swing identify log.csv" in written.stdout
    result = pbc("swing", "identify", "log.csv", "--json", "gains.json")
    assert result.returncode == 0, result.stderr
    assert "The model fits." in result.stdout
    assert "2,817 yaws of 1 log" in result.stdout
    record = json.loads((tmp_path / "gains.json").read_text())
    assert record["k_u"]["value"] == pytest.approx(3.0, rel=0.02)
    assert record["k_p"]["value"] == pytest.approx(0.4, rel=0.02)
    assert record["speed"]["value"] == pytest.approx(2.0, rel=0.01)
    assert record["latency"]["value"] == pytest.approx(0.08, abs=0.01)
    assert IdentifiedModel.from_record(record).fits


def test_the_json_is_what_python_finds(quick: Pbc, log: FlightLog):
    result = quick("swing", "identify", "log.csv", "--json", "-", "--confidence", "0.9")
    assert result.returncode == 0
    assert json.loads(result.stdout) == identify_swing([log], 0.9).to_dict()
    assert "k_u" in result.stderr
    assert "confidence 90 %" in result.stderr


def test_several_logs_are_fitted_together(quick: Pbc, log: FlightLog, tmp_path: Path):
    write_log(SyntheticDrone(rate=10, offset=-0.5).log(seed=1), tmp_path / "two.csv")
    result = quick("swing", "identify", "log.csv", "two.csv", "--json", "j.json")
    assert result.returncode == 0
    assert "of 2 logs" in result.stdout
    both = json.loads((tmp_path / "j.json").read_text())
    assert both["samples"] > 1.9 * len(log.time) * 0.95
    one = identify_swing([log])
    assert both["k_u"]["high"] - both["k_u"]["low"] < 0.85 * 2 * one.k_u.margin


@pytest.mark.slow
def test_the_picture_is_the_same_for_the_same_logs(quick: Pbc, log: FlightLog, tmp_path: Path):
    found = identify_swing([log])
    for suffix, first in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        by_command, by_hand = tmp_path / f"fit.{suffix}", tmp_path / f"again.{suffix}"
        assert quick("swing", "identify", "log.csv", "--plot", by_command).returncode == 0
        draw_identified(found, by_hand)
        assert by_command.read_bytes() == by_hand.read_bytes()
        assert by_hand.read_bytes().startswith(first)
        assert len(by_hand.read_bytes()) > 10_000
    ElementTree.parse(tmp_path / "fit.svg")


def test_a_model_that_does_not_fit_is_exit_code_1_and_still_written(quick: Pbc, tmp_path: Path):
    log = SyntheticDrone().log()
    write_log(replace(log, x=log.y, y=-log.x), tmp_path / "log.csv")
    result = quick("swing", "identify", "log.csv", "--json", "j.json", "--plot", "p.svg")
    assert result.returncode == 1
    assert result.stderr == ""
    assert "The model does not fit: use neither these gains nor their intervals." in result.stdout
    assert "- The drone does not fly where it points" in result.stdout
    record = json.loads((tmp_path / "j.json").read_text())
    assert record["fits"] is False
    assert len(record["remarks"]) == 1
    assert "DOES NOT FIT" in (tmp_path / "p.svg").read_text()


def test_a_fit_from_a_file_cannot_be_drawn(log: FlightLog, tmp_path: Path):
    found = IdentifiedModel.from_record(identify_swing([log]).to_dict())
    with pytest.raises(ValueError, match="has no residuals to draw"):
        draw_identified(found, tmp_path / "p.svg")


# ---- bad input ----------------------------------------------------------------------------------


def rows(column: str = "", line: int = 0, cell: str = "", skipped: range = range(0)) -> str:
    """A log of 10 s as text, but for one cell or some rows; lines count from 1, the header's."""
    good = SyntheticDrone(rate=10, dropped=0.0).log(excitation("chirp", 10.0))
    lines = [HEADER.strip()]
    for i in range(len(good.time)):
        values = {name: f"{getattr(good, name)[i]:.4f}" for name in HEADER.strip().split(",")}
        if i + 2 == line:
            values[column] = cell
        if i + 2 not in skipped:
            lines.append(",".join(values.values()))
    return "\n".join(lines) + "\n"


BAD_LOGS = {
    "empty": ("", "log.csv has no rows: it is empty"),
    "header": (HEADER, "0 rows are too few"),
    "columns": ("t,yaw\n0,0\n", "no column time, yaw_percent, x, y; a log has"),
    "text": (rows("yaw_percent", 9, "left"), "log.csv, line 9: 'left' is not a number"),
    "NaN": (rows("time", 9, "nan"), "log.csv, line 9: time is nan"),
    "infinite": (rows("yaw_percent", 9, "-inf"), "log.csv, line 9: yaw_percent is -inf"),
    "order": (rows("time", 9, "0.2"), "log.csv, line 9: time goes from 0.59"),
    "percentage": (rows("yaw_percent", 9, "-120"), "line 9: yaw_percent is -120, and must be"),
    "gap": (rows(skipped=range(20, 30)), "line 20: no row from 1.7"),
    "degrees": (rows("yaw", 9, "30.1"), "line 9: yaw is 30.1, more than two turns"),
    "few": ("".join(f"{line}\n" for line in rows().splitlines()[:20]), "are too few: a log needs"),
}


@pytest.mark.parametrize("kind", BAD_LOGS)
def test_a_bad_log_is_one_line_and_exit_code_2(quick: Pbc, tmp_path: Path, kind: str):
    text, message = BAD_LOGS[kind]
    (tmp_path / "log.csv").write_text(text)
    line = complaint(quick("swing", "identify", "log.csv", "--json", "j.json", "--plot", "p.svg"))
    assert message in line
    assert not (tmp_path / "j.json").exists()
    assert not (tmp_path / "p.svg").exists()


def changed(**columns: Callable[[FlightLog], np.ndarray]) -> FlightLog:
    log = SyntheticDrone(rate=10).log()
    return replace(log, **{name: change(log) for name, change in columns.items()})


BAD_FLIGHTS = {
    "constant": (
        lambda: SyntheticDrone().log(excitation("constant", 20.0)),
        "log.csv: the command never changes, so k_p cannot be identified: add a log with a "
        "sinusoid or a chirp",
    ),
    "sign": (lambda: SyntheticDrone(k_u=-3.0).log(), "yaw turns against the command (k_u = -3"),
    "degrees": (
        lambda: SyntheticDrone(k_u=3 * 180 / math.pi, offset=0.0).log(excitation(amplitude=3)),
        "multiply them by π/180",
    ),
    "unrelated": (
        lambda: changed(yaw=lambda log: np.random.default_rng(0).normal(0, 0.02, len(log.time))),
        "do not tell k_u from 0",
    ),
    "no positions": (lambda: changed(x=lambda log: log.x + math.nan), "0 measured positions"),
}


@pytest.mark.parametrize("kind", BAD_FLIGHTS)
def test_a_flight_that_tells_no_gains_is_one_line_and_exit_code_2(
    quick: Pbc, tmp_path: Path, kind: str
):
    make, message = BAD_FLIGHTS[kind]
    write_log(make(), tmp_path / "log.csv")
    assert message in complaint(quick("swing", "identify", "log.csv"))


BAD_COMMANDS = [
    (("absent.csv",), "there is no file absent.csv"),
    ((".",), "there is no file ."),
    ((), "give logs of flights, or --example FILE"),
    (("log.csv", "log.csv"), "log.csv is the same flight as log.csv: give it once"),
    (("log.csv", "--confidence", "1"), "confidence 1 is outside (0, 1)"),
    (("log.csv", "--confidence", "nan"), "confidence nan is outside (0, 1)"),
    (("log.csv", "--plot", "fit.gif"), "a picture is an .svg, a .pdf or a .png file"),
    (("log.csv", "--json", "log.csv"), "log.csv is the input: write to another file"),
    (("log.csv", "--json", "no/j.json"), "there is no folder no"),
    (("log.csv", "--plot", "a.svg", "--json", "a.svg"), "cannot be both the picture"),
    (("--example", "log.csv"), "log.csv exists"),
    (("log.csv", "--example", "new.csv"), "log.csv has no use with --example"),
    (("--example", "new.csv", "--json", "j"), "--json has no use with --example"),
    (("--example", "new.csv", "--confidence", "0.9"), "--confidence has no use"),
    (("--example", "no/new.csv"), "there is no folder no"),
]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(("arguments", "message"), BAD_COMMANDS)
def test_a_bad_command_is_one_line_and_exit_code_2(quick: Pbc, arguments, message: str):
    assert message in complaint(quick("swing", "identify", *arguments))


def test_a_file_that_is_no_text_is_refused(quick: Pbc, tmp_path: Path):
    (tmp_path / "log.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "log.csv is not UTF-8 text" in complaint(quick("swing", "identify", "log.csv"))


def test_commands_as_fractions_are_told_so(quick, tmp_path: Path):
    log = SyntheticDrone().log()
    write_log(replace(log, yaw_percent=log.yaw_percent / 100), tmp_path / "log.csv")
    words = complaint(quick("swing", "identify", "log.csv"))
    assert words.startswith("pbc: yaw_percent reaches only 0.25")
    assert "multiply fractions by 100" in words
