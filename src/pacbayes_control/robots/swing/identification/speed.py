"""The speed, from positions and the yaw that was fitted to the same logs.

    x + iy = p_l + u_0 exp(iε_l) ∫ i exp(iψ) dt,

by least squares for u_0, with a place p_l and an angle ε_l for each log, which stands for the error
of the offset. ψ is the model's with the likeliest gusts, or without gusts if the positions are
nearer to that: then not the drone's yaw wandered, but the tracker's measurement of it. The interval
adds three variances: from the positions, from the parameters of ψ, and from the gusts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.swing.identification import noises
from pacbayes_control.robots.swing.identification.fitting import Fit, unit_speed_path
from pacbayes_control.robots.swing.identification.identified import Estimate
from pacbayes_control.robots.swing.identification.logs import Floats
from pacbayes_control.robots.swing.identification.weighted_fit import INEXACT, WeightedFit

Complex = NDArray[np.complex128]

LARGEST_ANGLE = 0.2  # rad between where the drone points and where it flies


def estimate_speed(
    found: WeightedFit, covariance: Floats, reach: float
) -> tuple[Estimate, list[str]]:
    """The speed, and sentences about a drone that does not fly where it points.

    Args:
        found: the fit of the yaw
        covariance: of all its parameters
        reach: half the width of the interval, in standard deviations
    """
    fit, calm = found.fit, replace(found.fit, noise=noises.YawNoise())
    motion, other = _motion(fit), _motion(calm)
    if motion.squares > other.squares:  # the drone did not turn with the gusts: it was the tracker
        fit, motion = calm, other
    value = motion.speed
    parts = [part for r in motion.residuals for part in (r.real, r.imag)]
    samples = sum(len(r) for r in motion.residuals)
    inflation = max(1.0, noises.variance_inflation(parts, noises.fit_autoregression(parts)))
    variance = inflation * motion.squares
    variance /= (2 * samples - 3 * len(motion.residuals) - 1) * motion.power
    variance += _variance_from_gusts(found, motion)
    steps = np.sqrt(np.diag(covariance))
    gradient = np.zeros(len(steps))
    for i in range(len(steps)):
        if i < 3 or i % 2:  # an offset turns the path, and does not change the speed
            moved = replace(fit, parameters=fit.parameters + steps[i] * np.eye(len(steps))[i])
            gradient[i] = (_motion(moved).speed - value) / max(steps[i], 1e-300)
    variance += float(gradient @ covariance @ gradient)
    margin = reach * math.sqrt(variance) + INEXACT * value
    return Estimate(value, value - margin, value + margin), list(_direction_remarks(fit, motion))


@dataclass(frozen=True)
class _Motion:
    """Paths of unit speed, about their means, and the positions fitted by them."""

    times: list[Floats]  # on a fine grid, for each log
    yaws: list[Floats]  # at these times
    paths: list[Complex]  # where positions were measured
    overlaps: list[complex]  # with the positions
    power: float
    speed: float
    residuals: list[Complex]

    @property
    def squares(self) -> float:
        """The sum of squared residuals."""
        return sum(map(_power, self.residuals))


def _motion(fit: Fit, mirrored: bool = False) -> _Motion:
    """The motion by a fit; mirrored: as if yaw were clockwise."""
    times, yaws, paths, places = [], [], [], []
    for i, flight in enumerate(fit.flights):
        placed = flight.position_time
        fine = np.union1d(np.arange(placed[0], placed[-1], 0.02), placed)
        gusts = fit.noise.likeliest_gusts(flight.time, fit.residuals[i])
        yaw = fit.model(i, fine)[0] + np.interp(fine, flight.time, gusts)
        path = unit_speed_path(fine, -yaw if mirrored else yaw)
        path = path[np.searchsorted(fine, placed)]
        times.append(fine)
        yaws.append(yaw)
        paths.append(path - path.mean())
        places.append(flight.position - flight.position.mean())
    overlaps = [complex(np.vdot(*pair)) for pair in zip(paths, places, strict=True)]
    power = sum(map(_power, paths))
    speed = sum(map(abs, overlaps)) / power
    residuals = [
        place - speed * np.exp(1j * np.angle(overlap)) * path
        for path, place, overlap in zip(paths, places, overlaps, strict=True)
    ]
    return _Motion(times, yaws, paths, overlaps, power, speed, residuals)


def _variance_from_gusts(found: WeightedFit, motion: _Motion) -> float:
    """Variance of the speed from the gusts, as far as the yaws do not determine them.

    The speed's slope by the yaw at t is -Re(exp(iψ) R*) / power, R the sum of exp(-iε) (x + iy) -
    2 u_0 path over the positions from t on. Given the yaws, g has the covariance σ² G, and G is
    the smoother: it takes residuals to the likeliest g.
    """
    mixture, likely, variance = found.mixture, found.mixture.weights > 1e-3, 0.0
    for i, flight in enumerate(found.fit.flights):
        time, yaw = motion.times[i], motion.yaws[i]
        turned = np.exp(-1j * np.angle(motion.overlaps[i])) * motion.residuals[i]
        pull = turned - motion.speed * motion.paths[i]
        after = np.searchsorted(flight.position_time, time)
        pull = np.append(np.cumsum(pull[::-1])[::-1], 0.0)[after]
        slope = -np.real(np.exp(1j * yaw) * np.conj(pull)) * np.gradient(time) / motion.power
        at = np.clip(np.searchsorted(flight.time, time), 1, len(flight.time) - 1)
        gap = flight.time[at] - flight.time[at - 1]
        share = np.clip((time - flight.time[at - 1]) / gap, 0.0, 1.0)
        by_sample = np.bincount(at, slope * share, len(flight.time)).astype(float)
        by_sample += np.bincount(at - 1, slope * (1 - share), len(flight.time))
        for j in np.flatnonzero(likely):
            noise = replace(found.fit.noise, ratio=float(mixture.ratios[j]))
            spread = float(by_sample @ noise.gust_covariance(flight.time, by_sample))
            variance += mixture.weights[j] * (mixture.variances[j] * spread)
    return variance


def _direction_remarks(fit: Fit, motion: _Motion) -> Iterator[str]:
    """A sentence if the drone does not fly where it points."""
    squares, total = motion.squares, sum(_power(flight.position) for flight in fit.flights)
    angle = max((float(np.angle(overlap)) for overlap in motion.overlaps), key=abs)
    if _motion(fit, mirrored=True).squares < 0.5 * squares:
        yield (
            "The drone flies as if yaw were measured clockwise: change the signs of yaw and "
            "yaw_percent, or see whether x and y are swapped."
        )
    elif squares > 0.1 * total or abs(angle) > LARGEST_ANGLE:
        yield (
            f"The drone does not fly where it points: the direction is off by {angle:.2f} rad, and "
            f"{squares / total:.0%} of its motion is unexplained; see that the axes are those of "
            "yaw."
        )


def _power(path: Complex) -> float:
    """The sum of squared distances from the mean."""
    return float(np.sum(np.abs(path - path.mean()) ** 2))
