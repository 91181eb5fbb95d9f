"""Pieces handed out to workers, and what comes back: in any order, and sometimes not at first.

Workers are this process, a pool of threads or processes, or any Executor, such as Dask's. A rollout
that raises comes back as data: it is tried once more, on another worker, and then reported.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, replace
from functools import lru_cache

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.rollouts.jobs import Job, Pace, Piece, WrongCosts
from pacbayes_control.rollouts.pools import Crew
from pacbayes_control.tasks.functions import RolloutFailed

Costs = NDArray[np.float64 | np.uint8]
MOST_FAILURES = 10  # rollouts that may fail before the others are given up too
MOST_DECLINES = 300  # times that a worker passes on a rollout that it has failed in before
PATIENCE = 1.0  # s, at most, before it passes it on


@dataclass(frozen=True)
class Failure:
    """A rollout that raised, or a piece where it is not known which of its rollouts did."""

    error: str  # its type and message, in a line
    worker: str = ""
    row: int | None = None
    column: int | None = None
    trace: str = ""
    final: bool = False  # no rollout of this task would do better
    cause: BaseException | None = None  # where it was raised in this process


class RolloutError(ValueError):
    """Rollouts that raised, also when they were tried again; `failures` has each of them."""

    def __init__(self, message: str, failures: list[Failure]) -> None:
        super().__init__(message)
        self.failures = failures


@dataclass(frozen=True)
class Attempt:
    """A piece to be rolled out, and what went before."""

    piece: Piece
    failed_on: str = ""  # the worker that failed in it before
    declines: int = 0
    suspect: bool = False  # it was in flight when a worker died


@dataclass(frozen=True)
class Outcome:
    """What a worker sends back: costs, or a failure, or neither where it passes the piece on."""

    costs: Costs | None = None
    seconds: float = 0.0
    failure: Failure | None = None


def roll_out(
    job: Job,
    todo: Iterator[Piece],
    crew: Crew,
    pace: Pace | None = None,
    keep_going: bool = False,
) -> Iterator[tuple[Piece, Costs]]:
    """Roll out pieces, and yield each with its costs when it is done, in any order.

    todo is asked for a piece when there is room for one. keep_going: rollouts that fail are
    reported after all others are done, unless there are MOST_FAILURES. What is in flight when the
    caller stops is given up.
    """
    waiting: deque[Attempt] = deque()
    flying: dict[Future[Outcome], Attempt] = {}
    failures: list[Failure] = []
    send = _sender(job, crew)
    try:
        while True:
            while len(failures) < MOST_FAILURES and _room(crew, waiting, flying):
                attempt = waiting.popleft() if waiting else _next(todo)
                if attempt is None:
                    break
                flying[send(attempt)] = attempt
            if not flying:
                break
            landed = _landed(flying)
            if any(outcome is None for _, outcome in landed):
                crew.renew()
            for attempt, outcome in landed:
                if outcome is None and not attempt.suspect:
                    waiting.append(replace(attempt, suspect=True))
                    continue
                outcome = outcome or Outcome(failure=Failure("its worker died"))
                if outcome.costs is not None:
                    if pace:
                        pace.tell(attempt.piece.rollouts, outcome.seconds)
                    yield attempt.piece, outcome.costs
                    continue
                again, failed = _after(attempt, outcome.failure)
                waiting.extendleft(reversed(again))
                failures += failed
                if failed and (not keep_going or failed[0].final):
                    raise _error(job, failures)
    finally:
        for future in flying:
            future.cancel()
    if failures:
        raise _error(job, failures)


def _next(todo: Iterator[Piece]) -> Attempt | None:
    piece = next(todo, None)
    return Attempt(piece) if piece else None


def _landed(flying: dict[Future[Outcome], Attempt]) -> list[tuple[Attempt, Outcome | None]]:
    """Those that are back, at least one; all of them where a worker died, and the pool with it."""
    done, _ = wait(flying, return_when=FIRST_COMPLETED)
    landed = [(flying.pop(future), _outcome(future)) for future in done]
    if any(outcome is None for _, outcome in landed):
        wait(flying, timeout=5)
        landed += [
            (attempt, _outcome(future) if future.done() else None)
            for future, attempt in flying.items()
        ]
        flying.clear()
    return landed


def _room(crew: Crew, waiting: deque[Attempt], flying: dict[Future[Outcome], Attempt]) -> bool:
    """Whether another piece may be sent: a suspect flies alone."""
    suspects = any(attempt.suspect for attempt in (*waiting, *flying.values()))
    return not flying if suspects else len(flying) < crew.limit


def _sender(job: Job, crew: Crew) -> Callable[[Attempt], Future[Outcome]]:
    """A function that sends an attempt off; what is sent to another process is pickled once."""
    if not crew.elsewhere:
        return lambda attempt: crew.submit(_run, job, attempt.piece, True)
    try:
        payload = cloudpickle.dumps(job)
    except Exception as error:
        raise ValueError(
            f"task {job.task.name} cannot be sent to workers: {_line(error)}; define what it "
            "consists of in a module, or roll out in this process"
        ) from error

    def send(attempt: Attempt) -> Future[Outcome]:
        avoid = attempt.failed_on if crew.limit > 2 and attempt.declines < MOST_DECLINES else ""
        return crew.submit(work, payload, attempt.piece, avoid, attempt.declines)

    return send


def work(payload: bytes, piece: Piece, avoid: str, declines: int) -> Outcome:
    """Roll out a piece in a worker's process, or pass it on if the worker is the one to avoid."""
    if avoid == _me():
        time.sleep(min(0.01 * 2**declines, PATIENCE))
        return Outcome()
    try:
        job = _loaded(payload)
    except Exception as error:
        words = f"a worker cannot load the task ({_line(error)}): install there what it needs"
        return Outcome(failure=Failure(words, _me(), trace=traceback.format_exc(), final=True))
    return _run(job, Piece(*piece))


