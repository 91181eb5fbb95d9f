"""A log that grows during a day of trials, read again whenever it has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pacbayes_control.certify.files import sha256
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.reading import read_trials

PAUSE = 0.5  # seconds between two looks at the file
CHANGED = "; earlier trials were changed or removed while the table was followed"
PATIENCE = 4  # looks at a file that cannot be read, as while a program saves it


def follow(
    file: str | Path,
    options: LogOptions,
    *,
    pause: float = PAUSE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Trials]:
    """The trials in a table, now and after each change of it, until the caller stops.

    An incomplete last line is not read yet, and rows without an outcome at the end are still to
    come. A file that does not exist yet is waited for. An error of the file is raised once it has
    lasted for a few looks. If trials that were read before are changed or removed later, then
    `understood` says so from there on: what was seen may have been the reason.

    Args:
        file: a table with one row a trial
        options: what the table does not say itself
        pause: seconds between two looks
        sleep: waits for so many seconds
    """
    file, seen, failures = Path(file), None, 0
    before: Trials | None = None
    changed = False
    if file.is_dir():
        raise ValueError(f"{file} is a folder: give the table to follow")
    while True:
        digest = sha256(file.read_bytes()) if file.is_file() else None
        if digest is not None and digest != seen:
            try:
                trials = read_trials([file], options, growing=True)
            except (ValueError, OSError):
                failures += 1
                if failures >= PATIENCE:
                    raise
            else:
                seen, failures = digest, 0
                changed = changed or (before is not None and not _goes_on(before, trials))
                before = trials
                yield replace(trials, understood=trials.understood + CHANGED * changed)
        sleep(pause)


def _goes_on(before: Trials, now: Trials) -> bool:
    """Whether the trials that were read before are still the first ones.

    A mean over several episodes may change, as more of them come in.
    """
    single = before.episodes == now.episodes == 1
    old, new = (
        [
            (trials.policies[p], trials.environments[e], cost if single else None)
            for p, e, cost in zip(trials.policy, trials.environment, trials.costs, strict=True)
        ]
        for trials in (before, now)
    )
    return new[: len(old)] == old
