"""Pictures of flights among their cylinders, and of a fit: its yaw, and what is left over."""

from __future__ import annotations

from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import scipy
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from pacbayes_control.report.pictures import BLUE, DARK, GREY, ORANGE, save_figure
from pacbayes_control.robots.planar.pictures import draw_rollouts, draw_scene
from pacbayes_control.robots.swing.identification.identified import IdentifiedModel
from pacbayes_control.tasks import Environments

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.experiment import Flown

ACROSS = 10  # flights in a row
LAGS = 30  # of the correlation that are drawn


def attachments(result: Flown, environments: Environments) -> dict[str, bytes]:
    """Pictures of the arena with simulated rollouts, and of the flights, for the run's folder."""
    rollouts, flights = BytesIO(), BytesIO()
    draw_rollouts(result.task, result.run, environments, file=rollouts)
    flights_figure(result).savefig(flights, format="png", dpi=110)
    return {"picture.svg": rollouts.getvalue(), "flights.png": flights.getvalue()}


def flights_figure(result: Flown) -> Figure:
    """Every flight in its own environment, as the tracker saw it."""
    count = len(result.flights)
    rows = ceil(count / ACROSS)
    figure = Figure(figsize=(1.15 * ACROSS, 3.1 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, ACROSS, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.axis("off")
    flown = zip(axes[:count], result.flights, result.paths, result.fields, strict=True)
    for number, (axis, flight, path, cylinders) in enumerate(flown, 1):
        draw_scene(axis, result.task, cylinders)
        good = flight.cost == 0
        axis.plot(*path.T, color=BLUE if good else ORANGE, lw=1.5)
        if not good and len(path):
            axis.plot(*path[-1], "x", color=ORANGE, ms=7, mew=2, zorder=5)
        x, y, _ = result.task.start
        axis.add_patch(Circle((x, y), result.task.robot_radius, color=DARK, zorder=4))
        axis.set_title(f"{number}" if good else f"{number}: {flight.end}", fontsize=8)
        axis.set_xticks([])
        axis.set_yticks([])
    handles = [
        Line2D([], [], color=BLUE, label="flown and landed"),
        Line2D([], [], color=ORANGE, marker="x", mew=2, label="failed"),
        Line2D([], [], color=GREY, marker="o", ls="", label="cylinder"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


# ---- a fit --------------------------------------------------------------------------------------


def draw_identified(found: IdentifiedModel, file: Path | BinaryIO) -> None:
    """Response and fit, residuals over time, their correlation and their quantiles."""
    if not found.responses:
        raise ValueError("a fit that was read from a file has no residuals to draw: fit it again")
    figure = Figure(figsize=(9.0, 8.4), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=(1.3, 1.0, 1.2))
    yaw = figure.add_subplot(grid[0, :])
    rest = figure.add_subplot(grid[1, :], sharex=yaw)
    _draw_time(found, yaw, rest)
    _draw_correlation(found, figure.add_subplot(grid[2, 0]))
    _draw_quantiles(found, figure.add_subplot(grid[2, 1]))
    for axis in figure.axes:
        axis.grid(alpha=0.3)
    verdict = "the model fits" if found.fits else "THE MODEL DOES NOT FIT"
    figure.suptitle(
        f"k_u = {found.k_u.value:.3f} ± {found.k_u.margin:.3f}, "
        f"k_p = {found.k_p.value:.4f} ± {found.k_p.margin:.4f} 1/s "
        f"(confidence {found.confidence}): {verdict}",
        fontsize=11,
        color=DARK if found.fits else ORANGE,
    )
    save_figure(figure, file)


def _draw_time(found: IdentifiedModel, yaw, rest) -> None:
    """All logs one after the other."""
    start = 0.0
    for i, response in enumerate(found.responses):
        t = start + response.time
        labels = ("measured", "fitted") if i == 0 else (None, None)
        yaw.plot(t, response.measured, ".", color=GREY, ms=2, label=labels[0])
        yaw.plot(t, response.fitted, color=BLUE, lw=1.2, label=labels[1])
        rest.plot(t, response.residuals, ".", color=BLUE, ms=2)
        if i:
            for axis in (yaw, rest):
                axis.axvline(start, color=DARK, lw=0.8, ls=":")
        start = float(t[-1])
    for times in (-2, 2):
        rest.axhline(times * found.noise, color=ORANGE, ls="--", lw=1)
    rest.axhline(0, color=DARK, lw=0.5)
    yaw.set(ylabel="yaw (rad)")
    several = "; dotted: the next log" if len(found.responses) > 1 else ""
    words = f"time (s); dashed: two standard deviations{several}"
    rest.set(xlabel=words, ylabel="measured less fitted (rad)")
    yaw.legend(frameon=False, fontsize=9)


def _draw_correlation(found: IdentifiedModel, axis) -> None:
    """Of residuals some samples apart, in the same log; the band holds 95 % of white noise's."""
    parts = [response.residuals for response in found.responses]
    power = max(sum(float(r @ r) for r in parts), 1e-300)
    lags = np.arange(1, min(LAGS, min(len(r) for r in parts) - 1) + 1)
    values = [sum(float(r[lag:] @ r[:-lag]) for r in parts) / power for lag in lags]
    axis.axhspan(-1.96 / found.samples**0.5, 1.96 / found.samples**0.5, color=ORANGE, alpha=0.2)
    axis.vlines(lags, 0, values, color=BLUE)
    axis.plot(lags, values, "o", color=BLUE, ms=3)
    axis.axhline(0, color=DARK, lw=0.5)
    reach = 1.15 * max(0.1, *map(abs, values))
    axis.set(ylim=(-reach, reach), xlabel="samples apart", ylabel="correlation of residuals")


def _draw_quantiles(found: IdentifiedModel, axis) -> None:
    """Residuals in order against those of normal noise: a straight line if it is normal."""
    residuals = np.sort(np.concatenate([response.residuals for response in found.responses]))
    expected = scipy.stats.norm.ppf((np.arange(len(residuals)) + 0.5) / len(residuals))
    axis.plot(expected, residuals, ".", color=BLUE, ms=2)
    ends = expected[[0, -1]]
    axis.plot(ends, found.noise * ends, color=ORANGE, lw=1)
    axis.set(xlabel="normal quantile", ylabel="residual (rad)")
