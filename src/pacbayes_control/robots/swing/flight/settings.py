"""The limits of a flight, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.simulator import Swing


LARGEST_NET = 100.0  # m from the origin to which a real net may reach
LONGEST = 60.0  # s of control in a real flight
MAY_BE_INFINITE = ("late", "deadline", "speed_tolerance")


@dataclass(frozen=True)
class Settings:
    """When a flight may begin, and what ends it. Times in s, lengths in m, angles in rad."""

    # The task's own, for which the policy was certified.
    steps: int = 50
    period: float = 0.1

    # Before take-off.
    start_distance: float = 0.15  # of the drone from where the task begins
    start_angle: float = 0.05
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
    lowest: float = 0.6  # of the altitude: a drone that is lower has sunk
    speed_tolerance: float = 0.25  # share by which the speed may differ; infinite: as it likes
    start_up: float = 1.0  # in which the speed is gathered, and does not count
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
            if not 0 <= value < math.inf and name not in MAY_BE_INFINITE:
                raise ValueError(f"{name} = {value} must be a number of at least 0")
        if self.steps < 1 or self.period <= 0:
            raise ValueError("a flight has at least one step, and time passes in each")

    def to_dict(self) -> dict[str, float | None]:
        """Plain values for JSON; None for a limit that is none."""
        return {n: value if math.isfinite(value) else None for n, value in vars(self).items()}


def check_flyable(task: Swing, real: bool) -> None:
    """An error for a task that is not flown as it was certified, or not in any hall."""
    if task.range_noise > 0:
        raise ValueError(
            f"the run was certified with a range noise of {task.range_noise:g}, and the sensor of "
            "a flight has none: learn without it"
        )
    seconds, arena = task.steps * task.time_step, task.arena
    if not real:
        return
    if not max(arena.half_width, arena.length) <= LARGEST_NET:
        raise ValueError(
            f"the net reaches {max(arena.half_width, arena.length):g} m, and real flights stay "
            f"within {LARGEST_NET:g} m"
        )
    if not seconds <= LONGEST:
        raise ValueError(f"flights take {seconds:g} s, and real ones at most {LONGEST:g} s")
