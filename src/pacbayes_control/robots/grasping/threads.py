"""One thread for sums whose last bit must not depend on how many cores a machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from pacbayes_control.robots.grasping.extras import needed

_turn = RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on a single core inside, and on as many as before afterwards.

    Threads of Python that ask for it take turns: none may set the number back while another sums.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    torch = needed("torch", "a neural network")
    with _turn:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
