"""What is seen of a flight, and what of it ends the flight."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.flight.drones import DroneError, in_words
from pacbayes_control.robots.swing.flight.pilot import Pilot
from pacbayes_control.robots.swing.flight.settings import Settings
from pacbayes_control.robots.swing.flight.tracking import Pose

# Ends that are outcomes of the policy in its environment. All others are faults.
OUTCOMES = ("completed", "contact", "geofence", "sank")


class Stop(Exception):  # noqa: N818 - an end, not always an error
    """An end of a flight: a kind, and what was seen in words."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


def as_stop(error: BaseException) -> Stop:
    """The end that an exception means."""
    if isinstance(error, Stop):
        return error
    if isinstance(error, DroneError):
        return Stop("drone failed", in_words(error))
    if isinstance(error, KeyboardInterrupt):
        return Stop("terminated", "interrupted")
    return Stop("error", in_words(error))


@dataclass
class Watch:
    """All tracked frames of a flight, and the checks on each of them."""

    pilot: Pilot
    obstacles: NDArray[np.float64]  # (n, 3) as x, y, radius
    settings: Settings
    last: Pose | None = None
    ground: float = 0.0  # height at which the drone stood before take-off
    highest: float = 0.0  # above that
    nearest: float = math.inf  # clearance so far
    contact: str = ""  # where and when something was touched, if it was
    airborne: bool = False  # whether take-off was commanded: frames are judged from then on
    risen: bool = False  # whether the drone has climbed: it must stay up from then on
    gap: float = 0.0  # s, the longest without a frame since take-off
    clearance: float = math.nan  # at the last frame
    low_since: float | None = None  # since when all frames show the drone on the ground
    jumped: str = ""
    frames: int = 0

    def see(self, poses: list[Pose]) -> None:
        """Take in frames. Nothing is raised: that is `check`'s business."""
        if not poses:
            return
        self.frames += len(poses)
        places = np.array([(p.x, p.y) for p in [self.last or poses[0], *poses]], float)
        way = self._way(places[:-1], places[1:])
        found = self.pilot.clearance(way.reshape(-1, 2), self.obstacles).reshape(way.shape[:2])
        for pose, points, clearances in zip(poses, way, found, strict=True):
            self._see(pose, points, clearances)

    def _way(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """The ends of straight ways (n, 2), and where each cylinder is nearest to the way.

        Nothing is seen between two frames, and the drone is taken to have flown straight. The net
        needs no more than the ends: what it encloses is convex. Returns (n, 1 + cylinders, 2).
        """
        step = (end - start)[:, None]
        ahead = ((self.obstacles[:, :2] - start[:, None]) * step).sum(-1, keepdims=True)
        length = np.maximum((step * step).sum(-1, keepdims=True), 1e-12)
        between = start[:, None] + np.clip(ahead / length, 0.0, 1.0) * step
        return np.concatenate([end[:, None], between], axis=1)

    def _see(
        self, pose: Pose, points: NDArray[np.float64], clearances: NDArray[np.float64]
    ) -> None:
        """Take in a frame, and the clearances at it and at points on the way to it."""
        limits, last, clearance = self.settings, self.last, float(clearances[0])
        if self.airborne and last is not None and not self.jumped:
            apart = max(pose.time - last.time, 0.0)
            self.gap = max(self.gap, apart)
            moved = math.dist((pose.x, pose.y, pose.z), (last.x, last.y, last.z))
            turned = abs(math.remainder(pose.yaw - last.yaw, 2 * math.pi))
            if moved > limits.jump + limits.fastest * apart:
                self.jumped = f"a frame is {moved:.2f} m from the one {1e3 * apart:.0f} ms before"
            elif turned > limits.jump_angle + limits.fastest_turn * apart:
                self.jumped = f"a frame is turned by {turned:.2f} rad within {1e3 * apart:.0f} ms"
        self.last, self.clearance = pose, clearance
        height = pose.z - self.ground
        if height > limits.landed_height:
            self.low_since = None
        elif self.low_since is None:
            self.low_since = pose.time
        if not self.airborne or self.jumped:
            return
        self.highest = max(self.highest, height)
        least = int(np.argmin(clearances))  # a NaN is the least of all
        self.nearest = min(self.nearest, float(clearances[least]))
        if not clearances[least] > 0 and not self.contact:  # and no clearance
            x, y = points[least].tolist()
            what = self._what(replace(pose, x=x, y=y))
            self.contact = f"touched {what} at x = {x:.2f}, y = {y:.2f} m"

    def _what(self, pose: Pose) -> str:
        """Net or cylinder: which is nearer."""
        gaps = [math.hypot(pose.x - x, pose.y - y) - r for x, y, r in self.obstacles]
        return "the net" if self._inside(pose) <= min(gaps, default=math.inf) else "a cylinder"

    def _inside(self, pose: Pose) -> float:
        """Metres to the net, negative beyond it."""
        arena = self.pilot.task.arena
        return min(
            pose.x + arena.half_width, arena.half_width - pose.x, pose.y, arena.length - pose.y
        )

    def age(self, now: float) -> float:
        """Seconds since the last frame."""
        return now - self.last.time if self.last else math.inf

    def check(self, now: float) -> Pose:
        """The pose to act on; raises `Stop` where there is none, or the flight must end."""
        limits, pose = self.settings, self.last
        if self.jumped:
            raise Stop("tracker jumped", self.jumped)
        if self.contact:
            kind = "geofence" if "the net" in self.contact else "contact"
            raise Stop(kind, self.contact)
        if pose is None or max(self.age(now), self.gap) > limits.pose_age:
            raise Stop("tracking lost", f"no new pose for {limits.pose_age:g} s")
        inside = self._inside(pose) - self.pilot.task.robot_radius
        if inside <= limits.fence_margin:
            raise Stop("geofence", f"{inside:.2f} m from the net at y = {pose.y:.2f} m")
        if pose.z - self.ground > limits.ceiling:
            raise Stop("too high", f"{pose.z:.2f} m is above the ceiling of {limits.ceiling:g} m")
        if self.risen and not pose.z - self.ground >= limits.lowest * limits.altitude:
            raise Stop("sank", f"the drone is at {pose.z - self.ground:.2f} m, and did not land")
        return pose

    @property
    def on_the_ground(self) -> bool:
        """Whether the last frames show the drone standing."""
        if self.last is None or self.low_since is None:
            return False
        return self.last.time - self.low_since >= self.settings.landed_time
