"""Plots of a run, as its page shows them, and of a monitor: SVG, PDF or PNG by the suffix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from pacbayes_control.bounds.sequential import confidence_sequence
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import Curve, curve
from pacbayes_control.certify.text import round_down, shown
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn.until import bounds_on_the_way
from pacbayes_control.report.axes import (
    few_ticks,
    labelled_bars,
    legend_above,
    new_figure,
    short,
)
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE, save_figure
from pacbayes_control.report.projection import project, why_no_projection
from pacbayes_control.report.sections import gaussian_moves, side_by_side
from pacbayes_control.report.simulation import draw_simulation
from pacbayes_control.report.summary import distribution_function, environment_costs, likeliest

SHOWN = 12  # policies with a bar of their own
UNTIL = "bound-as-environments-were-added"  # a plot of runs that ended by their bound

PlotFormat = Literal["svg", "pdf", "png"]


def draw_methods(run: Run[Any], file: Path | BinaryIO) -> None:
    """The bounds of every method that applies, from the training cost up."""
    methods, why_not = side_by_side(run)
    if not methods:
        raise ValueError(f"there is nothing to compare: {why_not}")
    figure, axis = new_figure(0.9 + 0.34 * len(methods))
    for place, c in enumerate(methods):
        colour = BLUE if c is run.certificate else GREY
        axis.plot([c.empirical_cost, c.bound], [place, place], color=colour, lw=2.5, zorder=2)
        axis.plot(c.empirical_cost, place, "o", mfc="white", color=colour, ms=6, zorder=3)
        axis.plot(c.bound, place, "|", color=colour, ms=15, mew=3, zorder=3)
    labels = [c.method + (" (this run)" if c is run.certificate else "") for c in methods]
    axis.set_yticks(range(len(methods)), labels)
    axis.set(ylim=(len(methods) - 0.5, -0.6), xlim=(0, None))
    figure.supxlabel("○ observed cost    ┃ bound on the expected cost", fontsize="medium")
    axis.grid(axis="x", alpha=0.3)
    save_figure(figure, file)


def draw_posterior(run: Run[Any], file: Path | BinaryIO) -> None:
    """The shares and costs of the likeliest policies; or how far a Gaussian has moved."""
    if isinstance(run.posterior, DiagonalGaussian):
        _draw_gaussian(run, file)
        return
    shares, prior = run.posterior.probabilities, run.prior.probabilities
    top = likeliest(run)[:SHOWN]
    height = 1.0 + 0.27 * len(top)
    figure, (left, right) = new_figure(height, 1, 2, sharey=True, width_ratios=(3, 2))
    places = np.arange(len(top))
    left.barh(places, shares[top], color=BLUE, height=0.62, label="posterior")
    left.plot(prior[top], places, "|", color=DARK, ms=10, mew=2, label="prior", ls="")
    left.set_yticks(places, [short(run.costs.name(int(i))) for i in top], parse_math=False)
    left.set(ylim=(len(top) - 0.4, -0.6), xlim=(0, None), xlabel="share ( | of the prior)")
    left.xaxis.set_major_locator(MaxNLocator(3))
    left.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    right.plot(run.costs.means[top], places, "o", color=ORANGE, ms=5)
    right.axvline(run.certificate.empirical_cost, color=DARK, ls=":", lw=1)
    widest = max(0.02, float(run.costs.means[top].max()) * 1.15)
    right.set(xlim=(0, widest), xlabel="mean cost")
    right.xaxis.set_major_locator(MaxNLocator(2))
    right.xaxis.set_major_formatter("{x:.4g}")
    for axis in (left, right):
        axis.grid(axis="x", alpha=0.3)
    save_figure(figure, file)


def _draw_gaussian(run: Run[DiagonalGaussian], file: Path | BinaryIO) -> None:
    moved, widths = gaussian_moves(run)
    figure, axis = new_figure(3.0)
    axis.axvline(0, color=DARK, ls=":", lw=1)
    axis.axhline(1, color=DARK, ls=":", lw=1)
    alpha = 0.8 if len(moved) <= 50 else 0.3
    axis.plot(moved, widths, "o", color=BLUE, ms=5, mew=0, alpha=alpha, label="a parameter")
    axis.plot(0, 1, "+", color=ORANGE, ms=13, mew=2.5, label="the prior", zorder=3)
    reach = max(0.1, float(np.abs(moved).max()) * 1.15)
    height = max(0.1, float(np.abs(widths - 1).max()) * 1.25)
    axis.set(xlim=(-reach, reach), xlabel="mean moved by (standard deviations of the prior)")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set(ylim=(1 - height, 1 + height), ylabel="width, relative to the prior's")
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def draw_environment_costs(run: Run[Any], file: Path | BinaryIO) -> None:
    """A histogram of the mean cost of environments under the posterior."""
    figure, axis = new_figure(2.7)
    values, c = environment_costs(run), run.certificate
    counts, edges = np.histogram(values, bins=20, range=(0, 1))
    axis.bar(edges[:-1], counts, width=0.05, align="edge", color=BLUE, ec="white", lw=0.8)
    tallest = counts.max()
    for bar in labelled_bars(counts):
        middle, height = edges[bar] + 0.025, counts[bar] + tallest * 0.02
        axis.text(middle, height, f"{counts[bar]:,}", ha="center", fontsize=8)
    mean = f"mean {c.empirical_cost:.4f}"
    axis.axvline(c.empirical_cost, 0.12, color=DARK, ls=":", lw=1.2, label=mean)  # above small bars
    legend_above(axis)
    axis.set(xlim=(-0.01, 1.01), xlabel="mean cost in an environment")
    axis.set(ylim=(0, tallest * 1.1), ylabel="environments")
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    save_figure(figure, file)


def draw_bound_against_environments(run: Run[Any], file: Path | BinaryIO) -> None:
    """The bound as it would be with other numbers of environments, all else being equal."""
    c = run.certificate
    if why_not := why_no_projection(c):
        raise ValueError(why_not)
    projection = project(run)
    figure, axis = new_figure(3.0)
    axis.plot(projection.environments, projection.bounds, color=BLUE, ls="--", label="projection")
    axis.axhline(projection.limit, color=DARK, ls=":", lw=1.2, label="never below this")
    axis.plot(c.environments, c.bound, "o", color=ORANGE, ms=7, label="this certificate")
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.minorticks_off()
    axis.set(xlabel="environments, N", ylabel="expected cost, at most")
    axis.set_ylim(0, min(1.0, max(projection.bounds) * 1.05))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def draw_bound_as_environments_were_added(run: Run[Any], file: Path | BinaryIO) -> None:
    """The bound at each number of environments, until it was as small as was asked for."""
    c = run.certificate
    if c.until is None:
        raise ValueError("environments were not added until a bound was reached")
    numbers, bounds = bounds_on_the_way(run)
    figure, axis = new_figure(3.0)
    axis.plot(numbers, bounds, "o-", color=BLUE, ms=3.5, lw=1.2, label="bound")
    axis.axhline(c.until, color=DARK, ls=":", lw=1.2, label=f"asked for, {c.until:.12g}")
    axis.plot(numbers[-1], bounds[-1], "o", color=ORANGE, ms=7, label="this certificate")
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xticks(few_ticks(numbers))
    axis.minorticks_off()
    axis.set(xlabel="environments, N", ylabel="expected cost, at most")
    axis.set_ylim(0, min(1.0, max(*bounds, c.until) * 1.08))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def draw_shift(run: Run[Any], file: Path | BinaryIO) -> None:
    """The guarantee against the size of a shift of the world, as `pbc shift` draws it."""
    c = run.certificate
    certified = certified_point(c) if c.ball and c.ball.divergence == "kl" else None
    with rc_context({"font.size": 12}):  # the picture is wider than the others here
        draw_curve(curve(c), file, certified)


def certified_point(c: Certificate) -> tuple[float, float] | None:
    """The radius and the bound of a certificate in a ball; of a quantile, the share above it."""
    if c.ball is None:
        return None
    return c.ball.radius, c.bound if c.most_above is None else c.most_above


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
        side = "right" if curve.tolerable > max(curve.radii) / 2 else "left"
        axis.annotate(f" B = {round_down(curve.tolerable)} ", (curve.tolerable, 0.02), ha=side)
    if certified:
        axis.plot(*certified, "o", color=GREEN, label=f"certified, B = {round_down(certified[0])}")
    axis.set(xlabel=f"shift: {Ball(curve.divergence, 0.0).symbol} ≤ B", xlim=(0, None))
    what = "expected cost, at most"
    if curve.above is not None:
        what = f"share that costs more than {shown(curve.above)}, at most"
    axis.set(ylabel=what, ylim=(0, 1.02))
    axis.tick_params(pad=7)  # between the two zeros
    axis.grid(alpha=0.3)
    legend_above(axis, fontsize="medium")
    save_figure(figure, file)


def draw_monitor(monitor: Monitor, path: Path) -> None:
    """The evidence over time, and the cost as deployed against the promise."""
    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    costs, evidence = figure.subplots(2, 1, sharex=True)
    n, total, log_e = np.array(monitor.history, float).T
    low, high = confidence_sequence(total, n, monitor.alpha)
    bound, marker = monitor.bound, "o" if len(n) < 3 else None
    above = None if monitor.above is None else f"share above {shown(monitor.above)}"
    costs.fill_between(n, low, high, color=BLUE, alpha=0.2, label="confidence sequence")
    costs.plot(n, total / n, color=BLUE, marker=marker, label=above or "mean cost")
    costs.axhline(bound, color=ORANGE, ls="--", label=f"promised, {shown(bound)}")
    costs.set(ylim=(0, 1), ylabel="share as deployed" if above else "cost as deployed")
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


def draw_distribution(run: Run[Any], file: Path | BinaryIO) -> None:
    """The distribution function of the policy's cost: as recorded, and as certified."""
    function = distribution_function(run)
    if function is None:
        raise ValueError("the certificate has no distribution function: no share of δ pays for it")
    figure, axis = new_figure(3.0)
    # From no environment at a cost of 0 to all of them at a cost of 1.
    costs = np.concatenate([[0.0], function.costs, [1.0]])
    for values, colour, label in (
        (function.observed, GREY, "recorded"),
        (1 - function.above, BLUE, "certified, at least"),
    ):
        shares = np.concatenate([[0.0], values, [1.0]])
        axis.plot(costs, shares, color=colour, drawstyle="steps-post", label=label)
    axis.set(xlim=(-0.01, 1.01), xlabel="cost")
    axis.set(ylim=(0, 1.02), ylabel="share that costs at most this")
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


