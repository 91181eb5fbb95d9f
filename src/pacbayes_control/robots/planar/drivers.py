"""The compiled drivers of a robot in the plane: those of `kernel`, with its own rule of motion.

A compiled driver checks nothing: it would read beyond a short row, and a NaN touches no obstacle.
So everything that a user gives is checked before.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from threading import Lock
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numba import jit, njit
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from pacbayes_control.bounds.compiling import compiled_once
from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.gpu.compiling import kernel_for
from pacbayes_control.robots.planar.gpu.streaming import roll_out
from pacbayes_control.tasks.environments import Environments, Noise, in_a_line
from pacbayes_control.tasks.identity import names_used
from pacbayes_control.tasks.task import noise_of

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.robot import Planar

PACKAGE = __name__.partition(".")[0] + "."  # of modules whose code is not a user's


class Fixed(NamedTuple):
    """What all rollouts of a robot share, in their precision."""

    walls: NDArray  # (walls, 4)
    open_areas: NDArray  # (areas, 4)
    rays: NDArray  # (3, rays)
    horizon: Any
    radius: Any
    start: NDArray  # (5,)
    steps: int
    hidden: int
    offset: Any
    range_noise: Any


def run(
    task: Planar,
    driver: Literal["collisions", "trajectories"],
    policies: NDArray,
    environments: Environments,
    noise: Noise | None,
    *results: NDArray,
) -> None:
    """Roll out policies, which are checked, by one of the robot's drivers.

    Args:
        task: the robot; its collisions are found on its device
        driver: which of its drivers
        policies: (policies, parameters) or (environments, policies, parameters)
        environments: the obstacle fields
        noise: of the rollouts, where the robot has any
        results: arrays for the driver to fill; the last one has the precision of the rollouts
    """
    move: Any = type(task).move
    if move is None:
        raise ValueError(f"the {task.name} has no move(state, control, draws, step, model)")
    dtype, noise, constants = results[-1].dtype, noise_of(task, environments, noise), task.constants
    weights = task.controller.weights(np.asarray(policies, float)).astype(dtype)
    weights = weights.reshape(-1, *weights.shape[-2:])
    fixed = _fixed(task, dtype)

    ours = type(task).models.__module__.startswith(PACKAGE)
    one_at_a_time = nullcontext() if ours else Lock()  # a user's code may not be for threads

    def models(part: slice) -> NDArray:
        with one_at_a_time:
            return _models(task, weights.shape[1], environments[part], noise).astype(dtype)

    try:
        if driver == "collisions" and task.device != "cpu":
            kernel_of = partial(kernel_for, *frozen(move), len(constants))
            noisy = (noise.row_keys(environments), noise.column) if noise else None
            roll_out(kernel_of, fixed, weights, models, environments, noisy, results)
            return
        by_row, arrays = np.ascontiguousarray(weights.swapaxes(1, 2)), environments.arrays()
        drawn = np.array(arrays["obstacles"], dtype), np.array(arrays["counts"])
        keys = noise.keys(environments, by_row.shape[2]) if noise else np.empty((1, 0), np.uint64)
        run_all = getattr(drivers_of(move, len(constants)), driver)
        run_all(by_row, *drawn, fixed[:4], fixed[4:], models(slice(None)), keys, *results)
    except SystemError as error:  # which hides what a rule of motion raised
        raise ValueError(
            f"`move` of the {task.name} raised an error: {in_a_line(error.__cause__ or error)}"
        ) from None
    except NumbaError as error:
        why = why_not(move, constants) or in_a_line(error)
        where = f"does not compile{'' if task.device == 'cpu' else ' for a GPU'}"
        raise ValueError(f"`move` of the {task.name} {where}: {why[:300]}") from None


def _fixed(task: Planar, dtype: np.dtype) -> Fixed:
    """What all rollouts of a robot share."""
    (x, y, heading), arena, number = task.start, task.arena, dtype.type
    start = [x, y, np.sin(heading), np.cos(heading), task.own_start]
    return Fixed(
        arena.walls.astype(dtype),
        arena.open_areas.astype(dtype),
        task.rays.astype(dtype),
        number(task.horizon),
        number(task.robot_radius),
        np.array(start, dtype),
        task.steps + task.landing_steps,
        task.controller.hidden,
        number(task.controller.offset),
        number(task.range_noise),
    )


def _models(task: Planar, count: int, environments: Environments, noise: Noise | None) -> NDArray:
    """The models of `count` policies in some environments, checked."""
    constants, models = task.constants, task.models(environments, count, noise)
    shapes = [(rows, len(constants), count) for rows in (1, len(environments))]
    if models.shape not in shapes:
        raise ValueError(f"models are an array {shapes[0]} or {shapes[1]}, not {models.shape}")
    if not np.isfinite(models).all():
        which = int(np.argwhere(~np.isfinite(models))[0][1])
        raise ValueError(f"constant {which} of the {task.name} is NaN or infinite")
    return models


class Drivers(NamedTuple):
    """The compiled functions that run a robot's rollouts."""

    collisions: Any
    trajectories: Any
    move: Any
    digest: str | None  # of everything that the rule's result depends on; None if that is not known


