"""Tables and figures as files for a paper: LaTeX, CSV and PDF of a column's width."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.text import LONGEST_NAME, printable, quoted, round_up
from pacbayes_control.report import latex
from pacbayes_control.report.latex import Column
from pacbayes_control.report.pictures import column
from pacbayes_control.trials.plans.schedules import FORMULA

WIDTH = 3.4  # inches, of one of two columns
NARROWEST, WIDEST = 3.0, 12.0


@dataclass(frozen=True)
class Cell:
    """A number or a name: as LaTeX shows it, and with all its digits or letters for CSV."""

    shown: str
    value: float | int | str | None


@dataclass(frozen=True)
class Table:
    """A table, with a caption that says what it promises and what it does not."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    caption: str


@dataclass(frozen=True)
class Plot:
    """A figure, with such a caption."""

    name: str
    draw: Callable[[Path | BinaryIO], None]
    caption: str


@dataclass(frozen=True)
class Export:
    """The tables and figures of one run, comparison or sweep."""

    name: str  # in file names and labels
    tables: Sequence[Table]
    plots: Sequence[Plot]

    def files(self, folder: Path) -> list[Path]:
        """The files that `write` writes."""
        tables = [self._stem("table", table.name) for table in self.tables]
        plots = [self._stem("figure", plot.name) for plot in self.plots]
        names = [f"{stem}{end}" for stem in tables for end in (".tex", ".csv")]
        return [
            folder / name for name in names + [f"{s}{e}" for s in plots for e in (".pdf", ".tex")]
        ]

    def _stem(self, kind: str, name: str) -> str:
        return f"{self.name}-{kind}-{name}"

    def write(self, folder: Path, width: float = WIDTH) -> list[Path]:
        """Write every table as LaTeX and CSV, and every figure as PDF with its LaTeX.

        width: of the figures, in inches
        """
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            stem, label = self._stem("table", table.name), f"tab:{self.name}-{table.name}"
            rows = [[_shown(cell) for cell in row] for row in table.rows]
            text = latex.table(table.columns, rows, caption=table.caption, label=label)
            write_output(folder / f"{stem}.tex", text.encode())
            write_output(folder / f"{stem}.csv", csv_text(table).encode())
        for plot in self.plots:
            stem, label = self._stem("figure", plot.name), f"fig:{self.name}-{plot.name}"
            with column(width):
                plot.draw(folder / f"{stem}.pdf")
            text = latex.figure(f"{stem}.pdf", caption=plot.caption, label=label, width=width)
            write_output(folder / f"{stem}.tex", text.encode())
        return self.files(folder)


def _shown(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.shown


def csv_text(table: Table) -> str:
    """A table as CSV, with all digits; no text begins like a formula of a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.heading for column in table.columns])
    for row in table.rows:
        writer.writerow([_plain(cell) for cell in row])
    return text.getvalue()


def _plain(cell: str | Cell) -> str:
    value = cell.value if isinstance(cell, Cell) else cell
    if not isinstance(value, str):
        return "" if value is None else repr(value)
    line = " ".join(printable(value).split())
    return f"'{line}" if line.startswith(FORMULA) else line


# ---- cells --------------------------------------------------------------------------------------


def bound(value: float) -> Cell:
    """An upper bound: never rounded downwards."""
    return Cell(round_up(value), float(value))


def observed(value: float) -> Cell:
    """A mean cost."""
    return Cell(f"{value:.4f}", float(value))


def count(number: int) -> Cell:
    """A whole number."""
    return Cell(f"{number:,}", int(number))


def named(name: str, more: str = "") -> Cell:
    """A name from an unknown source, shortened for LaTeX, with words of our own after it."""
    return Cell(quoted(name, LONGEST_NAME)[1:-1] + more, name + more)


# ---- names --------------------------------------------------------------------------------------


def file_names(folders: Sequence[Path]) -> list[str]:
    """A name for each folder that is safe in file names and labels; all of them differ.

    >>> file_names([Path("runs/my run"), Path("others/my_run"), Path("木")])
    ['my-run', 'my-run-2', 'run']
    """
    names: list[str] = []
    for folder in folders:
        name = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:60] or "run"
        number, unique = 1, name
        while unique in names:
            number += 1
            unique = f"{name}-{number}"
        names.append(unique)
    return names


def check_replaceable(files: Sequence[Path], force: bool) -> None:
    """Raise ValueError if one of these LaTeX files exists and was not written by `pbc export`."""
    for file in files:
        if file.suffix != ".tex" or not file.exists() or force:
            continue
        with file.open("rb") as stream:
            if not stream.read(100).startswith(latex.MARK.encode()):
                raise ValueError(
                    f"{file} was not written by pbc export: choose another folder, or --force"
                )
