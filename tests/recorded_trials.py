"""Trials for tests: a table of costs as if it had been recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.certify.trials import Trials

POLICIES = ("act", "pi0", "dp", "rt2", "octo")


def paired(
    table: ArrayLike, *, tasks: Sequence[int] | None = None, by_policy: bool = False, **more: Any
) -> Trials:
    """Costs by environment and policy, NaN where there was no trial; one environment a row.

    They are recorded environment by environment, or policy by policy. tasks: of each environment.
    """
    costs = np.asarray(table, float)
    environment, policy = np.nonzero(~np.isnan(costs))
    if by_policy:
        policy, environment = np.nonzero(~np.isnan(costs.T))
    names = POLICIES[: costs.shape[1]]
    return _checked(names, policy, environment, costs[environment, policy], tasks, more)


def unpaired(
    *columns: ArrayLike, tasks: Sequence[Sequence[int]] | None = None, **more: Any
) -> Trials:
    """Costs of each policy in environments of its own, recorded one policy after the other."""
    costs = [np.asarray(column, float) for column in columns]
    policy = np.repeat(np.arange(len(costs)), [len(column) for column in costs])
    listed = None if tasks is None else [task for column in tasks for task in column]
    names = POLICIES[: len(costs)]
    return _checked(names, policy, np.arange(len(policy)), np.concatenate(costs), listed, more)


def _checked(
    names: Sequence[str],
    policy: np.ndarray,
    environment: np.ndarray,
    costs: np.ndarray,
    tasks: Sequence[int] | None,
    more: dict[str, Any],
) -> Trials:
    environments = int(environment.max()) + 1
    fields: dict[str, Any] = {
        "outcome": "1 for a failure",
        "unit": "seed",
        "graded": not np.all((costs == 0) | (costs == 1)),
        "shared": len(costs) > environments,
    }
    if tasks is not None:
        fields["tasks"] = tuple(f"task {i}" for i in range(max(tasks) + 1))
        fields["task"] = np.array(tasks)
    sites = tuple(f"seed {i}" for i in range(environments))
    trials = Trials(tuple(names), policy, sites, environment, costs, **fields | more)
    trials.check()
    return trials
