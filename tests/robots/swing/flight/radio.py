"""A stand-in for `bluepy.btle`: a Swing at the other end of the air, for the real PyParrot.

Everything of PyParrot runs as it is, down to the bytes that it would give to the radio. What the
drone receives is written to the file RADIO_RECORD, if there is one. Trouble, deaf (no packet is
acknowledged), gone (writing raises) or stuck (writing never returns), comes from the file
RADIO_TROUBLE, and befalls connections that are older than the file. Acknowledgements come at once,
so nobody waits long for them.
"""

from __future__ import annotations

import importlib
import os
import struct
import time
from pathlib import Path
from typing import Any

RECEIVE = {"fb0e": 1, "fb0f": 2, "fb1b": 3, "fb1c": 4}
SEND = {"fa0a": 11, "fa0b": 12, "fa0c": 13, "fa1e": 14}
FILES = {"fd22": 21, "fd23": 22, "fd24": 23, "fd52": 24, "fd53": 25, "fd54": 26}
NAMES = {
    **{(2, 0, 1): "take_off", (2, 0, 2): "steer", (2, 0, 3): "land", (2, 0, 6): "mode"},
    **{(2, 0, 7): "gear", (0, 4, 0): "report"},
}

received: list[tuple[str, bytes]] = []  # in this process
trouble: list[str] = []  # the same for tests within one process
battery: list[int | None] = [88]


def shorten_waits(most: float) -> None:
    """Have PyParrot wait no longer than this at a time."""
    connection: Any = importlib.import_module("pyparrot.networking.bleConnection").BLEConnection
    if not hasattr(connection, "patient"):
        connection.patient = sleep = connection.smart_sleep
        connection.smart_sleep = lambda self, seconds: sleep(self, min(seconds, most))


class BTLEException(Exception):  # noqa: N818 - bluepy's name
    """What bluepy raises."""


class UUID(str):
    """A UUID, of which PyParrot reads the third and fourth byte."""

    __slots__ = ()


class DefaultDelegate:
    """What notifications are given to."""


def uuid(short: str) -> UUID:
    return UUID(f"9a66{short}-0800-9191-11e4-012d1540cb8e")


class Characteristic:
    def __init__(self, peripheral: Peripheral, short: str, handle: int) -> None:
        self.peripheral, self.short, self.handle, self.uuid = peripheral, short, handle, uuid(short)

    def getHandle(self) -> int:  # noqa: N802 - bluepy's name
        return self.handle

    def write(self, packet: bytes) -> None:
        self.peripheral.receive(self.short, packet)


class Service:
    def __init__(self, peripheral: Peripheral, short: str, parts: dict[str, int]) -> None:
        self.uuid = uuid(short)
        self.parts = [Characteristic(peripheral, name, handle) for name, handle in parts.items()]

    def getCharacteristics(self) -> list[Characteristic]:  # noqa: N802
        return self.parts


class Peripheral:
    """A Swing."""

    def __init__(self) -> None:
        self.delegate: Any = None
        self.notifications: list[tuple[int, bytes]] = []
        self.born = 0.0
        self.acknowledged = 0

    def connect(self, address: str, kind: str) -> None:  # noqa: ARG002
        if "gone" in trouble:
            raise BTLEException("no such drone")
        self.born = time.time()
        shorten_waits(0.1)
        self._note("connect", b"")

    def getServices(self) -> list[Service]:  # noqa: N802
        groups = (("fa00", SEND), ("fb00", RECEIVE), ("fd21", FILES))
        return [Service(self, short, parts) for short, parts in groups]

    def setDelegate(self, delegate: Any) -> None:  # noqa: N802
        self.delegate = delegate

    def writeCharacteristic(self, handle: int, packet: bytes) -> None:  # noqa: N802
        """The handshake."""

    def waitForNotifications(self, seconds: float) -> bool:  # noqa: N802
        if "gone" in self._trouble():
            raise BTLEException("disconnected")
        if not self.notifications:
            time.sleep(min(seconds, 0.01))
            return False
        self.delegate.handleNotification(*self.notifications.pop(0))
        return True

    def disconnect(self) -> None:
        self._note("disconnect", b"")

    def receive(self, short: str, packet: bytes) -> None:
        """A packet arrives, or does not."""
        kinds = self._trouble()
        while "stuck" in kinds:
            time.sleep(1)
        if "gone" in kinds:
            raise BTLEException("disconnected")
        while self.notifications:  # bluepy reads them while it waits for the end of a write
            self.delegate.handleNotification(*self.notifications.pop(0))
        if short not in ("fa0a", "fa0b"):
            return
        name = NAMES.get(struct.unpack_from("<BBH", packet, 2), "?")
        self._note(name, packet)
        if short == "fa0b" and "deaf" not in kinds:
            self.acknowledged = (self.acknowledged + 1) % 256
            own = bytes([1, self.acknowledged, packet[1]])
            self.notifications.append((RECEIVE["fb1b"], own))
        if name == "report" and battery[0] is not None:
            self.notifications.append(
                (RECEIVE["fb0f"], struct.pack("<BBBBHB", 2, 1, 0, 5, 1, battery[0]))
            )

    def _trouble(self) -> list[str]:
        file = os.environ.get("RADIO_TROUBLE")
        if not file or not Path(file).exists() or Path(file).stat().st_mtime < self.born:
            return trouble
        return [*trouble, Path(file).read_text()]

    def _note(self, name: str, packet: bytes) -> None:
        received.append((name, packet))
        if file := os.environ.get("RADIO_RECORD"):
            with Path(file).open("a") as record:
                record.write(f"{name} {packet.hex()}\n")
