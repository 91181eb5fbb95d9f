"""Certificates of trials on the robot with simulation beside them: files, limits and figures."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import prior_for, simulation_prior, simulation_words
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.simulated import UNLIKELY, chance_of_difference, describe_fault
from pacbayes_control.certify.simulation import SHARE, Simulation, SimulationUse
from pacbayes_control.verify import intervals
from pacbayes_control.verify.bets import proven_by_bets
from pacbayes_control.verify.intervals import Interval, Test, iv, require
from pacbayes_control.verify.pairs import pairs_condition, proven_by_pairs
from pacbayes_control.verify.strata import Strata
from pacbayes_control.verify.trials import proves_at_any_time

Floats = NDArray[np.float64]

MOST_PAIRS = 5000  # of which failures are bounded exactly; more are by bets


def check_declared(c: Certificate) -> None:
    """Raise if a certificate of this kind has no simulation, or it is not paid for."""
    paid = (c.simulation is not None) == (SHARE in c.budget)
    require(paid, "simulation is paid for by δ, or absent")
    if c.simulation is not None:
        kind = c.method in ("occam", "anytime") and c.of == "mean" and not c.parts
        require(kind and c.tasks is None, "simulation is for the mean cost of one listed policy")


def simulated_condition(run: Run) -> Test:
    """The test for the mean cost on the robot of the certified policy."""
    c, simulation, use = run.certificate, run.costs.simulation, run.certificate.simulation
    assert c.policy is not None
    assert simulation is not None
    assert use is not None
    _check_files(run, simulation)
    prior = intervals.exact_probabilities(run.prior.probabilities)
    level = prior[c.policy] * iv.mpf(c.budget[c.method])
    _check_limits(run, simulation, use)
    _check_use(run, simulation, use)
    y = np.asarray(run.costs.values[:, c.policy], float)
    f, more = simulation.of(c.policy, c.success_or_failure)
    if use.low is not None:
        counts = tuple(int(np.sum((f == i) & (y == j))) for i in (1, 0) for j in (1, 0))
        return Strata(counts, (use.low, use.high), level).proves
    guide = float(more.mean()), float(more.var())
    if c.method == "anytime":
        return pairs_condition(y, f, use.high, level)
    order = run.costs.order
    proven = iv.mpf(
        proven_by_pairs(y[order], f[order], guide, (use.high, level, c.bound_on_training))
    )
    return lambda b: bool(proven.b <= b.a)


def _check_files(run: Run, simulation: Simulation) -> None:
    """Further environments are others than those of the trials, and may be drawn like them."""
    c, costs = run.certificate, run.costs
    same = simulation.pairs.shape == costs.values.shape and simulation.more.policies == c.policies
    require(same, "the costs in simulation are not those of the same policies and environments")
    fault = describe_fault(costs, simulation)
    require(not fault, fault)
    for policy in range(costs.policies):
        alike = chance_of_difference(*simulation.of(policy, binary=False))
        words = "costs in simulation of the trials' environments and of further ones differ"
        require(alike >= UNLIKELY / costs.policies, f"{words}: they are not drawn alike")
    if c.prior == simulation_words(costs):
        weights = simulation_prior(costs).probabilities
        same = np.allclose(run.prior.probabilities, weights, rtol=1e-9, atol=1e-12)
        require(same, f"the prior is not {c.prior}")


def _check_limits(run: Run, simulation: Simulation, use: SimulationUse) -> None:
    """The limits on the mean cost in simulation are proven by the further environments."""
    c = run.certificate
    assert c.policy is not None
    level = iv.mpf(c.budget[SHARE]) / run.costs.policies
    exact, words = c.success_or_failure and c.method == "occam", "limits in simulation"
    exact = exact and c.environments <= MOST_PAIRS
    require(exact == (use.low is not None), f"the {words} are not those of the method")
    _, more = simulation.of(c.policy, c.success_or_failure)
    n, failures, high = len(more), int(more.sum()), iv.mpf(use.high)
    if use.low is not None:
        level = level / 2
        proven = use.low == 0 or _rare(n - failures, n, 1 - iv.mpf(use.low), level)
        require(proven, f"the {words} are not proven")
    if c.success_or_failure or simulation.more.graded is False:
        require(_rare(failures, n, high, level), f"the {words} are not proven")
        return
    ordered = np.ascontiguousarray(more[simulation.more.order])
    require(proven_by_bets(ordered, level, use.high) <= use.high, f"the {words} are not proven")


def _rare(failures: int, n: int, p: Interval, level: Interval) -> bool:
    """Whether so few failures have at most this probability at a rate, and so at larger ones."""
    if p.a >= 1 or not p.a * n > failures:  # few failures are not rare where as many are expected
        return bool(p.a >= 1)
    return bool(intervals.binomial_tail(failures, n, p).b <= level.a)


# ---- how good the simulation is, and how much it helped ------------------------------------------


def _check_use(run: Run, simulation: Simulation, use: SimulationUse) -> None:
    """The figures of the simulation are those of the files."""
    c, costs = run.certificate, run.costs
    assert c.policy is not None
    y = np.asarray(costs.values[:, c.policy], float)
    f, more = simulation.of(c.policy, c.success_or_failure)
    figures: dict[str, tuple[float | None, float | None]] = {
        "environments": (use.environments, len(more)),
        "cost": (use.cost, math.fsum(more) / len(more)),
        "cost_of_pairs": (use.cost_of_pairs, math.fsum(f) / len(f)),
        "agreement": (use.agreement, 1 - math.fsum(np.abs(y - f)) / len(f)),
        "correlation": (use.correlation, _correlation(y, f)),
    }
    for name, (stated, actual) in figures.items():
        near = stated is not None and actual is not None and abs(stated - actual) <= 1e-9
        require(stated == actual or near, f"the {name} of the simulation is not as stated")
    same = dict(use.incidents) == simulation.incidents
    require(same, "the certificate is wrong about incidents of the rollouts in simulation")
    level = _check_without(run, use.bound_without)
    found, stated = use.equivalent_trials, c.bound_on_training
    if found is None:
        return
    require(stated < use.bound_without, "the simulation helped less than is stated")
    if not (c.success_or_failure and c.method == "occam"):
        spread = _covariance(f, f)
        share = _covariance(y, f) / spread if spread > 0 else 0.0
        added = stated - y.mean() + share * (f.mean() - more.mean())
        expected = len(y) * ((use.bound_without - y.mean()) / added) ** 2
        require(abs(found / expected - 1) < 1e-3, "the equivalent trials are not as stated")
        return
    q = float(more.mean())
    strata = [(w, y[f == v].mean()) for v, w in ((1, q), (0, 1 - q)) if np.any(f == v)]
    total = sum(weight for weight, _ in strata)
    rate = sum(w * share for w, share in strata) / total if total else strata[0][1]
    above, here = (
        float(scipy.special.betaincc(rate * n + 1, (1 - rate) * n, stated))
        for n in (found * 1.001, found / 1.001)
    )
    require(above <= level <= here, "the equivalent trials are not as stated")


def _correlation(y: Floats, f: Floats) -> float | None:
    spread = math.sqrt(_covariance(y, y)) * math.sqrt(_covariance(f, f))
    return min(max(_covariance(y, f) / spread, -1.0), 1.0) if spread > 0 else None


def _covariance(a: Floats, b: Floats) -> float:
    return math.fsum((a - math.fsum(a) / len(a)) * (b - math.fsum(b) / len(b)))


def _check_without(run: Run, stated: float) -> float:
    """The bound without simulation is that of the same trials alone; its level of the policy."""
    c, costs = run.certificate, run.costs
    assert c.policy is not None
    alone = costs.with_simulation(None)
    prior = prior_for(alone)[0] if c.prior == simulation_words(costs) else run.prior
    delta = iv.mpf(c.budget[c.method]) + iv.mpf(c.budget[SHARE])
    levels = [delta * iv.mpf(weight) for weight in _weights(alone, prior)]
    policies = [c.policy] if c.method == "anytime" else range(costs.policies)
    slack = 1e-3 if c.grid is None else 2e-2  # grids of bets are coarse, and stakes differ
    near = max(stated - 2 * slack, 0.0)
    tests = [_test_without(c, alone, i, levels[i], near) for i in policies if levels[i].a > 0]
    above, below = iv.mpf(min(stated + slack, 1.0)), iv.mpf(max(stated - slack, 0.0))
    fits = stated >= 1 or any(test(above) for test in tests)
    fits = fits and not any(test(below) for test in tests)
    require(fits, f"the bound without simulation is not {stated:.6g}")
    return float(levels[c.policy].mid)


def _weights(costs: Costs, prior: Categorical) -> list[float]:
    """The weights of policies, where equal ones count as one."""
    first = costs.first_equal
    return np.bincount(first, prior.probabilities, costs.policies)[first].tolist()


def _test_without(c: Certificate, costs: Costs, policy: int, level: Interval, near: float) -> Test:
    """The test for a policy's bound from its trials alone; by bets, as far down as `near`."""
    column, n = np.asarray(costs.values[:, policy], float), costs.environments
    if c.method == "anytime":
        return lambda b: proves_at_any_time(column, b, level)
    if c.success_or_failure:
        failures = int(column.sum())
        tail = intervals.binomial_tail
        return lambda b: bool(b.a >= 1 or (b.a > 0 and tail(failures, n, b).b <= level.a))
    proven = proven_by_bets(np.ascontiguousarray(column[costs.order]), level, near)
    return lambda b: bool(proven <= b.a)
