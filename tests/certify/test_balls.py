from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.bounds.divergences import divergence_of_samples
from pacbayes_control.certify.balls import SYMBOLS, Ball, ball_between, ball_of_samples
from pacbayes_control.certify.families import Beta, Gaussian, Product, Uniform
from pacbayes_control.robots.planar import CommonRadius

NAMES = [*SYMBOLS, "renyi-2", "renyi-0.5", "renyi-inf"]
ESTIMATED = Ball("kl", 0.3, "estimated", 0.01, ((3, 7), (30, 70)))


# ---- a ball -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_ball_is_read_from_words(name):
    assert Ball.parse(f"{name}:0.08") == Ball(name, 0.08, "assumed", 0.0, None)
    assert Ball.parse(f"{name}:1e-3").radius == 0.001
    assert Ball.parse(f"{name}:0").radius == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write DIVERGENCE:B, such as kl:0.08"),
        ("kl", "write DIVERGENCE:B, such as kl:0.08"),
        ("0.08", "write DIVERGENCE:B, such as kl:0.08"),
        ("kl:", "write DIVERGENCE:B, such as kl:0.08"),
        ("kl:much", "write DIVERGENCE:B, such as kl:0.08"),
        ("kl=0.08", "write DIVERGENCE:B, such as kl:0.08"),
        (":0.08", "divergence '' is unknown"),
        ("renyi:0.08", "divergence 'renyi' is unknown"),
        ("renyi-1:0.08", "that of order 1 is kl"),
        ("wasserstein:0.08", "divergence 'wasserstein' is unknown"),
        ("kl:0.1:0.2", "divergence 'kl:0.1' is unknown"),
        ("kl:-0.1", "must be a finite number of at least 0"),
        ("kl:nan", "must be a finite number of at least 0"),
        ("kl:inf", "must be a finite number of at least 0"),
    ],
)
def test_other_words_are_refused(text, message):
    with pytest.raises(ValueError, match=message) as e:
        Ball.parse(text)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("magic", 0.1), "is unknown: choose from"),
        (("kl", -0.1), "must be a finite number of at least 0"),
        (("kl", math.nan), "must be a finite number of at least 0"),
        (("kl", math.inf), "must be a finite number of at least 0"),
        (("kl", 0.1, ""), "does not say in plain words"),
        (("kl", 0.1, "one\nline too many"), "does not say in plain words"),
        (("kl", 0.1, "assumed", 0.01), "has samples and a delta above 0, or neither"),
        (("kl", 0.1, "assumed", 0.0, ((1,), (1,))), "has samples and a delta above 0, or neither"),
        (("kl", 0.1, "assumed", -0.1), "has samples and a delta above 0, or neither"),
        (("kl", 0.1, "assumed", 1.0, ((1,), (1,))), "has samples and a delta above 0, or neither"),
        (("kl", 0.1, "assumed", math.nan), "has samples and a delta above 0, or neither"),
    ],
)
def test_what_is_no_ball_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Ball(*arguments)


@pytest.mark.parametrize(
    ("ball", "text"),
    [
        (Ball("kl", 0.0818507503), "KL(D′‖D) ≤ 0.08185"),
        (Ball("kl", 0.08185999), "KL(D′‖D) ≤ 0.08185"),
        (Ball("reverse-kl", 0.5), "KL(D‖D′) ≤ 0.5"),
        (Ball("total-variation", 1.0), "TV(D′, D) ≤ 1"),
        (Ball("chi-squared", 1234567.0), "χ²(D′‖D) ≤ 1234000"),
        (Ball("hellinger", 0.0), "H²(D′, D) ≤ 0"),
        (Ball("renyi-0.5", 1e-9), "D_0.5(D′‖D) ≤ 0.000000001"),
        (Ball("renyi-inf", 0.1), "D_inf(D′‖D) ≤ 0.1"),
    ],
)
def test_a_ball_is_written_with_its_radius_rounded_downwards(ball, text):
    assert str(ball) == text


