"""A stand-in for a pool of processes, for tests that have no use for one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future


class Here:
    """Calls at once what would be called in another process, which takes a second to start."""

    def submit(self, function: Callable[..., str], *arguments: object) -> Future[str]:
        future: Future[str] = Future()
        future.set_result(function(*arguments))
        return future

    def shutdown(self, **_: object) -> None:
        pass
