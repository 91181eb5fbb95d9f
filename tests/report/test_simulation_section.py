"""The page of a certificate that rests on simulation beside trials on the robot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import browse
from made_trials import ATTACK, made
from numpy.typing import NDArray

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.certify.simulation import SHARE
from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.page import write_page
from pacbayes_control.report.plots import PLOTS, plots_of_run
from pacbayes_control.report.run_exports import run_export
from pacbayes_control.report.sections import budget_rows, side_by_side
from pacbayes_control.report.side_by_side import NamedRun, findings, write_side_by_side
from pacbayes_control.report.simulation import LISTED, differences, helped_words, simulation_facts
from pacbayes_control.report.trial_plots import choice_plots
from pacbayes_control.report.trials import choice_of
from pacbayes_control.trials.choosing import Choice, choose
from pages import Outline, Write, words

TRIALS, FURTHER = 60, 2000


def joined(robot: NDArray[Any], pairs: NDArray[Any], name: str = "hall") -> Costs:
    """One policy on the robot, and in simulation of the same environments and of further ones."""
    rng = np.random.default_rng(1)
    further = rng.choice(pairs[:, 0], (FURTHER, 1))
    sites = [f"{name} {i}" for i in range(len(robot) + FURTHER)]
    real, same = (Costs(v, sites=sites[: len(robot)]) for v in (robot, pairs))
    return with_simulation(real, same, Costs(further, sites=sites[len(robot) :]))


def of_failures(name: str = "hall") -> Run[Any]:
    """12 failures in both, 2 only on the robot, 1 only in simulation."""
    failed = np.zeros((TRIALS, 1))
    failed[:13] = 1
    robot = failed.copy()
    robot[[12, 20, 30], 0] = 0, 1, 1
    return learn_finite(joined(robot, failed, name))


def of_graded_costs(name: str = "hall") -> Run[Any]:
    rng = np.random.default_rng(4)
    simulated = rng.beta(0.2, 0.5, (TRIALS, 1))
    robot = np.clip(simulated + 0.02 * rng.standard_normal(simulated.shape), 0, 1)
    robot[3], simulated[3] = 0.9, 0.1
    return learn_finite(joined(robot, simulated, name))


def chosen() -> Choice:
    """The better of two policies, each with its own simulation."""
    rng = np.random.default_rng(2)
    simulated = rng.random((TRIALS + FURTHER, 2)) < [0.2, 0.4]
    robot = np.where(rng.random((TRIALS, 2)) < 0.03, ~simulated[:TRIALS], simulated[:TRIALS])
    same, further = simulated[:TRIALS], simulated[TRIALS:]
    logs = [made(x.astype(float).tolist(), unit=u) for x, u in ((same, "scene"), (further, "more"))]
    return choose(made(robot.astype(float).tolist()), simulated=(logs[0], logs[1]))


def section(text: str, name: str) -> str:
    """The markup of one section."""
    [found] = re.findall(rf'<section id="{name}".*?</section>', text, flags=re.DOTALL)
    return found


# ---- the section --------------------------------------------------------------------------------


def test_failures_stand_in_a_table_of_counts_and_those_that_differ_in_a_list(page: Write):
    run = of_failures()
    c, text = run.certificate, page(run, ("simulation",))
    told, use = section(text, "simulation"), run.certificate.simulation
    assert use is not None
    assert (
        "the policy fails in both in 12, only on the robot in 2, only in simulation in 1, in "
        "neither in 45"
    ) in told
    letters = re.findall(r"<text[^>]*>([^<]*)</text>", told)
    assert {"12", "2", "1", "45", "fails: 14", "succeeds: 46", "fails: 13"} <= {*letters}
    said = words(told)
    for name, value in simulation_facts(c)[:3]:
        assert f"{name.capitalize()} {value}" in said
    assert (
        f"With simulation, 60 trials on the robot give a bound of {percent_up(c.bound)}; from "
        f"these trials alone it would be {percent_up(use.bound_without)}."
    ) in said
    assert f"as small as about {int(use.equivalent_trials or 0)} trials on the robot alone" in said
    assert (
        "hall 20 (20) failed succeeded hall 30 (30) failed succeeded hall 12 (12) succeeded failed"
    ) in said
    assert (
        f"The {FURTHER:,} further environments are drawn like those of the trials, and no" in said
    )
    assert "Nothing is assumed about how good it is" in said
    assert "½" not in said
    order = re.findall('<section id="([a-z]*)"', text)
    assert order[:3] == ["promise", "simulation", "budget"]
    assert '<li><a href="#simulation">Simulation</a></li>' in text


def test_graded_costs_are_drawn_against_each_other_with_the_largest_differences(page: Write):
    run = of_graded_costs()
    told = section(page(run, ("simulation",)), "simulation")
    assert 'aria-label="Cost on the robot against the cost in simulation, by environment"' in told
    assert {"cost in simulation", "cost on the robot", "equal costs"} <= {
        *re.findall(r"<text[^>]*>([^<]*)</text>", told)
    }
    said = words(told)
    assert "hall 3 (3) 0.9000 0.1000" in said
    found = differences(run)
    sizes = [abs(one.robot - one.simulated) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert told.count("<tr>") == LISTED + 1
    assert f"In {len(found) - LISTED} more environments they differ less." in said
    assert f"give a bound of {round_up(run.certificate.bound)};" in said
    assert "% of environments" not in said


def test_names_of_environments_are_shown_as_they_are(page: Write):
    for make in (of_failures, of_graded_costs):
        one, other = (page(make(name)) for name in ("hall", ATTACK))
        assert ATTACK in words(section(other, "simulation"))
        one, other = Outline(one), Outline(other)
        assert other.tags == one.tags
        assert {name for name, _ in other.attributes} == {name for name, _ in one.attributes}


def test_many_failures_that_differ_are_counted_and_none_is_said_to_be_none(page: Write):
    failed = np.zeros((TRIALS, 1))
    failed[:25] = 1
    run = learn_finite(joined(np.roll(failed, 12, axis=0), failed))
    assert len(differences(run)) == 24
    assert "And 4 more." in words(section(page(run), "simulation"))
    alike = learn_finite(joined(failed, failed))
    assert "fails in simulation just where it fails on the robot" in words(page(alike))


def test_graded_costs_in_simulation_of_failures_are_cut(page: Write):
    failed = np.zeros((TRIALS, 1))
    failed[:20] = 1
    run = learn_finite(joined(failed, np.where(failed, 0.7, 0.3)))
    assert "a cost above ½ in simulation counts as a failure" in words(page(run))
    assert differences(run) == []


def test_a_run_without_simulation_has_no_such_section(page: Write):
    run = learn_finite(np.eye(20)[:, :1])
    assert 'id="simulation"' not in page(run)
    assert "simulation" not in plots_of_run(run)
    assert simulation_facts(run.certificate) == []
    with pytest.raises(ValueError, match="no simulation beside the trials"):
        PLOTS["simulation"](run, Path("unused.svg"))


def test_the_sentence_compares_the_bounds_as_they_are():
    c = of_failures().certificate
    use = c.simulation
    assert use is not None
    unknown = replace(c, simulation=replace(use, equivalent_trials=None))
    assert helped_words(unknown).endswith(f"would be {percent_up(use.bound_without)}.")
    assert dict(simulation_facts(unknown))["as good as"].endswith("though the bound is smaller")
    useless = replace(c, simulation=replace(use, bound_without=c.bound / 2, equivalent_trials=None))
    assert helped_words(useless).startswith("Simulation did not make the bound smaller: it is ")
    assert "did not make" in dict(simulation_facts(useless))["as good as"]


def test_the_bounds_that_are_compared_are_both_without_the_shift():
    run = of_failures()
    shifted = under_shift(run, Ball("kl", 0.05))
    assert shifted.certificate.bound > run.certificate.bound
    told = helped_words(shifted.certificate)
    assert f"give a bound without a shift of {percent_up(run.certificate.bound)};" in told


# ---- the other sections -------------------------------------------------------------------------


def test_the_other_sections_say_what_simulation_rules_out(page: Write, tmp_path: Path):
    run = of_graded_costs()
    methods, why = side_by_side(run)
    assert methods == ()
    text = page(run)
    assert why in words(section(text, "methods"))
    assert "certified by occam: no other method" in why
    said = words(section(text, "outlook"))
    assert "How a bound with simulation changes" in said
    assert "function_delta" not in text
    assert {"methods", "bound-against-environments"}.isdisjoint(plots_of_run(run))
    with pytest.raises(ValueError, match=r"a bound with simulation .* no projection of it"):
        PLOTS["bound-against-environments"](run, tmp_path / "plot.svg")
    rows = {row[0]: row[1] for row in budget_rows(run.certificate)}
    assert rows[SHARE] == "what a sample of simulated environments may miss"


def test_a_choice_shows_no_bound_of_policies_whose_simulation_is_not_in_the_run(
    page: Write, tmp_path: Path
):
    choice = chosen()
    c, trials = choice.run.certificate, choice.trials
    again = choice_of(choice.run, trials)
    assert [row.bound for row in again.by_bound] == [c.bound, np.inf]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pacbayes_control.report.page.choice_plots", lambda _: PAGE_PLOTS)
        text = page(choice.run, trials=trials)
    said = words(section(text, "trials"))
    assert f"{percent_up(c.bound)} b {TRIALS}" in said
    assert re.search(r"b 60 [\d.]+ % [\d.]+ % to [\d.]+ % — ", said)
    assert "holds the simulation of the chosen one only" in said
    assert "all of these bounds hold at once" not in said
    assert "would be about" not in said
    choice_plots(again)["policies"](tmp_path / "plot.svg")
    assert "nan" not in (tmp_path / "plot.svg").read_text(encoding="utf-8")


PAGE_PLOTS = {"policies": lambda file: file.write(b'<svg viewBox="0 0 1 1"></svg>')}


def test_exports_say_the_same():
    choice = chosen()
    for run in (replace(choice.run, trials=choice.trials), of_graded_costs()):
        export = run_export(run, "mine")
        rows = {row[0]: row[1] for row in {t.name: t for t in export.tables}["certificate"].rows}
        for name, value in simulation_facts(run.certificate):
            assert rows[name.capitalize()] == value
        names = {each.name for each in (*export.tables, *export.plots)}
        assert "simulation" in names
        assert "methods" not in names
        if run.trials is not None:
            [table] = [table for table in export.tables if table.name == "choice"]
            assert [getattr(row[-1], "value", 0) for row in table.rows] == [
                run.certificate.bound,
                None,
            ]
            assert "hold at once" not in table.caption


def test_runs_side_by_side_share_environments_that_are_simulated_only(tmp_path: Path):
    run = of_failures()
    further = run.costs.simulation
    assert further is not None
    other = learn_finite(Costs(further.more.values, sites=further.more.sites))
    runs = [NamedRun("robot", run), NamedRun("simulation", other)]
    assert any("Environments of the same names count" in words for words in findings(runs))
    write_side_by_side(runs, tmp_path / "page.html")
    text = words((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"60 and {FURTHER:,} in simulation" in text


@pytest.mark.slow
def test_a_browser_shows_it_on_every_screen_and_it_asks_for_nothing(tmp_path: Path):
    write_page(of_failures(f"a long name of a place {ATTACK}"), tmp_path / "page.html")
    seen = browse(tmp_path / "page.html")
    assert seen.complaints == []
    assert seen.overflowing == []
    assert seen.contrast > 4.5  # WCAG AA
    assert seen.headings[:2] == ["What is promised", "How good the simulation is"]
