"""`pbc reproduce winners-curse`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from pacbayes_control.cli.options import Seed
from pacbayes_control.report.console import print_table, say
from pacbayes_control.report.pictures import BLUE, DARK, ORANGE, save_figure
from pacbayes_control.trials.winners_curse import (
    CHECKPOINTS,
    DELTA,
    TRUTH,
    WinnersCurseRow,
    winners_curse,
)

SHOWN = (20, 50, 200)  # trials of each checkpoint, in the figure

Repetitions = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Repetitions of the simulation.")
]


def reproduce_winners_curse(
    folder: Path, *, draws: Repetitions = 20_000, seed: Seed = 0
) -> dict[str, Any]:
    """The best of several equal checkpoints: as reported, and as certified. A few seconds.

    Example: pbc reproduce winners-curse --json winners-curse.json
    """
    rows = winners_curse(draws, seed)
    picture = folder / "winners-curse.svg"
    draw_winners_curse(rows, picture)
    show_winners_curse(rows)
    say(f"\nFigure: {picture}")
    return {"draws": draws, "seed": seed, "delta": DELTA, "rows": [asdict(row) for row in rows]}


def show_winners_curse(rows: Sequence[WinnersCurseRow]) -> None:
    """The rows as a table."""
    headings = "checkpoints", "trials", "reported", "usual misses", "certified misses", "promised"
    cells = [
        [
            f"{row.checkpoints}",
            f"{row.trials}",
            f"{row.reported:.3f}",
            f"{100 * row.usual_misses:.1f} %",
            f"{100 * row.certified_misses:.1f} %",
            f"{row.promised:.3f}",
        ]
        for row in rows
    ]
    title = f"Best of equal checkpoints, each with a true success of {TRUTH:g}: mean success"
    print_table(title, headings, cells, section=len(CHECKPOINTS))
    say(
        "A miss: the usual 95 % interval (Wilson), or the certified success, lies above the truth. "
        f"Either should miss at most {100 * DELTA:g} %."
    )


def draw_winners_curse(rows: Sequence[WinnersCurseRow], path: Path) -> None:
    """Success as reported and as promised, and how often each is missed, by checkpoints."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for trials, style in zip(SHOWN, (":", "-", "--"), strict=True):
        chosen = [row for row in rows if row.trials == trials]
        usual = {"color": ORANGE, "ls": style, "label": f"usual, {trials} trials each"}
        certified = {"color": BLUE, "ls": style, "label": f"certified, {trials} trials each"}
        left.plot(CHECKPOINTS, [row.reported for row in chosen], **usual)
        left.plot(CHECKPOINTS, [row.promised for row in chosen], **certified)
        right.plot(CHECKPOINTS, [row.usual_misses for row in chosen], **usual)
        right.plot(CHECKPOINTS, [row.certified_misses for row in chosen], **certified)
    left.axhline(TRUTH, color=DARK, lw=0.8)
    right.axhline(DELTA, color=DARK, lw=0.8)
    left.set(ylabel="success of the winner", title="reported, promised, and true (line)")
    right.set(
        ylabel="share of cases", title="above the truth; allowed: 2.5 % (line)", ylim=(0, None)
    )
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axis in (left, right):
        axis.set(xlabel="equal checkpoints", xscale="log")
        axis.set_xticks(CHECKPOINTS, [str(k) for k in CHECKPOINTS])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.3)
    right.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
