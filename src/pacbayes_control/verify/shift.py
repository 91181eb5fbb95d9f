"""Checks that a certificate holds on every distribution in its ball."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy.special import betainccinv

from pacbayes_control.certify.balls import Ball
from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, Test, iv, mp, require

Number = Interval  # an interval, or one of mpmath's numbers: the formulas are the same


def shifted_condition(ball: Ball, bound: float) -> Test:
    """The test that a number passes if no D' in the ball costs more, given that D costs `bound`.

    D(Bern(b)‖Bern(U)) grows with b ≥ U: if it is at least B, then b is at least the largest cost
    that the ball allows.
    """
    u, radius = iv.mpf(bound), iv.mpf(ball.radius)
    absolute = ball.divergence in ("kl", "chi-squared") or _order(ball.divergence) > 1

    def holds(b: Interval) -> bool:
        if b.a >= 1:
            return True
        if b.a < u.b:
            return False
        if ball.radius == 0 or (bound == 0 and absolute):
            return True
        if bound >= 1 or b.b <= 0:
            return False
        return bool(_between(ball.divergence, b, u).a >= radius.b)

    return holds


def tilted_condition(holds: Test, ball: Ball, tilt: float) -> Test:
    """The same for a tilted certificate, whose bound on D' is that on D plus B/λ."""
    more = iv.mpf(ball.radius) / iv.mpf(tilt)
    return lambda b: bool(b.a >= 1) or holds(b - more)


def check_samples(ball: Ball, spent: float | None) -> None:
    """Whether an estimated radius follows from the two samples at its share of δ."""
    paid = (ball.delta > 0) == (ball.samples is not None) and (spent or 0.0) == ball.delta
    require(paid, "the budget's share for the shift is not that of the ball")
    if ball.samples is None:
        return
    shifted, training = ball.samples
    if len(shifted) == 1:  # one cell always has probability 1
        return
    level = ball.delta / (4 * len(shifted))
    cells = [_limits(k, sum(shifted), level) for k in shifted]
    others = [_limits(k, sum(training), level) for k in training]
    chords = [
        [(x, max(_term(ball.divergence, x, y) for y in other)) for x in cell]
        for cell, other in zip(cells, others, strict=True)
    ]
    needed = _of_sum(ball.divergence, _largest_sum(chords))
    require(
        mp.mpf(ball.radius) >= needed,
        f"the shift is stated to be at most {ball.radius:.6g}, which these samples do not "
        f"support ({float(needed):.6g})",
    )


def _largest_sum(chords: Sequence[Sequence[tuple[Number, Number]]]) -> Number:
    """The maximum of chords over probabilities in a box, by duality: a minimum over multipliers.

    Each chord is its left and its right end, with the value at each.
    """
    if any(mp.isinf(top) for _, (_, top) in chords):
        return mp.inf
    slopes = [(top - bottom) / (b - a) for (a, bottom), (b, top) in chords]
    return min(
        m + sum(max(value - m * x for x, value in chord) for chord in chords) for m in slopes
    )


def _limits(count: int, n: int, level: float) -> tuple[Number, Number]:
    """Limits on a cell's probability, each wrong with probability at most `level`."""
    upper = mp.mpf(1) if count == n else _certified(count, n, level)
    lower = mp.mpf(0) if count == 0 else 1 - _certified(n - count, n, level)
    return lower, upper


def _certified(count: int, n: int, level: float) -> Number:
    """A number p with P(Bin(n, p) ≤ count) ≤ level: a guess, increased until that is proven."""
    guess, widening = mp.mpf(float(betainccinv(count + 1, n - count, level))), mp.mpf(10) ** -15
    while guess < 1 and widening <= 1:
        p = guess + widening * min(guess, 1 - guess)
        if intervals.binomial_tail(count, n, iv.mpf(p)).b <= level:
            return p
        widening *= 4
    return mp.mpf(1)


def _order(divergence: str) -> float:
    return float(divergence.removeprefix("renyi-")) if divergence.startswith("renyi-") else math.nan


def _between(divergence: str, q: Interval, p: Interval) -> Interval:
    """D(Bern(q)‖Bern(p)) by its definition, for q in (0, 1) and p in [0, 1)."""
    if divergence in BETWEEN:
        return BETWEEN[divergence](q, p)
    order = _order(divergence)
    if order == math.inf:
        return iv.log(q / p)
    a = iv.mpf(order)
    met = iv.exp(a * iv.log(q) + (1 - a) * iv.log(p)) if p.a > 0 else iv.mpf(0)
    return iv.log(met + iv.exp(a * iv.log(1 - q) + (1 - a) * iv.log(1 - p))) / (a - 1)


BETWEEN: dict[str, Callable[[Interval, Interval], Interval]] = {  # but those of Rényi
    "kl": intervals.kl_bernoulli,
    "reverse-kl": lambda q, p: intervals.kl_bernoulli(p, q),
    "total-variation": lambda q, p: q - p,
    "chi-squared": lambda q, p: (q - p) ** 2 / (p * (1 - p)),
    "hellinger": lambda q, p: 1 - iv.sqrt(p * q) - iv.sqrt((1 - p) * (1 - q)),
}
TERMS: dict[str, Callable[[Number, Number], Number]] = {  # of a cell, likewise
    "kl": lambda x, y: x * mp.log(x / y) - x + y,
    "reverse-kl": lambda x, y: y * mp.log(y / x) + x - y,
    "total-variation": lambda x, y: abs(x - y) / 2,
    "chi-squared": lambda x, y: (x - y) ** 2 / y,
    "hellinger": lambda x, y: (mp.sqrt(x) - mp.sqrt(y)) ** 2 / 2,
}


def _term(divergence: str, x: Number, y: Number) -> Number:
    """The term of a cell with probabilities x under D' and y under D; ≥ 0, convex in both."""
    if y == 0 or x == 0:
        return _one_sided(divergence, x, y)
    if divergence in TERMS:
        return TERMS[divergence](x, y)
    a = mp.mpf(_order(divergence))
    return (x**a * y ** (1 - a) - y - a * (x - y)) / (a - 1)


def _one_sided(divergence: str, x: Number, y: Number) -> Number:
    """The same for a cell that has probability 0 under D', under D, or under both."""
    if divergence in ("total-variation", "hellinger"):
        return (x + y) / 2
    if x == 0:
        return mp.inf if divergence == "reverse-kl" and y > 0 else y
    order = _order(divergence)
    if divergence == "reverse-kl":
        return x
    return x * order / (1 - order) if order < 1 else mp.inf


def _of_sum(divergence: str, total: Number) -> Number:
    if divergence in ("total-variation", "hellinger"):
        return min(total, mp.mpf(1))
    order = mp.mpf(_order(divergence))
    if mp.isnan(order) or mp.isinf(total):
        return total
    inside = 1 + (order - 1) * total
    return mp.log(inside) / (order - 1) if inside > 0 else mp.inf
