"""A certificate against what happened: the evidence, the verdict, and the file that keeps both."""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.bounds.sequential import (
    BettingState,
    confidence_sequence,
    update_wealth,
    update_wealth_by_counts,
)
from pacbayes_control.certify import files
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.certificate import LATER, Certificate
from pacbayes_control.certify.files import locked, seal, sha256
from pacbayes_control.deploy.monitor import Monitor, Promise, Report
from pacbayes_control.deploy.monitor.state import Batch, certificate_digest, stride_of
from pacbayes_control.learn import learn_finite
from sizes import sized

VIOLATED = "violated at level 0.05"


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """As a run has it, with the bound of the paper's drone."""
    failed = np.random.default_rng(1).random((200, 3)) < [0.3, 0.05, 0.1]
    return replace(learn_finite(failed).certificate, bound=0.114)


def outcomes(n: int, rate: float = 0.1, seed: int = 0, graded: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.beta(rate, 1 - rate, n) if graded else (rng.random(n) < rate).astype(float)


def watched(certificate: Certificate | Promise, costs: Any, alpha: float = 0.05) -> Monitor:
    monitor = Monitor(certificate, alpha)
    monitor.observe(costs)
    return monitor


def same(a: Report, b: Report) -> bool:
    """Whether two reports tell the same, but for the last digits of what was summed."""
    first, second = a.to_dict(), b.to_dict()
    assert first.keys() == second.keys()
    return all(
        first[key] == second[key] or first[key] == pytest.approx(second[key], rel=1e-9)
        for key in first
    )


# ---- the paper's flights ------------------------------------------------------------------------


def test_two_failures_in_twenty_are_no_evidence_against_the_paper_s_bound(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe_counts(2, 20)
    report = monitor.report()
    assert report.p_value == pytest.approx(0.6825, abs=1e-4)
    assert report.verdict == "no evidence yet"
    assert report.e_value < 1
    assert report.anytime_p_value == 1
    assert report.alarm_at is None
    assert report.interval[0] < 0.1 < report.interval[1]
    assert (report.trials, report.mean_cost, report.bound) == (20, 0.1, 0.114)
    assert report.sentence == (
        "No evidence yet against the promise of at most 0.114, nor enough to call it confirmed."
    )


def test_the_report_is_plain_values_for_json(certificate: Certificate):
    record = watched(certificate, [0, 1, 0.5]).report().to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["interval"] == list(watched(certificate, [0, 1, 0.5]).report().interval)
    assert record["error_rate"] == pytest.approx(0.06)


def test_the_interval_is_the_confidence_sequence(certificate: Certificate):
    costs = outcomes(300, graded=True)
    limits = [float(limit) for limit in confidence_sequence(costs.sum(), 300, 0.2)]
    assert list(watched(certificate, costs, 0.2).report().interval) == pytest.approx(limits)


def test_graded_outcomes_get_the_p_value_that_is_for_them(certificate: Certificate):
    counted, graded = Monitor(certificate), Monitor(certificate)
    counted.observe_counts(5, 20)
    graded.observe([0.25] * 20)
    assert graded.report().mean_cost == counted.report().mean_cost
    assert graded.report().p_value > counted.report().p_value  # Chernoff's is not exact
    assert graded.report().p_value < 1
    counted.observe([0.5])  # one graded outcome and the exact test is none any more
    mean, n = 5.5 / 21, 21
    kl = mean * math.log(mean / 0.114) + (1 - mean) * math.log((1 - mean) / 0.886)
    assert counted.report().p_value == pytest.approx(math.exp(-n * kl))


# ---- in whatever pieces the outcomes arrive -----------------------------------------------------


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("rate", [0.05, 0.114, 0.3])
def test_one_by_one_is_the_same_as_all_at_once(certificate: Certificate, rate: float, graded: bool):
    costs = outcomes(400, rate, graded=graded)
    at_once = watched(certificate, costs)
    one_by_one, in_pieces = Monitor(certificate), Monitor(certificate)
    for cost in costs:
        one_by_one.observe(cost)
    for piece in np.split(costs, [1, 7, 64, 65, 200]):
        in_pieces.observe(piece)
    for other in (one_by_one, in_pieces):
        assert same(other.report(), at_once.report())
        assert np.array(other.history) == pytest.approx(np.array(at_once.history), rel=1e-9)


def test_counts_tell_the_same_as_the_outcomes_but_for_the_evidence(certificate: Certificate):
    """The bets on a batch are placed before all of it: another e-value, and as good a one."""
    costs = outcomes(500, 0.13)
    one, other, purse = (
        watched(certificate, costs),
        Monitor(certificate),
        BettingState.initial(0.114),
    )
    for piece in np.split(costs, [20, 200]):
        other.observe_counts(int(piece.sum()), len(piece))
        purse = update_wealth_by_counts(purse, int(piece.sum()), len(piece), 0.114)
    for name in ("trials", "mean_cost", "p_value", "interval", "verdict"):
        assert getattr(other.report(), name) == getattr(one.report(), name)
    assert np.array_equal(other.betting.wealth, purse.wealth)
    assert other.report().e_value == math.exp(purse.log_value(0.114))
    assert other.report().e_value != pytest.approx(one.report().e_value, rel=1e-3)


def test_counts_of_one_outcome_each_are_the_outcomes(certificate: Certificate):
    costs = outcomes(300, 0.13)
    counted = Monitor(certificate)
    for cost in costs:
        counted.observe_counts(int(cost), 1)
    assert same(counted.report(), watched(certificate, costs).report())


def test_counts_and_outcomes_go_on_from_one_another(certificate: Certificate):
    monitor, purse = Monitor(certificate), BettingState.initial(0.114)
    monitor.observe([0, 1, 0.5])
    monitor.observe_counts(3, 10)
    monitor.observe([0, 0, 1])
    purse, _ = update_wealth(purse, np.array([0, 1, 0.5]), 0.114)
    purse = update_wealth_by_counts(purse, 3, 10, 0.114)
    purse, path = update_wealth(purse, np.array([0.0, 0.0, 1.0]), 0.114)
    assert monitor.betting.trials == monitor.trials == 16
    assert np.array_equal(monitor.betting.wealth, purse.wealth)
    assert monitor.log_e == path[-1] == pytest.approx(purse.log_value(0.114), abs=1e-12)


def test_truths_and_single_numbers_are_outcomes_too(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe(True)
    monitor.observe([False, True])
    monitor.observe(0.5)
    assert (monitor.trials, monitor.total, monitor.binary) == (4, 2.5, False)


@pytest.mark.parametrize(
    "costs", [[], [[0, 1]], [0, 1.5], [-1e-9], [0, math.nan], math.inf, ["crash"]]
)
def test_bad_outcomes_are_refused_and_change_nothing(certificate: Certificate, costs):
    monitor, untouched = watched(certificate, [0, 1]), watched(certificate, [0, 1])
    with pytest.raises(ValueError, match=r"outcome|float"):
        monitor.observe(costs)
    assert monitor.report() == untouched.report()
    assert monitor.history == untouched.history


@pytest.mark.parametrize("mask", [True, [False, True, False], False])
def test_masked_outcomes_are_refused_and_change_nothing(certificate: Certificate, mask: Any):
    """Under the mask may be anything, and a mission without a cost must not go missing."""
    monitor, untouched = watched(certificate, [0, 1]), watched(certificate, [0, 1])
    with pytest.raises(ValueError, match="some are masked, and every mission needs a cost"):
        monitor.observe(np.ma.masked_array([0.0, 1.0, 0.0], mask=mask))
    assert monitor.report() == untouched.report()
    assert monitor.history == untouched.history


@pytest.mark.parametrize(
    ("failures", "trials", "message"),
    [
        (3, 2, "3 failures in 2 trials: a whole number from 0 to"),
        (-1, 5, "a whole number from 0 to"),
        (1.5, 5, "1.5 failures in 5 trials: a whole number from 0 to 5"),
        (math.nan, 5, "a whole number from 0 to"),
        (math.inf, 5, "a whole number from 0 to"),
        (0, 0, "0 trials: a whole number of at least one is needed"),
        (0, -3, "-3 trials: a whole number"),
        (1, 5.5, "5.5 trials: a whole number"),
        (0, math.nan, "a whole number of at least one"),
        (0, math.inf, "a whole number of at least one"),
        (0, 2**53, "more outcomes than can be counted exactly"),
    ],
)
def test_bad_counts_are_refused_and_change_nothing(
    certificate: Certificate, failures: Any, trials: Any, message: str
):
    monitor, untouched = watched(certificate, [0, 1]), watched(certificate, [0, 1])
    with pytest.raises(ValueError, match=message):
        monitor.observe_counts(failures, trials)
    assert monitor.report() == untouched.report()
    assert monitor.history == untouched.history


def test_there_are_no_more_outcomes_than_can_be_counted(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe_counts(2**50, 2**53)
    for more in (lambda: monitor.observe([0]), lambda: monitor.observe_counts(0, 1)):
        with pytest.raises(ValueError, match="counted exactly"):
            more()
    assert monitor.report().trials == 2**53


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2, math.nan])
def test_alpha_lies_between_0_and_1(certificate: Certificate, alpha: float):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        Monitor(certificate, alpha)


@pytest.mark.parametrize("what", [0.114, None, "runs/vehicle", {"bound": 0.114, "delta": 0.01}])
def test_what_is_no_certificate_cannot_be_watched(what: Any):
    with pytest.raises(ValueError, match=r"a monitor watches a certificate, such as run\."):
        Monitor(what)


@pytest.mark.parametrize(("bound", "delta"), [(-0.1, 0.1), (1.1, 0.1), (math.nan, 0.1)])
def test_a_promise_is_a_bound_between_0_and_1(bound: float, delta: float):
    with pytest.raises(ValueError, match=r"the bound .* must lie in \[0, 1\]"):
        Promise(bound, delta)


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan])
def test_a_promise_has_a_delta_between_0_and_1(delta: float):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        Promise(0.1, delta)


