"""The limits of a flight, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """When a flight may begin, and what ends it. Times in s, lengths in m, angles in rad."""

    # The task's own, for which the policy was certified.
    steps: int = 50
    period: float = 0.1

    # Before take-off.
    start_distance: float = 0.15  # of the drone from where the task begins
    start_angle: float = 0.15
    ground_height: float = 0.3  # a drone that is tracked higher does not stand on the ground
    frames: int = 10  # that the tracker must deliver within `alive`
    alive: float = 3.0
    battery: float = 30.0  # percent

    # Climbing.
    altitude: float = 1.0
    altitude_tolerance: float = 0.25
    climb_time: float = 8.0

    # In flight.
    deadline: float = 0.05  # a command is in time if it goes out so long after its tick
    misses: int = 3  # in a row that end the flight
    late: float = 0.1  # a tick so late ends it at once
    pose_age: float = 0.3
    fastest: float = 6.0  # m/s, and
    fastest_turn: float = 6.0  # rad/s that a drone may seem to make, with
    jump: float = 0.3  # m, and
    jump_angle: float = 0.5  # rad that frames may be off
    fence_margin: float = 0.0  # how far inside the net the fence stands
    ceiling: float = 2.5
    battery_in_flight: float = 10.0  # percent

    # Landing.
    patience: float = (
        120.0  # for which a drone that is seen in the air, or does not answer, is told
    )
    touch_down: float = 10.0  # for which one that is not seen is told, once it has acknowledged
    landed_height: float = 0.15  # above where it stood before
    landed_time: float = 0.4  # for which it must be seen there

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf and name not in ("late", "deadline"):
                raise ValueError(f"{name} = {value} must be a number of at least 0")
        if self.steps < 1 or self.period <= 0:
            raise ValueError("a flight has at least one step, and time passes in each")
