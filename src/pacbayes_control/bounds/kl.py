"""KL divergences, and inverses of the Bernoulli kl that are rounded to the safe side.

`kl_inverse` is never below the exact supremum, and `kl_inverse_lower` never above the exact
infimum. So a bound computed with them can be looser than the theorem by less than 10⁻¹², and is
never tighter.
"""

from __future__ import annotations

import numpy as np
import scipy  # its submodules load when first used: rollout workers need none of them
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RELATIVE_ERROR = 1e-14  # several times the rounding error of `_excess`
# Smaller arguments are raised to these, so that no square underflows. The inverses widen with c
# and move with q, so this is safe; it changes them by less than 1e-69.
SMALLEST_Q = 1e-300
SMALLEST_C = 1e-140
BLOCK = 1 << 14  # elements computed at a time, so that temporary arrays stay in the cache


def kl_bernoulli(q: ArrayLike, p: ArrayLike) -> Floats:
    """kl(q‖p) between Bernoulli distributions with means q and p (paper: eq. 4).

    >>> float(kl_bernoulli(0.0, 0.5))  # ln 2
    0.6931471805599453
    """
    q, p = in_unit_interval(q, "q"), in_unit_interval(p, "p")
    return np.maximum(scipy.special.rel_entr(q, p) + scipy.special.rel_entr(1 - q, 1 - p), 0.0)


def kl_inverse(q: ArrayLike, c: ArrayLike) -> Floats:
    """kl⁻¹(q, c) = sup{p in [q, 1] : kl(q‖p) ≤ c}, rounded upwards (paper: eq. 7).

    q in [0, 1] and c ≥ 0 are broadcast against each other.

    >>> round(float(kl_inverse(0.1, 0.02)), 6)
    0.170384
    """
    q, c = _checked(q, c)
    gap = _gap(np.maximum(q, SMALLEST_Q), 1 - q, c)
    return np.where(c == 0, q, np.minimum(np.nextafter(q + gap, 2), 1.0))


def kl_inverse_lower(q: ArrayLike, c: ArrayLike) -> Floats:
    """kl⁻¹₋(q, c) = inf{p in [0, q] : kl(q‖p) ≤ c}, rounded downwards.

    >>> round(float(kl_inverse_lower(0.1, 0.02)), 6)
    0.050629
    """
    q, c = _checked(q, c)
    gap = _gap(np.maximum(1 - q, SMALLEST_Q), q, c)
    lower = np.where(q > SMALLEST_Q, np.maximum(np.nextafter(q - gap, -1), 0.0), 0.0)
    return np.where(c == 0, q, lower)


def kl_categorical(posterior: ArrayLike, prior: ArrayLike) -> float:
    """KL(P‖P₀) of two probability vectors (paper: eq. 3); infinite if P > 0 where P₀ = 0.

    >>> kl_categorical([1.0, 0.0], [0.5, 0.5])
    0.6931471805599453
    """
    posterior, prior = np.asarray(posterior, float), np.asarray(prior, float)
    if posterior.shape != prior.shape:
        raise ValueError(
            f"the posterior is over {posterior.size} policies and the prior over {prior.size}"
        )
    if not (np.all(posterior >= 0) and np.all(prior >= 0)):
        raise ValueError("probabilities must be at least 0, and not NaN")
    return _at_least_zero(float(np.sum(scipy.special.rel_entr(posterior, prior))))


def kl_gaussian(
    mean: ArrayLike, variance: ArrayLike, prior_mean: ArrayLike, prior_variance: ArrayLike
) -> float:
    """KL between Gaussians with diagonal covariances (paper: eq. 6).

    >>> kl_gaussian([1.0], [1.0], [0.0], [1.0])
    0.5
    """
    mean, prior_mean = np.asarray(mean, float), np.asarray(prior_mean, float)
    variance, prior_variance = np.asarray(variance, float), np.asarray(prior_variance, float)
    if not (np.all(variance > 0) and np.all(prior_variance > 0)):
        raise ValueError("variances must be positive: a Gaussian of variance 0 has no density")
    if not all(np.all(np.isfinite(x)) for x in (mean, prior_mean, variance, prior_variance)):
        raise ValueError("means and variances must be finite numbers")
    ratio = variance / prior_variance
    # x - 1 - ln x is at least 0 term by term, so rounding cannot make the sum negative by much.
    shape = ratio - 1 - np.log(ratio)
    return _at_least_zero(0.5 * float(np.sum(shape + (mean - prior_mean) ** 2 / prior_variance)))


