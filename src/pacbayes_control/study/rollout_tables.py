"""Writing costs as a table with one row a rollout, the parameters of its environment beside it.

`certify.tables.rollouts` reads it back. The files are written chunk by chunk: they take no more
memory than the costs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.descriptions import Descriptions
from pacbayes_control.certify.files import json_bytes, replacing, write_output
from pacbayes_control.certify.tables.rollout_records import record_of, record_path
from pacbayes_control.certify.tables.rollouts import INSTALL, KEY, ROLES, TIMED_OUT
from pacbayes_control.certify.tables.sheets import INVISIBLE
from pacbayes_control.certify.text import as_number, quoted
from pacbayes_control.rollouts.evaluation import described_by
from pacbayes_control.tasks import Environments, Task

AT_A_TIME = 1 << 16  # rows that are written at a time
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # first characters of a formula in a spreadsheet
FORMATS = (".csv", ".parquet")
OWN = {*ROLES, TIMED_OUT}  # columns that are no parameters


class _Writer(Protocol):
    def __call__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Write rows, given column by column."""


def check_table(
    path: Path, names: Sequence[str] = (), described: Descriptions | None = None
) -> None:
    """Raise ValueError or ImportError, before any rollout, if a table cannot be written.

    Args:
        path: of the table; its suffix is its format
        names: of the policies
        described: parameters of some of the environments
    """
    columns = column_names([*(described or {})])
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: rollouts are written as a .csv or a .parquet file")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ImportError(f"{path.name} needs pyarrow to be written: {INSTALL}") from None
    else:
        _check_texts(names, "policy", "name the policies otherwise (--names)")
        named = {columns[name]: column for name, column in (described or {}).items()}
        _check_texts([*named], "parameter", "write a .parquet file")
        for name, column in named.items():
            _check_words(name, {*column.tolist()} if column.dtype.kind == "U" else ())


def _check_words(name: str, words: Collection[str]) -> None:
    _check_texts(sorted(words), f"word of {quoted(name)}", "write a .parquet file")


def write_rollouts(path: Path, costs: Costs, task: Task, environments: Environments) -> None:
    """Write costs as a table: environment, policy, cost, and the parameters of the environment.

    A CSV file has a record beside it, `costs.csv.json` for `costs.csv`, of where its costs come
    from; a Parquet file has it in its metadata. By it, the table is read back as the same costs.
    Where rollouts took longer than the time limit, a column `timed_out` tells which.

    Args:
        path: a .csv or .parquet file, which is complete or as it was before
        costs: of policies in these environments, as `rollouts.evaluate` returns them
        task: which describes environments, if there are too many for `costs.described`
        environments: that the rows of the costs are of
    """
    check_table(path, costs.names)
    path = path.resolve()
    columns = column_names([*(costs.described or described_by(task, environments[:1]))])
    record = json_bytes(record_of(costs, {column: name for name, column in columns.items()}))
    csv_file = path.suffix.lower() == ".csv"
    writing = _csv_writer if csv_file else _parquet_writer
    with replacing(path) as unfinished:
        with writing(unfinished, record) as write:
            for rows, described in _chunks(costs, task, environments):
                named = {columns[name]: column for name, column in described.items()}
                write(_rows(costs, rows, environments.start, named))
        if csv_file:  # before the table, so that none is ever without it
            write_output(record_path(path), record)


def column_names(parameters: Sequence[str]) -> dict[str, str]:
    """The column of each parameter; a name of another column gets a prefix.

    >>> column_names(["wind", "Cost"])
    {'wind': 'wind', 'Cost': 'environment.Cost'}
    """
    columns: dict[str, str] = {}
    taken = OWN | {name.casefold() for name in parameters}
    for name in parameters:
        column = name
        while column.casefold() in OWN or (column != name and column.casefold() in taken):
            column = f"environment.{column}"
        if column.casefold() in {known.casefold() for known in columns.values()}:
            raise ValueError(f"two parameters of environments are named {quoted(name)}")
        columns[name] = column
    return columns


# ---- chunks -------------------------------------------------------------------------------------


