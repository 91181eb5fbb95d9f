"""Quantiles and CVaR under a shift: what a ball makes of them, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.bounds.shift import shift_inverse, tolerable_shift
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.certify.text import round_up
from pacbayes_control.learn import Plan, learn_finite
from pacbayes_control.verify import verify
from pacbayes_control.verify.intervals import InvalidCertificate

COSTS = Costs(np.random.default_rng(0).beta(2, 8, (200, 3)).round(3))
REFUSED = "cvar has no bound under a shift here: certify the mean or a quantile"
NAMES = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger", "renyi-2"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_quantile_is_exceeded_more_often_in_a_ball(name: str, tmp_path: Path):
    run = learn_finite(COSTS, of="quantile:0.9")
    shifted = under_shift(run, Ball(name, 0.05))
    old, new = run.certificate, shifted.certificate
    assert new.bound == new.bound_without_shift == old.bound
    assert new.exceeded == float(shift_inverse(1 - 0.9, 0.05, name)) > 0.1
    assert (old.most_above, new.most_above) == (1 - 0.9, new.exceeded)
    changed = {"bound_without_shift", "ball", "exceeded"}
    for field in fields(Certificate):
        if field.name not in changed:
            assert getattr(new, field.name) == getattr(old, field.name), field.name
    assert verify(shifted.save(tmp_path / "run")).certificate == new


@pytest.mark.parametrize("share", [0.1, 0.3, 0.45, 0.7, 0.9])
@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.3])
def test_no_rounding_of_the_share_breaks_a_certificate(share: float, radius: float, tmp_path: Path):
    run = under_shift(learn_finite(COSTS, of=f"quantile:{share}"), Ball("kl", radius))
    assert verify(run.save(tmp_path / "run")).certificate.exceeded == run.certificate.exceeded


def test_a_share_that_the_ball_does_not_bear_out_is_not_verified(tmp_path: Path):
    run = under_shift(learn_finite(COSTS, of="quantile:0.9"), Ball("kl", 0.05))
    assert run.certificate.exceeded is not None
    less = replace(run.certificate, exceeded=run.certificate.exceeded * (1 - 1e-6))
    forged = replace(run, certificate=less)
    with pytest.raises(InvalidCertificate, match="may be exceeded in more than"):
        verify(forged.save(tmp_path / "run"))
    without = replace(run, certificate=replace(run.certificate, exceeded=None))
    with pytest.raises(InvalidCertificate, match="a share exceeded is for quantiles in a ball"):
        verify(without.save(tmp_path / "other"))


def test_the_sentence_says_how_often_the_quantile_is_exceeded_and_where():
    run = learn_finite(COSTS, of="quantile:0.7")
    said = run.certificate.sentence
    assert f"costs more than {run.certificate.bound:g} in at most 30 % of new environments" in said
    shifted = under_shift(run, Ball("total-variation", 0.05)).certificate.sentence
    assert "in at most 35.01 % of new environments from any distribution D′ with TV" in shifted
    huge = under_shift(run, Ball("kl", 50.0)).certificate.sentence
    assert "in at most 100.00 % of new environments" in huge


def test_a_recorded_cost_is_shown_as_it_is_and_not_rounded_up():
    costs = Costs(np.full((100, 1), 0.251))  # as a float, a little above 0.251
    certificate = learn_finite(costs, of="quantile:0.5").certificate
    assert (certificate.bound, certificate.shown_bound) == (0.251, "0.251")
    mean = learn_finite(costs).certificate
    assert mean.shown_bound == round_up(mean.bound)


def test_noise_is_averaged_over_in_a_mean_and_part_of_each_environment_of_a_quantile():
    noisy = Costs(COSTS.values, origin={"noise": {"of": "wheel slip"}})
    told = "noise drawn independently of the policy (“wheel slip”)"
    assert f", averaged over {told}" in learn_finite(noisy).certificate.sentence
    for of in ("quantile:0.9", "cvar:0.2"):
        assert f", each with {told}" in learn_finite(noisy, of=of).certificate.sentence


def test_an_estimated_ball_is_paid_for():
    ball = ball_of_samples(["a"] * 40 + ["b"] * 60, ["a"] * 300 + ["b"] * 700, 0.005, cells="ab")
    run = learn_finite(COSTS, 0.01, of="quantile:0.9")
    certificate = under_shift(run, ball).certificate
    assert certificate.delta == 0.01 + 0.005
    assert certificate.budget == {**run.certificate.budget, "shift": 0.005}


# ---- the curve ----------------------------------------------------------------------------------


def test_the_curve_of_a_quantile_is_of_the_share_that_costs_more():
    run = learn_finite(COSTS, of="quantile:0.9")
    found = curve(run.certificate, limit=0.4)
    assert found.above == run.certificate.bound
    assert found.bounds[0] == 1 - 0.9
    assert found.tolerable == float(tolerable_shift(1 - 0.9, 0.4, "kl"))
    assert found.bounds[-1] == pytest.approx(0.4)
    again = curve(under_shift(run, Ball("kl", 0.05)).certificate, limit=0.4)
    assert again == found  # it starts from D, and not from the ball
    assert curve(learn_finite(COSTS).certificate).above is None


def test_a_limit_that_is_no_share_is_refused():
    certificate = learn_finite(COSTS, of="quantile:0.9").certificate
    with pytest.raises(ValueError, match=r"a limit of 1\.5 is not a share of environments"):
        curve(certificate, limit=1.5)


# ---- CVaR ---------------------------------------------------------------------------------------


def test_cvar_has_no_bound_under_a_shift():
    run = learn_finite(COSTS, of="cvar:0.2")
    with pytest.raises(ValueError, match=REFUSED):
        under_shift(run, Ball("kl", 0.05))
    with pytest.raises(ValueError, match=REFUSED):
        curve(run.certificate)


def test_a_plan_for_cvar_in_a_ball_is_refused_before_any_rollout():
    with pytest.raises(ValueError, match=REFUSED):
        Plan(of="cvar:0.1", ball="kl:0.05")
    assert Plan(of="quantile:0.9", ball="kl:0.05").ball == "kl:0.05"
