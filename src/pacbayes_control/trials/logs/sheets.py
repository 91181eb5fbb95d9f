"""Tables as text, from CSV, TSV, JSON lines, Parquet and XLSX: the same cells from each of them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pacbayes_control.certify.files import LARGEST_JSON, parse_json
from pacbayes_control.certify.tables.sheets import (
    INVISIBLE,
    MISSING_TRIAL,
    CsvTable,
    ended_lines,
    read_sheet,
    read_text,
)
from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.rows import reason, shown_name

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".xlsx", ".xlsm")
INSTALL = 'pip install "pacbayes-control[tables]"'
MOST_CELLS = 20_000_000


@dataclass(frozen=True)
class Sheet:
    """A header, the rows below it, and where each row is in its file."""

    table: CsvTable  # without its header
    header: list[str]
    nested: frozenset[str] = frozenset()  # columns that hold lists or records
    place: str = "line"  # the word for the position of a row

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.table.file

    def column(self, index: int) -> list[str]:
        """The cells of one column."""
        return [row[index] for row in self.table.rows]

    def where(self, at: int) -> str:
        """The file and the position of a row, for an error."""
        return f"{self.file}, {self.place} {self.table.lines[at]}"


def read_cells(path: Path, *, growing: bool = False) -> Sheet:
    """Read a table whose first row is a header.

    Args:
        path: a file of one of the kinds in `TABLES`.
        growing: whether the file is being written: an incomplete last line is not read yet, and no
            rows are no error.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        sheet = _read_parquet(path)
    elif suffix in (".xlsx", ".xlsm"):
        sheet = _read_workbook(path)
    elif suffix in (".jsonl", ".ndjson"):
        sheet = _read_json_lines(path, growing)
    else:
        sheet = _read_csv(path, growing)
    if not sheet.table.rows and not growing:
        raise ValueError(f"{sheet.file} has a header and no trials below it")
    _check_header(sheet)
    return sheet


def _check_header(sheet: Sheet) -> None:
    seen: set[str] = set()
    for name in sheet.header:
        if name and name.casefold() in seen:
            raise ValueError(f"{sheet.file} has two columns {quoted(name)}: rename one of them")
        seen.add(name.casefold())
    names = [name.casefold() for name in sheet.header]
    for at, row in enumerate(sheet.table.rows):
        if any(row) and [cell.casefold() for cell in row] == names:
            raise ValueError(
                f"{sheet.where(at)}: the header again, as of tables that were put together: remove "
                "the line"
            )


def _sheet(path: Path, rows: list[list[str]], lines: Sequence[int], **more: Any) -> Sheet:
    table = CsvTable(shown_name(path), rows[1:], list(lines[1:]), ",")
    return Sheet(table, rows[0] if rows else [], **more)


# ---- text ---------------------------------------------------------------------------------------


def _read_csv(path: Path, growing: bool) -> Sheet:
    if growing and not ended_lines(read_text(path)).strip():
        return _sheet(path, [], [])
    table = read_sheet(path, growing=growing)
    below = CsvTable(shown_name(path), table.rows[1:], table.lines[1:], table.delimiter)
    return Sheet(below, table.rows[0])


def _read_json_lines(path: Path, growing: bool) -> Sheet:
    file = shown_name(path)
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"{file} is larger than {LARGEST_JSON >> 20} MiB: split it")
    text = ended_lines(read_text(path)) if growing else read_text(path).removesuffix("\n")
    records: list[dict[str, Any]] = []
    lines = text.removesuffix("\n").split("\n") if text.strip() else []
    for number, line in enumerate(lines, 1):
        where = f"{file}, line {number}"
        if not line.strip():
            raise ValueError(f"{where} is blank: {MISSING_TRIAL}; remove the line otherwise")
        record = parse_json(line.encode(), where, nan_as_none=True)
        if not isinstance(record, dict):
            raise ValueError(f"{where} is no record of a trial: write one JSON object a line")
        records.append(record)
    if not records and not growing:
        raise ValueError(f"{file} has no rows: it is empty")
    header = list(dict.fromkeys(name for record in records for name in record))
    nested = {k for record in records for k, v in record.items() if isinstance(v, list | dict)}
    rows = [[as_text(record.get(name)) for name in header] for record in records]
    table = CsvTable(file, rows, list(range(1, len(rows) + 1)), ",")
    return Sheet(table, header, frozenset(nested))


