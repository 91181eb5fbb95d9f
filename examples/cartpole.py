"""CartPole with a pole, a cart and a gravity of its own in every environment.

    pbc check examples/cartpole.py:task
    pbc learn examples/cartpole.py:task --environments 500 --out runs/cartpole

`task` chooses among 27 linear controllers, `continuous` learns a distribution over all of them.
"""

import gymnasium as gym
import numpy as np

import pacbayes_control as pbc
from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class RandomPhysics(gym.Wrapper):
    """CartPole whose physics are options of its reset."""

    def reset(self, *, seed=None, options=None):
        cart = self.env.unwrapped
        cart.gravity = options["gravity"]
        cart.masspole, cart.length = options["pole_mass"], options["pole_length"] / 2
        cart.total_mass = cart.masspole + cart.masscart
        cart.polemass_length = cart.masspole * cart.length
        return self.env.reset(seed=seed)


def make():
    return RandomPhysics(gym.make("CartPole-v1", max_episode_steps=200))


def physics(rng):
    """One environment: what differs between them, drawn from the generator and nothing else."""
    return {
        "gravity": rng.uniform(8, 12),  # m/s²
        "pole_mass": rng.uniform(0.05, 0.5),  # kg
        "pole_length": rng.uniform(0.5, 2.5),  # m
    }


def push(gains, observation):
    """Left (0) or right (1), by a weighted sum of position, speed, angle and its rate."""
    return int(gains @ observation > 0)


def candidates():
    """Gains on position, speed and angle, with a gain of 1 on the rate of the angle."""
    grid = np.meshgrid([0, 0.1, 0.3], [0, 0.2, 0.6], [0.5, 1, 3], indexing="ij")
    rows = np.stack([axis.ravel() for axis in grid], axis=1)
    return np.column_stack([rows, np.ones(len(rows))])


linear = FunctionPolicy(push, parameters=4)
falls = FromTermination(success=False)  # 1 if the pole falls or the cart leaves within 200 steps

task = GymTask(make, linear, falls, physics, name="cartpole", policies=candidates())
continuous = GymTask(
    make, linear, falls, physics, name="cartpole", prior=pbc.DiagonalGaussian([0, 0.3, 1, 1], 0.1)
)
