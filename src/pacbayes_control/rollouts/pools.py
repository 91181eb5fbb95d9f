"""Who rolls out: this process, a pool of threads or processes, or an Executor that is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import loky

from pacbayes_control.tasks import Task

Workers = Executor | int | None  # an Executor, so many threads or processes, or this process


class ProcessPool(Executor):
    """Processes of this machine, which can be replaced when one of them dies.

    Tasks that are defined in a script or a notebook reach them too, and a script needs no guard.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._pool = loky.ProcessPoolExecutor(max_workers=processes, timeout=None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process call a function."""
        return self._pool.submit(fn, *args, **kwargs)

    def renew(self) -> None:
        """Start others in place of those that are left of a broken pool."""
        self._pool.shutdown(wait=False, kill_workers=True)
        self._pool = loky.ProcessPoolExecutor(max_workers=self.processes, timeout=None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop them, whatever they are at."""
        del cancel_futures
        self._pool.shutdown(wait=wait, kill_workers=True)


class LostWorkers(RuntimeError):  # noqa: N818 - a state of the workers, not a fault of the program
    """Workers that are gone and cannot be replaced from here."""


class Crew:
    """Workers of one kind or another, seen alike."""

    def __init__(self, executor: Executor | None) -> None:
        self.executor = executor
        self.elsewhere = executor is not None and not isinstance(executor, ThreadPoolExecutor)
        self.limit = 1 if executor is None else 2 * _size(executor)  # so that none ever waits

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a worker call a function; in this process, at once."""
        if self.executor is not None:
            extra = {"pure": False} if hasattr(self.executor, "_client") else {}  # Dask's
            return self.executor.submit(fn, *args, **extra)
        future: Future[Any] = Future()
        future.set_result(fn(*args))
        return future

    def renew(self) -> None:
        """Go on after a worker died, if others can take its place."""
        if not isinstance(self.executor, ProcessPool):
            raise LostWorkers("a worker died, and with it the executor that was given")
        self.executor.renew()


@contextmanager
def gathered(task: Task, workers: Workers) -> Iterator[Crew]:
    """The workers that are asked for; those that are not given live for as long as this."""
    if isinstance(workers, int):
        with pool(task, workers) as executor:
            yield Crew(executor)
    else:
        yield Crew(getattr(workers, "get_executor", lambda: workers)())


@contextmanager
def pool(task: Task, workers: int) -> Iterator[Executor | None]:
    """So many threads where a task releases Python's lock, processes otherwise; none for one."""
    if workers < 1:
        raise ValueError(f"{workers} workers were asked for: at least one is needed")
    if getattr(task, "uses_all_cores", False):
        raise ValueError(
            f"the task {task.name} uses all cores by itself: leave out the number of workers"
        )
    if workers == 1:
        yield None
        return
    threads = getattr(task, "releases_gil", False)
    executor = ThreadPoolExecutor(workers) if threads else ProcessPool(workers)
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster, by its scheduler's address; each must have this package."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("a cluster needs dask: pip install 'pacbayes-control[cluster]'") from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise OSError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError:
            raise OSError(f"the Dask scheduler at {address} has no workers: start some") from None
        ours = version("pacbayes-control")
        found: Any = client.run(version, "pacbayes-control", on_error="return")
        for worker, theirs in found.items():
            if isinstance(theirs, Exception):
                raise ValueError(
                    f"the worker {worker} has no pacbayes-control: install version {ours} there"
                )
            if theirs != ours:
                raise ValueError(
                    f"the worker {worker} has pacbayes-control {theirs}, not {ours}: install that"
                )
        yield client.get_executor()


def _size(executor: Executor) -> int:
    """How many calls an executor runs at once, as far as it can be known."""
    if isinstance(executor, ProcessPool):
        return executor.processes
    if hasattr(executor, "_client"):  # Dask's
        return max(1, sum(executor._client.nthreads().values()))  # type: ignore[attr-defined]
    return getattr(executor, "_max_workers", 0) or os.cpu_count() or 1
