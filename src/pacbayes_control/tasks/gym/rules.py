"""From an episode to a cost in [0, 1], by a rule that is declared beforehand.

A rule is any function of an `Episode`. What leaves [0, 1] is an error, never cut off in silence: a
rule that is to cut says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pacbayes_control.tasks.gym.episodes import Episode


def _scaled(value: float, worst: float, best: float, clipped: bool, what: str) -> float:
    """0 at the best and 1 at the worst, in proportion between."""
    low, high = min(worst, best), max(worst, best)
    if clipped:
        value = min(max(value, low), high)
    if not low <= value <= high:
        raise ValueError(
            f"{what} {value!r} lies outside the declared range from worst = {worst!r} to best = "
            f"{best!r}: widen it, or declare clipped=True"
        )
    return (best - value) / (best - worst)


def _check_range(worst: float, best: float) -> None:
    if not (math.isfinite(worst) and math.isfinite(best)) or worst == best:
        raise ValueError(f"worst = {worst} and best = {best} must be two finite numbers")


@dataclass(frozen=True)
class FromReturn:
    """The sum of the rewards, scaled: 0 for the best return and 1 for the worst.

    >>> FromReturn(worst=0, best=500)(Episode(450.0, 450, False, True, {}))
    0.1
    """

    worst: float
    best: float
    clipped: bool = False  # whether returns beyond either end count as that end

    def __post_init__(self) -> None:
        _check_range(self.worst, self.best)

    def __call__(self, episode: Episode) -> float:
        """What an episode cost."""
        return _scaled(episode.total_reward, self.worst, self.best, self.clipped, "a return of")


@dataclass(frozen=True)
class FromTermination:
    """1 or 0 by whether the episode ended by itself, and not by its limit of time.

    Termination is a failure where it means a fall or a crash (CartPole), and a success where it
    means a goal (MountainCar).

    >>> FromTermination(success=False)(Episode(12.0, 12, True, False, {}))
    1.0
    """

    success: bool  # whether termination is one

    def __call__(self, episode: Episode) -> float:
        """What an episode cost."""
        return float(episode.terminated != self.success)


@dataclass(frozen=True)
class FromInfo:
    """A value of the last step's info, scaled: by default 1 costs nothing and 0 costs 1.

    >>> FromInfo("is_success")(Episode(0.0, 50, False, True, {"is_success": True}))
    0.0
    """

    key: str
    worst: float = 0.0
    best: float = 1.0
    clipped: bool = False  # whether values beyond either end count as that end

    def __post_init__(self) -> None:
        _check_range(self.worst, self.best)

    def __call__(self, episode: Episode) -> float:
        """What an episode cost."""
        if self.key not in episode.info:
            known = ", ".join(map(str, episode.info)) or "nothing"
            raise ValueError(f"the last step's info has no {self.key!r}: it has {known}")
        value = float(episode.info[self.key])
        return _scaled(value, self.worst, self.best, self.clipped, f"{self.key} =")
