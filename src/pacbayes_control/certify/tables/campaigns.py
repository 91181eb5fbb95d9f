"""Reading costs, priors and policies from files, as an engineer with a test campaign has them.

A row that is no environment, counted as one, makes a certificate wrong: what is not plainly a cost,
a name or a prior is refused, and what was recognised is told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs, check_names, prior_for, prior_over, read_npy
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.tables.costs import CostTable, read_table
from pacbayes_control.certify.tables.sheets import SPREADSHEETS, read_sheet
from pacbayes_control.certify.text import printable, quoted

TEXT = (".csv", ".tsv", *SPREADSHEETS)  # of the last, the error says how to save them as CSV
FEW = 3  # rows with fractions that a table of 0 and 1 has if they are a header or summaries
SHOWN = 12  # names of policies that are told


@dataclass(frozen=True)
class Campaign:
    """Costs from a file, the prior where the file has one, and how the file was read."""

    costs: Costs
    prior: Categorical | None
    reading: str


def read_campaign(
    path: str | Path, *, header: bool | None = None, graded: bool = False
) -> Campaign:
    """Read costs from `.npy`, `.npz`, `.csv` or `.tsv`.

    `.npz`: arrays `costs`, and optionally `prior`, `policies` (names) and `sites` (names of the
    environments). `.csv`: one row an environment and one column a policy; optionally a header with
    the policies' names, a first column with the environments', and in that case a row named
    `prior`. Cells are numbers in [0, 1], or pass and fail. Separators are commas, semicolons (then
    with decimal commas too), tabs or bars.

    Args:
        path: the file.
        header: whether the first line of a `.csv` is a header; None to decide where that is clear,
            and to refuse the file where it is not.
        graded: a few rows with fractions in a table of 0 and 1 are environments; they are taken
            for a header or a summary, and refused, otherwise.

    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix in TEXT:
        table = read_table(path, header)
    elif header is not None:
        raise ValueError(f"{path.name}: only .csv and .tsv files have a header")
    elif suffix == ".npy":
        table = CostTable(_load(path), [], [], None, "an array")
    elif suffix == ".npz":
        table = _read_npz(path)
    else:
        raise ValueError(f"{path.name}: costs are read from .npy, .npz, .csv or .tsv files")
    options = {"header": header, "graded": graded or None}
    given = {name: value for name, value in options.items() if value is not None}
    name = " ".join(printable(path.name).split())
    origin = {
        "file": name,
        "sha256": _sha256(path),
        "rows": len(table.values) if table.values.ndim else 0,
        "cost_rule": f"as recorded in {name}",
        "distribution": f"as the environments of {name} were chosen",
        **({"reading": given} if given else {}),
    }
    costs = Costs(table.values, table.names, origin, sites=table.sites)
    if not graded:
        _check_whole(path.name, costs, table.lines)
    prior = None if table.prior is None else prior_for(costs, table.prior)
    return Campaign(costs, prior, f"{table.recognised}, {_policies(costs)}")


def read_prior(path: str | Path, policies: Sequence[str] | int) -> Categorical:
    """Read a prior over policies, given by name or number, from `.npy`, `.csv` or `.json`.

    `.csv`: a row of numbers, optionally under a row of the policies' names. `.json`: a list of
    numbers, an object from names to numbers, or the `prior.json` or `posterior.json` of a run,
    which tells what it has seen.
    """
    path = _existing(path)
    names = [] if isinstance(policies, int) else list(policies)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        weights: Any = _load(path)
    elif suffix in TEXT:
        weights = _csv_prior(path, names)
    elif suffix == ".json":
        weights = _json_prior(path, names)
    else:
        raise ValueError(f"{path.name}: a prior is read from .npy, .csv or .json files")
    return prior_over(policies if isinstance(policies, int) else len(names), weights)


def read_policies(path: str | Path) -> tuple[NDArray[np.float64], list[str]]:
    """Policies to choose from, one a row, and their names: `.npy`, or `.csv` of numbers.

    A `.csv` may name each policy in its first column; otherwise there are no names.
    """
    path = _existing(path)
    names: list[str] = []
    if path.suffix.lower() == ".npy":
        rows = read_npy(path)
    else:
        sheet = read_sheet(path)
        cells = [[sheet.number(cell) for cell in row] for row in sheet.rows]
        if len(cells[0]) > 1 and all(row[0] is None for row in cells):
            names = [row[0] for row in sheet.rows]
            cells = [row[1:] for row in cells]
        if any(value is None for row in cells for value in row):
            raise ValueError(
                f"{path.name}: policies are rows of numbers, each after its name or all without, "
                "and nothing else"
            )
        rows = np.array(cells, float)
    if rows.dtype.kind not in "biuf" or rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"{path.name}: policies are rows of finite numbers, one row each")
    check_names(names, len(rows))
    return rows.astype(float), names


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- costs --------------------------------------------------------------------------------------


