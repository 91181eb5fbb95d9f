"""Checks of a user's task: does it meet the requirements that a certificate rests on?"""

from __future__ import annotations

import pickle
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.rollouts.differences import DRAWN, STREAM, Broken, Warned, environments_differ
from pacbayes_control.rollouts.evaluation import checked_policies, table_of
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.failures import RolloutError
from pacbayes_control.rollouts.jobs import Job, Piece, Table
from pacbayes_control.rollouts.pools import limited_threads, open_workers
from pacbayes_control.rollouts.processes import Processes
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import generator, in_a_line
from pacbayes_control.tasks.identity import identity
from pacbayes_control.tasks.task import as_task, brought, noise_of

HEAVY = 10_000_000  # bytes of a task, from which on they are worth a word
REPEAT, DIFFER = "the same seed gives the same cost", "environments differ"


@dataclass(frozen=True)
class Check:
    """One requirement, and whether the task meets it."""

    name: str
    passed: bool
    detail: str
    warning: bool = False  # whether a user should read the detail although the check passed
    trace: str = ""  # the traceback of the error that a failed check met, if it is a task's own


def check_task(
    task: Task,
    policies: NDArray | None = None,
    environments: int = 8,
    seconds: float = 2.0,
    *,
    rollout_timeout: float | None = None,
) -> list[Check]:
    """Try a task: a few policies in a few environments, again and again.

    A task that passes may still be wrong in other environments; a task that fails is wrong.

    Args:
        task: the task to check
        policies: one per row; by default a few of the task's own, or drawn from its prior
        environments: how many environments to roll out in
        seconds: for the measurement of its speed
        rollout_timeout: seconds after which a rollout is ended; the task then fails

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> all(check.passed for check in check_task(Stopping(), seconds=0.1))
    True
    """
    task = as_task(task)
    chosen = checked_policies(task, policies if policies is not None else some_policies(task))
    limited = Execution(rollout_timeout=rollout_timeout)
    first: list[Any] = []  # the job that is run again and again, and its costs

    def costs_in_range() -> str:
        job, facts = _job(task, chosen, environments), dict[str, Any]()
        table = table_of(job, limited, facts)
        for row, column in facts.get("timed_out", ()):
            raise Broken(
                f"policy {column} in environment {row} took longer than {rollout_timeout:g} s"
            )
        first[:] = job, table
        low, high, rollouts = first[1].min(), first[1].max(), first[1].size
        return f"{rollouts} rollouts cost between {low:g} and {high:g}"

    promises: dict[str, Callable[[Job, Table], str]] = {
        REPEAT: _repeats,
        "a cost does not depend on its company": _alone_as_together,
        "policies of their own cost the same": _own_as_shared,
        "no global random state is used": _leaves_global_state,
        "other processes give the same costs": _elsewhere_the_same,
        DIFFER: environments_differ,
        "it can be told from other tasks": lambda job, _: identity(job.task),
    }
    with _global_states():  # restores them afterwards, even if the task changes them
        checks = [_tried(name, promise, task) for name, promise in DRAWN.items()]
        checks.append(_tried("costs lie in [0, 1]", costs_in_range))
        if not first:
            words = "not tried, since the rollouts failed"
            return checks + [Check(name, False, words) for name in promises]
        checks += [_tried(name, promise, *first) for name, promise in promises.items()]
        return [*checks, _tried("speed", _speed, first[0], seconds)]


def _job(task: Task, policies: NDArray, environments: int) -> Job:
    here = task.environments(environments, stream=STREAM)
    return Job(task, here, policies, noise_of(task, here, None))


