"""What is seen of a flight, and what of it ends the flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.flight.pilot import Pilot
from pacbayes_control.flight.settings import Settings
from pacbayes_control.flight.tracking import Pose

# Ends that are outcomes of the policy in its environment. All others are faults.
OUTCOMES = ("completed", "contact", "geofence")


class Stop(Exception):  # noqa: N818 - an end, not always an error
    """An end of a flight: a kind, and what was seen in words."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


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
    clearance: float = math.nan  # at the last frame
    low_since: float | None = None  # since when all frames show the drone on the ground
    jumped: str = ""
    frames: int = 0

    def see(self, poses: list[Pose]) -> None:
        """Take in frames. Nothing is raised: that is `check`'s business."""
        if not poses:
            return
        self.frames += len(poses)
        clearances = self.pilot.clearance(poses, self.obstacles)
        for pose, clearance in zip(poses, clearances, strict=True):
            self._see(pose, float(clearance))

    def _see(self, pose: Pose, clearance: float) -> None:
        limits, last = self.settings, self.last
        if self.airborne and last is not None and not self.jumped:
            apart = max(pose.time - last.time, 0.0)
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
        self.nearest = min(self.nearest, clearance)
        if not clearance > 0 and not self.contact:  # a NaN is no clearance
            self.contact = f"touched {self._what(pose)} at x = {pose.x:.2f}, y = {pose.y:.2f} m"

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
        if pose is None or self.age(now) > limits.pose_age:
            raise Stop("tracking lost", f"no new pose for {limits.pose_age:g} s")
        if self.contact:
            kind = "geofence" if "the net" in self.contact else "contact"
            raise Stop(kind, self.contact)
        inside = self._inside(pose) - self.pilot.task.robot_radius
        if inside <= limits.fence_margin:
            raise Stop("geofence", f"{inside:.2f} m from the net at y = {pose.y:.2f} m")
        if pose.z - self.ground > limits.ceiling:
            raise Stop("too high", f"{pose.z:.2f} m is above the ceiling of {limits.ceiling:g} m")
        return pose

    @property
    def on_the_ground(self) -> bool:
        """Whether the last frames show the drone standing."""
        if self.last is None or self.low_since is None:
            return False
        return self.last.time - self.low_since >= self.settings.landed_time
