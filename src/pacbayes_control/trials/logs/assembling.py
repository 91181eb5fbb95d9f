"""Logs put together: tasks, pairs and episodes, with a question wherever a log does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pacbayes_control.certify.text import quoted
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.logs.episodes import Placed, Trial, average_episodes
from pacbayes_control.trials.logs.names import check_names
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.rows import Log, files_of
from pacbayes_control.trials.logs.summaries import understood
from pacbayes_control.trials.logs.task_lists import check_balance, choose_tasks

FAR = 10  # times 1, beyond which a score is hardly on the same scale as one between 0 and 1


def assemble(
    logs: Sequence[Log], options: LogOptions, *, growing: bool = False, pairs: bool = True
) -> Trials:
    """The trials of all logs as one record.

    Args:
        logs: one of each file.
        options: the answers to questions that the logs leave open.
        growing: whether more trials will be written: fewer than two are enough then, rows without
            an outcome at the end are still to come, and tasks need not have equal numbers yet.
        pairs: whether it matters which trials were in the same environment.
    """
    logs = [_without_coming(log) for log in logs] if growing else logs
    filled = [log for log in logs if log.rows] or list(logs)
    first = filled[0]
    _check_alike(filled)
    check_names(filled)
    notes = list(dict.fromkeys(note for log in logs for note in log.notes))
    filled, fixed, unit = choose_tasks(filled, options, first.unit, notes)
    filled, incidents = _without_missing(filled, options, notes)
    _check_scales(filled)
    placed = _placed(filled, options, unit, pairs)
    trials, episodes = average_episodes(placed, options, notes)
    if len(trials) < 2 and not growing:
        raise ValueError(f"{files_of(logs)}: one trial is not a sample: at least two are needed")
    if fixed and not growing:
        check_balance(trials)
    record = _record(trials, fixed)
    told = "tasks" if unit == "task" != first.unit else first.told_by
    record = replace(
        record,
        graded=_graded(filled, episodes),
        outcome=first.scoring.words,
        unit=unit,
        episodes=episodes,
        incidents=incidents,
        sources={name: digest for log in logs for name, digest in log.sources.items()},
    )
    return replace(record, understood=understood(record, files_of(logs), told, notes))


def _graded(logs: Sequence[Log], episodes: int | None) -> bool | None:
    """Whether costs between 0 and 1 may occur; None if no log says it, and none did."""
    said = {log.scoring.graded for log in logs}
    if episodes != 1 or True in said:
        return True
    return None if None in said else False


def _check_alike(logs: Sequence[Log]) -> None:
    """An error if logs are scored in different ways, or have different kinds of environments."""
    first = logs[0]
    for log in logs[1:]:
        one, other = first.scoring, log.scoring
        if one.rule != other.rule or {one.graded, other.graded} == {True, False}:
            raise ValueError(
                f"{first.file} is read as {one.words}, and {log.file} as {other.words}: score all "
                "files in one way (--outcome)"
            )
        if (first.unit, first.numbered) != (log.unit, log.numbered):
            raise ValueError(
                f"environments are told by {first.told_by or 'nothing'} in {first.file} and by "
                f"{log.told_by or 'nothing'} in {log.file}: say --environment COLUMN"
            )


def _check_scales(logs: Sequence[Log]) -> None:
    """An error if the scores of one policy lie between 0 and 1, and those of another go far beyond.

    A fraction has to be among them: a hopeless policy may well have scores of 0 and 1 out of 100.
    """
    scores: dict[str, list[float]] = {}
    for log in logs:
        if log.scoring.rule[:1] != ("scale",):
            return
        worst, best = log.scoring.rule[1:3]
        for row in log.rows:
            value = worst + (1 - (row.cost or 0.0)) * (best - worst)
            scores.setdefault(row.policy, []).append(value)
    if not scores:
        return
    far = max(scores, key=lambda name: max(scores[name]))
    for name, values in scores.items():
        low, high = min(values), max(values)
        fraction = any(1e-9 < value % 1 < 1 - 1e-9 for value in values)
        if low >= 0 and high <= 1 and fraction and max(scores[far]) > FAR:
            raise ValueError(
                f"all of {quoted(name)} lie between 0 and 1, and those of {quoted(far)} reach "
                f"{max(scores[far]):g}: write all on one scale"
            )


def _without_coming(log: Log) -> Log:
    """The log without the rows at its end that have no outcome yet, as in a schedule."""
    rows = list(log.rows)
    while rows and rows[-1].cost is None:
        rows.pop()
    return replace(log, rows=rows)


def _without_missing(
    logs: Sequence[Log], options: LogOptions, notes: list[str]
) -> tuple[list[Log], dict[str, int]]:
    """The logs with a cost for every trial, and the numbers of incidents."""
    untried, failures, kept = 0, 0, []
    for log in logs:
        rows = []
        for row in log.rows:
            if row.cost is not None:
                rows.append(row)
            elif options.missing is None:
                raise ValueError(
                    f"{log.where(row)}: the outcome of {quoted(row.policy)} is missing, which is "
                    "often a failure: say --missing failure, or --missing untried if there was no "
                    "trial"
                )
            elif options.missing == "failure":
                rows.append(row._replace(cost=1.0))
                failures += 1
            else:
                untried += 1
        kept.append(replace(log, rows=rows))
    gone = {row.policy for log in logs for row in log.rows}
    gone -= {row.policy for log in kept for row in log.rows}
    if gone:
        raise ValueError(f"the policy {quoted(min(gone))} has no trials: leave it out of the log")
    if untried:
        notes.append(f"{untried} without an outcome left out as not tried")
    if failures:
        notes.append(f"{failures} without an outcome counted as failures")
    broken = sum(row.broken for log in logs for row in log.rows)
    if broken:
        notes.append(f"{broken} that broke off counted as failures")
    counts = {"broken": broken, "missing": failures, "untried": untried}
    return kept, {kind: count for kind, count in counts.items() if count}


# ---- environments -------------------------------------------------------------------------------


def _placed(logs: Sequence[Log], options: LogOptions, unit: str, pairs: bool) -> list[Placed]:
    """Every trial with the name of its environment, which is the same for equal environments."""
    rows = [(log, row) for log in logs for row in log.rows]
    known = [row for _, row in rows if row.environment is not None]
    if known and len(known) < len(rows):
        raise ValueError("some of the files tell environments apart, and others do not")
    if rows and not known and options.paired:
        raise ValueError(
            "--paired: no column numbers the trials, so that nothing tells which are pairs: add a "
            "column such as episode"
        )
    numbered = any(log.numbered for log in logs)
    asked = pairs or options.paired is not None
    paired = options.paired is not False
    if numbered:
        paired = asked and _is_paired(logs, options, unit)
    placed = []
    for number, (log, row) in enumerate(rows, 1):
        name = f"trial {number}"
        if row.environment is not None:
            name = f"{unit} {row.environment}" if numbered else row.environment
            name = name if paired else f"{row.policy} / {name}"
        placed.append(Placed(log, row, f"{row.task} / {name}" if row.task is not None else name))
    return placed


def _is_paired(logs: Sequence[Log], options: LogOptions, unit: str) -> bool:
    """Whether equal numbers are equal environments; an error if it matters and was not said."""
    if options.paired is not None:
        return options.paired
    of: dict[tuple[str | None, str | None], str] = {}
    for log in logs:
        for row in log.rows:
            number = row.environment
            if number is None or of.setdefault((row.task, number), row.policy) == row.policy:
                continue
            raise ValueError(
                f"{files_of(logs)}: several policies have the {unit} {quoted(number)}: say "
                "--paired if trials of the same number were in the same environment for every "
                "policy, else --unpaired"
            )
    return False


# ---- the record ---------------------------------------------------------------------------------


def _record(trials: Sequence[Trial], fixed: bool) -> Trials:
    policies = {name: i for i, name in enumerate(dict.fromkeys(t.policy for t in trials))}
    names = {name: i for i, name in enumerate(dict.fromkeys(t.environment for t in trials))}
    tasks = {name: i for i, name in enumerate(dict.fromkeys(t.task or "" for t in trials))}
    task_of = {trial.environment: tasks[trial.task or ""] for trial in trials}
    environment = np.array([names[trial.environment] for trial in trials], np.intp)
    links = tuple(trial.link for trial in trials)
    return Trials(
        policies=tuple(policies),
        policy=np.array([policies[trial.policy] for trial in trials], np.intp),
        environments=tuple(names),
        environment=environment,
        costs=np.array([trial.cost for trial in trials], float) + 0.0,
        graded=False,
        outcome="",
        unit="",
        shared=len({(t.policy, t.environment) for t in trials}) > len(names),
        tasks=tuple(tasks) if fixed else (),
        task=np.array([task_of[name] for name in names], np.intp) if fixed else None,
        links=links if any(links) else (),
    )
