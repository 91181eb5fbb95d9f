"""The Swing's gains from logs of its flights (paper: Section 8).

The model. In log l, with commands u held in between and reaching the drone a latency τ later,

    ψ̇ = k_p (k_u u(t - τ) - (ψ - b_l)),    measured yaw = ψ + noise,

so that   ψ(t) = b_l + a_l exp(-k_p t) + k_u X(t; k_p, τ),   X the answer of the lag (`lag.py`).

The offset b_l is where the drone's zero of yaw lies in the tracker's frame, which each flight may
set anew; a_l is how the log begins. What was commanded before a log is unknown: once the latency
has passed it changes a_l alone, so the first half second of measurements is left out, the longest
latency that is looked for. Gains and latency are common to all logs. The price of the offsets: a
log of one constant command says nothing about k_u, since its offset explains it as well.

The noise. Measured less model is g(t) + v. Gusts g fade at the rate k_p, as the drone's own yaw
does, dg = -k_p g dt + q dW; v is the tracker's, independent and normal with variance σ². Given k_p
and ρ = q²/σ², a Kalman filter makes both white (`gusts.py`), and the fit is generalised least
squares: least squares over all logs, after the filter. If Ljung and Box's test finds what is left
correlated (p < 0.001), v is taken as autoregressive, of an order by BIC, and filtered first, unless
it would linger for more than a quarter of 1/k_p: trackers do not.

The intervals. For one ρ, n samples and m parameters give value ± t · sd, with t the quantile of
Student's distribution with n - m degrees of freedom and sd from σ² (JᵀJ)⁻¹, J the filtered slopes
by all parameters at the fit. A minute tells ρ badly, and gusts too small to be seen still matter:
intervals are those of the mixture over all ρ, weighed by their likelihood (`mixture.py`). They
cover at the stated rate as n grows; the tests measure how well at a minute, with gusts and without.
The price where there are none: intervals are wider by about a fifth than if one knew that. In gusts
the likelihood has several tops over the latency, and its interval holds all that are as likely.

Whether it fits. Four tests, each at the level 0.0002, fixed here: F tests of whether the residuals
still hold a lag of another order, gains that drift, or an answer out of proportion to the command,
their p-values weighed over ρ likewise; and Ljung and Box's, after the filter. So about one good log
in 1000 is refused. What is found there counts if it is more than 0.001 rad. It does not fit either
where half of the yaw's variance is left over, where a gain is known to no better than ±25 %, where
the search ends at an edge, or where the drone does not fly where it points (`speed.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from pacbayes_control.robots.swing.identification.fitting import LATENCIES, RATES, Fit, Flight
from pacbayes_control.robots.swing.identification.identified import Estimate, Identified, Response
from pacbayes_control.robots.swing.identification.logs import LARGEST_YAW, RADIANS, FlightLog
from pacbayes_control.robots.swing.identification.residuals import whiteness
from pacbayes_control.robots.swing.identification.settling import Settled, settled
from pacbayes_control.robots.swing.identification.speed import speed_of

ALARM = 2e-4  # level of each test of the model
NEGLIGIBLE = 1e-3  # rad: less is not held against the model
VAGUE = 0.25  # margin of a gain, as a share of it


def identify(logs: Sequence[FlightLog], confidence: float = 0.95) -> Identified:
    """Fit gains, latency and speed to all logs together; see the module for what is assumed.

    >>> from pacbayes_control.robots.swing.identification.logs import synthetic_log
    >>> found = identify([synthetic_log(k_u=3.0, k_p=0.4)])
    >>> found.fits, round(found.k_u.value, 1), round(found.k_p.value, 1)
    (True, 3.0, 0.4)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g} is outside (0, 1): 0.95 is usual")
    _check(logs)
    flights = [Flight(log) for log in logs]
    found = settled(flights)
    fit, spread = found.fit, found.covariance()
    k_u, k_p, latency = (found.estimate(i, confidence) for i in range(3))
    _check_turning(k_u, k_p)
    speed, astray = speed_of(found, spread, float(stdtrit(fit.freedom, (1 + confidence) / 2)))
    failings = [*_failings(found, k_u, k_p, latency), *astray]
    return Identified(
        k_u,
        k_p,
        speed,
        latency,
        covariance=(tuple(spread[0, :2].tolist()), tuple(spread[1, :2].tolist())),
        noise=fit.size,
        confidence=confidence,
        samples=sum(len(flight.time) for flight in flights),
        fits=not failings,
        remarks=(*failings, *_notes(found, latency)),
        responses=tuple(
            Response(flight.name, flight.time, flight.yaw, flight.yaw - raw)
            for flight, raw in zip(flights, fit.raw, strict=True)
        ),
    )


