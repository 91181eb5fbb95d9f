from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes_control.bounds.shift import shift_inverse, tolerable_shift
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.learn import learn_finite

NAMES = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger"]
NAMES += ["renyi-2", "renyi-0.5", "renyi-inf"]


def estimated(delta: float = 0.005) -> Ball:
    shifted, training = ["a"] * 40 + ["b"] * 60, ["a"] * 300 + ["b"] * 700
    return ball_of_samples(shifted, training, delta, cells=["a", "b"])


def with_bound(run: Run[Any], bound: float) -> Certificate:
    return dataclasses.replace(run.certificate, bound=bound)


# ---- certificates in a ball ---------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_the_largest_cost_in_the_ball_and_all_else_stays(name, binary_costs: Costs):
    run = learn_finite(binary_costs, method="kl")
    shifted = under_shift(run, Ball(name, 0.05))
    old, new = run.certificate, shifted.certificate
    assert new.bound == float(shift_inverse(old.bound, 0.05, name))
    assert new.bound_without_shift == old.bound < new.bound
    assert new.ball == Ball(name, 0.05)
    changed = {"bound", "bound_without_shift", "ball"}
    for field in dataclasses.fields(Certificate):
        if field.name not in changed:
            assert getattr(new, field.name) == getattr(old, field.name), field.name
    assert (shifted.costs, shifted.prior, shifted.posterior) == (
        run.costs,
        run.prior,
        run.posterior,
    )


def test_a_ball_without_a_radius_changes_no_number(binary_costs: Costs):
    run = learn_finite(binary_costs, method="kl")
    certificate = under_shift(run, Ball("kl", 0.0)).certificate
    assert certificate.bound == certificate.bound_without_shift == run.certificate.bound


def test_a_ball_that_was_estimated_is_paid_for(binary_costs: Costs):
    run, ball = learn_finite(binary_costs, 0.02, method="kl"), estimated(0.005)
    certificate = under_shift(run, ball).certificate
    assert certificate.delta == pytest.approx(0.025, rel=1e-15)
    assert certificate.budget == {"kl": 0.02, "shift": 0.005}
    assert certificate.budget.keys() - run.certificate.budget.keys() == {"shift"}
    assert run.certificate.budget == {"kl": 0.02}  # the old one is as it was


def test_a_ball_that_is_assumed_costs_nothing(binary_costs: Costs):
    certificate = under_shift(
        learn_finite(binary_costs, 0.02, method="kl"), Ball("kl", 0.1)
    ).certificate
    assert certificate.delta == 0.02
    assert certificate.budget == {"kl": 0.02}


def test_no_more_than_all_confidence_can_be_spent(binary_costs: Costs):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        under_shift(learn_finite(binary_costs, 0.6, method="kl"), estimated(0.5))


def test_a_certificate_is_shifted_once(binary_costs: Costs):
    once = under_shift(learn_finite(binary_costs, method="kl"), Ball("kl", 0.0818507503))
    with pytest.raises(ValueError, match=r"already holds where KL\(D′‖D\) ≤ 0.08185: start from"):
        under_shift(once, Ball("kl", 0.01))


def test_the_smallest_certificate_gives_the_smallest_robust_one(binary_costs: Costs):
    runs = [
        learn_finite(binary_costs, 0.02, method=method) for method in ("kl", "kl-maurer", "pinsker")
    ]
    plain = [run.certificate.bound for run in runs]
    assert len(set(plain)) == 3
    for name in NAMES:
        robust = [under_shift(run, Ball(name, 0.02)).certificate.bound for run in runs]
        assert np.argsort(robust).tolist() == np.argsort(plain).tolist()


def test_the_sentence_says_for_which_distributions(binary_costs: Costs, graded_costs: Costs):
    sentence = under_shift(
        learn_finite(binary_costs, method="kl"), Ball("kl", 0.0818507503)
    ).certificate.sentence
    assert sentence.startswith("With confidence 99 %, a policy drawn afresh from the posterior")
    assert sentence.endswith(
        "of new environments from any distribution D′ with KL(D′‖D) ≤ 0.08185, where D is that of "
        "the 200 it was learnt from."
    )
    run = under_shift(learn_finite(graded_costs, method="kl"), Ball("renyi-2", 0.3))
    assert run.certificate.sentence.endswith(
        "in new environments from any distribution D′ with D_2(D′‖D) ≤ 0.3, where D is that of the "
        "150 it was learnt from."
    )


