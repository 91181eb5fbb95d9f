"""Descriptions of tasks for records: in words, and by the software that their costs depend on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.metadata import packages_distributions
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from pacbayes_control.tasks.identity import names_used, without_addresses

LONGEST = 200  # characters of a description


def one_line(text: str) -> str:
    r"""Words in one printable line that is not too long, the same in every process.

    >>> one_line("a robot\n\x1b[2K at 0x7f00")
    'a robot \\x1b[2K'
    """
    words = " ".join(without_addresses(text).split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def name_of(function: Any) -> str:
    """A function's name and its module's: `rollout of examples.braking`."""
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    return f"{function.__qualname__} of {function.__module__}"


def checked_names(names: Sequence[str], policies: Any, of: str = "policies") -> tuple[str, ...]:
    """Names, one for each of the policies; an error for any others."""
    count = 0 if policies is None else len(policies)
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"names of {of} must be a list of words, not {str(names)[:80]!r}")
    if names and (len(names) != count or len({*names}) != count):
        raise ValueError(
            f"{len(names)} names ({len({*names})} different ones) were given for {count} {of}: "
            "names must be unique, one for each"
        )
    return tuple(names)


# ---- software -----------------------------------------------------------------------------------


def distributions_used(*things: Any) -> tuple[str, ...]:
    """Installed distributions that functions, or the classes of objects, come from or name.

    Software that their code does not name, such as a simulator in another process, is not found.
    """
    seen: set[Any] = set()
    modules = {name.partition(".")[0] for thing in things for name in _modules(thing, seen)}
    found = {_distributions().get(name, "") for name in modules}
    return tuple(sorted(found - {"", "pacbayes-control"}))


def _modules(thing: Any, seen: set[Any]) -> Iterator[str]:
    """Names of the modules that a function or a class is from, or that its code names."""
    while isinstance(thing, partial):
        thing = thing.func
    thing = getattr(thing, "py_func", getattr(thing, "__func__", thing))  # of Numba, of a method
    if not isinstance(thing, type | FunctionType):
        thing = type(thing)
    if thing in seen or thing.__module__.partition(".")[0] in sys.stdlib_module_names:
        return
    seen.add(thing)
    yield thing.__module__
    if isinstance(thing, type):
        for part in (*thing.__mro__[1:], *vars(thing).values()):
            if isinstance(part, type | FunctionType):
                yield from _modules(part, seen)
        return
    for value in map(thing.__globals__.get, names_used(thing.__code__)):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, type | FunctionType) and value.__module__ == thing.__module__:
            yield from _modules(value, seen)
        elif isinstance(value, type | FunctionType | BuiltinFunctionType):
            yield value.__module__ or ""


@cache
def _distributions() -> dict[str, str]:
    """The installed distribution of each top-level module: the one of its name, if it has one."""
    named = {}
    for module, owners in packages_distributions().items():
        same = [owner for owner in owners if owner.replace("-", "_").lower() == module.lower()]
        named[module] = (same or sorted(owners))[0]
    return named
