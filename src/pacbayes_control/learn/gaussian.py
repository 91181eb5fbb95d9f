"""Learning over continuous policy spaces (paper: Section 5.2 and Algorithm 2).

A search minimises a bound over Gaussian posteriors by stochastic gradients; its estimates are never
reported. `certify_posterior` then draws fresh policies from the posterior, now fixed, and pays for
what sampling may miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.issuing import PAC_BAYES, SAMPLING, Provenance, issue_sampled
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import GaussianSearch, Settings
from pacbayes_control.learn.training import Watch, search_posterior
from pacbayes_control.rollouts import Progress, certifying_draws
from pacbayes_control.tasks import Environments, Task, as_task

SAMPLING_SHARE = 0.1  # of δ, for what the draws may miss, as in the paper
ROLLOUTS = 30_000  # to certify with, where none are given


def learn_gaussian(
    task: Task,
    environments: Environments,
    prior: GaussianPrior | DiagonalGaussian,
    delta: float = 0.01,
    method: str = "kl",
    objective: str | None = None,
    settings: Settings | None = None,
    sampling_delta: float | None = None,
    draws: int | None = None,
    shared: bool = False,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Watch | None = None,
    certifying: Progress | None = None,
    retries: int = 0,
) -> Run[DiagonalGaussian]:
    """Learn a Gaussian posterior over policies and certify it: δ in all, δ' of it for sampling.

    method: "kl", "kl-maurer" or "pinsker"; objective: the same, "quadratic", "lambda" or
    "robust-pinsker" (the paper's C_PAC' for shifted distributions), the method's own where none is
    given. A prior that learnt from environments must not have seen
    these: an overlap is an error. draws: policies for each environment to certify with, shared by
    all environments if `shared`. checkpoint: a file to go on from, and to write as the search goes;
    the rollouts of the certifying draws are kept in a folder beside it. progress: is told of the
    search after each step; certifying: of the rollouts that certify. retries: as for `evaluate`.

    >>> from pacbayes_control.robots import Vehicle
    >>> from pacbayes_control.robots.vehicle import Linear, paper_prior
    >>> task = Vehicle(controller=Linear())
    >>> train = task.environments(100, stream="train")
    >>> run = learn_gaussian(task, train, paper_prior(), settings=Settings(steps=3), draws=20)
    >>> run.certificate.bound < 0.5
    True
    """
    task = as_task(task)
    prior = GaussianPrior.of(prior)
    budget = split_budget(delta, method, sampling_delta)
    prior.check_unseen(environments)
    draws = _checked_draws(draws, environments)
    objective = objective or method
    search = GaussianSearch(
        prior.distribution, len(environments), budget.spent[method], objective, settings, seed
    )
    search_posterior(task, environments, search, checkpoint, progress, retries)
    return certify_posterior(
        task,
        environments,
        prior,
        search.posterior,
        budget,
        method,
        objective,
        draws,
        shared,
        seed,
        certifying,
        out=_beside(checkpoint, f"draws-{draws}"),
        retries=retries,
    )


def learn_family(
    task: Task,
    environments: Environments,
    priors: Sequence[GaussianPrior | DiagonalGaussian],
    delta: float = 0.01,
    method: str = "kl",
    objective: str | None = None,
    settings: Settings | None = None,
    sampling_delta: float | None = None,
    draws: int | None = None,
    shared: bool = False,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Watch | None = None,
    retries: int = 0,
) -> Run[DiagonalGaussian]:
    """Learn from the best of several priors that were declared in advance, such as variances.

    The choice is paid for by a union bound: each prior's theorem holds at an equal share of δ, so
    all hold at once, and any may be used. The certifying draws are of the chosen posterior only.
    checkpoint: the beginning of the name of a file for each search.
    """
    task = as_task(task)
    if not priors:
        raise ValueError("a family of priors needs at least one")
    priors = [GaussianPrior.of(prior) for prior in priors]
    budget = split_budget(delta, method, sampling_delta, len(priors))
    objective, share = objective or method, budget.spent[method]
    for prior in priors:
        prior.check_unseen(environments)
    draws = _checked_draws(draws, environments)
    searches = []
    for index, prior in enumerate(priors):
        stream = f"search {index}"
        search = GaussianSearch(
            prior.distribution, len(environments), share, objective, settings, seed, stream
        )
        file = _beside(checkpoint, str(index))
        search_posterior(task, environments, search, file, progress, retries)
        searches.append(search)
    best = min(range(len(priors)), key=lambda index: searches[index].best_value)
    chosen = replace(
        priors[best], origin=f"{priors[best].origin}; one of {len(priors)} declared in advance"
    )
    posterior = searches[best].posterior
    return certify_posterior(
        task,
        environments,
        chosen,
        posterior,
        budget,
        method,
        objective,
        draws,
        shared,
        seed,
        out=_beside(checkpoint, f"draws-{draws}"),
        retries=retries,
    )


def _beside(checkpoint: str | Path | None, part: str) -> Path | None:
    """Another file or folder that belongs to a checkpoint."""
    return Path(f"{checkpoint}.{part}") if checkpoint else None


def _checked_draws(draws: int | None, environments: Environments) -> int:
    """Policies for each environment to certify with; an error before the search, not after it."""
    if len(environments) < 2:
        raise ValueError("one environment is not a sample: at least two are needed")
    if draws is not None and draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    return draws or max(1, -(-ROLLOUTS // len(environments)))


def split_budget(
    delta: float, method: str, sampling_delta: float | None = None, priors: int = 1
) -> Budget:
    """δ in all: δ' for sampling, a tenth of it where none is given, and the rest for the theorem.

    With several priors to choose from, each has an equal share of the theorem's.

    >>> split_budget(0.01, "kl").spent
    {'sampling': 0.001, 'kl': 0.009000000000000001}
    """
    if method not in PAC_BAYES:
        raise ValueError(
            f"method {method!r} is unknown for a Gaussian posterior: choose from "
            f"{', '.join(PAC_BAYES)}, or certify one policy"
        )
    budget = Budget(delta)
    if sampling_delta is not None and not 0 < sampling_delta < delta:
        raise ValueError(
            f"sampling_delta = {sampling_delta:g} overspends: it must be positive, and leave some "
            f"of delta = {delta:g}"
        )
    budget.spend(SAMPLING, SAMPLING_SHARE * delta if sampling_delta is None else sampling_delta)
    budget.spend(method, budget.left / priors)
    if priors > 1:
        budget.spend(f"{method} of the other {priors - 1} priors")
    return budget


def certify_posterior(
    task: Task,
    environments: Environments,
    prior: GaussianPrior,
    posterior: DiagonalGaussian,
    budget: Budget,
    method: str = "kl",
    objective: str = "kl",
    draws: int | None = None,
    shared: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    out: str | Path | None = None,
    retries: int = 0,
) -> Run[DiagonalGaussian]:
    """The final bound (paper: eq. 24) on a posterior that is fixed by now, from new draws.

    To certify several posteriors, or with several numbers of draws, and keep the best is choosing
    by the data: divide δ' by how many there are. out: a folder to keep finished rollouts in, unless
    the draws are shared; retries: as for `evaluate`.
    """
    task = as_task(task)
    prior.check_unseen(environments)
    draws = _checked_draws(draws, environments)
    posterior = posterior.with_data_used(environments.range, *prior.distribution.seen)
    costs = certifying_draws(
        task, posterior, environments, draws, seed, shared, progress, out=out, retries=retries
    )
    provenance = Provenance(objective, prior.origin)
    certificate = issue_sampled(costs, prior.distribution, posterior, method, budget, provenance)
    return Run(certificate, costs, prior.distribution, posterior)
