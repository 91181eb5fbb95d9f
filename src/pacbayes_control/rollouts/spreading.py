"""A task whose rollouts are spread over workers, for whatever takes a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from pacbayes_control.rollouts.evaluation import table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.rollouts.pools import Workers, gathered
from pacbayes_control.tasks import Environments, Noise, Task


class SpreadTask:
    """The same task, which has its rollouts run by workers."""

    def __init__(self, task: Task, executor: Workers) -> None:
        self._task, self._executor = task, executor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        theirs = getattr(self._task, name)
        return self._surrogate if name == "surrogate" else theirs

    def __repr__(self) -> str:  # it is the same task: a checkpoint of one is one of the other
        return repr(self._task)

    @property
    def name(self) -> str:
        """The task's name, for records."""
        return self._task.name

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        return self._task.environments(n, stream, seed)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        """The costs that the workers return."""
        return table_of(Job(self._task, environments, policies, noise), executor=self._executor)

    def _surrogate(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        job = Job(self._task, environments, policies, noise, surrogate=True)
        return table_of(job, executor=self._executor)


@contextmanager
def spread(task: Task, executor: Workers) -> Iterator[Task]:
    """A task like the given one, whose rollouts the workers run until this ends.

    For searches and whatever else takes a task; `evaluate` has workers of its own.
    """
    with gathered(task, executor) as crew:
        yield SpreadTask(task, crew.executor) if crew.executor else task