def test_a_promise_is_watched_as_a_certificate_is(certificate: Certificate):
    costs = outcomes(200, 0.3)
    promised = watched(Promise(certificate.bound, certificate.delta), costs)
    assert promised.report() == watched(certificate, costs).report()


def test_without_outcomes_there_is_no_report(certificate: Certificate):
    with pytest.raises(ValueError, match="no outcomes"):
        Monitor(certificate).report()


# ---- verdicts -----------------------------------------------------------------------------------


def test_many_successes_confirm_the_promise(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe_counts(1, 20)
    assert monitor.report().verdict == "no evidence yet"
    monitor.observe_counts(3, 200)
    report = monitor.report()
    assert report.verdict == "holding"
    assert report.interval[1] <= 0.114
    assert report.e_value < 0.1
    assert report.sentence == (
        "Holding: with confidence 95 %, at every look, the cost as deployed, if it has not changed "
        "meanwhile, is below the promise of at most 0.114."
    )


def test_a_cost_at_the_bound_is_neither_confirmed_nor_refuted(certificate: Certificate):
    monitor = Monitor(certificate)
    monitor.observe_counts(114_000, 1_000_000)
    assert monitor.report().verdict == "no evidence yet"


def test_many_failures_violate_the_promise_at_the_first_trial_that_says_so(
    certificate: Certificate,
):
    report = watched(certificate, [0, 1, 1, 0, 1, 1, 1, 1, 1, 1]).report()
    assert report.verdict == VIOLATED
    assert report.alarm_at is not None
    first = report.alarm_at
    before = watched(certificate, [0, 1, 1, 0, 1, 1, 1, 1, 1, 1][: first - 1]).report()
    exactly = watched(certificate, [0, 1, 1, 0, 1, 1, 1, 1, 1, 1][:first]).report()
    assert before.e_value < 20 <= exactly.e_value
    assert before.verdict == "no evidence yet"
    assert exactly.verdict == VIOLATED
    assert exactly.alarm_at == first
    assert report.anytime_p_value == pytest.approx(1 / report.largest_e_value)
    assert report.anytime_p_value < 0.05


def test_a_promise_once_violated_stays_so(certificate: Certificate, tmp_path: Path):
    monitor = watched(certificate, [1] * 10)
    alarm = monitor.report().alarm_at
    monitor.observe_counts(0, 100_000)
    monitor.save(tmp_path / "state.json")
    for later in (monitor, Monitor.load(tmp_path / "state.json", certificate)):
        later.observe([0])
        report = later.report()
        assert report.verdict == VIOLATED
        assert report.alarm_at == alarm
        assert report.e_value < 0.1
        assert report.largest_e_value > 20
        assert report.interval[1] < 0.114  # though by now the mean is below the bound


def test_the_level_of_a_violation_is_the_one_that_was_asked_for(certificate: Certificate):
    costs = [1, 1, 1, 0, 1]
    strict, loose = watched(certificate, costs, 1e-6).report(), watched(certificate, costs, 0.2)
    assert strict.verdict == "no evidence yet"
    assert loose.report().verdict == "violated at level 0.2"
    assert strict.e_value == loose.report().e_value


@pytest.mark.parametrize("counted", [False, True])
def test_the_alarm_is_raised_when_the_evidence_reaches_one_over_alpha(
    certificate: Certificate, counted: bool
):
    def after_five_failures(alpha: float) -> Monitor:
        monitor = Monitor(certificate, alpha)
        if counted:
            monitor.observe_counts(5, 5)
        else:
            monitor.observe([1] * 5)
        return monitor

    reached = after_five_failures(0.5).report().e_value
    for alpha, expected in ((1 / reached * (1 + 1e-6), 5), (1 / reached * (1 - 1e-6), None)):
        monitor = after_five_failures(alpha)
        assert monitor.alarm_at == monitor.report().alarm_at == expected
        assert monitor.report().verdict.startswith("violated") == (expected is not None)


def test_a_violation_names_the_trial_and_both_chances_of_error(certificate: Certificate):
    report = watched(certificate, [1] * 20).report()
    assert f"up to trial {report.alarm_at}" in report.sentence
    assert "evidence against the promise of at most 0.114" in report.sentence
    assert "not drawn like those of training" in report.sentence
    assert "at most δ + α = 0.01 + 0.05" in report.sentence
    assert report.error_rate == pytest.approx(0.06)


def test_a_violation_names_the_ball_that_was_promised(certificate: Certificate):
    robust = replace(certificate, ball=Ball("kl", 0.05), bound_without_shift=0.08)
    sentence = watched(robust, [1] * 20).report().sentence
    assert "KL(D′‖D) ≤ 0.05" in sentence
    assert "training" not in sentence
    assert "δ + α = 0.01 + 0.05" in sentence


def test_a_violation_of_an_estimated_ball_is_of_what_it_was_estimated_for(
    certificate: Certificate,
):
    estimated = ball_of_samples(["a", "b"] * 50, ["a", "b"] * 50, 0.005, cells=["a", "b"])
    robust = replace(certificate, ball=estimated, bound_without_shift=0.08)
    assert "not drawn like the shifted sample" in watched(robust, [1] * 20).report().sentence


def test_delta_and_alpha_together_are_at_most_one():
    assert watched(Promise(0.1, 0.9), [0, 1], 0.5).report().error_rate == 1


@pytest.mark.parametrize("bound", [0.0, 1e-12, 0.999999, 1.0])
def test_extreme_promises_are_watched_too(bound: float):
    monitor = watched(Promise(bound, 0.01), np.ones(1000))
    report = monitor.report()
    json.dumps(report.to_dict(), allow_nan=False)
    assert report.verdict == (VIOLATED if bound < 0.5 else "no evidence yet" if bound < 1
                              else "holding")  # fmt: skip
    monitor.observe_counts(0, 1_000_000)
    json.dumps(monitor.report().to_dict(), allow_nan=False)


def test_evidence_beyond_what_a_number_can_hold_is_still_a_number(certificate: Certificate):
    report = watched(certificate, np.ones(100_000)).report()
    assert 1e299 < report.e_value < math.inf
    assert 0 < report.anytime_p_value < 1e-299
    assert report.interval[1] == 1
    assert report.p_value == 0


# ---- history ------------------------------------------------------------------------------------


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("pacbayes_control.deploy.monitor.state.POINTS", 16)
    return 16


def test_the_history_is_thinned_and_never_long(certificate: Certificate, few_points: int):
    costs = outcomes(1200, 0.2)
    monitor, whole = Monitor(certificate), Monitor(certificate)
    for piece in np.split(costs, [1, 2, 3, 50, 51, 700, 701, 900, 1111]):
        monitor.observe(piece)
        assert len(monitor.history) <= few_points + 2
        assert monitor.history[-1] == (
            monitor.trials,
            monitor.total,
            pytest.approx(monitor.log_e),
        )
    at = [n for n, _, _ in monitor.history]
    assert at == sorted(set(at))
    assert len(at) > few_points // 2
    monitor.observe([0])
    assert all(n % stride_of(monitor.trials) == 0 for n, _, _ in monitor.history[:-2])
    whole.observe(costs)
    sums, path = np.cumsum(costs), {n: e for n, _, e in whole.history}
    for n, total, log_e in monitor.history[:-1]:
        assert total == sums[n - 1]
        assert log_e == pytest.approx(path[n], abs=1e-9) if n in path else n == 1200


def test_the_history_is_thinned_one_by_one_as_at_once(certificate: Certificate, few_points: int):
    costs = outcomes(300, 0.2)
    one_by_one = Monitor(certificate)
    for cost in costs:
        one_by_one.observe(cost)
        assert len(one_by_one.history) <= few_points + 2
    at_once = watched(certificate, costs)
    assert stride_of(one_by_one.trials) == stride_of(at_once.trials)
    assert [n for n, _, _ in one_by_one.history if n != 299] == [n for n, _, _ in at_once.history]


def test_many_outcomes_leave_a_short_history(certificate: Certificate, tmp_path: Path):
    monitor = watched(certificate, outcomes(sized(100_000, full=1_000_000)))
    assert 1000 < len(monitor.history) <= 2050
    monitor.observe_counts(100_000_000, 1_000_000_000)
    assert len(monitor.history) <= 2050
    monitor.save(tmp_path / "state.json")
    assert (tmp_path / "state.json").stat().st_size < 500_000


# ---- outcomes from files ------------------------------------------------------------------------


def after_a_day(certificate: Certificate) -> Monitor:
    monitor = Monitor(certificate)
    monitor.observe_file("day.csv", [0, 1, 0])
    return monitor


def test_the_outcomes_of_a_file_are_taken_in_and_remembered(certificate: Certificate):
    monitor = after_a_day(certificate)
    assert monitor.report() == watched(certificate, [0, 1, 0]).report()
    assert monitor.batches == [
        Batch("day.csv", 3, sha256(np.array([0.0, 1.0, 0.0]).tobytes()), False)
    ]


@pytest.mark.parametrize("costs", [[0, 1, 0], [0, 1, 0, 1], [0, 1], [0, 0, 0], [1, 0.5]])
def test_a_file_of_a_name_that_was_taken_in_before_is_refused(
    certificate: Certificate, costs: list[float]
):
    """Whatever it holds: it may be the same one, corrected, and missions would count twice."""
    monitor = after_a_day(certificate)
    with pytest.raises(ValueError, match=r"day.csv was appended before: .* --grown; .* --again"):
        monitor.observe_file("day.csv", costs)
    assert monitor.report() == after_a_day(certificate).report()
    assert monitor.history == after_a_day(certificate).history
    assert len(monitor.batches) == 1


def test_all_of_a_file_counts_again_if_that_is_said(certificate: Certificate):
    monitor = after_a_day(certificate)
    monitor.observe_file("day.csv", [0, 1, 0], "again")
    monitor.observe_file("day.csv", [1, 0, 0, 1], "again")
    assert same(monitor.report(), watched(certificate, [0, 1, 0, 0, 1, 0, 1, 0, 0, 1]).report())
    assert [batch.trials for batch in monitor.batches] == [3, 3, 4]


def test_only_what_a_file_has_grown_by_counts_if_that_is_said(certificate: Certificate):
    monitor = after_a_day(certificate)
    monitor.observe_file("day.csv", [0, 1, 0, 1], "grown")
    monitor.observe_file("day.csv", [0, 1, 0, 1, 0.5, 0], "grown")  # beyond the longest beginning
    assert same(monitor.report(), watched(certificate, [0, 1, 0, 1, 0.5, 0]).report())
    assert [batch.trials for batch in monitor.batches] == [3, 4, 6]


def test_a_file_that_may_have_grown_and_has_not_changes_nothing(certificate: Certificate):
    monitor = after_a_day(certificate)
    monitor.observe_file("day.csv", [0, 1, 0], "grown")
    assert monitor.report() == after_a_day(certificate).report()
    assert monitor.history == after_a_day(certificate).history
    assert len(monitor.batches) == 1
    monitor.observe_file("next.csv", [0, 1], "grown")  # and of a new one everything is new
    assert monitor.trials == 5


@pytest.mark.parametrize("costs", [[0, 1], [0, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0.001, 0]])
def test_a_file_that_is_not_what_it_was_has_not_grown(certificate: Certificate, costs: list[float]):
    """Were all of it counted, or the rest, then a correction would count missions twice."""
    monitor = after_a_day(certificate)
    with pytest.raises(ValueError, match=r"day.csv does not begin with the 3 outcomes"):
        monitor.observe_file("day.csv", costs, "grown")
    assert monitor.report() == after_a_day(certificate).report()
    assert len(monitor.batches) == 1


def test_other_files_count(certificate: Certificate):
    monitor = after_a_day(certificate)
    monitor.observe_file("next.csv", [0, 1, 0])
    assert monitor.trials == 6
    monitor.observe([0, 1, 0])  # what is from no file is not looked for
    monitor.observe_counts(1, 3)
    assert len(monitor.batches) == 2


@pytest.mark.parametrize("repeated", [None, "again", "grown"])
@pytest.mark.parametrize("costs", [[], [0, 1, 0, 1.5], [0, 1, 0, math.nan], [[0, 1]]])
def test_a_bad_file_is_refused_and_not_remembered(
    certificate: Certificate, costs: Any, repeated: str | None
):
    monitor = after_a_day(certificate)
    with pytest.raises(ValueError, match=r"day.csv[,:]"):
        monitor.observe_file("day.csv", costs, repeated)
    assert monitor.report() == after_a_day(certificate).report()
    assert len(monitor.batches) == 1


def test_files_are_known_again_from_the_state(certificate: Certificate, tmp_path: Path):
    after_a_day(certificate).save(tmp_path / "state.json")
    monitor = Monitor.load(tmp_path / "state.json", certificate)
    assert monitor.batches == after_a_day(certificate).batches
    with pytest.raises(ValueError, match="was appended before"):
        monitor.observe_file("day.csv", [0, 1, 0, 1])
    monitor.observe_file("day.csv", [0, 1, 0, 1], "grown")
    assert same(monitor.report(), watched(certificate, [0, 1, 0, 1]).report())


# ---- the file -----------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path, certificate: Certificate) -> Path:
    """After 30 outcomes, some graded."""
    monitor = Monitor(certificate)
    monitor.observe_file("day.csv", [*outcomes(29), 0.5])
    monitor.save(tmp_path / "state.json")
    return tmp_path / "state.json"


@pytest.mark.parametrize("costs", [[0], [1], [1] * 300, [0.5, 0.25], [0] * 5000])
def test_a_state_comes_back_as_it_was_saved(tmp_path: Path, certificate: Certificate, costs):
    monitor = Monitor(certificate, 0.1)
    monitor.observe_file("day.csv", costs)
    monitor.observe_file("day.csv", costs, "again")
    monitor.save(tmp_path / "one.json")
    loaded = Monitor.load(tmp_path / "one.json", certificate, 0.1)
    assert loaded.report() == monitor.report()
    loaded.save(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    for later in (monitor, loaded):
        later.observe([1, 0, 0.25])
        later.observe_counts(3, 10)
    assert loaded.report() == monitor.report()
    assert loaded.history == monitor.history
    assert loaded.batches == monitor.batches
    assert np.array_equal(loaded.betting.wealth, monitor.betting.wealth)
    assert loaded.betting.scale == monitor.betting.scale


def test_a_monitor_that_has_seen_nothing_can_be_saved(tmp_path: Path, certificate: Certificate):
    Monitor(certificate).save(tmp_path / "state.json")
    loaded = Monitor.load(tmp_path / "state.json", certificate)
    loaded.observe([0, 1])
    assert loaded.report() == watched(certificate, [0, 1]).report()


def test_saved_after_every_outcome_is_the_same_as_never(tmp_path: Path, certificate: Certificate):
    path, costs = tmp_path / "state.json", outcomes(60, 0.3)
    Monitor(certificate).save(path)
    for cost in costs:
        monitor = Monitor.load(path, certificate)
        monitor.observe(cost)
        monitor.save(path)
    assert same(Monitor.load(path, certificate).report(), watched(certificate, costs).report())


def test_the_state_of_another_certificate_is_refused(state: Path, certificate: Certificate):
    others = [
        replace(certificate, bound=0.1141),
        replace(certificate, delta=0.02),
        replace(certificate, ball=Ball("kl", 0.05), bound_without_shift=0.1),
        Promise(certificate.bound, certificate.delta),
    ]
    assert len({certificate_digest(c) for c in [certificate, *others]}) == 5
    for other in others:
        with pytest.raises(ValueError, match="belongs to another certificate"):
            Monitor.load(state, other)


def test_alpha_is_fixed_from_the_start(state: Path, certificate: Certificate):
    assert Monitor.load(state, certificate).alpha == 0.05
    assert Monitor.load(state, certificate, 0.05).alpha == 0.05
    for alpha in (0.01, 0.0500001, 0.5):
        with pytest.raises(ValueError, match=r"started with alpha = 0.05"):
            Monitor.load(state, certificate, alpha)


def refused(
    path: Path, text: str | bytes, certificate: Certificate, message: str = r"state\.json"
) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as error:
        Monitor.load(path, certificate)
    assert "state.json" in str(error.value)
    assert "\n" not in str(error.value)


def unsealed(path: Path) -> dict[str, Any]:
    """The same state in format 1, in which no seal hides what else is checked."""
    record = json.loads(path.read_text())
    return {k: v for k, v in record.items() if k not in ("seal", "verified")} | {"format": 1}


def test_a_state_that_is_cut_off_anywhere_is_refused(state: Path, certificate: Certificate):
    whole = state.read_bytes()
    for length in {0, 1, 2, len(whole) - 2, *range(3, len(whole) - 2, 997)}:
        refused(state, whole[:length], certificate)


@pytest.mark.parametrize(
    "text",
    [
        "null", "true", "3", '"state"', "[]", "{}", '{"format": 1}', "nothing", "[" * 100_000,
        '{"format": 1, "format": 1}', b"\xff\xfe\x00", b"\x00" * 100, "NaN", "1e999",
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(state: Path, certificate: Certificate, text):
    refused(state, text, certificate)


STRANGE: list[Any] = [None, True, "0", [], {}, [[]], -1, -1.0, 2, 10**400, "A" * 64]
NAMES = [
    "format", "certificate", "alpha", "trials", "total", "binary", "log_e", "largest", "alarm_at",
    "stride", "wealth", "scale", "batches", "history",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_state_with_a_field_that_is_missing_or_strange_is_refused(
    state: Path, certificate: Certificate, name: str
):
    sealed, record = json.loads(state.read_text()), unsealed(state)
    assert set(record) == set(NAMES)
    assert set(sealed) == {*NAMES, "verified", "seal"}
    allowed = {"alarm_at": [None], "batches": [[]]}
    for original in (sealed, record):
        without = {k: v for k, v in original.items() if k != name}
        refused(state, json.dumps(without), certificate)
    for value in STRANGE:
        if value in allowed.get(name, []):
            continue
        refused(state, json.dumps({**record, name: value}), certificate)
        if value not in (10**400, sealed[name]):
            tampered = {**sealed, name: value}
            refused(state, json.dumps(tampered | {"seal": seal(tampered)}), certificate)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 3),
        ("format", True),
        ("alpha", 0.0),
        ("alpha", 1.0),
        ("trials", 3.0),
        ("trials", 2**53 + 1),
        ("total", 31.0),
        ("total", -0.5),
        ("log_e", "NaN"),
        ("largest", "Infinity"),
        ("total", "1e999"),
        ("alarm_at", 0),
        ("alarm_at", 31),
        ("alarm_at", 2.0),
        ("stride", 0),
        ("stride", "1e999"),
        ("stride", 2**53 + 1),
        ("wealth", [0.5]),
        ("wealth", [0.5] * 23),
        ("wealth", [0.5] * 25),
        ("wealth", [0.5] * 23 + ["0"]),
        ("wealth", [0.5] * 23 + [True]),
        ("wealth", [0.5] * 23 + [-0.5]),
        ("wealth", [0.5] * 23 + [1e300]),
        ("wealth", [0.5] * 23 + [1e200]),
        ("wealth", [0.0] * 24),
        ("wealth", "[1e999" + ", 0.5" * 23 + "]"),
        ("wealth", "[NaN" + ", 0.5" * 23 + "]"),
        ("scale", -0.5),
        ("scale", 1e300),
        ("scale", "1e999"),
        ("scale", "NaN"),
        ("log_e", 1e300),
        ("log_e", -1e300),
        ("largest", 1e300),
        ("batches", [1]),
        ("batches", ["a" * 64]),
        ("batches", [["day.csv", 3]]),
        ("batches", [["day.csv", 0, "a" * 64, False]]),
        ("batches", [["day.csv", 3.0, "a" * 64, False]]),
        ("batches", [["day.csv", True, "a" * 64, False]]),
        ("batches", [[3, 3, "a" * 64, False]]),
        ("batches", [["day.csv", 3, None, False]]),
        ("batches", [{"name": "day.csv", "trials": 3, "sha": "a" * 64}]),
        ("history", [[1, 0.0]]),
        ("history", [[1, 0.0, None]]),
        ("history", [[True, 0.0, 0.0]]),
        ("history", "[[1, 0.0, 1e999]]"),
        ("history", [3]),
        ("history", [[1, 0.0, 0.0, 0.0]]),
        ("history", [[1.0, 0.0, 0.0]]),
        ("history", [[0, 0.0, 0.0]]),
        ("history", [[-1, 0.0, 0.0]]),
        ("history", [[31, 0.0, 0.0]]),
        ("history", [[3, 3.5, 0.0]]),
        ("history", [[3, -0.5, 0.0]]),
        ("history", [[3, 1.0, 1e300]]),
        ("history", [[3, True, 0.0]]),
        ("trials", "9" * 5000),
    ],
)
def test_a_state_with_an_impossible_value_is_refused(
    state: Path, certificate: Certificate, name: str, value: Any
):
    record = unsealed(state)
    assert len(record["wealth"]) == 24
    state.write_text(json.dumps(record))
    assert Monitor.load(state, certificate).trials == 30  # as it is, it can be loaded
    text = json.dumps({**record, name: "HERE"})
    written = value if isinstance(value, str) else json.dumps(value)
    refused(state, text.replace('"HERE"', written), certificate)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_e", "1e999"),
        ("log_e", "-1e999"),
        ("largest", "1e999"),
        ("largest", "-1e999"),
        ("stride", str(10**400)),
        ("wealth", f"[{10**400}" + ", 0.5" * 23 + "]"),
        ("scale", str(10**400)),
        ("history", f"[[{10**400}, 0.0, 0.0]]"),
        ("history", f"[[1, {10**400}, 0.0]]"),
        ("history", f"[[1, 0.0, {10**400}]]"),
    ],
)
def test_a_state_with_a_number_that_cannot_be_worked_with_is_refused(
    state: Path, certificate: Certificate, name: str, value: str
):
    """JSON may hold 1e999, which Python reads as infinite, and integers of any length."""
    text = json.dumps({**unsealed(state), name: "HERE"})
    refused(state, text.replace('"HERE"', value), certificate)


