"""The plot of a sweep: bound and estimated true cost against the first field that is a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from pacbayes_control.report.axes import new_figure, short
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE, save_figure
from pacbayes_control.report.trial_plots import plain
from pacbayes_control.study.sweep import Sweep, shown

COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", GREY, "#56b4e9", DARK, "#e69f00")
MARKERS = "osD^vP"  # of the next colours, so that a colour that comes again has another
SYMBOLS = {"environments": "N", "delta": "δ"}
MOST_LINES = 24
LONGEST = 40  # letters of all labels of the axis that stand upright
ROOM = 0.13  # between two labels of the axis, as a part of it
LONG_LEGEND = 26  # letters of a label, up to which two stand side by side


def draw_sweep(sweep: Sweep, file: Path | BinaryIO) -> None:
    """Bound ± one standard deviation, and true cost ± its standard error; a line for each rest.

    The rest of a row is the values of the other fields. Where no field is a number, the first one
    has a place on the axis for each of its values.
    """
    along = next((name for name in sweep.swept if _numeric(sweep, name)), sweep.swept[0])
    values = list(dict.fromkeys(row[along] for row in sweep.rows))
    numeric = _numeric(sweep, along)
    if numeric:
        values.sort()
    places = np.array(values, float) if numeric else np.arange(len(values), dtype=float)
    lines: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    others = [name for name in sweep.swept if name != along]
    for row in sorted(sweep.rows, key=lambda row: values.index(row[along])):
        lines.setdefault(tuple(_words(name, row[name]) for name in others), []).append(row)
    drawn, left = dict(list(lines.items())[:MOST_LINES]), max(0, len(lines) - MOST_LINES)
    labels = [", ".join(words) for words in drawn] if others else []
    columns = 2 if max(map(len, labels), default=0) <= LONG_LEGEND else 1
    figure, axis = new_figure(3.1 + 0.2 * (-(-len(labels) // columns) + (left > 0)))
    for number, rows in enumerate(drawn.values()):
        x = places[[values.index(row[along]) for row in rows]]
        if not numeric:  # beside each other: places of words are 1 apart
            x = x + 0.8 * ((number + 0.5) / len(drawn) - 0.5)
        _draw_line(axis, x, rows, number, joined=numeric)
    labelled = _label_numbers if numeric else _label_words
    labelled(axis, places, [_tick(value) for value in values])
    axis.set(xlabel="environments, N" if along == "environments" else along, ylabel="cost")
    axis.set_ylim(0, min(1.02, max(row["bound"] + row["bound_sd"] for row in sweep.rows) * 1.08))
    axis.grid(alpha=0.3)
    _add_legend(axis, labels, columns, left, joined=numeric)
    save_figure(figure, file)


def _numeric(sweep: Sweep, name: str) -> bool:
    values = [row[name] for row in sweep.rows]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _words(name: str, value: Any) -> str:
    """A value for a legend: words stand alone, numbers with the name of their field."""
    text = short(shown(value))
    symbol = SYMBOLS.get(name, name.removeprefix("task."))
    return text if isinstance(value, str) else f"{symbol} = {text}"


def _tick(value: Any) -> str:
    return short(f"{value:.4g}" if isinstance(value, float) else shown(value))


def _draw_line(axis: Any, x: Any, rows: list[dict[str, Any]], number: int, *, joined: bool) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], _marker(number)
    names = "bound", "bound_sd", "true_cost", "true_cost_se"
    bound, sd, truth, error = (np.array([row[name] for row in rows]) for name in names)
    dots: Any = {"color": colour, "marker": marker, "ms": 5, "mfc": "white"}
    if joined and len(x) > 1:
        axis.fill_between(x, bound - sd, bound + sd, color=colour, alpha=0.15, lw=0)
        axis.plot(x, bound, color=colour, lw=1.6, marker=".")
        axis.errorbar(x, truth, error, lw=1, ls=":", elinewidth=0.8, **dots)
        return
    axis.errorbar(x, bound, sd, color=colour, fmt="_", ms=9, mew=2, capsize=3, lw=1.2)
    axis.errorbar(x, truth, error, ls="", elinewidth=0.8, **dots)


def _marker(number: int) -> str:
    return MARKERS[number // len(COLOURS) % len(MARKERS)]


def _label_numbers(axis: Any, places: Any, labels: list[str]) -> None:
    """Label the values that have room beside each other, beginning with the last one.

    The axis is logarithmic for numbers that differ by a factor of three or more.
    """
    log = bool(places.min() > 0 and places.max() >= 3 * places.min())
    if log:
        axis.set_xscale("log")
    scaled = np.log(places) if log else places
    width, kept = float(np.ptp(scaled)) or 1.0, []
    room = ROOM * max(1.0, max(map(len, labels)) / 6)  # for six letters, or more
    for number in reversed(range(len(places))):
        if not kept or (scaled[kept[-1]] - scaled[number]) / width >= room:
            kept.append(number)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(places[kept], [labels[number] for number in kept])


def _label_words(axis: Any, places: Any, labels: list[str]) -> None:
    """Label every value, aslant where they are long."""
    aslant: Any = {"rotation": 30, "ha": "right"} if sum(map(len, labels)) > LONGEST else {}
    axis.set_xticks(places, labels, parse_math=False, **aslant)
    axis.set_xlim(-0.5, len(places) - 0.5)


def _add_legend(axis: Any, labels: list[str], columns: int, left: int, *, joined: bool) -> None:
    """A legend above the plot: the lines, then what is solid and what is dotted."""
    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=_marker(i), mfc="white", ms=5)
        for i in range(len(labels))
    ]
    bound: Any = {"lw": 1.6, "marker": "."} if joined else {"lw": 0, "marker": "_", "mew": 2}
    truth: Any = {"ls": ":" if joined else "", "marker": "o", "mfc": "white", "ms": 5}
    handles += [Line2D([], [], color=DARK, **bound), Line2D([], [], color=DARK, **truth)]
    words = [*map(plain, labels), "bound, ± s.d.", "true cost, ± s.e."]
    if left:
        handles.append(Line2D([], [], lw=0))
        words.append(f"{left:,} more lines are not drawn")
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False, "fontsize": 9}
    axis.legend(handles, words, ncols=columns, **place)
