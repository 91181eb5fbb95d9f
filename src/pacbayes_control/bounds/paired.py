"""Bounds by bets on a graded cost on the robot, from trials there and many in simulation.

Y is the cost on the robot in an environment, and F the cost in simulation of the same one. There
are n independent pairs (Y, F), and many more environments with F alone, which give an upper limit u
on E F. A bet that E Y is less than m pays 1 + λ(m - Y + κ(F - u)) for each unit. While E Y ≥ m and
E F ≤ u, and with κ ≥ 0, it cannot gain on average; with λ ≤ 1/(1 - m + κu) it cannot lose more than
all. λ and κ may depend on earlier pairs. A good simulator makes what is left of Y after κF small,
and so the bound; with κ = 0 it is the bound of Y alone.

It is a control variate, as in prediction-powered inference (Angelopoulos et al., 2023), by bets: no
number of pairs is too small. For costs of 0 and 1 on the robot, see `stratified`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.bounds.anytime import log_e_of_range
from pacbayes_control.bounds.betting import AIM, GRID, LARGEST, MARGIN
from pacbayes_control.bounds.kl import Floats, in_unit_interval
from pacbayes_control.bounds.theorems import ROUNDING, check_delta

KAPPAS: Floats = np.arange(16) / 10  # shares of F that are subtracted from Y
MIXED = {0.0: 0.4, 0.5: 0.2, 0.8: 0.2, 1.0: 0.2}  # κ, at any time, and their shares of the wealth
KNOWN = 10.0  # pairs that the choice among them begins with: V(Y) = ⅛, and slope ½ of Y in F


@dataclass(frozen=True)
class SimulatedMean:
    """The cost F in the further environments: its mean and variance there, and u."""

    mean: float
    variance: float
    high: float  # u, an upper limit on E F

    def __post_init__(self) -> None:
        if not (0 <= self.mean <= self.high <= 1 and 0 <= self.variance <= 0.25 + ROUNDING):
            raise ValueError(f"no cost in [0, 1] has the mean, variance and limit of {self}")


def paired_betting(
    costs: ArrayLike, simulated: ArrayLike, more: SimulatedMean, delta: float
) -> float:
    """A bound by bets on E Y for costs in [0, 1] and a fixed number of pairs.

    With probability at least 1 - δ₁ - δ₂, where δ₂ is that of an error of u. As in
    `betting.betting_holdout`, the candidates m are those of a fixed grid, from above, and the last
    that is rejected in a row is the bound. λ is that of STaR for m - Y + κ(F - u). κ is the one of
    KAPPAS that would make the bound smallest by the moments of the pairs so far
    (`predictable_kappas`): a grid of fixed κ with a share of δ for each is wider
    (`benchmarks/sim_to_real.py`).

    Args:
        costs: Y, (pairs,), in an order that cannot know the costs
        simulated: F, (pairs,)
        more: F in the further environments
        delta: δ₁

    >>> y = np.arange(300) * 7 % 300 / 300
    >>> f = np.clip(y + np.where(np.arange(300) % 2, 0.1, -0.1), 0, 1)
    >>> bound = paired_betting(y, f, SimulatedMean(0.5, 0.08, 0.501), 0.01)
    >>> round(bound, 3), round(float(np.mean(y)), 3)
    (0.519, 0.498)
    """
    from pacbayes_control.bounds.kernels import last_rejected_pair

    y, f = _checked(costs, simulated, delta)
    goal = MARGIN - math.log(delta)
    if not goal < LARGEST:
        return 1.0
    kappas = predictable_kappas(y, f, more, goal)
    j = last_rejected_pair(y, f, kappas, more.high, (goal, goal + AIM))
    return (j / GRID) ** 2


def paired_anytime(
    costs: ArrayLike, simulated: ArrayLike, more: SimulatedMean, delta: float
) -> float:
    """A bound on E Y at every number of pairs at once, for costs in [0, 1], in any order.

    1 - Y + κF is not negative, and its mean is at most 1 - m + κu while E Y ≥ m and E F ≤ u: so
    `anytime.log_e_of_range` is an e-value against "E Y is at least m", which grows with m. So is
    the mixture over the fixed κ of MIXED, whose last value does not depend on the order of the
    pairs. With probability at least 1 - δ₁ - δ₂, E Y is at most the smallest m where it reaches
    1/δ₁, whenever the trials were stopped. (κ by earlier pairs is as tight, and would be wrong for
    a log that is sorted by outcome.)

    Args:
        costs: Y, (pairs,)
        simulated: F, (pairs,)
        more: F in the further environments, whose number is fixed in advance
        delta: δ₁

    >>> from pacbayes_control.bounds.anytime import highest_cost
    >>> y = np.arange(300) * 7 % 2
    >>> bound = paired_anytime(y, y, SimulatedMean(0.5, 0.25, 0.505), 0.01)
    >>> round(bound, 3), round(highest_cost(y, 0.01), 3)
    (0.526, 0.612)
    """
    y, f = _checked(costs, simulated, delta)
    goal = MARGIN - math.log(delta)
    low, high = 0.0, 1.0
    for _ in range(50):
        m = (low + high) / 2
        logs = [
            math.log(share) + log_e_of_range(1 - y + k * f, 1 - m + k * more.high)
            for k, share in MIXED.items()
        ]
        low, high = (low, m) if np.logaddexp.reduce(logs) >= goal else (m, high)
    return high


def predictable_kappas(
    costs: Floats, simulated: Floats, more: SimulatedMean, goal: float
) -> Floats:
    """κ for each pair, by the pairs before it; (pairs,).

    It minimises √(2 s² g/n) + (1 - m + κu) g/n + κ(u - E F), about the excess of the bound over
    E Y: g is ln of the wealth that is needed, m the mean of Y so far, E F as in the further
    environments, and s² = V(Y) - 2κ Cov(Y, F) + κ² V(F) with moments from the pairs so far, and
    KNOWN others. The second term is for the largest loss, which grows with κ. n is the number of
    pairs.
    """
    before = np.arange(len(costs))
    n = len(costs)
    t, d = np.maximum(before, 1), simulated - more.mean

    def so_far(values: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(values)[:-1]])

    y, f = so_far(costs) / t, so_far(d) / t
    of_y = so_far(costs**2) - t * y**2 + KNOWN / 8
    both = so_far(costs * d) - t * y * f + KNOWN * more.variance / 2
    of_f = so_far(d**2) - t * f**2 + KNOWN * more.variance
    squares = of_y[:, None] - 2 * KAPPAS * both[:, None] + KAPPAS**2 * of_f[:, None]
    squares = np.maximum(squares / (before + KNOWN)[:, None], 1e-6)
    largest = 1 - y[:, None] + KAPPAS * more.high
    excess = np.sqrt(2 * squares * goal / n) + largest * goal / n
    excess = excess + KAPPAS * (more.high - more.mean)
    return KAPPAS[np.argmin(np.round(excess, 9), axis=1)]  # rounded: no last bit decides a tie


def _checked(costs: ArrayLike, simulated: ArrayLike, delta: float) -> tuple[Floats, Floats]:
    check_delta(delta)
    y, f = (np.array(in_unit_interval(each, "a cost"), float) for each in (costs, simulated))
    if y.ndim != 1 or y.shape != f.shape or y.size == 0:
        raise ValueError(f"costs of {y.shape} and simulated costs of {f.shape} are not pairs")
    return y, f
