"""What must not come between a loop and its next command: signals, and the garbage collector."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_noted() -> Iterator[list[str]]:
    """Have SIGTERM, SIGINT and SIGHUP noted in a list instead of ending the process."""
    asked: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked  # they go to the main thread, which is not ours
        return
    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            before[number] = signal.signal(
                number, lambda number, _: asked.append(signal.Signals(number).name)
            )
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
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
