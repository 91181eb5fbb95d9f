"""Tables of trials: one row a trial, or one row an environment and one column a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pacbayes_control.certify.files import read_npy
from pacbayes_control.certify.tables.campaigns import ends_in_means, read_campaign
from pacbayes_control.certify.tables.costs import LABEL_HEADERS
from pacbayes_control.certify.tables.rollout_records import has_record
from pacbayes_control.certify.tables.rollouts import is_header
from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.columns import (
    Roles,
    check_one_row_a_trial,
    find_roles,
    is_label,
    kind_of,
    unclear,
    words_of,
)
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.outcomes import CLEAR, Outcomes, is_missing, read_outcomes
from pacbayes_control.trials.logs.rows import (
    Log,
    Row,
    Scoring,
    check_no_columns,
    shown_name,
    sources_of,
)
from pacbayes_control.trials.logs.sheets import Sheet, as_text, read_cells


def read_table_log(path: Path, options: LogOptions, growing: bool, name: str = "") -> Log:
    """Read a CSV, TSV, JSON lines, Parquet or XLSX file.

    name: of the policy, if no column has one
    """
    sheet = read_cells(path, growing=growing)
    sources = sources_of([path])
    if not sheet.header:
        return Log(sheet.file, [], Scoring("", False), sources=sources)
    if is_header(sheet.header) and has_record(path):
        options = _as_recorded(path, options)
    roles = find_roles(sheet, options)
    if roles is None:
        log = _matrix_log(sheet, options, growing)
    else:
        names = [name or path.stem] * len(sheet.table.rows)
        if roles.policy is not None:
            names = _names(sheet, roles.policy, "policy")
        log = _trial_log(sheet, roles, names, options, growing)
    return replace(log, sources=sources)


def _as_recorded(path: Path, options: LogOptions) -> LogOptions:
    """The options for a table of `pbc evaluate`, whose other columns are no outcomes."""
    costs = read_campaign(path).costs  # an error if it was altered
    if costs.incidents or costs.policies_seen:
        raise ValueError(
            f"{shown_name(path)}: its record tells how the rollouts went or what the policies were "
            "made from, which a certificate must state: pbc certify does"
        )
    usual = {role: getattr(options, role) for role in ("policy", "environment")}
    named = {role: name or role for role, name in usual.items()}
    return replace(options, **named, outcome=options.outcome or "cost")


# ---- one row a trial ----------------------------------------------------------------------------


def _trial_log(
    sheet: Sheet, roles: Roles, policies: Sequence[str], options: LogOptions, growing: bool
) -> Log:
    check_one_row_a_trial(sheet, roles)
    environments: Sequence[str | None] = [None] * len(policies)
    unit, told_by = "trial", ""
    if roles.environment is not None:
        environments = _names(sheet, roles.environment, "environment")
        header = sheet.header[roles.environment]
        unit, told_by = words_of(header), f"column {quoted(header)}"
        if roles.numbered:
            unit = "episode" if unit.startswith("episode") else "trial"
    tasks: Sequence[str | None] = [None] * len(policies)
    if roles.tasks:
        parts = [_names(sheet, at, "task") for at in roles.tasks]
        tasks = ["/".join(each) for each in zip(*parts, strict=True)]
    name = sheet.header[roles.outcome]
    outcomes = _outcomes(sheet, name, sheet.column(roles.outcome), sheet.table.lines, growing)
    costs, scoring = read_outcomes(outcomes, options)
    no_link = [""] * len(costs)
    links = no_link if roles.link is None else map(_link, sheet.column(roles.link))
    cells = map(tuple, sheet.table.rows)
    columns = zip(
        policies, environments, tasks, costs, sheet.table.lines, links, cells, strict=True
    )
    rows = [Row(*each) for each in columns]
    return Log(
        sheet.file,
        rows,
        scoring,
        unit,
        told_by,
        roles.numbered,
        sheet.place,
        notes=roles.notes,
    )


def _names(sheet: Sheet, column: int, role: str) -> list[str]:
    cells = sheet.column(column)
    for at, cell in enumerate(cells):
        if is_missing(cell) and cell.casefold() not in ("none", "."):
            header = quoted(sheet.header[column])
            raise ValueError(f"{sheet.where(at)}: the {role} is missing (column {header})")
    return cells


def _outcomes(
    sheet: Sheet, name: str, cells: Sequence[str], lines: Sequence[int], growing: bool
) -> Outcomes:
    kind = kind_of(name) or ""
    number = sheet.table.number
    return Outcomes(sheet.file, name, kind, cells, lines, sheet.place, number, growing)


def _link(cell: str) -> str:
    """A link as it is recorded; nothing if it cannot be shown."""
    return cell if cell.isprintable() and not is_missing(cell) else ""


# ---- one row an environment, one column a policy ------------------------------------------------


def _matrix_log(sheet: Sheet, options: LogOptions, growing: bool) -> Log:
    """A matrix with the names of the policies in its header."""
    problem = "there is no column for the policy"
    rows, number = sheet.table.rows, sheet.table.number
    if any(number(name) is not None or name.casefold() in CLEAR for name in sheet.header):
        raise ValueError(
            f"{sheet.file}: the first line is no header: add one above it, such as "
            "policy,environment,success, or the names of the policies"
        )
    if sum(map(bool, sheet.header)) == 1 < len(sheet.header):
        title = quoted(next(filter(None, sheet.header)))
        raise ValueError(f"{sheet.file}: the first row is a title, {title}: remove it")
    first = sheet.header[0]
    named = first.casefold() in LABEL_HEADERS or is_label(first)
    labelled = len(sheet.header) > 1 and (
        named or not any(_is_value(sheet, row[0]) for row in rows)
    )
    names = sheet.header[labelled:]
    cells = [cell for row in rows for cell in row[labelled:]]
    if not all(names) or not all(_is_value(sheet, cell) or is_missing(cell) for cell in cells):
        raise unclear(sheet, problem)
    if sheet.nested or any(map(is_label, names)):
        raise unclear(sheet, problem)
    lines = [line for line in sheet.table.lines for _ in names]
    costs, scoring = read_outcomes(_outcomes(sheet, "", cells, lines, growing), options)
    labels = _labels(sheet) if labelled else [f"row {i}" for i in range(1, len(rows) + 1)]
    if scoring.graded:
        scoring = replace(scoring, graded=any(cost not in (None, 0, 1) for cost in costs) or None)
        _check_means(sheet, np.array(costs, float).reshape(len(rows), len(names)))
    trials = [
        Row(names[i % len(names)], labels[i // len(names)], None, cost, line, cells=(cell,))
        for i, (cost, line, cell) in enumerate(zip(costs, lines, cells, strict=True))
    ]
    unit = words_of(sheet.header[0]) if labelled and sheet.header[0] not in ("", "#") else "row"
    return Log(sheet.file, trials, scoring, unit, "rows of a matrix", place=sheet.place)


def _is_value(sheet: Sheet, cell: str) -> bool:
    return sheet.table.number(cell.removesuffix("%")) is not None or cell.casefold() in (
        *CLEAR,
        *("true", "false", "yes", "no"),
    )


def _labels(sheet: Sheet) -> list[str]:
    labels = _names(sheet, 0, "environment")
    for at, label in enumerate(labels):
        if label.casefold() in ("prior", "priors"):
            raise ValueError(
                f"{sheet.where(at)}: a row {quoted(label)} has no trials: pbc certify takes it; "
                "remove it here"
            )
    return labels


def _check_means(sheet: Sheet, costs: np.ndarray) -> None:
    if len(costs) > 1 and not np.isnan(costs).any() and ends_in_means(costs):
        raise ValueError(
            f"{sheet.where(len(costs) - 1)}: it has the means of the rows above, and is not an "
            "environment: remove it"
        )


# ---- arrays -------------------------------------------------------------------------------------


def read_array_log(path: Path, options: LogOptions) -> Log:
    """Read an `.npy` matrix, or an `.npz` file with an array `costs`, as `pbc certify` does."""
    file = shown_name(path)
    check_no_columns(file, options, "policy", "environment", "outcome")
    if path.suffix.lower() == ".npz":
        table = read_campaign(path, graded=True)
        if table.prior is not None:
            raise ValueError(f"{file} has a prior, which has no trials: pbc certify takes it")
        check_no_columns(file, options, "success", "scale")
        values, binary = table.costs.values.astype(float), table.costs.binary
        names = [table.costs.name(j) for j in range(table.costs.policies)]
        labels = list(table.costs.sites)
        costs: list[float | None] = values.ravel().tolist()
        scoring = Scoring(
            "costs from 0, the best, to 1, the worst", not binary, ("scale", 1.0, 0.0, "")
        )
    else:
        values = read_npy(path)
        if values.ndim != 2 or values.dtype.kind not in "biuf" or not values.size:
            raise ValueError(f"{file}: expected numbers of shape (environments, policies)")
        names, labels = [f"policy {j}" for j in range(values.shape[1])], []
        cells = [as_text(value) for value in values.ravel().tolist()]
        lines = np.repeat(np.arange(len(values)), len(names)).tolist()
        costs, scoring = read_outcomes(Outcomes(file, "", "", cells, lines, "row"), options)
        if scoring.graded:
            scoring = replace(
                scoring, graded=any(cost not in (None, 0, 1) for cost in costs) or None
            )
    labels = labels or [f"row {i}" for i in range(len(values))]
    rows = [
        Row(names[i % len(names)], labels[i // len(names)], None, cost, i // len(names))
        for i, cost in enumerate(costs)
    ]
    told_by = "rows of a matrix"
    return Log(file, rows, scoring, "row", told_by, place="row", sources=sources_of([path]))