def test_the_sentence_of_an_estimated_ball_says_what_it_rests_on(binary_costs: Costs):
    sentence = under_shift(
        learn_finite(binary_costs, 0.02, method="kl"), estimated()
    ).certificate.sentence
    assert sentence.startswith("With confidence 97.5 %")
    assert sentence.endswith(
        "of new environments drawn like the shifted sample of 100, if it differs from the 200 it "
        "was learnt from in nothing but how often each of 2 cells occurs."
    )


def test_a_shifted_certificate_survives_its_record(binary_costs: Costs):
    for ball in (Ball("renyi-0.5", 0.1), estimated()):
        certificate = under_shift(learn_finite(binary_costs, method="kl"), ball).certificate
        assert Certificate.from_dict(certificate.to_dict()) == certificate
    plain = learn_finite(binary_costs, method="kl").certificate
    assert plain.ball is plain.bound_without_shift is None
    assert Certificate.from_dict(plain.to_dict()) == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ball": "kl:0.1"}, "ball has other fields than expected"),
        ({"ball": {}}, "ball has other fields than expected"),
        ({"bound_without_shift": "0.1"}, "bad bound_without_shift"),
        ({"bound_without_shift": math.inf}, "bad bound_without_shift"),
        ({"bound_without_shift": True}, "bad bound_without_shift"),
    ],
)
def test_a_stranger_s_certificate_is_refused(binary_costs: Costs, change: dict, message: str):
    record = under_shift(
        learn_finite(binary_costs, method="kl"), Ball("kl", 0.1)
    ).certificate.to_dict()
    with pytest.raises(ValueError, match=message):
        Certificate.from_dict({**record, **change})


