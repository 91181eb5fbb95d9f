"""The task that a run was made with, and its environments, from the run's own record."""

from __future__ import annotations

from typing import Any

from pacbayes_control.recipes.swing import recorded_swing
from pacbayes_control.recipes.vehicle import recorded_vehicle
from pacbayes_control.run import Run
from pacbayes_control.tasks import Environments, Task


def recorded_task(run: Run[Any]) -> tuple[Task, Environments] | None:
    """The vehicle or the Swing that a run was learnt on, and the environments that it counts.

    None where the run is of anything else, or of a robot that its record does not describe.
    """
    for find in (recorded_vehicle, recorded_swing):
        try:
            task = find(run)
            return task, recorded_environments(run, task)
        except (TypeError, ValueError):
            continue
    return None


def robot_of(run: Run[Any]) -> str | None:
    """Which robot a run's promise is about, in words, where its record tells."""
    try:
        return recorded_swing(run).words
    except (TypeError, ValueError):
        return None


def recorded_environments(run: Run[Any], task: Task) -> Environments:
    """The environments that a run counts, drawn again; an error if they are not of this task."""
    origin: Any = run.costs.origin
    fields = {"task": str, "stream": str, "seed": int, "start": int, "stop": int}
    if not all(type(origin.get(name)) is kind for name, kind in fields.items()):
        raise ValueError("the run does not tell which environments it counts: it is of no task")
    environments = task.environments(origin["stop"], origin["stream"], origin["seed"])
    if environments.task != origin["task"]:
        raise ValueError(f"the run is of {origin['task']!r}, and not of {environments.task!r}")
    return environments[origin["start"] :]
