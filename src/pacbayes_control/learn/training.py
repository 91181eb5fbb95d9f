"""Running a search: rollouts of the policies it asks for, checkpoints, and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import rescaled_exponential
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.search import GaussianSearch, SearchSettings
from pacbayes_control.rollouts import Execution, Quantity, mean_costs, open_workers
from pacbayes_control.tasks import Environments, Noise, Task, as_task
from pacbayes_control.tasks.environments import generator
from pacbayes_control.tasks.identity import identity

CHECKPOINT_EVERY, CHECKPOINT_SECONDS = 10, 5.0  # steps, or seconds if steps are slow
CHECKPOINT_SHARE = 0.02  # of the time, at most, where steps are fast
TIMING, MOMENT = "timing", 0.3  # a stream, and seconds, to measure the time of a rollout


class SearchStopped(ValueError):  # noqa: N818 - the search can continue
    """A cost was NaN or outside [0, 1]. `search` has the state before that step."""

    def __init__(self, message: str, search: GaussianSearch) -> None:
        super().__init__(message)
        self.search = search


def search_posterior(
    task: Task,
    environments: Environments | Callable[[int], Environments],
    search: GaussianSearch,
    execution: Execution | None = None,
    *,
    afterwards: int = 0,
) -> None:
    """Run a search to its end, with the task's rollouts.

    A cost that is NaN or outside [0, 1] stops it, with the state before that step saved.

    Args:
        task: the task to roll out
        environments: to train on, or a function from the step to those of that step
        search: the state to begin with; it is updated in place
        execution: where and how. Its store is a checkpoint file: a search that was killed continues
            from there, with the same result
        afterwards: rollouts that will certify the posterior, for the report of what all will cost
    """
    task, execution = as_task(task), execution or Execution()
    if not isinstance(environments, Environments) and not callable(environments):
        raise ValueError("a search needs Environments, or a function from the step to some")
    checkpoint = Path(execution.store) if execution.store else None
    if checkpoint and not checkpoint.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {checkpoint.parent} for the checkpoint")

    if callable(environments) and search.settings.batch:
        raise ValueError("batch has no use where the environments are a function of the step")
    at = environments if callable(environments) else _batches(environments, search.settings)
    check_estimator(task, search.settings)
    words = identity(task) if checkpoint else ""
    hardware = execution.on_device(task).hardware
    origin = (environments(0) if callable(environments) else environments).origin
    surroundings = {"device": hardware} if hardware else {}
    fingerprint = search.fingerprint(task=words, environments=origin, **surroundings)
    if checkpoint and checkpoint.exists():
        search.load(checkpoint, fingerprint)
    steps, each = search.settings.steps, search.population * len(at(0))
    saved, took = time.monotonic(), 0.0  # of the last checkpoint: when, and seconds
    if not search.done:
        words = _work(search, len(at(0)), afterwards)
        execution.tell(search.step * each, steps * each, words)
    with open_workers(task, replace(execution, store=None)) as opened:
        while not search.done:
            here, before = at(search.step), search.step * each
            remark = _remark(search, search.step + 1) if search.step else ""
            counted = opened.counting_on(before, steps * each, remark)
            try:
                told = _training_costs(task, here, search, counted)
            except (ValueError, KeyboardInterrupt) as error:
                kept = ""
                if checkpoint and search.step:
                    search.save(checkpoint, fingerprint)
                    kept = f"; the state before this step is in {checkpoint}"
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise SearchStopped(f"step {search.step}: {error}{kept}", search) from error
            search.tell(*told, environments=here)
            now = time.monotonic()
            due = search.step % CHECKPOINT_EVERY == 0 and took <= CHECKPOINT_SHARE * (now - saved)
            if checkpoint and (search.done or due or now - saved > CHECKPOINT_SECONDS):
                search.save(checkpoint, fingerprint)
                saved = time.monotonic()
                took = saved - now
            done = search.step * each
            total = done if search.done else steps * each  # if it stops early, that is all
            execution.tell(done, total, _remark(search, search.step))


def _batches(environments: Environments, settings: SearchSettings) -> Callable[[int], Environments]:
    """The environments of each step: all, or a batch, which goes through all of them in turn.

    They are i.i.d., so a range of them is as good as any other choice.
    """
    n, size = len(environments), settings.batch or len(environments)
    if size > n:
        raise ValueError(f"batch = {size}: there are {n} environments to train on")
    count = -(-n // size)  # of batches; the last one shares some with the one before

    def at(step: int) -> Environments:
        first = min(step % count * size, n - size)
        return environments[first : first + size]

    return at


def rollout_rate(
    task: Task, prior: DiagonalGaussian, seed: int = 0, execution: Execution | None = None
) -> float:
    """Rollouts a second of policies from a prior, measured on a few.

    More and more are rolled out, in environments of a stream of their own, until they take a
    moment and all workers have something to do.
    """
    task, execution, seconds = as_task(task), execution or Execution(), []
    policies = prior.sample(generator(seed, TIMING, of="policies"), 4)
    noise = Noise(f"{TIMING} noise", seed)
    how = replace(execution, store=None, title="timing a few rollouts")
    with open_workers(task, how) as opened:
        for environments in (1, 1, 4, 16, 64, 256, 1024):  # the first to start workers, compilers
            some = task.environments(environments, stream=TIMING, seed=seed)
            started = time.perf_counter()
            mean_costs(task, policies, some, noise=noise, execution=opened)
            seconds.append(time.perf_counter() - started)
            if seconds[-1] > max(MOMENT, 2 * min(seconds[1:], default=np.inf)):
                break
    return len(policies) * environments / seconds[-1]


def check_estimator(
    task: Task, settings: SearchSettings | None, objective: str | None = None
) -> None:
    """Raise ValueError if the estimator needs gradients that do not exist or cannot be used."""
    if settings is None or settings.estimator != "gradient":
        return
    if task.gradients is None:
        raise ValueError(f"task {task.name} has no gradients of its own: use evolution")
    if objective is not None and OBJECTIVES[objective].exponential:
        raise ValueError(f"{objective} averages e^C: use evolution or differences")


def _training_costs(
    task: Task, environments: Environments, search: GaussianSearch, execution: Execution
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The mean training cost of each policy that the search asks for; noise is drawn anew."""
    policies = search.ask()
    estimator = search.settings.estimator
    check_estimator(task, search.settings, search.objective)
    exponential = search.objective is not None and OBJECTIVES[search.objective].exponential
    if estimator == "gradient":
        assert task.gradients is not None
        pair = task.gradients(policies, environments)
        costs, gradients = np.asarray(pair[0], float), np.asarray(pair[1], float)
        wrong = ~((costs >= 0) & (costs <= 1)) | ~np.isfinite(gradients).all(axis=-1)
        if wrong.any():
            policy = int(np.argmax(wrong))
            raise ValueError(
                f"the surrogate {costs[policy]:g} of policy {policy} is outside [0, 1], or its "
                "gradient is not finite"
            )
        return costs, gradients
    noise = Noise(f"{search.stream} noise {search.step}", search.seed)
    surrogate = estimator == "differences" and task.surrogate is not None
    of = Quantity(surrogate, rescaled_exponential if exponential else None)
    return mean_costs(task, policies, environments, noise=noise, of=of, execution=execution), None


def _work(search: GaussianSearch, environments: int, afterwards: int) -> str:
    """A search in words, before it begins: what it will cost, or how much of it is done."""
    steps, policies = search.settings.steps, search.population
    words = f"{steps:,} steps of {policies:,} policies in {environments:,} environments"
    if search.step:
        return f"{search.step:,} of {words} are done"
    if search.settings.estimator != "gradient":
        words += f", {steps * policies * environments:,} rollouts"
    return words + (f" (then {afterwards:,} to certify)" if afterwards else "")


def _remark(search: GaussianSearch, step: int) -> str:
    """The bound, or the cost, so far, and the step that the search is at, counted from 1."""
    what = "bound" if search.objective else "cost"
    if search.settings.estimator == "gradient":
        what = f"surrogate's {what}"
    return f"{what} {search.value:.4f}, step {step:,} of {search.settings.steps:,}"