_made: dict[Any, Drivers] = {}  # by digest, or by the rule itself


def drivers_of(rule: Callable, constants: int = 0) -> Drivers:
    """The drivers with a robot's own rule of motion in the place of `robot_moves`.

    The rule is a plain function of numbers that Numba can compile; `constants` is how many numbers
    its `model` has. The compiled code is cached on disk under a name made from a digest of the
    rule: a change to it, or to a number or a function that it uses, changes the name. The rule is
    compiled as it is now: the values that it uses are copied. So nothing that it uses can change
    between its digest and its compilation, and the cache does not depend on the file that defines
    it. If it uses a value that cannot be part of a digest, it is compiled itself, in each process.
    """
    own, digest = frozen(rule)
    key = (digest or rule, constants)
    if key in _made:
        return _made[key]
    moves = kernel.compiled(kernel.moves(kernel.compiled(own), constants))
    made: dict[str, Any] = {"robot_moves": moves}
    cached: Any = compiled_once if digest else njit
    for name, compiled in {
        "move": kernel.compiled,
        "advance_group": kernel.compiled,
        "collisions": cached(parallel=True, **kernel.OPTIONS),
        "trajectories": cached(**kernel.OPTIONS),
    }.items():  # a copy of each, in which the names of the kernel mean what was made so far
        code, own_name = getattr(kernel, name).__code__, f"{name}_{digest or 'unknown'}_{constants}"
        copy = FunctionType(code, {**vars(kernel), **made}, own_name)
        copy.__qualname__ = own_name
        made[name] = compiled(copy)
    _made[key] = Drivers(made["collisions"], made["trajectories"], made["move"], digest)
    return _made[key]


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


def frozen(rule: Callable) -> tuple[Any, str | None]:
    """A copy of a rule that nothing changes any more, and its digest.

    The rule itself, without a digest, if it uses a value that cannot be part of one.
    """
    try:
        own, words = _copied(rule)
    except (_Unknown, RecursionError):
        return rule, None
    return own, hashlib.sha256(repr(words).encode()).hexdigest()[:16]


class _Unknown(Exception):  # noqa: N818 - it never leaves this file
    """The rule uses a value that cannot be part of a digest."""


def _copied(value: Any, within: tuple[Any, ...] = ()) -> tuple[Any, Any]:
    """A copy of a value that a rule uses, and a description that differs for other values.

    within: the functions that use the value, which must not use themselves.
    """
    if hasattr(value, "py_func"):  # compiled by Numba
        options = dict(value.targetoptions)
        own, words = _copied(value.py_func, within)
        kept = value if value.py_func.__module__ == kernel.__name__ else jit(**options)(own)
        return kept, (sorted((name, repr(option)) for name, option in options.items()), words)
    if isinstance(value, FunctionType):
        if value in within or value.__kwdefaults__:
            raise _Unknown
        codes, of_codes = [value.__code__], []
        for code in codes:  # and the code of functions that are defined in it
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            constants = [type(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
            of_names = code.co_names, code.co_varnames, code.co_freevars
            of_codes.append((code.co_code.hex(), constants, of_names))
        names = sorted(names_used(codes[0]) & value.__globals__.keys())
        used = tuple(value.__globals__[name] for name in names)
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        parts = (used, cells, value.__defaults__ or ())
        (used, cells, defaults), of_parts = _copied(parts, (*within, value))
        own_names = {"__name__": kernel.__name__, **dict(zip(names, used, strict=True))}
        closure = tuple(CellType(cell) for cell in cells) or None
        own = FunctionType(codes[0], own_names, value.__name__, defaults or None, closure)
        return own, (of_codes, names, of_parts)
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
