"""Exactly one episode for each (environment, policy), alone or several in a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import NDArray

Controller = Callable[[Any], Any]  # from an observation to an action
EACH = "_each"  # where a vector of ours keeps the info of each place
ENDLESS = 1_000_000  # steps after which an episode without a limit is taken to have no end


@dataclass(frozen=True)
class Episode:
    """What happened, for a rule to say what it cost."""

    total_reward: float
    steps: int
    terminated: bool  # it ended by itself
    truncated: bool  # it ended by a limit of time or steps
    info: Mapping[str, Any]  # of the last step


@dataclass(frozen=True)
class Start:
    """How an episode begins, and who will control it."""

    seed: int
    options: dict[str, Any]
    controller: Callable[[], Controller]  # a new one, which knows nothing of other episodes


def run_episode(env: gym.Env, start: Start, limit: int | None) -> Episode:
    """One episode, from a reset with its seed and options to its end or its limit of steps."""
    observation, _ = env.reset(seed=start.seed, options=deepcopy(start.options))
    total, controller, most = 0.0, start.controller(), limit or ENDLESS
    fit = fitted(env.action_space)
    info: Mapping[str, Any] = {}
    for step in range(1, most + 1):
        observation, reward, terminated, truncated, info = env.step(fit(controller(observation)))
        total += float(reward)
        if terminated or truncated:
            return Episode(total, step, bool(terminated), bool(truncated), info)
    return _at_the_limit(total, most, limit, info)


def fitted(space: gym.Space) -> Callable[[Any], Any]:
    """Actions in the type of their space, as a vector has them."""
    if isinstance(space, gym.spaces.Box):
        return lambda action: np.asarray(action, space.dtype)
    return lambda action: action


def _at_the_limit(total: float, steps: int, limit: int | None, info: Mapping[str, Any]) -> Episode:
    if limit is None:
        raise RuntimeError(f"an episode has no end after {steps:,} steps: give the task steps=…")
    return Episode(total, steps, False, True, info)


class Recorded:
    """An environment or a vector of them, and a digest of all that it shows in an episode."""

    def __init__(self, env: gym.Env | VectorEnv) -> None:
        self.env, self._sha = env, hashlib.sha256()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """A reset, whose observation is noted."""
        observation, info = self.env.reset(**arguments)
        self._note(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A step, whose observation, reward and ending are noted."""
        shown = self.env.step(action)
        self._note(shown[:4])
        return shown

    @property
    def number(self) -> float:
        """The digest as a number in [0, 1)."""
        return (int.from_bytes(self._sha.digest()[:8]) >> 11) / 2**53

    def _note(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = [part for name in sorted(value) for part in (str(name), value[name])]
        if isinstance(value, list | tuple):
            for part in value:
                self._note(part)
        else:
            array = np.asarray(value)
            plain = array.dtype.kind in "biufcUS"
            self._sha.update(f"{array.dtype} {array.shape}".encode())
            self._sha.update(array.tobytes() if plain else repr(value).encode())


class PlainVector(SyncVectorEnv):
    """Environments stepped together, each with its info as it is.

    Gymnasium's own vector joins infos in arrays, whose type is that of the first that arrives.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]) -> None:
        super().__init__(makers, autoreset_mode=AutoresetMode.DISABLED)

    def _add_info(
        self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int
    ) -> dict[str, Any]:
        vector_infos.setdefault(EACH, {})[env_num] = env_info
        return vector_infos


def check_autoreset(env: VectorEnv) -> None:
    """An error for a vector that would step into environments that nobody drew."""
    if env.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
        raise ValueError(
            "a vector environment must be made with autoreset_mode=AutoresetMode.DISABLED: "
            "otherwise it goes on in environments that nobody drew"
        )


def run_episodes(env: VectorEnv, starts: Sequence[Start], limit: int | None) -> list[Episode]:
    """The same episodes in a vector: a place that is done is reset for the next one.

    Places for which nothing is left are kept going, since a vector steps them all, and are not
    looked at.
    """
    episodes: list[Episode | None] = [None] * len(starts)
    places = [_Place(i) for i in range(env.num_envs)]
    todo = iter(range(len(starts)))
    first = starts[0]  # all at once, since a vector cannot begin with one of its places
    observations, _ = env.reset(seed=[first.seed] * env.num_envs, options=dict(first.options))  # type: ignore[arg-type]
    for place in places:
        observations = _begin(env, place, starts, next(todo, None), observations)
    most = limit or ENDLESS
    while any(place.current is not None for place in places):
        seen = list(iterate(env.observation_space, observations))
        for place in places:
            if place.current is not None:
                place.action = place.controller(seen[place.index])
        observations, rewards, terminated, truncated, infos = env.step(_joined(env, places))
        for place in places:
            i = place.index
            place.steps += 1
            place.total += float(rewards[i])
            ended = bool(terminated[i] or truncated[i])
            if not ended and (place.steps < most or place.current is None):
                continue
            if place.current is not None:
                info = _info_of(infos, i)
                if ended:
                    episode = Episode(
                        place.total, place.steps, bool(terminated[i]), bool(truncated[i]), info
                    )
                else:
                    episode = _at_the_limit(place.total, place.steps, limit, info)
                episodes[place.current] = episode
            observations = _begin(env, place, starts, next(todo, None), observations)
    return [episode for episode in episodes if episode is not None]


class _Place:
    """One of the environments of a vector."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.current: int | None = None  # the episode that it is in
        self.steps, self.total = 0, 0.0
        self.controller: Controller = lambda _: None
        self.action: Any = None


def _begin(
    env: VectorEnv, place: _Place, starts: Sequence[Start], current: int | None, seen: Any
) -> Any:
    """Reset one place for an episode, or for nothing; returns the observations of all.

    seen: the observations before, which must be the same in all other places.
    """
    before = deepcopy(seen)
    start = starts[current if current is not None else 0]
    mask = np.zeros(env.num_envs, bool)
    mask[place.index] = True
    seeds: Any = [None] * env.num_envs
    seeds[place.index] = start.seed
    place.current, place.steps, place.total = current, 0, 0.0
    if current is not None:
        place.controller = start.controller()
    options = {**deepcopy(start.options), "reset_mask": mask}
    observations, _ = env.reset(seed=seeds, options=options)
    pairs = zip(
        *(iterate(env.observation_space, both) for both in (before, observations)), strict=True
    )
    for index, (old, new) in enumerate(pairs):
        if index != place.index and not data_equivalence(old, new):
            raise RuntimeError(
                "the vector environment resets other places than the one in reset_mask: run its "
                "episodes one by one"
            )
    return observations


def _joined(env: VectorEnv, places: Sequence[_Place]) -> Any:
    """The actions of all places; those that idle do what another does."""
    some = next(place.action for place in places if place.current is not None)
    actions = [some if place.current is None else place.action for place in places]
    space = env.single_action_space
    return concatenate(space, actions, create_empty_array(space, n=env.num_envs))


def _info_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The info of one place: a vector has an array for each key, and a mask of who has it."""
    if EACH in infos:
        return infos[EACH].get(index, {})
    return {
        key: _info_of(values, index) if isinstance(values, Mapping) else values[index]
        for key, values in infos.items()
        if not key.startswith("_") and _has(infos.get(f"_{key}"), index)
    }


def _has(mask: NDArray[np.bool_] | None, index: int) -> bool:
    return mask is None or bool(mask[index])
