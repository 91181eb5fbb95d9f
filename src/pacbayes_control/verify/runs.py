"""verify(): the numbers of a certificate, recomputed from the files of its run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import read_json, sha256
from pacbayes_control.certify.looks import growth
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import round_up
from pacbayes_control.verify import distribution, intervals, simulation
from pacbayes_control.verify.bets import (
    GRID,
    THRESHOLDS,
    highest_mean,
    log_regret,
    proven_by_bets,
)
from pacbayes_control.verify.intervals import Interval, InvalidCertificate, Test, iv, mp, require
from pacbayes_control.verify.parts import check_declared, check_parts
from pacbayes_control.verify.shift import check_samples, shifted_condition, tilted_condition
from pacbayes_control.verify.trials import check_trials, proves_at_any_time
from pacbayes_control.verify.words import check_words, claims_without_proof

METHODS = ("kl", "kl-maurer", "pinsker", "betting", "occam", "anytime", "single-draw", "tilted")
ONE_POLICY = ("occam", "anytime", "single-draw")  # methods that certify a single one
AGREEMENT = 1e-9  # allowed difference between the stated and the recomputed r̂ and KL


@dataclass(frozen=True)
class Verification:
    """The result of verify(): the bound as stated, and as recomputed with 50 digits."""

    certificate: Certificate
    recomputed: float  # the smallest bound that the theorem gives, rounded to nearest
    told: tuple[str, ...]  # claims that the files cannot prove, in words
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
    c = run.certificate
    _check_record(run, read_json(folder / "certificate.json").get("sentence"))
    check_trials(run)
    intervals.set_precision()
    means = intervals.exact_means(run.costs.values)
    kind = _finite if isinstance(run.posterior, Categorical) else _gaussian
    cost, holds = kind(run, means)
    stated = c.bound_on_training
    smallest = intervals.smallest_that(holds, cost)
    gives = f"{c.method} gives on these costs ({smallest:.6g})"
    require(stated >= 1 or holds(iv.mpf(stated)), f"the bound {stated:.6g} is below what {gives}")
    smallest = min(smallest, stated)
    if c.ball is not None:
        check_samples(c.ball, c.budget.get("shift"))
        if c.exceeded is not None:
            below, share = shifted_condition(c.ball, 1 - c.statistic.share), iv.mpf(c.exceeded)
            wrong = f"the cost {c.bound:.6g} may be exceeded in more than {c.exceeded:.6g} of D′"
            require(c.bound == stated and 0 <= c.exceeded <= 1 and below(share), wrong)
            return Verification(c, smallest, claims_without_proof(run), run)
        if c.tilt is not None:
            robust = tightest = tilted_condition(holds, c.ball, c.tilt)
        else:
            robust, tightest = (shifted_condition(c.ball, bound) for bound in (stated, smallest))
        if not robust(iv.mpf(c.bound)):
            raise InvalidCertificate(
                f"the bound {c.bound:.6g} does not hold on every distribution with {c.ball} "
                f"({intervals.smallest_that(robust, iv.mpf(stated)):.6g} does)"
            )
        smallest = min(intervals.smallest_that(tightest, iv.mpf(smallest)), c.bound)
    return Verification(c, smallest, claims_without_proof(run), run)


def _check_record(run: Run, sentence: str | None) -> None:
    """Whether the certificate is consistent with itself and about these files."""
    c, costs = run.certificate, run.costs
    require(c.method in METHODS, f"the method {c.method!r} is unknown")
    digests = dict(costs.digests)
    for name, over_policies in (("prior", run.prior), ("posterior", run.posterior)):
        digests[name] = sha256(over_policies.to_bytes())
    for name in sorted({*digests, *c.hashes}):
        same = c.hashes.get(name) == digests.get(name)
        require(same, f"the certificate is about other {name}: the hash differs")
    same = (c.simulation is None) == (costs.simulation is None)
    require(same, "the certificate is wrong about whether there is simulation beside the trials")
    _check_kind(run)
    require(c.noise == costs.noise, "the certificate is wrong about the noise of the rollouts")
    check_words(run)
    require(c.binary == costs.binary, "the certificate is wrong about whether all costs are 0 or 1")
    require(c.graded == costs.graded, "the certificate is wrong about whether costs are graded")
    require(costs.binary or not c.success_or_failure, "trials that fail in part are graded")
    _check_budget(c)
    check_declared(c)
    simulation.check_declared(c)
    name = costs.names[c.policy] if c.policy is not None and costs.names else None
    wrong_name = f"the certified policy is named {name!r}, not {c.policy_name!r}"
    require(c.policy_name == name, wrong_name)
    require(sentence == c.to_dict()["sentence"], "the sentence does not say what the numbers say")


def _check_budget(c: Certificate) -> None:
    """Whether the shares of δ are positive and sum to at most δ, and bounds, ball and tilt fit."""
    spent = list(c.budget.values())
    positive = 0 < c.delta < 1 and min(spent, default=0) > 0
    covered = positive and math.fsum(spent) <= c.delta * (1 + 1e-12)
    require(covered, f"the budget {dict(c.budget)} overspends delta = {c.delta}")
    require(c.method in c.budget, f"the budget has no share for {c.method}")
    for bound in (c.bound, c.bound if c.bound_without_shift is None else c.bound_without_shift):
        require(0 <= bound <= 1, f"the bound {bound} is outside [0, 1]")
    tilted, in_ball = c.method == "tilted", c.ball is not None
    fits = c.tilt is not None and 0 < c.tilt <= 30 if tilted else c.tilt is None
    require(fits, "a tilt from 0 to 30 belongs to the method tilted, and to no other")
    in_kl_ball = c.ball is not None and c.ball.divergence == "kl"
    require(in_kl_ball or not tilted, "the method tilted certifies in a kl ball")
    _check_bets(c)
    fits = in_ball == (c.bound_without_shift is not None)
    require(fits, "a bound without shift belongs to a certificate in a ball only")
    require(in_ball or "shift" not in c.budget, "the budget has a share for a shift without a ball")


def _check_bets(c: Certificate) -> None:
    """Whether the fields of bets and of statistics other than the mean belong to the method."""
    kind, occam = c.statistic.kind, c.method == "occam"
    require(kind == "mean" or occam, f"the method occam certifies the {kind}, and no other does")
    graded = c.format >= 6 and kind == "mean" and not c.success_or_failure
    by_bets = occam and (graded or kind == "cvar")
    if c.draws is not None:
        by_bets = c.format >= 6 and bool(c.graded) and not c.shared_draws
    fits = c.grid == (GRID if by_bets else None) and (kind == "cvar") == (c.threshold is not None)
    require(fits, f"bets on graded costs are on a grid of {GRID} candidates, and no others are")
    fits = 0 < c.stake < math.inf if c.stake is not None else c.method != "betting"
    require(fits and (c.stake is None or c.method == "betting"), "a stake is for betting alone")
    paid = "distribution function" in c.budget
    fits = (c.margin is not None) == paid and (occam or not paid)
    require(fits, "a margin belongs to a distribution function that δ pays for")
    shifted = kind == "quantile" and c.ball is not None
    require((c.exceeded is not None) == shifted, "a share exceeded is for quantiles in a ball")
    require(kind != "cvar" or c.ball is None, "a bound on cvar is not for a ball")
    _check_until(c)


def _check_until(c: Certificate) -> None:
    """Whether environments were added in the declared steps, and as long as is stated."""
    if c.until is None or c.at_most is None:
        fits = c.until is None and c.at_most is None
        require(fits, "environments are added until a bound is reached, or at most so many")
        return
    fits = c.method == "betting" and not c.looks and 0 < c.until < 1
    require(fits, "environments are added until a bound is reached by the method betting alone")
    n, known = c.environments, 2 <= c.at_most < 2**62
    declared = known and n <= c.at_most and n in growth(c.at_most)
    words = f"{n} is not one of the numbers of environments, up to {c.at_most}, at which to look"
    require(declared, words)
    wrong = f"environments were added until the bound was {c.until:g}, and it is above that"
    require(c.reached or n == c.at_most, wrong)


def _check_kind(run: Run) -> None:
    """Whether the files are of the kind that the method needs, and of the stated sizes."""
    c, costs, posterior = run.certificate, run.costs, run.posterior
    same = type(run.prior) is type(posterior) and len(run.prior) == len(posterior)
    require(same, "the prior and the posterior are not over the same policies")
    finite, single = isinstance(posterior, Categorical), c.method == "single-draw"
    sampled, size = not finite and not single, len(posterior)
    known = ("occam", "anytime", "tilted", "betting")
    possible = not single if finite else c.method not in known
    require(possible, f"method {c.method} cannot certify a posterior of this kind")
    drawn = costs.draws is not None
    require(drawn == sampled, "the costs are not what this kind of certificate counts")
    stated = (c.environments, c.policies, c.parameters, c.draws, c.shared_draws)
    actual = (
        costs.environments,
        size if finite else None,
        None if finite else size,
        costs.policies if sampled else None,
        costs.draws == "shared" if sampled else None,
    )
    columns = size if finite else 1 if single else costs.policies
    require(
        stated == actual and costs.policies == columns,
        "the certificate states another number of environments, policies, parameters or draws",
    )
    same = (c.training_cost_bound is not None) == sampled
    require(same, "a bound on the training cost belongs to sampled policies only")
    same = (c.policy is not None) == (c.method in ONE_POLICY)
    require(same, f"method {c.method} cannot certify what the certificate names")
    if finite and c.policy is not None:
        alone = 0 <= c.policy < size and posterior.probabilities[c.policy] == 1
        require(alone, "the posterior is not the single policy that is certified")
    if single:
        known = costs.parameters is not None and costs.parameters.shape == (1, size)
        require(c.policy == 0 and known, "the one policy that was drawn is not among the files")


def _check_agrees(name: str, stated: float, recomputed: Interval) -> None:
    actual = float(recomputed.mid)
    close = abs(stated - actual) <= AGREEMENT * max(1.0, abs(stated))
    require(close, f"{name} is stated as {stated:.9g}, and is {actual:.9g} on these files")


def _finite(run: Run, means: list[Interval]) -> tuple[Interval, Test]:
    """r̂ and the test for a posterior over finitely many policies, or for one of them."""
    c = run.certificate
    posterior = intervals.exact_probabilities(run.posterior.probabilities)
    prior = intervals.exact_probabilities(run.prior.probabilities)
    cost = _expected(posterior, means)
    kl = intervals.kl_categorical(posterior, prior)
    _check_agrees("empirical_cost", c.empirical_cost, cost)
    _check_agrees("kl", c.kl, kl)
    if c.tilt is not None:
        mean = _expected(posterior, intervals.tilted_means(run.costs.values, c.tilt))
        scale, within = iv.exp(iv.mpf(c.tilt)) - 1, _pac_bayes(c, mean, kl)
        return cost, lambda b: within((iv.exp(iv.mpf(c.tilt) * b) - 1) / scale)
    if c.method == "betting":
        return cost, _betting(run, posterior, kl)
    if c.policy is None:
        check_parts(
            run,
            lambda each: _expected(posterior, each),
            lambda here, mean, delta, _: _pac_bayes(c, mean, kl, here.environments, delta),
        )
        return cost, _pac_bayes(c, cost, kl)
    # A quantile may be below the mean, and so may a bound with simulation.
    lowest = iv.mpf(0) if c.statistic.kind == "quantile" or c.simulation else cost
    return lowest, _occam(run, prior, cost)


def _occam(run: Run, prior: list[Interval], cost: Interval) -> Test:
    """The test for one policy, at its weight's share of δ."""
    c, costs = run.certificate, run.costs
    assert c.policy is not None
    if c.simulation is not None:
        return simulation.simulated_condition(run)
    same = [c.policy] if c.format < 6 else np.flatnonzero(_same_policy(run, c.policy))
    weight = sum((prior[policy] for policy in same), iv.mpf(0))
    n, level, column = (
        c.environments,
        weight * iv.mpf(c.budget[c.method]),
        costs.values[:, c.policy],
    )
    check_parts(
        run,
        lambda each, policy=c.policy: each[policy],
        lambda here, _, delta, stated: _one_policy(c, here, weight * delta, stated),
    )
    kind = c.statistic.kind
    if c.method == "anytime":
        return lambda b: proves_at_any_time(column, b, level)
    if c.margin is not None:
        require(0 < c.margin <= 1, "the margin of a distribution function lies in (0, 1]")
        paid = weight * iv.mpf(c.budget["distribution function"])
        tail = distribution.smirnov_tail(n, c.margin)
        words = f"the margin {c.margin:.6g} of the distribution function is not proven"
        require(c.margin == 1 or tail <= paid.a, words)
    if kind == "quantile":
        return lambda b: distribution.proves_quantile(column, b, c.statistic.share, level)
    if kind == "cvar":
        return _cvar(c, np.ascontiguousarray(column[costs.order], float), level)
    if c.grid is None and not c.success_or_failure:  # before format 6
        return lambda b: intervals.exceeds_kl_inverse(cost, b, -iv.log(level) / n)
    return _one_policy(c, costs, level, c.bound_on_training)


