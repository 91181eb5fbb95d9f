"""Words that identify tasks and functions, the same in every process."""

from __future__ import annotations

import hashlib
import re
import sys
from functools import partial
from types import CodeType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from pacbayes_control.tasks.task import Task, brought


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
        if " at 0x" in words:  # an address in memory, which means nothing in another process
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
    bound = [_bound(value) for value in cells]
    return f"{words}[{', '.join(bound)}]" if bound else words


def _bound(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"  # the order of a set is by chance
    return described(value) if callable(value) else repr(value)


def named(function: Any) -> str:
    """Words for a function without addresses in memory, for records."""
    return without_addresses(described(function))


def without_addresses(words: str) -> str:
    """The same words without addresses of objects in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", words)


def names_used(code: CodeType) -> set[str]:
    """The names that code looks up, also in functions that it defines."""
    inner = [names_used(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)
