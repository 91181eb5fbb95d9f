"""The terminal: no number is ever cut, and nothing unprintable is ever shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import HeldOutEstimate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn import compare_methods, learn_finite
from pacbayes_control.report import console, terminal
from pacbayes_control.robots.grasping import experiment as grasping
from pacbayes_control.robots.swing import commands
from pacbayes_control.robots.swing import experiment as swing
from pacbayes_control.robots.vehicle import continuous, table1, table2
from pacbayes_control.rollouts import Progress
from pacbayes_control.rollouts.conformance import Check
from polling import wait_until

HOSTILE = "a\x1b[2K\r\x9b\x7f\u202e\u200b[bold]:boom:b"
SHOWN = r"a\x1b[2K\r\x9b\x7f\u202e\u200b[bold]:boom:b"

FAILED = np.random.default_rng(0).random((60, 3)) < [0.3, 0.05, 0.1]
COSTS = Costs(
    FAILED,
    ["slow and careful", "careful", "fast"],
    {"incidents": {"retries": 12_345}, "cost_rule": "1 for a contact", "distribution": "by lot"},
    sites=[f"the hall number {i}" for i in range(60)],
)
SIMULATED = with_simulation(FAILED, FAILED, np.tile(FAILED, (50, 1)))


def robust() -> Run[Any]:
    run = under_shift(learn_finite(COSTS), Ball("kl", 0.0812345))
    estimate = HeldOutEstimate(0.0612345, 20_000, "test", 0)
    return replace(run, certificate=replace(run.certificate, test_estimate=estimate))


def watched() -> Monitor:
    monitor = Monitor(learn_finite(COSTS).certificate)
    monitor.observe([0.0, 1.0, 0.0] * 400)
    return monitor


def row(**more: Any) -> Any:
    figures = ("bound", "bound_std", "true_cost", "paper_bound", "paper_true_cost", "exact_bound",
               "occam_bound", "test_success", "baseline_test_success", "difference")  # fmt: skip
    numbers = {name: 0.1 + 0.012345 * k for k, name in enumerate(figures)}
    intervals = dict.fromkeys(("test_interval", "baseline_interval", "difference_interval"))
    intervals = dict.fromkeys(intervals, (0.71234, 0.83456))
    words = {"method": "paper", "setting": "paper", "certified": "posterior", "gains": "drawn"}
    return SimpleNamespace(
        environments=12_345,
        draws=10,
        holds=True,
        drones=513,
        **{**numbers, **intervals, **words, **more},
    )


def estimate(value: float) -> Any:
    return SimpleNamespace(value=value, low=value - 0.1, high=value + 0.1, margin=0.0123)


GRASPED: Any = SimpleNamespace(
    environments=2000, test_environments=1000, rows=[row()], narrow_side_success=0.5123,
    any_angle_success=0.4123, grasps_per_second=12_345.6,
)  # fmt: skip
FOUND: Any = SimpleNamespace(
    k_u=estimate(1.23456), k_p=estimate(2.3456), speed=estimate(1.9876), latency=estimate(0.2),
    responses=[0, 1], samples=12_345, noise=0.012345, confidence=0.99999, fits=True, remarks=[],
)  # fmt: skip
FLOWN: Any = SimpleNamespace(
    rows=[row()], model=FOUND, flights=[0] * 100, successes=87, report=watched().report()
)
SHOWS: dict[str, Callable[[], None]] = {
    "certificate": lambda: terminal.show_certificate(robust(), ""),
    "methods": lambda: terminal.show_methods(compare_methods(COSTS, 0.05), "kl"),
    "best": lambda: terminal.show_methods(compare_methods(COSTS, 0.05, method="best"), "best"),
    "curve": lambda: terminal.show_curve(curve(robust().certificate)),
    "simulation": lambda: terminal.show_simulation(learn_finite(SIMULATED).certificate),
    "report": lambda: terminal.show_report(watched().report(), drawn_afresh=True),
    "checks": lambda: terminal.show_checks(
        [Check("same seed", passed=False, detail="cost 0.12345 and 0.23456")]
    ),
    "table1": lambda: table1.show_table1([row()]),
    "table2": lambda: table2.show_table2([row(method="robust")]),
    "continuous": lambda: continuous.show_continuous([row()]),
    "grasping": lambda: grasping.show_grasping(GRASPED),
    "swing": lambda: swing.show_swing(FLOWN),
    "identify": lambda: commands._show(FOUND),
}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What is shown in so many columns, without styles; in a pipe where none are given."""

    def text(show: Callable[[], None], width: int | None = None) -> str:
        file, terminal = StringIO(), width is not None
        made = console._Console(file=file, force_terminal=terminal, width=width, no_color=True)
        monkeypatch.setattr(console, "out", made)
        show()
        return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())

    return text


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?", text))