def resealed(path: Path, **changes: Any) -> str:
    """A state with some fields changed, and a seal that matches them."""
    record = json.loads(path.read_text()) | changes
    return json.dumps(record | {"seal": seal(record)})


@pytest.mark.parametrize("name", [*NAMES, "verified"])
def test_a_state_of_which_any_field_was_changed_breaks_its_seal(
    state: Path, certificate: Certificate, name: str
):
    """Also by a value that the other fields allow."""
    record = json.loads(state.read_text())
    values = {
        "format": 1,
        "certificate": "a" * 64,
        "alpha": 0.04,
        "trials": 31,
        "total": record["total"] - 0.25,
        "binary": True,
        "log_e": record["log_e"] - 1e-15,
        "largest": record["largest"] + 1e-15,
        "alarm_at": 30,
        "stride": 2,
        "wealth": record["wealth"][::-1],
        "scale": 1e-15,
        "batches": [],
        "history": record["history"][1:],
        "verified": {"manifest": "a" * 64, "version": "0.1.0"},
    }
    assert record[name] != values[name]
    text = json.dumps(record | {name: values[name]})
    if name == "format":  # then there is no seal, and what remains of the state is consistent
        state.write_text(text)
        assert Monitor.load(state, certificate).verified is None
    else:
        refused(state, text, certificate, r"was altered: its seal does not match")


