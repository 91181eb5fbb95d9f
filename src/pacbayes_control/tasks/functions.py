"""Tasks from plain functions: a rollout at a time, or a batch of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Seen
from pacbayes_control.tasks.environments import BLOCK, Arrays, Environments, Noise, ranges_of
from pacbayes_control.tasks.failures import RolloutFailed, check_failures, failure_words
from pacbayes_control.tasks.identity import described, named
from pacbayes_control.tasks.task import Task
from pacbayes_control.tasks.words import checked_names, describe, distributions_used, name_of

FEW = 16  # environments drawn from one generator where each is drawn by a call in Python


@dataclass(frozen=True, repr=False, eq=False)
class FunctionTask(Task):
    """A task from `rollout(policy, environment, rng) -> cost`, one rollout at a time.

    draw: from a generator to one environment, numbers and arrays by name. rollout: the cost in
    [0, 1] of a policy, a row of parameters, in one of them. A rollout that takes an `rng` has
    noise of its own and must draw it from there and from nowhere else; one that takes two arguments
    has none. To run in other processes, both are best defined in a module. A rollout that raises is
    an error, unless its exception is one of `failures`, declared in advance: then its cost is 1.

    >>> def draw(rng):
    ...     return {"distance": rng.uniform(1, 5)}
    >>> def rollout(policy, environment, rng):
    ...     return float(policy[0] + rng.normal(0, 0.1) < environment["distance"])
    >>> task = FunctionTask(rollout, draw, "jump", parameters=1)
    >>> task.costs(np.array([[0.0], [6.0]]), task.environments(3, stream="example")).tolist()
    [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    """

    rollout: Callable[..., float]
    draw: Callable[[np.random.Generator], Mapping[str, Any]]
    name: str
    parameters: int | None = None  # of a policy; None if any number will do
    noise: str = "its own randomness"  # of a rollout that takes an rng, in words for records
    policies: NDArray | None = None  # to choose from, one a row, where there are finitely many
    prior: Any = None  # a DiagonalGaussian over policies, where there are infinitely many
    failures: tuple[type[Exception], ...] = ()  # exceptions of a rollout that count as cost 1
    cost_rule: str = ""  # what a rollout costs, in a line for records; by default its function
    distribution: str = ""  # of the environments, likewise
    policy_names: Sequence[str] = ()  # one for each of `policies`
    data_used: Sequence[Environments | Seen] = ()  # that every policy was made with: an extractor's

    one_by_one = True  # so that a chunk may be as small as a single rollout

    def __post_init__(self) -> None:
        if not callable(self.rollout) or not callable(self.draw):
            raise TypeError(
                "a task needs two functions: rollout(policy, environment, rng) and draw(rng)"
            )
        check_arguments(
            self.rollout,
            "rollout(policy, environment), or rollout(policy, environment, rng) where it has noise",
        )
        check_failures(self.failures)
        object.__setattr__(self, "policy_names", checked_names(self.policy_names, self.policies))
        object.__setattr__(self, "data_used", ranges_of(self.data_used))
        describe(
            self,
            cost_rule=f"cost by {name_of(self.rollout)}{failure_words(self.failures)}",
            distribution=f"drawn by {name_of(self.draw)}",
        )

    def __repr__(self) -> str:
        functions = f"{described(self.rollout)}, {described(self.draw)}"
        failures = failure_words(self.failures)
        return (
            f"FunctionTask({functions}, {self.name!r}, {self.parameters}, {self.noise_kind!r}"
            f"{failures})"
        )

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on, as far as the functions show."""
        return distributions_used(self.rollout, self.draw)

    @cached_property
    def noise_kind(self) -> str:
        """What is random in a rollout; empty where it takes no rng."""
        return self.noise if len(_positional(self.rollout)) == 3 else ""

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        return drawn(self._draw_block, f"{self.name} {named(self.draw)}", n, stream, seed, FEW)

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.parameters)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray[np.float64]:
        """The cost of each rollout, one after another; shape (environments, policies)."""
        return self.costs_and_raised(policies, environments, noise)[0]

    def costs_and_raised(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> tuple[NDArray[np.float64], int]:
        """The costs, and how many of them are 1 because a declared failure was raised."""
        self.check_policies(policies)
        arrays = environments.arrays()
        columns = policies.shape[-2]
        costs, raised = np.empty((len(environments), columns)), 0
        own = policies.ndim == 3
        rows = [] if own else list(policies)
        random = _Reseeded() if self.noise_kind else None
        keys = (noise or Noise("rollouts")).keys(environments, columns) if random else None
        rollout, failures, i, j = self.rollout, self.failures, 0, 0
        try:
            for i in range(len(environments)):
                drawn = {name: array[i] for name, array in arrays.items()}
                if own:
                    rows = list(policies[i])
                for j in range(columns):
                    try:
                        if random is None or keys is None:
                            cost = rollout(rows[j], dict(drawn))
                        else:
                            cost = rollout(rows[j], dict(drawn), random.at(keys[i, j]))
                    except failures:
                        cost, raised = 1.0, raised + 1
                    costs[i, j] = number(cost)
        except (Exception, SystemExit) as error:
            raise RolloutFailed(i, j, error) from error
        return costs, raised

    def _draw_block(self, rng: np.random.Generator, n: int) -> Arrays:
        return stacked([self.draw(rng) for _ in range(n)])


@dataclass(frozen=True, repr=False, eq=False)
class BatchTask(Task):
    """A task from a simulator of many rollouts at once.

    draw: from a generator and n to n environments, arrays by name with a row for each. rollouts:
    from policies (policies, parameters) and those arrays to costs in [0, 1], shape (environments,
    policies); where a search samples policies for each environment, they are given as
    (environments, policies, parameters). With a third argument it is given 64 random bits for each
    rollout, (environments, policies), to seed noise of its own with.

    >>> def draw(rng, n):
    ...     return {"distance": rng.uniform(1, 5, n)}
    >>> def rollouts(policies, environments):
    ...     return policies[..., 0] < environments["distance"][:, None]
    >>> task = BatchTask(rollouts, draw, "jump", parameters=1)
    >>> task.costs(np.array([[0.0], [6.0]]), task.environments(2, stream="example")).tolist()
    [[True, False], [True, False]]
    """

    rollouts: Callable[..., NDArray]
    draw: Callable[[np.random.Generator, int], Arrays]
    name: str
    parameters: int | None = None  # of a policy; None if any number will do
    noise: str = "its own randomness"  # where rollouts takes random bits, in words for records
    releases_gil: bool = False  # whether several threads can run it at once
    policies: NDArray | None = None  # to choose from, one a row, where there are finitely many
    prior: Any = None  # a DiagonalGaussian over policies, where there are infinitely many
    cost_rule: str = ""  # what a rollout costs, in a line for records; by default its function
    distribution: str = ""  # of the environments, likewise
    policy_names: Sequence[str] = ()  # one for each of `policies`
    data_used: Sequence[Environments | Seen] = ()  # that every policy was made with: an extractor's

    def __post_init__(self) -> None:
        if not callable(self.rollouts) or not callable(self.draw):
            raise TypeError(
                "a task needs two functions: rollouts(policies, environments) and draw(rng, n)"
            )
        check_arguments(
            self.rollouts,
            "rollouts(policies, environments), or rollouts(policies, environments, bits) where "
            "they have noise",
        )
        object.__setattr__(self, "policy_names", checked_names(self.policy_names, self.policies))
        object.__setattr__(self, "data_used", ranges_of(self.data_used))
        describe(
            self,
            cost_rule=f"costs by {name_of(self.rollouts)}",
            distribution=f"drawn by {name_of(self.draw)}",
        )

    def __repr__(self) -> str:
        functions = f"{described(self.rollouts)}, {described(self.draw)}"
        return f"BatchTask({functions}, {self.name!r}, {self.parameters}, {self.noise_kind!r})"

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on, as far as the functions show."""
        return distributions_used(self.rollouts, self.draw)

    @cached_property
    def noise_kind(self) -> str:
        """What is random in a rollout; empty where it takes no random bits."""
        return self.noise if len(_positional(self.rollouts)) == 3 else ""

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        return drawn(self.draw, f"{self.name} {named(self.draw)}", n, stream, seed, BLOCK)

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.parameters)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        """What the simulator says."""
        self.check_policies(policies)
        arrays, bits = environments.arrays(), ()
        if self.noise_kind:
            bits = ((noise or Noise("rollouts")).keys(environments, policies.shape[-2]),)
        costs = np.asarray(self.rollouts(policies, dict(arrays), *bits))
        if policies.ndim == 3 and policies.shape[1] == policies.shape[2]:
            # Who reads policies[:, 0] gets the right shape here, and the wrong costs.
            first = {name: array[:1] for name, array in arrays.items()}
            alone = self.rollouts(policies[0], first, *(part[:1] for part in bits))
            if not np.array_equal(np.asarray(alone)[0], costs[0]):
                raise ValueError(
                    "policies of shape (environments, policies, parameters) cost otherwise than "
                    "those of (policies, parameters): read a parameter as policies[..., 0]"
                )
        return costs


def drawn(
    draw: Callable[[np.random.Generator, int], Arrays],
    words: str,
    n: int,
    stream: str,
    seed: int,
    block: int,
) -> Environments:
    """n environments of a stream, checked."""
    if n < 1:
        raise ValueError(f"{n} environments were asked for: at least one is needed")
    return Environments(draw, words, stream, seed, 0, n, block)


def stacked(drawn: Sequence[Mapping[str, Any]]) -> Arrays:
    """Environments that were drawn one by one, as arrays by name."""
    if not all(isinstance(one, Mapping) and one.keys() == drawn[0].keys() for one in drawn):
        raise ValueError("an environment is values by name, and all must have the same names")
    return {name: _stack(name, [one[name] for one in drawn]) for name in drawn[0]}


def _stack(name: str, values: list[Any]) -> NDArray:
    kinds = {np.asarray(value).dtype.kind for value in values}
    shapes = {np.shape(value) for value in values}
    if len(kinds) > 1 or len(shapes) > 1 or not kinds <= set("biufUS"):
        raise ValueError(
            f"{name!r} must be a number, a word or an array of numbers, of the same type and shape "
            "in every environment"
        )
    return np.array(values)


def check_parameters(name: str, policies: NDArray, parameters: int | None) -> None:
    """An error for policies that are no rows of so many numbers."""
    if policies.ndim not in (2, 3):
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    if parameters is not None and policies.shape[-1] != parameters:
        raise ValueError(
            f"policies of {policies.shape[-1]} parameters were given to task {name}, whose "
            f"policies have {parameters}"
        )


def number(value: Any) -> float:
    """A cost as a plain number; an error for what only looks like one."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise TypeError(f"a rollout came to {value!r}, and a cost is a number from 0 to 1")
    return float(array)


def check_arguments(function: Callable[..., Any], expected: str) -> None:
    """An error for a function that takes neither two arguments by position nor three."""
    positional, all_names = _positional(function), inspect.signature(function).parameters
    if len(positional) not in (2, 3) or ("rng" in all_names and "rng" not in positional):
        raise TypeError(
            f"{getattr(function, '__name__', function)}({', '.join(all_names)}) cannot be rolled "
            f"out: write {expected}"
        )


def _positional(function: Callable[..., Any]) -> list[str]:
    """The arguments that a caller has to give by position."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


class _Reseeded:
    """One generator, set to the beginning of each rollout's own stream: cheaper than many."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, key: np.uint64) -> np.random.Generator:
        self._state["state"]["key"][0] = key
        self._bits.state = self._state
        return self._generator
