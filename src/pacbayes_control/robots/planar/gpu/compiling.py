"""The kernel of a rollout, compiled by Numba for one robot; and the GPU that it is for."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pacbayes_control.bounds.compiling import config
from pacbayes_control.robots.planar import kernel as scalars
from pacbayes_control.robots.planar.gpu import kernel
from pacbayes_control.robots.planar.gpu.kernel import Work
from pacbayes_control.tasks.identity import names_used

_made: dict[Any, Any] = {}  # kernels, by the digest of a rule or the rule itself, and by work


def kernel_for(rule: Callable, digest: str | None, constants: int, work: Work) -> Any:
    """The kernel for a robot with this rule of motion, compiled when it is first launched.

    What was compiled is cached on disk, under a name made from all that it depends on.

    Args:
        rule: as `drivers.frozen` copies it
        digest: of the rule, if it is known
        constants: how many numbers the rule's `model` has
        work: what else it is compiled for
    """
    key = (digest or rule, constants, work)
    if key not in _made:
        cuda = loaded()
        copy = _copy(kernel.rollouts, compiled_parts(rule, constants, work, cuda))
        copy.__qualname__ = f"rollouts_{_digest((digest, constants, work))}"
        # Roots and quotients are approximate, to two or three units in the last place. The flag is
        # the kernel's alone: with it, functions of numbers could not tell a NaN. Linking with
        # optimisation would lose it.
        options = {} if simulated(cuda) else {"lto": False, "max_registers": work.registers}
        _made[key] = cuda.jit(copy, fastmath=True, **options)
        if digest and not simulated(cuda):
            with suppress(RuntimeError):  # where no folder is writable, each process compiles it
                _made[key].enable_caching()
    return _made[key]


def _digest(robot: tuple[Any, ...]) -> str:
    """Of a robot, and of everything else that its kernel is compiled from."""
    files = [Path(str(file)).read_bytes() for file in (scalars.__file__, kernel.__file__, __file__)]
    return hashlib.sha256(repr((robot, files)).encode()).hexdigest()[:16]


def compiled_parts(rule: Callable, constants: int, work: Work, cuda: Any) -> dict[str, Any]:
    """What the kernel's names stand for: its functions, compiled for a GPU, and its constants."""
    device = cuda.jit(device=True)
    names = {**vars(scalars), **work.constants, "cuda": cuda, "np": _numpy()}
    names["ALIGNED"] = None if simulated(cuda) else 16  # bytes: four numbers are loaded at once
    ported: dict[Any, Any] = {}
    for name, value in vars(scalars).items():
        if hasattr(value, "py_func"):
            names[name] = ported[value.py_func] = device(_copy(value.py_func, names))
    moves = scalars.moves(device(_rule(rule, device, ported)), constants, "k + U({})")
    names["robot_moves"] = device(moves)
    for source in kernel.SOURCES:
        names[source.__name__] = device(_copy(source, names))
    return names


def simulated(cuda: Any) -> bool:
    """Whether it is not a GPU: what stands for one does not take all options."""
    return "lto" not in signature(cuda.jit).parameters


def _copy(function: Any, names: dict[str, Any], closure: Any = None) -> FunctionType:
    """A function in which global names mean something else."""
    own = function.__code__, names, function.__name__, function.__defaults__, closure
    return FunctionType(*own)


def _ported(value: Any, device: Any, ported: dict[Any, Any]) -> Any:
    """A value that a rule uses, with what was compiled for a CPU compiled for a GPU."""
    if value is np:
        return _numpy()
    if not hasattr(value, "py_func"):
        return value
    if value.py_func not in ported:
        copy = _rule(value.py_func, device, ported)
        ported[value.py_func] = device(copy)
    return ported[value.py_func]


def _rule(rule: Any, device: Any, ported: dict[Any, Any]) -> FunctionType:
    """A function of numbers whose globals and cells are for a GPU."""
    used, known = {"__name__": __name__}, rule.__globals__
    for name in names_used(rule.__code__) & known.keys():
        if getattr(known[name], "py_func", None) is not rule:
            used[name] = _ported(known[name], device, ported)
    cells = [_ported(cell.cell_contents, device, ported) for cell in rule.__closure__ or ()]
    return _copy(rule, used, tuple(map(CellType, cells)) or None)


@cache
def _numpy() -> ModuleType:
    """NumPy, with Python's functions of a number where Numba has none of NumPy's for a GPU."""
    ours = ModuleType("numpy")
    vars(ours).update({name: getattr(np, name) for name in dir(np) if name[0] != "_"})
    vars(ours).update(floor=math.floor, ceil=math.ceil, sqrt=math.sqrt, exp=math.exp, abs=abs)
    return ours


# ---- the device ---------------------------------------------------------------------------------


@cache
def loaded() -> Any:
    """Numba for CUDA; an error in a line where it, the driver or a GPU is missing."""
    if find_spec("numba_cuda") is None:
        raise ImportError("a GPU needs numba-cuda: pip install 'pacbayes-control[cuda]'")
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")  # a few rollouts are fine
    config.reload_config()  # it was read when Numba was first imported
    from numba import cuda as found

    if not found.is_available():
        raise ValueError(
            "no NVIDIA GPU with its driver was found here: leave out the device, or say cpu"
        )
    return found


def available() -> bool:
    """Whether rollouts can run on a GPU here."""
    try:
        return bool(loaded())
    except (ImportError, ValueError):
        return False


def name() -> str:
    """The device, for records."""
    device = loaded().get_current_device()
    called = getattr(device, "name", "a GPU simulated by Numba")  # whose device has no name
    return called.decode() if isinstance(called, bytes) else str(called)
