"""A digest of a task's code: costs of two versions of the code must not be mixed."""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pacbayes_control
from pacbayes_control.tasks.task import brought

DEPTH = 4  # levels of nested attributes in which functions and classes are searched for
INSTALLED = tuple(
    str(Path(path).resolve())
    for path in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(pacbayes_control.__file__).parent,
    )
)


def code_digest(task: Any) -> str:
    """SHA-256 of the user's files that define a task's functions and classes.

    It includes the user's own files that these import, but no installed packages. Functions typed
    in a session count by their compiled code.
    """
    modules: dict[str, ModuleType] = {}
    typed: list[str] = []
    for piece in _pieces(brought(task), DEPTH, set()):
        module = sys.modules.get(getattr(piece, "__module__", None) or "")
        if module is not None and _file(module):
            user_modules(module, modules)
        elif isinstance(piece, FunctionType):
            typed.append(_compiled(piece.__code__))
    sha = hashlib.sha256()
    for name in sorted(modules):
        sha.update(name.encode() + hashlib.sha256(Path(_file(modules[name])).read_bytes()).digest())
    for text in sorted(typed):
        sha.update(text.encode())
    return sha.hexdigest()


def _pieces(value: Any, depth: int, seen: set[int]) -> Iterable[Any]:
    """The functions and classes that an object consists of."""
    if depth == 0 or id(value) in seen or isinstance(value, ModuleType):
        return
    seen.add(id(value))
    if isinstance(value, partial):
        yield from _pieces([value.func, *value.args, *value.keywords.values()], depth, seen)
    elif isinstance(value, MethodType):
        yield from _pieces([value.__func__, value.__self__], depth, seen)
    elif isinstance(value, FunctionType):
        yield value
        cells = inspect.getclosurevars(value).nonlocals.values()
        yield from _pieces(list(cells), depth, seen)
    elif isinstance(value, type):
        yield value
    elif isinstance(value, list | tuple | dict):
        inside = value.values() if isinstance(value, dict) else value
        for one in inside:
            yield from _pieces(one, depth - 1, seen)
    else:
        yield type(value)
        yield from _pieces(getattr(value, "__dict__", {}), depth, seen)


def user_modules(module: ModuleType, found: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Add a module and the modules that it refers to, if they are the user's own, to `found`."""
    name = module.__name__
    if name in found or not _file(module):
        return found
    found[name] = module
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            user_modules(value, found)
        elif isinstance(value, FunctionType | type):
            origin = sys.modules.get(value.__module__)
            if origin is not None:
                user_modules(origin, found)
    return found


def _file(module: ModuleType) -> str:
    """The file of one of the user's own modules; empty for any other module."""
    file = getattr(module, "__file__", None)
    if not file or not Path(file).is_file() or file.endswith(".so"):
        return ""
    path = str(Path(file).resolve())
    return "" if path.startswith(INSTALLED) else path


def _compiled(code: CodeType) -> str:
    constants = [
        _compiled(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts
    ]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {constants}"
