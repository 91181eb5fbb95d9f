"""The compiled drivers of a robot in the plane: those of `kernel`, with its own rule of motion."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pacbayes_control.tasks.planar import kernel


class Drivers(NamedTuple):
    """What a robot's rollouts are run with."""

    collisions: Any
    trajectory: Any
    move: Any


@lru_cache
def drivers_of(rule: Callable) -> Drivers:
    """The drivers with a robot's own rule in the place of `robot_moves`.

    The rule is a plain function of numbers that Numba can compile. What is compiled stays on disk
    under a name that tells the rule from others: a change to it, or to a number or a function that
    it uses, gives another name.
    """
    digest = digest_of(rule)
    name, kept = digest or "unknown", digest is not None
    rules: dict[str, Any] = {"robot_moves": kernel.compiled(rule)}
    rules["move"] = kernel.compiled(_with(kernel.move, rules, name))
    rules["advance_group"] = kernel.compiled(_with(kernel.advance_group, rules, name))
    return Drivers(
        njit(parallel=True, cache=kept, **kernel.OPTIONS)(_with(kernel.collisions, rules, name)),
        njit(cache=kept, **kernel.OPTIONS)(_with(kernel.trajectory, rules, name)),
        rules["move"],
    )


def _with(driver: Callable, rules: dict[str, Any], name: str) -> Callable:
    """A driver that finds these rules where its source has names of the kernel."""
    own = FunctionType(driver.__code__, {**vars(kernel), **rules}, f"{driver.__name__}_{name}")
    own.__qualname__ = own.__name__
    return own


def digest_of(rule: Callable) -> str | None:
    """Hexadecimal digits for all that a rule's result depends on; None where that is not known."""
    try:
        words = repr(_contents(rule))
    except ValueError:
        return None
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _contents(value: Any) -> Any:
    """Code, numbers and functions, down to plain values; an error for anything else."""
    value = getattr(value, "py_func", value)  # what Numba compiles
    if isinstance(value, FunctionType):
        names = [name for name in value.__code__.co_names if name in value.__globals__]
        used = [(name, _contents(value.__globals__[name])) for name in names]
        bound = [_contents(cell.cell_contents) for cell in value.__closure__ or ()]
        return _code(value.__code__), used, bound, repr(value.__defaults__)
    if isinstance(value, tuple):
        return [_contents(entry) for entry in value]
    if isinstance(value, bool | int | float | np.number):
        return type(value).__name__, repr(value)
    if isinstance(value, type) and value.__module__ in ("builtins", "numpy"):
        return value.__name__
    if isinstance(value, ModuleType):
        known = value.__name__.partition(".")[0]
        if known in (*sys.stdlib_module_names, "numpy", "numba"):
            return value.__name__
    raise ValueError(f"what {value!r} means to a rule cannot be told")


def _code(code: CodeType) -> Any:
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_varnames
