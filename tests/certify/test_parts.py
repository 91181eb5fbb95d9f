"""Bounds for parts of the world that were declared beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import hash_file, json_bytes, seal
from pacbayes_control.certify.parts import Part, parsed_parts
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan, learn_task
from pacbayes_control.learn.finite import learn_in_parts
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.verify import InvalidCertificate, verify
from sizes import sized

PARTS = ["wind<8", "wind>=8"]


def windy(n: int = 400, seed: int = 0, graded: bool = False, policies: int = 3) -> Costs:
    rng = np.random.default_rng(seed)
    wind = rng.uniform(0, 10, n)
    rate = np.where(wind < 8, 0.05, 0.5)[:, None] + np.linspace(0, 0.1, policies)
    values = (rng.random((n, policies)) < rate).astype(float)
    origin = {"graded": graded}
    return Costs(values * (0.6 if graded else 1), origin=origin, described={"wind": wind})


@pytest.mark.parametrize("method", ["occam", "kl", "kl-maurer", "pinsker"])
@pytest.mark.parametrize("graded", [False, True])
def test_every_method_is_verified(method: str, graded: bool, tmp_path: Path):
    run = learn_in_parts(windy(graded=graded), PARTS, method=method)
    calm, rough = run.certificate.parts
    assert calm.environments + rough.environments == 400
    assert calm.bound < run.certificate.bound < rough.bound
    certificate = verify(run.save(tmp_path / "run")).certificate
    assert certificate.parts == run.certificate.parts
    assert "“wind < 8”" in certificate.sentence


def test_the_bound_is_the_exact_tail_of_the_environments_in_the_part():
    costs = windy()
    certificate = learn_in_parts(costs, PARTS, 0.05, share=0.02).certificate
    for part, inside in zip(
        certificate.parts, (costs.described["wind"] < 8, costs.described["wind"] >= 8), strict=True
    ):
        fails, n = costs.values[inside, certificate.policy].sum(), inside.sum()
        by_hand = beta.ppf(1 - 0.01 / 3, fails + 1, n - fails)
        assert part.bound == pytest.approx(by_hand, abs=1e-9)
        assert part.delta == pytest.approx(0.01)
    assert certificate.budget == pytest.approx({"parts": 0.02, "occam": 0.03})


def coverage(level: float, sets: int) -> float:
    """How often a bound for a part, at a share of δ = level, is below its truth, 0.3 or 0.05.

    The part is small, its size random, and the policy chosen among several equal ones.
    """
    wrong = 0
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        wind = rng.random(40)
        rate = np.where(wind < 0.5, 0.05, 0.3)[:, None]
        values = rng.random((40, 4)) < np.broadcast_to(rate, (40, 4))
        costs = Costs(values, origin={"graded": False}, described={"wind": wind})
        parts = learn_in_parts(costs, ["wind<0.5", "wind>=0.5"], level).certificate.parts
        wrong += parts[0].bound < 0.05 or parts[1].bound < 0.3
    return wrong / sets


def test_bounds_for_parts_are_too_low_no_more_often_than_paid_for():
    sets = sized(400, 4000)
    most = binom.ppf(0.9999, sets, 0.2) / sets
    assert coverage(0.2, sets) <= most


def test_the_best_part_chosen_after_a_look_is_too_low_too_often():
    """The broken variant: of many intervals, the one that looks best, at the share of one."""
    wrong, sets = 0, 400
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        wind = rng.random(200)
        costs = Costs(
            rng.random((200, 1)) < 0.3, origin={"graded": False}, described={"wind": wind}
        )
        means = [costs.values[(wind >= i / 20) & (wind < (i + 1) / 20)].mean() for i in range(20)]
        best = int(np.argmin(means))
        [part] = learn_in_parts(
            costs, [f"wind>={best / 20}&wind<{(best + 1) / 20}"], 0.2
        ).certificate.parts
        wrong += part.bound < 0.3
    assert wrong / sets > binom.ppf(0.9999, sets, 0.2) / sets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no part of the world"),
        ("wind", "no part of the world"),
        ("wind<", "no part of the world"),
        ("<8", "no part of the world"),
        ("wind<8<9", "no part of the world"),
        ("wind<8&", "no part of the world"),
        ("wind==8", "no part of the world"),
        ("wind<\x1b8", "no part of the world"),
        ("rain<8", "no parameter 'rain', but wind"),
        ("wind<strong", "is a number"),
        ("ground<ice", "is a word"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(text: str, words: str):
    costs = Costs([[0], [1]], described={"wind": [1.0, 9.0], "ground": ["ice", "mud"]})
    with pytest.raises(ValueError, match=words):
        learn_in_parts(costs, [text])


def test_a_part_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        parsed_parts(["wind<8", "wind < 8"])


def test_costs_that_do_not_tell_what_was_drawn_have_no_parts():
    with pytest.raises(ValueError, match="none that are recorded"):
        learn_in_parts(Costs([[0], [1]]), ["wind<8"])


def test_a_part_without_environments_promises_nothing(tmp_path: Path):
    run = learn_in_parts(windy(), ["wind>99", "wind<8"])
    assert run.certificate.parts[0].bound == 1
    verify(run.save(tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bound": 0.01}, "is not proven"),
        ({"environments": 5}, "not as stated"),
        ({"empirical_cost": 0.0}, "not as stated"),
        ({"words": "wind < 7"}, "not as stated"),
        ({"words": "rain < 7"}, "no parameter"),
        ({"delta": 0.009}, "more than their share"),
        ({"delta": 0.0}, "more than their share"),
    ],
)
def test_a_forged_part_is_refused(change: dict, words: str, tmp_path: Path):
    run = learn_in_parts(windy(), PARTS)
    first, *others = run.certificate.parts
    forged = replace(run.certificate, parts=(replace(first, **change), *others))
    with pytest.raises(InvalidCertificate, match=words):
        verify(replace(run, certificate=forged).save(tmp_path / "run"))


def test_parts_that_nobody_paid_for_are_refused(tmp_path: Path):
    run = learn_in_parts(windy(), PARTS)
    forged = replace(run.certificate, budget={"occam": 0.01})
    with pytest.raises(InvalidCertificate, match="paid for"):
        verify(replace(run, certificate=forged).save(tmp_path / "run"))


def test_a_name_cannot_forge_the_sentence(tmp_path: Path):
    name = "wind” and nothing else; it never fails at all in those with “x"
    costs = Costs(
        windy().values, origin={"graded": False}, described={name: windy().described["wind"]}
    )
    run = learn_in_parts(costs, [f"{name}<8"])
    assert run.certificate.sentence.count("“") == 1
    verify(run.save(tmp_path / "run"))


def test_words_of_a_part_in_a_file_are_checked(tmp_path: Path):
    folder = learn_in_parts(windy(), PARTS).save(tmp_path / "run")
    record = json.loads((folder / "certificate.json").read_text())
    record["parts"][0]["words"] = "wind<8"
    (folder / "certificate.json").write_bytes(json_bytes(record))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["certificate.json"] = hash_file(folder / "certificate.json")
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(ValueError, match="bad parts"):
        Run.load(folder)


def draw(rng):
    return {"wind": rng.uniform(0, 10)}


def rollout(policy, environment):
    return float(environment["wind"] > policy[0])


TASK = FunctionTask(rollout, draw, "windy", policies=np.array([[5.0], [9.0]]), graded=False)


def test_a_plan_declares_parts_and_the_run_keeps_it(tmp_path: Path):
    plan = Plan(environments=100, parts=("wind<9", "wind>=9"))
    run = learn_task(TASK, plan)
    assert [part.empirical_cost for part in run.certificate.parts] == [0.0, 1.0]
    assert Plan.from_dict(run.plan) == replace(plan, test_environments=0)
    assert any("parts of the world" in told for told in verify(run.save(tmp_path / "r")).told)


def test_a_wrong_name_is_told_before_any_rollout():
    def never(policy, environment):  # noqa: ARG001
        raise AssertionError("rolled out")

    task = FunctionTask(never, draw, "windy", policies=np.array([[5.0]]))
    with pytest.raises(ValueError, match="no parameter 'rain'"):
        learn_task(task, Plan(environments=100, parts=("rain<9",)))


@pytest.mark.parametrize(
    "fields",
    [
        {"ball": "kl:0.08"},
        {"until": 0.1, "environments": 1000},
        {"of": "quantile:0.9"},
        {"method": "best"},
        {"method": "betting"},
        {"parts_delta": 0.02},
        {"parts_delta": 0.001, "parts": ()},
    ],
)
def test_fields_that_do_not_go_with_parts_are_refused(fields: dict):
    with pytest.raises(ValueError, match="parts"):
        Plan(**({"parts": ("wind<9",)} | fields))


def test_conditions_are_joined_by_and():
    part = Part.parse("wind<8&ground=ice")
    described = {"wind": np.array([1.0, 1.0, 9.0]), "ground": np.array(["ice", "mud", "ice"])}
    assert part.holds(described).tolist() == [True, False, False]
