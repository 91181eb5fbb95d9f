"""PyBullet, the paper's simulator: a reference to compare with, never a requirement."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def pybullet() -> Any:
    """The library; an error that says how to install it if it is missing.

    It writes a line to file descriptor 2 when it is loaded, which is discarded here.
    """
    if find_spec("pybullet") is None:
        raise ModuleNotFoundError(
            "the reference simulator needs PyBullet: pip install 'pacbayes-control[pybullet]'"
        )
    kept = os.dup(2)
    with open(os.devnull, "w") as discarded:
        os.dup2(discarded.fileno(), 2)
        try:
            return import_module("pybullet")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
