"""What was drawn for each environment, one number or word each: the file `environments.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FILE = "environments.csv"
NUMBER = "environment"  # the first column: numbers from 0
LONGEST = 200  # characters of a name or a word
MOST_COLUMNS = 64

Descriptions = Mapping[str, NDArray]  # by name, one value per environment


def checked_descriptions(values: Mapping[str, ArrayLike], environments: int) -> Descriptions:
    """Columns of whole numbers, numbers or words, each with a value per environment.

    The type of a column depends on its values as they are written to a file: so it is the same
    after the file was read.

    >>> checked_descriptions({"wind": [3, 2.5], "ice": [True, False]}, 2)["wind"].tolist()
    [3.0, 2.5]
    """
    if len(values) > MOST_COLUMNS:
        raise ValueError(f"environments have {len(values)} parameters: {MOST_COLUMNS} at most")
    found = {}
    for name, column in values.items():
        long = "words that cannot be shown in a line"
        if isinstance(column, list) and any(isinstance(v, str) and not _fits(v) for v in column):
            raise ValueError(f"the parameter {name!r} has {long}")  # before an array of their size
        array = np.asarray(column)
        if not _fits(name) or name == NUMBER:
            raise ValueError(f"{str(name)[:LONGEST]!r} cannot be the name of a parameter")
        if array.shape != (environments,) or array.dtype.kind not in "biufU":
            raise ValueError(
                f"the parameter {name!r} needs a number or a word for each of the "
                f"{environments} environments"
            )
        if array.dtype.kind in "b":
            array = array.astype(int)
        texts = [repr(v) if isinstance(v, float) else str(v) for v in array.tolist()]
        if not all(_fits(text) for text in texts):
            raise ValueError(f"the parameter {name!r} has {long}")
        found[name] = _typed(texts)
        found[name].setflags(write=False)
    return found


def _fits(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= LONGEST and text.isprintable()


def _typed(texts: Sequence[str]) -> NDArray:
    """Numbers if each is written as Python writes it, whole ones if possible; otherwise words."""
    try:
        whole = [int(text) for text in texts]
        if all(map(str.__eq__, map(str, whole), texts)) and max(map(abs, whole)) < 2**63:
            return np.array(whole, np.int64)
    except ValueError:
        pass
    try:
        numbers = [float(text) for text in texts]
        if all(map(str.__eq__, map(repr, numbers), texts)):
            return np.array(numbers)
    except ValueError:
        pass
    return np.array(texts)


def to_bytes(described: Descriptions) -> bytes:
    """The file: a header, and a row for each environment, numbered from 0."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([NUMBER, *described])
    columns = [map(_written, column.tolist()) for column in described.values()]
    writer.writerows([number, *row] for number, row in enumerate(zip(*columns, strict=True)))
    return file.getvalue().encode()


def _written(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def read_descriptions(path: Path, environments: int) -> Descriptions:
    """The parameters in a file, which may come from an untrusted source."""
    content = path.read_bytes()
    try:
        rows = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a table: {error}") from None
    header = rows[0] if rows else []
    numbers = [row[0] if row else "" for row in rows[1:]]
    if (
        header[:1] != [NUMBER]
        or len({*header}) != len(header)
        or any(len(row) != len(header) for row in rows)
        or numbers != [*map(str, range(environments))]
    ):
        raise ValueError(
            f"{path.name} must have a row for each of {environments} environments, in order"
        )
    columns = list(zip(*rows[1:], strict=True))[1:]
    described = checked_descriptions(
        {name: list(column) for name, column in zip(header[1:], columns, strict=True)},
        environments,
    )
    if to_bytes(described) != content:
        raise ValueError(f"{path.name} is not written as runs write it")
    return described
