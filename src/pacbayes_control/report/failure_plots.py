"""Plots of failures: parameters by importance, the cost against each, and against two at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import interval_ends, quoted
from pacbayes_control.report.pictures import BLUE, DARK, GREY, ORANGE, save_figure
from pacbayes_control.report.plots import SHOWN, legend_above, new_figure, short
from pacbayes_control.report.summary import WORST
from pacbayes_control.study.bins import OTHERS, Bin, Groups, Pair, numerals
from pacbayes_control.study.failures import (
    MEANING,
    SHARED,
    Failures,
    described_environments,
    failures_of,
)
from pacbayes_control.study.importance import Ranking
from pacbayes_control.tasks import Task

COLUMNS = 8  # parameters in the page's table of the hardest environments
PARAMETERS = 6  # that the page has a plot for
PAIRS = 6  # of parameters, that the page has a map for
LETTERS = 40  # of all labels side by side under a map
DARKEST = 0.55  # of the cells: the letters in them must be legible on a dark screen too
RANKING = "failures-ranking"

Draw = Callable[[Path | BinaryIO], None]


def failure_section(run: Run[Any], task: Task | None) -> dict[str, Any]:
    """The values and plots of the section of a page; no failures where nothing is known of them.

    task: to describe the environments of a run that does not; None: the one in its record
    """
    described = {}
    with suppress(ValueError):  # of a task that is of other environments, or cannot describe them
        described, _ = described_environments(run, task)
    if not described:
        return {"failures": None}
    found = failures_of(run, described)
    plots = failure_plots(found, PARAMETERS, PAIRS)
    names = [name for name in plots if name != RANKING]
    singles = [f"Mean cost against {quoted(name)}, with intervals" for name in found.bins]
    pairs = [
        f"Map of the mean cost by {quoted(pair.across.name)} and {quoted(pair.down.name)}"
        for pair in found.pairs[:PAIRS]
    ]
    return {
        "failures": found,
        "failure_plots": plots,
        "failure_figures": list(zip(names, [*singles[:PARAMETERS], *pairs], strict=True)),
        "failures_shown": found.worst(WORST),
        "failure_columns": found.columns[:COLUMNS],
        "FAILURE_WORDS": (MEANING, SHARED),
    }


def failure_plots(
    failures: Failures, most: int | None = None, pairs: int | None = None
) -> dict[str, Draw]:
    """The plots by name, each a function of its file; the parameters that explain most first.

    Args:
        failures: to draw
        most: parameters with a plot of their own; None for all
        pairs: of parameters with a map; None for all
    """
    plots: dict[str, Draw] = {}
    if failures.ranking is not None:
        plots[RANKING] = partial(draw_importance, failures.ranking)
    for number, name in enumerate(list(failures.bins)[:most], 1):
        mean = float(failures.costs.mean())
        draw = partial(draw_bins, failures.groups[name], failures.bins[name], mean)
        plots[f"failures-{number}-{_slug(name)}"] = draw
    for number, pair in enumerate(failures.pairs[:pairs], 1):
        names = f"{_slug(pair.across.name)}-{_slug(pair.down.name)}"
        plots[f"failures-pair-{number}-{names}"] = partial(draw_pair, pair)
    return plots


def _slug(name: str) -> str:
    """A name as a part of the name of a file, wherever it comes from."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:24] or "parameter"


