"""The workers that roll out: this process, threads, processes, a Dask client or an Executor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import cloudpickle

from pacbayes_control.certify.files import sha256
from pacbayes_control.rollouts.cluster import ClusterWorkers
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.jobs import Job, Pace
from pacbayes_control.rollouts.processes import THREADS, Processes, cores
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import in_a_line

HERE, ELSEWHERE = 0.25, 1.0  # seconds that a piece should take in this process, in a worker
MANY = 100  # workers from which on pieces are longer: the scheduler has to keep up
LARGE = 1 << 16  # bytes of a task that is not sent with every piece


class LostWorkers(RuntimeError):  # noqa: N818 - a state of the workers, not a fault of the program
    """Workers were lost that cannot be replaced from here."""


class WorkerPool:
    """Workers that are open: one interface to this process, and to any Executor."""

    def __init__(self, executor: Executor | None, timeout: float | None = None) -> None:
        if timeout is not None and not isinstance(executor, Processes):
            raise ValueError(
                "a rollout that takes too long can be ended only in processes that are started "
                "here: give a number of workers with rollout_timeout, not an executor"
            )
        self.executor, self.timeout = executor, timeout
        self._cluster = executor if isinstance(executor, ClusterWorkers) else None
        size = getattr(executor, "_max_workers", 0) or os.cpu_count() or 1  # as far as known
        self.limit = 1 if executor is None else 2 * size  # pieces in flight: no worker ever waits
        self.share = 0 if self._cluster else cores() // size  # threads of a worker
        self._seconds = HERE if executor is None else ELSEWHERE * max(1, size / MANY)
        self._paced: tuple[Any, Pace] = (None, Pace(self._seconds))  # the last task, its pace
        self._packed: tuple[Any, ...] = (None, None, ("", b""))  # a task, its `draw`, both packed

    def pace(self, task: Task) -> Pace:
        """The size of a piece, as earlier calls for the same task have measured it."""
        if self._paced[0] is not task:
            self._paced = task, Pace(self._seconds)
        return self._paced[1]

    def packed(self, job: Job) -> tuple[str, bytes] | None:
        """A task with its `draw` as bytes, and their digest; None if workers share the object.

        Threads share it only if the task releases the lock: simulators are not made to be shared.
        """
        threads = isinstance(self.executor, ThreadPoolExecutor)
        if self.executor is None or (threads and job.task.releases_gil):
            return None
        task, draw = job.task, job.environments.draw
        if self._packed[0] is not task or self._packed[1] != draw:
            try:
                content = cloudpickle.dumps((task, draw))
            except Exception as error:
                raise ValueError(
                    f"task {task.name} cannot be sent to workers: {in_a_line(error)}; define what "
                    "it consists of in a module, or roll out in this process"
                ) from error
            self._packed = task, draw, (sha256(content), content)
        return self._packed[2]

    def submit(self, avoid: str | None, fn: Any, *args: Any) -> Future[Any]:
        """Call a function in a worker, avoiding one if possible; without workers, call it now."""
        if self.executor is None:
            future: Future[Any] = Future()
            future.set_result(fn(*args))
            return future
        options: dict[str, Any] = {"avoid": avoid} if self._cluster else {}
        if isinstance(self.executor, Processes):
            options = {"avoid": avoid, "timeout": self.timeout}
        try:
            return self.executor.submit(fn, *args, **options)
        except BrokenExecutor as error:
            raise LostWorkers("a worker died, and with it the executor that was given") from error
        except RuntimeError as error:
            raise LostWorkers(f"the executor takes no more work: {error}") from error

    def run_again(
        self, ended: Iterable[Future[Any]], in_flight: Iterable[Future[Any]]
    ) -> list[Future[Any]]:
        """Calls that workers have begun anew by themselves, as Dask does if a worker dies."""
        return self._cluster.run_again(ended, in_flight) if self._cluster else []

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Give up calls whose results are no longer needed, or which are done."""
        for future in futures:
            future.cancel()
            if self._cluster:
                self._cluster.release(future)


@contextmanager
def open_workers(task: Task, execution: Execution) -> Iterator[Execution]:
    """The same execution with a WorkerPool; workers that are started here end with this context.

    For whatever rolls out many times, as a search does.

    >>> from pacbayes_control.rollouts import mean_costs
    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> some = task.environments(8, stream="example")
    >>> with open_workers(task, Execution(workers=0)) as opened:
    ...     [mean_costs(task, task.policies[:n], some, execution=opened).size for n in (2, 3)]
    [2, 3]
    """
    workers, timeout = execution.workers, execution.rollout_timeout
    with ExitStack() as stack:
        if isinstance(workers, int) or (workers is None and timeout is not None):
            workers = stack.enter_context(pool(task, workers, timeout))
        # Dask's client, or its own Executor, which keeps results until garbage is collected
        client = workers if hasattr(workers, "get_executor") else getattr(workers, "_client", None)
        if client is not None:
            workers = ClusterWorkers(client)
        if not isinstance(workers, WorkerPool):
            if workers is not None and not isinstance(workers, Executor):
                raise TypeError(
                    f"executor = {workers!r} is neither a number of workers, nor an Executor, nor "
                    "a Dask client"
                )
            workers = WorkerPool(workers, timeout)
        yield replace(execution, workers=workers)


@contextmanager
def pool(
    task: Task, workers: int | None = None, timeout: float | None = None
) -> Iterator[Executor | None]:
    """Threads if the task `releases_gil`, processes otherwise; None for this process.

    Args:
        task: what is rolled out
        workers: their number; none or 0 for this process
        timeout: seconds of a rollout, if limited, which takes processes
    """
    if workers is not None and workers < 0:
        raise ValueError(f"{workers} workers were asked for: give 1 or more, or 0 for this process")
    if task.uses_all_cores and workers:
        raise ValueError(
            f"the task {task.name} uses all cores by itself: leave out the number of workers"
        )
    if timeout is None and (not workers or (workers == 1 and task.releases_gil)):
        yield None
    elif timeout is None and task.releases_gil and workers:
        with limited_threads(cores() // workers), ThreadPoolExecutor(workers) as executor:
            yield executor
            executor.shutdown(cancel_futures=True)
    else:
        with Processes(workers or 1) as executor:
            yield executor


@contextmanager
def limited_threads(share: int) -> Iterator[None]:
    """Limit the threads of the libraries that are loaded, unless the environment does so."""
    if any(name in os.environ for name in THREADS):
        yield
        return
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    with threadpool_limits(max(1, share)):
        if torch:
            torch.set_num_threads(max(1, share))
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
