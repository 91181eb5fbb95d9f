"""The Parrot Swing, through PyParrot: nothing that fails there goes unnoticed.

What PyParrot 1.5.20 does, and what is done about it here:

- Its calls return False, or nothing at all, when a packet was not acknowledged. Here they raise.
- Any acknowledgement is taken for that of the last packet. A landing is believed only if the packet
  with its number was acknowledged, or the drone has said that it is landing or has landed.
- `fly_direct` without a duration calls what a Bluetooth connection does not have, and with one it
  sends for as long as that lasts. The packet is made here, as PyParrot makes it, and sent once.
- `set_flying_mode` and `set_plane_gear_box` do not tell whether they were acknowledged, and every
  acknowledgement is waited for half a second. The gear is set while the drone climbs. To fly as a
  plane is asked for with the first command, and the acknowledgement is looked for at the next ones.
- To write to a drone that is out of reach, it connects anew for ever. Steering does not wait for
  that: it writes by itself, and raises. Other calls hang, and the keeper ends the process.
- `connect(1)` does not try at all: the number is one more than the attempts.
- The battery is at 100 %, and the drone has landed, until it has reported otherwise. Here both are
  unknown until then.
- It prints to standard output. That goes nowhere.
- Its positive yaw is clockwise, and percents are cut off, not rounded.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pacbayes_control.robots.swing.flight.drones import DroneError

INSTALL = "pip install 'pacbayes-control[swing]'"
MODES = ("quadricopter", "plane_forward")
GEARS = ("gear_1", "gear_2", "gear_3")
AT_ONCE = 100  # notifications that are taken in before a command
REPEAT, GIVE_UP = 3, 9  # commands after which the change to a plane is asked for anew, or given up


def pyparrot_swing() -> Any:
    """The class of PyParrot; an error that says how to get it."""
    if find_spec("pyparrot") is None:
        raise ModuleNotFoundError(f"to fly a Swing takes PyParrot: {INSTALL}")
    with _quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it compares with `is`, of which Python warns
        try:
            module = import_module("pyparrot.Minidrone")
        except ImportError as error:
            raise ModuleNotFoundError(f"PyParrot lacks {error.name}: {INSTALL}") from None
    if not module.BLEAvailable:
        raise ModuleNotFoundError(f"PyParrot has no Bluetooth without bluepy (Linux): {INSTALL}")
    return module.Swing


class ParrotSwing:
    """A Swing over Bluetooth. A call that returns was acknowledged, steering apart.

    Steering is not acknowledged by the drone: that the call returned means that the radio has sent.
    """

    def __init__(
        self,
        address: str,
        pitch: int = 50,
        mode: str = "plane_forward",
        gear: str = "gear_1",
        attempts: int = 3,
        swing: Callable[[str], Any] | None = None,
    ) -> None:
        """A drone by its Bluetooth address.

        pitch: percent of the full pitch at which it flies 2 m/s, to be found for each drone. mode:
        plane_forward, or quadricopter for one that tilts to fly. swing: the class to use instead of
        PyParrot's.
        """
        if mode not in MODES or gear not in GEARS:
            raise ValueError(f"{mode}, {gear}: choose from {', '.join((*MODES, *GEARS))}")
        if not -100 <= pitch <= 100:
            raise ValueError(f"a pitch of {pitch} % is outside [-100, 100]")
        self.address, self.pitch, self.mode, self.gear = address, pitch, mode, gear
        self.attempts, self.make = attempts, swing
        self.swing: Any = None
        self._flying = False
        self._plane = False  # whether the change to a plane was acknowledged
        self._steered = 0
        self._acknowledgements = Acknowledgements()

    def connect(self) -> None:
        """Connect by a new object of PyParrot's. No more is asked: it may be in order to land."""
        with _quietly():
            self.swing = (self.make or pyparrot_swing())(self.address)
            self.swing.sensors.battery = self.swing.sensors.flying_state = None
            if not self.swing.connect(self.attempts + 1):
                raise DroneError(f"no connection to {self.address}: is the drone on, and in reach?")
            self._acknowledgements.listen(self.swing.drone_connection)

    def battery(self) -> float:
        """Percent, as the drone last reported; it is asked to if it never has."""
        swing = self._connected()
        if swing.sensors.battery is None and not self._flying:
            with _quietly():
                self._acknowledged(swing.ask_for_state_update(), "to report its state")
                for _ in range(20):
                    if swing.sensors.battery is None:
                        swing.smart_sleep(0.1)
        if swing.sensors.battery is None:
            raise DroneError("the drone does not report its battery")
        return float(swing.sensors.battery)

    def take_off(self) -> None:
        """Rise, and hover at about a metre."""
        self._flying, self._plane, self._steered = True, self.mode != "plane_forward", 0
        with _quietly():
            swing = self._connected()
            self._acknowledged(swing.takeoff(), "to take off")
            if not self._plane:
                found = self._enum("PlaneGearBox", self.gear)
                answer = swing.drone_connection.send_enum_command_packet_ack(*found)
                self._acknowledged(answer, "to change its gear")

    def hold(self) -> None:
        """Listen to the drone for a moment: its battery and its state come by notification."""
        with _quietly():
            self._connected().smart_sleep(0.01)

    def steer(self, yaw_percent: float) -> None:
        """Fly forward, and turn; as a plane from the first time on."""
        self._flying = True
        if not math.isfinite(yaw_percent):
            raise DroneError(f"a yaw of {yaw_percent} % cannot be flown")
        with _quietly():
            if not self._plane:
                self._become_plane()
            self._send(max(-100, min(100, round(-yaw_percent))))
            self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Nothing is told here: whoever calls knows when a call returned."""
        return []

    def land(self) -> bool:
        """Land; whether the drone has acknowledged just this, or says that it does.

        One that answers and does not say so is asked again. A plane is then told to hover first;
        also over a connection that did not take off, for another one has failed to land it.
        """
        with _quietly():
            swing = self._connected()
            for attempt in range(2):
                if self.mode == "plane_forward" and (attempt or not self._flying):
                    self._ask_mode("quadricopter")
                self._acknowledgements.drain()
                answered = swing.land()
                if self._acknowledgements.of_the_last or (
                    swing.sensors.flying_state in ("landing", "landed")
                ):
                    return True
                if not answered:
                    break  # not heard at all: over a new connection, perhaps
        return False

    def disconnect(self) -> None:
        """Let go."""
        swing, self.swing = self.swing, None
        if swing is not None:
            with _quietly():
                swing.disconnect()

    # ---- PyParrot -------------------------------------------------------------------------------

    def _connected(self) -> Any:
        if self.swing is None:
            raise DroneError("the drone is not connected")
        return self.swing

    def _acknowledged(self, answer: Any, what: str) -> None:
        if answer is not True:
            raise DroneError(f"the drone was asked {what} and did not acknowledge it")

    def _enum(self, command: str, value: str) -> Any:
        """A command of PyParrot's tables, and the number of one of its values."""
        parser = self._connected().command_parser
        return parser.get_command_tuple_with_enum("minidrone", "Piloting", command, value)

    def _become_plane(self) -> None:
        """Ask to fly as a plane, and see to it that the drone has heard, without waiting for it."""
        connection = self._connected().drone_connection
        if self._steered > 0 and connection.command_received["SEND_WITH_ACK"]:
            self._plane = True
            return
        if self._steered >= GIVE_UP:
            raise DroneError("the drone was asked to fly as a plane and did not acknowledge it")
        if self._steered % REPEAT == 0:
            connection.command_received["SEND_WITH_ACK"] = False
            self._ask_mode("plane_forward")

    def _ask_mode(self, mode: str) -> None:
        """Ask to hover or to fly as a plane, without waiting for the acknowledgement."""
        command, value = self._enum("FlyingMode", mode)
        self._write("SEND_WITH_ACK", "DATA_WITH_ACK", "<BBBBBBI", *command, 0, value)

    def _send(self, yaw: int) -> None:
        """One command for the motors, sent once, as BLEConnection.send_pcmd_command makes it."""
        parser = self._connected().command_parser
        command = parser.get_command_tuple("minidrone", "Piloting", "PCMD")
        # that roll and pitch count; roll, pitch, yaw, up; a time that nobody reads
        values = (1, 0, self.pitch, yaw, 0, 0)
        self._write("SEND_NO_ACK", "DATA_NO_ACK", "<BBBBHBbbbbI", *command, *values)

    def _write(self, channel: str, kind: str, layout: str, *values: int) -> None:
        """Write a packet with the next number of its channel; raises where PyParrot would hang."""
        connection = self._connected().drone_connection
        counters = connection.characteristic_send_counter
        counters[channel] = (counters[channel] + 1) % 256
        packet = struct.pack(layout, connection.data_types[kind], counters[channel], *values)
        connection.send_characteristics[channel].write(packet)


