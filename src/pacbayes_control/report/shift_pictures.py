"""Pictures of a world that shifts: the second table, its environments, a curve, a monitor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from pacbayes_control.balls import Ball, round_down
from pacbayes_control.bounds.sequential import confidence_sequence
from pacbayes_control.families import Beta
from pacbayes_control.monitor import Monitor, shown
from pacbayes_control.paper.table2 import SHIFTED, TRAINING, Row
from pacbayes_control.report.pictures import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    draw_arena,
    save_figure,
)
from pacbayes_control.shifting import Curve
from pacbayes_control.tasks import Vehicle

WORLDS = (("training, D", TRAINING, BLUE), ("test, D′", SHIFTED, ORANGE))


def draw_table2(rows: Sequence[Row], path: Path) -> None:
    """Bounds and true costs against N, the paper's as crosses."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    titles = {
        "robust": "robust: learnt on D, any D′ in the ball",
        "train": "learnt on D, certified on D",
        "test": "learnt on D′, certified on D′",
    }
    for axis, (method, title) in zip(axes, titles.items(), strict=True):
        chosen = [row for row in rows if row.method == method]
        n = np.array([row.environments for row in chosen])
        spread = [row.bound_std for row in chosen]
        axis.errorbar(
            n, [row.bound for row in chosen], spread, color=BLUE, marker="s", ms=5, capsize=3,
            label="the paper's method",
        )  # fmt: skip
        axis.plot(
            n * 1.06, [row.exact_bound for row in chosen], color=GREEN, marker="o", ms=4,
            label="kl bound, minimised itself",
        )  # fmt: skip
        axis.plot(
            n * 1.12, [row.occam_bound for row in chosen], color=ORANGE, marker="^", ms=4,
            label="Occam, one policy",
        )  # fmt: skip
        axis.plot(
            n * 0.94, [row.paper_bound for row in chosen], "kx", ms=7,
            label="as published, one draw",
        )  # fmt: skip
        axis.plot(
            n, [row.true_cost for row in chosen], color=DARK, ls=":", label="true cost (estimate)"
        )
        axis.set_xscale("log")
        axis.set_xticks(n, [f"{value:,}" for value in n], rotation=45)
        axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(0, None)
    axes[0].set_ylabel("expected cost")
    axes[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("training environments, N", fontsize=10)
    save_figure(figure, path)


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
    top.set_xlim(0, 1.2)
    top.set_ylim(0, 2.6)
    top.set_xlabel("radius of the obstacles (m)")
    top.set_ylabel("density (1/m)")
    top.legend(frameon=False, loc="upper right")
    scale = top.inset_axes((0.62, 0.42, 0.3, 0.4))
    scale.add_patch(Circle((-0.32, 0), robot, color=DARK))
    scale.add_patch(Circle((0.32, 0), 0.3, color=GREY))
    scale.set_xlim(-0.7, 0.7)
    scale.set_ylim(-0.55, 0.35)
    scale.set_aspect("equal")
    scale.text(-0.32, -0.5, f"robot {robot:g} m", ha="center", fontsize=8)
    scale.text(0.32, -0.5, "obstacle 0.3 m", ha="center", fontsize=8)
    scale.axis("off")
    for axis, (name, field, colour) in zip(below, WORLDS, strict=True):
        task = Vehicle(obstacles=field)
        drawn = task.environments(shown, stream="picture", seed=seed).arrays()
        radii = np.sort(drawn["obstacles"][:, 0, 2])
        centres = np.cumsum(2 * radii + 0.1) - radii
        discs = [Circle((cx, r), r) for cx, r in zip(centres, radii, strict=True)]
        axis.add_collection(PatchCollection(discs, facecolor=colour, alpha=0.6))
        axis.add_patch(Circle((-0.6, robot), robot, color=DARK))
        axis.set_xlim(-1.2, 2 * 0.65 * shown)
        axis.set_ylim(0, 2.3)
        axis.set_aspect("equal")
        axis.set_yticks([])
        axis.set_xticks([])
        axis.set_title(f"{name}: obstacles of {shown} environments, sorted; the robot in black",
                       fontsize=9, loc="left")  # fmt: skip
    save_figure(figure, path)


def draw_fields(path: Path, seed: int = 0, shown: int = 3) -> None:
    """Example environments of training and test."""
    figure = Figure(figsize=(2.9 * shown, 7.6), layout="constrained")
    axes = figure.subplots(2, shown, squeeze=False, sharex=True, sharey=True)
    for row, (name, field, _) in zip(axes, WORLDS, strict=True):
        task = Vehicle(obstacles=field)
        environments = task.environments(shown, stream="picture", seed=seed)
        for index, axis in enumerate(row):
            draw_arena(axis, task, environments, index)
            x, y, _ = task.start
            axis.add_patch(Circle((x, y), task.robot_radius, color=DARK))
        row[0].set_ylabel(f"{name}\ny (m)")
    figure.supxlabel("x (m)", fontsize=10)
    save_figure(figure, path)


def draw_curve(
    curve: Curve, file: Path | BinaryIO, certified: tuple[float, float] | None = None
) -> None:
    """The guarantee against the size of the shift; certified: B and bound to mark on it."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    axis.plot(curve.radii, curve.bounds, color=BLUE)
    axis.axhline(curve.limit, color=ORANGE, ls="--", lw=1, label=f"limit {curve.limit:g}")
    if 0 < curve.tolerable < math.inf:
        axis.axvline(curve.tolerable, color=DARK, ls=":", lw=1)
        axis.annotate(f"B = {round_down(curve.tolerable)}", (curve.tolerable, 0.02), ha="right")
    if certified:
        axis.plot(*certified, "o", color=GREEN, label=f"certified, B = {round_down(certified[0])}")
    axis.set_xlabel(f"shift: {Ball(curve.divergence, 0.0).symbol} ≤ B")
    axis.set_ylabel("expected cost, at most")
    axis.set_ylim(0, 1.02)
    axis.set_xlim(0, None)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    save_figure(figure, file)


def draw_monitor(monitor: Monitor, path: Path) -> None:
    """The evidence over time, and the cost as deployed against the promise."""
    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    costs, evidence = figure.subplots(2, 1, sharex=True)
    n, total, log_e = np.array(monitor.history, float).T
    low, high = confidence_sequence(total, n, monitor.alpha)
    bound, marker = monitor.certificate.bound, "o" if len(n) < 3 else None
    costs.fill_between(n, low, high, color=BLUE, alpha=0.2, label="confidence sequence")
    costs.plot(n, total / n, color=BLUE, marker=marker, label="mean cost")
    costs.axhline(bound, color=ORANGE, ls="--", label=f"promised, {shown(bound)}")
    costs.set_ylim(0, 1)
    costs.set_ylabel("cost as deployed")
    costs.legend(frameon=False, fontsize=9)
    evidence.plot(n, log_e / math.log(10), color=DARK, marker=marker, label="e-value")
    threshold = -math.log10(monitor.alpha)
    evidence.axhline(threshold, color=ORANGE, ls="--", label=f"alarm, 1/α = {1 / monitor.alpha:g}")
    if monitor.alarm_at is not None:
        evidence.axvline(monitor.alarm_at, color=ORANGE, lw=1)
    evidence.set_ylabel("log₁₀ of the e-value")
    evidence.set_xlabel("outcomes")
    evidence.legend(frameon=False, fontsize=9)
    for axis in (costs, evidence):
        axis.grid(alpha=0.3)
    costs.set_title(monitor.report().verdict, fontsize=11)
    save_figure(figure, path)
