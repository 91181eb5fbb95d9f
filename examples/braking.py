"""A truck that must stop before a line, on roads of unknown grip: a task from a plain function.

pbc check examples/braking.py:task
pbc learn examples/braking.py:task --environments 500 --out runs/braking
"""

import numpy as np

from pacbayes_control.tasks import FunctionTask

TIME_STEP = 0.05  # s


def draw(rng):
    """One environment: how fast the truck comes, how far away the line is, what the road grips."""
    return {
        "speed": rng.uniform(10, 25),  # m/s
        "distance": rng.uniform(80, 200),  # m
        "grip": rng.uniform(0.35, 0.9),  # of the weight
    }


def rollout(policy, environment, rng):
    """Brake when the needed deceleration exceeds a threshold, and aim for a margin before the line.

    The cost is 1 beyond the line and grows from 0 with the distance that is left before it. The
    sensor is noisy: its noise comes from the rollout's own generator.
    """
    threshold, margin = policy  # m/s², m
    position, speed = 0.0, environment["speed"]
    strongest = 9.81 * environment["grip"]
    for _ in range(1200):
        measured = environment["distance"] - position + rng.normal(0, 0.5)
        needed = speed**2 / (2 * max(measured - margin, 0.1))
        if needed > threshold or measured < margin:
            speed -= min(max(needed, threshold), strongest) * TIME_STEP
        if speed <= 0:
            break
        position += speed * TIME_STEP
    left = environment["distance"] - position
    return 1.0 if left < 0 else min(left / 20, 1.0)


def candidates():
    """Thresholds from 1 to 6 m/s², margins from 1 to 8 m."""
    grid = np.meshgrid([1, 2, 3, 4, 6], [1, 2, 4, 8], indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1).astype(float)


task = FunctionTask(
    rollout, draw, "braking", parameters=2, noise="sensor noise", policies=candidates()
)
