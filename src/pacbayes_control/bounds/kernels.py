"""Compiled loops of the bounds; a module of its own, since Numba is slow to load."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.betting import GRID
from pacbayes_control.bounds.compiling import compiled_once


@compiled_once(nogil=True)
def last_rejected(
    costs: NDArray[np.float64], goal: float, aim: float, grid: int, together: int
) -> int:  # pragma: no cover - compiled
    """The last candidate, j of m = (j/grid)², that `betting.betting_holdout` rejects in a row.

    Args:
        costs: of one policy, in an order that cannot know them
        goal: ln of the wealth at which a candidate is rejected
        aim: ln of the wealth that the stakes aim at
        grid: number of candidates
        together: how many costs in a row have the same stake, and are bet on before the wealth is
            looked at; 0 for as many as there is most use of
    """
    n = len(costs)
    sums, squares = np.zeros(n), np.zeros(n)  # of 1 - C, before each cost
    for t in range(1, n):
        y = 1 - costs[t - 1]
        sums[t], squares[t] = sums[t - 1] + y, squares[t - 1] + y * y
    for j in range(grid - 1, 0, -1):
        m = (j / grid) ** 2
        q = 1 - m
        largest, spread = 1 / q, m * q
        log_wealth, t = 0.0, 0
        while t < n and log_wealth < goal:
            variance = spread
            if t > 0:
                around = (squares[t] - 2 * q * sums[t] + t * q * q + q * aim / 4) / t
                variance = min(max(around, 1e-18), spread)
            stake = min(math.sqrt(2 * (aim - log_wealth) / ((n - t) * variance)), largest)
            until = t + (together if together else 1 + min(min(t, n - t - 1) // 16, 15))
            while t < until:
                factor, end = 1.0, min(t + 16, until)  # few enough not to overflow
                while t < end:
                    factor *= 1 + stake * (m - costs[t])
                    t += 1
                if factor <= 0:
                    return j + 1
                log_wealth += math.log(factor)
        if log_wealth < goal:
            return j + 1
    return 1


@compiled_once(nogil=True)
def last_rejected_pair(
    costs: NDArray[np.float64],
    simulated: NDArray[np.float64],
    kappas: NDArray[np.float64],
    high: float,
    goals: tuple[float, float],
) -> int:  # pragma: no cover - compiled
    """The last candidate, j of m = (j/GRID)², that `paired.paired_betting` rejects in a row.

    Args:
        costs: Y, in an order that cannot know them
        simulated: F
        kappas: κ of each pair, by those before it
        high: u
        goals: ln of the wealth at which a candidate is rejected, and of that which stakes aim at
    """
    n, (goal, aim) = len(costs), goals
    for j in range(GRID - 1, 0, -1):
        m = (j / GRID) ** 2
        log_wealth, y, yy, f, ff, yf = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for t in range(n):
            k = kappas[t]
            largest = 1 - m + k * high
            variance = largest * (m + k * (1 - high))
            if t > 0:
                c = m - k * high
                squares = t * c * c - 2 * c * (y - k * f) + yy - 2 * k * yf + k * k * ff
                around = max(squares / t, 1e-12) + largest * aim / (4 * t)
                variance = min(around, variance)
            stake = min(math.sqrt(2 * (aim - log_wealth) / ((n - t) * variance)), 1 / largest)
            factor = 1 + stake * (m - costs[t] + k * (simulated[t] - high))
            if factor <= 0:
                return j + 1
            log_wealth += math.log(factor)
            if log_wealth >= goal:
                break
            y, f = y + costs[t], f + simulated[t]
            yy, ff = yy + costs[t] * costs[t], ff + simulated[t] * simulated[t]
            yf += costs[t] * simulated[t]
        if log_wealth < goal:
            return j + 1
    return 1
