"""A bicycle in a yard, as somebody would make it from `Planar`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.planar import Gains, ObstacleField, Planar, turned


@dataclass(frozen=True)
class Yard:
    """8 m by 10 m, walled in, with a shed in the middle."""

    shed: float = 0.5  # m, half its width

    @property
    def walls(self) -> NDArray[np.float64]:
        around = [[-4.2, -4, -1, 11], [4, 4.2, -1, 11], [-4.2, 4.2, -1, 0], [-4.2, 4.2, 10, 10.2]]
        return np.array([*around, [-self.shed, self.shed, 6, 7]])

    @property
    def open_areas(self) -> NDArray[np.float64]:
        before, behind = [-4, 4, 0, 6], [-4, 4, 7, 10]
        left, right = [-4, -self.shed, 0, 10], [self.shed, 4, 0, 10]
        return np.array([before, behind, left, right], float)


FIELD = ObstacleField(fewest=4, most=9, x=(-4.0, 4.0), y=(2.5, 9.0), radius=(0.1, 0.4))


@dataclass(frozen=True)
class Bicycle(Planar):
    """A policy asks for a steering angle, which the front wheel approaches at a limited rate."""

    obstacles: ObstacleField = FIELD
    arena: Yard = field(default_factory=Yard, kw_only=True)
    controller: Gains = field(default_factory=lambda: Gains(12))
    speed: float = 2.0  # m/s
    wheelbase: float = 0.4  # m
    limit: float = 0.5  # rad, of the steering angle
    rate: float = 2.0  # rad/s

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
        x, y, sin, cos, steering = state
        length, wheelbase, limit, change = model[0], model[1], model[2], model[3]
        wanted = min(max(control, -limit), limit)
        steering += min(max(wanted - steering, -change), change)
        after_sin, after_cos = turned(sin, cos, length / wheelbase * math.tan(steering))
        return x - length * sin, y + length * cos, after_sin, after_cos, steering

    @property
    def constants(self) -> tuple[float, ...]:
        seconds = self.time_step
        return self.speed * seconds, self.wheelbase, self.limit, self.rate * seconds
