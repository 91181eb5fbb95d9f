"""The tables and figures of a run, with captions from its certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.statistics import percent
from pacbayes_control.certify.text import confidence_percent, printable, shown
from pacbayes_control.report import summary
from pacbayes_control.report.exports import Cell, Export, Plot, Table, bound, count, named, observed
from pacbayes_control.report.failure_plots import failure_section
from pacbayes_control.report.held_out import held_out_error
from pacbayes_control.report.latex import Column
from pacbayes_control.report.plots import plots_of_run
from pacbayes_control.report.run_captions import (
    choice_caption,
    failure_captions,
    guarantee,
    hardest_caption,
    methods_caption,
    plot_captions,
)
from pacbayes_control.report.sections import MEANING, budget_rows, side_by_side
from pacbayes_control.report.simulation import simulation_facts
from pacbayes_control.report.trial_plots import choice_plots
from pacbayes_control.report.trials import behind_words, choice_of
from pacbayes_control.study.failures import MEANING as MEANING_OF_FAILURES
from pacbayes_control.trials.choosing import Choice

LISTED = 20  # policies in a table
LONGEST = 300  # characters of a cost rule and the like
PARAMETERS = 4  # of the hardest environments, in a table
LONGEST_PARAMETER = 16  # characters of its name or of its value
NAME, FACT, VALUE = Column("Policy", "words"), Column("Fact", "words"), Column("Value", "words")


def run_export(run: Run[Any], name: str) -> Export:
    """Everything that a page shows of a run as tables and figures.

    Args:
        run: as verified
        name: for file names and labels, from `exports.file_names`
    """
    plots = plots_of_run(run)
    choice = None if run.trials is None else choice_of(run, run.trials)
    if choice is not None:
        plots |= choice_plots(choice)
    captions = plot_captions(run)
    failing = failure_section(run, None)
    if failing["failures"] is not None:
        plots |= failing["failure_plots"]
        captions |= failure_captions(failing)
    figures = [Plot(each, draw, captions[each]) for each, draw in plots.items()]
    return Export(name, list(_tables(run, choice, failing)), figures)


# ---- tables -------------------------------------------------------------------------------------


def _tables(run: Run[Any], choice: Choice | None, failing: Mapping[str, Any]) -> Iterator[Table]:
    c = run.certificate
    yield Table("certificate", (FACT, VALUE), list(facts(run)), guarantee(c))
    yield _budget(c)
    if c.parts:
        yield _parts(c)
    methods, _ = side_by_side(run)
    if methods:
        columns = Column("Method", "words"), *_numbers("Observed", "Bound")
        rows = [
            (f"{each.method}{' (this run)' * (each is c)}: {MEANING[each.method]}", *_both(each))
            for each in methods
        ]
        yield Table("methods", columns, rows, methods_caption(c))
    if choice is not None:
        yield _choice(choice)
    elif isinstance(run.posterior, Categorical):
        yield _policies(run)
    if function := summary.distribution_function(run):
        yield _exceeded(c, function)
    if failing["failures"] is not None:
        yield _hardest_described(c, failing)
    elif hardest := summary.hardest(run):
        rows = [(named(run.costs.site(i)), observed(cost)) for i, cost in hardest]
        columns = Column("Environment", "words"), Column("Observed", "number")
        yield Table("environments", columns, rows, hardest_caption(c))


def _hardest_described(c: Certificate, failing: Mapping[str, Any]) -> Table:
    """The hardest environments with the parameters that a page shows."""
    found, parameters = failing["failures"], failing["failure_columns"][:PARAMETERS]
    rows = []
    for i in failing["failures_shown"]:
        known = f"{found.names[i]} ({i})" if found.names else f"{i}"
        values = [_parameter(found.described[name][i]) for name in parameters]
        rows.append((named(known), observed(found.costs[i]), *values))
    columns = [Column("Environment", "words"), Column("Observed", "number")]
    columns += [Column(printable(name, LONGEST_PARAMETER), "number") for name in parameters]
    return Table("environments", columns, rows, f"{hardest_caption(c)} {MEANING_OF_FAILURES}")


def _parameter(value: np.generic) -> Cell:
    plain = value.item()
    shown_as = f"{plain:.4g}" if isinstance(plain, float) else str(plain)
    return Cell(printable(shown_as, LONGEST_PARAMETER), plain)


def facts(run: Run[Any]) -> Iterator[tuple[str, str | Cell]]:
    """What a certificate states, one fact a row."""
    c = run.certificate
    drawn = c.method == "single-draw"
    what = summary.bound_words(c) or "the expected cost in a new environment"
    stated = Cell(c.shown_bound, c.bound)
    yield (f"Cost {what}" if c.most_above is not None else f"Bound on {what}"), stated
    yield "Confidence", confidence_percent(c.delta)
    yield f"Environments it was {c.purpose}, N", count(c.environments)
    if c.set_aside:
        yield "Environments used to prepare, not counted", count(c.set_aside)
    yield "Method", f"{c.method}: {MEANING[c.method]}"
    if c.parameters is None:
        yield "Certified", summary.policy_words(c, run.costs)
        known = (
            "Policies to choose from" if c.candidates is None else "Policies it was chosen among"
        )
        yield known, count(c.candidates or c.policies or 1)
    else:
        once = "one policy, drawn once from the posterior and kept"
        yield "Certified", once if drawn else "a policy drawn afresh each time"
        yield "Parameters of a policy", count(c.parameters)
    if c.draws is not None:
        yield "Policies drawn for each environment", count(c.draws)
    yield (
        "ln of the densities' ratio" if drawn else "KL(posterior‖prior), nats",
        Cell(f"{c.kl:.4f}", c.kl),
    )
    yield "Observed mean cost", observed(c.empirical_cost)
    if told := summary.observed_words(run):
        yield told[0].capitalize(), told[1]
    if c.training_cost_bound is not None:
        yield "The same, with what draws may miss", bound(c.training_cost_bound)
    if c.bound_without_shift is not None:
        yield "Bound without a shift", bound(c.bound_without_shift)
    yield from ((name.capitalize(), value) for name, value in simulation_facts(c))
    if c.test_estimate is not None:
        cost, n = observed(c.test_estimate.cost), c.test_estimate.environments
        told = f"{cost.shown} ({held_out_error(c)})"
        yield f"Test estimate, {n:,} environments", Cell(told, cost.value)
    words = {"Prior": c.prior if c.candidates is None else None, "Cost of a rollout": c.cost_rule}
    words |= {"Environments are drawn from": c.distribution, "Noise": c.noise}
    yield from ((fact, printable(text, LONGEST)) for fact, text in words.items() if text)


def _budget(c: Certificate) -> Table:
    rows = [
        (f"{name}: {words}", Cell(f"{share:.4g}", share), Cell(f"{100 * part:.1f} %", part))
        for name, words, share, part in budget_rows(c)
    ]
    words = (
        f"How δ = {c.delta:g}, the probability that the certificate may be wrong, was spent. "
        f"{c.sentence}"
    )
    return Table("budget", (Column("Spent on", "words"), *_numbers("δ", "Part")), rows, words)


def _parts(c: Certificate) -> Table:
    rows = [
        (
            part.words,
            count(part.environments),
            "none" if part.empirical_cost is None else observed(part.empirical_cost),
            bound(part.bound),
        )
        for part in c.parts
    ]
    words = (
        "Parts of the world that were declared before any rollout. Their bounds and the one for "
        f"the whole world hold at once. {guarantee(c)}"
    )
    columns = Column("Part", "words"), *_numbers("n", "Observed", "Bound")
    return Table("parts", columns, rows, words)


def _policies(run: Run[Categorical]) -> Table:
    c, first = run.certificate, summary.likeliest(run)[:LISTED]
    shares, prior = run.posterior.probabilities, run.prior.probabilities
    rows = [
        (
            named(run.costs.name(i)),
            _share(shares[i]),
            _share(prior[i]),
            observed(run.costs.means[i]),
        )
        for i in map(int, first)
    ]
    words = (
        f"{f'The {len(rows)} policies' if len(rows) < run.costs.policies else 'The policies'} with "
        "the largest shares of the posterior. Mean costs are observed, and certify no policy on "
        f"its own. {c.sentence}"
    )
    return Table("policies", (NAME, *_numbers("Posterior", "Prior", "Observed")), rows, words)


def _choice(choice: Choice) -> Table:
    rows = []
    for each in choice.by_bound[:LISTED]:
        low, high = each.usual_interval
        name = named(each.name, " (chosen)" * (each.name == choice.chosen))
        rows.append(
            (
                name,
                count(each.trials),
                observed(each.mean),
                f"{low:.3f}–{high:.3f}",
                bound(each.bound) if math.isfinite(each.bound) else Cell("—", None),
            )
        )
    left = len(choice.policies) - len(rows)
    behind = behind_words(choice.run.certificate)
    words = f"{left:,} more policies have {behind}. " if left else ""
    columns = NAME, *_numbers("Trials", "Mean", "Usual 95 %", "Bound")
    return Table(
        "choice", columns, rows, choice_caption(choice.run.certificate) + f" {words}".rstrip()
    )


def _exceeded(c: Certificate, function: summary.DistributionFunction) -> Table:
    rows = [
        (f"{percent(share)} of new environments, at most", Cell(shown(cost), cost), _share(above))
        for share, cost, above in function.exceeded()
    ]
    words = (
        "Costs that few new environments exceed, from the certified distribution function: all "
        f"rows and the statement that follows hold together. {guarantee(c)}"
    )
    columns = Column("Share", "words"), *_numbers("Cost more than", "Observed")
    return Table("distribution", columns, rows, words)


def _numbers(*headings: str) -> Iterator[Column]:
    return (Column(heading, "number") for heading in headings)


def _both(c: Certificate) -> tuple[Cell, Cell]:
    return observed(c.empirical_cost), bound(c.bound)


def _share(value: float) -> Cell:
    return Cell(f"{100 * value:.2f} %", float(value))
