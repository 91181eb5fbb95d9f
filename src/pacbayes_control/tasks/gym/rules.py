"""From an episode to a cost in [0, 1], by a rule that is declared beforehand.

A rule is any function of an `Episode`. A cost outside [0, 1] is an error, never clipped in silence:
a rule that clips says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pacbayes_control.tasks.gym.episodes import Episode


class _Scaled:
    """A rule that scales a value of an episode: 0 at the best and 1 at the worst."""

    worst: float
    best: float
    clipped: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.worst) and math.isfinite(self.best)) or self.worst == self.best:
            raise ValueError(
                f"worst = {self.worst} and best = {self.best} must be two finite numbers"
            )

    def _scale(self, value: float, what: str) -> float:
        """The cost, in proportion between both ends."""
        low, high = min(self.worst, self.best), max(self.worst, self.best)
        if self.clipped:
            value = min(max(value, low), high)
        if not low <= value <= high:
            raise ValueError(
                f"{what} {value!r} lies outside the declared range from worst = {self.worst!r} to "
                f"best = {self.best!r}: declare limits that no episode can exceed, or clipped=True"
            )
        return abs(self.best - value) / abs(self.best - self.worst)  # never -0

    def _scale_words(self, value: str) -> str:
        beyond = ", and beyond either end as at that end" if self.clipped else ""
        ends = f"0 at {self.best:.12g}, 1 at {self.worst:.12g}"
        return f"from {value}: {ends}, in proportion between{beyond}"


@dataclass(frozen=True)
class FromReturn(_Scaled):
    """The sum of the rewards, scaled: 0 for the best return and 1 for the worst.

    >>> FromReturn(worst=0, best=500)(Episode(450.0, 450, False, True, {}))
    0.1
    """

    worst: float
    best: float
    clipped: bool = False  # whether returns beyond either end count as that end

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        return self._scale_words("the sum of rewards")

    def __call__(self, episode: Episode) -> float:
        """The cost of an episode."""
        return self._scale(episode.total_reward, "a return of")


@dataclass(frozen=True)
class FromTermination:
    """1 or 0 by whether the episode ended by itself, and not by its limit of time.

    Termination is a failure where it means a fall or a crash (CartPole), and a success where it
    means a goal (MountainCar).

    >>> FromTermination(success=False)(Episode(12.0, 12, True, False, {}))
    1.0
    """

    success: bool  # whether termination is a success

    def __post_init__(self) -> None:
        if not isinstance(self.success, bool):
            raise ValueError(f"success = {self.success!r} must be True or False")

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        ended, otherwise = (0, 1) if self.success else (1, 0)
        return f"{ended} where the episode ends by itself before its limit, {otherwise} otherwise"

    def __call__(self, episode: Episode) -> float:
        """The cost of an episode."""
        return float(episode.terminated != self.success)


@dataclass(frozen=True)
class FromInfo(_Scaled):
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

    @property
    def words(self) -> str:
        """The rule in a line, for records."""
        return self._scale_words(f"{self.key!r} of the last step's info")

    def __call__(self, episode: Episode) -> float:
        """The cost of an episode."""
        if self.key not in episode.info:
            known = ", ".join(map(str, episode.info)) or "nothing"
            raise ValueError(f"the last step's info has no {self.key!r}: it has {known}")
        return self._scale(float(episode.info[self.key]), f"{self.key} =")
