"""Whether one policy is better than another: the verdict, the limits and the record."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes_control.bounds.anytime import difference_limits
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.comparing import (
    Comparison,
    compare,
    finite_exp,
    load_comparison,
    save_comparison,
)
from recorded_trials import paired, unpaired

NONE = math.nan


def wins(better: int, worse: int = 0, ties: int = 0) -> Trials:
    """Pairs in which act succeeds alone, pi0 succeeds alone, and both do."""
    return paired([[0, 1]] * better + [[1, 0]] * worse + [[0, 0]] * ties)


# ---- the verdict --------------------------------------------------------------------------------


def test_one_policy_that_wins_again_and_again_is_better():
    answer = compare(wins(12), "act", "pi0")
    assert answer.verdict == "better"
    assert answer.decided_after == 6  # half of the shares, on u = 1, make 2⁵: the others the rest
    assert answer.difference == difference_limits([1] * 12, 0.05)
    assert (answer.more, answer.needed, answer.mean_difference) == (None, 40, 1)
    assert answer.log_e > math.log(40)


def test_the_other_is_worse_by_the_same_evidence():
    one, other = compare(wins(15, 2), "act", "pi0"), compare(wins(15, 2), "pi0", "act")
    assert (one.verdict, other.verdict) == ("better", "worse")
    assert one.log_e == other.log_e
    assert other.difference == pytest.approx([-limit for limit in one.difference[::-1]], abs=1e-12)
    assert one.decided_after == other.decided_after


def test_equal_policies_are_not_told_apart():
    answer = compare(wins(20, 20, 10), "act", "pi0")
    assert (answer.verdict, answer.decided_after, answer.more) == ("undecided", None, None)
    assert answer.difference[0] < 0 < answer.difference[1]
    assert "Undecided: with confidence 95 %, the failure rate of “pi0” less" in answer.sentence


def test_ties_decide_nothing_and_take_nothing_back():
    without, tied = (compare(wins(12, 1, ties), "act", "pi0") for ties in (0, 200))
    assert without.log_e == pytest.approx(tied.log_e)
    assert without.verdict == tied.verdict == "better"
    assert compare(wins(0, 0, 50), "act", "pi0").log_e == pytest.approx(0)


def test_one_pair_is_too_little():
    answer = compare(wins(1), "act", "pi0")
    assert answer.verdict == "undecided"
    assert answer.more == 5
    assert -1 <= answer.difference[0] < 0.1


def test_the_sentence_says_how_much_better():
    answer = compare(wins(30, 2), "act", "pi0", alpha=0.01)
    low, high = answer.difference
    assert answer.sentence == (
        "With confidence 99 %, “act” is better than “pi0” in new environments: the failure rate of "
        f"“pi0” less that of “act” lies between {math.floor(low * 1e4) / 1e4:.4f} and "
        f"{math.ceil(high * 1e4) / 1e4:.4f}."
    )


def test_graded_costs_are_compared_by_their_expected_cost():
    rng = np.random.default_rng(0)
    answer = compare(paired(rng.beta([2, 5], [8, 5], (60, 2))), "act", "pi0")
    assert answer.verdict == "better"
    assert "the expected cost of “pi0” less that of “act”" in answer.sentence


def test_what_was_decided_stays_decided_whether_or_not_looks_on_the_way_count():
    for in_order in (False, True):
        answer = compare(wins(14), "act", "pi0", in_order=in_order)
        assert (answer.verdict, answer.decided_after) == ("better", 6)


# ---- margins ------------------------------------------------------------------------------------


def test_a_margin_asks_for_a_larger_difference():
    trials = wins(30, 6, 10)
    plain, wide = compare(trials, "act", "pi0"), compare(trials, "act", "pi0", margin=0.5)
    assert (plain.verdict, wide.verdict) == ("better", "undecided")
    assert plain.difference == wide.difference
    answer = compare(wins(40, 1), "act", "pi0", margin=0.5)
    assert (answer.verdict, answer.difference[0] > 0.5) == ("better", True)
    assert "“act” is better than “pi0” by more than 0.5 in new environments" in answer.sentence


def test_an_undecided_sentence_names_the_margin():
    trials = wins(30, 20)
    ends = "; only a difference beyond 0.1 decides."
    assert compare(trials, "act", "pi0", margin=0.1).sentence.endswith(ends)
    assert "beyond" not in compare(trials, "act", "pi0").sentence


@pytest.mark.parametrize("margin", [-0.1, 1, 2, math.nan, math.inf])
def test_an_impossible_margin_is_refused(margin: float):
    with pytest.raises(ValueError, match="is not possible: give one from 0 to below 1"):
        compare(wins(2), "act", "pi0", margin=margin)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, math.nan])
def test_an_impossible_alpha_is_refused(alpha: float):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        compare(wins(2), "act", "pi0", alpha=alpha)


def test_policies_are_two_that_have_trials():
    with pytest.raises(ValueError, match="“act” cannot be compared with itself"):
        compare(wins(2), "act", "act")
    with pytest.raises(ValueError, match="there are no trials of “dp”"):
        compare(wins(2), "act", "dp")


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.booleans(),
)
def test_the_verdict_is_where_the_limits_are(differences: list[float], margin: float, in_order):
    table = [[d < 0, d > 0] for d in differences]
    answer = compare(paired(table), "act", "pi0", alpha=0.3, margin=margin, in_order=in_order)
    low, high = answer.difference
    assert (answer.verdict == "better") == (margin < low <= high)
    assert (answer.verdict == "worse") == (low <= high < -margin)
    assert answer.sentence.startswith("Undecided") == (answer.verdict == "undecided")
    if answer.verdict == "undecided":
        assert answer.decided_after is None
    else:
        assert answer.decided_after is not None
        assert answer.decided_after <= len(differences)


# ---- order --------------------------------------------------------------------------------------


def test_evidence_that_was_lost_again_counts_only_if_the_order_was_random():
    """Twelve wins, and then twenty losses: a log that is sorted by task looks like that."""
    table = [[0, 1]] * 12 + [[1, 0]] * 12
    by_all, on_the_way = (
        compare(paired(table), "act", "pi0", in_order=in_order) for in_order in (False, True)
    )
    assert by_all.verdict == "undecided"
    assert (on_the_way.verdict, on_the_way.decided_after) == ("better", 6)
    assert on_the_way.log_e > math.log(40) > by_all.log_e


def test_without_order_any_permutation_of_the_pairs_gives_the_same_answer():
    table = np.array([[0, 1]] * 9 + [[1, 0]] * 3 + [[0, 0]] * 5)
    one = compare(paired(table), "act", "pi0")
    other = compare(paired(np.random.default_rng(0).permutation(table)), "act", "pi0")
    assert one.difference == other.difference
    assert (one.verdict, one.log_e) == (other.verdict, pytest.approx(other.log_e))


def test_looks_on_the_way_are_after_whole_rounds_of_tasks():
    """Act is better in the first task, and as much worse in the second: never in any round."""
    table = [[0, 1]] * 12 + [[1, 0]] * 12
    trials = paired(table, tasks=[0] * 12 + [1] * 12)
    answer = compare(trials, "act", "pi0", in_order=True)
    assert answer.verdict == "undecided"
    assert answer.pairs.together == 2
    assert answer.log_e < 0


def test_a_verdict_about_a_list_of_tasks_says_so_and_comes_after_whole_rounds():
    trials = paired([[0, 1]] * 12, tasks=[0, 1, 2, 3] * 3)
    answer = compare(trials, "act", "pi0", in_order=True)
    assert (answer.verdict, answer.decided_after) == ("better", 8)
    assert "in new episodes, on average over 4 tasks" in answer.sentence


def test_contradicting_looks_on_the_way_decide_nothing():
    """Better on the way, and worse in the end: the promise was broken, or α was too large."""
    answer = compare(paired([[0, 1]] * 8 + [[1, 0]] * 80), "act", "pi0", in_order=True)
    assert answer.verdict == "undecided"
    low, high = answer.difference
    assert low > 0 > high


def test_limits_on_the_way_that_leave_no_difference_decide_nothing(tmp_path: Path):
    """Act wins twenty times and never again: by more than 0.6 at first, by less than 0.1 in all."""
    trials = paired([[0, 1]] * 20 + [[0, 0]] * 600)
    answer = compare(trials, "act", "pi0", in_order=True)
    low, high = answer.difference
    assert low > high > 0
    assert (answer.verdict, answer.decided_after, answer.more) == ("undecided", None, None)
    assert answer.sentence.startswith("Undecided: looks on the way contradict each other")
    load_comparison(save_comparison(answer, trials, tmp_path / "kept"))


# ---- pairs --------------------------------------------------------------------------------------


def test_unpaired_trials_are_compared_and_the_rest_waits():
    answer = compare(unpaired([0] * 40, [1] * 30), "act", "pi0")
    record = answer.to_dict()
    assert (record["paired"], record["pairs"], record["left_out"]) == (False, 30, 10)
    assert answer.verdict == "better"


def test_trials_that_wait_for_their_partners_are_left_out():
    answer = compare(paired([[0, 1]] * 3 + [[0, NONE]] * 2), "act", "pi0")
    assert (len(answer.pairs.differences), answer.pairs.left_out) == (3, 2)


def test_environments_without_one_of_both_are_left_out_only_if_that_is_said():
    trials = paired([[0, 1], [0, NONE], [0, 1]])
    with pytest.raises(ValueError, match="have no partner: say --missing untried"):
        compare(trials, "act", "pi0")
    answer = compare(trials, "act", "pi0", untried=True)
    assert (answer.untried, answer.pairs.left_out) == (True, 1)


def test_how_many_more_is_what_would_decide_it_if_they_went_on_like_these():
    answer = compare(wins(4, 1), "act", "pi0")
    assert answer.verdict == "undecided"
    assert answer.more is not None
    pairs = 5 + answer.more
    longer = wins(math.ceil(pairs * 0.8) + 1, math.ceil(pairs * 0.2))
    assert compare(longer, "act", "pi0").verdict == "better"


# ---- files --------------------------------------------------------------------------------------


def saved(tmp_path: Path, trials: Trials, **options: Any) -> tuple[Comparison, Path]:
    answer = compare(trials, "act", "pi0", **options)
    return answer, save_comparison(answer, trials, tmp_path / "comparison")


def test_a_saved_comparison_is_read_as_it_was(tmp_path: Path):
    trials = paired(np.random.default_rng(3).random((20, 3)), tasks=[0, 1] * 10)
    answer, folder = saved(tmp_path, trials, alpha=0.1, margin=0.02, in_order=True)
    again, read = load_comparison(folder)
    assert again.to_dict() == answer.to_dict()
    assert np.array_equal(read.table, trials.table)
    assert sorted(path.name for path in folder.iterdir()) == ["comparison.json", "trials.json"]


def test_the_same_trials_give_the_same_files(tmp_path: Path):
    folders = [saved(tmp_path / name, wins(7, 2))[1] for name in ("one", "other")]
    for name in ("comparison.json", "trials.json"):
        one, other = ((folder / name).read_bytes() for folder in folders)
        assert one == other


def test_a_comparison_as_json_has_the_answer_and_how_it_came_about(tmp_path: Path):
    _, folder = saved(tmp_path, wins(7, 2))
    record = json.loads((folder / "comparison.json").read_text())
    assert record.keys() == {
        *("verdict", "decided_after", "e_value", "needed", "difference", "mean_difference"),
        *("pairs", "paired", "left_out", "more", "a", "b", "alpha", "margin", "in_order"),
        *("untried", "tasks", "sentence", "format", "trials"),
    }
    assert record["e_value"] == pytest.approx(math.exp(compare(wins(7, 2), "act", "pi0").log_e))


def test_evidence_beyond_all_numbers_is_a_number_in_json(tmp_path: Path):
    _, folder = saved(tmp_path, wins(1500))
    assert (
        json.loads((folder / "comparison.json").read_text())["e_value"] == finite_exp(1e9) < 1e300
    )
    assert load_comparison(folder)[0].verdict == "better"


def test_a_folder_that_holds_other_things_is_not_overwritten(tmp_path: Path):
    answer, folder = saved(tmp_path, wins(3))
    with pytest.raises(ValueError, match="is not empty: choose another folder, or allow --force"):
        save_comparison(answer, wins(3), folder)
    assert save_comparison(answer, wins(3), folder, overwrite=True) == folder
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other things than a comparison"):
        save_comparison(answer, wins(3), folder, overwrite=True)
    with pytest.raises(ValueError, match="is a file, and a comparison is a folder"):
        save_comparison(answer, wins(3), folder / "notes.txt")


def test_names_that_look_like_another_verdict_are_quoted():
    trials = Trials(**{**vars(wins(12)), "policies": ("act” is worse. “", "pi0")})
    sentence = compare(trials, "act” is worse. “", "pi0").sentence
    assert "“act' is worse. '” is better than “pi0”" in sentence


def test_limits_that_contradict_each_other_say_that_the_order_was_not_random():
    d = np.concatenate([np.ones(20), -np.ones(60)])
    trials = paired(np.column_stack((d < 0, d > 0)).astype(float))
    answer = compare(trials, *trials.policies, in_order=True)
    assert answer.difference[0] > answer.difference[1]
    assert answer.verdict == "undecided"
    assert "contradict each other: the order was not random" in answer.sentence


def test_unpaired_trials_that_are_sorted_by_outcome_are_refused():
    costs = np.repeat([0.0, 1.0], 10)
    trials = unpaired(costs, costs)
    with pytest.raises(ValueError, match=r"“.*” are sorted by outcome: give them in the order"):
        compare(trials, *trials.policies)
    mixed = np.tile([0.0, 1.0], 10)
    assert compare(unpaired(mixed, costs), *trials.policies).verdict == "undecided"


def test_an_alpha_that_no_number_can_hold_is_refused():
    with pytest.raises(ValueError, match="alpha = 1e-310 is too small"):
        compare(wins(3), *wins(3).policies, alpha=1e-310)
