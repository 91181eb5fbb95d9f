"""The words of a page on what lies behind a promise, one function a section.

Whatever comes from a run's files is escaped: a policy's name is text, never markup.
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from pacbayes_control.balls import round_down
from pacbayes_control.certificate import round_up
from pacbayes_control.distributions import Categorical
from pacbayes_control.report.markup import table
from pacbayes_control.report.plots import gaussian_moves
from pacbayes_control.report.projection import project
from pacbayes_control.report.replay import Replay, environment_costs, likeliest
from pacbayes_control.report.side_by_side import MEANING, side_by_side
from pacbayes_control.run import Run
from pacbayes_control.shifting import curve

LISTED = 100  # policies in the table of all
WORST = 10  # environments in the table of the worst


def methods(run: Run[Any]) -> tuple[str, str] | None:
    """What a comparison is worth, and the table; None where nothing can be compared."""
    compared, _ = side_by_side(run)
    if not compared:
        return None
    rows = []
    for method in compared:
        c = method.certificate
        name = f"<b>{escape(c.method)}</b>" + (" ★ this run" if method.own else "")
        who = "a fresh draw each time" if c.policy is None else f"always {run.costs.name(c.policy)}"
        words = f'{name}<br><span class="small">{escape(f"{MEANING[c.method]}; {who}")}</span>'
        rows.append((words, f"{c.empirical_cost:.4f}", round_up(c.bound)))
    listing = table(("Method", "In training", "Bound"), rows, numeric=1)
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
        intro = f"All of the mass is on one policy, {escape(run.costs.name(c.policy))}."
    else:
        effective = math.exp(-float(np.sum(shares[shares > 0] * np.log(shares[shares > 0]))))
        intro = (
            f"The promise is about a mixture: it spreads over as much as {effective:.1f} equally "
            f"likely policies would, out of {len(shares):,}."
        )
    listing = table(("Policy", "Posterior", "Prior", "Mean cost"), rows, numeric=1)
    return (
        f"<p>{intro} KL(posterior‖prior) is {c.kl:.3f} nats: the farther from the prior, the more "
        f"the bound exceeds the cost in training.</p><details><summary>Shares of "
        f"{len(order):,} policies</summary>{listing}<p>{more}</p></details>"
    )


def environments(run: Run[Any], replay: Replay | None) -> tuple[str, str]:
    """How the cost spreads over the environments, and a table of the worst of them."""
    means = environment_costs(run)
    easy, hard = int(np.sum(means < 0.05)), int(np.sum(means >= 0.5))
    kept = set() if replay is None else set(replay.environments.tolist())
    single = run.certificate.policy is not None
    rows = []
    hardest = [int(i) for i in np.argsort(-means, kind="stable")[:WORST] if means[i] >= 0.001]
    for i in hardest:
        row = run.costs.values[i]
        if single:
            spread = ""
        elif run.costs.binary:
            spread = f"{int(row.sum()):,} of {len(row):,}"
        else:
            spread = f"{row.min():.3f} to {row.max():.3f}"
        watch = ""
        if i in kept:
            watch = (
                f'<button type="button" class="watch" data-environment="{i}">Watch'
                f'<span class="hidden"> environment {i}</span></button>'
            )
        cells = (f"{i}", f"{means[i]:.4f}", spread, watch)
        rows.append(cells if not single else (cells[0], cells[1], cells[3]))
    what = "draws" if run.costs.draws else "policies"
    across = f"Failing {what}" if run.costs.binary else f"Costs of {what}"
    head = ("Environment", "Cost", across, '<span class="watch">Replay</span>')
    head = head if not single else (head[0], head[1], head[3])
    if not kept:
        head, rows = head[:-1], [row[:-1] for row in rows]
    if single and run.costs.binary:
        spread = f"The policy failed in {hard:,} of {len(means):,} environments."
    else:
        spread = (
            f"The cost in training is an average: in {easy:,} of {len(means):,} environments the "
            f"mean cost is below 0.05, and in {hard:,} it is a half or more."
        )
    average = "" if single else " Costs are averages under the posterior."
    words = f"<p>{spread}{average} Environments are numbered from 0.</p>"
    if not rows:
        return words, "<p>No environment was hard.</p>"
    return words, f"<h3>The {len(rows)} hardest</h3>{table(head, rows, numeric=1)}"


def outlook(run: Run[Any]) -> str:
    """What more environments would do."""
    projection, c = project(run), run.certificate
    goal = "the cost in training" if c.ball is None else "what the ball makes of the training cost"
    goal = "the bound on the cost in training" if c.draws is not None and not c.ball else goal
    text = (
        "<p><strong>A projection, not a certificate.</strong> It takes the mean cost and the "
        "distance from the prior to be the same with other numbers of environments. "
    )
    if projection.half_way:
        count, bound = projection.half_way
        more = _rounded(count - c.environments)
        text += (
            f"About {more:,} more environments would bring the bound from {round_up(c.bound)} to "
            f"{round_up(bound)}, half of the way to where it ends. "
        )
    better = "better policies are needed"
    if c.draws is not None and not c.ball:
        better = (
            f"more draws are needed, which bring the bound on the cost in training nearer to the "
            f"cost that was seen, {c.empirical_cost:.4f}, or better policies"
        )
    limit = round_up(projection.limit)
    return text + f"No number would bring it below {limit}, {goal}: for that, {better}.</p>"


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
