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
            f"{best!r}: declare limits that no episode can exceed, or clipped=True"
        )
    return (best - value) / (best - worst)


def _check_range(worst: float, best: float) -> None:
    if not (math.isfinite(worst) and math.isfinite(best)) or worst == best:
        raise ValueError(f"worst = {worst} and best = {best} must be two finite numbers")


def _range_words(value: str, worst: float, best: float, clipped: bool) -> str:
    beyond = ", and beyond either end as at that end" if clipped else ""
    return f"from {value}: 0 at {best:.12g}, 1 at {worst:.12g}, in proportion between{beyond}"


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

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        return _range_words("the sum of rewards", self.worst, self.best, self.clipped)

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

    def __post_init__(self) -> None:
        if not isinstance(self.success, bool):
            raise ValueError(f"success = {self.success!r} must be True or False")

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        ended, otherwise = (0, 1) if self.success else (1, 0)
        return f"{ended} where the episode ends by itself before its limit, {otherwise} otherwise"

    def __call__(self, episode: Episode) -> float:
        """What an episode cost."""
        return float(episode.terminated != self.success)


@dataclass(frozen=True)
class FromInfo:
    """A value of the last step's info, scaled: 0 for the best value and 1 for the worst.

    Whether 1 is good or bad depends on the key, so both ends must be given.

    >>> ended = Episode(0.0, 50, False, True, {"is_success": True, "crashed": True})
    >>> FromInfo("is_success", worst=0, best=1)(ended)
    0.0
    >>> FromInfo("crashed", worst=1, best=0)(ended)
    1.0
    """

    key: str
    worst: float
    best: float
    clipped: bool = False  # whether values beyond either end count as that end

    def __post_init__(self) -> None:
        _check_range(self.worst, self.best)

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        value = f"{self.key!r} of the last step's info"
        return _range_words(value, self.worst, self.best, self.clipped)

    def __call__(self, episode: Episode) -> float:
        """What an episode cost."""
        if self.key not in episode.info:
            known = ", ".join(map(str, episode.info)) or "nothing"
            raise ValueError(f"the last step's info has no {self.key!r}: it has {known}")
        value = float(episode.info[self.key])
        return _scaled(value, self.worst, self.best, self.clipped, f"{self.key} =")
