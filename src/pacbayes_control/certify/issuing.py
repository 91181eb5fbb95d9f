"""Theorems applied to recorded costs: the one place where certificates are made.

r̂ and KL are computed here, from the distributions themselves, and enter a theorem rounded upwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from pacbayes_control.bounds import (
    fresh_draws,
    maurer,
    maurer_xi,
    mcallester_pinsker,
    occam_exact_tail,
    occam_kl,
    shared_draws,
    single_draw,
)
from pacbayes_control.bounds.shift import tilted_maurer
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget, Certificate, Constraint, versions, words_of
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian, merged_ranges

PAC_BAYES = {"kl": maurer_xi, "kl-maurer": maurer, "pinsker": mcallester_pinsker}
METHODS = (*PAC_BAYES, "occam")
TILTED = "tilted"  # the method for graded costs and KL balls, at one of several tilts
GIVEN = "given in advance"
SAMPLING = "sampling"  # the budget's name for what sampled policies may miss


@dataclass(frozen=True)
class Provenance:
    """What a certificate says of how its posterior came about."""

    objective: str  # what was minimised
    prior: str = GIVEN
    constraints: Sequence[Constraint] = ()


def issue(
    costs: Costs,
    prior: Categorical,
    posterior: Categorical,
    method: str,
    budget: Budget,
    provenance: Provenance,
) -> Certificate:
    """Certify a posterior over finitely many policies, at the budget's share for the method.

    The PAC-Bayes methods hold for every posterior; occam for a single policy.
    """
    if costs.draws is not None:
        raise ValueError(
            "these are costs of draws from a posterior, not of policies to choose from"
        )
    empirical_cost = min(1.0, float(posterior.probabilities @ costs.means))
    kl = posterior.kl(prior)
    policy = None
    if method == "occam":
        policy = posterior.single()
        bound = occam_bounds(costs, prior, budget.spent[method])[policy]
    else:
        loss = _rounding(costs)
        cost_up, kl_up = min(1.0, empirical_cost * (1 + loss)), kl * (1 + loss) + 4 * loss
        bound = PAC_BAYES[method](cost_up, kl_up, costs.environments, budget.spent[method])
    return _certificate(
        costs,
        prior,
        posterior,
        method,
        budget,
        provenance,
        bound=float(bound),
        empirical_cost=empirical_cost,
        kl=kl,
        policies=costs.policies,
        policy=policy,
        policy_name=costs.names[policy] if policy is not None and costs.names else None,
    )


def issue_sampled(
    costs: Costs,
    prior: DiagonalGaussian,
    posterior: DiagonalGaussian,
    method: str,
    budget: Budget,
    provenance: Provenance,
) -> Certificate:
    """Certify a Gaussian posterior from the costs of policies drawn from it (paper: eq. 24).

    The budget has a share for the method, and one for `sampling`. The costs know whether their
    draws were fresh or shared.
    """
    if costs.draws is None:
        raise ValueError("a Gaussian posterior is certified from draws: use certify_posterior")
    check_stream(costs, "certify", posterior)
    if method not in PAC_BAYES or not {method, SAMPLING} <= budget.spent.keys():
        raise ValueError(f"the budget needs a share for {SAMPLING} and one for the method {method}")
    loss, shared = _rounding(costs), costs.draws == "shared"
    empirical_cost = min(1.0, float(costs.means.mean()))
    cost_up = min(1.0, empirical_cost * (1 + loss))
    kl = posterior.kl(prior)
    kl_up = kl + 1e-13 * (len(posterior) + float(np.sum(_kl_terms(posterior, prior))))
    if shared:
        cost_bound = float(shared_draws(cost_up, costs.policies, budget.spent[SAMPLING]))
    else:
        cost_bound = float(fresh_draws(cost_up, costs.values.size, budget.spent[SAMPLING]))
    bound = PAC_BAYES[method](cost_bound, kl_up, costs.environments, budget.spent[method])
    return _certificate(
        costs,
        prior,
        posterior,
        method,
        budget,
        provenance,
        bound=float(bound),
        empirical_cost=empirical_cost,
        kl=kl,
        parameters=len(posterior),
        training_cost_bound=cost_bound,
        draws=costs.policies,
        shared_draws=shared,
    )


def issue_tilted(
    costs: Costs,
    prior: Categorical,
    posterior: Categorical,
    tilt: float,
    ball: Ball,
    budget: Budget,
    provenance: Provenance,
) -> Certificate:
    """Certify a posterior on every D' in a KL ball, at the budget's share for this tilt."""
    if costs.draws is not None or ball.divergence != "kl":
        raise ValueError("tilted certificates are for finitely many policies and kl balls")
    n, delta, loss = costs.environments, budget.spent[TILTED], _rounding(costs)
    tilted = float(posterior.probabilities @ costs.tilted_means(tilt))
    tilted_up, kl = min(1.0, tilted * (1 + 2 * loss + 1e-13)), posterior.kl(prior)
    kl_up = kl * (1 + loss) + 4 * loss
    bound, alone = (
        float(tilted_maurer(tilted_up, kl_up, n, delta, radius, tilt))
        for radius in (ball.radius, 0.0)
    )
    return _certificate(
        costs,
        prior,
        posterior,
        TILTED,
        budget,
        provenance,
        bound=bound,
        empirical_cost=min(1.0, float(posterior.probabilities @ costs.means)),
        kl=kl,
        policies=costs.policies,
        ball=ball,
        bound_without_shift=alone,
        tilt=tilt,
    )


def issue_single_draw(
    costs: Costs,
    prior: DiagonalGaussian,
    posterior: DiagonalGaussian,
    budget: Budget,
    provenance: Provenance,
) -> Certificate:
    """Certify the one policy that was drawn from a Gaussian posterior, and is kept for good.

    The costs are of that policy alone, and carry its parameters.
    """
    if costs.policies != 1 or costs.parameters is None or costs.draws is not None:
        raise ValueError("a single draw is certified from the costs of one policy of known weights")
    check_stream(costs, "single draw", posterior)
    policy = costs.parameters[0]
    check_typical(posterior, policy)
    ratio = posterior.log_ratio(prior, policy)
    terms = _ratio_terms(posterior, policy) + _ratio_terms(prior, policy)
    ratio_up = ratio + 1e-13 * (len(posterior) + float(np.sum(np.abs(terms))))
    empirical_cost = min(1.0, float(costs.means[0]))
    cost_up = min(1.0, empirical_cost * (1 + _rounding(costs)))
    bound = single_draw(cost_up, ratio_up, costs.environments, budget.spent["single-draw"])
    return _certificate(
        costs,
        prior,
        posterior,
        "single-draw",
        budget,
        provenance,
        bound=float(bound),
        empirical_cost=empirical_cost,
        kl=ratio,
        parameters=len(posterior),
        policy=0,
        policy_name=costs.names[0] if costs.names else None,
    )


def check_stream(costs: Costs, stream: str, posterior: DiagonalGaussian) -> None:
    """An error unless the policies were drawn for a certificate of this posterior.

    Draws of any other stream may have been looked at before the posterior was fixed.
    """
    record = costs.origin.get("policies")
    policies = record if isinstance(record, Mapping) else {}
    drawn = policies.get("stream")
    if drawn != stream:
        raise ValueError(
            f"the policies were drawn from the stream {drawn!r}, and a certificate counts draws "
            f"from the stream {stream!r} alone, which nobody has looked at"
        )
    if policies.get("posterior") != posterior.parameters_digest:
        raise ValueError("the policies were not drawn from the posterior that is to be certified")


def check_policies_unseen(costs: Costs) -> None:
    """An error where a part of every policy, such as an extractor, has seen what is counted."""
    mine = costs.range
    if costs.policies_seen and mine is None:
        raise ValueError("the policies have seen environments, and the costs do not tell theirs")
    for other in costs.policies_seen:
        if mine and mine.overlaps(other):
            raise ValueError(
                f"a part of every policy was learnt from some of these environments (stream "
                f"{other.stream!r}, {other.start} to {other.stop}): the bound may count only others"
            )


def check_typical(posterior: DiagonalGaussian, policy: NDArray) -> None:
    """An error for a policy that is hardly a draw from the posterior, such as its mean.

    Σ (w - μ)²/s is χ² distributed with as many degrees of freedom as there are parameters: one draw
    in a thousand million lies outside of these limits.
    """
    if policy.shape != posterior.mean.shape:
        raise ValueError(f"a policy of {len(posterior)} parameters is needed, not {policy.shape}")
    with np.errstate(all="ignore"):
        distance = float(np.sum((policy - posterior.mean) ** 2 / posterior.variance))
    size = len(posterior)
    if not min(chdtr(size, distance), chdtrc(size, distance)) > 5e-10:
        raise ValueError("the policy is no draw from the posterior: it lies where none ever does")


def occam_bounds(costs: Costs, prior: Categorical, delta: float) -> NDArray[np.float64]:
    """Occam's bound for every policy, all valid at once; shape (policies,)."""
    n, loss = costs.environments, _rounding(costs)
    weights = prior.probabilities * (1 - loss)
    if costs.binary:
        return occam_exact_tail(costs.failures, n, weights, delta)
    return occam_kl(np.minimum(costs.means * (1 + loss), 1), n, weights, delta)


