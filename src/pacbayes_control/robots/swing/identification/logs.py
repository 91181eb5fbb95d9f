"""Logs of flights: what was commanded and where the drone was seen, in a CSV file.

Columns, in any order and among any others: `time` (s), `yaw_percent` (the command from this time
on, -100 to 100), `x`, `y` (m) and `yaw` (rad, counter-clockwise: the heading is (-sin ψ, cos ψ)).
A frame that the tracker lost has empty cells for the pose: the command is known, the measurement is
not. Where rows are missing altogether, for up to half a second, the loop is taken to have been late
and the command as held: a command that was sent and not logged is an error of the model.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.tables.sheets import Sheet, read_sheet
from pacbayes_control.robots.swing.identification.lag import lagged
from pacbayes_control.tasks.environments import generator

Floats = NDArray[np.float64]

COLUMNS = ("time", "yaw_percent", "x", "y", "yaw")
POSE = COLUMNS[2:]
LONGEST_GAP = 0.5  # s without a row
COMMAND_RATE = 10  # Hz (paper: Section 8)
LARGEST_YAW = 4 * math.pi  # beyond it, a yaw is taken for degrees
RADIANS = "it must be in radians, so if these are degrees multiply them by π/180"
KINDS = ("mixture", "constant", "sinusoid", "chirp")
AMPLITUDE = 25  # per cent: k_u u stays within the paper's ±π/4 for k_u up to π


@dataclass(frozen=True, eq=False)
class FlightLog:
    """One flight, checked: all arrays have the shape (rows,), and NaN where the pose was lost.

    Yaw is unwrapped: a turn past ±π goes on counting.
    """

    name: str
    time: Floats  # s, increasing
    yaw_percent: Floats  # commanded from this time on
    x: Floats  # m
    y: Floats  # m
    yaw: Floats  # rad

    def __post_init__(self) -> None:
        for column in COLUMNS:
            value = np.array(getattr(self, column), float)
            if value.ndim != 1 or len(value) != len(self.time):
                raise ValueError(f"{self.name}: {column} must be one number for each row")
            object.__setattr__(self, column, value)
        columns = {column: getattr(self, column) for column in COLUMNS}
        _check(columns, self.name, lambda row: f"{self.name}, row {row}")
        seen = np.isfinite(self.yaw)
        self.yaw[seen] = np.unwrap(self.yaw[seen])
        for column in COLUMNS:
            getattr(self, column).setflags(write=False)

    @property
    def duration(self) -> float:
        """Seconds from the first row to the last."""
        return float(self.time[-1] - self.time[0])


def read_log(path: str | Path) -> FlightLog:
    """Read the log of a flight; an error says which file, which line, and what to do."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    sheet = read_sheet(path)
    header = [cell.lower() for cell in sheet.rows[0]]
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise ValueError(
            f"{path.name}: no column {', '.join(missing)}; a log has {', '.join(COLUMNS)}, "
            f"and this one has {', '.join(sheet.rows[0])}"
        )
    twice = [column for column in COLUMNS if header.count(column) > 1]
    if twice:
        raise ValueError(f"{path.name}: there are several columns {twice[0]}: keep one of them")
    columns = {name: _numbers(sheet, name, header.index(name)) for name in COLUMNS}
    _check(columns, path.name, lambda row: f"{path.name}, line {sheet.lines[1 + row]}")
    return FlightLog(path.name, **columns)


