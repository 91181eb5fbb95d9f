"""The record beside a table of rollouts: where its costs come from, and digests of all of them.

It is `costs.csv.json` for `costs.csv`, and in the metadata of a Parquet file. It may come from an
unknown source: a certificate tells what the record says, and `verify` lists it as taken as told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import pacbayes_control
from pacbayes_control.certify import files
from pacbayes_control.certify.costs import MOST_ROWS, Costs
from pacbayes_control.certify.descriptions import (
    LONGEST,
    MOST_COLUMNS,
    Descriptions,
    checked_descriptions,
)
from pacbayes_control.certify.tables.costs import is_summary
from pacbayes_control.certify.tables.rollouts import KEY, RolloutTable
from pacbayes_control.certify.text import as_number, printable, quoted

FORMAT = 1
MOST_PARAMETERS = 100_000  # numbers in all policies that a record lists
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
KINDS = {
    "format": int,
    "version": str,  # of this library
    "columns": list[tuple[str, str]],  # other columns, each with the parameter that it has
    "names": list[str],  # of the policies; empty if they are numbered
    "parameters": list[list[float | bool]] | None,  # of the policies
    "dtype": str,  # of the parameters
    "digests": dict[str, str],  # of costs, names, policies and parameters of environments
    "origin": dict[str, Any],  # as `Costs.origin`
    "seal": str,
}
RANGE = {"task": str, "stream": str, "seed": int, "start": int, "stop": int}
ORIGIN = {  # entries that `rollouts.evaluate` makes
    *(*RANGE, "policy_class", "settings", "cost_rule", "graded", "distribution", "versions"),
    *("data_used", "noise", "code", "rollout_timeout", "incidents", "timed_out", "looks"),
    "declared_looks",
    "device",
}


def record_path(table: Path) -> Path:
    """The file with the record of a CSV table."""
    return table.with_name(f"{table.name}.json")


def has_record(table: Path) -> bool:
    """Whether a table of rollouts has a record of its origin."""
    if table.suffix.lower() != ".parquet":
        return record_path(table).exists()
    import pyarrow.parquet as parquet

    return KEY in (parquet.read_schema(table).metadata or {})


def record_of(costs: Costs, columns: Mapping[str, str]) -> dict[str, Any]:
    """The record of costs whose table has these columns beside environment, policy and cost."""
    parameters, digests = costs.parameters, dict(costs.digests)
    if parameters is None or parameters.size > MOST_PARAMETERS or parameters.ndim != 2:
        parameters = None
        digests.pop("policies", None)
    record = {
        "format": FORMAT,
        "version": pacbayes_control.__version__,
        "columns": [list(pair) for pair in columns.items()],
        "names": list(costs.names),
        "parameters": None if parameters is None else parameters.tolist(),
        "dtype": "" if parameters is None else str(parameters.dtype),
        "digests": digests,
        "origin": dict(costs.origin),
    }
    return record | {"seal": files.seal(record)}


def costs_of(path: Path, table: RolloutTable, graded: bool | None) -> tuple[Costs, str]:
    """The costs of a table of rollouts with its record, if there is one; and how it was read.

    graded: whether costs between 0 and 1 may occur, if the user said so
    """
    beside = record_path(path)
    if table.metadata is not None:
        record, where = files.parse_json(table.metadata, path.name), f"the record in {path.name}"
    elif path.suffix.lower() != ".parquet" and beside.exists():
        record, where = files.read_json(beside.resolve()), beside.name
    else:
        return _without_record(path, table, graded)
    own = "a table of its own, of whose rollouts nothing is known"
    remedy = f"delete {beside.name} to read {path.name} as {own}"
    if table.metadata is not None:
        remedy = f"write the table anew to read it as {own}"
    _check_record(record, where, remedy)
    try:
        costs = _with_record(table, record)
    except ValueError as error:
        raise ValueError(f"{where} does not describe rollouts: {error}; {remedy}") from None
    if costs is None or costs.digests != record["digests"]:
        raise ValueError(
            f"{path.name} is not the table that {where} was written with: it was altered, or the "
            f"record is of another one; restore it, or {remedy}"
        )
    declared = costs.graded
    if None not in (graded, declared) and graded != declared:
        raise ValueError(f"{where} declares graded = {declared}: leave out --graded and --binary")
    more = {} if graded is None else {"graded": graded, "reading": {"graded": graded}}
    costs = costs.with_origin(**_file(path), **more)
    used = dict(record["columns"])
    unused = [name for name in (*table.described, *table.varying) if name not in used]
    return costs, f"{_size(costs)}, origin as {where} tells{_left_out(unused)}"


def _file(path: Path) -> dict[str, str]:
    return {"file": " ".join(printable(path.name).split()), "sha256": files.hash_file(path)}


def _size(costs: Costs) -> str:
    size = f"{costs.environments:,} environments × {costs.policies:,} policies"
    return f"one row a rollout, {size}"


def _left_out(columns: list[str]) -> str:
    few = ", ".join(quoted(name) for name in columns[:5])
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return f", columns not used: {few}{more}" if columns else ""


# ---- with a record ------------------------------------------------------------------------------


def _check_record(record: Any, where: str, remedy: str) -> None:
    try:
        files.check_record(record, KINDS)
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, and {FORMAT} is known")
        if record["seal"] != files.seal(record):
            raise ValueError("it was altered")
        origin = record["origin"]
        if unknown := sorted({*origin} - ORIGIN):
            raise ValueError(f"its origin has an entry {quoted(unknown[0])}")
        files.check_record({name: origin.get(name) for name in RANGE}, RANGE, "origin")
        if not 0 <= origin["start"] < origin["stop"]:
            raise ValueError("its origin names an impossible range of environments")
        if not (origin["task"] + origin["stream"]).isprintable():
            raise ValueError("its origin does not name the task and the stream in plain words")
        if not files.has_type(origin.get("versions", {}), dict[str, str]):
            raise ValueError("bad origin.versions")
    except ValueError as error:
        raise ValueError(f"{where} is not a record of rollouts: {error}; {remedy}") from None


def _with_record(table: RolloutTable, record: dict[str, Any]) -> Costs | None:
    """The costs as they were before they were written; None if the table is another one."""
    origin, names, parameters = record["origin"], record["names"], record["parameters"]
    start, stop = origin["start"], origin["stop"]
    columns = [old for old, _ in record["columns"]]
    if stop - start != len(table.environments) or not {*columns} <= {*table.described}:
        return None
    policies = names or [str(number) for number in range(len(table.policies))]
    if table.environments != [*map(str, range(start, stop))] or {*policies} != {*table.policies}:
        return None
    column = {name: number for number, name in enumerate(table.policies)}
    if len(column) != len(policies):
        return None
    few = stop - start <= MOST_ROWS  # as `rollouts.evaluate` has them
    described = {new: table.described[old] for old, new in record["columns"] if few}
    if parameters is not None and record["dtype"] not in DTYPES:
        raise ValueError(f"the policies' dtype {quoted(record['dtype'])} is unknown")
    costs = Costs(
        table.values[:, [column[name] for name in policies]],
        names,
        origin,
        parameters=None if parameters is None else np.array(parameters, record["dtype"]),
        described=described,
    )
    _ = costs.noise, costs.incidents, costs.cost_rule, costs.distribution, costs.policies_seen
    _ = costs.device
    return costs


# ---- without a record ---------------------------------------------------------------------------


def _without_record(path: Path, table: RolloutTable, graded: bool | None) -> tuple[Costs, str]:
    _check_names(table)
    name = _file(path)["file"]
    numbered = table.policies == [*map(str, range(len(table.policies)))]
    described, unused = {}, list(table.varying)
    for column, cells in table.described.items():
        found = _description(column, cells)
        if found and len(described) < MOST_COLUMNS:
            described |= found
        else:
            unused.append(column)
    origin = {
        **_file(path),
        "rows": len(table.environments),
        "cost_rule": f"as recorded in {name}",
        "distribution": f"as the environments of {name} were chosen",
        **({} if graded is None else {"graded": graded, "reading": {"graded": graded}}),
    }
    costs = Costs(
        table.values,
        () if numbered else table.policies,
        origin,
        sites=table.environments,
        described=described,
    )
    return costs, f"{_size(costs)}{_left_out(unused)}"


def _description(column: str, cells: list[str]) -> Descriptions:
    """The column as a parameter of environments; nothing if a cell is blank or cannot be shown."""
    if max(map(len, cells)) > LONGEST:  # before as much is done for each of them
        return {}
    numbers = [number for cell in cells if (number := as_number(cell)) is not None]
    whole = all(re.fullmatch(r"0|-?[1-9]\d*", cell, re.ASCII) for cell in cells)
    values: ArrayLike = cells
    if not whole and len(numbers) == len(cells):
        if not np.all(np.isfinite(numbers)):
            return {}
        values = numbers
    try:
        return checked_descriptions({column: values}, len(cells))
    except ValueError:
        return {}


def _check_names(table: RolloutTable) -> None:
    """An error for names of a table that may be those of summaries, or two of one environment."""
    for role, names in (("environment", table.environments), ("policy", table.policies)):
        seen: dict[str, str] = {}
        for name in names:
            if is_summary(name):
                raise ValueError(
                    f"{table.file}: the {role} {quoted(name)} is a summary of other rows: remove "
                    "them, or rename it if it is not"
                )
            other = seen.setdefault(_key(name), name)
            if other != name:
                raise ValueError(
                    f"{table.file}: the {role} {quoted(other)} is also {quoted(name)}: write one "
                    "name in one way"
                )


def _key(name: str) -> str:
    """The same text for names that differ in nothing but how they are written.

    >>> [_key(name) for name in ("07", "7.0", "Site 7", "site  ７", "7b")]
    ['7', '7', 'site 7', 'site 7', '7b']
    """
    line = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    whole = re.fullmatch(r"([-+]?[0-9]+)(\.0*)?", line)
    return str(int(whole[1])) if whole else line
