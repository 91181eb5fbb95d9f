"""`pbc reproduce`."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.tasks.registry import installed_tasks

GROUP = "pacbayes_control.experiments"  # of entry points: a name, and a function


class Experiments(TyperGroup):
    """The experiments of every robot that is installed, each a command with its own options."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - asked for by Typer
        """An empty list: loading robots is slow, and the help names the experiments."""
        return []

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - asked for by Typer
        """One of them, with its options; an error that lists the others."""
        known = entry_points(group=GROUP)
        if cmd_name not in known.names:
            names = ", ".join(sorted(known.names))
            raise ValueError(f"experiment {cmd_name!r} is unknown: choose {names}")
        experiment = known[cmd_name].load()  # experiment(folder, *, …) -> record
        own = list(inspect.signature(experiment, eval_str=True).parameters.values())[1:]
        shared = cmd_name in installed_tasks()  # with the runs of `pbc learn`
        usual = f"reproduce-{cmd_name}" if shared else cmd_name
        out = typer.Option("--out", help=f"Folder for the figures; default runs/{usual}.")

        def run(out_folder: Path | None, json_file: Path | None, **own_values: Any) -> None:
            options.check_json(json_file)
            shorter = "".join(f"-{flag}" for flag, value in own_values.items() if value is True)
            folder = out_folder or Path("runs") / f"{usual}{shorter}"
            _claim(folder, cmd_name)
            options.write_json(json_file, experiment(folder, **own_values))

        parameters = [
            *own,
            options.parameter("out_folder", Annotated[Path | None, out]),
            options.parameter("json_file", options.JsonFile),
        ]
        return options.as_command(cmd_name, run, parameters, inspect.getdoc(experiment) or "")


reproduce = typer.Typer(
    cls=Experiments,
    help=f"""Run an experiment, of a robot's paper or of ours, and print its figures.

    Experiments: {", ".join(sorted(entry_points(group=GROUP).names))}. Their own
    options: pbc reproduce NAME --help.
    Interrupted experiments are taken up where they were.

    Example: pbc reproduce NAME --json figures.json
    """,
    no_args_is_help=True,
)
app.add_typer(reproduce, name="reproduce")


def _claim(folder: Path, name: str) -> None:
    """Make a folder and mark it as this command's; an error if it holds other files."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give a folder for the figures")
    if (folder / "manifest.json").exists():
        raise ValueError(f"{folder} holds a run: give another folder for the figures")
    mark = folder / ".reproduced"
    if (folder / name).exists() and not mark.exists():
        raise ValueError(f"{folder / name} is not of this command: give another folder (--out)")
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
