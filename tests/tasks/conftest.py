"""What tests of tasks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pacbayes_control.rollouts.pools import ProcessPool


@pytest.fixture(scope="session")
def another_process() -> Iterator[ProcessPool]:
    """One to send tasks to, which knows nothing but what is sent."""
    pool = ProcessPool(1)
    yield pool
    pool.shutdown()