@given(st.floats(0, 1e6))
def test_the_radius_that_is_written_is_never_above_the_radius(radius):
    written = float(str(Ball("kl", radius)).partition("≤ ")[2])
    assert written <= radius
    assert written >= radius * 0.999


# ---- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_ball_survives_its_record(name):
    for ball in (Ball(name, 0.1), Ball(name, 0, "in words"), Ball(name, 0.1 + 0.2, "“ʒ”")):
        assert Ball.from_record(json.loads(json.dumps(asdict(ball)))) == ball


def test_a_ball_with_samples_survives_its_record():
    assert Ball.from_record(json.loads(json.dumps(asdict(ESTIMATED)))) == ESTIMATED
    ball = ball_of_samples([1, 2, 2], np.array([1, 1, 2, 2]), 0.01, "hellinger", cells=[1, 2])
    assert Ball.from_record(json.loads(json.dumps(asdict(ball)))) == ball


def changed(**changes: Any) -> dict[str, Any]:
    return {**asdict(ESTIMATED), **changes}


OTHER_FIELDS = "ball has other fields than expected, such as “"
SAMPLES = r"bad ball.samples: expected tuple\[tuple\[int, ...\], tuple\[int, ...\]\] \| None"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (None, OTHER_FIELDS),
        ([], OTHER_FIELDS),
        ("kl:0.1", OTHER_FIELDS),
        ({}, OTHER_FIELDS),
        ({"divergence": "kl", "radius": 0.1}, OTHER_FIELDS),
        (changed(more=1), OTHER_FIELDS),
        (changed(divergence=None), "bad ball.divergence: expected str"),
        (changed(divergence=["kl"]), "bad ball.divergence: expected str"),
        (changed(radius="0.1"), "bad ball.radius: expected float"),
        (changed(radius=1), "bad ball.radius: expected float"),
        (changed(radius=True), "bad ball.radius: expected float"),
        (changed(radius=None), "bad ball.radius: expected float"),
        (changed(delta="0.01"), "bad ball.delta: expected float"),
        (changed(delta=None), "bad ball.delta: expected float"),
        (changed(origin=None), "bad ball.origin: expected str"),
        (changed(origin=7), "bad ball.origin: expected str"),
        (changed(divergence="magic"), "is unknown"),
        (changed(radius=-0.1), "must be a finite number"),
        (changed(radius=math.inf), "bad ball.radius: expected float"),
        (changed(radius=math.nan), "bad ball.radius: expected float"),
        (changed(origin=""), "plain words"),
        (changed(origin="a\x1b[2Jb"), "plain words"),
        (changed(delta=0.0), "has samples and a delta above 0, or neither"),
        (changed(delta=1.0), "has samples and a delta above 0, or neither"),
        (changed(delta=-0.5), "has samples and a delta above 0, or neither"),
        (changed(delta=math.nan), "bad ball.delta: expected float"),
        (changed(samples=None), "has samples and a delta above 0, or neither"),
        (changed(samples=[]), SAMPLES),
        (changed(samples=[[1, 2]]), SAMPLES),
        (changed(samples=[[1, 2]] * 3), SAMPLES),
        (changed(samples={"0": [1], "1": [1]}), SAMPLES),
        (changed(samples="ab"), SAMPLES),
        (changed(samples=["12", "34"]), SAMPLES),
        (changed(samples=[[1, 2], None]), SAMPLES),
        (changed(samples=[[1, 2], [1.0, 2.0]]), SAMPLES),
        (changed(samples=[[1, 2], [True, 2]]), SAMPLES),
        (changed(samples=[[1, 2], ["1", 2]]), SAMPLES),
        (changed(samples=[[1, 2], [[1], [2]]]), SAMPLES),
        (changed(samples=[[1, 2], [-1, 2]]), "whole numbers"),
        (changed(samples=[[1, 2], [0, 0]]), "whole numbers"),
        (changed(samples=[[1, 2], [2**60, 1]]), "whole numbers"),
        (changed(samples=[[1, 2], [10**400, 1]]), SAMPLES),
        (changed(samples=[[1, 2], []]), "one count for each cell"),
        (changed(samples=[[1, 2], [1, 2, 3]]), "different cells"),
    ],
)
def test_a_stranger_s_record_is_refused(record, message):
    with pytest.raises(ValueError, match=message):
        Ball.from_record(record)


