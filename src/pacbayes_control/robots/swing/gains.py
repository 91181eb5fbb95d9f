"""Uncertain gains of the Swing: drawn anew in each rollout, or the worst of a set."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.robots.planar.robot import check_range
from pacbayes_control.tasks.environments import mixed

Interval = tuple[float, float]
SMALLEST, LARGEST = 1e-6, 1e3  # of a gain or a speed


@dataclass(frozen=True)
class DrawnGains:
    """Each rollout flies a drone of its own: gains and speed from the normal distribution of a fit.

    A certificate then holds on average over drones as uncertain as the fit. k_u and k_p are drawn
    jointly, the speed apart from them; each is kept above a tenth of its mean.
    """

    k_u_sd: float  # rad
    k_p_sd: float  # 1/s
    correlation: float = 0.0  # of k_u and k_p
    speed_sd: float = 0.0  # m/s

    def __post_init__(self) -> None:
        for name in ("k_u_sd", "k_p_sd", "speed_sd"):
            check_range(name, getattr(self, name), 0, 1e3)
        check_range("correlation", self.correlation, -1, 1)
        if not max(self.k_u_sd, self.k_p_sd, self.speed_sd) > 0:
            raise ValueError("gains that are drawn need a standard deviation above 0")

    def draw(
        self, means: tuple[float, float, float], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        """k_u, k_p and speed around their means, of the rollouts that the keys are of; (3, …)."""
        first, second, third = (_normal(keys, n) for n in range(3))
        across = np.sqrt(1 - self.correlation**2)
        along = self.correlation * first + across * second
        spread = np.stack([self.k_u_sd * first, self.k_p_sd * along, self.speed_sd * third])
        centres = np.reshape(means, (3, *(1 for _ in keys.shape)))
        return np.maximum(centres + spread, centres / 10)


def _normal(keys: NDArray[np.uint64], which: int) -> NDArray[np.float64]:
    """A standard normal number for each key; others for each `which`."""
    bits = mixed(mixed(keys) + np.uint64(which)) >> np.uint64(11)
    return scipy.special.ndtri((bits.astype(float) + 0.5) * 2.0**-53)


@dataclass(frozen=True)
class WorstGains:
    """A rollout costs what it costs the worst of a set of drones.

    The set is a grid over the intervals, `points` along each, and the drone of the task's own
    gains. A certificate then holds for every drone of the set, at the price of the worst in each
    environment. Between the points nothing is proved: more points leave less between them.
    """

    k_u: Interval  # rad
    k_p: Interval  # 1/s
    speed: Interval | None = None  # m/s; the task's own where it is not given
    points: int = 2
    confidence: float | None = None  # of the intervals, for the record

    def __post_init__(self) -> None:
        for name, interval in self.intervals.items():
            if not isinstance(interval, tuple) or len(interval) != 2:
                raise ValueError(f"{name} = {interval}: an interval has two ends")
            check_range(f"the lower end of {name}", interval[0], SMALLEST, LARGEST)
            check_range(f"the upper end of {name}", interval[1], interval[0], LARGEST)
        check_range("points", self.points, 2, 20, whole=True)
        if self.confidence is not None:
            check_range("confidence", self.confidence, 0, 1)

    @property
    def intervals(self) -> dict[str, Interval]:
        """Those that are given, by name."""
        speed = {} if self.speed is None else {"speed": self.speed}
        return {"k_u": self.k_u, "k_p": self.k_p, **speed}

    def members(self, means: tuple[float, float, float]) -> list[tuple[float, float, float]]:
        """k_u, k_p and speed of each drone in the set, the task's own first."""
        intervals = (self.k_u, self.k_p, self.speed or (means[2], means[2]))
        axes = [sorted({*np.linspace(*ends, self.points).tolist()}) for ends in intervals]
        grid: Any = product(*axes)
        return [means, *(member for member in grid if member != means)]
