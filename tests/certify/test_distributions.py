from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal, norm

from pacbayes_control.certify.distributions import (
    Categorical,
    DiagonalGaussian,
    distribution_from_record,
)
from pacbayes_control.certify.ranges import EnvironmentRange


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50).filter(lambda p: sum(p) > 1e-6))
@pytest.mark.slow
def test_projection_gives_a_distribution_close_to_a_scaled_copy(raw: list[float]):
    p = Categorical.project(raw).probabilities
    assert np.all(p >= 0)
    assert abs(p.sum() - 1) < 1e-12
    assert np.allclose(p * sum(raw), raw, rtol=1e-9, atol=1e-12)


@given(st.integers(1, 300), st.integers(0, 10**6))
def test_a_saved_distribution_comes_back_bit_for_bit(size: int, seed: int):
    before = Categorical(np.random.default_rng(seed).dirichlet(np.ones(size)))
    after = Categorical.from_record(json.loads(before.to_bytes()))
    assert np.array_equal(before.probabilities, after.probabilities)
    assert before.to_bytes() == after.to_bytes()


def test_kl_is_zero_only_for_the_same_distribution():
    p, q = Categorical([0.2, 0.8]), Categorical([0.5, 0.5])
    assert p.kl(p) == 0
    assert p.kl(q) > 0


def test_equal_policies_share_one_weight():
    rows = np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [0.0, 1.0]])
    p = Categorical.uniform_over_distinct(rows).probabilities
    assert np.allclose(p, [1 / 6, 1 / 2, 1 / 6, 1 / 6])


def test_mass_where_the_prior_has_none_is_an_error():
    with pytest.raises(ValueError, match="prior is zero at policy 1"):
        Categorical([0.5, 0.5]).kl(Categorical([1.0, 0.0]))


def test_samples_follow_the_probabilities():
    p = Categorical([0.1, 0.6, 0.3])
    drawn = p.sample(np.random.default_rng(0), 30_000)
    assert np.allclose(np.bincount(drawn) / 30_000, p.probabilities, atol=0.01)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.5, 0.4], "sums to 0.9"),
        ([1.5, -0.5], r"negative \(-0.5\) at policy 1"),
        ([np.nan, 1], "is NaN or infinite at policy 0"),
        ([[0.5, 0.5]], r"not a row of numbers, but an array of shape \(1, 2\)"),
        ([], r"not a row of numbers, but an array of shape \(0,\)"),
    ],
)
def test_what_is_no_distribution_is_rejected(probabilities: object, message: str):
    with pytest.raises(ValueError, match=message):
        Categorical(probabilities)  # type: ignore[arg-type]


def test_nothing_cannot_be_projected():
    with pytest.raises(ValueError, match="no mass"):
        Categorical.project([-1.0, 0.0])


@pytest.mark.parametrize("raw", [[0.5 + 1j, 0.5], ["a", "b"], [{"a": 1}]])
def test_what_is_not_numbers_is_no_distribution(raw: list):
    with pytest.raises(ValueError, match="not a row of numbers"):
        Categorical(raw)


# ---- Gaussian distributions ---------------------------------------------------------------------


def random_gaussian(rng: np.random.Generator, size: int) -> DiagonalGaussian:
    return DiagonalGaussian(rng.normal(0, 2, size), 10 ** rng.uniform(-2, 2, size))


@pytest.mark.slow
def test_the_divergence_of_gaussians_is_the_integral():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = random_gaussian(rng, 2), random_gaussian(rng, 2)
        total = 0.0
        for i in range(2):
            here: Any = norm(p.mean[i], np.sqrt(p.variance[i]))
            there: Any = norm(q.mean[i], np.sqrt(q.variance[i]))
            total += quad(
                lambda x, a=here, b=there: a.pdf(x) * (a.logpdf(x) - b.logpdf(x)),
                *here.interval(1 - 1e-15),
                epsrel=1e-11,
            )[0]
        assert p.kl(q) == pytest.approx(total, rel=1e-8)


def test_the_divergence_is_the_mean_of_the_log_ratio():
    p, q = DiagonalGaussian([0.5, -1.0], [0.3, 2.0]), DiagonalGaussian([0.0, 0.0], 1.0)
    drawn = p.sample(np.random.default_rng(0), 20_000)
    ratios = [p.log_ratio(q, policy) for policy in drawn]
    assert np.mean(ratios) == pytest.approx(p.kl(q), abs=4 * np.std(ratios) / np.sqrt(len(drawn)))


