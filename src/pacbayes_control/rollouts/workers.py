"""Pieces handed out to workers, and what comes back: in any order, and sometimes not at first.

Workers are this process, a pool of threads or processes, or any Executor, such as Dask's. A rollout
that raises comes back as data: it is tried once more, on another worker, and then reported: also if
it does not fail again, unless retries are allowed.
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
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.rollouts.failures import Failure, RolloutError, hopeless, rollout_error
from pacbayes_control.rollouts.jobs import Job, Pace, Piece, WrongCost, WrongCosts
from pacbayes_control.rollouts.pools import Crew, LostWorkers
from pacbayes_control.rollouts.retries import FailureLog
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.functions import RolloutFailed

Costs = NDArray[np.float64 | np.uint8]
KEPT_TASKS = 2  # that a worker keeps loaded
WORKER_DIED = "its worker died"


@dataclass(frozen=True)
class Attempt:
    """A piece to be rolled out, and what went before."""

    piece: Piece
    tries: int = 0  # how often this rollout has failed by itself
    failed_on: Any = None  # the worker that it failed on
    suspect: bool = False  # it was in flight when a worker died


@dataclass(frozen=True)
class Outcome:
    """What a worker sends back: costs, or a failure."""

    costs: Costs | None = None
    raised: int = 0  # costs that stand for errors that were declared to be failures
    seconds: float = 0.0
    failure: Failure | None = None


def roll_out(
    job: Job,
    todo: Iterator[Piece],
    crew: Crew,
    pace: Pace | None = None,
    keep_going: bool = False,
    log: FailureLog | None = None,
) -> Iterator[tuple[Piece, Costs, int]]:
    """Roll out pieces, and yield each when it is done, with its costs and how many of them raised.

    todo is asked for a piece when there is room for one. keep_going: rollouts that fail are
    reported after all others are done, unless there are too many. log: of failures, and how often
    a rollout may be run again. What is in flight when the caller stops is given up.
    """
    waiting: deque[Attempt] = deque()
    flying: dict[Future[Outcome], Attempt] = {}
    failures: list[Failure] = []
    done = 0  # rollouts
    columns, log = job.shape[1], log or FailureLog()
    send = _sender(job, crew)
    try:
        while True:
            while not hopeless(failures, done, log) and _room(crew, waiting, flying):
                attempt = waiting.popleft() if waiting else _next(todo)
                if attempt is None:
                    break
                flying[send(attempt)] = attempt
            if not flying:
                break
            for attempt, outcome, worker in _landed(flying, crew, log, columns):
                if outcome.costs is not None:
                    if pace:
                        pace.tell(attempt.piece.rollouts, outcome.seconds)
                    done += attempt.piece.rollouts
                    log.succeeded(attempt.piece.span(columns))
                    if log.refused and not keep_going:
                        raise rollout_error(job, failures, log)
                    yield attempt.piece, outcome.costs, outcome.raised
                    continue
                failure = outcome.failure or Failure("")
                if failure.wrong and not keep_going:
                    raise rollout_error(job, [failure])
                again, failed = _after(attempt, failure, worker, max(1, log.allowed))
                waiting.extendleft(reversed(again))
                failures += failed
                if failed and (not keep_going or failed[0].final):
                    raise rollout_error(job, failures, log)
    except LostWorkers:  # nobody can tell which of them is to blame
        log.add([attempt.piece.span(columns) for attempt in flying.values()], WORKER_DIED)
        raise
    finally:
        crew.forget(flying)
    if failures or log.refused:
        raise rollout_error(job, failures, log)


def _landed(
    flying: dict[Future[Outcome], Attempt], crew: Crew, log: FailureLog, columns: int
) -> list[tuple[Attempt, Outcome, Any]]:
    """Those that are back, at least one, and the workers that they were with; failures are logged.

    Their futures are let go of: for as long as somebody holds one, Dask computes it again when the
    worker dies that has its result.
    """
    done = wait(flying, return_when=FIRST_COMPLETED).done
    spans = {future: attempt.piece.span(columns) for future, attempt in flying.items()}
    outcomes = {future: _outcome(future) for future in done}
    if any(outcome.costs is not None for outcome in outcomes.values()):
        try:
            log.add([spans[future] for future in crew.run_again(flying)], WORKER_DIED)
        except OSError as error:
            outcomes = dict.fromkeys(done, _scheduler_lost(error))
    landed = []
    for future, outcome in outcomes.items():
        failure = outcome.failure
        companions = crew.companions(future)
        worker = crew.landed(future, failure.worker if failure else "")
        attempt = flying.pop(future)
        if failure and failure.died and not attempt.suspect:
            if not log.covers(spans[future]):
                log.add([spans[other] for other in companions if other in spans], failure.error)
        elif failure and failure.started:
            log.add([_blamed(attempt.piece, failure).span(columns)], failure.error)
        landed.append((attempt, outcome, worker))
    return landed


def _blamed(piece: Piece, failure: Failure) -> Piece:
    """The rollout that failed, or the whole piece where that is not known."""
    row, column = failure.row, failure.column
    if row is None or column is None:
        return piece
    return Piece(row, row + 1, column, column + 1)


def _next(todo: Iterator[Piece]) -> Attempt | None:
    piece = next(todo, None)
    return Attempt(piece) if piece else None


def _room(crew: Crew, waiting: deque[Attempt], flying: dict[Future[Outcome], Attempt]) -> bool:
    """Whether another piece may be sent: a suspect flies alone."""
    suspects = any(attempt.suspect for attempt in (*waiting, *flying.values()))
    return not flying if suspects else len(flying) < crew.limit


def _sender(job: Job, crew: Crew) -> Callable[[Attempt], Future[Outcome]]:
    """A function that sends an attempt off.

    The task is pickled once and kept by whoever gets it; each piece brings its own policies.
    """
    if not crew.pickles(job.task):
        return lambda attempt: crew.submit(
            None, _run, job.part(attempt.piece), attempt.piece, crew.executor is None
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
        return crew.submit(attempt.failed_on, work, payload, bare, tuple(attempt.piece))

    return send


def work(payload: bytes, bare: Job, piece: tuple[int, int, int, int]) -> Outcome:
    """Roll out a piece in a worker: a process, or a thread with a task of its own."""
    try:
        task, draw = _loaded(payload)
    except Exception as error:
        words = f"a worker cannot load the task ({in_a_line(error)}): install there what it needs"
        failure = Failure(words, _me(), trace=traceback.format_exc(), final=True, started=False)
        return Outcome(failure=failure)
    job = replace(bare, task=task, environments=replace(bare.environments, draw=draw))
    return _run(job, Piece(*piece))


_own = threading.local()  # a simulator is not to be shared between threads


def _loaded(payload: bytes) -> tuple[Any, Any]:
    """The task of a payload, and how it draws environments; the last ones are kept."""
    known: dict[bytes, tuple[Any, Any]] = _own.__dict__.setdefault("known", {})
    if payload not in known:
        while len(known) >= KEPT_TASKS:
            known.pop(next(iter(known)))
        known[payload] = cloudpickle.loads(payload)
    return known[payload]


def _run(job: Job, piece: Piece, here: bool = False) -> Outcome:
    """Costs of a piece, or the failure to get them."""
    started = time.perf_counter()
    try:
        costs, raised = job.run_counted()
        return Outcome(costs, raised, time.perf_counter() - started)
    except RolloutFailed as failed:
        row, column = piece.first_row + failed.row, piece.first_column + failed.column
        error = failed.error
    except WrongCost as wrong:
        row, column = (piece.first_row, piece.first_column) if piece.rollouts == 1 else (None, None)
        cause = wrong if here else None
        return Outcome(failure=Failure(str(wrong), _me(), row, column, wrong=True, cause=cause))
    except (WrongCosts, RolloutError) as wrong:
        words, cause = str(wrong), wrong if here else None
        return Outcome(failure=Failure(words, _me(), final=True, cause=cause))
    except (Exception, SystemExit) as raised:
        row, column, error = None, None, raised
        if piece.rollouts == 1:
            row, column = piece.first_row, piece.first_column
    cause = error if here else None
    return Outcome(
        failure=Failure(in_a_line(error), _me(), row, column, _trace(error), cause=cause)
    )


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # one whose words cannot be had
        return ""


def _me() -> str:
    """The address of a worker of Dask's; the machine and the process of any other."""
    if "distributed.worker" in sys.modules:
        with suppress(ValueError):  # in a process that is no worker
            return sys.modules["distributed.worker"].get_worker().address
    return f"{socket.gethostname()} {os.getpid()}"


