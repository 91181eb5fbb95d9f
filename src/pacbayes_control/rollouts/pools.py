"""Who rolls out: this process, a pool of threads or processes, or an Executor that is given."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import loky

from pacbayes_control.tasks import Task

Workers = Executor | int | None  # an Executor, so many threads or processes, or this process
DIED = "a worker died, and with it the executor that was given"
SCHEMES = ("", "tcp", "tls", "ucx", "ws", "wss", "inproc")  # of addresses that Dask has
WATCH = 1.0  # s between two looks of a worker at whether its parent is alive


class LostWorkers(RuntimeError):  # noqa: N818 - a state of the workers, not a fault of the program
    """Workers that are gone and cannot be replaced from here."""


@contextmanager
def shielded() -> Iterator[None]:
    """Processes that are started meanwhile never get a Ctrl-C: the one that starts them ends them.

    Here, it comes a moment later. A process that is interrupted while it starts shows a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessPool(Executor):
    """Processes of this machine, each known by its number, and replaced when it dies.

    Tasks that are defined in a script or a notebook reach them too, and a script needs no guard.
    """

    def __init__(self, processes: int) -> None:
        self._pools = [_single() for _ in range(processes)]
        self._flying: list[set[Future[Any]]] = [set() for _ in range(processes)]

    def __len__(self) -> int:
        return len(self._pools)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the least busy process call a function."""
        return self.submit_avoiding(None, fn, *args, **kwargs)

    def submit_avoiding(
        self, avoid: int | None, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """The same on another process than the given one, where there are others."""
        others = [i for i in range(len(self)) if i != avoid] or [0]
        number = min(others, key=lambda i: len(self._flying[i]))
        try:
            future = self._pools[number].submit(fn, *args, **kwargs)
        except BrokenExecutor:  # it died while it had nothing to do
            self._pools[number] = _single()
            future = self._pools[number].submit(fn, *args, **kwargs)
        self._flying[number].add(future)
        return future

    def landed(self, future: Future[Any]) -> int:
        """The number of the process that a call was given to; one that died is replaced."""
        number = next(i for i, flying in enumerate(self._flying) if future in flying)
        self._flying[number].discard(future)
        if isinstance(_exception(future), BrokenExecutor) and not self._flying[number]:
            self._pools[number].shutdown(wait=False, kill_workers=True)
            self._pools[number] = _single()
        return number

    def companions(self, future: Future[Any]) -> set[Future[Any]]:
        """The calls that were given to the same process, with this one."""
        return next((set(flying) for flying in self._flying if future in flying), {future})

    def forget(self, future: Future[Any]) -> None:
        """Count a call no longer, whatever becomes of it."""
        for flying in self._flying:
            flying.discard(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop them, whatever they are at."""
        del cancel_futures
        for pool in self._pools:
            pool.shutdown(wait=wait, kill_workers=True)


class ShieldedPool(loky.ProcessPoolExecutor):
    """Processes that Ctrl-C does not reach, not even while they start: this one stops them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process call a function; one that is started for it inherits what is blocked."""
        with shielded():
            return super().submit(fn, *args, **kwargs)


def _single() -> loky.ProcessPoolExecutor:
    with shielded():  # half of a pool leaves semaphores behind
        return ShieldedPool(
            max_workers=1, timeout=None, initializer=_watch_parent, initargs=(os.getpid(),)
        )


