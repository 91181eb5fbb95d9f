"""Libraries that only the extra `grasping` installs, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any

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