def log_density(p: DiagonalGaussian, policy: NDArray) -> float:
    covariance: Any = np.diag(p.variance)
    return float(multivariate_normal(p.mean, covariance).logpdf(policy))


def test_the_log_ratio_is_that_of_the_densities():
    rng = np.random.default_rng(1)
    for size in (1, 2, 7, 30):
        p, q = random_gaussian(rng, size), random_gaussian(rng, size)
        policy = p.sample(rng, 1)[0]
        expected = log_density(p, policy) - log_density(q, policy)
        assert p.log_ratio(q, policy) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert q.log_ratio(p, policy) == pytest.approx(-expected, rel=1e-9, abs=1e-9)


@given(st.integers(1, 50), st.integers(0, 10**6))
def test_the_divergence_of_gaussians_is_never_negative(size: int, seed: int):
    rng = np.random.default_rng(seed)
    p = random_gaussian(rng, size)
    near = DiagonalGaussian(p.mean, p.variance * (1 + 1e-9 * rng.standard_normal(size)))
    assert p.kl(p) == 0
    assert p.log_ratio(p, p.mean) == 0
    assert 0 <= near.kl(p) < 1e-12
    assert p.kl(random_gaussian(rng, size)) > 0


def test_a_wider_prior_divides_and_does_not_multiply():
    """The formula that was found wrong elsewhere: σ² multiplied by σ₀² instead of divided."""
    p = DiagonalGaussian([1.0], 0.25)
    assert p.kl(DiagonalGaussian([0.0], 4.0)) == pytest.approx(
        0.5 * (0.25 / 4 - 1 - np.log(0.25 / 4) + 1 / 4)
    )


def test_samples_follow_the_gaussian():
    p = DiagonalGaussian([1.0, -2.0, 0.0], [0.25, 4.0, 1e-6])
    drawn = p.sample(np.random.default_rng(0), 5000)
    assert drawn.shape == (5000, 3)
    for i in range(3):
        scale = np.sqrt(p.variance[i])
        assert kstest(drawn[:, i], norm(p.mean[i], scale).cdf).pvalue > 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.05


def test_the_same_generator_draws_the_same_policies():
    p = DiagonalGaussian([1.0, -2.0], 0.5)
    first, again = (p.sample(np.random.default_rng(7), 4) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, p.sample(np.random.default_rng(8), 4))


@given(st.integers(1, 100), st.integers(0, 10**6))
def test_a_saved_gaussian_comes_back_bit_for_bit(size: int, seed: int):
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal(size) * 10.0 ** rng.integers(-300, 300, size)
    before = DiagonalGaussian(mean, np.exp(rng.uniform(-700, 700, size)))
    record = json.loads(before.to_bytes())
    for after in (DiagonalGaussian.from_record(record), distribution_from_record(record, "prior")):
        assert isinstance(after, DiagonalGaussian)
        assert np.array_equal(before.mean, after.mean)
        assert np.array_equal(before.variance, after.variance)
        assert before.to_bytes() == after.to_bytes()


@pytest.mark.parametrize("number", [5e-324, 2.2250738585072014e-308, 1 / 3, 1.7976931348623157e308])
def test_the_extreme_floats_come_back_bit_for_bit(number: float):
    before = DiagonalGaussian([-number, 0.0], number)
    after = DiagonalGaussian.from_record(json.loads(before.to_bytes()))
    assert after.mean.tobytes() == before.mean.tobytes()
    assert after.variance.tobytes() == before.variance.tobytes()


def test_every_bit_of_a_gaussian_is_in_its_digest():
    digests = {
        DiagonalGaussian(mean, variance).to_bytes()
        for mean, variance in [
            ([0.0, 1.0], 1.0),
            ([0.0, np.nextafter(1, 2)], 1.0),
            ([0.0, 1.0], [1.0, np.nextafter(1, 2)]),
            ([1.0, 0.0], 1.0),
        ]
    }
    assert len(digests) == 4


def test_one_variance_serves_all_parameters():
    assert DiagonalGaussian([1, 2, 3], 4).variance.tolist() == [4.0, 4.0, 4.0]
    assert len(DiagonalGaussian([1, 2, 3], 4)) == 3
    assert repr(DiagonalGaussian([1, 2, 3], 4)) == "DiagonalGaussian(3 parameters)"


