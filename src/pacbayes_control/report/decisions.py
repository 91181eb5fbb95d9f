"""Output of the commands on evaluation logs: choices, comparisons and rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pacbayes_control.certify.text import interval_ends, round_up
from pacbayes_control.report.console import key_values, print_table, say, show
from pacbayes_control.report.terminal import show_simulation

if TYPE_CHECKING:
    from pacbayes_control.trials.choosing import Choice
    from pacbayes_control.trials.comparing import Comparison
    from pacbayes_control.trials.ranking import Ranking

CANDIDATES = (
    "Every policy counts that was ever tried in these environments, also those left out of the "
    "log, and those that would have been tried if these had done worse: the more there are, the "
    "better the best one looks by chance (--candidates)."
)


def mean_words(graded: bool | None) -> str:
    """The mean of a policy's costs, in words."""
    return "mean cost" if graded else "failure rate"


def show_choice(choice: Choice) -> None:
    """Every policy with its certified bound, and the promise about the one to ship."""
    graded, certificate = choice.trials.graded, choice.run.certificate
    rows = []
    for each in choice.by_bound:
        low, high = interval_ends(*each.usual_interval)
        mark = " *" if each.name == choice.chosen else ""
        numbers = f"{each.trials:,}", f"{each.mean:.4f}", f"{low} to {high}", round_up(each.bound)
        rows.append((each.name + mark, *numbers))
    usual, certified = "usual 95 % interval", "certified at most"
    headings = ("policy", "trials", mean_words(graded), usual, certified)
    print_table("", headings, rows, left=("policy",))
    say("* to ship. The certified bounds hold for all policies at once, so that the choice is paid")
    say("for; the usual interval of the best one does not pay for it.")
    if certificate.candidates == len(choice.policies):
        say(CANDIDATES)
    show_simulation(certificate)
    say("")
    say(certificate.sentence, style="bold")


def show_comparison(comparison: Comparison) -> None:
    """The verdict, and the numbers behind it."""
    say(comparison.sentence, style="bold")
    pairs, c = comparison.pairs, comparison
    kind = "in the same environments" if pairs.in_same_environment else "by order of recording"
    low, high = interval_ends(*c.difference)
    record = c.to_dict()
    rows = [
        ("verdict", c.verdict),
        ("pairs", f"{len(pairs.differences):,}, {kind}"),
        ("observed difference", f"{c.mean_difference:+.4f}  ({mean_words(c.graded)}, B less A)"),
        ("difference", f"{low} to {high}  (α = {c.alpha:g}, at any time)"),
        ("e-value", f"{record['e_value']:.4g}; {c.needed:g} decides"),
    ]
    if c.decided_after is not None:
        rows.append(("decided after", c.decided_in_words))
    if c.verdict == "undecided" and c.more is not None:
        rows.append(("still needed", f"about {c.more:,} pairs, if they go on like these"))
    if pairs.left_out:
        trials = "1 trial" if pairs.left_out == 1 else f"{pairs.left_out:,} trials"
        rows.append(("left out", f"{trials} without a partner"))
    show(key_values(rows))


def show_ranking(ranking: Ranking) -> None:
    """Every policy with the ranks that it may have, and the groups that cannot be told apart."""
    letters = [""] * len(ranking.policies)
    for number, group in enumerate(ranking.groups):
        for i in group:
            letters[i] += group_name(number) + " "
    rows = [
        (
            name,
            f"{ranking.trials[i]:,}",
            f"{ranking.means[i]:.4f}",
            f"{best}" if best == worst else f"{best} to {worst}",
            letters[i].strip(),
        )
        for i, (name, (best, worst)) in enumerate(zip(ranking.policies, ranking.ranks, strict=True))
    ]
    headings = ("policy", "trials", mean_words(ranking.graded), "rank", "groups")
    print_table("", headings, rows, left=("policy", "groups"))
    say("Policies that share a group cannot be told apart. All statements hold at once.")
    say("")
    say(ranking.sentence, style="bold")


def group_name(number: int) -> str:
    """A letter for a group, or a letter and a number where there are many.

    >>> [group_name(number) for number in (0, 25, 26)]
    ['A', 'Z', 'A2']
    """
    again, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(again + 1) if again else "")
