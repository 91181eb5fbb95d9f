"""Short videos of a run's failures and successes, for its page; the same run gives the same."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.report.videos import Reel, check_installed
from pacbayes_control.report.watched import drawn, value_words
from pacbayes_control.rollouts.evaluation import in_time
from pacbayes_control.study.failures import IDENTITIES
from pacbayes_control.study.one_rollout import certified_column, rollout_of
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.environments import in_a_line

EACH = 2  # of the hardest environments, and of the easiest
WIDEST, FPS, SECONDS = 320, 15.0, 10  # of a clip at most: pixels of a side, frames per second
MOST_BYTES = 1_500_000  # of all clips, before they are written as text, which adds a third
QUALITIES = (28, 36, 44)  # x264's rate factors: the next if a clip is too large
LONGEST = 60.0  # seconds of work: a slow simulator has fewer clips, and at least one
SHOWN = 6  # parameters of an environment that a caption names


@dataclass(frozen=True)
class Clip:
    """One rollout as a small MP4."""

    content: bytes
    width: int
    height: int
    environment: int  # its row in the run
    cost: float  # as recorded
    parameters: str  # of the environment, in words
    played: str  # how fast, in words; empty if as fast as the rollout
    differs: str = ""  # what it cost now, in words, if it is not what was recorded

    @property
    def text(self) -> str:
        """The file in base64."""
        return base64.b64encode(self.content).decode("ascii")

    @property
    def caption(self) -> str:
        """Its environment, its cost, and how it is played."""
        words = f"Environment {self.environment}: cost {self.cost:.4g}"
        if self.differs:
            words += f" as recorded, {self.differs} now"
        return f"{words}. {self.parameters}{self.played}".strip()


def clips(
    task: Task, run: Run[Any], environments: Environments, *, most_bytes: int = MOST_BYTES
) -> list[Clip]:
    """The certified policy in its hardest and easiest environments, the hardest first.

    Args:
        task: of the run; ValueError if it draws no frames
        run: verified; for a posterior, the likeliest policy or the first draw is filmed
        environments: those that the run counts
        most_bytes: of all clips; one that does not fit is left out
    """
    check_installed()
    column, _ = certified_column(run)
    if len(environments) != run.costs.environments:
        raise ValueError("the run counts other environments than those that its task draws")
    made: list[Clip] = []
    ended = {row for row, policy in run.costs.timed_out if policy == column}
    rows = chosen_rows(run.costs.values[:, column], ended)
    for row in in_time(rows, LONGEST):
        clip = _clip(task, run, row, most_bytes // len(rows))
        made += [clip] if clip else []
    return made


def chosen_rows(costs: NDArray, without: Collection[int] = ()) -> list[int]:
    """The hardest environments, then the easiest, each once; the first among equals.

    without: rows of rollouts that timed out, which might again take any time

    >>> chosen_rows(np.array([0, 1, 0, 0.5, 0, 1]))
    [1, 5, 0, 2]
    """
    rows = np.array([row for row in range(len(costs)) if row not in without], int)
    order = rows[np.argsort(-costs[rows].astype(float), kind="stable")]
    easiest = rows[np.argsort(costs[rows], kind="stable")]
    return list(dict.fromkeys([*order[:EACH].tolist(), *easiest[:EACH].tolist()]))


def _clip(task: Task, run: Run[Any], row: int, most: int) -> Clip | None:
    """The clip of one environment; None if its rollout has no frames, or they do not fit."""
    one, reel = rollout_of(run, task, row, "best"), Reel(int(SECONDS * FPS), WIDEST, FPS)
    seen = one.watch(reel)
    if not reel.frames:
        return None
    for quality in QUALITIES:
        content = reel.encoded(".mp4", quality)
        if len(content) <= most:
            break
    else:
        return None
    known = [(name, value) for name, value in drawn(one).items() if name not in IDENTITIES]
    words = [f"{name} {value_words(value)}" for name, value in known[:SHOWN]]
    recorded = float(run.costs.values[row, certified_column(run)[0]])
    now = seen.cost if seen.filmed_cost is None else seen.filmed_cost
    differs = "an error" if now is None else f"{now:.4g}"
    height, width = reel.frames[0].shape[:2]
    return Clip(
        content,
        width,
        height,
        row,
        recorded,
        ", ".join(words) + "." * bool(words),
        "" if reel.speed < 1.05 else f" Played {reel.speed:.2g} times as fast.",
        "" if now == recorded else differs,
    )


def clip_section(
    task: Task | None, run: Run[Any], environments: Environments | None
) -> tuple[list[Clip], str]:
    """The clips of a page, and why there are none, in one line; empty for a task with a replay."""
    if task is None or environments is None or (task.scenes and task.paths):
        return [], ""
    try:
        return clips(task, run, environments), ""
    except (ValueError, ImportError) as error:
        return [], f"There are no videos: {error}."
    except Exception as error:  # a simulator may raise anything where it draws
        return [], f"There are no videos: {in_a_line(error)}."
