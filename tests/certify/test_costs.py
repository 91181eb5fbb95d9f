from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.learn import compare_methods, learn_best, learn_constrained, learn_finite


def test_zero_one_costs_of_any_type_are_kept_as_bytes():
    for dtype in (bool, np.uint8, np.int64, np.float32, np.float64):
        costs = Costs(np.eye(3).astype(dtype))
        assert costs.binary
        assert costs.values.dtype == np.uint8
        assert costs.failures.tolist() == [1, 1, 1]


def test_the_record_does_not_follow_changes_of_the_array_it_was_made_from():
    values = np.full((2, 2), 0.5)
    costs = Costs(values)
    values[0, 0] = 0.9
    assert costs.values[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        costs.values[0, 0] = 0


def test_means_are_those_of_the_columns(graded_costs: Costs):
    assert np.allclose(graded_costs.means, graded_costs.values.mean(axis=0), rtol=1e-14)


def test_the_digest_is_that_of_the_saved_file(tmp_path: Path, graded_costs: Costs):
    np.save(tmp_path / "costs.npy", graded_costs.values)
    assert (
        graded_costs.digests["costs"]
        == hashlib.sha256((tmp_path / "costs.npy").read_bytes()).hexdigest()
    )


def test_graded_costs_have_no_failures_to_count(graded_costs: Costs):
    with pytest.raises(ValueError, match="0 or 1"):
        _ = graded_costs.failures


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.5, np.nan], [0, 0]], "the cost at environment 0, policy 1 is NaN"),
        ([[0, 0], [0, 1.115]], r"cost 1.115 at environment 1, policy 1 is outside \[0, 1\]"),
        ([[0, 0], [-0.1, 1]], "cost -0.1 at environment 1, policy 0"),
        ([[0, np.inf], [0, 1]], "cost inf at environment 0, policy 1"),
        (np.array([[0, 2], [0, 1]], np.uint8), "cost 2 at environment 0, policy 1"),
        (np.empty((0, 5)), "empty"),
        (np.empty((5, 0)), "empty"),
        ([[0, 1]], "at least two rows"),
        ([0, 1], "two dimensions"),
        ([[0, 1], [1]], "ragged"),
        ([["a", "b"], ["c", "d"]], "not numbers"),
    ],
)
def test_bad_costs_are_rejected_at_the_door(values: object, message: str):
    with pytest.raises(ValueError, match=message):
        Costs(values)  # type: ignore[arg-type]


def test_names_must_match_the_policies():
    with pytest.raises(ValueError, match="3 names for 2 policies"):
        Costs([[0, 1], [1, 0]], names=["a", "b", "c"])


def test_names_must_tell_the_policies_apart():
    with pytest.raises(ValueError, match="two policies are named 'a'"):
        Costs([[0, 1], [1, 0]], names=["a", "a"])
    with pytest.raises(ValueError, match="policy 1 has an empty name"):
        Costs([[0, 1], [1, 0]], names=["a", " "])


def test_nobody_can_change_the_means(binary_costs: Costs):
    with pytest.raises(ValueError, match="read-only"):
        binary_costs.means[0] = 0


def test_masked_costs_are_refused():
    with pytest.raises(ValueError, match="masked"):
        Costs(np.ma.masked_array(np.zeros((3, 2)), mask=np.eye(3, 2, dtype=bool)))


def test_a_name_cannot_forge_a_line():
    with pytest.raises(ValueError, match="cannot be shown"):
        Costs(np.zeros((2, 1)), names=["a\nverified: all is well"])


# ---- costs of draws from a posterior ------------------------------------------------------------


@pytest.mark.parametrize("draws", [None, "fresh", "shared"])
def test_costs_know_whether_their_columns_are_draws(draws: str | None):
    costs = Costs(np.zeros((3, 2)), draws=draws)
    assert costs.draws == draws
    assert (f"2 {draws} draws" if draws else "2 policies") in repr(costs)


@pytest.mark.parametrize("draws", ["", "stale", "Fresh", True, 2, ["fresh"]])
def test_draws_of_another_kind_are_rejected(draws: object):
    with pytest.raises(ValueError, match="draws are fresh or shared, not"):
        Costs(np.zeros((3, 2)), draws=draws)  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", ["fresh", "shared"])
