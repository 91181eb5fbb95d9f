"""Pictures: robots among their obstacles, and the bound against the number of environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib import rc_context
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray

from pacbayes_control.distributions import DiagonalGaussian
from pacbayes_control.paper.table1 import Row
from pacbayes_control.run import Run
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.base import generator
from pacbayes_control.tasks.planar import Planar, ray_angles

# Colours that stay apart for colour-blind readers and on paper.
BLUE, ORANGE, GREEN, GREY, DARK = "#0072b2", "#d55e00", "#009e73", "#9a9a9a", "#333333"
STABLE: Any = {
    "svg.hashsalt": "pacbayes-control",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters as letters, which journals ask for
}


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
    for index, axis in enumerate(axes):
        draw_arena(axis, task, environments, index)
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


def drawn_policies(run: Run[Any], count: int) -> tuple[NDArray, NDArray]:
    """Policies from a run's prior and from what it certifies; shapes (count, parameters)."""
    rng, single = generator(0, "picture", of="policies"), run.certificate.policy
    if isinstance(run.posterior, DiagonalGaussian):
        before, after = run.prior.sample(rng, count), run.posterior.sample(rng, count)
    else:
        policies = run.costs.parameters
        assert policies is not None
        before = policies[run.prior.sample(rng, count)]
        after = policies[run.posterior.sample(rng, count)]
    if single is not None:
        assert run.costs.parameters is not None
        after = np.repeat(run.costs.parameters[single][None], count, axis=0)
    return before, after


def draw_arena(axis, task: Planar, environments: Environments, index: int) -> None:
    """Cylinders and walls of one environment."""
    scene = task.scenes(environments[index : index + 1])[0]
    draw_scene(axis, task, scene.circles)


def draw_scene(axis, task: Planar, cylinders: NDArray) -> None:
    """Cylinders (cylinders, 3), and the walls around."""
    discs = [Circle((x, y), r) for x, y, r in cylinders]
    axis.add_collection(PatchCollection(discs, facecolor=GREY, edgecolor=DARK, lw=0.5))
    for left, right, bottom, top in task.arena.walls:
        axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, color=DARK))
    left, right, bottom, top = view_of(task)
    axis.set_aspect("equal")
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)


def view_of(task: Planar) -> tuple[float, float, float, float]:
    """What to show of an arena: what it says itself, or all of its walls."""
    walls = task.arena.walls
    around = (walls[:, 0].min(), walls[:, 1].max(), walls[:, 2].min(), walls[:, 3].max())
    return getattr(task.arena, "view", around)


def draw_gains(gains: Mapping[str, NDArray], path: Path) -> None:
    """Gains K against the angles of the rays: the paper's figure of its optimised policy."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axis = figure.subplots()
    angles = ray_angles()
    styles = [(GREY, "o", "--"), (BLUE, "s", "-"), (ORANGE, "^", "-")]
    for (name, values), (colour, marker, line) in zip(gains.items(), styles, strict=False):
        axis.plot(angles, values, color=colour, marker=marker, ls=line, ms=4, label=name)
    axis.axhline(0, color=DARK, lw=0.5)
    axis.set_xlabel("angle of the ray θ (rad), clockwise from the heading")
    axis.set_ylabel("gain K")
    axis.set_title("Mean of the posterior over linear policies, N = 100", fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def draw_table1(rows: Sequence[Row], path: Path) -> None:
    """Bound and true cost against N, ours with their spread and the paper's as crosses."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    styles = {
        "paper": (0.92, BLUE, "s", "the paper's method"),
        "kl": (1.0, GREEN, "o", "kl bound, minimised itself"),
        "occam": (1.08, ORANGE, "^", "Occam, one policy"),
    }
    for method, (offset, colour, marker, label) in styles.items():  # side by side, not on top
        chosen = [row for row in rows if row.method == method]
        n = np.array([row.environments for row in chosen])
        bound = np.array([row.bound for row in chosen])
        spread = np.array([row.bound_std for row in chosen])
        axis.errorbar(
            n * offset, bound, spread, color=colour, marker=marker, ms=5, capsize=3, label=label
        )
        axis.plot(n * offset, [row.true_cost for row in chosen], color=colour, ls=":", lw=1.5)
    reference = [row for row in rows if row.method == "paper"]
    n = [row.environments for row in reference]
    published = [row.paper_bound for row in reference]
    axis.plot(np.array(n) * 0.85, published, "kx", ms=8, label="bound as published, one draw")
    axis.plot([], [], color=DARK, ls=":", label="true cost (estimate), same colours")
    axis.set_xscale("log")
    axis.set_xticks(n, [f"{value:,}" for value in n])
    axis.minorticks_off()
    axis.set_ylim(0, None)
    axis.set_xlabel("training environments, N")
    axis.set_ylabel("expected cost in a new environment")
    axis.set_title(
        "Guaranteed with confidence 99 %: mean ± s.d. over draws of the environments", fontsize=11
    )
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def save_figure(figure: Figure, file: Path | BinaryIO) -> None:
    """Write PNG or PDF if the path says so, else SVG; the same bytes for the same picture."""
    suffix = file.suffix if isinstance(file, Path) else ""
    with rc_context(STABLE):
        if suffix == ".png":
            figure.savefig(file, format="png", dpi=150)
        elif suffix == ".pdf":
            figure.savefig(file, format="pdf", metadata={"CreationDate": None})
        else:
            figure.savefig(file, format="svg", metadata={"Date": None})
