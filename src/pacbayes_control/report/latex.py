r"""Text, tables and figures as LaTeX, for any engine and without packages for letters.

Names of policies and other text may come from an unknown source: every character that LaTeX would
act on is written so that it is printed, and every letter beyond ASCII is a command of the kernel.
Tables need `booktabs`, figures `graphicx`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pacbayes_control.certify.text import printable

LETTER, GAP = 0.0195, 0.053  # parts of the line: of a small letter, and between two columns
NARROWEST = 0.22  # of the line, for a column of words
MARK = "% Written by pbc export"  # the first line of files that may be overwritten
SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': "''",
    "`": r"\`{}",
    "[": "{[}",  # after the end of a row, it would begin an option
    "*": "{*}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "§": r"\S{}",
    "©": r"\copyright{}",
}
MATHS = {
    **{"≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "±": r"\pm", "−": "-"},
    **{"×": r"\times", "·": r"\cdot", "√": r"\surd", "∞": r"\infty", "‖": r"\|", "∼": r"\sim"},
    **{"′": "'", "°": r"^\circ", "→": r"\to", "←": r"\leftarrow", "★": r"\star", "∈": r"\in"},
    **{"²": "^2", "³": "^3", "¹": "^1", "µ": r"\mu", "½": r"\frac12", "¬": r"\neg"},
}
GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"  # letters that have a command
ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u"},
    **{"\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c"},
}

DIGITS = {**{digit: digit for digit in "0123456789+-=()n"}, "−": "-"}  # raised or lowered

Kind = Literal["text", "words", "number"]  # of a column: on one line, broken into lines, or right


def escape(text: str, *, breaks: bool = False) -> str:
    r"""Text on one line, as LaTeX prints it; long words may be broken, if so asked for.

    >>> print(escape(r"50 % of $x_1$ & \input{/etc/passwd}"))
    50 \% of \$x\_1\$ \& \textbackslash{}input\{/etc/passwd\}
    >>> print(escape("δ ≤ 0.01 for “Zoë”, C₁ and 木"))
    \ensuremath{\delta} \ensuremath{\le} 0.01 for ``Zo\"{e}'', C\ensuremath{_{1}} and {[}U+6728]
    """
    line = unicodedata.normalize("NFC", printable(" ".join(text.split())))
    line = re.sub(r"([-',])(?=\1)", "\\1\0", line)  # two would be a dash or a quotation mark
    if breaks:
        line = re.sub(r"\w{12}(?=\w{4})|[-_/]+(?=\w)|[.:=](?=[A-Za-z])", "\\g<0>\1", line)
    ours = {"\0": "{}", "\1": r"\allowbreak{}"}  # no printable text has these characters
    return "".join(ours.get(letter) or _letter(letter) for letter in line)


def _letter(letter: str) -> str:
    """One character: itself, a command, or its number where LaTeX has no letter for it."""
    if letter in SIGNS:
        return SIGNS[letter]
    if letter.isascii():
        return letter
    if letter in MATHS:
        return rf"\ensuremath{{{MATHS[letter]}}}"
    digit = unicodedata.decomposition(letter).split()
    for place, mark in (("<sub>", "_"), ("<super>", "^")):
        if digit[:1] == [place] and (plain := unicodedata.normalize("NFKC", letter)) in DIGITS:
            return rf"\ensuremath{{{mark}{{{DIGITS[plain]}}}}}"
    if letter in GREEK:
        name = unicodedata.name(letter).rsplit(" ", 1)[-1].replace("LAMDA", "LAMBDA")
        return rf"\ensuremath{{\{name.lower() if letter.islower() else name.capitalize()}}}"
    return _accented(letter) or f"{{[}}U+{ord(letter):04X}]"


def _accented(letter: str) -> str | None:
    base, *marks = unicodedata.normalize("NFD", letter)
    if not base.isalpha() or not base.isascii() or len(marks) != 1 or marks[0] not in ACCENTS:
        return None
    if base in "ij" and marks[0] != "\u0327":
        base = rf"\{base}"
    return rf"\{ACCENTS[marks[0]]}{{{base}}}"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    kind: Kind = "text"


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, caption: str, label: str
) -> str:
    """A floating table of plain texts, which are escaped here; it needs `booktabs`.

    One that is too wide for a column is as wide as a page of two columns.

    Args:
        columns: headings and kinds
        rows: texts, one for each column
        caption: above the table
        label: of ASCII letters, digits, colons and hyphens
    """
    rows = [*rows]
    wide = sum(column.kind == "words" for column in columns)
    rest = 0.99 - GAP * (len(columns) - 1)
    for place, column in enumerate(columns):
        if column.kind != "words":
            rest -= LETTER * max(len(column.heading), *(len(row[place]) for row in rows), 0)
    float_name = "table" if rest > NARROWEST * wide else "table*"
    width = max(NARROWEST, rest / max(wide, 1))
    letters = {"text": "l", "number": "r", "words": rf"p{{{width:.2f}\linewidth}}"}
    kinds = "".join(letters[column.kind] for column in columns)
    return "\n".join(
        [
            rf"{MARK}; it needs \usepackage{{booktabs}}",
            rf"\begin{{{float_name}}}[t]",
            r"  \centering\small",
            rf"  \caption{{{escape(caption)}}}",
            rf"  \label{{{checked_label(label)}}}",
            r"  \smallskip",
            *([r"  \setlength{\tabcolsep}{4pt}"] if float_name == "table*" else []),
            rf"  \begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
            r"    \toprule",
            _row(columns, [column.heading for column in columns]),
            r"    \midrule",
            *(_row(columns, cells) for cells in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            rf"\end{{{float_name}}}",
            "",
        ]
    )


def _row(columns: Sequence[Column], cells: Sequence[str]) -> str:
    r"""A row; after `\raggedright`, two backslashes would not end it."""
    written = [
        r"\raggedright " + escape(cell, breaks=True) if column.kind == "words" else escape(cell)
        for column, cell in zip(columns, cells, strict=True)
    ]
    return rf"    {' & '.join(written)} \tabularnewline"


def figure(file: str, *, caption: str, label: str, width: float) -> str:
    """A floating figure of a PDF beside it; it needs `graphicx`.

    It is `width` inches wide, or as wide as a column that is narrower.
    """
    return "\n".join(
        [
            rf"{MARK}; it needs \usepackage{{graphicx}}, and \graphicspath if it is elsewhere",
            r"\begin{figure}[t]",
            r"  \centering",
            rf"  \includegraphics[width={_at_most(width)}]{{{file}}}",
            rf"  \caption{{{escape(caption)}}}",
            rf"  \label{{{checked_label(label)}}}",
            r"\end{figure}",
            "",
        ]
    )


def _at_most(width: float) -> str:
    """A width in inches, or that of the line where it is less."""
    return rf"\ifdim\linewidth<{width:g}in \linewidth\else {width:g}in\fi"


def checked_label(label: str) -> str:
    """A label that LaTeX can take; an error for any other."""
    if not re.fullmatch(r"[A-Za-z0-9:-]+", label):
        raise ValueError(f"{label!r} is no label: use letters, digits, colons and hyphens")
    return label
