"""Theorems applied to recorded costs: all certificates are made here.

r̂ and KL are computed here, from the distributions themselves, and rounded upwards for the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from pacbayes_control import bounds
from pacbayes_control.bounds.anytime import highest_cost
from pacbayes_control.bounds.betting import GRID, betting_draws, betting_pac_bayes
from pacbayes_control.bounds.distribution import distribution_margin
from pacbayes_control.bounds.shift import tilted_maurer
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import (
    Budget,
    Certificate,
    Constraint,
    versions,
)
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, D, DiagonalGaussian
from pacbayes_control.certify.files import sha256
from pacbayes_control.certify.looks import (
    EARLIER,
    ORIGIN,
    OTHER,
    UNSEEN,
    Look,
    declared_looks,
    describe_fault,
    looks_until,
)
from pacbayes_control.certify.occam import (
    occam_bounds,
    policy_weights,
    rounding_error,
    simulated_bound,
    simulated_levels,
    simulated_limits,
)
from pacbayes_control.certify.parts import SHARE as PARTS
from pacbayes_control.certify.parts import CertifiedPart, Part, costs_in
from pacbayes_control.certify.priors import GIVEN, prior_for, simulation_words
from pacbayes_control.certify.ranges import merged_ranges
from pacbayes_control.certify.simulation import SHARE as SIMULATION
from pacbayes_control.certify.simulation import SimulationUse
from pacbayes_control.certify.statistics import FUNCTION, MEAN, Statistic

PAC_BAYES = {
    "kl": bounds.maurer_xi,
    "kl-maurer": bounds.maurer,
    "pinsker": bounds.mcallester_pinsker,
}
BETTING = "betting"  # PAC-Bayes by bets
METHODS = ("occam", *PAC_BAYES, BETTING)
ANYTIME = "anytime"  # for one policy, and every number of environments at once
TILTED = "tilted"  # the method for graded costs and KL balls, at one of several tilts
SAMPLING = "sampling"  # the budget's name for the bound on the cost from sampled policies
ONE_AT_A_TIME = "simulation joins the mean cost of one policy of a list: use occam, without parts"


@dataclass(frozen=True)
class Provenance:
    """How the prior and the posterior of a certificate were chosen."""

    objective: str  # the quantity that the posterior minimises
    prior: str = GIVEN
    constraints: Sequence[Constraint] = ()


@dataclass(frozen=True, eq=False)
class Basis(Generic[D]):
    """The inputs of a certificate; the kind of distribution in brackets."""

    costs: Costs
    prior: D
    posterior: D
    budget: Budget  # with a share for each theorem that the method uses
    provenance: Provenance

    def certificate(self, method: str, bound: float, **fields: Any) -> Certificate:
        """A certificate of the fields that a method has of its own, with those that all have."""
        costs, prior, posterior = self.costs, self.prior, self.posterior
        if not 0 <= bound <= 1:
            raise ArithmeticError(f"{method} gave {bound}: please report this")
        if (costs.simulation is None) != (fields.get("simulation") is None):
            raise ValueError(ONE_AT_A_TIME)
        check_policies_unseen(costs)
        if isinstance(posterior, Categorical):
            fields["policies"] = costs.policies
        else:
            fields["parameters"] = len(posterior)
        if fields.get("policy") is not None and costs.names:
            fields["policy_name"] = costs.names[fields["policy"]]
        return Certificate(
            method=method,
            bound=bound,
            delta=self.budget.total,
            environments=costs.environments,
            set_aside=set_aside_by(prior, costs),
            binary=costs.binary,
            graded=costs.graded,
            noise=costs.noise,
            prior=self.provenance.prior,
            objective=self.provenance.objective,
            constraints=tuple(self.provenance.constraints),
            budget=dict(self.budget.spent),
            hashes=costs.digests
            | {"prior": sha256(prior.to_bytes()), "posterior": sha256(posterior.to_bytes())},
            versions=versions(costs.origin),
            incidents=costs.incidents,
            cost_rule=costs.cost_rule,
            distribution=costs.distribution,
            unit=costs.trial_facts.unit,
            candidates=costs.trial_facts.candidates,
            tasks=costs.trial_facts.task_count,
            **looks_paid(self.budget, costs),
            **fields,
        )


def issue(
    basis: Basis[Categorical], method: str, of: Statistic = MEAN, stake: float | None = None
) -> Certificate:
    """Certify a posterior over finitely many policies, at the budget's share for the method.

    The PAC-Bayes methods hold for every posterior; occam for a single policy.

    Args:
        basis: costs, distributions and budget
        method: one of METHODS, or anytime
        of: the statistic of the cost; other than the mean for occam only
        stake: for the method betting
    """
    costs, prior, posterior = basis.costs, basis.prior, basis.posterior
    if costs.draws is not None:
        raise ValueError(
            "these are costs of draws from a posterior, not of policies to choose from"
        )
    empirical_cost = min(1.0, float(posterior.probabilities @ costs.means))
    kl, delta, loss = posterior.kl(prior), basis.budget.spent[method], rounding_error(costs)
    measured = {"empirical_cost": empirical_cost, "kl": kl}
    kl_up = kl * (1 + loss) + 4 * loss
    if costs.simulation is not None:
        bound, known = _simulated(basis, method, of)
        measured |= known
    elif method == "occam":
        policy = posterior.single()
        measured |= {"policy": policy, "of": str(of)} | _margin(basis, policy)
        [bound], [threshold] = occam_bounds(costs, prior, delta, of, [policy])
        if of.kind == "cvar":
            measured["threshold"] = float(threshold)
        if of.kind == "cvar" or (of.kind == "mean" and not costs.success_or_failure):
            measured["grid"] = GRID
    elif method == ANYTIME:
        policy = measured["policy"] = posterior.single()
        level = float(policy_weights(costs, prior)[policy]) * delta
        bound = highest_cost(costs.values[:, policy], level)
    elif method == BETTING:
        assert stake is not None
        p = posterior.probabilities * (1 + loss)
        bound = betting_pac_bayes(costs.values, p, kl_up, delta, stake=stake)
        measured["stake"] = stake
    else:
        cost_up = min(1.0, empirical_cost * (1 + loss))
        bound = PAC_BAYES[method](cost_up, kl_up, costs.environments, delta)
    return basis.certificate(method, float(bound), **measured)


def _simulated(
    basis: Basis[Categorical], method: str, of: Statistic
) -> tuple[float, dict[str, Any]]:
    """The bound of a policy with simulation beside its trials, and the fields that it needs."""
    costs, prior, spent = basis.costs, basis.prior, basis.budget.spent
    if method not in ("occam", ANYTIME) or of.kind != "mean" or SIMULATION not in spent:
        raise ValueError(ONE_AT_A_TIME)
    policy, anytime = basis.posterior.single(), method == ANYTIME
    levels = simulated_levels(costs, prior, policy, (spent[method], spent[SIMULATION]))
    bound = simulated_bound(costs, policy, levels, anytime=anytime)
    limits = simulated_limits(costs, policy, levels[1], anytime=anytime)
    alone, delta = costs.with_simulation(None), spent[method] + spent[SIMULATION]
    if basis.provenance.prior == simulation_words(costs):
        prior, _ = prior_for(alone)
    weights = policy_weights(alone, prior)
    without = float(occam_bounds(alone, prior, delta)[0].min())
    if anytime:
        without = highest_cost(costs.values[:, policy], float(weights[policy]) * delta)
    known: dict[str, Any] = {"policy": policy, "of": str(of)}
    if method == "occam" and not costs.success_or_failure:
        known["grid"] = GRID
    exact = costs.success_or_failure and not anytime
    level = float(weights[policy]) * delta if exact else None
    known["simulation"] = SimulationUse.of(costs, policy, (bound, without), level, limits)
    return bound, known


def _margin(basis: Basis[Categorical], policy: int) -> dict[str, float]:
    """The margin of the policy's distribution function, where a share of δ pays for it."""
    delta = basis.budget.spent.get(FUNCTION)
    if delta is None:
        return {}
    level = policy_weights(basis.costs, basis.prior)[policy] * delta
    return {"margin": distribution_margin(basis.costs.environments, level)}


