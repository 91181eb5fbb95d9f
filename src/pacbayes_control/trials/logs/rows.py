"""The trials of one file before they are put together: by name, and with their lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pacbayes_control.certify.files import hash_file
from pacbayes_control.certify.text import printable, quoted
from pacbayes_control.trials.logs.options import LogOptions


class Row(NamedTuple):
    """One trial as a file records it."""

    policy: str
    environment: str | None  # None if nothing tells which one it was
    task: str | None
    cost: float | None  # None if the outcome is missing
    line: int  # where it is in the file
    link: str = ""
    cells: tuple[str, ...] = ()  # everything that is recorded of it, to recognise copies
    broken: bool = False  # whether it broke off, which is a failure


@dataclass(frozen=True)
class Scoring:
    """How outcomes were read as costs."""

    words: str  # such as: “success” = 1 is a success
    graded: bool | None  # whether costs between 0 and 1 may occur; None if it is not said
    rule: tuple[Any, ...] = ()  # the same for files that are scored in the same way


@dataclass(frozen=True)
class Log:
    """The trials in one file, and what it says about their environments."""

    file: str
    rows: list[Row]
    scoring: Scoring
    unit: str = "trial"  # the kind of environment
    told_by: str = ""  # what tells environments apart: column “seed”
    numbered: bool = False  # whether an environment is a mere number of an episode or a trial
    place: str = "line"  # the word for the position of a row
    notes: tuple[str, ...] = ()  # for `Trials.understood`
    sources: Mapping[str, str] = field(default_factory=dict)  # files, each with its SHA-256

    def where(self, row: Row) -> str:
        """The file and the position of a trial, for an error."""
        return f"{self.file}, {self.place} {row.line}"


def files_of(logs: Sequence[Log]) -> str:
    """The file, or the number of files."""
    return logs[0].file if len(logs) == 1 else f"{len(logs)} files"


def shown_name(path: Path) -> str:
    """A file's name for an error or a report, on one line."""
    return " ".join(printable(path.name).split())


def reason(error: Exception) -> str:
    """The message of another library's error, on one line."""
    return " ".join(printable(str(error), 200).split())


def sources_of(paths: Sequence[Path]) -> dict[str, str]:
    """Each file as it was given, with its SHA-256."""
    return {printable(str(path)).replace("\n", "\\n"): hash_file(path) for path in paths}


def check_no_columns(file: str, options: LogOptions, *names: str) -> None:
    """An error if an option was given that this kind of log has no use for."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            raise ValueError(
                f"{file}: --{name} {quoted(str(value))} does not apply to this kind of log, which "
                f"says that itself: leave out --{name}"
            )
