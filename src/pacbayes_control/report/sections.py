"""The words of a page on what lies behind a promise, one function a section.

Whatever comes from a run's files is escaped: a policy's name is text, never markup.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pacbayes_control.certify.balls import round_down
from pacbayes_control.certify.certificate import round_up
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve
from pacbayes_control.certify.text import quoted, shortened
from pacbayes_control.report.environments import environment_costs, hardest
from pacbayes_control.report.markup import escape, table
from pacbayes_control.report.plots import gaussian_moves
from pacbayes_control.report.projection import project
from pacbayes_control.report.replay import Replay, likeliest
from pacbayes_control.report.side_by_side import MEANING, side_by_side

LISTED = 100  # policies in the table of all


def methods(run: Run[Any]) -> tuple[str, str] | None:
    """What a comparison is worth, and the table; None where nothing can be compared."""
    compared, _ = side_by_side(run)
    if not compared:
        return None
    rows = []
    for method in compared:
        c = method.certificate
        name = f"<b>{escape(c.method)}</b>" + (" ★ this run" if method.own else "")
        who = "a fresh draw each time"
        if c.policy is not None:
            who = f"always {quoted(run.costs.name(c.policy))}"
        words = f'{name}<br><span class="small">{escape(f"{MEANING[c.method]}; {who}")}</span>'
        rows.append((words, f"{c.empirical_cost:.4f}", round_up(c.bound)))
    listing = table(("Method", "Observed cost", "Bound"), rows, numeric=1)
    if isinstance(run.posterior, Categorical):
        scope = (
            f"each with all of δ\u00a0= {run.certificate.delta:g} and its own choice of policies"
        )
        if run.certificate.budget[run.certificate.method] < 0.999 * run.certificate.delta:
            scope += ", save the line marked ★, which has paid a part of δ for something else"
    else:
        scope = "all for the same posterior and the same draws from it"
    words = (
        f"<p>The same costs, certified in different ways: {scope}. <strong>Each bound holds on its "
        "own.</strong> To look at all of them and then keep the smallest is to choose by the data: "
        "it voids the confidence. The line marked ★ is what this run promises.</p>"
    )
    return words, listing


def why_no_methods(run: Run[Any]) -> str:
    """The reason in a line."""
    return f"<p>{escape(side_by_side(run)[1])}</p>"


def posterior(run: Run[Any]) -> str:
    """How far the posterior is from the prior, in words, and all shares in a table."""
    c = run.certificate
    if isinstance(run.posterior, Categorical):
        return _shares(run)
    moved, widths = gaussian_moves(run)
    farthest = int(np.argmax(np.abs(moved)))
    distance = "The logarithm of the densities' ratio at the policy that was drawn"
    words = f"{distance if c.method == 'single-draw' else 'KL(posterior‖prior)'} is {c.kl:.3f} nats"
    if run.posterior.kl(run.prior) == 0:
        still = "The search found no lower bound than the prior's own: the posterior is the prior."
        return f"<p>{still}</p>"
    return (
        f"<p>The posterior is a normal distribution over {c.parameters:,} parameters. {words}. The "
        f"mean moved most in parameter {farthest}, by {abs(moved[farthest]):.2f} standard "
        f"deviations of the prior; half of the parameters moved by less than "
        f"{np.median(np.abs(moved)):.2g}. Widths are {widths.min():.2f} to {widths.max():.2f} "
        "times the prior's.</p>"
    )


def _shares(run: Run[Categorical]) -> str:
    c, shares, prior = run.certificate, run.posterior.probabilities, run.prior.probabilities
    order = likeliest(run)[:LISTED]
    rows = [
        (
            escape(run.costs.name(int(i))),
            f"{shares[i]:.2%}",
            f"{prior[i]:.2%}",
            f"{run.costs.means[i]:.4f}",
        )
        for i in order
    ]
    left = len(shares) - len(order)
    more = f" The {left:,} with the smallest shares are left out." if left else ""
    if c.policy is not None:
        intro = f"All of the mass is on one policy, {escape(quoted(run.costs.name(c.policy)))}."
    else:
        effective = math.exp(-float(np.sum(shares[shares > 0] * np.log(shares[shares > 0]))))
        intro = (
            f"The promise is about a mixture: it spreads over as much as {effective:.1f} equally "
            f"likely policies would, out of {len(shares):,}."
        )
    listing = table(("Policy", "Posterior", "Prior", "Mean cost"), rows, numeric=1)
    return (
        f"<p>{intro} KL(posterior‖prior) is {c.kl:.3f} nats: the farther from the prior, the more "
        f"the bound exceeds the observed cost.</p><details><summary>Shares of "
        f"{len(order):,} policies</summary>{listing}<p>{more}</p></details>"
    )


def environments(run: Run[Any], replay: Replay | None) -> tuple[str, str]:
    """How the cost spreads over the environments, and a table of the worst of them."""
    means = environment_costs(run)
    easy, hard = int(np.sum(means < 0.05)), int(np.sum(means >= 0.5))
    single = run.certificate.policy is not None
    if single and run.costs.binary:
        spread = f"The policy failed in {hard:,} of {len(means):,} environments."
    else:
        spread = (
            f"The observed cost is an average: in {easy:,} of {len(means):,} environments the "
            f"mean cost is below 0.05, and in {hard:,} it is a half or more."
        )
    average = "" if single else " Costs are averages under the posterior."
    numbers = " Numbers of environments count from 0."
    words = f"<p>{spread}{average}{numbers}</p>"
    worst = hardest(run)
    if not worst:
        return words, "<p>No environment was hard.</p>"
    kept = set() if replay is None else set(replay.environments.tolist())
    columns = [[_place(run, i) for i, _ in worst], [f"{cost:.4f}" for _, cost in worst]]
    head = ["Environment", "Cost"]
    if not single:
        what = "draws" if run.costs.draws else "policies"
        head.append(f"Failing {what}" if run.costs.binary else f"Costs of {what}")
        columns.append([_across(run, i) for i, _ in worst])
    if kept:
        head.append('<span class="watch">Replay</span>')
        columns.append([_watch(i) if i in kept else "" for i, _ in worst])
    listing = table(head, list(zip(*columns, strict=True)), numeric=1)
    count = f"{len(worst)} " if len(worst) > 1 else ""
    return words, f"<h3>The {count}hardest</h3>{listing}"


def _place(run: Run[Any], i: int) -> str:
    """An environment by its number, and its name where it has one."""
    if not run.costs.sites:
        return f"{i}"
    return f'{escape(shortened(run.costs.sites[i]))} <span class="small">({i})</span>'


def _across(run: Run[Any], i: int) -> str:
    """How the policies did in an environment."""
    row = run.costs.values[i]
    if run.costs.binary:
        return f"{int(row.sum()):,} of {len(row):,}"
    return f"{row.min():.3f} to {row.max():.3f}"


def _watch(i: int) -> str:
    return (
        f'<button type="button" class="watch" data-environment="{i}">Watch'
        f'<span class="hidden"> environment {i}</span></button>'
    )


def outlook(run: Run[Any]) -> str:
    """What more environments would do."""
    projection, c = project(run), run.certificate
    text = (
        "<p><strong>A projection, not a certificate.</strong> It takes the mean cost and the "
        "distance from the prior to be the same with other numbers of environments. "
    )
    if projection.half_way:
        count, bound = projection.half_way
        more = _rounded(count - c.environments)
        text += (
            f"About {more:,} more environments would bring the bound from {round_up(c.bound)} to "
            f"{round_up(bound)}, half of the way to where it ends; "
            "their number is to be fixed beforehand, and certifying twice takes a share of δ each. "
        )
    # A number that the page shows elsewhere is not repeated here with another rounding.
    goal, better = "the observed cost", "better policies are needed"
    if c.ball is not None:
        goal = f"{round_down(projection.limit)}, which the ball makes of the observed cost"
    elif c.draws is not None:
        goal = "the bound on the observed cost"
        better = (
            "more draws are needed, which bring that bound nearer to the observed cost, or better "
            "policies"
        )
    return text + f"No number would bring it below {goal}: for that, {better}.</p>"


def shift(run: Run[Any]) -> str:
    """What a shifted world costs, as `pbc shift` says it."""
    c = run.certificate
    result = curve(c)
    if math.isinf(result.tolerable):
        reach = f"The promise stays at {result.limit:g} or below whatever the shift."
    elif result.tolerable == 0:
        reach = f"The bound is {result.limit:g} or more without any shift."
    else:
        reach = (
            f"The promise stays at {result.limit:g} or below up to a shift of "
            f"B\u00a0= {round_down(result.tolerable)}."
        )
    own = ""
    if c.ball is not None:
        own = (
            f" This run is certified in a ball already: where {escape(str(c.ball))}, it promises "
            f"{round_up(c.bound)}."
        )
    return (
        "<p>If the robot is sent to a world D′ that differs from the training's D, the promise "
        f"weakens with the size B of the difference, KL(D′‖D). {reach}{own} All of the curve holds "
        "at once, with the confidence of the run.</p>"
    )


def _rounded(count: int) -> int:
    """Two leading digits: a projection has no more."""
    size = 10 ** max(0, len(str(count)) - 2)
    return -(-count // size) * size
