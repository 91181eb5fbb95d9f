"""PyBullet, the paper's simulator: a reference to compare with, never a requirement."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def pybullet() -> Any:
    """The library; an error that says how to get it.

    It writes a greeting to file descriptor 2 when it is loaded: that goes nowhere.
    """
    if find_spec("pybullet") is None:
        raise ModuleNotFoundError(
            "the reference simulator needs PyBullet: pip install 'pacbayes-control[pybullet]'"
        )
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            return import_module("pybullet")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
