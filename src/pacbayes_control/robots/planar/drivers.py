"""The compiled drivers of a robot in the plane: those of `kernel`, with its own rule of motion."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import jit, njit

from pacbayes_control.robots.planar import kernel
from pacbayes_control.tasks.compiling import compiled_once
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.identity import names_used


class Drivers(NamedTuple):
    """The compiled functions that run a robot's rollouts."""

    collisions: Any
    trajectory: Any
    move: Any


_made: dict[Any, Drivers] = {}  # by digest, or by the rule itself


def drivers_of(rule: Callable, constants: int = 0) -> Drivers:
    """The drivers with a robot's own rule of motion in the place of `robot_moves`.

    The rule is a plain function of numbers that Numba can compile; `constants` is how many numbers
    its `model` has. The compiled code is cached on disk under a name made from a digest of the
    rule: a change to it, or to a number or a function that it uses, changes the name. The rule is
    compiled as it is now: the values that it uses are copied.
    """
    own, digest = _adopted(rule)
    key = (digest or rule, constants)
    if key not in _made:
        _made[key] = _drivers(own, digest, constants)
    return _made[key]


def _drivers(rule: Callable, digest: str | None, constants: int) -> Drivers:
    name = f"{digest or 'unknown'}_{constants}"
    compiled: Any = compiled_once if digest else njit  # without a digest, nothing is cached
    rules: dict[str, Any] = {"robot_moves": _given(rule, constants)}
    rules["move"] = kernel.compiled(_with(kernel.move, rules, name))
    rules["advance_group"] = kernel.compiled(_with(kernel.advance_group, rules, name))
    return Drivers(
        compiled(parallel=True, **kernel.OPTIONS)(_with(kernel.collisions, rules, name)),
        compiled(**kernel.OPTIONS)(_with(kernel.trajectory, rules, name)),
        rules["move"],
    )


def _given(rule: Callable, constants: int) -> Any:
    """The rule with its constants as a tuple: code that reads beyond its end does not compile.

    Beyond the end of an array it would read any memory, without an error.
    """
    model = "".join(f"models[{i}, k], " for i in range(constants))
    names: dict[str, Any] = {"rule": kernel.compiled(rule), "__name__": kernel.__name__}
    call = f"rule(state, control, draws, step, ({model}))"
    return kernel.compiled(eval(f"lambda state, control, draws, step, models, k: {call}", names))


def _with(driver: Callable, rules: dict[str, Any], name: str) -> Callable:
    """A copy of a driver in which these names of the kernel mean these rules."""
    own = FunctionType(driver.__code__, {**vars(kernel), **rules}, f"{driver.__name__}_{name}")
    own.__qualname__ = own.__name__
    return own


def why_not(rule: Callable, constants: tuple[float, ...]) -> str:
    """Why a rule fails in plain Python, for an error message; empty if it runs there.

    >>> why_not(lambda state, control, draws, step, model: model[1], (2.0,))
    'it reads a constant beyond the 1 of `constants`'
    """
    state = (0.0, 1.0, 0.0, 1.0, 0.0)
    try:
        after = rule(state, 0.1, (0.0, 0.0), 0, tuple(float(value) for value in constants))
    except IndexError:
        return f"it reads a constant beyond the {len(constants)} of `constants`"
    except Exception as error:  # the rule is a user's code
        return in_a_line(error)
    if not isinstance(after, tuple) or len(after) != len(state):
        return f"it must return x, y, sine, cosine and a number of its own, not {after!r}"
    return ""


# ---- the digest of a rule -----------------------------------------------------------------------


class _Unknown(Exception):  # noqa: N818 - it never leaves this file
    """The rule uses a value that cannot be part of a digest."""


def digest_of(rule: Callable) -> str | None:
    """A digest of everything that a rule's result depends on; None if that is not known."""
    return _adopted(rule)[1]


def _adopted(rule: Callable) -> tuple[Callable, str | None]:
    """A copy of the rule with copies of all that it uses, as if defined in `kernel`; and a digest.

    So nothing that it uses can change between its digest and its compilation, and the cache on disk
    does not depend on the file that defines the rule. If the rule uses a value that cannot be part
    of a digest, the rule itself and None.
    """
    try:
        own, words = _function(rule, ())
    except (_Unknown, RecursionError):
        return rule, None
    return own, hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def _function(function: Any, within: tuple[Any, ...]) -> tuple[Any, Any]:
    """A copy of a function and of the values that it uses, and a description of both."""
    if not isinstance(function, FunctionType) or function in within:
        raise _Unknown
    code, within = function.__code__, (*within, function)
    names = sorted({name for name in names_used(code) if name in function.__globals__})
    used = {name: _copied(function.__globals__[name], within) for name in names}
    cells = [_copied(cell.cell_contents, within) for cell in function.__closure__ or ()]
    defaults = [_copied(value, within) for value in function.__defaults__ or ()]
    if function.__kwdefaults__:
        raise _Unknown
    own = FunctionType(
        code,
        {"__name__": kernel.__name__, **{name: value for name, (value, _) in used.items()}},
        function.__name__,
        tuple(value for value, _ in defaults) or None,
        tuple(CellType(value) for value, _ in cells) or None,
    )
    words = [(name, words) for name, (_, words) in used.items()]
    return own, (_code(code), words, [w for _, w in cells], [w for _, w in defaults])


def _copied(value: Any, within: tuple[Any, ...]) -> tuple[Any, Any]:
    """A copy of a value that a rule uses, and a description that differs for other values."""
    if hasattr(value, "py_func"):  # compiled by Numba
        options = dict(value.targetoptions)
        own, words = _function(value.py_func, within)
        kept = value if value.py_func.__module__ == kernel.__name__ else jit(**options)(own)
        return kept, (sorted((name, repr(option)) for name, option in options.items()), words)
    if isinstance(value, FunctionType):
        return _function(value, within)
    if type(value) is tuple:
        entries = [_copied(entry, within) for entry in value]
        return tuple(entry for entry, _ in entries), [words for _, words in entries]
    if isinstance(value, bool | int | float | np.number):
        return value, (type(value).__name__, repr(value))
    if isinstance(value, type) and value.__module__ in ("builtins", "numpy"):
        return value, (value.__module__, value.__name__)
    if isinstance(value, BuiltinFunctionType | np.ufunc):  # as `from math import tan`
        return value, (getattr(value, "__module__", None), value.__name__)
    known = (*sys.stdlib_module_names, "numpy", "numba")
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in known:
        return value, value.__name__
    raise _Unknown


def _code(code: CodeType) -> Any:
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars
