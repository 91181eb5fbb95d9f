"""The tables and figures of a comparison of two policies, with captions from its verdict."""

from __future__ import annotations

from collections.abc import Iterator

from pacbayes_control.certify.text import (
    LONGEST_NAME,
    confidence_percent,
    quoted,
)
from pacbayes_control.certify.trials import Trials
from pacbayes_control.report.comparison import outcome_counts, plots_of
from pacbayes_control.report.exports import Cell, Export, Plot, Table, count
from pacbayes_control.report.latex import Column
from pacbayes_control.report.running import interval, power_of_ten, signed, usual_difference
from pacbayes_control.trials.comparing import Comparison

PLOTS = {  # what each shows
    "evidence": "The e-values of both directions against the number of pairs.",
    "difference": "The mean difference, cost of B less that of A, and its limits, against the "
    "number of pairs.",
    "scatter": "The cost of B against that of A in each environment, as observed.",
}


def comparison_export(comparison: Comparison, trials: Trials, name: str) -> Export:
    """The verdict, the outcomes and the plots of a comparison.

    Args:
        comparison: as verified
        trials: that it was made from
        name: for file names and labels, from `exports.file_names`
    """
    caption = verdict_caption(comparison)
    columns = Column("Fact", "words"), Column("Value", "words")
    tables = [Table("verdict", columns, list(facts(comparison)), caption)]
    if comparison.pairs.in_same_environment:
        pairs = len(comparison.pairs.differences)
        rows = [
            (words, count(number), Cell(f"{100 * number / pairs:.1f} %", number / pairs))
            for words, number in outcome_counts(comparison, trials)
        ]
        columns = (
            Column("In the same environment", "words"),
            Column("Pairs", "number"),
            Column("Share", "number"),
        )
        tables.append(
            Table("outcomes", columns, rows, f"Outcomes of pairs, as observed. {caption}")
        )
    plots = plots_of(comparison, trials).items()
    figures = [Plot(each, draw, f"{PLOTS[each]} {caption}") for each, draw in plots]
    return Export(name, tables, figures)


def verdict_caption(comparison: Comparison) -> str:
    """The sentence of a comparison, and what it does not say."""
    named = f"A is {quoted(comparison.a)} and B is {quoted(comparison.b)}."
    words = [named, comparison.sentence]
    if comparison.verdict == "undecided":
        words.append("Undecided does not mean equal.")
    words.append(
        "It is about the mean over new environments like those that were tried, and not about a "
        "single one. The confidence is for this one comparison, and not for the best of several."
    )
    return " ".join(words)


def facts(comparison: Comparison) -> Iterator[tuple[str, str | Cell]]:
    """The verdict and its numbers, one a row."""
    yield "A", quoted(comparison.a, LONGEST_NAME)
    yield "B", quoted(comparison.b, LONGEST_NAME)
    verdict = "undecided" if comparison.verdict == "undecided" else f"A is {comparison.verdict}"
    yield "Verdict", verdict
    yield "Confidence", confidence_percent(comparison.alpha)
    yield "Pairs of trials", count(len(comparison.pairs.differences))
    mean = comparison.mean_difference
    yield "Mean difference, B less A", Cell(signed(mean), mean)
    yield from _limits("limit at any time", comparison.difference)
    if usual := usual_difference(comparison.pairs.differences):
        yield from _limits("end of the usual 95 % interval, for one look", usual)
    yield "E-value", f"{power_of_ten(comparison.log_e)}; {comparison.needed:g} decides"
    if comparison.decided_after is not None:
        yield "Decided after", comparison.decided_in_words
    if comparison.margin:
        yield "Differences that do not count", f"up to {comparison.margin:g}"
    if comparison.pairs.left_out:
        yield "Trials without a partner", count(comparison.pairs.left_out)


def _limits(words: str, limits: tuple[float, float]) -> Iterator[tuple[str, Cell]]:
    """Two limits, rounded outwards."""
    texts = interval(limits).split(" to ")
    for side, shown, value in zip(("Lower", "Upper"), texts, limits, strict=True):
        yield f"{side} {words}", Cell(shown, float(value))