def as_text(value: Any) -> str:
    """A value as a CSV file has it: whole numbers without a decimal point, and nothing for NaN.

    >>> [as_text(value) for value in (True, 3.0, 0.25, None, float("nan"), " act ")]
    ['true', '3', '0.25', '', '', 'act']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, sort_keys=True)
    return str(value).strip().strip(INVISIBLE).strip()


# ---- Parquet and XLSX ---------------------------------------------------------------------------


def read_parquet_columns(path: Path, wanted: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """The columns of a Parquet file, by name; of those wanted, the ones that it has.

    A column of lists or records gets None in the place of its cells.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError(f"{shown_name(path)} needs pyarrow to be read: {INSTALL}") from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"it has two columns {quoted(twice)}")
            chosen = [name for name in names if wanted is None or name in set(wanted)]
            if file.metadata.num_rows * len(chosen) > MOST_CELLS:
                raise ValueError(f"it has more than {MOST_CELLS:,} cells")
            table = file.read(columns=chosen)
            return {name: _arrow_cells(table.column(name), pa) for name in table.column_names}
    except (OSError, ValueError, KeyError, NotImplementedError, pa.ArrowException) as error:
        raise ValueError(
            f"{shown_name(path)} cannot be read as Parquet ({reason(error)})"
        ) from None


def _arrow_cells(column: Any, pa: Any) -> list[Any]:
    if pa.types.is_nested(column.type):
        return [None] * len(column)
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    return column.to_pylist()


def _read_parquet(path: Path) -> Sheet:
    columns = read_parquet_columns(path)
    texts = [[as_text(cell) for cell in cells] for cells in columns.values()]
    rows = [list(row) for row in zip(*texts, strict=True)]
    lines = range(len(rows) + 1)
    kept = [name.strip() for name in columns]
    return _sheet(path, [kept, *rows], lines, nested=_nested_names(path), place="row")


def _nested_names(path: Path) -> frozenset[str]:
    """The columns of lists or records in a Parquet file that was read."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fields = parquet.read_schema(path)
    return frozenset(field.name.strip() for field in fields if pa.types.is_nested(field.type))


def _read_workbook(path: Path) -> Sheet:
    try:
        import openpyxl
    except ImportError:
        raise ImportError(f"{shown_name(path)} needs openpyxl to be read: {INSTALL}") from None
    file = shown_name(path)
    try:
        with warnings.catch_warnings(), path.open("rb") as content:
            warnings.simplefilter("ignore")  # of features of a spreadsheet that have no values
            book = openpyxl.load_workbook(content, read_only=True, data_only=True)
            sheets = {sheet.title: _filled(sheet) for sheet in book.worksheets}
    except Exception as error:  # zipfile, the XML parser and openpyxl each raise their own
        raise ValueError(f"{file} cannot be read as an XLSX workbook ({reason(error)})") from None
    filled = {title: rows for title, rows in sheets.items() if rows}
    if not filled:
        raise ValueError(f"{file} has no rows: it is empty")
    if len(filled) > 1:
        names = ", ".join(quoted(title) for title in filled)
        raise ValueError(f"{file} has several sheets with cells, {names}: save one of them as CSV")
    [rows] = filled.values()
    return _sheet(path, *_rectangle(file, rows), place="row")


def _filled(sheet: Any) -> dict[int, list[str]]:
    """The rows of a worksheet that are not blank, by their numbers."""
    sheet.reset_dimensions()  # else every row is as wide as the sheet, whose last column may be far
    rows, cells = {}, 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells += len(row)
        if cells > MOST_CELLS:
            raise ValueError(f"it has more than {MOST_CELLS:,} cells")
        texts = [as_text(cell) for cell in row]
        if any(texts):
            rows[number] = texts
    return rows


def _rectangle(file: str, rows: dict[int, list[str]]) -> tuple[list[list[str]], list[int]]:
    """Rows of one length, with their numbers; an error if a blank one is among them."""
    lines = list(rows)
    for before, after in pairwise(lines):
        if after != before + 1:
            raise ValueError(
                f"{file}: row {before + 1} is blank: {MISSING_TRIAL}; if nothing is missing there, "
                "remove the row"
            )
    width = max(max(i for i, cell in enumerate(row, 1) if cell) for row in rows.values())
    return [(row + [""] * width)[:width] for row in rows.values()], lines
