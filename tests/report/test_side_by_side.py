"""Several runs on one page: what holds for all, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import browse

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.report.side_by_side import (
    MOST,
    NamedRun,
    check_number,
    distinct_names,
    draw_bounds,
    findings,
    joint_delta,
    joint_sentence,
    record,
    write_side_by_side,
)
from pacbayes_control.tasks.demo import Stopping
from pages import words

HOSTILE = '<script>alert(1)</script> & "x" $1$ _% \\'


def run(delta: float = 0.05, seed: int = 0, **origin: Any) -> Run[Any]:
    failed = np.random.default_rng(seed).random((60, 3)) < 0.1
    return learn_finite(Costs(failed, origin={"graded": False, **origin}), delta)


def named(*runs: Run[Any]) -> list[NamedRun]:
    return [NamedRun(name, each) for name, each in zip("abcdefgh", runs, strict=False)]


def told(*runs: Run[Any]) -> str:
    return "\n".join(findings(named(*runs)))


# ---- the joint confidence ------------------------------------------------------------------------


def test_probabilities_of_error_add_up_without_rounding_down():
    runs = named(run(0.1), run(0.2, seed=1), run(0.01, seed=2))
    assert joint_delta(runs) == 0.31
    assert "With confidence 69 %, all 3 certificates hold together" in joint_sentence(runs)


def test_nothing_is_promised_where_they_add_up_to_one():
    runs = named(*(run(0.5, seed=seed) for seed in range(3)))
    assert joint_delta(runs) == 1
    assert "nothing is promised" in joint_sentence(runs)
    assert "With confidence" not in joint_sentence(runs)


def test_the_smallest_of_several_bounds_holds_at_the_joint_confidence_and_not_at_its_own():
    rng, delta, true = np.random.default_rng(0), 0.2, 0.1
    wrong = []
    for _ in range(150):
        runs = [
            learn_finite(Costs(rng.random((30, 1)) < true, origin={"graded": False}), delta)
            for _ in range(4)
        ]
        wrong.append(min(each.certificate.bound for each in runs) < true)
    margin = 3 * np.sqrt(0.25 / 150)
    assert np.mean(wrong) <= joint_delta(named(*runs)) + margin
    assert np.mean(wrong) > delta + margin  # picked after a look


# ---- what runs share -----------------------------------------------------------------------------


def test_runs_that_share_nothing_have_no_findings():
    assert told(run(seed=0), run(seed=1)) == ""


def test_the_same_costs_certified_by_two_methods_are_found():
    costs = run().costs
    found = told(run(), learn_finite(costs, method="kl"), run(seed=1))
    assert "“a” and “b” rest on the same costs, certified by kl and by occam" in found
    assert "“c”" not in found


def test_the_same_environments_are_found_in_one_sentence_for_all_runs():
    sizes = [learn_task(Stopping(), Plan(environments=n)) for n in (20, 30, 40)]
    found = told(*sizes)
    assert found.count("\n") == 0
    assert "Some of the same environments count in “a”, “b” and “c”" in found
    assert told(*sizes[:1], learn_task(Stopping(), Plan(environments=20, seed=1))) == ""


def test_environments_of_the_same_names_are_found():
    failed = np.random.default_rng(0).random((2, 20, 2)) < 0.3
    sites = [f"hall {i}" for i in range(20)]
    runs = [learn_finite(Costs(each, origin={"graded": False}, sites=sites)) for each in failed]
    assert "Environments of the same names count in “a” and “b”" in told(*runs)


def test_a_test_estimate_on_environments_of_another_run_is_no_test():
    tested = learn_task(Stopping(), Plan(environments=20, test_environments=50))
    estimate = tested.certificate.test_estimate
    assert estimate is not None
    certificate = replace(tested.certificate, test_estimate=replace(estimate, stream="train"))
    other = learn_task(Stopping(), Plan(environments=40))
    assert "The test estimate of “a” is on environments that “b” counts" in told(
        replace(tested, certificate=certificate), other
    )


def test_a_prior_learnt_in_the_environments_of_another_run_is_found():
    first = learn_task(Stopping(), Plan(environments=40))
    other = learn_task(Stopping(), Plan(environments=40, seed=1))
    using = replace(other, prior=first.posterior)
    assert "The prior of “a” depends on environments that “b” counts" in told(using, first)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: run(cost_rule="1 for a contact"), "are not said to be about the same cost rules"),
        (lambda: run(distribution="halls"), "are not said to be about the same distributions"),
        (lambda: under_shift(run(), Ball("kl", 0.1)), "are not about the same balls"),
        (lambda: learn_finite(run().costs, of="quantile:0.9"), "are not about the same statistics"),
    ],
)
def test_numbers_about_different_things_are_found(make: Callable[[], Run[Any]], what: str):
    found = told(run(seed=3), make())
    assert what in found
    assert "A smaller bound does not mean a better policy" in found


# ---- the page ------------------------------------------------------------------------------------


def test_names_are_as_long_as_needed_to_tell_runs_apart():
    folders = [Path("/a/x/run"), Path("/a/y/run"), Path("/b/y/run"), Path("/c")]
    assert distinct_names(folders) == ["x/run", "a/y/run", "b/y/run", "c"]


def test_a_page_has_from_two_to_fifty_runs():
    for number in (0, 1, MOST + 1):
        with pytest.raises(ValueError, match="from 2 to 50"):
            check_number(number)
    check_number(MOST)


@pytest.mark.usefixtures("blank_plots")
def test_the_page_shows_every_sentence_and_warns_of_picking_one(tmp_path: Path):
    runs = named(run(0.05), run(0.02, seed=1))
    write_side_by_side(runs, tmp_path / "a.html")
    shown = words((tmp_path / "a.html").read_text())
    assert "the smallest of several bounds, chosen after a look at all of them" in shown
    assert "holds with confidence 93 %" in shown
    for each in runs:
        assert each.run.certificate.sentence in shown
    assert "count different environments" in shown


def test_the_same_runs_give_the_same_bytes(tmp_path: Path):
    runs = named(run(), run(seed=1))
    for name in ("a.html", "b.html"):
        write_side_by_side(runs, tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_without_confidence_promises_nothing(tmp_path: Path):
    runs = named(run(0.6), run(0.6, seed=1))
    write_side_by_side(runs, tmp_path / "a.html")
    assert "nothing is promised of the smallest bound" in words((tmp_path / "a.html").read_text())


@pytest.mark.slow
def test_hostile_names_are_shown_and_not_obeyed_on_any_screen(tmp_path: Path):
    one = run(cost_rule=HOSTILE, distribution="x" * 400)
    tested = learn_task(Stopping(), Plan(environments=20, test_environments=50))
    runs = [NamedRun(HOSTILE, one), NamedRun("y" * 90, tested), *named(run(seed=1))]
    write_side_by_side(runs, tmp_path / "a.html")
    assert "<script>alert" not in (tmp_path / "a.html").read_text()
    seen = browse(tmp_path / "a.html")
    assert not seen.complaints
    assert not seen.overflowing
    assert seen.contrast > 4.5
    assert len(seen.headings) == 4


def test_the_plot_takes_as_many_runs_as_the_page(tmp_path: Path):
    same = run()
    draw_bounds([NamedRun(f"$run_{i}", same) for i in range(MOST)], tmp_path / "plot.svg")
    assert f"$run_{MOST - 1}" in (tmp_path / "plot.svg").read_text()


def test_the_record_has_each_run_and_what_holds_for_all():
    found = record(named(run(0.05), run(0.02, seed=1)))
    assert [row["name"] for row in found["runs"]] == ["a", "b"]
    assert found["joint_delta"] == 0.07
    assert found["runs"][0]["test_estimate"] is None
