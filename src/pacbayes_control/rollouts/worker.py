"""What a worker does: it loads the task once, and rolls out pieces of the table of costs."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from pacbayes_control.certify.checks import checked_costs
from pacbayes_control.rollouts.failures import Failure, RolloutError
from pacbayes_control.rollouts.jobs import Job, Piece, Table, WrongCost, WrongCosts
from pacbayes_control.rollouts.pools import limited_threads
from pacbayes_control.rollouts.processes import THREADS, Place, mark, named, watched
from pacbayes_control.tasks import user_task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.user_task import RolloutFailed

KEPT_TASKS = 2  # tasks that a worker keeps loaded


class Done(NamedTuple):
    """The costs of a piece."""

    costs: Table
    raised: int = 0  # costs that are 1 because of an error declared to be a failure
    seconds: float = 0.0
    overdue: bool = False  # one cost, which is 1 because the rollout took too long


Outcome = Done | Failure | Place | None  # a place: of a rollout that took too long; None: no task


class Manner(NamedTuple):
    """How a worker rolls out a piece."""

    alone: bool  # each rollout by itself, to take its time
    share: int  # threads of the libraries in a process that somebody else has started; 0: as it is
    parent: int  # the process that sends pieces


def work(
    digest: str, content: bytes | None, bare: Job, piece: tuple[int, int, int, int], how: Manner
) -> Outcome:
    """Roll out a piece in a worker: a process, or a thread with a task of its own."""
    try:
        loaded = _loaded(digest, content, how)
    except Exception as error:
        words = f"a worker cannot load the task ({in_a_line(error)})"
        if isinstance(error, ImportError):
            words += ": install there what it needs"
        trace = traceback.format_exc()
        return Failure(words, _worker_name(), trace=trace, final=True, started=False)
    if loaded is None:
        return None
    task, draw = loaded
    job = replace(bare, task=task, environments=replace(bare.environments, draw=draw))
    return run_piece(job, Piece(*piece), alone=how.alone)


_local = threading.local()  # simulators must not be shared between threads
_limits = ExitStack()  # of the threads of this process, to its end


def _loaded(digest: str, content: bytes | None, how: Manner) -> tuple[Any, Any] | None:
    """A task and its `draw` function, if they are known or given; KEPT_TASKS are kept."""
    known: dict[str, tuple[Any, Any]] = _local.__dict__.setdefault("known", {})
    if digest not in known:
        if content is None:
            return None
        while len(known) >= KEPT_TASKS:
            known.pop(next(iter(known)))
        if how.share and os.getpid() != how.parent and not watched():
            _limits.enter_context(limited_threads(how.share))
            os.environ.update({name: str(how.share) for name in THREADS})  # of others, once loaded
        known[digest] = cloudpickle.loads(content)
    return known[digest]


def run_piece(job: Job, piece: Piece, here: bool = False, alone: bool = False) -> Outcome:
    """Costs of a piece, or the failure to get them."""
    started = time.perf_counter()
    row, column = piece.first_row, piece.first_column
    try:
        if alone:
            costs, raised = _one_by_one(job, row, column)
        else:
            if watched():
                user_task.begins = lambda i, j: mark(row + i, column + j)
            costs, raised = job.run()
    except (Exception, SystemExit) as error:
        return _failure(error, piece, here)
    return Done(costs, raised, time.perf_counter() - started)


def _one_by_one(job: Job, row: int, column: int) -> tuple[Table, int]:
    """The costs of a job, each rollout by itself."""
    parts, raised = np.empty(job.shape), 0
    for i, j in np.ndindex(job.shape):
        mark(row + i, column + j)
        try:
            cost, more = job.part(Piece.at(i, j)).run()
        except WrongCosts:
            raise
        except (Exception, SystemExit) as error:
            cause = error.error if isinstance(error, RolloutFailed) else error
            raise RolloutFailed(i, j, cause) from error
        parts[i, j], raised = cost[0, 0], raised + more
    return checked_costs(parts), raised


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
    unregistered: Any = getattr(sys.modules.get("gymnasium.error"), "UnregisteredEnv", ())
    if isinstance(error, unregistered) and "its_module" not in words and not here:
        words += "; import the module that registers it within the rollout"
    with suppress(Exception):  # of an error that cannot be formatted
        trace = "" if ours else "".join(traceback.format_exception(error))
    cause = error if here else None
    return Failure(words, _worker_name(), row, column, trace, final, wrong, cause=cause)


def _worker_name() -> str:
    """The name of this worker: its address under Dask, otherwise its machine and process."""
    if "distributed.worker" in sys.modules:
        with suppress(ValueError):  # this process is not a Dask worker
            return sys.modules["distributed.worker"].get_worker().address
    return named(os.getpid())
