"""Processes of this machine that roll out: each has a thread here, which waits for its answers.

A process is started with its share of the cores and with a clean import path. It is replaced when
it dies, when a rollout takes longer than it may, and when a call is to be made in another one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from mmap import mmap
from multiprocessing.connection import Connection, Pipe
from pickle import PickleBuffer
from typing import Any

import cloudpickle

from pacbayes_control.tasks.environments import in_a_line

Place = tuple[int, int]  # a rollout's row and column in its table

WORKER_DIED = "its worker died"
WATCH = 1.0  # seconds between two checks of a process that its parent is alive
# Settings of libraries that would otherwise start a thread for each core in every process.
THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")]
THREADS.append("VECLIB_MAXIMUM_THREADS")
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
MARK = struct.Struct("qqd")  # row, column, and the time when the rollout began; 0 for none
START = """import sys
try:
    from pacbayes_control.rollouts import processes
except ImportError:  # it is found only as the parent has found it
    sys.path += {path!r}
    from pacbayes_control.rollouts import processes
processes.serve({connection}, {mark}, {parent}, {path!r})"""


class ProcessEnded(Exception):  # noqa: N818 - what became of a process, not a fault of the program
    """A process ended before it answered: it died, or its rollout took too long."""

    def __init__(self, place: Place | None, how: str = "", overdue: bool = False) -> None:
        super().__init__("a rollout took too long" if overdue else f"{WORKER_DIED}{how}")
        self.place = place  # of the rollout that it was at, if that is known
        self.overdue = overdue


class Processes(Executor):
    """So many processes, started when they are needed.

    Tasks may be defined in a script or a notebook, and a script needs no `__main__` guard.

    Args:
        processes: their number
        threads: of the libraries in each, whatever the environment says; by default its share of
            the cores, where the environment says nothing
    """

    def __init__(self, processes: int, threads: int | None = None) -> None:
        self._max_workers = processes  # as other executors call it
        share = dict.fromkeys(THREADS, str(threads or max(1, cores() // processes)))
        self._environment = {**os.environ, **share} if threads else {**share, **os.environ}
        self._waiting = ThreadPoolExecutor(processes, initializer=_block_interrupts)
        self._own = threading.local()  # each thread's process
        self._lock, self._open = threading.Lock(), True
        self.processes: set[_Process] = set()

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        avoid: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Future[Any]:
        """Call a function in a process.

        Args:
            fn: the function
            args: its arguments
            avoid: the name of a process that is not to be used again
            timeout: seconds that a rollout may take, if the function calls `mark` for each
            kwargs: its arguments by name
        """
        return self._waiting.submit(self._call, avoid, timeout, fn, args, kwargs)

    def _call(self, avoid: str | None, timeout: float | None, *call: Any) -> Any:
        process: _Process | None = getattr(self._own, "process", None)
        if process is None or process.name == avoid or process.popen.poll() is not None:
            self._forget(process)
            with self._lock:
                if not self._open:
                    raise RuntimeError("the processes have been stopped")
                self._own.process = process = _Process(self._environment)
                self.processes.add(process)
        try:
            return process.call(*call, timeout=timeout)
        except ProcessEnded:
            self._forget(process)
            raise

    def _forget(self, process: _Process | None) -> None:
        if process is not None:
            process.end()
            self.processes.discard(process)

    def underway(self) -> list[tuple[Place, float]]:
        """The rollouts that processes are at, and the seconds since each began."""
        marks = [process.at() for process in [*self.processes]]
        return [(place, time.monotonic() - began) for place, began in marks if place]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """Stop the processes, also while they work."""
        del cancel_futures
        with self._lock:
            self._open = False
            for process in [*self.processes]:
                process.popen.kill()
        self._waiting.shutdown(wait, cancel_futures=True)
        for process in [*self.processes]:
            self._forget(process)


class _Process:
    """One process, and the pipe to it."""

    def __init__(self, environment: dict[str, str]) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]
        self.connection, theirs = Pipe()
        with theirs, tempfile.TemporaryFile() as file:
            file.truncate(MARK.size)
            self._mark = mmap(file.fileno(), MARK.size)
            ends = (theirs.fileno(), file.fileno())
            code = START.format(connection=ends[0], mark=ends[1], parent=os.getpid(), path=path)
            # -P: a file in the working folder is not taken for a module of a library
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                env=environment,
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
            )
        self.name = named(self.popen.pid)

    def call(self, fn: Any, args: Any, kwargs: Any, *, timeout: float | None) -> Any:
        """The answer to a call; ProcessEnded if there is none."""
        self._mark[:] = bytes(MARK.size)
        # Bytes, such as a packed task, are sent as they are: to pickle them would copy them.
        whole = [PickleBuffer(each) if type(each) is bytes else each for each in args]
        apart: list[PickleBuffer] = []
        call = cloudpickle.dumps((fn, whole, kwargs), 5, apart.append)
        try:
            self.connection.send((call, len(apart)))
            for each in apart:
                self.connection.send_bytes(each)
            left = timeout
            while not self.connection.poll(left):
                assert timeout is not None
                place, began = self.at()
                left = timeout if place is None else began + timeout - time.monotonic()
                if left <= 0:
                    raise ProcessEnded(place, overdue=True)
            answer, raised = cloudpickle.loads(self.connection.recv_bytes())
        except (OSError, EOFError):
            raise ProcessEnded(self.at()[0], self._how_it_ended()) from None
        if raised:
            raise answer
        return answer

    def at(self) -> tuple[Place | None, float]:
        """The rollout that it is at, if that is known, and when it began."""
        with suppress(ValueError):  # it has ended
            row, column, began = MARK.unpack(self._mark)
            return ((row, column), began) if began else (None, 0.0)
        return None, 0.0

    def _how_it_ended(self) -> str:
        """Its exit code or signal, in words; empty if it has not ended by itself."""
        with suppress(subprocess.TimeoutExpired):
            code = self.popen.wait(1)
            return f" with code {code}" if code >= 0 else f" by signal {-code}"
        return ""

    def end(self) -> None:
        """Stop it."""
        self.popen.kill()
        self.popen.wait()
        self.connection.close()


def named(process: int) -> str:
    """The name of a process of this machine, for errors."""
    return f"{socket.gethostname()} {process}"


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def shielded() -> Iterator[None]:
    """Processes that are started in this context ignore Ctrl-C: their parent stops them.

    The parent gets the signal after the context. Without this, a process that is interrupted while
    it starts shows a traceback.
    """
    before = _block_interrupts()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _block_interrupts() -> set[Any]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


# ---- in such a process --------------------------------------------------------------------------

_mark: mmap | None = None  # shared with the parent


def watched() -> bool:
    """Whether this process has a parent that looks at its mark."""
    return _mark is not None


def mark(row: int = 0, column: int = 0, *, began: float | None = None) -> None:
    """Tell the parent, if there is one, which rollout begins now; with began=0, that it is over."""
    if _mark is not None:
        _mark[:] = MARK.pack(row, column, time.monotonic() if began is None else began)


def serve(connection: int, mark_file: int, parent: int, path: list[str]) -> None:
    """Answer calls until the parent is gone.

    Args:
        connection: file descriptor of the pipe
        mark_file: file descriptor of the mark
        parent: its process
        path: the parent's import path, in whose order modules are found here too, after those of
            the standard library
    """
    global _mark
    with suppress(Exception):  # Linux also ends this process while its code lets no thread run
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _mark = mmap(mark_file, MARK.size)
    library = os.path.dirname(os.__file__)
    inside = [p for p in sys.path if p.startswith(library) and "-packages" not in p]
    sys.path[:] = [*inside, *(p for p in path if p not in inside)]
    with Connection(connection) as pipe, suppress(OSError, EOFError):
        while True:
            call, apart = pipe.recv()
            answer = _answer(call, [pipe.recv_bytes() for _ in range(apart)])
            mark(began=0)
            pipe.send_bytes(answer)


def _answer(call: bytes, apart: list[bytes]) -> bytes:
    try:
        fn, args, kwargs = cloudpickle.loads(call, buffers=apart)
        return cloudpickle.dumps((fn(*args, **kwargs), False))
    except BaseException as error:
        with suppress(Exception):
            answer = cloudpickle.dumps((error, True))
            cloudpickle.loads(answer)  # some errors can be sent, and do not arrive
            return answer
        return cloudpickle.dumps((RuntimeError(in_a_line(error)), True))


def _watch(parent: int) -> None:
    """End this process when its parent is gone, which can no longer stop it."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)
