"""Robots in the plane as plain values, and from plain values.

A record has a number for each field of the robot, and a record for each field that is an object. If
the object may be of several classes, its record has their name as `kind`, and is left out where the
object is the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.robot import Planar

P = TypeVar("P", bound="Planar")

Kinds = Mapping[str, type]  # classes of a part by name in the record; "" if there is only one


def settings_of(task: Planar) -> dict[str, Any] | None:
    """All fields of a robot as plain values; None if a part is of an unknown class."""
    record: dict[str, Any] = {}
    for each in fields(task):
        value, kinds = getattr(task, each.name), task.parts.get(each.name)
        name = task.called.get(each.name, each.name)
        if value is None or (kinds and "" not in kinds and value == _default(each)):
            continue
        if isinstance(value, int | float | tuple):
            record[name] = value
            continue
        kind = next((word for word, known in (kinds or {}).items() if type(value) is known), None)
        if kind is None:
            return None
        own = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        record[name] = {"kind": kind, **own} if kind else own
    return json.loads(json.dumps(record))  # with lists, as it will be read


def from_settings(robot: type[P], record: Any) -> P:
    """The robot that a record describes; an error if the record is not valid.

    The record may come from an untrusted file.
    """
    names = {called: name for name, called in robot.called.items()}
    try:
        _check_plain(record)
        values = {names.get(name, name): _tuples(value) for name, value in record.items()}
        for name, kinds in robot.parts.items():
            if name in values:
                part: Any = values[name]
                make: Any = kinds[part.pop("kind", "")]
                values[name] = make(**part)
        task = robot(**{str(name): value for name, value in values.items()})
        if json.dumps(task.settings, sort_keys=True) != json.dumps(record, sort_keys=True):
            raise ValueError("it is incomplete, or was changed after it was written")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ValueError(f"the record does not describe a {robot.__name__}: {words}") from None
    return task


def _default(each: Field[Any]) -> Any:
    """The default of a field."""
    return each.default_factory() if each.default_factory is not MISSING else each.default


def _check_plain(value: Any, depth: int = 0) -> None:
    """Raise an error for values other than numbers, short lists and records of them."""
    number: Any = value
    if isinstance(value, dict) and depth < 2:
        for name, entry in value.items():
            if not (name == "kind" or (depth == 1 and entry is None)):
                _check_plain(entry, depth + 1)
    elif isinstance(value, list) and len(value) <= 3 and 0 < depth < 3:
        for entry in value:
            _check_plain(entry, 3)
    elif depth == 0 or type(value) not in (int, float) or not -1e9 <= number <= 1e9:
        raise ValueError("its values must be numbers within ±1e9, or lists of at most 3 of them")


def _tuples(value: Any) -> Any:
    """Lists turned into tuples, as the fields of robots are."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value
