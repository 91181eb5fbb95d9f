"""Logs with several tasks: a fixed list of them, tasks as environments, or one task alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.episodes import Trial
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.rows import Log, Row, files_of

MOST_SHOWN = 5  # names that an error lists


def choose_tasks(
    logs: list[Log], options: LogOptions, unit: str, notes: list[str]
) -> tuple[list[Log], bool, str]:
    """The logs after the choice of tasks, whether these are a fixed list, and the kind of unit."""
    rows = [row for log in logs for row in log.rows]
    tasks = list(dict.fromkeys(row.task for row in rows if row.task is not None))
    choice = options.tasks
    if choice is not None and not tasks and rows:
        raise ValueError(f"--tasks {choice}: the log names no tasks")
    if choice not in (None, "fixed", "drawn"):
        return _one_task(logs, choice, tasks, notes), False, f"{unit} of {choice}"
    if choice == "drawn" or (choice is None and len(tasks) > 1 and _tasks_are_environments(rows)):
        return _moved(logs), False, "task"
    if len(tasks) > 1 and choice is None:
        raise ValueError(
            f"{files_of(logs)}: there are {len(tasks)} tasks ({_listed(tasks)}): say --tasks fixed "
            "(the mean over these tasks counts), --tasks drawn (new environments are other tasks) "
            "or --tasks NAME (only that one)"
        )
    fixed = choice == "fixed" and bool(tasks)
    if fixed and any(row.task is None for row in rows):
        raise ValueError("--tasks fixed: some of the files name no tasks")
    return logs if fixed else _without_tasks(logs), fixed, unit


def _without_tasks(logs: Iterable[Log]) -> list[Log]:
    return [replace(log, rows=[row._replace(task=None) for row in log.rows]) for log in logs]


def _tasks_are_environments(rows: Sequence[Row]) -> bool:
    """Whether nothing but the task tells environments apart, with one trial of each policy."""
    if any(row.environment is not None or row.task is None for row in rows):
        return False
    return len({(row.policy, row.task) for row in rows}) == len(rows)


def _moved(logs: Iterable[Log]) -> list[Log]:
    """The logs with the task as the environment."""
    moved = []
    for log in logs:
        rows = [row._replace(environment=row.task, task=None) for row in log.rows]
        moved.append(replace(log, rows=rows, numbered=False))
    return moved


def _one_task(logs: list[Log], name: str, tasks: list[str], notes: list[str]) -> list[Log]:
    if name not in tasks:
        near = [task for task in tasks if task.casefold() == name.casefold()]
        if not near and tasks:
            raise ValueError(
                f"--tasks {quoted(name)} is neither fixed, drawn nor a task of this log: "
                f"{_listed(tasks)}"
            )
        name = near[0] if near else name
    kept = [replace(log, rows=[row for row in log.rows if row.task == name]) for log in logs]
    others = sum(len(log.rows) for log in logs) - sum(len(log.rows) for log in kept)
    notes.append(f"only the task {quoted(name)}, {others} trials of other tasks left out")
    gone = {row.policy for log in logs for row in log.rows}
    gone -= {row.policy for log in kept for row in log.rows}
    if gone:
        raise ValueError(f"the policy {quoted(min(gone))} has no trials of the task {quoted(name)}")
    return _without_tasks(log for log in kept if log.rows)


def check_balance(trials: Sequence[Trial]) -> None:
    """An error unless each policy has the same number of trials in every task."""
    counts = Counter((trial.policy, trial.task) for trial in trials)
    tasks = list(dict.fromkeys(trial.task for trial in trials))
    for policy in dict.fromkeys(trial.policy for trial in trials):
        numbers = [counts[policy, task] for task in tasks]
        if len(set(numbers)) > 1:
            each = [f"{quoted(str(task))} {n}" for task, n in zip(tasks, numbers, strict=True)]
            raise ValueError(
                f"--tasks fixed needs as many trials of {quoted(policy)} in every task, and it "
                f"has: {', '.join(each[:12])}"
            )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_SHOWN
    shown = ", ".join(quoted(name, 30) for name in names[:MOST_SHOWN])
    return shown + (f" and {more} more" if more > 0 else "")
