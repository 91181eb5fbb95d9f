"""Summaries in Markdown, also of names that are markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_trials import random

from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.report.markdown import (
    ROWS,
    choice_markdown,
    comparison_markdown,
    escaped,
)
from pacbayes_control.trials.choosing import choose
from pacbayes_control.trials.comparing import compare

HOSTILE = (
    "x | y | | z | 0 |",
    "<img src=x onerror=alert(1)>",
    "[click](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "**bold** _it_ ~~gone~~ `code` \\| $x$",
    "@all #12 https://evil.example www.evil.example a@b.example",
    "&lt;b&gt; &#124;",
    "# heading",
)


def test_a_choice_is_its_promise_a_table_and_its_meaning():
    trials = random([0.05, 0.2, 0.4], 60)
    choice = choose(trials)
    promise, table, meaning = choice_markdown(choice).strip().split("\n\n")
    assert promise == f"**{choice.run.certificate.sentence}**"
    lines = table.splitlines()
    assert len(lines) == 5
    best = min(choice.policies, key=lambda row: row.bound)
    assert lines[2].startswith(f"| {best.name} ★ | 60 | ")
    assert lines[2].endswith(f"| {percent_up(best.bound)} |")
    assert "hold at once with confidence 95 %" in meaning


def test_graded_costs_are_not_percentages():
    choice = choose(random([0.1, 0.3], 60, graded=True))
    table = choice_markdown(choice).split("\n\n")[1]
    assert "mean cost" in table
    assert round_up(choice.run.certificate.bound) in table
    assert "% |" not in table.splitlines()[2]


def test_many_policies_are_counted():
    names = [f"policy {i}" for i in range(ROWS + 3)]
    text = choice_markdown(choose(random([0.1] * len(names), 20, policies=names)))
    assert len([line for line in text.splitlines() if line.startswith("|")]) == ROWS + 2
    assert "3 more policies have larger bounds." in text


def test_one_policy_pays_for_no_choice():
    text = choice_markdown(choose(random([0.1], 20)))
    assert "The bound holds with confidence 95 %." in text
    assert "choice" not in text.split("\n\n")[2]


@pytest.mark.parametrize(
    ("rates", "ends"),
    [
        ([0.1, 0.6], "Above 0, A is better."),
        ([0.6, 0.1], "Below 0, B is better."),
        ([0.3, 0.3], "Undecided does not mean equal: more trials may decide it."),
    ],
)
def test_a_comparison_is_its_verdict_a_table_and_its_meaning(rates: list[float], ends: str):
    comparison = compare(random(rates, 80), "a", "b")
    verdict, table, meaning = comparison_markdown(comparison).strip().split("\n\n")
    assert unescape(verdict) == f"**{comparison.sentence}**"
    assert "| pairs of trials | 80 (same environments) |" in table
    assert meaning.endswith(ends)
    decided = comparison.decided_after is not None
    assert ("| decided after |" in table) == decided


def test_a_margin_is_the_limit_that_the_meaning_names():
    trials = random([0.05, 0.8], 80)
    assert "Above 0.1, A is better." in comparison_markdown(compare(trials, "a", "b", margin=0.1))
    assert "Below -0.1, B is better." in comparison_markdown(compare(trials, "b", "a", margin=0.1))


@pytest.mark.parametrize("in_order", [False, True])
def test_the_order_in_which_it_was_decided_is_told_if_it_may_not_be_random(in_order: bool):
    comparison = compare(random([0.1, 0.6], 80), "a", "b", in_order=in_order)
    told = "" if in_order else ", in the order of the log"
    after = f"| decided after | {comparison.decided_after} pairs{told} |"
    assert after in comparison_markdown(comparison)


def test_trials_of_other_environments_are_told():
    comparison = compare(random([0.1, 0.6], 20, shared=False), "a", "b")
    assert "20 (order of recording)" in comparison_markdown(comparison)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_read_as_markup(name: str):
    plain = random([0.05, 0.5], 60)
    hostile = replace(plain, policies=(name, "b"))
    for texts in (
        (choice_markdown(choose(plain)), choice_markdown(choose(hostile))),
        (
            comparison_markdown(compare(plain, "a", "b")),
            comparison_markdown(compare(hostile, name, "b")),
        ),
    ):
        expected, text = texts
        assert len(text.splitlines()) == len(expected.splitlines())
        assert text.count("|") == expected.count("|")
        assert text.count("*") == expected.count("*")
        for mark in ("<", ">", "`", "[", "]", "!", "\\", "~", "$", "://", "www.", "@"):
            assert mark not in text
        assert " ".join(name.split()) in unescape(text).replace("\u200b", "")


@given(st.text())
def test_escaped_text_is_on_one_line_and_reads_as_before(text: str):
    line = escaped(text)
    assert not set(line) & set("<>|`*[]\\@~$\n\r")
    assert re.fullmatch(r"(?:[^&#]|&#\d+;)*", line)
    plain = " ".join(text.split())
    if text.isprintable():
        assert unescape(line).replace("\u200b", "") == plain
