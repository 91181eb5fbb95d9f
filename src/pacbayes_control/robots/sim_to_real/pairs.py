"""Each robot in simulation and in what stands for reality, and rollouts of two policies in both.

Reality is another simulator here: PyBullet, which the paper used, for the vehicle, and for the
Swing a drone that is harder to fly than its model. Simulation is the kernel with which policies are
learnt.

Both policies are chosen in simulation, in environments of a stream of their own, among the robot's
own: the best one, and a weaker one, whose failure rate is nearest to 0.3. If that is not within
0.05, as for the Swing, the weaker one is the best with its gains multiplied by a power of 0.95.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar import Planar
from pacbayes_control.robots.swing import Swing
from pacbayes_control.robots.swing.flight.stages import physics_of
from pacbayes_control.robots.vehicle import Vehicle
from pacbayes_control.robots.vehicle.bullet import BulletVehicle, has_pybullet
from pacbayes_control.rollouts import Execution, evaluate, mean_costs
from pacbayes_control.tasks.environments import generator

CHOICE = 10_000  # environments in simulation to choose policies in
WEAKER, NEAR = 0.3, 0.05  # failure rate of the second policy, in simulation
FACTORS = 0.95 ** np.arange(160)  # on the gains of the best one, to find the second
WITHOUT_PYBULLET = (
    "PyBullet is not installed, so the Swing is shown alone; on Python 3.11: "
    "pip install 'pacbayes-control[pybullet]'"
)

Failed = NDArray[np.bool_]


@dataclass(frozen=True)
class Robot:
    """A robot in simulation, and another one in the place of the real one."""

    name: str
    simulation: Planar
    reality: Planar

    def policies(self, seed: int, execution: Execution | None = None) -> dict[str, NDArray]:
        """The best policy in simulation, and a weaker one; (rays,) each, by name."""
        task = self.simulation
        some = task.environments(CHOICE, "sim-to-real choice", seed)
        known, rates = task.policies, mean_costs(task, task.policies, some, execution=execution)
        best = known[rates.argmin()]
        if np.abs(rates - WEAKER).min() > NEAR:
            known = FACTORS[:, None] * best
            rates = mean_costs(task, known, some, execution=execution)
        return {"best": best, "weaker": known[np.abs(rates - WEAKER).argmin()]}


def robots() -> list[Robot]:
    """The robots of the demonstration; the vehicle only where PyBullet is installed."""
    vehicle, swing = Vehicle(), Swing()
    known = [Robot("vehicle", vehicle, BulletVehicle())] if has_pybullet() else []
    return [*known, Robot("swing", swing, harder_to_fly(swing))]


def harder_to_fly(task: Swing) -> Swing:
    """The drone of simulated flights: it is faster, and turns less and more slowly.

    Its commands have the task's own limits, since its gains are not known in flight.
    """
    true, limit = physics_of(task), task.largest_control
    return replace(task, speed=true.speed, k_u=true.k_u, k_p=true.k_p, largest_command=limit)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Whether one policy failed in each rollout."""

    robot: str
    policy: str  # best or weaker
    reality: Failed  # (trials,)
    simulation: Failed  # (trials,), in the same environments
    more: Failed  # (environments,), in simulation alone

    def with_coin(self, seed: int) -> Rollouts:
        """The same with a coin as simulation, which knows only how often simulation fails."""
        rng = generator(seed, f"sim-to-real coin {self.robot} {self.policy}", of="noise")
        rate = self.more.mean()
        pairs, more = (rng.random(len(each)) < rate for each in (self.simulation, self.more))
        return replace(self, simulation=pairs, more=more)


def rolled_out(
    robot: Robot, trials: int, simulated: int, seed: int, execution: Execution
) -> list[Rollouts]:
    """The rollouts of both policies; those that are finished are kept in the store."""
    title = f"{robot.name}: choice of policies"
    policies = robot.policies(seed, replace(execution, store=None, title=title))
    where = robot.simulation.environments(trials, "sim-to-real trials", seed)
    others = robot.simulation.environments(simulated, "sim-to-real simulated", seed)
    failed = []
    for words, task, environments in (
        ("reality", robot.reality, where),
        ("simulation", robot.simulation, where),
        ("further simulation", robot.simulation, others),
    ):
        kept = execution.keeping(f"{robot.name} {words}".replace(" ", "-"))
        how = replace(kept, title=f"{robot.name}: {words}")
        costs = evaluate(task, np.stack([*policies.values()]), environments, execution=how)
        failed.append(np.array(costs.values) == 1)
    return [Rollouts(robot.name, p, *(f[:, n] for f in failed)) for n, p in enumerate(policies)]
