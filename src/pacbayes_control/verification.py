"""verify(): check a run without trusting whoever, or whatever, computed it.

This module shares none of the arithmetic of the bounds. It reads the files of a run, adds up the
costs exactly, and evaluates each theorem in interval arithmetic with 50 digits (mpmath's `iv`),
in which every operation encloses the true result. No inverse is ever computed to decide: that a
bound b is valid is a matter of evaluating kl(r̂‖b), or the binomial tail at b, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certificate import Certificate, round_up
from pacbayes_control.distributions import Categorical, DiagonalGaussian, Seen
from pacbayes_control.run import Run, read_json

PAC_BAYES = ("kl", "kl-maurer", "pinsker")
DIGITS = 50
AGREEMENT = 1e-9  # how closely r̂ and KL as stated must agree with r̂ and KL as recomputed
EXACT_XI_UP_TO = 10_000_000_000

Interval = Any  # mpmath's intervals have no public type
iv: Any = mpmath.iv
mp: Any = mpmath.mp


class InvalidCertificate(ValueError):  # noqa: N818 - a verdict, not a fault of the program
    """A certificate that does not hold."""


@dataclass(frozen=True)
class Verification:
    """What verify() found: the bound as stated, and as recomputed with 50 digits."""

    certificate: Certificate
    recomputed: float  # the smallest bound that the theorem gives, rounded to nearest

    def __str__(self) -> str:
        c = self.certificate
        return (
            f"verified: method {c.method}, stated bound {round_up(c.bound, 12)}, "
            f"recomputed {round_up(self.recomputed, 12)}\n{c.sentence}"
        )


def verify(folder: str | Path) -> Verification:
    """Recompute a run's bound from its files, and raise if the certificate does not hold."""
    folder = Path(folder)
    if folder.name == "certificate.json" and folder.is_file():
        folder = folder.parent
    run = Run.load(folder)
    certificate = run.certificate
    _check_record(run, read_json(folder / "certificate.json").get("sentence"))
    iv.dps = mp.dps = DIGITS
    means = _exact_means(run.costs.values)
    if isinstance(run.posterior, Categorical):
        cost, holds = _finite(run, means)
    else:
        cost, holds = _gaussian(run, means)
    bound = certificate.bound
    if bound < 1 and not holds(iv.mpf(bound)):
        raise InvalidCertificate(
            f"the bound {bound:.6g} is below what {certificate.method} gives on these costs "
            f"({_smallest(holds, cost):.6g})"
        )
    return Verification(certificate, _smallest(holds, cost))


def _check_record(run: Run, sentence: str | None) -> None:
    """Whether the certificate is consistent with itself and about these files."""
    c = run.certificate
    if c.method not in (*PAC_BAYES, "occam", "single-draw"):
        raise InvalidCertificate(f"the method {c.method!r} is unknown")
    digests = run.costs.digests | {"prior": run.prior.digest, "posterior": run.posterior.digest}
    for name in sorted({*digests, *c.hashes}):
        if c.hashes.get(name) != digests.get(name):
            raise InvalidCertificate(f"the certificate is about other {name}: the hash differs")
    _check_kind(run)
    if c.noise != run.costs.noise:
        raise InvalidCertificate("the certificate is wrong about the noise of the rollouts")
    _check_unseen(run)
    if c.set_aside < 0:
        raise InvalidCertificate("a negative number of environments is said to be set aside")
    if c.binary != run.costs.binary:
        raise InvalidCertificate("the certificate is wrong about whether all costs are 0 or 1")
    spent = list(c.budget.values())
    if (
        not 0 < c.delta < 1
        or min(spent, default=0) <= 0
        or math.fsum(spent) > c.delta * (1 + 1e-12)
    ):
        raise InvalidCertificate(f"the budget {dict(c.budget)} overspends delta = {c.delta}")
    if c.method not in c.budget:
        raise InvalidCertificate(f"the budget has nothing for {c.method}")
    if not 0 <= c.bound <= 1:
        raise InvalidCertificate(f"the bound {c.bound} is outside [0, 1]")
    name = run.costs.names[c.policy] if c.policy is not None and run.costs.names else None
    if c.policy_name != name:
        raise InvalidCertificate(f"the certified policy is named {name!r}, not {c.policy_name!r}")
    if sentence != c.sentence:
        raise InvalidCertificate("the sentence does not say what the numbers say")


