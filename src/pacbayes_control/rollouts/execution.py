"""Where and how rollouts are run, in one record."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pacbayes_control.tasks.task import Task, as_task

DEVICES = ("cpu", "cuda", "auto")

# An Executor, a Dask client, so many threads or processes, or this process.
Workers = Executor | int | Any | None


class Progress(NamedTuple):
    """How much of some work is done."""

    title: str
    done: int  # rollouts, or parts of other work
    total: int
    # Such as the bound so far; in the first report of a search, the search in words.
    remark: str = ""
    # Whether finished work is kept. The first report is then made before any work, so that it
    # tells how much was done by an earlier call.
    kept: bool = False


@dataclass(frozen=True)
class Execution:
    """Where rollouts are run, where they are kept, and how progress is reported.

    Costs are the same, bit for bit, for every execution on one device. Retries and changes of the
    code are counted in `costs.incidents`, and a certificate states them.
    """

    # Any concurrent.futures.Executor, a Dask client, or a number of workers: threads if the task
    # `releases_gil`, processes otherwise. None or 0: this process.
    workers: Workers = None
    # A folder for finished rollouts; for a search, the prefix of the names of its files. If the
    # process is killed, the same call continues from there.
    store: str | Path | None = None
    progress: Callable[[Progress], None] | None = None
    warning: Callable[[str], None] | None = None  # is called with lines that a user should read
    # How often a rollout that failed may be run again and still count; for failures of machines,
    # not of the task.
    retries: int = 0
    # Seconds after which a rollout is ended and costs 1, the worst. Only in processes that are
    # started here: with a number of workers, or none.
    rollout_timeout: float | None = None
    # Policies that are added to a store were made without knowledge of its environments and costs.
    policies_unseen: bool = False
    # Numbers of environments at which a new store will be looked at, declared beforehand.
    declared_looks: tuple[int, ...] = ()
    # Continue although the task's code has changed, in a way that does not change the costs of
    # finished rollouts.
    allow_code_change: bool = False
    # Finished rollouts of the store were run again by this process, to compare their costs.
    repeats_checked: bool = False
    # Where a task that has kernels for several devices rolls out: "cpu", "cuda" (an NVIDIA GPU) or
    # "auto", a GPU if there is one; None: as the task says.
    device: str | None = None
    title: str = field(default="rollouts", repr=False)  # name of the work, for `progress`

    def __post_init__(self) -> None:
        retries, timeout = self.retries, self.rollout_timeout
        if type(retries) is not int or retries < 0:
            raise ValueError(f"retries = {retries!r} is not a whole number of 0 or more")
        if self.device not in (None, *DEVICES):
            raise ValueError(f"device = {self.device!r} is none of {', '.join(DEVICES)}")
        if timeout is None:
            return
        if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise ValueError(f"rollout_timeout = {timeout!r} is not a positive number of seconds")

    def on_device(self, task: Task) -> Task:
        """A task with its rollouts on the device of this execution."""
        return task if self.device is None else as_task(task.on_device(self.device))

    def tell(self, done: int, total: int, remark: str = "") -> None:
        """Report progress."""
        if self.progress:
            self.progress(Progress(self.title, done, total, remark, self.store is not None))

    def warn(self, line: str | None) -> None:
        """Report a warning, if there is one."""
        if line and self.warning:
            self.warning(line)

    def counting_on(self, before: int, total: int, remark: str = "") -> Execution:
        """The same execution for a part of the work, which reports the progress of all of it.

        remark: on the work so far; a remark of a report follows it.
        """
        tell = self.progress
        if tell is None:
            return self

        def tell_all(now: Progress) -> None:
            words = "; ".join(filter(None, (remark, now.remark)))
            tell(now._replace(done=before + now.done, total=total, remark=words))

        return replace(self, progress=tell_all)

    def keeping(self, part: str) -> Execution:
        """The same execution with a file or folder beside the store, if there is one, as store."""
        beside = None if self.store is None else Path(f"{self.store}.{part}")
        return replace(self, store=beside)
