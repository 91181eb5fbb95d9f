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
from pacbayes_control.run import Run, read_json

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
    posterior = _exact(run.posterior.probabilities)
    prior = _exact(run.prior.probabilities)
    cost = sum((p * c for p, c in zip(posterior, means, strict=True) if p.b > 0), iv.mpf(0))
    kl = _kl(posterior, prior)
    _check_agrees("empirical_cost", certificate.empirical_cost, cost)
    _check_agrees("kl", certificate.kl, kl)
    holds = _condition(run, cost, kl, prior)
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
    if c.method not in ("kl", "kl-maurer", "pinsker", "occam"):
        raise InvalidCertificate(f"the method {c.method!r} is unknown")
    digests = run.costs.digests | {"prior": run.prior.digest, "posterior": run.posterior.digest}
    for name in sorted({*digests, *c.hashes}):
        if c.hashes.get(name) != digests.get(name):
            raise InvalidCertificate(f"the certificate is about other {name}: the hash differs")
    if (c.environments, c.policies) != run.costs.values.shape:
        raise InvalidCertificate(
            "the certificate states another number of environments or policies"
        )
    if len(run.posterior) != c.policies or len(run.prior) != c.policies:
        raise InvalidCertificate(
            "the prior and the posterior are not over the certificate's policies"
        )
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
    if (c.policy is not None) != (c.method == "occam"):
        raise InvalidCertificate(f"method {c.method} cannot certify what the certificate names")
    if c.policy is not None and not (
        0 <= c.policy < c.policies and run.posterior.probabilities[c.policy] == 1
    ):
        raise InvalidCertificate("the posterior is not the single policy that is certified")
    name = run.costs.names[c.policy] if c.policy is not None and run.costs.names else None
    if c.policy_name != name:
        raise InvalidCertificate(f"the certified policy is named {name!r}, not {c.policy_name!r}")
    if sentence != c.sentence:
        raise InvalidCertificate("the sentence does not say what the numbers say")


def _check_agrees(name: str, stated: float, recomputed: Interval) -> None:
    if not abs(stated - float(recomputed.mid)) <= AGREEMENT:
        raise InvalidCertificate(
            f"{name} is stated as {stated:.9g}, and is {float(recomputed.mid):.9g} on these files"
        )


def _condition(
    run: Run, cost: Interval, kl: Interval, prior: list[Interval]
) -> Callable[[Interval], bool]:
    """The test that a bound passes exactly if the theorem gives it, or less."""
    c = run.certificate
    n, delta = c.environments, iv.mpf(c.budget[c.method])
    if c.policy is not None:
        level = prior[c.policy] * delta
        if run.costs.binary:
            failures = int(run.costs.values[:, c.policy].sum(dtype=np.int64))
            return lambda b: b.a * n > failures and _tail(failures, n, b).b <= level.a
        return lambda b: _exceeds(cost, b, -iv.log(level) / n)
    constant = _xi(n) if c.method == "kl" else 2 * iv.sqrt(iv.mpf(n))
    complexity = (kl + iv.log(constant / delta)) / n
    if c.method == "pinsker":
        return lambda b: (cost + iv.sqrt(complexity / 2)).b <= b.a
    return lambda b: _exceeds(cost, b, complexity)


def _exceeds(cost: Interval, bound: Interval, complexity: Interval) -> bool:
    """Whether bound ≥ kl⁻¹(cost, complexity): bound ≥ cost and kl(cost‖bound) ≥ complexity."""
    q = iv.mpf(cost.b)
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
