"""What the tables say of many draws of the training environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def over_draws(bounds: ArrayLike, true_costs: ArrayLike) -> dict[str, Any]:
    """Mean, spread and extremes over draws, and how often a bound was below the true cost.

    >>> over_draws([0.2, 0.3], [0.1, 0.1])["bound"]
    0.25
    """
    bounds, truths = np.asarray(bounds, float), np.asarray(true_costs, float)
    several = len(bounds) > 1
    return {
        "bound": float(bounds.mean()),
        "bound_std": float(bounds.std(ddof=1)) if several else 0.0,
        "bound_min": float(bounds.min()),
        "bound_max": float(bounds.max()),
        "true_cost": float(truths.mean()),
        "true_cost_std": float(truths.std(ddof=1)) if several else 0.0,
        "violations": int(np.sum(bounds < truths)),
        "draws": len(bounds),
    }