def test_a_state_that_was_sealed_is_read_with_its_seal_only(state: Path, certificate: Certificate):
    assert Monitor.load(state, certificate).trials == 30
    record = json.loads(state.read_text())
    for value in (None, "", "a" * 64, record["seal"].upper()):
        refused(state, json.dumps(record | {"seal": value}), certificate, "seal does not match")


def tampered(name: str, record: dict[str, Any]) -> list[Any]:
    """Values for a field that contradict the others, near to the one that it has or far from it."""
    history, wealth = record["history"], record["wealth"]
    batch, middle = record["batches"][0], len(history) // 2
    n, total, log_e = history[middle]

    def moved(*point: float) -> list[Any]:
        return [*history[:middle], list(point), *history[middle + 1 :]]

    values: dict[str, list[Any]] = {
        "alpha": [math.exp(-record["largest"]) * (1 - 1e-3), 1e-9],
        "trials": [record["trials"] + 1, record["trials"] + 1000],
        "total": [record["total"] + 1e-6, record["total"] + 1, record["total"] - 1],
        "binary": [not record["binary"]],
        "log_e": [record["log_e"] + 1e-6, record["log_e"] - 1e-6, 0.0],
        "largest": [record["largest"] + 1e-6, record["largest"] - 1e-6, 0.0, 600.0],
        "alarm_at": [None, record["alarm_at"] - 1, record["alarm_at"] + 1, 1, record["trials"]],
        "stride": [record["stride"] * 2, 3],
        "scale": [record["scale"] + 1e-6, record["scale"] + 1],
        "wealth": [
            [x * (1 + 1e-6) for x in wealth],
            [*wealth[:-1], wealth[-1] + 1e-6 * max(wealth)],
            [0.0, *wealth[1:]],
            wealth[::-1],
        ],
        "batches": [
            [[*batch[:1], record["trials"] + 1, *batch[2:]]],
            [[*batch[:3], True]],
            [batch, batch],
            [batch, ["next.csv", record["trials"], "a" * 64, False]],
        ],
        "history": [
            [],
            history[:-1],
            history[::-1],
            [*history, history[-1]],
            moved(n, total + 1e-6, log_e),
            moved(n, total, log_e + 1e-6),
            moved(n, total, log_e - 1e-6),
            moved(n, 0.0, log_e),
            moved(n - 1, total, log_e),
            moved(record["trials"], total, log_e),
        ],
    }
    return values[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("format", "certificate")])
