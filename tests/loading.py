"""Benchmarks as modules: they are scripts, and no package holds them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import cloudpickle

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> Any:
    """A benchmark, or `measuring`, which they import; each is loaded once."""
    if name != "measuring":
        load("measuring")
    own = name if name == "measuring" else f"benchmark_{name}"  # of no other module
    if own not in sys.modules:
        spec = spec_from_file_location(own, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[own] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[own])
        cloudpickle.register_pickle_by_value(sys.modules[own])  # as those of a script
    return sys.modules[own]
