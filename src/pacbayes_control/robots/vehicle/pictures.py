"""Figures of the paper's experiments with the vehicle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from pacbayes_control.certify.families import Beta
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE, save_figure
from pacbayes_control.robots.planar import ray_angles
from pacbayes_control.robots.planar.pictures import draw_scene
from pacbayes_control.robots.vehicle import Vehicle
from pacbayes_control.robots.vehicle.table1 import Table1Row
from pacbayes_control.robots.vehicle.table2 import SHIFTED, TRAINING, Table2Row

WORLDS = (("training, D", TRAINING, BLUE), ("test, D′", SHIFTED, ORANGE))


def draw_gains(gains: Mapping[str, NDArray], path: Path) -> None:
    """Gains K against the angles of the rays: the paper's figure of its optimised policy."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axis = figure.subplots()
    styles = [(GREY, "o", "--"), (BLUE, "s", "-"), (ORANGE, "^", "-")]
    for (name, values), (colour, marker, line) in zip(gains.items(), styles, strict=False):
        axis.plot(ray_angles(), values, color=colour, marker=marker, ls=line, ms=4, label=name)
    axis.axhline(0, color=DARK, lw=0.5)
    axis.set(xlabel="angle of the ray θ (rad), clockwise from the heading", ylabel="gain K")
    axis.set_title("Mean of the posterior over linear policies, N = 100", fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def draw_table1(rows: Sequence[Table1Row], path: Path) -> None:
    """Bound and true cost against N, ours with their spread, and the paper's as crosses."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    styles = {  # side by side, not on top of each other: each N times a factor
        "paper": (0.92, BLUE, "s", "the paper's method"),
        "kl": (1.0, GREEN, "o", "kl bound, minimised itself"),
        "occam": (1.08, ORANGE, "^", "Occam, one policy"),
    }
    for method, (factor, colour, marker, label) in styles.items():
        chosen = [row for row in rows if row.method == method]
        n = _draw_bounds(axis, chosen, factor, color=colour, marker=marker, label=label)
        axis.plot(n * factor, [row.true_cost for row in chosen], color=colour, ls=":", lw=1.5)
    reference = {row.environments: row.paper_bound for row in rows if row.method == "paper"}
    n = np.array([*reference])
    label = "bound as published, one draw"
    axis.plot(n * 0.85, [*reference.values()], "kx", ms=8, label=label)
    axis.plot([], [], color=DARK, ls=":", label="true cost (estimate), same colours")
    _log_scale(axis, n)
    axis.set_ylim(0, None)
    axis.set(xlabel="training environments, N", ylabel="expected cost in a new environment")
    title = "Guaranteed with confidence 99 %: mean ± s.d. over draws of the environments"
    axis.set_title(title, fontsize=11)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def draw_table2(rows: Sequence[Table2Row], path: Path) -> None:
    """Bounds and true costs against N, the paper's as crosses."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    titles = {
        "robust": "robust: learnt on D, any D′ in the ball",
        "train": "learnt on D, certified on D",
        "test": "learnt on D′, certified on D′",
    }
    curves: dict[str, tuple[float, str, dict[str, Any]]] = {  # side by side: each N times a factor
        "exact_bound": (1.06, "kl bound, minimised itself", {"color": GREEN, "marker": "o"}),
        "occam_bound": (1.12, "Occam, one policy", {"color": ORANGE, "marker": "^"}),
        "paper_bound": (0.94, "as published, one draw", {"color": "k", "marker": "x", "ls": ""}),
        "true_cost": (1.0, "true cost (estimate)", {"color": DARK, "ls": ":"}),
    }
    for axis, (method, title) in zip(axes, titles.items(), strict=True):
        chosen = [row for row in rows if row.method == method]
        n = _draw_bounds(axis, chosen, color=BLUE, marker="s", label="the paper's method")
        for name, (factor, label, style) in curves.items():
            size = 7 if name == "paper_bound" else 4
            values = [getattr(row, name) for row in chosen]
            axis.plot(n * factor, values, label=label, ms=size, **style)
        _log_scale(axis, n, rotation=45)
        axis.set_title(title, fontsize=10)
    axes[0].set_ylim(0, None)
    axes[0].set_ylabel("expected cost")
    axes[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("training environments, N", fontsize=10)
    save_figure(figure, path)


def _draw_bounds(axis: Any, rows: Sequence[Any], factor: float = 1.0, **style: Any) -> NDArray:
    """Bounds with their spread over draws against N times a factor; returns N of each row."""
    n = np.array([row.environments for row in rows])
    bounds, spread = np.array([(row.bound, row.bound_std) for row in rows]).T
    axis.errorbar(n * factor, bounds, spread, ms=5, capsize=3, **style)
    return n


def _log_scale(axis: Any, n: NDArray, rotation: int = 0) -> None:
    """A logarithmic axis of N with a tick for each value, and a grid."""
    axis.set_xscale("log")
    axis.set_xticks(n, [f"{value:,}" for value in n], rotation=rotation)
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def draw_radii(path: Path, seed: int = 0, shown: int = 24) -> None:
    """The two densities of the radius, with the robot for scale; and sorted obstacles of each."""
    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    top, *below = figure.subplots(3, 1, height_ratios=(4.4, 1, 1))
    x = np.linspace(0.1, 1.1, 801)[1:-1]
    for name, field, colour in WORLDS:
        assert isinstance(field.radius, Beta)
        label = f"{name}: Beta({field.radius.alpha:g}, {field.radius.beta:g})"
        top.plot(x, field.radius.density(x), color=colour, label=label)
    robot = Vehicle().robot_radius
    top.axvline(robot, color=DARK, ls=":", lw=1)
    top.annotate("the robot's radius", (robot, 2.2), xytext=(4, 0), textcoords="offset points")
    top.set(xlim=(0, 1.2), xlabel="radius of the obstacles (m)")
    top.set(ylim=(0, 2.6), ylabel="density (1/m)")
    top.legend(frameon=False, loc="upper right")
    scale = top.inset_axes((0.62, 0.42, 0.3, 0.4))
    scale.add_patch(Circle((-0.32, 0), robot, color=DARK))
    scale.add_patch(Circle((0.32, 0), 0.3, color=GREY))
    scale.set(xlim=(-0.7, 0.7), ylim=(-0.55, 0.35), aspect="equal")
    scale.text(-0.32, -0.5, f"robot {robot:g} m", ha="center", fontsize=8)
    scale.text(0.32, -0.5, "obstacle 0.3 m", ha="center", fontsize=8)
    scale.axis("off")
    for axis, (name, field, colour) in zip(below, WORLDS, strict=True):
        drawn = Vehicle(obstacles=field).environments(shown, stream="picture", seed=seed).arrays()
        radii = np.sort(drawn["obstacles"][:, 0, 2])
        centres = np.cumsum(2 * radii + 0.1) - radii
        discs = [Circle((cx, r), r) for cx, r in zip(centres, radii, strict=True)]
        axis.add_collection(PatchCollection(discs, facecolor=colour, alpha=0.6))
        axis.add_patch(Circle((-0.6, robot), robot, color=DARK))
        axis.set(xlim=(-1.2, 2 * 0.65 * shown), ylim=(0, 2.3), aspect="equal", xticks=[], yticks=[])
        title = f"{name}: obstacles of {shown} environments, sorted; the robot in black"
        axis.set_title(title, fontsize=9, loc="left")
    save_figure(figure, path)


def draw_fields(path: Path, seed: int = 0, shown: int = 3) -> None:
    """Example environments of training and test."""
    figure = Figure(figsize=(2.9 * shown, 7.6), layout="constrained")
    axes = figure.subplots(2, shown, squeeze=False, sharex=True, sharey=True)
    for row, (name, field, _) in zip(axes, WORLDS, strict=True):
        task = Vehicle(obstacles=field)
        environments = task.environments(shown, stream="picture", seed=seed)
        for axis, scene in zip(row, task.scenes(environments), strict=True):
            draw_scene(axis, task, scene.circles)
            axis.add_patch(Circle(task.start[:2], task.robot_radius, color=DARK))
        row[0].set_ylabel(f"{name}\ny (m)")
    figure.supxlabel("x (m)", fontsize=10)
    save_figure(figure, path)
