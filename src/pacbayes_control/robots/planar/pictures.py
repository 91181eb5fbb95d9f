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
    *,
    file: Path | BinaryIO,
    rollouts: int = 20,
) -> None:
    """Up to three environments side by side, each with policies drawn from prior and posterior."""
    environments = environments[:3]
    figure = Figure(layout="constrained")
    axes = figure.subplots(1, len(environments), squeeze=False, sharey=True)[0]
    before, after = (
        zip(*(task.trajectories(policy, environments) for policy in policies), strict=True)
        for policies in drawn_policies(run, rollouts)
    )
    for axis, scene, prior, posterior in zip(
        axes, task.scenes(environments), before, after, strict=True
    ):
        draw_scene(axis, task, scene.circles)
        for rollout in prior:
            axis.plot(*rollout.poses[:, :2].T, color=GREY, lw=0.7, alpha=0.5)
        for rollout in posterior:
            path, colour = rollout.poses[:, :2], ORANGE if rollout.collided else BLUE
            axis.plot(*path.T, color=colour, lw=1.3, alpha=0.6)
            if rollout.collided:
                axis.plot(*path[-1], "x", color=ORANGE, ms=8, mew=2, zorder=5)
        failed = sum(rollout.collided for rollout in posterior)
        axis.add_patch(Circle(task.start[:2], task.robot_radius, color=DARK, zorder=4))
        axis.set_title(f"{rollouts - failed} of {rollouts} draws pass", fontsize=10)
    (left, right), (bottom, top) = axes[0].get_xlim(), axes[0].get_ylim()
    height = 3.4 * (top - bottom) / (right - left) + 0.3
    figure.set_size_inches(3.6 * len(environments), min(height, 8))
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
    """Cylinders (cylinders, 3) and walls of one environment, within the arena's `view` if any."""
    discs = [Circle((x, y), r) for x, y, r in cylinders]
    axis.add_collection(PatchCollection(discs, facecolor=GREY, edgecolor=DARK, lw=0.5))
    walls = task.arena.walls
    for left, right, bottom, top in walls:
        axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, color=DARK))
    around = (walls[:, 0].min(), walls[:, 1].max(), walls[:, 2].min(), walls[:, 3].max())
    left, right, bottom, top = getattr(task.arena, "view", around)
    axis.set(aspect="equal", xlim=(left, right), ylim=(bottom, top))
