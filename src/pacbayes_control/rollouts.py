"""The one place that runs simulators: in chunks, so that only the costs are ever held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.costs import Costs, checked_costs
from pacbayes_control.tasks import Environments, Task

CHUNK = 1024  # environments handed to a task at a time

Progress = Callable[[int, int], None]  # rollouts done, rollouts in all


def evaluate(
    task: Task,
    policies: NDArray,
    environments: Environments,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> Costs:
    """Roll out every policy in every environment.

    >>> from pacbayes_control.tasks import Vehicle
    >>> task = Vehicle()
    >>> evaluate(task, task.gain_grid(), task.environments(8, stream="example")).policies
    50
    """
    # Bytes for as long as every cost is 0 or 1, an eighth of the memory.
    values = np.empty((len(environments), len(policies)), np.uint8)
    row = 0
    for part in _chunks(task, policies, environments, progress):
        if part.dtype != np.uint8 and values.dtype == np.uint8:
            values = values.astype(np.float64)
        values[row : row + len(part)] = part
        row += len(part)
    return Costs(values, names, environments.origin, np.asarray(policies))


def mean_costs(
    task: Task,
    policies: NDArray,
    environments: Environments,
    seen: Sequence[Environments] = (),
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Mean cost of each policy over environments that may be too many to keep; shape (policies,).

    An estimate of the true cost is worth nothing on environments that the policy was learnt from:
    name those as `seen`, and an overlap is an error.
    """
    for other in seen:
        if environments.overlaps(other):
            raise ValueError(
                f"stream {environments.stream!r} with seed {environments.seed} was used for "
                "training: estimate the true cost on a stream of its own"
            )
    total = np.zeros(len(policies))
    for part in _chunks(task, policies, environments, progress):
        total += part.sum(axis=0, dtype=float)
    return total / len(environments)


def _chunks(
    task: Task, policies: NDArray, environments: Environments, progress: Progress | None
) -> Iterator[NDArray]:
    policies = np.asarray(policies)
    if policies.ndim != 2 or len(policies) == 0:
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    if len(environments) == 0:
        raise ValueError("there are no environments to roll out in")
    done = 0
    for chunk in environments.chunks(CHUNK):
        part = np.asarray(task.costs(policies, chunk))
        if part.shape != (len(chunk), len(policies)):
            raise ValueError(
                f"task {task.name} returned costs of shape {part.shape} for "
                f"{len(chunk)} environments × {len(policies)} policies"
            )
        part = checked_costs(part, first=done)
        done += len(chunk)
        if progress:
            progress(done * len(policies), len(environments) * len(policies))
        yield part
