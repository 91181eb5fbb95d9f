"""Going before others on a busy machine, where the system allows it.

Beside a few processes that only compute, one that sleeps until a deadline wakes up to 0.1 s late.
With a real-time priority it is a few ms at most. That takes root, CAP_SYS_NICE or a limit of
`rtprio` for the user (/etc/security/limits.conf); without, a flight goes on as any other process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def hurry(inherited: bool = True) -> str:
    """Ask for priority; what was given: real-time, nice or normal. inherited: by children too."""
    try:
        policy = os.SCHED_RR if inherited else os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
        return "real-time"
    except (OSError, AttributeError):  # not allowed, or not on this system
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        return "nice"
    except (OSError, AttributeError):
        return "normal"


@contextmanager
def hurried() -> Iterator[str]:
    """Priority for a while, for this thread alone; as before afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield "normal"
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    given = hurry(inherited=False)
    try:
        yield given
    finally:
        with suppress(OSError, AttributeError):
            if given == "real-time":
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            elif given == "nice":
                os.setpriority(os.PRIO_PROCESS, 0, nice)