def test_a_field_that_contradicts_the_others_is_refused_whatever_the_seal(
    tmp_path: Path, certificate: Certificate, name: str
):
    path = tmp_path / "state.json"
    monitor = Monitor(certificate)
    monitor.observe_file("day.csv", outcomes(60, 0.4))
    monitor.observe_counts(5, 9)
    monitor.save(path)
    whole = path.read_bytes()
    for value in tampered(name, json.loads(whole)):
        path.write_bytes(whole)
        refused(path, resealed(path, **{name: value}), certificate, "contradicts itself: ")
    path.write_bytes(whole)
    path.write_text(resealed(path))
    assert Monitor.load(path, certificate).report() == monitor.report()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.9999),
        ("alarm_at", 30),
        ("largest", 0.5),
        ("binary", True),
        ("wealth", [0.8] * 24),
    ],
)
def test_a_state_without_an_alarm_calls_for_none(
    state: Path, certificate: Certificate, name: str, value: Any
):
    assert Monitor.load(state, certificate).alarm_at is None
    text = resealed(state, **{name: value})
    refused(state, text, certificate, "contradicts itself: ")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("trials", lambda r: r["trials"] + 16),
        ("total", lambda r: r["total"] - 1),
        ("log_e", lambda r: r["log_e"] - 1e-4),
        ("largest", lambda r: max(e for _, _, e in r["history"]) - 1e-6),
        ("largest", lambda r: r["largest"] + 1000),
        ("alarm_at", lambda _: None),
        ("alarm_at", lambda r: r["trials"]),
        ("alpha", lambda r: math.exp(-r["largest"]) / 2),
        ("stride", lambda r: r["stride"] // 2),
        ("wealth", lambda r: [2 * x for x in r["wealth"]]),
        ("scale", lambda r: r["scale"] + 1),
        ("batches", lambda r: [["day.csv", r["trials"] + 1, "a" * 64, False]]),
        ("history", lambda r: r["history"][:-1]),
        ("history", lambda r: [[3, 1.0, 0.0], [5, 2.0, 0.0], *r["history"]]),
        ("history", lambda r: [*r["history"][:-2], [*r["history"][-2][:2], 1e3], r["history"][-1]]),
        ("binary", lambda _: True),
    ],
)
@pytest.mark.usefixtures("few_points")
def test_a_state_with_a_thinned_history_must_agree_with_it_too(
    tmp_path: Path, certificate: Certificate, name: str, change: Any
):
    path = tmp_path / "state.json"
    monitor = Monitor(certificate)
    monitor.observe_file("day.csv", np.minimum(outcomes(500, 0.3) + 0.001, 1))
    monitor.save(path)
    record = json.loads(path.read_text())
    assert record["stride"] == 32
    assert Monitor.load(path, certificate).report() == monitor.report()
    text = resealed(path, **{name: change(record)})
    refused(path, text, certificate, "contradicts itself: ")


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.0, 1e-6, 0.114, 0.9, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("points", [16, 2048])
def test_what_was_observed_in_whatever_way_does_not_contradict_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: float, points: int
):
    monkeypatch.setattr("pacbayes_control.deploy.monitor.state.POINTS", points)
    rng, path = np.random.default_rng(int(1e6 * bound) + points), tmp_path / "state.json"
    promise = Promise(bound, 0.01)
    for _ in range(sized(2, full=4)):
        path.unlink(missing_ok=True)
        monitor = Monitor(promise, 0.3)
        for step in range(8):
            n, rate = int(rng.integers(1, 60)), rng.choice([0, bound, rng.random()])
            kind = rng.integers(4)
            if kind == 0:
                monitor.observe(rng.random(n) < rate)
            elif kind == 1:
                monitor.observe(rng.choice([0, 1, 1e-17, 1 - 1e-16, rate], n))
            elif kind == 2:
                monitor.observe_counts(int(rng.binomial(n, rate)), n)
            else:
                monitor.observe_file(f"{step % 3}.csv", rng.random(n) ** 9, "again")
            monitor.save(path)
            loaded = Monitor.load(path, promise)
            assert loaded.report() == monitor.report()
            monitor = loaded


