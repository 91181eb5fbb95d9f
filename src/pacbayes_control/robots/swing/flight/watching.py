"""The tracked frames of a flight, and the reasons in them to end it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.flight.drones import DroneError, describe_error
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.pilot import Pilot
from pacbayes_control.robots.swing.flight.tracking import Pose

Floats = NDArray[np.float64]

# Ends that are outcomes of the policy in its environment. All others are faults.
OUTCOMES = ("completed", "contact", "geofence", "sank")


class Stop(Exception):  # noqa: N818 - an end, not always an error
    """The end of a flight: its kind, and the reason in words."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


def as_stop(error: BaseException) -> Stop:
    """The end of a flight that an exception means."""
    if isinstance(error, Stop):
        return error
    if isinstance(error, DroneError):
        return Stop("drone failed", describe_error(error))
    if isinstance(error, KeyboardInterrupt):
        return Stop("terminated", "interrupted")
    return Stop("error", describe_error(error))


@dataclass
class Watch:
    """The tracked frames of a flight, and the checks on each of them."""

    pilot: Pilot
    obstacles: Floats  # (n, 3) as x, y, radius
    limits: FlightLimits
    last: Pose | None = None
    ground: float = 0.0  # height at which the drone stood before take-off
    highest: float = 0.0  # above that
    nearest: float = math.inf  # smallest clearance so far
    contact: str = ""  # the first contact, in words
    airborne: bool = False  # whether take-off was commanded: frames are checked from then on
    risen: bool = False  # whether the drone has climbed: it must stay up from then on
    gap: float = 0.0  # s, the longest without a frame since take-off
    clearance: float = math.nan  # at the last frame
    low_since: float | None = None  # since when all frames show the drone on the ground
    jumped: str = ""  # the first jump of the tracker, in words
    frames: int = 0

    def see(self, poses: list[Pose]) -> None:
        """Take in frames. Never raises an end of the flight: `check` does."""
        if not poses:
            return
        self.frames += len(poses)
        places = np.array([(p.x, p.y) for p in [self.last or poses[0], *poses]], float)
        points = self._points_to_check(places[:-1], places[1:])
        found = self.pilot.clearance(points.reshape(-1, 2), self.obstacles)
        clearances = found.reshape(points.shape[:2])
        for frame in zip(poses, points, clearances, strict=True):
            self._see(*frame)

    def _points_to_check(self, start: Floats, end: Floats) -> Floats:
        """The ends of straight lines (n, 2), and their points that are nearest to each cylinder.

        Between two frames the drone is assumed to have flown straight. For the net the ends are
        enough, since the area inside is convex. Returns (n, 1 + cylinders, 2).
        """
        step = (end - start)[:, None]
        ahead = ((self.obstacles[:, :2] - start[:, None]) * step).sum(-1, keepdims=True)
        length = np.maximum((step * step).sum(-1, keepdims=True), 1e-12)
        between = start[:, None] + np.clip(ahead / length, 0.0, 1.0) * step
        return np.concatenate([end[:, None], between], axis=1)

    def _see(self, pose: Pose, points: Floats, clearances: Floats) -> None:
        """Take in a frame, and the clearances at it and at points on the way to it."""
        limits, last = self.limits, self.last
        if self.airborne and last is not None and not self.jumped:
            apart = max(pose.time - last.time, 0.0)
            self.gap = max(self.gap, apart)
            moved = math.dist((pose.x, pose.y, pose.z), (last.x, last.y, last.z))
            turned = abs(math.remainder(pose.yaw - last.yaw, 2 * math.pi))
            if moved > limits.jump + limits.fastest * apart:
                self.jumped = f"a frame is {moved:.2f} m from the one {1e3 * apart:.0f} ms before"
            elif turned > limits.jump_angle + limits.fastest_turn * apart:
                self.jumped = f"a frame is turned by {turned:.2f} rad within {1e3 * apart:.0f} ms"
        self.last, self.clearance = pose, float(clearances[0])
        height = pose.z - self.ground
        if height > limits.landed_height:
            self.low_since = None
        elif self.low_since is None:
            self.low_since = pose.time
        if not self.airborne or self.jumped:
            return
        self.highest = max(self.highest, height)
        least = int(np.argmin(clearances))  # the index of a NaN, if there is one
        self.nearest = min(self.nearest, float(clearances[least]))
        if not clearances[least] > 0 and not self.contact:  # NaN is a contact too
            x, y = points[least].tolist()
            what = self._nearest_surface(replace(pose, x=x, y=y))
            self.contact = f"touched {what} at x = {x:.2f}, y = {y:.2f} m"

    def _nearest_surface(self, pose: Pose) -> str:
        gaps = [math.hypot(pose.x - x, pose.y - y) - r for x, y, r in self.obstacles]
        near_net = self._distance_to_net(pose) <= min(gaps, default=math.inf)
        return "the net" if near_net else "a cylinder"

    def _distance_to_net(self, pose: Pose) -> float:
        """In m, negative beyond the net."""
        arena = self.pilot.task.arena
        return min(arena.half_width - abs(pose.x), pose.y, arena.length - pose.y)

    def age(self, now: float) -> float:
        """Seconds since the last frame."""
        return now - self.last.time if self.last else math.inf

    def contact_stop(self, words: str = "") -> Stop:
        """The end of the flight by the contact; `words` are added to the reason."""
        kind = "geofence" if "the net" in self.contact else "contact"
        return Stop(kind, self.contact + words)

    def check(self, now: float) -> Pose:
        """The pose to act on; raises `Stop` where there is none, or the flight must end."""
        limits, pose = self.limits, self.last
        if self.jumped:
            raise Stop("tracker jumped", self.jumped)
        if self.contact:
            raise self.contact_stop()
        if pose is None or max(self.age(now), self.gap) > limits.pose_age:
            raise Stop("tracking lost", f"no new pose for {limits.pose_age:g} s")
        inside = self._distance_to_net(pose) - self.pilot.task.robot_radius
        if inside <= limits.fence_margin:
            raise Stop("geofence", f"{inside:.2f} m from the net at y = {pose.y:.2f} m")
        if pose.z - self.ground > limits.ceiling:
            raise Stop("too high", f"{pose.z:.2f} m is above the ceiling of {limits.ceiling:g} m")
        if self.risen and not pose.z - self.ground >= limits.lowest * limits.altitude:
            raise Stop("sank", f"the drone is at {pose.z - self.ground:.2f} m, and did not land")
        return pose

    @property
    def on_the_ground(self) -> bool:
        """Whether the last frames show the drone on the ground."""
        if self.last is None or self.low_since is None:
            return False
        return self.last.time - self.low_since >= self.limits.landed_time
