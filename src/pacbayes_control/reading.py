"""Reading costs and priors from files, as an engineer with a test campaign has them.

A row that is no environment, counted as one, makes a certificate wrong: what is not plainly a cost,
a name or a prior is refused, and what was recognised is told.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.costs import Costs, prior_for, prior_over, read_npy
from pacbayes_control.distributions import Categorical

# A first column so headed names the environments; others do if no cell in them is a number.
LABEL_HEADERS = {"", "environment", "env", "site", "id", "nr", "no", "number", "run", "seed"}
SUMMARIES = {"total", "totals", "sum", "mean", "average", "avg", "median", "std", "min", "max"}
MISSING = {"", "n/a", "na", "null", "none", "-", "?"}
WORDS = {"pass": 0.0, "passed": 0.0, "success": 0.0, "fail": 1.0, "failed": 1.0, "failure": 1.0}
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Campaign:
    """Costs from a file, the prior where the file has one, and how the file was read."""

    costs: Costs
    prior: Categorical | None
    reading: str


def read_campaign(path: str | Path) -> Campaign:
    """Read costs from `.npy`, `.npz` or `.csv`.

    `.npz`: arrays `costs`, and optionally `prior` and `policies` (names). `.csv`: one row an
    environment and one column a policy; optionally a header with the policies' names, a first
    column with the environments', and in that case a row named `prior`. Cells are numbers in
    [0, 1], or pass and fail. Separators are commas, semicolons (then with decimal commas too),
    tabs or bars.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path.name}: costs are read from .npy, .npz or .csv files")
    values, names, prior, reading = readers[path.suffix.lower()](path)
    costs = Costs(values, names, {"file": path.name})
    return Campaign(costs, None if prior is None else prior_for(costs, prior), reading)


def read_prior(path: str | Path, policies: Sequence[str] | int) -> Categorical:
    """Read a prior over policies, given by name or number, from `.npy`, `.csv` or `.json`.

    `.csv`: a row of numbers, optionally under a row of the policies' names. `.json`: a list of
    numbers, an object from names to numbers, or the `prior.json` of a run.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    names = [] if isinstance(policies, int) else list(policies)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        weights: Any = _load(path)
    elif suffix == ".csv":
        weights = _csv_prior(path, names)
    elif suffix == ".json":
        weights = _json_prior(path, names)
    else:
        raise ValueError(f"{path.name}: a prior is read from .npy, .csv or .json files")
    return prior_over(policies if isinstance(policies, int) else len(names), weights)


# ---- NumPy --------------------------------------------------------------------------------------


def read_policies(path: str | Path) -> NDArray[np.float64]:
    """Policies to choose from, one a row: `.npy`, or `.csv` of numbers alone."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix.lower() == ".npy":
        rows = read_npy(path)
    else:
        sheet = read_sheet(path)
        words = [cell for row in sheet.rows for cell in row if cell.lower() in WORDS]
        cells = [[sheet.number(cell) for cell in row] for row in sheet.rows]
        if words or any(value is None for row in cells for value in row):
            raise ValueError(f"{path.name}: policies are rows of numbers, and nothing else")
        rows = np.array(cells, float)
    if rows.dtype.kind not in "biuf" or rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"{path.name}: policies are rows of finite numbers, one row each")
    return rows.astype(float)


def _load(path: Path) -> NDArray:
    try:
        return read_npy(path)
    except ValueError:
        raise ValueError(f"{path.name} cannot be read as NumPy arrays: is it complete?") from None


def _read_npy(path: Path) -> tuple[NDArray, list[str], None, str]:
    return _load(path), [], None, "an array, policies without names"


def _read_npz(path: Path) -> tuple[NDArray, list[str], NDArray | None, str]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise ValueError(f"{path.name} cannot be read as NumPy arrays ({error})") from None
    if "costs" not in arrays:
        raise ValueError(f"{path.name} has no array named costs (it has: {', '.join(arrays)})")
    names = [str(name) for name in np.ravel(arrays.get("policies", []))]
    return arrays["costs"], names, arrays.get("prior"), f"arrays {', '.join(sorted(arrays))}"


# ---- CSV ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """The cells of a CSV file that are not blank, each row with its line in the file."""

    file: str
    rows: list[list[str]]
    lines: list[int]
    delimiter: str

    def number(self, cell: str) -> float | None:
        """The cell as a number, or None; decimal commas only where commas do not separate."""
        text = cell.replace(",", ".") if self.delimiter != "," else cell
        if "_" in text:  # Python takes 0_1 for a number
            return None
        try:
            return float(text)
        except ValueError:
            return WORDS.get(text.lower())


