from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom

from pacbayes_control.bounds import maurer_xi
from pacbayes_control.certificate import (
    Budget,
    Certificate,
    confidence_percent,
    issue,
    percent_up,
    round_up,
)
from pacbayes_control.costs import Costs
from pacbayes_control.distributions import Categorical
from pacbayes_control.learn import learn_finite


def test_the_budget_cannot_be_overspent():
    budget = Budget(0.01)
    budget.spend("a", 0.006)
    with pytest.raises(ValueError, match="overspends"):
        budget.spend("b", 0.005)
    assert budget.spend("b") == pytest.approx(0.004)
    with pytest.raises(ValueError, match="overspends"):
        budget.spend("c", 1e-6)


def test_the_budget_is_spent_once_a_name():
    budget = Budget(0.5)
    budget.spend("a", 0.1)
    with pytest.raises(ValueError, match="already"):
        budget.spend("a", 0.1)


def test_the_certificate_carries_what_the_theorem_says(binary_costs: Costs):
    run = learn_finite(binary_costs, delta=0.05)
    c, p = run.certificate, run.posterior.probabilities
    cost, kl = p @ binary_costs.means, np.sum(p[p > 0] * np.log(6 * p[p > 0]))
    assert (c.environments, c.policies, c.method, c.delta) == (200, 6, "kl", 0.05)
    assert c.empirical_cost == pytest.approx(cost, rel=1e-12)
    assert c.kl == pytest.approx(kl, rel=1e-9)
    assert c.bound == pytest.approx(float(maurer_xi(cost, kl, 200, 0.05)), abs=1e-9)


def test_occam_carries_the_exact_tail(binary_costs: Costs):
    c = learn_finite(binary_costs, delta=0.05, method="occam").certificate
    assert c.policy is not None
    failures = binary_costs.failures[c.policy]
    assert binom.cdf(failures, 200, c.bound) == pytest.approx(0.05 / 6, rel=1e-8)
    assert c.kl == pytest.approx(np.log(6))


def test_any_posterior_can_be_certified_not_only_the_optimal(binary_costs: Costs):
    prior = Categorical.uniform(6)
    budget = Budget(0.05)
    budget.spend("kl")
    c = issue(binary_costs, prior, prior, "kl", budget, "none")
    assert c.kl < 1e-12
    assert c.bound > learn_finite(binary_costs, delta=0.05).certificate.bound


def test_the_same_inputs_give_the_same_certificate_byte_for_byte(binary_costs: Costs):
    first = json.dumps(learn_finite(binary_costs).certificate.to_dict())
    again = json.dumps(learn_finite(Costs(binary_costs.values.copy())).certificate.to_dict())
    assert first == again


def test_a_certificate_survives_json(graded_costs: Costs):
    certificate = learn_finite(graded_costs, method="occam").certificate
    record = json.loads(json.dumps(certificate.to_dict()))
    assert Certificate.from_dict(record) == certificate


def test_a_certificate_is_frozen(binary_costs: Costs):
    certificate = learn_finite(binary_costs).certificate
    with pytest.raises(AttributeError):
        certificate.bound = 0.0  # type: ignore[misc]


def test_the_sentence_says_what_is_promised_and_to_whom(binary_costs: Costs, graded_costs: Costs):
    posterior = learn_finite(binary_costs, delta=0.05).certificate.sentence
    assert posterior.startswith("With confidence 95 %, a policy drawn afresh from the posterior")
    assert "fails in at most" in posterior
    single = learn_finite(
        Costs(binary_costs.values, names=list("abcdef")), method="occam"
    ).certificate.sentence
    assert "policy “c” fails in at most" in single
    graded = learn_finite(graded_costs).certificate.sentence
    assert "has an expected cost of at most 0." in graded


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.12, "12.00 %"), (0.120001, "12.01 %"), (1.0, "100.00 %")]
)
def test_the_sentence_rounds_upwards(fraction: float, text: str):
    assert percent_up(fraction) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5000"), (0.21390001, "0.2140"), (1e-9, "0.0001"), (0.0, "0.0000")]
)
def test_every_bound_is_shown_rounded_upwards(value: float, text: str):
    assert round_up(value) == text


@pytest.mark.parametrize(
    ("delta", "text"),
    [(0.01, "99 %"), (0.05, "95 %"), (0.009, "99.1 %"), (0.5, "50 %"), (1e-300, "1 - 1e-300")],
)
def test_the_confidence_is_never_rounded_upwards(delta: float, text: str):
    assert confidence_percent(delta) == text


def test_a_single_policys_theorem_is_not_for_mixtures(binary_costs: Costs):
    budget = Budget(0.05)
    budget.spend("occam")
    uniform = Categorical.uniform(6)
    with pytest.raises(ValueError, match="needs all mass on it"):
        issue(binary_costs, uniform, uniform, "occam", budget, "none")


@pytest.mark.parametrize(
    "record", [{}, {"bound": 1}, {"bound": "x"}, {"surprise": 1}], ids=lambda r: str(list(r))
)
def test_what_is_no_certificate_is_rejected(record: dict):
    with pytest.raises(ValueError, match="not a certificate"):
        Certificate.from_dict(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bound", True),
        ("bound", "0.1"),
        ("bound", float("nan")),
        ("delta", None),
        ("kl", 10**400),
        ("environments", 200.0),
        ("policy", 2.0),
        ("policy_name", 3),
        ("binary", 1),
        ("budget", [0.01]),
        ("budget", {"kl": "0.01"}),
        ("hashes", None),
        ("method", None),
    ],
)
def test_a_field_of_another_type_is_rejected(binary_costs: Costs, field: str, value: object):
    record = learn_finite(binary_costs).certificate.to_dict()
    with pytest.raises(ValueError, match="not a certificate: bad"):
        Certificate.from_dict({**record, field: value})
