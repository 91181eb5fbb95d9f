"""A monitor of a quantile counts trials above it; one of CVaR is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.deploy.monitor import Monitor, Promise
from pacbayes_control.learn import learn_finite

COSTS = Costs(np.random.default_rng(0).beta(2, 8, (200, 3)).round(3))


@pytest.fixture(scope="module")
def run() -> Run:
    return learn_finite(COSTS, of="quantile:0.9")


@pytest.fixture(scope="module")
def certificate(run: Run) -> Certificate:
    return replace(run.certificate, bound=0.31)


def test_an_outcome_counts_as_one_if_it_is_above_the_quantile(certificate: Certificate):
    monitor, as_failures = Monitor(certificate), Monitor(Promise(1 - 0.9, certificate.delta))
    monitor.observe([0.31, 0.3100001, 1.0, 0.0, 0.2])
    as_failures.observe([0, 1, 1, 0, 0])
    mine, theirs = monitor.report().to_dict(), as_failures.report().to_dict()
    assert (mine["trials"], mine["mean_cost"], mine["bound"]) == (5, 0.4, 1 - 0.9)
    assert (mine["above"], theirs["above"]) == (0.31, None)
    for key in mine.keys() - {"above", "sentence"}:
        assert mine[key] == theirs[key], key


def test_counts_are_of_trials_above_the_quantile(certificate: Certificate):
    one, many = Monitor(certificate), Monitor(certificate)
    one.observe([0.4, *[0.1] * 9])
    many.observe_counts(failures=1, trials=10)
    assert one.report().p_value == many.report().p_value
    assert one.report().mean_cost == many.report().mean_cost


def test_the_sentence_tells_how_many_trials_cost_more(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe_counts(12, 200)
    promise = "the promise of at most 10 % of environments above a cost of 0.31"
    assert monitor.report().sentence == (
        f"No evidence yet against {promise}, nor enough to call it confirmed. "
        "12 of 200 trials cost more than 0.31."
    )
    monitor.observe_counts(100, 2000)
    assert monitor.report().sentence == (
        "Holding: with confidence 95 %, at every look, the share as deployed, if it has not "
        f"changed meanwhile, is below {promise}. 112 of 2,200 trials cost more than 0.31."
    )
    monitor.observe_counts(900, 1000)
    said = monitor.report().sentence
    assert said.startswith(
        f"Violated: the outcomes up to trial 3200 are evidence against {promise}"
    )
    assert said.endswith("1,012 of 3,200 trials cost more than 0.31.")


def test_in_a_ball_the_share_of_the_ball_is_what_is_promised(run: Run):
    shifted = under_shift(run, Ball("total-variation", 0.05)).certificate
    monitor = Monitor(shifted)
    monitor.observe_counts(90, 100)
    report = monitor.report()
    assert report.bound == shifted.exceeded
    assert "at most 15.01 % of environments above a cost of" in report.sentence
    assert "not from any D′ with TV(D′, D) ≤ 0.05" in report.sentence


def test_a_state_goes_on_where_it_was_saved(certificate: Certificate, tmp_path: Path):
    monitor = Monitor(certificate)
    monitor.observe_file("monday.csv", [0.1, 0.5, 0.2])
    monitor.save(tmp_path / "state.json")
    again = Monitor.load(tmp_path / "state.json", certificate)
    assert again.report() == monitor.report()
    with pytest.raises(ValueError, match=r"monday\.csv was appended before"):
        again.observe_file("monday.csv", [0.1, 0.5, 0.2])
    again.observe_file("monday.csv", [0.1, 0.5, 0.2, 0.9], "grown")
    assert (again.trials, again.total) == (4, 2)
    again = Monitor.load(tmp_path / "state.json", certificate)
    with pytest.raises(ValueError, match="does not begin with the 3 outcomes"):  # costs, not counts
        again.observe_file("monday.csv", [0.2, 0.6, 0.3, 0.9], "grown")


def test_a_state_is_of_one_statistic_and_of_one_ball(run: Run, tmp_path: Path):
    monitor = Monitor(run.certificate)
    monitor.observe([0.1, 0.5, 0.2])
    monitor.save(tmp_path / "state.json")
    in_ball = under_shift(run, Ball("kl", 0.01)).certificate
    others = [
        replace(run.certificate, of="mean"),
        replace(run.certificate, of="quantile:0.9000000001"),
        replace(run.certificate, of="cvar:0.1", threshold=0.0),
        in_ball,
    ]
    for other in others:
        with pytest.raises(ValueError, match="belongs to another certificate"):
            Monitor.load(tmp_path / "state.json", other)
    monitor = Monitor(in_ball)
    monitor.observe([0.1])
    monitor.save(tmp_path / "ball.json")
    assert in_ball.exceeded is not None
    with pytest.raises(ValueError, match="belongs to another certificate"):
        Monitor.load(tmp_path / "ball.json", replace(in_ball, exceeded=in_ball.exceeded + 1e-9))


def test_cvar_cannot_be_monitored():
    certificate = learn_finite(COSTS, of="cvar:0.2").certificate
    with pytest.raises(ValueError, match="cvar cannot be monitored: certify the mean or a quan"):
        Monitor(certificate)
