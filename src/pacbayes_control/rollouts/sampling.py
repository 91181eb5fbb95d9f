"""Rollouts of policies drawn from a posterior: to look around, to certify, to estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.rollouts import jobs
from pacbayes_control.rollouts.evaluation import (
    Progress,
    check_unseen,
    counting_on,
    mean_costs,
    origin_of,
    table_of,
)
from pacbayes_control.rollouts.jobs import CHUNK, FreshDraws, Job
from pacbayes_control.rollouts.pools import Workers, gathered
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import KEPT_STREAMS, generator
from pacbayes_control.tasks.task import as_task, noise_of


def sample_costs(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    stream: str = "sample",
    seed: int = 0,
    shared: bool = False,
    progress: Progress | None = None,
    executor: Workers = None,
    out: str | Path | None = None,
    retries: int = 0,
) -> Costs:
    """Costs of policies drawn from a posterior; shape (environments, draws).

    A fresh policy for every environment and draw, or with `shared` the same `draws` policies in
    every environment: the record knows which, because the bound on what sampling misses differs.
    For looking around: draws that a posterior was chosen by cannot certify it. executor, out and
    retries: as for `evaluate`; draws that are shared are not kept.
    """
    if stream in KEPT_STREAMS:
        raise ValueError(f"the stream {stream!r} is kept for certificates: use another name")
    return _sample(
        task, posterior, environments, draws, stream, seed, shared, progress, executor, out, retries
    )


def certifying_draws(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    seed: int = 0,
    shared: bool = False,
    progress: Progress | None = None,
    executor: Workers = None,
    out: str | Path | None = None,
    retries: int = 0,
) -> Costs:
    """As `sample_costs`, for a certificate: from a stream that nothing else draws from.

    The posterior is fixed by now, and these are the first draws that are made from it.
    """
    return _sample(
        *(task, posterior, environments, draws, "certify", seed, shared, progress, executor, out),
        retries,
    )


def _sample(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    stream: str,
    seed: int,
    shared: bool,
    progress: Progress | None,
    executor: Workers,
    out: str | Path | None,
    retries: int,
) -> Costs:
    task = as_task(task)
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    noise = noise_of(task, environments, Noise(f"{stream} noise", seed))
    drawn = {"stream": stream, "seed": seed, "posterior": posterior.parameters_digest}
    origin = origin_of(task, environments, noise) | {"policies": drawn}
    if not shared:
        job = Job(task, environments, FreshDraws(posterior, draws, stream, seed), noise)
        table = table_of(job, progress, executor, out, origin=origin, retries=retries)
        return Costs(table, origin=origin, draws="fresh")
    parts = []
    with gathered(task, executor) as crew:
        for first, policies in shared_draws(posterior, draws, stream, seed):
            shifted = noise.shifted(first) if noise else None
            done, total = len(environments) * first, len(environments) * draws
            counted = counting_on(progress, done, total)
            job = Job(task, environments, policies, shifted)
            parts.append(table_of(job, counted, crew.executor, origin=origin, retries=retries))
    return Costs(np.concatenate(parts, axis=1), origin=origin, draws="shared")


def shared_draws(
    posterior: DiagonalGaussian, draws: int, stream: str, seed: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Policies that all environments share, in parts that fit in memory."""
    width, rng = max(1, jobs.CELLS // len(posterior)), generator(seed, stream, of="policies")
    for first in range(0, draws, width):
        yield first, posterior.sample(rng, min(width, draws - first))


def sampled_mean(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int = 8,
    seen: Sequence[Environments] = (),
    seed: int = 0,
    progress: Progress | None = None,
    executor: Workers = None,
    retries: int = 0,
) -> float:
    """An estimate of the true cost of a posterior: new policies for each chunk of environments.

    An error on environments that the posterior or the task has learnt from, or those in `seen`.
    """
    task = as_task(task)
    check_unseen(environments, [*posterior.seen, *task.data_used, *seen])
    if len(environments) == 0 or draws < 1:
        raise ValueError("an estimate needs at least one environment and one draw")
    noise = noise_of(task, environments, Noise("estimate noise", seed))
    total, done = 0.0, 0
    with gathered(task, executor) as crew:
        for chunk in environments.chunks(CHUNK):
            rng = generator(seed, "estimate", chunk.start, of="policies")
            job = Job(task, chunk, posterior.sample(rng, draws), noise)
            counted = counting_on(progress, done * draws, len(environments) * draws)
            table = table_of(job, counted, crew.executor, retries=retries)
            total += float(table.sum(dtype=float))
            done += len(chunk)
    return total / (len(environments) * draws)


def estimate_true_cost(
    task: Task,
    run: Run[Any],
    environments: Environments,
    progress: Progress | None = None,
    executor: Workers = None,
    retries: int = 0,
) -> float:
    """An estimate of the expected cost of what a run certifies, on environments never seen.

    An error on those that the run's costs are of, or that its prior, posterior or policies have
    learnt from.
    """
    counted = [run.costs.range] if run.costs.range else []
    learnt = [*(run.posterior.seen or ()), *(run.prior.seen or ()), *run.costs.policies_seen]
    check_unseen(environments, [*counted, *learnt])
    common: Any = {"progress": progress, "executor": executor, "retries": retries}
    if isinstance(run.posterior, DiagonalGaussian) and run.certificate.policy is None:
        return sampled_mean(task, run.posterior, environments, **common)
    if run.costs.parameters is None:
        raise ValueError("the run holds no parameters of its policies: they cannot be rolled out")
    means = mean_costs(task, run.costs.parameters, environments, **common)
    if isinstance(run.posterior, DiagonalGaussian):
        return float(means[0])
    return float(run.posterior.probabilities @ means)
