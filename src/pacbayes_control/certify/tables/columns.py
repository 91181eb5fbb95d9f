"""Reading one column of a CSV file: what each mission cost, or a feature of each environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.tables.costs import is_summary
from pacbayes_control.certify.tables.sheets import (
    DELIMITERS,
    MISSING_TRIAL,
    WORDS,
    Sheet,
    read_sheet,
    read_text,
)
from pacbayes_control.certify.text import quoted

HEADERS = ("cost", "costs", "outcome", "outcomes", "result")
Floats = NDArray[np.float64]


def read_outcomes(path: str | Path, column: str | None = None) -> Floats:
    """The costs in a CSV file, in the order of its rows: 0 or 1, or any number between.

    A file of one number a line, or with a header, of which `column` is read: one named cost or
    outcome unless another is given. All cells may say pass or fail instead. Nothing else is let
    through: an outcome that went missing, or a header that was counted, makes a verdict wrong.
    """
    path = _existing(path)
    plain = _plain_numbers(path, column)
    if plain is not None:
        return checked_outcomes(plain[0], path.name, plain[1])
    sheet = read_sheet(path)
    index, has_header = _chosen(sheet, column, HEADERS)
    _check_last(sheet, index)
    if has_header and sheet.rows[0][index].lower().startswith(("success", "succeed", "pass")):
        raise ValueError(f"{path.name}: costs are wanted, 1 for failure, and these are successes")
    cells, lines = [row[index] for row in sheet.rows[has_header:]], sheet.lines[has_header:]
    if not cells:
        raise ValueError(f"{path.name}: there are no outcomes below the header")
    values = [_outcome(sheet, cell, line) for cell, line in zip(cells, lines, strict=True)]
    worded = [cell.casefold() in WORDS for cell in cells]
    if any(worded) and not all(worded):
        word = cells[worded.index(True)]
        raise ValueError(
            f"{path.name}: {word!r} stands among numbers; if it is the header, say --column {word}"
        )
    return checked_outcomes(values, path.name, lines)


def read_feature(
    path: str | Path, column: str | None = None, numeric: bool = False
) -> list[str] | list[float]:
    """The cells of one column, such as the weather at each site; below a header if it is named.

    A cell that is missing is refused with its line; `none` is a word like others, for no rain.
    """
    sheet = read_sheet(_existing(path))
    index, has_header = _chosen(sheet, column, ())
    _check_last(sheet, index)
    cells = [row[index] for row in sheet.rows[has_header:]]
    for cell, line in zip(cells, sheet.lines[has_header:], strict=True):
        if sheet.is_missing(cell) and (numeric or cell.casefold() != "none"):
            raise ValueError(f"{sheet.file}, line {line}: the value is missing; {MISSING_TRIAL}")
    if numeric and sheet.delimiter != ",":
        cells = [cell.replace(",", ".") for cell in cells]
    return numbers(cells, sheet.file) if numeric else cells


def numbers(cells: Sequence[str], source: str) -> list[float]:
    """Cells as finite numbers; an error says which is none."""
    values = []
    for position, cell in enumerate(cells, 1):
        try:
            value = math.nan if "_" in cell else float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{source}: {cell!r}, entry {position}, is no number")
        values.append(value)
    return values


def checked_outcomes(
    values: ArrayLike, source: str = "the outcomes", lines: Sequence[int] | None = None
) -> Floats:
    """Costs in [0, 1], at least one; an error tells the first that is none, and its line."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{source}: some are masked, and every mission needs a cost")
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{source}: they are not all numbers") from None
    if array.ndim != 1:
        raise ValueError(f"{source}: one cost for each mission is needed, not a table of them")
    if array.size == 0:
        raise ValueError(f"{source}: there are none")
    outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        first = int(np.argmax(outside))
        where = f"line {lines[first]}" if lines else f"outcome {first + 1}"
        raise ValueError(f"{source}, {where}: a cost of {array[first]:g} is outside [0, 1]")
    return array


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, where a file is wanted")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def _plain_numbers(path: Path, column: str | None) -> tuple[Floats, range] | None:
    """A file of one number a line, perhaps of millions, and their lines; None for any other."""
    text = read_text(path)
    if any(mark in text for mark in (*DELIMITERS, '"', " ", "_")):
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


def _chosen(sheet: Sheet, column: str | None, known: Sequence[str]) -> tuple[int, bool]:
    """Which column is meant, by header or by number, and whether the first row is a header."""
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


def _check_last(sheet: Sheet, index: int) -> None:
    """An error if the first column says of the last row, and of no other, that it is a summary."""
    names = [row[0].casefold() for row in sheet.rows]
    last = names[-1]
    if index and is_summary(last) and last not in WORDS and names.count(last) == 1:
        raise ValueError(
            f"{sheet.file}: line {sheet.lines[-1]}, {quoted(sheet.rows[-1][0])}, is a summary: "
            "remove it, or rename it if it is not"
        )


def _outcome(sheet: Sheet, cell: str, line: int) -> float:
    value = sheet.cost(cell)
    if sheet.is_missing(cell):
        raise ValueError(f"{sheet.file}, line {line}: the cost is missing; {MISSING_TRIAL}")
    if value is None:
        hint = f"; if it is the header, say --column {cell}" if line == sheet.lines[0] else ""
        raise ValueError(
            f"{sheet.file}, line {line}: {cell!r} is no cost: write 0 for success, 1 for failure, "
            f"a number between, or pass and fail{hint}"
        )
    return value
