"""Pieces sent to workers, and their costs collected, in any order.

Workers are this process, a pool of threads or processes, or any Executor, such as Dask's. A rollout
that raises comes back as a `Failure`. It is run once more, on another worker. If it fails again, or
if it succeeds and retries are not allowed, the failure is reported.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from pacbayes_control.rollouts.failures import Failure, FailureLog, RolloutError, rollout_error
from pacbayes_control.rollouts.jobs import Job, Pace, Piece, Table, WrongCost, WrongCosts
from pacbayes_control.rollouts.pools import LostWorkers, WorkerPool
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.user_task import RolloutFailed

KEPT_TASKS = 2  # tasks that a worker keeps loaded
WORKER_DIED = "its worker died"


@dataclass(frozen=True)
class Attempt:
    """A piece to be rolled out, and its earlier failures."""

    piece: Piece
    tries: int = 0  # how often this rollout has failed by itself
    failed_on: Any = None  # the worker that it failed on
    suspect: bool = False  # it was in flight when a worker died


@dataclass(frozen=True)
class Done:
    """The costs of a piece."""

    costs: Table
    raised: int  # costs that are 1 because of an error declared to be a failure
    seconds: float


Outcome = Done | Failure


def roll_out(
    job: Job,
    todo: Iterator[Piece],
    pool: WorkerPool,
    pace: Pace | None = None,
    *,
    keep_going: bool = False,
    log: FailureLog | None = None,
    in_flight: dict[Future[Outcome], Attempt] | None = None,
) -> Iterator[tuple[Piece, Table, int]]:
    """Roll out pieces, and yield each when it is done, with its costs and how many of them raised.

    Pieces that are in flight when the caller stops are given up.

    Args:
        job: the table that the pieces are parts of
        todo: the pieces; the next one is taken when it can be sent to a worker
        pool: the workers
        pace: is told how long each piece took
        keep_going: report failures after all other rollouts are done, unless there are too many
        log: remembers failures, and says how often a rollout may be run again
        in_flight: pieces that were sent before, if any
    """
    attempts, waiting = map(Attempt, todo), deque[Attempt]()
    in_flight = in_flight or {}
    failures: list[Failure] = []
    done = 0  # rollouts
    columns, log, pace = job.shape[1], log or FailureLog(), pace or Pace(1.0)
    send = _sender(job, pool)
    try:
        while True:
            while not log.hopeless(len(failures), done) and _room(pool, waiting, in_flight):
                attempt = waiting.popleft() if waiting else next(attempts, None)
                if attempt is None:
                    break
                in_flight[send(attempt)] = attempt
            if not in_flight:
                break
            for attempt, outcome, worker in _finished(in_flight, pool, log, columns):
                if isinstance(outcome, Failure):
                    if outcome.wrong and not keep_going:
                        raise rollout_error(job, [outcome])
                    again, failed = _retries_after(attempt, outcome, worker, max(1, log.retries))
                    waiting.extendleft(reversed(again))
                    failures += failed
                    if failed and (not keep_going or failed[0].final):
                        raise rollout_error(job, failures, log)
                    continue
                pace.tell(attempt.piece.rollouts, outcome.seconds)
                done += attempt.piece.rollouts
                log.succeeded(attempt.piece.span(columns))
                if log.refused and not keep_going:
                    raise rollout_error(job, failures, log)
                yield attempt.piece, outcome.costs, outcome.raised
    except LostWorkers:  # it is not known which of them is to blame
        log.add([attempt.piece.span(columns) for attempt in in_flight.values()], WORKER_DIED)
        raise
    finally:
        pool.forget(in_flight)
    if failures or log.refused:
        raise rollout_error(job, failures, log)


def roll_out_here(
    job: Job, todo: Iterator[Piece], log: FailureLog
) -> Iterator[tuple[Piece, Table, int]]:
    """As `roll_out`, in this process, one piece after the other; after a failure, by `roll_out`."""
    for piece in todo:
        try:
            costs, raised = job.part(piece).run()
        except (Exception, SystemExit) as error:
            failure = _failure(error, piece, here=True)
        else:
            yield piece, costs, raised
            continue
        failed: Future[Outcome] = Future()
        failed.set_result(failure)
        known = {failed: Attempt(piece)}
        yield from roll_out(job, todo, WorkerPool(None), log=log, in_flight=known)


def _finished(
    in_flight: dict[Future[Outcome], Attempt], pool: WorkerPool, log: FailureLog, columns: int
) -> list[tuple[Attempt, Outcome, Any]]:
    """Finished attempts, at least one, with their outcomes and workers; failures are logged.

    Their futures are removed from `in_flight`: while a future is referenced, Dask computes it again
    if the worker that holds its result dies.
    """
    done = wait(in_flight, return_when=FIRST_COMPLETED).done
    spans = {future: attempt.piece.span(columns) for future, attempt in in_flight.items()}
    outcomes = {future: _outcome(future) for future in done}
    if any(isinstance(outcome, Done) for outcome in outcomes.values()):
        try:
            log.add([spans[future] for future in pool.run_again(in_flight)], WORKER_DIED)
        except OSError as error:
            outcomes = dict.fromkeys(done, _scheduler_lost(error))
    finished = []
    for future, outcome in outcomes.items():
        failure = outcome if isinstance(outcome, Failure) else None
        companions = pool.companions(future)
        worker = pool.finished(future, failure.worker if failure else "")
        attempt = in_flight.pop(future)
        if failure and failure.died and not attempt.suspect:
            if not log.covers(spans[future]):
                log.add([spans[other] for other in companions if other in spans], failure.error)
        elif failure and failure.started:
            log.add([_blamed(attempt.piece, failure).span(columns)], failure.error)
        finished.append((attempt, outcome, worker))
    return finished


def _blamed(piece: Piece, failure: Failure) -> Piece:
    """The rollout that failed, or the whole piece where that is not known."""
    row, column = failure.row, failure.column
    if row is None or column is None:
        return piece
    return Piece(row, row + 1, column, column + 1)


def _room(
    pool: WorkerPool, waiting: deque[Attempt], in_flight: dict[Future[Outcome], Attempt]
) -> bool:
    """Whether another piece may be sent: a suspect piece runs alone."""
    suspects = any(attempt.suspect for attempt in (*waiting, *in_flight.values()))
    return not in_flight if suspects else len(in_flight) < pool.limit


def _sender(job: Job, pool: WorkerPool) -> Callable[[Attempt], Future[Outcome]]:
    """A function that sends an attempt to a worker.

    The task is pickled once, and a worker keeps it; each piece brings its own policies.
    """
    if not pool.pickles(job.task):
        return lambda attempt: pool.submit(
            None, _run, job.part(attempt.piece), attempt.piece, pool.executor is None
        )
    try:
        payload = cloudpickle.dumps((job.task, job.environments.draw))
    except Exception as error:
        raise ValueError(
            f"task {job.task.name} cannot be sent to workers: {in_a_line(error)}; define what it "
            "consists of in a module, or roll out in this process"
        ) from error

    def send(attempt: Attempt) -> Future[Outcome]:
        part = job.part(attempt.piece)
        bare = replace(part, task=None, environments=replace(part.environments, draw=None))
        return pool.submit(attempt.failed_on, work, payload, bare, tuple(attempt.piece))

    return send


def work(payload: bytes, bare: Job, piece: tuple[int, int, int, int]) -> Outcome:
    """Roll out a piece in a worker: a process, or a thread with a task of its own."""
    try:
        task, draw = _loaded(payload)
    except Exception as error:
        words = f"a worker cannot load the task ({in_a_line(error)}): install there what it needs"
        trace = traceback.format_exc()
        return Failure(words, _worker_name(), trace=trace, final=True, started=False)
    job = replace(bare, task=task, environments=replace(bare.environments, draw=draw))
    return _run(job, Piece(*piece))


_local = threading.local()  # simulators must not be shared between threads


def _loaded(payload: bytes) -> tuple[Any, Any]:
    """The task of a payload and its `draw` function; the last KEPT_TASKS payloads are kept."""
    known: dict[bytes, tuple[Any, Any]] = _local.__dict__.setdefault("known", {})
    if payload not in known:
        while len(known) >= KEPT_TASKS:
            known.pop(next(iter(known)))
        known[payload] = cloudpickle.loads(payload)
    return known[payload]


def _run(job: Job, piece: Piece, here: bool = False) -> Outcome:
    """Costs of a piece, or the failure to get them."""
    started = time.perf_counter()
    try:
        costs, raised = job.run()
    except (Exception, SystemExit) as error:
        return _failure(error, piece, here)
    return Done(costs, raised, time.perf_counter() - started)


def _failure(error: BaseException, piece: Piece, here: bool) -> Failure:
    """The failure of a piece that raised an error, in this process or in a worker."""
    row, column, wrong = None, None, isinstance(error, WrongCost)
    final = isinstance(error, WrongCosts | RolloutError) and not wrong
    if isinstance(error, RolloutFailed):
        row, column = piece.first_row + error.row, piece.first_column + error.column
        error = error.error
    elif piece.rollouts == 1 and not final:
        row, column = piece.first_row, piece.first_column
    ours = wrong or final  # raised by this package: the message says all
    words, trace = str(error) if ours else in_a_line(error), ""
    with suppress(Exception):  # of an error that cannot be formatted
        trace = "" if ours else "".join(traceback.format_exception(error))
    cause = error if here else None
    return Failure(words, _worker_name(), row, column, trace, final, wrong, cause=cause)


def _worker_name() -> str:
    """The name of this worker: its address under Dask, otherwise its machine and process."""
    if "distributed.worker" in sys.modules:
        with suppress(ValueError):  # this process is not a Dask worker
            return sys.modules["distributed.worker"].get_worker().address
    return f"{socket.gethostname()} {os.getpid()}"


def _outcome(future: Future[Outcome]) -> Outcome:
    """The outcome of a future that is done."""
    try:
        return future.result()
    except BrokenExecutor:
        return Failure(WORKER_DIED, died=True)
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


def _retries_after(
    attempt: Attempt, failure: Failure, worker: Any, tries: int
) -> tuple[list[Attempt], list[Failure]]:
    """Attempts to make after a piece failed, and the failures that are final.

    Args:
        attempt: the one that failed
        failure: how it failed
        worker: where it failed, to be avoided
        tries: how often a rollout that fails by itself is run again
    """
    if failure.died and not attempt.suspect:  # run it alone, to see whether it is the cause
        return [replace(attempt, suspect=True)], []
    if failure.final:
        return [], [failure]
    blamed = _blamed(attempt.piece, failure)
    if blamed.rollouts > 1:  # it is not known which rollout failed: halve the piece until it is
        return [replace(attempt, piece=half) for half in attempt.piece.halves()], []
    row, _, column, _ = blamed
    rest = [Attempt(part) for part in attempt.piece.around(row, column)]
    if attempt.tries >= tries or failure.wrong:
        return rest, [replace(failure, row=row, column=column)]
    return [Attempt(blamed, attempt.tries + 1, worker, attempt.suspect), *rest], []
