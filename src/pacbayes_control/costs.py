"""Costs: the checked record of what each policy cost in each environment."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.distributions import Categorical

LABEL_HEADERS = {"", "environment", "site", "id"}  # a first CSV column so named holds no costs


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs in [0, 1], one row an environment and one column a policy.

    >>> costs = Costs([[0, 1], [0, 1], [1, 1]])
    >>> costs.binary, costs.means.round(3).tolist()
    (True, [0.333, 1.0])
    """

    values: NDArray[np.float64 | np.uint8]  # (environments, policies); uint8 where all are 0 or 1
    names: tuple[str, ...] = ()  # of the policies; may be empty
    origin: Mapping[str, object] = field(default_factory=dict)  # where the environments came from

    def __init__(
        self,
        values: ArrayLike,
        names: tuple[str, ...] | list[str] = (),
        origin: Mapping[str, object] | None = None,
    ) -> None:
        checked = np.ascontiguousarray(_checked(values))
        checked.setflags(write=False)
        if names and len(names) != checked.shape[1]:
            raise ValueError(f"{len(names)} names for {checked.shape[1]} policies")
        object.__setattr__(self, "values", checked)
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "origin", dict(origin or {}))

    @property
    def environments(self) -> int:
        """The number of environments, N."""
        return self.values.shape[0]

    @property
    def policies(self) -> int:
        """The number of policies, L."""
        return self.values.shape[1]

    @property
    def binary(self) -> bool:
        """Whether every cost is 0 or 1."""
        return self.values.dtype == np.uint8

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """The mean cost of each policy, C̄ in the paper; shape (policies,)."""
        return self.values.sum(axis=0, dtype=float) / self.environments

    @property
    def failures(self) -> NDArray[np.int64]:
        """How many environments each policy failed in; only for 0/1 costs."""
        if not self.binary:
            raise ValueError("failures can only be counted where every cost is 0 or 1")
        return self.values.sum(axis=0, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the `.npy` file that holds the costs."""
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, np.lib.format.header_data_from_array_1_0(self.values)
        )
        sha = hashlib.sha256(header.getvalue())
        sha.update(self.values.data)
        return sha.hexdigest()

    def name(self, policy: int) -> str:
        """The policy's name, or its number where it has none."""
        return self.names[policy] if self.names else f"policy {policy}"


def _checked(values: ArrayLike) -> NDArray[np.float64 | np.uint8]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(
            "the costs are ragged: every environment needs one cost a policy"
        ) from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the costs are not numbers (dtype {array.dtype})")
    if array.ndim != 2:
        raise ValueError(f"costs need two dimensions, environments × policies, not {array.ndim}")
    if array.size == 0:
        raise ValueError(
            f"the costs are empty: {array.shape[0]} environments × {array.shape[1]} policies"
        )
    if array.shape[0] == 1:
        raise ValueError("one environment is not a sample: costs need at least two rows")
    return checked_costs(array)


def checked_costs(array: NDArray, first: int = 0) -> NDArray[np.float64 | np.uint8]:
    """A copy with every cost known to lie in [0, 1]; bytes where all are 0 or 1.

    An error names the first environment and policy that is wrong, counting rows from `first`.
    """
    if array.dtype == np.uint8 or array.dtype == np.bool_:
        outside = array > 1
    else:
        array = array.astype(np.float64, copy=False)
        outside = ~((array >= 0) & (array <= 1))
    if outside.any():
        i, j = np.argwhere(outside)[0]
        where = f"at environment {first + i}, policy {j}"
        if np.isnan(array[i, j]):
            raise ValueError(f"the cost {where} is NaN: every rollout needs a cost")
        raise ValueError(f"cost {array[i, j]:g} {where} is outside [0, 1]: rescale the costs")
    if array.dtype != np.float64 or np.all((array == 0) | (array == 1)):
        return array.astype(np.uint8)
    return array.copy()


def read_costs(path: Path) -> tuple[Costs, Categorical | None]:
    """Read costs, and a prior where the file has one, from `.npy`, `.npz` or `.csv`.

    `.npz`: arrays `costs`, and optionally `prior` and `policies` (names). `.csv`: one row an
    environment; optionally a header with the policies' names, a first column with the
    environments' (headed environment, site, id or nothing, or with no number in it), and in that
    case a row named `prior`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path.name}: costs are read from .npy, .npz or .csv files")
    values, names, prior = readers[path.suffix.lower()](path)
    costs = Costs(values, names, {"file": path.name})
    if prior is None:
        return costs, None
    return costs, prior_for(costs, prior)


def read_prior(path: Path, costs: Costs) -> Categorical:
    """Read a prior over the policies of `costs` from `.npy`, `.csv` or `.json`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    suffix = path.suffix.lower()
    if suffix == ".json":
        return prior_for(costs, Categorical.load(path))
    if suffix == ".npy":
        return prior_for(costs, _load(path))
    if suffix == ".csv":
        rows = _csv_rows(path)
        cells = [cell for row in rows for cell in row]
        try:
            return prior_for(costs, [float(cell) for cell in cells])
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    raise ValueError(f"{path.name}: a prior is read from .npy, .csv or .json files")


def prior_for(
    costs: Costs,
    prior: Categorical | ArrayLike | None = None,
    policies: NDArray | None = None,
) -> Categorical:
    """A prior with one probability for each policy of `costs`.

    Where none is given: uniform over the distinct rows of `policies`, or over all policies where
    their parameters are not known.
    """
    if policies is not None and len(policies) != costs.policies:
        raise ValueError(f"{len(policies)} rows of parameters for {costs.policies} policies")
    if prior is None and policies is not None:
        return Categorical.uniform_over_distinct(policies)
    if prior is None:
        return Categorical.uniform(costs.policies)
    distribution = prior if isinstance(prior, Categorical) else Categorical(prior, name="prior")
    if len(distribution) != costs.policies:
        raise ValueError(f"the prior has {len(distribution)} entries for {costs.policies} policies")
    return distribution


def _load(path: Path) -> NDArray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise ValueError(f"{path.name} cannot be read as NumPy arrays: is it complete?") from None


def _read_npy(path: Path) -> tuple[NDArray, list[str], None]:
    return _load(path), [], None


def _read_npz(path: Path) -> tuple[NDArray, list[str], NDArray | None]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise ValueError(f"{path.name} cannot be read as NumPy arrays ({error})") from None
    if "costs" not in arrays:
        raise ValueError(f"{path.name} has no array named costs (it has: {', '.join(arrays)})")
    names = [str(name) for name in arrays["policies"]] if "policies" in arrays else []
    return arrays["costs"], names, arrays.get("prior")


def _csv_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path.name} is not a CSV text file") from None


