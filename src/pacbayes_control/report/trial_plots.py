"""Plots of trials: every policy, and two of them compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from pacbayes_control.certify.trials import Trials
from pacbayes_control.report.axes import legend_above, new_figure, short
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE, save_figure
from pacbayes_control.report.plots import SHOWN
from pacbayes_control.report.running import Running, evidence
from pacbayes_control.trials.choosing import Choice
from pacbayes_control.trials.comparing import Comparison
from pacbayes_control.trials.plans.environments import EnvironmentsNeeded
from pacbayes_control.trials.ranking import Ranking

POINTS = 1500  # of a scatter
COLUMNS = 8  # of a ranking that are numbered
LOWEST = -6.0  # log₁₀ of an e-value: those below are not drawn
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_policies(choice: Choice, file: Path | BinaryIO) -> None:
    """The mean cost, the usual interval and the certified bound of each policy."""
    rows = choice.by_bound[:SHOWN]
    figure, axis = new_figure(1.15 + 0.4 * len(rows))
    for place, row in enumerate(rows):
        colour = BLUE if row.name == choice.chosen else GREY
        low, high = row.usual_interval
        axis.plot([low, high], [place - 0.14] * 2, color=ORANGE, lw=5, alpha=0.6, zorder=2)
        axis.plot(row.mean, place - 0.14, "o", mfc="white", color=DARK, ms=5, zorder=3)
        if not math.isfinite(row.bound):  # it is not known: see `trials.choice_of`
            continue
        axis.plot([row.mean, row.bound], [place + 0.14] * 2, color=colour, lw=2.5, zorder=2)
        axis.plot(row.bound, place + 0.14, "|", color=colour, ms=13, mew=3, zorder=3)
    names = [short(row.name) + (" ★" if row.name == choice.chosen else "") for row in rows]
    axis.set_yticks(range(len(rows)), names, parse_math=False)
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, None))
    what = "mean cost" if choice.trials.graded else "failure rate"
    words = f"○ {what}   ▬ usual interval   ┃ certified, at most"
    figure.supxlabel(words, fontsize="medium")
    if not choice.trials.graded:
        axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.grid(axis="x", alpha=0.3)
    save_figure(figure, file)


# ---- comparisons --------------------------------------------------------------------------------


def draw_evidence(comparison: Comparison, file: Path | BinaryIO) -> None:
    """The e-values of both directions after each pair, and the value that decides."""
    pairs, better, worse = evidence(comparison)
    figure, axis = new_figure(3.1)
    for path, colour, words in (
        (better, BLUE, f"{short(comparison.a)} is better"),
        (worse, ORANGE, f"{short(comparison.b)} is better"),
    ):
        axis.plot(pairs, np.maximum(path, LOWEST), color=colour, lw=1.6, label=plain(words))
    needed = float(np.log10(comparison.needed))
    label = f"decides: {comparison.needed:g}"
    axis.axhline(needed, color=DARK, ls="--", lw=1.2, label=label)
    if comparison.decided_after is not None:
        path = better if comparison.verdict == "better" else worse
        height = float(path[np.searchsorted(pairs, comparison.decided_after)])
        mark = f"decided after {comparison.decided_after:,}"
        axis.plot(comparison.decided_after, height, "o", color=GREEN, ms=8, label=mark, zorder=4)
    axis.set(xlabel="pairs of trials", ylabel="e-value", xlim=(0, None))
    top = max(needed, float(better.max()), float(worse.max()))
    bottom = max(LOWEST, min(0.0, float(better.min()), float(worse.min())))
    axis.set_ylim(bottom - 0.04 * (top - bottom), top + 0.08 * (top - bottom))
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(_power))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def _power(exponent: float, _: Any) -> str:
    """A power of ten, in letters that every font has."""
    return "1" if exponent == 0 else "10" + f"{exponent:.0f}".translate(SUPERSCRIPTS)


def plain(words: str) -> str:
    """A label without mathematics, which Matplotlib would read between two dollar signs."""
    return words.replace("$", r"\$")


def draw_difference(comparison: Comparison, running: Running, file: Path | BinaryIO) -> None:
    """The mean difference and its limits against the number of pairs."""
    figure, axis = new_figure(3.1)
    pairs, marker = running.pairs, "o" if len(running.pairs) < 3 else None
    axis.fill_between(pairs, running.low, running.high, color=BLUE, alpha=0.2, label="limits")
    axis.plot(pairs, running.mean, color=BLUE, marker=marker, label="mean difference")
    axis.axhline(0, color=DARK, lw=1)
    for side in (-1, 1) if comparison.margin else ():
        label = "margin" if side > 0 else None
        axis.axhline(side * comparison.margin, color=DARK, ls=":", lw=1.2, label=label)
    if comparison.decided_after is not None:
        axis.axvline(comparison.decided_after, color=GREEN, lw=1.2, label="decided")
    axis.set(xlabel="pairs of trials", ylabel="cost of B less that of A")
    settled = slice(len(pairs) // 10, None)  # the first limits say little, and would fill the plot
    least = min(float(running.low[settled].min()), -comparison.margin)
    most = max(float(running.high[settled].max()), comparison.margin)
    axis.set_ylim(least - 0.08 * (most - least), most + 0.08 * (most - least))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def draw_scatter(comparison: Comparison, trials: Trials, file: Path | BinaryIO) -> None:
    """The cost of B against that of A in each environment."""
    pairs = comparison.pairs.trials
    pairs = pairs[:: max(1, -(-len(pairs) // POINTS))]
    of_a, of_b = trials.costs[pairs].T
    figure, axis = new_figure(3.6)
    axis.plot([0, 1], [0, 1], color=DARK, ls=":", lw=1)
    alpha = 0.8 if len(pairs) <= 100 else 0.35
    axis.plot(of_a, of_b, "o", color=BLUE, ms=4.5, mew=0, alpha=alpha)
    axis.set(xlim=(-0.02, 1.02), xlabel="cost of A", ylim=(-0.02, 1.02), ylabel="cost of B")
    axis.grid(alpha=0.3)
    save_figure(figure, file)


def choice_plots(choice: Choice) -> dict[str, Callable[[Path | BinaryIO], None]]:
    """The plots of a choice by name, each a function of the file to write."""
    return {"policies": partial(draw_policies, choice)}


# ---- rankings and plans -------------------------------------------------------------------------


def draw_ranking(ranking: Ranking, file: Path | BinaryIO) -> None:
    """Which policy, by row, is certified to be better or worse than which, by column.

    Rows and columns are numbered alike: there is no room for names above each other.
    """
    names = [f"{short(name)}  {place}" for place, name in enumerate(ranking.policies, 1)]
    size = len(names)
    figure, axis = new_figure(1.6 + 0.32 * size)
    better = ranking.better.astype(int)
    colours = ListedColormap([ORANGE, "#e4e4e4", BLUE])
    shown = np.ma.masked_array(better - better.T, np.eye(size, dtype=bool))
    axis.imshow(shown, cmap=colours, vmin=-1, vmax=1, aspect="auto")
    mean = "mean cost" if ranking.graded else "failure rate"
    rows = zip(ranking.means, names, strict=True)
    axis.set_yticks(range(size), [f"{cost:.3f}  {name}" for cost, name in rows], parse_math=False)
    numbered = range(0, size, -(-size // COLUMNS))
    axis.set_xticks(numbered, [f"{place + 1}" for place in numbered])
    axis.set_xticks(np.arange(size - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(size - 1) + 0.5, minor=True)
    axis.grid(which="minor", color="white", lw=2)
    axis.tick_params(which="both", length=0)
    figure.supxlabel(f"{mean}, policy; columns are numbered as rows", fontsize="medium")
    legend = {"better": BLUE, "worse": ORANGE, "not told apart": "#e4e4e4"}
    patches = [Patch(color=colour, label=words) for words, colour in legend.items()]
    legend_above(axis, handles=patches)
    save_figure(figure, file)


def draw_power(
    curve: Callable[[NDArray[np.intp]], NDArray[np.float64]],
    needed: EnvironmentsNeeded,
    file: Path | BinaryIO,
) -> None:
    """The probability of a promise against the number of environments.

    curve: the probability for each of these numbers
    """
    numbers = np.unique(np.rint(np.linspace(2, 2 * needed.environments, 400)).astype(np.intp))
    figure, axis = new_figure(3.1)
    axis.plot(numbers, curve(numbers), color=BLUE, lw=1.4)
    mark = f"{needed.environments:,} environments"
    axis.plot(needed.environments, needed.power, "o", color=GREEN, ms=8, label=mark)
    axis.set(xlabel="environments", ylabel="probability of the promise", ylim=(0, 1.03))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)
