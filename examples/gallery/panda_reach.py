"""panda-gym: reach a goal that is seen beside its place, by the camera's error of calibration."""

import gymnasium as gym
import numpy as np

from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask


class Camera(gym.ObservationWrapper):
    def reset(self, *, seed=None, options=None):
        self.error = options["error"]
        return super().reset(seed=seed)

    def observation(self, seen):
        return {**seen, "desired_goal": seen["desired_goal"] + self.error}


def make():
    return Camera(gym.make("panda_gym:PandaReach-v3"))


def camera(rng):
    return {"error": rng.normal(0, 0.02, size=3)}  # m


def reach(gain, seen):
    return np.clip(gain * (seen["desired_goal"] - seen["achieved_goal"]), -1, 1)


arm, gains = FunctionPolicy(reach, parameters=1), np.array([[1.0], [3.0], [10.0], [30.0]])
there = FromTermination(success=True)
task = GymTask(make, arm, there, camera, 20, graded=False, name="reach", policies=gains)
