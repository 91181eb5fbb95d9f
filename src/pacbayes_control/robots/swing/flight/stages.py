"""Where a flight takes place: a simulated world, in real or in virtual time, or the real one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.flight.clock import Clock, RealClock, VirtualClock
from pacbayes_control.robots.swing.flight.drones import Drone
from pacbayes_control.robots.swing.flight.faults import LOOP_FAULTS, Fault, RehearsedDrone
from pacbayes_control.robots.swing.flight.kept_drone import KeptDrone
from pacbayes_control.robots.swing.flight.simulated import (
    SimulatedDrone,
    VirtualLink,
    VirtualTracker,
    WorldProcess,
)
from pacbayes_control.robots.swing.flight.tracking import Tracker, UdpTracker
from pacbayes_control.robots.swing.flight.world import Physics, Place, World, WorldSetup
from pacbayes_control.robots.swing.simulator import Swing
from pacbayes_control.tasks.environments import generator


class Stage(NamedTuple):
    """Everything that a flight needs beside its policy."""

    tracker: Tracker
    drone: Drone
    clock: Clock
    world: World | None = None  # where it is in this process


def place_of(task: Swing, obstacles: NDArray) -> Place:
    """The task's area with some obstacles, for a simulated world."""
    cylinders = tuple((float(x), float(y), float(r)) for x, y, r in obstacles)
    arena = task.arena
    return Place(task.start, arena.half_width, arena.length, task.robot_radius, cylinders)


def physics_of(task: Swing) -> Physics:
    """A drone that is near the task's model, and harder to fly.

    It is faster, turns less and more slowly, and reacts later than the drone that the policy was
    certified with.
    """
    return Physics(
        speed=1.02 * task.speed,
        k_u=0.95 * task.k_u,
        k_p=0.95 * task.k_p,
        latency=0.06,
        tracker_latency=0.01,
        tracker_noise=0.002,
    )


def world_setup(
    task: Swing, obstacles: NDArray, seed: int, faults: tuple[Fault, ...] = ()
) -> WorldSetup:
    """A world with the task's area, and a drone that is harder to fly than its model."""
    return WorldSetup(place_of(task, obstacles), physics_of(task), faults, seed)


def virtual_stage(setup: WorldSetup) -> Stage:
    """A simulated world in this process, in which time passes as fast as it is computed."""
    world, clock = World(setup), VirtualClock()
    tracker, drone = VirtualTracker(world, clock), SimulatedDrone(VirtualLink(world, clock))
    return Stage(tracker, _rehearsed(drone, setup.faults, clock), clock, world)


@contextmanager
def simulated_stage(setup: WorldSetup, record: Path) -> Iterator[Stage]:
    """A simulated world in another process, in real time, with a keeper as for a real drone.

    record: a file to which the world adds the commands that it receives.
    """
    clock, tracker = RealClock(), UdpTracker()
    world = None
    try:
        world = WorldProcess(setup, tracker.port, record)
        kept = KeptDrone({"kind": "simulated", "port": world.port})
        yield Stage(tracker, _rehearsed(kept, setup.faults, clock), clock)
    finally:
        tracker.close()
        if world is not None:
            world.close()


@contextmanager
def real_stage(address: tuple[str, int], drone: Mapping[str, Any]) -> Iterator[Stage]:
    """A tracker by UDP, and a drone behind a keeper."""
    tracker = UdpTracker(*address)
    try:
        yield Stage(tracker, KeptDrone(drone), RealClock())
    finally:
        tracker.close()


def _rehearsed(drone: Drone, faults: Sequence[Fault], clock: Clock) -> Drone:
    if not any(fault.name in LOOP_FAULTS for fault in faults):
        return drone
    kill_keeper = drone.kill_keeper if isinstance(drone, KeptDrone) else None
    return RehearsedDrone(drone, faults, clock, kill_keeper)


def flight_seed(seed: int, number: int) -> int:
    """The seed of a flight's own draws: new for every flight, and the same when repeated."""
    return int(generator(seed, f"flight {number}", of="policies").integers(2**63))


def drawn_obstacles(task: Swing, seed: int, number: int) -> NDArray[np.float64]:
    """The environment of a flight: number `number` of the stream "flights"."""
    arrays = task.environments(number, stream="flights", seed=seed)[number - 1 :].arrays()
    return np.array(arrays["obstacles"][0, : arrays["counts"][0]], float)