def _check(logs: Sequence[FlightLog]) -> None:
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
        raise ValueError(
            f"yaw_percent reaches only {largest:g}: if these are fractions, multiply them by 100"
        )


def _check_turning(k_u: Estimate, k_p: Estimate) -> None:
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
            f"k_u would be {k_u.value:.3g}, so the yaw is no angle of a drone: {RADIANS}"
        )


# ---- whether it fits ----------------------------------------------------------------------------


def _failings(found: Settled, k_u: Estimate, k_p: Estimate, latency: Estimate) -> list[str]:
    """What speaks against the model, in sentences."""
    said, fit = [], found.fit
    yaw = np.concatenate([flight.yaw - flight.yaw.mean() for flight in fit.flights])
    raw = np.concatenate(fit.raw)
    lost = float(raw @ raw) / max(float(yaw @ yaw), 1e-300)
    if lost > 0.5:
        said.append(f"The model leaves {lost:.0%} of the yaw's variance unexplained.")
    said += _structure(found) or _correlation(fit)
    for name, gain in (("k_u", k_u), ("k_p", k_p)):
        if gain.margin > VAGUE * gain.value:
            said.append(
                f"{name} is known to ±{gain.margin / gain.value:.0%} only: it is badly excited, or "
                "the noise too large; add a log with steps and a chirp."
            )
    for name, estimate, (low, high) in (("k_p", k_p, RATES), ("latency", latency, LATENCIES)):
        if min(estimate.value - low, high - estimate.value) < 1e-3 * (high - low):
            said.append(f"The search for {name} ended at its edge, {estimate.value:.3g}.")
    return said


def _structure(found: Settled) -> list[str]:
    """The largest effect that the residuals have and the model has not, if there is any."""
    own, said = len(found.fit.turn), []
    end = own
    for name, columns in found.effects.items():
        begin, end = end, end + columns[0].shape[1]
        if begin == end:
            continue
        mixture = found.moments.mixture([*range(own), *range(begin, end)])
        p = mixture.chance(slice(own, None))
        moved = np.concatenate(columns) @ mixture.shifts[mixture.likeliest, own:]
        size = math.sqrt(float(np.mean(moved**2)))
        if p < ALARM and size > NEGLIGIBLE:
            said.append((size, f"The yaw moves as if {name} (p = {p:.1g})."))
    return [max(said)[1]] if said else []


def _correlation(fit: Fit) -> list[str]:
    """That of the residuals, if it is neither a tracker's nor that of gusts."""
    p = whiteness(fit.left, fit.basis, len(fit.noise.tracker))
    if fit.size < NEGLIGIBLE or p >= ALARM:
        return []
    return [
        f"The residuals are correlated as neither a tracker's noise nor gusts are (p = {p:.1g})."
    ]


def _notes(found: Settled, latency: Estimate) -> list[str]:
    """What to know of a fit, good or bad."""
    said, fit = [], found.fit
    if len(fit.noise.tracker):
        said.append(
            "The residuals are correlated: the intervals allow for noise of order "
            f"{len(fit.noise.tracker)}."
        )
    if found.gusty:
        density = found.gusts[1]
        said.append(
            f"The yaw wanders as in gusts of {density:.2g} rad/√s: the intervals allow for them."
        )
    if latency.high < 0:
        said.append("The yaw moves before its command: the clocks of tracker and commands differ.")
    raw = np.concatenate(fit.raw)
    usual = 1.4826 * float(np.median(np.abs(raw)))
    far = int(np.sum(np.abs(raw) > 6 * usual))
    if 0 < far < 0.02 * len(raw) and fit.size > NEGLIGIBLE:
        said.append(
            f"{far} yaws are off by more than six times the usual: if the tracker slipped, leave "
            "those cells empty."
        )
    return said
