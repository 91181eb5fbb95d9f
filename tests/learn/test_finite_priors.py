"""A posterior over finitely many policies tells what it was learnt from, and is no prior for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import prior_for
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.learn import (
    learn_best,
    learn_constrained,
    learn_finite,
    learn_tilted,
)
from pacbayes_control.verify import verify

SITES = [f"site {i}" for i in range(60)]


def table(seed: int = 0, rows: int = 60) -> NDArray:
    """Graded costs: no two rows are alike."""
    return np.random.default_rng(seed).random((rows, 3))


def through_a_file(distribution: Categorical) -> Categorical:
    return Categorical.from_record(json.loads(distribution.to_bytes()), "prior")


LEARNERS = {
    "learn_finite": lambda costs, prior: learn_finite(costs, prior=prior),
    "occam": lambda costs, prior: learn_finite(costs, method="occam", prior=prior),
    "learn_best": lambda costs, prior: learn_best(costs, prior=prior),
    "learn_constrained": lambda costs, prior: learn_constrained(costs, prior=prior),
    "learn_tilted": lambda costs, prior: learn_tilted(costs, Ball("kl", 0.01), prior=prior),
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_refuses_a_prior_that_was_learnt_from_the_same_costs(learner: str):
    learn, costs = LEARNERS[learner], Costs(table())
    posterior = through_a_file(learn(costs, None).posterior)
    with pytest.raises(ValueError, match="the prior was learnt from environments with the same"):
        learn(costs, posterior)
    assert learn(Costs(table(1)), posterior).posterior.rows > posterior.rows


def test_neither_rows_added_nor_rows_reordered_hide_what_was_seen():
    costs = table()
    posterior = learn_finite(Costs(costs)).posterior
    for other in (
        np.vstack([costs, [[0.5, 0.5, 0.5]]]),
        costs[::-1],
        costs[17:18].repeat(2, axis=0),
        np.vstack([table(1), costs[3:4]]),
    ):
        with pytest.raises(ValueError, match="learnt from environments with the same costs"):
            learn_finite(Costs(other), prior=posterior)


def test_a_row_of_0_and_1_is_the_same_in_a_table_that_is_graded():
    binary = np.eye(40, 3)
    posterior = learn_finite(Costs(binary)).posterior
    graded = np.vstack([binary[:2], table(1)])
    with pytest.raises(ValueError, match="learnt from environments with the same costs"):
        learn_finite(Costs(graded), prior=posterior)


def test_names_tell_environments_apart_that_went_alike():
    zeros = np.zeros((60, 3))
    posterior = learn_finite(Costs(zeros, sites=SITES)).posterior
    with pytest.raises(ValueError, match="of the same names, such as “SITE 7”"):
        learn_finite(Costs(zeros[:2], sites=["SITE 7", "another"]), prior=posterior)
    with pytest.raises(ValueError, match="name the environments in both tables"):
        learn_finite(Costs(zeros), prior=posterior)  # the names were left out
    others = [f"other {i}" for i in range(60)]
    assert learn_finite(Costs(zeros, sites=others), prior=posterior).certificate.bound < 1


def test_other_names_do_not_hide_a_table_with_fractions():
    posterior = learn_finite(Costs(table(), sites=SITES)).posterior
    others = [f"other {i}" for i in range(60)]
    with pytest.raises(ValueError, match="environments of other names with the same costs"):
        learn_finite(Costs(table(), sites=others), prior=posterior)
    coarse = (table() * 3).round() / 3  # many rows occur once, and all are shared
    posterior = learn_finite(Costs(coarse, sites=SITES)).posterior
    with pytest.raises(ValueError, match="of other names with the same costs"):
        learn_finite(Costs(coarse, sites=others), prior=posterior)
    posterior = learn_finite(Costs(coarse[:, :1], sites=SITES)).posterior
    learn_finite(Costs(coarse[:, :1], sites=others), prior=posterior)  # may be, by chance
    posterior = learn_finite(Costs(table(), sites=SITES)).posterior
    mixed = np.vstack([table(1)[:40], table()[:20]])
    assert learn_finite(Costs(mixed, sites=others), prior=posterior).certificate.bound < 1


def test_environments_of_streams_are_told_by_their_ranges():
    origin = {"task": "t", "stream": "train", "seed": 0, "start": 0, "stop": 60}
    zeros = np.zeros((60, 3))
    posterior = through_a_file(learn_finite(Costs(zeros, origin=origin)).posterior)
    assert posterior.seen == (EnvironmentRange("train", 0, 0, 60),)
    with pytest.raises(ValueError, match=r"some of these environments \(stream 'train', 0 to 60\)"):
        learn_finite(Costs(zeros, origin=origin | {"start": 59, "stop": 119}), prior=posterior)
    later = origin | {"start": 60, "stop": 120}
    run = learn_finite(Costs(zeros, origin=later), prior=posterior)
    assert run.certificate.set_aside == 60
    assert run.posterior.seen == (EnvironmentRange("train", 0, 0, 120),)
    with pytest.raises(ValueError, match="learnt from environments with the same costs"):
        learn_finite(Costs(zeros), prior=posterior)  # their origin was left out


def test_a_table_in_the_chain_does_not_hide_what_was_seen():
    """The costs of a stream without their origin, after a prior that was learnt on another."""
    first = {"task": "t", "stream": "a", "seed": 0, "start": 0, "stop": 60}
    prior = learn_finite(Costs(table(1), origin=first)).posterior
    through = learn_finite(Costs(table(2)), prior=prior).posterior
    second = {"task": "t", "stream": "b", "seed": 0, "start": 0, "stop": 60}
    with pytest.raises(ValueError, match="learnt from environments with the same costs"):
        learn_finite(Costs(table(2), origin=second), prior=through)
    assert learn_finite(Costs(table(3), origin=second), prior=through).certificate.bound < 1


def test_a_prior_from_a_stream_may_be_certified_on_a_table(tmp_path: Path):
    first = {"task": "t", "stream": "simulated", "seed": 0, "start": 0, "stop": 60}
    prior = learn_finite(Costs(table(1), origin=first)).posterior
    verify(learn_finite(Costs(table(2)), prior=prior).save(tmp_path / "run"))


def test_a_prior_that_does_not_say_what_it_has_seen_is_refused():
    silent = Categorical.from_record({"kind": "categorical", "probabilities": [0.5, 0.5]}, "prior")
    assert silent.seen is None
    with pytest.raises(ValueError, match="does not say which environments it was learnt from"):
        prior_for(Costs([[0, 1], [1, 1]]), silent)


@pytest.mark.parametrize(
    "record",
    [
        {"seen": []},
        {"rows": []},
        {"seen": [], "rows": "v0"},
        {"seen": [], "rows": ["v0"]},
        {"seen": [], "rows": ["x0123456789abcdef"]},
        {"seen": [["train", 0, 5, 1]], "rows": []},
    ],
    ids=str,
)
def test_a_record_that_is_unclear_about_what_was_seen_is_refused(record: dict):
    with pytest.raises(ValueError, match="does not say which"):
        Categorical.from_record({"kind": "categorical", "probabilities": [1.0]} | record, "prior")


@pytest.mark.slow
def test_priors_that_saw_the_costs_would_be_wrong_and_honest_ones_are_not():
    """The reason for all this: ten policies that all fail in half of the environments."""
    rng, wrong, violated = np.random.default_rng(0), 0, 0
    for _ in range(60):
        costs = Costs(rng.random((50, 10)) < 0.5)
        first = learn_finite(costs, delta=0.05)
        violated += first.certificate.bound < 0.5
        stripped = Categorical(first.posterior.probabilities)  # as a liar would
        prior = stripped
        for _ in range(2):
            prior = Categorical(learn_finite(costs, 0.05, prior=prior).posterior.probabilities)
        wrong += learn_finite(costs, 0.05, method="occam", prior=prior).certificate.bound < 0.5
    assert violated <= 6
    assert wrong > 15
