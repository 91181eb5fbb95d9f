"""The words of a page on what is promised, and at which confidence.

Whatever comes from a run's files is escaped: a policy's name is text, never markup.
"""

from __future__ import annotations

import math
from typing import Any

from pacbayes_control.certify.certificate import (
    Certificate,
    confidence_percent,
    percent_up,
    round_up,
)
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import quoted
from pacbayes_control.report.markup import bullets, escape, table
from pacbayes_control.report.side_by_side import MEANING

SPENT_ON = {
    "sampling": "what a sample of policies may miss",
    "shift": "the estimate of how far the world has shifted",
}


def bound_words(c: Certificate) -> tuple[str, str]:
    """The bound as the page shows it, rounded upwards, and what it is a bound on."""
    if c.binary:
        return percent_up(c.bound), "of new environments end in failure, at most"
    return round_up(
        c.bound
    ), "is the most that a new environment costs on average (0 best, 1 worst)"


def facts(run: Run[Any]) -> str:
    """What a reader asks for first: numbers, and what they are about in words."""
    c = run.certificate
    entries = [
        ("Confidence", confidence_percent(c.delta)),
        (f"Environments it was {c.purpose}", f"{c.environments:,}"),
        ("Observed cost", f"{c.empirical_cost:.4f}"),
        ("Bound, by method", f"{round_up(c.bound)}, {c.method}"),
    ]
    if c.training_cost_bound is not None:
        entries.insert(3, ("The same, with what draws may miss", round_up(c.training_cost_bound)))
    if c.bound_without_shift is not None:
        entries.insert(-1, ("Bound without a shift", round_up(c.bound_without_shift)))
    if c.test_estimate is not None:
        unseen = f"{c.test_estimate.cost:.4f} in {c.test_estimate.environments:,}"
        entries.append(("Cost in environments it has never seen", unseen))
    if c.policies is not None:
        entries.append(("Policies to choose from", f"{c.policies:,}"))
    else:
        entries.append(("Parameters of a policy", f"{c.parameters:,}"))
    if run.created:
        entries.append(("Saved", run.created.replace("T", " ")))
    words = [
        ("Prior", c.prior),
        ("A rollout costs", c.cost_rule),
        ("Environments are drawn from", c.distribution),
        ("How the rollouts went", "; ".join(c.incident_words)),
    ]
    items = [_entry(name, value) for name, value in entries]
    items += [_entry(name, value, ' class="wide"') for name, value in words if value]
    return f'<dl class="facts">{"".join(items)}</dl>'


def _entry(name: str, value: str, kind: str = "") -> str:
    return f"<div{kind}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _words(text: str) -> str:
    return quoted(text, most=300)


def meaning(c: Certificate, robot: str | None = None) -> str:
    """What the promise holds for, and what it does not say. robot: which one, in words."""
    if c.ball is None:
        world = f"New environments that are drawn at random like those it was {c.purpose}."
    else:
        world = (
            f"New environments from any distribution D′ with {c.ball} ({_words(c.ball.origin)})."
        )
    elsewhere = "outside of that ball nothing is promised."
    if c.ball is None:
        elsewhere = "for a world that differs a little, see “If the world shifts”."
    holds = [world, "The average over such environments."]
    holds += [f"The robot that was simulated: {robot}."] if robot else []
    silent = [
        "Any one environment: a single one may be hard, whatever the average is.",
        f"Environments of another kind: {elsewhere}",
        f"The chance, {c.delta:g} at most, that the environments so far were so kind that the "
        "number is too small.",
        "The way from the recorded costs to a robot in the world: the promise is about costs that "
        "come about as those did.",
    ]
    if c.policy is None:
        holds.append("A policy that is drawn afresh from the posterior for each episode.")
        silent.insert(
            1, "Any one policy of the mixture used every time, be it its mean or its best."
        )
    elif c.method == "single-draw":
        holds.append("The one policy that was drawn from the posterior, used every time.")
    else:
        name = quoted(c.policy_name) if c.policy_name is not None else f"number {c.policy}"
        holds.append(f"The one policy {name}, used every time.")
    if c.noise:
        holds.append(f"The same noise, drawn independently of the policy: {_words(c.noise)}.")
    if c.set_aside:
        holds.append(
            f"{c.set_aside:,} further environments were used to prepare: the bound does not count "
            "them."
        )
    holds += [f"Constraint on the mixture: {text}." for text in c.constraints]
    return (
        '<div class="pair"><div class="holds"><h3>It holds for</h3>'
        f'{bullets(holds)}</div><div class="silent"><h3>It does not cover</h3>'
        f"{bullets(silent)}</div></div>"
    )


def record(c: Certificate) -> str:
    """Hashes and versions, for whoever checks the certificate."""
    rows = [("method", c.method), ("objective", c.objective), ("delta", f"{c.delta:g}")]
    rows += [("bound, all digits", repr(float(c.bound))), ("KL", f"{c.kl!r} nats")]
    rows += [("tilt", f"{c.tilt:g}")] if c.tilt is not None else []
    rows += [(f"SHA-256 of {name}", digest) for name, digest in sorted(c.hashes.items())]
    rows += [(name, version) for name, version in sorted(c.versions.items())]
    body = "".join(
        f'<tr><th scope="row">{escape(k)}</th><td><code>{escape(str(v))}</code></td></tr>'
        for k, v in rows
    )
    return f'<table class="record"><caption>The certificate\'s record</caption>{body}</table>'


def budget(c: Certificate) -> str:
    """How δ was spent, as a bar and a table."""
    spent = [(name, float(share)) for name, share in c.budget.items()]
    unspent = c.delta - math.fsum(share for _, share in spent)
    if unspent > 1e-9 * c.delta:
        spent.append(("not spent", unspent))
    parts, rows = [], []
    for number, (name, share) in enumerate(spent):
        part = share / c.delta
        kind = f"part-{number % 4}"
        parts.append(f'<span class="{kind}" style="flex-grow:{part:.6f}"></span>')
        words = SPENT_ON.get(name) or MEANING.get(name, "alternatives that were paid for")
        words = "kept back" if name == "not spent" else words
        key = f'<span class="key {kind}" aria-hidden="true"></span>{escape(name)}'
        rows.append((key, escape(words), f"{share:.4g}", f"{part:.1%}"))
    listing = table(("Share", "Spent on", "δ", "Part"), rows, numeric=2)
    return (
        f"<p>The certificate may be wrong with probability δ\u00a0= {c.delta:g} at most. Each step "
        "that could go wrong has its own part of that, decided on beforehand.</p>"
        f'<div class="budget" aria-hidden="true">{"".join(parts)}</div>{listing}'
    )
