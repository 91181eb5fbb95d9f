"""Real time, and a virtual time that passes as fast as a simulated world computes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A time that never goes back, in s from an arbitrary zero."""

    real: bool  # whether other processes share this time

    def now(self) -> float:
        """The time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class RealClock:
    """The system's monotonic clock, which every process on the machine shares."""

    real = True

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(max(seconds, 0.0))


class VirtualClock:
    """A time that passes only in `sleep`.

    >>> clock = VirtualClock()
    >>> clock.sleep(600)
    >>> clock.now()
    600.0
    """

    real = False

    def __init__(self) -> None:
        self._now = 0.0
        self._followers: list[Callable[[float], None]] = []

    def now(self) -> float:
        """The time."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and call all functions that follow the clock."""
        self._now += max(seconds, 0.0)
        for follower in self._followers:
            follower(self._now)

    def follow(self, follower: Callable[[float], None]) -> None:
        """Call a function with the new time whenever time has passed."""
        self._followers.append(follower)
