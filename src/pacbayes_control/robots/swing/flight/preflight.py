"""The checks before take-off."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pacbayes_control.robots.swing.flight.drones import describe_error
from pacbayes_control.robots.swing.flight.stages import Stage
from pacbayes_control.robots.swing.flight.watching import Stop, Watch

# Ends before take-off that are failures of the policy that was drawn, and count. All others are
# failures of the hardware, and the next attempt has the same draw.
POLICY_FAILURES = ("policy failed", "too slow")


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
