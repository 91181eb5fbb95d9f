"""Pieces sent to workers, and their costs collected, in any order.

Workers are this process, a pool of threads or processes, or any Executor, such as Dask's. A rollout
that raises comes back as a `Failure`. It is run once more, on another worker. If it fails again, or
if it succeeds and retries are not allowed, the failure is reported. A rollout that takes longer
than it may costs 1, for good.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

import numpy as np

from pacbayes_control.rollouts.failures import Failure, FailureLog, rollout_error
from pacbayes_control.rollouts.jobs import Job, Piece
from pacbayes_control.rollouts.pools import LARGE, LostWorkers, WorkerPool
from pacbayes_control.rollouts.processes import (
    WORKER_DIED,
    ProcessEnded,
    Processes,
)
from pacbayes_control.rollouts.worker import Done, Manner, Outcome, run_piece, work
from pacbayes_control.tasks.environments import in_a_line

MOST_DEATHS = 5  # of processes, after which the other rollouts are given up
SLOW, LOOK = 10.0, 1.0  # times the usual that a rollout may take unmentioned; seconds between looks


@dataclass(frozen=True)
class Attempt:
    """A piece to be rolled out, and its earlier failures."""

    piece: Piece
    tries: int = 0  # how often this rollout has failed by itself
    failed_on: str | None = None  # the worker that it failed on
    with_task: bool = False  # whether the worker that had it lacked the task


def roll_out(
    job: Job,
    todo: Iterator[Piece],
    workers: WorkerPool,
    *,
    log: FailureLog | None = None,
    keep_going: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Piece, Done]]:
    """Roll out pieces, and yield each when it is done.

    Pieces that are in flight when the caller stops are given up.

    Args:
        job: the table that the pieces are parts of
        todo: the pieces; the next one is taken when it can be sent to a worker
        workers: those that are open
        log: remembers failures, and says how often a rollout may be run again
        keep_going: report failures after all other rollouts are done, unless there are too many
        tell: is called with a remark on a rollout that takes long, or that failed
    """
    attempts, waiting = map(Attempt, todo), deque[Attempt]()
    in_flight: dict[Future[Outcome], Attempt] = {}
    calls: SimpleQueue[Future[Outcome]] = SimpleQueue()  # those that are done
    failures: list[Failure] = []
    finished = 0  # rollouts
    log, pace, send = log or FailureLog(), workers.pace(job.task), _sender(job, workers)
    try:
        while True:
            while not log.hopeless(len(failures), finished) and len(in_flight) < workers.limit:
                if (attempt := waiting.popleft() if waiting else next(attempts, None)) is None:
                    break
                in_flight[call := send(attempt)] = attempt
                call.add_done_callback(calls.put)
            if not in_flight:
                break
            ended = _ended(calls, job, workers, tell)
            for attempt, outcome in _outcomes(ended, in_flight, job, workers, log=log):
                again, failed, done = _settled(attempt, outcome, max(1, log.retries), keep_going)
                waiting.extendleft(reversed(again))
                failures += failed
                if failed and (not keep_going or failed[0].final or _too_deadly(failures)):
                    raise rollout_error(job, failures, log)
                for failure in failed:
                    where = _named(job, failure.row or 0, failure.column or 0)
                    tell(f"{where} failed: {failure.error}")
                for piece, costs in done:
                    pace.tell(piece.rollouts, costs.seconds)
                    finished += piece.rollouts
                    log.succeeded([job.span(piece)])
                    if log.refused and not keep_going:
                        raise rollout_error(job, failures, log)
                    yield piece, costs
    except LostWorkers:  # it is not known which of them is to blame
        log.add([job.span(attempt.piece) for attempt in in_flight.values()], WORKER_DIED)
        raise
    finally:
        workers.forget(in_flight)
    if failures or log.refused:
        raise rollout_error(job, failures, log)


def _ended(
    calls: SimpleQueue[Future[Outcome]], job: Job, workers: WorkerPool, tell: Callable[[str], None]
) -> list[Future[Outcome]]:
    """Calls that are done, at least one; a rollout that takes far longer than others is told of."""
    while True:
        with suppress(Empty):
            first = calls.get(timeout=LOOK)
            return [first, *(calls.get() for _ in range(calls.qsize()))]
        usual = workers.pace(job.task).rollout
        underway = workers.executor.underway() if isinstance(workers.executor, Processes) else []
        for (row, column), seconds in underway:
            if usual and seconds > max(LOOK, SLOW * usual):
                tell(f"{_named(job, row, column)}: {seconds:.0f} s so far")


def _named(job: Job, row: int, column: int) -> str:
    return f"policy {job.first_column + column} in environment {job.environments.start + row}"


def _too_deadly(failures: list[Failure]) -> bool:
    """Whether so many rollouts have ended their process that the others are given up."""
    return sum(failure.error.startswith(WORKER_DIED) for failure in failures) >= MOST_DEATHS


# ---- what became of a piece ---------------------------------------------------------------------


def _outcomes(
    ended: list[Future[Outcome]],
    in_flight: dict[Future[Outcome], Attempt],
    job: Job,
    workers: WorkerPool,
    *,
    log: FailureLog,
) -> list[tuple[Attempt, Outcome]]:
    """Attempts whose calls have ended, with their outcomes; failures are logged.

    Their futures are removed from `in_flight`: while a future is referenced, Dask computes it again
    if the worker that holds its result dies.
    """
    done = {future: _outcome(future) for future in ended}
    if any(isinstance(outcome, Done) for outcome in done.values()):
        try:
            again = workers.run_again(ended, in_flight)
            log.add([job.span(in_flight[future].piece) for future in again], WORKER_DIED)
        except OSError as error:
            done = dict.fromkeys(done, _scheduler_lost(error))
    found = [(in_flight.pop(future), outcome) for future, outcome in done.items()]
    workers.forget(done)
    for attempt, outcome in found:
        if isinstance(outcome, Failure) and outcome.started:
            log.add([job.span(_blamed(attempt.piece, outcome))], outcome.error)
    return found


def _outcome(future: Future[Outcome]) -> Outcome:
    """The outcome of a future that is done."""
    try:
        return future.result()
    except ProcessEnded as error:
        row, column = error.place or (None, None)
        return error.place if error.overdue else Failure(str(error), row=row, column=column)
    except BrokenExecutor as error:
        raise LostWorkers("a worker died, and with it the executor that was given") from error
    except CancelledError as error:
        return _scheduler_lost(error)
    except ModuleNotFoundError as error:
        words = f"a worker lacks a module ({error}): install there what the task needs"
        return Failure(words, final=True, started=False, cause=error)
    except Exception as error:  # raised by the executor itself, as when workers die too often
        return Failure(in_a_line(error), cause=error)


def _scheduler_lost(error: BaseException) -> Failure:
    words = f"the scheduler was lost, or gave up a piece ({in_a_line(error)})"
    return Failure(words, final=True, started=False)


def _blamed(piece: Piece, failure: Failure) -> Piece:
    """The rollout that failed, or the whole piece where that is not known."""
    row, column = failure.row, failure.column
    return piece if row is None or column is None else Piece.at(row, column)


def _settled(
    attempt: Attempt, outcome: Outcome, tries: int, locate: bool
) -> tuple[list[Attempt], list[Failure], list[tuple[Piece, Done]]]:
    """What follows from an outcome: attempts to make, failures that are final, pieces done.

    Args:
        attempt: the one that was made
        outcome: of it
        tries: how often a rollout that fails by itself is run again
        locate: whether a wrong cost is to be found, so that the others count
    """
    piece = attempt.piece
    if isinstance(outcome, Done):
        return [], [], [(piece, outcome)]
    if outcome is None:
        return [replace(attempt, with_task=True)], [], []
    if not isinstance(outcome, Failure):
        worst = Done(np.ones((1, 1), np.uint8), overdue=True)
        rest = [Attempt(part) for part in piece.around(*outcome)]
        return rest, [], [(Piece.at(*outcome), worst)]
    if outcome.final or (outcome.wrong and not locate):
        return [], [outcome], []
    blamed = _blamed(piece, outcome)
    if blamed.rollouts > 1:  # it is not known which rollout failed: halve the piece until it is
        return [replace(attempt, piece=half) for half in piece.halves()], [], []
    row, _, column, _ = blamed
    rest = [Attempt(part) for part in piece.around(row, column)]
    if attempt.tries >= tries or outcome.wrong:
        return rest, [replace(outcome, row=row, column=column)], []
    return [Attempt(blamed, attempt.tries + 1, outcome.worker or None), *rest], [], []


# ---- sending ------------------------------------------------------------------------------------


def _sender(job: Job, workers: WorkerPool) -> Callable[[Attempt], Future[Outcome]]:
    """A function that sends an attempt to a worker.

    The task is packed once. A large one is sent to each worker once, which keeps it and knows it by
    its digest; each piece brings its own environments and policies.
    """
    packed = workers.packed(job)
    if packed is None:
        here = workers.executor is None

        def run(attempt: Attempt) -> Future[Outcome]:
            return workers.submit(None, run_piece, job.part(attempt.piece), attempt.piece, here)

        return run
    digest, content = packed
    how = Manner(workers.timeout is not None and not job.task.marks, workers.share, os.getpid())

    def send(attempt: Attempt) -> Future[Outcome]:
        part = job.part(attempt.piece)
        bare = replace(part, task=None, environments=replace(part.environments, draw=None))
        task = content if attempt.with_task or len(content) < LARGE else None
        arguments = (digest, task, bare, tuple(attempt.piece), how)
        return workers.submit(attempt.failed_on, work, *arguments)

    return send
