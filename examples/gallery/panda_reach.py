"""panda-gym: reach a goal that the camera sees at a wrong place, mostly too far away.

    pip install 'pacbayes-control[gallery,failures,video]'
    pbc check examples/gallery/panda_reach.py:task
    pbc learn examples/gallery/panda_reach.py:task --environments 300 --out runs/panda_reach
    pbc failures runs/panda_reach

The eight policies reach before the place that they see, by 0 to 9 cm, slowly or fast.
It needs Python 3.11: PyBullet has no wheels for later ones.
"""

import gymnasium as gym
import numpy as np

from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class Camera(gym.ObservationWrapper):
    def reset(self, *, seed=None, options=None):
        self.error = options["depth"], options["side"], options["height"]
        return super().reset(seed=seed)

    def observation(self, seen):
        return {**seen, "desired_goal": seen["desired_goal"] + self.error}


def make():
    return Camera(gym.make("panda_gym:PandaReach-v3"))


def camera(rng):  # m: errors of its calibration
    depth, side, height = rng.normal((0.03, 0, 0), (0.03, 0.01, 0.01))
    return {"depth": depth, "side": side, "height": height}


def reach(policy, seen):
    gain, before = policy
    return np.clip(gain * (seen["desired_goal"] - (before, 0, 0) - seen["achieved_goal"]), -1, 1)


arm, reached = FunctionPolicy(reach, parameters=2), FromTermination(success=True)
rows = np.array([[gain, before] for gain in (3, 10) for before in (0, 0.03, 0.06, 0.09)])
task = GymTask(make, arm, reached, camera, 20, graded=False, name="reach", policies=rows)
