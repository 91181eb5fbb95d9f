"""The speed of the drone and the deadlines of its commands: a certificate holds for one pace."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.tracking import Pose
from pacbayes_control.robots.swing.flight.watching import Stop

RECENT = 1.0  # s over which the drone must move
SLOWEST = 0.5  # share of the certified speed: a drone that is slower does not fly forward


def mean_speed(poses: list[Pose], since: float = -math.inf) -> float | None:
    """Mean speed in m/s from a time on; None where no time has passed.

    >>> mean_speed([Pose(t, t, 0.0, 2.0 * t, 1.0, 0.0) for t in range(3)])
    2.0
    """
    seen = [pose for pose in poses if pose.time >= since]
    if len(seen) < 2 or not seen[-1].time > seen[0].time:
        return None
    length = sum(math.dist((a.x, a.y), (b.x, b.y)) for a, b in pairwise(seen))
    return length / (seen[-1].time - seen[0].time)


def flown_speed(poses: list[Pose], limits: FlightLimits) -> float | None:
    """The mean speed after the start-up. poses: one for each command, and the last."""
    if not poses:
        return None
    spent = min(limits.start_up, limits.steps * limits.period / 2)
    return mean_speed(poses, poses[0].time + spent)


def check_moving(poses: list[Pose], speed: float, limits: FlightLimits) -> None:
    """Raise `Stop` for a drone that does not fly forward."""
    if limits.speed_tolerance == math.inf or poses[-1].time - poses[0].time < (
        limits.start_up + RECENT
    ):
        return
    found = mean_speed(poses, poses[-1].time - RECENT)
    if found is not None and not found >= SLOWEST * speed:
        raise _wrong_speed(f"{found:.2f} m/s in the last {RECENT:g} s", speed)


def check_speed(poses: list[Pose], speed: float, limits: FlightLimits) -> None:
    """Raise `Stop` if the whole flight was slower or faster than the certified speed."""
    if limits.speed_tolerance == math.inf:
        return
    found = flown_speed(poses, limits)
    if found is None or not abs(found - speed) <= limits.speed_tolerance * speed:
        raise _wrong_speed("no speed was seen" if found is None else f"{found:.2f} m/s", speed)


def _wrong_speed(found: str, speed: float) -> Stop:
    return Stop("not the certified speed", f"{found}, where {speed:g} m/s was certified")


class DeadlineCheck:
    """When each command was due and when it was sent."""

    def __init__(self, limits: FlightLimits, event: Callable[[str], None]) -> None:
        self.limits, self.event = limits, event
        self.due: list[float] = []
        self.sent: dict[int, float] = {}
        self.checked = self.missed = 0  # deadlines that were checked, and missed in a row

    def check(self, now: float) -> None:
        """Record missed deadlines; raise `Stop` where the loop or the driver is too slow."""
        limits, behind = self.limits, now - self.due[-1]
        if behind > limits.late:
            raise Stop("late", f"the loop was {1e3 * behind:.0f} ms behind")
        while self.checked < len(self.due):
            due = self.due[self.checked]
            if self.checked not in self.sent and now - due <= limits.deadline:
                return
            late = self.sent.get(self.checked, math.inf) - due
            self.checked += 1
            if late <= limits.deadline:
                self.missed = 0
                continue
            self.missed += 1
            self.event(f"command {self.checked - 1} missed its deadline")
            if self.missed >= limits.misses:
                raise Stop("late", f"{self.missed} commands in a row missed their deadlines")

    @property
    def lateness(self) -> list[float]:
        """Seconds from the due time of each command until it was sent; infinite if it was not."""
        return [self.sent.get(n, math.inf) - due for n, due in enumerate(self.due)]
