"""A task whose rollouts workers run, for functions that take a task only."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from pacbayes_control.rollouts.execution import Workers
from pacbayes_control.rollouts.jobs import Pace
from pacbayes_control.rollouts.pools import open_workers
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.task import AdaptedTask, as_task

ELSEWHERE = 1.0  # seconds that a piece should take in a worker


class SpreadTask(AdaptedTask):
    """A task with the workers that run it, and their pace in earlier calls."""

    def __init__(self, task: Task, executor: Executor) -> None:
        super().__init__(task)
        self.task, self.executor, self.pace = task, executor, Pace(ELSEWHERE)


@contextmanager
def spread(task: Task, executor: Workers) -> Iterator[Task]:
    """A task like the given one, whose rollouts are run by workers until this context ends.

    For searches, which evaluate a task many times; `evaluate` takes workers in its `Execution`.
    """
    task = as_task(task)
    with open_workers(task, executor) as workers:
        yield SpreadTask(task, workers) if workers else task
