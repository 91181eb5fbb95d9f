"""A task whose rollouts workers run, for whatever takes a task."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from pacbayes_control.rollouts.jobs import Pace
from pacbayes_control.rollouts.pools import Workers, gathered
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.identity import identity

ELSEWHERE = 1.0  # s that a piece should take that is sent to a worker


class Spread:
    """The same task with the workers that are to run it, whose pace is known from earlier calls."""

    def __init__(self, task: Task, executor: Executor) -> None:
        self.task, self.executor, self.pace = task, executor, Pace(ELSEWHERE)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.task, name)

    def __repr__(self) -> str:  # it is the same task: a checkpoint of one is one of the other
        return identity(self.task)

    @property
    def name(self) -> str:
        """The task's name, for records."""
        return self.task.name

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        return self.task.environments(n, stream, seed)

    def costs(self, policies: NDArray, environments: Environments, *noise: Any) -> NDArray:
        """The costs of a call to the task itself; `evaluate` and its kin ask the workers."""
        return self.task.costs(policies, environments, *noise)


@contextmanager
def spread(task: Task, executor: Workers) -> Iterator[Task]:
    """A task like the given one, whose rollouts the workers run until this ends.

    For searches and whatever else takes a task; `evaluate` can be given workers of its own.
    """
    with gathered(task, executor) as crew:
        yield Spread(task, crew.executor) if crew.executor else task