def refuse_broken(task: Task, policies: NDArray, execution: Execution | None = None) -> str | None:
    """Raise ValueError if a few rollouts show that a task is wrong; `check_task` tries more.

    Returns a warning if rollouts may ignore the environment that is drawn, otherwise None.
    """
    task, execution = as_task(task), execution or Execution()

    def quick_checks(roll: Callable[[Job], Table]) -> Iterator[Check]:
        yield from (_tried(name, promise, task) for name, promise in DRAWN.items())
        job = _job(task, policies[:3], 4)
        table = roll(job)
        yield _tried(REPEAT, _repeats, job, table, roll)
        yield _tried(DIFFER, environments_differ, job, table, roll, False)

    quiet = replace(execution, store=None, progress=None)
    with _global_states(), open_workers(task, quiet) as here:
        roll = partial(table_of, execution=here)
        for check in quick_checks(roll):
            if not check.passed:
                error = ValueError(
                    f"task {task.name} breaks a promise that a certificate rests on "
                    f"({check.name}): {check.detail}; see pbc check"
                )
                if check.trace:
                    error.add_note(check.trace)
                raise error
    return check.detail if check.warning else None


def some_policies(task: Task, count: int = 3) -> NDArray:
    """A few policies to try a task with: its own, drawn from its prior, or of the right length."""
    if task.policies is not None:
        rows = np.asarray(task.policies)
        return rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(int))]
    rng = generator(0, STREAM, of="policies")
    if task.prior is not None:
        return task.prior.sample(rng, count)
    if task.parameters is None:
        raise ValueError(
            f"the task {task.name} has no policies of its own to try: give some (--policies)"
        )
    return rng.standard_normal((count, task.parameters))


def _tried(name: str, promise: Callable[..., str], *arguments: Any) -> Check:
    try:
        detail = promise(*arguments)
    except Exception as error:  # a user's task may raise anything
        ours, trace = isinstance(error, Broken | RolloutError), ""
        if not isinstance(error, Broken):
            with suppress(Exception):  # of an error that cannot be formatted
                trace = "".join(traceback.format_exception(error))
        words = " ".join(str(error).split()) if ours else in_a_line(error)
        return Check(name, False, words, trace=trace)
    return Check(name, True, str(detail), isinstance(detail, Warned))


def _repeats(job: Job, table: Table, roll: Callable[[Job], Table] = table_of) -> str:
    """All rollouts repeat, also after the first ones may have left state behind."""
    _compare(roll(job), table, "when it was rolled out again")
    return f"{table.size} rollouts repeated, bit for bit"


def _alone_as_together(job: Job, table: Table) -> str:
    """Each rollout alone costs the same, also in reverse order."""
    alone = np.empty(job.shape)
    for row, column in reversed([*np.ndindex(job.shape)]):
        alone[row, column] = job.part(Piece(row, row + 1, column, column + 1)).run()[0][0, 0]
    _compare(alone, table, "alone")
    return f"{table.size} rollouts, each by itself and in the opposite order"


def _own_as_shared(job: Job, table: Table) -> str:
    """Policies given for each environment, as a posterior is sampled, cost what they did."""
    assert isinstance(job.policies, np.ndarray)
    turns = np.zeros(job.shape[0], int) if job.noise else np.arange(job.shape[0])
    own = np.stack([np.roll(job.policies, turn, axis=0) for turn in turns])
    try:
        costs, _ = replace(job, policies=own).run()
    except Exception as error:
        return f"none but a list for all environments: {type(error).__name__}, so finite lists only"
    back = [np.roll(row, -turn) for row, turn in zip(costs, turns, strict=True)]
    _compare(np.stack(back), table, "as one of its environment's own")
    return f"{table.size} rollouts, with an array (environments, policies, parameters)"


def _leaves_global_state(job: Job, table: Table) -> str:
    """Costs do not depend on the global generators, and rollouts do not change those."""
    with _global_states() as states:
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - its use is what this function looks for
            before = states()
            _compare(table_of(job), table, "when Python's or NumPy's global seed was another")
            changed = [name for name, state in states().items() if state != before[name]]
            if changed:
                raise Broken(f"a rollout draws from {changed[0]}: use the generator it is given")
    return "neither Python's nor NumPy's" + (", nor torch's" if "torch" in sys.modules else "")


