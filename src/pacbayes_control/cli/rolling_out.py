"""`pbc rollout`: one rollout, to look at."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pacbayes_control.certify.files import read_json, write_output
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app, complain, show_traceback
from pacbayes_control.cli.task_commands import (
    FieldOptions,
    TaskCommands,
    given_values,
    own_options,
    rare_options,
    show_fields,
    task_command,
    task_with,
    usual_folder,
)
from pacbayes_control.report.console import say, warn, working
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.options import Option, option
from pacbayes_control.tasks.watching import choose_renderer, without_display

if TYPE_CHECKING:
    from pacbayes_control.certify.run import Run
    from pacbayes_control.study.one_rollout import Rollout
    from pacbayes_control.tasks.task import Watched

HELP = """Run one rollout and look at it: pbc rollout TASK.

    Its cost, its environment by what was drawn, its trajectory, its error with the traceback, and a
    video. TASK is as for `pbc learn`.

    Example: pbc rollout examples/cartpole.py:task --environment 18 --policy 3 --video rollout.mp4
    """
MOST_FRAMES, WIDEST_FRAME = 300, 480  # of a GIF or in a window, which hold them all at once
NO_DISPLAY = "there is no display to show it on: write a file, with --video rollout.mp4"


@dataclass(frozen=True)
class RolloutOptions(FieldOptions):
    """Which rollout, and where it is written."""

    environment: int = option(
        0,
        "Number of the environment, from 0, in its stream or in the run.",
        least=0,
        most=options.MOST,
    )
    stream: str | None = option(None, "Of environments; default train, or that of the run.")
    seed: int | None = option(
        None, "Of the stream; default 0, or that of the run.", least=0, most=2**64 - 1
    )
    policy: str = option(
        "best", "A number from 0, a name, best (of the run), or mean (of a Gaussian)."
    )
    policies: Path | None = option(
        None, "Policies to choose from, instead of the task's: .npy or .csv.", metavar="FILE"
    )
    run: Path | None = option(
        None,
        "A run of the task, for its policies and recorded costs; for --policy best by default "
        "runs/TASK, where pbc learn has written one.",
        metavar="RUN",
    )
    video: Path | None = option(None, "Write a video: .mp4 or .gif.", metavar="FILE")
    show: bool = option(False, "Play the video in a window.")
    trajectory: Path | None = option(
        None, "Write the trajectory as .csv, one row a step.", metavar="FILE"
    )
    json_file: options.JsonFile = None


PARAMETERS = options.parameters_of(RolloutOptions)


class Rollouts(TaskCommands):
    """A command that runs one rollout of each task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Choose how MuJoCo draws before a task imports it."""
        if any(word == "--show" or word.startswith("--video") for word in args):
            choose_renderer()
        return super().parse_args(ctx, args)

    def command_for(self, target: Any, name: str) -> Any:
        """The command for a task; the task's own options are set by --set."""
        own = {n: replace(each, rare=True) for n, each in own_options(target).items()}
        words = (
            f"Run one rollout of {name} and look at it.\n\nExit code 1 if it raises an error, or "
            "does not cost what a run has recorded. A policy that was changed after a look at an "
            "environment is certified in others: pbc learn --seed.\n\n"
            f"Example: pbc rollout {name} --environment 18 --policy 0 --video rollout.mp4"
        )
        call, groups = partial(_call, target, name), {f"Options of {name}": own}
        return task_command(name, call, groups, PARAMETERS, words=words)


rollout_app = typer.Typer(cls=Rollouts, help=HELP, no_args_is_help=True)
app.add_typer(rollout_app, name="rollout")


@rollout_app.callback()
def rollout() -> None:
    """One rollout; the help of this command is HELP."""


def _call(target: Any, name: str, groups: list[Mapping[str, Option]], /, **values: Any) -> None:
    """Run one rollout of what `found` has found under a name."""
    asked = RolloutOptions(**{each.name: values.pop(each.name) for each in fields(RolloutOptions)})
    if asked.fields:
        return show_fields(rare_options(groups))
    _check(asked)
    [chosen] = given_values(groups, values, asked.set_fields)
    run, folder = None, asked.run
    if folder is None and asked.policy == "best" and asked.policies is None:
        folder = _learnt(name)
    if folder is not None:
        run = options.verified(options.certified_folder(folder), asked.json_file)
        plan: Any = run.plan if isinstance(run.plan, Mapping) else {}
        if not chosen and plan.get("task") == name:
            chosen = plan.get("options") or {}
    task, _ = task_with(target, name, chosen)
    return _roll_out(_rollout(task, asked, run), asked)


def _learnt(name: str) -> Path | None:
    """The run that `pbc learn` has written for a task where no other folder was named."""
    folder = usual_folder(name)
    try:
        plan = read_json(folder / "plan.json")
    except (OSError, ValueError):
        return None
    if not isinstance(plan, Mapping) or plan.get("task") != name:
        return None
    say(f"The certified policy of {folder}.")
    return folder