def test_a_monitor_whose_bets_have_lost_everything_can_be_loaded(
    tmp_path: Path, certificate: Certificate
):
    monitor, path = Monitor(certificate), tmp_path / "state.json"
    monitor.observe_counts(0, 10**12)
    assert not monitor.betting.wealth.any()
    monitor.save(path)
    assert Monitor.load(path, certificate).report() == monitor.report()


def test_a_cost_too_small_to_be_summed_is_taken_for_none_whatever_came_with_it(
    tmp_path: Path, certificate: Certificate
):
    """Otherwise the state could not be told from one with a false claim."""
    monitor, path = watched(certificate, [1, 1e-20, 0]), tmp_path / "state.json"
    assert monitor.binary
    monitor.save(path)
    assert Monitor.load(path, certificate).report() == monitor.report()


# ---- states of earlier versions -----------------------------------------------------------------

EARLIER: dict[str, Any] = {
    "format": 1,
    "certificate": "5eb348b2330e8867b4ff7872535c38aa433ec7f190534ed74f6c9d802d83153b",
    "alpha": 0.05,
    "trials": 6,
    "total": 4.5,
    "binary": False,
    "log_e": 0.47034577595799265,
    "largest": 0.47034577595799265,
    "alarm_at": None,
    "stride": 1,
    "scale": 0.8328094500366114,
    "wealth": [
        0.4059535109806201, 0.40619090595229795, 0.4069145670813457, 0.40912276044782514,
        0.41588127003639147, 0.4367476646314039, 0.5025911994251435, 0.5186496814380275,
        0.5374354232403726, 0.5594089015882032, 0.5850919161338201, 0.6150588031288176,
        0.6499094714878926, 0.6902077309611001, 0.7363548270614996, 0.7883434636783359,
        0.8452925928475246, 0.904580530255943, 0.960240846668999, 1.0, 0.9997992640243168,
        0.9136277480185868, 0.6545547755881787, 0.05912180620609119,
    ],
    "batches": [
        ["day.csv", 2, "7ded32179961d3df64ab9071d95eed3a7b5efc1750a16bdc02db400678278fab", False],
    ],
    "history": [
        [1, 1.0, 0.24917425468950274], [2, 1.5, 0.24917425468950294], [6, 4.5, 0.47034577595799265],
    ],
}  # fmt: skip


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """As it was written before states were sealed."""
    path = tmp_path / "state.json"
    path.write_text(json.dumps(EARLIER))
    return path


