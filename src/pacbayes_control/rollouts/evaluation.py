"""Every policy rolled out in every environment: the table of costs, or its means."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.checks import check_names
from pacbayes_control.certify.costs import MOST_ROWS, Costs
from pacbayes_control.certify.descriptions import Descriptions, checked_descriptions
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.text import printable
from pacbayes_control.rollouts.dispatch import roll_out
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.failures import FailureLog, RolloutError
from pacbayes_control.rollouts.jobs import FreshDraws, Job, Table, pieces, rows_at_once
from pacbayes_control.rollouts.kept import KeptCosts, kept_costs
from pacbayes_control.rollouts.pools import LostWorkers, WorkerPool, open_workers
from pacbayes_control.rollouts.processes import Place
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import BLOCK, in_a_line
from pacbayes_control.tasks.task import as_task, noise_of, versions_of

# Finished rollouts that are run again before others are run, and the seconds for it.
PROBES, PROBING = 16, 10.0
T = TypeVar("T")
NO_ENVIRONMENTS = "there are no environments to roll out in"


def evaluate(
    task: Task,
    policies: NDArray,
    environments: Environments,
    names: Sequence[str] = (),
    *,
    noise: Noise | None = None,
    execution: Execution | None = None,
) -> Costs:
    """Roll out every policy in every environment.

    Where rollouts are noisy, each rollout has its own draw of the noise. A certificate may use
    these costs directly: an environment and its noise together are one i.i.d. draw.

    A rollout that fails is run once more. It is an error if it fails again, and also if it succeeds
    then, unless the execution allows retries: costs that depend on which rollouts succeed are not a
    sample of the task's costs.

    Args:
        task: the task to roll out
        policies: one per row
        environments: at least two
        names: of the policies, for the certificate
        noise: the stream of the rollouts' own noise; by default one named after the environments'
        execution: where and how

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> evaluate(task, task.policies, task.environments(8, stream="example")).policies
    5
    """
    execution = execution or Execution()
    task = execution.on_device(as_task(task))
    policies = checked_policies(task, policies)
    noise = noise_of(task, environments, noise)
    check_names(names, len(policies))
    if len(environments) == 1:
        raise ValueError("one environment is not a sample: costs need at least two rows")
    if policies.dtype.kind in "biuf" and not np.all(np.isfinite(policies)):
        raise ValueError("the policies' parameters hold a NaN or an infinity")
    origin = origin_of(task, environments, noise)
    described = described_by(task, environments)
    table = table_of(Job(task, environments, policies, noise), execution, origin)
    return Costs(table, names, origin, parameters=policies, described=described)


def described_by(task: Task, environments: Environments) -> Descriptions:
    """What a task tells of each environment, for the record; nothing where there are many.

    They are drawn in parts, since one may be large. A column counts if all parts have it.
    """
    if not 0 < len(environments) <= MOST_ROWS:
        return {}
    try:
        parts = [task.describe(part) for part in environments.chunks(BLOCK)]
        names = [name for name in parts[0] if all(name in part for part in parts)]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return checked_descriptions(columns, len(environments))
    except Exception as error:  # a user's task may raise anything
        raise ValueError(f"{task.name} cannot describe environments: {in_a_line(error)}") from error


@dataclass(frozen=True)
class Quantity:
    """A number that each rollout gives."""

    surrogate: bool = False  # the task's surrogate cost, in place of its cost
    function: Callable[[NDArray], NDArray] | None = None  # of that cost


def mean_costs(
    task: Task,
    policies: NDArray,
    environments: Environments,
    seen: Sequence[Environments] = (),
    *,
    noise: Noise | None = None,
    of: Quantity | None = None,
    execution: Execution | None = None,
) -> NDArray[np.float64]:
    """Mean cost of each policy over environments that may be too many to keep; shape (policies,).

    Args:
        task: the task to roll out
        policies: one per row
        environments: any number
        seen: environments that the policies were learnt from, where the true cost is estimated: an
            overlap is an error, since the estimate would be biased
        noise: as for `evaluate`
        of: the number of each rollout that is averaged; by default its cost
        execution: where and how; means are not kept
    """
    execution, of = execution or Execution(), of or Quantity()
    task = execution.on_device(as_task(task))
    check_unseen(environments, seen)
    policies = checked_policies(task, policies)
    noise = noise_of(task, environments, noise)
    if len(environments) == 0:
        raise ValueError(NO_ENVIRONMENTS)
    total, done, rollouts = np.zeros(len(policies)), 0, len(environments) * len(policies)
    with open_workers(task, replace(execution, store=None)) as here:
        for chunk in environments.chunks(
            rows_at_once(task, len(policies))
        ):  # a fixed order, so that sums repeat exactly
            job = Job(task, chunk, policies, noise, of.surrogate)
            part = table_of(job, here.counting_on(done, rollouts))
            total += (of.function(part) if of.function else part).sum(axis=0, dtype=float)
            done += part.size
    return total / len(environments)


def table_of(
    job: Job, execution: Execution | None = None, origin: dict[str, object] | None = None
) -> Table:
    """The costs of a job: in memory, or mapped from the folder where they are kept.

    origin: a record to which facts about the rollouts are added, such as incidents.
    """
    if len(job.environments) == 0:
        raise ValueError(NO_ENVIRONMENTS)
    facts: dict[str, object] = {}
    execution = execution or Execution()
    task = execution.on_device(job.task)
    job = replace(job, task=task, hardware=task.hardware)
    if job.task.hardware:
        facts["device"] = " ".join(printable(job.task.hardware).split())
    with open_workers(job.task, execution) as execution:
        if execution.rollout_timeout is not None:
            facts["rollout_timeout"] = float(execution.rollout_timeout)
        if execution.store is not None:
            with kept_costs(Path(execution.store), job, execution) as kept:
                _complete(kept, execution)
                table, incidents, overdue = kept.table(), kept.incidents, kept.overdue
                facts["code"] = kept.code
                if origin is not None and not isinstance(job.policies, FreshDraws):
                    facts |= {"looks": looks} if (looks := kept.look()) else {}
                    facts |= {n: kept.record[n] for n in ("declared_looks",) if n in kept.record}
        else:
            table, incidents, overdue = _in_memory(job, execution)
    if origin is not None:
        earlier: Any = origin.get("incidents", {})
        facts |= {"incidents": dict(found)} if (found := Counter(earlier) + incidents) else {}
        facts |= {"timed_out": sorted(map(list, overdue))} if overdue else {}
        origin |= facts
    return table


def _in_memory(job: Job, execution: Execution) -> tuple[Table, Counter[str], list[Place]]:
    """The costs, counts of incidents, and the rollouts that took too long."""
    table: Table = np.empty(job.shape, np.uint8)
    incidents, overdue, log, done = Counter(), [], FailureLog(execution.retries), 0
    workers = cast(WorkerPool, execution.workers)
    # a batch in this process has a fixed size: no worker waits for its end
    batches = workers.executor is None and not job.task.one_by_one
    pace = None if batches else workers.pace(job.task)
    todo = pieces(job, [(0, table.size)], pace, workers.limit)

    def tell(remark: str = "") -> None:
        execution.tell(done, table.size, remark)

    for piece, part in roll_out(job, todo, workers, log=log, tell=tell):
        first_row, last_row, first, last = piece
        if part.costs.dtype != np.uint8 and table.dtype == np.uint8:
            table = table.astype(np.float64)  # bytes suffice while every cost is 0 or 1
        if part.costs.shape == table.shape:  # all of it at once: no copy is needed
            table = part.costs
        else:
            table[first_row:last_row, first:last] = part.costs
        done += part.costs.size
        incidents["raised"] += part.raised
        overdue += [(first_row, first)] if part.overdue else []
        tell()
    incidents["retries"] = len(log.retried) if execution.retries else 0
    incidents["timeouts"] = len(overdue)
    return table, incidents, overdue


def _complete(kept: KeptCosts, execution: Execution) -> None:
    """Roll out the rollouts that are not finished, and keep their costs."""
    workers = cast(WorkerPool, execution.workers)

    def tell(remark: str = "") -> None:
        execution.tell(kept.finished, kept.rollouts, remark)

    tell()
    if kept.finished and not execution.repeats_checked:
        _check_repeats(kept, workers)
    try:
        for part, gaps in kept.unfinished():
            todo = pieces(part, gaps, workers.pace(part.task), workers.limit)
            log = kept.failures
            for piece, done in roll_out(part, todo, workers, log=log, keep_going=True, tell=tell):
                kept.keep(part, piece, done)
                tell()
    except (RolloutError, LostWorkers) as error:
        error.args = (
            f"{error}; {kept.finished:,} of {kept.rollouts:,} rollouts are kept in {kept.folder}: "
            f"{_remedy(error)} to go on",
        )
        raise
    kept.finish()


def _remedy(error: RolloutError | LostWorkers) -> str:
    """The advice for a user whose rollouts could not be completed."""
    failures = error.failures if isinstance(error, RolloutError) else []
    if any(failure.started and not failure.flaky for failure in failures):
        again = "do the same with allow_code_change=True (--set allow_code_change=true)"
        return f"fix the task and {again}"
    if failures and not any(failure.started for failure in failures):
        return "do the same"
    return "do the same with retries=1 (--set retries=1)"


def _check_repeats(kept: KeptCosts, workers: WorkerPool) -> None:
    """Run some finished rollouts again; an error if a cost differs from the one that was kept.

    A few rollouts, spread over all finished ones, show most of what can go wrong: hidden
    randomness, edited code, a machine that rounds differently. Those that took too long are left
    out.
    """
    before = dict(kept.some(PROBES))
    log = FailureLog(kept.failures.retries)
    for piece, done in roll_out(kept.job, in_time(before, PROBING), workers, log=log):
        now = float(done.costs[0, 0])
        if before[piece] != now and not done.overdue:
            raise ValueError(
                f"{kept.folder} cannot be continued: the rollout of policy {piece.first_column} in "
                f"environment {kept.job.environments.start + piece.first_row} cost "
                f"{before[piece]!r} when it was kept and {now!r} now, so the task is not "
                "deterministic, or not the same; try pbc check on it, or delete the folder to "
                "begin again"
            )


def in_time(places: Iterable[T], seconds: float) -> Iterator[T]:
    """The first of some places, and the others until the time is over."""
    until = time.monotonic() + seconds
    for number, place in enumerate(places):
        if number and time.monotonic() > until:
            return
        yield place


def check_unseen(
    environments: Environments, seen: Iterable[Environments | EnvironmentRange]
) -> None:
    """Raise ValueError if an estimate would use environments that were used for learning."""
    for other in seen:
        used = other.range if isinstance(other, Environments) else other
        if environments.range.overlaps(used):
            raise ValueError(
                f"stream {environments.stream!r} with seed {environments.seed} was used for "
                "training: estimate the true cost on a stream of its own"
            )


def equal_costs(table: NDArray) -> str | None:
    """A warning if every environment gave each policy the same cost; None otherwise.

    >>> equal_costs(np.zeros((50, 3)))
    'all costs of 50 environments are 0: nothing that was drawn shows in them; see pbc check'
    """
    costs = np.asarray(table)
    if len(costs) < 2 or (costs != costs[:1]).any():
        return None
    first = costs.flat[0]
    same = f"are {first:g}" if (costs == first).all() else "are the same for each policy"
    return (
        f"all costs of {len(costs)} environments {same}: nothing that was drawn shows in them; see "
        "pbc check"
    )


def checked_policies(task: Task, policies: NDArray) -> NDArray:
    """Policies as an array with one row each, as the task wants them."""
    policies = np.asarray(policies)
    if policies.ndim != 2 or len(policies) == 0:
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    task.check_policies(policies)
    return policies


def origin_of(task: Task, environments: Environments, noise: Noise | None) -> dict[str, object]:
    """The origin of costs, for their record: environments, policies, task, versions, noise."""
    facts = {
        "policy_class": task.policy_class,
        "settings": task.settings or None,
        "cost_rule": " ".join(printable(task.cost_rule or "").split()) or None,
        "graded": task.graded,
        "distribution": " ".join(printable(task.distribution or "").split()) or None,
        "versions": versions_of(task) or None,
        "data_used": [list(part) for part in task.data_used or ()] or None,
        "noise": noise and {"stream": noise.stream, "seed": noise.seed, "of": noise.kind},
    }
    return environments.origin | {name: fact for name, fact in facts.items() if fact is not None}
