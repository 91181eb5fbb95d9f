"""The setting of a flight: policy, obstacles, and a simulated or real tracker, drone and clock."""

from __future__ import annotations

import csv
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
from pacbayes_control.robots.swing.flight.world import Fault, Physics, Place, World, WorldSetup
from pacbayes_control.robots.swing.identification.logs import read_columns
from pacbayes_control.robots.swing.simulator import Swing
from pacbayes_control.tasks.environments import generator

Floats = NDArray[np.float64]

CYLINDER = ("x", "y", "radius")
PLACED_BY_HAND = 1e-3  # m by which a cylinder may be outside its range
LATE = 0.35  # s, of the fault "loop-late"


# ---- the policy ---------------------------------------------------------------------------------


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


# ---- obstacles ----------------------------------------------------------------------------------


def drawn_obstacles(task: Swing, seed: int, number: int) -> Floats:
    """The environment of a flight: number `number` of the stream "flights"."""
    arrays = task.environments(number, stream="flights", seed=seed)[number - 1 :].arrays()
    return np.array(arrays["obstacles"][0, : arrays["counts"][0]], float)


def same_obstacles(first: NDArray, second: NDArray) -> bool:
    """Whether two arrays of cylinders are the same, in any order."""
    one, other = (np.asarray(array, float).reshape(-1, 3).tolist() for array in (first, second))
    return sorted(one) == sorted(other)


def read_obstacles(path: Path, task: Swing) -> Floats:
    """Cylinders from a CSV file with columns x, y, radius in m, checked; others are not read."""
    columns, lines = read_columns(path, CYLINDER, "obstacles have x, y, radius in m")
    if not lines:
        raise ValueError(f"{path.name}: there are no obstacles below the header")
    found = np.stack([columns[name] for name in CYLINDER], axis=1)
    widest, (x0, y0, _) = task.arena.half_width, task.start
    for (x, y, radius), line in zip(found.tolist(), lines, strict=True):
        where = f"{path.name}, line {line}"
        if not 0 < radius <= widest:
            raise ValueError(f"{where}: a radius of {radius:g} m is not in (0, {widest:g}]")
        if not (abs(x) <= widest and 0 <= y <= task.arena.length):
            raise ValueError(
                f"{where}: x = {x:g}, y = {y:g} is outside the net, which is from "
                f"x = -{widest:g} to {widest:g} and y = 0 to {task.arena.length:g} m"
            )
        if np.hypot(x - x0, y - y0) - radius <= task.robot_radius:
            start = f"x = {x0:g}, y = {y0:g}"
            raise ValueError(f"{where}: the cylinder stands where the drone starts, {start}")
    return found


def check_certified(found: NDArray, task: Swing, what: str) -> None:
    """An error for obstacles that the certified distribution never draws: nothing holds for them.

    Obstacles within the ranges may still have been chosen by hand; `--draw` excludes that.
    """
    field = task.obstacles
    ranges = ", ".join(
        f"{name} from {low:g} to {high:g} m"
        for name, (low, high) in zip(CYLINDER, (field.x, field.y, field.radius), strict=True)
    )
    if not field.fewest <= len(found) <= field.most:
        raise ValueError(
            f"{what}: there are {len(found)} cylinders, and {field.fewest} to {field.most} were "
            "certified"
        )
    low, high = np.array([field.x, field.y, field.radius]).T
    outside = np.any((found < low - PLACED_BY_HAND) | (found > high + PLACED_BY_HAND), axis=1)
    if outside.any():
        x, y, radius = found[outside.argmax()].tolist()
        raise ValueError(
            f"{what} has a cylinder at x = {x:g}, y = {y:g}, of radius {radius:g} m, which was not "
            f"certified: {ranges}"
        )


def write_obstacles(path: Path, obstacles: NDArray) -> None:
    """Write cylinders as `read_obstacles` reads them, to a file that must not exist yet."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(CYLINDER)
            writer.writerows(np.asarray(obstacles, float).tolist())
    except FileExistsError:
        raise ValueError(f"{path} exists already: give the name of a new file") from None


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
    drone = simulated.SimulatedDrone(world, clock)
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
    return RehearsedDrone(drone, faults, clock) if faults else drone


class RehearsedDrone:
    """A drone at whose calls faults of the loop happen; the world has its own."""

    def __init__(self, drone: Drone, faults: Sequence[Fault], clock: simulated.Clock) -> None:
        self.drone, self.waiting, self.clock = drone, list(faults), clock
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