# ---- between two distributions ------------------------------------------------------------------


def test_the_paper_s_ball_holds_the_shifted_radii_of_its_cylinders():
    shifted, training = Beta(1, 1, 0.1, 1.1), Beta(0.8, 1.25, 0.1, 1.1)
    ball = ball_between(shifted, training)
    assert ball.divergence == "kl"
    assert round(ball.radius, 5) == 0.08185
    assert str(ball) == "KL(D′‖D) ≤ 0.08185"
    assert ball.origin == f"that of {shifted} from {training}"
    assert (ball.delta, ball.samples) == (0, None)


def test_the_vehicle_s_environments_are_as_far_apart_as_their_radii():
    shifted = CommonRadius(radius=Beta(1, 1, 0.1, 1.1))
    ball = ball_between(shifted, CommonRadius())
    assert ball.radius == ball_between(Beta(1, 1), Beta(0.8, 1.25)).radius


@pytest.mark.parametrize("name", ["kl", "reverse-kl", "total-variation", "chi-squared", "renyi-2"])
def test_a_ball_between_families_has_their_divergence_for_its_radius(name):
    shifted = Product(Gaussian(0.1, 1), Beta(2, 2))
    training = Product(Gaussian(0, 1.1), Beta(2.5, 2))
    ball = ball_between(shifted, training, name)
    assert ball == Ball(name, shifted.divergence_from(training, name), ball.origin)


def test_an_infinite_ball_is_refused_with_advice():
    for name in ("kl", "chi-squared", "renyi-2"):
        with pytest.raises(ValueError, match=r"is infinite: .* choose another divergence, such as"):
            ball_between(Uniform(0, 2), Uniform(0, 1), name)
    assert ball_between(Uniform(0, 2), Uniform(0, 1), "total-variation").radius == pytest.approx(
        0.5
    )


# ---- from samples -------------------------------------------------------------------------------


def test_labels_are_counted_by_cell_met_or_not():
    shifted, training = ["wet", "dry", "wet"], ["dry", "dry", "wet", "wet", "wet"]
    ball = ball_of_samples(shifted, training, 0.02, "hellinger", cells=["dry", "wet", "snow"])
    assert ball.samples == ((1, 2, 0), (2, 3, 0))
    assert ball.delta == 0.02
    assert ball.radius == divergence_of_samples((1, 2, 0), (2, 3, 0), 0.02, "hellinger")
    assert ball.origin == "estimated from 3 and 5 environments in 3 cells"


def test_labels_may_be_numbers_or_truth_values():
    ball = ball_of_samples([1, 2, 2, 2], [1, 1, 2], 0.1, cells=[1, 2])
    assert ball.samples == ((1, 3), (2, 1))
    ball = ball_of_samples([True, False, True], [False, True], 0.1, cells=[False, True])
    assert ball.samples == ((1, 2), (1, 1))


def test_a_label_that_was_not_declared_is_refused():
    for shifted, training in ((["a", "c"], ["a", "b"]), (["a", "b"], ["a", "c"])):
        with pytest.raises(
            ValueError, match=r"'c' is not one of the declared cells: .* need new samples"
        ):
            ball_of_samples(shifted, training, 0.1, cells=["a", "b"])


def test_numbers_are_cut_at_the_edges_and_beyond_them():
    shifted, training = [-5.0, 0.0, 0.5, 1.0, 2.0, 99.0], [0.1, 0.9, 1.5, -1.0]
    ball = ball_of_samples(shifted, training, 0.1, "total-variation", edges=[0.0, 1.0])
    assert ball.samples is not None
    assert [sum(sample) for sample in ball.samples] == [6, 4]
    assert ball.samples == ((2, 2, 2), (1, 2, 1))  # a number on an edge falls below it
    assert (
        len(asdict(ball_of_samples([1, 2], [3, 4], 0.1, "hellinger", edges=[2]))["samples"][0]) == 2
    )


