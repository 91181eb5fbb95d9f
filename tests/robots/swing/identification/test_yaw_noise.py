"""Two noises: the filter against the covariance matrix itself, and the mixture of fits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.signal import lfilter

from pacbayes_control.robots.swing.identification.fitting import FlightData
from pacbayes_control.robots.swing.identification.noises import YawNoise, whiteness_p_value
from pacbayes_control.robots.swing.identification.synthetic import SyntheticDrone
from pacbayes_control.robots.swing.identification.weighted_fit import (
    FilteredProducts,
    fit_with_noise,
    mixture_quantile,
)
from sizes import sized

RATE, RATIO = 0.4, 0.7


def times() -> NDArray[np.float64]:
    return np.cumsum(np.random.default_rng(0).uniform(0.02, 0.2, 60), dtype=np.float64)


def covariance(time: NDArray, ratio: float = RATIO) -> NDArray:
    """Of g + v in σ², where g is 0 at the first time: by the integral, not by the filter."""
    first = time - time[0]
    early = np.minimum(first[:, None], first)
    apart = np.abs(first[:, None] - first)
    gusts = ratio / (2 * RATE) * np.exp(-RATE * apart) * (1 - np.exp(-2 * RATE * early))
    return gusts + np.eye(len(time))


def test_the_filter_is_the_inverse_of_the_covariance():
    time = times()
    columns = np.random.default_rng(1).standard_normal((len(time), 3))
    white = YawNoise(RATE, RATIO).whiten(time, columns)
    expected = columns.T @ np.linalg.solve(covariance(time), columns)
    np.testing.assert_allclose(white.T @ white, expected, rtol=1e-9)


def test_products_for_many_ratios_are_those_of_the_filter():
    time = times()
    columns = np.random.default_rng(1).standard_normal((len(time), 3))
    products, scales = YawNoise(RATE).products(time, columns, np.array([0.01, RATIO, 1e4]))
    for product, total, ratio in zip(products, scales, (0.01, RATIO, 1e4), strict=True):
        white = YawNoise(RATE, ratio).whiten(time, columns)
        np.testing.assert_allclose(product, white.T @ white, rtol=1e-9)
        assert total == pytest.approx(np.linalg.slogdet(covariance(time, ratio))[1], rel=1e-9)


def test_the_likeliest_gusts_are_the_conditional_mean_and_have_its_covariance():
    time = times()
    residuals = np.random.default_rng(2).standard_normal(len(time))
    both = covariance(time)
    gusts = both - np.eye(len(time))
    noise = YawNoise(RATE, RATIO)
    np.testing.assert_allclose(
        noise.likeliest_gusts(time, residuals), gusts @ np.linalg.solve(both, residuals), atol=1e-9
    )
    left = gusts - gusts @ np.linalg.solve(both, gusts)
    np.testing.assert_allclose(noise.gust_covariance(time, residuals), left @ residuals, atol=1e-9)


def test_without_gusts_nothing_is_filtered():
    columns = np.ones((60, 1))
    assert YawNoise().whiten(times(), columns) == pytest.approx(columns)
    assert not YawNoise().likeliest_gusts(times(), columns[:, 0]).any()


def test_a_tracker_with_memory_in_gusts_is_made_white():
    rng, step, memory = np.random.default_rng(3), 0.02, 0.6
    time = np.linspace(0, 3999 * step, 4000)
    fade = math.exp(-RATE * step)
    sd = 0.02 * math.sqrt((1 - fade**2) / (2 * RATE))
    gusts = np.asarray(lfilter([1.0], [1.0, -fade], sd * rng.standard_normal(4000)))
    tracker = np.asarray(lfilter([1.0], [1.0, -memory], 0.02 * rng.standard_normal(4000)))
    noise = YawNoise(RATE, (1 - memory) ** 2, np.array([memory]))  # the gusts after the filter
    white = noise.whiten(time, (gusts + tracker)[:, None])[:, 0]
    assert whiteness_p_value([white], np.full((len(white), 1), len(white) ** -0.5)) > 0.01
    assert np.std(white) == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(noise.likeliest_gusts(time, gusts + tracker), gusts)[0, 1] > 0.8


def products() -> tuple[NDArray, NDArray, NDArray, FilteredProducts]:
    rng, time = np.random.default_rng(4), times()
    columns = np.stack([np.ones_like(time), np.sin(time), np.cos(2 * time)], axis=1)
    residuals = columns @ [0.3, 1.0, 0.0] + rng.standard_normal(len(time))
    found = FilteredProducts([(time, np.column_stack([columns, residuals]))], YawNoise(RATE))
    return time, columns, residuals, found


def test_each_fit_of_the_mixture_is_generalised_least_squares():
    time, columns, residuals, found = products()
    found.refine(range(3))
    mixture = found.mixture(range(3))
    for k in range(0, len(mixture.ratios), 7):
        inverse = np.linalg.inv(covariance(time, mixture.ratios[k]))
        normal = columns.T @ inverse @ columns
        expected = np.linalg.solve(normal, columns.T @ inverse @ residuals)
        np.testing.assert_allclose(mixture.shifts[k], expected, rtol=1e-6)
        np.testing.assert_allclose(mixture.inverses[k], np.linalg.inv(normal), rtol=1e-6)
        left = residuals - columns @ expected
        assert mixture.squares[k] == pytest.approx(left @ inverse @ left, rel=1e-6)


def test_weights_are_those_of_the_restricted_likelihood_and_jeffreys_prior():
    time, columns, residuals, found = products()
    mixture = found.mixture(range(3))
    expected = []
    for ratio in mixture.ratios:
        matrix = covariance(time, ratio)
        inverse = np.linalg.inv(matrix)
        normal = columns.T @ inverse @ columns
        left = residuals - columns @ np.linalg.solve(normal, columns.T @ inverse @ residuals)
        strength = ratio / (RATE**2 * np.median(np.diff(time)))
        expected.append(
            math.log(strength)
            - 0.75 * math.log1p(strength)
            - np.linalg.slogdet(matrix)[1] / 2
            - np.linalg.slogdet(normal)[1] / 2
            - 57 / 2 * math.log(left @ inverse @ left)
        )
    inner = slice(1, -1)  # the ends of the grid weigh half
    weights = np.exp(np.array(expected)[inner] - max(expected))
    ours = mixture.weights[inner]
    np.testing.assert_allclose(ours / ours.sum(), weights / weights.sum(), rtol=1e-6, atol=1e-12)


def test_refining_the_grid_changes_little():
    found = products()[3]
    before = found.mixture(range(3))
    found.refine(range(3))
    after = found.mixture(range(3))
    assert len(after.ratios) > len(before.ratios)
    assert np.all(np.diff(after.ratios) >= 0)
    np.testing.assert_allclose(
        before.weights @ before.variances, after.weights @ after.variances, rtol=0.02
    )


def test_the_test_of_columns_is_the_textbooks_where_gusts_are_known():
    time, columns, residuals, found = products()
    mixture = found.mixture(range(3))
    p = []
    for ratio in mixture.ratios:
        white = YawNoise(RATE, ratio).whiten(time, np.column_stack([columns, residuals]))
        full, short = (
            white[:, 3] - white[:, :m] @ np.linalg.lstsq(white[:, :m], white[:, 3])[0]
            for m in (3, 1)
        )
        power = full @ full
        p.append(stats.f.sf((short @ short - power) / 2 / (power / 57), 2, 57))
    assert mixture.p_value(slice(1, 3)) == pytest.approx(mixture.weights @ p, rel=1e-6)


def test_quantiles_of_a_mixture_are_where_it_says():
    weights, centres, sd = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 3.0])
    for share in (0.005, 0.5, 0.9):
        x = mixture_quantile(weights, centres, sd, freedom=7.0, share=share)
        assert weights @ stats.t.cdf((x - centres) / sd, 7) == pytest.approx(share, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("gusts", [0.0, 0.005, 0.02])
def test_what_the_filter_leaves_of_a_log_is_white(gusts: float):
    values = []
    for seed in range(sized(20, full=40)):
        fit = fit_with_noise([FlightData(SyntheticDrone(rate=10, gusts=gusts).log(seed=seed))]).fit
        values.append(whiteness_p_value(fit.white_residuals, fit.basis))
    assert stats.kstest(values, "uniform").pvalue > 0.001


def test_what_no_filter_leaves_of_a_gusty_log_is_not_white():
    fit = fit_with_noise([FlightData(SyntheticDrone(rate=10, gusts=0.02).log())]).fit
    assert whiteness_p_value(fit.residuals, fit.basis) < 1e-6


def test_gusts_are_as_strong_as_was_asked():
    options = {"rate": 10, "yaw_noise": 0.0, "dropped": 0.0}
    calm = SyntheticDrone(**options).log()
    pushed = [
        SyntheticDrone(**options, gusts=0.05).log(seed=seed).yaw
        - SyntheticDrone(**options).log(seed=seed).yaw
        for seed in range(40)
    ]
    assert np.std(pushed) == pytest.approx(0.05 / math.sqrt(2 * RATE), rel=0.1)
    steps = np.diff(pushed, axis=1)
    assert np.std(steps) == pytest.approx(0.05 * math.sqrt(0.1), rel=0.05)
    np.testing.assert_array_equal(calm.yaw, SyntheticDrone(**options, gusts=0.0).log().yaw)
