"""What a flight takes place on: a simulated world, in real or in virtual time, or the real one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.flight.clock import Clock, RealClock, VirtualClock
from pacbayes_control.robots.swing.flight.drones import Drone
from pacbayes_control.robots.swing.flight.faults import OWN, Fault, Rehearsal
from pacbayes_control.robots.swing.flight.kept import KeptDrone
from pacbayes_control.robots.swing.flight.simulated import (
    DirectLink,
    SimulatedDrone,
    VirtualTracker,
    WorldProcess,
)
from pacbayes_control.robots.swing.flight.tracking import Tracker, UdpTracker
from pacbayes_control.robots.swing.flight.world import Physics, Place, World, world_record
from pacbayes_control.tasks.environments import generator

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.simulator import Swing


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
    """A drone that is near the task's model, and on the wrong side of it.

    It is faster, turns less and more slowly, and answers late: each makes flights harder than those
    that the policy was certified on.
    """
    return Physics(
        speed=1.02 * task.speed,
        k_u=0.95 * task.k_u,
        k_p=0.95 * task.k_p,
        latency=0.06,
        tracker_latency=0.01,
        tracker_noise=0.002,
    )


def virtual_stage(
    place: Place,
    physics: Physics | None = None,
    faults: Sequence[Fault] = (),
    seed: int | str = 0,
) -> Stage:
    """A simulated world in this process, in which time passes as fast as it is computed."""
    world, clock = World(place, physics, faults, seed), VirtualClock()
    tracker, drone = VirtualTracker(world, clock), SimulatedDrone(DirectLink(world, clock))
    return Stage(tracker, _rehearsed(drone, faults, clock), clock, world)


@contextmanager
def simulated_stage(
    place: Place,
    record: Path,
    physics: Physics | None = None,
    faults: Sequence[Fault] = (),
    seed: int | str = 0,
) -> Iterator[Stage]:
    """A simulated world in another process, in real time, with a keeper as for a real drone.

    record: a file to which the world adds what it receives; it is the world's own testimony.
    """
    clock, tracker = RealClock(), UdpTracker()
    world = None
    try:
        spec = world_record(place, physics or Physics(), faults, seed)
        world = WorldProcess(spec, tracker.port, record)
        kept = KeptDrone({"kind": "simulated", "port": world.port})
        yield Stage(tracker, _rehearsed(kept, faults, clock), clock)
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
    if not any(fault.name in OWN for fault in faults):
        return drone
    kill = drone.process_killed if isinstance(drone, KeptDrone) else None
    return Rehearsal(drone, faults, clock, kill)


def flight_seed(seed: int, number: int) -> int:
    """The seed of a flight's own draws: fresh for every flight, and the same when repeated."""
    return int(generator(seed, f"flight {number}", of="policies").integers(2**63))


def drawn_obstacles(task: Any, seed: int, number: int) -> NDArray[np.float64]:
    """The environment of a simulated flight: the next of the stream "flights"."""
    arrays = task.environments(number, stream="flights", seed=seed)[number - 1 :].arrays()
    return np.array(arrays["obstacles"][0, : arrays["counts"][0]], float)
