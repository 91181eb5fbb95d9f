"""Certificates of trials on the robot with simulation beside them, recomputed.

The exact bound is proven by a ranking of outcomes and a table of binomial probabilities of its own,
and bets by a wealth that is enclosed from below. Any ranking of outcomes, and any κ and stakes that
depend on earlier pairs alone, are valid: only the probability and the wealth have to be safe.
"""

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
from pacbayes_control.certify.simulated import UNLIKELY, chance_of_difference, describe_twice
from pacbayes_control.certify.simulation import SHARE, Simulation, SimulationUse
from pacbayes_control.verify import intervals
from pacbayes_control.verify.bets import AIM, BEYOND, GRID, UNIT, proven_by_bets
from pacbayes_control.verify.intervals import Interval, Test, iv, mp, require
from pacbayes_control.verify.trials import log_e_of_means_from_below, proves_at_any_time

Floats = NDArray[np.float64]

CLOSE = 1e-10  # outcomes whose ranks differ by less count as equal
AT_ONCE = 1 << 21  # entries of a table of probabilities
STEPS = 1 << 20  # a bound is rounded downwards to a multiple of 1/STEPS
MOST_CELLS, SPLITS = 1 << 14, 20  # of the failure rates that cannot be told apart
KAPPAS = tuple(k / 10 for k in range(16))  # a constant of the method, as is the next one
MARGIN = 1e-6  # of ln of the wealth that κ and stakes aim at, beyond 1/δ
KNOWN = 10.0  # pairs that the choice of κ begins with: V(Y) = ⅛, and slope ½ of Y in F


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
        return _anytime(y, f, guide, use.high, level)
    order = run.costs.order
    proven = iv.mpf(_proven(y[order], f[order], guide, (use.high, level, c.bound_on_training)))
    return lambda b: bool(proven.b <= b.a)


def _check_files(run: Run, simulation: Simulation) -> None:
    """Further environments are others than those of the trials, and may be drawn like them."""
    c, costs = run.certificate, run.costs
    same = simulation.pairs.shape == costs.values.shape and simulation.more.policies == c.policies
    require(same, "the costs in simulation are not those of the same policies and environments")
    twice = describe_twice(costs, simulation.more)
    require(not twice, twice)
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
    return bool(p.a >= 1 or (p.a > 0 and intervals.binomial_tail(failures, n, p).b <= level.a))


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
    level = _check_without(run, use.bound_without)
    found, stated = use.equivalent_trials, c.bound_on_training
    if found is None:
        return
    require(stated < use.bound_without, "the simulation helped less than is stated")
    if use.low is None:
        share = _covariance(y, f) / _covariance(f, f) if f.min() < f.max() else 0.0
        added = stated - y.mean() + share * (f.mean() - more.mean())
        expected = len(y) * ((use.bound_without - y.mean()) / added) ** 2
        require(abs(found / expected - 1) < 1e-3, "the equivalent trials are not as stated")
        return
    q = float(more.mean())
    strata = [(w, y[f == v].mean()) for v, w in ((1, q), (0, 1 - q)) if np.any(f == v)]
    total = sum(weight for weight, _ in strata)
    rate = sum(w * share for w, share in strata) / total if total else strata[0][1]
    above, here = (
        mp.betainc(rate * n + 1, (1 - rate) * n, stated, 1, regularized=True)
        for n in (found * 1.001, found / 1.001)
    )
    fits = above <= mp.mpf(level) <= here
    require(bool(fits), "the equivalent trials are not as stated")


def _correlation(y: Floats, f: Floats) -> float | None:
    if y.min() == y.max() or f.min() == f.max():
        return None
    spread = math.sqrt(_covariance(y, y) * _covariance(f, f))
    return min(max(_covariance(y, f) / spread, -1.0), 1.0)


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
        return lambda b: _rare(failures, n, b, level)
    proven = proven_by_bets(np.ascontiguousarray(column[costs.order]), level, near)
    return lambda b: bool(proven <= b.a)


# ---- failures: exact, by strata ------------------------------------------------------------------