@pytest.mark.parametrize("prior", [None, [0.5, 0.5]])
@pytest.mark.parametrize("learn", [learn_finite, learn_best, learn_constrained, compare_methods])
def test_nobody_may_choose_among_draws_as_if_they_were_policies(
    learn: Callable[..., object], prior: list | None, draws: str
):
    costs = Costs(np.eye(4, 2), draws=draws)
    with pytest.raises(ValueError, match="costs of draws from a posterior, not of policies"):
        learn(costs, prior=prior)


def test_costs_know_the_noise_of_their_rollouts():
    record = {"stream": "train noise", "seed": 0, "of": "wind"}
    assert Costs(np.zeros((3, 2)), origin={"noise": record}).noise == "wind"
    assert Costs(np.zeros((3, 2)), origin={"stream": "train"}).noise is None
    assert Costs(np.zeros((3, 2))).noise is None


def test_costs_need_one_row_of_parameters_a_policy():
    with pytest.raises(ValueError, match="3 rows of parameters for 2 policies"):
        Costs(np.zeros((3, 2)), parameters=np.zeros((3, 5)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (np.array([[1 + 2j], [0]]), "not rows of numbers"),
        (np.array([["0.4"], ["0.1"]]), "not rows of numbers"),
        (np.array(3.0), "not rows of numbers"),
        (np.array([[np.nan], [0.0]]), "NaN or an infinity"),
    ],
)
def test_parameters_that_are_no_numbers_are_refused(parameters: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        Costs([[0, 1], [1, 1]], parameters=parameters)


@pytest.mark.parametrize("record", [{}, {"of": ""}, {"of": "x\nverified"}, {"of": 3}, "wind"])
def test_noise_is_told_in_plain_words(record: object):
    with pytest.raises(ValueError, match="in plain words"):
        _ = Costs([[0, 1], [1, 1]], origin={"noise": record}).noise


# ---- a time limit -------------------------------------------------------------------------------

LIMITED: dict[str, Any] = {
    "rollout_timeout": 30.0,
    "timed_out": [[1, 0], [2, 1]],
    "incidents": {"timeouts": 2},
}
LATE = [[0, 0.5], [1, 0], [0, 1]]


def test_rollouts_that_timed_out_are_listed_and_cost_1():
    costs = Costs(LATE, origin=LIMITED)
    assert costs.timed_out == {(1, 0), (2, 1)}
    assert costs.incidents == {"timeouts": 2}
    assert costs.cost_rule == "1 where it takes longer than 30 s"
    ruled = Costs(LATE, origin={"cost_rule": "1 for a fall", "rollout_timeout": 0.5})
    assert ruled.cost_rule == "1 for a fall, 1 where it takes longer than 0.5 s"
    assert Costs(LATE).cost_rule is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rollout_timeout": 0}, "rollout_timeout that is not in seconds"),
        ({"rollout_timeout": float("nan")}, "rollout_timeout that is not in seconds"),
        ({"rollout_timeout": True}, "rollout_timeout that is not in seconds"),
        ({"rollout_timeout": "30"}, "rollout_timeout that is not in seconds"),
        ({"rollout_timeout": None}, "timed out without a limit"),
        ({"timed_out": [[1, 0], [3, 1]]}, "timed out and do not exist"),
        ({"timed_out": [[1, 0], [2, -1]]}, "timed out and do not exist"),
        ({"timed_out": [[1, 0], [2, 1, 0]]}, "timed out and do not exist"),
        ({"timed_out": [[1, 0], [2, True]]}, "timed out and do not exist"),
        ({"timed_out": {"1": 0}}, "timed out and do not exist"),
        ({"timed_out": [[1, 0], [1, 0]]}, "a rollout that timed out twice"),
        ({"timed_out": [[1, 0], [0, 1]]}, r"policy 1 in environment 0 timed out.* 0.5: it must"),
        ({"timed_out": [[1, 0]]}, "does not list each rollout that timed out"),
        ({"timed_out": []}, "does not list each rollout that timed out"),
        ({"incidents": {}}, "does not list each rollout that timed out"),
        ({"incidents": {"timeouts": 3}}, "does not list each rollout that timed out"),
    ],
)
def test_a_record_of_timeouts_that_contradicts_itself_is_refused(
    change: dict[str, Any], words: str
):
    costs = Costs(LATE, origin=LIMITED | change)
    with pytest.raises(ValueError, match=words):
        _ = costs.incidents, costs.rollout_timeout