def test_a_certificate_shows_what_its_promise_rests_on(shown: Callable[..., str]):
    rows = [" ".join(line.split()) for line in shown(SHOWS["certificate"]).splitlines()]
    c = robust().certificate
    for start in (
        "bound 0.", "without a shift 0.", f"shift {c.ball}, ",
        f"observed cost {c.empirical_cost:.4f}",
        "test estimate 0.0612 (on 20,000 environments", "a rollout costs 1 for a contact",
        "environments 60, ", "KL from the prior ", "prior ",
    ):  # fmt: skip
        assert [row for row in rows if row.startswith(start)], start


def test_every_show_is_tried():
    modules = terminal, table1, table2, continuous, grasping, swing
    names = {name for module in modules for name in vars(module)}
    assert {name.removeprefix("show_") for name in names if name.startswith("show_")} <= set(SHOWS)


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("name", SHOWS)
def test_no_number_is_cut(shown: Callable[..., str], name: str, width: int):
    whole = shown(SHOWS[name])
    assert sum(numbers(whole).values()) > 1
    narrow = shown(SHOWS[name], width)
    assert max(map(len, narrow.splitlines())) <= width
    assert numbers(narrow) >= numbers(whole)
    assert set(numbers(narrow)) == set(numbers(whole))  # a heading may stand more often
    assert "…" not in narrow


