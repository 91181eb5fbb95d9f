"""Looks at a growing campaign: every one is paid for, by every method, and told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint

from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import Basis, Provenance, budget_for, issue
from pacbayes_control.certify.looks import Look, describe, in_words, looks_from
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import learn_best, learn_constrained, learn_finite
from pacbayes_control.learn.finite import compare_methods, learn_tilted
from pacbayes_control.report.sections import budget_rows, side_by_side

POLICIES = np.arange(6.0)[:, None]
FAILS = np.random.default_rng(5).random((300, 6)) < [0.3, 0.1, 0.5, 0.2, 0.4, 0.05]


def grown(
    n: int = 300, looks: Any = (), policies: int = 6, graded: bool = False, **more: Any
) -> Costs:
    """The first environments and policies of a campaign, after some looks: (N, L, δ) each."""
    records = [
        {"environments": m, "policies": digest(count), "count": count, "delta": delta}
        for m, count, delta in looks
    ]
    origin = ({"looks": records} if records else {}) | more
    values = FAILS[:n, :policies] * (0.5 if graded else 1.0)
    return Costs(values, origin=origin, parameters=POLICIES[:policies])


def digest(policies: int) -> str:
    return Costs(FAILS[:, :policies], parameters=POLICIES[:policies]).digests["policies"]


def estimated() -> Ball:
    sample = np.array(["wet"] * 60 + ["dry"] * 40)
    return ball_of_samples(sample, sample[::-1], 0.03, cells=["wet", "dry"])


def tilted(costs: Costs, delta: float) -> Run[Any]:
    return learn_tilted(costs, Ball("kl", 0.05), delta)


def constrained(costs: Costs, delta: float) -> Run[Any]:
    return learn_constrained(
        costs, delta, constraints=[LinearConstraint([1, 0, 0, 0, 0, 0], 0.1)], solver="clarabel"
    )


def compared(costs: Costs, delta: float) -> Run[Any]:
    limits = [LinearConstraint([1, 0, 0, 0, 0, 0], 0.1)]
    return compare_methods(costs, delta, method="pinsker", constraints=limits).chosen


METHODS: dict[str, Callable[[Costs, float], Run[Any]]] = {
    "kl": learn_finite,
    "occam": lambda costs, delta: learn_finite(costs, delta, method="occam"),
    "pinsker": lambda costs, delta: learn_finite(costs, delta, method="pinsker"),
    "best": learn_best,
    "tilted": tilted,
    "constrained": constrained,
    "another theorem": compared,
    "shifted": lambda costs, delta: under_shift(learn_finite(costs, delta), Ball("kl", 0.05)),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_adds_the_delta_of_earlier_looks_to_its_own(method: str):
    learn, graded = METHODS[method], method == "tilted"
    alone = learn(grown(graded=graded), 0.01).certificate
    looks = [(100, 6, 0.02), (200, 6, 0.005)]
    c = learn(grown(looks=looks, graded=graded), 0.01).certificate
    assert c.delta == pytest.approx(0.035, rel=1e-12)
    assert c.budget["earlier looks"] == pytest.approx(0.025, rel=1e-12)
    assert c.bound == pytest.approx(alone.bound, rel=1e-9)  # the theorem has the δ of this look
    assert [look.delta for look in c.looks] == [0.02, 0.005, 0.01]


@pytest.mark.parametrize("method", METHODS)
def test_looks_that_were_declared_share_one_delta_by_every_method(method: str):
    learn, graded = METHODS[method], method == "tilted"
    alone = learn(grown(graded=graded), 0.005).certificate
    c = learn(grown(graded=graded, declared_looks=[300, 600]), 0.01).certificate
    assert c.delta == 0.01
    assert c.budget["other looks"] == pytest.approx(0.005, rel=1e-12)
    assert c.bound == pytest.approx(alone.bound, rel=1e-9)
    assert [(look.environments, look.delta) for look in c.looks] == [(300, 0.005)]
    assert tuple(c.declared_looks) == (300, 600)


@pytest.mark.parametrize("method", ["kl", "tilted"])
def test_an_estimated_shift_is_paid_for_beside_the_looks(method: str):
    """The ball's own δ is not a part of the look's, and is not shared with other looks."""
    ball, kind = estimated(), method == "tilted"
    costs = grown(looks=[(100, 6, 0.02)], graded=kind)
    found = compare_methods(costs, 0.01, ball=ball)
    c = next(run.certificate for run in found.runs if run.certificate.method == method)
    assert c.delta == pytest.approx(0.06)
    assert (c.budget["shift"], c.budget["earlier looks"]) == (0.03, 0.02)
    assert c.looks[-1].delta == pytest.approx(0.01)


def test_a_look_whose_delta_nobody_recorded_counts_as_this_one():
    c = learn_finite(grown(looks=[(100, 6, None), (200, 6, 0.002)]), 0.01).certificate
    assert c.delta == pytest.approx(0.022)
    assert c.looks[0].delta is None


def test_a_look_that_is_repeated_is_one_look_and_gives_the_same_certificate():
    first = learn_finite(grown(200), 0.01).certificate
    second = learn_finite(grown(300, looks=[(200, 6, 0.01)]), 0.01).certificate
    so_far = [(200, 6, 0.01), (300, 6, 0.01)]
    assert learn_finite(grown(200, looks=so_far), 0.01).certificate == first
    assert learn_finite(grown(300, looks=so_far), 0.01).certificate == second
    assert learn_finite(grown(200, looks=[(200, 6, None)]), 0.01).certificate == first
    assert learn_finite(grown(300, looks=so_far), 0.02).certificate.delta == pytest.approx(0.04)


def test_costs_that_were_read_before_a_look_at_them_are_one_look_with_it():
    """Unless the campaign was looked at in between, when it was larger."""
    read = [(200, 6, None), (200, 6, 0.01)]
    first = learn_finite(grown(200), 0.01).certificate
    assert learn_finite(grown(200, looks=read), 0.01).certificate == first
    second = learn_finite(grown(300, looks=read), 0.01).certificate
    assert [look.delta for look in second.looks] == [0.01, 0.01]
    with pytest.raises(ValueError, match="was looked at after 300 environments"):
        learn_finite(grown(200, looks=[(200, 6, None), (300, 6, 0.01)]), 0.01)


def test_a_certificate_without_other_looks_is_as_it_was():
    c = learn_finite(grown()).certificate
    record = c.to_dict()
    assert record["format"] == 9
    assert "look" not in c.sentence


def test_no_confidence_is_left_where_the_looks_have_spent_it():
    looks = [(100 + i, 6, 0.3) for i in range(3)]
    with pytest.raises(ValueError, match=r"delta = 0.2 and the 0.9 of earlier looks at this camp"):
        learn_finite(grown(looks=looks), 0.2)
    assert learn_finite(grown(looks=looks), 0.05).certificate.delta == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        (lambda: grown(200, [(300, 6, 0.01)]), "was looked at after 300 environments: a later"),
        (lambda: grown(300, [(100, 6, 0.01)], 4), "looked at with 6 policies, and they are not"),
        (lambda: grown(300, [(100, 4, 0.01)]), "2 policies were added after the campaign was loo"),
        (
            lambda: grown(300, [(100, 4, 0.01)], policies_unseen="yes"),
            "only if they were made without knowledge of its environments and their costs",
        ),
        (lambda: grown(declared_looks=[100, 200]), "look at 300 environments was not declared: .*"),
        (
            lambda: grown(300, [(250, 6, 0.005)], declared_looks=[200, 300]),
            "a look at 250 environments was not declared: the looks .* are at 200 and 300",
        ),
        (
            lambda: grown(300, [(200, 6, 0.02)], declared_looks=[200, 300]),
            "at 200 environments spent 0.02 of delta, more than the share 0.005",
        ),
        (
            lambda: grown(300, [(300, 6, 0.001)], declared_looks=[200, 300]),
            "each declared look is one look, and this is another at 300 environments",
        ),
        (
            lambda: Costs(FAILS, origin=grown(looks=[(100, 6, 0.01)]).origin),
            "only a list of policies with their parameters can be looked at more than once",
        ),
    ],
)
def test_a_look_that_no_delta_can_pay_for_is_refused(costs: Callable[[], Costs], words: str):
    with pytest.raises(ValueError, match=words):
        learn_finite(costs(), 0.01)


def test_another_list_of_as_many_policies_is_refused():
    origin = grown(looks=[(100, 6, 0.01)]).origin
    other = Costs(FAILS, origin=origin, parameters=POLICIES[::-1])
    with pytest.raises(ValueError, match="they are not the first of these"):
        learn_finite(other)


def test_policies_may_be_added_if_they_are_declared_to_be_unseen():
    looks = [(100, 4, 0.01), (100, 6, 0.01)]
    c = learn_finite(grown(300, looks, policies_unseen=True), 0.01).certificate
    assert c.sentence.endswith(
        "; this is the third look at a growing campaign, after 100 (with 4 policies) and 100 "
        "environments, all paid for in δ."
    )


GOOD = {"environments": 100, "policies": "0" * 64, "count": 6, "delta": 0.01}


@pytest.mark.parametrize(
    "record",
    [
        {},
        "all",
        [1],
        [{}],
        [GOOD] * 101,
        [GOOD | {"more": 1}],
        [{name: value for name, value in GOOD.items() if name != "delta"}],
        [GOOD | {"environments": 1}],
        [GOOD | {"environments": True}],
        [GOOD | {"environments": 100.0}],
        [GOOD | {"environments": 2**62}],
        [GOOD | {"policies": "0" * 63}],
        [GOOD | {"policies": "A" * 64}],
        [GOOD | {"policies": "0" * 64 + "\n"}],
        [GOOD | {"count": 0}],
        [GOOD | {"count": 2**53}],
        [GOOD | {"delta": 0}],
        [GOOD | {"delta": 1}],
        [GOOD | {"delta": -0.01}],
        [GOOD | {"delta": float("nan")}],
        [GOOD | {"delta": "0.01"}],
        [GOOD | {"delta": False}],
    ],
    ids=lambda record: str(record)[:60],
)
def test_a_strangers_list_of_looks_is_checked(record: Any):
    assert looks_from([GOOD, GOOD | {"delta": None}])[0] == Look(**GOOD)
    with pytest.raises(ValueError, match="looks"):
        learn_finite(grown().with_origin(looks=record))


@pytest.mark.parametrize(
    "record", [{}, "300", [300], [300, 300], [600, 300], [1, 300], [300.0, 600], [True, 300], None]
)
def test_a_strangers_declaration_is_checked(record: Any):
    with pytest.raises(ValueError, match="two or more numbers of environments, each larger"):
        learn_finite(grown(declared_looks=record))


def test_a_theorem_that_does_not_know_of_looks_is_refused():
    costs, prior, budget = grown(looks=[(100, 6, 0.01)]), Categorical.uniform(6), Budget(0.05)
    budget.spend("kl")
    with pytest.raises(ValueError, match="this certificate does not pay for it"):
        issue(Basis(costs, prior, prior, budget, Provenance("none")), "kl")


def test_the_budget_of_a_look_cannot_be_overspent():
    budget = budget_for(grown(looks=[(100, 6, 0.02)]), 0.01)
    assert budget.left == pytest.approx(0.01)
    with pytest.raises(ValueError, match="overspends"):
        budget.spend("kl", 0.011)
    with pytest.raises(ValueError, match="already"):
        budget.spend("earlier looks", 0.001)
    small = budget_for(grown(looks=[(100, 6, 0.7)]), 1e-7)  # far below the rounding of the sum
    small.spend("kl")
    assert small.spent["kl"] == pytest.approx(1e-7, rel=1e-8)


def test_a_certificate_with_looks_survives_json():
    for costs in (grown(looks=[(100, 6, None)]), grown(declared_looks=[300, 600])):
        c = learn_finite(costs).certificate
        record = json.loads(json.dumps(c.to_dict()))
        assert record["format"] == 9
        assert Certificate.from_dict(record) == c


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"looks": [], "format": 5}, "bad looks|has no"),
        ({"looks": [{"environments": 100}]}, "looks has other fields than expected"),
        ({"format": 4}, "format 4 has no "),
        ({"declared_looks": [400, 600]}, "among those declared"),
        ({"declared_looks": [300]}, "two or more numbers"),
        ({"format": 10}, "format 1 to 9"),
    ],
)
def test_a_strangers_certificate_with_looks_is_checked(change: dict[str, Any], words: str):
    record = learn_finite(grown(looks=[(100, 6, 0.01)])).certificate.to_dict()
    with pytest.raises(ValueError, match=words):
        Certificate.from_dict(json.loads(json.dumps(record)) | change)


def test_the_sentence_tells_which_look_it_is():
    looks = [Look(n, "0" * 64, 6, 0.01) for n in range(100, 1400, 100)]
    assert describe(looks[:2], ()) == (
        "this is the second look at a growing campaign, after 100 environments, all paid for in δ"
    )
    assert "the number 13 look at a growing campaign, after 100, 200, 300, 400, 500, 600, 700 " in (
        words := describe(looks, ())
    )
    assert words.endswith("700 and 5 more environments, all paid for in δ")
    assert describe(looks[9:10], (1000, 20000)) == (
        "this is the first of 2 looks at a growing campaign that were declared beforehand, at "
        "1,000 and 20,000 environments, all paid for in δ"
    )
    assert in_words([7]) == "7"


def test_a_report_shows_the_share_of_looks_and_compares_at_this_looks_own():
    run = learn_finite(grown(looks=[(100, 6, 0.02)]), 0.01, method="kl")
    names = [name for name, *_ in budget_rows(run.certificate)]
    assert names == ["earlier looks", "kl"]
    for costs in (run.costs, grown(declared_looks=[300, 600])):
        c = learn_finite(costs, 0.01).certificate
        methods, _ = side_by_side(learn_finite(costs, 0.01))
        assert {other.delta for other in methods} == {c.delta}
        assert any(other == c for other in methods)


def test_looks_are_plain_records():
    assert asdict(Look(**GOOD)) == GOOD
