"""A user's task, from MODULE:TASK."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes_control.tasks import Task

WRITE = "write MODULE:TASK, such as robots.arm:task or robots/arm.py:task"


def task_name(text: str) -> str:
    """A name for the folder of a run: vehicle, or the module's."""
    place = text.rpartition(":")[0] or text
    return Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]


@contextmanager
def workers_for(task: Any, workers: int | None, scheduler: str | None) -> Iterator[Executor | None]:
    """A cluster, or so many workers, by default one for each core; None for this process."""
    from loky import cpu_count

    from pacbayes_control.rollouts import cluster, pool

    if workers and scheduler:
        raise ValueError("give --workers or --scheduler, not both")
    if scheduler:
        with cluster(scheduler) as executor:
            yield executor
    elif workers is None and task.uses_all_cores:
        yield None
    else:
        with pool(task, workers or cpu_count()) as executor:
            yield executor


def load_task(text: str) -> Task:
    """A task that is installed, or that a module has under a name; what is callable is called.

    The module may be a file, or importable from the current folder or the environment. It goes to
    workers with the task, so that they need not have it.
    """
    from pacbayes_control.tasks.environments import in_a_line
    from pacbayes_control.tasks.registry import installed_tasks, task_class
    from pacbayes_control.tasks.task import as_task

    if text in installed_tasks():
        return task_class(text)()
    place, _, name = text.rpartition(":")
    if not place or not name:
        known = ", ".join(installed_tasks())
        raise ValueError(f"{text!r} is no task: choose {known}, or {WRITE}")
    if place.endswith(".py") and not Path(place).is_file():
        raise FileNotFoundError(f"there is no file {place}")
    try:
        module = _module(place)
    except BaseException as error:  # of whatever the module does when it is imported
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"{place} cannot be imported: {in_a_line(error)}") from error
    if not hasattr(module, name):
        raise ValueError(f"{place} has no {name!r}: {WRITE}")
    task = getattr(module, name)
    if isinstance(task, type) or not hasattr(task, "costs"):
        if not callable(task):
            raise ValueError(f"{text} is no task: it has no method costs")
        try:
            task = task()
        except (Exception, SystemExit) as error:  # of whatever somebody brings
            raise ValueError(f"{text} cannot be called for a task: {in_a_line(error)}") from error
    return as_task(task)


def _module(place: str) -> ModuleType:
    import cloudpickle

    from pacbayes_control.rollouts.sources import user_modules

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
        finally:  # last from now on: a file may be called as a library is
            sys.path.remove(os.getcwd())
            sys.path.append(os.getcwd())
    for own in user_modules(module):
        cloudpickle.register_pickle_by_value(own)
    return module
