"""Trials of policies as they were recorded, and what a certificate from them has to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.checks import check_names, checked_costs
from pacbayes_control.certify.files import check_record, has_type

FILE = "trials.json"  # in a run or a comparison that was made from trials
COMPARISON = "comparison.json"  # in the folder of a comparison
LOOKS = "other looks at these trials"  # the budget's name for what they have spent of δ
FORMAT = 1
MOST = 2_000_000  # trials in a file
ANONYMOUS = ("episode", "trial", "row", "evaluation")  # units of trials that name no environment


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials in the order in which they were recorded: one of a policy in an environment.

    Several episodes of a policy in one environment are one trial, with their mean cost. If nothing
    tells which environment a trial was in, it has one of its own.
    """

    policies: tuple[str, ...]  # names, in the order of their first trials
    policy: NDArray[np.intp]  # (trials,): whose trial it is
    environments: tuple[str, ...]  # names, in the order of their first trials
    environment: NDArray[np.intp]  # (trials,): where it was
    costs: NDArray[np.float64]  # (trials,): from 0, the best outcome, to 1
    graded: bool | None  # whether costs between 0 and 1 may occur; None if it is not said
    outcome: str  # how a trial is scored, in words
    unit: str  # the kind of environment, in a word or two: seed, site, episode
    shared: bool  # whether policies were tried in the same environments
    tasks: tuple[str, ...] = ()  # of a fixed list, if the promise is about the mean over it
    task: NDArray[np.intp] | None = None  # (environments,): its task; None without such a list
    episodes: int | None = 1  # in each trial; None if they differ, as declared beforehand
    links: tuple[str, ...] = ()  # to a video or a log of each trial; empty strings, or no entries
    incidents: Mapping[str, int] = field(default_factory=dict)  # by kind, as in `Costs.incidents`
    sources: Mapping[str, str] = field(default_factory=dict)  # files, each with its SHA-256
    understood: str = ""  # how the log was read, in a line

    @classmethod
    def from_costs(
        cls,
        costs: ArrayLike,
        policies: Sequence[str] = (),
        environments: Sequence[str] = (),
        *,
        graded: bool | None = None,
    ) -> Trials:
        """Trials of every policy in every environment, from a table of costs.

        Args:
            costs: (environments, policies), from 0, the best outcome, to 1
            policies: their names; by default numbers
            environments: their names; by default numbers
            graded: whether costs between 0 and 1 may occur; None if it is not said and none did

        >>> trials = Trials.from_costs([[0, 1], [0, 0], [0, 1]], ["new", "old"])
        >>> trials.table.mean(axis=0).round(2).tolist(), len(trials)
        ([0.0, 0.67], 6)
        """
        table = checked_costs(costs)
        rows, columns = table.shape
        where, whose = np.divmod(np.arange(table.size), columns)
        found = cls(
            policies=tuple(policies) or tuple(f"policy {i}" for i in range(columns)),
            policy=whose,
            environments=tuple(environments) or tuple(f"environment {i}" for i in range(rows)),
            environment=where,
            costs=table.ravel().astype(float),
            graded=True if graded is None and table.dtype != np.uint8 else graded,
            outcome="as recorded in a table of costs",
            unit="environment",
            shared=columns > 1,
        )
        check_names(found.policies, columns)
        check_names(found.environments, rows, "environment")
        found.check()
        return found

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def counts(self) -> NDArray[np.intp]:
        """The number of trials of each policy; shape (policies,)."""
        return np.bincount(self.policy, minlength=len(self.policies))

    @property
    def table(self) -> NDArray[np.float64]:
        """Costs by environment and policy, NaN where there was no trial."""
        table = np.full((len(self.environments), len(self.policies)), np.nan)
        table[self.environment, self.policy] = self.costs
        return table

    def of(self, policy: int) -> NDArray[np.intp]:
        """The numbers of a policy's trials, as recorded."""
        return np.flatnonzero(self.policy == policy)

    def to_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        arrays = {name: getattr(self, name) for name in ("policy", "environment", "costs", "task")}
        lists = {name: None if a is None else a.tolist() for name, a in arrays.items()}
        names = {name: list(getattr(self, name)) for name in ("policies", "environments", "tasks")}
        plain = ("graded", "outcome", "unit", "shared", "episodes", "understood")
        more = {"links": list(self.links), "incidents": dict(self.incidents)}
        more |= {"sources": dict(self.sources), "format": FORMAT}
        return lists | names | more | {name: getattr(self, name) for name in plain}

    @classmethod
    def from_record(cls, record: Any) -> Trials:
        """Trials from the result of `to_record`, which may come from any file."""
        texts, numbers = list[str], list[int]
        kinds = {"policies": texts, "environments": texts, "tasks": texts, "links": texts}
        kinds |= {"policy": numbers, "environment": numbers, "task": numbers | None}
        kinds |= {
            "costs": list[float],
            "graded": bool | None,
            "shared": bool,
            "episodes": int | None,
        }
        kinds |= {"outcome": str, "unit": str, "understood": str, "format": int}
        kinds |= {"incidents": dict[str, int], "sources": dict[str, str]}
        check_record(record, kinds, "trials")
        if record.pop("format") != FORMAT:
            raise ValueError(f"trials.json is not of format {FORMAT}")
        for name in ("policies", "environments", "tasks", "links"):
            record[name] = tuple(record[name])
        record["costs"] = np.array(record["costs"], float)
        for name in ("policy", "environment", "task"):
            if record[name] is not None:
                if not all(0 <= number < MOST for number in record[name]):
                    raise ValueError("trials.json has trials without names")
                record[name] = np.array(record[name], dtype=np.intp)
        found = cls(**record)
        found.check()
        return found

    def check(self) -> None:
        """Raise ValueError unless the record is consistent, and its text can be shown."""
        trials = len(self.costs)
        sizes = {len(self.policy), len(self.environment), len(self.links) or trials}
        if sizes != {trials} or not 0 < trials <= MOST:
            raise ValueError("trials.json does not have one entry of each kind for each trial")
        check_names(self.policies, len(self.policies))
        check_names(self.environments, len(self.environments), "environment")
        check_names(self.tasks, len(self.tasks), "task")
        whose = [(self.policy, self.policies), (self.environment, self.environments)]
        if self.task is not None:
            whose.append((self.task, self.tasks))
            if len(self.task) != len(self.environments):
                raise ValueError("trials.json does not have a task for each environment")
        for numbers, names in whose:
            if sorted(set(numbers.tolist())) != list(range(len(names))):
                raise ValueError("trials.json has names without trials, or trials without names")
        pairs = self.environment * len(self.policies) + self.policy
        if bool(self.tasks) != (self.task is not None) or len(np.unique(pairs)) != trials:
            raise ValueError("trials.json has a trial twice, or tasks without trials")
        if self.shared != (trials > len(self.environments)):
            raise ValueError("trials.json is wrong about whether environments are shared")
        if not np.all((self.costs >= 0) & (self.costs <= 1)):
            raise ValueError("trials.json has costs outside [0, 1]")
        if not self.graded and not np.all((self.costs == 0) | (self.costs == 1)):
            raise ValueError("trials.json has graded costs, and does not say so")
        words = [self.outcome, self.unit, self.understood, *self.links, *self.sources]
        if not all(text.isprintable() for text in [*words, *self.sources.values()]):
            raise ValueError("trials.json holds characters that cannot be shown")


