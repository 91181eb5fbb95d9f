"""A flight beside processes that keep the machine busy."""

from __future__ import annotations

import psutil
import pytest

from loading import load
from sizes import sized

fly = load("fly")


def test_what_keeps_a_machine_busy_ends_when_it_should():
    before = psutil.Process().children()
    with fly._busy(1):
        (other,) = set(psutil.Process().children()) - set(before)
        assert other.is_running()
    assert not other.is_running()


@pytest.mark.slow
def test_a_soak_counts_deadlines():
    found = fly.soak(minutes=sized(0.01, full=10), busy=1)
    ticks = sized(6, full=6000)
    assert found.ticks == ticks or found.end != "completed"  # a machine may be too busy even so
    assert 0 <= found.met <= found.ticks <= ticks
    assert found.share == found.met / max(found.ticks, 1)
    assert 0 <= found.percentile <= found.worst