class Acknowledgements:
    """Listens to PyParrot's notifications, for the numbers of the packets that were acknowledged.

    An acknowledgement is its kind, a number of its own, and that of the packet.
    """

    def __init__(self) -> None:
        self.connection: Any = None
        self.inner: Any = None
        self.last: int | None = None

    def listen(self, connection: Any) -> None:
        """Stand between the radio and PyParrot's own listener."""
        self.connection, self.inner = connection, connection.drone_connection.delegate
        connection.drone_connection.setDelegate(self)

    def handleNotification(self, handle: int, data: bytes) -> None:  # noqa: N802 - bluepy's name
        """Take note, and pass on."""
        channel = self.connection.receive_characteristics["ACK_COMMAND_SENT"]
        if handle == channel.getHandle() and len(data) > 2:
            self.last = data[2]
        self.inner.handleNotification(handle, data)

    def drain(self) -> None:
        """Take in what is waiting, and forget it: it is not about the next packet."""
        for _ in range(AT_ONCE):
            if not self.connection.drone_connection.waitForNotifications(0.001):
                break
        self.last = None

    @property
    def of_the_last(self) -> bool:
        """Whether the last packet was acknowledged."""
        return self.last == self.connection.characteristic_send_counter["SEND_WITH_ACK"]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what a library prints from standard output."""
    with redirect_stdout(io.StringIO()):
        yield
