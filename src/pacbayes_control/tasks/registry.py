"""Tasks that are found by name: ours, and those of every package that registers one.

A package registers a class made from `Task` in the entry-point group `pacbayes_control.tasks`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from pacbayes_control.certify.costs import Costs
from pacbayes_control.tasks.environments import Environments
from pacbayes_control.tasks.task import Task

GROUP = "pacbayes_control.tasks"


def installed_tasks() -> list[str]:
    """The names of the installed tasks, found without loading them."""
    return sorted(entry_points(group=GROUP).names)


def task_class(name: str) -> type[Task]:
    """The class of an installed task; the error for an unknown name lists the known ones."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise ValueError(f"task {name!r} is unknown: choose {', '.join(installed_tasks())}")
    return found[0].load()


def recorded_class(costs: Costs) -> type[Task] | None:
    """The class of the task in the origin of costs; None if it is not installed."""
    name = str(costs.origin.get("task", "")).partition(" ")[0]
    return task_class(name) if name in installed_tasks() else None


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
    """Which robot a certificate from these costs is about; None if the record does not say."""
    try:
        return recorded_task(costs).words
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
