"""Rollouts of policies drawn from a posterior: to explore, to certify, to estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import Run
from pacbayes_control.rollouts.evaluation import (
    check_unseen,
    described_by,
    mean_costs,
    origin_of,
    table_of,
)
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.jobs import CHUNK, FreshDraws, Job, shared_draws
from pacbayes_control.rollouts.pools import open_workers
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import KEPT_STREAMS, generator
from pacbayes_control.tasks.task import as_task, noise_of


@dataclass(frozen=True)
class Draws:
    """How policies are drawn from a posterior to be rolled out."""

    count: int  # for each environment
    seed: int = 0
    shared: bool = False  # the same in every environment
    stream: str = "sample"


def sample_costs(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: Draws | int,
    execution: Execution | None = None,
) -> Costs:
    """Costs of policies drawn from a posterior; shape (environments, draws).

    A fresh policy for every environment and draw, or the same policies in every environment where
    the draws are shared: the record says which, because the sampling bounds differ. This function
    is for exploring: draws that a posterior was chosen by cannot certify it. Shared draws are not
    kept in the store.
    """
    draws = Draws(draws) if isinstance(draws, int) else draws
    if draws.stream in KEPT_STREAMS:
        raise ValueError(f"the stream {draws.stream!r} is kept for certificates: use another name")
    return _sample(as_task(task), posterior, environments, draws, execution or Execution())


def certifying_draws(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: Draws,
    execution: Execution | None = None,
) -> Costs:
    """As `sample_costs`, for a certificate: from a stream that is used for nothing else.

    The posterior must be fixed before; these are the first draws from it that anything depends on.
    """
    own = replace(draws, stream="certify")
    return _sample(as_task(task), posterior, environments, own, execution or Execution())


def _sample(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: Draws,
    execution: Execution,
) -> Costs:
    count, stream, seed = draws.count, draws.stream, draws.seed
    if count < 1:
        raise ValueError(f"{count} draws were asked for: at least one is needed")
    noise = noise_of(task, environments, Noise(f"{stream} noise", seed))
    drawn = {"stream": stream, "seed": seed, "posterior": posterior.parameters_digest}
    origin = origin_of(task, environments, noise) | {"policies": drawn}
    described = described_by(task, environments)
    if not draws.shared:
        job = Job(task, environments, FreshDraws(posterior, count, stream, seed), noise)
        table = table_of(job, execution, origin)
        return Costs(table, origin=origin, draws="fresh", described=described)
    parts = []
    with open_workers(task, replace(execution, store=None)) as here:
        for first, policies in shared_draws(posterior, count, stream, seed):
            job = Job(task, environments, policies, noise.shifted(first) if noise else None)
            counted = here.counting_on(len(environments) * first, len(environments) * count)
            parts.append(table_of(job, counted, origin))
    table = np.concatenate(parts, axis=1)
    return Costs(table, origin=origin, draws="shared", described=described)


def sampled_mean(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    seen: Sequence[Environments | EnvironmentRange] = (),
    *,
    draws: int = 8,
    seed: int = 0,
    execution: Execution | None = None,
) -> float:
    """An estimate of the true cost of a posterior: new policies for each chunk of environments.

    Args:
        task: the task to roll out
        posterior: whose expected cost is estimated
        environments: new ones; those that the posterior or the task used are an error
        seen: others that are an error
        draws: policies for each chunk of environments
        seed: of the policies and the noise
        execution: where and how; nothing is kept
    """
    task, execution = as_task(task), execution or Execution()
    check_unseen(environments, [*posterior.seen, *task.data_used, *seen])
    if len(environments) == 0 or draws < 1:
        raise ValueError("an estimate needs at least one environment and one draw")
    noise = noise_of(task, environments, Noise("estimate noise", seed))
    total, done, rollouts = 0.0, 0, len(environments) * draws
    with open_workers(task, replace(execution, store=None)) as here:
        for chunk in environments.chunks(CHUNK):
            rng = generator(seed, "estimate", chunk.start, of="policies")
            job = Job(task, chunk, posterior.sample(rng, draws), noise)
            table = table_of(job, here.counting_on(done, rollouts))
            total += float(table.sum(dtype=float))
            done += table.size
    return total / rollouts


def estimate_true_cost(
    task: Task, run: Run[Any], environments: Environments, execution: Execution | None = None
) -> float:
    """An estimate of the expected cost of the policies that a run certifies, on new environments.

    Environments that the run counts, or that its prior, posterior or policies used, are an error.
    """
    counted = [run.costs.range] if run.costs.range else []
    learnt = [*(run.posterior.seen or ()), *(run.prior.seen or ()), *run.costs.policies_seen]
    check_unseen(environments, [*counted, *learnt])
    if isinstance(run.posterior, DiagonalGaussian) and run.certificate.policy is None:
        return sampled_mean(task, run.posterior, environments, execution=execution)
    if run.costs.parameters is None:
        raise ValueError("the run holds no parameters of its policies: they cannot be rolled out")
    means = mean_costs(task, run.costs.parameters, environments, execution=execution)
    if isinstance(run.posterior, DiagonalGaussian):
        return float(means[0])
    return float(run.posterior.probabilities @ means)
