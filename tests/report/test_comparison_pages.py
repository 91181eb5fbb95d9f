"""The page of a comparison of two policies."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import browse
from made_trials import ATTACK, HARMLESS, HOSTILE, attacked, made, random

from pacbayes_control.bounds.anytime import difference_limits
from pacbayes_control.certify.trials import Trials
from pacbayes_control.report.comparison import (
    SECTIONS,
    cannot_say,
    differing_pairs,
    outcome_counts,
    plots_of,
    write_comparison_page,
)
from pacbayes_control.report.rendering import is_page
from pacbayes_control.report.running import (
    LOOKS,
    STEPS,
    evidence,
    interval,
    running_limits,
    usual_difference,
)
from pacbayes_control.trials.comparing import Comparison, compare, save_comparison
from pages import BLANK, Outline, words

Command = Callable[..., subprocess.CompletedProcess[str]]
TEN = [[0.0, 0.0]] * 4 + [[0.0, 1.0]] * 3 + [[1.0, 0.0]] * 1 + [[1.0, 1.0]] * 2


def compared(trials: Trials, **options: Any) -> Comparison:
    return compare(trials, *trials.policies[:2], **options)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The text of the page of a comparison, without its plots."""

    def write(trials: Trials, **options: Any) -> str:
        def blank(*_: Any) -> Any:
            names = ("evidence", "difference", "scatter")
            return {name: lambda file: file.write(BLANK) for name in names}

        monkeypatch.setattr("pacbayes_control.report.comparison.plots_of", blank)
        write_comparison_page(compared(trials, **options), trials, tmp_path / "page.html")
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return write


# ---- the verdict --------------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [[0.1, 0.6], [0.6, 0.1], [0.3, 0.3]])
def test_the_verdict_and_its_numbers_are_told(rates: list[float], written: Any):
    trials = random(rates, 80)
    comparison = compared(trials)
    text = words(written(trials))
    assert comparison.sentence in text
    assert f"Pairs of trials {len(comparison.pairs.differences)}" in text
    assert f"Its limits, at any time {interval(comparison.difference)}" in text
    usual = usual_difference(comparison.pairs.differences)
    assert usual is not None
    assert f"The usual 95 % interval {interval(usual)}" in text
    assert "is for one look at a number of pairs that was fixed beforehand" in text
    assert "; 40 decides" in text
    if comparison.verdict == "undecided":
        assert f"after about {comparison.more:,} more pairs like these" in text
        assert "Undecided does not mean equal" in text
    else:
        assert f"Decided after {comparison.decided_after} pairs" in text


def test_a_margin_and_left_out_trials_are_told(written: Any):
    costs: list[list[float | None]] = [[0, 1], [0, None]] * 20
    text = words(written(made(costs), untried=True, margin=0.1))
    assert "Differences that do not count up to 0.1" in text
    assert "Trials without a partner 20" in text
    assert "20 trials were left out, for reasons that, as declared" in text


def test_equal_policies_are_not_decided_by_more_pairs_like_these(written: Any):
    assert "not by more pairs like these" in words(written(made([[0, 0], [1, 1]] * 5)))


# ---- outcomes -----------------------------------------------------------------------------------


def test_the_four_counts_add_up(written: Any):
    trials = made(TEN)
    counts = dict(outcome_counts(compared(trials), trials))
    assert counts == {"both succeed": 4, "only A succeeds": 3, "only B succeeds": 1, "both fail": 2}
    text = words(written(trials))
    assert "only A succeeds 3 30.0%" in text
    assert "A: a 10 30.0 %" in text


def test_graded_costs_have_a_scatter(written: Any):
    trials = random([0.3, 0.4], 40, graded=True)
    comparison = compared(trials)
    counts = dict(outcome_counts(comparison, trials))
    assert sum(counts.values()) == 40
    assert "scatter" in plots_of(comparison, trials)
    assert "A costs less" in words(written(trials))
    assert "scatter" not in plots_of(compared(made(TEN)), made(TEN))


