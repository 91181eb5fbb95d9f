"""One certified policy from a continuous class, to be deployed as it is.

`learn_one` takes a finite sample of policies from a prior, and certifies the best of them (Occam
with the exact tail) or a posterior over them (PAC-Bayes). `certify_draw` certifies the one policy
that is drawn from a Gaussian posterior.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian, check_dimensions
from pacbayes_control.certify.issuing import Provenance, issue_single_draw
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.finite import learn_finite
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.rollouts import Progress, evaluate
from pacbayes_control.tasks import Environments, Noise, Task, as_task
from pacbayes_control.tasks.environments import generator


def learn_one(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    delta: float = 0.01,
    candidates: int = 1,
    method: str = "occam",
    seed: int = 0,
    progress: Progress | None = None,
    out: str | Path | None = None,
    retries: int = 0,
) -> Run[Categorical]:
    """The best of a few policies: the prior's mean, and others drawn from it.

    The mean has half of the weight and the draws share the other half; alone, it has all, and the
    bound is that of a policy chosen in advance. method: "occam" for one policy, or one of
    `learn_finite` for a posterior over the candidates. out: a folder to keep finished rollouts in;
    retries: as for `evaluate`.

    >>> from pacbayes_control.robots import Vehicle
    >>> from pacbayes_control.robots.vehicle import Linear, paper_prior
    >>> task = Vehicle(controller=Linear())
    >>> train = task.environments(100, stream="train")
    >>> learn_one(task, train, GaussianPrior(paper_prior())).certificate.policy
    0
    """
    task = as_task(task)
    if candidates < 1:
        raise ValueError(f"{candidates} candidates were asked for: at least one is needed")
    prior = GaussianPrior.of(prior)
    prior.check_unseen(environments)
    gaussian, others = prior.distribution, candidates - 1
    drawn = gaussian.sample(generator(seed, "candidates", of="policies"), others)
    policies = np.concatenate([gaussian.mean[None], drawn])
    weights = np.append(0.5, np.full(others, 0.5 / others)) if others else np.ones(1)
    names = ["mean of the prior", *(f"draw {i + 1} from the prior" for i in range(others))]
    costs = evaluate(task, policies, environments, names, progress, out=out, retries=retries)
    return learn_finite(
        costs,
        delta,
        method,
        prior=Categorical(weights, seen=gaussian.seen),
        origin=f"{'its mean' if not others else f'{candidates} policies from it'}: {prior.origin}",
    )


def certify_draw(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    posterior: DiagonalGaussian,
    delta: float = 0.01,
    objective: str = "kl",
    seed: int = 0,
    out: str | Path | None = None,
    retries: int = 0,
) -> Run[DiagonalGaussian]:
    """Draw one policy from a posterior, keep it for good, and certify it (Rivasplata's bound).

    The draw is a function of the seed. To draw again because a draw turned out badly voids the
    confidence: that is choosing by the data. out: a folder to keep finished rollouts in; retries:
    as for `evaluate`.
    """
    task = as_task(task)
    prior = GaussianPrior.of(prior)
    prior.check_unseen(environments)
    check_dimensions(posterior, prior.distribution)
    posterior = posterior.with_data_used(environments.range, *prior.distribution.seen)
    budget = Budget(delta)
    budget.spend("single-draw")
    policy = posterior.sample(generator(seed, "single draw", of="policies"), 1)
    noise = Noise("single draw noise", seed)
    rolled_out = evaluate(task, policy, environments, noise=noise, out=out, retries=retries)
    drawn = {"stream": "single draw", "seed": seed, "posterior": posterior.parameters_digest}
    origin = {**rolled_out.origin, "policies": drawn}
    costs = Costs(rolled_out.values, origin=origin, parameters=policy)
    provenance = Provenance(objective, prior.origin)
    certificate = issue_single_draw(costs, prior.distribution, posterior, budget, provenance)
    return Run(certificate, costs, prior.distribution, posterior)