PLOTS: dict[str, Callable[[Run[Any], Path | BinaryIO], None]] = {
    "simulation": draw_simulation,
    "methods": draw_methods,
    "posterior": draw_posterior,
    "environment-costs": draw_environment_costs,
    "distribution": draw_distribution,
    "bound-against-environments": draw_bound_against_environments,
    UNTIL: draw_bound_as_environments_were_added,
    "shift": draw_shift,
}


def write_plots(run: Run[Any], folder: Path, suffix: PlotFormat = "svg") -> list[Path]:
    """Every plot of a run as a file; without those that have nothing to show."""
    return write_all(plots_of_run(run), folder, suffix)


def plots_of_run(run: Run[Any]) -> dict[str, Callable[[Path | BinaryIO], None]]:
    """The plots of a run that have something to show, each a function of the file to write."""
    c = run.certificate
    absent = {
        "simulation": c.simulation is None,
        "methods": not side_by_side(run)[0],
        "posterior": c.candidates is not None,
        "distribution": c.margin is None,
        "bound-against-environments": bool(why_no_projection(c)),
        UNTIL: c.until is None,
        "shift": c.statistic.kind == "cvar",
    }
    names = [name for name in PLOTS if not absent.get(name)]
    return {name: partial(PLOTS[name], run) for name in names}


def write_all(
    plots: Mapping[str, Callable[[Path], None]], folder: Path, suffix: PlotFormat
) -> list[Path]:
    """Plots as files of their names; each is a function of its file."""
    if suffix not in get_args(PlotFormat):
        raise ValueError(f"plots are written as svg, pdf or png, not as {suffix!r}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in plots.items():
        draw(folder / f"{name}.{suffix}")
    return [folder / f"{name}.{suffix}" for name in plots]
