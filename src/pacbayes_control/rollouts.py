"""The one place that runs simulators: in chunks, so that only the costs are ever held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.costs import Costs, checked_costs
from pacbayes_control.distributions import DiagonalGaussian
from pacbayes_control.run import Run
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.base import KEPT_STREAMS, generator, noise_of

CHUNK = 1024  # environments handed to a task at a time
CELLS = 1 << 22  # numbers of sampled policies held at a time

Progress = Callable[[int, int], None]  # rollouts done, rollouts in all


def evaluate(
    task: Task,
    policies: NDArray,
    environments: Environments,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    noise: Noise | None = None,
) -> Costs:
    """Roll out every policy in every environment.

    Where rollouts have noise of their own, each has a draw of its own, from `noise` or from a
    stream named after the environments'. A certificate may then count the costs as they are: an
    environment and its noise together are one i.i.d. draw.

    >>> from pacbayes_control.tasks import Vehicle
    >>> task = Vehicle()
    >>> evaluate(task, task.gain_grid(), task.environments(8, stream="example")).policies
    50
    """
    policies = _checked(policies)
    noise = noise_of(task, environments, noise)
    values = np.empty((len(environments), len(policies)), np.uint8)
    row = 0
    for part in _chunks(task, policies, environments, progress, noise):
        values = _stored(values, part, slice(row, row + len(part)))
        row += len(part)
    return Costs(values, names, _origin(task, environments, noise), policies)


def mean_costs(
    task: Task,
    policies: NDArray,
    environments: Environments,
    seen: Sequence[Environments] = (),
    progress: Progress | None = None,
    noise: Noise | None = None,
    surrogate: bool = False,
    of: Callable[[NDArray], NDArray] | None = None,
) -> NDArray[np.float64]:
    """Mean cost of each policy over environments that may be too many to keep; shape (policies,).

    An estimate of the true cost is worth nothing on environments that the policy was learnt from:
    name those as `seen`, and an overlap is an error. surrogate: of the task's surrogate cost; of: a
    function of each cost to average in its place.
    """
    _check_unseen(environments, seen)
    policies = _checked(policies)
    noise = noise_of(task, environments, noise)
    total = np.zeros(len(policies))
    for part in _chunks(task, policies, environments, progress, noise, surrogate):
        total += (of(part) if of else part).sum(axis=0, dtype=float)
    return total / len(environments)


def sample_costs(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    stream: str = "sample",
    seed: int = 0,
    shared: bool = False,
    progress: Progress | None = None,
) -> Costs:
    """Costs of policies drawn from a posterior; shape (environments, draws).

    A fresh policy for every environment and draw, or with `shared` the same `draws` policies in
    every environment: the record knows which, because the bound on what sampling misses differs.
    For looking around: draws that a posterior was chosen by cannot certify it.
    """
    if stream in KEPT_STREAMS:
        raise ValueError(f"the stream {stream!r} is kept for certificates: use another name")
    return _sample(task, posterior, environments, draws, stream, seed, shared, progress)


def certifying_draws(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    seed: int = 0,
    shared: bool = False,
    progress: Progress | None = None,
) -> Costs:
    """As `sample_costs`, for a certificate: from a stream that nothing else draws from.

    The posterior is fixed by now, and these are the first draws that are made from it.
    """
    return _sample(task, posterior, environments, draws, "certify", seed, shared, progress)


def _sample(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int,
    stream: str,
    seed: int,
    shared: bool,
    progress: Progress | None,
) -> Costs:
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    noise = noise_of(task, environments, Noise(f"{stream} noise", seed))
    origin = _origin(task, environments, noise) | {"policies": {"stream": stream, "seed": seed}}
    total, done = len(environments) * draws, 0
    values = np.empty((len(environments), draws), np.uint8)

    def keep(part: NDArray, rows: slice, columns: slice) -> None:
        nonlocal values, done
        values = _stored(values, part, rows, columns)
        done += part.size
        if progress:
            progress(done, total)

    size = len(posterior)
    if shared:
        width, rng = max(1, CELLS // size), generator(seed, stream, of="policies")
        for first in range(0, draws, width):
            policies = posterior.sample(rng, min(width, draws - first))
            columns = slice(first, first + len(policies))
            row = 0
            shifted = noise.shifted(first) if noise else None
            for part in _chunks(task, policies, environments, None, shifted):
                keep(part, slice(row, row + len(part)), columns)
                row += len(part)
        return Costs(values, origin=origin, draws="shared")
    rows = max(1, min(CHUNK, CELLS // (draws * size)))
    for first in range(0, len(environments), rows):
        chunk = environments[first : first + rows]
        rngs = [generator(seed, stream, i, of="policies") for i in range(chunk.start, chunk.stop)]
        policies = np.stack([posterior.sample(rng, draws) for rng in rngs])
        part = _run(task, policies, chunk, noise, False, first)
        keep(part, slice(first, first + len(chunk)), slice(None))
    return Costs(values, origin=origin, draws="fresh")


def sampled_mean(
    task: Task,
    posterior: DiagonalGaussian,
    environments: Environments,
    draws: int = 8,
    seen: Sequence[Environments] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> float:
    """An estimate of the true cost of a posterior: new policies for each chunk of environments."""
    _check_unseen(environments, seen)
    if len(environments) == 0 or draws < 1:
        raise ValueError("an estimate needs at least one environment and one draw")
    noise = noise_of(task, environments, Noise("estimate noise", seed))
    total, done = 0.0, 0
    for chunk in environments.chunks(CHUNK):
        rng = generator(seed, "estimate", chunk.start, of="policies")
        policies = posterior.sample(rng, draws)
        total += float(_run(task, policies, chunk, noise, False, done).sum(dtype=float))
        done += len(chunk)
        if progress:
            progress(done * draws, len(environments) * draws)
    return total / (len(environments) * draws)


def estimate_true_cost(
    task: Task,
    run: Run[Any],
    environments: Environments,
    seen: Sequence[Environments] = (),
    progress: Progress | None = None,
) -> float:
    """An estimate of the expected cost of what a run certifies, on environments never seen."""
    if isinstance(run.posterior, DiagonalGaussian) and run.certificate.policy is None:
        return sampled_mean(task, run.posterior, environments, seen=seen, progress=progress)
    if run.costs.parameters is None:
        raise ValueError("the run holds no parameters of its policies: they cannot be rolled out")
    means = mean_costs(task, run.costs.parameters, environments, seen, progress)
    if isinstance(run.posterior, DiagonalGaussian):
        return float(means[0])
    return float(run.posterior.probabilities @ means)


def _check_unseen(environments: Environments, seen: Sequence[Environments]) -> None:
    for other in seen:
        if environments.overlaps(other):
            raise ValueError(
                f"stream {environments.stream!r} with seed {environments.seed} was used for "
                "training: estimate the true cost on a stream of its own"
            )


def _stored(values: NDArray, part: NDArray, rows: slice, columns: slice = slice(None)) -> NDArray:
    """The table with a part filled in: of bytes, for as long as every cost is 0 or 1."""
    if part.dtype != np.uint8 and values.dtype == np.uint8:
        values = values.astype(np.float64)
    values[rows, columns] = part
    return values


def _checked(policies: NDArray) -> NDArray:
    policies = np.asarray(policies)
    if policies.ndim != 2 or len(policies) == 0:
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    return policies


def _origin(task: Task, environments: Environments, noise: Noise | None) -> dict[str, object]:
    origin = environments.origin
    if hasattr(task, "policy_class"):
        origin["policy_class"] = task.policy_class  # type: ignore[attr-defined]
    if noise is not None:
        origin["noise"] = {"stream": noise.stream, "seed": noise.seed, "of": noise.kind}
    return origin


def _chunks(
    task: Task,
    policies: NDArray,
    environments: Environments,
    progress: Progress | None,
    noise: Noise | None,
    surrogate: bool = False,
) -> Iterator[NDArray]:
    """Costs of all policies in consecutive parts of the environments."""
    if len(environments) == 0:
        raise ValueError("there are no environments to roll out in")
    done = 0
    for chunk in environments.chunks(CHUNK):
        part = _run(task, policies, chunk, noise, surrogate, done)
        done += len(chunk)
        if progress:
            progress(done * len(policies), len(environments) * len(policies))
        yield part


def _run(
    task: Task,
    policies: NDArray,
    chunk: Environments,
    noise: Noise | None,
    surrogate: bool,
    first: int,
) -> NDArray:
    """Checked costs of one call to the task; errors count environments from `first`.

    The task gets a view that it cannot write to: what was drawn must stay what is recorded.
    """
    policies = policies.view()
    policies.setflags(write=False)
    roll_out: Any = getattr(task, "surrogate") if surrogate else task.costs  # noqa: B009
    part = np.asarray(roll_out(policies, chunk, noise) if noise else roll_out(policies, chunk))
    expected = len(chunk), policies.shape[-2]
    if part.shape != expected:
        raise ValueError(
            f"task {task.name} returned costs of shape {part.shape} for "
            f"{expected[0]} environments × {expected[1]} policies"
            + (" (policies of their own, a 3-d array)" if policies.ndim == 3 else "")
        )
    return checked_costs(part, first=first)
