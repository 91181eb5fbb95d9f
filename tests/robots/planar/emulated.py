"""The kernel of a GPU compiled for the CPU: one thread, which takes every rollout.

Numba's simulator of CUDA interprets the kernel, some rollouts in a second. This runs the same
source at the speed of a CPU and in the same precision, so that many rollouts can be compared.
Roots, which are approximate on a GPU, can be made so.
"""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import njit

from pacbayes_control.robots.planar import kernel as scalars
from pacbayes_control.robots.planar.gpu import compiling, kernel, streaming

OPTIONS: Any = {"fastmath": {"contract"}, "error_model": "numpy"}


def module(**names: Any) -> ModuleType:
    """Names that Numba finds in compiled code, as it does those of `numba.cuda`."""
    found = ModuleType("emulated")
    vars(found).update(names)
    return found


@njit
def add(array, place, more):
    before = array[place]
    array[place] = before + more
    return before


@njit
def popc(bits):
    count = 0
    while bits:
        bits &= bits - np.uint64(1)
        count += 1
    return count


class OnDevice:
    """A flat array in the memory of the device."""

    def __init__(self, array: Any) -> None:
        self.array, self.size, self.dtype = array, array.size, array.dtype

    def __getitem__(self, part: slice) -> OnDevice:
        return OnDevice(self.array[part])

    def copy_to_device(self, sent: Any, stream: Any) -> None:  # noqa: ARG002 - as Numba's
        self.array[...] = sent

    def copy_to_host(self, here: Any, stream: Any) -> None:  # noqa: ARG002
        here[...] = self.array


class Compiled:
    """A function that is called by others, and launched as a kernel: with a single block."""

    def __init__(self, function: Any) -> None:
        self.compiled = njit(**OPTIONS)(function)

    def __getitem__(self, configuration: Any) -> Any:
        return lambda *given: self.compiled(*(getattr(each, "array", each) for each in given))


def jit(function: Any = None, **options: Any) -> Any:  # noqa: ARG001
    return njit(**OPTIONS) if function is None else Compiled(function)


ARRAYS = module(array=njit(lambda size, dtype, alignment=None: np.empty(size, dtype)))  # noqa: ARG005
CUDA = module(
    shared=ARRAYS,
    local=ARRAYS,
    const=module(array_like=njit(lambda array: array)),
    atomic=module(add=add),
    threadIdx=module(x=0),
    blockIdx=module(x=0, y=0),
    syncthreads=njit(lambda: None),
    popc=popc,
    jit=jit,
    device_array=lambda size, dtype: OnDevice(np.empty(size, dtype)),
    stream=lambda: SimpleNamespace(synchronize=lambda: None),
    event=lambda: SimpleNamespace(record=lambda _: None, synchronize=lambda: None),
    event_elapsed_time=lambda *_: 1.0,  # ms
    get_current_device=lambda: SimpleNamespace(name=b"an emulator"),
)


MADE: dict[Any, Any] = {}  # kernels that are compiled, for all tests


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Have rollouts on the device "cuda" emulated."""
    for part in (compiling, streaming):
        patch.setattr(part, "loaded", lambda: CUDA)
    patch.setattr(compiling, "_made", MADE)
    patch.setattr(kernel, "THREADS", 1)
    patch.setattr(streaming, "_blocks", lambda n, policies, *_: ((1, 1), policies, n))
    patch.setattr(streaming, "HELD", 0)  # one kernel for few and for many


def roughen(patch: pytest.MonkeyPatch) -> None:
    """Make roots wrong by two or three units in the last place."""

    @njit(**OPTIONS)
    def rough(x):
        return math.sqrt(x) * np.float32(1 + 3e-7)

    patch.setattr(compiling, "_made", {})
    patch.setattr(scalars, "math", module(sqrt=rough, atan2=math.atan2))
