"""Environments added until the bound is small enough: where it stops, resumes and is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import files
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.looks import growth
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan, learn_finite, learn_task, until
from pacbayes_control.rollouts import Execution, Progress
from pacbayes_control.rollouts.manifest import read_manifest
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.verify import verify

EASY: dict[str, Any] = {"until": 0.13, "delta": 0.05}  # reached after 163 environments


def learnt(store: Path | None = None, tell: Any = None, **fields: Any) -> Run[Any]:
    plan = Plan(test_environments=0, **(EASY | fields))
    return learn_task(Stopping(), plan, Execution(store=store, progress=tell))


def bounds_of(run: Run[Any]) -> dict[int, float]:
    return dict(zip(*until.bounds_on_the_way(run), strict=True))


# ---- where it stops -----------------------------------------------------------------------------


def test_looks_are_at_numbers_that_each_grow_by_a_tenth():
    assert growth(200) == (100, 110, 121, 134, 148, 163, 180, 198, 200)
    assert growth(100) == (100,)
    assert growth(20) == (20,)
    numbers = growth(10_000)
    assert numbers[-1] == 10_000
    assert all(b == -(-a * 11 // 10) for a, b in pairwise(numbers[:-1]))


def test_it_stops_at_the_first_look_where_the_bound_is_as_small_as_asked_for():
    run = learnt()
    c, bounds = run.certificate, bounds_of(run)
    assert (c.environments, c.until, c.at_most, c.method) == (163, 0.13, 10_000, "betting")
    assert c.bound <= 0.13 < min(b for n, b in bounds.items() if n < 163)
    assert [*bounds] == [100, 110, 121, 134, 148, 163]
    assert bounds[163] == c.bound
    assert (c.delta, c.budget) == (0.05, {"betting": 0.05})  # one δ for all looks
    costs = Costs(run.costs.values[:121])
    assert bounds[121] == learn_finite(costs, 0.05, method="betting").certificate.bound
    assert "environments were added until the bound was at most 0.13, which" in c.sentence


def test_it_ends_with_at_most_so_many_whatever_the_bound():
    c = learnt(at_most=120).certificate
    assert c.environments == c.at_most == 120
    assert c.bound > 0.13
    assert not c.reached
    assert "environments were added while the bound was above 0.13, up to 120" in c.sentence


def test_progress_tells_the_bound_after_each_look():
    told: list[Progress] = []
    learnt(tell=told.append)
    words = "bound 0.1447 at 100 environments, 0.13 asked for"
    assert words in [now.remark for now in told]
    assert (told[-1].done, told[-1].total) == (5 * 163, 5 * 163)
    assert told[-2].total == 5 * 10_000


def test_the_plan_of_a_run_makes_it_again():
    run = learnt()
    again = learn_task(Stopping(), Plan.from_dict(run.plan))
    assert again.certificate == run.certificate


# ---- the store ----------------------------------------------------------------------------------


def test_a_store_changes_nothing_in_the_certificate(tmp_path: Path):
    run = learnt(tmp_path / "s")
    assert run.certificate == learnt().certificate
    assert not {"looks", "declared_looks"} & {*run.costs.origin}
    assert verify(run.save(tmp_path / "run")).certificate == run.certificate


@pytest.mark.parametrize("moment", ["after a look", "before a look", "before its bound"])
def test_an_interrupted_run_goes_on_to_the_same_run_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    learnt(tmp_path / "a").save(tmp_path / "whole")

    def after_a_look(now: Progress) -> None:
        if "at 121 environments" in now.remark:
            raise KeyboardInterrupt

    def at_third(original: Any) -> Any:
        calls: list[object] = []

        def interrupted(*given: Any, **more: Any) -> Any:
            calls.append(given)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return original(*given, **more)

        return interrupted

    with monkeypatch.context() as patch:
        if moment == "before a look":
            patch.setattr(until, "_looked_at", at_third(until._looked_at))
        elif moment == "before its bound":
            patch.setattr(until, "learn_finite", at_third(until.learn_finite))
        with pytest.raises(KeyboardInterrupt):
            learnt(tmp_path / "b", after_a_look if moment == "after a look" else None)
    sizes = read_manifest(tmp_path / "b.rollouts")["size"]
    assert sizes == [121, 5]
    learnt(tmp_path / "b").save(tmp_path / "resumed")
    assert files(tmp_path / "whole") == files(tmp_path / "resumed")


def test_a_resumed_run_may_ask_for_another_bound_or_number(tmp_path: Path):
    """One δ covers every number of environments, so that the target may change."""
    assert learnt(tmp_path / "s", at_most=120).certificate.environments == 120
    c = learnt(tmp_path / "s", at_most=130, until=0.12).certificate
    assert (c.environments, c.at_most, c.delta) == (130, 130, 0.05)
    with pytest.raises(ValueError, match=r"s.rollouts holds rollouts of 130 environments, more"):
        learnt(tmp_path / "s", at_most=125)


def test_no_other_certificate_is_made_from_environments_whose_number_the_costs_chose(
    tmp_path: Path,
):
    learnt(tmp_path / "s")
    [look] = read_manifest(tmp_path / "s.rollouts")["looks"]
    assert (look["environments"], look["delta"]) == (163, 0.05)
    for n, delta in ((163, 0.05), (163, 0.01), (200, 0.01)):
        plan = Plan(environments=n, method="kl", delta=delta, test_environments=0)
        with pytest.raises(ValueError, match="their number depends on their costs"):
            learn_task(Stopping(), plan, Execution(store=tmp_path / "s"))


@pytest.mark.parametrize(
    "other", [{"method": "kl"}, {"method": "betting"}], ids=["kl", "betting, once"]
)
def test_a_store_that_was_looked_at_in_another_way_is_refused(tmp_path: Path, other: Any):
    plan = Plan(environments=110, delta=0.05, test_environments=0, **other)
    learn_task(Stopping(), plan, Execution(store=tmp_path / "s"))
    with pytest.raises(ValueError, match="looked at in another way, after 110 environments"):
        learnt(tmp_path / "s")


@pytest.mark.parametrize("other", ["delta", "prior"])
def test_delta_and_the_prior_stay_the_same(tmp_path: Path, other: str):
    np.save(tmp_path / "p.npy", np.full(5, 0.2))
    learnt(tmp_path / "s", at_most=120)
    fields = {"delta": {"delta": 0.02}, "prior": {"prior": str(tmp_path / "p.npy")}}
    with pytest.raises(ValueError, match="looked at in another way, after 120 environments"):
        learnt(tmp_path / "s", **fields[other])


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"until": None, "at_most": 500}, "at_most is for until"),
        ({"until": 0.0}, "until = 0 must lie strictly between 0 and 1"),
        ({"until": 1.5}, "until = 1.5 must lie strictly between 0 and 1"),
        ({"at_most": 1}, "at_most = 1: at least 2 is needed"),
        ({"method": "kl"}, "until needs the method betting, .* kl does not"),
        ({"method": "best"}, "until needs the method betting, .* best does not"),
        ({"environments": 500}, "until adds environments: at_most"),
        ({"campaign": "c"}, "until keeps rollouts of its own"),
        ({"of": "cvar:0.1"}, "until is for the mean cost, by bets: leave out --of"),
        ({"objective": "pinsker"}, "leave out objective"),
        ({"ball": "kl:0.1"}, "leave out --ball; pbc shift adds it"),
    ],
)
def test_fields_that_do_not_go_with_it_are_refused_in_one_line(fields: Any, words: str):
    with pytest.raises(ValueError, match=words) as refused:
        Plan(**({"until": 0.1} | fields))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", [{"until": 0.1}, {"until": 0.1, "at_most": 50}])
def test_continuous_policies_are_refused(field: Any):
    class Continuous(Stopping):
        policies = None

    with pytest.raises(ValueError, match="until is for a list of policies: a search would have"):
        learn_task(Continuous(), Plan(test_environments=0, **field))
