"""Several episodes of a policy in one environment: one trial, with their mean cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.rows import Log, Row

OPTIONAL_STOPPING = "to repeat until a success turns a failure rate of 0.50 into 0.31"


class Placed(NamedTuple):
    """A trial whose environment is known, or is its own."""

    log: Log
    row: Row
    environment: str


@dataclass(frozen=True)
class Trial:
    """The episodes of a policy in one environment."""

    policy: str
    environment: str
    task: str | None
    cost: float
    link: str
    episodes: int


def average_episodes(
    placed: Sequence[Placed], options: LogOptions, notes: list[str]
) -> tuple[list[Trial], int | None]:
    """One trial for each policy and environment, and the number of episodes in each."""
    groups: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for each in placed:
        groups[each.row.policy, each.environment].append(each)
    repeated = [group for group in groups.values() if len(group) > 1]
    for group in repeated:
        _check_one_file(group)
    if options.episodes is None and repeated:
        _check_copies(repeated, len(groups))
    sizes = {len(group) for group in groups.values()}
    if options.episodes == "first" and repeated:
        left = len(placed) - len(groups)
        notes.append(f"only the first episode in each environment counts, {left} left out")
        groups = {key: group[:1] for key, group in groups.items()}
        sizes = {1}
    elif len(sizes) > 1 and options.episodes is None:
        raise _unequal(groups.values())
    episodes = 1 if not sizes else sizes.pop() if len(sizes) == 1 else None
    if episodes != 1:
        number = episodes or "different numbers of"
        notes.append(f"the mean of {number} episodes is one trial")
    return [_trial(group) for group in groups.values()], episodes


def _trial(group: Sequence[Placed]) -> Trial:
    row = group[0].row
    cost = sum(each.row.cost or 0.0 for each in group) / len(group)
    link = next((each.row.link for each in group if each.row.link), "")
    return Trial(row.policy, group[0].environment, row.task, min(cost, 1.0), link, len(group))


def _check_one_file(group: Sequence[Placed]) -> None:
    other = next((each for each in group if each.log is not group[0].log), None)
    if other:
        raise ValueError(
            f"{quoted(other.row.policy)} in {quoted(other.environment)} is in two files, "
            f"{group[0].log.file} and {other.log.file}: give each trial once"
        )


def _check_copies(repeated: Sequence[Sequence[Placed]], groups: int) -> None:
    """An error if all trials that are repeated are the same in every column."""
    if any(len({each.row.cells for each in group}) > 1 for group in repeated):
        return
    first, second = repeated[0][:2]
    sizes = {len(group) for group in repeated}
    if len(repeated) == groups and sizes == {2}:
        problem = "every trial is recorded twice"
    else:
        again = second.log.where(second.row)
        problem = f"{again}: the same as {first.log.place} {first.row.line}"
    raise ValueError(
        f"{problem} ({first.log.file}): remove the copies, or, if they are episodes, number them "
        "in a column, or say --episodes first"
    )


def _unequal(groups: Iterable[Sequence[Placed]]) -> ValueError:
    ordered = sorted(groups, key=len)
    fewest, most = ordered[0], ordered[-1]
    few, many = (
        f"{len(group)} of {quoted(group[0].row.policy)} in {quoted(group[0].environment)}"
        for group in (fewest, most)
    )
    return ValueError(
        f"the numbers of episodes differ, {few} and {many}: say --episodes declared if they were "
        f"fixed beforehand, or --episodes first ({OPTIONAL_STOPPING})"
    )
