"""Tasks from plain functions: a rollout at a time, or a batch of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks import user_task
from pacbayes_control.tasks.environments import FEW, Arrays, Environments, Noise, first_environments
from pacbayes_control.tasks.identity import described, distributions_used, name_of, named
from pacbayes_control.tasks.user_task import OneByOneTask, UserTask, failure_words


@dataclass(frozen=True, repr=False, eq=False)
class FunctionTask(OneByOneTask):
    """A task from `rollout(policy, environment, rng) -> cost`, one rollout at a time.

    To run in other processes, both functions are best defined in a module. A rollout that raises is
    an error, unless its exception is one of `failures`, declared in advance: then its cost is 1.

    Args:
        rollout: the cost in [0, 1] of a policy, a row of parameters, in an environment. With a
            third argument `rng` it has noise of its own, which it must draw from there alone
        draw: from a generator to one environment, numbers and arrays by name
        name: for records
        parameters: of a policy; None if any number will do
        noise: a description of the noise, for records
        failures: exceptions of a rollout that count as cost 1
        policies, prior, cost_rule, distribution, policy_names, data_used: as for `UserTask`

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
    parameters: int | None = None
    noise: str = "its own randomness"
    failures: tuple[type[Exception], ...] = ()

    cost = staticmethod(user_task.cost_number)  # the outcome of a rollout is its cost

    def __post_init__(self) -> None:
        usage = "rollout(policy, environment", "rng", "draw(rng)"
        _check_functions(self, self.rollout, *usage)
        words = f"cost by {name_of(self.rollout)}", f"drawn by {name_of(self.draw)}"
        self._complete(*words, self.failures)

    def __repr__(self) -> str:
        functions = f"{described(self.rollout)}, {described(self.draw)}, {self.name!r}"
        noise = f"{self.noise_kind!r}{failure_words(self.failures)}"
        return f"FunctionTask({functions}, {self.parameters}, {noise})"

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on, as far as the functions show."""
        return distributions_used(self.rollout, self.draw)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        task = f"{self.name} {named(self.draw)}"
        return first_environments(self._draw_block, task, n, stream=stream, seed=seed, block=FEW)

    def _rollouts(
        self, policies: NDArray, environments: Environments, noise: Noise | None
    ) -> Iterator[tuple[tuple[int, int], Callable[[], Any]]]:
        keys, random = None, _Reseeded()
        if self.noise_kind:
            keys = (noise or Noise("rollouts")).keys(environments, policies.shape[-2])
        for place, policy, drawn in user_task.pairs_of(policies, environments):
            rng = () if keys is None else (random.at(keys[place]),)
            yield place, partial(self.rollout, policy, drawn, *rng)


@dataclass(frozen=True, repr=False, eq=False)
class BatchTask(UserTask):
    """A task from a simulator of many rollouts at once.

    Args:
        rollouts: from policies (policies, parameters) and arrays of environments to costs in
            [0, 1], shape (environments, policies); where a search samples policies for each
            environment, they are given as (environments, policies, parameters). With a third
            argument it is given 64 random bits for each rollout, (environments, policies), to seed
            noise of its own with
        draw: from a generator and n to n environments, arrays by name with a row for each
        name: for records
        parameters: of a policy; None if any number will do
        noise: a description of the noise, for records
        releases_gil: whether several threads can run it at once
        policies, prior, cost_rule, distribution, policy_names, data_used: as for `UserTask`

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
    parameters: int | None = None
    noise: str = "its own randomness"
    releases_gil: bool = False

    def __post_init__(self) -> None:
        usage = "rollouts(policies, environments", "bits", "draw(rng, n)"
        _check_functions(self, self.rollouts, *usage)
        self._complete(f"costs by {name_of(self.rollouts)}", f"drawn by {name_of(self.draw)}")

    def __repr__(self) -> str:
        functions = f"{described(self.rollouts)}, {described(self.draw)}"
        return f"BatchTask({functions}, {self.name!r}, {self.parameters}, {self.noise_kind!r})"

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on, as far as the functions show."""
        return distributions_used(self.rollouts, self.draw)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        return first_environments(
            self.draw, f"{self.name} {named(self.draw)}", n, stream=stream, seed=seed
        )

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        """The costs that the simulator computes."""
        self.check_policies(policies)
        arrays, bits = environments.arrays(), ()
        if self.noise_kind:
            bits = ((noise or Noise("rollouts")).keys(environments, policies.shape[-2]),)
        costs = np.asarray(self.rollouts(policies, dict(arrays), *bits))
        if policies.ndim == 3 and policies.shape[1] == policies.shape[2]:
            # Code that reads policies[:, 0] gets the right shape here, and the wrong costs.
            first = {name: array[:1] for name, array in arrays.items()}
            alone = self.rollouts(policies[0], first, *(part[:1] for part in bits))
            if not np.array_equal(np.asarray(alone)[0], costs[0]):
                raise ValueError(
                    "policies of shape (environments, policies, parameters) cost otherwise than "
                    "those of (policies, parameters): read a parameter as policies[..., 0]"
                )
        return costs


def _check_functions(task: Any, rollout: Any, expected: str, noise: str, drawing: str) -> None:
    """Set the kind of noise of a task; an error unless a rollout takes two arguments or three.

    Args:
        task: the task, which has `draw` and `noise`
        rollout: its function for rollouts; with a third argument by position it has noise
        expected: how a rollout is called, before a further argument `noise` and the bracket
        noise: the name of that argument
        drawing: how `draw` is called
    """
    plain, noisy = f"{expected})", f"{expected}, {noise})"
    if not callable(rollout) or not callable(task.draw):
        raise TypeError(f"a task needs two functions: {plain} or {noisy}, and {drawing}")
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    all_names = inspect.signature(rollout).parameters
    required = [p for p in all_names.values() if p.kind in kinds and p.default is p.empty]
    positional = [p.name for p in required]
    if len(positional) not in (2, 3) or ("rng" in all_names and "rng" not in positional):
        raise TypeError(
            f"{getattr(rollout, '__name__', rollout)}({', '.join(all_names)}) cannot be rolled "
            f"out: write {plain}, or {noisy} where it has noise"
        )
    object.__setattr__(task, "noise_kind", task.noise if len(positional) == 3 else "")


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