def _check_unseen(run: Run) -> None:
    """Whether the prior, as far as its file tells, depends on environments that are counted."""
    if not isinstance(run.prior, DiagonalGaussian) or not run.prior.seen:
        return
    origin = run.costs.origin
    fields = [origin.get(name) for name in ("stream", "seed", "start", "stop")]
    if [type(value) for value in fields] != [str, int, int, int]:
        raise InvalidCertificate("the costs do not tell their environments, and the prior saw some")
    if any(Seen(*fields).overlaps(part) for part in run.prior.seen):  # type: ignore[arg-type]
        raise InvalidCertificate("the prior has seen environments that the bound counts")


def _check_kind(run: Run) -> None:
    """Whether the files are of the kind that the method and the certificate's numbers speak of."""
    c, costs = run.certificate, run.costs
    if type(run.prior) is not type(run.posterior) or len(run.prior) != len(run.posterior):
        raise InvalidCertificate("the prior and the posterior are not over the same policies")
    finite = isinstance(run.posterior, Categorical)
    single = c.method == "single-draw"
    sampled = not finite and not single
    if (c.method == "occam" and not finite) or (single and finite):
        raise InvalidCertificate(f"method {c.method} cannot certify a posterior of this kind")
    if (costs.draws is not None) != sampled:
        raise InvalidCertificate("the costs are not what this kind of certificate counts")
    size = len(run.posterior)
    stated = (c.environments, c.policies, c.parameters, c.draws, c.shared_draws)
    actual = (
        costs.environments,
        size if finite else None,
        None if finite else size,
        costs.policies if sampled else None,
        costs.draws == "shared" if sampled else None,
    )
    columns = size if finite else 1 if single else costs.policies
    if stated != actual or costs.policies != columns:
        raise InvalidCertificate(
            "the certificate states another number of environments, policies, parameters or draws"
        )
    if (c.training_cost_bound is not None) != sampled:
        raise InvalidCertificate("a bound on the training cost belongs to sampled policies only")
    if (c.policy is not None) != (c.method in ("occam", "single-draw")):
        raise InvalidCertificate(f"method {c.method} cannot certify what the certificate names")
    if (
        isinstance(run.posterior, Categorical)
        and c.policy is not None
        and not (0 <= c.policy < size and run.posterior.probabilities[c.policy] == 1)
    ):
        raise InvalidCertificate("the posterior is not the single policy that is certified")
    if single and (
        c.policy != 0 or costs.parameters is None or costs.parameters.shape != (1, size)
    ):
        raise InvalidCertificate("the one policy that was drawn is not among the files")


def _check_agrees(name: str, stated: float, recomputed: Interval) -> None:
    if not abs(stated - float(recomputed.mid)) <= AGREEMENT * max(1.0, abs(stated)):
        raise InvalidCertificate(
            f"{name} is stated as {stated:.9g}, and is {float(recomputed.mid):.9g} on these files"
        )


# The test that a bound passes exactly if the theorem gives it, or less; and r̂, below which none is.
Condition = tuple[Interval, Callable[[Interval], bool]]


def _finite(run: Run, means: list[Interval]) -> Condition:
    """For a posterior over finitely many policies, or one of them."""
    c = run.certificate
    assert isinstance(run.posterior, Categorical)
    assert isinstance(run.prior, Categorical)
    posterior, prior = _exact(run.posterior.probabilities), _exact(run.prior.probabilities)
    cost = sum((p * c for p, c in zip(posterior, means, strict=True) if p.b > 0), iv.mpf(0))
    kl = _kl(posterior, prior)
    _check_agrees("empirical_cost", c.empirical_cost, cost)
    _check_agrees("kl", c.kl, kl)
    if c.policy is None:
        return cost, _pac_bayes(c, cost, kl)
    n, level = c.environments, prior[c.policy] * iv.mpf(c.budget[c.method])
    if run.costs.binary:
        failures = int(run.costs.values[:, c.policy].sum(dtype=np.int64))
        return cost, lambda b: b.a * n > failures and _tail(failures, n, b).b <= level.a
    return cost, lambda b: _exceeds(cost, b, -iv.log(level) / n)