def read_sheet(path: Path) -> Sheet:
    """The rows of a CSV file, all of one length, with whatever separates its cells."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text: save it as 'CSV UTF-8'") from None
    first = next((line for line in text.split("\n") if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, lines = [], []
    try:
        for row in reader:
            if len(row) > 1 or row == [""] or any(cell.strip() for cell in row):  # so is ",,"
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path.name} is not a CSV file ({error})") from None
    if not rows:
        raise ValueError(f"{path.name} has no rows: it is empty")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{path.name} is ragged: line {line} has {len(row)} cells, "
                f"line {lines[0]} has {len(rows[0])}"
            )
    if len(rows[0]) > 1 and not any(row[-1] for row in rows):  # a separator at every line's end
        rows = [row[:-1] for row in rows]
    return Sheet(path.name, rows, lines, delimiter)


def _read_csv(path: Path) -> tuple[NDArray, list[str], NDArray | None, str]:
    sheet = read_sheet(path)
    header = sheet.rows[0] if _is_header(sheet) else None
    body = list(zip(sheet.rows, sheet.lines, strict=True))[1 if header else 0 :]
    labelled = _is_labelled(sheet, header, [row for row, _ in body])
    first = 1 if labelled else 0
    names = header[first:] if header else []
    if labelled:
        _check_labels(sheet, [(row[0], line) for row, line in body])
    values, prior = [], None
    for row, line in body:
        label = row[0].lower() if labelled else ""
        cells = [_cost(sheet, cell, line, j, names) for j, cell in enumerate(row[first:])]
        if label == "prior":
            prior = np.array(cells)
            continue
        _check_range(cells, len(values), line)
        values.append(cells)
    words = any(cell.lower() in WORDS for row, _ in body for cell in row[first:])
    reading = ", ".join(
        [
            f"line {sheet.lines[0]} is the header" if header else "no header",
            "the first column names the environments" if labelled else "every column is a policy",
            "prior from the file" if prior is not None else "no prior in the file",
            *(["pass = 0 and fail = 1"] if words else []),
        ]
    )
    array = np.array(values, dtype=float).reshape(len(values), len(sheet.rows[0]) - first)
    return array, names, prior, reading


def _is_header(sheet: Sheet) -> bool:
    first = sheet.rows[0]
    if len(first) > 1 and first[0].lower() in LABEL_HEADERS and first[0]:
        return True
    cells = first[1:] or first
    return not any(sheet.number(cell) is not None or cell.lower() in MISSING for cell in cells)


def _is_labelled(sheet: Sheet, header: list[str] | None, rows: list[list[str]]) -> bool:
    if len(sheet.rows[0]) == 1:
        return False
    if header and header[0].lower() in LABEL_HEADERS:
        return True
    return bool(rows) and not any(sheet.number(row[0]) is not None for row in rows)


def _check_labels(sheet: Sheet, labels: list[tuple[str, int]]) -> None:
    seen: dict[str, int] = {}
    for label, line in labels:
        if not label:
            raise ValueError(f"{sheet.file}: line {line} has no name in the first column")
        if label.lower() in SUMMARIES:
            raise ValueError(f"{sheet.file}: line {line} ({label}) is no environment: remove it")
        if label.lower() in seen:
            raise ValueError(
                f"{sheet.file}: {label!r} stands on lines {seen[label.lower()]} and {line}: "
                "environments must be independent, so each may count once"
            )
        seen[label.lower()] = line


def _cost(sheet: Sheet, cell: str, line: int, column: int, names: list[str]) -> float:
    value = sheet.number(cell)
    if value is not None:
        return value
    where = f"{sheet.file}, line {line}, {_column(column, names)}"
    if cell.lower() in MISSING:
        raise ValueError(
            f"{where}: the cost is missing; to leave out environments by how they went voids a "
            "certificate"
        )
    if cell.endswith("%"):
        raise ValueError(f"{where}: {cell!r} is a percentage: write costs between 0 and 1")
    raise ValueError(f"{where}: {cell!r} is not a number: write 0 for success and 1 for failure")


def _check_range(cells: list[float], environment: int, line: int) -> None:
    for column, value in enumerate(cells):
        if 0 <= value <= 1:
            continue
        where = f"environment {environment}, policy {column} (line {line})"
        if math.isnan(value):
            raise ValueError(f"the cost at {where} is NaN: every rollout needs a cost")
        hint = "rescale the costs"
        if column == 0:
            hint += ", or head the column 'site' if it numbers the environments"
        raise ValueError(f"cost {value:g} at {where} is outside [0, 1]: {hint}")


def _column(column: int, names: list[str]) -> str:
    return f"column {names[column]}" if names else f"policy {column}"


# ---- priors -------------------------------------------------------------------------------------


def _csv_prior(path: Path, names: list[str]) -> list[float]:
    sheet = read_sheet(path)
    numbers = [[sheet.number(cell) for cell in row] for row in sheet.rows]
    if len(sheet.rows) == 2 and all(value is None for value in numbers[0]):
        named = dict(zip(sheet.rows[0], numbers[1], strict=True))
        return _by_name(path, named, names)
    flat = [value for row in numbers for value in row]
    if any(value is None for value in flat):
        cell = next(c for row in sheet.rows for c in row if sheet.number(c) is None)
        raise ValueError(f"{path.name}: {cell!r} is not a number")
    return [float(value) for value in flat if value is not None]


def _json_prior(path: Path, names: list[str]) -> list[float]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON") from None
    if isinstance(record, dict) and "probabilities" in record:
        record = record["probabilities"]
    if isinstance(record, dict):
        return _by_name(path, record, names)
    if not isinstance(record, list) or not all(_is_number(value) for value in record):
        raise ValueError(f"{path.name} holds no prior: write a list of probabilities")
    return record


def _by_name(path: Path, named: dict[str, Any], names: list[str]) -> list[float]:
    unknown = [name for name in named if name not in names]
    lacking = [name for name in names if name not in named]
    if unknown or lacking or not names:
        name = repr((unknown + lacking or [""])[0])
        raise ValueError(f"{path.name}: the names do not match those of the policies ({name})")
    if not all(_is_number(value) for value in named.values()):
        raise ValueError(f"{path.name}: every policy needs a number")
    return [float(named[name]) for name in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