@dataclass(frozen=True)
class TrialFacts:
    """Facts about trials that a certificate has to tell, from the origin of its costs."""

    unit: str | None = None  # the kind of environment
    candidates: int | None = None  # policies that were ever tried in these environments
    tasks: tuple[int, ...] = ()  # the task of each row, if the promise is about their mean

    @classmethod
    def of(cls, origin: Mapping[str, Any], rows: int) -> TrialFacts:
        """Those of an origin that may hold anything."""
        unit, tasks = origin.get("unit"), origin.get("tasks", ())
        candidates = origin.get("candidates")
        if unit is not None and not (isinstance(unit, str) and unit and unit.isprintable()):
            raise ValueError("the costs' origin does not say the unit in plain words")
        if candidates is not None and not (has_type(candidates, int) and 0 < candidates < 2**53):
            raise ValueError("the costs' origin does not have the number of candidates")
        if not has_type(tasks, list[int]):
            raise ValueError("the costs' origin does not have the tasks of its trials")
        if len(tasks):
            possible = len(tasks) == rows and min(tasks) >= 0 and max(tasks) < rows
            if not possible or len(set(np.bincount(tasks))) > 1:
                raise ValueError("the costs' origin does not have as many trials of each task")
        return cls(unit, candidates, tuple(tasks))

    @property
    def task_count(self) -> int | None:
        """The number of tasks of a fixed list; None without one."""
        return max(self.tasks) + 1 if self.tasks else None

    def in_rounds(self, order: NDArray[np.intp]) -> NDArray[np.intp]:
        """An order in rounds, of one trial of each task, which keeps the order in each task."""
        if not self.tasks:
            return order
        tasks = np.array(self.tasks)[order]
        round_of = np.empty(len(order), dtype=np.intp)
        for task in range(max(self.tasks) + 1):
            mine = np.flatnonzero(tasks == task)
            round_of[mine] = np.arange(len(mine))
        return order[np.lexsort((tasks, round_of))]
