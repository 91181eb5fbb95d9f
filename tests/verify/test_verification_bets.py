"""Certificates by bets, of quantiles and of CVaR: recomputed, and refused if altered."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.bounds.betting import GRID
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.statistics import Statistic
from pacbayes_control.learn.finite import learn_finite
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.bets import highest_mean, log_regret, proven_by_bets
from pacbayes_control.verify.distribution import smirnov_tail
from pacbayes_control.verify.intervals import iv

KINDS: dict[str, dict[str, Any]] = {
    "occam": {"method": "occam"},
    "betting": {"method": "betting"},
    "quantile": {"of": "quantile:0.8"},
    "cvar": {"of": "cvar:0.3"},
    "function": {"of": Statistic("mean", 0.0, 0.002)},
}


def graded(n: int = 200, policies: int = 4, seed: int = 0) -> Costs:
    rng = np.random.default_rng(seed)
    costs = (rng.beta(1, 3, (n, 1)) + rng.beta(1, 4, (n, policies))) / 2
    return Costs(costs, sites=[f"site {i}" for i in range(n)])


def restated(run: Run[Any], **changes: Any) -> Run[Any]:
    return dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, **changes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delta", [0.3, 0.01, 1e-9])
def test_each_kind_is_recomputed(kind: str, delta: float, tmp_path: Path):
    how = KINDS[kind]
    if kind == "function":
        how = {"of": Statistic("mean", 0.0, delta / 5)}
    run = learn_finite(graded(seed=len(kind)), delta, **how)
    verification = verify(run.save(tmp_path / "run"))
    assert verification.recomputed <= run.certificate.bound <= verification.recomputed + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_that_is_too_low_is_refused(kind: str, tmp_path: Path):
    run = learn_finite(graded(), **KINDS[kind])
    lower = restated(run, bound=run.certificate.bound * (1 - 1e-3))
    with pytest.raises(InvalidCertificate, match=f"is below what {run.certificate.method} gives"):
        verify(lower.save(tmp_path / "run"))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("occam", {"grid": None}, "on a grid of 8192 candidates"),
        ("occam", {"grid": 16384}, "on a grid of 8192 candidates"),
        ("occam", {"graded": False}, "wrong about whether costs are graded"),
        ("occam", {"of": "cvar:0.3"}, "on a grid of 8192 candidates"),
        ("occam", {"of": "quantile:0.8"}, "on a grid of 8192 candidates"),
        ("occam", {"stake": 1.0}, "a stake is for betting alone"),
        ("occam", {"margin": 0.1}, "a margin belongs to a distribution function"),
        ("occam", {"until": 0.5, "at_most": 200}, "by the method betting alone"),
        ("occam", {"exceeded": 0.2}, "quantiles in a ball"),
        ("betting", {"stake": None}, "a stake is for betting alone"),
        ("betting", {"stake": -1.0}, "a stake is for betting alone"),
        ("betting", {"stake": 100.0}, "is below what betting gives"),
        ("betting", {"of": "quantile:0.8"}, "the method occam certifies the quantile"),
        ("quantile", {"of": "quantile:0.9"}, "is below what occam gives"),
        ("quantile", {"margin": 0.01}, "the margin 0.01 of the distribution function is not"),
        ("cvar", {"threshold": 0.33}, "the threshold of cvar is one of"),
        ("cvar", {"threshold": None}, "on a grid of 8192 candidates"),
        ("cvar", {"of": "cvar:0.2"}, "is below what occam gives"),
        ("function", {"margin": 0.02}, "of the distribution function is not proven"),
    ],
)
def test_an_altered_certificate_is_refused(
    kind: str, change: dict[str, Any], message: str, tmp_path: Path
):
    run = restated(learn_finite(graded(), **KINDS[kind]), **change)
    with pytest.raises(InvalidCertificate, match=message):
        verify(run.save(tmp_path / "run"))


def test_a_table_sorted_by_cost_has_the_same_bound_as_in_any_other_order():
    """By the names of its sites; without names, by a permutation of its own."""
    costs = graded()
    order = np.argsort(costs.values[:, 0])
    names = [costs.sites[i] for i in order]
    same = Costs(costs.values[order], sites=names)
    bounds = {learn_finite(c).certificate.bound for c in (costs, same)}
    assert len(bounds) == 1
    nameless = Costs(costs.values[order])
    assert sorted(nameless.order) == list(range(200))
    assert not np.array_equal(nameless.order, np.arange(200))
    assert not np.array_equal(nameless.order, Costs(graded(seed=1).values).order)


def test_environments_of_a_stream_keep_their_order():
    place: Any = {"stream": "train", "seed": 0, "start": 5, "stop": 205}
    assert np.array_equal(Costs(graded().values, origin=place).order, np.arange(200))


def test_costs_declared_as_graded_are_bet_on_also_if_all_are_0_or_1(tmp_path: Path):
    outcomes = (np.random.default_rng(2).random((100, 3)) < 0.2).astype(float)
    declared = learn_finite(Costs(outcomes, origin={"graded": True}))
    c = verify(declared.save(tmp_path / "graded")).certificate
    assert c.grid == GRID
    assert "has an expected cost of at most" in c.sentence
    assumed, binary = (
        learn_finite(Costs(outcomes, origin=origin)).certificate
        for origin in ({}, {"graded": False})
    )
    assert assumed.grid is None
    assert assumed.bound == binary.bound
    assert assumed.sentence.endswith("; it is assumed that trials only succeed or fail.")
    assert "assumed" not in binary.sentence


def test_costs_that_were_declared_to_be_0_or_1_are_no_others():
    with pytest.raises(ValueError, match=r"cost 0.5 at environment 1, policy 0 is neither 0 nor 1"):
        Costs([[0], [0.5]], origin={"graded": False})


# ---- equal policies -----------------------------------------------------------------------------


def test_a_policy_that_is_listed_many_times_is_paid_for_once(tmp_path: Path):
    """Ten policies, of which one is listed 41 times: as tight as ten policies."""
    rng = np.random.default_rng(3)
    outcomes = rng.random((1000, 10)) < np.linspace(0.1, 0.5, 10)
    often = np.concatenate([np.zeros(40, int), np.arange(10)])
    once = learn_finite(Costs(outcomes, parameters=np.arange(10.0)[:, None]))
    many = learn_finite(Costs(outcomes[:, often], parameters=often[:, None].astype(float)))
    assert many.certificate.bound == pytest.approx(once.certificate.bound, rel=1e-9)
    verify(many.save(tmp_path / "many"))
    split = learn_finite(Costs(outcomes[:, often]))  # equal columns are no equal policies
    assert split.certificate.bound > many.certificate.bound
    given = Categorical(np.full(50, 0.02))
    weighed = learn_finite(many.costs, prior=given).certificate
    assert weighed.bound < many.certificate.bound  # 41 of its 50 weights are one policy's


def test_equal_policies_with_other_costs_are_refused_unless_rollouts_are_noisy():
    outcomes = np.random.default_rng(4).random((50, 2)) < 0.3
    parameters = np.ones((2, 1))
    with pytest.raises(ValueError, match="policies 0 and 1 have equal parameters and different"):
        learn_finite(Costs(outcomes, parameters=parameters))
    noise = {"noise": {"stream": "noise", "seed": 0, "of": "wheel slip"}}
    noisy = learn_finite(Costs(outcomes, parameters=parameters, origin=noise))
    plain = learn_finite(Costs(outcomes))
    assert noisy.certificate.bound == pytest.approx(plain.certificate.bound, rel=1e-9)


# ---- the parts ----------------------------------------------------------------------------------


def test_a_candidate_is_proven_only_if_all_before_it_are():
    costs = np.random.default_rng(5).random(100)
    bound = proven_by_bets(costs, iv.mpf(0.05), 0.0)
    assert proven_by_bets(costs, iv.mpf(0.05), bound) == bound
    assert proven_by_bets(costs, iv.mpf(0.05), 0.9) < 0.9
    assert proven_by_bets(np.ones(50), iv.mpf(0.05), 0.5) == 1.0


def test_the_regret_and_the_highest_mean_enclose_the_librarys():
    from pacbayes_control.bounds import betting

    costs = graded().values
    for n in (1, 7, 200, 12345):
        assert log_regret(n).a <= betting.log_regret(n) <= float(log_regret(n).b) + 1e-8
    for stake in (0.1, 1.0, 5.0):
        found = betting.highest_means(costs, stake)
        for column, value in zip(costs.T, found, strict=True):
            assert abs(float(highest_mean(column, stake).b) - value) < 1e-10


def test_the_tail_of_the_largest_deviation_is_scipys():
    from scipy.special import smirnov

    for n, margin in ((5, 0.3), (100, 0.1), (2000, 0.04)):
        assert smirnov_tail(n, margin) == pytest.approx(smirnov(n, margin), rel=1e-5)
        assert smirnov_tail(n, margin) >= smirnov(n, margin)


# ---- what must not be taken for a declaration ---------------------------------------------------


@pytest.mark.parametrize("declared", [0, 0.0, 1, "no", np.False_])
def test_a_declaration_is_true_or_false(declared: Any):
    values = np.random.default_rng(6).uniform(0.85, 0.95, (50, 2))
    with pytest.raises(ValueError, match="it must be True, False, or None"):
        Costs(values, origin={"graded": declared})
    with pytest.raises(ValueError, match="is neither 0 nor 1"):
        Costs(values).with_origin(graded=False)


def test_a_level_that_is_too_small_for_bets_promises_nothing(tmp_path: Path):
    costs = Costs(np.column_stack([np.full(300, 0.01), np.full(300, 0.9)]))
    run = learn_finite(costs, prior=Categorical([1e-290, 1.0]))
    assert run.certificate.policy == 1
    verify(run.save(tmp_path / "run"))


def test_equal_bounds_go_to_the_policy_that_costs_less():
    outcomes = np.random.default_rng(7).random((200, 3)) < [0.05, 0.02, 0.04]
    run = learn_finite(Costs(outcomes), 0.05, of="quantile:0.5")
    assert run.certificate.bound == 0
    assert run.certificate.policy == int(np.argmin(outcomes.mean(axis=0)))
