"""Small Gymnasium environments in a module, so that workers can import them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pacbayes_control.tasks.gym import Episode, FromReturn, FunctionPolicy, GymTask

Event = tuple[Any, ...]  # ("reset", seed, options) or ("step", action)


class Drift(gym.Env):
    """A point that drifts at random and is pushed; it falls where it gets too far from the middle.

    It refuses to be stepped after its end, as a simulator may, and tells `events` what was done.
    """

    def __init__(
        self,
        events: list[Event] | None = None,
        actions: spaces.Space | None = None,
        length: int = 12,  # steps, where its options name none
        pad: bool = False,  # whether observations are a dictionary
    ) -> None:
        self.events = events if events is not None else []
        self.action_space = actions or spaces.Discrete(3)
        box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = (
            spaces.Dict({"state": box, "step": spaces.Discrete(100)}) if pad else box
        )
        self.default_length, self.pad, self.running = length, pad, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.events.append(("reset", seed, options))
        options = options or {}
        self.length = options.get("length", self.default_length)
        self.wind = options.get("wind", 0.0)
        self.x, self.v, self.steps, self.running = self.np_random.normal(0, 0.3), 0.0, 0, True
        return self._observation(), {"began": True}

    def step(self, action: Any) -> Any:
        assert self.running, "stepped after its end"
        self.events.append(("step", action))
        push = float(np.ravel(action)[0]) - (
            1 if isinstance(self.action_space, spaces.Discrete) else 0
        )
        self.v += 0.2 * push + self.wind + self.np_random.normal(0, 0.1)
        self.x += self.v
        self.steps += 1
        fell, late = bool(abs(self.x) > 1), self.steps >= self.length
        self.running = not (fell or late)
        info: dict[str, Any] = {"x": self.x, "steps": self.steps}
        if not self.running:
            info |= {"success": not fell, "score": float(np.exp(-abs(self.x)))}
        return self._observation(), -abs(self.x), fell, late, info

    def _observation(self) -> Any:
        state = np.array([self.x, self.v], np.float32)
        return {"state": state, "step": self.steps} if self.pad else state


def steer(gains: NDArray, observation: NDArray) -> int:
    """Left, nothing or right."""
    wanted = -float(gains @ observation)
    return 1 + int(wanted > 0.2) - int(wanted < -0.2)


def steer_pad(gains: NDArray, observation: dict[str, Any]) -> int:
    """The same from a dictionary, and less as time goes by."""
    return steer(gains / (1 + 0.1 * float(observation["step"])), observation["state"])


def physics(rng: np.random.Generator) -> dict[str, Any]:
    """Episodes of different lengths, and a wind."""
    return {"length": int(rng.integers(2, 14)), "wind": rng.normal(0, 0.05)}


def x_at_the_end(episode: Episode) -> float:
    """A rule of a user: continuous, so that any difference shows."""
    return float(abs(episode.info["x"])) % 1


GAINS = np.array([[1.0, 1.0], [0.2, 0.1], [-1.0, 0.3], [0.0, 2.0], [5.0, 0.0]])
RETURN = FromReturn(worst=-40, best=0)
STEER = FunctionPolicy(steer, parameters=2)


class Together(FunctionPolicy):
    """A function that acts in batches by being called for each row: the same to the last bit."""

    def batch_controller(self, row: NDArray, action_space: spaces.Space, size: int) -> Any:
        """One action for each observation."""
        del action_space

        def act(observations: Sequence[Any]) -> list[Any]:
            assert len(observations) == size
            return [self.act(row, observation) for observation in observations]

        return act


STEER_TOGETHER = Together(steer, parameters=2)


def drift_task(**changes: Any) -> GymTask:
    """A task whose costs differ in every bit between rollouts that differ."""
    known: dict[str, Any] = {"make": Drift, "policy": STEER, "cost": RETURN, "options": physics}
    return GymTask(**(known | changes))


def episodes_in(events: Sequence[Event]) -> list[list[Event]]:
    """What was done, from one reset to the next."""
    found: list[list[Event]] = []
    for event in events:
        if event[0] == "reset":
            found.append([])
        found[-1].append(event)
    return found


class Script(gym.Env):
    """An environment that does what it is told: rewards, an end, and what to say of it."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, tell: Callable[[int], tuple[float, bool, bool, dict[str, Any]]]) -> None:
        self.tell, self.steps = tell, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        del options
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        del action
        self.steps += 1
        reward, terminated, truncated, info = self.tell(self.steps)
        return np.zeros(1, np.float32), reward, terminated, truncated, info