def test_a_gaussian_does_not_follow_changes_and_cannot_be_changed():
    mean, variance = np.zeros(2), np.ones(2)
    p = DiagonalGaussian(mean, variance)
    mean[0] = variance[0] = 5.0
    assert (p.mean[0], p.variance[0]) == (0.0, 1.0)
    for array in (p.mean, p.variance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3.0


NO_ROW = "is not a row of numbers"
NO_NUMBER = "is NaN or infinite at parameter 1"


@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        ([0.0, 0.0], [1.0, 0.0], "has variance 0 at parameter 1: it must be positive"),
        ([0.0, 0.0], 0.0, "has variance 0 at parameter 0: it must be positive"),
        ([0.0, 0.0], [1.0, -0.5], "has variance -0.5 at parameter 1"),
        ([0.0, 0.0], [1.0, np.nan], f"variance of the Gaussian distribution {NO_NUMBER}"),
        ([0.0, 0.0], [1.0, np.inf], f"variance of the Gaussian distribution {NO_NUMBER}"),
        ([0.0, 0.0], np.inf, "variance of the Gaussian distribution is NaN or infinite"),
        ([0.0, np.nan], 1.0, f"mean of the Gaussian distribution {NO_NUMBER}"),
        ([0.0, -np.inf], 1.0, f"mean of the Gaussian distribution {NO_NUMBER}"),
        ([0.0, 0.0], [1.0], "has 2 means and 1 variances: give one each"),
        ([0.0], [1.0, 1.0], "has 1 means and 2 variances: give one each"),
        ([], [], f"mean of the Gaussian distribution {NO_ROW}"),
        ([0.0], [], f"variance of the Gaussian distribution {NO_ROW}"),
        (0.0, 1.0, NO_ROW),
        ([[0.0, 0.0]], 1.0, f"mean of the Gaussian distribution {NO_ROW}"),
        ([0.0, 0.0], [[1.0, 1.0]], f"variance of the Gaussian distribution {NO_ROW}"),
        (["0", "0"], 1.0, NO_ROW),
        ([0.0, 0.0], ["1", "1"], NO_ROW),
        ([0.0], "1", NO_ROW),
        ([0.0], None, NO_ROW),
        ([0.0, None], 1.0, NO_ROW),
        ([{}], 1.0, NO_ROW),
        ([0.0], 1j, NO_ROW),
        ([10**400, 1.0], 1.0, NO_ROW),
        ([0.0], [10**400], NO_ROW),
    ],
)
def test_what_is_no_gaussian_is_rejected(mean: object, variance: object, message: str):
    with pytest.raises(ValueError, match=message):
        DiagonalGaussian(mean, variance)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "diagonal gaussian",
        {},
        {"kind": "diagonal gaussian"},
        {"kind": "diagonal gaussian", "mean": [0.0]},
        {"kind": "diagonal gaussian", "mean": 0.0, "variance": 1.0, "seen": []},
        {"kind": "diagonal gaussian", "mean": "0", "variance": [1.0], "seen": []},
        {"kind": "diagonal gaussian", "mean": {"0": 0.0}, "variance": [1.0], "seen": []},
        {"kind": "categorical", "mean": [0.0], "variance": [1.0], "seen": []},
        {"kind": ["diagonal gaussian"], "mean": [0.0], "variance": [1.0], "seen": []},
        {"mean": [0.0], "variance": [1.0], "seen": []},
    ],
)
def test_any_record_at_all_gets_a_clear_error(record: object):
    with pytest.raises(ValueError, match="the prior holds no Gaussian distribution"):
        DiagonalGaussian.from_record(record, "prior")
    with pytest.raises(ValueError, match=r"the prior holds no (Gaussian|categorical) distribution"):
        distribution_from_record(record, "prior")


def test_a_record_with_junk_of_any_size_gets_a_clear_error():
    junk = [{"kind": "diagonal gaussian"}] * 100_000
    with pytest.raises(ValueError, match=NO_ROW):
        DiagonalGaussian.from_record(
            {"kind": "diagonal gaussian", "mean": junk, "variance": junk, "seen": []}, "prior"
        )


def test_a_record_may_be_of_either_kind():
    categorical, gaussian = Categorical([0.25, 0.75]), DiagonalGaussian([1.0], 2.0)
    for before in (categorical, gaussian):
        after = distribution_from_record(json.loads(before.to_bytes()), "prior")
        assert type(after) is type(before)
        assert after.to_bytes() == before.to_bytes()