def write_log(log: FlightLog, path: str | Path) -> None:
    """Write a log as CSV; a pose that was lost leaves its cells empty."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in zip(*(getattr(log, column).tolist() for column in COLUMNS), strict=True):
            writer.writerow("" if math.isnan(value) else round(value, 6) for value in row)


def _numbers(sheet: Sheet, name: str, index: int) -> Floats:
    values = []
    for row, line in zip(sheet.rows[1:], sheet.lines[1:], strict=True):
        cell = row[index]
        lost = not cell and name in POSE
        value = math.nan if lost else sheet.number(cell)
        if value is None:
            what = f"{cell!r} is no number" if cell else "the cell is empty"
            hint = "; leave the cell empty where the tracker lost the drone" if name in POSE else ""
            raise ValueError(f"{sheet.file}, line {line}: {what} in column {name}{hint}")
        values.append(value)
    return np.array(values, float)


def _check(columns: Mapping[str, Floats], name: str, where: Callable[[int], str]) -> None:
    """An error for the first row that no log can have, and where it is."""
    time, percent, *_, yaw = columns.values()
    if len(time) < 2:
        raise ValueError(f"{name}: {len(time)} rows are too few for a log of a flight")
    for column, value in columns.items():
        bad = np.isinf(value) if column in POSE else ~np.isfinite(value)
        hint = ", or empty where it was lost" if column in POSE else ""
        for row in np.flatnonzero(bad)[:1]:
            raise ValueError(f"{where(row)}: {column} is {value[row]}: it must be finite{hint}")
    steps = np.diff(time)
    for row in np.flatnonzero(steps <= 0)[:1]:
        raise ValueError(
            f"{where(row + 1)}: time goes from {time[row]:.10g} s to {time[row + 1]:.10g} "
            "s: rows must be in the order of time, each once"
        )
    for row in np.flatnonzero(steps > LONGEST_GAP * (1 + 1e-9))[:1]:
        raise ValueError(
            f"{where(row + 1)}: no row from {time[row]:.10g} s to {time[row + 1]:.10g} s, "
            f"longer than {LONGEST_GAP:g} s: cut the log in two files there, each is given its own "
            "beginning (and check that time is in seconds)"
        )
    for row in np.flatnonzero(np.abs(percent) > 100)[:1]:
        raise ValueError(
            f"{where(row)}: yaw_percent is {percent[row]:g}, and must be from -100 to 100"
        )
    for row in np.flatnonzero(np.abs(yaw) > LARGEST_YAW)[:1]:
        raise ValueError(f"{where(row)}: yaw is {yaw[row]:g}, more than two turns: {RADIANS}")
    seen = np.flatnonzero(np.isfinite(yaw))
    turns = np.abs(np.diff(yaw[seen]))
    torn = (turns > math.pi) & (turns < 5)  # too much for a move, too little for a whole turn
    if torn.sum() > max(3, 0.01 * len(turns)):
        row = seen[1:][torn][0]
        raise ValueError(
            f"{where(row)}: yaw jumps by {turns[torn][0]:.3g}, and in {torn.sum() - 1} other rows "
            f"likewise: {RADIANS}"
        )


# ---- logs of a drone that is known --------------------------------------------------------------


def excitation(
    kind: str = "mixture", duration: float = 60.0, amplitude: float = AMPLITUDE
) -> Floats:
    """Commands of an experiment, in whole per cent of yaw, one each tenth of a second.

    constant    the amplitude throughout: alone it tells neither gain, whatever the offset
    sinusoid    of 0.4 rad/s, where a lag of about that rate is told best
    chirp       from 0.05 to 1 Hz
    mixture     steps up and down, the sinusoid and the chirp, a third of the time each: steps show
                k_u in their steady state, the sinusoid k_p, and the chirp tells a lag from a delay

    >>> excitation("sinusoid", 0.5).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no experiment: choose one of {', '.join(KINDS)}")
    if not 0 < duration < math.inf:
        raise ValueError(f"an experiment cannot take {duration:g} s")
    t = np.arange(max(1, round(duration * COMMAND_RATE))) / COMMAND_RATE
    if kind == "mixture":
        third = duration / 3
        parts = (_steps(t, third), _sinusoid(t - third), _chirp(t - 2 * third, third))
        shape = np.select([t < third, t < 2 * third], parts[:2], parts[2])
    elif kind == "constant":
        shape = np.ones_like(t)
    else:
        shape = _sinusoid(t) if kind == "sinusoid" else _chirp(t, duration)
    return np.round(amplitude * shape) + 0.0


def _steps(t: Floats, duration: float) -> Floats:
    """Up for a quarter, down for a half, up for a quarter."""
    return np.where(np.abs(t / duration - 0.5) <= 0.25, -1.0, 1.0)


def _sinusoid(t: Floats) -> Floats:
    return np.sin(0.4 * t)


