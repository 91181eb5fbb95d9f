"""Everything that can be known to be wrong on the ground."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pacbayes_control.robots.swing.flight.clock import Clock
from pacbayes_control.robots.swing.flight.drones import Drone, in_words
from pacbayes_control.robots.swing.flight.pilot import Pilot
from pacbayes_control.robots.swing.flight.tracking import Tracker
from pacbayes_control.robots.swing.flight.watching import Stop, Watch

# Ends before take-off that are failures of the policy that was drawn, and count. All others are
# the hardware's, and the next attempt has the same draw.
OF_THE_POLICY = ("policy failed", "too slow")


def ready(
    pilot: Pilot,
    watch: Watch,
    tracker: Tracker,
    drone: Drone,
    clock: Clock,
    sleep: Callable[[float], None],
) -> None:
    """Look at tracker, policy, drone and start, and connect; raises `Stop` if one is not as due.

    sleep: waits, and has the watch take in the frames that come.
    """
    limits = watch.settings
    tracker.start()
    until = clock.now() + limits.alive
    while watch.frames < limits.frames:
        if clock.now() > until:
            raise Stop(
                "no tracker",
                f"{watch.frames} frames of the tracker in {limits.alive:g} s, where "
                f"{limits.frames} are needed: is it sending, and does it see the drone?",
            )
        sleep(0.02)
    _at_the_start(pilot, watch, clock.now())
    _warm_up(pilot, watch, clock)
    drone.connect()
    battery = drone.battery()
    if not battery >= limits.battery:
        raise Stop(
            "battery low",
            f"the battery is at {battery:.0f} %: charge it to {limits.battery:g} % at least",
        )
    until = clock.now() + limits.alive  # what came while connecting is old by now
    while watch.age(clock.now()) > limits.pose_age / 2 and clock.now() < until:
        sleep(0.02)
    _at_the_start(pilot, watch, clock.now())


def _warm_up(pilot: Pilot, watch: Watch, clock: Clock) -> None:
    """Run what is compiled when first called, until it is fast enough to fly with."""
    pose, took = watch.last, math.inf
    assert pose is not None
    for _ in range(20):
        began = clock.now()
        try:
            pilot.steer(pose, watch.obstacles)
        except Exception as error:
            raise Stop("policy failed", in_words(error)) from error
        pilot.clearance(np.array([[pose.x, pose.y]] * 2), watch.obstacles)
        took = clock.now() - began
        if took <= watch.settings.deadline / 2:
            return
    raise Stop("too slow", f"the policy takes {1e3 * took:.0f} ms for one command")


def _at_the_start(pilot: Pilot, watch: Watch, now: float) -> None:
    """Whether the drone stands where flights begin, and nothing touches it there."""
    limits, pose = watch.settings, watch.check(now)
    x, y, yaw = pilot.task.start
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
