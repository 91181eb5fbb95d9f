"""Commands whose options are the fields of dataclasses: of a task, a plan or a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose error for an option that is now a field says what to write."""

    moved: Mapping[str, str] = {}  # what to write instead, by the name of a field

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; an error for an option that is set by --set."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # NoSuchOption, of Click or of Typer's copy of Click
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
            if name in self.moved:
                raise ValueError(f"--{name.replace('_', '-')}: {self.moved[name]}") from None
            raise


def as_command(name: str, call: Any, parameters: Iterable[Parameter], words: str) -> Any:
    """A command that calls a function with the values of its options, by name.

    Args:
        name: of the command
        call: takes every parameter as a keyword
        parameters: from which Typer makes arguments and options
        words: the help
    """
    by_keyword = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    call.__signature__, call.__annotations__ = Signature(by_keyword), {}
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name, cls=Command, help=words)(call)
    return typer.main.get_command(alone)


def takes_record(function: Callable[[Any], None]) -> Callable[..., None]:
    """A function of one dataclass, as Typer needs it: with a parameter for each field."""
    [asked] = inspect.signature(function, eval_str=True).parameters.values()
    record: Any = asked.annotation

    @functools.wraps(function)
    def call(**values: Any) -> None:
        function(record(**values))

    call.__signature__ = Signature(parameters_of(record))  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def parameters_of(record: type) -> list[Parameter]:
    """A parameter for each field of a dataclass, annotated for Typer or made with `option`."""
    hints = get_type_hints(record, include_extras=True)
    return [parameter(f.name, hints[f.name], f.default, f.metadata) for f in fields(record)]


def parameter(
    name: str,
    kind: Any,
    default: Any = None,
    facts: Mapping[str, Any] | None = None,
    panel: str | None = None,
) -> Parameter:
    """A parameter for Typer to make an argument or an option from.

    Args:
        name: of the parameter
        kind: its type, annotated for Typer if there are no facts
        default: its value if it is not given; MISSING if it must be
        facts: of a field that was made with `option`
        panel: a title to list the option under
    """
    if facts:
        flag = facts.get("flag") or (f"--{name.replace('_', '-')}" if kind is bool else None)
        if isinstance(default, tuple):
            kind, default = str | None, None
        annotation = typer.Option(
            *([flag] if flag else []),
            help=facts["help"],
            metavar=facts.get("metavar"),
            min=facts.get("least"),
            max=facts.get("most"),
            hidden=facts.get("hidden", False),
            rich_help_panel=panel,
        )
        kind = Annotated[kind, annotation]
    usual = Parameter.empty if default is MISSING else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=usual, annotation=kind)
