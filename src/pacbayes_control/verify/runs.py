"""A run and its certificate, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.certificate import Certificate, round_up
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.run import Run, read_json
from pacbayes_control.verify.intervals import (
    Interval,
    InvalidCertificate,
    binomial_tail,
    exact_means,
    exact_probabilities,
    exceeds_kl_inverse,
    iv,
    kl_categorical,
    kl_gaussian,
    log_ratio,
    mp,
    set_precision,
    smallest_that,
    tilted_means,
    xi,
)
from pacbayes_control.verify.shift import check_samples, shifted_condition, tilted_condition
from pacbayes_control.verify.words import check_words, taken_as_told

PAC_BAYES = ("kl", "kl-maurer", "pinsker")
AGREEMENT = 1e-9  # how closely r̂ and KL as stated must agree with r̂ and KL as recomputed


@dataclass(frozen=True)
class Verification:
    """What verify() found: the bound as stated, and as recomputed with 50 digits."""

    certificate: Certificate
    recomputed: float  # the smallest bound that the theorem gives, rounded to nearest
    told: tuple[str, ...]  # what the files cannot prove, in words
    run: Run = field(repr=False, compare=False)  # as it was read and verified

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
    set_precision()
    means = exact_means(run.costs.values)
    if isinstance(run.posterior, Categorical):
        cost, holds = _finite(run, means)
    else:
        cost, holds = _gaussian(run, means)
    ball, stated = certificate.ball, certificate.bound_without_shift
    if ball is None or stated is None:
        smallest = _recomputed(certificate, certificate.bound, cost, holds)
        return Verification(certificate, smallest, taken_as_told(run), run)
    base = _recomputed(certificate, stated, cost, holds)
    check_samples(ball, certificate.budget.get("shift"))
    if certificate.tilt is not None:
        robust = tightest = tilted_condition(holds, ball, certificate.tilt)
    else:
        robust, tightest = shifted_condition(ball, stated), shifted_condition(ball, base)
    if not robust(iv.mpf(certificate.bound)):
        raise InvalidCertificate(
            f"the bound {certificate.bound:.6g} does not hold on every distribution with {ball} "
            f"({smallest_that(robust, iv.mpf(stated)):.6g} does)"
        )
    smallest = smallest_that(tightest, iv.mpf(base))
    return Verification(certificate, min(smallest, certificate.bound), taken_as_told(run), run)


def _recomputed(
    certificate: Certificate, bound: float, cost: Interval, holds: Callable[[Interval], bool]
) -> float:
    """The smallest bound that the theorem gives; an error if the one stated is below it."""
    smallest = smallest_that(holds, cost)
    if bound < 1 and not holds(iv.mpf(bound)):
        raise InvalidCertificate(
            f"the bound {bound:.6g} is below what {certificate.method} gives on these costs "
            f"({smallest:.6g})"
        )
    return min(smallest, bound)


def _check_record(run: Run, sentence: str | None) -> None:
    """Whether the certificate is consistent with itself and about these files."""
    c = run.certificate
    if c.method not in (*PAC_BAYES, "occam", "single-draw", "tilted"):
        raise InvalidCertificate(f"the method {c.method!r} is unknown")
    digests = run.costs.digests | {"prior": run.prior.digest, "posterior": run.posterior.digest}
    for name in sorted({*digests, *c.hashes}):
        if c.hashes.get(name) != digests.get(name):
            raise InvalidCertificate(f"the certificate is about other {name}: the hash differs")
    _check_kind(run)
    if c.noise != run.costs.noise:
        raise InvalidCertificate("the certificate is wrong about the noise of the rollouts")
    check_words(run)
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
    for bound in (c.bound, c.bound if c.bound_without_shift is None else c.bound_without_shift):
        if not 0 <= bound <= 1:
            raise InvalidCertificate(f"the bound {bound} is outside [0, 1]")
    if (c.method == "tilted") != (c.tilt is not None) or (
        c.tilt is not None and not 0 < c.tilt <= 30
    ):
        raise InvalidCertificate(
            "a tilt from 0 to 30 belongs to the method tilted, and to no other"
        )
    if c.method == "tilted" and (c.ball is None or c.ball.divergence != "kl"):
        raise InvalidCertificate("the method tilted certifies in a kl ball")
    if (c.ball is None) != (c.bound_without_shift is None):
        raise InvalidCertificate("a bound without shift belongs to a certificate in a ball only")
    if c.ball is None and "shift" in c.budget:
        raise InvalidCertificate("the budget pays for a shift that the certificate does not name")
    name = run.costs.names[c.policy] if c.policy is not None and run.costs.names else None
    if c.policy_name != name:
        raise InvalidCertificate(f"the certified policy is named {name!r}, not {c.policy_name!r}")
    if sentence != c.recorded_sentence:
        raise InvalidCertificate("the sentence does not say what the numbers say")


def _check_kind(run: Run) -> None:
    """Whether the files are of the kind that the method and the certificate's numbers speak of."""
    c, costs = run.certificate, run.costs
    if type(run.prior) is not type(run.posterior) or len(run.prior) != len(run.posterior):
        raise InvalidCertificate("the prior and the posterior are not over the same policies")
    finite = isinstance(run.posterior, Categorical)
    single = c.method == "single-draw"
    sampled = not finite and not single
    if (c.method in ("occam", "tilted") and not finite) or (single and finite):
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
    posterior, prior = (
        exact_probabilities(run.posterior.probabilities),
        exact_probabilities(run.prior.probabilities),
    )
    cost = _expected(posterior, means)
    kl = kl_categorical(posterior, prior)
    _check_agrees("empirical_cost", c.empirical_cost, cost)
    _check_agrees("kl", c.kl, kl)
    if c.tilt is not None:
        mean = _expected(posterior, tilted_means(run.costs.values, c.tilt))
        scale, within = iv.exp(iv.mpf(c.tilt)) - 1, _pac_bayes(c, mean, kl)
        return cost, lambda b: within((iv.exp(iv.mpf(c.tilt) * b) - 1) / scale)
    if c.policy is None:
        return cost, _pac_bayes(c, cost, kl)
    n, level = c.environments, prior[c.policy] * iv.mpf(c.budget[c.method])
    if run.costs.binary:
        failures = int(run.costs.values[:, c.policy].sum(dtype=np.int64))
        return cost, lambda b: b.a * n > failures and binomial_tail(failures, n, b).b <= level.a
    return cost, lambda b: exceeds_kl_inverse(cost, b, -iv.log(level) / n)