def draw_importance(ranking: Ranking, file: Path | BinaryIO) -> None:
    """How much each parameter explains, with its spread over the fits, and what noise reaches."""
    rows = ranking.parameters[:SHOWN]
    figure, axis = new_figure(1.15 + 0.3 * len(rows))
    for place, row in enumerate(rows):
        colour = BLUE if row.explains else GREY
        axis.barh(place, max(row.share, 0.0), color=colour, height=0.62)
        ends = [max(row.share - row.spread, 0.0), max(row.share + row.spread, 0.0)]
        axis.plot(ends, [place, place], color=DARK, lw=1.2)
    axis.axvline(ranking.noise, color=ORANGE, ls="--", lw=1.2, label="reached by noise")
    axis.set_yticks(range(len(rows)), [short(row.name) for row in rows], parse_math=False)
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(5))
    figure.supxlabel("fall of R² where its values are exchanged", fontsize="medium")
    axis.grid(axis="x", alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def draw_bins(groups: Groups, bins: tuple[Bin, ...], mean: float, file: Path | BinaryIO) -> None:
    """The mean cost by the values of one parameter, with intervals; mean: of all environments."""
    if groups.kind == "words":
        _draw_words(groups, bins, mean, file)
        return
    figure, axis = new_figure(2.9)
    for number, row in enumerate(bins):
        low, high = groups.edges[number : number + 2]
        middle = (low + high) / 2
        axis.plot([low, high], [row.mean] * 2, color=BLUE, lw=2.5, solid_capstyle="butt")
        axis.plot([middle] * 2, [row.low, row.high], color=BLUE, lw=1.2)
        axis.plot(middle, row.mean, "o", color=BLUE, ms=4)
    axis.axhline(mean, color=DARK, ls=":", lw=1.2, label=f"all environments: {mean:.3f}")
    axis.set_xlabel(short(groups.name), parse_math=False)
    axis.set(ylim=(-0.03 * _top(bins), _top(bins)), ylabel="mean cost")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.tick_params(pad=6)
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def _draw_words(groups: Groups, bins: tuple[Bin, ...], mean: float, file: Path | BinaryIO) -> None:
    """The same for words and few values, one line each."""
    figure, axis = new_figure(1.2 + 0.32 * len(bins))
    for place, row in enumerate(bins):
        axis.plot([row.low, row.high], [place, place], color=BLUE, lw=1.2)
        axis.plot(row.mean, place, "o", color=BLUE, ms=5)
    axis.axvline(mean, color=DARK, ls=":", lw=1.2, label=f"all environments: {mean:.3f}")
    axis.set_yticks(range(len(bins)), [short(row.label) for row in bins], parse_math=False)
    axis.set(
        ylim=(len(bins) - 0.4, -0.6), xlim=(-0.02 * _top(bins), _top(bins)), xlabel="mean cost"
    )
    axis.set_ylabel(short(groups.name), parse_math=False)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.grid(axis="x", alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)


def _top(bins: tuple[Bin, ...]) -> float:
    return min(1.02, 1.1 * max(row.high for row in bins))


def draw_pair(pair: Pair, file: Path | BinaryIO) -> None:
    """A map of mean costs by two parameters, with intervals."""
    down, across = pair.means.shape
    places, labels = _ticks(pair.across)
    upright = len(labels) * max(map(len, labels)) > LETTERS  # they would not fit side by side
    figure, axis = new_figure(1.1 + 0.44 * down + 0.6 * upright)
    highest = max(float(np.nanmax(pair.means, initial=0.0)), 1e-9)
    for row, column in np.ndindex(down, across):
        mean = float(pair.means[row, column])
        if np.isnan(mean):
            continue
        ends = interval_ends(float(pair.low[row, column]), float(pair.high[row, column]), 2)
        share = DARKEST * mean / highest
        cell = Rectangle((column, row), 1, 1, facecolor=ORANGE, alpha=share, lw=0)
        axis.add_patch(cell)
        axis.text(column + 0.5, row + 0.57, f"{mean:.2f}", ha="center", va="bottom", fontsize=9)
        axis.text(
            column + 0.5,
            row + 0.45,
            " – ".join(ends),
            ha="center",
            va="top",
            fontsize=6.5,
        )
    axis.set(xlim=(0, across), ylim=(0, down))
    rotation = 90 if upright else 0
    axis.set_xticks(places, labels, fontsize=9, parse_math=False, rotation=rotation)
    axis.set_yticks(*_ticks(pair.down), fontsize=9, parse_math=False)
    axis.set_xlabel(short(pair.across.name), parse_math=False)
    axis.set_ylabel(short(pair.down.name), parse_math=False)
    axis.tick_params(pad=6)
    axis.set_xticks(range(across + 1), minor=True)
    axis.set_yticks(range(down + 1), minor=True)
    axis.grid(which="minor", color=GREY, alpha=0.5, lw=0.6)
    axis.tick_params(which="minor", length=0)
    save_figure(figure, file)


def _ticks(groups: Groups) -> tuple[NDArray, list[str]]:
    """Places and labels: numbers at the borders of ranges, words in the middle of other groups."""
    if groups.kind == "numbers":
        return np.arange(len(groups.edges)), numerals(groups.edges, 3)
    words = [_cut("others" if label == OTHERS else short(label)) for label in groups.labels]
    return np.arange(len(words)) + 0.5, words


def _cut(label: str) -> str:
    return label if len(label) <= 9 else label[:8] + "…"
