"""Rollouts that raise: an error that says which one, or a failure that was declared in advance."""

from __future__ import annotations

from typing import Any


class RolloutFailed(Exception):  # noqa: N818 - it reports an event, with its place in a batch
    """A rollout that raised: its row and column in a batch, and the error."""

    def __init__(self, row: int, column: int, error: BaseException) -> None:
        super().__init__(row, column, error)
        self.row, self.column, self.error = row, column, error


def check_failures(failures: Any) -> None:
    """An error unless this is a tuple of exceptions, each narrower than `Exception`."""
    kinds = failures if isinstance(failures, tuple) else (None,)
    if Exception in kinds or BaseException in kinds:
        raise ValueError(
            "failures must name the exceptions that mean a failure of the robot: Exception would "
            "count mistakes in the code as failures too"
        )
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise ValueError(f"failures = {failures!r} must be a tuple of exceptions: (RobotFell,)")


def failure_words(failures: tuple[type[Exception], ...]) -> str:
    """The declared exceptions in words, to be appended to a cost rule."""
    names = sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in failures)
    return f", 1 where it raises {' or '.join(names)}" if names else ""
