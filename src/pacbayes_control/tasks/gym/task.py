"""A Gymnasium environment as a task: its seeds and options are environments, episodes rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pacbayes_control.tasks import identity
from pacbayes_control.tasks.environments import (
    FEW,
    Environments,
    Noise,
    first_environments,
)
from pacbayes_control.tasks.gym import episodes
from pacbayes_control.tasks.gym.batches import check_batches
from pacbayes_control.tasks.gym.episodes import Controller, Episode, Start
from pacbayes_control.tasks.gym.policies import (
    BatchedPolicy,
    Policy,
    PredictPolicy,
)
from pacbayes_control.tasks.gym.registrations import (
    make_registered,
    packed_registrations,
    registered_spec,
)
from pacbayes_control.tasks.gym.watching import watch_episode
from pacbayes_control.tasks.task import Film, Watched
from pacbayes_control.tasks.user_task import OneByOneTask, check_parameters, failure_words, pairs_of

SEED, SEEDS = "seed", 2**31  # a simulator may be counted on to take one of so many
VECTOR_FAILS = (
    "failures are not told apart in a vector of your own, where an exception ends all of its "
    "episodes: have the factory return one environment"
)


@dataclass(frozen=True, eq=False, repr=False)
class GymTask(OneByOneTask):
    """Policies in a Gymnasium environment, with a cost for each episode.

    An environment of the task is a seed, which all of its randomness must come from, and the
    `options` of its reset, drawn from a generator by name: masses, friction, goals. Exactly one
    episode is run for each (environment, policy). One that raises is an error, unless its exception
    is one of `failures`, declared in advance: then its cost is 1.

    Args:
        make: an id that is registered with Gymnasium, or a factory of environments
        policy: the class of policies, which says how a row of parameters acts: `FunctionPolicy`,
            `TorchPolicy` or `PredictPolicy`
        cost: the rule from an episode to its cost in [0, 1]: `FromReturn`, `FromInfo`,
            `FromTermination`, or a function of an `Episode`
        options: from a generator to the options of a reset, by name; by default there are none, and
            environments differ by their seeds
        steps: the most in an episode; by default it runs until it ends
        arguments: for gymnasium.make, by name, where `make` is an id
        vector: episodes of a policy to step together, where it acts in batches; 0 for one after
            another
        name: for records; by default that of the environment
        failures: exceptions of an episode that count as cost 1; any other is an error
        policies: to choose from, one a row, where there are finitely many
        prior: a `DiagonalGaussian` over policies, where there are infinitely many
        cost_rule: how the cost is computed, in a line for records; by default the name of `cost`
        graded: False if an episode only succeeds or fails, True if it may cost something between;
            by default that is not said
        distribution: of the environments, in a line for records; by default the names of `make` and
            `options`
        policy_names: one for each of `policies`; by default their numbers
        data_used: environments that every policy was made with, which are then refused for learning

    >>> from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy
    >>> push = FunctionPolicy(lambda gains, observation: int(gains @ observation > 0), 4)
    >>> task = GymTask("CartPole-v1", push, FromTermination(success=False), steps=100)
    >>> policies = np.array([[0.0, 0, 1, 1], [0, 0, -1, 0]])
    >>> task.costs(policies, task.environments(3, stream="example")).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """

    make: str | Callable[[], gym.Env | VectorEnv]
    policy: Policy
    cost: Callable[[Episode], float]
    options: Callable[[np.random.Generator], Mapping[str, Any]] | None = None
    steps: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    vector: int = 0
    name: str = ""
    failures: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self._maker(identity.described))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"episodes of {self.steps} steps: at least one is needed")
        if self.vector < 0:
            raise ValueError(f"{self.vector} episodes at a time: write 0 for one after another")
        if self.arguments and not isinstance(self.make, str):
            raise ValueError("arguments are for gymnasium.make: have the factory use its own")
        models, names = self.policy, self.policy_names
        if isinstance(models, PredictPolicy) and (not names or tuple(names) == models.names):
            whole = self.policies is not None and np.array_equal(self.policies, models.rows)
            object.__setattr__(self, "policy_names", models.names if whole else ())
        maker = self._maker(identity.name_of)
        rule = getattr(self.cost, "words", None) or f"cost by {identity.name_of(self.cost)}"
        limit = f", in episodes of at most {self.steps} steps" if self.steps else ""
        arguments = f" with {dict(self.arguments)}" if self.arguments else ""
        options = f" and options by {identity.name_of(self.options)}" if self.options else ""
        distribution = f"{maker}{arguments} reset with random seeds{options}"
        self._complete(f"{rule}{limit}", distribution, self.failures)
        if isinstance(self.make, str):  # workers may not have registered it
            object.__setattr__(self, "_spec", registered_spec(self.make))

    def _maker(self, words: Callable[[Any], str]) -> str:
        """The id of the environment, or words for its factory."""
        return self.make if isinstance(self.make, str) else words(self.make)

    def __repr__(self) -> str:
        options = identity.described(self.options) if self.options else None
        rule = repr(self.cost) if " at 0x" not in repr(self.cost) else identity.described(self.cost)
        maker, limits = self._maker(identity.described), f"{self.steps}, {dict(self.arguments)}"
        parts = f"{maker}, {self.policy!r}, {rule}, {options}, {limits}"
        batches = f", vector={self.together}" if self.together else ""
        return f"GymTask({self.name!r}, {parts}{failure_words(self.failures)}{batches})"

    def __getstate__(self) -> dict[str, Any]:
        made = ("_envs", "_tried", "action_space")  # a worker makes its own
        kept = {name: value for name, value in self.__dict__.items() if name not in made}
        return {"_registrations": packed_registrations()} | kept

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n seeds and options under a named stream."""
        options = f" {identity.named(self.options)}" if self.options else ""
        return first_environments(
            self._draw_block, f"{self.name}{options}", n, stream=stream, seed=seed, block=FEW
        )

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.policy.parameters)

    @property
    def policy_class(self) -> str:
        """The meaning of a row of parameters, in words for records."""
        batches = f" in batches of {self.together}" if self.together else ""
        return f"{identity.ADDRESS.sub('', repr(self.policy))}{batches}"

    @property
    def together(self) -> int:
        """Episodes of one policy that are stepped together, in a batch; 0 for one after another.

        Costs may then differ in their last bits from those of one after another, or of another
        number, so that it is another task.
        """
        return self.vector if self.vector > 1 and isinstance(self.policy, BatchedPolicy) else 0

    @property
    def marks(self) -> bool:
        """Whether each episode is told of when it begins, and none runs beside it."""
        return not self.together and not isinstance(self._env, VectorEnv)

    def in_batches(self, vector: int = 8) -> GymTask | None:
        """The same task with episodes stepped together; None where that would change nothing."""
        task = replace(self, vector=vector)
        return task if task.together and task.together != self.together else None

    def actor(self, policy: NDArray) -> Controller:
        """A function from observation to action in one episode, which may have a memory."""
        return self.policy.controller(policy, self.action_space)

    @cached_property
    def action_space(self) -> gym.Space:
        """The actions of one environment."""
        return getattr(self._env, "single_action_space", self._env.action_space)

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on, as far as the classes in use show."""
        parts: list[Any] = [gym.Env, self.cost, self.policy, *vars(self.policy).values()]
        for model in getattr(self.policy, "models", []):
            parts += [model, getattr(model, "policy", model)]
        parts += [each for each in (self.make, self.options) if callable(each)]
        with suppress(Exception):  # the simulator may be on other machines only
            layer: Any = getattr(self._env, "envs", [self._env])[0]
            while layer is not None and not any(layer is part for part in parts):
                parts.append(layer)
                layer = vars(layer).get("env")
        return identity.distributions_used(*parts)

    def _rollouts(  # without noise: all randomness is the seed's
        self, policies: NDArray, environments: Environments, _: Noise | None
    ) -> Iterator[tuple[tuple[int, int], Callable[[], Episode]]]:
        begun = self._starts(policies, environments)
        if self.together:
            yield from self._batches(policies, environments.start, begun)
        elif isinstance(self._env, VectorEnv):
            places, starts = zip(*begun, strict=True)
            ended = self._run(self._env, starts, self.steps)
            for place, episode in zip(places, ended, strict=True):
                yield place, lambda episode=episode: episode
        else:
            for place, start in begun:
                yield place, lambda start=start: self._run(self._env, [start], self.steps)[0]

    def _batches(
        self, policies: NDArray, first: int, begun: Iterator[tuple[tuple[int, int], Start]]
    ) -> Iterator[tuple[tuple[int, int], Callable[[], Episode]]]:
        """Episodes of one policy at a time, each in the slot that its environment's number gives.

        The last bits of a row may depend on its place in a batch: so it has always the same.
        """
        groups: dict[tuple[int, int], dict[int, tuple[tuple[int, int], Start]]] = {}
        for (i, j), start in begun:
            group = groups.setdefault((j, i // self.together if policies.ndim == 2 else i), {})
            group[(first + i) % self.together] = (i, j), start
        for group in groups.values():
            [(i, j), _] = next(iter(group.values()))
            row = policies[j] if policies.ndim == 2 else policies[i, j]
            ended = self._run_batch(row, {slot: start for slot, (_, start) in group.items()})
            for slot, (place, _) in group.items():
                yield place, partial(_outcome, ended[slot])

    def _run_batch(
        self, row: NDArray, starts: Mapping[int, Start]
    ) -> Mapping[int, Episode | BaseException]:
        """Episodes by slot, or their errors. An environment is made again after an error.

        What makes batches impossible is raised: it is never counted as a declared failure.
        """
        envs = {slot: self._env_at(slot) for slot in starts}
        space = self._checked_actions(row, next(iter(envs.values())))
        ended: Mapping[int, Episode | BaseException] = {}
        policy: Any = self.policy
        try:
            act = policy.batch_controller(row, space, self.together)
            ended = episodes.run_batch(envs, starts, act, self.together, self.steps)
        except (Exception, SystemExit) as error:  # of the policy: in which of the episodes?
            ended = dict.fromkeys(starts, error)
            if len(starts) > 1:
                alone = {at: self._run_batch(row, {at: starts[at]})[at] for at in starts}
                if any(isinstance(one, BaseException) for one in alone.values()):
                    ended = alone
        finally:
            for slot in starts:
                if not isinstance(ended.get(slot), Episode):
                    self._envs.pop(slot, None)
        return ended

    def _checked_actions(self, row: NDArray, env: gym.Env) -> gym.Space:
        """The space of actions; batches are tried once in each process, or once for each model."""
        policy: Any = self.policy
        key = row.tobytes() if isinstance(policy, PredictPolicy) else b""
        if key not in self._tried:
            check_batches(policy, row, (env.observation_space, env.action_space), self.together)
            self._tried.add(key)
        return env.action_space

    def watch(
        self,
        policy: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        film: Film | None = None,
    ) -> Watched:
        """One episode, step by step; filmed by `rgb_array` frames. See `Task.watch`."""
        del noise  # all randomness is the seed's
        return watch_episode(self, policy, environments, film)

    def observed(
        self, policies: NDArray, environments: Environments, steps: int | None = None
    ) -> NDArray[np.float64]:
        """A number in [0, 1] for each episode, from a digest of its observable steps.

        Two numbers are equal if all observations, rewards and endings are, of so many steps at
        most.
        """
        self.check_policies(policies)
        numbers = np.empty((len(environments), policies.shape[-2]))
        limit = min(steps or episodes.ENDLESS, self.steps or episodes.ENDLESS)
        for (i, j), start in self._starts(policies, environments):
            env = episodes.Recorded(self._env)
            with suppress(*self.failures):
                self._run(env, [start], limit)
            numbers[i, j] = env.number
        return numbers

    def _starts(
        self, policies: NDArray, environments: Environments
    ) -> Iterator[tuple[tuple[int, int], Start]]:
        """Each pair of row and column, and how its episode begins."""
        for place, row, drawn in pairs_of(policies, environments):
            seed = int(drawn.pop(SEED))
            options = {k: v.item() if isinstance(v, np.generic) else v for k, v in drawn.items()}
            yield place, Start(seed, options, partial(self.actor, row))

    def _run(self, env: Any, starts: Sequence[Start], limit: int | None) -> list[Episode]:
        """Episodes in the simulator, which is made again after an error: its state is unknown."""
        try:
            if isinstance(self._env, VectorEnv):
                return episodes.run_episodes(env, starts, limit)
            return [episodes.run_episode(env, start, limit) for start in starts]
        except BaseException:
            self._envs.clear()
            raise

    @cached_property
    def _envs(self) -> dict[int, Any]:
        """The simulators of this process by slot, each made when it is needed."""
        return {}

    @cached_property
    def _tried(self) -> set[bytes]:
        """Policies that were tried in a batch."""
        return set()

    @property
    def _env(self) -> Any:
        """The simulator, made once in each process."""
        return self._env_at(0)

    def _env_at(self, slot: int) -> Any:
        if slot not in self._envs:
            env = self._made()
            if any(env.unwrapped is other.unwrapped for other in self._envs.values()):
                raise ValueError(
                    "the factory returns the same environment each time: have it make a new one, "
                    "or run one episode after another (vector=0)"
                )
            self._envs[slot] = env
        return self._envs[slot]

    def _made(self) -> gym.Env | VectorEnv:
        make: Any = self.make
        if isinstance(make, str):
            spec = self.__dict__["_spec"]
            make = partial(gym.make, spec, disable_env_checker=True, **self.arguments)
        env = make_registered(make, self.__dict__.get("_registrations", ()))
        if isinstance(env, VectorEnv):
            if self.together:
                raise ValueError("the factory makes a vector by itself: leave out vector=…")
            if env.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
                raise ValueError(
                    "a vector environment must be made with autoreset_mode=AutoresetMode.DISABLED: "
                    "otherwise it goes on in environments that the task has not drawn"
                )
            if self.failures:
                raise ValueError(VECTOR_FAILS)
        elif not isinstance(env, gym.Env):
            raise TypeError(
                f"{identity.described(self.make)} made {env!r}, which is no Gymnasium environment"
            )
        return env

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """The seed of an environment, and its options."""
        seed = rng.integers(SEEDS)
        options = self.options(rng) if self.options else {}
        if not isinstance(options, Mapping) or SEED in options or "reset_mask" in options:
            raise ValueError("options(rng) must return values by name, none of them its seed")
        return {SEED: seed, **options}


def _outcome(ended: Episode | BaseException) -> Episode:
    """An episode; an error is raised."""
    if isinstance(ended, BaseException):
        raise ended
    return ended
