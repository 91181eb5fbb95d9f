"""Plans: checked once, the same in a file and in Python, with no field that has no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pacbayes_control.learn import Plan, SearchSettings, learn_task
from pacbayes_control.tasks.demo import Stopping

PLANS = [
    Plan(),
    Plan(task="somebody", options={"gain": 2.5}, environments=50, seed=7, method="occam"),
    Plan(names=("a", "b"), policies="p.csv", ball="kl:0.05", test_environments=0),
    Plan(certify="one", candidates=3, prior="prior.json"),
    Plan(family=True, search=SearchSettings(steps=3, estimator="differences"), draws=2),
    Plan(shared_draws=True, delta=0.05, sampling_delta=0.01, objective="robust-pinsker"),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.to_dict()))
def test_a_plan_comes_back_from_its_record(plan: Plan):
    record = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(record) == plan


def test_a_record_holds_no_more_than_what_was_chosen():
    assert Plan().to_dict() == {}
    assert Plan(delta=0.05).to_dict() == {"delta": 0.05}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "a plan is a record of fields by name"),
        ({"speed": 3}, "there is no field 'speed': choose from environments"),
        ({"task": 3}, "a plan names its task"),
        ({"options": []}, "a plan names its task, and the options of it by name"),
        ({"search": {"pace": 1}}, "there is no field 'pace'"),
        ({"search": [1]}, "must be values by the names of fields: estimator"),
        ({"environments": 1}, "environments = 1: at least 2 is needed"),
        ({"environments": "many"}, "environments = 'many' must be int"),
        ({"method": "magic"}, r"method = 'magic' must be kl \| kl-maurer"),
        ({"delta": 1.5}, "delta = 1.5 must lie strictly between 0 and 1"),
        ({"ball": "round"}, "round"),
        ({"seed": -1}, "seed = -1: at least 0 is needed"),
        ({"family": True, "certify": "draw"}, "a family of priors certifies the posterior"),
        ({"sampling_delta": 0.5}, "sampling_delta = 0.5 overspends"),
    ],
)
def test_a_strangers_plan_is_checked(record: Any, words: str):
    with pytest.raises(ValueError, match=words):
        Plan.from_dict(record)


@pytest.mark.parametrize(
    ("plan", "finite", "words"),
    [
        (Plan(draws=3), True, "draws is for continuous policies"),
        (Plan(search=SearchSettings()), True, "search .* has no use where nothing is searched for"),
        (Plan(names=("a",)), False, "names is for a list of policies"),
        (Plan(certify="draw", draws=3), False, "draws is for certify = posterior"),
        (Plan(certify="draw", method="kl"), False, "method has no use"),
        (Plan(certify="one", objective="kl"), False, "objective has no use"),
        (Plan(candidates=3), False, "candidates is for certify = one"),
        (Plan(share=0.5), False, "share is for prior = split"),
    ],
    ids=str,
)
def test_a_field_without_effect_is_refused(plan: Plan, finite: bool, words: str):
    with pytest.raises(ValueError, match=words):
        plan.check_used(finite)
    Plan().check_used(finite)


def test_a_run_holds_the_plan_that_makes_it_again(tmp_path):
    run = learn_task(Stopping(), Plan(environments=30, test_environments=20, seed=4))
    assert run.plan == {"environments": 30, "test_environments": 20, "seed": 4}
    again = learn_task(Stopping(), Plan.from_dict(run.plan))
    assert again.certificate == run.certificate
    run.save(tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert Plan.from_dict(saved) == Plan(environments=30, test_environments=20, seed=4)
