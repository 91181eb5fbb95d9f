"""Trials until two policies are told apart, against simulation and full enumeration."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from pacbayes_control.bounds.anytime import log_e_of_difference
from pacbayes_control.trials.plans.telling_apart import trials_to_tell_apart
from sizes import sized


def decision(differences: np.ndarray, alpha: float) -> tuple[int, bool] | None:
    """When, and whether rightly, outcomes decide by the e-values of both directions."""
    goal = math.log(2 / alpha)
    right = log_e_of_difference(differences) >= goal
    wrong = log_e_of_difference(-differences) >= goal
    if not np.any(right | wrong):
        return None
    first = int(np.argmax(right | wrong))
    return first + 1, bool(right[first])


@pytest.mark.parametrize(
    ("rate_a", "rate_b", "both"), [(0.2, 0.5, None), (0.2, 0.5, 0.2), (0.6, 0.3, 0.1)]
)
def test_simulated_comparisons_end_as_computed(rate_a: float, rate_b: float, both: float | None):
    alpha, repetitions, rng = 0.1, sized(1000, full=10_000), np.random.default_rng(0)
    found = trials_to_tell_apart(rate_a, rate_b, alpha=alpha, both_fail=both)
    both = rate_a * rate_b if both is None else both
    better, worse = max(rate_a, rate_b) - both, min(rate_a, rate_b) - both
    steps = rng.choice([1.0, -1.0, 0.0], (repetitions, 600), p=[better, worse, 1 - better - worse])
    ends = [decision(row, alpha) for row in steps]
    times = np.array([601 if end is None else end[0] for end in ends])
    assert found.mean is not None
    assert abs(times.mean() - found.mean) < 4 * times.std() / math.sqrt(repetitions)
    error = 4 * math.sqrt(0.25 / repetitions)
    assert abs(np.mean(times <= found.trials) - found.decided) < error
    assert abs(np.mean([end is not None and not end[1] for end in ends]) - found.wrong) < error


def test_all_sequences_of_few_pairs_give_the_same_probability():
    rate_a, rate_b, alpha, power = 0.1, 0.8, 0.4, 0.7
    found = trials_to_tell_apart(rate_a, rate_b, alpha=alpha, power=power)
    chances = {1.0: 0.9 * 0.8, -1.0: 0.1 * 0.2}
    chances[0.0] = 1 - sum(chances.values())

    def decided(trials: int) -> float:
        return sum(
            math.prod(map(chances.__getitem__, steps))
            for steps in itertools.product(chances, repeat=trials)
            if decision(np.array(steps), alpha)
        )

    assert decided(found.trials) == pytest.approx(found.decided)
    assert decided(found.trials - 1) < power <= found.decided


def test_the_wrong_policy_wins_within_half_of_alpha():
    for rates in ((0.3, 0.2), (0.5, 0.45)):
        found = trials_to_tell_apart(*rates)
        assert 0 < found.wrong <= 0.025


def test_one_direction_alone_would_understate_the_errors():
    """A comparison at 1/alpha instead of 2/alpha, as if only one direction could err."""
    assert trials_to_tell_apart(0.5, 0.45, alpha=0.1).wrong > 1.5 * (
        trials_to_tell_apart(0.5, 0.45, alpha=0.05).wrong
    )


def test_policies_that_fail_in_the_same_environments_need_fewer_trials():
    together = trials_to_tell_apart(0.2, 0.3, both_fail=0.2)
    assert together.trials < 0.5 * trials_to_tell_apart(0.2, 0.3).trials
    assert together.wrong == 0


def test_the_order_of_the_policies_does_not_matter():
    assert trials_to_tell_apart(0.1, 0.3) == trials_to_tell_apart(0.3, 0.1)


def test_opposite_policies_need_as_many_trials_as_the_e_value_needs_wins():
    found = trials_to_tell_apart(0, 1)
    path = log_e_of_difference(np.ones(20))
    assert found.trials == found.mean == int(np.argmax(path >= math.log(40))) + 1
    assert (found.decided, found.wrong) == (1, 0)


def test_close_rates_are_answered_in_time():
    began = time.process_time()
    found = trials_to_tell_apart(0.5, 0.45)
    assert 2000 < found.trials < 10_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize("rates", [(0.5, 0.499), (0.5, 0.5001), (0.001, 0.00101)])
def test_rates_that_are_too_close_are_refused_at_once(rates: tuple[float, float]):
    began = time.process_time()
    with pytest.raises(ValueError, match="too close: to tell them apart takes more than"):
        trials_to_tell_apart(*rates)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate_b": 0.1}, "both failure rates are 0.1"),
        ({"rate_a": 1.1}, "must lie in"),
        ({"rate_b": float("nan")}, "must lie in"),
        ({"both_fail": 0.2}, "from 0 to 0.1"),
        ({"rate_b": 0.95, "both_fail": 0.0}, "from 0.05 to 0.1"),
        ({"alpha": 1}, "alpha = 1"),
        ({"power": 0.0}, "power = 0.0"),
    ],
)
def test_bad_input_is_refused(wrong: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        trials_to_tell_apart(**{"rate_a": 0.1, "rate_b": 0.4, **wrong})
