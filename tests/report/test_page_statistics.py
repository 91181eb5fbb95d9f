"""Pages of every kind of certificate: of a mean, a quantile or CVaR, by bets, and in a ball."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.statistics import Statistic
from pacbayes_control.certify.text import round_up
from pacbayes_control.learn import learn_best, learn_finite
from pacbayes_control.report.plots import PLOTS, UNTIL, draw_distribution, write_plots
from pacbayes_control.report.projection import project, projected_bound
from pacbayes_control.report.sections import record_rows, side_by_side
from pacbayes_control.report.summary import (
    distribution_function,
    exceeded_words,
    observed_words,
)
from pages import Write, words

RNG = np.random.default_rng(0)
GRADED = Costs(RNG.beta(2, 8, (300, 3)).round(3), ["slow", "careful", "fast"])
FAILED = Costs(RNG.random((300, 3)) < [0.3, 0.05, 0.1], ["slow", "careful", "fast"])
FUNCTION = Statistic("mean", 0.0, 0.001)
BALL = Ball("kl", 0.02)

KINDS: dict[str, Callable[[], Run[Any]]] = {
    "occam graded": lambda: learn_finite(GRADED),
    "occam 0/1": lambda: learn_finite(FAILED),
    "betting": lambda: learn_finite(GRADED, method="betting"),
    "betting 0/1": lambda: learn_finite(FAILED, method="betting"),
    "kl": lambda: learn_finite(GRADED, method="kl"),
    "best": lambda: learn_best(FAILED),
    "quantile": lambda: learn_finite(GRADED, of="quantile:0.9"),
    "quantile 0/1": lambda: learn_finite(FAILED, of="quantile:0.8"),
    "cvar": lambda: learn_finite(GRADED, of="cvar:0.2"),
    "function": lambda: learn_finite(GRADED, of=FUNCTION),
}
MEANS = ["occam graded", "occam 0/1", "betting", "betting 0/1", "kl", "best", "function"]
IN_BALL = [kind for kind in KINDS if kind != "cvar"]


@cache
def learnt(kind: str) -> Run[Any]:
    return KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_page(kind: str, page: Write, tmp_path: Path):
    run = Run.load(learnt(kind).save(tmp_path / "run"))
    text = words(page(run))
    assert run.certificate.sentence in text
    assert ("expected cost" in text.split("Cost by environment")[0]) == (
        kind in ("occam graded", "betting", "kl", "function", "cvar")
    )


@pytest.mark.parametrize("kind", IN_BALL)
def test_and_so_has_each_in_a_ball(kind: str, page: Write):
    run = under_shift(learnt(kind), BALL)
    text = words(page(run))
    assert run.certificate.sentence in text
    assert "This run is certified in a ball already: where KL(D′‖D) ≤ 0.02, it promises" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_plots_are_those_that_a_run_has(kind: str, tmp_path: Path):
    run = learnt(kind)
    names = {path.stem for path in write_plots(run, tmp_path / "plots")}
    assert names == {path.stem for path in (tmp_path / "plots").iterdir()}
    missing = {UNTIL, "simulation"} | (
        {"distribution"} if run.certificate.margin is None else set()
    )
    if "quantile" in kind or kind == "cvar":
        missing |= {"methods", "bound-against-environments"}
    if kind == "cvar":
        missing |= {"shift"}
    assert PLOTS.keys() - names == missing


# ---- what is promised ---------------------------------------------------------------------------


def test_a_page_of_a_quantile_speaks_of_a_share_and_not_of_a_mean(page: Write):
    run = learnt("quantile")
    cost, text = run.certificate.shown_bound, words(page(run))
    assert f"{cost} is exceeded in at most 10 % of new environments" in text
    assert f"The share of such environments that cost more than {cost}." in text
    assert "nor how much more" in text
    assert "quantile:0.9 is certified by occam alone: there is nothing to compare it with." in text
    assert "there is no projection of it" in text
    assert f"The share of environments that cost more than {cost} stays at 0.5 or below" in text
    for wrong in ("expected cost", "end in failure", "on average", "The average over"):
        assert wrong not in text
    above = int(np.sum(GRADED.values[:, run.certificate.policy] > run.certificate.bound))
    assert f"Observed above it {above} of 300 environments" in text


def test_in_a_ball_it_says_how_often_with_a_shift_and_without(page: Write):
    shifted = under_shift(learnt("quantile"), BALL)
    most, text = shifted.certificate.most_above_percent, words(page(shifted))
    assert f"is exceeded in at most {most} of new environments" in text
    assert "Exceeded without a shift in at most 10 %" in text
    assert f"it promises a share of at most {most}." in text
    assert "Bound without a shift" not in text


def test_a_page_of_cvar_speaks_of_the_worst_environments(page: Write):
    run = learnt("cvar")
    bound, text = round_up(run.certificate.bound), words(page(run))
    assert f"{bound} is the mean cost in the worst 20 % of new environments, at most" in text
    assert "The average over the worst 20 % of such environments." in text
    assert "A bound on cvar says nothing about a world that differs" in text
    assert "end in failure" not in text


def test_costs_that_may_be_graded_do_not_end_in_failure(page: Write):
    declared = Costs(FAILED.values, FAILED.names, {"graded": True})
    assert "end in failure" not in words(page(learn_finite(declared)))
    assert "end in failure" in words(page(learn_finite(FAILED)))


def test_the_worst_share_may_end_within_an_environment():
    costs = Costs([[1.0], [0.6], [0.2], [0.0]] * 5)
    run = learn_finite(costs, of="cvar:0.3")  # six of twenty: five of cost 1, and one of 0.6
    assert observed_words(run) == ("observed in the worst", f"{5.6 / 6:.4f}")
    assert observed_words(learn_finite(costs)) is None


def test_the_record_lists_the_numbers_of_bets_and_of_the_function():
    for kind, names in {
        "occam graded": {"grid"},
        "betting": {"stake"},
        "quantile": {"of", "margin"},
        "cvar": {"of", "grid", "threshold", "margin"},
        "kl": set[str](),
    }.items():
        known = {"of", "grid", "threshold", "stake", "margin", "exceeded", "until"}
        rows = dict(record_rows(learnt(kind).certificate))
        assert rows.keys() & known == names, kind
    declared = learn_finite(Costs(FAILED.values, origin={"graded": False})).certificate
    assert dict(record_rows(declared))["costs, as declared"] == "0 or 1"


def test_the_budget_says_what_the_function_is(page: Write):
    text = words(page(learnt("function")))
    assert "distribution function the whole distribution of the policy's cost 0.001 10.0%" in text


# ---- methods and outlook ------------------------------------------------------------------------


def test_five_methods_stand_side_by_side(page: Write):
    run = learnt("betting")
    methods, _ = side_by_side(run)
    assert [c.method for c in methods] == ["occam", "kl", "kl-maurer", "pinsker", "betting"]
    assert methods[4] is run.certificate
    assert "betting ★ this run by bets: for graded costs" in words(page(run))


def test_a_share_for_the_function_is_told_beside_the_methods(page: Write):
    text = words(page(learnt("function")))
    assert "except the line marked ★, which has spent a part of δ on something else" in text


def test_environments_added_until_a_bound_leave_no_other_method_valid():
    run = learnt("betting")
    grown = replace(run, certificate=replace(run.certificate, until=0.3))
    methods, why = side_by_side(grown)
    assert methods == ()
    assert "no other method's bound would hold" in why


@pytest.mark.parametrize("kind", MEANS)
def test_an_outlook_passes_through_the_bound_and_ends_at_the_observed_cost(kind: str):
    for run in (learnt(kind), under_shift(learnt(kind), BALL)):
        c = run.certificate
        assert projected_bound(run, c.environments) == pytest.approx(c.bound, rel=1e-6)
        bounds = project(run).bounds
        assert bounds[0] > c.bound > bounds[-1] > project(run).limit
        if c.ball is None:
            assert project(run).limit == pytest.approx(c.empirical_cost, abs=1e-4)


def test_equal_policies_count_as_one_in_an_outlook():
    equal = Costs(
        np.repeat(FAILED.values[:, 1:2], 3, axis=1), parameters=np.array([[1.0], [1.0], [1.0]])
    )
    run = learn_finite(equal)
    assert projected_bound(run, 300) == pytest.approx(run.certificate.bound, rel=1e-6)


# ---- the distribution function ------------------------------------------------------------------


def test_each_sentence_is_the_smallest_recorded_cost_that_the_margin_allows(page: Write):
    run = learnt("function")
    c, text = run.certificate, words(page(run))
    assert c.margin is not None
    recorded = np.sort(GRADED.values[:, c.policy])
    function = distribution_function(run)
    assert function is not None
    said = {share: cost for share, cost, _ in function.exceeded()}
    assert 0.5 in said
    assert 0.01 not in said  # the margin is larger
    for share, cost in said.items():
        below = [x for x in recorded if np.mean(recorded <= x) - c.margin >= 1 - share]
        assert cost == below[0]
        assert (
            f"In at most {100 * share:g} % of new environments the cost exceeds {cost:g};" in text
        )
    assert "All of these hold at once." in text
    assert f"the recorded share less ε = {round_up(c.margin)}" in text
    assert exceeded_words(run).startswith("at most 50 % cost more than ")


def test_in_a_ball_the_function_is_that_of_the_ball(page: Write):
    run = learnt("function")
    alone, shifted = distribution_function(run), distribution_function(under_shift(run, BALL))
    assert alone is not None
    assert shifted is not None
    assert np.all(shifted.above >= alone.above)
    assert np.any(shifted.above > alone.above)
    assert "from any distribution D′ with KL(D′‖D) ≤ 0.02 that cost" in words(
        page(under_shift(run, BALL))
    )


def test_too_few_environments_allow_no_sentence(page: Write):
    run = learn_finite(Costs(GRADED.values[:5]), of=FUNCTION)
    assert "ε is too large, for so few environments" in words(page(run))
    assert exceeded_words(run) == "no cost that half of new environments stay below"


def test_without_the_function_one_line_says_how_to_get_it_where_it_has_a_use(page: Write):
    hint = "pbc learn … --set function_delta=0.001"
    assert hint in words(page(learnt("occam graded")))
    for kind in ("occam 0/1", "betting", "kl", "quantile", "cvar", "function"):
        text = words(page(learnt(kind)))
        assert hint not in text
        assert ("The distribution of the cost" in text) == (
            kind in ("quantile", "cvar", "function")
        )


def test_the_plot_of_a_function_that_nothing_paid_for_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="no share of δ pays for it"):
        draw_distribution(learnt("kl"), tmp_path / "plot.svg")
    with pytest.raises(ValueError, match=r"a bound on cvar.* there is no projection of it"):
        PLOTS["bound-against-environments"](learnt("cvar"), tmp_path / "plot.svg")
    assert not (tmp_path / "plot.svg").exists()
