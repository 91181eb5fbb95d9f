"""The setting of a flight: its policy, and a simulated or a real tracker, drone and clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.policy import DeployedPolicy
from pacbayes_control.robots.swing.flight import simulated
from pacbayes_control.robots.swing.flight.drones import Drone
from pacbayes_control.robots.swing.flight.kept_drone import KeptDrone
from pacbayes_control.robots.swing.flight.tracking import Pose, UdpTracker
from pacbayes_control.robots.swing.flight.world import (
    LOOP_FAULTS,
    Fault,
    Physics,
    Place,
    World,
    WorldSetup,
)
from pacbayes_control.robots.swing.simulator import Swing
from pacbayes_control.tasks.environments import generator

LATE = 0.35  # s, of the fault "loop-late"


# ---- policy and obstacles -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pilot:
    """A policy that turns a pose into a yaw command."""

    task: Swing
    policy: NDArray  # the parameters of the policy that was drawn
    index: int | None = None  # of the policy, where the posterior is over finitely many
    name: str = ""

    def steer(self, pose: Pose, obstacles: NDArray) -> int:
        """The yaw to command, in whole percent of the full one, as the radio takes it.

        The sensor is simulated from the pose and the known obstacles, and is the policy's only
        input (paper: Section 8).
        """
        depths = self.task.depths((pose.x, pose.y, pose.yaw), obstacles)
        fraction = float(self.task.act(self.policy, depths))
        if not abs(fraction) <= 1:
            raise ValueError(f"the policy commands {fraction:g} of the full yaw, not in [-1, 1]")
        return round(100 * fraction)

    def clearance(self, points: NDArray, obstacles: NDArray) -> NDArray:
        """Metres from the drone's hull to the nearest surface, at points (n, 2); 0: contact."""
        return self.task.clearance(points, obstacles) - self.task.robot_radius


def flight_seed(seed: int, number: int) -> int:
    """The seed of a flight's own draws: new for every flight, and the same when repeated."""
    return int(generator(seed, f"flight {number}", of="policies").integers(2**63))


def drawn_obstacles(task: Swing, seed: int, number: int) -> NDArray[np.float64]:
    """The environment of a flight: number `number` of the stream "flights"."""
    arrays = task.environments(number, stream="flights", seed=seed)[number - 1 :].arrays()
    return np.array(arrays["obstacles"][0, : arrays["counts"][0]], float)


def draw_pilot(run: Run[Any], task: Swing, seed: int) -> Pilot:
    """Draw one policy for the whole flight, as the certificate assumes."""
    deployed = DeployedPolicy(run, task, seed)
    deployed.reset()
    policy = np.array(deployed.policy)
    index, name = None, ""
    if run.costs.parameters is not None:
        same = np.flatnonzero((np.asarray(run.costs.parameters) == policy).all(axis=-1))
        if same.size:
            index = int(same[0])
            name = run.costs.name(index)
    return Pilot(task, policy, index, name)


# ---- tracker, drone and clock -------------------------------------------------------------------


class Stage(NamedTuple):
    """Everything that a flight needs beside its policy."""

    tracker: UdpTracker | simulated.VirtualTracker
    drone: Drone
    clock: simulated.Clock
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
    world = World(setup)
    clock = simulated.VirtualClock(world.advance)
    drone = simulated.SimulatedDrone(simulated.VirtualLink(world, clock))
    tracker = simulated.VirtualTracker(world, clock)
    return Stage(tracker, _rehearsed(drone, setup.faults, clock), clock, world)


@contextmanager
def simulated_stage(setup: WorldSetup, record: Path) -> Iterator[Stage]:
    """A simulated world in another process, in real time, with a keeper as for a real drone.

    record: a file to which the world adds the commands that it receives.
    """
    clock = simulated.RealClock()
    with (
        closing(UdpTracker()) as tracker,
        closing(simulated.WorldProcess(setup, tracker.port, record)) as world,
    ):
        kept = KeptDrone({"kind": "simulated", "port": world.port})
        yield Stage(tracker, _rehearsed(kept, setup.faults, clock), clock)


@contextmanager
def real_stage(address: tuple[str, int], drone: Mapping[str, Any]) -> Iterator[Stage]:
    """A tracker by UDP, and a drone behind a keeper."""
    with closing(UdpTracker(*address)) as tracker:
        yield Stage(tracker, KeptDrone(drone), simulated.RealClock())


def _rehearsed(drone: Drone, faults: Sequence[Fault], clock: simulated.Clock) -> Drone:
    of_loop = [fault for fault in faults if fault.name in LOOP_FAULTS]
    return RehearsedDrone(drone, of_loop, clock) if of_loop else drone


class RehearsedDrone:
    """A drone at whose calls faults of the loop happen."""

    def __init__(self, drone: Drone, faults: list[Fault], clock: simulated.Clock) -> None:
        self.drone, self.waiting, self.clock = drone, faults, clock
        self.began: float | None = None
        self.connect, self.battery, self.sent = drone.connect, drone.battery, drone.sent
        self.land, self.disconnect = drone.land, drone.disconnect

    def take_off(self) -> None:
        """Take off; the time of the faults begins."""
        self.began = self.clock.now()
        self.drone.take_off()

    def hold(self) -> None:
        """Hold, after the faults that are due."""
        self._cause_faults()
        self.drone.hold()

    def steer(self, yaw_percent: float) -> None:
        """Steer, after the faults that are due."""
        self._cause_faults()
        self.drone.steer(yaw_percent)

    def _cause_faults(self) -> None:
        since = self.clock.now() - (self.began or 0.0)
        due = [fault for fault in self.waiting if since >= fault.seconds]
        self.waiting = [fault for fault in self.waiting if fault not in due]
        for fault in due:
            if fault.name == "loop-late":
                self.clock.sleep(LATE)
            elif fault.name == "terminated":
                os.kill(os.getpid(), signal.SIGTERM)
            elif fault.name == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault.name == "keeper-killed" and isinstance(self.drone, KeptDrone):
                self.drone.kill_keeper()
            elif fault.name == "loop-raises":
                raise ArithmeticError("a rehearsed error in the loop")
