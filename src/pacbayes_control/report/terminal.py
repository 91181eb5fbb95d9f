"""Output of the commands. Bounds are rounded upwards, and names are never read as markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.statistics import rest_percent
from pacbayes_control.certify.text import (
    confidence_percent,
    interval_ends,
    quoted,
    round_down,
    round_up,
    shown,
)
from pacbayes_control.report.console import key_values, say, show, warn
from pacbayes_control.report.summary import (
    PRIOR_KEPT,
    bound_words,
    exceeded_words,
    hardest,
    observed_words,
    policy_words,
    shift_words,
    simulation_rows,
)

if TYPE_CHECKING:  # records to show: a verdict should not wait for a simulator to load
    from pacbayes_control.certify.certificate import Certificate
    from pacbayes_control.certify.run import Run
    from pacbayes_control.certify.shift import Curve
    from pacbayes_control.deploy.monitor import Report
    from pacbayes_control.learn import MethodComparison
    from pacbayes_control.rollouts.conformance import Check

EMPTY = "WARNING: a bound of 1 promises nothing: more environments are needed for it to be smaller."
ENOUGH = 10  # further environments in simulation for each trial on the robot
WHEN = {  # to use which method
    "occam": "one policy to ship",
    "kl": "a mixture, 0/1",
    "kl-maurer": "as published",
    "pinsker": "as in the paper",
    "betting": "a mixture, graded",
    "tilted": "graded, a kl ball",
    "anytime": "one policy, stopped at any time",
    "best": "undecided",
}
PROMISED = {  # heading of the column with the policy that a promise is about
    "mean": "promises the expected cost of",
    "quantile": "promises a quantile of the cost of",
    "cvar": "promises the worst costs of",
}


def show_checks(checks: Sequence[Check]) -> None:
    """Each requirement on a task, whether it is met, and what was observed."""
    rows = []
    for check in checks:
        mark = Text("passed", "green") if check.passed else Text("FAILED", "bold red")
        if check.warning:
            mark = Text("WARNING", "bold yellow")
        if check.detail.startswith("not tried"):
            mark = Text("skipped")
        rows.append((mark, check.name, check.detail))
    show(key_values(rows))


def show_certificate(run: Run[Any], robot: str | None) -> None:
    """The promise, and the numbers and words that it rests on.

    robot: the task's words about it, or empty; None where the run's record does not describe it.
    """
    c = run.certificate
    say("")
    say(c.sentence, style="bold")
    if c.bound >= 1:
        say(EMPTY)
    say("")
    show(key_values(_certificate_rows(run, robot)))
    if c.parameters is not None and c.policy is None and c.kl == 0:
        say(PRIOR_KEPT)


def _certificate_rows(run: Run[Any], robot: str | None) -> Iterator[tuple[str, str]]:
    """The bound, its costs, and the environments, distributions and robot that it is about."""
    c = run.certificate
    yield from _bound_rows(run)
    if c.draws is not None and c.training_cost_bound is not None:
        kind = "shared by all environments" if c.shared_draws else "for each environment"
        kind += ", by bets" if c.grid else ""
        yield "with sampling", f"{round_up(c.training_cost_bound)}  ({c.draws:,} policies {kind})"
    if c.test_estimate is not None:
        where = f"{c.test_estimate.environments:,} environments that it has never seen"
        kind = "test estimate" if c.of == "mean" else "test estimate of the mean"
        yield kind, f"{c.test_estimate.cost:.4f}  (on {where})"
    if c.cost_rule:
        yield "a rollout costs", c.cost_rule
    drawn = f": {c.distribution}" if c.distribution else ""
    yield "environments", f"{c.environments:,}, {c.purpose}{drawn}"
    if c.looks:
        yield "looks", c.look_words
    yield from (("note", words) for words in c.incident_words)
    ratio = "log ratio to the prior" if c.method == "single-draw" else "KL from the prior"
    yield ratio, f"{c.kl:.3f} nats"
    if c.noise:
        yield "noise", f"{c.noise}; drawn apart: KL counts the policy alone"
    if robot != "":
        yield "for", robot or "a robot that its record does not describe"
    yield "prior", c.prior
    if c.set_aside:
        total = c.environments + c.set_aside
        yield "set aside", f"the bound counts {c.environments:,} of {total:,} environments"
    if isinstance(run.posterior, Categorical) and c.policy is None:
        yield "posterior", mixture(run)
    if run.costs.sites:
        yield "hardest", hardest_sites(run)


def _bound_rows(run: Run[Any]) -> Iterator[tuple[str, str]]:
    """The bound, what it is on, and the costs as observed."""
    c = run.certificate
    yield "bound", f"{c.shown_bound}  (method {c.method}, δ = {c.delta:g})"
    if c.of != "mean":
        yield "of", f"{c.of}: {bound_words(c)}"
    if c.ball is not None and c.bound_without_shift is not None:
        if c.most_above is not None:
            yield "without a shift", f"exceeded in at most {rest_percent(c.statistic.share)}"
        else:
            yield "without a shift", round_up(c.bound_without_shift)
        yield "shift", f"{c.ball}, {c.ball.origin}"
    if c.tilt is not None:
        yield "tilt", f"{c.tilt:g}"
    if observed := observed_words(run):
        yield observed
    yield "observed cost" if c.of == "mean" else "observed mean", f"{c.empirical_cost:.4f}"
    if c.margin is not None:
        yield "distribution", f"{exceeded_words(run)}  (all at once)"


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


def show_methods(comparison: MethodComparison, method: str) -> None:
    """Every certificate side by side, and the sentence of the chosen one."""
    first, chosen = comparison.runs[0].certificate, comparison.chosen
    say(
        f"{first.environments} environments × {first.policies} policies, "
        f"confidence {confidence_percent(first.delta)}"
        + (f", on every distribution D′ with {first.ball}" if first.ball else "")
    )
    rows = [(run.certificate.method, run, "") for run in comparison.runs]
    if method == "best":
        rows.append(("best", chosen, f"{chosen.certificate.method}, at its share of δ: "))
    promised = PROMISED[first.statistic.kind]
    observed = "observed" if first.of == "mean" else "observed mean"
    table = Table("method", "bound", observed, "KL", "when", promised)
    for name, run, words in rows:
        c, mark = run.certificate, " *" if run is chosen else ""
        numbers = c.shown_bound, f"{c.empirical_cost:.4f}", f"{c.kl:.3f}"
        when = WHEN.get(name, "")
        table.add_row(name + mark, *numbers, when, words + policy_words(c, run.costs))
    show(table)
    if method == "best":
        say("The line marked * pays for the choice between kl and occam, and is the one to use.")
    elif len(rows) > 1:
        say("Each line holds on its own; the one marked * (--method) is the one to use.")
        say("Decide on it before you look: to pick the smallest afterwards voids the confidence.")
    if chosen.certificate.policy is None:
        say(f"\nPosterior: {mixture(chosen)}")
    if chosen.certificate.margin is not None:
        say(f"Distribution: {exceeded_words(chosen)} (all at once)")
    if chosen.costs.sites:
        say(f"Hardest: {hardest_sites(chosen)}")
    for text in chosen.certificate.constraints:
        say(f"Constraint: {text}")
    show_simulation(chosen.certificate)
    say("")
    say(chosen.certificate.sentence, style="bold")
    if chosen.certificate.bound >= 1:
        say(EMPTY)


def show_simulation(c: Certificate) -> None:
    """How good the simulation beside the trials was, if there is any."""
    rows = simulation_rows(c)
    if c.simulation is None:
        return
    say("\nSimulation")
    show(key_values(rows))
    if not c.bound_on_training < c.simulation.bound_without:
        say("The bound without simulation is no choice any more: to take it voids the confidence.")
    if c.simulation.environments < ENOUGH * c.environments:
        warn(
            f"fewer than {ENOUGH} further environments for each trial on the robot: simulate more, "
            "or the bound may be larger than without simulation."
        )


def show_curve(curve: Curve) -> None:
    """The guarantee against the size of the shift."""
    what = "expected cost at most"
    if curve.above is not None:
        what = f"share that costs more than {shown(curve.above)}, at most"
    table = Table("shift up to B", what, title_justify="left")
    table.title = f"What is promised where {Ball(curve.divergence, 0.0).symbol} ≤ B"
    step = max(1, (len(curve.radii) - 1) // 10)
    for radius, bound in list(zip(curve.radii, curve.bounds, strict=True))[::step]:
        table.add_row(round_down(radius), round_up(bound))
    show(table)
    say(shift_words(curve))
    say("All of the curve holds at once, with the confidence of the run.")


def show_report(report: Report, drawn_afresh: bool) -> None:
    """The verdict of a monitor, and the numbers behind it."""
    say(report.sentence, style="bold")
    low, high = interval_ends(*report.interval)
    e_value, largest = _digits(report.e_value), _digits(report.largest_e_value)
    p_value = _digits(report.p_value, ROUND_CEILING)
    alarm = f"alarm at {1 / report.alpha:g}; may be watched"
    what, counted = "cost", f"mean cost {report.mean_cost:.4f}"
    if report.above is not None:
        what, counted = "share", f"share above {shown(report.above)}: {report.mean_cost:.4f}"
    rows = {
        "verdict": report.verdict,
        "outcomes": f"{report.trials:,}, {counted}",
        "promised": f"{shown(report.bound)} at most",
        "e-value": f"{e_value}, largest {largest}; {alarm}",
        f"{what} as deployed": f"{low} to {high}  (α = {report.alpha:g}, at any time)",
        "p-value": f"{p_value}  (one look only, at a number fixed before)",
    }
    show(key_values(rows.items()))
    if drawn_afresh:
        say("The promise is about a policy that is drawn afresh for each mission.")


def _digits(value: float, rounding: str = ROUND_FLOOR) -> str:
    """Four digits, rounded to the side of less evidence."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(Decimal(value))):.4g}"
