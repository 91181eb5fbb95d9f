"""The policy to ship, and its certificate, with the choice by the same trials paid for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.issuing import ANYTIME, Basis, Provenance, issue
from pacbayes_control.certify.priors import prior_for, with_costs_used
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.certify.simulation import PART
from pacbayes_control.certify.simulation import SHARE as SIMULATION
from pacbayes_control.certify.text import quoted
from pacbayes_control.certify.trials import ANONYMOUS, LOOKS, Trials
from pacbayes_control.trials.usual import usual_interval

Stopping = Literal["fixed", "anytime"]
OTHERS = "the other policies"  # the budget's name for their shares of δ


@dataclass(frozen=True)
class Candidate:
    """One policy, as people report it and as it can be promised."""

    name: str
    trials: int
    mean: float  # cost
    usual_interval: tuple[float, float]  # which does not pay for the choice
    bound: float  # on its expected cost; those of all policies hold at once


@dataclass(frozen=True, eq=False)
class Choice:
    """Every policy, and the run of the one to ship."""

    policies: tuple[Candidate, ...]
    run: Run[Categorical]
    trials: Trials

    @property
    def by_bound(self) -> list[Candidate]:
        """The policies from the smallest bound to the largest."""
        return sorted(self.policies, key=lambda each: (each.bound, each.mean, -each.trials))

    @property
    def chosen(self) -> str:
        """The name of the policy to ship."""
        return str(self.run.certificate.policy_name)

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write the run, with all trials, as a folder that can be verified."""
        return self.run.save(folder, overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        c = self.run.certificate
        rows = [
            {
                "name": each.name,
                "trials": each.trials,
                "mean": each.mean,
                "usual_interval": list(each.usual_interval),
                "bound": each.bound,
            }
            for each in self.policies
        ]
        return {"policies": rows, "chosen": self.chosen, "certificate": c.to_dict()}


def choose(
    trials: Trials,
    delta: float = 0.05,
    *,
    stopping: Stopping | None = None,
    candidates: int | None = None,
    spent: float = 0.0,
    simulated: tuple[Trials, Trials | None] | None = None,
) -> Choice:
    """Choose the policy with the smallest certified cost, and certify it (Occam, weights 1/k).

    Each policy is certified from its own trials at δ/k, so that the bounds of all hold at once and
    any may be chosen. Trials in the same environments are not needed, nor equal numbers of them.

    Args:
        trials: of every policy
        delta: probability that the certificate may be wrong
        stopping: "fixed" if the numbers of trials were decided before any was seen (the default
            where they are equal), or "anytime" if the trials might be stopped at any time
        candidates: k, how many policies were ever tried in these environments; by default those
            with trials. Policies that were given up after a look at their trials count too
        spent: δ of other looks at some of these trials, earlier ones or planned ones; it is added
        simulated: the same policies in simulation of the same environments, found by their names,
            and in simulation of further ones; None for these if the former have some, too

    >>> trials = Trials.from_costs([[0, 1], [0, 0], [1, 1]] * 20, ["new", "old"], graded=False)
    >>> print(choose(trials).run.certificate)  # doctest: +NORMALIZE_WHITESPACE
    With confidence 95 %, policy “new” fails in at most 46.69 % of new environments drawn like the
    60 it was tested on; it was chosen by its trials among 2 policies, which the confidence allows
    for.
    """
    if not 0 <= spent < 1:
        raise ValueError(f"spent = {spent:g}: what other looks have spent of δ is from 0 to 1")
    count = len(trials.policies) if candidates is None else candidates
    if count < len(trials.policies):
        raise ValueError(
            f"there are trials of {len(trials.policies)} policies, and only {count} candidates: "
            "count every policy that was ever tried"
        )
    method = ANYTIME if checked_stopping(trials, stopping) == "anytime" else "occam"
    if method == ANYTIME and simulated is not None and simulated[1] is None:
        raise ValueError(
            "trials that might be stopped at any time need further environments in simulation of "
            "their own, whose number is fixed in advance: --more-simulated"
        )
    budget = Budget(float(Decimal(repr(delta)) + Decimal(repr(spent))))
    if spent:
        budget.spend(LOOKS, spent)
    costs = [costs_with(trials, i, count, simulated) for i in range(len(trials.policies))]
    share = delta / count
    runs = [None if each is None else _certified(each, budget, share, method) for each in costs]
    runs = [run and replace(run, trials=trials) for run in runs]
    rows = []
    for policy, run in enumerate(runs):
        costs, bound = (
            trials.costs[trials.of(policy)],
            1.0 if run is None else run.certificate.bound,
        )
        interval = usual_interval(costs, graded=bool(trials.graded))
        name = trials.policies[policy]
        rows.append(Candidate(name, len(costs), float(costs.mean()), interval, bound))
    known = [(row.bound, row.mean, -row.trials, i) for i, row in enumerate(rows) if runs[i]]
    if not known:
        raise ValueError(
            "no policy has two trials or more: nothing can be promised; is --policy right?"
        )
    run = runs[min(known)[-1]]
    assert run is not None
    return Choice(tuple(rows), run, trials)


def checked_stopping(trials: Trials, stopping: Stopping | None) -> Stopping:
    """How trials were stopped; an error where that is not said and their numbers differ."""
    counts, known = trials.counts, get_args(Stopping)
    if stopping is not None and stopping not in known:
        raise ValueError(f"trials are stopped {' or '.join(known)}, not {stopping!r}")
    if stopping is not None or counts.min() == counts.max():
        return stopping or "fixed"
    least, most = int(counts.argmin()), int(counts.argmax())
    raise ValueError(
        f"{quoted(trials.policies[least])} has {counts[least]} trials and "
        f"{quoted(trials.policies[most])} has {counts[most]}: say --stopping fixed if these "
        "numbers were decided before any trial, or --stopping anytime if not"
    )


def costs_with(
    trials: Trials,
    policy: int,
    candidates: int,
    simulated: tuple[Trials, Trials | None] | None,
) -> Costs | None:
    """The costs of a policy's trials, with simulation beside them; None if it has one trial."""
    mine = trials.of(policy)
    if len(mine) < 2:
        return None
    _check_balance(trials, policy, mine)
    costs = costs_of(trials, policy, mine, candidates)
    if simulated is None:
        return costs
    same, further = simulated
    name = trials.policies[policy]
    _check_named(trials, name)
    more = None if further is None else _simulated(further, name)
    return with_simulation(costs, _simulated(same, name), more)


def _simulated(trials: Trials, name: str) -> Costs:
    """The costs of a policy in simulation, by its name."""
    if name not in trials.policies:
        raise ValueError(
            f"policy {quoted(name)} has trials on the robot and is not simulated: name the "
            "policies alike in all logs"
        )
    policy = trials.policies.index(name)
    return costs_of(trials, policy, trials.of(policy), len(trials.policies))


def _check_named(trials: Trials, policy: str) -> None:
    """An error unless environments have names by which trials can be paired."""
    own = any(site.startswith(f"{policy} / ") for site in trials.environments)
    if own and trials.unit.casefold() in ANONYMOUS:
        raise ValueError(
            "trials are paired with simulation by the names of environments, or their seeds, and "
            "nothing tells which these are: name their column, or say --paired if trials of the "
            "same number were in the same environment in all logs"
        )


def _certified(costs: Costs, budget: Budget, share: float, method: str) -> Run[Categorical]:
    """The run of one policy at its share of δ, beside what other looks have spent of the budget."""
    own = Budget(budget.total, dict(budget.spent))
    if costs.simulation is not None:
        own.spend(SIMULATION, PART * share)
        share = share * (1 - PART)
    own.spend(method, share)
    if (costs.trial_facts.candidates or 1) > 1:
        own.spend(OTHERS)
    prior, words = prior_for(costs)
    posterior = with_costs_used(Categorical.one(0, 1), prior, costs)
    basis = Basis(costs, prior, posterior, own, Provenance(method, words))
    return Run(issue(basis, method), costs, prior, posterior)


def _check_balance(trials: Trials, policy: int, mine: NDArray[np.intp]) -> None:
    """An error unless a policy has as many trials in every task of a fixed list."""
    if trials.task is None:
        return
    counts = np.bincount(trials.task[trials.environment[mine]], minlength=len(trials.tasks))
    if counts.min() < counts.max():
        least, most = (quoted(trials.tasks[i]) for i in (counts.argmin(), counts.argmax()))
        raise ValueError(
            f"{quoted(trials.policies[policy])} has {counts.min()} trials in the task {least} and "
            f"{counts.max()} in {most}: a mean over tasks needs as many in each"
        )


def costs_of(trials: Trials, policy: int, mine: NDArray[np.intp], candidates: int) -> Costs:
    """The costs of one policy's trials, with what a certificate has to tell of them."""
    where = trials.environment[mine]
    source = ", ".join(sorted({Path(file).name for file in trials.sources})) or "the trials"
    origin: dict[str, Any] = {
        "cost_rule": trials.outcome,
        "distribution": f"as the environments of {source} were chosen",
        "unit": trials.unit,
        "candidates": candidates,
        "sources": dict(trials.sources),
    }
    if trials.graded is not None:
        origin["graded"] = trials.graded
    if trials.task is not None:
        origin["tasks"] = trials.task[where].tolist()
    if trials.incidents:
        origin["incidents"] = dict(trials.incidents)
    sites = [trials.environments[i] for i in where]
    return Costs(trials.costs[mine, None], [trials.policies[policy]], origin, sites=sites)