def _outcome(future: Future[Outcome]) -> Outcome:
    """What a future came to."""
    try:
        return future.result()
    except BrokenExecutor:
        return Outcome(failure=Failure(WORKER_DIED, died=True))
    except CancelledError as error:
        return _scheduler_lost(error)
    except ModuleNotFoundError as error:
        words = f"a worker lacks a module ({error}): install there what the task needs"
        return Outcome(failure=Failure(words, final=True, started=False, cause=error))
    except Exception as error:  # of the executor itself, such as a worker that died too often
        return Outcome(failure=Failure(in_a_line(error), cause=error))


def _scheduler_lost(error: BaseException) -> Outcome:
    words = f"the scheduler was lost, or gave up a piece ({in_a_line(error)})"
    return Outcome(failure=Failure(words, final=True, started=False))


def _after(
    attempt: Attempt, failure: Failure, worker: Any, tries: int
) -> tuple[list[Attempt], list[Failure]]:
    """What to try again after a piece came back without costs, and what has failed for good.

    tries: how often a rollout is run again that fails by itself.
    """
    if failure.died and not attempt.suspect:  # its fault, or not: alone, it will show
        return [replace(attempt, suspect=True)], []
    if failure.final:
        return [], [failure]
    piece = attempt.piece
    if piece.rollouts == 1:
        row, column = piece.first_row, piece.first_column
    elif failure.row is not None and failure.column is not None:
        row, column = failure.row, failure.column
    else:  # not known which: halve it until it is
        return [replace(attempt, piece=half) for half in piece.halves()], []
    failure = replace(failure, row=row, column=column)
    rest = [Attempt(part) for part in piece.around(row, column)]
    if attempt.tries >= tries or failure.wrong:
        return rest, [failure]
    single = Piece(row, row + 1, column, column + 1)
    return [Attempt(single, attempt.tries + 1, worker, attempt.suspect), *rest], []
