"""Commands whose options are the fields of dataclasses: of a task, a plan or a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from pacbayes_control.tasks.options import Option


class Command(TyperCommand):
    """A command whose error for an option that is now a field says what to write."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; an error for an option that is set by --set."""
        moved: Mapping[str, str] = getattr(self.callback, "moved", {})
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # NoSuchOption, of Click or of Typer's copy of Click
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
            if name in moved:
                raise ValueError(f"--{name.replace('_', '-')}: {moved[name]}") from None
            raise


def as_command(
    name: str,
    call: Callable[..., None],
    parameters: Iterable[Parameter],
    words: str,
    moved: Mapping[str, str] | None = None,
) -> Any:
    """A command that calls a function with the values of its options, by name.

    Args:
        name: of the command
        call: takes every parameter as a keyword
        parameters: from which Typer makes arguments and options
        words: the help
        moved: options that it does not have, by the name of a field, and what to write instead
    """
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name, cls=Command)(_function(call, parameters, words, moved or {}))
    return typer.main.get_command(alone)


def takes_record(function: Callable[[Any], None]) -> Callable[..., None]:
    """A function of one dataclass, as Typer needs it: with a parameter for each field."""
    [parameter] = inspect.signature(function, eval_str=True).parameters.values()
    record = parameter.annotation
    assert is_dataclass(record)
    hints = get_type_hints(record, include_extras=True)
    parameters = [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(record)
    ]

    def call(**values: Any) -> None:
        function(record(**values))  # type: ignore[operator]

    call.__name__ = function.__name__
    return _function(call, parameters, inspect.getdoc(function) or "", {})


def _function(
    call: Callable[..., None],
    parameters: Iterable[Parameter],
    words: str,
    moved: Mapping[str, str],
) -> Callable[..., None]:
    def command(**values: Any) -> None:
        call(**values)

    by_keyword = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = Signature(by_keyword)  # type: ignore[attr-defined]
    command.__annotations__, command.__doc__ = {}, words
    command.__name__ = call.__name__
    command.moved = moved  # type: ignore[attr-defined]
    return command


def parameter_of(option: Option, panel: str) -> Parameter:
    """An option of a command from a field of a record, under a title."""
    facts, kind, default = option.facts, option.kind, option.default
    names = [f"--{option.name.replace('_', '-')}"] if kind is bool else []
    if isinstance(default, tuple):
        kind, default = str | None, None
    limits = {"min": facts.get("least"), "max": facts.get("most")}
    annotation = typer.Option(
        *names,
        help=facts["help"],
        metavar=facts.get("metavar"),
        rich_help_panel=panel,
        **{name: value for name, value in limits.items() if value is not None},
    )
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, annotation],
    )