def issue_with_parts(basis: Basis[Categorical], method: str, parts: Sequence[Part]) -> Certificate:
    """As `issue`, with a bound for each part of the world: see `certify.parts`.

    The budget has a share for the method and one for all parts, which have equal portions of it.
    The policy or the posterior is chosen by the costs in the whole world, and its bounds hold for
    every choice at once: for one policy by its weight in the prior, for a posterior by the KL.
    """
    if method not in ("occam", *PAC_BAYES):
        known = ", ".join(("occam", *PAC_BAYES))
        raise ValueError(f"parts of the world are certified by {known}, and not by {method}")
    costs, share = basis.costs, basis.budget.spent[PARTS] / len(parts)
    if costs.trial_facts.candidates is not None:
        raise ValueError("parts of the world are for rollouts, not for trials of an evaluation log")
    if costs.simulation is not None:
        raise ValueError(ONE_AT_A_TIME)
    whole = issue(basis, method)
    certified = []
    for part in parts:
        count, here = costs_in(part, costs)
        if here is None:
            certified.append(CertifiedPart(str(part), count, None, 1.0, share))
            continue
        budget = Budget(basis.budget.total, {method: share})
        alone = issue(replace(basis, costs=here, budget=budget), method)
        measured = alone.empirical_cost, alone.bound
        certified.append(CertifiedPart(str(part), count, *measured, share))
    return replace(whole, parts=tuple(certified))


