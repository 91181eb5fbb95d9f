"""The interface of a drone, and the drones that implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

LANDING_TIMEOUT = 60.0  # s for which a keeper, or a driver without one, repeats the landing command
RETRY_PAUSE = 0.2  # s between two attempts

# s that a call of the driver may take. PyParrot waits half a second for each acknowledgement, and
# tries three times; a Swing may be told twice to land. The first call of a driver is to connect,
# and includes the time that its process takes to start.
CALL_LIMITS = {
    "connect": 20.0,
    "battery": 5.0,
    "take_off": 4.0,
    "hold": 1.0,
    "steer": 0.5,
    "land": 4.0,
    "disconnect": 5.0,
}


class DroneError(RuntimeError):
    """A drone, or its connection, did not do what it was asked."""


class Drone(Protocol):
    """A drone that takes off, flies forward, is steered by its yaw, and lands.

    Every call raises a `DroneError` when it fails. A drone in another process may return before the
    command is carried out: then a later call raises. A drone without commands for a while may land
    by itself, so `hold` is called as long as there is nothing to command.
    """

    def connect(self) -> None:
        """Connect, or connect again after a failure."""

    def battery(self) -> float:
        """Charge of the battery, in percent, as last reported."""
        ...

    def take_off(self) -> None:
        """Rise to about a metre, and hover."""

    def hold(self) -> None:
        """Command nothing, but show that the loop is running."""

    def steer(self, yaw_percent: float) -> None:
        """Fly forward, with this percentage of the full yaw; positive is counter-clockwise."""

    def sent(self) -> list[tuple[int, float]]:
        """Newly sent calls of `steer`: their numbers, from 0, and when each was sent."""
        ...

    def land(self) -> bool:
        """Command to land; whether that is acknowledged. To be called until it is."""
        ...

    def disconnect(self) -> None:
        """Disconnect from a drone that stands on the ground; never raises."""


def open_drone(spec: Mapping[str, Any]) -> Drone:
    """The drone of a record, as it is given to another process.

    {"kind": "swing", "address": …, "pitch": …}, or {"kind": "simulated", "port": …}.
    """
    options = {key: value for key, value in spec.items() if key != "kind"}
    if spec["kind"] == "swing":
        from pacbayes_control.robots.swing.flight.parrot import ParrotSwing

        return ParrotSwing(**options)
    if spec["kind"] == "simulated":
        from pacbayes_control.robots.swing.flight import simulated

        world = simulated.RemoteWorld(**options)
        return simulated.SimulatedDrone(world, simulated.RealClock())
    raise ValueError(f"there is no drone of kind {spec['kind']!r}: choose swing or simulated")


def describe_error(error: BaseException) -> str:
    """An exception in one line; for a `DroneError`, its message alone. Never raises."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    name = type(error).__name__
    if isinstance(error, DroneError) and text:
        return text
    return f"{name}: {text}" if text else name
