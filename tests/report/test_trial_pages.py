"""The page of a policy that was chosen by its trials."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from browsing import browse
from made_trials import ATTACK, HARMLESS, HOSTILE, attacked, made, random

from pacbayes_control.bounds.anytime import highest_cost
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.certify.trials import Trials
from pacbayes_control.report.links import linked_trials, target
from pacbayes_control.report.page import trial_section, write_page
from pacbayes_control.report.projection import project, projected_bound
from pacbayes_control.report.rendering import is_page
from pacbayes_control.report.sections import budget_rows, side_by_side
from pacbayes_control.report.terminal import WHEN
from pacbayes_control.report.trials import (
    COLUMNS,
    NAMED,
    ROWS,
    cannot_say,
    environment_map,
    rate,
    repeated_words,
    task_rows,
)
from pacbayes_control.trials.choosing import OTHERS, choose
from pages import BLANK, Outline, Write, words

FOUR = [0.05, 0.15, 0.3, 0.4]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def chosen(page: Write, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Certificate]]:
    """The text of the page of a choice without its plots, and the certificate."""

    def write(trials: Trials, **options: Any) -> tuple[str, Certificate]:
        with monkeypatch.context() as patch:
            blank = {"policies": lambda file: file.write(BLANK)}
            patch.setattr("pacbayes_control.report.page.choice_plots", lambda _: blank)
            run = choose(trials, **options).run
            return page(run, trials=trials), run.certificate

    return write


def section(text: str, name: str) -> str:
    """The words of one section."""
    found = re.findall(rf'<section id="{name}".*?</section>', text, flags=re.DOTALL)
    return words(found[0])


# ---- every policy -------------------------------------------------------------------------------


def test_every_policy_is_shown_with_its_interval_and_its_bound(chosen: Any):
    trials = random(FOUR, 60)
    text, c = chosen(trials)
    told, rows = section(text, "trials"), choose(trials).policies
    for row in rows:
        low, high = (rate(limit, trials) for limit in row.usual_interval)
        star = " ★ chosen" if row.name == c.policy_name else ""
        numbers = f"{row.trials} {rate(row.mean, trials)} {low} to {high} {percent_up(row.bound)}"
        assert f"{row.name}{star} {numbers}" in told
    assert told.count("★ chosen") == 1
    assert "all of these bounds hold at once" in told
    assert "It does not pay for the choice" in told
    assert '<li><a href="#trials">Trials</a></li>' in text
    assert text.index('<section id="promise"') < text.index('<section id="trials"')
    assert text.index('<section id="trials"') < text.index('<section id="budget"')


def test_the_bound_of_the_chosen_one_is_the_certificates(chosen: Any):
    for options in ({}, {"stopping": "anytime"}, {"candidates": 9}, {"delta": 0.01, "spent": 0.2}):
        text, c = chosen(random(FOUR, 40), **options)
        assert f"★ chosen 40 {100 * c.empirical_cost:.1f} %" in section(text, "trials")
        row = section(text, "trials").split("★ chosen")[1].split("%")[3]
        assert row.strip() == percent_up(c.bound).removesuffix("%").strip()


def test_a_page_without_trials_has_no_such_section(page: Write):
    run = choose(random(FOUR, 40)).run
    assert 'id="trials"' not in page(run)


def test_bounds_are_without_a_shift_where_the_certificate_has_a_ball(page: Write):
    trials = random(FOUR, 40)
    run = choose(trials).run
    shifted = under_shift(run, Ball("kl", 0.02))
    text = section(page(shifted, ("shift",), trials=trials), "trials")
    assert percent_up(run.certificate.bound) in text
    assert "These bounds are without the shift." in text


def test_graded_costs_are_not_called_failures(chosen: Any):
    trials = random(FOUR, 40, graded=True)
    text, c = chosen(trials)
    told = section(text, "trials")
    assert "Mean cost" in told
    assert "Failure rate" not in told
    assert round_up(c.bound) in told
    assert "function_delta" not in text  # a choice by trials has no such option


# ---- by environment and by task -----------------------------------------------------------------


def test_missing_cells_are_visibly_not_tried(chosen: Any):
    costs: list[list[float | None]] = [[0, 1], [0, None], [1, 1], [0, 0]] * 10
    text, _ = chosen(made(costs), stopping="anytime")
    table = text.split('<table class="map">')[1]
    assert table.count('<td class="untried">not tried</td>') == 10
    assert table.count("✕") == 30


def test_the_hardest_environments_are_first_and_the_rest_is_counted(chosen: Any):
    costs = [[0, 0]] * 50 + [[0, 1]] * 40 + [[1, 1]] * (NAMED + 3)
    trials = made(costs)
    found = environment_map(trials, [0, 1])
    assert [row[1] for row in found.rows] == [1.0] * ROWS
    assert found.environments_left_out == len(costs) - ROWS
    assert (len(found.everybody_fails), found.more_fail, found.nobody_fails) == (NAMED, 3, 50)
    told = section(chosen(trials)[0], "trials")
    assert f"{len(costs) - ROWS} more environments with a lower mean are not shown." in told
    assert "“scene 149” and 3 more." in told
    assert "In 50 of 153, no policy fails." in told


def test_an_environment_with_one_trial_is_not_one_where_everybody_fails():
    found = environment_map(made([[1, None], [1, 1], [0, 1]]), [0, 1])
    assert found.everybody_fails == ("scene 1",)


def test_many_policies_are_counted_in_words():
    names = [f"policy {i}" for i in range(COLUMNS + 4)]
    trials = made([[0.0] * len(names)] * 3, names)
    found = environment_map(trials, range(len(names)))
    assert len(found.rows[0][2]) == COLUMNS
    assert found.policies_left_out == 4


def test_policies_in_different_environments_have_no_map(chosen: Any):
    told = section(chosen(random(FOUR, 40, shared=False))[0], "trials")
    assert "The policies were not tried in the same environments" in told


def test_a_list_of_tasks_has_a_table_of_its_own(chosen: Any):
    trials = random([0.1, 0.4], 60, tasks=3)
    text, c = chosen(trials)
    told = section(text, "trials")
    for name, means in task_rows(trials, [0, 1]):
        assert name + " " + " ".join(rate(mean or 0, trials) for mean in means) in told
    assert "Other tasks: the bounds are for the mean over these 3 tasks" in told
    promise = section(text, "promise")
    assert f"{percent_up(c.bound)} of new episodes end in failure, at most, on average" in promise
    assert "Tasks, a fixed list 3" in promise


# ---- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", HARMLESS)
def test_addresses_and_relative_paths_are_links(link: str):
    assert target(link) == link


@pytest.mark.parametrize("link", [*HOSTILE, "java\tscript:alert(1)", "x\u202e", ""])
def test_every_other_link_is_text(link: str):
    assert target(link) is None


def test_only_harmless_links_reach_a_page(chosen: Any):
    text, _ = chosen(random(FOUR, 40, links=[*HARMLESS, *HOSTILE]))
    outline = Outline(text)
    links = [value for name, value in outline.attributes if name == "href"]
    assert {link for link in links if link[0] != "#" and link != "data:,"} == set(HARMLESS)
    anchors = re.findall(r'<a href="[^#][^>]*>', text)
    assert all(anchor.endswith(' rel="noopener noreferrer">') for anchor in anchors)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert "javascript:alert(1)" in section(text, "trials")  # as text


def test_failures_are_listed_first_and_the_rest_is_counted():
    trials = random(FOUR, 40, links=["1.mp4", ""])
    rows, more = linked_trials(trials, [1, 0], most=5)
    assert (len(rows), more) == (5, 35)  # the others have no link, or are of other policies
    all_rows, _ = linked_trials(trials, [0, 2])
    assert [row.policy for row in all_rows] == sorted(row.policy for row in all_rows)
    of_c = [row.cost for row in all_rows if row.policy == "c"]
    assert of_c == sorted(of_c, reverse=True)


def test_no_text_of_a_stranger_changes_the_structure(chosen: Any):
    plain = random([0.1, 0.4], 30, tasks=3, links=["1.mp4"])
    one, other = (Outline(chosen(each)[0]) for each in (plain, attacked(plain)))
    assert ATTACK in unescape(chosen(attacked(plain))[0])
    assert other.tags["img"] == 0
    assert other.tags["script"] == one.tags["script"]
    assert {name for name, _ in other.attributes} == {name for name, _ in one.attributes}


# ---- the other sections -------------------------------------------------------------------------


def test_no_bounds_are_offered_that_do_not_pay_for_the_choice(chosen: Any):
    run = choose(random(FOUR, 40)).run
    methods, why = side_by_side(run)
    assert methods == ()
    assert why.startswith("The policy was chosen by its trials among 4 policies")
    text, _ = chosen(random(FOUR, 40))
    assert why in words(text)
    assert 'id="posterior"' not in text
    alone = choose(random([0.1], 40)).run
    assert side_by_side(alone) == (
        (),
        "Trials of one policy are certified by occam alone: nothing is compared.",
    )


def test_the_shares_of_the_other_policies_are_in_words():
    rows = {row[0]: row for row in budget_rows(choose(random(FOUR, 40)).run.certificate)}
    assert rows["occam"][3] == pytest.approx(0.25)
    assert rows[OTHERS][1] == "the policies that it was chosen among: all have equal shares"
    assert "anytime" in WHEN


@pytest.mark.parametrize("tasks", [0, 4])
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("stopping", ["fixed", "anytime"])
def test_the_projection_meets_the_bound_at_its_own_number(tasks: int, graded: bool, stopping: Any):
    run = choose(random([0.1, 0.4], 40, graded=graded, tasks=tasks), stopping=stopping).run
    c = run.certificate
    assert projected_bound(run, c.environments) == pytest.approx(c.bound, abs=1e-9)
    projection = project(run)
    assert projection.bounds[0] > c.bound > projection.bounds[-1] > projection.limit
    assert projection.limit == pytest.approx(c.empirical_cost, abs=1e-3)


def test_the_projection_of_an_anytime_bound_repeats_the_costs():
    trials = random([0.1], 40)
    run = choose(trials, stopping="anytime").run
    twice = highest_cost([*trials.costs, *trials.costs], 0.05)
    assert projected_bound(run, 80) == pytest.approx(twice, abs=1e-9)
    never = choose(made([[1.0]] * 20), stopping="anytime").run
    assert projected_bound(never, 40) == 1


def test_bounds_at_any_time_need_no_number_fixed_beforehand(chosen: Any):
    text, _ = chosen(random(FOUR, 60), stopping="anytime")
    assert "the bound holds for every number of them at once" in section(text, "outlook")
    assert "The bounds hold whenever the trials were stopped." in section(text, "trials")


# ---- what these data cannot say -----------------------------------------------------------------


def said(trials: Trials, **options: Any) -> str:
    return " ".join(cannot_say(choose(trials, **options).run, trials))


def test_only_the_sentences_that_apply_are_said():
    plain = said(random(FOUR, 40))
    assert "Environments of another kind" in plain
    assert "decided beforehand" in plain
    assert "4 policies were counted, and with more of them" in plain
    assert "If 160 trials in place of 40 had the same mean, the bound would be about" in plain
    assert "Other tasks" not in plain
    assert "Whether environments repeat" not in plain
    assert "decided beforehand" not in said(random(FOUR, 40), stopping="anytime")
    left_out = said(random(FOUR, 40), candidates=7)
    assert "7 policies were counted, 3 of them without trials here" in left_out


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        ("episode", "Whether environments repeat"),
        ("seed", "Seeds that the policies have seen"),
        ("site", None),
    ],
)
def test_units_that_may_repeat_are_told(unit: str, start: str | None):
    found = list(repeated_words(random([0.1], 5, unit=unit)))
    assert [words.startswith(start or "") for words in found] == [True] * bool(start)


# ---- the whole page, and the command ------------------------------------------------------------


def test_the_command_writes_the_page_of_a_choice(quick: Command, tmp_path: Path):
    trials = random(FOUR, 40)
    choose(trials).save(tmp_path / "run")
    done = quick("report", "run", "--plots", "plots")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert is_page(tmp_path / "run.html")
    assert "Every policy and its trials" in text
    assert 'aria-label="Failure rate, usual interval and certified bound of each policy"' in text
    assert (tmp_path / "plots" / "policies.svg").is_file()
    assert not (tmp_path / "plots" / "posterior.svg").exists()


@pytest.mark.slow
def test_the_same_choice_gives_the_same_bytes(tmp_path: Path):
    trials = random([0.1, 0.4], 30, links=["1.mp4"])
    run = choose(trials).run
    for name in ("one", "two"):
        write_page(run, tmp_path / name, trials=trials)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.slow
def test_a_browser_shows_it_on_every_screen_and_it_asks_for_nothing(tmp_path: Path):
    trials = random([0.05, 0.15, 0.3, 0.4], 40, tasks=4, links=[*HARMLESS, *HOSTILE])
    trials = attacked(trials)
    write_page(choose(trials).run, tmp_path / "page.html", trials=trials)
    seen = browse(tmp_path / "page.html")
    assert seen.complaints == []
    assert seen.overflowing == []
    assert seen.contrast > 4.5  # WCAG AA
    assert seen.headings[:2] == ["What is promised", "Every policy and its trials"]


def test_a_name_in_the_plot_is_shown_as_it_is(tmp_path: Path):
    trials = made([[0.0, 1.0]] * 20, [ATTACK, "$x$ $\\frac{1}$"])
    plots = trial_section(choose(trials).run, trials)["trial_plots"]
    plots["policies"](tmp_path / "plot.svg")
    svg = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert "<img" not in svg
    assert "$x$" in svg
