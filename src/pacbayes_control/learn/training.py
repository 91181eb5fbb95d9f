"""A search put to work: rollouts for what it asks, checkpoints, and what to do with a bad cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import rescaled_exponential
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.search import GaussianSearch
from pacbayes_control.rollouts import mean_costs
from pacbayes_control.tasks import Environments, Noise, Task, as_task
from pacbayes_control.tasks.identity import identity

CHECKPOINT_EVERY, CHECKPOINT_SECONDS = 10, 5.0  # steps, or s where they take long

Watch = Callable[[GaussianSearch], None]  # called after each step, for progress


class SearchStopped(ValueError):  # noqa: N818 - a state of the search, which can go on
    """A search that met a cost that is none. `search` is as it was before that step."""

    def __init__(self, message: str, search: GaussianSearch) -> None:
        super().__init__(message)
        self.search = search


def search_posterior(
    task: Task,
    environments: Environments | Callable[[int], Environments],
    search: GaussianSearch,
    checkpoint: str | Path | None = None,
    progress: Watch | None = None,
    retries: int = 0,
) -> None:
    """Run a search to its end, with the task's rollouts.

    environments: to train on, or a function from the step to those of that step. The search is
    saved as it goes, and taken up where a checkpoint left it: to be killed at any moment changes
    nothing. A cost that is NaN or outside [0, 1] stops it, with the state before that step saved.
    retries: as for `evaluate`.
    """
    task = as_task(task)
    if not isinstance(environments, Environments) and not callable(environments):
        raise ValueError("a search needs Environments, or a function from the step to some")
    checkpoint = Path(checkpoint) if checkpoint else None
    if checkpoint and not checkpoint.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {checkpoint.parent} for the checkpoint")

    def at(step: int) -> Environments:
        return environments if isinstance(environments, Environments) else environments(step)

    if search.settings.estimator == "gradient" and task.gradients is None:
        raise ValueError(f"task {task.name} has no gradients of its own: use evolution")
    words = identity(task) if checkpoint else ""
    fingerprint = search.fingerprint(task=words, environments=at(0).origin)
    if checkpoint and checkpoint.exists():
        search.load(checkpoint, fingerprint)
    saved = time.monotonic()
    while not search.done:
        here = at(search.step)
        policies = search.ask()
        try:
            costs, gradients = _training_costs(task, policies, here, search, retries)
        except (ValueError, KeyboardInterrupt) as error:
            kept = ""
            if checkpoint and search.step:
                search.save(checkpoint, fingerprint)
                kept = f"; the state before this step is in {checkpoint}"
            if isinstance(error, KeyboardInterrupt):
                raise
            raise SearchStopped(f"step {search.step}: {error}{kept}", search) from error
        search.tell(costs, gradients, environments=here)
        late = time.monotonic() - saved > CHECKPOINT_SECONDS
        if checkpoint and (search.done or late or search.step % CHECKPOINT_EVERY == 0):
            search.save(checkpoint, fingerprint)
            saved = time.monotonic()
        if progress:
            progress(search)


def _training_costs(
    task: Task,
    policies: NDArray,
    environments: Environments,
    search: GaussianSearch,
    retries: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The mean training cost of each policy; noise of the rollouts is drawn anew in each step."""
    estimator = search.settings.estimator
    exponential = search.objective is not None and OBJECTIVES[search.objective].exponential
    if estimator == "gradient" and exponential:
        raise ValueError(f"{search.objective} averages e^C: use evolution or differences")
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
    of = rescaled_exponential if exponential else None
    costs = mean_costs(
        task, policies, environments, noise=noise, surrogate=surrogate, of=of, retries=retries
    )
    return costs, None
