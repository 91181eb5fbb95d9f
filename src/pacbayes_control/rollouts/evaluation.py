"""Every policy rolled out in every environment: the table of costs, or its means."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs, check_names
from pacbayes_control.certify.distributions import Seen
from pacbayes_control.certify.text import printable
from pacbayes_control.rollouts.failures import RolloutError
from pacbayes_control.rollouts.jobs import CHUNK, Job, Pace, Piece, pieces
from pacbayes_control.rollouts.kept import KeptCosts, kept_costs
from pacbayes_control.rollouts.pools import Crew, LostWorkers, Workers, gathered
from pacbayes_control.rollouts.retries import FailureLog
from pacbayes_control.rollouts.spreading import ELSEWHERE, Spread
from pacbayes_control.rollouts.workers import roll_out
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.task import as_task, noise_of, versions_of

HERE = 0.25  # s that a piece should take in this process
PROBES, PROBING = 16, 10.0  # finished rollouts that are run again before more is done, and s for it

Progress = Callable[[int, int], None]  # rollouts done, rollouts in all


def evaluate(
    task: Task,
    policies: NDArray,
    environments: Environments,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    noise: Noise | None = None,
    executor: Workers = None,
    out: str | Path | None = None,
    retries: int = 0,
    allow_code_change: bool = False,
) -> Costs:
    """Roll out every policy in every environment.

    Where rollouts have noise of their own, each has a draw of its own, from `noise` or from a
    stream named after the environments'. A certificate may then count the costs as they are: an
    environment and its noise together are one i.i.d. draw.

    executor: any `concurrent.futures.Executor`, a Dask client, or a number of workers, which are
    threads where the task says that it releases Python's lock and processes otherwise; this
    process if none is given. out: a folder to keep finished rollouts in: killed at any moment, the
    same call goes on where it was; allow_code_change: also where the task's code has changed since,
    in a way that leaves the costs of finished rollouts as they are. The costs are the same, bit for
    bit, whichever worker computed them.

    A rollout that fails is run once more; it is an error if it fails again, and also if it does
    not: costs that depend on which rollouts succeed are no sample. retries: how often a rollout may
    be run again and still count, where machines fail and not the task. Retries, interruptions and
    changes of the code are counted in `costs.incidents`, and a certificate tells them.

    >>> from pacbayes_control.robots import Vehicle
    >>> task = Vehicle()
    >>> evaluate(task, task.policies, task.environments(8, stream="example")).policies
    50
    """
    task = as_task(task)
    policies = checked_policies(task, policies)
    noise = noise_of(task, environments, noise)
    check_names(names, len(policies))
    if len(environments) == 1:
        raise ValueError("one environment is not a sample: costs need at least two rows")
    if policies.dtype.kind in "biuf" and not np.all(np.isfinite(policies)):
        raise ValueError("the policies' parameters hold a NaN or an infinity")
    origin = origin_of(task, environments, noise)
    job = Job(task, environments, policies, noise)
    table = table_of(
        job,
        progress,
        executor,
        out,
        origin=origin,
        retries=retries,
        allow_code_change=allow_code_change,
    )
    return Costs(table, names, origin, policies)


def mean_costs(
    task: Task,
    policies: NDArray,
    environments: Environments,
    seen: Sequence[Environments] = (),
    progress: Progress | None = None,
    noise: Noise | None = None,
    surrogate: bool = False,
    of: Callable[[NDArray], NDArray] | None = None,
    executor: Workers = None,
    retries: int = 0,
) -> NDArray[np.float64]:
    """Mean cost of each policy over environments that may be too many to keep; shape (policies,).

    An estimate of the true cost is worth nothing on environments that the policy was learnt from:
    name those as `seen`, and an overlap is an error. surrogate: of the task's surrogate cost; of: a
    function of each cost to average in its place. retries: as for `evaluate`.
    """
    task = as_task(task)
    check_unseen(environments, seen)
    policies = checked_policies(task, policies)
    noise = noise_of(task, environments, noise)
    _check_some(environments)
    total, done = np.zeros(len(policies)), 0
    with gathered(task, executor) as crew:
        for chunk in environments.chunks(CHUNK):  # added up alike, whoever is faster
            counted = counting_on(progress, done * len(policies), len(environments) * len(policies))
            job = Job(task, chunk, policies, noise, surrogate)
            part = table_of(job, counted, crew.executor, retries=retries)
            total += (of(part) if of else part).sum(axis=0, dtype=float)
            done += len(chunk)
    return total / len(environments)


def table_of(
    job: Job,
    progress: Progress | None = None,
    executor: Workers = None,
    out: str | Path | None = None,
    *,
    origin: dict[str, object] | None = None,
    retries: int = 0,
    allow_code_change: bool = False,
) -> NDArray[np.float64 | np.uint8]:
    """The costs of a job: in memory, or mapped from the folder where they are kept.

    origin: a record to which incidents are added, and the digest of the code of kept rollouts.
    """
    _check_some(job.environments)
    pace: Pace | None = None
    if isinstance(job.task, Spread):
        if executor is not None:
            raise ValueError("the task is spread over workers already: give no executor too")
        job, executor, pace = replace(job, task=job.task.task), job.task.executor, job.task.pace
    elif executor is not None or out or job.task.one_by_one:
        pace = Pace(HERE if executor is None else ELSEWHERE)
    with gathered(job.task, executor) as crew:
        if out is None:
            log = FailureLog(retries)
            table, raised = _table_in_memory(job, crew, pace, progress, log)
            incidents = Counter(retries=log.count, raised=raised)
        else:
            with kept_costs(Path(out), job, retries, allow_code_change) as kept:
                _complete(job, kept, crew, pace, progress)
                table, incidents = kept.table(), kept.incidents
                if origin is not None:
                    origin["code"] = kept.code
    if origin is not None:
        before: Any = origin.get("incidents", {})
        origin |= {"incidents": dict(found)} if (found := Counter(before) + incidents) else {}
    return table


def _table_in_memory(
    job: Job, crew: Crew, pace: Pace | None, progress: Progress | None, log: FailureLog
) -> tuple[NDArray[np.float64 | np.uint8], int]:
    """The costs, and how many of them stand for errors that were declared to be failures."""
    total, done, raised = job.shape[0] * job.shape[1], 0, 0
    values = np.empty(job.shape, np.uint8)
    todo = pieces(job, [(0, total)], pace, crew.limit)
    for piece, part, count in roll_out(job, todo, crew, pace, log=log):
        if part.dtype != np.uint8 and values.dtype == np.uint8:
            values = values.astype(np.float64)  # of bytes, for as long as every cost is 0 or 1
        values[piece.rows, piece.columns] = part
        done, raised = done + part.size, raised + count
        if progress:
            progress(done, total)
    return values, raised


def _complete(
    job: Job, kept: KeptCosts, crew: Crew, pace: Pace | None, progress: Progress | None
) -> None:
    """Roll out what is left to do, and keep it."""
    if progress:
        progress(kept.finished, kept.rollouts)
    if kept.finished:
        _check_repeats(job, kept, crew)
    todo = pieces(job, kept.gaps, pace, crew.limit)
    try:
        for piece, part, raised in roll_out(job, todo, crew, pace, True, kept.failures):
            kept.keep(piece, part, raised)
            if progress:
                progress(kept.finished, kept.rollouts)
    except (RolloutError, LostWorkers) as error:
        error.args = (
            f"{error}; {kept.finished:,} of {kept.rollouts:,} rollouts are kept in {kept.folder}: "
            f"{_remedy(error)} to go on",
        )
        raise


def _remedy(error: RolloutError | LostWorkers) -> str:
    """What to do after rollouts could not be completed."""
    failures = error.failures if isinstance(error, RolloutError) else []
    if any(failure.started and not failure.flaky for failure in failures):
        return "mend the task and do the same with allow_code_change=True (--allow-code-change)"
    if failures and not any(failure.started for failure in failures):
        return "do the same"
    return "do the same with retries=1 (--retries 1)"


def _check_repeats(job: Job, kept: KeptCosts, crew: Crew) -> None:
    """Run some finished rollouts again: what does not repeat cannot be continued.

    Every one would have to be the same; a few, spread over all that is done, show most of what can
    go wrong: hidden randomness, edited code, another machine that rounds differently.
    """
    columns = job.shape[1]
    until = time.monotonic() + PROBING
    chosen = kept.some(PROBES)
    places = (
        divmod(rollout, columns)
        for number, rollout in enumerate(chosen)
        if number == 0 or time.monotonic() < until
    )
    todo = (Piece(row, row + 1, column, column + 1) for row, column in places)
    for piece, part, _ in roll_out(job, todo, crew, log=FailureLog(kept.failures.allowed)):
        before, now = kept.cost(piece.first_row * columns + piece.first_column), float(part[0, 0])
        if before != now:
            raise ValueError(
                f"{kept.folder} cannot be continued: the rollout of policy {piece.first_column} in "
                f"environment {job.environments.start + piece.first_row} cost {before!r} when it "
                f"was kept and {now!r} now, so the task is not deterministic, or not the same; "
                "try pbc check on it, or delete the folder to begin again"
            )


def check_unseen(environments: Environments, seen: Iterable[Environments | Seen]) -> None:
    """An error where an estimate would be made on environments that were learnt from."""
    for other in seen:
        if environments.range.overlaps(other if isinstance(other, Seen) else other.range):
            raise ValueError(
                f"stream {environments.stream!r} with seed {environments.seed} was used for "
                "training: estimate the true cost on a stream of its own"
            )


def checked_policies(task: Task, policies: NDArray) -> NDArray:
    """Policies as an array with one row each, as the task wants them."""
    policies = np.asarray(policies)
    if policies.ndim != 2 or len(policies) == 0:
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    task.check_policies(policies)
    return policies


def origin_of(task: Task, environments: Environments, noise: Noise | None) -> dict[str, object]:
    """What a record of costs says about where they came from."""
    origin = environments.origin
    if task.policy_class is not None:
        origin["policy_class"] = task.policy_class
    if task.settings:
        origin["settings"] = task.settings
    for name, words in (("cost_rule", task.cost_rule), ("distribution", task.distribution)):
        if words:
            origin[name] = " ".join(printable(words).split())
    if versions := versions_of(task):
        origin["versions"] = versions
    if task.data_used:
        origin["data_used"] = [list(part) for part in task.data_used]
    if noise is not None:
        origin["noise"] = {"stream": noise.stream, "seed": noise.seed, "of": noise.kind}
    return origin


def counting_on(progress: Progress | None, before: int, total: int) -> Progress | None:
    """A callback for a part of the work that tells how far all of it is."""
    return (lambda done, _: progress(before + done, total)) if progress else None


def _check_some(environments: Environments) -> None:
    if len(environments) == 0:
        raise ValueError("there are no environments to roll out in")
