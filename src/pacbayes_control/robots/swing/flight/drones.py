"""What can be asked of a drone, and which drones there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

PATIENCE = 60.0  # s for which a keeper, or a driver without one, goes on trying to land
PAUSE = 0.2  # s between two attempts


class DroneError(RuntimeError):
    """A drone, or what stands between it and us, did not do what it was asked."""


class Drone(Protocol):
    """A drone that takes off, flies forward, is steered by its yaw, and lands.

    Every call raises a `DroneError` when it fails. A drone in another process may return before it
    has done what was asked: then the failure raises at a later call. A drone that is asked nothing
    for a while may land by itself, so `hold` is called as long as there is nothing to command.
    """

    def connect(self) -> None:
        """Connect, or connect anew after a failure."""
        ...

    def battery(self) -> float:
        """What is left in the battery, in percent, as last reported."""
        ...

    def take_off(self) -> None:
        """Rise to a metre or so, and hover."""
        ...

    def hold(self) -> None:
        """Command nothing, but show that somebody is there."""
        ...

    def steer(self, yaw_percent: float) -> None:
        """Fly forward, with this much of the full yaw; positive is counter-clockwise."""
        ...

    def sent(self) -> list[tuple[int, float]]:
        """Which calls of `steer`, counted from 0, have gone out, and when; each is told once."""
        ...

    def land(self) -> bool:
        """Ask to land, and tell whether that was acknowledged: to be called until it was."""
        ...

    def disconnect(self) -> None:
        """Let go of a drone that stands on the ground; never raises."""
        ...


def open_drone(spec: Mapping[str, Any]) -> Drone:
    """The drone that a record tells of, as it is given to another process.

    {"kind": "swing", "address": …, "pitch": …}, or {"kind": "simulated", "port": …}.
    """
    options = {key: value for key, value in spec.items() if key != "kind"}
    if spec["kind"] == "swing":
        from pacbayes_control.robots.swing.flight.parrot import ParrotSwing

        return ParrotSwing(**options)
    if spec["kind"] == "simulated":
        from pacbayes_control.robots.swing.flight.simulated import SimulatedDrone, UdpLink

        return SimulatedDrone(UdpLink(**options))
    raise ValueError(f"there is no drone of kind {spec['kind']!r}: swing or simulated")


def in_words(error: BaseException) -> str:
    """What was raised, in a line, whatever it is."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    name = type(error).__name__
    if isinstance(error, DroneError) and text:
        return text
    return f"{name}: {text}" if text else name
