"""MuJoCo's inverted pendulum, with masses, friction and gravity of its own in every environment.

pip install 'pacbayes-control[mujoco]'
pbc learn examples/pendulum_mujoco.py:task --environments 300 --out runs/pendulum
"""

import gymnasium as gym
import mujoco
import numpy as np

from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class RandomPhysics(gym.Wrapper):
    """The pendulum whose physics are options of its reset, as factors of the model's own."""

    def __init__(self, env):
        super().__init__(env)
        model = self.env.unwrapped.model
        self.masses, self.inertias = model.body_mass.copy(), model.body_inertia.copy()
        self.damping, self.gravity = model.dof_damping.copy(), model.opt.gravity.copy()

    def reset(self, *, seed=None, options=None):
        model = self.env.unwrapped.model
        factors = np.array([1, options["cart"], options["pole"]])
        model.body_mass[:] = self.masses * factors
        model.body_inertia[:] = self.inertias * factors[:, None]
        model.dof_damping[:] = self.damping * options["friction"]
        model.opt.gravity[:] = self.gravity * options["gravity"]
        mujoco.mj_setConst(model, self.env.unwrapped.data)  # what follows from the masses
        return self.env.reset(seed=seed)


def make():
    return RandomPhysics(gym.make("InvertedPendulum-v5", max_episode_steps=250))


def physics(rng):
    """One environment: factors of the model's masses, friction and gravity."""
    cart, pole = rng.uniform(0.3, 3, size=2)
    return {
        "cart": cart,
        "pole": pole,
        "friction": rng.uniform(0.2, 2),
        "gravity": rng.uniform(0.8, 1.2),
    }


def push(gains, observation):
    """The force on the cart, linear in its position, the pole's angle and their rates."""
    return np.clip([gains @ observation], -3, 3).astype(np.float32)


def candidates():
    """Gains on the cart's position, the pole's angle, and the rates of both."""
    grid = np.meshgrid([0.1, 0.5], [2, 5, 10], [0.1, 0.5], [0.3, 1], indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1)


task = GymTask(
    make,
    FunctionPolicy(push, parameters=4),
    FromTermination(success=False),  # 1 if the pole falls within ten seconds
    physics,
    name="MuJoCo pendulum",
    policies=candidates(),
)
