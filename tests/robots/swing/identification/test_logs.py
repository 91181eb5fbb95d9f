"""Logs of flights: what is read, what is refused, and a synthetic drone against an integrator."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from pacbayes_control.robots.swing.identification.fitting import lag_response, without_repeats
from pacbayes_control.robots.swing.identification.logs import (
    COLUMNS,
    FlightLog,
    read_log,
    write_log,
)
from pacbayes_control.robots.swing.identification.synthetic import (
    AMPLITUDE,
    ExcitationKind,
    SyntheticDrone,
    excitation,
)

HEADER = "time,yaw_percent,x,y,yaw\n"
ROWS = [f"{i / 10:g},{i % 7},0,{0.2 * i:g},0.1\n" for i in range(50)]


def integrated(since, commands, rate: float, latency: float, times) -> np.ndarray:
    """The lag by Runge and Kutta, from one change of the command to the next."""
    state, values = commands[0], {}
    ends = np.append(since[1:] + latency, max(times[-1], since[-1] + latency) + 1)
    begins = np.append(min(times[0], since[0]) - 1, since[1:] + latency)
    for begin, end, command in zip(begins, ends, commands, strict=True):
        asked = [t for t in times if begin <= t < end]
        found = solve_ivp(
            lambda _, x, u=command: rate * (u - x),
            (begin, end),
            [state],
            t_eval=[*asked, end],
            rtol=1e-10,
            atol=1e-12,
        )
        values |= dict(zip(asked, found.y[0], strict=False))
        state = found.y[0, -1]
    return np.array([values[t] for t in times])


@pytest.mark.parametrize(("rate", "latency"), [(0.4, 0.08), (2.0, 0.0), (0.1, 0.33), (5.0, -0.05)])
def test_the_lag_is_what_an_integrator_finds(rate: float, latency: float):
    rng = np.random.default_rng(0)
    since = np.cumsum(rng.uniform(0.05, 0.5, 12))
    commands = rng.uniform(-0.3, 0.3, 12)
    times = np.sort(rng.uniform(since[0], since[-1] + 1, 40))
    ours = lag_response(times, since, commands, rate, latency).value
    np.testing.assert_allclose(
        ours, integrated(since, commands, rate, latency, times.tolist()), atol=1e-8
    )


def test_the_slopes_of_the_lag_are_those_of_finite_differences():
    rng = np.random.default_rng(1)
    since, commands = np.cumsum(rng.uniform(0.05, 0.5, 30)), rng.uniform(-0.3, 0.3, 30)
    times = np.sort(rng.uniform(since[0], since[-1], 200))
    here, step = lag_response(times, since, commands, 0.4, 0.08), 1e-6

    def at(rate: float, latency: float) -> np.ndarray:
        return lag_response(times, since, commands, rate, latency).value

    by_rate = (at(0.4 + step, 0.08) - at(0.4 - step, 0.08)) / (2 * step)
    by_latency = (at(0.4, 0.08 + step) - at(0.4, 0.08 - step)) / (2 * step)
    np.testing.assert_allclose(here.by_rate, by_rate, atol=1e-8)
    np.testing.assert_allclose(here.by_latency, by_latency, atol=1e-8)


@given(
    st.lists(st.sampled_from([-0.25, 0.0, 0.1, 0.25]), min_size=2, max_size=30),
    st.floats(0.05, 20.0),
)
def test_a_command_that_is_repeated_changes_nothing(commands: list[float], rate: float):
    since, u = np.arange(len(commands)) / 10, np.array(commands)
    times = np.linspace(0, 4, 57)
    whole, short = (
        lag_response(times, since, u, rate, 0.03),
        lag_response(times, *without_repeats(since, u), rate, 0.03),
    )
    np.testing.assert_allclose(whole.value, short.value, atol=1e-12)
    np.testing.assert_allclose(whole.by_rate, short.by_rate, atol=1e-12)


def test_a_lag_of_an_hour_does_not_overflow():
    since = np.arange(36_000) / 10
    answer = lag_response(since, since, np.sin(since) / 4, 20.0, 0.1)
    assert np.isfinite(answer.value).all()
    assert np.abs(answer.value).max() < 0.26


def test_a_synthetic_drone_flies_as_the_paper_has_it():
    log = SyntheticDrone(yaw_noise=0.0, position_noise=0.0, dropped=0.0, rate=10).log(
        excitation(duration=6.0)
    )
    since, u = np.append(-1.0, log.time), np.append(0.0, log.yaw_percent / 100)

    def slope(t: float, state: np.ndarray) -> list[float]:
        command = u[np.searchsorted(since + 0.08, t, side="right") - 1]
        yaw = state[2]
        return [-2 * math.sin(yaw), 2 * math.cos(yaw), 0.4 * (3 * command - (yaw - 0.1))]

    found = solve_ivp(
        slope, (0, log.time[-1]), [0, 0, 0.1], t_eval=log.time, max_step=0.002, rtol=1e-8
    )
    # The integrator steps over the changes of the command: 2 ms, at up to 0.6 rad/s².
    np.testing.assert_allclose(log.yaw, found.y[2], atol=3e-4)
    np.testing.assert_allclose(np.stack([log.x, log.y]), found.y[:2], atol=1e-3)


def test_noise_is_as_large_as_was_asked_and_rows_are_dropped():
    clean = SyntheticDrone(yaw_noise=0.0, position_noise=0.0, dropped=0.1).log(seed=4)
    noisy = SyntheticDrone(yaw_noise=0.02, position_noise=0.01, dropped=0.1).log(seed=4)
    lost = np.isnan(noisy.yaw)
    assert 0.03 < lost.mean() < 0.07
    assert 2800 < len(noisy.time) < 2900
    assert np.isnan(noisy.x[lost]).all()
    assert np.nanstd(noisy.yaw - clean.yaw) == pytest.approx(0.02, rel=0.05)
    assert np.nanstd(noisy.x - clean.x) == pytest.approx(0.01, rel=0.05)
    assert np.ptp(np.diff(noisy.time)) > 0.005  # irregular


def test_the_same_seed_gives_the_same_log_and_another_seed_another():
    first, same, other = (
        SyntheticDrone().log(seed=1),
        SyntheticDrone().log(seed=1),
        SyntheticDrone().log(seed=2),
    )
    np.testing.assert_array_equal(first.yaw, same.yaw)
    assert not np.array_equal(first.time, other.time)


@pytest.mark.parametrize("kind", get_args(ExcitationKind))
def test_every_experiment_stays_within_the_papers_range_of_commands(kind: ExcitationKind):
    percent = excitation(kind, 20.0)
    assert len(percent) == 200
    assert np.abs(percent).max() <= AMPLITUDE
    assert np.abs(3 * percent / 100).max() <= math.pi / 4
    np.testing.assert_array_equal(percent, np.round(percent))


def test_an_experiment_that_is_not_known_is_refused():
    with pytest.raises(
        ValueError, match="the experiment 'noise' is unknown: choose one of mixture"
    ):
        excitation("noise")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a duration of nan s must be positive"):
        excitation(duration=math.nan)
    with pytest.raises(ValueError, match="25 rows a second: it must be a multiple of 10"):
        SyntheticDrone(rate=25)
    with pytest.raises(ValueError, match="a share of 2 dropped rows is outside"):
        SyntheticDrone(dropped=2)


# ---- files --------------------------------------------------------------------------------------


def test_a_log_comes_back_from_its_file(tmp_path: Path):
    log = SyntheticDrone().log(excitation(duration=5.0))
    log = replace(log, time=log.time + 1_762_000_000)  # clocks that count from 1970
    write_log(log, tmp_path / "log.csv")
    back = read_log(tmp_path / "log.csv")
    assert back.name == "log.csv"
    for column in COLUMNS:
        np.testing.assert_allclose(getattr(back, column), getattr(log, column), atol=1e-6)


def test_columns_may_be_in_any_order_and_among_others(tmp_path: Path):
    (tmp_path / "log.csv").write_text(
        "battery;Yaw;y;x;yaw_percent;time;note\n90;0,1;2;1;5;0,0;up\n90;;;;6;0,1;\n"
    )
    log = read_log(tmp_path / "log.csv")
    assert log.time.tolist() == [0.0, 0.1]
    assert log.yaw_percent.tolist() == [5, 6]
    assert (log.x[0], log.y[0], log.yaw[0]) == (1, 2, 0.1)
    assert np.isnan([log.x[1], log.y[1], log.yaw[1]]).all()


def test_yaw_goes_on_counting_past_half_a_turn_also_where_frames_were_lost():
    truth = np.linspace(2.5, 4.5, 41)
    wrapped = np.angle(np.exp(1j * truth))
    wrapped[[12, 13, 14]] = np.nan
    time = np.arange(41) / 10
    log = FlightLog("log", time, 0 * time, 0 * time, 0 * time, wrapped)
    seen = np.isfinite(log.yaw)
    assert seen.sum() == 38
    np.testing.assert_allclose(log.yaw[seen], truth[seen])


def altered(line: int, text: str) -> str:
    rows = list(ROWS)
    rows[line - 2] = text + "\n"
    return HEADER + "".join(rows)


BAD_FILES = {
    "empty": ("", "log.csv has no rows: it is empty"),
    "header alone": (HEADER, "log.csv: 0 rows are too few"),
    "columns": (
        "time,yaw_percent,x\n0,0,0\n",
        "log.csv: no column y, yaw; a log has time, yaw_percent, x, y, yaw, and this one has time, "
        "yaw_percent, x",
    ),
    "twice": ("time,yaw_percent,x,y,yaw,yaw\n0,0,0,0,0,0\n", "several columns yaw: keep one"),
    "text": (
        altered(7, "0.5,left,0,1,0.1"),
        "line 7: 'left' is not a number in column yaw_percent",
    ),
    "word": (altered(7, "0.5,0,0,1,pass"), "line 7: 'pass' is not a number in column yaw; leave"),
    "no time": (altered(7, ",5,0,1,0.1"), "line 7: the cell is empty in column time"),
    "NaN time": (altered(7, "nan,5,0,1,0.1"), "line 7: time is nan: it must be finite"),
    "inf command": (altered(9, "0.7,inf,0,1,0.1"), "line 9: yaw_percent is inf"),
    "inf pose": (
        altered(9, "0.7,5,0,inf,0.1"),
        "line 9: y is inf: .* empty where the pose was lost",
    ),
    "order": (altered(9, "0.5,5,0,1,0.1"), "line 9: time goes from 0.6 s to 0.5 s"),
    "repeated": (altered(9, "0.6,5,0,1,0.1"), "line 9: time goes from 0.6 s to 0.6 s"),
    "percentage": (altered(9, "0.7,101,0,1,0.1"), "line 9: yaw_percent is 101, .* from -100 to"),
    "degrees": (altered(9, "0.7,5,0,1,45"), "line 9: yaw is 45, .* if these are degrees multiply"),
    "gap": (
        HEADER + "".join(ROWS[:10] + ROWS[16:]),
        "line 12: no row from 0.9 s to 1.6 s, longer than 0.5 s: cut the log in two files there",
    ),
    "ragged": (altered(9, "0.7,5,0,1"), "log.csv is ragged: line 9 has 4 cells"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_log_is_refused_with_its_line(tmp_path: Path, kind: str):
    text, message = BAD_FILES[kind]
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_log(tmp_path / "log.csv")


def test_a_missing_log_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*log\.csv"):
        read_log(tmp_path / "log.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_log(tmp_path)


def test_rows_missing_for_half_a_second_are_read():
    time = np.array([0.0, 0.5, 0.6, 1.1])
    assert FlightLog("log", time, time, time, time, time).time[-1] == 1.1


def test_a_log_from_python_is_checked_as_well():
    time = np.arange(30) / 10
    log = FlightLog("flight 3", time, 0 * time, 0 * time, 0 * time, 0 * time)
    with pytest.raises(ValueError, match="flight 3, row 29: yaw_percent is 200"):
        replace(log, yaw_percent=np.append(time[:-1], 200))
    with pytest.raises(ValueError, match="flight 3: x must be one number for each row"):
        replace(log, x=time[:-1])
    with pytest.raises(ValueError, match="read-only"):
        log.yaw[0] = 1.0
