"""Benchmarks as modules: they are scripts, and no package holds them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import cloudpickle

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


SHARED = ("measuring", "bullet_grasping")  # that scripts import


def load(name: str) -> Any:
    """A benchmark, or one of the modules that they share; each is loaded once."""
    for other in SHARED[: SHARED.index(name)] if name in SHARED else SHARED:
        load(other)
    own = name if name in SHARED else f"benchmark_{name}"  # of no other module
    if own not in sys.modules:
        spec = spec_from_file_location(own, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[own] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[own])
        cloudpickle.register_pickle_by_value(sys.modules[own])  # as those of a script
    return sys.modules[own]
