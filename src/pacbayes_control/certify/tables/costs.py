"""Tables of costs in CSV files: which line is the header, which column names the environments.

A row that is no environment, counted as one, makes a certificate wrong: a header of numbers and a
row of means are told from environments, or refused where that is not clear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.tables.sheets import MISSING_TRIAL, TRUTHS, WORDS, Sheet, read_sheet
from pacbayes_control.certify.text import quoted

# A first column so headed names the environments; others do if no cell in them is a number.
LABEL_HEADERS = {
    *("", "#", "environment", "env", "site", "id", "nr", "no", "number", "run", "seed"),
    *("index", "name", "trial", "episode"),
}
# A row is a summary where all words of its name are among these.
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
class CostTable:
    """What a file says of costs, as far as it says it, and how it was read."""

    values: NDArray  # (environments, policies)
    names: list[str]  # of the policies
    sites: list[str]  # names of the environments
    prior: NDArray | None
    recognised: str
    lines: tuple[int, ...] = ()  # of the environments in a file of text


def read_table(path: Path, header: bool | None = None) -> CostTable:
    """Read a table of costs; header: whether its first line is one, None to decide if it is clear.

    One row an environment, one column a policy. Cells are numbers in [0, 1], or all pass and fail.
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
    costs = [
        [_cost(sheet, cell, line, j, names) for j, cell in enumerate(row)]
        for row, line in zip(cells, lines, strict=True)
    ]
    at = next((i for i, site in enumerate(sites) if site.casefold() == "prior"), None)
    prior = None
    if at is not None:
        prior = np.array(costs[at])
        for column in (costs, cells, sites, lines):
            del column[at]
    worded = _check_words(sheet, cells, lines)
    _check_range(sheet, costs, lines, not labelled)
    recognised = [
        f"line {sheet.lines[0]} is the header" if has_header else "no header",
        "the first column names the environments" if labelled else "every column is a policy",
        "no prior in the file" if prior is None else "prior from the file",
        *(["pass = 0 and fail = 1"] if worded else []),
    ]
    values = np.array(costs, float).reshape(len(costs), len(sheet.rows[0]) - labelled)
    return CostTable(values, names, sites, prior, ", ".join(recognised), tuple(lines))


# ---- the header, and the column of names --------------------------------------------------------


def _is_header(sheet: Sheet) -> bool:
    """Whether the first line is a header; an error where it may as well be an environment."""
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


def _is_counted(sheet: Sheet) -> bool:
    """Whether the first line counts the columns from 0, as pandas does for columns without names.

    Two policies may cost 0 and 1 in the first environment: then the others must show that costs
    are written otherwise.
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


def _unclear(sheet: Sheet) -> ValueError:
    cells = quoted(sheet.delimiter.join(sheet.rows[0]))
    where = f"{sheet.file}: line {sheet.lines[0]}, {cells}"
    return ValueError(f"{where}, may be the header or an environment: {ASK}")


def _is_value(sheet: Sheet, cell: str) -> bool:
    return sheet.cost(cell) is not None or sheet.is_missing(cell) or cell.casefold() in TRUTHS


def _is_labelled(sheet: Sheet, heading: list[str] | None, rows: list[list[str]]) -> bool:
    if len(sheet.rows[0]) == 1:
        return False
    if heading and heading[0].casefold() in LABEL_HEADERS:
        return True
    return bool(rows) and not any(sheet.cost(row[0]) is not None for row in rows)


def _all(rows: list[list[str]]) -> list[str]:
    return [cell for row in rows for cell in row]


# ---- names --------------------------------------------------------------------------------------


def is_summary(name: str) -> bool:
    """Whether a row so named sums up others, rather than being one of them.

    >>> [is_summary(name) for name in ("Mean:", "Ø", "failure rate (%)", "mean street 4", "12")]
    [True, True, True, False, False]
    """
    words = _words(name)
    return bool(words) and SUMMARY_WORDS.issuperset(words)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+|[%⌀∅]", name.casefold().replace(".", ""))


def _check_policies(sheet: Sheet, names: list[str]) -> None:
    for name in names:
        words = set(_words(name))
        if words & SUCCESSES and words <= SUCCESSES | BESIDE:
            raise ValueError(
                f"{sheet.file}: costs are wanted, 1 for failure, and column {quoted(name)} counts "
                "successes"
            )


def _check_sites(
    sheet: Sheet, heading: list[str] | None, sites: list[str], lines: list[int]
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
                f"{where}, {quoted(site)}, is a summary and no environment: remove it, or rename "
                "it if it is one"
            )
        if name in seen:
            raise ValueError(
                f"{sheet.file}: {quoted(site)} stands on lines {seen[name]} and {line}: "
                "environments must be independent, so each may count once"
            )
        seen[name] = line


# ---- cells --------------------------------------------------------------------------------------


def _cost(sheet: Sheet, cell: str, line: int, column: int, names: list[str]) -> float:
    value = sheet.cost(cell)
    if value is not None and not sheet.is_missing(cell):
        return value
    policy = f"column {quoted(names[column])}" if names else f"policy {column}"
    where = f"{sheet.file}, line {line}, {policy}"
    if sheet.is_missing(cell):
        raise ValueError(f"{where}: the cost is missing; {MISSING_TRIAL}")
    if cell.endswith("%"):
        raise ValueError(f"{where}: {cell!r} is a percentage: write costs between 0 and 1")
    if cell.casefold() in TRUTHS:
        raise ValueError(
            f"{where}: {cell!r} may mean either: write 0 for success and 1 for failure"
        )
    raise ValueError(
        f"{where}: {cell!r} is not a number: write 0 for success and 1 for failure"
        f"{_header_hint(sheet, line)}"
    )


def _header_hint(sheet: Sheet, line: int) -> str:
    """Words to add where a line was read as costs and may be the header."""
    return f"; if line {line} is the header, say --header" if line == sheet.lines[0] else ""


def _check_words(sheet: Sheet, rows: list[list[str]], lines: list[int]) -> bool:
    """Whether the cells say pass and fail; an error where only some do."""
    words = [
        (cell, line)
        for row, line in zip(rows, lines, strict=True)
        for cell in row
        if cell.casefold() in WORDS
    ]
    if not words or len(words) == len(_all(rows)):
        return bool(words)
    cell, line = words[0]
    raise ValueError(
        f"{sheet.file}, line {line}: {cell!r} stands among numbers: write either words or numbers"
        f"{_header_hint(sheet, lines[0])}"
    )


def _check_range(sheet: Sheet, rows: list[list[float]], lines: list[int], unlabelled: bool) -> None:
    for environment, (row, line) in enumerate(zip(rows, lines, strict=True)):
        for column, value in enumerate(row):
            if 0 <= value <= 1:
                continue
            hint = "rescale the costs by limits known beforehand"
            if column == 0 and unlabelled:
                hint += ", or head the column 'site' if it numbers the environments"
            raise ValueError(
                f"cost {value:g} at environment {environment}, policy {column} (line {line}) is "
                f"outside [0, 1]: {hint}{_header_hint(sheet, line)}"
            )
