"""The promise of a certificate in one English sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pacbayes_control.certify.costs import incidents_in_words
from pacbayes_control.certify.parts import LONGEST as LONGEST_PART
from pacbayes_control.certify.statistics import percent
from pacbayes_control.certify.text import confidence_percent, percent_up, quoted, round_up

if TYPE_CHECKING:
    from pacbayes_control.certify.certificate import Certificate


def sentence_of(c: Certificate, quote: Callable[[str], str] = quoted) -> str:
    """The guarantee in one English sentence, with the bound rounded upwards.

    quote: of names, as the format of the certificate wants it
    """
    confidence = f"With confidence {confidence_percent(c.delta)}"
    parameters = f"{c.parameters} parameters"
    if c.method == "single-draw":
        who = f"the one policy drawn from the posterior over {parameters}"
    elif c.policy is None:
        many = parameters if c.policies is None else f"{c.policies} policies"
        who = f"a policy drawn afresh from the posterior over {many}"
    else:
        name = f"“{c.policy_name}”" if quote is str else quoted(c.policy_name or "")
        who = f"policy {c.policy if c.policy_name is None else name}"
    what = _promise(c)
    noise = ""
    if c.noise:
        over = "averaged over" if c.of == "mean" else "each with"
        noise = f", {over} noise drawn independently of the policy ({quote(c.noise)})"
    source = f"the {c.environments} it was {c.purpose}"
    if c.ball is None:
        source = f"drawn like {source}"
    elif c.ball.samples is None:
        source = f"from any distribution D′ with {c.ball}, where D is that of {source}"
    else:
        shifted = c.ball.samples[0]
        source = (
            f"drawn like the shifted sample of {sum(shifted)}, if it differs from {source} in "
            f"nothing but how often each of {len(shifted)} cells occurs"
        )
    remarks = [*_trial_words(c), *_part_words(c), c.look_words, _until_words(c)]
    remarks += c.incident_words
    if c.simulation is not None:
        remarks.append(c.simulation.words(c.environments, c.bound_on_training))
        told = incidents_in_words(c.simulation.incidents)
        remarks += [f"in simulation, {words}" for words in told]
    if c.assumes_binary:
        remarks.insert(0, "it is assumed that trials only succeed or fail")
    told = "".join(f"; {words}" for words in remarks if words)
    return f"{confidence}, {who} {what} {source}{noise}{told}."


def _promise(c: Certificate) -> str:
    """What is promised of a policy in new environments."""
    statistic = c.statistic
    if statistic.kind == "quantile" and c.graded is False and c.bound == 0:
        return f"fails in at most {c.most_above_percent} of {_new(c)}"
    if statistic.kind == "quantile":
        return f"costs more than {c.shown_bound} in at most {c.most_above_percent} of {_new(c)}"
    if statistic.kind == "cvar":
        worst = f"the worst {percent(statistic.share)} of {_new(c)}"
        return f"has an expected cost of at most {round_up(c.bound)} in {worst}"
    where = "" if c.simulation is None else " on the robot"
    if c.binary and not c.graded:
        return f"fails{where} in at most {percent_up(c.bound)} of {_new(c)}"
    return f"has an expected cost{where} of at most {round_up(c.bound)} in {_new(c)}"


def _new(c: Certificate) -> str:
    """The environments that the promise is about."""
    if c.tasks is None:
        return "new environments"
    return f"new episodes, on average over {c.tasks} tasks,"


def _trial_words(c: Certificate) -> list[str]:
    """The kind of trials of an evaluation log, and how the policy was chosen by them."""
    words = []
    known = c.unit is None or c.unit.casefold() in ("environment", "env")
    if not known and c.tasks is None:
        words.append(f"a new environment is another {quoted(c.unit or '')}")
    elif c.tasks is not None:
        another = f"another {quoted(c.unit)} of " if c.unit is not None else ""
        words.append(f"a new episode is {another}one of these tasks, and not of others")
    if c.candidates is not None and c.candidates > 1:
        among = f"among {c.candidates} policies"
        words.append(f"it was chosen by its trials {among}, which the confidence allows for")
    if c.method == "anytime":
        words.append("the trials might be stopped at any time")
    return words


def _part_words(c: Certificate) -> list[str]:
    """The promise for each part of the world that was declared beforehand, in words."""
    fails = c.binary and not c.graded
    told = []
    for part in c.parts:
        limit = percent_up(part.bound) if fails else round_up(part.bound)
        words = quoted(part.words, LONGEST_PART)  # all of it: no condition may be hidden
        which = f"{words} ({part.environments} of the {c.environments})"
        promise = f"it fails in at most {limit} of" if fails else f"at most {limit} in"
        told.append(f"{promise} those with {which}")
    return told


def _until_words(c: Certificate) -> str:
    if c.until is None:
        return ""
    which = "the bound" if c.ball is None else "the bound without a shift"
    words = f"until {which} was at most {c.until:.12g}"
    if not c.reached:
        words = f"while {which} was above {c.until:.12g}, up to {c.at_most}"
    return f"environments were added {words}, which the confidence allows for"