def _one_policy(c: Certificate, costs: Costs, level: Interval, stated: float) -> Test:
    """The test for the mean cost of the certified policy: by the exact tail, or by bets."""
    column, n = costs.values[:, c.policy], costs.environments
    if c.success_or_failure:
        failures, tail = int(column.sum(dtype=np.int64)), intervals.binomial_tail
        least = failures + (c.tasks is not None)  # by Hoeffding's theorem, for different means
        return lambda b: b.a * n > least and tail(failures, n, b).b <= level.a
    ordered = np.ascontiguousarray(column[costs.order], float)
    proven = iv.mpf(proven_by_bets(ordered, level, stated, together=c.tasks or 0))
    return lambda b: bool(proven.b <= b.a)


def _cvar(c: Certificate, costs: NDArray[np.float64], level: Interval) -> Test:
    """The test for CVaR: c + (1-c) E[(C - c)₊/(1-c)]/α, at one of the thresholds c = i/16."""
    threshold, worst = c.threshold, c.statistic.share
    if threshold is None or threshold not in (i / THRESHOLDS for i in range(THRESHOLDS)):
        raise InvalidCertificate(f"the threshold of cvar is one of i/{THRESHOLDS}")
    # Rounded upwards: a larger cost is one that proves less.
    above = np.maximum(costs - threshold, 0) / (1 - threshold) * (1 + 2.0**-50)
    above = np.where(costs > threshold, np.minimum(above, 1.0), 0.0)
    from_c = (c.bound - threshold) * worst / (1 - threshold)
    mean = iv.mpf(proven_by_bets(above, level / THRESHOLDS, max(from_c, 0.0)))
    x = iv.mpf(threshold)
    highest = x + (1 - x) * mean / iv.mpf(worst)
    return lambda b: bool(highest.b <= b.a)


