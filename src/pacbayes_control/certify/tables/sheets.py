"""CSV files as spreadsheets, pandas and people write them: cells, with their lines in the file.

No line is skipped. A blank line or a comment is an error with its line: a missing trial is often a
failed one.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pacbayes_control.certify.text import LONGEST_NAME, as_number, quoted

DELIMITERS = ",;\t|"
WORDS = {"pass": 0.0, "passed": 0.0, "success": 0.0, "fail": 1.0, "failed": 1.0, "failure": 1.0}
TRUTHS = {"true", "false", "yes", "no", "wahr", "falsch", "ja", "nein"}
MISSING = {
    *("", "-", "--", "–", "—", "?", ".", "..", "...", "…", "*", "/"),
    *("n/a", "na", "n.a.", "n. a.", "<na>", "nan", "nat", "null", "nil", "none", "missing"),
    *("#n/a", "#na", "#nv", "#div/0!", "#value!", "#wert!", "#ref!", "#bezug!", "#name?", "#num!"),
    *("#zahl!", "#null!", "#spill!", "#calc!", "1.#qnan", "-1.#ind"),
}
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
SPREADSHEET_BYTES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # the first bytes of these files
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"  # of no width, but not white space to Python
MISSING_TRIAL = "a missing trial is often a failed one, and must be entered"


@dataclass(frozen=True)
class CsvTable:
    """The cells of a CSV file, in rows of one length, each row with its line in the file."""

    file: str
    rows: list[list[str]]
    lines: list[int]
    delimiter: str

    def number(self, cell: str) -> float | None:
        """The cell as a number, or None; decimal commas only where commas do not separate."""
        return as_number(cell.replace(",", ".") if self.delimiter != "," else cell)

    def numbers(self) -> list[list[float | None]]:
        """All cells as numbers, or None where they are not."""
        return [[self.number(cell) for cell in row] for row in self.rows]

    def with_points(self, cells: list[str]) -> list[str]:
        """The cells with points for decimal commas, where all of them are numbers."""
        if self.delimiter == "," or any(self.number(cell) is None for cell in cells):
            return cells
        return [cell.replace(",", ".") for cell in cells]

    def cost(self, cell: str) -> float | None:
        """The cell as a number, 0 for a pass and 1 for a failure, or None."""
        value = self.number(cell)
        return WORDS.get(cell.casefold()) if value is None else value

    def is_missing(self, cell: str) -> bool:
        """Whether the cell is blank, NaN, or says in another way that there is no value."""
        value = self.number(cell)
        return cell.casefold() in MISSING or (value is not None and math.isnan(value))

    def checked_cost(self, cell: str, where: str, hint: str) -> float:
        """The cell as a cost; an error says where it is, and ends with a hint."""
        value = self.cost(cell)
        if self.is_missing(cell):
            raise ValueError(f"{where}: the cost is missing; {MISSING_TRIAL}")
        if value is not None:
            return value
        cell = cell if len(cell) <= LONGEST_NAME else f"{cell[: LONGEST_NAME - 2]}…{cell[-1]}"
        if cell.endswith("%"):
            raise ValueError(f"{where}: {cell!r} is a percentage: write costs between 0 and 1")
        if cell.casefold() in TRUTHS:
            raise ValueError(f"{where}: {cell!r} is ambiguous: write 0 for success, 1 for failure")
        raise ValueError(
            f"{where}: {cell!r} is not a cost: write 0 for success, 1 for failure, a number "
            f"between, or pass and fail{hint}"
        )

    def check_words(self, rows: list[list[str]], lines: list[int], hint: str) -> bool:
        """Whether the cells are the words pass and fail; an error if only some are."""
        cells = [(cell, line) for row, line in zip(rows, lines, strict=True) for cell in row]
        words = [(cell, line) for cell, line in cells if cell.casefold() in WORDS]
        if words and len(words) < len(cells):
            cell, line = words[0]
            where = f"{self.file}, line {line}: {cell!r}"
            raise ValueError(f"{where} is among numbers: write either words or numbers{hint}")
        return bool(words)


def read_sheet(path: Path, *, growing: bool = False) -> CsvTable:
    """Read a CSV file, with commas, semicolons, tabs or bars between its cells.

    A row of another length, a comment and a blank line are errors, with their line. Blank lines
    before and after a table of several columns are allowed. `growing`: the file is being written,
    and a last line without its end is not read yet.
    """
    delimiter, numbered = separated_rows(path, growing=growing)
    rows, lines = [], []
    for row, line in numbered:
        rows.append(row)
        lines.append(line)
    filled = [i for i, row in enumerate(rows) if not is_blank(row)]
    if not filled:
        raise ValueError(f"{path.name} has no rows: it is empty")
    for i in filled:
        check_row(path.name, rows[i], lines[i], first=rows[filled[0]], first_line=lines[filled[0]])
    width = len(rows[filled[0]])
    while width > 1 and not any(rows[i][width - 1] for i in filled):
        width -= 1  # a separator at every line's end
    ends = (0, len(rows)) if width == 1 else (filled[0], filled[-1])
    for i in range(*ends):
        if is_blank(rows[i]):
            raise blank_line(path.name, lines[i])
    return CsvTable(
        path.name, [rows[i][:width] for i in filled], [lines[i] for i in filled], delimiter
    )


def separated_rows(
    path: Path, *, growing: bool = False
) -> tuple[str, Iterator[tuple[list[str], int]]]:
    """The delimiter of a CSV file, and its rows one after another, each with its line."""
    whole = read_text(path)
    delimiter, text, before = _separated(path, ended_lines(whole) if growing else whole)

    def rows() -> Iterator[tuple[list[str], int]]:
        each_line = (found[0] for found in re.finditer(r"[^\n]*\n|[^\n]+", text))  # no copy of all
        reader = csv.reader(each_line, delimiter=delimiter, strict=True)
        try:
            for row in reader:
                cells = [cell.strip().strip(INVISIBLE).strip() for cell in row]
                yield cells, before + reader.line_num
        except csv.Error as error:
            raise ValueError(f"{path.name} is not a CSV file ({error})") from None

    return delimiter, rows()


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with line ends as on Unix."""
    content = path.read_bytes()
    if path.suffix.lower() in SPREADSHEETS or content.startswith(SPREADSHEET_BYTES):
        raise ValueError(
            f"{path.name} is a spreadsheet: save it as 'CSV UTF-8' (File, Save As) and give that "
            "file"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text: save it as 'CSV UTF-8'") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def ended_lines(text: str) -> str:
    r"""The lines of a text, without a last one that has no end.

    >>> ended_lines("policy,success\nact,1\nact,")
    'policy,success\nact,1\n'
    """
    return text[: text.rfind("\n") + 1]


def _separated(path: Path, text: str) -> tuple[str, str, int]:
    """The delimiter, the text of the table, and the number of lines before it.

    Excel writes and reads a first line such as `sep=;`.
    """
    first, _, rest = text.partition("\n")
    declared = re.fullmatch('"?sep=(.)"?', first, re.IGNORECASE)
    if declared:
        if declared[1] not in DELIMITERS:
            raise ValueError(f"{path.name}: {first!r}: use a comma, a semicolon, a tab or a bar")
        return declared[1], rest, 1
    if path.suffix.lower() == ".tsv":
        return "\t", text, 0
    first = next((line for line in text.split("\n") if line.strip()), "")
    return max(DELIMITERS, key=first.count), text, 0


def blank_line(file: str, line: int) -> ValueError:
    """The error for a blank line among others."""
    return ValueError(
        f"{file}: line {line} is blank: {MISSING_TRIAL}; if nothing is missing there, remove the "
        "line"
    )


def is_blank(row: Sequence[str]) -> bool:
    """Whether the line is blank; a line of separators alone is a row of missing cells."""
    return len(row) < 2 and not any(row)


def check_row(file: str, row: list[str], line: int, *, first: list[str], first_line: int) -> None:
    """An error for a comment, and for a row of another length than the first."""
    numbered = len(row) > 1 and re.fullmatch(r"#\s*\d*", row[0])  # as in #1, #2 under a heading #
    if row[0].startswith("#") and not numbered and row[0].casefold() not in MISSING:
        raise ValueError(f"{file}: line {line} is a comment, {quoted(row[0])}: remove it")
    if len(row) != len(first):
        raise ValueError(
            f"{file} is ragged: line {line} has {len(row)} cells, line {first_line} has "
            f"{len(first)}"
        )
