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

LARGEST_MESSAGE = 1 << 16  # bytes
KILL_TIMEOUT = 1.0  # s to wait for a process that was killed


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
    """In a process of `start_process`: the channel and the record.

    Signals that end a process do not end this one: it ends when its channel closes and the drone
    is on the ground. (SIGKILL does end it, and then the other end sees the channel close.)
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
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
