"""The cost of each environment under a posterior, and the hardest environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run

WORST = 10  # environments that are called the hardest, at most


def environment_costs(run: Run[Any]) -> NDArray[np.float64]:
    """Mean cost under the posterior in each environment, or of the one policy that is certified."""
    if isinstance(run.posterior, Categorical):
        return run.costs.values @ run.posterior.probabilities
    return run.costs.values.mean(axis=1)


def hardest(run: Run[Any], most: int = WORST) -> list[tuple[int, float]]:
    """The environments with the highest cost and that cost; without those that cost nothing."""
    means = environment_costs(run)
    first = np.argsort(-means, kind="stable")[:most]
    return [(int(i), float(means[i])) for i in first if means[i] >= 0.001]


def hardest_records(run: Run[Any]) -> list[dict[str, Any]]:
    """The same with their names, as plain values for JSON."""
    return [{"environment": i, "name": run.costs.site(i), "cost": cost} for i, cost in hardest(run)]
