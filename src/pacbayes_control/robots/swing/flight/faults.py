"""Faults that can be rehearsed in a simulated flight, by name."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pacbayes_control.robots.swing.flight.clock import Clock
from pacbayes_control.robots.swing.flight.drones import Drone

# Faults of the simulated world.
WORLD_FAULTS = {
    "tracker-silent": "no more frames come",
    "tracker-jumps": "all frames are shifted by 1.5 m",
    "tracker-frozen": "the same pose comes again and again",
    "tracker-garbage": "datagrams come that are not frames",
    "drone-raises": "every call of the driver raises",
    "drone-hangs": "no call of the driver returns",
    "drone-disconnects": "the drone is out of reach until the next connection",
    "wind": "a wind of 4 m/s from the left",
    "battery-low": "the battery falls to 5 %",
}
# Faults of the loop and of its keeper.
LOOP_FAULTS = {
    "loop-late": "the loop stands still for 0.35 s",
    "loop-raises": "an error within the loop",
    "terminated": "the loop's process gets SIGTERM",
    "killed": "the loop's process gets SIGKILL",
    "keeper-killed": "the keeper's process gets SIGKILL",
}
PROCESS_FAULTS = ("killed", "keeper-killed")
LATE = 0.35  # s


class Fault(NamedTuple):
    """A fault, and how many seconds after the take-off command it begins."""

    name: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read NAME@SECONDS.

        >>> Fault.parse("tracker-silent@2.5")
        Fault(name='tracker-silent', seconds=2.5)
        """
        name, _, when = text.partition("@")
        if name not in WORLD_FAULTS | LOOP_FAULTS:
            known = ", ".join(WORLD_FAULTS | LOOP_FAULTS)
            raise ValueError(f"fault {name!r} is unknown: choose from {known}")
        try:
            seconds = float(when)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise ValueError(f"fault {text!r} needs a time: give seconds, as {name}@2.5")
        return cls(name, seconds)


class RehearsedDrone:
    """A drone at whose calls faults of the loop happen."""

    def __init__(
        self,
        drone: Drone,
        faults: Sequence[Fault],
        clock: Clock,
        kill_keeper: Callable[[], None] | None = None,
    ) -> None:
        self.drone, self.clock, self.kill_keeper = drone, clock, kill_keeper
        self.waiting = [fault for fault in faults if fault.name in LOOP_FAULTS]
        self.began: float | None = None
        self.connect, self.battery, self.sent = drone.connect, drone.battery, drone.sent
        self.land, self.disconnect = drone.land, drone.disconnect

    def take_off(self) -> None:
        """Take off; the time of the faults begins."""
        self.began = self.clock.now()
        self.drone.take_off()

    def hold(self) -> None:
        """Hold, after the faults that are due."""
        self._cause_faults()
        self.drone.hold()

    def steer(self, yaw_percent: float) -> None:
        """Steer, after the faults that are due."""
        self._cause_faults()
        self.drone.steer(yaw_percent)

    def _cause_faults(self) -> None:
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
