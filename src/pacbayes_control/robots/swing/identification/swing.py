"""The Swing's gains from logs of its flights (paper: Section 8).

The model. In log l, with commands u held in between and reaching the drone a latency τ later,

    ψ̇ = k_p (k_u u(t - τ) - (ψ - b_l)),    measured yaw = ψ + noise,

so that   ψ(t) = b_l + a_l exp(-k_p t) + k_u X(t; k_p, τ),   X the lag's response (`fitting.py`).

The offset b_l is the drone's zero of yaw in the tracker's frame, which each flight may set anew;
a_l is the initial state of the log. The commands before a log are unknown: once the latency has
passed they change a_l alone, so the first half second of measurements is left out, the longest
latency that is searched. Gains and latency are common to all logs. Since offsets are free, a log of
one constant command says nothing about k_u: its offset explains it as well.

The noise. Measured minus model is g(t) + v. Gusts g fade at the rate k_p, as the drone's own yaw
does, dg = -k_p g dt + q dW; v is the tracker's, independent and normal with variance σ². Given k_p
and ρ = q²/σ², a Kalman filter makes both white (`noises.py`), and the fit is generalised least
squares: least squares over all logs, after the filter. If Ljung and Box's test finds the filtered
residuals correlated (p < 0.001), v is taken as autoregressive, of an order by BIC, and filtered
first, unless its correlation time is more than a quarter of 1/k_p: a tracker's is not.

The intervals. For one ρ, n samples and m parameters give value ± t · sd, with t the quantile of
Student's distribution with n - m degrees of freedom and sd from σ² (JᵀJ)⁻¹, J the filtered slopes
by all parameters at the fit. A minute says little about ρ, and gusts too small to be seen still
matter: intervals are those of the mixture over all ρ, weighted by their likelihood
(`weighted_fit.py`). They cover at the stated rate as n grows; the tests measure how well at a
minute, with gusts and without. Without gusts, intervals are wider by about a fifth than if that
were known. With gusts the likelihood has several maxima over the latency, and its interval holds
all that are as likely.

Whether it fits. Four tests, each at the level 0.0002, fixed here: F tests of whether the residuals
still hold a lag of another order, gains that drift, or a response that is not proportional to the
command, their p-values weighted over ρ in the same way; and Ljung and Box's, after the filter. So
about one good log in 1000 is refused. An effect counts if it is more than 0.001 rad. The model does
not fit either where half of the yaw's variance is unexplained, where a gain is known to no better
than ±25 %, where the search ends at the edge of its range, or where the drone does not fly where it
points (`speed.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from pacbayes_control.robots.swing.identification import identified
from pacbayes_control.robots.swing.identification.fitting import LATENCIES, RATES, Fit, FlightData
from pacbayes_control.robots.swing.identification.identified import Estimate, IdentifiedModel
from pacbayes_control.robots.swing.identification.logs import LARGEST_YAW, RADIANS, FlightLog
from pacbayes_control.robots.swing.identification.noises import whiteness_p_value
from pacbayes_control.robots.swing.identification.speed import estimate_speed
from pacbayes_control.robots.swing.identification.weighted_fit import WeightedFit, fit_with_noise

LEVEL = 2e-4  # of each test of the model
NEGLIGIBLE = 1e-3  # rad: smaller effects are ignored
VAGUE = 0.25  # margin of a gain, as a share of it


def identify_swing(logs: Sequence[FlightLog], confidence: float = 0.95) -> IdentifiedModel:
    """Fit gains, latency and speed to all logs together; the module states the assumptions.

    >>> from pacbayes_control.robots.swing.identification.synthetic import SyntheticDrone
    >>> found = identify_swing([SyntheticDrone(k_u=3.0, k_p=0.4).log()])
    >>> found.fits, round(found.k_u.value, 1), round(found.k_p.value, 1)
    (True, 3.0, 0.4)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g} is outside (0, 1): 0.95 is usual")
    _check_logs(logs)
    flights = [FlightData(log) for log in logs]
    found = fit_with_noise(flights)
    fit, covariance = found.fit, found.covariance()
    k_u, k_p, latency = (found.estimate(i, confidence) for i in range(3))
    _check_gains(k_u, k_p)
    reach = float(stdtrit(fit.freedom, (1 + confidence) / 2))
    speed, astray = estimate_speed(found, covariance, reach)
    failures = [*_failures(found, k_u, k_p, latency), *astray]
    return IdentifiedModel(
        k_u,
        k_p,
        speed,
        latency,
        covariance=(tuple(covariance[0, :2].tolist()), tuple(covariance[1, :2].tolist())),
        noise=fit.noise_sd,
        confidence=confidence,
        samples=sum(len(flight.time) for flight in flights),
        fits=not failures,
        remarks=(*failures, *_notes(found, latency)),
        responses=tuple(
            identified.YawResponse(flight.time, flight.yaw, flight.yaw - residuals)
            for flight, residuals in zip(flights, fit.residuals, strict=True)
        ),
    )


