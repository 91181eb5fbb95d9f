"""Tasks that are found by name: installed ones, MODULE:TASK of a user, and those of records.

A package registers a class made from `Task` in the entry-point group `pacbayes_control.tasks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pacbayes_control.certify.costs import Costs
from pacbayes_control.tasks.environments import Environments, in_a_line
from pacbayes_control.tasks.identity import user_modules
from pacbayes_control.tasks.options import from_values
from pacbayes_control.tasks.task import Task, as_task

WRITE = "write MODULE:TASK, such as robots.arm:task or robots/arm.py:task"


def installed_tasks() -> dict[str, EntryPoint]:
    """The installed tasks by name, not loaded yet."""
    found = entry_points(group="pacbayes_control.tasks")
    return dict(sorted({entry.name: entry for entry in reversed(list(found))}.items()))


def load_task(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """An installed task, with its options; or an object in a module, as MODULE:TASK.

    The module may be a file, or importable from the current folder or the environment. It is sent
    to workers with the task, so that they need not have it.

    >>> load_task("pacbayes_control.tasks.demo:Stopping").name
    'stopping'
    """
    return with_options(found(name), name, options or {})


def with_options(made: Any, name: str, options: Mapping[str, Any]) -> Task:
    """The task that `found` has found under a name, with its options."""
    if isinstance(made, type) and made.Options is not None:
        return made.from_options(from_values(made.Options, options))
    if options:
        raise ValueError(f"the task {name} has no options: {', '.join(options)}")
    return _called(made, name) if isinstance(made, type) else made


def found(text: str) -> Any:
    """A subclass of `Task` or a task, from the installed tasks or from a module."""
    installed = installed_tasks()
    if text in installed:
        return installed[text].load()
    place, _, name = text.rpartition(":")
    if not place or not name:
        known = ", ".join(installed)
        raise ValueError(f"task {text!r} is unknown: choose {known}, or {WRITE}")
    if place.endswith(".py") and not Path(place).is_file():
        raise FileNotFoundError(f"there is no file {place}")
    try:
        module = _module(place)
    except BaseException as error:  # a module may raise anything when it is imported
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"{place} cannot be imported: {in_a_line(error)}") from error
    if not hasattr(module, name):
        raise ValueError(f"{place} has no {name!r}: {WRITE}")
    task = getattr(module, name)
    if isinstance(task, type) and issubclass(task, Task) and task.Options is not None:
        return task
    if isinstance(task, type) or not hasattr(task, "costs"):
        if not callable(task):
            raise ValueError(f"{text} is not a task: it has no method costs")
        task = _called(task, text)
    return as_task(task)


def _called(make: Any, text: str) -> Any:
    try:
        return make()
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise ValueError(f"{text} cannot be called to make a task: {in_a_line(error)}") from error


def _module(place: str) -> ModuleType:
    import cloudpickle

    if place.endswith(".py"):
        path = Path(place)
        sys.path.append(str(path.parent.absolute()))  # last, as below
        taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
        name = f"task_{path.stem}" if taken else path.stem
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        finally:  # last from now on: a file may have the name of a library
            sys.path.remove(os.getcwd())
            sys.path.append(os.getcwd())
    for own in user_modules(module, {}).values():
        cloudpickle.register_pickle_by_value(own)
    return module


# ---- tasks of records ---------------------------------------------------------------------------


def recorded_class(costs: Costs) -> type[Task] | None:
    """The class of the task in the origin of costs; None if it is not installed."""
    entry = installed_tasks().get(str(costs.origin.get("task", "")).partition(" ")[0])
    return entry.load() if entry else None


def recorded_task(costs: Costs) -> Task:
    """The task in the origin of costs, made from its settings; ValueError if that fails.

    The record is untrusted: the task must agree with its environments, policy class and noise.
    """
    origin: Any = costs.origin
    made = recorded_class(costs)
    if made is None:
        raise ValueError("the run is of no task that is installed")
    settings = origin.get("settings", {"policy_class": origin.get("policy_class")})
    try:
        task = made.from_settings(settings)
    except Exception as error:  # an untrusted record may make a robot raise anything
        raise ValueError(f"the task of the run cannot be made again: {error}") from error
    told = (origin["task"], origin.get("policy_class"), costs.noise or "")
    if told != (task.environments(1, "check").task, task.policy_class, task.noise_kind):
        if "settings" not in origin:
            raise ValueError("the run does not record the settings of its task")
        raise ValueError(f"the run's record contradicts itself: it is of another {task.name}")
    return task


def recorded_words(costs: Costs) -> str | None:
    """Which robot a certificate from these costs is about; None if its settings do not say."""
    try:
        return recorded_task(costs).words if "settings" in costs.origin else ""
    except ValueError:
        return None


def recorded_environments(costs: Costs, task: Task) -> Environments:
    """The environments of costs, drawn again; ValueError if they are of another task."""
    origin: Any = costs.origin
    fields = {"task": str, "stream": str, "seed": int, "start": int, "stop": int}
    if not all(type(origin.get(name)) is kind for name, kind in fields.items()):
        raise ValueError("the run does not tell which environments it counts: it is of no task")
    environments = task.environments(origin["stop"], origin["stream"], origin["seed"])
    if environments.task != origin["task"]:
        raise ValueError(f"the run is of {origin['task']!r}, and not of {environments.task!r}")
    return environments[origin["start"] :]
