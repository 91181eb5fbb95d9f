"""The limits of a flight, in one place, and the drone that a run certifies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pacbayes_control.certify.run import Run
from pacbayes_control.robots.swing.simulator import Swing
from pacbayes_control.tasks.registry import recorded_task

LARGEST_NET = 100.0  # m from the origin to which a real net may reach
LONGEST = 60.0  # s of control in a real flight
MAY_BE_INFINITE = ("late", "deadline", "speed_tolerance")


@dataclass(frozen=True)
class FlightLimits:
    """When a flight may begin, and what ends it. Times in s, lengths in m, angles in rad."""

    # Of the task, for which the policy was certified.
    steps: int = 50
    period: float = 0.1

    # Before take-off.
    start_distance: float = 0.15  # from the drone to the task's start
    start_angle: float = 0.05
    ground_height: float = 0.3  # largest tracked height of a drone that stands on the ground
    frames: int = 10  # that the tracker must deliver within `alive`
    alive: float = 3.0
    battery: float = 30.0  # percent

    # Climbing.
    altitude: float = 1.0
    altitude_tolerance: float = 0.25
    climb_time: float = 8.0

    # In flight.
    deadline: float = 0.05  # from a tick to its command sent
    misses: int = 3  # missed deadlines in a row that end the flight
    late: float = 0.1  # lateness of the loop that ends it at once
    pose_age: float = 0.3
    fastest: float = 6.0  # m/s of a drone between two frames,
    fastest_turn: float = 6.0  # and rad/s,
    jump: float = 0.3  # beyond errors of the tracker in m
    jump_angle: float = 0.5  # and rad
    lowest: float = 0.6  # share of the altitude: a drone that is lower has sunk
    speed_tolerance: float = 0.25  # share by which the speed may differ; infinite: not checked
    start_up: float = 1.0  # in which the drone gathers speed, and its speed does not count
    fence_margin: float = 0.0  # from the net to the fence inside it
    ceiling: float = 2.5
    battery_in_flight: float = 10.0  # percent

    # Landing.
    patience: float = 120.0  # for which landing is commanded to a drone in the air or without reply
    touch_down: float = 10.0  # the same to one out of sight that has acknowledged it
    landed_height: float = 0.15  # above where it stood before
    landed_time: float = 0.4  # for which it must be seen there

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf and name not in MAY_BE_INFINITE:
                raise ValueError(f"{name} = {value} must be finite, and at least 0")
        if self.steps < 1 or self.period <= 0:
            raise ValueError(
                f"{self.steps} steps of {self.period:g} s: a flight needs at least one step, and a "
                "positive period"
            )

    def to_dict(self) -> dict[str, float | None]:
        """Plain values for JSON; None for an infinite limit."""
        return {n: value if math.isfinite(value) else None for n, value in vars(self).items()}


def check_flyable(task: Swing, real: bool) -> None:
    """An error for a task that cannot be flown as it was certified, or not in any hall."""
    if task.range_noise > 0:
        raise ValueError(
            f"the run was certified with a range noise of {task.range_noise:g}, and the sensor of "
            "a flight has no noise: learn without it"
        )
    seconds, reach = task.steps * task.time_step, max(task.arena.half_width, task.arena.length)
    if real and not reach <= LARGEST_NET:
        raise ValueError(f"the net reaches {reach:g} m, and real ones at most {LARGEST_NET:g} m")
    if real and not seconds <= LONGEST:
        raise ValueError(f"flights take {seconds:g} s, and real ones at most {LONGEST:g} s")


def recorded_swing(run: Run[Any]) -> Swing:
    """The drone that `pbc learn swing` made a run with; an error where the run is of another task.

    A run is a stranger's: the drone must draw the environments that the run says it counts.
    """
    origin: Any = run.costs.origin
    words = str(origin.get("task", ""))
    if not words.startswith("swing "):
        of = f"of the task {words.split()[0]}" if words.strip() else "of a table of costs"
        raise ValueError(f"the run is {of}, and not of the Swing")
    if "settings" not in origin:
        raise ValueError("the run is of a Swing that its record does not describe")
    task = recorded_task(run.costs)
    assert isinstance(task, Swing)
    return task
