"""Bets on pairs of trials and simulation, recomputed: a wealth that is enclosed from below.

Any κ and stakes that depend on earlier pairs alone are valid, so that they are plain floats: only
the wealth has to be safe.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.verify.bets import AIM, BEYOND, GRID, UNIT
from pacbayes_control.verify.intervals import Interval, Test, iv, require
from pacbayes_control.verify.trials import log_e_from_below

Floats = NDArray[np.float64]

KAPPAS = tuple(k / 10 for k in range(16))  # a constant of the method, as is KNOWN
MIXED = {0.0: 0.4, 0.5: 0.2, 0.8: 0.2, 1.0: 0.2}  # at any time, likewise: shares of the wealth
MARGIN = 1e-6  # of ln of the wealth that κ and stakes aim at, beyond 1/δ
KNOWN = 10.0  # pairs that the choice of κ begins with: V(Y) = ⅛, and slope ½ of Y in F


def proven_by_pairs(
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
    kappas = _kappas(y, f, guide, (high, _goal(level)))
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


def pairs_condition(y: Floats, f: Floats, high: float, level: Interval) -> Test:
    """The test by e-values: 1 - Y + κF has a mean of at most 1 - m + κu, if the cost is m."""
    needed = float(iv.log(1 / level).b) * (1 + UNIT)

    def holds(bound: Interval) -> bool:
        rest = math.nextafter(float((1 - bound).b), 2.0)
        logs = [
            math.log(share)
            - UNIT
            + log_e_from_below(
                (1 - y + kappa * f) * (1 - 4 * UNIT), (rest + kappa * high) * (1 + 4 * UNIT)
            )
            for kappa, share in MIXED.items()
            if rest > 0
        ]
        return rest <= 0 or float(np.logaddexp.reduce(logs)) - 8 * UNIT >= needed

    return holds


def _goal(level: Interval) -> float:
    return MARGIN - float(iv.log(level).mid)


def _kappas(
    y: Floats,
    f: Floats,
    guide: tuple[float, float],
    scale: tuple[float, float],
) -> Floats:
    """κ of each pair by those before it: about the one with the smallest bound.

    Args:
        y: costs on the robot
        f: in simulation of the same environments
        guide: mean and variance of the costs in simulation
        scale: the upper limit on their expectation, and about ln of 1/δ
    """
    (mean, variance), (high, goal) = guide, scale
    chosen, kappas, n = np.empty(len(y)), np.array(KAPPAS), len(y)
    sums = np.zeros(5)
    for t, (cost, simulated) in enumerate(zip(y, f - mean, strict=True)):
        mean_y, mean_f = sums[:2] / max(t, 1)
        own = sums[2] - t * mean_y * mean_y + KNOWN / 8
        both = sums[3] - t * mean_y * mean_f + KNOWN * variance / 2
        other = sums[4] - t * mean_f * mean_f + KNOWN * variance
        squares = (own - 2 * kappas * both + kappas * kappas * other) / (t + KNOWN)
        excess = np.sqrt(2 * np.maximum(squares, 1e-6) * goal / n)
        excess = excess + (1 - mean_y + kappas * high) * goal / n
        excess = excess + kappas * (high - mean)
        chosen[t] = kappas[np.argmin(np.round(excess, 9))]
        sums += (cost, simulated, cost * cost, cost * simulated, simulated * simulated)
    return chosen
