"""MuJoCo's Hopper: stand for two seconds, with masses that differ from robot to robot."""

import gymnasium as gym
import mujoco
import numpy as np

from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class Masses(gym.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.plain = env.unwrapped.model.body_mass.copy(), env.unwrapped.model.body_inertia.copy()

    def reset(self, *, seed=None, options=None):
        model, factors = self.unwrapped.model, np.append(1, options["masses"])
        model.body_mass[:] = self.plain[0] * factors
        model.body_inertia[:] = self.plain[1] * factors[:, None]
        mujoco.mj_setConst(model, self.unwrapped.data)  # what follows from the masses
        return self.env.reset(seed=seed)


def make():
    return Masses(gym.make("Hopper-v5", reset_noise_scale=0.15))


def masses(rng):
    return {"masses": rng.uniform(0.3, 4, size=4)}  # of torso, thigh, leg, foot, as factors


def stand(gains, seen):  # the torque of each joint, by its angle and its rate
    return np.clip(-gains[0] * seen[2:5] - gains[1] * seen[8:], -1, 1)


falls, pd = FromTermination(success=False), FunctionPolicy(stand, parameters=2)
gains = np.array([[p, d] for p in (1, 3, 9) for d in (0.1, 0.3, 1)])
task = GymTask(make, pd, falls, masses, 250, graded=False, name="hopper", policies=gains)
