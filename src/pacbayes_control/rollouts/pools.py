"""The workers that roll out: this process, threads, processes, or a given Executor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import loky

from pacbayes_control.rollouts.execution import Workers
from pacbayes_control.tasks import Task

DIED = "a worker died, and with it the executor that was given"
WATCH = 1.0  # seconds between two checks of a worker that its parent is alive


class LostWorkers(RuntimeError):  # noqa: N818 - a state of the workers, not a fault of the program
    """Workers were lost that cannot be replaced from here."""


@contextmanager
def shielded() -> Iterator[None]:
    """Processes that are started in this context ignore Ctrl-C: their parent stops them.

    The parent gets the signal after the context. Without this, a process that is interrupted while
    it starts shows a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessPool(Executor):
    """Processes of this machine, each known by its number, and replaced when it dies.

    Tasks may be defined in a script or a notebook, and a script needs no `__main__` guard.
    """

    def __init__(self, processes: int) -> None:
        self._pools = [_single() for _ in range(processes)]
        self._max_workers = processes  # as other executors call it
        self._in_flight: dict[Future[Any], int] = {}  # calls, and the numbers of their processes

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, avoid: int | None = None, **kwargs: Any
    ) -> Future[Any]:
        """Call a function in the least busy process, avoiding one if there are others."""
        busy = Counter(self._in_flight.values())
        others = [i for i in range(len(self._pools)) if i != avoid] or [0]
        number = min(others, key=lambda i: busy[i])
        try:
            future = self._pools[number].submit(fn, *args, **kwargs)
        except BrokenExecutor:  # the process died while it was idle
            self._pools[number] = _single()
            future = self._pools[number].submit(fn, *args, **kwargs)
        self._in_flight[future] = number
        return future

    def finished(self, future: Future[Any]) -> int:
        """Remove a finished call; the number of its process, which is replaced if it died."""
        number = self._in_flight.pop(future)
        alone = number not in self._in_flight.values()
        if alone and isinstance(_exception(future), BrokenExecutor):
            self._pools[number].shutdown(wait=False, kill_workers=True)
            self._pools[number] = _single()
        return number

    def companions(self, future: Future[Any]) -> set[Future[Any]]:
        """The calls that were given to the same process, including this one."""
        number = self._in_flight.get(future)
        return {future} | {other for other, its in self._in_flight.items() if its == number}

    def forget(self, future: Future[Any]) -> None:
        """Remove a call, finished or not."""
        self._in_flight.pop(future, None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the processes, also while they work."""
        del cancel_futures
        for pool in self._pools:
            pool.shutdown(wait=wait, kill_workers=True)


class ShieldedPool(loky.ProcessPoolExecutor):
    """Processes that ignore Ctrl-C, even while they start: their parent stops them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a process; a process started for it inherits the blocked signal."""
        with shielded():
            return super().submit(fn, *args, **kwargs)


def _single() -> loky.ProcessPoolExecutor:
    with shielded():  # a pool interrupted while it starts would leave semaphores behind
        return ShieldedPool(
            max_workers=1, timeout=None, initializer=_watch_parent, initargs=(os.getpid(),)
        )


def _watch_parent(parent: int) -> None:
    """End this worker when its parent is gone, which can no longer stop it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class WorkerPool:
    """One interface to this process, a ProcessPool, Dask and any other Executor."""

    def __init__(self, executor: Executor | None) -> None:
        self.executor = executor
        self._client: Any = getattr(executor, "_client", None)  # Dask's, if the executor is Dask's
        self._keys: dict[Future[Any], str] = {}  # Dask's names of the calls in flight
        self._deaths: dict[str, int] = {}  # by key: known deaths of workers that had the call
        size = getattr(executor, "_max_workers", 0) or os.cpu_count() or 1  # as far as known
        if self._client is not None:
            size = max(1, sum(self._client.nthreads().values()))
        self.limit = 1 if executor is None else 2 * size  # no worker ever waits

    def pickles(self, task: Task) -> bool:
        """Whether a task is copied: for other processes, and for threads unless they share it."""
        shared = isinstance(self.executor, ThreadPoolExecutor) and task.releases_gil
        return self.executor is not None and not shared

    def submit(self, avoid: Any, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call a function in a worker, avoiding one if possible; without workers, call it now."""
        if self.executor is None:
            future: Future[Any] = Future()
            future.set_result(fn(*args))
            return future
        try:
            options = self._options(avoid)
            future = self.executor.submit(fn, *args, **options)
            if "key" in options:
                self._keys[future] = options["key"]
            return future
        except BrokenExecutor as error:
            raise LostWorkers(DIED) from error
        except RuntimeError as error:
            raise LostWorkers(f"the executor takes no more work: {error}") from error

    def run_again(self, in_flight: Iterable[Future[Any]]) -> list[Future[Any]]:
        """Calls whose worker died since the last call of this method; Dask runs them again itself.

        Dask counts deaths while a future is referenced, also of calls that have finished.
        """
        if self._client is None:
            return []

        def deaths(keys: list[str], dask_scheduler: Any = None) -> dict[str, int]:
            tasks = dask_scheduler.tasks  # a nested function is sent by value, not imported
            return {key: tasks[key].suspicious for key in keys if key in tasks}

        keys = {self._keys[future]: future for future in in_flight if future in self._keys}
        found: Any = self._client.run_on_scheduler(deaths, list(keys))
        again = [keys[key] for key, count in found.items() if count > self._deaths.get(key, 0)]
        self._deaths = found
        return again

    def companions(self, future: Future[Any]) -> set[Future[Any]]:
        """The calls that would end together with this one if its worker died, as far as known."""
        if isinstance(self.executor, ProcessPool):
            return self.executor.companions(future)
        return {future}

    def finished(self, future: Future[Any], reported: str) -> Any:
        """Remove a finished call; its worker, to be avoided if the call failed."""
        self._keys.pop(future, None)
        if isinstance(self.executor, ProcessPool):
            return self.executor.finished(future)
        if isinstance(_exception(future), BrokenExecutor):
            raise LostWorkers(DIED)
        return reported

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Give up calls whose results are no longer needed."""
        for future in futures:
            self._keys.pop(future, None)
            if isinstance(self.executor, ProcessPool):
                self.executor.forget(future)  # not cancelled, which loky does not handle well
            else:
                future.cancel()

    def _options(self, avoid: Any) -> dict[str, Any]:
        """Options of a call: the worker to be avoided, and Dask's name of it."""
        if isinstance(self.executor, ProcessPool):
            return {"avoid": avoid}
        if self._client is None:
            return {}
        others = [at for at in self._client.nthreads() if at != avoid] if avoid else []
        chosen = {"workers": others, "allow_other_workers": True} if others else {}
        return {"key": f"rollouts-{uuid4().hex}", "pure": False, **chosen}


def _exception(future: Future[Any]) -> BaseException | None:
    return None if future.cancelled() else future.exception()


@contextmanager
def open_workers(task: Task, workers: Workers) -> Iterator[Executor | None]:
    """The requested workers; those that are started here end with this context."""
    if isinstance(workers, int):
        with pool(task, workers) as executor:
            yield executor
    else:
        executor = getattr(workers, "get_executor", lambda: workers)()
        if executor is not None and not isinstance(executor, Executor):
            raise TypeError(
                f"executor = {workers!r} is neither a number of workers, nor an Executor, nor a "
                "Dask client"
            )
        yield executor


@contextmanager
def pool(task: Task, workers: int) -> Iterator[Executor | None]:
    """Threads if the task `releases_gil`, processes otherwise; None for a single worker."""
    if workers < 1:
        raise ValueError(f"{workers} workers were asked for: at least one is needed")
    if task.uses_all_cores:
        raise ValueError(
            f"the task {task.name} uses all cores by itself: leave out the number of workers"
        )
    if workers == 1:
        yield None
        return
    executor = ThreadPoolExecutor(workers) if task.releases_gil else ProcessPool(workers)
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
