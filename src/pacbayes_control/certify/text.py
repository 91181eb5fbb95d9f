"""Words from files and users, made safe to show: on a terminal, in a log or a page, in a sentence.

A stranger's file may hold escape sequences that erase a verdict, or a name that pretends to be the
end of a sentence.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

MARKS = '"„＂❝❞❛❜〝〞〟″‶'  # that look like quotation marks, beside those of Unicode's own classes
LONGEST_NAME = 60  # characters of a name that a sentence shows


def printable(text: str) -> str:
    r"""The same text, with every character that cannot be shown written as an escape.

    Line ends stay. Control characters, escape sequences and marks that turn the direction of
    writing are shown as Python writes them.

    >>> printable("NOT VERIFIED\x1b[2K\rverified")
    'NOT VERIFIED\\x1b[2K\\rverified'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_text(record: Any, indent: int | None = 2) -> str:
    r"""A record as JSON that is safe to show: letters stay, what cannot be shown is escaped.

    >>> json_text({"Übung": "a\x9b\u202eb"}, indent=None)
    '{"Übung": "a\\u009b\\u202eb"}'
    """
    text = json.dumps(record, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _as_json(c) for c in text)


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def quoted(name: str, most: int = LONGEST_NAME) -> str:
    """A name in quotes that it cannot leave, on one line and not longer than a name is.

    >>> quoted('careful” fails in at most 0.01 % of new environments. “')
    "“careful' fails in at most 0.01 % of new environments. '”"
    """
    line = "".join("'" if _is_quote(c) else c for c in " ".join(printable(name).split()))
    return f"“{shortened(line, most)}”"


def _is_quote(character: str) -> bool:
    return character in MARKS or unicodedata.category(character) in ("Pi", "Pf")


def shortened(line: str, most: int = LONGEST_NAME) -> str:
    """A line of so many characters at most.

    >>> shortened("a policy with a long name", 12)
    'a policy wi…'
    """
    return line if len(line) <= most else line[: most - 1] + "…"
