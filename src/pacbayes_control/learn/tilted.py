"""Graded costs under a shift: a bound that uses how little the costs vary.

`certify.shift.under_shift` extends a bound to a ball using only the mean cost, as if every cost
were 0 or 1. For graded costs the mean of e^{λC} gives a smaller bound. The best λ depends on the
costs, so a few are fixed in advance, and each has a share of δ.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pacbayes_control.bounds.shift import check_tilt
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import TILTED, Basis, Provenance, issue_tilted
from pacbayes_control.certify.priors import describe_prior, prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import SHARE
from pacbayes_control.learn.finite import minimise

TILTS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def learn_tilted(
    costs: Costs | ArrayLike,
    ball: Ball,
    delta: float = 0.01,
    prior: Categorical | ArrayLike | None = None,
    tilts: Sequence[float] = TILTS,
) -> Run[Categorical]:
    """Minimise the tilted bound over posteriors and tilts, and certify on every D' in a KL ball.

    Each tilt has an equal share of δ, after the share of an estimated ball, so any may be chosen.

    Args:
        costs: (environments, policies)
        ball: a kl ball
        delta: probability that the certificate may be wrong, including the ball's share
        prior: over the policies; by default uniform over those that differ
        tilts: values of λ, chosen before the costs were seen

    >>> import numpy as np
    >>> costs = Costs(np.random.default_rng(0).uniform(0.1, 0.3, (2000, 4)))
    >>> run = learn_tilted(costs, Ball("kl", 0.08))
    >>> round(run.certificate.bound, 2)  # the mean cost alone gives 0.42
    0.3
    """
    costs = costs if isinstance(costs, Costs) else Costs(costs)
    if ball.divergence != "kl":
        raise ValueError(f"tilted certificates are for kl balls, not for {ball.divergence}")
    if not tilts:
        raise ValueError("a tilted certificate needs at least one tilt")
    for tilt in tilts:
        check_tilt(tilt)
    budget = Budget(delta)
    if ball.delta:
        budget.spend(SHARE, ball.delta)
    share = budget.spend(TILTED, budget.left / len(tilts))
    if len(tilts) > 1:
        budget.spend(f"{TILTED} by the other {len(tilts) - 1} tilts")
    prior = prior_for(costs, prior)
    words = describe_prior(prior, costs)
    certificates = []
    for tilt in tilts:
        means = costs.tilted_means(tilt)
        posterior = minimise(means, costs.environments, prior, share, "kl")
        posterior = with_costs_used(posterior, prior, costs)
        certificate = issue_tilted(
            Basis(costs, prior, posterior, budget, Provenance(TILTED, words)), tilt, ball
        )
        certificates.append((certificate.bound, certificate, posterior))
    _, certificate, posterior = min(certificates, key=lambda entry: entry[0])
    return Run(certificate, costs, prior, posterior)
