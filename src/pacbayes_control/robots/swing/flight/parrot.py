"""The Parrot Swing, through PyParrot: every failure is noticed.

How PyParrot 1.5.20 behaves, and the remedy here:

- Its calls return False, or nothing, when a packet was not acknowledged. Here they raise.
- It takes any acknowledgement for that of the last packet. A landing counts only if the packet with
  its number was acknowledged, or the drone has reported that it is landing or has landed.
- `fly_direct` without a duration calls a method that a Bluetooth connection does not have, and with
  one it sends for that long. The packet is made here, as PyParrot makes it, and sent once.
- `set_flying_mode` and `set_plane_gear_box` do not return whether they were acknowledged, and every
  acknowledgement is waited for half a second. The gear is set while the drone climbs. The mode of a
  plane is requested with the first command, and its acknowledgement is checked at the next ones.
- To write to a drone that is out of reach, it connects again without end. Steering does not wait
  for that: it writes by itself, and raises. Other calls hang, and the keeper ends the process.
- `connect(1)` does not try at all: the number is one more than the attempts.
- It reports a battery of 100 %, and a drone that has landed, until the drone reports otherwise.
  Here both are unknown until then.
- It prints to standard output, which is discarded.
- Its positive yaw is clockwise, and percents are truncated, not rounded.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pacbayes_control.robots.swing.flight.drones import DroneError

INSTALL = "pip install 'pacbayes-control[swing]'"
ATTEMPTS = 3  # to connect
GEAR = "gear_1"  # of the plane
AT_ONCE = 100  # notifications that are read before a command
REPEAT, GIVE_UP = 3, 9  # commands after which the plane mode is requested again, or given up


def pyparrot_swing() -> Any:
    """PyParrot's class of a Swing; an error says how to install it."""
    if find_spec("pyparrot") is None:
        raise ModuleNotFoundError(f"flying a Swing needs PyParrot: {INSTALL}")
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it compares literals with `is`
        try:
            module = import_module("pyparrot.Minidrone")
        except ImportError as error:
            raise ModuleNotFoundError(f"PyParrot lacks {error.name}: {INSTALL}") from None
    if not module.BLEAvailable:
        raise ModuleNotFoundError(f"PyParrot has no Bluetooth without bluepy (Linux): {INSTALL}")
    return module.Swing


