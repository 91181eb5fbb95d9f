"""Further trials after some: each way reaches the bound, and none is wrong too often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from pacbayes_control.bounds.anytime import highest_cost
from pacbayes_control.bounds.theorems import clopper_pearson
from pacbayes_control.trials.plans.environments import environments_needed, failures_allowed
from pacbayes_control.trials.plans.further import more_environments


def costs(failures: int, trials: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [failures, trials - failures])


@pytest.mark.parametrize(("rounds", "bound"), [(1, 0.4), (2, 0.22), (3, 0.2), (9, 0.15)])
@pytest.mark.parametrize("observed", [costs(5, 50), np.tile([0.0, 0.1, 0.2, 0.1], 10)])
def test_the_anytime_bound_is_reached_after_whole_repetitions_as_counted(
    observed: np.ndarray, rounds: int, bound: float
):
    further = more_environments(observed, bound, candidates=3).anytime
    assert further is not None
    reached = highest_cost(np.tile(observed, rounds), 0.05 / 3) <= bound
    assert reached == (further <= (rounds - 1) * len(observed))


def test_without_failures_the_anytime_bound_is_reached_to_the_trial():
    more = more_environments([0] * 50, 0.05)
    assert more.anytime is not None
    total = 50 + more.anytime
    assert highest_cost([0] * total, 0.05) <= 0.05 < highest_cost([0] * (total - 1), 0.05)


def test_a_bound_that_is_reached_needs_no_more():
    more = more_environments([0] * 200, 0.05)
    assert (more.anytime, more.second_look, more.new_alone) == (0, 0, 0)
    assert "reached already" in more.words


def test_a_mean_that_is_not_below_the_bound_has_a_reason():
    more = more_environments(costs(20, 50), 0.4)
    assert (more.anytime, more.second_look, more.new_alone) == (None, None, None)
    assert set(more.reasons) == {"anytime", "second_look", "new_alone"}
    assert more.words.count("0.4, is not below the bound 0.4") == 3


def test_a_mean_just_below_the_bound_has_a_reason():
    more = more_environments(costs(5, 50), 0.1000001)
    assert more.anytime is None
    assert "too close" in more.reasons["anytime"]
    assert "10,000,000" in more.reasons["second_look"]
    assert "10,000,000" in more.reasons["new_alone"]


def test_graded_costs_have_the_anytime_bound_alone():
    more = more_environments([0.2, 0.3] * 20, 0.3)
    assert more.anytime == 12
    assert more.second_look is more.new_alone is None


def test_the_second_look_has_its_power_given_the_trials_so_far():
    more = more_environments(costs(5, 50), 0.15, second_delta=0.02, candidates=2, power=0.8)
    assert more.second_look == 50 * 2**4 - 50
    assert more.total_delta == pytest.approx(0.07)
    for look in (3, 4):
        total, level = 50 * 2**look, 0.02 / 2 / 2**look
        allowed = np.sum(clopper_pearson(np.arange(total), total, level) <= 0.15) - 1
        assert (binom.cdf(allowed - 5, total - 50, 0.1) >= 0.8) == (look == 4)


def test_new_trials_alone_pay_for_one_policy():
    more = more_environments(costs(5, 50), 0.15, second_delta=0.02, candidates=20)
    assert more.new_alone == environments_needed(0.15, 0.1, delta=0.02).environments


def wrong_promises(truth: float, trials: int, totals: Sequence[int], levels: Sequence[float]):
    """The exact probability that a bound at the truth is promised in a planned second look.

    The failures among the first trials choose the total: the smallest at which their rate would
    reach the bound, or else the largest.
    """
    wrong, pairs = 0.0, list(zip(totals, levels, strict=True))
    allowed = [int(failures_allowed(total, truth, level)) for total, level in pairs]
    for failures in range(trials + 1):
        planned = [i for i, n in enumerate(totals) if allowed[i] >= failures * n / trials]
        look = planned[0] if planned else -1
        further = totals[look] - trials
        reached = binom.cdf(allowed[look] - failures, further, truth)
        wrong += float(binom.pmf(failures, trials, truth) * reached)
    return wrong


def test_choosing_the_total_by_the_outcomes_has_to_be_paid_for():
    looks = range(1, 6)
    totals, levels = [40 * 2**look for look in looks], [0.05 / 2**look for look in looks]
    assert wrong_promises(0.2, 40, totals, levels) <= 0.05
    free = range(41, 320)
    assert wrong_promises(0.2, 40, free, [0.05] * len(free)) > 0.07


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"costs": []}, "no trials yet"),
        ({"costs": [[0, 1]]}, "no trials yet"),
        ({"costs": [0, 2]}, "must lie in"),
        ({"bound": 0}, "bound = 0"),
        ({"second_delta": 1.0}, "second_delta = 1.0"),
        ({"power": 0}, "power = 0"),
    ],
)
def test_bad_input_is_refused(wrong: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        more_environments(**{"costs": [0, 1, 0], "bound": 0.5, **wrong})
