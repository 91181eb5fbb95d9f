"""Reading costs, priors and policies from the files of a test campaign.

If a row that is not an environment were counted as one, the certificate would be wrong. A cell that
is not clearly a cost, a name or a prior is refused, and the reading is reported in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.checks import check_names
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.files import existing_file, has_type, hash_file, read_json, read_npy
from pacbayes_control.certify.priors import prior_for, prior_over
from pacbayes_control.certify.tables.costs import RawTable, read_table
from pacbayes_control.certify.tables.rollout_records import costs_of
from pacbayes_control.certify.tables.rollouts import read_rollouts
from pacbayes_control.certify.tables.sheets import SPREADSHEETS, read_sheet
from pacbayes_control.certify.text import printable, quoted

TEXT = (".csv", ".tsv", *SPREADSHEETS)  # for a spreadsheet, the error says how to save it as CSV
FEW = 3  # rows with fractions in a table of 0 and 1 that may be a header or summaries
SHOWN = 12  # names of policies that the reading lists


@dataclass(frozen=True)
class CostTable:
    """Costs from a file, the prior if the file has one, and how the file was read, in words."""

    costs: Costs
    prior: Categorical | None
    reading: str


def read_campaign(
    path: str | Path, *, header: bool | None = None, graded: bool | None = None
) -> CostTable:
    """Read costs from `.npy`, `.npz`, `.csv`, `.tsv` or `.parquet`.

    `.npz`: arrays `costs`, and optionally `prior`, `policies` (names) and `sites` (names of the
    environments). `.csv`: one row for each environment and one column for each policy; optionally a
    header with the policies' names, a first column with the environments', and then a row named
    `prior`. Cells are numbers in [0, 1], or pass and fail. Separators are commas, semicolons (then
    with decimal commas too), tabs or bars. Or one row a rollout, also in `.parquet`, with columns
    `environment`, `policy` and `cost`, as `pbc evaluate` writes it: see `tables.rollouts`.

    Args:
        path: the file.
        header: whether the first line of a `.csv` is a header; by default this is recognised, and
            the file is refused if it is not clear.
        graded: whether costs between 0 and 1 may occur. True also accepts a few rows with fractions
            in a table of 0 and 1 as environments; by default they are refused, as they may be a
            header or a summary. False: trials only succeed or fail.
    """
    path = existing_file(path)
    suffix = path.suffix.lower()
    if path.with_name("campaign.json").exists():
        raise ValueError(
            f"{path} is the table of a campaign, which knows how often it was looked at: learn "
            "from it by pbc learn TASK --campaign FOLDER"
        )
    if (suffix in TEXT and header is not False) or suffix == ".parquet":
        rollouts = read_rollouts(path)
        if rollouts is not None:
            costs, reading = costs_of(path, rollouts, graded)
            return CostTable(costs, None, f"{reading}, {_policies(costs)}")
    if suffix in TEXT:
        table = read_table(path, header)
    elif header is not None:
        raise ValueError(f"{path.name}: only .csv and .tsv files have a header")
    elif suffix == ".npy":
        table = RawTable(read_npy(path), [], [], None, "an array")
    elif suffix == ".npz":
        table = _read_npz(path)
    else:
        raise ValueError(
            f"{path.name}: costs are read from .npy, .npz, .csv or .tsv files, or from .parquet "
            "with one row a rollout"
        )
    options = {"header": header, "graded": graded}
    given = {option: value for option, value in options.items() if value is not None}
    name = " ".join(printable(path.name).split())
    origin = {
        "file": name,
        "sha256": hash_file(path),
        "rows": len(table.values) if table.values.ndim else 0,
        "cost_rule": f"as recorded in {name}",
        "distribution": f"as the environments of {name} were chosen",
        **({"reading": given} if given else {}),
        **({} if graded is None else {"graded": graded}),
    }
    costs = Costs(table.values, table.names, origin=origin, sites=table.sites)
    if not graded:
        _check_summaries(path.name, costs, table.lines)
    prior = None if table.prior is None else prior_for(costs, table.prior)[0]
    return CostTable(costs, prior, f"{table.recognised}, {_policies(costs)}")


def read_prior(path: str | Path, policies: Sequence[str] | int) -> Categorical:
    """Read a prior over policies from `.npy`, `.csv` or `.json`.

    `.csv`: a row of numbers, optionally under a row of the policies' names. `.json`: a list of
    numbers, an object from names to numbers, or the `prior.json` or `posterior.json` of a run,
    which records the environments that it depends on.

    Args:
        path: the file.
        policies: the names of the policies, or their number if they have no names.
    """
    path = existing_file(path)
    names = [] if isinstance(policies, int) else list(policies)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        weights: Any = read_npy(path)
    elif suffix in TEXT:
        weights = _csv_prior(path)
    elif suffix == ".json":
        weights = _json_prior(path)
    else:
        raise ValueError(f"{path.name}: a prior is read from .npy, .csv or .json files")
    weights = _by_name(path, weights, names) if isinstance(weights, dict) else weights
    return prior_over(policies if isinstance(policies, int) else len(names), weights)


def read_policies(path: str | Path) -> tuple[NDArray[np.float64], list[str]]:
    """Read policies, one in each row, and their names, from `.npy` or `.csv`.

    A `.csv` may name each policy in its first column; otherwise there are no names.
    """
    path = existing_file(path)
    names: list[str] = []
    if path.suffix.lower() == ".npy":
        rows = read_npy(path)
    else:
        sheet = read_sheet(path)
        cells = sheet.numbers()
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


# ---- costs --------------------------------------------------------------------------------------


def _read_npz(path: Path) -> RawTable:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise ValueError(f"{path.name} cannot be read as NumPy arrays ({error})") from None
    if "costs" not in arrays:
        raise ValueError(f"{path.name} has no array named costs (it has: {', '.join(arrays)})")
    names, sites = ([str(n) for n in np.ravel(arrays.get(k, []))] for k in ("policies", "sites"))
    recognised = f"arrays {', '.join(sorted(arrays))}"
    return RawTable(arrays["costs"], names, sites, arrays.get("prior"), recognised)


def _check_summaries(file: str, costs: Costs, lines: Sequence[int]) -> None:
    """An error for rows that may be no environments.

    These are a few rows with fractions in a table of 0 and 1, and a last row of means.
    """
    if costs.binary:
        return
    fractions = np.flatnonzero(np.any((costs.values != 0) & (costs.values != 1), axis=1))
    most = max(FEW, costs.environments // 5)
    if len(fractions) <= most and 2 * len(fractions) < costs.environments:
        at = int(fractions[0])
        where = f"line {lines[at]}" if lines else f"row {at}"
        raise ValueError(
            f"{file}, {where}{f' ({quoted(costs.sites[at])})' if costs.sites else ''}: a row with "
            "fractions in a table of 0 and 1 may be a header (say --header) or a summary (remove "
            "it); say --graded (in Python, graded=True) if all such rows are environments"
        )
    if ends_in_means(costs.values):
        where = f"line {lines[-1]}" if lines else "the last row"
        raise ValueError(
            f"{file}, {where}: it has the means of the rows above, and is not an environment: "
            "remove it, or say --graded (in Python, graded=True) if it is one"
        )


def ends_in_means(values: NDArray) -> bool:
    """Whether the last row is the mean of the others to its last digit, which is rare by chance."""
    last, others = values[-1], values[:-1]
    digits = np.array([len(f"{value:.12f}".rstrip("0").partition(".")[2]) for value in last])
    allowed = 0.5 * 10.0**-digits + 1e-12
    near = np.abs(last - others.mean(axis=0)) <= allowed
    return len(others) > 2 and bool(near.all()) and float(np.prod(2 * allowed)) < 1e-3


def _policies(costs: Costs) -> str:
    """The names of the policies, so that a reader notices a column that is not a policy."""
    if not costs.names:
        return "policies numbered from 0"
    shown = ", ".join(quoted(name) for name in costs.names[:SHOWN])
    more = costs.policies - SHOWN
    return f"policies {shown}" + (f" and {more} more" if more > 0 else "")


# ---- priors -------------------------------------------------------------------------------------


def _csv_prior(path: Path) -> dict[str, Any] | list[Any]:
    sheet = read_sheet(path)
    numbers = sheet.numbers()
    if len(sheet.rows) == 2 and all(value is None for value in numbers[0]):
        check_names(sheet.rows[0], len(sheet.rows[0]))
        return dict(zip(sheet.rows[0], numbers[1], strict=True))
    cell = next((c for row in sheet.rows for c in row if sheet.number(c) is None), None)
    if cell is not None:
        raise ValueError(f"{path.name}: {cell!r} is not a number")
    return [value for row in numbers for value in row]


def _json_prior(path: Path) -> dict[str, Any] | list[float] | Categorical:
    record = read_json(path.resolve())  # the user's own file, which may be a link
    if not isinstance(record, dict):
        if not has_type(record, list[float]):
            raise ValueError(f"{path.name} holds no prior: write a list of probabilities")
        return record
    if not isinstance(record.get("kind"), str) and "probabilities" not in record:
        return record
    distribution = Categorical.from_record(record, f"prior in {path.name}")  # of a run
    if distribution.seen is None:
        raise ValueError(
            f"{path.name} does not say which environments it was learnt from: if it was chosen "
            "before any of these, write its probabilities as a list"
        )
    return distribution


def _by_name(path: Path, named: dict[str, Any], names: list[str]) -> list[float]:
    unknown = [name for name in named if name not in names]
    missing = [name for name in names if name not in named]
    if unknown or missing or not names:
        name = repr((unknown + missing or [""])[0])
        raise ValueError(f"{path.name}: the names do not match those of the policies ({name})")
    if not has_type(named, dict[str, float]):
        raise ValueError(f"{path.name}: every policy needs a number")
    return [named[name] for name in names]
