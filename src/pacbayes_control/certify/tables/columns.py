"""Reading one column of a CSV file: the cost of each mission, or a feature of each environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.files import existing_file
from pacbayes_control.certify.tables import sheets
from pacbayes_control.certify.tables.costs import is_summary
from pacbayes_control.certify.text import as_number, quoted

HEADERS = ("cost", "costs", "outcome", "outcomes", "result")
Floats = NDArray[np.float64]


def read_outcomes(path: str | Path, column: str | None = None) -> Floats:
    """The costs in a CSV file, in the order of its rows: 0, 1, or any number between.

    The file has one number in each line, or a header and columns, of which `column` is read, by
    default one named cost or outcome. All cells may say pass or fail instead. Any other cell is an
    error: a missing outcome, or a header that is counted, would make a verdict wrong.
    """
    path = existing_file(path)
    plain = _plain_numbers(path, column)
    if plain is not None:
        return checked_outcomes(plain[0], path.name, plain[1])
    sheet, heading, cells, lines = _column(path, column, HEADERS)
    if heading and heading.lower().startswith(("success", "succeed", "pass")):
        raise ValueError(f"{path.name}: give costs, 1 for failure: these are successes")
    if not cells:
        raise ValueError(f"{path.name}: there are no outcomes below the header")
    hint = ""
    if heading is None and sheet.number(cells[0]) is None:
        hint = f"; if {cells[0]!r} is the header, say --column {cells[0]}"
    values = [
        sheet.checked_cost(cell, f"{path.name}, line {line}", "" if i else hint)
        for i, (cell, line) in enumerate(zip(cells, lines, strict=True))
    ]
    sheet.check_words([[cell] for cell in cells], lines, hint)
    return checked_outcomes(values, path.name, lines)


def read_feature(
    path: str | Path, column: str | None = None, numeric: bool = False
) -> list[str] | list[float]:
    """The cells of one column, such as the weather at each site.

    A missing cell is an error, with its line; the text `none` counts as a value.

    Args:
        path: the file.
        column: the header of the column, or its number from 1.
        numeric: convert the cells to numbers.
    """
    sheet, _, cells, lines = _column(existing_file(path), column, ())
    for cell, line in zip(cells, lines, strict=True):
        if sheet.is_missing(cell) and (numeric or cell.casefold() != "none"):
            raise ValueError(
                f"{sheet.file}, line {line}: the value is missing; {sheets.MISSING_TRIAL}"
            )
    if numeric and sheet.delimiter != ",":
        cells = [cell.replace(",", ".") for cell in cells]
    return numbers(cells, sheet.file) if numeric else cells


def numbers(cells: Sequence[str], source: str) -> list[float]:
    """The cells as finite numbers; an error names the first that is not one."""
    values = []
    for position, cell in enumerate(cells, 1):
        value = as_number(cell)
        if value is None or not math.isfinite(value):
            raise ValueError(f"{source}: {cell!r}, entry {position}, is not a finite number")
        values.append(value)
    return values


def checked_outcomes(
    values: ArrayLike, source: str = "the outcomes", lines: Sequence[int] | None = None
) -> Floats:
    """Costs in [0, 1], at least one; an error names the first that is not, with its line."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{source}: some are masked, and every mission needs a cost")
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{source}: they are not all numbers") from None
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{source}: give one cost for each mission, not shape {array.shape}")
    outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        first = int(np.argmax(outside))
        where = f"line {lines[first]}" if lines else f"outcome {first + 1}"
        raise ValueError(f"{source}, {where}: a cost of {array[first]:g} is outside [0, 1]")
    return array


def _plain_numbers(path: Path, column: str | None) -> tuple[Floats, range] | None:
    """The numbers of a file with one number in each line, and their lines; None for other files.

    This is fast for files of millions of lines.
    """
    text = sheets.read_text(path)
    if any(mark in text for mark in (*sheets.DELIMITERS, '"', " ", "_")):
        return None
    cells = text.removesuffix("\n").split("\n")
    has_header = cells[0].lower() in HEADERS
    if column and not (has_header and cells[0] == column):
        return None
    try:
        values = np.array(cells[has_header:], dtype=np.float64)
    except ValueError:
        return None
    if not values.size or np.isnan(values).any():
        return None
    return values, range(1 + has_header, 1 + len(cells))


def _column(
    path: Path, column: str | None, known: Sequence[str]
) -> tuple[sheets.CsvTable, str | None, list[str], list[int]]:
    """The table, and one column of it: its header if it has one, its cells and their lines.

    An error if the name of the last row, in the first column, is that of a summary.
    """
    sheet = sheets.read_sheet(path)
    index, has_header = _chosen(sheet, column, known)
    names = [row[0].casefold() for row in sheet.rows]
    last = names[-1]
    if index and is_summary(last) and last not in sheets.WORDS and names.count(last) == 1:
        raise ValueError(
            f"{sheet.file}: line {sheet.lines[-1]}, {quoted(sheet.rows[-1][0])}, is a summary: "
            "remove it, or rename it if it is not"
        )
    cells = [row[index] for row in sheet.rows]
    heading = cells[0] if has_header else None
    return sheet, heading, cells[has_header:], sheet.lines[has_header:]


def _chosen(sheet: sheets.CsvTable, column: str | None, known: Sequence[str]) -> tuple[int, bool]:
    """The index of the column, by header or number, and whether the first row is a header."""
    header, listed = sheet.rows[0], ", ".join(sheet.rows[0])
    if column is not None and column.isdecimal():
        if not 1 <= int(column) <= len(header):
            raise ValueError(f"{sheet.file} has {len(header)} columns, and no column {column}")
        return int(column) - 1, header[int(column) - 1].lower() in known
    if column is not None:
        if header.count(column) != 1:
            many = "several columns" if column in header else "no column"
            raise ValueError(f"{sheet.file} has {many} {column!r}: its first row is {listed}")
        return header.index(column), True
    matches = [i for i, cell in enumerate(header) if cell.lower() in known]
    if len(matches) == 1:
        return matches[0], True
    if len(header) == 1:
        return 0, False
    raise ValueError(
        f"{sheet.file}: say which column to read, by its header or its number from 1 (--column); "
        f"the first row is {listed}"
    )
