"""The obstacles of a flight: read from a file, compared with the certified ones, and written."""

from __future__ import annotations

import csv
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.identification.logs import read_columns
from pacbayes_control.robots.swing.simulator import Swing

Floats = NDArray[np.float64]

COLUMNS = ("x", "y", "radius")
TOLERANCE = 1e-3  # m by which a cylinder may be outside its range, since it is placed by hand


def same_obstacles(first: NDArray, second: NDArray) -> bool:
    """Whether two arrays of cylinders are the same, in any order."""
    one, other = (np.asarray(array, float).reshape(-1, 3).tolist() for array in (first, second))
    return sorted(one) == sorted(other)


def read_obstacles(path: Path, task: Swing) -> Floats:
    """Cylinders from a CSV file with columns x, y, radius in m, checked; others are not read."""
    columns, lines = read_columns(path, COLUMNS, "obstacles have x, y, radius in m")
    if not lines:
        raise ValueError(f"{path.name}: there are no obstacles below the header")
    found = np.stack([columns[name] for name in COLUMNS], axis=1)
    widest, (x0, y0, _) = task.arena.half_width, task.start
    for (x, y, radius), line in zip(found.tolist(), lines, strict=True):
        where = f"{path.name}, line {line}"
        if not 0 < radius <= widest:
            raise ValueError(f"{where}: a radius of {radius:g} m is not in (0, {widest:g}]")
        if not (abs(x) <= widest and 0 <= y <= task.arena.length):
            raise ValueError(
                f"{where}: x = {x:g}, y = {y:g} is outside the net, which is from "
                f"x = -{widest:g} to {widest:g} and y = 0 to {task.arena.length:g} m"
            )
        if np.hypot(x - x0, y - y0) - radius <= task.robot_radius:
            start = f"x = {x0:g}, y = {y0:g}"
            raise ValueError(f"{where}: the cylinder stands where the drone starts, {start}")
    return found


def read_obstacle_files(files: list[Path], task: Swing, certified: bool) -> list[Floats]:
    """Cylinders from a file for each flight; an error where two are the same.

    certified: whether the certified distribution must be able to draw them.
    """
    found = [read_obstacles(file, task) for file in files]
    named = list(zip(files, found, strict=True))
    for file, cylinders in named if certified else ():
        check_certified(cylinders, task, file.name)
    for (first, one), (second, other) in combinations(named, 2):
        if same_obstacles(one, other):
            raise ValueError(
                f"{second.name} has the obstacles of {first.name}: every flight needs its own "
                "environment"
            )
    return found


def check_certified(found: NDArray, task: Swing, what: str) -> None:
    """An error for obstacles that the certified distribution never draws: nothing holds for them.

    Obstacles within the ranges may still have been chosen by hand; `--draw` excludes that.
    """
    field = task.obstacles
    ranges = ", ".join(
        f"{name} from {low:g} to {high:g} m"
        for name, (low, high) in zip(COLUMNS, (field.x, field.y, field.radius), strict=True)
    )
    if not field.fewest <= len(found) <= field.most:
        raise ValueError(
            f"{what}: there are {len(found)} cylinders, and {field.fewest} to {field.most} were "
            "certified"
        )
    low, high = np.array([field.x, field.y, field.radius]).T
    outside = np.any((found < low - TOLERANCE) | (found > high + TOLERANCE), axis=1)
    if outside.any():
        x, y, radius = found[outside.argmax()].tolist()
        raise ValueError(
            f"{what} has a cylinder at x = {x:g}, y = {y:g}, of radius {radius:g} m, which was not "
            f"certified: {ranges}"
        )


def write_obstacles(path: Path, obstacles: NDArray) -> None:
    """Write cylinders as `read_obstacles` reads them, to a file that must not exist yet."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(np.asarray(obstacles, float).tolist())
    except FileExistsError:
        raise ValueError(f"{path} exists already: give the name of a new file") from None
