"""MiniGrid: cross a room of moving balls in 24 steps; their number differs from room to room.

    pip install 'pacbayes-control[gallery,failures,video]'
    pbc check examples/gallery/minigrid_balls.py:task
    pbc learn examples/gallery/minigrid_balls.py:task --environments 300 --out runs/minigrid_balls
    pbc failures runs/minigrid_balls

The four policies walk right and down, and turn where there is a ball within 0, 1, 2 or 3 cells.
"""

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


def walk(reach, seen):
    cells, heading = seen["image"][..., 0], seen["direction"]  # the robot is in cell (3, 6)
    wall, ball = cells[3, 5] == 2, 6 in cells[3, 6 - int(reach[0]) : 6]
    return 2 if not wall and not ball else 1 if heading == 0 else 0  # forward, or to the other way


def goal_not_reached(episode):  # the reward is above 0 at the goal alone
    return float(episode.total_reward <= 0)


walker, lost, reaches = FunctionPolicy(walk, parameters=1), goal_not_reached, np.arange(4.0)
task = GymTask(make, walker, lost, balls, 24, graded=False, name="balls", policies=reaches[:, None])
