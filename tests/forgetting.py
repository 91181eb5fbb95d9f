"""Commands in one process as if each had its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def examples_forgotten() -> Iterator[None]:
    """What is imported from the examples is new to the next process of a reader, and so here."""
    path, known = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - known:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent.name == "examples":
            del sys.modules[name]
