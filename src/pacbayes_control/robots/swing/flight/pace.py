"""How fast the drone flies, as it was tracked: a certificate is for one speed."""

from __future__ import annotations

import math
from itertools import pairwise

from pacbayes_control.robots.swing.flight.settings import Settings
from pacbayes_control.robots.swing.flight.tracking import Pose
from pacbayes_control.robots.swing.flight.watching import Stop

RECENT = 1.0  # s that the drone is looked at to see whether it moves at all
PLAINLY = 0.5  # of the speed: a drone that is slower for so long does not fly forward


def mean_speed(poses: list[Pose], since: float = -math.inf) -> float | None:
    """Metres of way a second, from a time on; None where no time has passed.

    >>> mean_speed([Pose(t, t, 0.0, 2.0 * t, 1.0, 0.0) for t in range(3)])
    2.0
    """
    seen = [pose for pose in poses if pose.time >= since]
    if len(seen) < 2 or not seen[-1].time > seen[0].time:
        return None
    way = sum(math.dist((a.x, a.y), (b.x, b.y)) for a, b in pairwise(seen))
    return way / (seen[-1].time - seen[0].time)


def flown_speed(poses: list[Pose], limits: Settings) -> float | None:
    """The mean speed once the drone has gathered it. poses: one for each command, and the last."""
    if not poses:
        return None
    spent = min(limits.start_up, limits.steps * limits.period / 2)
    return mean_speed(poses, poses[0].time + spent)


def check_moving(poses: list[Pose], speed: float, limits: Settings) -> None:
    """Raise `Stop` for a drone that plainly does not fly forward."""
    if limits.speed_tolerance == math.inf or poses[-1].time - poses[0].time < (
        limits.start_up + RECENT
    ):
        return
    found = mean_speed(poses, poses[-1].time - RECENT)
    if found is not None and not found >= PLAINLY * speed:
        raise _another(f"{found:.2f} m/s in the last {RECENT:g} s", speed)


def check_speed(poses: list[Pose], speed: float, limits: Settings) -> None:
    """Raise `Stop` where the flight as a whole was slower or faster than it was certified for."""
    if limits.speed_tolerance == math.inf:
        return
    found = flown_speed(poses, limits)
    if found is None or not abs(found - speed) <= limits.speed_tolerance * speed:
        raise _another("no speed was seen" if found is None else f"{found:.2f} m/s", speed)


def _another(found: str, speed: float) -> Stop:
    return Stop("not the certified speed", f"{found}, where {speed:g} m/s was certified")