def _same_policy(run: Run, policy: int) -> NDArray[np.bool_]:
    """Which policies are the given one by their parameters, and so share its costs."""
    costs, parameters = run.costs, run.costs.parameters
    if parameters is None or costs.noise is not None:
        return np.arange(costs.policies) == policy
    rows = parameters.reshape(costs.policies, -1)
    same = np.all(rows == rows[policy], axis=1)
    alike = np.all(costs.values[:, same] == costs.values[:, [policy]])
    require(bool(alike), "equal policies have different costs, and no noise is declared")
    return same


def _betting(run: Run, posterior: list[Interval], kl: Interval) -> Test:
    """PAC-Bayes by bets at the recorded stake; any stake is valid."""
    c, values = run.certificate, run.costs.values
    assert c.stake is not None
    n, delta, s = c.environments, iv.mpf(c.budget[c.method]), iv.mpf(c.stake)
    total = (kl + log_regret(n) - iv.log(delta)) / (s * n)
    for policy, p in enumerate(posterior):
        if p.b > 0:
            column = np.asarray(values[:, policy], float)
            total += p * highest_mean(column, c.stake)
    return lambda b: bool(total.b <= b.a)


def _expected(posterior: list[Interval], means: list[Interval]) -> Interval:
    """The mean of a quantity of each policy over a posterior."""
    return sum((p * x for p, x in zip(posterior, means, strict=True) if p.b > 0), iv.mpf(0))