def _gaussian(run: Run, means: list[Interval]) -> Condition:
    """For a Gaussian posterior, by the costs of policies drawn from it, or of the one drawn."""
    c, posterior, prior = run.certificate, run.posterior, run.prior
    assert isinstance(posterior, DiagonalGaussian)
    assert isinstance(prior, DiagonalGaussian)
    cost = sum(means, iv.mpf(0)) / len(means)
    _check_agrees("empirical_cost", c.empirical_cost, cost)
    if c.method == "single-draw":
        assert run.costs.parameters is not None
        _check_drawn(posterior, run.costs.parameters[0])
        ratio = _log_ratio(posterior, prior, run.costs.parameters[0])
        _check_agrees("kl", c.kl, ratio)
        excess = ratio + iv.log(_xi(c.environments) / iv.mpf(c.budget[c.method]))
        allowed = iv.mpf([max(excess.a, 0), max(excess.b, 0)]) / c.environments
        return cost, lambda b: _exceeds(cost, b, allowed)
    kl = _kl_gaussian(posterior, prior)
    _check_agrees("kl", c.kl, kl)
    if "sampling" not in c.budget or c.training_cost_bound is None:
        raise InvalidCertificate("the budget has nothing for sampling")
    independent = len(means) if c.shared_draws else run.costs.values.size
    slack = -iv.log(iv.mpf(c.budget["sampling"])) / independent
    cost_bound = iv.mpf(c.training_cost_bound)
    if not 0 <= c.training_cost_bound <= 1 or (
        c.training_cost_bound < 1 and not _exceeds(cost, cost_bound, slack)
    ):
        raise InvalidCertificate(
            f"the training cost is stated to be at most {c.training_cost_bound:.6g}, which "
            "these draws do not support"
        )
    return cost_bound, _pac_bayes(c, cost_bound, kl)


def _check_drawn(posterior: DiagonalGaussian, policy: NDArray[np.float64]) -> None:
    """Whether a policy can be a draw from the posterior: its χ² is not among the rarest 1e-9."""
    mp.dps = DIGITS
    rows = zip(policy, posterior.mean, posterior.variance, strict=True)
    distance = mp.fsum((mp.mpf(float(w)) - mp.mpf(m)) ** 2 / mp.mpf(s) for w, m, s in rows)
    below = mp.gammainc(mp.mpf(len(policy)) / 2, 0, distance / 2, regularized=True)
    if not 5e-10 < below < 1 - 5e-10:
        raise InvalidCertificate("the policy is no draw from the posterior: none ever lies there")


def _pac_bayes(c: Certificate, cost: Interval, kl: Interval) -> Callable[[Interval], bool]:
    """Maurer's theorem or its relaxation, at the share of δ that the budget has for it."""
    n, delta = c.environments, iv.mpf(c.budget[c.method])
    constant = _xi(n) if c.method == "kl" else 2 * iv.sqrt(iv.mpf(n))
    complexity = (kl + iv.log(constant / delta)) / n
    if c.method == "pinsker":
        return lambda b: (cost + iv.sqrt(complexity / 2)).b <= b.a
    return lambda b: _exceeds(cost, b, complexity)


def _exceeds(cost: Interval, bound: Interval, complexity: Interval) -> bool:
    """Whether bound ≥ kl⁻¹(cost, complexity): bound ≥ cost and kl(cost‖bound) ≥ complexity."""
    q = iv.mpf(cost.b)
    if complexity.b <= 0:
        return bool(bound.a >= q.b)
    if not bound.a > q.b:
        return False
    left = q * iv.log(q / bound) if q.a > 0 else iv.mpf(0)
    return bool((left + (1 - q) * iv.log((1 - q) / (1 - bound))).a >= complexity.b)


def _tail(failures: int, n: int, p: Interval) -> Interval:
    """P(Bin(n, p) ≤ failures): from the largest term down, and a geometric bound on the rest."""
    if failures == n:
        return iv.mpf(1)
    term = iv.exp(
        _log_factorial(n)
        - _log_factorial(failures)
        - _log_factorial(n - failures)
        + failures * iv.log(p)
        + (n - failures) * iv.log(1 - p)
    )
    total, odds = term, (1 - p) / p
    for k in range(failures, 0, -1):
        ratio = iv.mpf(k) / (n - k + 1) * odds  # P(k-1) / P(k), which falls with k
        term = term * ratio
        total = total + term
        if ratio.b < 1 and (term * ratio / (1 - ratio)).b < total.a * iv.mpf(10) ** -30:
            return total + iv.mpf([0, (term * ratio / (1 - ratio)).b])
    return total


