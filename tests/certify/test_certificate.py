from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import binom

from pacbayes_control.bounds import maurer_xi
from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import Basis, Provenance, issue
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.text import confidence_percent, percent_up, round_up
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
    run = learn_finite(binary_costs, delta=0.05, method="kl")
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
    c = issue(Basis(binary_costs, prior, prior, budget, Provenance("none")), "kl")
    assert c.kl < 1e-12
    assert c.bound > learn_finite(binary_costs, delta=0.05, method="kl").certificate.bound


def test_the_same_inputs_give_the_same_certificate_byte_for_byte(binary_costs: Costs):
    first = json.dumps(learn_finite(binary_costs, method="kl").certificate.to_dict())
    again = json.dumps(
        learn_finite(
            Costs(binary_costs.values.copy(), origin=binary_costs.origin), method="kl"
        ).certificate.to_dict()
    )
    assert first == again


def test_a_certificate_survives_json(graded_costs: Costs):
    certificate = learn_finite(graded_costs, method="occam").certificate
    record = json.loads(json.dumps(certificate.to_dict()))
    assert Certificate.from_dict(record) == certificate


def test_a_certificate_is_frozen(binary_costs: Costs):
    certificate = learn_finite(binary_costs, method="kl").certificate
    with pytest.raises(AttributeError):
        certificate.bound = 0.0  # type: ignore[misc]


def test_the_sentence_says_what_is_promised_and_to_whom(binary_costs: Costs, graded_costs: Costs):
    posterior = learn_finite(binary_costs, delta=0.05, method="kl").certificate.sentence
    assert posterior.startswith("With confidence 95 %, a policy drawn afresh from the posterior")
    assert "fails in at most" in posterior
    single = learn_finite(
        Costs(binary_costs.values, names=list("abcdef")), method="occam"
    ).certificate.sentence
    assert "policy “c” fails in at most" in single
    graded = learn_finite(graded_costs, method="kl").certificate.sentence
    assert "has an expected cost of at most 0." in graded


def test_the_sentence_of_a_gaussian_posterior_counts_parameters(binary_costs: Costs):
    finite = learn_finite(binary_costs, delta=0.05, method="kl").certificate
    gaussian = dataclasses.replace(finite, policies=None, parameters=98, draws=4)
    assert "a policy drawn afresh from the posterior over 98 parameters fails in" in (
        gaussian.sentence
    )


def test_the_sentence_of_a_single_draw_speaks_of_one_policy(binary_costs: Costs):
    finite = learn_finite(binary_costs, delta=0.05, method="kl").certificate
    single = dataclasses.replace(
        finite, method="single-draw", policies=None, parameters=10, policy=0
    )
    assert "the one policy drawn from the posterior over 10 parameters fails in" in single.sentence
    assert "afresh" not in single.sentence


def test_the_sentence_tells_what_was_learnt_from_and_what_was_only_certified_on(
    binary_costs: Costs,
):
    certificate = learn_finite(binary_costs, method="kl").certificate
    assert certificate.set_aside == 0
    assert certificate.sentence.endswith(" drawn like the 200 it was learnt from.")
    place = {"stream": "train", "seed": 0, "start": 50, "stop": 250}
    origin: dict[str, object] = {"graded": False, **place}
    seen = Categorical(np.full(6, 1 / 6), seen=[EnvironmentRange("train", 0, 0, 50)])
    apart = learn_finite(
        Costs(binary_costs.values, origin=origin), prior=seen, method="kl"
    ).certificate
    assert apart.set_aside == 50
    assert apart.sentence.endswith(" drawn like the 200 it was certified on.")
    assert apart.bound == certificate.bound


def test_the_sentence_tells_of_the_worlds_own_noise(binary_costs: Costs):
    noise = {"stream": "train noise", "seed": 0, "of": "wheel slip 0.1"}
    origin = {"noise": noise, "graded": False}
    noisy = learn_finite(Costs(binary_costs.values, origin=origin), method="kl").certificate
    assert noisy.noise == "wheel slip 0.1"
    assert noisy.sentence.endswith(
        " it was learnt from"
        ", averaged over noise drawn independently of the policy (“wheel slip 0.1”)."
    )
    assert "noise" not in learn_finite(binary_costs, method="kl").certificate.sentence


def test_the_origin_of_the_prior_is_told(binary_costs: Costs):
    uniform = learn_finite(binary_costs, method="kl").certificate
    assert uniform.prior == "uniform over all policies"
    parameters = np.array([[0.0], [1.0], [1.0], [2.0], [3.0], [4.0]])
    known = Costs(binary_costs.values, parameters=parameters)
    assert (
        learn_finite(known, method="kl").certificate.prior
        == "uniform over the policies that differ"
    )
    weights = Categorical([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert (
        learn_finite(binary_costs, prior=weights, method="kl").certificate.prior
        == "given in advance"
    )
    told = learn_finite(binary_costs, origin="by a colleague", method="kl").certificate
    assert told.prior == "by a colleague"


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
        issue(Basis(binary_costs, uniform, uniform, budget, Provenance("none")), "occam")


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
        ("set_aside", 1.0),
        ("set_aside", None),
        ("set_aside", False),
        ("policies", "6"),
        ("parameters", 3.0),
        ("draws", True),
        ("draws", [4]),
        ("shared_draws", 1),
        ("shared_draws", "fresh"),
        ("training_cost_bound", "0.1"),
        ("training_cost_bound", float("inf")),
        ("noise", {"of": "wind"}),
        ("noise", False),
        ("prior", None),
    ],
)
def test_a_field_of_another_type_is_rejected(binary_costs: Costs, field: str, value: object):
    record = learn_finite(binary_costs, method="kl").certificate.to_dict()
    with pytest.raises(ValueError, match="not a certificate: bad"):
        Certificate.from_dict({**record, field: value})


@pytest.mark.parametrize("version", [0, 10, 4.0, "4", None])
def test_a_certificate_of_another_format_is_rejected(binary_costs: Costs, version: object):
    record = learn_finite(binary_costs, method="kl").certificate.to_dict()
    with pytest.raises(ValueError, match="not a certificate of format 1 to 9"):
        Certificate.from_dict({**record, "format": version})


@pytest.mark.parametrize("name", ["set_aside", "draws", "training_cost_bound", "noise", "prior"])
def test_a_certificate_without_one_of_its_fields_is_rejected(binary_costs: Costs, name: str):
    record = learn_finite(binary_costs, method="kl").certificate.to_dict()
    del record[name]
    with pytest.raises(ValueError, match="it has other fields"):
        Certificate.from_dict(record)
