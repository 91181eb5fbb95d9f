from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.distributions import Categorical


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50).filter(lambda p: sum(p) > 1e-6))
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
    assert before.digest == after.digest


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
        ([np.nan, 1], "NaN or infinite entry at policy 0"),
        ([[0.5, 0.5]], "one row"),
        ([], "one row"),
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
