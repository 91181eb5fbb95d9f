"""Messages between the processes of a flight: JSON in frames, never a pickle."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

LARGEST = 1 << 16  # bytes of a message
REAP = 1.0  # s that a process that was killed may take to be gone


class ChannelClosed(Exception):  # noqa: N818 - a state of the other end, for all that we know
    """The process at the other end is gone, or speaks in riddles."""


class ChannelFull(ChannelClosed):
    """The process at the other end has not read for long: it hangs, for all that we know."""


class Channel:
    """One end of a pipe that carries records both ways, and that closes when a process dies."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._poll = select.poll()  # `select` knows no descriptors from 1024 on
        self._poll.register(connection, select.POLLOUT)

    def send(self, record: Mapping[str, Any]) -> None:
        """Send a record; never waits for anybody to read it."""
        try:
            if not self._poll.poll(0):
                raise ChannelFull
            self.connection.send_bytes(json.dumps(record).encode())
        except OSError:
            raise ChannelClosed from None

    def receive(self, timeout: float | None = 0.0) -> dict[str, Any] | None:
        """The next record, or None if none came in time; None as a time is for ever."""
        try:
            if not self.connection.poll(timeout):
                return None
            record = json.loads(self.connection.recv_bytes(LARGEST))
        except (OSError, EOFError, ValueError, RecursionError):
            raise ChannelClosed from None
        if not isinstance(record, dict):
            raise ChannelClosed
        return record

    def close(self) -> None:
        """Close this end, so that the other finds out."""
        self.connection.close()


def first_of(channels: list[Channel], timeout: float) -> list[Channel]:
    """The channels that have something to read, after waiting for it."""
    ready = wait([channel.connection for channel in channels], max(timeout, 0.0))
    return [channel for channel in channels if channel.connection in ready]


def start(module: str, spec: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a module of this package as a process, and a channel to it.

    It has a session of its own: neither Ctrl-C nor a closed terminal reaches it. It has no standard
    output: a driver's chatter goes nowhere. -P: a file json.py in the folder of a user is not ours.
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


def started() -> tuple[Channel, dict[str, Any]]:
    """The other side of `start`: the channel and the record, in the new process.

    Signals that end a process do not end this one: it ends when its channel closes and the drone
    is on the ground. (SIGKILL does, and whoever is at the other end sees the channel close.)
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    return Channel(Connection(descriptor)), json.loads(sys.argv[2])


def kill_all(pid: int) -> None:
    """End a process that leads a session, with all in it, such as the helper that has the radio."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was killed; not for long, for one in the kernel does not die."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP)
