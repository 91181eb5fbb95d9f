"""A bicycle in a yard: that of the examples, so that one rule is compiled for all tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar import Gains, ObstacleField, Planar

EXAMPLE = Path(__file__).parents[3] / "examples" / "bicycle.py"


def example() -> Any:
    """The example as a module, which no other process could import."""
    found = util.spec_from_file_location("example_of_a_bicycle", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


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
    """A policy asks for a steering angle up to 0.5 rad, and its wheel follows with a lag."""

    obstacles: ObstacleField = FIELD
    arena: Yard = field(default_factory=Yard, kw_only=True)
    controller: Gains = field(default_factory=lambda: Gains(12))
    speed: float = 2.0  # m/s
    wheelbase: float = 0.4  # m
    lag: float = 0.2  # s

    move = staticmethod(example().Bicycle.move)

    @property
    def constants(self) -> tuple[float, ...]:
        return self.speed, self.wheelbase, self.lag, self.time_step
