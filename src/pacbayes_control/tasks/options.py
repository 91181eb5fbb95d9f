"""Fields of a record that a user may set: described once, typed, and checked in one place.

A robot's options, a plan and an execution are frozen dataclasses. Their fields are made with
`option`, and become options of a command, values after `--set`, and entries of a JSON file.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pacbayes_control.certify.files import has_type

R = TypeVar("R")

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


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
    kinds: tuple[Any, ...]  # the types that a value may have, beside None
    rare: bool  # whether it is set by `--set` only
    space: str | None  # the kind of policies that it is for: finite, continuous, own (a user's)

    @property
    def kind_words(self) -> str:
        """Its type, for a list of fields."""
        words = []
        for kind in self.kinds:
            origin, inner = get_origin(kind), get_args(kind)
            if origin is Literal:
                words += map(str, inner)
            else:
                words.append(f"{inner[0].__name__},…" if origin is tuple else kind.__name__)
        return " | ".join(words)

    def read(self, text: str) -> Any:
        """The value that a user typed."""
        for kind in self.kinds:
            try:
                if kind is bool:
                    value = WORDS[text.lower()]
                elif get_origin(kind) is tuple:
                    value = tuple(get_args(kind)[0](word.strip()) for word in text.split(","))
                else:
                    value = text if get_origin(kind) is Literal else kind(text)
            except (KeyError, TypeError, ValueError):
                continue
            return self.check(value)
        raise ValueError(f"{self.name} = {text} must be {self.kind_words}")

    def check(self, value: Any) -> Any:
        """A value of the right type and within its limits; an error for any other."""
        if type(None) in get_args(self.kind) and value is None:
            return None
        for kind in self.kinds:
            origin, accepted = get_origin(kind), (int, float) if kind is float else kind
            if origin is Literal and value in get_args(kind):
                return value
            if origin is tuple and has_type(value, kind):
                return tuple(value)
            if kind is Path and isinstance(value, str | Path):
                return Path(value)
            same = isinstance(value, bool) == (kind is bool)  # since True is an int too
            if same and origin is None and isinstance(value, accepted):
                break
        else:
            raise ValueError(f"{self.name} = {value!r} must be {self.kind_words}")
        value = float(value) if kind is float else value
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.name} = {value} must be a finite number")
        least, most = self.facts.get("least"), self.facts.get("most")
        if least is not None and value < least:
            raise ValueError(f"{self.name} = {value}: at least {least} is needed")
        if most is not None and value > most:
            raise ValueError(f"{self.name} = {value}: at most {most} is possible")
        return value


@cache
def options_of(record: type) -> dict[str, Option]:
    """The fields of a record that were made with `option`, by name."""
    hints, found = get_type_hints(record), {}
    for each in fields(record):
        if "help" in each.metadata:
            kind, facts = hints[each.name], each.metadata
            union = get_origin(kind) in (Union, types.UnionType)
            kinds = [one for one in get_args(kind) if one is not type(None)] if union else [kind]
            shared = facts["rare"], facts.get("space")
            found[each.name] = Option(each.name, kind, each.default, facts, (*kinds,), *shared)
    return found


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
    written = {}
    for name, known in options_of(type(record)).items():
        value = getattr(record, name)
        if value != known.default:
            listed = list(value) if type(value) is tuple else value
            written[name] = str(value) if isinstance(value, Path) else listed
    return written
