"""Short summaries in Markdown, as for a pull request; names are never read as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pacbayes_control.certify.text import (
    LONGEST_NAME,
    confidence_percent,
    percent_up,
    printable,
    round_up,
)
from pacbayes_control.report.running import interval, power_of_ten, signed, usual_difference
from pacbayes_control.report.trials import rate
from pacbayes_control.trials.choosing import Choice
from pacbayes_control.trials.comparing import Comparison
from pacbayes_control.trials.ranking import Ranking

ROWS = 20  # policies in a table
# Marks of Markdown and HTML; underscores at the edge of a word; dots and colons of addresses.
SPECIAL = re.compile(r"[\\`*{}\[\]<>#|~$&@!/^=+]|(?<![^\W_])_|_(?![^\W_])|\.(?=[^\W\d])|:(?=\S)")
INVISIBLE = "&#8203;"  # a space of no width, so that a host does not see a mention or a reference


def choice_markdown(choice: Choice) -> str:
    """The promise on the policy to ship, a table of the policies, and what it means."""
    trials, c = choice.trials, choice.run.certificate
    at_most = round_up if trials.graded else percent_up
    rows, what = choice.by_bound, "mean cost" if trials.graded else "failure rate"
    cells = []
    for row in rows[:ROWS]:
        low, high = (rate(limit, trials) for limit in row.usual_interval)
        name = escaped(row.name, LONGEST_NAME) + (" ★" if row.name == choice.chosen else "")
        numbers = f"{row.trials:,}", rate(row.mean, trials), f"{low} to {high}"
        cells.append((name, *numbers, at_most(row.bound)))
    head = ("policy", "trials", what, "usual 95 % interval", "certified, at most")
    meaning = (
        f"All certified bounds hold at once with confidence {confidence_percent(c.delta)}, so that "
        "the policy may be chosen by them. The usual interval does not pay for that choice."
    )
    if c.candidates == 1:
        meaning = f"The bound holds with confidence {confidence_percent(c.delta)}."
    if len(rows) > ROWS:
        meaning = f"{len(rows) - ROWS:,} more policies have larger bounds. {meaning}"
    return "\n\n".join((f"**{escaped(c.sentence)}**", _table(head, cells), meaning)) + "\n"


def ranking_markdown(ranking: Ranking) -> str:
    """Which policies are better than which, and what it means."""
    what = "mean cost" if ranking.graded else "failure rate"
    cells = [
        (
            escaped(ranking.policies[i], LONGEST_NAME),
            f"{ranking.trials[i]:,}",
            f"{ranking.means[i]:.4f}" if ranking.graded else f"{100 * ranking.means[i]:.1f} %",
            f"{best}" if best == worst else f"{best} to {worst}",
        )
        for i, (best, worst) in enumerate(ranking.ranks[:ROWS])
    ]
    meaning = "All of it holds at once, and at any time: trials may be added and looked at again."
    if len(ranking.policies) > ROWS:
        meaning = f"{len(ranking.policies) - ROWS:,} more policies have higher means. {meaning}"
    table = _table(("policy", "trials", what, "rank"), cells)
    return "\n\n".join((f"**{escaped(ranking.sentence)}**", table, meaning)) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """The verdict on two policies, the numbers behind it, and what it means."""
    d = comparison.pairs.differences
    usual = usual_difference(d)
    where = "same environments" if comparison.pairs.in_same_environment else "order of recording"
    rows = [
        ("A", escaped(comparison.a, LONGEST_NAME)),
        ("B", escaped(comparison.b, LONGEST_NAME)),
        ("pairs of trials", f"{len(d):,} ({where})"),
        ("mean difference, B less A", signed(comparison.mean_difference)),
        ("its limits, at any time", interval(comparison.difference)),
        ("usual 95 % interval, for one look", interval(usual) if usual else "needs two pairs"),
        ("e-value", f"{power_of_ten(comparison.log_e)}; {comparison.needed:g} decides"),
    ]
    if comparison.decided_after is not None:
        rows.append(("decided after", comparison.decided_in_words))
    elif comparison.more is not None:
        rows.append(("may be decided after about", f"{comparison.more:,} more pairs like these"))
    meaning = (
        "The limits hold at any time: trials may be added and looked at again. "
        + {
            "better": f"Above {comparison.margin:g}, A is better.",
            "worse": f"Below {-comparison.margin or 0:g}, B is better.",
            "undecided": "Undecided does not mean equal: more trials may decide it.",
        }[comparison.verdict]
    )
    sentence = f"**{escaped(comparison.sentence)}**"
    return "\n\n".join((sentence, _table(("comparison", ""), rows), meaning)) + "\n"


def escaped(text: str, most: int | None = None) -> str:
    """Text on one line that Markdown and HTML show as it is, without links, mentions or cells.

    >>> escaped("pi0_fast [x](http://x.org) | @all")
    'pi0_fast &#91;x&#93;(http&#58;&#47;&#47;x&#46;org) &#124; &#64;&#8203;all'
    """
    line = printable(" ".join(printable(text).split()), most)
    return SPECIAL.sub(_as_number, line)


def _as_number(found: re.Match[str]) -> str:
    return "".join(f"&#{ord(c)};" + (INVISIBLE if c in "@#" else "") for c in found[0])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with numbers flush right in all columns but the first."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
