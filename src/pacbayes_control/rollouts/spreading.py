"""A task whose rollouts workers run, for whatever takes a task."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from pacbayes_control.rollouts.jobs import Pace
from pacbayes_control.rollouts.pools import Workers, gathered
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.task import AdaptedTask, as_task

ELSEWHERE = 1.0  # s that a piece should take that is sent to a worker


class Spread(AdaptedTask):
    """The same task with the workers that are to run it, whose pace is known from earlier calls."""

    def __init__(self, task: Task, executor: Executor) -> None:
        super().__init__(task)
        self.task, self.executor, self.pace = task, executor, Pace(ELSEWHERE)


@contextmanager
def spread(task: Task, executor: Workers) -> Iterator[Task]:
    """A task like the given one, whose rollouts the workers run until this ends.

    For searches and whatever else takes a task; `evaluate` can be given workers of its own.
    """
    task = as_task(task)
    with gathered(task, executor) as crew:
        yield Spread(task, crew.executor) if crew.executor else task
