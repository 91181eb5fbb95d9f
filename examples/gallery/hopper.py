"""MuJoCo's Hopper: stand in the wind for two seconds, with masses that differ between robots.

    pip install 'pacbayes-control[gallery,failures,video]'
    pbc check examples/gallery/hopper.py:task
    pbc learn examples/gallery/hopper.py:task --environments 300 --out runs/hopper
    pbc failures runs/hopper

The six policies hold the joints where they are, more or less stiffly.
"""

import gymnasium as gym
import mujoco
import numpy as np

from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class Masses(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        model, data = self.unwrapped.model, self.unwrapped.data
        plain = mujoco.MjModel.from_xml_path(self.unwrapped.fullpath)
        for part, factor in options.items():
            model.body(part).mass[:] = factor * plain.body(part).mass
            model.body(part).inertia[:] = factor * plain.body(part).inertia
        mujoco.mj_setConst(model, data)  # what follows from the masses
        start = self.env.reset(seed=seed)
        data.body("torso").xfrc_applied[0] = -20  # N, the wind
        return start


def make():
    return Masses(gym.make("Hopper-v5"))


def masses(rng):  # as factors of the model's own
    return {part: rng.uniform(0.5, 4) for part in ("torso", "thigh", "leg", "foot")}


def stand(gains, seen):  # the torque of each joint, by its angle and its rate
    return np.clip(-gains[0] * seen[2:5] - gains[1] * seen[8:], -1, 1)


pd, falls = FunctionPolicy(stand, parameters=2), FromTermination(success=False)
gains = np.array([[angle, rate] for angle in (3, 9, 27) for rate in (0.3, 1)])
task = GymTask(make, pd, falls, masses, 250, graded=False, name="hopper", policies=gains)