def _load(path: Path) -> NDArray:
    try:
        return read_npy(path)
    except ValueError:
        raise ValueError(f"{path.name} cannot be read as NumPy arrays: is it complete?") from None


def _read_npz(path: Path) -> CostTable:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise ValueError(f"{path.name} cannot be read as NumPy arrays ({error})") from None
    if "costs" not in arrays:
        raise ValueError(f"{path.name} has no array named costs (it has: {', '.join(arrays)})")
    names, sites = ([str(n) for n in np.ravel(arrays.get(k, []))] for k in ("policies", "sites"))
    recognised = f"arrays {', '.join(sorted(arrays))}"
    return CostTable(arrays["costs"], names, sites, arrays.get("prior"), recognised)


def _check_whole(file: str, costs: Costs, lines: Sequence[int]) -> None:
    """An error for a few rows with fractions in a table of 0 and 1: a header, or summaries."""
    if costs.binary:
        return None
    fractions = np.flatnonzero(np.any((costs.values != 0) & (costs.values != 1), axis=1))
    most = max(FEW, costs.environments // 5)
    if len(fractions) > most or 2 * len(fractions) >= costs.environments:
        return _check_last(file, costs, lines)
    at = int(fractions[0])
    where = f"line {lines[at]}" if lines else f"row {at}"
    raise ValueError(
        f"{file}, {where}{f' ({quoted(costs.sites[at])})' if costs.sites else ''}: a row with "
        "fractions in a table of 0 and 1 may be a header (say --header) or a summary (remove it); "
        "say --graded (in Python, graded=True) if all such rows are environments"
    )


def _check_last(file: str, costs: Costs, lines: Sequence[int]) -> None:
    """An error for a last row that sums up the others."""
    if _ends_in_means(costs.values):
        where = f"line {lines[-1]}" if lines else "the last row"
        raise ValueError(
            f"{file}, {where}: it has the means of the rows above, and is no environment: remove "
            "it, or say --graded (in Python, graded=True) if it is one"
        )


def _ends_in_means(values: NDArray) -> bool:
    """Whether the last row is the mean of the others, as far as its digits go: hardly by chance."""
    last, others = values[-1], values[:-1]
    digits = np.array([len(f"{value:.12f}".rstrip("0").partition(".")[2]) for value in last])
    allowed = 0.5 * 10.0**-digits + 1e-12
    near = np.abs(last - others.mean(axis=0)) <= allowed
    return len(others) > 2 and bool(near.all()) and float(np.prod(2 * allowed)) < 1e-3


def _policies(costs: Costs) -> str:
    """The names of the policies, so that a column of something else is noticed."""
    if not costs.names:
        return "policies numbered from 0"
    shown = ", ".join(quoted(name) for name in costs.names[:SHOWN])
    more = costs.policies - SHOWN
    return f"policies {shown}" + (f" and {more} more" if more > 0 else "")


# ---- priors -------------------------------------------------------------------------------------


def _csv_prior(path: Path, names: list[str]) -> list[float]:
    sheet = read_sheet(path)
    numbers = [[sheet.number(cell) for cell in row] for row in sheet.rows]
    if len(sheet.rows) == 2 and all(value is None for value in numbers[0]):
        check_names(sheet.rows[0], len(sheet.rows[0]))
        named = dict(zip(sheet.rows[0], numbers[1], strict=True))
        return _by_name(path, named, names)
    flat = [value for row in numbers for value in row]
    if any(value is None for value in flat):
        cell = next(c for row in sheet.rows for c in row if sheet.number(c) is None)
        raise ValueError(f"{path.name}: {cell!r} is not a number")
    return [float(value) for value in flat if value is not None]


def _json_prior(path: Path, names: list[str]) -> list[float] | Categorical:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON") from None
    if isinstance(record, dict):
        of_a_run = isinstance(record.get("kind"), str) or "probabilities" in record
        return _recorded(path, record) if of_a_run else _by_name(path, record, names)
    if not isinstance(record, list) or not all(_is_number(value) for value in record):
        raise ValueError(f"{path.name} holds no prior: write a list of probabilities")
    return record


def _recorded(path: Path, record: dict[str, Any]) -> Categorical:
    """A distribution of a run, with what it has seen."""
    distribution = Categorical.from_record(record, f"prior in {path.name}")
    if distribution.seen is None:
        raise ValueError(
            f"{path.name} does not say which environments it was learnt from: if it was chosen "
            "before any of these, write its probabilities as a list"
        )
    return distribution


def _by_name(path: Path, named: dict[str, Any], names: list[str]) -> list[float]:
    unknown = [name for name in named if name not in names]
    lacking = [name for name in names if name not in named]
    if unknown or lacking or not names:
        name = repr((unknown + lacking or [""])[0])
        raise ValueError(f"{path.name}: the names do not match those of the policies ({name})")
    if not all(_is_number(value) for value in named.values()):
        raise ValueError(f"{path.name}: every policy needs a number")
    return [named[name] for name in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
