"""MiniGrid: cross a room of moving balls in 24 steps; their number differs from room to room."""

import gymnasium as gym
import numpy as np

from pacbayes_control.tasks.gym import FunctionPolicy, GymTask


class Crowd(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        self.unwrapped.n_obstacles = options["balls"]
        return self.env.reset(seed=seed)


def make():
    return Crowd(gym.make("minigrid:MiniGrid-Dynamic-Obstacles-8x8-v0"))


def balls(rng):
    return {"balls": rng.integers(1, 10)}


def walk(reach, seen):  # right or down: turn from the one to the other where the way is blocked
    cells, heading = seen["image"][..., 0], seen["direction"]  # the robot is in cell (3, 6)
    wall, ball = cells[3, 5] == 2, 6 in cells[3, 6 - int(reach[0]) : 6]
    return 2 if not wall and not ball else 1 if heading == 0 else 0


def not_there(episode):  # the reward is above 0 at the goal alone
    return float(episode.total_reward <= 0)


walker, reaches = FunctionPolicy(walk, parameters=1), np.array([[1.0], [2.0], [3.0], [4.0]])
task = GymTask(make, walker, not_there, balls, 24, graded=False, name="balls", policies=reaches)
