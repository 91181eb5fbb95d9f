"""The table and the figure of a sweep, with its own caption."""

from __future__ import annotations

from functools import partial

from pacbayes_control.report.exports import Cell, Export, Plot, Table
from pacbayes_control.report.latex import Column, Kind
from pacbayes_control.report.sweep_plots import SYMBOLS, draw_sweep
from pacbayes_control.study.sweep import CHOICE, Sweep

# The figures in the order of `Sweep.cells`, with names that are short: pages are narrow.
UNDER = {
    "draws": "draws",
    "bound": "bound",
    "bound_sd": "± s.d.",
    "empirical_cost": "training",
    "true_cost": "true",
    "true_cost_se": "± s.e.",
    "below_truth": "too low",
}
COLUMNS = (
    "Training and true are mean costs, the latter with the standard error of its estimate; too low "
    "counts draws whose bound is below that estimate."
)


def sweep_export(sweep: Sweep, name: str) -> Export:
    """The rows of a sweep, and its plot.

    Args:
        sweep: as read from its folder; no certificate proves its figures
        name: for file names and labels, from `exports.file_names`
    """
    keys = [*sweep.swept, *UNDER]
    if len({row["draws"] for row in sweep.rows}) == 1:  # which the caption has
        keys.remove("draws")
    rows = []
    for texts, row in zip(sweep.cells(), sweep.rows, strict=True):
        cells = dict(zip((*sweep.swept, *UNDER), texts, strict=True))
        rows.append([Cell(cells[key], row[key]) for key in keys])
    columns = [Column(_heading(key), _kind(sweep, key)) for key in keys]
    means = f"{sweep.title}. {sweep.caption} A mean of bounds is no bound itself."
    shows = (
        "Bounds, with a band of one standard deviation, and estimates of true costs, with a bar of "
        "one standard error."
    )
    return Export(
        name,
        [Table("sweep", columns, rows, f"{means} {COLUMNS} {CHOICE}")],
        [Plot("sweep", partial(draw_sweep, sweep), f"{shows} {means} {CHOICE}")],
    )


def _heading(key: str) -> str:
    return UNDER.get(key) or SYMBOLS.get(key, key.removeprefix("task."))


def _kind(sweep: Sweep, key: str) -> Kind:
    numbers = all(type(row[key]) in (int, float) for row in sweep.rows)
    return "number" if numbers else "text"
