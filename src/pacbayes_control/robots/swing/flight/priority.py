"""Protection of a flight from delays: priority, signals, and the garbage collector.

Beside a few processes that only compute, one that sleeps until a deadline wakes up to 0.1 s late.
With a real-time priority it is a few ms at most. That needs root, CAP_SYS_NICE or a limit of
`rtprio` for the user (/etc/security/limits.conf); without it, a flight runs as any other process.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


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
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
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
