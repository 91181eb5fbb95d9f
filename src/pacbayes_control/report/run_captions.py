"""Captions of the tables and figures of a run: the promise and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve
from pacbayes_control.certify.text import confidence_percent
from pacbayes_control.report.failure_plots import RANKING
from pacbayes_control.report.plots import UNTIL
from pacbayes_control.study.failures import MEANING, SHARED


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
    without = "" if c.ball is None else " They are without the shift."
    shift = "KL(D′‖D)" if c.statistic.kind == "cvar" else Ball(curve(c).divergence, 0.0).symbol
    return {
        "simulation": simulation_caption(c),
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
        f"bounds hold at once.{without} {promise}",
        "shift": f"The guarantee against the size B of a shift: {shift} ≤ B, where D is the "
        "distribution that the environments were drawn from and D′ a new one. It holds for all B "
        "at once, at the same confidence. How large a shift is does not follow from these data. "
        f"{c.sentence}",
        "policies": choice_caption(c),
    }


def failure_captions(failing: Mapping[str, Any]) -> dict[str, str]:
    """A caption for each plot of the section on failures, by its name: they certify nothing."""
    found = failing["failures"]
    captions = {
        name: f"{words}, as recorded. {found.interval_words} {MEANING}"
        for name, words in failing["failure_figures"]
    }
    if found.ranking is not None:
        words = f"{found.ranking.words} {SHARED} {MEANING}"
        captions[RANKING] = f"How much of the recorded cost each parameter explains. {words}"
    return captions


def methods_caption(c: Certificate) -> str:
    """That only one of several bounds was chosen beforehand."""
    return (
        f"Bounds by several methods, computed side by side from the same costs of "
        f"{c.environments:,} environments. Each holds on its own, if it is chosen beforehand; to "
        "compute all of them and to keep the smallest voids the confidence. Only the bound of "
        f"this run, by {c.method}, was certified at δ = {c.delta:g}: {guarantee(c)}"
    )


def simulation_caption(c: Certificate) -> str:
    """That the agreement of robot and simulation is observed, and not assumed."""
    return (
        "Costs of the certified policy on the robot and in simulation of the same "
        f"{c.environments:,} environments, as observed. Nothing is assumed about how well they "
        f"agree. {guarantee(c)}"
    )


def choice_caption(c: Certificate) -> str:
    """That the bounds of all policies hold at once, and the usual intervals do not."""
    if c.simulation is not None:
        return (
            "Every policy and its trials. The bound of the chosen one allows for the choice; those "
            "of the others rest on simulation that is not in the run, and are not shown. The usual "
            f"95 % intervals do not allow for the choice of the best. {guarantee(c)}"
        )
    return (
        "Every policy and its trials. The bounds of all policies hold at once, with confidence "
        f"{confidence_percent(c.delta)}, so that any policy may be chosen by them. The usual 95 % "
        f"intervals do not allow for the choice of the best. {guarantee(c)}"
    )


def hardest_caption(c: Certificate) -> str:
    """That costs of single environments are no part of the certificate."""
    return (
        f"The hardest of the {c.environments:,} environments, by observed cost: no guarantee is "
        f"about a single environment. {c.sentence}"
    )
