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
    """The names of the tasks that are installed; none of them is loaded for it."""
    return sorted(entry_points(group=GROUP).names)


def task_class(name: str) -> type[Task]:
    """The class of a task that is installed; an error that lists the others."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise ValueError(f"task {name!r} is unknown: choose {', '.join(installed_tasks())}")
    return found[0].load()


def recorded_class(costs: Costs) -> type[Task] | None:
    """The class of the task that costs say they are of; None where it is not installed."""
    name = str(costs.origin.get("task", "")).partition(" ")[0]
    return task_class(name) if name in installed_tasks() else None


def recorded_task(costs: Costs) -> Task:
    """The task that costs say they are of, made from its settings; an error where it cannot be.

    The record is a stranger's: the task must draw the environments that it tells of, for the same
    policies and with the same noise.
    """
    origin: Any = costs.origin
    made = recorded_class(costs)
    if made is None:
        raise ValueError("the run is of no task that is installed")
    settings = origin.get("settings", {"policy_class": origin.get("policy_class")})
    try:
        task = made.from_settings(settings)
    except Exception as error:  # of a stranger's record, by whatever robot is installed
        raise ValueError(f"the task of the run cannot be made again: {error}") from error
    told = (origin["task"], origin.get("policy_class"), costs.noise or "")
    if told != (task.environments(1, "check").task, task.policy_class, task.noise_kind):
        raise ValueError(f"the run's record contradicts itself: it is of another {task.name}")
    return task


def recorded_words(costs: Costs) -> str | None:
    """Which robot a promise from these costs is about, in words; None where no record tells."""
    try:
        return recorded_task(costs).words
    except ValueError:
        return None


def recorded_environments(costs: Costs, task: Task) -> Environments:
    """The environments that costs are of, drawn again; an error if they are not of this task."""
    origin: Any = costs.origin
    fields = {"task": str, "stream": str, "seed": int, "start": int, "stop": int}
    if not all(type(origin.get(name)) is kind for name, kind in fields.items()):
        raise ValueError("the run does not tell which environments it counts: it is of no task")
    environments = task.environments(origin["stop"], origin["stream"], origin["seed"])
    if environments.task != origin["task"]:
        raise ValueError(f"the run is of {origin['task']!r}, and not of {environments.task!r}")
    return environments[origin["start"] :]