@contextmanager
def _global_states() -> Iterator[Callable[[], dict[str, bytes]]]:
    """A function that reads the states of the global generators, which are restored afterwards."""
    generators: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
        "Python's random": (random.getstate, random.setstate),
        "np.random": (np.random.get_state, np.random.set_state),
    }
    if torch := sys.modules.get("torch"):
        generators["torch's generator"] = (
            lambda: torch.get_rng_state().numpy(),  # a tensor itself is pickled by its address
            lambda state: torch.set_rng_state(torch.from_numpy(state)),
        )
    before = [get() for get, _ in generators.values()]
    try:
        yield lambda: {name: pickle.dumps(get()) for name, (get, _) in generators.items()}
    finally:
        for (_, put), state in zip(generators.values(), before, strict=True):
            put(state)


def _elsewhere_the_same(job: Job, table: Table) -> str:
    """The task can be sent to another process, which gets the same environments and costs."""
    size = _bytes(job.task)
    with Processes(2) as pool:
        _compare(table_of(job, Execution(pool)), table, "in another process")
    words = f"two other processes agree; the task takes {size:,} bytes to send"
    if size < HEAVY:
        return words
    return Warned(f"{words}, most of them in {_heaviest(job.task)}: can it do without?")


def _bytes(part: Any) -> int:
    try:
        return len(cloudpickle.dumps(part))
    except Exception:  # of a part that is sent in another way
        return 0


def _heaviest(task: Task) -> str:
    """The innermost part of a task that takes more than half of its bytes."""
    name, part, size = "task", brought(task), _bytes(task)
    while True:
        parts = {f".{key}": value for key, value in getattr(part, "__dict__", {}).items()}
        if isinstance(part, Mapping | list | tuple):
            items = part.items() if isinstance(part, Mapping) else enumerate(part)
            parts = {f"[{key!r}]": value for key, value in items}
        sizes = {key: _bytes(value) for key, value in parts.items()}
        largest = max(sizes, key=lambda key: sizes[key], default="")
        if not largest or sizes[largest] <= size / 2:
            return f"{name} ({type(part).__name__}, {size / 1e6:,.0f} MB)"
        name, part, size = f"{name}{largest}", parts[largest], sizes[largest]


def _speed(job: Job, seconds: float) -> str:
    """Rollouts per second of one worker, and how much faster they would be in batches."""
    jobs, batched = [job], job.task.in_batches()
    if batched is not None:
        whole = replace(job.environments, stop=job.environments.start + batched.together)
        jobs.append(replace(job, task=batched, environments=whole))
    with limited_threads(1):  # as each of several workers has
        rate, *others = _rates(jobs, seconds)
    words = f"{rate:,.0f} rollouts a second" if rate >= 10 else f"{1 / rate:.2g} s a rollout"
    for other in others:
        words += f"; with vector={jobs[1].task.together}, {other / rate:.2g} times as many"
    return words


def _rates(jobs: list[Job], seconds: float) -> list[float]:
    """Rollouts per second of each job, by turns: machines change their speed."""
    rollouts, spent = np.zeros((2, len(jobs)))
    for job in jobs:  # compilers, and the first use of a library
        job.run()
    while spent.min() < seconds:
        for number, job in enumerate(jobs):
            started = time.perf_counter()
            rollouts[number] += job.run()[0].size
            spent[number] += time.perf_counter() - started
    return (rollouts / spent).tolist()


def _compare(now: NDArray, before: NDArray, when: str) -> None:
    different = np.argwhere(now != before)
    if len(different):
        row, column = map(int, different[0])
        raise Broken(
            f"policy {column} cost {before[row, column]!s} in environment {row}, and "
            f"{now[row, column]!s} {when} ({len(different)} of {before.size} differ)"
        )


def passed(checks: list[Check]) -> bool:
    """Whether all checks passed."""
    return all(check.passed for check in checks)
