"""Which trial of one policy is beside which of the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.pairing import pairs_of, policy_number
from recorded_trials import paired, unpaired

NONE = math.nan


def test_trials_in_the_same_environment_are_pairs():
    pairs = pairs_of(paired([[0, 1], [1, 1], [1, 0]]), 0, 1)
    assert pairs.trials.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert pairs.differences.tolist() == [1, 0, -1]
    assert (pairs.in_same_environment, pairs.together, pairs.left_out) == (True, 1, 0)


def test_the_other_way_round_the_differences_have_the_other_sign():
    trials = paired(np.random.default_rng(0).random((8, 3)))
    one, other = pairs_of(trials, 0, 2), pairs_of(trials, 2, 0)
    assert np.array_equal(one.differences, -other.differences)
    assert np.array_equal(one.trials, other.trials[:, ::-1])


def test_pairs_are_in_the_order_of_their_completion():
    """The second policy was tried in the environments backwards."""
    trials = Trials(
        ("act", "pi0"),
        np.array([0, 0, 0, 1, 1, 1]),
        ("x", "y", "z"),
        np.array([0, 1, 2, 2, 1, 0]),
        np.array([0.0, 0.0, 0.0, 1.0, 0.0, 1.0]),
        graded=False,
        outcome="1 for a failure",
        unit="site",
        shared=True,
    )
    trials.check()
    assert pairs_of(trials, 0, 1).trials.tolist() == [[2, 3], [1, 4], [0, 5]]


def test_trials_in_environments_of_their_own_are_paired_as_they_were_recorded():
    pairs = pairs_of(unpaired([0, 1, 0.5], [1, 0.25, 0]), 0, 1)
    assert pairs.trials.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert pairs.differences.tolist() == [1, -0.75, -0.5]
    assert (pairs.in_same_environment, pairs.left_out) == (False, 0)


def test_more_trials_of_one_policy_wait_for_as_many_of_the_other():
    pairs = pairs_of(unpaired([0, 1, 1, 1], [1]), 0, 1)
    assert (pairs.trials.tolist(), pairs.left_out) == ([[0, 4]], 3)


def test_policies_that_share_environments_with_others_only_are_unpaired():
    trials = paired([[0, NONE, 1], [1, NONE, 1], [NONE, 0, NONE], [NONE, 1, NONE]])
    assert (trials.shared, trials.policies) == (True, ("act", "pi0", "dp"))
    assert not pairs_of(trials, 0, 1).in_same_environment
    assert pairs_of(trials, 0, 2).in_same_environment


def test_the_first_trials_of_a_sorted_log_are_no_pairs():
    """Act succeeds as often as pi0, and its successes come first: they would be all that counts."""
    mixed = np.random.default_rng(0).permutation([0, 1] * 15)
    with pytest.raises(ValueError, match="the trials of “act” are sorted by outcome"):
        pairs_of(unpaired([0] * 50 + [1] * 50, mixed), 0, 1)
    with pytest.raises(ValueError, match="the trials of “pi0” are sorted by outcome"):
        pairs_of(unpaired(mixed, np.linspace(1, 0, 40)), 0, 1)


def test_a_sorted_log_of_which_every_trial_has_a_partner_is_no_harm():
    mixed = np.random.default_rng(0).permutation([0, 1] * 15)
    assert len(pairs_of(unpaired([0] * 15 + [1] * 15, mixed), 0, 1).differences) == 30


def test_one_failure_at_the_end_is_a_matter_of_chance():
    mixed = np.random.default_rng(0).permutation([0, 1] * 10)
    assert len(pairs_of(unpaired([0] * 29 + [1], mixed), 0, 1).differences) == 20


# ---- trials without a partner -------------------------------------------------------------------


def test_trials_after_the_last_pair_may_wait_for_their_partners():
    pairs = pairs_of(paired([[0, 1], [1, 1], [1, NONE], [0, NONE]]), 0, 1)
    assert (len(pairs.differences), pairs.left_out) == (2, 2)


def test_a_trial_that_was_left_out_on_the_way_is_asked_about():
    trials = paired([[0, 1], [1, NONE], [1, 0], [NONE, 1], [0, 0]])
    words = "1 of 4 trials of “act”, such as the one in “seed 1”, have no partner: say --missing"
    with pytest.raises(ValueError, match=words):
        pairs_of(trials, 0, 1)
    with pytest.raises(ValueError, match="1 of 4 trials of “pi0”, such as the one in “seed 3”"):
        pairs_of(trials, 1, 0)
    pairs = pairs_of(trials, 0, 1, untried=True)
    assert (pairs.differences.tolist(), pairs.left_out) == ([1, -1, 0], 2)


def test_a_log_that_has_one_policy_after_the_other_must_be_complete():
    """Else the trials without a partner came before the last pair was complete."""
    outcomes = [[0, 1], [1, 1], [1, NONE]]
    with pytest.raises(ValueError, match="1 of 3 trials of “act”"):
        pairs_of(paired(outcomes, by_policy=True), 0, 1)
    assert pairs_of(paired(outcomes, by_policy=True), 0, 1, untried=True).left_out == 1


# ---- tasks --------------------------------------------------------------------------------------


def test_pairs_of_a_fixed_list_of_tasks_are_in_rounds():
    table = np.column_stack((np.zeros(6), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    pairs = pairs_of(paired(table, tasks=[0, 0, 0, 1, 1, 1]), 0, 1)
    assert pairs.differences.tolist() == [0.1, 0.4, 0.2, 0.5, 0.3, 0.6]
    assert pairs.together == 2


def test_every_task_of_a_list_needs_as_many_pairs():
    """Otherwise the order of the log would decide which of them count."""
    message = "there are 2 pairs of the task “task 1” and 3 of “task 0”: --tasks fixed needs as"
    with pytest.raises(ValueError, match=message):
        pairs_of(paired(np.zeros((5, 2)), tasks=[0, 1, 0, 0, 1]), 0, 1)
    with pytest.raises(ValueError, match="there are 0 pairs of the task “task 2”"):
        pairs_of(unpaired([0, 0, 0], [1, 1], tasks=[[0, 1, 2], [0, 1]]), 0, 1)


def test_unpaired_trials_of_tasks_are_paired_within_each_task():
    trials = unpaired([0, 0.1, 0, 0.3], [0.5, 0.6, 0.7, 0.8], tasks=[[0, 0, 1, 1], [1, 0, 1, 0]])
    pairs = pairs_of(trials, 0, 1)
    assert pairs.differences == pytest.approx([0.6, 0.5, 0.7, 0.4])


@given(st.data())
def test_no_trial_is_in_two_pairs_and_none_is_lost(data: st.DataObject):
    each, many = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    balanced = st.permutations([task for task in range(many) for _ in range(each)])
    tasks = [data.draw(balanced) for _ in range(2)]
    pairs = pairs_of(unpaired(*(np.zeros(each * many) for _ in tasks), tasks=tasks), 0, 1)
    used = pairs.trials.ravel().tolist()
    assert sorted(used) == list(range(2 * each * many))
    assert (len(pairs.differences), pairs.left_out) == (each * many, 0)


# ---- names --------------------------------------------------------------------------------------


def test_a_policy_is_found_by_its_name_or_the_nearest_is_suggested():
    trials = paired(np.zeros((2, 3)))
    assert policy_number(trials, "dp") == 2
    with pytest.raises(ValueError, match="no trials of “pi”: did you mean “pi0”"):
        policy_number(trials, "pi")
    with pytest.raises(ValueError, match=r"no trials of “zzz”: policies are “act”, “pi0”, “dp”$"):
        policy_number(trials, "zzz")


def test_of_many_policies_only_some_are_listed():
    names = tuple(f"policy number {i}" for i in range(12))
    trials = Trials(**{**vars(paired(np.zeros((2, 1)))), "policies": names})
    with pytest.raises(ValueError, match=r"“policy number 7” …$"):
        policy_number(trials, "zzz")
