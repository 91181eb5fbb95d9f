"""Words that identify tasks and functions, the same in every process, and their software."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np

import pacbayes_control
from pacbayes_control.certify.text import printable
from pacbayes_control.tasks.task import Task, brought

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object in memory: it means nothing elsewhere
LONGEST = 200  # characters of a description
DEPTH = 4  # levels of nested attributes in which functions and classes are searched for
INSTALLED = tuple(
    str(Path(path).resolve())
    for path in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(pacbayes_control.__file__).parent,
    )
)


def identity(task: Task) -> str:
    """Words that identify a task, also in another process."""
    task = brought(task)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # all of an array
        words = repr(task)
    if type(task).__repr__ is not object.__repr__ and " at 0x" not in words:
        return words
    known = {}
    for name, value in getattr(task, "__dict__", {}).items():
        if isinstance(value, np.ndarray):
            digest = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
            words = f"{value.dtype} {value.shape} {digest}"
        else:
            words = repr(value)
        if " at 0x" in words:
            raise ValueError(
                f"task {task.name} cannot be told from others by its {name}: give it a __repr__ "
                "that does, or keep no record of its rollouts"
            )
        known[name] = words
    return f"{type(task).__qualname__} {task.name} {sorted(known.items())}"


def described(function: Any) -> str:
    """Words that identify a function, the same in every process.

    Its name in its module, with the values that are bound to it: of a closure, the object of a
    method, the arguments of a partial. A value without a `repr` of its own shows its address.
    """
    if isinstance(function, partial):
        return f"partial({described(function.func)}, {function.args!r}, {function.keywords!r})"
    name = getattr(function, "__qualname__", None)
    if name is None:
        return repr(function)
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        return f"{owner!r}.{function.__name__}"
    code, words = getattr(function, "__code__", None), f"{function.__module__}.{name}"
    if code is not None and function.__name__ == "<lambda>":
        constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
        words += f" {crc32(code.co_code + repr((constants, code.co_names)).encode()):08x}"
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    bound = []
    for value in cells:
        if isinstance(value, set | frozenset):  # whose order is by chance
            bound.append(f"{{{', '.join(sorted(map(repr, value)))}}}")
        else:
            bound.append(described(value) if callable(value) else repr(value))
    return f"{words}[{', '.join(bound)}]" if bound else words


def named(function: Any) -> str:
    """Words for a function without addresses in memory, for records."""
    return ADDRESS.sub("", described(function))


# ---- words for people --------------------------------------------------------------------------


def one_line(text: str) -> str:
    r"""Words in one printable line that is not too long, the same in every process.

    >>> one_line("a robot\n\x1b[2K at 0x7f00")
    'a robot \\x1b[2K'
    """
    return printable(" ".join(ADDRESS.sub("", text).split()), LONGEST)


def name_of(function: Any) -> str:
    """A function's name and its module's: `rollout of examples.braking`."""
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    return f"{function.__qualname__} of {function.__module__}"


# ---- software -----------------------------------------------------------------------------------


def distributions_used(*things: Any) -> tuple[str, ...]:
    """Installed distributions that functions, or the classes of objects, come from or name.

    Software that their code does not name, such as a simulator in another process, is not found.
    """
    seen: set[Any] = set()
    modules = {name.partition(".")[0] for thing in things for name in _modules(thing, seen)}
    found = {_distribution(name) for name in modules}
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


def _distribution(module: str) -> str:
    """The installed distribution of a top-level module: the one of its name, if there is one."""
    owners = sorted(owner.name for owner in _owners().get(module, ()))
    same = [owner for owner in owners if owner.replace("-", "_").lower() == module.lower()]
    return next(iter(same or owners), "")


@cache
def _owners() -> dict[str, list[Distribution]]:
    """The installed distributions of each top-level module.

    As `importlib.metadata.packages_distributions` finds them, in a tenth of its time.
    """
    found = defaultdict[str, list[Distribution]](list)
    for each in distributions():
        modules = {*(each.read_text("top_level.txt") or "").split()}
        if not modules:
            lines = (each.read_text("RECORD") or "").splitlines()
            paths = [path for line in lines if (path := line.partition(",")[0]).endswith(".py")]
            modules = {path.partition("/")[0].removesuffix(".py") for path in paths}
        for module in modules:
            found[module].append(each)
    return found


def names_used(code: CodeType) -> set[str]:
    """The names that code looks up, also in functions that it defines."""
    inner = [names_used(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


# ---- code: costs of two versions of it must not be mixed ----------------------------------------


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


def _pieces(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
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
