"""Fields and checks that tasks from a user's functions and simulators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.tasks.environments import Arrays, Environments, Noise, stacked
from pacbayes_control.tasks.identity import LONGEST, one_line
from pacbayes_control.tasks.task import Film, Task, Watched
from pacbayes_control.tasks.watching import caught, check_no_film

begins: Callable[[int, int], None] | None = None  # is told of each rollout, in watched processes


class RolloutFailed(Exception):  # noqa: N818 - it reports an event, with its place in a batch
    """A rollout that raised: its row and column in a batch, and the error."""

    def __init__(self, row: int, column: int, error: BaseException) -> None:
        super().__init__(row, column, error)
        self.row, self.column, self.error = row, column, error


class DerivedText(str):
    """Words that a task derived from its other fields, and derives again after `replace`."""

    __slots__ = ()


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class UserTask(Task):
    """A task that a user makes from functions or from a simulator.

    Args:
        policies: to choose from, one a row, where there are finitely many
        prior: a DiagonalGaussian over policies, where there are infinitely many
        cost_rule: how the cost is computed, in a line for records; by default the function's name
        graded: whether a rollout may cost more than 0 and less than 1; False if it only succeeds or
            fails; None if that is not said
        distribution: of the environments, in a line for records; by default the function's name
        policy_names: one for each of `policies`
        data_used: environments that every policy was made with, such as a feature extractor's
    """

    policies: NDArray | None = None
    prior: Any = None
    cost_rule: str = ""
    graded: bool | None = None
    distribution: str = ""
    policy_names: Sequence[str] = ()
    data_used: Sequence[Environments | EnvironmentRange] = ()

    def _complete(
        self, cost_rule: str, distribution: str, failures: tuple[type[Exception], ...] = ()
    ) -> None:
        """Check the shared fields; the words are for records, where the user gave no others."""
        _check_failures(failures)
        keep = partial(object.__setattr__, self)
        derived = {"cost_rule": cost_rule + failure_words(failures), "distribution": distribution}
        for field, words in derived.items():
            given = getattr(self, field)
            if not given or isinstance(given, DerivedText):
                keep(field, DerivedText(one_line(words)))
            elif not isinstance(given, str) or not given.isprintable() or len(given) > LONGEST:
                raise ValueError(
                    f"{field} of task {self.name} must be one printable line of at most {LONGEST} "
                    f"characters, not {str(given)[:50]!r}"
                )
        keep("policy_names", checked_names(self.policy_names, self.policies))
        used = [part.range if isinstance(part, Environments) else part for part in self.data_used]
        if not all(isinstance(part, EnvironmentRange) for part in used):
            raise ValueError("data_used lists the Environments that every policy was made with")
        keep("data_used", tuple(used))

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.parameters)


class OneByOneTask(UserTask):
    """A task whose environments are drawn, and whose rollouts are run, one after another."""

    draw: Callable[[np.random.Generator], Mapping[str, Any]]  # an environment
    cost: Callable[[Any], Any]  # of the outcome of a rollout
    failures: tuple[type[Exception], ...]  # of a rollout, that count as cost 1
    # (policies, environments, noise) -> row and column of each rollout, and a function that runs it
    _rollouts: Callable[..., Iterator[tuple[tuple[int, int], Callable[[], Any]]]]

    one_by_one = True  # so that a chunk may be as small as a single rollout
    marks = True  # whether `begins` is told when each rollout begins, and none runs beside it

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray[np.float64]:
        """The cost of each rollout; shape (environments, policies)."""
        return self.costs_and_raised(policies, environments, noise)[0]

    def costs_and_raised(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> tuple[NDArray[np.float64], int]:
        """The costs, and how many of them are 1 because a declared failure was raised."""
        self.check_policies(policies)
        costs, raised = np.empty((len(environments), policies.shape[-2])), 0
        begin, failures, cost_of = begins, self.failures, self.cost  # looked up once
        for (i, j), rollout in self._rollouts(policies, environments, noise):
            if begin is not None:
                begin(i, j)
            try:
                try:
                    outcome = rollout()
                except failures:
                    costs[i, j], raised = 1.0, raised + 1
                else:
                    costs[i, j] = cost_number(cost_of(outcome))
            except (Exception, SystemExit) as error:
                raise RolloutFailed(i, j, error) from error
        return costs, raised

    def watch(
        self,
        policy: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        film: Film | None = None,
    ) -> Watched:
        """One rollout, with the error that it raised; see `Task.watch`."""
        check_no_film(self.name, film)
        self.check_policies(policy[None])
        [(_, rollout)] = self._rollouts(policy[None], environments, noise)
        outcome, error = caught(rollout)
        if isinstance(error, self.failures):
            return Watched(1.0, error)
        cost = None
        if error is None:
            cost, error = caught(lambda: cost_number(self.cost(outcome)))
        return Watched(cost, error)

    def _draw_block(self, rng: np.random.Generator, n: int) -> Arrays:
        return stacked([self.draw(rng) for _ in range(n)])


def pairs_of(
    policies: NDArray, environments: Environments
) -> Iterator[tuple[tuple[int, int], NDArray, dict[str, Any]]]:
    """Row and column of each rollout, its policy, and its environment as values by name."""
    arrays = environments.arrays()
    shared = None if policies.ndim == 3 else list(policies)
    for i in range(len(environments)):
        drawn = {name: array[i] for name, array in arrays.items()}
        for j, policy in enumerate(policies[i] if shared is None else shared):
            yield (i, j), policy, dict(drawn)


def check_parameters(name: str, policies: NDArray, parameters: int | None) -> None:
    """An error for policies that are not rows of so many numbers."""
    if policies.ndim not in (2, 3):
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    if parameters is not None and policies.shape[-1] != parameters:
        raise ValueError(
            f"policies of {policies.shape[-1]} parameters were given to task {name}, whose "
            f"policies have {parameters}"
        )


def cost_number(value: Any) -> float:
    """A cost as a plain number; an error for any other type."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise TypeError(f"a rollout came to {value!r}, and a cost is a number from 0 to 1")
    return float(array)


def checked_names(names: Sequence[str], policies: Any, of: str = "policies") -> tuple[str, ...]:
    """Names, one for each of the policies; an error for any others."""
    count = 0 if policies is None else len(policies)
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"names of {of} must be a list of words, not {str(names)[:80]!r}")
    if names and (len(names) != count or len({*names}) != count):
        raise ValueError(
            f"{len(names)} names ({len({*names})} different ones) were given for {count} {of}: "
            "names must be unique, one for each"
        )
    return tuple(names)


def _check_failures(failures: Any) -> None:
    """An error unless this is a tuple of exceptions, each narrower than `Exception`."""
    kinds = failures if isinstance(failures, tuple) else (None,)
    if Exception in kinds or BaseException in kinds:
        raise ValueError(
            "failures must name the exceptions that mean a failure of the robot: Exception would "
            "count mistakes in the code as failures too"
        )
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise ValueError(f"failures = {failures!r} must be a tuple of exceptions: (RobotFell,)")


def failure_words(failures: tuple[type[Exception], ...]) -> str:
    """The declared exceptions in words, to be appended to a cost rule."""
    names = sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in failures)
    return f", 1 where it raises {' or '.join(names)}" if names else ""