def _chirp(t: Floats, duration: float, low: float = 0.05, high: float = 1.0) -> Floats:
    """A sine whose frequency (Hz) grows evenly."""
    return np.sin(2 * math.pi * (low * t + (high - low) * t**2 / (2 * duration)))


def synthetic_log(
    yaw_percent: ArrayLike | None = None,
    *,
    k_u: float = 3.0,
    k_p: float = 0.4,
    speed: float = 2.0,
    latency: float = 0.08,
    offset: float = 0.1,
    yaw_noise: float = 0.02,
    gusts: float = 0.0,
    position_noise: float = 0.01,
    dropped: float = 0.05,
    rate: int = 50,
    seed: int = 0,
    name: str = "synthetic log",
) -> FlightLog:
    """The log of a drone with these gains, under commands at 10 Hz (default: `excitation()`).

    The drone flies straight before the log begins. Its yaw is measured in a frame that is turned by
    `offset` (rad). Rows come `rate` times a second, a tenth of a period early or late; yaw_noise
    (rad) and position_noise (m) are standard deviations, independent at each row. Gusts turn the
    drone itself: white noise of this density (rad/√s) is added to its yaw rate. Of all rows,
    `dropped` are lost: for half of them the tracker lost the pose, and for the others the loop was
    late, so that there is no row and the drone kept the command it had.

    >>> log = synthetic_log(excitation("chirp", 10.0), seed=1)
    >>> 480 < len(log.time) < 500
    True
    """
    percent = np.asarray(excitation() if yaw_percent is None else yaw_percent, float)
    if rate < COMMAND_RATE or rate % COMMAND_RATE:
        raise ValueError(f"{rate} rows a second: it must be a multiple of {COMMAND_RATE}")
    if not 0 <= dropped <= 0.5:
        raise ValueError(f"{dropped:g} of the rows cannot be dropped: give a share from 0 to 0.5")
    rng = generator(seed, "swing log", of="noise")
    each = rate // COMMAND_RATE  # rows for each command
    rows = len(percent) * each
    fate = rng.random(rows)
    kept = (fate < 1 - dropped / 2) | (np.arange(rows) == 0)
    time = (np.arange(rows) + rng.uniform(-0.1, 0.1, rows)) / rate
    time = (time - time[0])[kept]
    commanded = np.repeat(percent, each)[kept]
    fine = np.append(np.linspace(time[:-1], time[1:], 5, axis=1)[:, :-1].ravel(), time[-1])
    since, commands = np.append(-1.0, time), np.append(0.0, commanded / 100)
    yaw = offset + k_u * lagged(fine, since, commands, k_p, latency).value
    if gusts:
        yaw += _gusts(fine, gusts, k_p, generator(seed, "swing gusts", of="noise"))
    path = speed * travelled(fine, yaw)[::4]
    measured = np.stack([path.real, path.imag, yaw[::4]])
    sd = np.array([[position_noise], [position_noise], [yaw_noise]])
    measured += sd * rng.standard_normal(measured.shape)
    measured[2] = np.angle(np.exp(1j * measured[2]))  # as trackers tell it
    measured[:, fate[kept] < dropped / 2] = np.nan
    return FlightLog(name, time, commanded, *measured)


def _gusts(time: Floats, density: float, rate: float, rng: np.random.Generator) -> Floats:
    """What gusts add to the yaw: an Ornstein–Uhlenbeck process, exact at these times."""
    fades = np.exp(-rate * np.diff(time, prepend=time[0]))
    pushes = density * np.sqrt((1 - fades**2) / (2 * rate)) * rng.standard_normal(len(time))
    state = density / math.sqrt(2 * rate) * float(rng.standard_normal())  # it blew before
    values = []
    for fade, push in zip(fades.tolist(), pushes.tolist(), strict=True):
        state = fade * state + push
        values.append(state)
    return np.array(values)


def travelled(time: Floats, yaw: Floats) -> NDArray[np.complex128]:
    """Where a drone of unit speed is, x + iy from its place at the first time (trapezoids)."""
    heading = 1j * np.exp(1j * yaw)
    steps = np.diff(time) * (heading[1:] + heading[:-1]) / 2
    return np.append(0.0, np.cumsum(steps))