def _certificate(
    costs: Costs,
    prior: Categorical | DiagonalGaussian,
    posterior: Categorical | DiagonalGaussian,
    method: str,
    budget: Budget,
    provenance: Provenance,
    bound: float,
    empirical_cost: float,
    kl: float,
    **fields: Any,
) -> Certificate:
    """What every certificate has; None for the fields that a kind of posterior lacks."""
    if not 0 <= bound <= 1:
        raise ArithmeticError(f"{method} gave {bound}, which is no bound: please report this")
    check_policies_unseen(costs)
    absent = ("policies", "parameters", "training_cost_bound", "draws", "shared_draws")
    absent += ("policy", "policy_name", "ball", "bound_without_shift", "tilt")
    return Certificate(
        bound=bound,
        method=method,
        delta=budget.total,
        environments=costs.environments,
        set_aside=set_aside_by(prior, costs),
        empirical_cost=empirical_cost,
        kl=kl,
        binary=costs.binary,
        noise=costs.noise,
        prior=provenance.prior,
        objective=provenance.objective,
        constraints=tuple(provenance.constraints),
        budget=dict(budget.spent),
        hashes=costs.digests | {"prior": prior.digest, "posterior": posterior.digest},
        versions=versions(costs.origin),
        incidents=costs.incidents,
        cost_rule=words_of(costs.origin, "cost_rule"),
        distribution=words_of(costs.origin, "distribution"),
        **(dict.fromkeys(absent) | fields),  # type: ignore[arg-type]
    )


def set_aside_by(prior: Categorical | DiagonalGaussian, costs: Costs) -> int:
    """How many environments of the same stream were used before: the bound does not count them."""
    mine = costs.range
    ranges = merged_ranges([*(prior.seen or ()), *costs.policies_seen])
    return sum(r.stop - r.start for r in ranges if mine and r[:2] == mine[:2])


def _rounding(costs: Costs) -> float:
    """More than what a sum over the environments and one over the policies lose, relatively."""
    return (costs.environments + 8 * costs.policies + 8) * float(np.finfo(float).eps)


def _kl_terms(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> NDArray[np.float64]:
    """Sizes of what is added up in a divergence: its rounding is far below 1e-13 of them."""
    ratio = posterior.variance / prior.variance
    return ratio + np.abs(np.log(ratio)) + (posterior.mean - prior.mean) ** 2 / prior.variance


def _ratio_terms(gaussian: DiagonalGaussian, policy: NDArray) -> NDArray[np.float64]:
    return (policy - gaussian.mean) ** 2 / gaussian.variance + np.abs(np.log(gaussian.variance))
