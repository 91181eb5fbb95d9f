"""`pbc sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.cli.task_commands import show_fields
from pacbayes_control.report.console import print_table, say
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import found

if TYPE_CHECKING:
    from pacbayes_control.study.sweep_grid import Field


@dataclass(frozen=True)
class SweepOptions:
    """A task, the fields to sweep over, and how often."""

    task: Annotated[
        str, typer.Argument(metavar="TASK", help="An installed task, or MODULE:TASK of yours.")
    ]
    over: list[str] | None = option(
        None,
        "A field and its values (repeatable): of the plan, such as environments, delta and method, "
        "of the search or of the task; task.NAME is an attribute of a task of yours.",
        metavar="FIELD=A,B,…",
    )
    set_fields: list[str] | None = option(
        None, "Set a field that is not swept (repeatable).", flag="--set", metavar="FIELD=VALUE"
    )
    fields: bool = option(False, "List the fields that --over and --set know, and end.")
    draws: int = option(
        20, "Draws of the training environments.", least=1, most=options.MOST, metavar="N"
    )
    test_environments: int = option(
        10_000, "Environments to estimate the true costs on.", least=2, most=options.MOST
    )
    seed: options.Seed = 0
    workers: options.WorkersOption = None
    rollout_timeout: float | None = option(
        None, "Seconds after which a rollout is ended and costs 1, the worst.", metavar="S"
    )
    out_folder: Path | None = option(None, "Folder of the sweep.", flag="--out", metavar="FOLDER")
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def sweep(asked: SweepOptions) -> None:
    """Bound and true cost against the number of environments, δ, the method or another field.

    A table of means over many draws of the training environments, each with environments of its
    own: disjoint parts of one campaign. True costs are estimated on environments used for nothing
    else. FOLDER has it as sweep.json, sweep.csv and sweep.svg. Interrupted at any moment, the same
    command goes on where it was.

    Example: pbc sweep robot.py:task --over environments=100,1000 --over method=occam,kl --out sweep
    """
    from pacbayes_control.learn.plan import Plan
    from pacbayes_control.study.campaign_slices import Size
    from pacbayes_control.study.sweep import carry_out
    from pacbayes_control.study.sweep_grid import (
        TASK,
        Grid,
        field_named,
        fields_of,
        with_fields,
    )

    target = found(asked.task)
    known = fields_of(target)
    if asked.fields:
        return show_fields({name: each.option for name, each in known.items()})
    folder = asked.out_folder
    if folder is None:
        raise ValueError("name the folder of the sweep: --out sweeps/NAME")
    options.check_json(asked.json_file)
    if asked.json_file is not None and asked.json_file.resolve().parent == folder.resolve():
        raise ValueError(f"{asked.json_file}: {folder} has a sweep.json of its own")
    fixed = {}
    for pair in asked.set_fields or []:
        name, text = _pair("--set", pair)
        if name.startswith(TASK):
            raise ValueError(f"--set {pair}: write --over {pair}, also for one value")
        fixed[name] = field_named(known, name).option.read(text)
    plan = with_fields(target, Plan(task=asked.task, seed=asked.seed), fixed)
    grid = Grid.of(target, plan, _values(known, asked.over or []))
    if both := [name for name in grid.over if name in fixed]:
        raise ValueError(f"{both[0]} is swept over: leave out --set {both[0]}")
    size = Size(asked.draws, asked.test_environments, asked.seed)
    how = options.ExecutionOptions(workers=asked.workers, rollout_timeout=asked.rollout_timeout)
    with options.executing(grid.task(grid.cells[0]), how) as execution:
        made = carry_out(grid, size, folder, execution)
    return _show(made, folder, asked.json_file)


def _show(made: Any, folder: Path, json_file: Path | None) -> None:
    """Draw the plot, print the table and write the JSON."""
    from pacbayes_control.report.sweep_plots import draw_sweep
    from pacbayes_control.study.sweep import CHOICE, HEADINGS

    draw_sweep(made, folder / "sweep.svg")
    words = [name for name in made.swept if isinstance(made.rows[0][name], str)]
    print_table(made.title, (*made.swept, *HEADINGS), made.cells(), left=words)
    say(
        f"{made.caption} The last column counts draws whose bound is below the estimate of the "
        f"true cost. Rows share environments. {CHOICE}"
    )
    say(f"\nThe sweep is in {folder}: sweep.json, sweep.csv, sweep.svg.")
    options.write_json(json_file, {**made.to_dict(), "folder": str(folder)})


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise ValueError(f"{flag} {text}: write {flag} FIELD={'A,B' if flag == '--over' else 'A'}")
    return name, value


def _values(known: Mapping[str, Field], over: list[str]) -> dict[str, list[Any]]:
    """The values of each field that is swept over, as they were typed."""
    from pacbayes_control.study.sweep_grid import field_named

    values: dict[str, list[Any]] = {}
    for text in over:
        name, listed = _pair("--over", text)
        if name in values:
            raise ValueError(f"--over {name} is given twice: write all of its values in one")
        each = field_named(known, name).option
        values[name] = [each.read(value.strip()) for value in listed.split(",")]
    return values