def test_trials_that_differ_are_listed_with_their_links(written: Any):
    text = written(made(TEN, links=["1.mp4", "javascript:alert(1)"]))
    rows = words(text.split("Where A and B differ")[1].split("</table>")[0])
    assert "scene 4 succeeded failed 1.mp4 javascript:alert(1)" in rows
    assert "scene 7 failed succeeded" in rows
    assert "scene 0" not in rows
    assert '<a href="1.mp4" rel="noopener noreferrer">' in text
    assert 'href="javascript' not in text


def test_the_largest_differences_are_first_and_the_rest_is_counted(written: Any):
    trials = random([0.3, 0.5], 250, graded=True)
    pairs, more = differing_pairs(compared(trials), trials)
    assert (len(pairs), more) == (200, 50)
    sizes = [abs(pair.costs[1] - pair.costs[0]) for pair in pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert "50 more are not shown, in which A and B differ less." in words(written(trials))


def test_unpaired_trials_are_not_compared_one_by_one(written: Any):
    trials = random([0.1, 0.4], 40, shared=False, links=["1.mp4"])
    text = words(written(trials))
    assert "A and B were not tried in the same environments" in text
    assert "both succeed" not in text
    assert "Where A and B differ" not in text
    assert "Videos and logs of 80 trials" in text
    assert "Trials in the same environments usually decide sooner." in text


def test_tasks_have_a_table_without_limits_of_their_own(written: Any):
    trials = random([0.1, 0.5], 60, tasks=3, links=["1.mp4"])
    text = words(written(trials, in_order=True))
    assert "Pairs count in rounds, of one of each of 3 tasks." in text
    assert re.search(r"task 2 [\d.]+ % [\d.]+ % [+−]0\.\d{4}", text)
    assert "these means have no limits of their own" in text
    assert "Other tasks: the verdict is about the mean over these 3." in text


# ---- the evidence -------------------------------------------------------------------------------


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_running_limits_end_at_those_of_the_comparison(graded: bool, in_order: bool):
    comparison = compared(random([0.1, 0.4], 150, graded=graded), in_order=in_order)
    running = running_limits(comparison)
    assert len(running.pairs) == LOOKS
    assert (running.low[-1], running.high[-1]) == comparison.difference
    assert running.mean[-1] == pytest.approx(comparison.mean_difference)
    if in_order:
        assert np.all(np.diff(running.low) >= -1e-12)
        assert np.all(np.diff(running.high) <= 1e-12)
    else:
        assert np.all((running.low <= running.mean) & (running.mean <= running.high))


def test_limits_of_many_graded_costs_are_rounded_outwards():
    comparison = compared(random([0.2, 0.4], 150, graded=True))
    running, d = running_limits(comparison), comparison.pairs.differences
    for place in (5, 40, 70):
        low, high = difference_limits(d[: running.pairs[place]], comparison.alpha)
        assert low - 0.02 < running.low[place] <= low + 1e-9
        assert high - 1e-9 <= running.high[place] < high + 0.02


def test_the_evidence_is_that_of_the_ends_of_rounds_and_keeps_the_decision():
    comparison = compared(random([0.05, 0.6], 3000, tasks=2), in_order=True)
    pairs, better, _ = evidence(comparison)
    assert len(pairs) <= STEPS + 1
    assert np.all(pairs % 2 == 0)
    assert comparison.decided_after in pairs
    decided = better[np.searchsorted(pairs, comparison.decided_after)]
    assert decided >= math.log10(comparison.needed)
    assert pairs[-1] == 3000


@pytest.mark.slow
def test_a_hundred_thousand_graded_pairs_take_seconds():
    comparison = compared(random([0.3, 0.32], 100_000, graded=True))
    start = time.process_time()
    running_limits(comparison)
    assert time.process_time() - start < 20  # one or two on a machine that is not busy


def test_the_plots_have_both_directions_the_line_and_the_decision(tmp_path: Path):
    trials = replace(random([0.1, 0.6], 80), policies=("$a$ <img>", "b"))
    comparison = compared(trials)
    for name, draw in plots_of(comparison, trials).items():
        draw(tmp_path / f"{name}.svg")
    svg = (tmp_path / "evidence.svg").read_text(encoding="utf-8")
    assert "$a$ &lt;img&gt; is better" in svg
    assert "b is better" in svg
    assert "decides: 40" in svg
    assert f"decided after {comparison.decided_after}" in svg
    assert "10²" in svg  # a logarithmic scale
    assert "mean difference" in (tmp_path / "difference.svg").read_text(encoding="utf-8")


# ---- what these data cannot say -----------------------------------------------------------------


def test_only_the_sentences_that_apply_are_said():
    trials = random([0.1, 0.6], 80)
    plain = " ".join(cannot_say(compared(trials), trials))
    assert "the order of the log need not be random" in plain
    for absent in ("Undecided", "Other tasks", "same ones", "partner", "other policy"):
        assert absent not in plain
    ordered = " ".join(cannot_say(compared(trials, in_order=True), trials))
    assert "it was declared that they were carried out in random order" in ordered
    three = random([0.1, 0.6, 0.5], 80)
    assert "The other policy of the log" in " ".join(cannot_say(compared(three), three))
    four = random([0.1, 0.6, 0.5, 0.5], 80)
    assert "The 2 other policies of the log" in " ".join(cannot_say(compared(four), four))


# ---- strangers, and the whole page --------------------------------------------------------------


def test_no_text_of_a_stranger_changes_the_structure(written: Any):
    plain = random([0.1, 0.4], 30, tasks=3, links=["1.mp4"])
    one, other = (Outline(written(each)) for each in (plain, attacked(plain)))
    assert ATTACK[:20] in unescape(written(attacked(plain)))
    assert other.tags == one.tags
    assert [name for name, _ in other.attributes] == [name for name, _ in one.attributes]


def test_only_harmless_links_reach_a_page(written: Any):
    outline = Outline(written(random([0.1, 0.6], 80, links=[*HARMLESS, *HOSTILE])))
    links = {value for name, value in outline.attributes if name == "href"}
    assert {link for link in links if link[0] != "#" and link != "data:,"} <= set(HARMLESS)
    assert links & set(HARMLESS)


def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path):
    trials = random([0.1, 0.4], 40, graded=True, links=["1.mp4"])
    for name in ("one", "two"):
        write_comparison_page(compared(trials), trials, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.slow
def test_a_browser_shows_it_on_every_screen_and_it_asks_for_nothing(tmp_path: Path):
    trials = attacked(random([0.1, 0.5, 0.4], 60, tasks=4, links=[*HARMLESS, *HOSTILE]))
    write_comparison_page(compared(trials), trials, tmp_path / "page.html")
    seen = browse(tmp_path / "page.html")
    assert seen.complaints == []
    assert seen.overflowing == []
    assert seen.contrast > 4.5  # WCAG AA
    assert seen.headings == [heading for _, _, heading in SECTIONS]


# ---- the command --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trials = random([0.1, 0.5], 60)
    return save_comparison(compared(trials), trials, tmp_path / "a-b")


@pytest.mark.parametrize("argument", ["a-b", "a-b/comparison.json"])
def test_the_command_writes_the_page(argument: str, quick: Command, folder: Path):
    done = quick("report", argument, "--plots", "plots", "--json", "report.json")
    assert done.returncode == 0, done.stderr
    page = folder.with_name("a-b.html")
    assert is_page(page)
    assert "pbc verify a-b" in words(page.read_text(encoding="utf-8"))
    record = json.loads(folder.with_name("report.json").read_text())
    assert record["comparison"]["verdict"] == "better"
    names = {file.name for file in folder.with_name("plots").iterdir()}
    assert names == {"evidence.svg", "difference.svg"}


@pytest.mark.parametrize("file", ["comparison.json", "trials.json"])
def test_an_altered_comparison_has_no_page(file: str, quick: Command, folder: Path):
    record = json.loads((folder / file).read_text())
    if file == "trials.json":
        record["costs"][0] = 1 - record["costs"][0]
    else:
        record["difference"][0] += 0.1
    (folder / file).write_text(json.dumps(record))
    done = quick("report", "a-b", "--json", "report.json")
    assert done.returncode == 1
    assert "NOT VERIFIED" in done.stderr
    assert not folder.with_name("a-b.html").exists()
    assert json.loads(folder.with_name("report.json").read_text())["verified"] is False


def test_a_comparison_has_no_rollouts(quick: Command, folder: Path):
    done = quick("report", folder.name, "--task", "module:Task")
    assert done.returncode == 2
    assert "--task is for the rollouts of a run" in done.stderr
