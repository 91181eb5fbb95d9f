"""A drone that holds its height in gusts, many at once: a task from a batched simulator.

pbc check examples/hovering.py:task
pbc learn examples/hovering.py:task --environments 2000 --out runs/hovering
"""

import numpy as np

from pacbayes_control.tasks import BatchTask

TIME_STEP = 0.05  # s


def draw(rng, n):
    """n environments: the drone's mass, and a gust of its own strength, time and length."""
    return {
        "mass": rng.uniform(0.8, 1.6, n),  # kg
        "gust": rng.normal(0, 4, n),  # N
        "begin": rng.uniform(0, 5, n),  # s
        "length": rng.uniform(0.2, 2, n),  # s
    }


def rollouts(policies, environments):
    """Ten seconds of every policy in every environment; the cost is 1 if the drone leaves ±1 m."""
    gain, damping = policies[..., 0], policies[..., 1]  # (policies,) or (environments, policies)
    mass, gust, begin, length = (
        environments[k][:, None] for k in ("mass", "gust", "begin", "length")
    )
    height = np.zeros(np.broadcast_shapes(mass.shape, gain.shape))
    speed, left = np.zeros_like(height), np.zeros(height.shape, bool)
    for time in np.arange(0, 10, TIME_STEP):
        wind = np.where((time >= begin) & (time < begin + length), gust, 0)
        thrust = np.clip(-gain * height - damping * speed, -8, 8)
        speed = speed + (thrust + wind) / mass * TIME_STEP
        height = height + speed * TIME_STEP
        left |= np.abs(height) > 1
    return left


def candidates():
    """Gains in N/m, damping in N s/m."""
    grid = np.meshgrid([1, 2, 4, 8, 16], [0.5, 1, 2, 4], indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1).astype(float)


task = BatchTask(rollouts, draw, "hovering", parameters=2, policies=candidates())
