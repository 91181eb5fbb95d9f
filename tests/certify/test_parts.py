"""Bounds for parts of the world that were declared beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import hash_file, json_bytes, seal
from pacbayes_control.certify.parts import CertifiedPart, Part, costs_in, parsed_parts
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.learn.finite import learn_in_parts, learn_tilted
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.rollouts import Execution, RolloutError
from pacbayes_control.rollouts.again import roll_out_again
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.parts import check_declared
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


RATE, SLICES = 0.3, 8


def slices(seed: int) -> Costs:
    """One policy that fails with the same probability everywhere, in winds from 0 to 8."""
    rng = np.random.default_rng(seed)
    fails = rng.random((400, 1)) < RATE
    wind = rng.uniform(0, SLICES, 400)  # how many environments are in a part is random too
    return Costs(fails, origin={"graded": False}, described={"wind": wind})


def between(low: float, high: float) -> str:
    return f"wind>={low}&wind<{high}"


def is_caught(wrong: list[bool], level: float) -> bool:
    """Whether bounds are wrong more often than δ allows, by more than chance explains."""
    return np.mean(wrong) > binom.ppf(0.9999, len(wrong), level) / len(wrong)


def test_all_bounds_hold_at_once_as_often_as_is_paid_for():
    wrong, unpaid = [], []
    for seed in range(sized(100, 4000)):
        costs = slices(seed)
        parts = [between(i, i + 1) for i in range(SLICES)]
        c = learn_in_parts(costs, parts, 0.2).certificate
        wrong.append(min(c.bound, *(part.bound for part in c.parts)) < RATE)
        # the broken variant: each bound with all of δ
        here = [costs_in(Part.parse(part), costs)[1] for part in parts]
        alone = [learn_finite(each, 0.2).certificate.bound for each in (costs, *here) if each]
        unpaid.append(min(alone) < RATE)
    assert not is_caught(wrong, 0.2)
    assert is_caught(unpaid, 0.2)


def test_a_bound_for_a_part_holds_for_a_policy_that_was_chosen_by_the_costs():
    wrong, unpaid = [], []
    for seed in range(sized(100, 4000)):
        rng = np.random.default_rng(seed)
        described, fails = {"wind": rng.random(80)}, rng.random((80, 40)) < RATE
        costs = Costs(fails, origin={"graded": False}, described=described)
        run = learn_in_parts(costs, ["wind<0.5"], 0.4, share=0.2)
        wrong.append(run.certificate.parts[0].bound < RATE)
        # the broken variant: as if the best of the policies were the only one
        inside = described["wind"] < 0.5
        best = fails[inside].sum(axis=0).min()
        unpaid.append(beta.ppf(0.8, best + 1, inside.sum() - best) < RATE)
    assert not is_caught(wrong, 0.2)
    assert is_caught(unpaid, 0.2)


def test_the_best_part_chosen_after_a_look_is_too_low_too_often():
    """The broken variant: of many intervals, the one that looks best, at the share of one."""
    wrong = []
    for seed in range(sized(100, 1000)):
        costs = slices(seed)
        wind, fails = costs.described["wind"], costs.values[:, 0]
        means = [fails[(wind >= i / 2) & (wind < (i + 1) / 2)].mean() for i in range(2 * SLICES)]
        best = int(np.argmin(means)) / 2
        [part] = learn_in_parts(costs, [between(best, best + 0.5)], 0.2).certificate.parts
        wrong.append(part.bound < RATE)
    assert is_caught(wrong, 0.2)


@pytest.mark.parametrize("method", ["occam", "kl"])
def test_a_part_without_fractions_is_as_graded_as_the_whole_world(method: str, tmp_path: Path):
    costs = windy()
    values = np.where(costs.described["wind"][:, None] < 8, costs.values, 0.5)
    assert costs.values.dtype == np.uint8
    mixed = Costs(values, described=costs.described)  # of which nothing is declared
    run = learn_in_parts(mixed, PARTS, method=method)
    declared = Costs(values, origin={"graded": True}, described=costs.described)
    same = learn_in_parts(declared, PARTS, method=method).certificate.parts
    assert run.certificate.parts == same
    verify(run.save(tmp_path / "run"))


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
        ("wind<strong", "compare wind with a number"),
        ("wind!=nan", "compare wind with a number"),
        ("wind<inf", "compare wind with a number"),
        ("wind<1e999", "compare wind with a number"),
        ("wind<٨", "compare wind with a number"),
        ("ground<ice", "is a word"),
        ("&".join(["wind<8"] * 30), "longer than 200 characters"),
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
        ({"delta": 0.004}, "different shares"),
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


@pytest.mark.parametrize("delta", [0.009, 0.0, -0.001])
def test_parts_spend_no_more_than_their_share(delta: float, tmp_path: Path):
    run = learn_in_parts(windy(), PARTS)
    parts = tuple(replace(part, delta=delta) for part in run.certificate.parts)
    with pytest.raises(InvalidCertificate, match="more than their share"):
        verify(replace(run, certificate=replace(run.certificate, parts=parts)).save(tmp_path / "r"))


def test_too_many_parts_in_a_file_are_refused(tmp_path: Path):
    run = learn_in_parts(windy(), PARTS)
    first = run.certificate.parts[0]
    many = tuple(replace(first, words=f"wind < {i}", delta=1e-5) for i in range(101))
    with pytest.raises(InvalidCertificate, match="at most 100"):
        verify(replace(run, certificate=replace(run.certificate, parts=many)).save(tmp_path / "r"))


def with_part(run: Run) -> Run:
    """The same run, with a part that was added to its certificate by hand, at half of δ."""
    c, part = run.certificate, CertifiedPart("wind < 8", 320, 0.0, 0.0, run.certificate.delta / 2)
    budget = {name: share / 2 for name, share in c.budget.items()}
    forged = replace(c, parts=(part,), budget=budget | {"parts": c.delta / 2})
    return replace(run, certificate=forged)


@pytest.mark.parametrize(
    "make",
    [
        lambda: learn_finite(windy(graded=True), method="betting"),
        lambda: learn_tilted(windy(graded=True), Ball("kl", 0.05)),
        lambda: under_shift(learn_finite(windy()), Ball("kl", 0.05)),
        lambda: learn_finite(windy(graded=True), of="cvar:0.1"),
        lambda: learn_task(
            FunctionTask(rollout, draw, "windy", prior=DiagonalGaussian([5.0], 1.0), graded=False),
            Plan(environments=20, draws=2, search=SearchSettings(steps=2, pairs=2)),
        ),
    ],
    ids=["betting", "tilted", "shift", "cvar", "posterior"],
)
def test_a_certificate_that_has_no_parts_cannot_be_given_some(make, tmp_path: Path):
    with pytest.raises(InvalidCertificate, match="mean cost of listed policies"):
        verify(with_part(make()).save(tmp_path / "run"))


def test_a_choice_among_trials_is_not_paid_for_by_a_part():
    certificate = replace(learn_in_parts(windy(), PARTS).certificate, candidates=2)
    with pytest.raises(InvalidCertificate, match="listed policies"):
        check_declared(certificate)
    costs = windy().with_origin(candidates=2)
    with pytest.raises(ValueError, match="not for trials of an evaluation log"):
        learn_in_parts(costs, PARTS)


def test_a_certificate_with_parts_is_not_moved_under_a_shift():
    with pytest.raises(ValueError, match="parts of the world, which a ball says nothing of"):
        under_shift(learn_in_parts(windy(), PARTS), Ball("kl", 0.05))


def test_no_condition_of_a_part_is_hidden_from_the_sentence():
    part = " & ".join(["wind >= 0"] * 14 + ["wind < 0.001"])
    sentence = learn_in_parts(windy(), [part]).certificate.sentence
    assert f"“{part}”" in sentence


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


def test_environments_that_were_not_drawn_are_noticed_when_they_are_drawn_again(tmp_path: Path):
    run = learn_task(TASK, Plan(environments=100, parts=("wind<9",), test_environments=0))
    others = {"wind": run.costs.described["wind"][::-1]}
    known = {"origin": run.costs.origin, "parameters": run.costs.parameters}
    costs = Costs(run.costs.values, described=others, **known)
    forged = learn_in_parts(costs, ["wind<9"])
    environments = TASK.environments(100, stream="train")
    assert roll_out_again(run, TASK, environments, count=3).different == 0
    with pytest.raises(AlteredRun, match="not what its task draws"):
        roll_out_again(forged, TASK, environments, count=3)
    told = verify(forged.save(tmp_path / "run")).told
    assert "that environments.csv is what was drawn (see --again)" in told


def test_parts_of_a_table_are_taken_as_told(tmp_path: Path):
    run = learn_in_parts(windy(), PARTS)
    told = verify(run.save(tmp_path / "run")).told
    assert "that the parts of the world were declared before the costs were seen" in told
    assert any("environments.csv was known before the rollouts" in words for words in told)


def test_a_share_that_a_look_cannot_pay_is_refused_before_any_rollout(tmp_path: Path):
    def never(policy, environment):  # noqa: ARG001
        raise AssertionError("rolled out")

    task = FunctionTask(never, draw, "windy", policies=np.array([[5.0]]))
    plan = Plan(environments=100, looks=(100, 200), campaign=str(tmp_path / "campaign"))
    with pytest.raises(ValueError, match=r"parts_delta = 0\.006 overspends"):
        learn_task(task, replace(plan, parts=("wind<9",), parts_delta=0.006))


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


def test_a_part_with_too_few_environments_is_told_before_any_rollout():
    def never(policy, environment):  # noqa: ARG001
        raise AssertionError("rolled out")

    task, told = FunctionTask(never, draw, "windy", policies=np.array([[5.0]])), []
    with pytest.raises(RolloutError):
        learn_task(task, Plan(environments=50, parts=("wind<11",)), Execution(warning=told.append))
    assert not told
    with pytest.raises(RolloutError):
        learn_task(task, Plan(environments=50, parts=("wind>11",)), Execution(warning=told.append))
    assert told == [
        "the part wind > 11 has 0 of the 50 environments: it will have no bound below 1"
    ]


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


@given(
    values=st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=6),
    sign=st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
    at=st.integers(0, 5),
    off=st.integers(-1, 1),
)
def test_whole_numbers_are_compared_exactly(values: list[int], sign: str, at: int, off: int):
    value = values[at % len(values)] + off
    part = Part.parse(f"seed{sign}{value}")
    by_hand = [
        {"<": x < value, ">": x > value, "=": x == value}.get(sign[0], x != value)
        or (sign in ("<=", ">=") and x == value)
        for x in values
    ]
    assert part.holds({"seed": np.array(values)}).tolist() == by_hand
    assert Part.parse(str(part)) == part
