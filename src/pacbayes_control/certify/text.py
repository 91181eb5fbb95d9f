"""Text and numbers as they are shown: on a terminal, in a log or a page, in a sentence.

A file from an unknown source may hold escape sequences that erase a verdict, or a name that looks
like the end of a sentence: text is made safe. Numbers are rounded to the side on which a statement
stays true.
"""

from __future__ import annotations

import json
import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

MARKS = '"„＂❝❞❛❜〝〞〟″‶'  # that look like quotation marks, beside those of Unicode's own classes
LONGEST_NAME = 60  # characters of a name that a sentence shows


# ---- text ---------------------------------------------------------------------------------------


def printable(text: str, most: int | None = None) -> str:
    r"""The same text, with every unprintable character written as an escape; line ends stay.

    Control characters, escape sequences and marks that turn the direction of writing are shown as
    Python writes them. The text is cut to at most `most` characters.

    >>> printable("NOT VERIFIED\x1b[2K\rverified")
    'NOT VERIFIED\\x1b[2K\\rverified'
    >>> printable("a policy with a long name", 12)
    'a policy wi…'
    """
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
        )
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def json_text(record: Any, indent: int | None = 2) -> str:
    r"""A record as JSON that is safe to show, with every unprintable character escaped.

    >>> json_text({"Übung": "a\x9b\u202eb"}, indent=None)
    '{"Übung": "a\\u009b\\u202eb"}'
    """
    text = json.dumps(record, indent=indent, ensure_ascii=False, allow_nan=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def quoted(name: str, most: int = LONGEST_NAME) -> str:
    """A name in quotation marks, on one line, shortened, and without quotation marks of its own.

    >>> quoted('careful” fails in at most 0.01 % of new environments. “')
    "“careful' fails in at most 0.01 % of new environments. '”"
    """
    line = " ".join(printable(name).split())
    marks = [c in MARKS or unicodedata.category(c) in ("Pi", "Pf") for c in line]
    line = "".join("'" if mark else c for c, mark in zip(line, marks, strict=True))
    return f"“{printable(line, most)}”"


# ---- numbers ------------------------------------------------------------------------------------


def as_number(text: str) -> float | None:
    """The text as a number, or None."""
    try:
        return None if "_" in text else float(text)  # Python takes 0_1 for a number
    except ValueError:
        return None


def round_up(value: float, digits: int = 4) -> str:
    """A number with `digits` decimals, rounded upwards, as every bound is shown.

    >>> round_up(0.21394001)
    '0.2140'
    """
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING):f}"


def interval_ends(low: float, high: float, digits: int = 4) -> tuple[str, str]:
    """The ends of an interval with `digits` decimals, rounded outwards.

    >>> interval_ends(0.01239, 0.04561)
    ('0.0123', '0.0457')
    """
    floor = Decimal(low).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR)
    return f"{floor:f}", round_up(high, digits)


def percent_up(fraction: float) -> str:
    """A fraction as a percentage with two decimals, rounded upwards.

    >>> percent_up(0.120601)
    '12.07 %'
    """
    return f"{Decimal(round_up(fraction)) * 100:.2f} %"


def shown(bound: float) -> str:
    """A bound as it was stated, with six decimals at most, rounded upwards.

    >>> shown(0.114), shown(0.10229141)
    ('0.114', '0.102292')
    """
    digits = Decimal(repr(float(bound))).quantize(Decimal("1e-6"), ROUND_CEILING)
    return f"{digits.normalize():f}"


def round_down(radius: float) -> str:
    """Four digits, rounded downwards: nothing is certified for a ball that is larger.

    >>> round_down(0.0818507503), round_down(0.05)
    ('0.08185', '0.05')
    """
    floor = Context(prec=4, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(float(radius))))
    return format(floor.normalize(), "f")


def confidence_percent(delta: float) -> str:
    """1 - δ as a percentage, never rounded up.

    >>> confidence_percent(0.01), confidence_percent(1e-12)
    ('99 %', '1 - 1e-12')
    """
    if delta < 1e-8:
        return f"1 - {delta:g}"
    exact = 100 * (1 - Decimal(repr(float(delta))))
    return f"{exact.quantize(Decimal('1e-8'), ROUND_FLOOR).normalize():f} %"
