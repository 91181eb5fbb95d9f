"""Sentences that the terminal and the page share. Names in them are quoted, never markup."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pacbayes_control.certify.text import quoted, round_down

if TYPE_CHECKING:  # records to describe: a verdict should not wait for a simulator to load
    from pacbayes_control.certify.certificate import Certificate
    from pacbayes_control.certify.costs import Costs
    from pacbayes_control.certify.shift import Curve
    from pacbayes_control.rollouts.again import Again

PRIOR_KEPT = "The search found no lower bound than the prior's own: the posterior is the prior."


def policy_words(c: Certificate, costs: Costs) -> str:
    """Which policy a certificate among finitely many is about."""
    if c.policy is None:
        return "a policy drawn afresh each time"
    return f"one policy, always: {quoted(costs.name(c.policy))}"


def shift_words(curve: Curve) -> str:
    """Up to which size of a shift the promise stays below the curve's limit."""
    if math.isinf(curve.tolerable):
        return f"The promise stays at {curve.limit:g} or below for a shift of any size."
    if curve.tolerable == 0:
        return f"The bound is {curve.limit:g} or more without any shift."
    return (
        f"The promise stays at {curve.limit:g} or below up to a shift of "
        f"B = {round_down(curve.tolerable)}."
    )


def not_reproduced(again: Again) -> str:
    """A warning where rollouts that were run again cost something else; empty elsewhere."""
    if not again.different:
        return ""
    return (
        f"{again.different:,} of {again.tried:,} rollouts that were run again do not cost what is "
        f"recorded: {again.first}. The task has changed since, or the costs are not of its "
        "rollouts."
    )
