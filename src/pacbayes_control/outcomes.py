"""Reading one column of a CSV file: what each mission cost, or a feature of each environment."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.reading import DELIMITERS, WORDS

COSTS = ("cost", "costs", "outcome", "outcomes", "failure", "failed", "result")
Floats = NDArray[np.float64]
IsValue = Callable[[str], bool]  # whether a cell cannot be a header


def read_outcomes(path: str | Path, column: str | None = None) -> Floats:
    """The costs in a CSV file, in the order of its rows: 0 or 1, or any number between.

    A file of one number a line, or with a header, of which `column` is read: one named cost or
    outcome unless another is given. Cells may say pass and fail. Nothing else is let through.
    """
    cells, lines, name = _read_column(Path(path), column, COSTS, _is_cost)
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        values = np.array(
            [_cost(cell, name, line) for cell, line in zip(cells, lines, strict=True)]
        )
    return checked_outcomes(values, name, lines)


def read_feature(
    path: str | Path, column: str | None = None, numeric: bool = False
) -> list[str] | list[float]:
    """The cells of one column, such as the weather at each site; one a line, or under a header."""
    known = ("feature", "cell", "label")
    if not numeric:
        return _read_column(Path(path), column, known, lambda _: True)[0]
    cells, _, name = _read_column(Path(path), column, known, _is_number)
    return numbers(cells, name)


def numbers(cells: Sequence[str], source: str) -> list[float]:
    """Cells as numbers; an error says which is none."""
    for position, cell in enumerate(cells, 1):
        if not _is_number(cell):
            raise ValueError(f"{source}: {cell!r}, entry {position}, is no number")
    return [float(cell) for cell in cells]


def checked_outcomes(
    values: ArrayLike, source: str = "the outcomes", lines: Sequence[int] | None = None
) -> Floats:
    """Costs in [0, 1], at least one; an error tells the first that is none, and its line."""
    array = np.asarray(values, float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{source}: there are no outcomes")
    outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        first = int(np.argmax(outside))
        where = f"line {lines[first]}" if lines else f"outcome {first + 1}"
        raise ValueError(f"{source}, {where}: a cost of {array[first]:g} is outside [0, 1]")
    return array


def _read_column(
    path: Path, column: str | None, known: Sequence[str], is_value: IsValue
) -> tuple[list[str], Sequence[int], str]:
    """The cells of a column, the line of each in the file, and the file's name."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not a text file") from None
    first = text.lstrip().split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    if not any(mark in text for mark in (*DELIMITERS, '"', " ")):  # one column, even of millions
        cells = text.split()
        if cells and len(cells) == text.rstrip().count("\n") + 1:  # and no blank line
            _, has_header = _chosen(path.name, cells[:1], column, known, is_value)
            if len(cells) > has_header:
                return cells[has_header:], range(1 + has_header, 1 + len(cells)), path.name
    if delimiter in first or '"' in first:
        reader = csv.reader(StringIO(text), delimiter=delimiter)
        table = [(row, reader.line_num) for row in reader if any(map(str.strip, row))]
        rows, lines = [row for row, _ in table], [line for _, line in table]
    else:
        cells = text.split("\n")
        lines = [line for line, cell in enumerate(cells, 1) if cell and not cell.isspace()]
        rows = [[cells[line - 1]] for line in lines]
    if not rows:
        raise ValueError(f"{path.name}: it is empty")
    header = [cell.strip() for cell in rows[0]]
    index, has_header = _chosen(path.name, header, column, known, is_value)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{path.name}, line {line}: {len(row)} cells, where the first row has {len(header)}"
            )
    if len(rows) == has_header:
        raise ValueError(f"{path.name}: there is nothing below its header")
    return [row[index].strip() for row in rows[has_header:]], lines[has_header:], path.name


def _chosen(
    name: str, header: list[str], column: str | None, known: Sequence[str], is_value: IsValue
) -> tuple[int, bool]:
    """Which column is meant, and whether the first row is a header."""
    if column is not None:
        if header.count(column) != 1:
            raise ValueError(f"{name} has no column {column!r}: it has {', '.join(header)}")
        return header.index(column), True
    matches = [i for i, cell in enumerate(header) if cell.lower() in known]
    if len(matches) == 1:
        return matches[0], True
    if len(header) == 1:
        return 0, not is_value(header[0])
    raise ValueError(f"{name}: say which column to read (--column): {', '.join(header)}")


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _is_cost(cell: str) -> bool:
    return cell.lower() in WORDS or _is_number(cell)


def _cost(cell: str, name: str, line: int) -> float:
    if cell.lower() in WORDS:
        return WORDS[cell.lower()]
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{name}, line {line}: {cell!r} is no cost: write a number") from None
