"""Environments added until the bound is small enough: one δ covers every number of them.

PAC-Bayes by bets holds for all N at once, so that N may depend on the bounds seen before. All of
them are over the first N environments of a stream, at numbers that are declared: those of
`looks.growth`, and not as chunks of rollouts happen to finish.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import BETTING
from pacbayes_control.certify.looks import Look, growth, list_digest
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import round_up
from pacbayes_control.learn.finite import learn_finite
from pacbayes_control.learn.plan import Plan
from pacbayes_control.rollouts import manifest
from pacbayes_control.rollouts.growing import GrowingCosts
from pacbayes_control.rollouts.pools import open_workers


def learn_until(
    growing: GrowingCosts, plan: Plan, prior: Categorical | None = None
) -> Run[Categorical]:
    """Add environments until the bound is at most that of the plan, or there are no more.

    Args:
        growing: the costs, of as many environments as there may be
        plan: until and delta
        prior: over the policies; by default uniform over those that differ
    """
    target, at_most = plan.until, len(growing.environments)
    assert target is not None
    begun, run = _begun(growing, plan), None
    remark = "" if begun else f"at most {at_most * len(growing.policies):,}"
    with open_workers(growing.task, growing.execution) as here:
        growing = replace(growing, execution=here)
        for n in growth(at_most):
            if n < begun:  # an earlier call went on from there
                continue
            costs = _looked_at(growing, growing.of_first(n, remark), plan)
            run = learn_finite(costs, plan.delta, method=BETTING, prior=prior)
            bound = run.certificate.bound
            remark = f"bound {round_up(bound)} at {n:,} environments, {target:.12g} asked for"
            growing.tell(n, remark, last=bound <= target or n == at_most)
            if bound <= target:
                break
    assert run is not None
    return replace(run, certificate=replace(run.certificate, until=target, at_most=at_most))


def bounds_on_the_way(run: Run[Categorical]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The bounds at each number of environments up to that of a run, which all hold at once."""
    c, values = run.certificate, run.costs.values
    assert c.at_most is not None
    numbers = tuple(n for n in growth(c.at_most) if n < c.environments)
    share, prior = c.budget[BETTING], run.prior.probabilities
    runs = [learn_finite(Costs(values[:n]), share, method=BETTING, prior=prior) for n in numbers]
    bounds = [before.certificate.bound for before in runs]
    return (*numbers, c.environments), (*bounds, c.bound_on_training)


def check_store(growing: GrowingCosts, plan: Plan) -> None:
    """Raise ValueError, before anything is rolled out, if the store cannot be continued."""
    begun, at_most = _begun(growing, plan), len(growing.environments)
    if begun > at_most:
        raise ValueError(
            f"{growing.store} holds rollouts of {begun:,} environments, more than {at_most:,}: "
            "allow as many (--at-most), or delete it to begin again"
        )


def _begun(growing: GrowingCosts, plan: Plan) -> int:
    """Environments that an earlier call has begun to roll out in; an error if not for this plan."""
    store = growing.store
    if store is None or not (store / manifest.MANIFEST).exists():
        return 0
    record = manifest.read_manifest(store)
    begun = int(record["size"][0])
    manifest.check_covered_looks(store, record, _look(growing, begun, plan), _way(plan))
    return begun


def _looked_at(growing: GrowingCosts, costs: Costs, plan: Plan) -> Costs:
    """The costs without a list of looks to pay for, once this look is recorded in the store."""
    if growing.store is None:
        return costs
    look = _look(growing, costs.environments, plan)
    manifest.record_covered_look(growing.store, look, _way(plan))
    return costs.with_origin(looks=None)


def _look(growing: GrowingCosts, environments: int, plan: Plan) -> Look:
    policies = np.asarray(growing.policies)
    return Look(environments, list_digest(policies), len(policies), plan.delta)


def _way(plan: Plan) -> str:
    """The theorem that covers all looks, and the prior, which must be the same in all of them."""
    words = f"as environments are added: {manifest.COVERED}"
    return f"method {BETTING}, {plan.prior_digest}, {words}"
