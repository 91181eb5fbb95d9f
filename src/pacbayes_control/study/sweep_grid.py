"""The cells of a sweep: fields of the plan, of the search and of the task, with their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.planned import check_listed, usual_search
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.tasks import Task, as_task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.options import Option, from_values, options_of, plain
from pacbayes_control.tasks.registry import found, with_options
from pacbayes_control.tasks.task import brought

MOST_CELLS = 1000
# of each row, beside the fields that are swept
FIGURES = (
    "draws",
    "bound",
    "bound_sd",
    "empirical_cost",
    "empirical_cost_sd",
    "true_cost",
    "true_cost_sd",
    "true_cost_se",
    "below_truth",
)
OWN_ROLLOUTS = "has no use: a sweep keeps its own rollouts"
UNUSED = {  # fields of a plan that a sweep does not take
    "seed": "is an option of its own (--seed)",
    "test_environments": "is an option of its own (--test-environments)",
    "names": "has no use: a sweep names no policy",
    "campaign": OWN_ROLLOUTS,
    "looks": OWN_ROLLOUTS,
    "unseen": OWN_ROLLOUTS,
    "until": "is not for a sweep, whose draws have a fixed number of environments",
    "at_most": "is not for a sweep, whose draws have a fixed number of environments",
    "ball": "is not for a sweep: the true cost is that of the training distribution",
    "of": "is not for a sweep, which compares bounds on the mean cost with it",
    "function_delta": "is not for a sweep, which compares bounds on the mean cost with it",
    "parts": "is not for a sweep: a row has one bound",
    "parts_delta": "is not for a sweep: a row has one bound",
}
TASK = "task."  # before the name of an attribute of a task
PLAIN = (int, float, bool, str)
# words of a task, on which no cost depends
FOR_RECORDS = ("name", "cost_rule", "distribution")
Owner = Literal["plan", "search", "options", "task"]


@dataclass(frozen=True)
class Field:
    """A field that may be set or swept."""

    owner: Owner  # the record that has it
    option: Option  # its type and limits


@dataclass(frozen=True)
class Cell:
    """One combination of values."""

    values: Mapping[str, Any]  # of the swept fields
    plan: Plan
    world: tuple[Any, ...]  # what its rollouts depend on: values of the task, and the policies


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of some fields, for one task."""

    target: Any  # a task, or a class of tasks with options
    plan: Plan  # of the fields that are not swept
    over: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, task: Any, plan: Plan, over: Mapping[str, Sequence[Any]]) -> Grid:
        """A grid, with every value checked; a ValueError names the first that is wrong.

        Args:
            task: an object, a class of tasks, the name of an installed task, or MODULE:TASK
            plan: of the fields that are not swept
            over: values by the name of a field; `task.NAME` for an attribute of a task of yours
        """
        target = task
        if isinstance(task, str):
            target, plan = found(task), replace(plan, task=task)
        elif not isinstance(task, type):
            target = as_task(task)
        known, checked = fields_of(target), {}
        _check_unused(plan)
        if not over:
            raise ValueError(f"name a field to sweep over: choose from {', '.join(known)}")
        for name, values in over.items():
            field = field_named(known, name)
            if name in FIGURES:
                raise ValueError(f"{name} is a column of the table: it cannot be swept")
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise ValueError(f"{name} needs a list of values to sweep over")
            if any(get_origin(kind) is tuple for kind in field.option.kinds):
                raise ValueError(f"{name} is a list itself: it can be set, and not swept")
            listed = [field.option.check(value) for value in values]
            listed = [str(value) if isinstance(value, Path) else value for value in listed]
            if repeated := [value for i, value in enumerate(listed) if value in listed[:i]]:
                raise ValueError(f"{name} = {repeated[0]} is listed twice: give each value once")
            checked[name] = tuple(listed)
        cells = math.prod(map(len, checked.values()))
        if cells > MOST_CELLS:
            raise ValueError(f"{cells:,} combinations are too many: at most {MOST_CELLS:,}")
        return cls(target, plan, checked)

    @cached_property
    def cells(self) -> list[Cell]:
        """Every combination, the last field changing first; each is a plan that can be made."""
        return list(self._cells())

    def _cells(self) -> Iterator[Cell]:
        known = fields_of(self.target)
        for values in product(*self.over.values()):
            chosen = dict(zip(self.over, values, strict=True))
            plan = with_fields(self.target, self.plan, chosen)
            _check_unused(plan)
            depends = [n for n in chosen if known[n].owner in ("options", "task")]
            world = (*(chosen[name] for name in depends), plan.policies)
            task = self.task(Cell(chosen, plan, world))
            listed = task.policies is not None or plan.policies is not None
            plan.check_used(finite=listed)
            if listed:
                check_listed(plan)
            yield Cell(chosen, plan, world)

    def task(self, cell: Cell) -> Task:
        """The task of a cell."""
        name = cell.plan.task or self.target.name
        task = with_options(self.target, name, cell.plan.options)
        own = {n.removeprefix(TASK): v for n, v in cell.values.items() if n.startswith(TASK)}
        if not own:
            return as_task(task)
        try:
            return as_task(replace(brought(task), **own))
        except Exception as error:  # a user's class may raise anything
            raise ValueError(f"{name} cannot be made with {own}: {in_a_line(error)}") from error


