"""Costs of a list of policies in more and more environments, each rolled out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.rollouts.evaluation import (
    checked_policies,
    described_by,
    evaluate,
    origin_of,
    table_of,
)
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.jobs import Job, Table
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.task import noise_of


@dataclass
class GrowingCosts:
    """The costs of the first environments of a set, which become more with each call.

    They are kept in the execution's store, if it has one, or else in memory.

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> growing = GrowingCosts(task, task.policies, task.environments(9, stream="example"))
    >>> [growing.of_first(n).environments for n in (4, 9)]
    [4, 9]
    """

    task: Task
    policies: NDArray  # one per row
    environments: Environments  # all that there may be
    names: Sequence[str] = ()  # of the policies
    execution: Execution = field(default_factory=Execution)
    table: Table = field(default_factory=lambda: np.empty((0, 0), np.uint8), repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)  # about rollouts in the table

    @property
    def store(self) -> Path | None:
        """The folder of finished rollouts, if there is one."""
        return None if self.execution.store is None else Path(self.execution.store)

    def of_first(self, n: int, remark: str = "") -> Costs:
        """The costs of the first n environments, not fewer than before.

        remark: on the work so far, for reports of progress.
        """
        total = len(self.environments) * len(self.policies)
        first, before = self.environments[:n], self.table.size
        execution = self.execution.counting_on(before, total, remark)
        if self.store is not None:
            found = evaluate(self.task, self.policies, first, self.names, execution=execution)
            self.execution = replace(self.execution, repeats_checked=True)
            return found
        policies = checked_policies(self.task, self.policies)
        noise = noise_of(self.task, first, None)
        if n > len(self.table):
            facts: dict[str, Any] = {}
            job = Job(self.task, self.environments[len(self.table) : n], policies, noise)
            self._add(table_of(job, execution, facts), facts)
        origin = origin_of(self.task, first, noise) | self.facts
        described = described_by(self.task, first)
        return Costs(self.table, self.names, origin, parameters=policies, described=described)

    def _add(self, part: Table, found: dict[str, Any]) -> None:
        """Add rows to the table, and what happened in their rollouts to the facts."""
        rows = len(self.table)
        late = [[row + rows, column] for row, column in found.get("timed_out", [])]
        counts = Counter(self.facts.get("incidents", {})) + Counter(found.get("incidents", {}))
        late = [*self.facts.get("timed_out", []), *late]
        self.facts = self.facts | found
        self.facts |= {"incidents": dict(counts)} if counts else {}
        self.facts |= {"timed_out": late} if late else {}
        self.table = np.concatenate([self.table, part]) if rows else part

    def tell(self, n: int, remark: str, *, last: bool = False) -> None:
        """Report progress after n environments."""
        done = n * len(self.policies)
        total = done if last else len(self.environments) * len(self.policies)
        self.execution.tell(done, total, remark)
