"""A page about a run: one HTML file that holds all it shows, and loads nothing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pacbayes_control
from pacbayes_control.certify.run import Run
from pacbayes_control.report.environments import environment_costs
from pacbayes_control.report.own_pictures import embedded_pictures
from pacbayes_control.report.packing import pack_within, replay_values
from pacbayes_control.report.replay import roll_out, why_no_replay
from pacbayes_control.report.sections import section_values
from pacbayes_control.report.templates import render
from pacbayes_control.report.words import not_reproduced
from pacbayes_control.rollouts.again import Again, roll_out_again
from pacbayes_control.tasks import Environments, Task, as_task
from pacbayes_control.tasks.registry import (
    recorded_class,
    recorded_environments,
    recorded_task,
    recorded_words,
)

MARK = '<meta name="generator" content="pbc report'  # of pages that may be overwritten
REPEATED = 24  # rollouts that are run again to compare their costs; or a few seconds' worth
SECTIONS = (  # the name of its template, its link at the top of the page, and its heading
    ("promise", "Promise", "What is promised"),
    ("budget", "Confidence", "How δ was spent"),
    ("methods", "Methods", "Bounds side by side"),
    ("posterior", "Policies", "The policies"),
    ("environments", "Environments", "Cost by environment"),
    ("pictures", "Pictures", "What it looks like"),
    ("replay", "Replay", "Watch the rollouts"),
    ("outlook", "More data", "More environments"),
    ("shift", "Shift", "If the world shifts"),
)


@dataclass(frozen=True)
class Page:
    """A page that was written."""

    path: Path
    size: int  # bytes
    replays: int  # rollouts that can be watched
    environments: int
    policies: int | None  # None for a Gaussian posterior
    again: Again  # recorded rollouts that were run again, and how many of them cost something else


def write_page(
    run: Run[Any],
    file: str | Path,
    task: Task | None = None,
    environments: Environments | None = None,
    name: str = "run",
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Write a page about a run; the same run gives the same bytes.

    Args:
        run: the run
        file: the HTML file to write
        task: the task that the run was learnt on, for the replays: it needs `scenes` and `paths`.
            A run of an installed robot names its task and environments itself
        environments: those that the run counts, drawn from the task
        name: of the run's folder
        pictures: files of the run's folder; those that are PNG and have a caption are shown
    """
    if (task is None) != (environments is None):
        raise ValueError("replays need both, the task and its environments: give the other too")
    if task is None:
        task, environments = _recorded(run)
    else:
        task = as_task(task)
    replay, packed = None, None
    reason = why_no_replay(run, task)
    if reason is None:
        full = roll_out(run, cast(Task, task), cast(Environments, environments))
        replay, packed = pack_within(full, environment_costs(run)[full.environments])
    again = Again(0, 0)
    if task is not None and environments is not None and reason != "":
        try:
            again = roll_out_again(run, task, environments, REPEATED if replay else None)
        except ValueError as error:
            reason = f"{reason or ''} No recorded cost was compared: {error}.".strip()
    known = recorded_class(run.costs)
    embedded = embedded_pictures(pictures or {}, known.captions if known else {})
    absent = {"pictures": not embedded, "replay": not replay}
    text = render(
        "page.html",
        run,
        **section_values(run),
        version=pacbayes_control.__version__,
        title=Path(name).name,
        shell_name=shlex.quote(name),
        robot=recorded_words(run.costs),
        sections=[section for section in SECTIONS if not absent.get(section[0])],
        alarm=not_reproduced(again),
        reason=reason,
        pictures=embedded,
        replay=replay,
        packed=packed,
        replay_values=replay_values(run, replay, packed) if replay and packed else "",
    ).encode()
    Path(file).write_bytes(text)
    replays, c = replay.rollouts if replay else 0, run.certificate
    return Page(Path(file), len(text), replays, c.environments, c.policies, again)


def _recorded(run: Run[Any]) -> tuple[Task, Environments] | tuple[None, None]:
    """The task and the environments of a run, if its own record names them."""
    try:
        task = recorded_task(run.costs)
        environments = recorded_environments(run.costs, task)
    except ValueError:
        return None, None
    return (task, environments) if len(environments) == run.costs.environments else (None, None)


def is_page(file: Path) -> bool:
    """Whether a file was written by `write_page`, and may be overwritten."""
    with file.open("rb") as stream:
        return MARK.encode() in stream.read(2000)
