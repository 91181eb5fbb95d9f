"""Bounds on the training cost of a continuous posterior, from rollouts of sampled policies.

The expected cost C_S(P) of a continuous posterior on the training environments has no closed form.
It is estimated by rollouts of sampled policies, whose mean cost is `estimate` (Ĉ_S), and bounded
with probability at least 1 - δ' over the samples. The posterior must be fixed before the policies
are drawn. If rollouts are noisy, the noise is drawn independently for each rollout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.theorems import check_delta, chernoff_kl_holdout

Floats = NDArray[np.float64]


def fresh_draws(estimate: ArrayLike, rollouts: int, delta: float) -> Floats:
    """A new policy for every rollout, with equally many rollouts in each environment.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(1/δ')/M) for M rollouts in all. Given the environments, the M costs are
    independent, with different means whose average is C_S(P). This is all that the kl form of the
    Chernoff-Hoeffding bound needs: Σ ln E e^{tX} is at most M ln(1 + C_S(P)(eᵗ - 1)).

    >>> round(float(fresh_draws(0.08, 30_000, 0.001)), 4)
    0.086
    """
    return chernoff_kl_holdout(estimate, rollouts, delta)


def shared_draws(estimate: ArrayLike, policies: int, delta: float) -> Floats:
    """The same L sampled policies in every environment.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(1/δ')/L): only the L mean costs over the environments are independent, so
    more environments do not tighten it.

    >>> round(float(shared_draws(0.08, 30_000, 0.001)), 4)
    0.086
    """
    return chernoff_kl_holdout(estimate, policies, delta)


def langford_caruana(estimate: ArrayLike, policies: int, delta: float) -> Floats:
    """The sample convergence bound as the paper states it (eq. 23), for shared draws.

    C_S(P) ≤ kl⁻¹(Ĉ_S, ln(2/δ')/L): `shared_draws` at δ'/2, the two-sided version.

    >>> round(float(langford_caruana(0.08, 30_000, 0.001)), 4)
    0.0862
    """
    check_delta(delta)
    return shared_draws(estimate, policies, float(delta) / 2)
