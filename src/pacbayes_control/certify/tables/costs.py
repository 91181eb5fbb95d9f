"""Tables of costs in CSV files: which line is the header, which column names the environments.

If a row that is not an environment were counted as one, the certificate would be wrong: a header of
numbers and a row of means are recognised, or refused if it is not clear what they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.tables.sheets import TRUTHS, WORDS, CsvTable, read_sheet
from pacbayes_control.certify.text import quoted

# A first column under one of these headers names the environments; any other does if no cell in it
# is a number.
LABEL_HEADERS = {
    *("", "#", "environment", "env", "site", "id", "nr", "no", "number", "run", "seed"),
    *("index", "name", "trial", "episode"),
}
# A row is a summary if all words of its name are among these.
_SUMMARY = (
    "total totals sum sums mean means average averages avg ø ⌀ ∅ σ μ median mode std sd stdev "
    "stddev dev deviation standard variance var min max minimum maximum range rate rates share "
    "percent percentage % success successes succeeded successrate failure failures failed fail "
    "fails failurerate pass passed passes overall all grand count counts number n weight weights "
    "probability probabilities summary result results score scores cost costs of per the and in "
    "mittelwert mittel durchschnitt summe gesamt anzahl quote fehlerquote erfolgsquote ergebnis "
    "moyenne somme média media promedio totale totaal gemiddelde"
)
SUMMARY_WORDS = frozenset(_SUMMARY.split())
SUCCESSES = {
    *("success", "successes", "succeeded", "pass", "passed", "passes", "ok"),
    *("reward", "rewards", "return", "returns", "score", "scores"),
}
BESIDE = {"is", "rate", "rates", "share", "percent", "fail", "failed", "mean", "total", "%"}
ASK = "say --header or --no-header (in Python, header=True or False)"


@dataclass(frozen=True)
class RawTable:
    """The costs in a file before they are checked, and how the file was read, in words."""

    values: NDArray  # (environments, policies)
    names: list[str]  # of the policies
    sites: list[str]  # names of the environments
    prior: NDArray | None
    recognised: str
    lines: tuple[int, ...] = ()  # of the environments in a text file


def read_table(path: Path, header: bool | None = None) -> RawTable:
    """Read a table of costs, with one row for each environment and one column for each policy.

    Cells are numbers in [0, 1], or all pass and fail. `header`: whether the first line is a header;
    None to recognise it, with an error if it is not clear.
    """
    sheet = read_sheet(path)
    has_header = _is_header(sheet) if header is None else header
    heading = sheet.rows[0] if has_header else None
    rows, lines = sheet.rows[has_header:], sheet.lines[has_header:]
    labelled = _is_labelled(sheet, heading, rows)
    names = [" ".join(cell.split()) for cell in (heading or [])[labelled:]]
    _check_policies(sheet, names)
    sites = [row[0] for row in rows] if labelled else []
    if labelled:
        _check_sites(sheet, heading, sites, lines)
    cells = [row[labelled:] for row in rows]
    columns = [f"column {quoted(name)}" for name in names]
    columns = columns or [f"policy {j}" for j in range(len(sheet.rows[0]))]
    costs = [
        [
            sheet.checked_cost(cell, f"{sheet.file}, line {line}, {column}", _hint(sheet, line))
            for cell, column in zip(row, columns, strict=False)
        ]
        for row, line in zip(cells, lines, strict=True)
    ]
    at = next((i for i, site in enumerate(sites) if site.casefold() == "prior"), None)
    prior = None
    if at is not None:
        prior = np.array(costs[at])
        for column in (costs, cells, sites, lines):
            del column[at]
    worded = sheet.check_words(cells, lines, _hint(sheet, lines[0]) if lines else "")
    values = np.array(costs, float).reshape(len(costs), len(sheet.rows[0]) - labelled)
    _check_range(sheet, values, lines, not labelled)
    recognised = [
        f"line {sheet.lines[0]} is the header" if has_header else "no header",
        "the first column names the environments" if labelled else "every column is a policy",
        "no prior in the file" if prior is None else "prior from the file",
        *(["pass = 0 and fail = 1"] if worded else []),
    ]
    return RawTable(values, names, sites, prior, ", ".join(recognised), tuple(lines))


# ---- the header, and the column of names --------------------------------------------------------


def _is_header(sheet: CsvTable) -> bool:
    """Whether the first line is a header; an error if it may also be an environment."""
    first, below = sheet.rows[0], sheet.rows[1:]
    label, cells = (first[0], first[1:]) if len(first) > 1 else ("", first)
    if label and label.casefold() in LABEL_HEADERS:
        return True
    if not any(_is_value(sheet, cell) for cell in cells):
        return sheet.number(label) is None
    if _is_counted(sheet):
        return True
    if (label and _is_value(sheet, label)) or not _is_labelled(sheet, None, below):
        return False
    if any(sheet.cost(cell) is None or sheet.is_missing(cell) for cell in cells):
        return False
    stems = {re.sub(r"\d+", "#", row[0].casefold()) for row in sheet.rows}
    numbers = [sheet.number(cell) for cell in cells]
    if len(stems) == 1 and "#" in stems.pop():  # site-1 above site-2
        return False
    if len(set(numbers)) < len(numbers) or any(cell.casefold() in WORDS for cell in _all(below)):
        return False  # policies have different names, and numbers above words are refused later
    if any(number is not None and not 0 <= number <= 1 for number in numbers):
        return True
    raise _unclear(sheet)


def _is_counted(sheet: CsvTable) -> bool:
    """Whether the first line counts the columns from 0, as pandas does for columns without names.

    A line "0,1" may also be the costs of two policies: then the other lines must show that costs
    are written differently, as 0.0 or False.
    """
    first, below = sheet.rows[0], sheet.rows[1:]
    counted = [str(i) for i in range(len(first))]
    if first == ["", *counted[:-1]] and len(first) > 1:  # beside an index
        column = [row[0] for row in below]
        return len(set(column)) == len(column) and not any("." in cell for cell in column)
    if first != counted:
        return False
    if len(first) > 2:
        return True
    written = [cell.casefold().replace(",", ".") for cell in _all(below)]
    exact = {"0.0", "1.0", *TRUTHS}
    if all("." in c or c in TRUTHS for c in written) and any(c in exact for c in written):
        return True
    raise _unclear(sheet)


def _unclear(sheet: CsvTable) -> ValueError:
    cells = quoted(sheet.delimiter.join(sheet.rows[0]))
    where = f"{sheet.file}: line {sheet.lines[0]}, {cells}"
    return ValueError(f"{where}, may be the header or an environment: {ASK}")


def _is_value(sheet: CsvTable, cell: str) -> bool:
    return sheet.cost(cell) is not None or sheet.is_missing(cell) or cell.casefold() in TRUTHS


def _is_labelled(sheet: CsvTable, heading: list[str] | None, rows: list[list[str]]) -> bool:
    if len(sheet.rows[0]) == 1:
        return False
    if heading and heading[0].casefold() in LABEL_HEADERS:
        return True
    return bool(rows) and not any(sheet.cost(row[0]) is not None for row in rows)


def _all(rows: list[list[str]]) -> list[str]:
    return [cell for row in rows for cell in row]


# ---- names --------------------------------------------------------------------------------------


def is_summary(name: str) -> bool:
    """Whether the name of a row is that of a summary of other rows.

    >>> [is_summary(name) for name in ("Mean:", "Ø", "failure rate (%)", "mean street 4", "12")]
    [True, True, True, False, False]
    """
    words = _words(name)
    return bool(words) and SUMMARY_WORDS.issuperset(words)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+|[%⌀∅]", name.casefold().replace(".", ""))


def _check_policies(sheet: CsvTable, names: list[str]) -> None:
    for name in names:
        words = set(_words(name))
        if words & SUCCESSES and words <= SUCCESSES | BESIDE:
            raise ValueError(
                f"{sheet.file}: give costs, 1 for failure: column {quoted(name)} counts successes"
            )


def _check_sites(
    sheet: CsvTable, heading: list[str] | None, sites: list[str], lines: list[int]
) -> None:
    seen = {heading[0].casefold(): sheet.lines[0]} if heading else {}
    for site, line in zip(sites, lines, strict=True):
        where, name = f"{sheet.file}: line {line}", site.casefold()
        if sheet.is_missing(site):
            raise ValueError(f"{where} has no name in the first column")
        if "\n" in site:
            raise ValueError(f"{where}: the name {quoted(site)} has several lines: close its quote")
        if {"prior", "priors"} & set(_words(name)) and name != "prior":
            raise ValueError(f"{where} is called {quoted(site)}: call the row prior if it is one")
        if is_summary(site):
            raise ValueError(
                f"{where}, {quoted(site)}, is a summary and not an environment: remove it, or "
                "rename it if it is one"
            )
        if name in seen:
            raise ValueError(
                f"{sheet.file}: {quoted(site)} is on lines {seen[name]} and {line}: environments "
                "must be independent, so each may be counted only once"
            )
        seen[name] = line


# ---- cells --------------------------------------------------------------------------------------


def _hint(sheet: CsvTable, line: int) -> str:
    """A hint to add to an error if the line was read as costs and may be the header."""
    return f"; if line {line} is the header, say --header" if line == sheet.lines[0] else ""


def _check_range(sheet: CsvTable, values: NDArray, lines: list[int], unlabelled: bool) -> None:
    outside = np.argwhere(~((values >= 0) & (values <= 1)))
    if not len(outside):
        return
    environment, column = outside[0]
    hint = "rescale the costs by limits known beforehand"
    if column == 0 and unlabelled:
        hint += ", or head the column 'site' if it numbers the environments"
    line, value = lines[environment], values[environment, column]
    raise ValueError(
        f"cost {value:g} at environment {environment}, policy {column} (line {line}) is outside "
        f"[0, 1]: {hint}{_hint(sheet, line)}"
    )
