"""Robots in the plane as plain values, and from plain values.

A record has a number for each field of the robot, and a record for each field that is an object. If
the object may be of several classes, its record has their name as `kind`, and is left out where the
object is the default.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.robot import Planar

Kinds = Mapping[str, type]  # classes of a part by name in the record; "" if there is only one


def settings_of(task: Planar) -> dict[str, Any] | None:
    """All fields of a robot as plain values; None if a part is of an unknown class."""
    record: dict[str, Any] = {}
    for each in fields(task):
        value, kinds = getattr(task, each.name), task.parts.get(each.name, {})
        name = task.called.get(each.name, each.name)
        usual = each.default if each.default_factory is MISSING else each.default_factory()
        if not each.compare or value is None or (kinds and "" not in kinds and value == usual):
            continue
        if isinstance(value, int | float | tuple):
            record[name] = value
            continue
        kind = next((word for word, known in kinds.items() if type(value) is known), None)
        if kind is None:
            return None
        own = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        record[name] = {"kind": kind, **own} if kind else own
    return json.loads(json.dumps(record))  # with lists, as it will be read


def from_settings(robot: Any, record: Any) -> Any:
    """The robot that a record describes; an error if the record is not valid.

    The record may come from an untrusted file. An early one has only the class of policies.
    """
    names: Any = {called: name for name, called in robot.called.items()}
    values: dict[str, Any] = {}
    try:
        if not isinstance(record, dict):
            raise ValueError("it is not an object with a value for each field")
        if robot.early and record.keys() == {"policy_class"}:
            for controller in robot.early:
                if controller.name == record["policy_class"]:
                    return robot(controller=controller)
            raise ValueError(f"it has no policies {reprlib.repr(record['policy_class'])}")
        for name, value in record.items():
            field = names.get(name, name)
            if field not in robot.parts:
                values[field] = _plain(name, value)
                continue
            if not isinstance(value, dict):
                raise ValueError(f"{name} = {reprlib.repr(value)} must be an object")
            make = robot.parts[field][value.get("kind", "")]
            given = {key: each for key, each in value.items() if key != "kind" and each is not None}
            values[field] = make(**{key: _plain(key, each) for key, each in given.items()})
        task = robot(**values)
        if json.dumps(task.settings, sort_keys=True) != json.dumps(record, sort_keys=True):
            raise ValueError("it is incomplete, or was changed after it was written")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ValueError(f"the record does not describe a {robot.__name__}: {words}") from None
    return task


def _plain(name: str, value: Any) -> Any:
    """A number, or a tuple for a list of numbers; an error for any other value."""
    numbers: Any = value if isinstance(value, list) else [value]
    if len(numbers) > 3 or not all(type(n) in (int, float) and -1e9 <= n <= 1e9 for n in numbers):
        raise ValueError(
            f"{name} = {reprlib.repr(value)} must be a number within ±1e9 or a list of at most 3"
        )
    return tuple(value) if isinstance(value, list) else value
