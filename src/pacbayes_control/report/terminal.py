"""What the commands say. Bounds are rounded upwards, and names are never read as markup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from pacbayes_control.certify.balls import Ball, round_down
from pacbayes_control.certify.certificate import Certificate, confidence_percent, round_up
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.text import quoted
from pacbayes_control.deploy.monitor import shown
from pacbayes_control.report.console import (
    bar,
    err,
    key_values,
    out,
    say,
    show,
    warn,
    watch,
    working,
)
from pacbayes_control.report.environments import hardest
from pacbayes_control.tasks.registry import recorded_words

if TYPE_CHECKING:  # what is shown: a verdict should not wait for a simulator to load
    from pacbayes_control.certify.run import Run
    from pacbayes_control.certify.shift import Curve
    from pacbayes_control.deploy.monitor import Report
    from pacbayes_control.learn import Comparison
    from pacbayes_control.rollouts.conformance import Check

__all__ = [
    "bar",
    "err",
    "interval_ends",
    "mixture",
    "out",
    "say",
    "show",
    "show_certificate",
    "show_checks",
    "show_comparison",
    "show_curve",
    "show_report",
    "warn",
    "watch",
    "working",
]


def show_checks(checks: Sequence[Check]) -> None:
    """Each promise, whether it was kept, and what was seen."""
    table = key_values()
    for check in checks:
        mark = Text("passed", "green") if check.passed else Text("FAILED", "bold red")
        if check.warning:
            mark = Text("WARNING", "bold yellow")
        if check.detail.startswith("not tried"):
            mark = Text("skipped")
        table.add_row(mark, check.name, check.detail)
    show(table)


def show_certificate(run: Run[Any]) -> None:
    """The promise, and what it rests on."""
    c = run.certificate
    say("")
    say(c.sentence, style="bold")
    say("")
    table = key_values()
    table.add_row("bound", f"{round_up(c.bound)}  (method {c.method}, δ = {c.delta:g})")
    if c.ball is not None and c.bound_without_shift is not None:
        table.add_row("without a shift", round_up(c.bound_without_shift))
        table.add_row("shift", f"{c.ball}, {c.ball.origin}")
    if c.tilt is not None:
        table.add_row("tilt", f"{c.tilt:g}")
    table.add_row("observed cost", f"{c.empirical_cost:.4f}")
    if c.draws is not None and c.training_cost_bound is not None:
        kind = "shared by all environments" if c.shared_draws else "for each environment"
        table.add_row(
            "with sampling", f"{round_up(c.training_cost_bound)}  ({c.draws:,} policies {kind})"
        )
    if c.test_estimate is not None:
        estimate = c.test_estimate
        where = f"{estimate.environments:,} environments that it has never seen"
        table.add_row("test estimate", f"{estimate.cost:.4f}  (on {where})")
    if c.cost_rule:
        table.add_row("a rollout costs", c.cost_rule)
    drawn = f": {c.distribution}" if c.distribution else ""
    table.add_row("environments", f"{c.environments:,}, {c.purpose}{drawn}")
    for words in c.incident_words:
        table.add_row("note", words)
    what = "KL from the prior" if c.method != "single-draw" else "log ratio to the prior"
    table.add_row(what, f"{c.kl:.3f} nats")
    if c.noise:
        table.add_row("noise", f"{c.noise}; drawn apart: KL counts the policy alone")
    if "settings" in run.costs.origin:
        told = recorded_words(run.costs)
        if told is None:
            told = "a robot that its record does not describe"
        if told:
            table.add_row("for", told)
    table.add_row("prior", c.prior)
    if c.set_aside:
        total = c.environments + c.set_aside
        table.add_row("set aside", f"the bound counts {c.environments:,} of {total:,} environments")
    if isinstance(run.posterior, Categorical) and c.policy is None:
        table.add_row("posterior", mixture(run))
    if run.costs.sites:
        table.add_row("hardest", hardest_sites(run))
    show(table)
    if c.parameters is not None and c.policy is None and c.kl == 0:
        say("The search found no lower bound than the prior's own: the posterior is the prior.")


def mixture(run: Run[Categorical], most: int = 4) -> str:
    """The likeliest policies of a posterior and their shares."""
    shares = run.posterior.probabilities
    top = [int(i) for i in shares.argsort()[::-1] if shares[i] >= 0.001][:most]
    text = ", ".join(f"{quoted(run.costs.name(i))} {shares[i]:.1%}" for i in top)
    rest = 1 - float(shares[top].sum())
    return text + (f", others {rest:.1%}" if rest >= 0.0005 else "")


def hardest_sites(run: Run[Any], most: int = 3) -> str:
    """The environments of highest cost, by name."""
    names = [f"{quoted(run.costs.site(i))} {cost:.4f}" for i, cost in hardest(run, most)]
    return ", ".join(names) or "no environment"


def show_comparison(comparison: Comparison, method: str) -> None:
    """Every certificate side by side, and what the chosen one promises."""
    first, chosen = comparison.runs[0].certificate, comparison.chosen
    say(
        f"{first.environments} environments × {first.policies} policies, "
        f"confidence {confidence_percent(first.delta)}"
        + (f", on every distribution D′ with {first.ball}" if first.ball else "")
    )
    table = Table("method", "bound", "observed", "KL", "promises the expected cost of")
    for run in comparison.runs:
        mark = " *" if run is chosen else ""
        table.add_row(run.certificate.method + mark, *_cells(run.certificate), _who(run))
    if method == "best":
        c = chosen.certificate
        table.add_row("best *", *_cells(c), f"{c.method}, at its share of δ: {_who(chosen)}")
    show(table)
    if method == "best":
        say("The line marked * pays for the choice between kl and occam, and is the one to use.")
    else:
        say("Each line holds on its own; the one marked * (--method) is the one to use.")
        say("Decide on it before you look: to pick the smallest afterwards voids the confidence.")
    if chosen.certificate.policy is None:
        say(f"\nPosterior: {mixture(chosen)}")
    if chosen.costs.sites:
        say(f"Hardest: {hardest_sites(chosen)}")
    for text in chosen.certificate.constraints:
        say(f"Constraint: {text}")
    say("")
    say(chosen.certificate.sentence, style="bold")


def _cells(c: Certificate) -> tuple[str, str, str]:
    return round_up(c.bound), f"{c.empirical_cost:.4f}", f"{c.kl:.3f}"


def _who(run: Run[Categorical]) -> str:
    policy = run.certificate.policy
    if policy is None:
        return "a policy drawn afresh each time"
    return f"one policy, always: {quoted(run.costs.name(policy))}"


def show_curve(curve: Curve) -> None:
    """The guarantee against the size of the shift."""
    table = Table("shift up to B", "expected cost at most", title_justify="left")
    table.title = f"What is promised where {Ball(curve.divergence, 0.0).symbol} ≤ B"
    step = max(1, (len(curve.radii) - 1) // 10)
    for radius, bound in list(zip(curve.radii, curve.bounds, strict=True))[::step]:
        table.add_row(round_down(radius), round_up(bound))
    show(table)
    if math.isinf(curve.tolerable):
        say(f"The promise stays at {curve.limit:g} or below whatever the shift.")
    elif curve.tolerable == 0:
        say(f"The bound is {curve.limit:g} or more without any shift.")
    else:
        say(
            f"The promise stays at {curve.limit:g} or below up to a shift of "
            f"B = {round_down(curve.tolerable)}. All of the curve holds at once, "
            "with the confidence of the run."
        )


def show_report(report: Report, drawn_afresh: bool) -> None:
    """The verdict of a monitor, and the numbers behind it."""
    say(report.sentence, style="bold")
    low, high = interval_ends(*report.interval)
    table = key_values()
    table.add_row("verdict", report.verdict)
    table.add_row("outcomes", f"{report.trials:,}, mean cost {report.mean_cost:.4f}")
    table.add_row("promised", f"{shown(report.bound)} at most")
    table.add_row(
        "e-value",
        f"{_digits(report.e_value, ROUND_FLOOR)}, "
        f"largest {_digits(report.largest_e_value, ROUND_FLOOR)}; "
        f"alarm at {1 / report.alpha:g}; may be watched",
    )
    table.add_row("cost as deployed", f"{low} to {high}  (α = {report.alpha:g}, at any time)")
    p_value = _digits(report.p_value, ROUND_CEILING)
    table.add_row("p-value", f"{p_value}  (one look only, at a number fixed before)")
    show(table)
    if drawn_afresh:
        say("The promise is about a policy that is drawn afresh for each mission.")


def interval_ends(low: float, high: float) -> tuple[str, str]:
    """An interval that holds at least what it should: its ends are rounded outwards.

    >>> interval_ends(0.01239, 0.04561)
    ('0.0123', '0.0457')
    """
    return f"{Decimal(low).quantize(Decimal('1e-4'), ROUND_FLOOR):f}", round_up(high)


def _digits(value: float, rounding: str) -> str:
    """Four digits, rounded to the side of less evidence."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(Decimal(value))):.4g}"
