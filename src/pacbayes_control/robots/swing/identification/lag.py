"""The response of a first-order lag to commands that are held in between, exactly; and its path.

With commands u_j from times t_j on, arriving a latency τ later, and a rate k,

    Ẋ = k (u(t - τ) - X),    X(t) = u_0 + Σ_j (u_j - u_{j-1}) (1 - exp(-k (t - t_j - τ)))₊

where u_0 has been held for ever. Its slopes by k and by τ are sums of the same kind. All three are
carried from one change of the command to the next: no step size, and no power that overflows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.compiling import compiled_once

Floats = NDArray[np.float64]


class LagResponse(NamedTuple):
    """X at some times, and its slopes by the rate and by the latency."""

    value: Floats
    by_rate: Floats
    by_latency: Floats


def lag_response(
    times: Floats, since: Floats, commands: Floats, rate: float, latency: float
) -> LagResponse:
    """The response at `times` to `commands`, each held from its time in `since` on.

    >>> since, commands = np.array([-9.0, 0.0]), np.array([0.0, 1.0])
    >>> step = lag_response(np.array([0.0, 1.0]), since, commands, rate=0.4, latency=0.0)
    >>> step.value.round(4).tolist()
    [0.0, 0.3297]
    """
    jumps = np.diff(commands, prepend=commands[0])
    gaps = np.diff(since, prepend=since[0])
    behinds, moments = _after_each_change(np.exp(-rate * gaps), gaps, jumps)
    last = np.searchsorted(since + latency, times, side="right") - 1
    at = np.maximum(last, 0)  # before the first change, X = u_0
    past = np.maximum(times - latency - since[at], 0.0)
    decay, start = np.exp(-rate * past), behinds[at]
    by_rate = decay * (moments[at] + past * start)
    return LagResponse(commands[at] - decay * start, by_rate, -rate * decay * start)


@compiled_once()
def _after_each_change(decays: Floats, gaps: Floats, jumps: Floats) -> tuple[Floats, Floats]:
    """After each change of the command, u - X, and the negative of its slope by the rate."""
    behinds, moments = np.empty_like(gaps), np.empty_like(gaps)
    behind, moment = 0.0, 0.0
    for i in range(len(gaps)):
        moment = decays[i] * (moment + gaps[i] * behind)
        behind = decays[i] * behind + jumps[i]
        behinds[i], moments[i] = behind, moment
    return behinds, moments


def without_repeats(since: Floats, commands: Floats) -> tuple[Floats, Floats]:
    """The same commands without those that repeat the one before."""
    new = np.append(True, np.diff(commands) != 0)
    return since[new], commands[new]


def unit_speed_path(time: Floats, yaw: Floats) -> NDArray[np.complex128]:
    """The path x + iy of a drone of unit speed, from 0 at the first time (trapezoidal rule)."""
    heading = 1j * np.exp(1j * yaw)
    steps = np.diff(time) * (heading[1:] + heading[:-1]) / 2
    return np.append(0.0, np.cumsum(steps))
