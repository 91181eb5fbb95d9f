"""Tables with one row a rollout: columns environment, policy, cost, and parameters of environments.

A rollout that is missing is often a failed one: each policy needs one row in each environment.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.tables import sheets
from pacbayes_control.certify.text import quoted

ROLES = ("environment", "policy", "cost")
TIMED_OUT = "timed_out"  # a column that tells of a rollout, and never of its environment
MOST_CELLS = 100_000_000  # of a Parquet file, which may be small and hold very many
INSTALL = 'pip install "pacbayes-control[tables]"'
KEY = b"pacbayes_control.rollouts"  # of a Parquet file's metadata: the record of its origin


@dataclass(frozen=True)
class RolloutTable:
    """The costs of a table with one row a rollout; the order of its rows makes no difference."""

    file: str
    values: NDArray[np.float64]  # (environments, policies)
    environments: list[str]  # their names, in order: numbers by their size
    policies: list[str]  # likewise
    described: dict[str, list[str]]  # other columns with one value for each environment, by name
    varying: list[str]  # other columns, which have several
    metadata: bytes | None = None  # the record of its origin in a Parquet file


def read_rollouts(path: Path) -> RolloutTable | None:
    """Read a table with one row a rollout; None if the file has another form.

    The first row is a header with `environment`, `policy` and `cost`, whatever their case and
    order. Costs are numbers in [0, 1], or all pass and fail.
    """
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    delimiter, numbered = sheets.separated_rows(path)
    rows = _filled(path.name, numbered)
    header, line = next(rows, ([], 0))
    if not is_header(header):
        return None
    found = _Rollouts(sheets.CsvTable(path.name, [], [], delimiter), header, "line")
    for row, at in rows:
        sheets.check_row(path.name, row, at, first=header, first_line=line)
        found.add(row, at)
    return found.table()


def is_header(cells: Sequence[str]) -> bool:
    """Whether a first row is the header of a table with one row a rollout.

    >>> is_header(["Policy", "environment", "wind", "cost"]), is_header(["environment", "act"])
    (True, False)
    """
    return {*ROLES} <= {cell.casefold() for cell in cells}


# ---- rows ---------------------------------------------------------------------------------------


def _filled(file: str, rows: Iterable[tuple[list[str], int]]) -> Iterator[tuple[list[str], int]]:
    """The rows that are not blank; an error for a blank one among them."""
    begun, blank = False, None
    for row, line in rows:
        if sheets.is_blank(row):
            blank = blank or line
        elif begun and blank:
            raise sheets.blank_line(file, blank)
        else:
            begun, blank = True, None
            yield row, line


def _read_parquet(path: Path) -> RolloutTable:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError(f"{path.name} needs pyarrow to be read: {INSTALL}") from None
    try:
        texts = [e.name for e in parquet.read_schema(path) if _is_text(e.type, pa)]
        # each word once: a small file may hold a long one in very many rows
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            names = [each.name for each in file.schema_arrow if _is_plain(each.type, pa)]
            if file.metadata.num_rows * len(names) > MOST_CELLS:
                raise ValueError(f"{path.name} has more than {MOST_CELLS:,} cells")
            if not is_header(names):
                raise ValueError(f"{path.name} must have columns {', '.join(ROLES)}")
            found = _Rollouts(sheets.CsvTable(path.name, [], [], ","), names, "row")
            for batch in file.iter_batches(columns=names):
                columns = [map(_text, _plain(batch.column(name), pa)) for name in names]
                for row in zip(*columns, strict=True):
                    found.add(row, len(found.costs) + 1)
            metadata = (file.schema_arrow.metadata or {}).get(KEY)
    except (OSError, KeyError, NotImplementedError, UnicodeError, pa.ArrowException) as error:
        words = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name} cannot be read as Parquet ({words})") from None
    return replace(found.table(), metadata=metadata)


def _is_text(kind: Any, pa: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_plain(kind: Any, pa: Any) -> bool:
    """Whether a column has one number, word or time in each row."""
    raw = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary
    return not (pa.types.is_nested(kind) or any(is_raw(kind) for is_raw in raw))


def _plain(column: Any, pa: Any) -> list[Any]:
    """The values of a column; times as words, since Python's have no nanoseconds."""
    if pa.types.is_dictionary(column.type):
        words = _plain(column.dictionary, pa)
        return [None if i is None else words[i] for i in column.indices.to_pylist()]
    timed = pa.types.is_temporal(column.type)
    return (column.cast(pa.string()) if timed else column).to_pylist()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


# ---- from rows to a matrix ----------------------------------------------------------------------


