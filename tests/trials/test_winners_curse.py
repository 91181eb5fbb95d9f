"""The winner's curse: the simulation against the exact distribution of the winner's failures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from pacbayes_control.bounds.theorems import clopper_pearson
from pacbayes_control.cli.winners_curse import reproduce_winners_curse
from pacbayes_control.trials.usual import usual_interval, wilson
from pacbayes_control.trials.winners_curse import (
    CHECKPOINTS,
    DELTA,
    TRIALS,
    simulated,
    winners_curse,
)
from sizes import sized


def winner(checkpoints: int, trials: int, truth: float = 0.7) -> np.ndarray:
    """The exact probability of each number of failures of the winner, the least of k binomials."""
    at_least = binom.sf(np.arange(-1, trials + 1), trials, 1 - truth) ** checkpoints
    return -np.diff(at_least)


def misses(chances: np.ndarray, level: float) -> float:
    """How often the exact bound at a level lies below the true failure rate."""
    trials = len(chances) - 1
    return float(chances[clopper_pearson(np.arange(trials + 1), trials, level) < 0.3].sum())


def test_the_simulation_agrees_with_the_exact_distribution():
    draws = sized(4000, full=40_000)
    for row in winners_curse(draws):
        chances, counts = winner(row.checkpoints, row.trials), np.arange(row.trials + 1)
        mean = float(chances @ counts) / row.trials
        spread = math.sqrt(float(chances @ (counts / row.trials - mean) ** 2) / draws)
        assert abs(1 - mean - row.reported) < 4.5 * spread
        limits = [binomtest(k, row.trials).proportion_ci(method="wilson").high for k in counts]
        usual = float(chances[np.array(limits) < 0.3].sum())
        certified = misses(chances, DELTA / row.checkpoints)
        assert abs(usual - row.usual_misses) < 4.5 * math.sqrt(usual / draws) + 1 / draws
        assert abs(certified - row.certified_misses) < 4.5 * math.sqrt(DELTA / draws)
        promised = 1 - clopper_pearson(counts, row.trials, DELTA / row.checkpoints)
        reach = 4.5 * spread + 1e-3  # a bound moves about as its count does
        assert abs(float(chances @ promised) - row.promised) < reach


def test_the_winner_of_twenty_with_fifty_trials_each():
    chances = winner(20, 50)
    assert 1 - float(chances @ np.arange(51)) / 50 == pytest.approx(0.816, abs=5e-4)
    usual = wilson(np.arange(51), 50)[1] < 0.3
    assert float(chances[usual].sum()) == pytest.approx(0.308, abs=5e-4)


@pytest.mark.parametrize("checkpoints", CHECKPOINTS)
@pytest.mark.parametrize("trials", TRIALS)
def test_the_certified_bound_misses_at_most_delta(checkpoints: int, trials: int):
    assert misses(winner(checkpoints, trials), DELTA / checkpoints) <= DELTA


def test_a_bound_that_does_not_pay_for_the_choice_misses_more():
    assert misses(winner(20, 50), DELTA) > 10 * DELTA


def test_rows_are_the_same_for_the_same_seed():
    assert simulated(5, 20, draws=50, seed=1) == simulated(5, 20, draws=50, seed=1)
    assert simulated(5, 20, draws=50, seed=1) != simulated(5, 20, draws=50, seed=2)


@pytest.mark.parametrize(("failures", "n"), [(0, 1), (1, 1), (0, 50), (9, 50), (50, 50), (3, 1000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_wilson_agrees_with_scipy(failures: int, n: int, confidence: float):
    expected = binomtest(failures, n).proportion_ci(confidence, method="wilson")
    assert wilson(failures, n, confidence) == pytest.approx((expected.low, expected.high))
    costs = np.repeat([1, 0], [failures, n - failures])
    assert usual_interval(costs, confidence) == pytest.approx((expected.low, expected.high))


def test_graded_costs_have_the_normal_interval_within_0_and_1():
    costs = np.array([0.1, 0.4, 0.3, 0.2])
    reach = norm.ppf(0.975) * costs.std(ddof=1) / 2
    assert usual_interval(costs) == pytest.approx((0.25 - reach, 0.25 + reach))
    assert usual_interval([0.0, 0.01, 0.9])[0] == 0
    assert usual_interval([1.0, 0.99, 0.1])[1] == 1
    assert usual_interval([0.5]) == (0, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: usual_interval([]), "at least one trial"),
        (lambda: usual_interval([0.2, 1.2]), "must lie in"),
        (lambda: usual_interval([0, 1], 1.0), "confidence"),
        (lambda: wilson(3, 2), "from 0 to 2"),
        (lambda: wilson(0, 0), "at least one trial"),
        (lambda: simulated(0, 10), "at least 1"),
        (lambda: simulated(1, 10, draws=0), "at least 1"),
    ],
)
def test_bad_input_is_refused(call: Any, words: str):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_experiment_prints_a_table_and_writes_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    record = reproduce_winners_curse(tmp_path, draws=200, seed=1)
    assert json.loads(json.dumps(record)) == record
    assert len(record["rows"]) == len(CHECKPOINTS) * len(TRIALS)
    names = "checkpoints trials truth reported usual_misses certified_misses promised"
    assert [*record["rows"][0]] == names.split()
    assert (tmp_path / "winners-curse.svg").read_text().startswith("<?xml")
    shown = capsys.readouterr().out
    assert "certified misses" in shown
    assert "winners-curse.svg" in shown