def test_columns_in_the_environment_cut_nothing_in_a_pipe(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    whole = shown(SHOWS["certificate"])
    monkeypatch.setenv("COLUMNS", "20")
    assert shown(SHOWS["certificate"]) == whole


# ---- what cannot be shown -----------------------------------------------------------------------


def hostile_table() -> Table:
    table = Table("heading" + HOSTILE, "value", title="title" + HOSTILE)
    table.add_row("cell" + HOSTILE, Text("text" + HOSTILE))
    return table


@pytest.mark.parametrize("width", [None, 200, 20])
def test_nothing_unprintable_is_shown(shown: Callable[..., str], width: int | None):
    def show() -> None:
        console.say("said" + HOSTILE)
        console.show(hostile_table())

    text = shown(show, width)
    assert all(mark.isprintable() or mark == "\n" for mark in text)
    joined = "".join(text.split())
    for place in ("said", "title", "heading", "cell") if width != 20 else ("said", "title"):
        assert place + SHOWN in joined
    assert "text" in joined


def test_progress_shows_nothing_unprintable(monkeypatch: pytest.MonkeyPatch):
    file = StringIO()
    monkeypatch.setattr(console, "err", console._Console(file=file, force_terminal=True, width=200))
    with console.progress_bars() as tell:
        for done in (5, 6):
            tell(Progress("rolling {out} " + HOSTILE, done, 10, "bound " + HOSTILE))
    with console.working("verifying " + HOSTILE):
        pass
    text = re.sub(r"\x1b\[[0-9;?]*[mhlA]|\r?\x1b\[[0-9]*[KA]|\r", "", file.getvalue())
    assert f"rolling {{out}} {SHOWN} " in text
    assert f"bound {SHOWN}" in text
    assert "verifying " + SHOWN in text
    assert not re.search("[\x9b\x7f\u202e\u200b]", file.getvalue())
    assert "a\x1b[2K" not in file.getvalue()


class Log:
    """Lines of progress by a clock that is set, each with the time when it was written."""

    def __init__(self, log: bool = True) -> None:
        self.time, self.written = 0.0, []
        write = self.written.append
        lines = console.ProgressLines(
            lambda line: write((self.time, line)), log, clock=lambda: self.time
        )
        self.tell, self.look = lines.tell, lines.look

    def work(self, seconds: float, total: int, title: str = "rollouts") -> None:
        """Report after each part of the work, which all take the same time."""
        begun = self.time
        for done in range(total + 1):
            self.time = begun + seconds * done / total
            self.tell(Progress(title, done, total))

    @property
    def times(self) -> list[int]:
        return [round(time) for time, _ in self.written]

    @property
    def lines(self) -> list[str]:
        return [line for _, line in self.written]


def test_short_work_is_silent():
    log = Log()
    log.work(0.9, 50)
    assert log.written == []


def test_a_log_tells_what_work_will_cost_and_then_how_far_it_is_ever_rarer():
    log = Log()
    log.work(300, 30_000)
    assert log.times == [1, 2, 5, 10, 20, 60, 120, 180, 240, 300]
    assert log.lines[0] == "rollouts: 30,000, about 5 min at 100/s"
    assert log.lines[3] == "rollouts: 1,000 of 30,000 (3 %), 100/s, about 5 min left"
    assert log.lines[-1] == "rollouts: 30,000 of 30,000, done in 5 min"


def test_work_is_told_in_its_own_words_and_with_the_last_remark():
    log = Log()
    for second in range(12):
        remark = f"step {second} of 40" if second else "40 steps of 10 policies, 400 rollouts"
        log.time = float(second)
        log.tell(Progress("learning", 10 * second, 400, remark))
    assert log.lines[0] == "learning: 40 steps of 10 policies, 400 rollouts, about 38 s at 10/s"
    assert log.lines[-1] == "learning: 100 of 400 (25 %), 10/s, about 30 s left; step 10 of 40"


def test_a_remark_stays_until_it_is_in_a_line():
    log = Log()
    for second in range(21):
        log.time = float(second)
        remark = {6: "environment 3 takes long", 20: "bound 0.1"}.get(second, "")
        log.tell(Progress("rollouts", second, 20, remark))
    remarks = ["", "", "environment 3 takes long", "bound 0.1"]
    assert [line.partition("; ")[2] for line in log.lines] == remarks


@pytest.mark.parametrize("width", [70, 80, 120])
def test_no_number_of_a_bar_is_cut(monkeypatch: pytest.MonkeyPatch, width: int):
    file = StringIO()
    wide = console._Console(file=file, force_terminal=True, width=width)
    monkeypatch.setattr(console, "err", wide)
    with console.progress_bars() as tell:
        for done in (0, 1234, 2345):
            tell(Progress("learning", done, 12_800_000, "bound 0.1234, step 12 of 200"))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert "2345/12800000" in text
    assert "…" not in text
    assert {"0.1234,", "12", "200"} < {*text.split()}


def test_the_start_of_workers_does_not_count():
    log = Log()
    for time, done in ((0.0, 0), (8.0, 1), (9.0, 101)):
        log.time = time
        log.tell(Progress("rollouts", done, 6001))
    log.time = 11.0
    log.tell(Progress("rollouts", 301, 6001))
    assert log.lines[-1] == "rollouts: 301 of 6,001 (5 %), 100/s, about 57 s left"


def test_work_that_goes_slower_is_told_by_its_speed_of_late():
    log = Log()
    log.work(60, 6000, "a")
    log.written.clear()
    for step in range(600):  # a thousand in a second, then one
        log.tell(Progress("b", min(1000 * step, 10_000 + step), 20_000))
        log.time += 1
    assert log.lines[-1].endswith(", 1/s, about 3 h left")


def test_rollouts_that_take_long_are_told_before_the_first_is_done():
    log = Log()
    log.tell(Progress("rollouts", 0, 500))
    for _ in range(60):
        log.time += 0.5
        log.look()
    assert log.times == [2, 5, 10, 20]
    assert log.lines[:2] == ["rollouts: 500", "rollouts: 0 of 500 (0 %)"]


def test_work_that_goes_on_tells_how_much_was_done():
    for remark, words in (("", "12,300 of 50,000 are done"), ("40 of 200 steps are done",) * 2):
        log = Log()
        for time in range(4):
            log.time = float(time)
            log.tell(
                Progress("rollouts", 12_300 + 500 * time, 50_000, "" if time else remark, True)
            )
        assert log.lines[0] == f"rollouts: resuming, {words}, about 73 s at 500/s"


def test_a_first_report_of_work_that_is_not_kept_is_no_resumption():
    log = Log()
    for time in range(4):
        log.time = float(time)
        log.tell(Progress("rollouts", 500 + 500 * time, 50_000))
    assert log.lines[0].startswith("rollouts: 50,000, about ")


def test_one_work_after_the_other_is_told_with_its_own_cost_if_it_is_long():
    log = Log()
    log.work(70, 700, "first")
    log.work(5, 50, "short")
    log.work(30, 300, "long")
    log.work(30, 300, "long")  # again
    assert [line for line in log.lines if "about" in line and " left" not in line] == [
        "first: 700, about 69 s at 10/s",
        "long: 300, about 29 s at 10/s",
        "long: 300, about 29 s at 10/s",
    ]
    assert log.lines[-1] == "long: 300 of 300, done in 30 s"


def test_beside_bars_there_is_one_line_for_long_work_and_none_for_short():
    log = Log(log=False)
    log.work(8, 800, "short")
    log.work(100, 1000, "long")
    assert log.lines == ["long: 1,000, about 99 s at 10/s"]


def test_a_pipe_gets_lines_also_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch):
    file = StringIO()
    monkeypatch.setattr(console, "err", console._Console(file=file))
    for name in ("FIRST", "UNMEASURED", "TICK"):
        monkeypatch.setattr(console, name, 0.01)
    with console.progress_bars() as tell:
        tell(Progress("rolling [out] " + HOSTILE, 0, 10))
        wait_until(lambda: "\n" in file.getvalue())
    assert file.getvalue() == f"rolling [out] {SHOWN}: 10\n"


