"""Trials of policies as they were recorded, and how to read a log where it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.options import option


@dataclass(frozen=True)
class LogOptions:
    """What an evaluation log does not say itself."""

    policy: str | None = option(None, "Column with the policy.", metavar="COLUMN")
    environment: str | None = option(
        None, "Column with the environment: seed, site, object, scene.", metavar="COLUMN"
    )
    outcome: str | None = option(None, "Column with the outcome.", metavar="COLUMN")
    success: str | None = option(
        None, "The outcome that is a success, such as 1, true or done.", metavar="VALUE"
    )
    scale: str | None = option(
        None,
        "Limits of a score, known beforehand, the worst first: 0:100 for a score in per cent, 1:0 "
        "for costs.",
        metavar="WORST:BEST",
    )
    tasks: str | None = option(
        None,
        "Of a log with several tasks: fixed (the promise is about the mean over these tasks), "
        "drawn (a new environment is another task), or the name of one of them.",
        metavar="fixed|drawn|NAME",
    )
    episodes: Literal["declared", "first"] | None = option(
        None,
        "Of several episodes in one environment: declared (their numbers were fixed beforehand), "
        "or only the first counts.",
    )
    missing: Literal["failure", "untried"] | None = option(
        None, "Trials without an outcome are failures, or were not carried out."
    )
    paired: bool | None = option(
        None,
        "Whether trials of the same number, where nothing else tells, were in the same environment "
        "for every policy.",
        flag="--paired/--unpaired",
    )


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
    graded: bool  # whether costs between 0 and 1 may occur
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
