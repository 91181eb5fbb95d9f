"""Rollouts of a robot in the plane: its policies, constants and noise as the kernel reads them.

A compiled kernel checks nothing: it would read beyond a short row, and a NaN touches no obstacle.
So everything that a user gives is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.drivers import drivers_of, why_not
from pacbayes_control.tasks.environments import Environments, Noise, in_a_line
from pacbayes_control.tasks.task import noise_of

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.robot import Planar

LARGEST_PARAMETER = 1e9  # a larger one could overflow in single precision


@dataclass(frozen=True)
class Trajectory:
    """One rollout, until contact or until the last step."""

    poses: NDArray[np.float64]  # (steps taken + 1, 3) as x, y in m, ψ in rad
    depths: NDArray[np.float64]  # (steps taken, rays) in m, read by the sensor before each step
    collided: bool


def roll_out(
    task: Planar,
    policies: NDArray,
    environments: Environments,
    noise: Noise | None,
    *,
    dtype: type[np.floating],
    measure: bool,
) -> tuple[NDArray[np.uint8], NDArray]:
    """0/1 costs, and the smallest distances to an obstacle, each (environments, policies).

    Args:
        task: the robot
        policies: (policies, parameters) or (environments, policies, parameters)
        environments: the obstacle fields
        noise: of the rollouts, where the robot has any
        dtype: precision of the rollouts
        measure: whether to compute the distances; the second array is empty without
    """
    weights = checked_weights(task, policies, len(environments))
    shape = len(environments), weights.shape[-2]
    arrays = environments.arrays()
    models = _checked_models(task, environments, shape[1], noise)
    collided = np.empty(shape, np.uint8)
    closest = np.empty(shape if measure else (1, 0), dtype)
    _driver(task, "collisions")(
        np.ascontiguousarray(np.swapaxes(weights, -1, -2), dtype).reshape(
            -1, weights.shape[-1], shape[1]
        ),
        task.controller.hidden,
        dtype(task.controller.offset),
        np.array(arrays["obstacles"], dtype),
        np.array(arrays["counts"]),
        *surroundings(task, dtype),
        dtype(task.robot_radius),
        models.astype(dtype),
        _start(task, dtype),
        task.all_steps,
        dtype(task.range_noise),
        _keys(task, environments, shape[1], noise),
        collided,
        closest,
    )
    if collided.max() == kernel.LOST:
        row, column = np.argwhere(collided == kernel.LOST)[0]
        raise _lost(task, f"in environment {row} under policy {column}")
    return collided, closest


def trajectories(
    task: Planar, policy: NDArray, environments: Environments, noise: Noise | None
) -> list[Trajectory]:
    """One rollout in each environment, step by step, in double precision."""
    weights = weights_of_one(task, policy)[:, None].copy()  # Numba compiles anew for read-only ones
    arrays, keys = environments.arrays(), _keys(task, environments, 1, noise)
    models = _checked_models(task, environments, 1, noise)
    around, start = surroundings(task, np.float64), _start(task, np.float64)
    driver, steps = _driver(task, "trajectory"), task.all_steps
    found = []
    for i, count in enumerate(arrays["counts"]):
        poses, depths = np.empty((steps + 1, 3)), np.empty((steps, task.controller.rays))
        taken, collided = driver(
            weights,
            task.controller.hidden,
            task.controller.offset,
            arrays["obstacles"][i, :count].astype(float),
            *around,
            task.robot_radius,
            models[i % len(models)],
            start,
            task.range_noise,
            keys[i] if keys.size else keys[0],
            poses,
            depths,
        )
        if not np.isfinite(poses[: taken + 1]).all():
            raise _lost(task, "along a trajectory")
        found.append(Trajectory(poses[: taken + 1], depths[:taken], bool(collided)))
    return found


def checked_weights(task: Planar, policies: NDArray, environments: int) -> NDArray[np.float64]:
    """Weights of the controller's formula, of policies with the right shape and finite numbers."""
    rows = np.asarray(policies, float)
    kind, needed = task.controller.name, task.controller.parameters
    if rows.ndim not in (2, 3) or rows.shape[-1] != needed:
        raise ValueError(
            f"the {task.name}'s {kind} policies need {needed} parameters each, "
            f"not an array {rows.shape}"
        )
    if rows.ndim == 3 and len(rows) != environments:
        raise ValueError(
            f"policies for {len(rows)} environments were given, and there are {environments}"
        )
    if rows.shape[-2] == 0:
        raise ValueError("there are no policies to roll out")
    bad = ~(np.abs(rows) <= LARGEST_PARAMETER).all(axis=-1)
    if bad.any():
        at = np.argwhere(bad)[0]
        where = f"policy {at[-1]}" + (f" of environment {at[0]}" if len(at) == 2 else "")
        raise ValueError(f"{where} has a NaN, an infinite or a huge parameter (above 1e9)")
    return task.controller.weights(rows)


def weights_of_one(task: Planar, policy: NDArray) -> NDArray[np.float64]:
    """The checked weights of a single policy."""
    row = np.asarray(policy, float)
    if row.ndim != 1:
        raise ValueError(f"one policy is a row of parameters, not an array {row.shape}")
    return checked_weights(task, row[None], 1)[0]


def surroundings(task: Planar, dtype: type[np.floating]) -> tuple[Any, ...]:
    """Walls, open areas, rays and the sensor's reach: the arguments that all kernels share."""
    arrays = task.arena.walls, task.arena.open_areas, task.rays
    return *(array.astype(dtype) for array in arrays), dtype(task.horizon)


def _start(task: Planar, dtype: type[np.floating]) -> NDArray:
    """The state at the start of a rollout."""
    x, y, heading = task.start
    return np.array([x, y, np.sin(heading), np.cos(heading), task.own_start], dtype)


def _checked_models(
    task: Planar, environments: Environments, policies: int, noise: Noise | None
) -> NDArray[np.float64]:
    models = task.models(environments, policies, noise)
    wanted = [(rows, len(task.constants), policies) for rows in (1, len(environments))]
    if models.shape not in wanted:
        raise ValueError(f"models are an array {wanted[0]} or {wanted[1]}, not {models.shape}")
    if not np.isfinite(models).all():
        which = int(np.argwhere(~np.isfinite(models))[0][1])
        raise ValueError(f"constant {which} of the {task.name} is NaN or infinite")
    return models


def _keys(
    task: Planar, environments: Environments, policies: int, noise: Noise | None
) -> NDArray[np.uint64]:
    """Where the noise of each rollout begins in its stream; empty for a robot without noise."""
    noise = noise_of(task, environments, noise)
    return noise.keys(environments, policies) if noise else np.empty((1, 0), np.uint64)


def _driver(task: Planar, which: str) -> Callable[..., Any]:
    """One of the robot's drivers; if `move` does not compile, an error says why in one line."""
    from pacbayes_control.robots.planar.robot import Planar

    move, constants = type(task).move, task.constants
    if move is Planar.move:
        raise ValueError(f"the {task.name} has no move(state, control, draws, step, model)")
    driver = getattr(drivers_of(move, len(constants)), which)

    def run(*arguments: Any) -> Any:
        try:
            return driver(*arguments)
        except NumbaError as error:
            why = why_not(move, constants) or in_a_line(error)
            raise ValueError(f"`move` of the {task.name} does not compile: {why[:300]}") from None

    return run


def _lost(task: Planar, where: str) -> ValueError:
    return ValueError(f"the position of the {task.name} is NaN or infinite {where}: correct `move`")