def issue_sampled(basis: Basis[DiagonalGaussian], method: str) -> Certificate:
    """Certify a Gaussian posterior from the costs of policies drawn from it (paper: eq. 24).

    The budget has a share for the method, and one for `sampling`. Fresh draws of a task that
    declares its costs as graded are bounded by bets, whatever the recorded costs are.
    """
    costs, prior, posterior = basis.costs, basis.prior, basis.posterior
    if costs.draws is None:
        raise ValueError("a Gaussian posterior is certified from draws: use certify_posterior")
    check_stream(costs, "certify", posterior)
    shares = basis.budget.spent
    if method not in PAC_BAYES or not {method, SAMPLING} <= shares.keys():
        raise ValueError(f"the budget needs a share for {SAMPLING} and one for the method {method}")
    empirical_cost = min(1.0, float(costs.means.mean()))
    cost_up = min(1.0, empirical_cost * (1 + rounding_error(costs)))
    kl, ratio = posterior.kl(prior), posterior.variance / prior.variance
    # The sizes of its terms: the rounding error is far below 1e-13 of their sum.
    sizes = ratio + np.abs(np.log(ratio)) + (posterior.mean - prior.mean) ** 2 / prior.variance
    kl_up = kl + 1e-13 * (len(posterior) + float(np.sum(sizes)))
    shared = costs.draws == "shared"
    drawn: dict[str, Any] = {"draws": costs.policies, "shared_draws": shared}
    if shared:
        cost_bound = float(bounds.shared_draws(cost_up, costs.policies, shares[SAMPLING]))
    elif costs.graded:
        cost_bound = betting_draws(costs.values, shares[SAMPLING])
        drawn["grid"] = GRID
    else:
        cost_bound = float(bounds.fresh_draws(cost_up, costs.values.size, shares[SAMPLING]))
    bound = float(PAC_BAYES[method](cost_bound, kl_up, costs.environments, shares[method]))
    drawn |= {"training_cost_bound": cost_bound, "empirical_cost": empirical_cost, "kl": kl}
    return basis.certificate(method, bound, **drawn)


def issue_tilted(basis: Basis[Categorical], tilt: float, ball: Ball) -> Certificate:
    """Certify a posterior on every D' in a KL ball, at the budget's share for this tilt."""
    costs, posterior = basis.costs, basis.posterior
    if costs.draws is not None or ball.divergence != "kl":
        raise ValueError("tilted certificates are for finitely many policies and kl balls")
    n, delta, loss = costs.environments, basis.budget.spent[TILTED], rounding_error(costs)
    tilted = float(posterior.probabilities @ costs.tilted_means(tilt))
    tilted_up, kl = min(1.0, tilted * (1 + 2 * loss + 1e-13)), posterior.kl(basis.prior)
    kl_up = kl * (1 + loss) + 4 * loss
    bound, alone = (
        float(tilted_maurer(tilted_up, kl_up, n, delta, radius=radius, tilt=tilt))
        for radius in (ball.radius, 0.0)
    )
    empirical_cost = min(1.0, float(posterior.probabilities @ costs.means))
    shifted = {"ball": ball, "bound_without_shift": alone, "tilt": tilt}
    return basis.certificate(TILTED, bound, empirical_cost=empirical_cost, kl=kl, **shifted)


def issue_single_draw(basis: Basis[DiagonalGaussian]) -> Certificate:
    """Certify the one policy that was drawn from a Gaussian posterior and is then fixed.

    The costs are of that policy alone, with its parameters.
    """
    costs, prior, posterior = basis.costs, basis.prior, basis.posterior
    if costs.policies != 1 or costs.parameters is None or costs.draws is not None:
        raise ValueError(
            "a single draw is certified from the costs of one policy, with its parameters"
        )
    check_stream(costs, "single draw", posterior)
    policy = costs.parameters[0]
    check_typical(posterior, policy)
    ratio = posterior.log_ratio(prior, policy)
    terms = _ratio_terms(posterior, policy) + _ratio_terms(prior, policy)
    ratio_up = ratio + 1e-13 * (len(posterior) + float(np.sum(np.abs(terms))))
    empirical_cost = min(1.0, float(costs.means[0]))
    cost_up = min(1.0, empirical_cost * (1 + rounding_error(costs)))
    delta = basis.budget.spent["single-draw"]
    bound = float(bounds.single_draw(cost_up, ratio_up, costs.environments, delta))
    measured = {"empirical_cost": empirical_cost, "kl": ratio, "policy": 0}
    return basis.certificate("single-draw", bound, **measured)


