"""Commands whose options are known only when they are wanted: those of a task, of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any

import typer


def as_command(
    name: str, call: Callable[..., None], parameters: Iterable[Parameter], words: str
) -> Any:
    """A command that calls a function with the values of its options, by name.

    Args:
        name: of the command
        call: takes every parameter as a keyword
        parameters: what Typer is to make arguments and options of
        words: the help

    """

    def command(**values: Any) -> None:
        call(**values)

    by_keyword = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = Signature(by_keyword)  # type: ignore[attr-defined]
    command.__annotations__, command.__doc__ = {}, words
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(command)
    return typer.main.get_command(alone)
