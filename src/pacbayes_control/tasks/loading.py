"""Loading a task by its name: an installed one, or MODULE:TASK of a user."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.options import from_values
from pacbayes_control.tasks.registry import installed_tasks, task_class
from pacbayes_control.tasks.sources import user_modules
from pacbayes_control.tasks.task import Task, as_task

WRITE = "write MODULE:TASK, such as robots.arm:task or robots/arm.py:task"


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
    if text in installed_tasks():
        return task_class(text)
    place, _, name = text.rpartition(":")
    if not place or not name:
        known = ", ".join(installed_tasks())
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
    for own in user_modules(module):
        cloudpickle.register_pickle_by_value(own)
    return module