def _expected(posterior: list[Interval], means: list[Interval]) -> Interval:
    """The mean over a posterior of what each policy has."""
    return sum((p * x for p, x in zip(posterior, means, strict=True) if p.b > 0), iv.mpf(0))


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
        ratio = log_ratio(posterior, prior, run.costs.parameters[0])
        _check_agrees("kl", c.kl, ratio)
        excess = ratio + iv.log(xi(c.environments) / iv.mpf(c.budget[c.method]))
        allowed = iv.mpf([max(excess.a, 0), max(excess.b, 0)]) / c.environments
        return cost, lambda b: exceeds_kl_inverse(cost, b, allowed)
    kl = kl_gaussian(posterior, prior)
    _check_agrees("kl", c.kl, kl)
    if "sampling" not in c.budget or c.training_cost_bound is None:
        raise InvalidCertificate("the budget has nothing for sampling")
    independent = len(means) if c.shared_draws else run.costs.values.size
    slack = -iv.log(iv.mpf(c.budget["sampling"])) / independent
    cost_bound = iv.mpf(c.training_cost_bound)
    if not 0 <= c.training_cost_bound <= 1 or (
        c.training_cost_bound < 1 and not exceeds_kl_inverse(cost, cost_bound, slack)
    ):
        raise InvalidCertificate(
            f"the training cost is stated to be at most {c.training_cost_bound:.6g}, which "
            "these draws do not support"
        )
    return cost_bound, _pac_bayes(c, cost_bound, kl)


def _check_drawn(posterior: DiagonalGaussian, policy: NDArray[np.float64]) -> None:
    """Whether a policy can be a draw from the posterior: its χ² is not among the rarest 1e-9."""
    rows = zip(policy, posterior.mean, posterior.variance, strict=True)
    distance = mp.fsum((mp.mpf(float(w)) - mp.mpf(m)) ** 2 / mp.mpf(s) for w, m, s in rows)
    below = mp.gammainc(mp.mpf(len(policy)) / 2, 0, distance / 2, regularized=True)
    if not 5e-10 < below < 1 - 5e-10:
        raise InvalidCertificate("the policy is no draw from the posterior: none ever lies there")


def _pac_bayes(c: Certificate, cost: Interval, kl: Interval) -> Callable[[Interval], bool]:
    """Maurer's theorem or its relaxation, at the share of δ that the budget has for it."""
    n, delta = c.environments, iv.mpf(c.budget[c.method])
    constant = xi(n) if c.method in ("kl", "tilted") else 2 * iv.sqrt(iv.mpf(n))
    complexity = (kl + iv.log(constant / delta)) / n
    if c.method == "pinsker":
        return lambda b: (cost + iv.sqrt(complexity / 2)).b <= b.a
    return lambda b: exceeds_kl_inverse(cost, b, complexity)