class Strata:
    """Outcomes that rank no higher than the observed one, and how likely they are.

    Args:
        counts: of pairs that fail in both, in simulation alone, on the robot alone and in none
        limits: on the failure rate in simulation
        level: δ of the trials
    """

    def __init__(
        self, counts: tuple[int, ...], limits: tuple[float, float], level: Interval
    ) -> None:
        both, spared, alone, _ = counts
        self.sizes, self.limits, self.level = (both + spared, sum(counts[2:])), limits, level
        self.known: dict[int, bool] = {}  # whether a bound is proven, by its steps
        self.allowed = float(scipy.special.ndtri(float(level.mid))) ** 2 / 2
        highest = self._rank(np.array([float(both)]), np.array([float(alone)]))[0] + CLOSE
        first = np.arange(self.sizes[0] + 1.0)
        most = np.full(len(first), -1)
        step = 1 << self.sizes[1].bit_length()
        while step:
            tried = np.minimum(most + step, self.sizes[1])
            fits = (most + step <= self.sizes[1]) & (self._rank(first, tried + 0.0) <= highest)
            most, step = np.where(fits, tried, most), step // 2
        # Together with an outcome all those with fewer failures: the probability then falls with
        # both rates, whatever the rounding of ranks.

        self.most = np.maximum.accumulate(most[::-1])[::-1]
        logs = [_log_binomials(n) for n in self.sizes]
        self.logs, largest = logs, max(float(each.max()) for each in logs)
        self.rounding = 1 + 64 * UNIT * (1 + largest + sum(self.sizes))

    def _rank(self, both: Floats, alone: Floats) -> Floats:
        """The largest mean that is likely, at either limit."""
        return np.maximum(*(self._likely(both, alone, q) for q in self.limits))

    def _likely(self, both: Floats, alone: Floats, q: float) -> Floats:
        """The largest mean with as much likelihood as `allowed`: on the edge, by a multiplier."""
        failed, weights, sizes = (both, alone), (q, 1 - q), self.sizes
        low, high = np.full(both.shape, -150.0), np.full(both.shape, 150.0)
        for _ in range(80):
            middle = (low + high) / 2
            cost = np.zeros(both.shape)
            for k, n, w in zip(failed, sizes, weights, strict=True):
                if n:
                    x = _edge(k / n, w, n * np.exp2(middle))
                    cost += n * scipy.special.rel_entr(k / n, x)
                    cost += n * scipy.special.rel_entr(1 - k / n, 1 - x)
            low, high = (
                np.where(cost > self.allowed, middle, low),
                np.where(cost > self.allowed, high, middle),
            )
        total = np.zeros(both.shape)
        for k, n, w in zip(failed, sizes, weights, strict=True):
            total += w * (_edge(k / n, w, n * np.exp2(high)) if n else 1.0)
        return total

    def proves(self, bound: Interval) -> bool:
        """Whether the outcomes are rarer than δ at all rates whose mean is the bound or more."""
        step = math.floor(float(bound.a) * STEPS)
        if step not in self.known:
            self.known[step] = step >= STEPS or self._rarer(step / STEPS)
        return self.known[step]

    def _rarer(self, m: float) -> bool:
        delta = float(self.level.a) / self.rounding
        cells = np.linspace(0, 1, 49)
        left, right = cells[:-1], cells[1:]
        for _ in range(SPLITS):
            other = self._least(right, m)
            possible = other <= 1
            left, right, other = left[possible], right[possible], other[possible]
            open_cells = self._probability(left, other) > delta
            left, right, other = left[open_cells], right[open_cells], other[open_cells]
            if not len(left):
                return True
            if len(left) > MOST_CELLS or np.any(self._probability(right, other) > delta):
                return False
            middle = left / 2 + right / 2
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        return False

    def _least(self, a: Floats, m: float) -> Floats:
        """At most the rate of the others at which the mean can be m; rounded downwards."""
        ends = []
        for q in self.limits:
            if q >= 1:
                ends.append(np.where(a >= m, 0.0, 2.0))
                continue
            c = (m - q * a) / (1 - q)
            ends.append(c - 4 * UNIT * (1 + 1 / (1 - q)))
        return np.maximum(np.minimum(*ends), 0.0)

    def _probability(self, a: Floats, c: Floats) -> Floats:
        """P(k₀ ≤ most(k₁)) at rates a and c; (cells,)."""
        found = np.zeros(len(a))
        inside = self.most >= 0
        chunk = max(1, AT_ONCE // (sum(self.sizes) + 2))
        for start in range(0, len(a), chunk):
            part = slice(start, start + chunk)
            one = _binomial(self.logs[0], a[part])
            below = np.cumsum(_binomial(self.logs[1], c[part]), axis=1)
            found[part] = np.sum(one[:, inside] * below[:, self.most[inside]], axis=1)
        return found


def _edge(share: Floats, weight: float, strength: Floats) -> Floats:
    """x ≥ share with weight x (1-x) = strength (x - share)."""
    if weight == 0:
        return share
    half = (strength / weight - 1) / 2
    root = np.sqrt(half * half + strength / weight * share)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(half > 0, strength / weight * share / (root + half), root - half)
    return np.clip(x, share, 1.0)


def _log_binomials(n: int) -> Floats:
    """ln of n over k, for k = 0, …, n."""
    f = [mp.mpf(intervals.log_factorial(k).b) for k in range(n + 1)]
    return np.array([float(f[n] - f[k] - f[n - k]) for k in range(n + 1)])


def _binomial(logs: Floats, rates: Floats) -> Floats:
    """The probabilities of 0, …, n failures at each rate; (rates, n + 1)."""
    k, rates = np.arange(len(logs)), rates[:, None]
    return np.exp(logs + scipy.special.xlogy(k, rates) + scipy.special.xlog1py(k[::-1], -rates))


# ---- graded costs, and trials that might be stopped at any time: bets ----------------------------


def _proven(
    y: Floats, f: Floats, guide: tuple[float, float], proof: tuple[float, Interval, float]
) -> float:
    """The smallest candidate down to which all are rejected; see `bets.proven_by_bets`.

    Args:
        y: costs on the robot, in the order of the bets
        f: in simulation of the same environments
        guide: mean and variance of the costs in simulation
        proof: the upper limit on their expectation, δ, and the bound that is stated
    """
    high, level, stated = proof
    needed = float((1 / level).b) * (1 + UNIT)
    require(needed < 1e280, "the level of the bound is too small for its bets to be recomputed")
    kappas = _kappas(y, f, guide, (high, _goal(level)), len(y))
    last = max(1, math.floor(math.sqrt(min(stated, 1.0)) * GRID) - BEYOND)
    candidates = np.arange(GRID - 1, last - 1, -1)
    rejected = _rejected((candidates / GRID) ** 2, (y, f, kappas), high, math.log(needed))
    failures = np.flatnonzero(~rejected)
    count = failures[0] if len(failures) else len(candidates)
    return float((candidates[count - 1] / GRID) ** 2) if count else 1.0


def _rejected(
    m: Floats, pairs: tuple[Floats, Floats, Floats], high: float, needed: float
) -> NDArray[np.bool_]:
    """Whether the wealth of the bets against each candidate m provably reaches e^needed."""
    rejected, left, n = np.zeros(len(m), bool), np.arange(len(m)), len(pairs[0])
    log_wealth, aim = np.zeros(len(m)), needed + MARGIN + AIM
    moments = np.zeros((3, 3))  # of 1, Y and F
    for t, (y, f, k) in enumerate(zip(*pairs, strict=True)):
        largest = 1 - m + k * high
        variance = largest * (m + k * (1 - high))
        if t:
            direction = np.stack([k * high - m, np.ones(len(m)), np.full(len(m), -k)])
            squares = np.einsum("ic,ij,jc->c", direction, moments, direction)
            around = np.maximum(squares / t, 1e-12) + largest * aim / (4 * t)
            variance = np.minimum(variance, around)
        ahead = np.maximum(aim - log_wealth, 0.0)
        stake = np.sqrt(2 * ahead / ((n - t) * variance))
        stake = np.minimum(stake, (1 - 8 * UNIT) / largest)
        gain = stake * (m - y + k * (f - high))
        error = (2 + np.abs(gain) + stake * (2 + 2 * k)) * UNIT
        factor = np.maximum(1 + gain - error, 1e-300)
        log_wealth = log_wealth + np.log(factor)
        log_wealth -= (1 + np.abs(log_wealth) + np.abs(np.log(factor))) * UNIT
        row = np.array([1.0, y, f])
        moments += np.outer(row, row)
        done = log_wealth >= needed
        if done.any():
            rejected[left[done]] = True
            m, left, log_wealth = m[~done], left[~done], log_wealth[~done]
        if not len(left):
            break
    return rejected


def _anytime(
    y: Floats, f: Floats, guide: tuple[float, float], high: float, level: Interval
) -> Test:
    """The test by e-values: 1 - Y + κF has a mean of at most 1 - m + κu, if the cost is m."""
    needed = float(iv.log(1 / level).b) * (1 + UNIT)
    kappas = _kappas(y, f, guide, (high, _goal(level)), None)
    outcomes = (1 - y + kappas * f) * (1 - 4 * UNIT)

    def holds(bound: Interval) -> bool:
        rest = math.nextafter(float((1 - bound).b), 2.0)
        means = (rest + kappas * high) * (1 + 4 * UNIT)
        return rest <= 0 or log_e_of_means_from_below(outcomes, means) >= needed

    return holds


def _goal(level: Interval) -> float:
    return MARGIN - float(iv.log(level).mid)


def _kappas(
    y: Floats,
    f: Floats,
    guide: tuple[float, float],
    scale: tuple[float, float],
    number: int | None,
) -> Floats:
    """κ of each pair by those before it: about the one with the smallest bound.

    Args:
        y: costs on the robot
        f: in simulation of the same environments
        guide: mean and variance of the costs in simulation
        scale: the upper limit on their expectation, and about ln of 1/δ
        number: of all pairs; None if it was not fixed
    """
    (mean, variance), (high, goal) = guide, scale
    chosen, kappas = np.empty(len(y)), np.array(KAPPAS)
    sums = np.zeros(5)
    for t, (cost, simulated) in enumerate(zip(y, f - mean, strict=True)):
        mean_y, mean_f = sums[:2] / max(t, 1)
        own = sums[2] - t * mean_y * mean_y + KNOWN / 8
        both = sums[3] - t * mean_y * mean_f + KNOWN * variance / 2
        other = sums[4] - t * mean_f * mean_f + KNOWN * variance
        squares = (own - 2 * kappas * both + kappas * kappas * other) / (t + KNOWN)
        n = 2 * (t + KNOWN) if number is None else number
        excess = np.sqrt(2 * np.maximum(squares, 1e-6) * goal / n)
        excess = excess + (1 - mean_y + kappas * high) * goal / n
        excess = excess + kappas * (high - mean)
        chosen[t] = kappas[np.argmin(np.round(excess, 9))]
        sums += (cost, simulated, cost * cost, cost * simulated, simulated * simulated)
    return chosen
