"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Poll for something on a machine that may be busy; a failure if it never comes."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"nothing in {seconds:g} s"
        time.sleep(0.01)
    return found


def wait_until_gone(*pids: int) -> None:
    """The same for processes that end, also where nobody asks how they did."""

    def gone(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(lambda: all(map(gone, pids)))
