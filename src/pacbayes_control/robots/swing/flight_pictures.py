"""Pictures of flights: where each went among its cylinders, and how it ended."""

from __future__ import annotations

from io import BytesIO
from math import ceil

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from pacbayes_control.report.pictures import BLUE, DARK, GREY, ORANGE
from pacbayes_control.robots.planar.pictures import draw_rollouts, draw_scene
from pacbayes_control.robots.swing.experiment import Flown
from pacbayes_control.tasks import Environments

ACROSS = 10  # flights in a row


def attachments(result: Flown, environments: Environments) -> dict[str, bytes]:
    """Pictures of the arena with simulated rollouts, and of the flights, for the run's folder."""
    rollouts, flights = BytesIO(), BytesIO()
    draw_rollouts(result.task, result.run, environments, rollouts)
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
