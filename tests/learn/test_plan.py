"""Plans: checked once, the same in a file and in Python, with no field that has no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.learn import Plan, SearchSettings, learn_task, planned
from pacbayes_control.rollouts import Execution, Progress
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.demo import Stopping

PLANS = [
    Plan(),
    Plan(task="somebody", options={"gain": 2.5}, environments=50, seed=7, method="occam"),
    Plan(names=("a", "b"), policies="p.csv", ball="kl:0.05", test_environments=0),
    Plan(certify="one", candidates=3, prior="prior.json"),
    Plan(pilot="pilot.csv", method="occam"),
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
        ({"method": "magic"}, r"method = 'magic' must be occam \| kl \| betting"),
        ({"delta": 1.5}, "delta = 1.5 must lie strictly between 0 and 1"),
        ({"ball": "round"}, "round"),
        ({"seed": -1}, "seed = -1: at least 0 is needed"),
        ({"family": True, "certify": "draw"}, "a family of priors certifies the posterior"),
        ({"sampling_delta": 0.5}, "sampling_delta = 0.5 overspends"),
        (
            {"prior": "p.csv", "pilot": "c.csv"},
            "a pilot gives the prior: leave out --prior or --pilot",
        ),
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
        (Plan(pilot="pilot.csv"), False, "pilot is for a list of policies"),
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


# ---- the size of a search where rollouts are slow -----------------------------------------------


class Anywhere(Stopping):
    """With all ways to drive, from the prior."""

    policies = None

    def __repr__(self) -> str:
        return "Anywhere()"


PLAN = Plan(environments=100, draws=2)
Rate = Callable[[float], None]


@pytest.fixture
def rate(monkeypatch: pytest.MonkeyPatch) -> Rate:
    """Set how many rollouts a second will be measured."""

    def measured(rollouts: float) -> None:
        monkeypatch.setattr(planned, "rollout_rate", lambda *_: rollouts)

    monkeypatch.setattr(planned, "STEPS", 12)
    return measured


@pytest.mark.parametrize(
    ("rollouts", "batch"),
    # 12 steps of 64 policies in ten minutes, about
    [(1e9, None), (128.0, None), (127.0, None), (110.0, 64), (40.0, 32), (12.0, 8), (0.01, 2)],
)
def test_a_search_is_as_large_as_fits_in_ten_minutes(
    rate: Rate, rollouts: float, batch: int | None
):
    rate(rollouts)
    warned: list[str] = []
    run = learn_task(Anywhere(), PLAN, Execution(warning=warned.append))
    assert run.plan is not None
    assert run.plan["search"] == {"steps": 12} | ({"batch": batch} if batch else {})
    assert bool(warned) == bool(batch)
    if batch:
        assert f"the search uses {batch} of the 100 environments in each step" in warned[0]


def test_a_family_shares_the_ten_minutes(rate: Rate):
    rate(40.0)
    plan = Plan(environments=100, draws=2, family=True)
    assert learn_task(Anywhere(), plan).plan["search"] == {"steps": 12, "batch": 8}  # type: ignore[index]


def test_the_plan_of_a_smaller_search_makes_the_same_run(rate: Rate):
    rate(12.0)
    run = learn_task(Anywhere(), PLAN)
    rate(1e9)  # another machine
    assert run.plan is not None
    again = learn_task(Anywhere(), Plan.from_dict(run.plan))
    assert again.certificate == run.certificate
    assert again.posterior.to_bytes() == run.posterior.to_bytes()
    assert learn_task(Anywhere(), PLAN).posterior.to_bytes() != run.posterior.to_bytes()


@pytest.mark.parametrize("options", [{}, {"family": True}, {"certify": "draw", "draws": None}])
def test_a_search_that_was_begun_goes_on_with_its_size(rate: Rate, tmp_path: Path, options: Any):
    def interrupt(now: Progress) -> None:
        if ", step 11 of" in now.remark:
            raise KeyboardInterrupt

    rate(40.0)
    plan = Plan(**{"environments": 100, "draws": 2, **options})
    whole = learn_task(Anywhere(), plan)
    with pytest.raises(KeyboardInterrupt):
        learn_task(Anywhere(), plan, Execution(store=tmp_path / "run", progress=interrupt))
    rate(1e9)  # the machine is less busy now
    again = learn_task(Anywhere(), plan, Execution(store=tmp_path / "run"))
    assert again.plan == whole.plan
    assert again.certificate == whole.certificate


def test_a_search_that_was_begun_in_another_way_is_not_taken_up(rate: Rate, tmp_path: Path):
    def interrupt(now: Progress) -> None:
        if ", step 11 of" in now.remark:
            raise KeyboardInterrupt

    rate(1e9)
    store, given = tmp_path / "run", replace(PLAN, search=SearchSettings(steps=15))
    with pytest.raises(KeyboardInterrupt):
        learn_task(Anywhere(), given, Execution(store=store, progress=interrupt))
    with pytest.raises(ValueError, match="belongs to another run"):
        learn_task(Anywhere(), PLAN, Execution(store=store))


class Known(Anywhere):
    """With settings of its own."""

    def search_from(self, prior: str | None) -> SearchSettings:
        del prior
        return SearchSettings(steps=4, pairs=2)


class Shipped(Anywhere):
    """As if it were the one of that name."""

    name = "vehicle"


@pytest.mark.parametrize(
    ("task", "plan", "search"),
    [
        (Known(), PLAN, {"steps": 4, "pairs": 2}),
        (Anywhere(), Plan(environments=100, draws=2, search=SearchSettings(steps=5)), {"steps": 5}),
        (Anywhere(), Plan("vehicle", environments=100, draws=2), {"steps": 12}),  # as if installed
        (Shipped(), PLAN, {"steps": 12}),
    ],
    ids=["the task's", "the plan's", "installed", "installed, in Python"],
)
def test_settings_that_are_known_are_not_measured(
    rate: Rate, monkeypatch: pytest.MonkeyPatch, task: Task, plan: Plan, search: Any
):
    rate(0.0)
    monkeypatch.delattr(planned, "rollout_rate")
    assert learn_task(task, plan).plan["search"] == search  # type: ignore[index]


def test_a_fault_while_measuring_is_left_for_the_search_to_tell(
    rate: Rate, monkeypatch: pytest.MonkeyPatch
):
    def fault(*_: object) -> float:
        raise ValueError("a cost is NaN")

    rate(0.0)
    monkeypatch.setattr(planned, "rollout_rate", fault)
    assert learn_task(Anywhere(), PLAN).plan["search"] == {"steps": 12}  # type: ignore[index]


def test_a_task_of_a_user_is_tried_and_timed_with_reports():
    told: list[str] = []
    learn_task(Anywhere(), PLAN, Execution(progress=lambda now: told.append(now.title)))
    parts = ["trying the task", "timing a few rollouts", "learning the posterior"]
    assert [*dict.fromkeys(told)] == [*parts, "certifying rollouts"]