def _gaussian(run: Run, means: list[Interval]) -> tuple[Interval, Test]:
    """r̂ and the test for a Gaussian posterior, from the costs of policies drawn from it."""
    c, posterior, prior = run.certificate, run.posterior, run.prior
    cost = sum(means, iv.mpf(0)) / len(means)
    _check_agrees("empirical_cost", c.empirical_cost, cost)
    if c.method == "single-draw":
        assert run.costs.parameters is not None
        _check_drawn(posterior, run.costs.parameters[0])
        ratio = intervals.log_ratio(posterior, prior, run.costs.parameters[0])
        _check_agrees("kl", c.kl, ratio)
        excess = ratio + iv.log(intervals.xi(c.environments) / iv.mpf(c.budget[c.method]))
        allowed = iv.mpf([max(excess.a, 0), max(excess.b, 0)]) / c.environments
        return cost, lambda b: intervals.exceeds_kl_inverse(cost, b, allowed)
    kl = intervals.kl_gaussian(posterior, prior)
    _check_agrees("kl", c.kl, kl)
    stated = c.training_cost_bound
    if "sampling" not in c.budget or stated is None:
        raise InvalidCertificate("the budget has no share for sampling")
    proven = 0 <= stated < 1 and _proves_training_cost(run, cost, stated)
    words = f"the training cost is stated to be at most {stated:.6g}"
    require(stated == 1 or proven, f"{words}, which these draws do not support")
    return iv.mpf(stated), _pac_bayes(c, iv.mpf(stated), kl)


