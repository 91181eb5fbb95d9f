"""Fields of a record that a user may set: described once, typed, and checked in one place.

A robot's options, a plan and an execution are frozen dataclasses. Their fields are made with
`option`, and become options of a command, values after `--set`, and entries of a JSON file.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R")

YES, NO = ("true", "yes", "1"), ("false", "no", "0")


def option(default: Any, words: str, *, rare: bool = False, **more: Any) -> Any:
    """A field with its default and a line of help.

    Args:
        default: its value if it is not given
        words: the line of help
        rare: not an option of a command, but set by `--set NAME=VALUE`
        more: for the command line, such as `least` and `metavar`
    """
    return field(default=default, metadata={"help": words, "rare": rare, **more})


@dataclass(frozen=True)
class Option:
    """One field of a record."""

    name: str
    kind: Any  # its type
    default: Any
    facts: Mapping[str, Any]  # as given to `option`

    @property
    def rare(self) -> bool:
        """Whether it is set by `--set` only."""
        return bool(self.facts.get("rare"))

    @property
    def space(self) -> str | None:
        """The kind of policies that it is for: finite or continuous; own, for a user's task."""
        return self.facts.get("space")

    @property
    def kind_words(self) -> str:
        """Its type, for a list of fields."""
        words = [
            " | ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else kind.__name__
            for kind in _kinds(self.kind)
        ]
        return " | ".join(words)

    def read(self, text: str) -> Any:
        """The value that a user typed."""
        for kind in _kinds(self.kind):
            try:
                value = _parsed(text, kind)
            except (TypeError, ValueError):
                continue
            return self.check(value)
        raise ValueError(f"{self.name} = {text} must be {self.kind_words}")

    def check(self, value: Any) -> Any:
        """A value of the right type; an error for any other."""
        if value is None and type(None) in get_args(self.kind):
            return None
        for kind in _kinds(self.kind):
            if get_origin(kind) is Literal:
                if value in get_args(kind):
                    return value
            elif kind is tuple and isinstance(value, list | tuple):
                if all(isinstance(word, str) for word in value):
                    return tuple(value)
            elif kind is Path and isinstance(value, str | Path):
                return Path(value)
            elif isinstance(value, bool) == (kind is bool) and (
                isinstance(value, kind) or (kind is float and isinstance(value, int))
            ):
                number: Any = value
                return self._within(float(number) if kind is float else number)
        raise ValueError(f"{self.name} = {value!r} must be {self.kind_words}")

    def _within(self, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.name} = {value} must be a finite number")
        least, most = self.facts.get("least"), self.facts.get("most")
        if least is not None and not value >= least:
            raise ValueError(f"{self.name} = {value}: at least {least} is needed")
        if most is not None and not value <= most:
            raise ValueError(f"{self.name} = {value}: at most {most} is possible")
        return value


@cache
def options_of(record: type) -> dict[str, Option]:
    """The fields of a record that were made with `option`, by name."""
    hints = get_type_hints(record)
    return {
        each.name: Option(each.name, hints[each.name], each.default, each.metadata)
        for each in fields(record)
        if "help" in each.metadata and each.default is not MISSING
    }


def from_values(record: type[R], values: Mapping[str, Any]) -> R:
    """A record from untrusted values; the error names the first wrong one."""
    known = options_of(record)
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r} must be values by the names of fields: {', '.join(known)}")
    for name in values:
        if name not in known:
            raise ValueError(f"there is no field {name!r}: choose from {', '.join(known)}")
    return record(**{name: known[name].check(value) for name, value in values.items()})


def plain(record: Any) -> dict[str, Any]:
    """The values of a record that differ from its defaults, as JSON has them."""
    values = {name: getattr(record, name) for name in options_of(type(record))}
    known = options_of(type(record))
    return {name: _plain(value) for name, value in values.items() if value != known[name].default}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if type(value) is tuple else value


def _kinds(kind: Any) -> list[Any]:
    """The types that a value may have, beside None."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = [part for part in parts if part is not type(None)]
    return [get_origin(part) if get_origin(part) is tuple else part for part in plain]


def _parsed(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in (*YES, *NO):
            raise ValueError(text)
        return text.lower() in YES
    if kind is tuple:
        return tuple(word.strip() for word in text.split(","))
    return text if get_origin(kind) is Literal else kind(text)
