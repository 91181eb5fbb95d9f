"""Certificates from evaluation logs, checked against the trials, and anytime bounds, recomputed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.certify.simulation import SHARE as SIMULATION
from pacbayes_control.certify.trials import FILE, LOOKS, Trials
from pacbayes_control.verify.intervals import Interval, InvalidCertificate, iv, require

# Shares of the wealth and stakes: a constant of the method, since any chosen by the costs would
# prove nothing. The shares are rounded downwards.
STAKES = (1.0, *(2.0 ** (-j / 3) for j in range(1, 22)))
_TOTAL = math.fsum(u**1.5 for u in STAKES[1:]) * (1 + 1e-14)
SHARES = (0.5, *(0.5 * u**1.5 / _TOTAL for u in STAKES[1:]))
UNIT = 2.0**-50  # eight times the rounding error of one operation


def log_e_from_below(outcomes: NDArray, mean: float) -> float:
    """A number that ln of the e-value against "the mean is at most this" is not below."""
    values, counts = np.unique(np.asarray(outcomes, float), return_counts=True)
    logs, errors = _log_factors(values, mean)
    totals = np.array([math.fsum(counts * column) for column in logs.T])  # correctly rounded
    return float(_mixed(totals, counts @ errors * (1 + UNIT * len(counts))))


def log_e_path_from_below(outcomes: NDArray, mean: float) -> NDArray[np.float64]:
    """The same after each outcome, in their order; shape (outcomes,)."""
    logs, errors = _log_factors(np.asarray(outcomes, float), mean, len(outcomes))
    return _mixed(np.cumsum(logs, axis=0), np.cumsum(errors, axis=0))


def _log_factors(outcomes: NDArray, mean: float, summed: int = 8) -> tuple[NDArray, NDArray]:
    """ln((1-u) + uY/q) by outcome and stake, and a bound on its rounding in a long sum.

    A factor is a sum of terms that are not negative, so that its relative error is that of few
    roundings. ln 0 is taken as -10²⁹⁰, which no gains make up for.
    """
    stakes = np.array(STAKES)
    factors = (1 - stakes) + stakes * (outcomes[:, None] / mean)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(factors), -1e290)
    return logs, UNIT * max(8, summed) * (1 + np.abs(logs))


def _mixed(logs: NDArray, errors: NDArray) -> NDArray[np.float64]:
    """ln of the mixture over stakes, which are the last axis, from below."""
    below = logs - errors + np.log(SHARES) - UNIT
    top = below.max(axis=-1)
    return top + np.log(np.exp(below - top[..., None]).sum(axis=-1)) - 64 * UNIT


def proves_at_any_time(costs: NDArray, bound: Interval, level: Interval) -> bool:
    """Whether e-values prove, at this level, that the mean cost is at most the bound."""
    largest = math.nextafter(float((1 - bound).b), 2.0)  # mean of 1 - C, if the cost is the bound
    needed = float(iv.log(1 / level).b) * (1 + UNIT)
    return largest <= 0 or log_e_from_below(1 - np.asarray(costs, float), largest) >= needed


def check_trials(run: Run) -> None:
    """Raise unless a certificate says of its trials what the files say."""
    c = run.certificate
    try:
        facts = run.costs.trial_facts
    except ValueError as error:
        raise InvalidCertificate(str(error)) from None
    stated = (c.unit, c.candidates, c.tasks)
    same = stated == (facts.unit, facts.candidates, facts.task_count)
    require(same, "the certificate is wrong about the unit, the tasks or the number of candidates")
    if c.candidates is None:
        require(c.tasks is None and c.unit is None, "tasks and units belong to trials")
        require(run.trials is None, f"{FILE} is in a run that was not made from trials")
        return
    alone = c.policies == 1 and c.method in ("occam", "anytime") and c.of == "mean"
    require(alone, "a policy is chosen by its trials with occam or anytime, by its mean cost")
    apart = (LOOKS, "shift")  # of which no policy has a share
    left = c.delta - math.fsum(c.budget.get(name, 0.0) for name in apart)
    own = c.budget[c.method] + c.budget.get(SIMULATION, 0.0)
    paid = own * c.candidates <= left + 1e-12 * c.delta
    require(paid, f"the budget does not pay for the choice among {c.candidates} policies")
    if run.trials is None:
        raise InvalidCertificate(f"{FILE} is missing: the trials of all policies")
    _check_same(run, run.trials)


def _check_same(run: Run, trials: Trials) -> None:
    """The costs are those of the chosen policy's trials, and all policies were counted."""
    c, costs = run.certificate, run.costs
    known = c.policy_name in trials.policies
    require(known, f"{FILE} has no trials of the chosen policy")
    require(
        (c.candidates or 0) >= len(trials.policies), f"{FILE} has more policies than candidates"
    )
    mine = trials.of(trials.policies.index(c.policy_name or ""))
    same = np.array_equal(trials.costs[mine], np.asarray(costs.values[:, 0], float))
    names = tuple(trials.environments[i] for i in trials.environment[mine])
    require(same and names == costs.sites, f"the costs are not those of the trials in {FILE}")
    tasks = () if trials.task is None else tuple(trials.task[trials.environment[mine]].tolist())
    same = tasks == costs.trial_facts.tasks and len(trials.tasks) == (c.tasks or 0)
    same = same and trials.graded == costs.graded
    require(same and trials.unit == c.unit, f"{FILE} has other tasks, units or kinds of costs")
    same = dict(trials.incidents) == costs.incidents and trials.outcome == c.cost_rule
    require(same, f"{FILE} has other incidents, or scores trials in another way")
