"""The certificate, the δ budget that it spends, and the theorems applied to recorded costs."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
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
    constraints: Sequence[str]  # under which, in words
    budget: Mapping[str, float]  # how delta was spent
    hashes: Mapping[str, str]  # SHA-256 of the files that the certificate rests on
    versions: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The promise in one English sentence, its number rounded upwards."""
        confidence = f"With confidence {confidence_percent(self.delta)}"
        if self.policy is None:
            who = f"a policy drawn afresh from the posterior over {self.policies} policies"
        else:
            name = self.policy if self.policy_name is None else f"“{self.policy_name}”"
            who = f"policy {name}"
        if self.binary:
            what = f"fails in at most {percent_up(self.bound)} of new environments"
        else:
            what = f"has an expected cost of at most {round_up(self.bound)} in new environments"
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
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f"certificate.json is not a certificate of format {FORMAT}")
        fields = {key: value for key, value in record.items() if key not in ("format", "sentence")}
        try:
            certificate = cls(**{**fields, "constraints": tuple(fields["constraints"])})
        except (TypeError, KeyError):
            raise ValueError("certificate.json is not a certificate: it has other fields") from None
        _check_types(certificate)
        return certificate


def _check_types(c: Certificate) -> None:
    """A stranger's file may hold anything."""
    numbers = {"bound": c.bound, "delta": c.delta, "empirical_cost": c.empirical_cost, "kl": c.kl}
    texts = {"method": c.method, "objective": c.objective}
    wrong = [name for name, value in texts.items() if not isinstance(value, str)]
    wrong += [name for name in ("environments", "policies") if type(getattr(c, name)) is not int]
    wrong += [] if c.policy is None or type(c.policy) is int else ["policy"]
    wrong += [] if isinstance(c.policy_name, str | None) else ["policy_name"]
    wrong += [] if isinstance(c.binary, bool) else ["binary"]
    for name in ("budget", "hashes", "versions"):
        if not isinstance(getattr(c, name), dict):
            wrong.append(name)
        elif name == "budget":
            numbers |= {f"budget of {key}": value for key, value in c.budget.items()}
    wrong += [name for name, value in numbers.items() if type(value) not in (int, float)]
    if not wrong:
        wrong = [name for name, value in numbers.items() if not abs(value) < 1e300]
    if wrong:
        raise ValueError(f"certificate.json is not a certificate: bad {wrong[0]}")


def confidence_percent(delta: float) -> str:
    """1 - δ as a percentage, never rounded up.

    >>> confidence_percent(0.01), confidence_percent(1e-12)
    ('99 %', '1 - 1e-12')
    """
    if delta < 1e-8:
        return f"1 - {delta:g}"
    exact = 100 * (1 - Decimal(repr(float(delta))))
    return f"{exact.quantize(Decimal('1e-8'), ROUND_FLOOR).normalize():f} %"


def round_up(value: float, digits: int = 4) -> str:
    """A number with so many decimals, rounded upwards: how every bound is shown.

    >>> round_up(0.21394001)
    '0.2140'
    """
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING):f}"


def percent_up(fraction: float) -> str:
    """A fraction as a percentage with two decimals, rounded upwards.

    >>> percent_up(0.120601)
    '12.07 %'
    """
    return f"{Decimal(round_up(fraction)) * 100:.2f} %"


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


def issue(
    costs: Costs,
    prior: Categorical,
    posterior: Categorical,
    method: str,
    budget: Budget,
    objective: str,
    constraints: Sequence[str] = (),
) -> Certificate:
    """Certify a posterior by a theorem, at the share of δ that the budget has for it.

    r̂ and KL are computed here, from the posterior itself, and enter the theorem rounded upwards.
    The PAC-Bayes methods hold for every posterior; occam for a single policy.
    """
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
    if not 0 <= bound <= 1:
        raise ArithmeticError(f"{method} gave {bound}, which is no bound: please report this")
    return Certificate(
        bound=float(bound),
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
        constraints=tuple(constraints),
        budget=dict(budget.spent),
        hashes=costs.digests | {"prior": prior.digest, "posterior": posterior.digest},
        versions=versions(),
    )


def occam_bounds(costs: Costs, prior: Categorical, delta: float) -> NDArray[np.float64]:
    """Occam's bound for every policy, all valid at once; shape (policies,)."""
    n, loss = costs.environments, _rounding(costs)
    weights = prior.probabilities * (1 - loss)
    if costs.binary:
        return occam_exact_tail(costs.failures, n, weights, delta)
    return occam_kl(np.minimum(costs.means * (1 + loss), 1), n, weights, delta)


def _rounding(costs: Costs) -> float:
    """More than what a sum over the environments and one over the policies lose, relatively."""
    return (costs.environments + 8 * costs.policies + 8) * float(np.finfo(float).eps)