def kl_beta(alpha: float, beta: float, prior_alpha: float, prior_beta: float) -> float:
    """KL(Beta(α, β)‖Beta(α₀, β₀)) (paper: eq. 42).

    >>> round(kl_beta(1.0, 1.0, 0.8, 1.25), 5)
    0.08185
    """
    if not all(0 < parameter < np.inf for parameter in (alpha, beta, prior_alpha, prior_beta)):
        raise ValueError("the parameters of a Beta distribution must be positive and finite")
    terms = np.array(
        [
            scipy.special.betaln(prior_alpha, prior_beta),
            -scipy.special.betaln(alpha, beta),
            (alpha - prior_alpha) * scipy.special.digamma(alpha),
            (beta - prior_beta) * scipy.special.digamma(beta),
            (prior_alpha - alpha + prior_beta - beta) * scipy.special.digamma(alpha + beta),
        ]
    )
    # The terms cancel, and so do the logarithms of Γ within those of B: a bound on the rounding
    # error of each is added.
    inside = np.abs(scipy.special.gammaln([alpha + beta, prior_alpha + prior_beta])).sum()
    return _at_least_zero(float(terms.sum() + 1e-14 * (np.abs(terms).sum() + inside)))


def _at_least_zero(divergence: float) -> float:
    """The divergence, or 0 if rounding made it slightly negative; an error for NaN."""
    if not divergence > -1e-6:
        raise ValueError(
            f"the divergence is {divergence}: both arguments must be probability distributions"
        )
    return max(0.0, divergence)


def _checked(q: ArrayLike, c: ArrayLike) -> tuple[Floats, Floats]:
    q, c = np.broadcast_arrays(in_unit_interval(q, "q"), np.asarray(c, float))
    if not np.all(c >= 0):
        raise ValueError("c must be at least 0, and not NaN")
    return q, c


def in_unit_interval(value: ArrayLike, name: str) -> Floats:
    """The value as floats; an error with the name if any is outside [0, 1]."""
    value = np.asarray(value, float)
    if not np.all((value >= 0) & (value <= 1)):
        raise ValueError(f"{name} must lie in [0, 1]")
    return value


def _gap(q: Floats, rest: Floats, c: Floats) -> Floats:
    """At least sup{d ≤ rest : kl(q‖q+d) ≤ c}, where rest = 1 - q."""
    shape = q.shape
    q, rest, c = q.ravel(), rest.ravel(), np.maximum(c, SMALLEST_C).ravel()
    gap = np.empty_like(q)
    with np.errstate(all="ignore"):
        for start in range(0, q.size, BLOCK):
            block = slice(start, start + BLOCK)
            gap[block] = _gap_block(q[block], rest[block], c[block])
    return gap.reshape(shape)


def _gap_block(q: Floats, rest: Floats, c: Floats) -> Floats:
    """Newton's method on the convex function kl(q‖q+d) - c, from a point right of its root.

    From there it decreases monotonically to the root, so without rounding it stays on the safe
    side. At the end d is increased until the computed kl exceeds c by more than its relative error,
    and then by the effect of the rounding in q + rest = 1, which is below one unit in the last
    place of 1.
    """
    # kl(q‖q+d) = ∫₀ᵈ s/(t(1-t)) ds at t = q+s, so by Jensen's inequality it is at least
    # (d²/2)/(t(1-t)) at t = q+2d/3: the root is at most that of a quadratic.
    a, b = 1 + 8 / 9 * c, 2 / 3 * c * (rest - q)
    d = (b + np.sqrt(b * b + 2 * a * c * q * rest)) / a
    # And kl(q‖p) ≥ q ln q + (1-q) ln((1-q)/(1-p)), which can be solved for p.
    log_q = np.where(rest < 0.5, np.log1p(-rest), np.log(q))
    d = np.fmin(d, rest * -np.expm1((q * log_q - c) / rest))
    last = rest * (1 - 1e-13)  # beyond it, p is returned as 1
    d = np.minimum(d, last)
    for _ in range(60):
        step = (_excess(q, rest, d) - c) * (q + d) * (rest - d) / d
        d = np.where(step > 0, d - step, d)
        if not np.any(step > 1e-10 * d):
            break
    widening = RELATIVE_ERROR
    while np.any(short := (_excess(q, rest, d) < c * (1 + RELATIVE_ERROR)) & (d < last)):
        d = np.where(short, np.minimum(d * (1 + widening), last), d)
        widening *= 4
    return np.where(d < last, d + 4e-16, rest)


def _excess(q: Floats, rest: Floats, d: Floats) -> Floats:
    """kl(q‖q+d) to full relative precision, also where p is close to q.

    Both terms of -q φ(d/q) - rest φ(-d/rest), φ(x) = ln(1+x) - x, are positive: nothing cancels.
    """
    return -q * log1p_minus(d / q, (q + d) / q) - rest * log1p_minus(-d / rest, (rest - d) / rest)


def log1p_minus(x: Floats, one_plus_x: Floats) -> Floats:
    """ln(1+x) - x. For small x by 2 artanh(z) with z = x/(2+x), whose first term joins with -x."""
    z = x / (2 + x)
    w = z * z
    series = 1 / 3 + w * (1 / 5 + w * (1 / 7 + w * (1 / 9 + w * (1 / 11 + w * (1 / 13 + w / 15)))))
    return np.where(np.abs(x) < 0.2, 2 * z * w * series - x * z, np.log(one_plus_x) - x)
