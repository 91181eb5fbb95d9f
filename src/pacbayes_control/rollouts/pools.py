"""The workers that roll out: this process, threads, processes, a Dask client or an Executor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
)
from contextlib import contextmanager, suppress
from typing import Any

import cloudpickle

from pacbayes_control.certify.files import sha256
from pacbayes_control.rollouts.execution import Workers
from pacbayes_control.rollouts.jobs import Job, Pace
from pacbayes_control.rollouts.processes import THREADS, Processes, cores
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import in_a_line

HERE, ELSEWHERE = 0.25, 1.0  # seconds that a piece should take in this process, in a worker
MANY = 100  # workers from which on pieces are longer: the scheduler has to keep up
LARGE = 1 << 16  # bytes of a task that is not sent with every piece


class LostWorkers(RuntimeError):  # noqa: N818 - a state of the workers, not a fault of the program
    """Workers were lost that cannot be replaced from here."""


class Crew:
    """Workers that are open: one interface to this process, and to any Executor."""

    def __init__(self, executor: Executor | None, timeout: float | None = None) -> None:
        if timeout is not None and not isinstance(executor, Processes):
            raise ValueError(
                "a rollout that takes too long can be ended only in processes that are started "
                "here: give a number of workers with rollout_timeout, not an executor"
            )
        self.executor, self.timeout = executor, timeout
        self._client: Any = getattr(executor, "_client", None)  # Dask's, if the executor is Dask's
        size = getattr(executor, "_max_workers", 0) or os.cpu_count() or 1  # as far as known
        if self._client is not None:
            size = max(1, sum(self._client.nthreads().values()))
        self.limit = 1 if executor is None else 2 * size  # pieces in flight: no worker ever waits
        self.share = cores() // size if self._client is None else 0  # threads of a worker
        self._seconds = HERE if executor is None else ELSEWHERE * max(1, size / MANY)
        self._calls: dict[Future[Any], Any] = {}  # Dask's futures of the calls in flight
        self._deaths: dict[str, int] = {}  # by key: known deaths of workers that had the call
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
        if self._client is not None:
            return self._submit_to_dask(avoid, fn, *args)
        ours = isinstance(self.executor, Processes)
        options: Any = {"avoid": avoid, "timeout": self.timeout} if ours else {}
        try:
            return self.executor.submit(fn, *args, **options)
        except BrokenExecutor as error:
            raise LostWorkers("a worker died, and with it the executor that was given") from error
        except RuntimeError as error:
            raise LostWorkers(f"the executor takes no more work: {error}") from error

    def _submit_to_dask(self, avoid: str | None, fn: Any, *args: Any) -> Future[Any]:
        """As `submit`; Dask's own Executor keeps results until garbage is collected."""
        others = [at for at in self._client.nthreads() if at != avoid] if avoid else []
        chosen = {"workers": others, "allow_other_workers": True} if others else {}
        future: Future[Any] = Future()

        def hand_over(call: Any) -> None:
            with suppress(InvalidStateError):  # it was given up
                try:
                    future.set_result(call.result())
                except BaseException as error:
                    future.set_exception(error)

        self._calls[future] = call = self._client.submit(fn, *args, pure=False, **chosen)
        call.add_done_callback(hand_over)
        return future

    def run_again(self, in_flight: Iterable[Future[Any]]) -> list[Future[Any]]:
        """Calls whose worker died since the last call of this method; Dask runs them again itself.

        Dask counts deaths while a future is referenced, also of calls that have finished.
        """
        if self._client is None:
            return []

        def deaths(keys: list[str], dask_scheduler: Any = None) -> dict[str, int]:
            tasks = dask_scheduler.tasks  # a nested function is sent by value, not imported
            return {key: tasks[key].suspicious for key in keys if key in tasks}

        keys = {self._calls[future].key: future for future in in_flight if future in self._calls}
        found: Any = self._client.run_on_scheduler(deaths, list(keys))
        again = [keys[key] for key, count in found.items() if count > self._deaths.get(key, 0)]
        self._deaths = found
        return again

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Give up calls whose results are no longer needed, or which are done."""
        for future in futures:
            future.cancel()
            if future in self._calls:
                self._calls.pop(future).release()


@contextmanager
def open_workers(task: Task, workers: Workers, timeout: float | None = None) -> Iterator[Crew]:
    """The requested workers; those that are started here end with this context.

    timeout: seconds that a rollout may take, if they are limited
    """
    spread_over: Crew | None = getattr(task, "crew", None)
    if spread_over and workers not in (None, spread_over):
        raise ValueError("the task is spread over workers already: give no executor too")
    if spread_over is not None:
        yield spread_over
    elif isinstance(workers, Crew):
        yield workers
    elif isinstance(workers, int) or (workers is None and timeout is not None):
        with pool(task, workers, timeout) as executor:
            yield Crew(executor, timeout)
    else:
        executor = getattr(workers, "get_executor", lambda: workers)()
        if executor is not None and not isinstance(executor, Executor):
            raise TypeError(
                f"executor = {workers!r} is neither a number of workers, nor an Executor, nor a "
                "Dask client"
            )
        yield Crew(executor, timeout)


@contextmanager
def pool(
    task: Task, workers: int | None = None, timeout: float | None = None
) -> Iterator[Executor | None]:
    """Threads if the task `releases_gil`, processes otherwise; None for a single worker.

    timeout: whether the time of a rollout is limited, which takes processes
    """
    if workers is not None and workers < 1:
        raise ValueError(f"{workers} workers were asked for: at least one is needed")
    if task.uses_all_cores and workers is not None:
        raise ValueError(
            f"the task {task.name} uses all cores by itself: leave out the number of workers"
        )
    workers = workers or 1
    if timeout is None and workers == 1:
        yield None
    elif timeout is None and task.releases_gil:
        with limited_threads(cores() // workers), ThreadPoolExecutor(workers) as executor:
            yield executor
            executor.shutdown(cancel_futures=True)
    else:
        with Processes(workers) as executor:
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
