"""A bicycle in a yard with a wall on all four sides, steering by 30 depths among bollards.

    pbc check examples/bicycle.py:task
    pbc learn examples/bicycle.py:task --environments 500 --out runs/bicycle

This file has its motion only: rays, walls, contact and replays come from the library.
"""

import math
from dataclasses import dataclass

import numpy as np

from pacbayes_control.robots.planar import GainGrid, Gains, ObstacleField, Planar, turned


@dataclass(frozen=True)
class Yard:
    """Walls half a metre deep around 12 m by 30 m."""

    @property
    def walls(self):
        left, right, bottom, top = -6, 6, 0, 30
        return np.array(
            [
                [left - 0.5, left, bottom, top],
                [right, right + 0.5, bottom, top],
                [left, right, bottom - 0.5, bottom],
                [left, right, top, top + 0.5],
            ]
        )

    @property
    def open_areas(self):
        return np.array([[-6.0, 6.0, 0.0, 30.0]])


@dataclass(frozen=True)
class Bicycle(Planar):
    """ψ̇ = (v / wheelbase) tan(steering), and the steering follows what is asked with a lag."""

    speed: float = 3.0  # m/s
    wheelbase: float = 1.1  # m
    lag: float = 0.2  # s

    @staticmethod
    def move(state, control, draws, step, model):
        x, y, sin, cos, steering = state  # the last is the robot's own to keep
        speed, wheelbase, lag, seconds = model[0], model[1], model[2], model[3]
        asked = min(max(control, -0.5), 0.5)
        turn = seconds * speed / wheelbase * math.tan(steering)
        after_sin, after_cos = turned(sin, cos, turn)
        steering += seconds / lag * (asked - steering)
        return x - seconds * speed * sin, y + seconds * speed * cos, after_sin, after_cos, steering

    @property
    def constants(self):
        return self.speed, self.wheelbase, self.lag, self.time_step

    @property
    def policies(self):
        return GainGrid(x0=(0.5, 5, 4), y0=(0, 2, 8), rays=30).policies


task = Bicycle(
    arena=Yard(),
    obstacles=ObstacleField(fewest=8, most=16, x=(-6, 6), y=(6, 24), radius=(0.1, 0.4)),
    controller=Gains(rays=30),
    steps=120,
    robot_radius=0.4,
    horizon=8.0,
)
