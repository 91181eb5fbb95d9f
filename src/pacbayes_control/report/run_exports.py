"""The tables and figures of a run, with captions from its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.statistics import percent
from pacbayes_control.certify.text import (
    confidence_percent,
    printable,
    shown,
)
from pacbayes_control.report import summary
from pacbayes_control.report.exports import Cell, Export, Plot, Table, bound, count, named, observed
from pacbayes_control.report.latex import Column
from pacbayes_control.report.plots import UNTIL, plots_of_run
from pacbayes_control.report.sections import MEANING, budget_rows, side_by_side
from pacbayes_control.report.trial_plots import choice_plots
from pacbayes_control.report.trials import choice_of
from pacbayes_control.trials.choosing import Choice

LISTED = 20  # policies in a table
LONGEST = 300  # characters of a cost rule and the like
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
    figures = [Plot(each, draw, captions[each]) for each, draw in plots.items()]
    return Export(name, list(_tables(run, choice)), figures)


# ---- captions -----------------------------------------------------------------------------------


def guarantee(c: Certificate) -> str:
    """The certificate's own sentence, and in a few more which claims it does not make."""
    return " ".join([c.sentence, *not_promised(c)])


def not_promised(c: Certificate) -> Iterator[str]:
    """Claims that a reader could take for a part of the certificate."""
    if c.most_above is not None:
        yield "It does not say which environments cost more, nor how much more."
    else:
        yield "The bound is on an average: a single environment may cost more."
    if c.policy is None:
        yield "It is not for one policy of the mixture, used every time."
    if c.ball is None:
        yield "Nothing is promised for environments that are drawn in another way."
    else:
        yield "Nothing is promised for distributions outside of that ball."
    yield "Observed costs and test estimates are no part of the guarantee."


def plot_captions(run: Run[Any]) -> dict[str, str]:
    """A caption for each plot of a run, by its name."""
    c = run.certificate
    n, promise = f"{c.environments:,} environments", guarantee(c)
    return {
        "methods": methods_caption(c),
        "posterior": f"The posterior and the prior over policies, and costs observed in the {n}. "
        f"No policy is certified by this on its own. {c.sentence}",
        "environment-costs": f"The {n} by the cost that was observed in them: no guarantee. "
        f"{c.sentence}",
        "distribution": "The distribution function of the cost, as recorded and as certified. The "
        "certified curve and the statement that follows hold together, at the stated confidence. "
        f"{promise}",
        "bound-against-environments": "The bound as it would be with other numbers of "
        "environments, if the observed cost and the divergence from the prior stayed as they are: "
        f"a projection, and no guarantee. This certificate is the marked point. {c.sentence}",
        UNTIL: "The bound at each number of environments at which it was computed; all of these "
        f"bounds hold at once. {promise}",
        "shift": "The guarantee against the size B of a shift, the divergence of the new "
        "distribution of environments from the old one. It holds for all B at once, at the same "
        "confidence. How large a shift is does not follow from these data. Without any shift: "
        f"{promise}"
        if c.ball is None
        else "The guarantee against the size B of a shift, the divergence of the new distribution "
        f"of environments from the old one. {promise}",
        "policies": choice_caption(c),
    }


def methods_caption(c: Certificate) -> str:
    """That only one of several bounds was chosen beforehand."""
    return (
        f"Bounds by several methods, computed side by side from the same costs of "
        f"{c.environments:,} environments. Each holds on its own, if it is chosen beforehand; to "
        "compute all of them and to keep the smallest voids the confidence. Only the bound of "
        f"this run, by {c.method}, was certified at δ = {c.delta:g}: {guarantee(c)}"
    )


def choice_caption(c: Certificate) -> str:
    """That the bounds of all policies hold at once, and the usual intervals do not."""
    return (
        "Every policy and its trials. The bounds of all policies hold at once, with confidence "
        f"{confidence_percent(c.delta)}, so that any policy may be chosen by them. The usual 95 % "
        f"intervals do not allow for the choice of the best. {guarantee(c)}"
    )


# ---- tables -------------------------------------------------------------------------------------


def _tables(run: Run[Any], choice: Choice | None) -> Iterator[Table]:
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
    if hardest := summary.hardest(run):
        rows = [(named(run.costs.site(i)), observed(cost)) for i, cost in hardest]
        columns = Column("Environment", "words"), Column("Observed", "number")
        words = (
            f"The hardest of the {c.environments:,} environments, by observed cost: no guarantee "
        )
        words += f"is about a single environment. {c.sentence}"
        yield Table("environments", columns, rows, words)


def facts(run: Run[Any]) -> Iterator[tuple[str, str | Cell]]:
    """What a certificate states, one fact a row."""
    c = run.certificate
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
        yield "Parameters of a policy", count(c.parameters)
    drawn = c.method == "single-draw"
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
    if c.test_estimate is not None:
        yield (
            f"Test estimate, {c.test_estimate.environments:,} environments",
            observed(c.test_estimate.cost),
        )
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
                bound(each.bound),
            )
        )
    left = len(choice.policies) - len(rows)
    words = f"{left:,} more policies have larger bounds. " if left else ""
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