@lru_cache(maxsize=2)
def _loaded(payload: bytes) -> Job:
    return cloudpickle.loads(payload)


def _run(job: Job, piece: Piece, here: bool = False) -> Outcome:
    """Costs of a piece, or the failure to get them."""
    started = time.perf_counter()
    try:
        return Outcome(job.run(piece), time.perf_counter() - started)
    except RolloutFailed as failed:
        row, column = piece.first_row + failed.row, piece.first_column + failed.column
        error = failed.error
    except (WrongCosts, RolloutError) as wrong:
        words, cause = str(wrong), wrong if here else None
        return Outcome(failure=Failure(words, _me(), final=True, cause=cause))
    except Exception as raised:
        row, column, error = None, None, raised
        if piece.rollouts == 1:
            row, column = piece.first_row, piece.first_column
    trace = "".join(traceback.format_exception(error))
    cause = error if here else None
    return Outcome(failure=Failure(_line(error), _me(), row, column, trace, cause=cause))


def _me() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _outcome(future: Future[Outcome]) -> Outcome | None:
    """What a future came to; None where the pool of workers broke."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
    except CancelledError as error:
        words = f"the scheduler was lost, or gave up a piece ({_line(error)})"
        return Outcome(failure=Failure(words, final=True))
    except ModuleNotFoundError as error:
        words = f"a worker lacks a module ({error}): install there what the task needs"
        return Outcome(failure=Failure(words, final=True, cause=error))
    except Exception as error:  # of the executor itself, such as a worker that died too often
        return Outcome(failure=Failure(_line(error), cause=error))


def _after(attempt: Attempt, failure: Failure | None) -> tuple[list[Attempt], list[Failure]]:
    """What to try again after a piece came back without costs, and what has failed for good."""
    if failure is None:
        return [replace(attempt, declines=attempt.declines + 1)], []
    if failure.final:
        return [], [failure]
    piece = attempt.piece
    if piece.rollouts == 1:
        row, column = piece.first_row, piece.first_column
    elif failure.row is not None and failure.column is not None:
        row, column = failure.row, failure.column
    else:  # not known which: halve it until it is
        return [replace(attempt, piece=half) for half in piece.halves()], []
    if attempt.failed_on:
        return [], [replace(failure, row=row, column=column)]
    once_more = Attempt(
        Piece(row, row + 1, column, column + 1), failure.worker or "a dead one", 0, attempt.suspect
    )
    return [once_more, *(Attempt(rest) for rest in piece.around(row, column))], []


def _error(job: Job, failures: list[Failure]) -> RolloutError:
    """One line on the first, and how many others there are."""
    first = failures[-1] if failures[-1].final else failures[0]
    words = first.error
    if first.row is not None:
        environments = job.environments
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
