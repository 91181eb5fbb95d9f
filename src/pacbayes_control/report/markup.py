"""Lists and tables as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as html_escape

from pacbayes_control.certify.text import printable


def escape(text: str) -> str:
    r"""Text for a page: nothing in it is markup, and nothing is a character that cannot be seen.

    >>> escape("<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return html_escape(printable(text))


def bullets(items: Iterable[str]) -> str:
    """A list of texts, which are escaped."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: int) -> str:
    """A table of cells that are markup already; columns from `numeric` on are numbers."""
    marks = ["" if place < numeric else ' class="number"' for place in range(len(head))]
    titles = "".join(
        f'<th scope="col"{mark}>{cell}</th>' for cell, mark in zip(head, marks, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{mark}>{cell}</td>" for cell, mark in zip(row, marks, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