# ---- curves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_curve_rises_from_the_bound_to_the_limit(name, binary_costs: Costs):
    certificate = learn_finite(binary_costs, method="kl").certificate
    drawn = curve(certificate, name, limit=0.4)
    assert drawn.divergence == name
    assert drawn.limit == 0.4
    assert len(drawn.radii) == len(drawn.bounds) == 41
    assert drawn.radii[0] == 0
    assert drawn.bounds[0] == certificate.bound
    assert np.all(np.diff(drawn.radii) > 0)
    assert np.all(np.diff(drawn.bounds) > 0)
    assert drawn.radii[-1] == pytest.approx(drawn.tolerable)
    assert drawn.bounds[-1] == pytest.approx(0.4, abs=1e-8)
    assert drawn.bounds == pytest.approx(
        shift_inverse(certificate.bound, drawn.radii, name).tolist(), abs=1e-13
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_tolerable_shift_is_where_the_promise_reaches_the_limit(name, binary_costs: Costs):
    certificate = learn_finite(binary_costs, method="kl").certificate
    drawn = curve(certificate, name)
    assert drawn.limit == 0.5
    assert drawn.tolerable == float(tolerable_shift(certificate.bound, 0.5, name))
    assert shift_inverse(certificate.bound, drawn.tolerable, name) <= 0.5
    assert shift_inverse(certificate.bound, drawn.tolerable * (1 + 1e-6), name) > 0.5


@pytest.mark.slow
@settings(max_examples=60)
@given(st.floats(0, 1), st.floats(0.01, 1), st.sampled_from(NAMES))
def test_a_curve_never_falls_and_never_leaves_the_costs(bound, limit, name):
    run = learn_finite([[0, 1], [0, 0], [1, 1]] * 20, method="kl")
    drawn = curve(with_bound(run, bound), name, limit=limit)
    assert np.all(np.diff(drawn.bounds) >= -1e-12)
    assert bound <= drawn.bounds[0]
    assert drawn.bounds[-1] <= 1
    assert np.all(np.isfinite(drawn.radii))
    assert drawn.tolerable >= 0


def test_the_curve_of_a_shifted_certificate_starts_without_the_shift(binary_costs: Costs):
    run = learn_finite(binary_costs, method="kl")
    shifted = under_shift(run, Ball("kl", 0.05)).certificate
    assert curve(shifted) == curve(run.certificate)
    assert curve(shifted, radii=[0.05]).bounds == pytest.approx([shifted.bound], abs=1e-13)


def test_radii_may_be_chosen(binary_costs: Costs):
    certificate = learn_finite(binary_costs, method="kl").certificate
    drawn = curve(certificate, "hellinger", radii=[0.3, 0.0, 0.1])
    assert drawn.radii == (0.3, 0.0, 0.1)
    assert drawn.bounds[1] == certificate.bound < drawn.bounds[2] < drawn.bounds[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_of_one_has_a_flat_curve(name, binary_costs: Costs):
    drawn = curve(with_bound(learn_finite(binary_costs, method="kl"), 1.0), name)
    assert set(drawn.bounds) == {1.0}
    assert drawn.tolerable == 0
    assert np.all(np.diff(drawn.radii) > 0)


@pytest.mark.parametrize("name", ["kl", "chi-squared", "renyi-2", "renyi-inf"])
def test_a_bound_of_zero_tolerates_every_continuous_shift(name, binary_costs: Costs):
    drawn = curve(with_bound(learn_finite(binary_costs, method="kl"), 0.0), name)
    assert set(drawn.bounds) == {0.0}
    assert drawn.tolerable == math.inf
    assert drawn.radii[-1] == 1


@pytest.mark.parametrize(
    ("name", "tolerable"),
    [
        ("reverse-kl", math.log(2)),
        ("total-variation", 0.5),
        ("hellinger", 1 - math.sqrt(0.5)),
        ("renyi-0.5", math.log(2)),
    ],
)
def test_a_bound_of_zero_tolerates_some_of_the_other_shifts(name, tolerable, binary_costs: Costs):
    drawn = curve(with_bound(learn_finite(binary_costs, method="kl"), 0.0), name)
    assert drawn.tolerable == pytest.approx(tolerable, rel=1e-8)
    assert drawn.bounds[-1] == pytest.approx(0.5, abs=1e-8)


@pytest.mark.parametrize("limit", [0.01, 0.3, 0.299])
def test_a_limit_at_or_below_the_bound_tolerates_nothing_but_a_curve_is_drawn(
    limit, binary_costs: Costs
):
    drawn = curve(with_bound(learn_finite(binary_costs, method="kl"), 0.3), limit=limit)
    assert drawn.tolerable == 0
    assert drawn.bounds[0] == 0.3
    assert drawn.bounds[-1] == pytest.approx(0.65, abs=1e-8)  # half way to 1


def test_a_limit_of_one_is_reached_or_not(binary_costs: Costs):
    certificate = with_bound(learn_finite(binary_costs, method="kl"), 0.25)
    assert curve(certificate, "kl", limit=1.0).tolerable == pytest.approx(math.log(4))
    assert curve(certificate, "total-variation", limit=1.0).tolerable == pytest.approx(0.75)
    endless = curve(certificate, "reverse-kl", limit=1.0)
    assert endless.tolerable == math.inf
    assert endless.bounds[-1] == pytest.approx(0.625, abs=1e-8)


@pytest.mark.parametrize("limit", [0.0, -0.1, 1.1, math.nan])
def test_what_is_no_limit_is_refused(limit, binary_costs: Costs):
    with pytest.raises(ValueError, match=r"is not a cost: it must lie in \(0, 1\]"):
        curve(learn_finite(binary_costs, method="kl").certificate, limit=limit)


@pytest.mark.parametrize("radii", [[0.1, -0.1], [math.nan], [math.inf]])
def test_what_is_no_radius_is_refused(radii, binary_costs: Costs):
    with pytest.raises(ValueError, match="must be a finite number of at least 0"):
        curve(learn_finite(binary_costs, method="kl").certificate, radii=radii)


def test_an_unknown_divergence_is_refused(binary_costs: Costs):
    with pytest.raises(ValueError, match="is unknown: choose from"):
        curve(learn_finite(binary_costs, method="kl").certificate, "wasserstein")
