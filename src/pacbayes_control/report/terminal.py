"""What the commands say. Bounds are rounded upwards, and names are never read as markup."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as RichTask
from rich.table import Table
from rich.text import Text

from pacbayes_control.balls import Ball, round_down
from pacbayes_control.certificate import Certificate, confidence_percent, round_up
from pacbayes_control.distributions import Categorical
from pacbayes_control.monitor import shown

if TYPE_CHECKING:  # what is shown: a verdict should not wait for a simulator to load
    from pacbayes_control.conformance import Check
    from pacbayes_control.learn import Comparison
    from pacbayes_control.learn.search import GaussianSearch
    from pacbayes_control.learn.training import Watch
    from pacbayes_control.monitor import Report
    from pacbayes_control.rollouts import Progress as ProgressCallback
    from pacbayes_control.run import Run
    from pacbayes_control.shifting import Curve


class _Console(Console):
    """Rich ends the program with code 1 where a reader has closed the pipe: that is no verdict."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


out, err = _Console(highlight=False), Console(stderr=True, highlight=False)


def say(text: str, style: str | None = None) -> None:
    """A line of prose: wrapped for a person at a terminal, whole in a pipe."""
    out.print(text, style=style, markup=False, soft_wrap=not out.is_terminal)


def warn(text: str | None) -> None:
    """A line that should not be overlooked, where there is one."""
    if text:
        say(f"WARNING: {text}", style="bold")


class _Rate(ProgressColumn):
    """How many a second, lately."""

    def render(self, task: RichTask) -> Text:
        if not task.speed:
            return Text("")
        return Text(f"{task.speed:,.0f}/s" if task.speed >= 10 else f"{task.speed:.2g}/s")


@contextmanager
def bar(title: str, total: int) -> Iterator[ProgressCallback]:
    """A progress bar on a terminal, nothing in a pipe; yields the callback for it."""
    if not err.is_terminal:
        yield lambda *_: None
        return
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done, in_all: progress.update(task, completed=done, total=in_all)


@contextmanager
def watch() -> Iterator[Callable[[str], Watch]]:
    """Progress of searches on a terminal, each with its bound so far; nothing in a pipe."""
    if not err.is_terminal:
        yield lambda _: lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as progress:

        def start(title: str) -> Watch:
            task = progress.add_task(title, total=None, visible=False)

            def step(search: GaussianSearch) -> None:
                what = "bound" if search.objective else "cost"
                if search.settings.estimator == "gradient":
                    what = f"surrogate's {what}"
                progress.update(
                    task,
                    description=f"{title} ({what} {search.value:.4f})",
                    total=search.settings.steps,
                    completed=search.step,
                    visible=not search.done,
                )

            return step

        yield start