def test_a_state_of_format_1_is_read_and_written_as_format_2(earlier: Path):
    promise, monitor = Promise(0.5, 0.01), Monitor(Promise(0.5, 0.01))
    monitor.observe_file("day.csv", [1, 0.5])
    monitor.observe_counts(3, 4)
    loaded = Monitor.load(earlier, promise)
    assert same(loaded.report(), monitor.report())
    assert loaded.batches == monitor.batches
    loaded.observe([0])
    loaded.save(earlier)
    record = json.loads(earlier.read_text())
    assert (record["format"], record["verified"]) == (2, None)
    assert record["seal"] == seal(record)
    assert Monitor.load(earlier, promise).trials == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [("total", 4.0), ("log_e", 0.4), ("largest", 0.6), ("binary", True), ("alpha", 0.7)],
)
def test_a_state_of_format_1_must_not_contradict_itself(earlier: Path, name: str, value: Any):
    earlier.write_text(json.dumps(EARLIER | {name: value}))
    with pytest.raises(ValueError, match=r"state\.json contradicts itself: "):
        Monitor.load(earlier, Promise(0.5, 0.01))


def test_fields_that_certificates_get_later_do_not_make_them_others(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
):
    @dataclass(frozen=True, kw_only=True)
    class Later(Certificate):
        of_a_later_version: int = 3

    monkeypatch.setitem(LATER, 99, {"of_a_later_version": 3})
    later = Later(**{**vars(certificate), "format": 99})
    assert later.to_dict()["of_a_later_version"] == 3
    assert certificate_digest(later) == certificate_digest(certificate)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_certificates_of_earlier_formats_can_be_watched(
    certificate: Certificate, tmp_path: Path, version: int
):
    earlier = replace(certificate, format=version)
    monitor = Monitor(earlier)
    monitor.observe([0, 1])
    monitor.save(tmp_path / "state.json")
    assert Monitor.load(tmp_path / "state.json", earlier).trials == 2


