"""How sure a test estimate is, from nothing but the certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pacbayes_control.certify.certificate import HeldOutEstimate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.held_out import held_out_error, held_out_failures, held_out_interval


def certificate(cost: float, environments: int, **fields: Any) -> Any:
    failed = np.random.default_rng(0).random((40, 2)) < 0.1
    c = learn_finite(Costs(failed, origin={"graded": False})).certificate
    return replace(c, test_estimate=HeldOutEstimate(cost, environments, "test", 0), **fields)


def test_failures_of_one_policy_have_the_exact_interval():
    assert held_out_error(certificate(0.1, 20)) == "2 failures; 95 % interval 0.0123 to 0.3170"
    low, high = held_out_interval(2, 20)
    exact = stats.binomtest(2, 20).proportion_ci(0.95, "exact")
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert held_out_interval(0, 20)[0] == 0
    assert held_out_interval(20, 20)[1] == 1


@pytest.mark.parametrize("fields", [{"policy": None}, {"graded": True}])
def test_other_costs_have_a_standard_error_that_is_no_smaller_than_theirs(fields: dict[str, Any]):
    costs = np.random.default_rng(1).beta(0.1, 0.9, 400)
    c = certificate(float(costs.mean()), 400, **fields)
    assert held_out_failures(c) is None
    words = held_out_error(c)
    assert words.startswith("standard error at most ")
    error = costs.std(ddof=1) / 20
    assert error <= float(words.rsplit(" ", 1)[1]) < 2 * error


def test_without_an_estimate_nothing_is_said():
    assert held_out_error(replace(certificate(0.1, 20), test_estimate=None)) == ""
