"""The checks of a flight: before take-off, of each frame, of the speed and of the deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.flight.drones import DroneError, describe_error
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.stages import Pilot, Stage
from pacbayes_control.robots.swing.flight.tracking import Pose

Floats = NDArray[np.float64]

# Ends that are outcomes of the policy in its environment. All others are faults.
OUTCOMES = ("completed", "contact", "geofence", "sank")

# Ends before take-off that are failures of the policy that was drawn, and count. All others are
# failures of the hardware, and the next attempt has the same draw.
POLICY_FAILURES = ("policy failed", "too slow")

RECENT = 1.0  # s over which the drone must move
SLOWEST = 0.5  # share of the certified speed: a drone that is slower does not fly forward


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


# ---- frames -------------------------------------------------------------------------------------


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
            gaps = [math.hypot(x - a, y - b) - radius for a, b, radius in self.obstacles]
            at_net = self._distance_to_net(x, y) <= min(gaps, default=math.inf)
            what = "the net" if at_net else "a cylinder"
            self.contact = f"touched {what} at x = {x:.2f}, y = {y:.2f} m"

    def _distance_to_net(self, x: float, y: float) -> float:
        """In m, negative beyond the net."""
        arena = self.pilot.task.arena
        return min(arena.half_width - abs(x), y, arena.length - y)

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
        inside = self._distance_to_net(pose.x, pose.y) - self.pilot.task.robot_radius
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


# ---- before take-off ----------------------------------------------------------------------------


def check_ready(stage: Stage, watch: Watch, sleep: Callable[[float], None]) -> None:
    """Check tracker, start, policy and drone, and connect; raises `Stop` for one that is not ready.

    sleep: waits, and has the watch take in the frames that come.
    """
    limits, clock = watch.limits, stage.clock
    stage.tracker.start()
    until = clock.now() + limits.alive
    while watch.frames < limits.frames:
        if clock.now() > until:
            raise Stop(
                "no tracker",
                f"{watch.frames} frames of the tracker in {limits.alive:g} s, where "
                f"{limits.frames} are needed: is it sending, and does it see the drone?",
            )
        sleep(0.02)
    _check_start(watch, clock.now())
    _warm_up(watch, clock.now)
    stage.drone.connect()
    battery = stage.drone.battery()
    if not battery >= limits.battery:
        words = f"the battery is at {battery:.0f} %: charge it to {limits.battery:g} % at least"
        raise Stop("battery low", words)
    until = clock.now() + limits.alive  # frames that came while connecting are old by now
    while watch.age(clock.now()) > limits.pose_age / 2 and clock.now() < until:
        sleep(0.02)
    _check_start(watch, clock.now())


def _warm_up(watch: Watch, now: Callable[[], float]) -> None:
    """Run the code that is compiled at its first call, until it is fast enough to fly with."""
    pose, took = watch.last, math.inf
    assert pose is not None
    for _ in range(20):
        began = now()
        try:
            watch.pilot.steer(pose, watch.obstacles)
        except Exception as error:
            raise Stop("policy failed", describe_error(error)) from error
        watch.pilot.clearance(np.array([[pose.x, pose.y]] * 2), watch.obstacles)
        took = now() - began
        if took <= watch.limits.deadline / 2:
            return
    raise Stop("too slow", f"the policy takes {1e3 * took:.0f} ms for one command")


def _check_start(watch: Watch, now: float) -> None:
    """Check that the drone stands where flights begin, and that nothing touches it there."""
    limits, pose = watch.limits, watch.check(now)
    x, y, yaw = watch.pilot.task.start
    off, turned = math.hypot(pose.x - x, pose.y - y), math.remainder(pose.yaw - yaw, math.tau)
    if not off <= limits.start_distance or not abs(turned) <= limits.start_angle:
        raise Stop(
            "not at the start",
            f"the drone is {off:.2f} m and {turned:.2f} rad from the start: put it at "
            f"x = {x:g}, y = {y:g}, heading {yaw:g}",
        )
    if not abs(pose.z) <= limits.ground_height:
        raise Stop("not at the start", f"the drone is at a height of {pose.z:.2f} m")
    if not watch.clearance > 0:
        raise Stop("not at the start", "an obstacle or the net touches the drone at the start")
    watch.ground = pose.z


# ---- speed and deadlines: a certificate holds for one pace --------------------------------------


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