def _check(asked: RolloutOptions) -> None:
    """Raise ValueError, before any work, for options that contradict each other."""
    from pacbayes_control.report.videos import SUFFIXES, check_installed

    inputs = [path for path in (asked.run, asked.policies) if path is not None]
    options.check_json(asked.json_file, *inputs)
    outputs = [path for path in (asked.video, asked.trajectory, asked.json_file) if path]
    for path in outputs:
        options.check_writable(path, *inputs)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise ValueError("--video, --trajectory and --json need files of their own")
    if asked.video is not None and asked.video.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{asked.video}: a video is an .mp4 or a .gif file")
    if asked.trajectory is not None and asked.trajectory.suffix.lower() != ".csv":
        raise ValueError(f"{asked.trajectory}: a trajectory is a .csv file")
    if asked.video is not None and asked.show:
        raise ValueError("give --video or --show, not both")
    if asked.run is not None and asked.policies is not None:
        raise ValueError("--policies is for a task without a run: a run has its own policies")
    if asked.video is not None or asked.show:
        check_installed()
    if asked.show and without_display():
        raise ValueError(NO_DISPLAY)


def _rollout(task: Task, asked: RolloutOptions, run: Run[Any] | None) -> Rollout:
    """The rollout that was asked for."""
    from pacbayes_control.certify.tables.campaigns import read_policies
    from pacbayes_control.study.one_rollout import STREAM, listed_rollout, rollout_of

    number = asked.environment
    if run is None:
        listed = None if asked.policies is None else read_policies(asked.policies)
        stream, seed = asked.stream or STREAM, asked.seed or 0
        return listed_rollout(task, drawn(task, number, stream, seed), asked.policy, listed)
    stream = None
    if asked.stream is not None or asked.seed is not None:
        origin: Any = run.costs.origin
        seed = origin.get("seed", 0) if asked.seed is None else asked.seed
        stream = asked.stream or str(origin.get("stream")), seed
    return rollout_of(run, task, number, asked.policy, stream=stream)


def drawn(task: Task, number: int, stream: str, seed: int) -> Any:
    """One environment of a stream."""
    try:
        return task.environments(number + 1, stream, seed)[number:]
    except Exception as error:  # a user's task may raise anything
        raise ValueError(
            f"task {task.name} cannot draw environments: {in_a_line(error)}"
        ) from error


# ---- running it ---------------------------------------------------------------------------------


def _roll_out(one: Rollout, asked: RolloutOptions) -> None:
    """Run a rollout, show it and write its files."""
    from pacbayes_control.report.videos import watch_filmed
    from pacbayes_control.report.watched import rollout_record, show_rollout, trajectory_csv

    if one.note:
        say(one.note)
    with _filming(asked, one.task.name) as film, working("rolling out"):
        seen = watch_filmed(one, film)
    seen = _with_checked_cost(seen)
    different = one.recorded is not None and seen.cost != one.recorded and not one.excused
    show_rollout(one, seen)
    files = {}
    if asked.video is not None and film is not None and film.frames:
        files["video"] = str(asked.video)
    if asked.trajectory is not None and seen.columns:
        write_output(asked.trajectory, trajectory_csv(seen))
        files["trajectory"] = str(asked.trajectory)
    elif asked.trajectory is not None:
        warn(f"the task does not tell its steps: {asked.trajectory} was not written")
    for words, path in files.items():
        say(f"{words.capitalize()}: {path}")
    if seen.error is not None:
        show_traceback(traceback.format_exception(seen.error))
    options.write_json(asked.json_file, {**rollout_record(one, seen), **files})
    if seen.error is not None and seen.cost is None:
        complain(f"the rollout raised {in_a_line(seen.error)}")
        raise typer.Exit(1)
    if different:
        raise typer.Exit(1)


def _with_checked_cost(seen: Watched) -> Watched:
    """A cost that is NaN or outside [0, 1] is an error of the rollout."""
    if seen.cost is None or 0 <= seen.cost <= 1:
        return seen
    words = f"the cost {seen.cost:g} is outside [0, 1]: a cost is a number from 0 to 1"
    return replace(seen, cost=None, error=ValueError(words))


@contextmanager
def _filming(asked: RolloutOptions, title: str) -> Iterator[Any]:
    """A film, whose frames are written or shown in the end; None if none was asked for."""
    if asked.video is None and not asked.show:
        yield None
        return
    from pacbayes_control.report.videos import Reel, Video, play

    suffix, content = asked.video.suffix.lower() if asked.video else "", b""
    film = Video() if suffix == ".mp4" else Reel(MOST_FRAMES, WIDEST_FRAME)
    try:
        yield film
    finally:
        content = film.encoded(suffix) if suffix else b""
    if isinstance(film, Reel) and film.frames and not suffix:
        play(film, title)
    elif content and asked.video is not None:
        write_output(asked.video, content)
    else:
        warn(f"the rollout has no frames{f': {asked.video} was not written' if suffix else ''}")
