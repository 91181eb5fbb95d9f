"""Robots in the plane as plain values, and made from these again.

A record has a number for each field of the robot, and a record for each of its parts. A part that
may be of several kinds names its kind, and is left out where it is the robot's usual one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.robot import Planar

P = TypeVar("P", bound="Planar")

Kinds = Mapping[str, type]  # of a part, by the word in the record; empty for the only one


def settings_of(task: Planar) -> dict[str, Any] | None:
    """All that tells this robot and its environments from others; None where a part is unknown."""
    record: dict[str, Any] = {}
    for each in fields(task):
        value, kinds = getattr(task, each.name), task.parts.get(each.name)
        name = task.called.get(each.name, each.name)
        if value is None or (kinds and "" not in kinds and value == _usual(each)):
            continue
        if kinds is None:
            record[name] = value
            continue
        kind = next((word for word, known in kinds.items() if type(value) is known), None)
        if kind is None:
            return None
        own = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        record[name] = {"kind": kind, **own} if kind else own
    return json.loads(json.dumps(record))  # with lists, as it will be read


def from_settings(robot: type[P], record: Any) -> P:
    """The robot that a stranger's record describes; an error for one that describes none."""
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
            raise ValueError("it is not complete, or not as it was written")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ValueError(f"the record describes no {robot.__name__}: {words}") from None
    return task


def _usual(each: Field[Any]) -> Any:
    """What a field is by default."""
    return each.default_factory() if each.default_factory is not MISSING else each.default


def _check_plain(value: Any, depth: int = 0) -> None:
    """An error for anything but numbers, short lists and records of them."""
    number: Any = value
    if isinstance(value, dict) and depth < 2:
        for name, entry in value.items():
            if not (name == "kind" or (depth == 1 and entry is None)):
                _check_plain(entry, depth + 1)
    elif isinstance(value, list) and len(value) <= 3 and 0 < depth < 3:
        for entry in value:
            _check_plain(entry, 3)
    elif depth == 0 or type(value) not in (int, float) or not -1e9 <= number <= 1e9:
        raise ValueError("it holds other things than numbers")


def _tuples(value: Any) -> Any:
    """Lists as the tuples that they were."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value