def fields_of(target: Any) -> dict[str, Field]:
    """The fields that a sweep knows, by name, for a task or a class of tasks."""
    known = {}
    if "continuous" in target.learns:
        known |= {n: Field("search", each) for n, each in options_of(SearchSettings).items()}
    plan = options_of(Plan).items()
    known |= {n: Field("plan", each) for n, each in plan if n not in UNUSED}
    if target.Options is not None:
        known |= {n: Field("options", each) for n, each in options_of(target.Options).items()}
    if not isinstance(target, type):
        known |= {TASK + n: Field("task", each) for n, each in _attributes(brought(target))}
    return known


def _attributes(own: Any) -> Iterator[tuple[str, Option]]:
    """Fields of a task that is a dataclass, if they are plain numbers or words."""
    hints: dict[str, Any] = {}
    with suppress(Exception):  # annotations may name what is not there
        hints = get_type_hints(type(own)) if is_dataclass(own) else {}
    for each in fields(own) if hints else ():
        kind = hints[each.name]
        union = get_origin(kind) in (Union, UnionType)
        kinds = [one for one in (get_args(kind) if union else (kind,)) if one is not NoneType]
        plain_kinds = kinds and all(one in PLAIN for one in kinds)
        if each.init and plain_kinds and each.name not in FOR_RECORDS:
            value = getattr(own, each.name)
            yield each.name, Option(TASK + each.name, kind, value, {}, (*kinds,), True, None)


def field_named(known: Mapping[str, Field], name: str) -> Field:
    """A field by its name; a ValueError that says which there are."""
    if name in known:
        return known[name]
    if name in UNUSED:
        raise ValueError(f"{name} {UNUSED[name]}")
    if name.startswith(TASK):
        plain = [each for each in known if each.startswith(TASK)]
        which = f"choose from {', '.join(plain)}" if plain else "it has no such fields"
        raise ValueError(f"{name} is no field of the task with a plain number or word: {which}")
    raise ValueError(f"there is no field {name!r}: choose from {', '.join(known)}")


def with_fields(target: Any, plan: Plan, values: Mapping[str, Any]) -> Plan:
    """A plan with other values of its fields, of its search and of the options of its task."""
    owned: dict[Owner, dict[str, Any]] = {"plan": {}, "search": {}, "options": {}, "task": {}}
    known = fields_of(target)
    for name, value in values.items():
        owned[field_named(known, name).owner][name] = value
    options: dict[str, Any] = {**plan.options, **owned["options"]}
    if options and target.Options is not None:
        options = plain(from_values(target.Options, options))
    plan = replace(plan, options=options, **owned["plan"])
    if owned["search"]:
        task = with_options(target, plan.task or target.name, options)
        usual = plan.search or usual_search(as_task(task), plan.prior)
        plan = replace(plan, search=replace(usual, **owned["search"]))
    return plan


def _check_unused(plan: Plan) -> None:
    """Raise ValueError if a plan has a field that a sweep does not take."""
    for name, each in options_of(Plan).items():
        unused = name in UNUSED and name not in ("seed", "test_environments")
        if unused and getattr(plan, name) != each.default:
            raise ValueError(f"{name} {UNUSED[name]}")
