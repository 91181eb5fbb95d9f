"""Poses of the drone, from any tracker.

Any tracker is connected by a small program that sends each frame as one UDP datagram:

    {"time": 12.345, "frame": 1234, "x": 0.01, "y": 1.02, "z": 0.98, "yaw": 0.03}

time: s by the tracker's clock, which is only logged. frame: a whole number that grows. x, y, z: m,
in the frame of the netted area, whose net stands at x = ±3.5, y = 0 and y = 18. yaw: rad, ψ, such
that the drone flies along (-sin ψ, cos ψ): 0 along y, and positive counter-clockwise. Other keys
are ignored. A drone out of sight is not sent, or is sent with the pose and frame it had.
"""

from __future__ import annotations

import ipaddress
import json
import re
import select
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

LARGEST_DATAGRAM = 512  # bytes
LARGEST_NUMBER = 1e6  # m, rad or s: a larger number is an error
AT_ONCE = 256  # datagrams read before the loop goes on: a flood of them must not delay it


@dataclass(frozen=True)
class Pose:
    """A tracked pose of the drone."""

    time: float  # s by our own clock, at which it arrived, or earlier
    frame: int
    x: float  # m
    y: float  # m
    z: float  # m, above the ground
    yaw: float  # rad
    sender_time: float = 0.0  # s by the tracker's clock


def parse_frame(datagram: bytes, at: float) -> Pose | None:
    """The pose in a datagram that arrived at a time; None if it is not a frame.

    >>> parse_frame(b'{"time": 1, "frame": 7, "x": 0, "y": 1, "z": 1, "yaw": 0.5}', at=0.0).frame
    7
    >>> parse_frame(b'{"time": 1, "frame": 7, "x": NaN, "y": 1, "z": 1, "yaw": 0.5}', at=0.0)
    """
    if len(datagram) > LARGEST_DATAGRAM:
        return None
    try:
        record = json.loads(datagram)
    except (ValueError, RecursionError):
        return None
    frame = record.get("frame") if isinstance(record, dict) else None
    if type(frame) is not int or not 0 <= frame < 2**63:
        return None
    values: list[Any] = [record.get(name) for name in ("x", "y", "z", "yaw", "time")]
    # True, False, NaN and infinity are not numbers of a sensible size.
    if not all(type(value) in (int, float) and abs(value) <= LARGEST_NUMBER for value in values):
        return None
    x, y, z, yaw, sent = map(float, values)
    return Pose(at, frame, x, y, z, yaw, sent)


class FrameReader:
    """Reads datagrams, and counts those without a new pose.

    A frame whose number does not grow came late or twice. A pose that is equal to the last one in
    every digit is that of a tracker that has lost its object, since a real one is noisy. Neither is
    a new pose, so a frozen tracker looks like a silent one.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again, without earlier frames and counts."""
        self.counts: Counter[str] = Counter()
        self.last: Pose | None = None

    def read(self, datagram: bytes, at: float) -> Pose | None:
        """The pose in a datagram, if it is new."""
        pose = parse_frame(datagram, at)
        last = self.last
        if pose is None:
            self.counts["malformed"] += 1
            return None
        if last is not None and pose.frame <= last.frame:
            self.counts["out of order"] += 1
            return None
        self.last, where = pose, (pose.x, pose.y, pose.z, pose.yaw)
        if last is not None and where == (last.x, last.y, last.z, last.yaw):
            self.counts["repeated"] += 1
            return None
        self.counts["frames"] += 1
        return pose


class UdpTracker(FrameReader):
    """Any tracker, by UDP; the first sender is listened to, and no other until `start`.

    No thread reads the socket, and a datagram may wait there before it is read. Its time is
    therefore the last moment at which the socket was empty: a pose is never younger than it says,
    and the sender's clock does not matter.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen on an address of this machine; port 0 is any free port."""
        super().__init__()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self.socket.setblocking(False)
            self.socket.bind((host, port))
        except OSError as error:
            self.socket.close()
            reason = error.strerror or error
            raise ValueError(
                f"cannot listen for a tracker at {host}:{port} ({reason}): give an address of this "
                "machine and a free port"
            ) from None
        self.port: int = self.socket.getsockname()[1]
        self._poll = select.poll()  # `select` fails for descriptors from 1024 on
        self._poll.register(self.socket, select.POLLIN)
        self._sender: Any = None
        self._empty = time.monotonic()

    def start(self) -> None:
        """Forget earlier frames, and listen to the first sender."""
        for _ in range(AT_ONCE):
            if self._receive() is None:
                break
        self.forget()
        self._sender, self._empty = None, time.monotonic()

    def poses(self) -> list[Pose]:
        """New poses since the last call, in order."""
        poses, dated = [], self._empty
        for _ in range(AT_ONCE):
            now = time.monotonic()
            received = self._receive()
            if received is None:
                self._empty = now
                break
            datagram, sender = received
            if self._sender not in (None, sender):
                self.counts["other sender"] += 1
                continue
            pose = self.read(datagram, dated)
            if pose is not None:
                self._sender = sender
                poses.append(pose)
        return poses

    def wait(self, seconds: float) -> None:
        """Wait for a datagram, at most so long."""
        if seconds < 1e-3:  # less than the resolution of `poll`
            time.sleep(max(seconds, 0.0))
        else:
            self._poll.poll(int(1e3 * seconds))

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def _receive(self) -> tuple[bytes, Any] | None:
        """One datagram and its sender; None if there is none."""
        try:
            return self.socket.recvfrom(LARGEST_DATAGRAM + 1)
        except BlockingIOError:
            return None
        except ConnectionError:  # some systems report here a datagram that was not delivered
            return b"", None


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of udp://HOST:PORT.

    >>> parse_address("udp://0.0.0.0:5005")
    ('0.0.0.0', 5005)
    """
    match = re.fullmatch(r"udp://(\[[0-9a-fA-F:.]+\]|[0-9.]+|localhost):([0-9]{1,5})", text)
    host, port = (match[1].strip("[]"), int(match[2])) if match else ("", 0)
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        port = 0
    if not 0 < port < 65536:
        raise ValueError(
            f"{text!r} is not the address of a tracker: give udp://HOST:PORT, the address of this "
            "machine to listen at, such as udp://0.0.0.0:5005"
        )
    return host, port
