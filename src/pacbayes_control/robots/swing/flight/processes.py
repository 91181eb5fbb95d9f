"""The processes of a flight: their start, their messages, and protection from delays.

Messages are JSON in frames, never a pickle.

Beside a few processes that only compute, one that sleeps until a deadline wakes up to 0.1 s late.
With a real-time priority it is a few ms at most. That needs root, CAP_SYS_NICE or a limit of
`rtprio` for the user (/etc/security/limits.conf); without it, a flight runs as any other process.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

LARGEST_MESSAGE = 1 << 16  # bytes
KILL_TIMEOUT = 1.0  # s to wait for a process that was killed
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


# ---- messages -----------------------------------------------------------------------------------


class ChannelClosed(Exception):  # noqa: N818 - a state of the other end, not an error of this one
    """The process at the other end has ended, or sends messages that are not JSON objects."""


class ChannelFull(ChannelClosed):
    """The process at the other end has not read for long: it probably hangs."""


class Channel:
    """One end of a pipe that carries records both ways, and closes when a process dies."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._poll = select.poll()  # `select` fails for descriptors from 1024 on
        self._poll.register(connection, select.POLLOUT)

    def send(self, record: Mapping[str, Any]) -> None:
        """Send a record; never waits for the reader."""
        try:
            if not self._poll.poll(0):
                raise ChannelFull
            self.connection.send_bytes(json.dumps(record).encode())
        except OSError:
            raise ChannelClosed from None

    def receive(self, timeout: float | None = 0.0) -> dict[str, Any] | None:
        """The next record, or None after the timeout; a timeout of None is infinite."""
        try:
            if not self.connection.poll(timeout):
                return None
            record = json.loads(self.connection.recv_bytes(LARGEST_MESSAGE))
        except (OSError, EOFError, ValueError, RecursionError):
            raise ChannelClosed from None
        if not isinstance(record, dict):
            raise ChannelClosed
        return record

    def close(self) -> None:
        """Close this end, which the other end notices."""
        self.connection.close()


def wait_for_messages(channels: list[Channel], timeout: float) -> list[Channel]:
    """The channels that have a message, after waiting for one."""
    ready = wait([channel.connection for channel in channels], max(timeout, 0.0))
    return [channel for channel in channels if channel.connection in ready]


# ---- processes ----------------------------------------------------------------------------------


def start_process(module: str, spec: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a module of this package as a process, and a channel to it.

    It has its own session: neither Ctrl-C nor a closed terminal reaches it. Its output is
    discarded, which a driver may print to. -P: it never imports from the current folder, where a
    user may have a file json.py.
    """
    ours, theirs = Pipe()
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", f"pacbayes_control.robots.swing.flight.{module}"),
                *(str(theirs.fileno()), json.dumps(spec)),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, Channel(ours)


def connect_to_parent() -> tuple[Channel, dict[str, Any]]:
    """In a process of `start_process`, which gets priority: the channel and the record.

    Signals that end a process do not end this one: it ends when its channel closes and the drone
    is on the ground. (SIGKILL does end it, and then the other end sees the channel close.)
    """
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise_priority()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    return Channel(Connection(descriptor)), json.loads(sys.argv[2])


def kill_session(pid: int) -> None:
    """Kill a process that leads a session, and all in it, such as bluepy's helper process."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was killed; not for long, since one in a system call may not end."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILL_TIMEOUT)


# ---- delays -------------------------------------------------------------------------------------


def raise_priority(inherited: bool = True) -> str:
    """Ask for priority, also for child processes; returns "real-time", "nice" or "normal"."""
    try:
        policy = os.SCHED_RR if inherited else os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
        return "real-time"
    except (OSError, AttributeError):  # not allowed, or not on this system
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        return "nice"
    except (OSError, AttributeError):
        return "normal"


@contextmanager
def raised_priority() -> Iterator[str]:
    """Priority within the context, for this thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield "normal"
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    given = raise_priority(inherited=False)
    try:
        yield given
    finally:
        with suppress(OSError, AttributeError):
            if given == "real-time":
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            elif given == "nice":
                os.setpriority(os.PRIO_PROCESS, 0, nice)


@contextmanager
def signals_recorded() -> Iterator[list[str]]:
    """Record SIGTERM, SIGINT and SIGHUP in a list; they do not end the process."""
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals go to the main thread
        return

    def record(number: int, _: object) -> None:
        received.append(signal.Signals(number).name)

    before = {}
    try:
        for number in ENDING_SIGNALS:
            before[number] = signal.signal(number, record)
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Keep the garbage collector from pausing this process."""
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