def test_gaussians_over_other_parameters_are_not_compared():
    p, q = DiagonalGaussian([0.0, 0.0], 1.0), DiagonalGaussian([0.0], 1.0)
    with pytest.raises(ValueError, match="the posterior has 2 parameters and the prior 1"):
        p.kl(q)
    with pytest.raises(ValueError, match="the posterior has 2 parameters and the prior 1"):
        p.log_ratio(q, np.zeros(2))
    with pytest.raises(ValueError, match="a policy of 2 parameters is needed"):
        p.log_ratio(p, np.zeros(3))


def test_a_ratio_beyond_the_range_of_numbers_is_an_error():
    p, q = DiagonalGaussian([0.0], 1.0), DiagonalGaussian([1e200], 1.0)
    for policy in (0.0, 1e200):
        with pytest.raises(ValueError, match="so far from the prior that their ratio overflows"):
            p.log_ratio(q, np.array([policy]))


# ---- the environments that a Gaussian has seen --------------------------------------------------

PART, OTHER = EnvironmentRange("train", 0, 0, 50), EnvironmentRange("elsewhere", 7, 10, 20)


def test_a_gaussian_has_seen_nothing_unless_it_says_so():
    assert DiagonalGaussian([0.0], 1.0).seen == ()
    assert DiagonalGaussian([0.0], 1.0, seen=[PART]).seen == (PART,)


def test_what_was_seen_adds_up_and_the_distribution_stays():
    before = DiagonalGaussian([1.0, 2.0], [3.0, 4.0])
    after = before.with_data_used(PART).with_data_used(OTHER, PART)
    assert before.seen == ()
    assert after.seen == (OTHER, PART)  # sorted, each once
    assert after.kl(before) == 0
    assert before.with_data_used(OTHER, PART).to_bytes() == after.to_bytes()
    assert after.with_data_used().to_bytes() == after.to_bytes()


def test_what_was_seen_is_kept_in_files_and_in_the_digest():
    before = DiagonalGaussian([1.0, 2.0], [3.0, 4.0]).with_data_used(PART, OTHER)
    record = json.loads(before.to_bytes())
    assert record["seen"] == [["elsewhere", 7, 10, 20], ["train", 0, 0, 50]]
    for after in (DiagonalGaussian.from_record(record), distribution_from_record(record, "prior")):
        assert isinstance(after, DiagonalGaussian)
        assert after.seen == before.seen
        assert all(isinstance(part, EnvironmentRange) for part in after.seen)
        assert after.to_bytes() == before.to_bytes()
    assert before.to_bytes() != DiagonalGaussian(before.mean, before.variance).to_bytes()


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        (PART, True),
        (EnvironmentRange("train", 0, 49, 60), True),
        (EnvironmentRange("train", 0, 10, 11), True),
        (EnvironmentRange("train", 0, 0, 500), True),
        (EnvironmentRange("train", 0, 50, 60), False),
        (EnvironmentRange("train", 1, 0, 50), False),
        (EnvironmentRange("test", 0, 0, 50), False),
    ],
)
def test_ranges_overlap_if_they_share_an_environment(other: EnvironmentRange, overlaps: bool):
    assert PART.overlaps(other) is overlaps
    assert other.overlaps(PART) is overlaps


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {},
        "train",
        0,
        ["train", 0, 0, 50],
        [[]],
        [None],
        [{"stream": "train", "seed": 0, "start": 0, "stop": 50}],
        [["train", 0, 0]],
        [["train", 0, 0, 50, 1]],
        [[0, 0, 0, 50]],
        [["train", "0", 0, 50]],
        [["train", None, 0, 50]],
        [["train", 0, 0.0, 50]],
        [["train", 0, 0, 50.0]],
        [["train", 0, False, True]],
        [["train", 0, -1, 50]],
        [["train", 0, 51, 50]],
        [["train", 0, 0, 50], ["train", 0, 50]],
    ],
    ids=str,
)
def test_a_record_must_say_what_was_seen(seen: object):
    record = {"kind": "diagonal gaussian", "mean": [0.0], "variance": [1.0]}
    message = "the prior does not say which environments it depends on"
    for bad in ({**record, "seen": seen}, record):
        with pytest.raises(ValueError, match=message):
            DiagonalGaussian.from_record(bad, "prior")
        with pytest.raises(ValueError, match=message):
            distribution_from_record(bad, "prior")
    assert DiagonalGaussian.from_record({**record, "seen": []}, "prior").seen == ()
