"""Exactly one episode for each (environment, policy), alone, in a batch or in a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

Controller = Callable[[Any], Any]  # from an observation to an action
BatchController = Callable[[Sequence[Any]], Sequence[Any]]  # the same for a batch of episodes
ENDLESS = 1_000_000  # steps after which an episode without a limit counts as endless


@dataclass(frozen=True)
class Episode:
    """The outcome of an episode, for a rule to compute its cost from."""

    total_reward: float
    steps: int
    terminated: bool  # it ended by itself
    truncated: bool  # it ended by a limit of time or steps
    info: Mapping[str, Any]  # of the last step


@dataclass(frozen=True)
class Start:
    """How an episode begins, and how it is controlled."""

    seed: int
    options: dict[str, Any]
    controller: Callable[[], Controller]  # makes a new one, without memory of other episodes


class _Running:
    """An episode under way."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.steps, self.total = number, 0, 0.0

    def step(
        self, reward: Any, ends: tuple[Any, Any], limit: int | None, info: Callable[[], Any]
    ) -> Episode | None:
        """Count a step; returns the episode if it is over.

        Args:
            reward: of the step
            ends: whether the episode was terminated, and whether it was truncated
            limit: the most steps
            info: of the step, which is looked at where it is the last
        """
        self.steps += 1
        self.total += float(reward)
        terminated, truncated = map(bool, ends)
        if not (terminated or truncated):
            if self.steps < (limit or ENDLESS):
                return None
            if limit is None:
                raise RuntimeError(
                    f"an episode has no end after {self.steps:,} steps: give the task steps=…"
                )
            truncated = True
        return Episode(self.total, self.steps, terminated, truncated, info())


def run_episode(env: gym.Env, start: Start, limit: int | None) -> Episode:
    """One episode, from a reset with its seed and options to its end or its limit of steps."""
    observation, _ = env.reset(seed=start.seed, options=deepcopy(start.options))
    controller, running, episode = start.controller(), _Running(), None
    space = env.action_space
    while episode is None:
        action = controller(observation)
        observation, episode = _step(env, space, action, running, limit)
    return episode


def run_batch(
    envs: Mapping[int, gym.Env],
    starts: Mapping[int, Start],
    act: BatchController,
    size: int,
    limit: int | None,
) -> dict[int, Episode | BaseException]:
    """Episodes of one policy that begin together, each in its slot of a batch.

    Every batch has `size` rows, and an episode keeps its own: the last bits of a row may depend on
    both. Rows of slots that have no episode, or no longer, are filled with an observation; their
    actions are ignored.

    Args:
        envs: by slot
        starts: of the episodes, by slot
        act: the policy
        size: of a batch
        limit: the most steps

    Returns:
        for each slot its episode, or the exception that its environment raised; one of the policy
        is raised
    """
    seen: dict[int, Any] = {}
    ended: dict[int, Episode | BaseException] = {}
    for slot, start in starts.items():
        try:
            seen[slot], _ = envs[slot].reset(seed=start.seed, options=deepcopy(start.options))
        except (Exception, SystemExit) as error:
            ended[slot] = error
    if not seen:
        return ended
    some = next(iter(seen))
    space = envs[some].action_space
    running = {slot: _Running() for slot in seen}
    rows = [seen.get(slot, seen[some]) for slot in range(size)]
    while running:
        actions = act(rows)
        for slot, one in list(running.items()):
            try:
                rows[slot], over = _step(envs[slot], space, actions[slot], one, limit)
            except (Exception, SystemExit) as error:
                over = error
            if over is not None:
                ended[slot] = over
                del running[slot]
    return ended


def _step(
    env: gym.Env, space: gym.Space, action: Any, running: _Running, limit: int | None
) -> tuple[Any, Episode | None]:
    """A step of an episode: the next observation, and the episode if it is over."""
    if isinstance(space, gym.spaces.Box):  # the type of the space, as in a vector
        action = np.asarray(action, space.dtype)
    observation, reward, terminated, truncated, info = env.step(action)
    return observation, running.step(reward, (terminated, truncated), limit, lambda: info)


class Recorded:
    """An environment or a vector of them, and a digest of its observable steps."""

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


def run_episodes(env: VectorEnv, starts: Sequence[Start], limit: int | None) -> list[Episode]:
    """The same episodes in a user's vector: a slot whose episode is over is reset for the next one.

    Slots for which no episode is left are stepped too, since a vector steps them all; their
    results are ignored.
    """
    episodes: dict[int, Episode] = {}  # by number
    slots: list[_Running | None] = [None] * env.num_envs
    controllers: dict[int, Controller] = {}  # by slot
    todo = iter(range(len(starts)))

    def begin(slot: int, seen: Any) -> Any:
        """Reset a slot for the next episode, if one is left; returns the observations of all."""
        number = next(todo, None)
        slots[slot] = None if number is None else _Running(number)
        if number is not None:
            controllers[slot] = starts[number].controller()
        return _reset(env, slot, starts[number or 0], seen)

    first = starts[0]  # all at once, since a vector cannot begin with one of its slots
    observations, _ = env.reset(seed=[first.seed] * env.num_envs, options=dict(first.options))  # type: ignore[arg-type]
    for slot in range(env.num_envs):
        observations = begin(slot, observations)
    while any(slots):
        seen = list(iterate(env.observation_space, observations))
        acting = {i: controllers[i](seen[i]) for i, running in enumerate(slots) if running}
        some = next(iter(acting.values()))  # idle slots repeat the action of another
        actions = [acting.get(slot, some) for slot in range(env.num_envs)]
        space = env.single_action_space
        joined = concatenate(space, actions, create_empty_array(space, n=env.num_envs))
        observations, rewards, terminated, truncated, infos = env.step(joined)
        for slot, running in enumerate(slots):
            ends, info = (terminated[slot], truncated[slot]), partial(_info_of, infos, slot)
            over = any(ends)
            if running:
                episode = running.step(rewards[slot], ends, limit, info)
                if over := episode is not None:
                    episodes[running.number] = episode
            if over:
                observations = begin(slot, observations)
    return [episodes[number] for number in range(len(starts))]


def _reset(env: VectorEnv, slot: int, start: Start, seen: Any) -> Any:
    """Reset one slot; returns the observations of all.

    seen: the observations before, which must be the same in all other slots.
    """
    before = deepcopy(seen)
    mask = np.arange(env.num_envs) == slot
    seeds: Any = [start.seed if chosen else None for chosen in mask]
    options = {**deepcopy(start.options), "reset_mask": mask}
    observations, _ = env.reset(seed=seeds, options=options)
    both = (iterate(env.observation_space, each) for each in (before, observations))
    for index, (old, new) in enumerate(zip(*both, strict=True)):
        if index != slot and not data_equivalence(old, new):
            raise RuntimeError(
                "the vector environment resets other slots than the one in reset_mask: run its "
                "episodes one by one"
            )
    return observations


def _info_of(infos: Mapping[str, Any], slot: int) -> dict[str, Any]:
    """The info of one slot: a vector has an array for each key, and a mask of slots with it."""
    found = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if not key.startswith("_") and (mask is None or mask[slot]):
            nested = isinstance(values, Mapping)
            found[key] = _info_of(values, slot) if nested else values[slot]
    return found
