"""Libraries of the extra `grasping`, loaded when first needed, and the folder for kept results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

from pacbayes_control.certify.files import sha256
from pacbayes_control.tasks.environments import in_a_line

INSTALL = 'pip install "pacbayes-control[grasping]"'

_single_thread = RLock()


def needed(library: str, purpose: str) -> Any:
    """A library, or part of one, by its name; where it is missing the error says how to install it.

    >>> needed("json", "an example").dumps([1, 2])
    '[1, 2]'
    """
    try:
        return import_module(library)
    except ImportError:
        name = library.partition(".")[0]
        raise ImportError(f"{purpose} needs {name}, which is missing: {INSTALL}") from None
    except Exception as error:  # such as a setting of MuJoCo's that this machine cannot meet
        words = f"{purpose} needs {library}, which cannot be loaded: {in_a_line(error)}"
        raise ImportError(words) from error


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one core inside, so that the last bit of a sum is the same on any machine.

    Afterwards it has as many threads as before. Threads of Python take turns, so that no thread
    restores the number while another one computes.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    torch = needed("torch", "a neural network")
    with _single_thread:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def cache_folder() -> Path:
    """The user's folder for what can be computed again: in $XDG_CACHE_HOME, or in ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # unset, or to be ignored by the XDG specification
        base = Path.home() / ".cache"
    return base / "pacbayes-control"


def digest_of(value: object) -> str:
    """SHA-256 of plain values, as JSON writes them.

    >>> digest_of(["mug.obj", 0.05])[:16]
    'a4ce3d42091afd9c'
    """
    return sha256(json.dumps(value).encode())