def _check_logs(logs: Sequence[FlightLog]) -> None:
    if not logs:
        raise ValueError("there are no logs to identify from")
    for i, log in enumerate(logs):
        for other in logs[:i]:
            if np.array_equal(log.yaw, other.yaw, equal_nan=True):
                raise ValueError(f"{log.name} is the same flight as {other.name}: give it once")
    if all(np.ptp(log.yaw_percent) == 0 for log in logs):
        names = ", ".join(log.name for log in logs)
        raise ValueError(
            f"{names}: the command never changes, so k_p cannot be identified: "
            "add a log with a sinusoid or a chirp"
        )
    largest = max(float(np.abs(log.yaw_percent).max()) for log in logs)
    if largest <= 1:
        raise ValueError(f"yaw_percent reaches only {largest:g}: multiply fractions by 100")


def _check_gains(k_u: Estimate, k_p: Estimate) -> None:
    if k_u.high < 0:
        raise ValueError(
            f"yaw turns against the command (k_u = {k_u.value:.3g}): both are counter-clockwise, "
            "so change the sign of yaw_percent, or of yaw if it was measured clockwise"
        )
    if k_u.low <= 0:
        raise ValueError(
            "the logs do not tell k_u from 0: yaw does not follow the command, or there are too "
            "few commands; add a log with steps and a chirp"
        )
    if k_u.low > LARGEST_YAW and k_p.low > 2 * RATES[0]:
        raise ValueError(
            f"k_u would be {k_u.value:.3g}, so the yaw cannot be an angle in radians: {RADIANS}"
        )


# ---- whether it fits ----------------------------------------------------------------------------


def _failures(found: WeightedFit, k_u: Estimate, k_p: Estimate, latency: Estimate) -> Iterator[str]:
    """Sentences about failures of the model."""
    fit = found.fit
    yaw = np.concatenate([flight.yaw - flight.yaw.mean() for flight in fit.flights])
    residuals = np.concatenate(fit.residuals)
    unexplained = float(residuals @ residuals) / max(float(yaw @ yaw), 1e-300)
    if unexplained > 0.5:
        yield f"The model leaves {unexplained:.0%} of the yaw's variance unexplained."
    yield from _largest_effect(found) or _correlation(fit)
    for name, gain in (("k_u", k_u), ("k_p", k_p)):
        if gain.margin > VAGUE * gain.value:
            yield (
                f"{name} is known to ±{gain.margin / gain.value:.0%} only: the commands excite it "
                "too little, or the noise is too large; add a log with steps and a chirp."
            )
    for name, estimate, (low, high) in (("k_p", k_p, RATES), ("latency", latency, LATENCIES)):
        if min(estimate.value - low, high - estimate.value) < 1e-3 * (high - low):
            yield f"The search for {name} ended at its edge, {estimate.value:.3g}."


def _largest_effect(found: WeightedFit) -> list[str]:
    """A sentence about the largest effect in the residuals that the model lacks, if any."""
    own = end = len(found.fit.parameters)
    seen = []
    for name, columns in found.effects.items():
        begin, end = end, end + columns[0].shape[1]
        if begin == end:
            continue
        mixture = found.products.mixture([*range(own), *range(begin, end)])
        p = mixture.p_value(slice(own, None))
        moved = np.concatenate(columns) @ mixture.shifts[mixture.likeliest, own:]
        size = math.sqrt(float(np.mean(moved**2)))
        if p < LEVEL and size > NEGLIGIBLE:
            seen.append((size, f"The yaw moves as if {name} (p = {p:.1g})."))
    return [max(seen)[1]] if seen else []


def _correlation(fit: Fit) -> list[str]:
    """A sentence about correlated residuals, if neither the tracker nor gusts explain them."""
    p = whiteness_p_value(fit.white_residuals, fit.basis, len(fit.noise.tracker))
    said = f"The residuals are correlated as neither a tracker's noise nor gusts are (p = {p:.1g})."
    return [said] if p < LEVEL and fit.noise_sd >= NEGLIGIBLE else []


def _notes(found: WeightedFit, latency: Estimate) -> Iterator[str]:
    """Sentences that are worth knowing whether the model fits or not."""
    fit, order = found.fit, len(found.fit.noise.tracker)
    if order:
        yield f"The residuals are correlated: the intervals allow for noise of order {order}."
    if found.gusty:
        density = f"{found.gust_density[1]:.2g} rad/√s"
        yield f"The yaw wanders as in gusts of {density}: the intervals allow for them."
    if latency.high < 0:
        yield "The yaw moves before its command: the clocks of tracker and commands differ."
    residuals = np.concatenate(fit.residuals)
    usual = 1.4826 * float(np.median(np.abs(residuals)))
    outliers = int(np.sum(np.abs(residuals) > 6 * usual))
    if 0 < outliers < 0.02 * len(residuals) and fit.noise_sd > NEGLIGIBLE:
        yield (
            f"{outliers} yaws are off by more than six times the usual: if the tracker slipped, "
            "leave those cells empty."
        )
