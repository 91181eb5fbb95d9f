"""Failures to rehearse: what can go wrong in a flight, by name."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pacbayes_control.robots.swing.flight.clock import Clock
from pacbayes_control.robots.swing.flight.drones import Drone

# Those that the simulated world brings about.
WORLDLY = {
    "tracker-silent": "no frames come any more",
    "tracker-jumps": "all frames are shifted by 1.5 m",
    "tracker-frozen": "the same pose comes again and again",
    "tracker-garbage": "what comes is no frame",
    "drone-raises": "every call of the driver raises",
    "drone-hangs": "no call of the driver returns",
    "drone-disconnects": "the drone is not reached until somebody connects anew",
    "wind": "a storm from the left, 4 m/s",
    "battery-low": "the battery falls to 5 %",
}
# Those that happen to the loop itself.
OWN = {
    "loop-late": "the loop stands still for 0.35 s",
    "loop-raises": "an error in the middle of the loop",
    "terminated": "the loop's process gets SIGTERM",
    "killed": "the loop's process gets SIGKILL",
    "keeper-killed": "the keeper's process gets SIGKILL",
}
WITH_PROCESSES = ("killed", "keeper-killed")
LATE = 0.35  # s


class Fault(NamedTuple):
    """A failure, and how many seconds after the take-off command it comes."""

    name: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read NAME@SECONDS.

        >>> Fault.parse("tracker-silent@2.5")
        Fault(name='tracker-silent', seconds=2.5)
        """
        name, _, when = text.partition("@")
        if name not in WORLDLY and name not in OWN:
            known = ", ".join((*WORLDLY, *OWN))
            raise ValueError(f"fault {name!r} is unknown: choose from {known}")
        try:
            seconds = float(when)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"fault {text!r} does not say when: give seconds from take-off, as {name}@2.5"
            )
        return cls(name, seconds)


class Rehearsal:
    """A drone whose loop is struck by faults of its own, at calls to the drone."""

    def __init__(
        self,
        drone: Drone,
        faults: Sequence[Fault],
        clock: Clock,
        kill_keeper: Callable[[], None] | None = None,
    ) -> None:
        self.drone, self.clock, self.kill_keeper = drone, clock, kill_keeper
        self.waiting = [fault for fault in faults if fault.name in OWN]
        self.began: float | None = None

    def take_off(self) -> None:
        """Take off; the faults' time begins."""
        self.began = self.clock.now()
        self.drone.take_off()

    def hold(self) -> None:
        """Hold, or suffer."""
        self._strike()
        self.drone.hold()

    def steer(self, yaw_percent: float) -> None:
        """Steer, or suffer."""
        self._strike()
        self.drone.steer(yaw_percent)

    def connect(self) -> None:
        """Connect."""
        self.drone.connect()

    def battery(self) -> float:
        """Percent."""
        return self.drone.battery()

    def sent(self) -> list[tuple[int, float]]:
        """Commands that went out."""
        return self.drone.sent()

    def land(self) -> bool:
        """Land."""
        return self.drone.land()

    def disconnect(self) -> None:
        """Disconnect."""
        self.drone.disconnect()

    def _strike(self) -> None:
        """Bring about what is due."""
        since = self.clock.now() - (self.began or 0.0)
        due = [fault for fault in self.waiting if since >= fault.seconds]
        self.waiting = [fault for fault in self.waiting if fault not in due]
        for fault in due:
            if fault.name == "loop-late":
                self.clock.sleep(LATE)
            elif fault.name == "terminated":
                os.kill(os.getpid(), signal.SIGTERM)
            elif fault.name == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault.name == "keeper-killed" and self.kill_keeper:
                self.kill_keeper()
            elif fault.name == "loop-raises":
                raise ArithmeticError("a rehearsed error in the loop")
