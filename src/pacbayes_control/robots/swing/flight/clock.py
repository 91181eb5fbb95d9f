"""Real time, and a virtual time that passes as fast as a simulated world computes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from pacbayes_control.robots.swing.flight.priority import hurried


class Clock(Protocol):
    """A time that only goes forward, in s from an arbitrary zero."""

    def now(self) -> float:
        """The time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def hurried(self) -> AbstractContextManager[str]:
        """A while in which this process goes before others, if time is real; how, in a word."""
        ...


class RealClock:
    """The system's monotonic clock, which every process on the machine shares."""

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(max(seconds, 0.0))

    def hurried(self) -> AbstractContextManager[str]:
        """Ask the system for priority."""
        return hurried()


class VirtualClock:
    """A time that passes when it is told to.

    >>> clock = VirtualClock()
    >>> clock.sleep(600)
    >>> clock.now()
    600.0
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._watchers: list[Callable[[float], None]] = []

    def now(self) -> float:
        """The time."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and everybody who follows the clock go along."""
        self._now += max(seconds, 0.0)
        for watcher in self._watchers:
            watcher(self._now)

    def follow(self, watcher: Callable[[float], None]) -> None:
        """Have a function called with the new time whenever some has passed."""
        self._watchers.append(watcher)

    def hurried(self) -> AbstractContextManager[str]:
        """There is no hurry."""
        return nullcontext("normal")
