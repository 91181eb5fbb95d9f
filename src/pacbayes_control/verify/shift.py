"""Checks that a certificate holds on every distribution in its ball."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scipy.special import betainccinv

from pacbayes_control.certify.balls import Ball
from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, Test, iv, mp, require

# The term of a cell with probabilities x under D' and y under D, both positive; and how it grows
# with x where y is 0, and with y where x is 0. Those of Rényi are in `_term`.
TERMS: dict[str, tuple[Callable[[Interval, Interval], Interval], float, float]] = {
    "kl": (lambda x, y: x * iv.log(x / y) - x + y, math.inf, 1),
    "reverse-kl": (lambda x, y: y * iv.log(y / x) + x - y, 1, math.inf),
    "total-variation": (lambda x, y: abs(x - y) / 2, 0.5, 0.5),
    "chi-squared": (lambda x, y: (x - y) ** 2 / y, math.inf, 1),
    "hellinger": (lambda x, y: (iv.sqrt(x) - iv.sqrt(y)) ** 2 / 2, 0.5, 0.5),
}


def shifted_condition(ball: Ball, bound: float) -> Test:
    """The test that a number passes if no D' in the ball costs more, given that D costs `bound`.

    D(Bern(b)‖Bern(U)) grows with b ≥ U: if it is at least B, then b is at least the largest cost
    that the ball allows.
    """
    u, radius = iv.mpf(bound), iv.mpf(ball.radius)
    absolute = _term(ball.divergence, iv.mpf(1), iv.mpf(0)) == iv.inf
    same = ball.radius == 0 or (bound == 0 and absolute)  # as on D, in all of the ball

    def holds(b: Interval) -> bool:
        if b.a >= 1 or b.a < u.b:
            return bool(b.a >= 1)
        return same or bool(_between(ball.divergence, b, u).a >= radius.b)

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
    cells, others = _boxes(shifted, ball.delta / 2), _boxes(training, ball.delta / 2)
    chords = [
        [(x, max((_term(ball.divergence, x, y) for y in other), key=_upper)) for x in cell]
        for cell, other in zip(cells, others, strict=True)
    ]
    needed = _of_sum(ball.divergence, _largest_sum(chords)).b
    require(
        needed <= ball.radius,
        f"the shift is stated to be at most {ball.radius:.6g}, which these samples do not "
        f"support ({float(needed):.6g})",
    )


def _largest_sum(chords: Sequence[Sequence[tuple[Interval, Interval]]]) -> Interval:
    """The maximum of chords over probabilities in a box, by duality: a minimum over multipliers.

    Each chord is its left and its right end, with the value at each.
    """
    if any(value == iv.inf for chord in chords for _, value in chord):
        return iv.inf
    slopes = [(top - bottom) / (b - a) for (a, bottom), (b, top) in chords]
    sums = (
        m + sum(max((value - m * x for x, value in chord), key=_upper) for chord in chords)
        for m in slopes
    )
    return min(sums, key=_upper)


def _upper(interval: Interval) -> Interval:
    return interval.b


def _boxes(counts: Sequence[int], delta: float) -> list[tuple[Interval, Interval]]:
    """Limits on the probability of every cell, of which any is wrong with probability ≤ `delta`."""
    n = sum(counts)
    if len(counts) == 2:  # the other cell has the rest: two limits are all
        low, high = _limits(counts[0], n, delta / 2)
        return [(low, high), (1 - high, 1 - low)]
    return [_limits(count, n, delta / (2 * len(counts))) for count in counts]


def _limits(count: int, n: int, level: float) -> tuple[Interval, Interval]:
    """Limits on a cell's probability, each wrong with probability at most `level`."""
    upper = iv.mpf(1) if count == n else iv.mpf(_certified(count, n, level))
    lower = iv.mpf(0) if count == 0 else iv.mpf(1 - _certified(n - count, n, level))
    return lower, upper


def _certified(count: int, n: int, level: float) -> Any:
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
    """D(Bern(q)‖Bern(p)), of two cells, for q and p in [0, 1)."""
    if _order(divergence) == math.inf:
        return iv.log(q / p)
    return _of_sum(divergence, _term(divergence, q, p) + _term(divergence, 1 - q, 1 - p))


def _term(divergence: str, x: Interval, y: Interval) -> Interval:
    """The term of a cell with probabilities x under D' and y under D; ≥ 0, convex in both."""
    a = iv.mpf(_order(divergence))
    renyi = None, a / (1 - a) if a < 1 else math.inf, 1
    term, growth, at_zero = TERMS.get(divergence, renyi)
    if x == 0 or y == 0:
        return x * growth if x > 0 else y * at_zero if y > 0 else x
    return term(x, y) if term else (x**a * y ** (1 - a) - y - a * (x - y)) / (a - 1)


def _of_sum(divergence: str, total: Interval) -> Interval:
    """The divergence from the sum of its terms."""
    if divergence in ("total-variation", "hellinger"):
        return iv.mpf([min(total.a, 1), min(total.b, 1)])
    if divergence in TERMS or total == iv.inf:
        return total
    a = iv.mpf(_order(divergence))
    inside = 1 + (a - 1) * total
    if inside.b <= 0:
        return iv.inf
    return iv.log(iv.mpf([max(inside.a, 0), inside.b])) / (a - 1)