def test_a_state_that_is_not_a_plain_file_is_refused(tmp_path: Path, certificate: Certificate):
    (tmp_path / "state.json").mkdir()
    with pytest.raises(ValueError, match="not a plain file"):
        Monitor.load(tmp_path / "state.json", certificate)
    with pytest.raises(FileNotFoundError):
        Monitor.load(tmp_path / "none.json", certificate)


@pytest.mark.parametrize("content", ["", "notes of mine", "{}", "a state"])
def test_what_this_monitor_did_not_write_is_not_overwritten(
    state: Path, certificate: Certificate, content: str
):
    """Neither anything else nor the state of another monitor."""
    if content != "a state":
        state.write_text(content)
    before = state.read_bytes()
    monitor = watched(certificate, [0, 1])
    with pytest.raises(
        ValueError, match=r"state\.json was changed meanwhile, or is of another monitor"
    ):
        monitor.save(state)
    assert state.read_bytes() == before
    assert [path.name for path in state.parent.iterdir()] == ["state.json"]
    monitor.save(state.with_name("other.json"))
    assert Monitor.load(state.with_name("other.json"), certificate).trials == 2


def test_of_two_that_append_to_one_state_the_second_is_told(state: Path, certificate: Certificate):
    first, second = Monitor.load(state, certificate), Monitor.load(state, certificate)
    first.observe([1])
    second.observe([0, 0])
    first.save(state)
    before = state.read_bytes()
    with pytest.raises(ValueError, match="was changed meanwhile"):
        second.save(state)
    assert state.read_bytes() == before
    again = Monitor.load(state, certificate)
    again.observe([0, 0])
    again.save(state)
    assert Monitor.load(state, certificate).trials == 33
    first.observe([1])
    with pytest.raises(ValueError, match="was changed meanwhile"):
        first.save(state)


def test_a_monitor_may_be_saved_over_and_over(tmp_path: Path, certificate: Certificate):
    monitor, path = Monitor(certificate), tmp_path / "state.json"
    for trials in (1, 2, 3):
        monitor.observe([0])
        monitor.save(path)
        assert Monitor.load(path, certificate).trials == trials
    path.unlink()
    monitor.save(path)  # what is not there is not overwritten
    assert Monitor.load(path, certificate).trials == 3


def test_the_old_state_stays_if_the_new_one_cannot_take_its_place(
    state: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
):
    before = state.read_bytes()
    monitor = Monitor.load(state, certificate)
    monitor.observe([1, 1, 1])

    def fails(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no space left"):
            monitor.save(state)
    assert state.read_bytes() == before
    assert Monitor.load(state, certificate).trials == 30
    monitor.save(state)
    assert Monitor.load(state, certificate).trials == 33


def test_the_old_state_stays_if_the_new_one_is_written_in_part(
    state: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
):
    before = state.read_bytes()
    monitor = Monitor.load(state, certificate)
    monitor.observe([1, 1, 1])

    class Half(io.BufferedWriter):
        def write(self, data: Any) -> int:
            super().write(data[: len(data) // 2])
            raise OSError("no space left")

    def opened(name: Path, mode: Any, opener: Any) -> Half:
        return Half(io.FileIO(name, mode, opener=opener))

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", opened, raising=False)
        with pytest.raises(OSError, match="no space left"):
            monitor.save(state)
    assert state.read_bytes() == before
    monitor.save(state)  # what was left behind is not in the way
    assert Monitor.load(state, certificate).trials == 33
    assert [path.name for path in state.parent.iterdir()] == ["state.json"]


def test_what_is_new_in_a_file_that_was_counted_again_cannot_be_told(certificate: Certificate):
    monitor = after_a_day(certificate)
    monitor.observe_file("day.csv", [0, 1], "again")
    with pytest.raises(ValueError, match="was counted again before"):
        monitor.observe_file("day.csv", [0, 1, 0, 0], "grown")


def test_a_grown_file_under_another_name_is_refused(certificate: Certificate):
    monitor = after_a_day(certificate)
    with pytest.raises(ValueError, match="begins with the 3 outcomes of"):
        monitor.observe_file("week.csv", [0, 1, 0, 0], "grown")
    monitor.observe_file("other.csv", [1, 1], "grown")
    assert monitor.trials == 5


def test_a_copy_of_a_long_file_is_refused_and_short_ones_may_be_alike(certificate: Certificate):
    monitor, long = Monitor(certificate), [0, 0, 1, 0] * 20
    monitor.observe_file("a.csv", long)
    monitor.observe_file("short.csv", [0, 1])
    monitor.observe_file("as-short.csv", [0, 1])
    with pytest.raises(ValueError, match="is a copy of"):
        monitor.observe_file("copy.csv", long)
    monitor.observe_file("copy.csv", long, "again")
    assert monitor.trials == 164


def test_a_state_that_somebody_else_writes_is_left_alone(certificate: Certificate, tmp_path: Path):
    monitor, state = watched(certificate, [0, 1]), tmp_path / "state.json"
    lock = tmp_path / ".state.json.lock"
    with locked(lock, ""), pytest.raises(ValueError, match="is being written by another process"):
        monitor.save(state)
    assert not state.exists()
    lock.touch()  # of a process that was killed
    monitor.save(state)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json"]