def test_the_ball_holds_what_the_samples_are_drawn_from():
    rng = np.random.default_rng(3)
    shifted, training = Gaussian(0.5, 1), Gaussian(0, 1)
    there, here = shifted.sample(rng, 20_000), training.sample(rng, 20_000)
    ball = ball_of_samples(there, here, 0.01, "total-variation", edges=[0.25])
    exact = shifted.divergence_from(training, "total-variation")
    assert exact < ball.radius < exact + 0.03  # cut at their crossing, nothing is lost


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either the cells of the feature, or the edges"),
        ({"cells": ["a"], "edges": [0.5]}, "give either the cells of the feature, or the"),
        ({"cells": ["a", "a"]}, "the cells must have different names"),
        ({"cells": [1, "1"]}, "the cells must have different names"),
        ({"cells": []}, "the cells must have different names"),
        ({"edges": []}, "edges must be increasing numbers"),
        ({"edges": [1.0, 1.0]}, "edges must be increasing numbers"),
        ({"edges": [2.0, 1.0]}, "edges must be increasing numbers"),
        ({"edges": [0.0, math.nan]}, "edges must be increasing numbers"),
        ({"edges": [[0.0, 1.0]]}, "edges must be increasing numbers"),
        ({"edges": [0.5]}, "edges separate finite numbers, and a sample has another value"),
    ],
)
def test_cells_and_edges_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ball_of_samples(["a", "a"], ["a", "a"], 0.1, **arguments)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_edges_cut_no_number_that_is_not_finite(number):
    with pytest.raises(ValueError, match="edges separate finite numbers"):
        ball_of_samples([0.1, number], [0.1, 0.9], 0.1, edges=[0.5])


@pytest.mark.parametrize("sample", [[], [[0.1, 0.2]], 0.1])
def test_an_empty_sample_or_one_of_several_features_is_refused(sample):
    with pytest.raises(ValueError, match="the shifted sample is empty, or not one feature"):
        ball_of_samples(sample, [0.1, 0.9], 0.1, edges=[0.5])
    with pytest.raises(ValueError, match="the training sample is empty, or not one feature"):
        ball_of_samples([0.1, 0.9], sample, 0.1, edges=[0.5])


def test_a_cell_never_met_in_training_gets_advice_that_the_samples_allow():
    """Another divergence holds at once; cells chosen by these samples would void the promise."""
    with pytest.raises(ValueError, match=r"total-variation or hellinger, which hold at once") as e:
        ball_of_samples(["a", "b"], ["a", "a"], 0.1, cells=["a", "b"])
    assert "other cells need new samples" in str(e.value)
    assert "merge" not in str(e.value)
    assert ball_of_samples(["a", "b"], ["a", "a"], 0.1, "hellinger", cells=["a", "b"]).radius <= 1


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_an_estimate_without_confidence_is_refused(delta):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        ball_of_samples(["a", "b"], ["a", "b"], delta, cells=["a", "b"])


# ---- once wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", [math.nan, math.inf])
def test_a_single_edge_must_be_a_number(edge):
    with pytest.raises(ValueError, match="edges must be increasing numbers"):
        ball_of_samples([0.1, 0.9], [0.1, 0.9], 0.1, "total-variation", edges=[edge])


@pytest.mark.parametrize("name", ["renyi-2\n", "renyi-\x1d2"])
def test_a_ball_is_written_on_one_line(name):
    with pytest.raises(ValueError, match="is unknown"):
        Ball(name, 0.1)


def test_a_cell_never_met_after_the_shift_gets_advice():
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="never occurs") as e:
        ball_of_samples(["a", "a"], ["a", "b"], 0.1, "reverse-kl", cells=["a", "b"])
    assert "never occurs in one of the samples" in str(e.value)