def _log_factorial(n: int) -> Interval:
    """ln n!, by Stirling's series between two consecutive partial sums, which enclose it."""
    if n < 100:
        return iv.log(iv.mpf(math.factorial(n)))
    x = iv.mpf(n)
    lower = (x + iv.mpf(1) / 2) * iv.log(x) - x + iv.log(2 * iv.pi) / 2
    series = [1 / (12 * x), -1 / (360 * x**3), 1 / (1260 * x**5), -1 / (1680 * x**7)]
    series += [1 / (1188 * x**9), iv.mpf(-691) / (360360 * x**11), 1 / (156 * x**13)]
    below: Interval = sum(series[:6], lower)
    above: Interval = sum(series, lower)
    return iv.mpf([below.a, above.b])


def _xi(n: int) -> Interval:
    """Maurer's ξ(n) = Σⱼ n(n-1)…(n-j+1)/nʲ, until a geometric bound on the rest is negligible."""
    if n > EXACT_XI_UP_TO:
        return iv.exp(1 / (12 * iv.mpf(n))) * iv.sqrt(iv.pi * n / 2) + 2
    total, term = iv.mpf(1), iv.mpf(1)
    for j in range(n):
        ratio = 1 - iv.mpf(j) / n
        term = term * ratio
        total = total + term
        if j and (term * ratio * n / j).b < total.a * iv.mpf(10) ** -30:
            return total + iv.mpf([0, (term * ratio * n / j).b])
    return total


def _kl(posterior: list[Interval], prior: list[Interval]) -> Interval:
    total = iv.mpf(0)
    for p, q in zip(posterior, prior, strict=True):
        if p.b > 0 and not q.a > 0:
            raise InvalidCertificate("the prior is zero where the posterior is not")
        if p.b > 0:
            total += p * iv.log(p / q)
    return iv.mpf([max(total.a, 0), total.b])


def _kl_gaussian(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> Interval:
    total = iv.mpf(0)
    for mean, variance, prior_mean, prior_variance in _pairs(posterior, prior):
        ratio = variance / prior_variance
        total += ratio - 1 - iv.log(ratio) + (mean - prior_mean) ** 2 / prior_variance
    return iv.mpf([max(total.a, 0), total.b]) / 2


def _log_ratio(
    posterior: DiagonalGaussian, prior: DiagonalGaussian, policy: NDArray[np.float64]
) -> Interval:
    """ln of the posterior's density over the prior's, at one policy."""
    total = iv.mpf(0)
    for weight, row in zip(policy, _pairs(posterior, prior), strict=True):
        mean, variance, prior_mean, prior_variance = row
        w = iv.mpf(float(weight))
        total += (w - prior_mean) ** 2 / prior_variance - (w - mean) ** 2 / variance
        total += iv.log(prior_variance / variance)
    return total / 2


def _pairs(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> list[list[Interval]]:
    columns = (posterior.mean, posterior.variance, prior.mean, prior.variance)
    return [[iv.mpf(float(x)) for x in row] for row in zip(*columns, strict=True)]


def _exact(probabilities: NDArray[np.float64]) -> list[Interval]:
    """The probabilities divided by their exact sum, which rounding may have left beside 1."""
    entries = [iv.mpf(float(p)) for p in probabilities]
    mass = sum(entries, iv.mpf(0))
    return [p / mass for p in entries]


def _exact_means(values: NDArray) -> list[Interval]:
    """Column means: integer counts for 0/1 costs; else correctly rounded sums ± one ulp."""
    n = len(values)
    if values.dtype == np.uint8:
        return [iv.mpf(int(k)) / n for k in values.sum(axis=0, dtype=np.int64)]
    sums = (math.fsum(column) for column in values.T)
    return [iv.mpf([math.nextafter(s, -1), math.nextafter(s, math.inf)]) / n for s in sums]


def _smallest(holds: Callable[[Interval], bool], cost: Interval) -> float:
    """The smallest bound that passes, by bisection; for the reader, not for the verdict."""
    low, high = mp.mpf(cost.a), mp.mpf(1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(iv.mpf(middle)) else (middle, high)
    return float(high)
