"""Logs of flights: the commands and the tracked poses, in a CSV file.

Columns, in any order and among any others: `time` (s), `yaw_percent` (the command from this time
on, -100 to 100), `x`, `y` (m) and `yaw` (rad, counter-clockwise: the heading is (-sin ψ, cos ψ)).
Where the tracker lost the drone, the cells of the pose are empty: the command is known, the
measurement is not. Where rows are missing, for up to half a second, the control loop is assumed to
have been late and the command to have been held: a command that was sent and not logged biases the
fit.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.tables.sheets import read_sheet

Floats = NDArray[np.float64]

COLUMNS = ("time", "yaw_percent", "x", "y", "yaw")
POSE = COLUMNS[2:]
LONGEST_GAP = 0.5  # s without a row
LARGEST_YAW = 4 * math.pi  # a larger yaw is assumed to be in degrees
RADIANS = "it must be in radians, so if these are degrees multiply them by π/180"


@dataclass(frozen=True, eq=False)
class FlightLog:
    """One flight, checked: all arrays have the shape (rows,), and NaN where the pose was lost.

    Yaw is unwrapped: it does not jump from π to -π.
    """

    name: str
    time: Floats  # s, increasing
    yaw_percent: Floats  # commanded from this time on
    x: Floats  # m
    y: Floats  # m
    yaw: Floats  # rad
    lines: Sequence[int] = field(default=(), repr=False)  # of the rows in their file, for errors

    def __post_init__(self) -> None:
        for column in COLUMNS:
            value = np.array(getattr(self, column), float)
            if value.ndim != 1 or len(value) != len(self.time):
                raise ValueError(f"{self.name}: {column} must be one number for each row")
            object.__setattr__(self, column, value)
        if len(self.time) < 2:
            raise ValueError(f"{self.name}: {len(self.time)} rows are too few for a log")
        self._check_numbers()
        self._check_times()
        self._check_jumps()
        tracked = np.isfinite(self.yaw)
        self.yaw[tracked] = np.unwrap(self.yaw[tracked])
        for column in COLUMNS:
            getattr(self, column).setflags(write=False)

    def _check_numbers(self) -> None:
        """Raise an error about the first bad number of a column, if there is one."""
        lost = ": it must be finite, or empty where the pose was lost"
        for column, bad, problem in (
            ("time", ~np.isfinite(self.time), ": it must be finite"),
            ("yaw_percent", ~np.isfinite(self.yaw_percent), ": it must be finite"),
            *((column, np.isinf(getattr(self, column)), lost) for column in POSE),
            ("yaw_percent", np.abs(self.yaw_percent) > 100, ", and must be from -100 to 100"),
            ("yaw", np.abs(self.yaw) > LARGEST_YAW, f", more than two turns: {RADIANS}"),
        ):
            for row in np.flatnonzero(bad)[:1]:
                value = getattr(self, column)[row]
                raise ValueError(f"{self._place(row)}: {column} is {value:g}{problem}")

    def _check_times(self) -> None:
        steps = np.diff(self.time)
        for row in np.flatnonzero((steps <= 0) | (steps > LONGEST_GAP * (1 + 1e-9)))[:1]:
            ends = f"from {self.time[row]:.10g} s to {self.time[row + 1]:.10g} s"
            if steps[row] <= 0:
                message = f"time goes {ends}: rows must be in the order of time, each once"
            else:
                message = (
                    f"no row {ends}, longer than {LONGEST_GAP:g} s: cut the log in two files there "
                    "(and check that time is in seconds)"
                )
            raise ValueError(f"{self._place(row + 1)}: {message}")

    def _check_jumps(self) -> None:
        tracked = np.flatnonzero(np.isfinite(self.yaw))
        turns = np.abs(np.diff(self.yaw[tracked]))
        odd = (turns > math.pi) & (turns < 5)  # too large for a move, too small for a whole turn
        if odd.sum() > max(3, 0.01 * len(turns)):
            raise ValueError(
                f"{self._place(tracked[1:][odd][0])}: yaw jumps by {turns[odd][0]:.3g}, and in "
                f"{odd.sum() - 1} other rows too: {RADIANS}"
            )

    def _place(self, row: int) -> str:
        return f"{self.name}, " + (f"line {self.lines[row]}" if self.lines else f"row {row}")


def read_log(path: str | Path) -> FlightLog:
    """Read the log of a flight."""
    needs = f"a log has {', '.join(COLUMNS)}"
    columns, lines = read_columns(Path(path), COLUMNS, needs, may_be_empty=POSE)
    return FlightLog(Path(path).name, **columns, lines=lines)


def read_columns(
    path: Path, columns: Sequence[str], needs: str, may_be_empty: Sequence[str] = ()
) -> tuple[dict[str, Floats], list[int]]:
    """Numbers in some columns of a CSV file, and the line of each row; an error tells the line.

    Args:
        path: the file
        columns: their names, in lower case
        needs: the columns that it needs, in words
        may_be_empty: columns of poses, with NaN for an empty cell
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    sheet = read_sheet(path)
    header = [cell.lower() for cell in sheet.rows[0]]
    if missing := ", ".join(column for column in columns if column not in header):
        has = ", ".join(sheet.rows[0])
        raise ValueError(f"{path.name}: no column {missing}; {needs}, and this one has {has}")
    for column in columns:
        if header.count(column) > 1:
            raise ValueError(f"{path.name}: there are several columns {column}: keep one of them")
    found: dict[str, list[float]] = {column: [] for column in columns}
    for row, line in zip(sheet.rows[1:], sheet.lines[1:], strict=True):
        for column in columns:
            cell, pose = row[header.index(column)], column in may_be_empty
            value = math.nan if pose and not cell else sheet.number(cell)
            if value is None:
                what = f"{cell!r} is not a number" if cell else "the cell is empty"
                hint = "; leave the cell empty where the tracker lost the drone" if pose else ""
                raise ValueError(f"{path.name}, line {line}: {what} in column {column}{hint}")
            found[column].append(value)
    return {name: np.array(values, float) for name, values in found.items()}, sheet.lines[1:]


def write_log(log: FlightLog, path: str | Path) -> None:
    """Write a log as CSV; a pose that was lost leaves its cells empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in zip(*(getattr(log, column).tolist() for column in COLUMNS), strict=True):
        writer.writerow("" if math.isnan(value) else round(value, 6) for value in row)
    write_output(Path(path), text.getvalue().encode())
