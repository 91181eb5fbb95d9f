"""What the commands print. Bounds are rounded upwards, and names are never read as markup."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pacbayes_control.certificate import Certificate, confidence_percent, round_up
from pacbayes_control.distributions import Categorical
from pacbayes_control.learn import Comparison
from pacbayes_control.learn.search import GaussianSearch
from pacbayes_control.learn.training import Watch
from pacbayes_control.paper.continuous import Row as ContinuousRow
from pacbayes_control.paper.table1 import Row
from pacbayes_control.rollouts import Progress as ProgressCallback
from pacbayes_control.run import Run


class _Console(Console):
    """Rich ends the program with code 1 where a reader has closed the pipe: that is no verdict."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


out, err = _Console(highlight=False), Console(stderr=True, highlight=False)


def say(text: str, style: str | None = None) -> None:
    """A line of prose: wrapped for a person at a terminal, whole in a pipe."""
    out.print(text, style=style, markup=False, soft_wrap=not out.is_terminal)


@contextmanager
def bar(title: str, total: int) -> Iterator[ProgressCallback]:
    """A progress bar on a terminal, nothing in a pipe; yields the callback for it."""
    if not err.is_terminal:
        yield lambda *_: None
        return
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
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
                progress.update(
                    task,
                    description=f"{title} ({what} {search.value:.4f})",
                    total=search.settings.steps,
                    completed=search.step,
                    visible=not search.done,
                )

            return step

        yield start


def show_certificate(run: Run[Any]) -> None:
    """The promise, and what it rests on."""
    c = run.certificate
    say("")
    say(c.sentence, style="bold")
    say("")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("bound", f"{round_up(c.bound)}  (method {c.method}, δ = {c.delta:g})")
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


def show_table1(rows: Sequence[Row]) -> None:
    """The paper's figures beside ours."""
    table = Table(title="Table 1: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("N", "draws", "method", "bound", "± s.d.", "true", "paper: bound", "true"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in rows:
        published = row.method == "paper"
        table.add_row(
            f"{row.environments:,}" if published else "",
            f"{row.draws}" if published else "",
            row.method,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}" if published else "",
            f"{row.paper_true_cost:.3f}" if published else "",
            end_section=row.method == "occam",
        )
    out.print(table)
    say(
        "paper: minimises C_PAC, reports Maurer's bound (Algorithm 1). kl: minimises the kl bound "
        "with ξ(N). occam: the best single policy. The last two pay once for policies that are "
        "equal. Means over draws of the training environments; the paper's own columns show one."
    )


def show_continuous(rows: Sequence[ContinuousRow]) -> None:
    """The paper's setting beside ours."""
    table = Table(title="Continuous policies: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("setting", "N", "draws", "certified", "bound", "± s.d.", "true", "paper"):
        left = heading in ("setting", "certified")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.setting,
            f"{row.environments:,}",
            f"{row.draws}",
            row.certified,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}",
        )
    out.print(table)
    say(
        "paper: linear policies, the paper's prior and method, with fresh draws. ours: networks, "
        "a prior learnt on other environments. deterministic: one network, that prior's mean. "
        "split: one network, learnt on a fifth of the N and certified on the rest. Last column: "
        "the bound published, for continuous policies at N = 100 and for 50 policies otherwise."
    )


def show_bench(name: str, record: dict[str, Any]) -> None:
    """Measured figures, and how they grow."""
    table = Table("measure", "value", title=f"pbc bench {name}", title_justify="left")
    for key, value in record.items():
        if key != "scaling":
            table.add_row(key.replace("_", " "), _figure(value))
    out.print(table)
    if "scaling" in record:
        scaling = Table("environments", "policies", "µs a rollout", "peak MiB")
        for row in record["scaling"]:
            scaling.add_row(
                f"{row['environments']:,}",
                f"{row['policies']}",
                f"{row['microseconds']:.2f}",
                f"{row['peak_mib']:.0f}",
            )
        out.print(scaling)


def _figure(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}" if value >= 0.01 else f"{value:.6f}"
