"""A Gymnasium environment as a task: its seeds and options are environments, episodes rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pacbayes_control.tasks.base import Arrays, Environments
from pacbayes_control.tasks.functions import (
    FEW,
    RolloutFailed,
    check_parameters,
    drawn,
    number,
    stacked,
)
from pacbayes_control.tasks.gym.episodes import (
    Controller,
    Episode,
    PlainVector,
    Start,
    check_autoreset,
    run_episode,
    run_episodes,
)
from pacbayes_control.tasks.gym.policies import Policy
from pacbayes_control.tasks.identity import described, named, without_addresses

SEED, SEEDS = "seed", 2**31  # a simulator may be counted on to take one of so many


@dataclass(frozen=True, eq=False, repr=False)
class GymTask:
    """Policies in a Gymnasium environment, with a cost for each episode.

    An environment of the task is a seed, which all of its randomness must come from, and the
    `options` of its reset, drawn from a generator by name: masses, friction, goals. Exactly one
    episode is run for each (environment, policy).

    >>> from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy
    >>> push = FunctionPolicy(lambda gains, observation: int(gains @ observation > 0), 4)
    >>> task = GymTask("CartPole-v1", push, FromTermination(success=False), steps=100)
    >>> policies = np.array([[0.0, 0, 1, 1], [0, 0, -1, 0]])
    >>> task.costs(policies, task.environments(3, stream="example")).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """

    make: str | Callable[[], gym.Env | VectorEnv]  # an id that is registered, or a factory
    policy: Policy  # what a row of parameters does
    cost: Callable[[Episode], float]  # the rule that says what an episode cost, in [0, 1]
    options: Callable[[np.random.Generator], Mapping[str, Any]] | None = None  # of a reset
    steps: int | None = None  # at most, in an episode; by default until it ends
    arguments: Mapping[str, Any] = field(default_factory=dict)  # for gymnasium.make
    vector: int = 0  # episodes to step together; 0 for one after another
    name: str = ""  # for records; by default that of the environment
    policies: NDArray | None = None  # to choose from, one a row, where there are finitely many
    prior: Any = None  # a DiagonalGaussian over policies, where there are infinitely many

    one_by_one = True  # so that a chunk may be as small as a single rollout

    def __post_init__(self) -> None:
        made_by = self.make if isinstance(self.make, str) else described(self.make)
        object.__setattr__(self, "name", self.name or made_by)
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"episodes of {self.steps} steps: at least one is needed")
        if self.vector < 0:
            raise ValueError(f"{self.vector} episodes at a time: write 0 for one after another")
        if self.arguments and not isinstance(self.make, str):
            raise ValueError("arguments are for gymnasium.make: have the factory use its own")
        if isinstance(self.make, str):
            try:  # kept, so that workers know what was registered here alone
                module, _, name = self.make.rpartition(":")
                if module:
                    import_module(module)
                object.__setattr__(self, "_spec", gym.spec(name))
            except (gym.error.Error, ModuleNotFoundError) as error:
                words = " ".join(str(error).split())
                raise ValueError(
                    f"no Gymnasium environment {self.make!r} is registered ({words}): register "
                    "it, or write 'its_module:its_id'"
                ) from None

    def __repr__(self) -> str:
        options = described(self.options) if self.options else None
        rule = repr(self.cost) if " at 0x" not in repr(self.cost) else described(self.cost)
        made_by = self.make if isinstance(self.make, str) else described(self.make)
        return (
            f"GymTask({self.name!r}, {made_by}, {self.policy!r}, {rule}, {options}, {self.steps}, "
            f"{dict(self.arguments)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        made = ("_env", "action_space")  # a worker makes its own
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n seeds and options under a named stream."""
        options = f" {named(self.options)}" if self.options else ""
        return drawn(self._draw, f"{self.name}{options}", n, stream, seed, FEW)

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.policy.parameters)

    @property
    def policy_class(self) -> str:
        """What a row of parameters means, in words for records."""
        return without_addresses(repr(self.policy))

    def controller(self, policy: NDArray) -> Controller:
        """What acts for a policy in one episode, for deployment: it may have a memory."""
        return self.policy.controller(policy, self.action_space)

    @cached_property
    def action_space(self) -> gym.Space:
        """The actions of one environment."""
        return getattr(self._env, "single_action_space", self._env.action_space)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray[np.float64]:
        """Costs of one episode for each environment and policy; shape (environments, policies)."""
        self.check_policies(policies)
        costs = np.empty((len(environments), policies.shape[-2]))
        for (i, j), episode in self._episodes(policies, environments):
            try:
                costs[i, j] = number(self.cost(episode))
            except Exception as error:
                raise RolloutFailed(i, j, error) from error
        return costs

    def _episodes(
        self, policies: NDArray, environments: Environments
    ) -> Iterator[tuple[tuple[int, int], Episode]]:
        """Each pair of row and column with its episode."""
        pairs = [(i, j) for i in range(len(environments)) for j in range(policies.shape[-2])]
        resets = _resets(environments.arrays())

        def start(i: int, j: int) -> Start:
            row = policies[i, j] if policies.ndim == 3 else policies[j]
            return Start(*resets[i], partial(self.policy.controller, row, self.action_space))

        if isinstance(self._env, VectorEnv):
            starts = [start(i, j) for i, j in pairs]
            try:
                episodes = run_episodes(self._env, starts, self.steps)
            except BaseException:
                self.__dict__.pop("_env", None)  # whatever state it is in
                raise
            yield from zip(pairs, episodes, strict=True)
            return
        for i, j in pairs:
            try:
                episode = run_episode(self._env, start(i, j), self.steps)
            except (Exception, SystemExit) as error:
                self.__dict__.pop("_env", None)  # whatever state it is in
                raise RolloutFailed(i, j, error) from error
            yield (i, j), episode

    @cached_property
    def _env(self) -> gym.Env | VectorEnv:
        """The simulator, made once in each process."""
        make: Any = self.make
        if isinstance(make, str):
            spec = self.__dict__["_spec"]
            make = partial(gym.make, spec, disable_env_checker=True, **self.arguments)
        env = PlainVector([make] * self.vector) if self.vector else make()
        if isinstance(env, VectorEnv):
            check_autoreset(env)
        elif not isinstance(env, gym.Env):
            raise TypeError(
                f"{described(self.make)} made {env!r}, which is no Gymnasium environment"
            )
        return env

    def _draw(self, rng: np.random.Generator, n: int) -> Arrays:
        drawn = []
        for _ in range(n):
            seed = rng.integers(SEEDS)
            options = self.options(rng) if self.options else {}
            if not isinstance(options, Mapping) or SEED in options or "reset_mask" in options:
                raise ValueError("options(rng) must return values by name, none of them its seed")
            drawn.append({SEED: seed, **options})
        return stacked(drawn)


def _resets(arrays: Arrays) -> list[tuple[int, dict[str, Any]]]:
    """The seed and the options of each environment, numbers as Python's own."""
    names = [name for name in arrays if name != SEED]
    return [
        (int(seed), {name: _plain(arrays[name][i]) for name in names})
        for i, seed in enumerate(arrays[SEED])
    ]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