class ParrotSwing:
    """A Swing over Bluetooth, which flies as a plane. A call that returns was acknowledged by it.

    Except for steering, which the drone does not acknowledge: there the radio has sent the command.
    """

    def __init__(self, address: str, pitch: int = 50) -> None:
        """A drone by its Bluetooth address, such as e0:14:d0:63:3d:d0.

        pitch: percent of the full pitch at which it flies 2 m/s, to be found for each drone
        """
        if not -100 <= pitch <= 100:
            raise ValueError(f"a pitch of {pitch} % is outside [-100, 100]")
        self.address, self.pitch = address, pitch
        self.swing: Any = None
        self._flying = False
        self._plane = False  # whether the plane mode was acknowledged
        self._steered = 0

    def connect(self) -> None:
        """Connect, and send nothing else: the purpose may be to land."""
        self.swing = pyparrot_swing()(self.address)
        with self._connected() as swing:
            swing.sensors.battery = swing.sensors.flying_state = None
            if not swing.connect(ATTEMPTS + 1):
                raise DroneError(f"no connection to {self.address}: is the drone on, and in reach?")
            self._acknowledgements = Acknowledgements(swing.drone_connection)

    def battery(self) -> float:
        """Percent, as the drone last reported; requested if it never has."""
        with self._connected() as swing:
            if swing.sensors.battery is None and not self._flying:
                self._check_acknowledged(swing.ask_for_state_update(), "to report its state")
                for _ in range(20):
                    if swing.sensors.battery is None:
                        swing.smart_sleep(0.1)
            if swing.sensors.battery is None:
                raise DroneError("the drone does not report its battery")
            return float(swing.sensors.battery)

    def take_off(self) -> None:
        """Rise, and hover at about a metre."""
        self._flying, self._plane, self._steered = True, False, 0
        with self._connected() as swing:
            self._check_acknowledged(swing.takeoff(), "to take off")
            command = self._enum("PlaneGearBox", GEAR)
            answer = swing.drone_connection.send_enum_command_packet_ack(*command)
            self._check_acknowledged(answer, "to change its gear")

    def hold(self) -> None:
        """Receive notifications for a moment: the drone's battery and state."""
        with self._connected() as swing:
            swing.smart_sleep(0.01)

    def steer(self, yaw_percent: float) -> None:
        """Fly forward, and turn; as a plane from the first call on.

        The command for the motors is sent once, as BLEConnection.send_pcmd_command makes it.
        """
        self._flying = True
        if not math.isfinite(yaw_percent):
            raise DroneError(f"a yaw of {yaw_percent} % is not finite")
        with self._connected() as swing:
            if not self._plane:
                self._request_plane()
            command = swing.command_parser.get_command_tuple("minidrone", "Piloting", "PCMD")
            yaw = max(-100, min(100, round(-yaw_percent)))
            # flag: use roll and pitch; roll, pitch, yaw, climb; a time that is not used
            values = (1, 0, self.pitch, yaw, 0, 0)
            self._write("SEND_NO_ACK", "DATA_NO_ACK", "<BBBBHBbbbbI", *command, *values)
            self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Always empty: the driver records when its calls return."""
        return []

    def land(self) -> bool:
        """Land; whether the drone has acknowledged this command, or reports that it lands.

        A drone that answers otherwise is told again, after it was told to hover; also over a
        connection that did not take off, since another connection has failed to land it.
        """
        with self._connected() as swing:
            for attempt in range(2):
                if attempt or not self._flying:
                    self._request_mode("quadricopter")
                self._acknowledgements.drain()
                answered = swing.land()
                if self._acknowledgements.has_last_packet or (
                    swing.sensors.flying_state in ("landing", "landed")
                ):
                    return True
                if not answered:
                    break  # out of reach: a new connection may help
        return False

    def disconnect(self) -> None:
        """Disconnect."""
        if self.swing is not None:
            with self._connected() as swing:
                self.swing = None
                swing.disconnect()

    # ---- PyParrot -------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """PyParrot's drone, whose output is discarded."""
        if self.swing is None:
            raise DroneError("the drone is not connected")
        with redirect_stdout(io.StringIO()):
            yield self.swing

    def _check_acknowledged(self, answer: Any, what: str) -> None:
        if answer is not True:
            raise DroneError(f"the drone was asked {what} and did not acknowledge it")

    def _enum(self, command: str, value: str) -> Any:
        """A command of PyParrot's tables, and the number of one of its values."""
        parser = self.swing.command_parser
        return parser.get_command_tuple_with_enum("minidrone", "Piloting", command, value)

    def _request_plane(self) -> None:
        """Request the plane mode until it is acknowledged, without waiting."""
        received = self.swing.drone_connection.command_received
        if self._steered > 0 and received["SEND_WITH_ACK"]:
            self._plane = True
            return
        self._check_acknowledged(self._steered < GIVE_UP, "to fly as a plane")
        if self._steered % REPEAT == 0:
            received["SEND_WITH_ACK"] = False
            self._request_mode("plane_forward")

    def _request_mode(self, mode: str) -> None:
        """Request a flying mode, without waiting for the acknowledgement."""
        command, value = self._enum("FlyingMode", mode)
        self._write("SEND_WITH_ACK", "DATA_WITH_ACK", "<BBBBBBI", *command, 0, value)

    def _write(self, channel: str, kind: str, layout: str, *values: int) -> None:
        """Write a packet with the next number of its channel; raises where PyParrot would hang."""
        connection = self.swing.drone_connection
        counters = connection.characteristic_send_counter
        counters[channel] = (counters[channel] + 1) % 256
        packet = struct.pack(layout, connection.data_types[kind], counters[channel], *values)
        connection.send_characteristics[channel].write(packet)


class Acknowledgements:
    """Reads the numbers of acknowledged packets from PyParrot's notifications.

    An acknowledgement is its kind, its own number, and that of the packet.
    """

    def __init__(self, connection: Any) -> None:
        """Insert this listener before PyParrot's own."""
        self.connection, self.inner = connection, connection.drone_connection.delegate
        self.last: int | None = None
        connection.drone_connection.setDelegate(self)

    def handleNotification(self, handle: int, data: bytes) -> None:  # noqa: N802 - bluepy's name
        """Record an acknowledgement, and pass the notification on."""
        channel = self.connection.receive_characteristics["ACK_COMMAND_SENT"]
        if handle == channel.getHandle() and len(data) > 2:
            self.last = data[2]
        self.inner.handleNotification(handle, data)

    def drain(self) -> None:
        """Read waiting notifications, and forget them: they are not about the next packet."""
        for _ in range(AT_ONCE):
            if not self.connection.drone_connection.waitForNotifications(0.001):
                break
        self.last = None

    @property
    def has_last_packet(self) -> bool:
        """Whether the last packet was acknowledged."""
        return self.last == self.connection.characteristic_send_counter["SEND_WITH_ACK"]
