"""The obstacles of a flight: read from a file, held against what was certified, and written."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.tables.columns import numbers
from pacbayes_control.certify.tables.sheets import read_sheet

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.simulator import Swing

COLUMNS = ("x", "y", "radius")
FORGIVEN = 1e-3  # m by which a cylinder may be outside its range: nobody places it better


def same_obstacles(first: NDArray, second: NDArray) -> bool:
    """Whether two arrays of cylinders are the same, in any order."""
    rows = [
        sorted(map(tuple, np.asarray(a, float).reshape(-1, 3).tolist())) for a in (first, second)
    ]
    return rows[0] == rows[1]


def read_obstacles(path: Path, task: Swing) -> NDArray[np.float64]:
    """Cylinders from a CSV file with columns x, y, radius in m; an error for what cannot stand.

    Other columns are not read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    sheet = read_sheet(path)
    header = [cell.lower() for cell in sheet.rows[0]]
    if any(header.count(name) != 1 for name in COLUMNS):
        raise ValueError(
            f"{path.name}: obstacles have columns x, y and radius in m, and this has "
            f"{', '.join(sheet.rows[0])}"
        )
    rows, lines = sheet.rows[1:], sheet.lines[1:]
    if not rows:
        raise ValueError(f"{path.name}: there are no obstacles below the header")
    columns = [
        numbers([row[header.index(name)] for row in rows], f"{path.name}, column {name}")
        for name in COLUMNS
    ]
    found = np.stack(columns, axis=1)
    arena, (x0, y0, _) = task.arena, task.start
    for (x, y, radius), line in zip(found.tolist(), lines, strict=True):
        where = f"{path.name}, line {line}"
        if not 0 < radius <= arena.half_width:
            raise ValueError(f"{where}: a radius of {radius:g} m is not that of a cylinder in here")
        if not (abs(x) <= arena.half_width and 0 <= y <= arena.length):
            raise ValueError(
                f"{where}: x = {x:g}, y = {y:g} is outside the net, which is from "
                f"x = -{arena.half_width:g} to {arena.half_width:g} and y = 0 to {arena.length:g} m"
            )
        if np.hypot(x - x0, y - y0) - radius <= task.robot_radius:
            raise ValueError(
                f"{where}: the cylinder stands where the drone starts, x = {x0:g}, y = {y0:g}"
            )
    return found


def read_fields(files: list[Path], task: Swing, certified: bool) -> list[NDArray[np.float64]]:
    """Cylinders from a file for each flight; an error where two are the same.

    certified: only such as the certified distribution draws.
    """
    fields = [read_obstacles(file, task) for file in files]
    for i, (file, field) in enumerate(zip(files, fields, strict=True)):
        if certified:
            check_certified(field, task, file.name)
        for other, before in zip(files[:i], fields[:i], strict=True):
            if same_obstacles(field, before):
                raise ValueError(
                    f"{file.name} has the obstacles of {other.name}: every flight needs an "
                    "environment of its own"
                )
    return fields


def check_certified(found: NDArray, task: Swing, what: str) -> None:
    """An error for obstacles that the certified distribution never draws: no promise is about them.

    It tells the ranges. Within them, only `--draw` keeps anybody from choosing.
    """
    field = task.obstacles
    ranges = ", ".join(
        f"{name} from {low:g} to {high:g} m"
        for name, (low, high) in zip(COLUMNS, (field.x, field.y, field.radius), strict=True)
    )
    if not field.fewest <= len(found) <= field.most:
        raise ValueError(
            f"{what}: the cylinders are {len(found)}, and {field.fewest} to {field.most} were "
            "certified"
        )
    low, high = np.array([field.x, field.y, field.radius]).T
    outside = np.any((found < low - FORGIVEN) | (found > high + FORGIVEN), axis=1)
    if outside.any():
        x, y, radius = found[outside.argmax()].tolist()
        raise ValueError(
            f"{what} has a cylinder at x = {x:g}, y = {y:g}, of radius {radius:g} m, which was not "
            f"certified: {ranges}"
        )


def write_obstacles(path: Path, obstacles: NDArray) -> None:
    """Write cylinders as `read_obstacles` reads them, to a file that must not be there yet."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(np.asarray(obstacles, float).tolist())
    except FileExistsError:
        raise ValueError(f"{path} is there already: name a new file") from None
