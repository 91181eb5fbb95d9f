"""Rollouts that fail: a log of them, and the error that reports them.

A cost that counts only because a failed rollout was run again is conditioned on success: a task
that fails at random would look better than it is. So a retry, a rollout that succeeds when it is
run again, is refused unless retries were allowed beforehand, and is then counted. In a folder of
kept rollouts the log is the file `failed.jsonl`, so that it is complete when a later call resumes
the work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pacbayes_control.certify.files import check_record
from pacbayes_control.certify.text import printable
from pacbayes_control.rollouts.jobs import Job, Span, without

# Rollouts that may fail, and their share of all, before the other rollouts are given up.
MOST_FAILURES, MOST_FAILING = 10, 0.1


@dataclass
class Failed:
    """A piece that failed: at least one of its rollouts did."""

    span: Span
    error: str
    left: list[Span]  # its rollouts that have not succeeded since


@dataclass
class FailureLog:
    """The failures of a table's rollouts, and which of them have succeeded since."""

    retries: int = 0  # how often a rollout that failed may be run again
    path: Path | None = None  # file to keep the log in, if any
    code: str = ""  # digest of the task's code
    _open: list[Failed] = field(default_factory=list)
    retried: list[Failed] = field(default_factory=list)  # those that succeeded later

    @classmethod
    def read(cls, retries: int, path: Path, code: str, done: Sequence[Span]) -> FailureLog:
        """The log that is kept in a file.

        Failures of other code are ignored, and so are incomplete lines.

        Args:
            retries: how often a rollout that failed may be run again
            path: the file; there need not be one
            code: digest of the task's code
            done: rollouts that have succeeded already
        """
        log = cls(retries, path, code)
        for record in read_lines(path, {"rollouts": tuple[int, int], "error": str, "code": str}):
            first, last = record["rollouts"]
            if record["code"] == code and 0 <= first < last:
                log._open_one((first, last), printable(record["error"]))
        log.succeeded(done)
        return log

    @property
    def refused(self) -> bool:
        """Whether a rollout succeeded only when it was run again, and retries are not allowed."""
        return bool(self.retried) and not self.retries

    def hopeless(self, failed: int, done: int) -> bool:
        """Whether so many rollouts have failed that the others are given up too."""
        count = failed + (len(self.retried) if self.refused else 0)
        return count >= MOST_FAILURES and count > MOST_FAILING * done

    def add(self, spans: Sequence[Span], error: str) -> None:
        """Remember that pieces failed."""
        for span in spans:
            if self._open_one(span, error) and self.path:
                append_line(self.path, {"rollouts": span, "error": error, "code": self.code})

    def _open_one(self, span: Span, error: str) -> bool:
        """Note a failure, unless it is known; of nested ones only the innermost counts."""
        if any(within(failed.span, span) for failed in self._open):
            return False
        others = [failed for failed in self._open if not within(span, failed.span)]
        self._open = [*others, Failed(span, error, [span])]
        return True

    def succeeded(self, spans: Sequence[Span]) -> None:
        """Remember that pieces succeeded, in increasing order: they may have failed before."""
        for failed in self._open:
            failed.left = without(failed.left, spans)
        self.retried += [failed for failed in self._open if not failed.left]
        self._open = [failed for failed in self._open if failed.left]


def within(inner: Span, outer: Span) -> bool:
    """Whether a span is a part of another, or the same."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add a line to a JSON lines file whose last line may be incomplete."""
    with path.open("ab+") as file:
        torn = False
        if file.seek(0, 2):
            file.seek(-1, 2)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + json.dumps(record).encode() + b"\n")


def read_lines(path: Path, kinds: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a JSON lines file that have fields of these types; other lines are skipped."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                    check_record(record, kinds)
                except (ValueError, TypeError):  # half-written
                    continue
                yield record


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


def _flaky(job: Job, failed: Failed) -> Failure:
    """The failure of a piece that failed at first and succeeded when it was run again."""
    environments, columns = job.environments, job.shape[1]
    rollouts = failed.span[1] - failed.span[0]
    row, column = divmod(failed.span[0] - job.first_rollout, columns)
    first = environments.start + row
    last = environments.start + (failed.span[1] - 1 - job.first_rollout) // columns
    where = f"the rollout of policy {job.first_column + column} in environment {first}"
    if rollouts > 1:
        where = f"one of {rollouts:,} rollouts in environments {first} to {last}"
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
                f"the rollout of policy {job.first_column + (first.column or 0)} in environment "
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
