"""Pictures of a world that shifts: the bound against the shift, and a monitor's evidence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.figure import Figure

from pacbayes_control.bounds.sequential import confidence_sequence
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.shift import Curve
from pacbayes_control.certify.text import round_down
from pacbayes_control.deploy.monitor import Monitor, shown
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, ORANGE, save_figure


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
    axis.set(xlabel=f"shift: {Ball(curve.divergence, 0.0).symbol} ≤ B", xlim=(0, None))
    axis.set(ylabel="expected cost, at most", ylim=(0, 1.02))
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
    costs.set(ylim=(0, 1), ylabel="cost as deployed")
    costs.legend(frameon=False, fontsize=9)
    evidence.plot(n, log_e / math.log(10), color=DARK, marker=marker, label="e-value")
    threshold = -math.log10(monitor.alpha)
    evidence.axhline(threshold, color=ORANGE, ls="--", label=f"alarm, 1/α = {1 / monitor.alpha:g}")
    if monitor.alarm_at is not None:
        evidence.axvline(monitor.alarm_at, color=ORANGE, lw=1)
    evidence.set(ylabel="log₁₀ of the e-value", xlabel="outcomes")
    evidence.legend(frameon=False, fontsize=9)
    for axis in (costs, evidence):
        axis.grid(alpha=0.3)
    costs.set_title(monitor.report().verdict, fontsize=11)
    save_figure(figure, path)
