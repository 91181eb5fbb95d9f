"""A page about a run: one HTML file that holds all it shows, and loads nothing."""

from __future__ import annotations

import base64
import shlex
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pacbayes_control
from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.trials import Trials
from pacbayes_control.report import rendering, summary
from pacbayes_control.report.clips import clip_section
from pacbayes_control.report.failure_plots import failure_section
from pacbayes_control.report.plots import PLOTS
from pacbayes_control.report.replay import pack_within, replay_values, roll_out
from pacbayes_control.report.sections import MEANING, section_values
from pacbayes_control.report.trial_plots import choice_plots
from pacbayes_control.report.trials import trial_values
from pacbayes_control.rollouts.again import Again, roll_out_again
from pacbayes_control.study.one_rollout import certified_column
from pacbayes_control.tasks import Environments, Task, as_task
from pacbayes_control.tasks.registry import recorded_class, recorded_environments, recorded_task

REPEATED = 24  # rollouts that are run again to compare their costs; or a few seconds' worth
SECTIONS = (  # the name of its template, its link at the top of the page, and its heading
    ("promise", "Promise", "What is promised"),
    ("trials", "Trials", "Every policy and its trials"),
    ("simulation", "Simulation", "How good the simulation is"),
    ("budget", "Confidence", "How δ was spent"),
    ("methods", "Methods", "Bounds side by side"),
    ("posterior", "Policies", "The policies"),
    ("environments", "Environments", "Cost by environment"),
    ("failures", "Failures", "Where it fails"),
    ("distribution", "Distribution", "The distribution of the cost"),
    ("pictures", "Pictures", "What it looks like"),
    ("replay", "Replay", "Watch the rollouts"),
    ("clips", "Watch", "Failures and successes"),
    ("outlook", "More data", "More environments"),
    ("shift", "Shift", "If the world shifts"),
)
MOST_BYTES = 4_200_000  # of rollouts, videos and pictures, as text: the page has less than 5 MB
LARGEST_PICTURE = 4 << 20  # bytes
MOST_PICTURES = 12


@dataclass(frozen=True)
class Page:
    """A page that was written."""

    path: Path
    size: int  # bytes
    replays: int  # rollouts that can be watched
    again: Again  # recorded rollouts that were run again, and how many of them cost something else


def write_page(
    run: Run[Any],
    file: str | Path,
    *,
    task: Task | None = None,
    environments: Environments | None = None,
    name: str = "run",
    pictures: Mapping[str, bytes] | None = None,
    trials: Trials | None = None,
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
        trials: of all policies, if the run is of one that was chosen by them
    """
    if (task is None) != (environments is None):
        raise ValueError("replays need both, the task and its environments: give the other too")
    robot, known = None, recorded_class(run.costs)
    with suppress(ValueError):  # of a record that does not name its task or its environments
        recorded = recorded_task(run.costs)
        robot = recorded.words
        if task is None:
            counted = recorded_environments(run.costs, recorded)
            if len(counted) == run.costs.environments:
                task, environments = recorded, counted
    task = None if task is None else as_task(task)
    replay, packed = None, None
    reason = why_no_replay(run, task, known)
    if reason is None:
        full = roll_out(run, cast(Task, task), cast(Environments, environments))
        replay, packed = pack_within(full, summary.environment_costs(run)[full.environments])
    again = Again(0, 0)
    if task is not None and environments is not None and reason != "":
        try:
            again = roll_out_again(run, task, environments, count=REPEATED if replay else None)
        except ValueError as error:
            reason = f"{reason or ''} No recorded cost was compared: {error}.".strip()
    shown, why = clip_section(task, run, environments) if reason else ([], "")
    reason = None if shown else " ".join(filter(None, (reason, why))) or reason
    room = MOST_BYTES - sum(len(clip.text) for clip in shown) - (packed.size if packed else 0)
    embedded = embedded_pictures(pictures or {}, known.captions if known else {}, room)
    failing = failure_section(run, task)
    absent = {
        "failures": failing["failures"] is None,
        "trials": trials is None,
        "simulation": run.certificate.simulation is None,
        "posterior": run.certificate.candidates is not None,  # the section on trials has them
        "pictures": not embedded,
        "replay": not replay,
        "clips": not shown,
        "distribution": run.certificate.margin is None,
    }
    content = render(
        "page.html",
        run,
        **section_values(run),
        **failing,
        **(trial_section(run, trials) if trials is not None else {}),
        parts="",
        version=pacbayes_control.__version__,
        title=Path(name).name,
        shell_name=shlex.quote(name),
        robot=robot,
        sections=[section for section in SECTIONS if not absent.get(section[0])],
        alarm=summary.not_reproduced(again),
        reason=reason,
        pictures=embedded,
        clips=shown,
        clip_note=certified_column(run)[1] if shown else "",
        replay=replay,
        packed=packed,
        replay_values=replay_values(run, replay, packed) if replay and packed else None,
    ).encode()
    write_output(Path(file), content)
    return Page(Path(file), len(content), replay.costs.size if replay else 0, again)


def trial_section(run: Run[Any], trials: Trials) -> dict[str, Any]:
    """The values and plots of the section on trials."""
    values = trial_values(run, trials)
    return {**values, "trial_plots": choice_plots(values["choice"])}


def why_no_replay(run: Run[Any], task: Task | None, known: type[Task] | None) -> str | None:
    """The reason why the rollouts of a run cannot be shown, in one line; None where they can.

    It is empty for a table of costs, which holds no policies that could be rolled out again.
    """
    if run.costs.draws is None and run.costs.parameters is None:
        return ""
    if task is not None and task.scenes is not None and task.paths is not None:
        return None
    known = known if task is None else type(task)
    if known is not None and known.no_replay:
        return known.no_replay
    if task is None:
        return (
            "The run does not say which task it is of: with pbc report --task MODULE:TASK, this "
            "page shows the rollouts of a task that can show itself."
        )
    return f"The task {task.name} cannot show itself: it has no scenes and paths."


# ---- pictures of the run's folder: a stranger's run may hold anything --------------------------


def embedded_pictures(
    pictures: Mapping[str, bytes],
    captions: Mapping[str, tuple[str, str]],
    room: int = MOST_BYTES,
) -> list[tuple[Any, ...]]:
    """The pictures that have a caption, are PNG, and are not too large for a page.

    Each is its bytes in base64, its width and height in pixels, its description and its caption.

    captions: for each file name, a description of the picture and its caption
    room: bytes of all, as text
    """
    embedded = []
    for name, words in captions.items():
        content = pictures.get(name, b"")
        opening = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        if not content.startswith(opening) or not 24 <= len(content) <= LARGEST_PICTURE:
            continue
        width, height = struct.unpack(">II", content[16:24])
        encoded = base64.b64encode(content).decode("ascii")
        if 0 < width < 10_000 and 0 < height < 10_000 and len(encoded) <= room:
            embedded.append((encoded, width, height, *words))
            room -= len(encoded)
    return embedded


def render(template: str, run: Run[Any], **values: Any) -> str:
    """A page, or a part of it, about a run; every value is text unless it is `Markup`."""
    trial_plots = values.pop("trial_plots", {}) | values.pop("failure_plots", {})
    plots = {name: partial(draw, run) for name, draw in PLOTS.items()} | trial_plots
    values |= {"run": run, "c": run.certificate, "MEANING": MEANING}
    return rendering.render(template, values, plots)
