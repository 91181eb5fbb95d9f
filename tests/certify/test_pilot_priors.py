"""A prior from a pilot: its rule, what it records, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import pilot_prior, prior_for
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.learn import learn_best, learn_constrained, learn_finite
from pacbayes_control.verify import verify

WORDS = "from a pilot of 60 other environments: weights fall with the cost there"


def table(seed: int = 0, rows: int = 60) -> NDArray:
    """Graded costs: no two rows are alike."""
    return np.random.default_rng(seed).random((rows, 3)) * [1, 0.4, 0.5]


def of_stream(name: str, start: int = 0, stop: int = 60) -> dict[str, object]:
    return {"task": "t", "stream": name, "seed": 0, "start": start, "stop": stop}


# ---- the rule -----------------------------------------------------------------------------------


def by_hand(values: list[list[float]], base: list[float]) -> list[float]:
    """The weights as the docstring has them, number by number."""
    n, policies = len(values), range(len(base))
    sums = [math.fsum(row[h] for row in values) for h in policies]
    cheapest = [h for h in policies if sums[h] == min(sums)]
    weights = []
    for h in policies:
        ds = [row[h] - math.fsum(row[c] for c in cheapest) / len(cheapest) for row in values]
        z2 = math.fsum(ds) ** 2 / math.fsum(d * d for d in ds) if h not in cheapest else 0.0
        assert z2 <= n * (1 + 1e-9)
        weights.append(base[h] * math.exp(-z2))
    return [
        0.05 * u + 0.95 * weight / math.fsum(weights)
        for u, weight in zip(base, weights, strict=True)
    ]


@given(
    st.integers(1, 6).flatmap(
        lambda policies: st.lists(
            st.lists(st.integers(0, 4), min_size=policies, max_size=policies),
            min_size=2,
            max_size=12,
        )
    )
)
def test_the_weights_are_those_of_the_rule(quarters: list[list[int]]):
    values = [[count / 4 for count in row] for row in quarters]  # sums without rounding
    base = [1 / len(values[0])] * len(values[0])
    found = pilot_prior(Costs(values)).probabilities
    np.testing.assert_allclose(found, by_hand(values, base), rtol=1e-9)


def test_for_failures_it_is_mcnemars_statistic():
    # The second policy fails alone in five environments, and the first alone in two.
    rows = [[0, 1]] * 5 + [[1, 0]] * 2 + [[0, 0]] * 20 + [[1, 1]] * 3
    first, second = pilot_prior(Costs(rows)).probabilities
    ratio = math.exp(-((5 - 2) ** 2) / (5 + 2))
    assert (second - 0.025) / (first - 0.025) == pytest.approx(ratio, rel=1e-12)


@pytest.mark.parametrize("cost", [0, 1, 0.1, 0.3])
def test_policies_that_cost_the_same_share_the_weight(cost: float):
    alike = pilot_prior(Costs(np.full((7, 3), cost)))
    np.testing.assert_allclose(alike.probabilities, 1 / 3, rtol=1e-12)
    behind = np.column_stack([np.full((50, 3), cost / 2), np.full(50, cost / 2 + 0.5)])
    *cheapest, other = pilot_prior(Costs(behind)).probabilities
    np.testing.assert_allclose(cheapest, 0.95 / 3 + 0.05 / 4, rtol=1e-9)
    assert other == pytest.approx(0.05 / 4, rel=1e-9)


def test_costs_too_small_for_their_squares_make_no_weight_that_is_not_a_number():
    prior = pilot_prior(Costs([[0.0, 1e-200], [0.0, 1e-200]]))
    assert np.all(prior.probabilities >= 0.025)


def test_equal_policies_share_the_weight_of_one():
    values, parameters = table(), np.array([[1.0], [2.0], [2.0]])
    values[:, 2] = values[:, 1]
    prior = pilot_prior(Costs(values, parameters=parameters)).probabilities
    alone = pilot_prior(Costs(values[:, :2])).probabilities
    assert prior[1] == prior[2]
    np.testing.assert_allclose(prior[:2], alone / [1, 2], rtol=1e-12)


def test_nothing_is_excluded_however_poor_it_was():
    values = np.zeros((500, 50))
    values[:, 1:] = 1
    prior = pilot_prior(Costs(values))
    assert prior.probabilities.min() >= 0.05 / 50 * (1 - 1e-12)


def test_the_order_of_policies_and_environments_does_not_matter():
    values, order = table(), [2, 0, 1]
    prior = pilot_prior(Costs(values)).probabilities
    turned = pilot_prior(Costs(values[::-1][:, order])).probabilities
    np.testing.assert_allclose(turned, prior[order], rtol=1e-9)


def test_a_good_pilot_lowers_the_bound_and_a_misleading_one_does_not_raise_it_much():
    rng, rates = np.random.default_rng(3), np.array([0.1, *[0.4] * 19])
    pilot = Costs(rng.random((100, 20)) < rates, origin=of_stream("pilot"))
    misleading = Costs(rng.random((100, 20)) < rates[::-1], origin=of_stream("pilot"))
    costs = Costs(rng.random((60, 20)) < rates, origin=of_stream("train"))
    uniform, good, bad = (
        learn_finite(costs, method="occam", prior=prior).certificate
        for prior in (None, pilot_prior(pilot), pilot_prior(misleading))
    )
    assert good.bound < uniform.bound < bad.bound
    assert good.policy == uniform.policy == bad.policy == 0
    assert bad.kl <= math.log(20) + math.log(20) + 1e-9


# ---- what it records ----------------------------------------------------------------------------


@pytest.mark.parametrize("learn", [learn_finite, learn_best, learn_constrained])
def test_the_certificate_tells_of_the_pilot_and_is_verified(tmp_path: Path, learn):
    prior = pilot_prior(Costs(table(1)))
    run = learn(Costs(table()), prior=prior)
    assert run.certificate.prior == WORDS
    verification = verify(run.save(tmp_path / "run"))
    assert f"where the prior came from: “{WORDS}”" in verification.told
    assert run.posterior.rows > prior.rows


def test_the_costs_of_the_pilot_are_refused():
    pilot = Costs(table())
    prior = pilot_prior(pilot)
    assert prior.rows == pilot.rows.keys()
    for other in (table(), table()[::-1], np.vstack([table(1), table()[3:4]])):
        with pytest.raises(ValueError, match="learnt from environments with the same costs"):
            learn_finite(Costs(other), prior=prior)
    again = Categorical.from_record(json.loads(prior.to_bytes()))
    with pytest.raises(ValueError, match="learnt from environments with the same costs"):
        learn_finite(pilot, prior=again)
    assert again.words == ""  # of no use there: a certificate has them


def test_environments_of_the_pilot_are_told_by_their_range():
    failed = np.zeros((60, 3))
    prior = pilot_prior(Costs(failed, origin=of_stream("train", 40, 100)))
    assert prior.seen == (EnvironmentRange("train", 0, 40, 100),)
    with pytest.raises(ValueError, match=r"some of these environments \(stream 'train', 40 to 100"):
        learn_finite(Costs(failed, origin=of_stream("train")), prior=prior)
    later = learn_finite(Costs(failed, origin=of_stream("train", 100, 160)), prior=prior)
    assert later.certificate.set_aside == 60


def test_named_environments_are_none_of_a_stream():
    failed, names = np.zeros((60, 3)), [f"site {i}" for i in range(60)]
    costs = Costs(failed, origin=of_stream("train"))
    with pytest.raises(ValueError, match="name the environments in its table to tell"):
        learn_finite(costs, prior=pilot_prior(Costs(failed)))
    named = pilot_prior(Costs(failed, sites=names))
    assert learn_finite(costs, prior=named).certificate.prior == WORDS
    graded, copied = Costs(table(), origin=of_stream("train")), Costs(table(), sites=names)
    with pytest.raises(ValueError, match="environments of other names with the same costs"):
        learn_finite(graded, prior=pilot_prior(copied))


def test_a_pilot_that_tells_policies_not_apart_is_still_called_a_pilot():
    prior, words = prior_for(Costs(table()), pilot_prior(Costs(np.ones((60, 3)))))
    np.testing.assert_allclose(prior.probabilities, 1 / 3, rtol=1e-12)
    assert words == WORDS


def test_draws_from_a_posterior_are_no_pilot():
    with pytest.raises(ValueError, match="costs of draws from a posterior, not of policies"):
        pilot_prior(Costs(table(), draws="fresh"))
