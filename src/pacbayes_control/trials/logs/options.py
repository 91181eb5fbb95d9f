"""How to read an evaluation log where it does not say itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pacbayes_control.tasks.options import option


@dataclass(frozen=True)
class LogOptions:
    """What an evaluation log does not say itself."""

    TITLE: ClassVar[str] = "What the logs do not say"

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
