"""The certificate, the δ budget that it spends, and the theorems applied to recorded costs."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

import pacbayes_control
from pacbayes_control.bounds import (
    maurer,
    maurer_xi,
    mcallester_pinsker,
    occam_exact_tail,
    occam_kl,
)
from pacbayes_control.costs import Costs
from pacbayes_control.distributions import Categorical

FORMAT = 1


@dataclass
class Budget:
    """The probability of error that a run may spend, handed out by name.

    >>> budget = Budget(0.01)
    >>> budget.spend("kl", 0.006), budget.left
    (0.006, 0.004)
    """

    total: float
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.total < 1:
            raise ValueError(f"delta = {self.total} must lie strictly between 0 and 1")

    @property
    def left(self) -> float:
        """What has not been spent."""
        return self.total - sum(self.spent.values())

    def spend(self, name: str, delta: float | None = None) -> float:
        """Take `delta`, or all that is left, for the theorem of this name."""
        delta = self.left if delta is None else delta
        if name in self.spent:
            raise ValueError(f"the budget has been spent on {name!r} already")
        if not 0 < delta <= self.left * (1 + 1e-12):
            raise ValueError(f"delta = {delta:g} for {name!r} overspends: {self.left:g} is left")
        self.spent[name] = delta
        return delta


@dataclass(frozen=True)
class Certificate:
    """A theorem applied to recorded costs. The same inputs give the same record, byte for byte."""

    bound: float  # on the expected cost in a new environment
    method: str  # the theorem: kl, kl-maurer, pinsker or occam
    delta: float  # the probability, over the draw of the environments, that the bound is wrong
    environments: int  # N
    policies: int  # L
    empirical_cost: float  # on the N environments
    kl: float  # KL(posterior‖prior); -ln of the prior's weight for a single policy
    policy: int | None  # the one that is certified, or None for the distribution over all
    policy_name: str | None
    binary: bool  # whether every cost was 0 or 1
    objective: str  # what the posterior was chosen to minimise
    budget: Mapping[str, float]  # how delta was spent
    hashes: Mapping[str, str]  # SHA-256 of the files that the certificate rests on
    versions: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The promise in one English sentence, its number rounded upwards."""
        confidence = f"With confidence {100 * (1 - self.delta):.10g} %"
        if self.policy is None:
            who = f"a policy drawn afresh from the posterior over {self.policies} policies"
        else:
            who = f"policy {self.policy}"
            who += f" ({self.policy_name})" if self.policy_name else ""
        if self.binary:
            what = f"fails in at most {percent_up(self.bound)} of new environments"
        else:
            cost = Decimal(self.bound).quantize(Decimal("0.0001"), ROUND_CEILING)
            what = f"has an expected cost of at most {cost} in new environments"
        source = f"drawn like the {self.environments} it was learnt from"
        return f"{confidence}, {who} {what} {source}."

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"format": FORMAT, **asdict(self), "sentence": self.sentence}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Certificate:
        """Read what `to_dict` wrote."""
        try:
            certificate = cls(
                **{k: v for k, v in record.items() if k not in ("format", "sentence")}
            )
            numbers = [
                certificate.bound,
                certificate.delta,
                certificate.empirical_cost,
                certificate.kl,
            ]
            numbers += list(certificate.budget.values())
            if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
                raise ValueError("not a finite number")
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"certificate.json is not a certificate ({error})") from None
        return certificate


def percent_up(fraction: float) -> str:
    """A fraction as a percentage with two decimals, rounded upwards.

    >>> percent_up(0.120601)
    '12.07 %'
    """
    return f"{Decimal(fraction).quantize(Decimal('0.0001'), ROUND_CEILING) * 100:.2f} %"


def versions() -> dict[str, str]:
    """What computed the certificate."""
    return {
        "pacbayes-control": pacbayes_control.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


# ---- applying a theorem -------------------------------------------------------------------------

PAC_BAYES = {"kl": maurer_xi, "kl-maurer": maurer, "pinsker": mcallester_pinsker}
METHODS = (*PAC_BAYES, "occam")


def certify_posterior(
    costs: Costs,
    prior: Categorical,
    posterior: Categorical,
    method: str,
    budget: Budget,
    objective: str,
) -> Certificate:
    """The certificate of a distribution over policies, by a theorem that holds for all of them.

    r̂ and KL are computed here, from the posterior itself, and enter the theorem rounded upwards.
    """
    n = costs.environments
    empirical_cost = min(1.0, float(posterior.probabilities @ costs.means))
    kl = posterior.kl(prior)
    # Sums of n and of L terms, none negative but for kl's, lose at most this much.
    loss = (n + costs.policies + 8) * float(np.finfo(float).eps)
    bound = PAC_BAYES[method](
        min(1.0, empirical_cost * (1 + loss)), kl * (1 + loss) + 4 * loss, n, budget.spent[method]
    )
    return _certificate(
        float(bound), method, empirical_cost, kl, None, objective, costs, prior, posterior, budget
    )


def certify_policy(costs: Costs, prior: Categorical, policy: int, budget: Budget) -> Certificate:
    """The certificate of one policy by Occam's bound: the exact tail for 0/1 costs, else kl."""
    delta = budget.spent["occam"]
    posterior = Categorical.one(policy, costs.policies)
    kl = posterior.kl(prior)
    bound = occam_bounds(costs, prior, delta)[policy]
    return _certificate(
        float(bound),
        "occam",
        float(costs.means[policy]),
        kl,
        policy,
        "occam",
        costs,
        prior,
        posterior,
        budget,
    )


def occam_bounds(costs: Costs, prior: Categorical, delta: float) -> NDArray[np.float64]:
    """Occam's bound for every policy, all valid at once; shape (policies,)."""
    n, weights = costs.environments, prior.probabilities
    loss = (n + costs.policies + 8) * float(np.finfo(float).eps)
    if costs.binary:
        return occam_exact_tail(costs.failures, n, weights * (1 - loss), delta)
    return occam_kl(np.minimum(costs.means * (1 + loss), 1), n, weights * (1 - loss), delta)


def _certificate(
    bound: float,
    method: str,
    empirical_cost: float,
    kl: float,
    policy: int | None,
    objective: str,
    costs: Costs,
    prior: Categorical,
    posterior: Categorical,
    budget: Budget,
) -> Certificate:
    return Certificate(
        bound=bound,
        method=method,
        delta=budget.total,
        environments=costs.environments,
        policies=costs.policies,
        empirical_cost=empirical_cost,
        kl=kl,
        policy=policy,
        policy_name=costs.names[policy] if policy is not None and costs.names else None,
        binary=costs.binary,
        objective=objective,
        budget=dict(budget.spent),
        hashes={"costs": costs.digest, "prior": prior.digest, "posterior": posterior.digest},
        versions=versions(),
    )