def _watch_parent(parent: int) -> None:
    """End a worker whose parent was killed: nobody is left to tell it to stop."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Crew:
    """Workers of one kind or another, seen alike."""

    def __init__(self, executor: Executor | None) -> None:
        self.executor = executor
        self._keys: dict[Future[Any], str] = {}  # of Dask's record of the calls in flight
        self._deaths: dict[str, int] = {}  # by key: of workers that had the call, as far as known
        self.limit = 1 if executor is None else 2 * _size(executor)  # so that none ever waits

    def pickles(self, task: Task) -> bool:
        """Whether a task is copied: to other processes, and to threads unless they share it."""
        shared = isinstance(self.executor, ThreadPoolExecutor) and getattr(
            task, "releases_gil", False
        )
        return self.executor is not None and not shared

    def submit(self, avoid: Any, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a worker call a function, another than one where it can be chosen; here, at once."""
        if self.executor is None:
            future: Future[Any] = Future()
            future.set_result(fn(*args))
            return future
        try:
            if isinstance(self.executor, ProcessPool):
                return self.executor.submit_avoiding(avoid, fn, *args)
            if self._client is None:
                return self.executor.submit(fn, *args)
            key = f"rollouts-{uuid4().hex}"
            future = self.executor.submit(fn, *args, key=key, **self._dask_options(avoid))
            self._keys[future] = key
            return future
        except BrokenExecutor as error:
            raise LostWorkers(DIED) from error
        except RuntimeError as error:
            raise LostWorkers(f"the executor takes no more work: {error}") from error

    def run_again(self, flying: Iterable[Future[Any]]) -> list[Future[Any]]:
        """Calls whose worker died since this was last asked, which Dask runs again by itself.

        It counts deaths for as long as a future is held, also of those that have landed.
        """
        if self._client is None:
            return []

        def deaths(keys: list[str], dask_scheduler: Any = None) -> dict[str, int]:
            tasks = dask_scheduler.tasks  # nested, so that it is sent by value: nobody imports it
            return {key: tasks[key].suspicious for key in keys if key in tasks}

        keys = {self._keys[future]: future for future in flying if future in self._keys}
        found: Any = self._client.run_on_scheduler(deaths, list(keys))
        again = [keys[key] for key, count in found.items() if count > self._deaths.get(key, 0)]
        self._deaths = found
        return again

    def companions(self, future: Future[Any]) -> set[Future[Any]]:
        """The calls that a worker's death would end together with this one, as far as is known."""
        if isinstance(self.executor, ProcessPool):
            return self.executor.companions(future)
        return {future}

    def landed(self, future: Future[Any], reported: str) -> Any:
        """The worker that a call was given to, to be avoided where it failed."""
        self._keys.pop(future, None)
        if isinstance(self.executor, ProcessPool):
            return self.executor.landed(future)
        if isinstance(_exception(future), BrokenExecutor):
            raise LostWorkers(DIED)
        return reported

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Give up calls that nobody waits for any more."""
        for future in futures:
            self._keys.pop(future, None)
            if isinstance(self.executor, ProcessPool):
                self.executor.forget(future)  # its result is dropped; to cancel it confuses loky
            else:
                future.cancel()

    @property
    def _client(self) -> Any:
        """Dask's, where the executor is."""
        return getattr(self.executor, "_client", None)

    def _dask_options(self, avoid: Any) -> dict[str, Any]:
        known = self._client.nthreads() if avoid else ()
        others = [address for address in known if address != avoid]
        chosen = {"workers": others, "allow_other_workers": True} if others else {}
        return {"pure": False, **chosen}


def _exception(future: Future[Any]) -> BaseException | None:
    return None if future.cancelled() else future.exception()


@contextmanager
def gathered(task: Task, workers: Workers) -> Iterator[Crew]:
    """The workers that are asked for; those that are not given live for as long as this."""
    if isinstance(workers, int):
        with pool(task, workers) as executor:
            yield Crew(executor)
    else:
        executor = getattr(workers, "get_executor", lambda: workers)()
        if executor is not None and not isinstance(executor, Executor):
            raise TypeError(
                f"executor = {workers!r} is neither a number of workers, nor an Executor, nor a "
                "Dask client"
            )
        yield Crew(executor)


@contextmanager
def pool(task: Task, workers: int) -> Iterator[Executor | None]:
    """So many threads where a task releases Python's lock, processes otherwise; none for one."""
    if workers < 1:
        raise ValueError(f"{workers} workers were asked for: at least one is needed")
    if task.uses_all_cores:
        raise ValueError(
            f"the task {task.name} uses all cores by itself: leave out the number of workers"
        )
    if workers == 1:
        yield None
        return
    threads = task.releases_gil
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
        _check_answers(address)
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


def _check_answers(address: str) -> None:
    """An error where nobody listens: a client that cannot connect leaves threads behind."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is none of {', '.join(filter(None, SCHEMES))}")
    if scheme in ("", "tcp"):
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError("write tcp://HOST:PORT")
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _size(executor: Executor) -> int:
    """How many calls an executor runs at once, as far as it can be known."""
    if isinstance(executor, ProcessPool):
        return len(executor)
    if hasattr(executor, "_client"):  # Dask's
        return max(1, sum(executor._client.nthreads().values()))  # type: ignore[attr-defined]
    return getattr(executor, "_max_workers", 0) or os.cpu_count() or 1
