"""What tests of rollouts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from robots import Erratic

from pacbayes_control.rollouts import evaluation
from pacbayes_control.rollouts.pools import ProcessPool


@pytest.fixture(scope="session")
def two_processes() -> Iterator[ProcessPool]:
    """They are replaced when they die, so that a test may kill them."""
    pool = ProcessPool(2)
    yield pool
    pool.shutdown()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes are run, however slow the machine is."""
    monkeypatch.setattr(evaluation, "PROBING", 3600.0)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of five rollouts at most, however fast these are."""
    monkeypatch.setattr(evaluation, "Pace", lambda _: Erratic([5]))
