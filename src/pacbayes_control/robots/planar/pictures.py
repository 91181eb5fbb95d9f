"""Pictures of a robot in the plane among its obstacles."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.report.pictures import BLUE, DARK, GREY, ORANGE, drawn_policies, save_figure
from pacbayes_control.robots.planar.robot import Planar
from pacbayes_control.tasks import Environments


def draw_rollouts(
    task: Planar,
    run: Run[Any],
    environments: Environments,
    file: Path | BinaryIO,
    rollouts: int = 20,
) -> None:
    """Up to three environments side by side, each with policies drawn from prior and posterior."""
    shown = min(3, len(environments))
    left, right, bottom, top = view_of(task)
    height = 3.4 * (top - bottom) / (right - left) + 0.3
    figure = Figure(figsize=(3.6 * shown, min(height, 8)), layout="constrained")
    axes = figure.subplots(1, shown, squeeze=False, sharey=True)[0]
    before, after = drawn_policies(run, rollouts)
    for index, (axis, scene) in enumerate(
        zip(axes, task.scenes(environments[:shown]), strict=True)
    ):
        draw_scene(axis, task, scene.circles)
        for policy in before:
            path = task.trajectory(policy, environments, index).poses[:, :2]
            axis.plot(*path.T, color=GREY, lw=0.7, alpha=0.5)
        failed = 0
        for policy in after:
            rollout = task.trajectory(policy, environments, index)
            path, collided = rollout.poses[:, :2], rollout.collided
            axis.plot(*path.T, color=ORANGE if collided else BLUE, lw=1.3, alpha=0.6)
            if collided:
                axis.plot(*path[-1], "x", color=ORANGE, ms=8, mew=2, zorder=5)
            failed += collided
        x, y, _ = task.start
        axis.add_patch(Circle((x, y), task.robot_radius, color=DARK, zorder=4))
        axis.set_title(f"{rollouts - failed} of {rollouts} draws pass", fontsize=10)
    axes[0].set_ylabel("y (m)")
    figure.supxlabel("x (m)", fontsize=10)
    handles = [
        Line2D([], [], color=BLUE, label="posterior, passes"),
        Line2D([], [], color=ORANGE, marker="x", mew=2, label="posterior, collides"),
        Line2D([], [], color=GREY, lw=0.7, label="prior"),
        Line2D([], [], color=DARK, marker="o", ls="", ms=9, label="robot at the start"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    save_figure(figure, file)


def draw_scene(axis, task: Planar, cylinders: NDArray) -> None:
    """Cylinders (cylinders, 3) and walls of one environment."""
    discs = [Circle((x, y), r) for x, y, r in cylinders]
    axis.add_collection(PatchCollection(discs, facecolor=GREY, edgecolor=DARK, lw=0.5))
    for left, right, bottom, top in task.arena.walls:
        axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, color=DARK))
    left, right, bottom, top = view_of(task)
    axis.set_aspect("equal")
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)


def view_of(task: Planar) -> tuple[float, float, float, float]:
    """The part of an arena to show: its own `view`, or all of its walls."""
    walls = task.arena.walls
    around = (walls[:, 0].min(), walls[:, 1].max(), walls[:, 2].min(), walls[:, 3].max())
    return getattr(task.arena, "view", around)
