"""A page about a comparison of two policies: one HTML file that loads nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

import pacbayes_control
from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.trials import Trials
from pacbayes_control.report import rendering
from pacbayes_control.report.links import LISTED, linked_trials
from pacbayes_control.report.running import (
    interval,
    power_of_ten,
    running_limits,
    signed,
    usual_difference,
)
from pacbayes_control.report.trial_plots import draw_difference, draw_evidence, draw_scatter
from pacbayes_control.report.trials import TASKS, rate, repeated_words, task_rows
from pacbayes_control.trials.comparing import Comparison

SECTIONS = (  # the name of its template, its link at the top of the page, and its heading
    ("verdict", "Verdict", "Which policy is better"),
    ("evidence", "Evidence", "The evidence, pair by pair"),
    ("outcomes", "Outcomes", "The outcomes of A and B"),
    ("limits", "Limits", "What these data cannot say"),
)


@dataclass(frozen=True)
class ComparisonPage:
    """A page that was written."""

    path: Path
    size: int  # bytes


class DifferingPair(NamedTuple):
    """Trials of A and of B in the same environment that differ."""

    environment: str
    costs: tuple[float, float]
    links: tuple[str, str]


def write_comparison_page(
    comparison: Comparison, trials: Trials, file: str | Path, *, name: str = "comparison"
) -> ComparisonPage:
    """Write a page about a comparison; the same comparison gives the same bytes.

    Args:
        comparison: of two policies
        trials: that it was made from
        file: the HTML file to write
        name: of the comparison's folder
    """
    values = {
        **comparison_values(comparison, trials),
        "parts": "comparison/",
        "version": pacbayes_control.__version__,
        "title": Path(name).name,
        "shell_name": shlex.quote(name),
        "sections": SECTIONS,
    }
    content = rendering.render("comparison.html", values, plots_of(comparison, trials)).encode()
    write_output(Path(file), content)
    return ComparisonPage(Path(file), len(content))


def plots_of(
    comparison: Comparison, trials: Trials
) -> dict[str, Callable[[Path | BinaryIO], None]]:
    """The plots of a comparison by name, each a function of the file to write."""
    running = running_limits(comparison)
    found: dict[str, Callable[[Path | BinaryIO], None]] = {
        "evidence": partial(draw_evidence, comparison),
        "difference": partial(draw_difference, comparison, running),
    }
    if comparison.graded and comparison.pairs.in_same_environment:
        found["scatter"] = partial(draw_scatter, comparison, trials)
    return found


def comparison_values(comparison: Comparison, trials: Trials) -> dict[str, Any]:
    """The values that the templates of the sections read, by name."""
    a, b = (trials.policies.index(name) for name in (comparison.a, comparison.b))
    both = [
        (letter, trials.policies[i], int(np.sum(trials.policy == i)), _mean(trials, i))
        for letter, i in (("A", a), ("B", b))
    ]
    differing, differing_left_out = differing_pairs(comparison, trials)
    links, links_left_out = linked_trials(trials, [a, b])
    return {
        "comparison": comparison,
        "trials": trials,
        "pairs": len(comparison.pairs.differences),
        "usual": usual_difference(comparison.pairs.differences),
        "e_value": power_of_ten(comparison.log_e),
        "both": both,
        "counts": outcome_counts(comparison, trials),
        "differing": differing,
        "differing_left_out": differing_left_out,
        "links": links,
        "links_left_out": links_left_out,
        "task_table": task_rows(trials, [a, b])[:TASKS],
        "tasks_left_out": max(0, len(trials.tasks) - TASKS),
        "sources": [(Path(source).name, digest) for source, digest in trials.sources.items()],
        "rate": rate,
        "signed": signed,
        "limits": interval,
        "cannot_say": list(cannot_say(comparison, trials)),
    }


def outcome_counts(comparison: Comparison, trials: Trials) -> list[tuple[str, int]]:
    """How often both succeed, one of them, or neither; for graded costs, which costs less."""
    of_a, of_b = trials.costs[comparison.pairs.trials].reshape(-1, 2).T
    if comparison.graded:
        kinds = {
            "A costs less": of_a < of_b,
            "B costs less": of_a > of_b,
            "both cost the same": of_a == of_b,
        }
    else:
        kinds = {
            "both succeed": (of_a == 0) & (of_b == 0),
            "only A succeeds": of_a < of_b,
            "only B succeeds": of_a > of_b,
            "both fail": (of_a == 1) & (of_b == 1),
        }
    return [(words, int(each.sum())) for words, each in kinds.items()]


def differing_pairs(
    comparison: Comparison, trials: Trials, most: int = LISTED
) -> tuple[list[DifferingPair], int]:
    """Pairs in the same environment that differ, the largest differences first; how many more."""
    if not comparison.pairs.in_same_environment:
        return [], 0
    d = comparison.pairs.differences
    order = np.argsort(-np.abs(d), kind="stable")[: int(np.count_nonzero(d))]
    found = []
    for one, other in comparison.pairs.trials[order[:most]].tolist():
        links = (trials.links[one], trials.links[other]) if trials.links else ("", "")
        costs = float(trials.costs[one]), float(trials.costs[other])
        where = trials.environments[trials.environment[one]]
        found.append(DifferingPair(where, costs, links))
    return found, len(order) - len(found)


def _mean(trials: Trials, policy: int) -> float:
    return float(trials.costs[trials.policy == policy].mean())


# ---- words --------------------------------------------------------------------------------------


def cannot_say(comparison: Comparison, trials: Trials) -> Iterator[str]:
    """Sentences on the limits of a comparison, of those that apply."""
    pairs = comparison.pairs
    if comparison.verdict == "undecided":
        yield "Undecided does not mean equal: the limits say how large a difference may be."
    if comparison.tasks:
        yield f"Other tasks: the verdict is about the mean over these {len(comparison.tasks):,}."
    else:
        yield "Environments of another kind: the verdict is for those like the ones in the log."
    yield "One environment: a policy may be better on average, and worse in some of them."
    if comparison.in_order:
        yield (
            "Trials in another order than a random one: it was declared that they were carried "
            "out in random order, as recorded."
        )
    else:
        yield (
            "Evidence on the way: the order of the log need not be random, so that only all pairs "
            "together decide."
        )
    if not pairs.in_same_environment:
        yield (
            "Environments that were easier for one of both: A and B were not tried in the same "
            "ones, and each is taken to have had its own by chance. Trials in the same "
            "environments usually decide sooner."
        )
    yield from _left_out_words(comparison)
    if len(trials.policies) > 2:
        others = f"{len(trials.policies) - 2:,} other policies"
        yield (
            f"The {'other policy' if len(trials.policies) == 3 else others} of the log: the "
            "confidence is for this one comparison, and not for the best of several."
        )
    yield from repeated_words(trials)


def _left_out_words(comparison: Comparison) -> Iterator[str]:
    left_out = comparison.pairs.left_out
    if not left_out:
        return
    trials = "1 trial" if left_out == 1 else f"{left_out:,} trials"
    if comparison.untried:
        yield (
            f"Environments in which only one of both was tried: {trials} were left out, for "
            "reasons that, as declared, do not depend on how the other would have done."
        )
    else:
        yield f"Trials without a partner: {trials} of A or B do not count so far."