def _chunks(
    costs: Costs, task: Task, environments: Environments
) -> Iterator[tuple[range, Descriptions]]:
    """The rows, and the parameters, of a few environments at a time."""
    few = max(1, AT_A_TIME // costs.policies)
    for chunk in environments.chunks(few):
        start = chunk.start - environments.start
        described = {n: c[start : start + len(chunk)] for n, c in costs.described.items()}
        described = described or described_by(task, chunk)
        for i in range(0, len(chunk), few):
            part = slice(i, min(i + few, len(chunk)))
            rows = range(start + part.start, start + part.stop)
            yield rows, {name: column[part] for name, column in described.items()}


def _rows(
    costs: Costs, rows: range, first: int, described: Mapping[str, NDArray]
) -> dict[str, Sequence[Any]]:
    """The columns of the rollouts of a few environments.

    Args:
        costs: of all environments
        rows: of the costs
        first: number of the environment of the first row of all
        described: the parameters of these environments, by column
    """
    named, policies = costs.names or range(costs.policies), costs.policies
    columns: dict[str, Sequence[Any]] = {
        "environment": np.repeat(np.add(rows, first), policies).tolist(),
        "policy": [*named] * len(rows),
        "cost": costs.values[rows.start : rows.stop].ravel().tolist(),
    }
    if over := costs.timed_out:
        columns[TIMED_OUT] = [int((i, j) in over) for i in rows for j in range(policies)]
    return columns | {name: np.repeat(c, policies).tolist() for name, c in described.items()}


# ---- CSV ----------------------------------------------------------------------------------------


@contextmanager
def _csv_writer(path: Path, _: bytes) -> Iterator[_Writer]:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer, known = csv.writer(file, lineterminator="\n"), set()

        def write(columns: Mapping[str, Sequence[Any]]) -> None:
            if not file.tell():
                _check_texts([*columns], "parameter", "write a .parquet file")
                writer.writerow(columns)
            for name, column in columns.items():
                if name not in OWN and isinstance(column[0], str):
                    _check_words(name, new := {*column} - known)
                    known.update(new)
            # the module writes numbers by `repr`, so that they are read back exactly
            writer.writerows(zip(*columns.values(), strict=True))

        yield write


def _check_texts(texts: Sequence[str], of: str, remedy: str) -> None:
    """An error for a text that a spreadsheet would take for a formula, or that would be altered."""
    for text in texts:
        if text.startswith(FORMULAS) and not _is_number(text):
            raise ValueError(
                f"the {of} {quoted(text)} would be a formula in a spreadsheet that opens the "
                f"table: {remedy}"
            )
        if text != text.strip().strip(INVISIBLE).strip() or not text:
            raise ValueError(
                f"the {of} {quoted(text)} begins or ends with a blank, which a CSV file does not "
                f"keep: {remedy}"
            )


def _is_number(text: str) -> bool:
    return re.fullmatch(
        r"[-+]?[\d.]+(e[-+]?\d+)?", text, re.ASCII | re.IGNORECASE
    ) is not None and (as_number(text) is not None)


# ---- Parquet ------------------------------------------------------------------------------------


@contextmanager
def _parquet_writer(path: Path, record: bytes) -> Iterator[_Writer]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    opened: list[Any] = []  # the writer, whose types are those of the first rows

    def write(columns: Mapping[str, Sequence[Any]]) -> None:
        if not opened:
            types = {name: _arrow_type(column[0], pa) for name, column in columns.items()}
            schema = pa.schema({**types, "cost": pa.float64()}, metadata={KEY: record})
            opened.append(parquet.ParquetWriter(path, schema))
        [writer] = opened
        texts = {each.name for each in writer.schema if each.type == pa.string()}
        rows = {name: [*map(str, c)] if name in texts else c for name, c in columns.items()}
        writer.write_table(pa.table(rows, schema=writer.schema))

    try:
        yield write
    finally:
        for writer in opened:
            writer.close()


def _arrow_type(value: Any, pa: Any) -> Any:
    if isinstance(value, str):
        return pa.string()
    return pa.float64() if isinstance(value, float) else pa.int64()
