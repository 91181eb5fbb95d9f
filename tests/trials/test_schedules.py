"""Schedules of trials: complete, random, and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

import pytest

from pacbayes_control.trials.plans.schedules import schedule, schedule_csv
from sizes import sized


def test_every_policy_is_tried_once_in_every_environment_before_the_next():
    planned = schedule(["a", "b", "c"], ["shelf", "table", "floor", "drawer"], seed=3).trials
    assert [trial.trial for trial in planned] == list(range(1, 13))
    for start in range(0, 12, 3):
        group = planned[start : start + 3]
        assert len({trial.environment for trial in group}) == 1
        assert {trial.policy for trial in group} == {"a", "b", "c"}
    assert len({trial.environment for trial in planned}) == 4


def test_every_order_is_as_likely_as_any_other():
    repetitions = sized(600, full=6000)
    orders = Counter(schedule(["a", "b"], 2, seed=seed).trials for seed in range(repetitions))
    assert len(orders) == 8
    expected = repetitions / 8
    assert sum((count - expected) ** 2 / expected for count in orders.values()) < 24.3  # p = 0.001


def test_a_schedule_is_made_again_from_its_seed():
    first = schedule(["a", "b"], 30)
    assert schedule(["a", "b"], 30, seed=first.seed) == first
    assert schedule(["a", "b"], 30).trials != first.trials


def test_the_csv_has_a_row_for_each_trial_and_an_empty_success():
    planned = schedule(["a, large", 'the "best"'], ["shelf", "tablé"], seed=0)
    rows = list(csv.DictReader(io.StringIO(schedule_csv(planned))))
    assert [*rows[0]] == ["trial", "policy", "environment", "success"]
    assert [(int(r["trial"]), r["policy"], r["environment"]) for r in rows] == [*planned.trials]
    assert {row["success"] for row in rows} == {""}


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@SUM(A1)", " =1", "＝1"])
def test_names_that_a_spreadsheet_would_compute_are_refused(name: str):
    for policies, environments in (([name], ["shelf"]), (["a"], [name])):
        with pytest.raises(ValueError, match="takes for a formula"):
            schedule_csv(schedule(policies, environments, seed=0))


@pytest.mark.parametrize(
    ("policies", "environments", "words"),
    [
        ([], 3, "at least one policy"),
        ("ab", 3, "at least one policy"),
        (["a", "a"], 3, "names must be unique"),
        (["a", " "], 3, "empty name"),
        (["a\n"], 3, "cannot be shown"),
        (["a"], 0, "at least 1"),
        (["a"], -1, "-1 environments"),
        (["a"], [], "at least 1"),
        (["a"], "shelf", "at least 1"),
        (["a"], ["shelf", "shelf"], "two environments are named"),
        (["a", "b"], 600_000, "at most 1,000,000 trials"),
    ],
)
def test_bad_input_is_refused(policies: Any, environments: Any, words: str):
    with pytest.raises(ValueError, match=words):
        schedule(policies, environments, seed=0)


def test_a_seed_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="seed"):
        schedule(["a"], 2, seed=2**64)