def show_checks(checks: Sequence[Check]) -> None:
    """Each promise, whether it was kept, and what was seen."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        mark = "[green]passed[/]" if check.passed else "[bold red]FAILED[/]"
        if check.warning:
            mark = "[bold yellow]WARNING[/]"
        if check.detail.startswith("not tried"):
            mark = "skipped"
        table.add_row(mark, escape(check.name), escape(check.detail))
    out.print(table)


def show_certificate(run: Run[Any]) -> None:
    """The promise, and what it rests on."""
    c = run.certificate
    say("")
    say(c.sentence, style="bold")
    say("")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("bound", f"{round_up(c.bound)}  (method {c.method}, δ = {c.delta:g})")
    if c.ball is not None and c.bound_without_shift is not None:
        table.add_row("without a shift", round_up(c.bound_without_shift))
        table.add_row("shift", f"{c.ball}, {escape(c.ball.origin)}")
    if c.tilt is not None:
        table.add_row("tilt", f"{c.tilt:g}")
    table.add_row("cost in training", f"{c.empirical_cost:.4f}")
    if c.draws is not None and c.training_cost_bound is not None:
        kind = "shared by all environments" if c.shared_draws else "for each environment"
        table.add_row(
            "with sampling", f"{round_up(c.training_cost_bound)}  ({c.draws:,} policies {kind})"
        )
    what = "KL from the prior" if c.method != "single-draw" else "log ratio to the prior"
    table.add_row(what, f"{c.kl:.3f} nats")
    if c.noise:
        table.add_row("noise", f"{escape(c.noise)}; drawn apart: KL counts the policy alone")
    if "settings" in run.costs.origin:
        from pacbayes_control.recipes.recorded import robot_of  # a robot takes long to load

        table.add_row("for", escape(robot_of(run) or "a robot that its record does not describe"))
    table.add_row("prior", escape(c.prior))
    if c.set_aside:
        total = c.environments + c.set_aside
        table.add_row("price of it", f"the bound counts {c.environments} of {total} environments")
    if isinstance(run.posterior, Categorical) and c.policy is None:
        table.add_row("posterior", escape(mixture(run)))
    out.print(table)
    if c.parameters is not None and c.policy is None and c.kl == 0:
        say("The search found no lower bound than the prior's own: the posterior is the prior.")


def mixture(run: Run[Categorical], most: int = 4) -> str:
    """The likeliest policies of a posterior and their shares."""
    shares = run.posterior.probabilities
    top = [int(i) for i in shares.argsort()[::-1] if shares[i] >= 0.001][:most]
    text = ", ".join(f"{run.costs.name(i)} {shares[i]:.1%}" for i in top)
    rest = 1 - float(shares[top].sum())
    return text + (f", others {rest:.1%}" if rest >= 0.0005 else "")


def show_comparison(comparison: Comparison, method: str) -> None:
    """Every certificate side by side, and what the chosen one promises."""
    first, chosen = comparison.runs[0].certificate, comparison.chosen
    say(
        f"{first.environments} environments × {first.policies} policies, "
        f"confidence {confidence_percent(first.delta)}"
        + (f", on every distribution D′ with {first.ball}" if first.ball else "")
    )
    table = Table("method", "bound", "in training", "KL", "promises the expected cost of")
    for run in comparison.runs:
        mark = " *" if run is chosen else ""
        table.add_row(run.certificate.method + mark, *_cells(run.certificate), escape(_who(run)))
    if method == "best":
        c = chosen.certificate
        table.add_row(
            "best *", *_cells(c), escape(f"{c.method}, at its share of δ: {_who(chosen)}")
        )
    out.print(table)
    if method == "best":
        say("The line marked * pays for the choice between kl and occam, and is the one to use.")
    else:
        say("Each line holds on its own; the one marked * (--method) is the one to use.")
        say("Decide on it before you look: to pick the smallest afterwards voids the confidence.")
    if chosen.certificate.policy is None:
        say(f"\nPosterior: {mixture(chosen)}")
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
    return f"one policy, always: {run.costs.name(policy)}"


def show_curve(curve: Curve) -> None:
    """The guarantee against the size of the shift."""
    table = Table("shift up to B", "expected cost at most", title_justify="left")
    table.title = f"What is promised where {Ball(curve.divergence, 0.0).symbol} ≤ B"
    step = max(1, (len(curve.radii) - 1) // 10)
    for radius, bound in list(zip(curve.radii, curve.bounds, strict=True))[::step]:
        table.add_row(round_down(radius), round_up(bound))
    out.print(table)
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
    low, high = math.floor(report.interval[0] * 1e4) / 1e4, round_up(report.interval[1])
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("verdict", report.verdict)
    table.add_row("outcomes", f"{report.trials:,}, mean cost {report.mean_cost:.4f}")
    table.add_row("promised", f"{shown(report.bound)} at most")
    table.add_row(
        "e-value",
        f"{report.e_value:.4g}, largest {report.largest_e_value:.4g}; "
        f"alarm at {1 / report.alpha:g}; may be watched",
    )
    table.add_row("cost as deployed", f"{low:.4f} to {high}  (α = {report.alpha:g}, at any time)")
    table.add_row("p-value", f"{report.p_value:.4g}  (one look only, at a number fixed before)")
    out.print(table)
    if drawn_afresh:
        say("The promise is about a policy that is drawn afresh for each mission.")
