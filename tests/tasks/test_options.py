"""Fields that a user may set: typed, checked in one place, and written as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pacbayes_control.tasks.options import from_values, option, options_of, plain


@dataclass(frozen=True)
class Cake:
    """One field of each type."""

    eggs: int = option(3, "How many.", least=1, most=12)
    sugar: float | None = option(None, "In kg.", rare=True)
    kind: Literal["plain", "lemon"] = option("plain", "Which.")
    iced: bool = option(False, "Whether.")
    book: Path | None = option(None, "Where from.", metavar="FILE")
    guests: tuple[str, ...] = option((), "For whom.")
    notes: str = "not an option"


OPTIONS = options_of(Cake)


def test_the_fields_that_are_options_are_known_with_their_defaults():
    assert list(OPTIONS) == ["eggs", "sugar", "kind", "iced", "book", "guests"]
    assert [each.rare for each in OPTIONS.values()] == [False, True, False, False, False, False]
    assert OPTIONS["kind"].kind_words == "plain | lemon"
    assert OPTIONS["sugar"].kind_words == "float"
    assert OPTIONS["guests"].default == ()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("eggs", "4", 4),
        ("sugar", "0.5", 0.5),
        ("sugar", "1", 1.0),
        ("kind", "lemon", "lemon"),
        ("iced", "true", True),
        ("iced", "No", False),
        ("book", "a/b.txt", Path("a/b.txt")),
        ("guests", "ann, bob", ("ann", "bob")),
    ],
)
def test_what_is_typed_is_read_by_its_type(name: str, text: str, value: Any):
    found = OPTIONS[name].read(text)
    assert found == value
    assert type(found) in (type(value), type(Path()))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("eggs", "many", "eggs = many must be int"),
        ("eggs", "2.5", "eggs = 2.5 must be int"),
        ("eggs", "0", "eggs = 0: at least 1 is needed"),
        ("eggs", "13", "eggs = 13: at most 12 is possible"),
        ("sugar", "nan", "sugar = nan must be a finite number"),
        ("kind", "rum", r"kind = 'rum' must be plain \| lemon"),
        ("iced", "maybe", "iced = maybe must be bool"),
    ],
)
def test_what_is_not_of_its_type_is_an_error(name: str, text: str, words: str):
    with pytest.raises(ValueError, match=rf"^{words}$"):
        OPTIONS[name].read(text)


@pytest.mark.parametrize(
    "values",
    [
        {"eggs": True},
        {"eggs": "4"},
        {"eggs": 4.0},
        {"iced": 1},
        {"sugar": "0.5"},
        {"sugar": float("inf")},
        {"kind": ["plain"]},
        {"guests": [1]},
        {"guests": "ann"},
        {"book": 3},
        {"notes": "x"},
        {"flour": 1},
    ],
    ids=str,
)
def test_a_strangers_record_is_checked(values: dict[str, Any]):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        from_values(Cake, values)


def test_a_record_is_what_differs_and_comes_back():
    cake = Cake(eggs=4, sugar=0.25, book=Path("x"), guests=("ann",))
    record = plain(cake)
    assert record == {"eggs": 4, "sugar": 0.25, "book": "x", "guests": ["ann"]}
    assert from_values(Cake, record) == cake
    assert plain(Cake()) == {}
