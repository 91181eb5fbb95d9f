"""Which column of a table holds the policy, the environment, the task and the outcome.

Columns are recognised by their usual names, whatever the case and the punctuation, also behind a
prefix as in `eval/success` and `params.seed`. Where several columns may have a role, one is taken
only if the choice makes no difference, or if a success is recorded beside scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.outcomes import is_missing
from pacbayes_control.trials.logs.sheets import Sheet

POLICY = (
    *("policy", "policyname", "policyid", "policies", "model", "modelname", "modelid"),
    *("checkpoint", "ckpt", "method", "controller", "arm", "variant", "agent"),
)
ENVIRONMENT = (
    *("environment", "env", "environmentname", "seed", "envseed", "environmentseed"),
    *("scene", "sceneid", "scenename", "site", "siteid", "object", "objectid", "objectname"),
    *("initialcondition", "initialconditions", "initialstate"),
)
NUMBER = (
    *("episode", "episodeix", "episodeid", "episodeindex", "episodenumber", "episodeno"),
    *("trial", "trialid", "trialindex", "trialnumber", "trialno", "index"),
)
TASK = ("task", "taskid", "taskname", "taskindex", "suite", "tasksuite", "benchmark", "envid")
STEP = (
    *("step", "stepindex", "stepid", "timestep", "frame", "frameindex", "frameid"),
    *("trainingstep", "trainstep", "trainsteps", "trainingsteps", "globalstep", "epoch"),
    *("iteration", "iter"),
)
SPLIT = ("split", "phase", "stage", "dataset", "subset", "mode")  # such as train and eval
LINK = ("video", "videopath", "videourl", "recording", "url", "link", "log", "logfile")
KINDS = {
    **dict.fromkeys(
        ("success", "succeeded", "issuccess", "successful", "pass", "passed", "ispass"), "success"
    ),
    **dict.fromkeys(
        ("fail", "failed", "failure", "isfailure", "crash", "crashed", "collision", "collided"),
        "failure",
    ),
    **dict.fromkeys(("outcome", "outcomes", "result", "results"), ""),
    **dict.fromkeys(("score", "progress"), "score"),
    "cost": "cost",
    **dict.fromkeys(
        ("reward", "sumreward", "maxreward", "totalreward", "episodereward", "rewards"), "reward"
    ),
    **dict.fromkeys(("return", "episodereturn", "totalreturn", "returns"), "reward"),
    **dict.fromkeys(("loss", "distance"), "loss"),
}
GRADED = ("score", "cost", "reward", "loss")


@dataclass(frozen=True)
class Roles:
    """The columns of a table with one row a trial, by their positions."""

    policy: int | None  # None if the file is the policy
    outcome: int
    environment: int | None  # None if no column tells
    numbered: bool  # whether that is a mere number of an episode or a trial
    tasks: tuple[int, ...]  # several are read as one, such as suite and task
    link: int | None
    notes: tuple[str, ...]  # columns that were not used, in words


def plain_name(name: str) -> str:
    """A name without case and punctuation.

    >>> plain_name("Is Success"), plain_name("episode_ix")
    ('issuccess', 'episodeix')
    """
    return re.sub(r"[\W_]+", "", name.casefold())


def kind_of(name: str) -> str | None:
    """How a column with this header counts; "" if it is an outcome of unknown direction.

    >>> kind_of("eval/success"), kind_of("Cost"), kind_of("result"), kind_of("steps")
    ('success', 'cost', '', None)
    """
    return next((KINDS[name] for name in _spellings(name) if name in KINDS), None)


def _spellings(name: str) -> tuple[str, str]:
    return plain_name(name), plain_name(re.split(r"[./]", name.strip("./"))[-1])


def is_label(name: str) -> bool:
    """Whether a column with this header tells trials apart, so that it is not a policy.

    >>> is_label("Scene"), is_label("episode_id"), is_label("act")
    (True, True, False)
    """
    labels = (*ENVIRONMENT, *NUMBER, *TASK, *LINK)
    return any(spelling in labels for spelling in _spellings(name))


def words_of(name: str) -> str:
    """A header as a word or two.

    >>> words_of("env_seed"), words_of("params.Site")
    ('env seed', 'site')
    """
    words = re.sub(r"[\W_]+", " ", re.split(r"[./]", name.strip("./"))[-1]).strip().lower()
    return {"env": "environment", "": "environment"}.get(words, words)


def find_roles(sheet: Sheet, options: LogOptions) -> Roles | None:
    """The role of each column; None if there is no policy and no outcome, as in a matrix."""
    policies, outcomes = _matches(sheet, POLICY), _outcomes(sheet)
    named = (options.policy, options.environment, options.outcome)
    if not policies and not outcomes and named == (None, None, None):
        return None
    notes: list[str] = []
    policy = _named(sheet, options.policy)
    policy = _policy(sheet, policies) if policy is None else policy
    outcome = _named(sheet, options.outcome)
    outcome = _outcome(sheet, outcomes, notes) if outcome is None else outcome
    if outcome is None or (policy is None and _may_name_policies(sheet, outcome)):
        missing = "outcome" if outcome is None else "policy"
        raise unclear(sheet, f"no column is recognised as the {missing}")
    if policy is None:
        notes.append("the file is the policy")
    tasks = _matches(sheet, TASK)
    environment, numbered = _environment(sheet, options, tasks, notes)
    tasks = _tasks(sheet, [at for at in tasks if at not in (policy, environment, outcome)])
    _check_splits(sheet, policy)
    links = _matches(sheet, LINK)
    used = tuple(at for at in (policy, outcome, environment, *tasks) if at is not None)
    for at in used:
        if sheet.header[at] in sheet.nested:
            raise ValueError(
                f"{sheet.file}: column {quoted(sheet.header[at])} holds lists or records: give a "
                "table with one value in each cell"
            )
    if len(set(used)) < len(used):
        raise ValueError(f"{sheet.file}: one column cannot be two of policy, environment, outcome")
    link = links[0] if links else None
    return Roles(policy, outcome, environment, numbered, tasks, link, tuple(notes))


def _may_name_policies(sheet: Sheet, outcome: int) -> bool:
    """Whether a column of unknown meaning holds words, so that it may be the policy."""
    for at, name in enumerate(sheet.header):
        words = any(sheet.table.number(cell) is None for cell in sheet.column(at))
        if at != outcome and words and not is_label(name) and kind_of(name) is None:
            return True
    return False


def _check_splits(sheet: Sheet, policy: int | None) -> None:
    """An error if a column tells apart, say, trials in training from those of an evaluation."""
    for at in _matches(sheet, SPLIT):
        values = list(dict.fromkeys(sheet.column(at)))
        if len(values) > 1 and not (policy is not None and _determines(sheet, policy, at)):
            listed = " and ".join(quoted(value, 30) for value in values[:3])
            raise ValueError(
                f"{sheet.file}: column {quoted(sheet.header[at])} has {listed}: keep the rows of "
                "one kind, or rename the column if they belong together"
            )


def unclear(sheet: Sheet, problem: str) -> ValueError:
    """An error that lists the columns, and the options that say which is which."""
    columns = ", ".join(quoted(name, 30) for name in sheet.header[:20])
    more = f" and {len(sheet.header) - 20} more" if len(sheet.header) > 20 else ""
    return ValueError(
        f"{sheet.file}: {problem} (columns: {columns}{more}): say --policy COLUMN, --environment "
        "COLUMN and --outcome COLUMN, of a table with one row a trial"
    )


def check_one_row_a_trial(sheet: Sheet, roles: Roles) -> None:
    """An error if rows of one trial differ in a column of steps, of an episode or of training.

    Their mean is no outcome: a crash at the last of 50 steps would be a cost of 0.02.
    """
    used = (roles.policy, roles.environment, roles.outcome, *roles.tasks)
    same = [at for at in (*used, *_matches(sheet, NUMBER)) if at not in (None, roles.outcome)]
    for step in set(_matches(sheet, STEP)) - {*used}:
        first: dict[tuple[str, ...], int] = {}
        numbers_rows = len(set(sheet.column(step))) == len(sheet.table.rows)
        if numbers_rows and roles.environment is not None:
            continue
        for at, row in enumerate(sheet.table.rows):
            before = first.setdefault(tuple(row[i] for i in same if i is not None), at)
            if sheet.table.rows[before][step] == row[step]:
                continue
            own = "" if roles.environment is not None else " (--environment, if each row is one)"
            raise ValueError(
                f"{sheet.where(at)}: the same trial as in {sheet.place} "
                f"{sheet.table.lines[before]}, at another {quoted(sheet.header[step])}: give one "
                f"row a trial{own}; checkpoints are policies of their own (--policy)"
            )


# ---- one role each ------------------------------------------------------------------------------


def _matches(sheet: Sheet, usual: Sequence[str]) -> list[int]:
    """Columns with one of the usual names, in the order of these names."""
    ranks = []
    for at, name in enumerate(sheet.header):
        found = [usual.index(spelling) for spelling in _spellings(name) if spelling in usual]
        if found:
            ranks.append((found[0], at))
    return [at for _, at in sorted(ranks)]


def _outcomes(sheet: Sheet) -> list[int]:
    return [at for at, name in enumerate(sheet.header) if kind_of(name) is not None]


def _named(sheet: Sheet, name: str | None) -> int | None:
    """The column that an option names: exactly, or else but for case and punctuation."""
    if name is None:
        return None
    if name in sheet.header:
        return sheet.header.index(name)
    near = [at for at, each in enumerate(sheet.header) if plain_name(each) == plain_name(name)]
    if len(near) == 1:
        return near[0]
    columns = ", ".join(quoted(each, 30) for each in sheet.header[:20])
    raise ValueError(f"{sheet.file} has no column {quoted(name)}: its columns are {columns}")


def _varying(sheet: Sheet, found: list[int]) -> list[int]:
    """Columns with more than one value, or the first column if there are none."""
    varying = [at for at in found if len(set(sheet.column(at))) > 1]
    return varying or found[:1]


def _is_constant(sheet: Sheet, column: int) -> bool:
    return len(set(sheet.column(column))) == 1


def _determines(sheet: Sheet, one: int, other: int) -> bool:
    """Whether rows that agree in one column agree in the other."""
    pairs = {(row[one], row[other]) for row in sheet.table.rows}
    return len(pairs) == len({first for first, _ in pairs})


def _policy(sheet: Sheet, found: list[int]) -> int | None:
    if not found:
        return None
    first, *others = _varying(sheet, found)
    if all(_determines(sheet, first, other) for other in others):
        return first
    raise _several(sheet, "policy", [first, *others])


def _outcome(sheet: Sheet, found: list[int], notes: list[str]) -> int | None:
    plain = [at for at in found if kind_of(sheet.header[at]) not in GRADED]
    chosen = plain or found
    if len(chosen) > 1:
        raise _several(sheet, "outcome", chosen)
    unused = [quoted(sheet.header[at]) for at in found if at not in chosen]
    if unused:
        notes.append(f"{' and '.join(unused)} not used (--outcome)")
    return chosen[0] if chosen else None


def _environment(
    sheet: Sheet, options: LogOptions, tasks: list[int], notes: list[str]
) -> tuple[int | None, bool]:
    """The column of the environment, and whether it is a mere number.

    `tasks` gets a column env or environment that varies beside a seed: that is a task.
    """
    named, numbers = _named(sheet, options.environment), _matches(sheet, NUMBER)
    filled = [
        at for at in _matches(sheet, ENVIRONMENT) if not all(map(is_missing, sheet.column(at)))
    ]
    found = _varying(sheet, filled)
    seeds = [at for at in found if plain_name(sheet.header[at]).endswith("seed")]
    general = [at for at in found if _spellings(sheet.header[at])[1] in ("env", "environment")]
    if len(seeds) == 1 and general and named in (None, *seeds):
        tasks.extend(general)
        found = [at for at in found if at not in general]
    if named is not None:
        others = [quoted(sheet.header[at]) for at in found if at != named]
        if others and named not in tasks:
            notes.append(f"{' and '.join(others)} not used")
        return named, named in numbers
    if len(found) > 1:
        raise _several(sheet, "environment", found)
    numbers = _varying(sheet, [at for at in numbers if any(sheet.column(at))])
    if found and _is_constant(sheet, found[0]) and numbers and not _is_constant(sheet, numbers[0]):
        notes.append(f"{quoted(sheet.header[found[0]])} is the same in all rows, and not used")
    elif found:
        return found[0], False
    if len(numbers) > 1:
        raise _several(sheet, "environment", numbers)
    return (numbers[0], True) if numbers else (None, False)


def _tasks(sheet: Sheet, found: list[int]) -> tuple[int, ...]:
    """The columns that tell tasks apart: without those that follow from another of them."""
    kept = _varying(sheet, found)
    for at in reversed(kept[:]):
        if any(_determines(sheet, other, at) for other in kept if other != at):
            kept.remove(at)
    return tuple(sorted(kept))


def _several(sheet: Sheet, role: str, found: list[int]) -> ValueError:
    names = " and ".join(quoted(sheet.header[at]) for at in found)
    return ValueError(
        f"{sheet.file}: columns {names} may each be the {role}: say --{role} COLUMN for one of them"
    )
