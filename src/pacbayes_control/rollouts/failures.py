"""The error for rollouts that failed, finally or only at first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.rollouts.retries import Failed, FailureLog

# Rollouts that may fail, and their share of all, before the other rollouts are given up.
MOST_FAILURES, MOST_FAILING = 10, 0.1


@dataclass(frozen=True)
class Failure:
    """A rollout that raised, or a piece where it is not known which of its rollouts did."""

    error: str  # its type and message, in one line
    worker: str = ""
    row: int | None = None
    column: int | None = None
    trace: str = ""
    final: bool = False  # every other rollout of this task would fail too
    wrong: bool = False  # its cost is NaN or outside [0, 1]: running it again would not help
    died: bool = False  # its worker died while it was in flight
    started: bool = True  # whether the task may have run: not where a worker could not load it
    flaky: bool = False  # it failed, and succeeded when it was run again
    cause: BaseException | None = None  # the exception, if it was raised in this process


class RolloutError(ValueError):
    """Rollouts failed; `failures` lists them, also those that succeeded when run again."""

    def __init__(self, message: str, failures: list[Failure]) -> None:
        super().__init__(message)
        self.failures = failures

    def __reduce__(self) -> tuple[Any, ...]:
        return RolloutError, (str(self), [replace(f, cause=None) for f in self.failures])


def hopeless(failures: list[Failure], done: int, log: FailureLog) -> bool:
    """Whether so many rollouts have failed that the others are given up too."""
    count = len(failures) + (log.count if log.refused else 0)
    return count >= MOST_FAILURES and count > MOST_FAILING * done


def _flaky(job: Job, failed: Failed) -> Failure:
    """The failure of rollouts that failed at first and succeeded when they were run again."""
    first, columns = min(failed.spans)[0], job.shape[1]
    rollouts = sum(last - first for first, last in failed.spans)
    row, column = divmod(first, columns)
    last_row = (max(last for _, last in failed.spans) - 1) // columns
    environments = job.environments
    where = f"the rollout of policy {column} in environment {environments.start + row}"
    if rollouts > 1:
        where = (
            f"one of {rollouts:,} rollouts in environments {environments.start + row} to "
            f"{environments.start + last_row}"
        )
    words = (
        f"{where} of stream {environments.stream!r} (seed {environments.seed}) failed at first "
        f"({failed.error}), but not when it was run again: the task is not deterministic, or the "
        "infrastructure fails; if that is it, allow retries (retries=1, --set retries=1), which "
        "the certificate will say; or declare the error a failure in advance (the task's "
        "`failures`)"
    )
    return Failure(words, row=row, column=column, flaky=True)


def rollout_error(job: Job, failures: list[Failure], log: FailureLog | None = None) -> RolloutError:
    """An error with one line: the first failure, and how many others there are.

    Retries in the log count as failures if they are not allowed.
    """
    if log and log.refused:
        failures = [*failures, *(_flaky(job, failed) for failed in log.retried)]
    first = next((failure for failure in failures if failure.final), failures[0])
    words = first.error
    if first.row is not None:
        environments = job.environments
        if first.wrong:
            words = f"{first.error} (stream {environments.stream!r}, seed {environments.seed})"
        elif not first.flaky:
            words = (
                f"the rollout of policy {first.column} in environment "
                f"{environments.start + first.row} of stream {environments.stream!r} (seed "
                f"{environments.seed}) failed, also when it was tried again: {first.error}"
            )
        if len(failures) > 1:
            words += f"; {len(failures) - 1} others failed too"
    error = RolloutError(words, failures)
    if first.trace and first.cause is None:
        error.add_note(first.trace)
    error.__cause__ = first.cause
    return error