def test_a_log_that_cannot_be_written_stops_no_work(monkeypatch: pytest.MonkeyPatch):
    for name in ("FIRST", "UNMEASURED"):
        monkeypatch.setattr(console, name, 0.0)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(console, "err", console._Console(file=full))
        with console.progress_bars() as tell:
            for done in range(3):
                tell(Progress("rolling", done, 10))
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):  # it would have been one
            full.write("x" * 100_000)
        with suppress(OSError):
            full.close()


def test_a_terminal_gets_a_line_that_stays_above_the_bars(monkeypatch: pytest.MonkeyPatch):
    file = StringIO()
    monkeypatch.setattr(console, "err", console._Console(file=file, force_terminal=True, width=200))
    monkeypatch.setattr(console, "FIRST", 0.0)
    monkeypatch.setattr(console, "LONG", 0.0)
    with console.progress_bars() as tell:
        for done in range(3):
            tell(Progress("rolling", done, 10_000))
    assert "rolling: 10,000, about " in file.getvalue()


def test_a_reader_of_progress_who_leaves_takes_nothing_else_away(tmp_path: Path):
    """Standard output is another pipe, and perhaps has the result."""
    script = """
import os, sys
from pacbayes_control.report import console
console.err.print("progress")
console.err.print("progress")
print("the result")
"""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=write,
        cwd=tmp_path,
        check=True,
    )
    os.close(write)
    assert done.stdout == b"the result\n"


def test_a_sign_of_work_is_for_terminals(monkeypatch: pytest.MonkeyPatch):
    file = StringIO()
    monkeypatch.setattr(console, "err", console._Console(file=file))
    with console.working("verifying"):
        pass
    assert file.getvalue() == ""


# ---- rounding -----------------------------------------------------------------------------------


def test_evidence_is_never_rounded_up(shown: Callable[..., str]):
    """An e-value just below the alarm is not shown as one that reaches it."""
    report = replace(
        watched().report(), e_value=19.99996, largest_e_value=19.99997, p_value=0.0499991,
        interval=(0.12349, 0.23451),
    )  # fmt: skip
    text = shown(lambda: terminal.show_report(report, drawn_afresh=False))
    assert "19.99, largest 19.99; alarm at 20" in text
    assert "0.05  (one look" in text
    assert "0.1234 to 0.2346" in text


def test_the_confidence_of_a_fit_is_shown_as_it_was_given(shown: Callable[..., str]):
    assert "with confidence 99.999 %, if the model fits" in shown(SHOWS["identify"])