def _proves_training_cost(run: Run, cost: Interval, stated: float) -> bool:
    """Whether the draws prove that the expected training cost is at most the stated one."""
    c, values = run.certificate, run.costs.values
    delta = iv.mpf(c.budget["sampling"])
    if c.grid is not None:  # draw by draw, with the same stake in every environment
        ordered = np.ascontiguousarray(values.T, float).ravel()
        return proven_by_bets(ordered, delta, stated, together=len(values)) <= stated
    independent = values.shape[1] if c.shared_draws else values.size
    return intervals.exceeds_kl_inverse(cost, iv.mpf(stated), -iv.log(delta) / independent)


def _check_drawn(posterior: DiagonalGaussian, policy: NDArray[np.float64]) -> None:
    """Whether a policy can be a draw from the posterior: its χ² is not among the rarest 10⁻⁹."""
    rows = zip(policy, posterior.mean, posterior.variance, strict=True)
    distance = mp.fsum((mp.mpf(float(w)) - mp.mpf(m)) ** 2 / mp.mpf(s) for w, m, s in rows)
    below = mp.gammainc(mp.mpf(len(policy)) / 2, 0, distance / 2, regularized=True)
    require(
        5e-10 < below < 1 - 5e-10,
        "the policy is not a draw from the posterior: its distance from the mean is impossible",
    )


def _pac_bayes(
    c: Certificate,
    cost: Interval,
    kl: Interval,
    n: int | None = None,
    delta: Interval | None = None,
) -> Test:
    """Maurer's theorem or its relaxation, at the share of δ that the budget has for it.

    n and delta: of a part of the world.
    """
    n = c.environments if n is None else n
    delta = iv.mpf(c.budget[c.method]) if delta is None else delta
    constant = intervals.xi(n) if c.method in ("kl", "tilted") else 2 * iv.sqrt(iv.mpf(n))
    complexity = (kl + iv.log(constant / delta)) / n
    if c.method == "pinsker":
        return lambda b: (cost + iv.sqrt(complexity / 2)).b <= b.a
    return lambda b: intervals.exceeds_kl_inverse(cost, b, complexity)
