"""One certified policy from a continuous class, to be deployed without sampling.

`learn_one` takes a finite sample of policies from a prior, and certifies the best of them (Occam
with the exact tail) or a posterior over them (PAC-Bayes). `certify_draw` certifies the one policy
that is drawn from a Gaussian posterior.
"""

from __future__ import annotations

import numpy as np

from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian, check_dimensions
from pacbayes_control.certify.issuing import Basis, Provenance, issue_single_draw
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.finite import learn_finite
from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import GaussianSearch
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.tasks import Environments, Noise, Task, as_task
from pacbayes_control.tasks.environments import generator


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
        plan.method or "occam",
        prior=Categorical(weights, seen=gaussian.seen),
        origin=f"{words}: {prior.origin}",
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
    search = GaussianSearch(
        prior.distribution,
        len(environments),
        plan.delta,
        plan.objective or "kl",
        plan.search,
        plan.seed,
    )
    search_posterior(task, environments, search, execution.keeping("search"))
    return certify_draw(task, environments, prior, search.posterior, plan, execution)


def certify_draw(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    posterior: DiagonalGaussian,
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
    budget = Budget(plan.delta)
    budget.spend("single-draw")
    policy = posterior.sample(generator(seed, "single draw", of="policies"), 1)
    noise, kept = Noise("single draw noise", seed), execution.keeping("rollouts")
    rolled_out = evaluate(task, policy, environments, noise=noise, execution=kept)
    drawn = {"stream": "single draw", "seed": seed, "posterior": posterior.parameters_digest}
    origin = {**rolled_out.origin, "policies": drawn}
    costs = Costs(rolled_out.values, origin=origin, parameters=policy)
    provenance = Provenance(plan.objective or "kl", prior.origin)
    certificate = issue_single_draw(Basis(costs, prior.distribution, posterior, budget, provenance))
    return Run(certificate, costs, prior.distribution, posterior)
