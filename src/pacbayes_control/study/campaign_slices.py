"""Many draws of training environments from one campaign: disjoint parts of one stream.

Environments are i.i.d., so that disjoint parts are independent draws. Draw i of N environments is
the environments iN … (i+1)N of the stream "sweep", for every N: draws of different N share some,
which matters to no statement about one of them. True costs are estimated on environments of another
stream, which are used for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.campaigns import read_policies
from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.planned import (
    learn_from_costs,
    learn_on,
    listed_prior,
    warn_of_faults,
)
from pacbayes_control.rollouts import Execution, evaluate, sample_costs
from pacbayes_control.rollouts.evaluation import check_unseen, checked_policies
from pacbayes_control.rollouts.sampling import Draws
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.registry import installed_tasks

TRAIN, TEST = "sweep", "sweep test"  # streams
# Entries of an origin that are about all rows of a table, and not about a part of it.
ABOUT_ALL = ("incidents", "timed_out", "rollout_timeout", "looks", "declared_looks", "code")


@dataclass(frozen=True)
class Outcome:
    """The figures of one draw."""

    bound: float
    empirical_cost: float
    true_cost: float  # an estimate
    true_cost_se: float  # its standard error


@dataclass(frozen=True)
class Size:
    """How large a sweep is."""

    draws: int = 20  # of each combination
    test_environments: int = 10_000
    seed: int = 0  # of every random stream

    def __post_init__(self) -> None:
        for name, least in (("draws", 1), ("test_environments", 2)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= 1_000_000_000:
                raise ValueError(f"{name} = {value!r} must be a whole number of at least {least}")
        if self.seed + self.draws > 2**64:
            raise ValueError(f"seed {self.seed} is too large: each draw has a seed of its own")


@dataclass
class Campaign:
    """One task of a sweep: its rollouts, and learning from parts of them.

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> few = Campaign(Stopping(), Plan(), Size(draws=3, test_environments=50), largest=40)
    >>> few.part(few.costs, 20, draw=2).range
    EnvironmentRange(stream='sweep', seed=0, start=40, stop=60)
    """

    task: Task
    plan: Plan  # of the policies and the task's name
    size: Size
    largest: int  # number of environments of a draw
    store: Path | None = None  # prefix of the folders where rollouts are kept
    execution: Execution = field(default_factory=Execution)
    _priors: dict[Any, Categorical | None] = field(default_factory=dict, repr=False)
    _true_costs: dict[bytes, tuple[float, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def listed(self) -> tuple[NDArray, Sequence[str]] | None:
        """The policies to choose from, and their names; None if they are searched for."""
        if self.plan.policies is not None:
            policies, names = read_policies(Path(self.plan.policies))
        else:
            policies, names = self.task.policies, self.task.policy_names
        return None if policies is None else (checked_policies(self.task, policies), names)

    @cached_property
    def train(self) -> Environments:
        """The environments of all draws of the largest number."""
        return self._drawn(self.largest * self.size.draws, TRAIN)

    @cached_property
    def test(self) -> Environments:
        """The environments on which true costs are estimated."""
        return self._drawn(self.size.test_environments, TEST)

    def _drawn(self, n: int, stream: str) -> Environments:
        try:
            return self.task.environments(n, stream=stream, seed=self.size.seed)
        except Exception as error:  # a user's task may raise anything
            name = self.task.name
            raise ValueError(f"task {name} cannot draw environments: {in_a_line(error)}") from error

    def learn(self, plan: Plan, draw: int, store: Path | None = None) -> Outcome:
        """What is learnt from one draw; for a search, `store` is the prefix of its files."""
        n = plan.environments
        if self.listed is not None:
            costs = self.part(self.costs, n, draw=draw)
            run: Run[Any] = learn_from_costs(costs, plan, self.prior(plan))
            truth = self._of_list(run)
        else:
            part, mine = self.train[draw * n : (draw + 1) * n], self.size.seed + draw
            how = replace(self.execution, store=store)
            run = learn_on(self.task, part, replace(plan, seed=mine), how)
            truth = self._of_search(run)
        return Outcome(run.certificate.bound, run.certificate.empirical_cost, *truth)

    # ---- a list of policies: each is rolled out once in every environment -----------------------

    @cached_property
    def costs(self) -> Costs:
        """Costs of all policies in the environments of all draws."""
        assert self.listed is not None
        begun = self.store is not None and Path(f"{self.store}.train").exists()
        if self.plan.task not in installed_tasks() and not begun:
            warn_of_faults(self.task, self.listed[0], self.execution)
        how = replace(self.execution, store=self._kept("train"), title="training rollouts")
        return evaluate(self.task, self.listed[0], self.train, self.listed[1], execution=how)

    @cached_property
    def test_costs(self) -> NDArray[np.float64 | np.uint8]:
        """The same in the test environments; shape (test environments, policies)."""
        assert self.listed is not None
        check_unseen(self.test, self.task.data_used)
        how = replace(self.execution, store=self._kept("test"), title="test rollouts")
        return evaluate(self.task, self.listed[0], self.test, execution=how).values

    def _kept(self, kind: str) -> Path | None:
        return None if self.store is None else Path(f"{self.store}.{kind}")

    def prior(self, plan: Plan) -> Categorical | None:
        """The prior over listed policies that a plan names; an error if it saw any environment."""
        assert self.listed is not None
        named = plan.prior, plan.pilot
        if named not in self._priors:
            policies, names = self.listed
            prior = listed_prior(policies, list(names), self.train, plan)
            check_unseen(self.test, (prior.seen if prior else None) or ())
            self._priors[named] = prior
        return self._priors[named]

    @staticmethod
    def part(costs: Costs, n: int, *, draw: int) -> Costs:
        """The costs of one draw of n environments."""
        assert costs.range is not None
        first = costs.range.start + draw * n
        origin = {name: fact for name, fact in costs.origin.items() if name not in ABOUT_ALL}
        origin |= {"start": first, "stop": first + n}
        rows = np.array(costs.values[draw * n : (draw + 1) * n])
        return Costs(rows, costs.names, origin, parameters=costs.parameters)

    def _of_list(self, run: Run[Categorical]) -> tuple[float, float]:
        shares = run.posterior.probabilities
        support = np.flatnonzero(shares)
        return mean_and_error(self.test_costs[:, support] @ shares[support])

    # ---- a search: other policies in each draw --------------------------------------------------

    def _of_search(self, run: Run[Any]) -> tuple[float, float]:
        """The true cost: with a fresh policy in each environment where a posterior is certified."""
        learnt = [*(run.posterior.seen or ()), *(run.prior.seen or ()), *run.costs.policies_seen]
        check_unseen(self.test, [*learnt, *([run.costs.range] if run.costs.range else [])])
        how = replace(self.execution, store=None, title="test rollouts")
        if run.certificate.policy is None:
            draws = Draws(1, self.size.seed, stream="estimate")
            drawn = sample_costs(self.task, run.posterior, self.test, draws, how)
            return mean_and_error(drawn.values[:, 0])
        assert run.costs.parameters is not None
        policy = run.costs.parameters[run.certificate.policy][None]
        if policy.tobytes() not in self._true_costs:  # draws may have chosen the same
            found = evaluate(self.task, policy, self.test, execution=how).values[:, 0]
            self._true_costs[policy.tobytes()] = mean_and_error(found)
        return self._true_costs[policy.tobytes()]


def mean_and_error(values: NDArray) -> tuple[float, float]:
    """The mean of i.i.d. values, and its standard error.

    >>> mean_and_error(np.array([0, 1, 0, 1]))
    (0.5, 0.28867513459481287)
    """
    values = np.asarray(values, float)
    return float(values.mean()), float(values.std(ddof=1) / sqrt(len(values)))
