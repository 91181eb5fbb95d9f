"""The Typer application, its robots' commands, and its handling of errors."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import pacbayes_control
from pacbayes_control.certify.text import printable
from pacbayes_control.cli.interrupting import BUG, INTERRUPTED, interruption

ROBOTS = "pacbayes_control.commands"  # entry points: a robot's name, and its Typer application


class RobotCommands(TyperGroup):
    """The commands of one robot, loaded when one of them is needed."""

    def __init__(self, entry: EntryPoint) -> None:
        super().__init__(name=entry.name, help=f"Commands of the robot {entry.name}.")
        self.entry, self.no_args_is_help, self.rich_markup_mode = entry, True, "markdown"

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return typer.main.get_group(self.entry.load()).list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, or None."""
        return typer.main.get_group(self.entry.load()).get_command(ctx, cmd_name)


class Commands(TyperGroup):
    """Our own commands, and those of every robot that is installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return [*super().list_commands(ctx), *sorted(entry_points(group=ROBOTS).names)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move --traceback to the front: it may also come after the command."""
        if TRACEBACK in args:
            args = [TRACEBACK, *(word for word in args if word != TRACEBACK)]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them; for a command of a robot, an error that says what to write."""
        if own := super().get_command(ctx, cmd_name):
            return own
        robots = [RobotCommands(entry) for entry in entry_points(group=ROBOTS)]
        for robot in robots:
            if robot.name == cmd_name:
                return robot
        moved = [f"pbc {r.name} {cmd_name}" for r in robots if cmd_name in r.list_commands(ctx)]
        if moved:
            raise ValueError(f"{cmd_name} is a robot's own: write {' or '.join(moved)}")
        if cmd_name == "bench":
            raise ValueError("benchmarks are scripts: write .venv/bin/python benchmarks/NAME.py")
        return None


app = typer.Typer(
    name="pbc",
    cls=Commands,
    help="Learn a policy for a robot, and a certificate of how it will do in new environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# The base class of Click's errors: some versions of Typer use Click, some contain a copy of it.
USAGE_ERRORS: Any = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
TRACEBACK = "--traceback"
tracebacks = SimpleNamespace(shown=False)  # whether they were asked for
BAD_INPUT = (ValueError, OSError, ImportError, MemoryError, ArithmeticError)


def main() -> None:
    """Run `pbc`: one clear line and exit code 2 for bad input, a traceback only if asked for."""
    tracebacks.shown = False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack some characters
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled as Ctrl-C is
    warnings.showwarning = _show_warning
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no warning for a read-only home
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERRORS as error:
        code = complain(_usage_words(error))
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if interruption.came:
            code = INTERRUPTED
        elif isinstance(error, BAD_INPUT):
            if tracebacks.shown:
                show_traceback(traceback.format_exception(error))
            code = complain(str(error) or type(error).__name__)
        else:  # a bug
            show_traceback(traceback.format_exception(error))
            code = BUG
    if code == INTERRUPTED:
        complain("interrupted")
        interruption.told = True
    sys.exit(code if isinstance(code, int) else 0)


def _usage_words(error: Any) -> str:
    """The message of an error of Click's; for an option that is now a field, what to write."""
    name = str(getattr(error, "option_name", "")).lstrip("-")
    moved = getattr(error.ctx.command, "moved", {}) if getattr(error, "ctx", None) else {}
    words = moved.get(name.replace("-", "_"))
    return f"--{name}: {words}" if words else error.format_message()


def show_traceback(lines: Iterable[str]) -> None:
    """Show a traceback on standard error, without escape sequences."""
    with suppress(OSError):
        sys.stderr.write(printable("".join(lines)))


def _show_warning(*warning: Any) -> None:
    """A warning as Python shows it, without escape sequences."""
    message, category, filename, line, *_ = warning
    sys.stderr.write(printable(warnings.formatwarning(message, category, filename, line)))


def complain(message: str) -> int:
    """One line on standard error; the exit code for bad input, also if nobody can read the line."""
    if message:  # Click's error for a missing command has none: it has shown the help
        with suppress(OSError):  # else Python would exit with 1, which is a verdict
            print("pbc:", printable(" ".join(message.split())), file=sys.stderr, flush=True)
    return 2


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    traceback: Annotated[
        bool,
        typer.Option(TRACEBACK, help="Show all of an error of your code; also after a command."),
    ] = False,
) -> None:
    tracebacks.shown = traceback
    if version:
        print(pacbayes_control.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise ValueError("name a command: see pbc --help")
