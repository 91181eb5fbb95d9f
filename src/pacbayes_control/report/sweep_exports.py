"""The table and the figure of a sweep, with its own caption."""

from __future__ import annotations

from functools import partial

from pacbayes_control.report.exports import Cell, Export, Plot, Table
from pacbayes_control.report.latex import Column, Kind
from pacbayes_control.report.sweep_plots import draw_sweep
from pacbayes_control.study.sweep import CHOICE, HEADINGS, Sweep
from pacbayes_control.study.sweep_grid import FIGURES

# The figures under HEADINGS; CSV has them with all digits.
UNDER = ("draws", "bound", "bound_sd", "empirical_cost", "true_cost", "true_cost_se", "below_truth")


def sweep_export(sweep: Sweep, name: str) -> Export:
    """The rows of a sweep, and its plot.

    Args:
        sweep: as read from its folder; no certificate proves its figures
        name: for file names and labels, from `exports.file_names`
    """
    assert {*UNDER} <= {*FIGURES}
    columns = [Column(field, _kind(sweep, field)) for field in sweep.swept]
    columns += [Column(heading, "number") for heading in HEADINGS]
    rows = [
        [Cell(text, row[key]) for text, key in zip(cells, (*sweep.swept, *UNDER), strict=True)]
        for cells, row in zip(sweep.cells(), sweep.rows, strict=True)
    ]
    caption = f"{sweep.title}. {sweep.caption} A mean of bounds is no bound itself. {CHOICE}"
    shows = "Bounds, with a band of one standard deviation, and true costs."
    return Export(
        name,
        [Table("sweep", columns, rows, caption)],
        [Plot("sweep", partial(draw_sweep, sweep), f"{shows} {caption}")],
    )


def _kind(sweep: Sweep, field: str) -> Kind:
    numbers = all(type(row[field]) in (int, float) for row in sweep.rows)
    return "number" if numbers else "text"
