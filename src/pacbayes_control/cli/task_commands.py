"""Commands with one command for each task, such as `pbc learn TASK`, with that task's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from pacbayes_control.cli import options
from pacbayes_control.report.console import show
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.options import Option, from_values, option, options_of, plain
from pacbayes_control.tasks.registry import found, installed_tasks, with_options

Groups = Mapping[str, Mapping[str, Option]]  # options by their names, under the titles of a help


@dataclass(frozen=True)
class FieldOptions:
    """Options of the command of every task, by which its rare fields are set."""

    set_fields: list[str] | None = option(
        None, "Set a field (repeatable).", flag="--set", metavar="FIELD=VALUE"
    )
    fields: bool = option(False, "List the fields that --set knows, and end.")


class TaskCommands(TyperGroup):
    """A command for each task, made when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - asked for by Typer
        """An empty list: loading tasks is slow, and the help names the installed ones."""
        return []

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the task to the front: options may also come before it."""
        known = installed_tasks()
        for place, word in enumerate(args):
            if word in known or (":" in word and not word.startswith("-") and ".json" not in word):
                args = [word, *args[:place], *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - asked for by Typer
        """The command for a task, with the common options and the task's own."""
        return self.command_for(found(cmd_name), cmd_name)

    def command_for(self, target: Any, name: str) -> Any:
        """The command for what `found` has found under a name."""
        raise NotImplementedError


def usual_folder(name: str) -> Path:
    """The folder of a task's run, where no other is named.

    >>> str(usual_folder("examples/braking.py:task")), str(usual_folder("robots.arm:task"))
    ('runs/braking', 'runs/arm')
    """
    place = name.rpartition(":")[0] or name
    return Path("runs") / (Path(place).stem if place.endswith(".py") else place.rpartition(".")[2])


def own_options(target: Any) -> Mapping[str, Option]:
    """The options of a task, or of a class of tasks."""
    return options_of(target.Options) if target.Options else {}


def execution_options(target: Any) -> Mapping[str, Option]:
    """Options of where its rollouts run; without those that have no effect on them."""
    how = dict(options_of(options.ExecutionOptions))
    if len(getattr(target, "devices", ())) < 2:
        del how["device"]
    if target.uses_all_cores:  # it is compiled, and its rollouts end
        del how["workers"]
        how["rollout_timeout"] = replace(how["rollout_timeout"], rare=True)
    return how


def task_command(
    name: str, call: Any, groups: Groups, own: Sequence[Parameter], *, words: str
) -> Any:
    """A command with the options of some groups.

    Args:
        name: of the task
        call: takes a list of the groups, and the value of each option as a keyword
        groups: options by title; rare ones are set by --set
        own: further parameters of the command
        words: the help
    """
    each_option = [(title, each) for title, group in groups.items() for each in group.values()]
    parameters = [
        options.parameter(each.name, each.kind, each.default, each.facts, title)
        for title, each in each_option
        if not each.rare
    ]
    call = partial(call, [*groups.values()])
    command = options.as_command(name, call, [*parameters, *own], words)
    command.moved = {  # what to write instead of an option that is now a field
        each.name: f"write --set {each.name}={'true' if each.kind is bool else 'VALUE'}"
        for _, each in each_option
        if each.rare
    }
    return command


def rare_options(groups: Sequence[Mapping[str, Option]]) -> dict[str, Option]:
    """The options that --set knows and the help does not show."""
    known = {n: each for group in groups for n, each in group.items()}
    return {n: each for n, each in known.items() if each.rare or each.facts.get("hidden")}


def given_values(
    groups: Sequence[Mapping[str, Option]], values: Mapping[str, Any], set_fields: list[str] | None
) -> list[dict[str, Any]]:
    """The values that differ from their defaults, by name, for each group of options.

    Args:
        groups: of options
        values: of all options of the command, by name
        set_fields: as given to --set
    """
    known, read = {n: each for group in groups for n, each in group.items()}, dict(values)
    for n, value in values.items():
        if isinstance(known[n].default, tuple) and isinstance(value, str):
            read[n] = known[n].read(value)
    for pair in set_fields or []:
        n, equals, value = pair.partition("=")
        if not equals or n not in known:
            rare = ", ".join(rare_options(groups))
            raise ValueError(f"--set {pair}: write FIELD=VALUE, with a field of {rare}")
        read[n] = known[n].read(value)
    given = {n: v for n, v in read.items() if v is not None and v != known[n].default}
    return [{n: given[n] for n in group if n in given} for group in groups]


def task_with(target: Any, name: str, chosen: Mapping[str, Any]) -> tuple[Task, dict[str, Any]]:
    """The task with the options that were given, and these as plain values."""
    task = with_options(target, name, chosen)
    return task, plain(from_values(target.Options, chosen)) if chosen else {}


def show_fields(rare: Mapping[str, Option]) -> None:
    """Show the fields that --set knows."""
    from rich.table import Table

    table = Table("field", "type", "default", "")
    for name, each in rare.items():
        table.add_row(name, each.kind_words, str(each.default), each.facts["help"])
    show(table)
