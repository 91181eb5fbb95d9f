"""Learning over continuous policy spaces (paper: Section 5.2 and Algorithm 2).

A search minimises a bound over Gaussian posteriors by stochastic gradients; its estimates are never
reported. `certify_posterior` then draws fresh policies from the posterior, now fixed, and bounds
the error of sampling with a share of δ.

One policy can be certified too, to be deployed without sampling: `certify_draw` certifies the one
that is drawn from a Gaussian posterior, and `learn_one` the best of a few from a prior (Occam with
the exact tail) or a posterior over these (PAC-Bayes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pacbayes_control.certify import issuing
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian, check_dimensions
from pacbayes_control.certify.issuing import PAC_BAYES, SAMPLING, Basis, Provenance
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.finite import learn_finite
from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import GaussianSearch, SearchSettings
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.rollouts import Draws, Execution, certifying_draws, evaluate
from pacbayes_control.tasks import Environments, Noise, Task, as_task
from pacbayes_control.tasks.environments import generator

SAMPLING_SHARE = 0.1  # of δ, for the error of sampling, as in the paper
ROLLOUTS = 30_000  # to certify with, by default


def learn_gaussian(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[DiagonalGaussian]:
    """Learn a Gaussian posterior over policies and certify it: δ in all, δ' of it for sampling.

    Args:
        task: the task to roll out
        environments: to learn on, and that the bound counts
        prior: must not have been learnt from these environments: an overlap is an error
        plan: delta, method, objective, search, sampling_delta, draws, shared_draws, seed
        execution: where and how

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> train = task.environments(400, stream="train")
    >>> from pacbayes_control.learn import SearchSettings
    >>> plan = Plan(search=SearchSettings(steps=3), draws=20)
    >>> run = learn_gaussian(task, train, task.prior, plan)
    >>> run.certificate.bound < 0.5
    True
    """
    return learn_family(task, environments, [prior], plan, execution)


def learn_family(
    task: Task,
    environments: Environments,
    priors: Sequence[GaussianPrior | DiagonalGaussian],
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[DiagonalGaussian]:
    """Learn from the best of several priors that were declared in advance, such as variances.

    The choice is covered by a union bound: each prior's theorem holds at an equal share of δ, so
    all hold at once, and any may be used. The certifying draws are of the chosen posterior only.

    Args:
        task: as for `learn_gaussian`, like environments, plan and execution
        environments: to learn on, and that the bound counts
        priors: at least one
        plan: what to learn
        execution: where and how
    """
    task, plan, execution = as_task(task), plan or Plan(), execution or Execution()
    if not priors:
        raise ValueError("a family of priors needs at least one")
    priors = [GaussianPrior.of(prior) for prior in priors]
    method = plan.method or "kl"
    budget = split_budget(plan.delta, method, plan.sampling_delta, len(priors))
    for prior in priors:
        prior.check_unseen(environments)
    draws = _checked_draws(plan.draws, environments)
    plan = replace(plan, draws=draws, objective=plan.objective or method)
    several, share = len(priors) > 1, budget.spent[method]
    searches = []
    for index, prior in enumerate(priors):
        name, titled = "search", execution
        if several:
            words = f"{execution.title}, prior {index + 1} of {len(priors)}"
            name, titled = f"search {index}", replace(execution, title=words)
        searches.append(
            _searched(
                task, environments, prior, delta=share, plan=plan, execution=titled, name=name
            )
        )
    best = min(range(len(priors)), key=lambda index: searches[index].best_value)
    chosen, posterior = priors[best], searches[best].posterior
    if several:
        words = f"{chosen.origin}; one of {len(priors)} declared in advance"
        chosen = replace(chosen, origin=words)
    return certify_posterior(
        task, environments, chosen, posterior, budget=budget, plan=plan, execution=execution
    )


def _searched(
    task: Task,
    environments: Environments,
    prior: GaussianPrior,
    *,
    delta: float,
    plan: Plan,
    execution: Execution,
    name: str,
) -> GaussianSearch:
    """A search from a prior, at its end; the name is that of its stream and its checkpoint."""
    n, objective, settings = len(environments), plan.objective, plan.search or SearchSettings()
    start = prior.distribution
    search = GaussianSearch(start, n, delta, objective, settings, plan.seed, name)
    kept, afterwards = execution.keeping(name.replace(" ", "-")), n * (plan.draws or 1)
    search_posterior(task, environments, search, kept, afterwards=afterwards)
    return search


def _checked_draws(draws: int | None, environments: Environments) -> int:
    """Policies for each environment to certify with, checked before the search begins."""
    if len(environments) < 2:
        raise ValueError("one environment is not a sample: at least two are needed")
    return draws or max(1, -(-ROLLOUTS // len(environments)))


def split_budget(
    delta: float, method: str, sampling_delta: float | None = None, priors: int = 1
) -> Budget:
    """Split δ: δ' for sampling, by default a tenth of δ, and the rest for the theorem.

    With several priors to choose from, each has an equal share of the rest.

    >>> split_budget(0.01, "kl").spent
    {'sampling': 0.001, 'kl': 0.009000000000000001}
    """
    if method not in PAC_BAYES:
        raise ValueError(
            f"method {method!r} is unknown for a Gaussian posterior: choose from "
            f"{', '.join(PAC_BAYES)}, or certify one policy"
        )
    budget = Budget(delta)
    budget.spend(SAMPLING, SAMPLING_SHARE * delta if sampling_delta is None else sampling_delta)
    budget.spend(method, parts=priors)
    if priors > 1:
        budget.spend(f"{method} of the other {priors - 1} priors")
    return budget


def certify_posterior(
    task: Task,
    environments: Environments,
    prior: GaussianPrior,
    posterior: DiagonalGaussian,
    *,
    budget: Budget,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[DiagonalGaussian]:
    """The final bound (paper: eq. 24) on a posterior that is fixed by now, from new draws.

    Certifying several posteriors, or with several numbers of draws, and keeping the best is a
    choice by the data: divide δ' by how many there are.

    Args:
        task: the task to roll out
        environments: that the bound counts
        prior: must not have been learnt from them
        posterior: to certify
        budget: with a share for the plan's method and one for sampling
        plan: method, objective, draws, shared_draws, seed
        execution: where and how; shared draws are not kept
    """
    task, plan, execution = as_task(task), plan or Plan(), execution or Execution()
    prior.check_unseen(environments)
    method, draws = plan.method or "kl", _checked_draws(plan.draws, environments)
    posterior = posterior.with_data_used(environments.range, *prior.distribution.seen)
    drawn = Draws(draws, plan.seed, plan.shared_draws)
    kept = replace(execution.keeping(f"draws-{draws}"), title="certifying rollouts")
    costs = certifying_draws(task, posterior, environments, drawn, kept)
    provenance = Provenance(plan.objective or method, prior.origin)
    basis = Basis(costs, prior.distribution, posterior, budget, provenance)
    return Run(issuing.issue_sampled(basis, method), costs, prior.distribution, posterior)


def learn_one(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[Categorical]:
    """The best of a few policies: the prior's mean, and others drawn from it.

    The mean has half of the weight and the draws share the other half. With one candidate, the mean
    has all the weight, and the bound is that of a policy chosen in advance.

    Args:
        task: the task to roll out
        environments: that the bound counts
        prior: must not have been learnt from them
        plan: delta, candidates, seed, and method: occam by default, for one policy, or another of
            `learn_finite` for a posterior over the candidates
        execution: where and how

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> train = task.environments(100, stream="train")
    >>> learn_one(task, train, task.prior).certificate.policy
    0
    """
    task, plan, execution = as_task(task), plan or Plan(), execution or Execution()
    prior = GaussianPrior.of(prior)
    prior.check_unseen(environments)
    gaussian, others = prior.distribution, plan.candidates - 1
    drawn = gaussian.sample(generator(plan.seed, "candidates", of="policies"), others)
    policies = np.concatenate([gaussian.mean[None], drawn])
    weights = np.append(0.5, np.full(others, 0.5 / others)) if others else np.ones(1)
    names = ["mean of the prior", *(f"draw {i + 1} from the prior" for i in range(others))]
    costs = evaluate(task, policies, environments, names, execution=execution.keeping("rollouts"))
    words = f"{plan.candidates} policies from it" if others else "its mean"
    return learn_finite(
        costs,
        plan.delta,
        method=plan.method or "occam",
        prior=Categorical(weights, seen=gaussian.seen),
        origin=f"{words}: {prior.origin}",
        of=plan.statistic,
    )


def learn_draw(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[DiagonalGaussian]:
    """Search for a posterior as `learn_gaussian` does, and certify one policy drawn from it."""
    task, plan, execution = as_task(task), plan or Plan(), execution or Execution()
    prior = GaussianPrior.of(prior)
    prior.check_unseen(environments)
    plan = replace(plan, objective=plan.objective or "kl")
    search = _searched(
        task, environments, prior, delta=plan.delta, plan=plan, execution=execution, name="search"
    )
    return certify_draw(task, environments, prior, search.posterior, plan=plan, execution=execution)


def certify_draw(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    posterior: DiagonalGaussian,
    *,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Run[DiagonalGaussian]:
    """Draw one policy from a posterior and certify it (Rivasplata's bound).

    The draw is a function of the seed. Drawing again because a draw turned out badly is a choice by
    the data, and voids the confidence.

    Args:
        task: the task to roll out
        environments: that the bound counts
        prior: must not have been learnt from them
        posterior: that the policy is drawn from
        plan: delta, seed, and the objective that was minimised
        execution: where and how
    """
    task, plan, execution = as_task(task), plan or Plan(), execution or Execution()
    prior, seed = GaussianPrior.of(prior), plan.seed
    prior.check_unseen(environments)
    check_dimensions(posterior, prior.distribution)
    posterior = posterior.with_data_used(environments.range, *prior.distribution.seen)
    policy = posterior.sample(generator(seed, "single draw", of="policies"), 1)
    noise, kept = Noise("single draw noise", seed), execution.keeping("rollouts")
    rolled_out = evaluate(task, policy, environments, noise=noise, execution=kept)
    drawn = {"stream": "single draw", "seed": seed, "posterior": posterior.parameters_digest}
    origin = {**rolled_out.origin, "policies": drawn}
    costs = rolled_out.with_origin(**origin)
    budget = issuing.budget_for(costs, plan.delta)
    budget.spend("single-draw")
    provenance = Provenance(plan.objective or "kl", prior.origin)
    basis = Basis(costs, prior.distribution, posterior, budget, provenance)
    return Run(issuing.issue_single_draw(basis), costs, prior.distribution, posterior)