def _read_csv(path: Path) -> tuple[NDArray, list[str], NDArray | None]:
    rows = _csv_rows(path)
    if not rows:
        raise ValueError(f"the costs are empty: {path.name} has no rows")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{path.name} is ragged: row {number} has {len(row)} cells, "
                f"the first has {len(rows[0])}"
            )
    header = rows.pop(0) if not any(_is_number(cell) for cell in rows[0][1:] or rows[0]) else None
    labelled = _first_column_is_labels(header, rows)
    labels = [row[0].strip().lower() for row in rows] if labelled else []
    first = 1 if labelled else 0
    names = [cell.strip() for cell in header[first:]] if header else []
    values = np.empty((len(rows), len(rows[0]) - first if rows else 0))
    for i, row in enumerate(rows):
        for j, cell in enumerate(row[first:]):
            if not _is_number(cell):
                raise ValueError(
                    f"{path.name}: {cell!r} at environment {i}, policy {j} is not a number"
                )
            values[i, j] = float(cell)
    if "prior" not in labels:
        return values, names, None
    at = labels.index("prior")
    return np.delete(values, at, axis=0), names, values[at]


def _first_column_is_labels(header: list[str] | None, rows: list[list[str]]) -> bool:
    if header and header[0].strip().lower() in LABEL_HEADERS:
        return True
    return bool(rows) and not any(_is_number(row[0]) for row in rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