def budget_for(costs: Costs, delta: float, shift: float = 0.0) -> Budget:
    """A budget for a certificate from these costs, with the shares of other looks spent.

    Earlier looks at a growing campaign add their δ to this one's. Looks that were declared
    beforehand share it.

    Args:
        costs: of a campaign, or of one look only
        delta: of this look; of all looks together where they were declared
        shift: the part of it for an estimated ball, which is no part of the look's own

    >>> budget_for(Costs([[0, 1], [1, 1]]), 0.01).left
    0.01
    """
    if not costs.origin.keys() & {*ORIGIN}:
        return Budget(delta)
    declared, own = declared_looks(costs.origin), Budget(delta).total - shift
    share = own / max(1, len(declared))
    *earlier, _ = looks = looks_until(costs.origin, Look.at(costs, share))
    if earlier or declared:
        unseen = costs.origin.get(UNSEEN)
        fault = describe_fault(looks, declared, costs.parameters, unseen=unseen)
        if fault:
            raise ValueError(fault)
    if declared:
        return Budget(delta, {OTHER: own - share}, looks, declared)
    before = math.fsum(look.spent(share) for look in earlier)
    if delta + before >= 1:
        raise ValueError(
            f"delta = {delta:g} and the {before:g} of earlier looks at this campaign are not below "
            "1: no confidence is left for another look"
        )
    return Budget(delta + before, {EARLIER: before} if earlier else {}, looks)


def looks_paid(budget: Budget, costs: Costs) -> dict[str, Any]:
    """The fields of a certificate that tell of looks; none where there was one look only.

    An error if other looks at these costs are not paid for by the budget.
    """
    if costs.origin.keys() & {*ORIGIN} and not budget.looks:
        raise ValueError(
            "the costs are of a campaign that may have been looked at before, and this certificate "
            "does not pay for it: learn from a list of policies"
        )
    if len(budget.looks) < 2 and not budget.declared_looks:
        return {}
    return {"looks": budget.looks, "declared_looks": budget.declared_looks}


def check_stream(costs: Costs, stream: str, posterior: DiagonalGaussian) -> None:
    """An error unless the policies were drawn for a certificate of this posterior.

    Draws from any other stream may have been used before the posterior was fixed.
    """
    record = costs.origin.get("policies")
    policies = record if isinstance(record, Mapping) else {}
    drawn = policies.get("stream")
    if drawn != stream:
        raise ValueError(
            f"the policies were drawn from the stream {drawn!r}: a certificate counts only draws "
            f"from the stream {stream!r}, which is used for nothing else"
        )
    if policies.get("posterior") != posterior.parameters_digest:
        raise ValueError("the policies were not drawn from the posterior that is to be certified")


def check_policies_unseen(costs: Costs) -> None:
    """An error if all policies depend on environments that the bound counts.

    So it is if a part that they share, such as a feature extractor, was learnt from them.
    """
    for other in costs.policies_seen:
        if costs.range is None:
            raise ValueError(
                "the policies depend on environments, and the costs do not record theirs"
            )
        if costs.range.overlaps(other):
            raise ValueError(
                f"a part of every policy was learnt from some of these environments (stream "
                f"{other.stream!r}, {other.start} to {other.stop}): the bound may count only others"
            )


def check_typical(posterior: DiagonalGaussian, policy: NDArray) -> None:
    """An error for a policy that is very unlikely as a draw from the posterior, such as its mean.

    Σ (w - μ)²/s is χ² distributed with as many degrees of freedom as there are parameters: one draw
    in 10⁹ lies outside of these limits.
    """
    if policy.shape != posterior.mean.shape:
        raise ValueError(f"a policy of {len(posterior)} parameters is needed, not {policy.shape}")
    with np.errstate(all="ignore"):
        distance = float(np.sum((policy - posterior.mean) ** 2 / posterior.variance))
    size = len(posterior)
    if not min(chdtr(size, distance), chdtrc(size, distance)) > 5e-10:
        raise ValueError(
            "the policy is not a draw from the posterior: its distance from the mean is impossible"
        )


def set_aside_by(prior: Categorical | DiagonalGaussian, costs: Costs) -> int:
    """The number of environments of the same stream that were used before and do not count."""
    mine = costs.range
    ranges = merged_ranges([*(prior.seen or ()), *costs.policies_seen])
    return sum(r.stop - r.start for r in ranges if mine and r[:2] == mine[:2])


def _ratio_terms(gaussian: DiagonalGaussian, policy: NDArray) -> NDArray[np.float64]:
    return (policy - gaussian.mean) ** 2 / gaussian.variance + np.abs(np.log(gaussian.variance))