class _Rollouts:
    """Rows in any order, added one after another.

    Args:
        sheet: reads numbers and words, and names the file
        header: of the columns
        place: the word for the position of a row
    """

    def __init__(self, sheet: sheets.CsvTable, header: Sequence[str], place: str) -> None:
        folded = [name.casefold() for name in header]
        for at, name in enumerate(folded):
            if name and folded.index(name) < at:
                column = quoted(header[at])
                raise ValueError(f"{sheet.file} has two columns {column}: rename one of them")
        self.sheet, self.header, self.place = sheet, header, place
        self.roles = [folded.index(role) for role in ROLES]
        used = {*ROLES, TIMED_OUT, ""}
        self.others = [at for at, name in enumerate(folded) if name not in used]
        self.number = float if sheet.delimiter == "," else sheet.number  # the first is faster
        self.environments: dict[str, int] = {}  # numbers of those seen so far, by name
        self.policies: dict[str, int] = {}
        self.told: list[list[str]] = []  # other cells of each environment, in its first row
        self.varying: set[int] = set()  # which of the others have several values in one of them
        self.rows, self.columns, self.lines = array("q"), array("q"), array("q")
        self.costs, self.words = array("d"), 0

    def add(self, row: Sequence[str], line: int) -> None:
        """Add a row, which is on this line of the file."""
        environment, policy, cell = (row[at] for at in self.roles)
        for name, role in ((environment, ROLES[0]), (policy, ROLES[1])):
            if not name:
                raise ValueError(f"{self._place(line)}: the {role} is missing")
        number = self.environments.setdefault(environment, len(self.environments))
        others = [row[at] for at in self.others]
        if number == len(self.told):
            if self.sheet.is_missing(environment):
                where = self._place(line)
                raise ValueError(f"{where}: the environment is missing ({quoted(environment)})")
            self.told.append(others)
        elif others != (first := self.told[number]):
            self.varying.update(i for i, cell in enumerate(others) if cell != first[i])
        cost = self._cost(cell)
        if cost is None:
            cost = _checked_cost(self.sheet, cell, self._place(line))
            self.words += 1
        if self.words and self.words <= len(self.costs):
            words = f"{quoted(cell)}: write all costs as words, or as numbers"
            raise ValueError(f"{self._place(line)}: {words}")
        self.rows.append(number)
        self.columns.append(self.policies.setdefault(policy, len(self.policies)))
        self.costs.append(cost)
        self.lines.append(line)

    def _place(self, line: int) -> str:
        return f"{self.sheet.file}, {self.place} {line}"

    def _cost(self, cell: str) -> float | None:
        """A cell as a cost in [0, 1]; None if it is a word, missing or wrong."""
        try:
            value = self.number(cell)
        except ValueError:
            return None
        return value if value is not None and 0 <= value <= 1 and "_" not in cell else None

    def table(self) -> RolloutTable:
        """The matrix of all costs; an error if a rollout is missing, or there twice."""
        if not self.costs:
            raise ValueError(f"{self.sheet.file} has a header and no rollouts below it")
        environments, policies = _ordered(self.environments), _ordered(self.policies)
        at = _ranks(environments, self.environments)[np.array(self.rows)] * len(policies)
        at += _ranks(policies, self.policies)[np.array(self.columns)]
        self._check_complete(at, environments, policies)
        values = np.empty(len(self.costs))
        values[at] = self.costs
        told = [self.told[self.environments[name]] for name in environments]
        names = [self.header[at] for at in self.others]
        described = {
            name: self.sheet.with_points([cells[i] for cells in told])
            for i, name in enumerate(names)
            if i not in self.varying
        }
        return RolloutTable(
            self.sheet.file,
            values.reshape(len(environments), len(policies)),
            environments,
            policies,
            described,
            varying=[names[i] for i in sorted(self.varying)],
        )

    def _check_complete(
        self, at: NDArray[np.int64], environments: list[str], policies: list[str]
    ) -> None:
        """An error for a missing or repeated rollout; nothing as large as the matrix is made."""
        order = np.argsort(at, kind="stable")
        found, total = at[order], len(environments) * len(policies)

        def rollout(number: int) -> str:
            row, column = divmod(number, len(policies))
            names = quoted(policies[column]), quoted(environments[row])
            return f"{self.sheet.file}: policy {names[0]} in environment {names[1]}"

        twice = np.flatnonzero(found[1:] == found[:-1])
        if len(twice):
            first, second = (self.lines[order[twice[0] + i]] for i in (0, 1))
            raise ValueError(
                f"{rollout(int(found[twice[0]]))} is in {self.place}s {first} and {second}: each "
                "policy has one rollout in an environment"
            )
        if len(found) < total:
            gaps = np.flatnonzero(found != np.arange(len(found)))
            raise ValueError(
                f"{rollout(int(gaps[0]) if len(gaps) else len(found))} has no row: "
                f"{total - len(found):,} of {total:,} rollouts are missing; {sheets.MISSING_TRIAL}"
            )


def _checked_cost(sheet: sheets.CsvTable, cell: str, where: str) -> float:
    value = sheet.checked_cost(cell, where, "")
    if not 0 <= value <= 1:
        raise ValueError(
            f"{where}: cost {value:g} is outside [0, 1]: rescale the costs by limits known "
            "beforehand"
        )
    return value


def _ordered(names: Iterable[str]) -> list[str]:
    """Names in an order that does not depend on that of the rows: numbers by their size."""
    names = list(names)
    whole = all(re.fullmatch(r"-?\d{1,18}", name, re.ASCII) for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)


def _ranks(order: Sequence[str], known: dict[str, int]) -> NDArray[np.int64]:
    """For each number of a name, its position in the order."""
    ranks = np.empty(len(order), np.int64)
    ranks[[known[name] for name in order]] = np.arange(len(order))
    return ranks
