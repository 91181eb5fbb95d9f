"""A drone and a tracker that are simulated, behind the same interfaces as real ones.

In real time the world is a process of its own: frames of the tracker come by UDP as from any other,
and commands go to it by UDP, in place of Bluetooth. In virtual time the same world is advanced by
the loop's own waiting.
"""

from __future__ import annotations

import json
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pacbayes_control.robots.swing.flight.channel import reap
from pacbayes_control.robots.swing.flight.clock import VirtualClock
from pacbayes_control.robots.swing.flight.drones import DroneError
from pacbayes_control.robots.swing.flight.priority import hurry
from pacbayes_control.robots.swing.flight.tracking import Pose, Sieve
from pacbayes_control.robots.swing.flight.world import STEP, World, world_from

ATTEMPTS, ANSWER = 3, 0.15  # datagrams sent for a command, and s to wait for each answer
ALONE = 3.0  # s that a world on the ground outlives whoever started it
LONGEST = 120.0  # s that it outlives them in any case


class Link(Protocol):
    """A way for commands to reach a simulated drone."""

    def exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a command; the answer, or None where there was none."""
        ...

    def now(self) -> float:
        """The time."""
        ...

    def hang(self) -> None:
        """What a driver does that hangs."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class SimulatedDrone:
    """The simulated Swing: each command is acknowledged, or fails."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.session = ""
        self._percent = 0.0
        self._steered = 0
        self._sent: list[tuple[int, float]] = []

    def connect(self) -> None:
        """Begin a session of one's own."""
        self.session = secrets.token_hex(4)
        self._ask("connect")

    def battery(self) -> float:
        """Percent, as of the last answer."""
        return self._percent

    def take_off(self) -> None:
        """Take off."""
        self._steered = 0
        self._ask("take_off")

    def hold(self) -> None:
        """Say nothing of importance."""
        self._ask("hold")

    def steer(self, yaw_percent: float) -> None:
        """Steer."""
        self._ask("steer", yaw_percent)
        self._sent.append((self._steered, self.link.now()))
        self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Commands that were acknowledged."""
        sent, self._sent = self._sent, []
        return sent

    def land(self) -> bool:
        """Land."""
        self._ask("land")
        return True

    def disconnect(self) -> None:
        """End the session."""
        with suppress(DroneError):
            self._ask("disconnect")
        self.link.close()

    def _ask(self, what: str, value: float | None = None) -> None:
        request = {"session": self.session, "do": what, "value": value}
        reply = self.link.exchange(request)
        if reply is None:
            raise DroneError("the drone does not answer")
        if reply.get("hang"):
            self.link.hang()
            raise DroneError("the driver hangs")
        if "error" in reply:
            raise DroneError(reply["error"])
        self._percent = reply["battery"]


class DirectLink:
    """Commands to a world in this process, under a virtual clock."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self.world, self.clock = world, clock

    def exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the world; a drone out of reach costs the time of a timeout."""
        reply = self.world.answer(request)
        if reply is None:
            self.clock.sleep(ATTEMPTS * ANSWER)
        return reply

    def now(self) -> float:
        """The time."""
        return self.clock.now()

    def hang(self) -> None:
        """Hang for as long as a keeper would wait."""
        self.clock.sleep(0.5)

    def close(self) -> None:
        """There is nothing to let go of."""


class VirtualTracker:
    """The tracker of a world in this process; waiting is what lets the world go on."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self.world, self.clock, self.sieve = world, clock, Sieve()
        clock.follow(world.advance)

    @property
    def counts(self) -> dict[str, int]:
        """What became of the datagrams."""
        return self.sieve.counts

    def start(self) -> None:
        """Forget what was seen."""
        self.world.arrived()
        self.sieve = Sieve()

    def poses(self) -> list[Pose]:
        """Frames that have arrived."""
        taken = [self.sieve.take(datagram, at) for at, datagram in self.world.arrived()]
        return [pose for pose in taken if pose is not None]

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock.sleep(seconds)

    def close(self) -> None:
        """There is nothing to close."""


class UdpLink:
    """Commands to a world in another process."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((host, port))
        self.number = 0

    def exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a command until it is answered, a few times."""
        self.number += 1
        datagram = json.dumps({**request, "number": self.number}).encode()
        for _ in range(ATTEMPTS):
            try:
                self.socket.send(datagram)
                until = time.monotonic() + ANSWER
                while (left := until - time.monotonic()) > 0:
                    if select.select([self.socket], [], [], left)[0]:
                        reply = json.loads(self.socket.recv(1 << 12))
                        if reply.get("number") == self.number:
                            return reply
            except OSError:  # nobody listens there
                time.sleep(ANSWER)
        return None

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    def hang(self) -> None:
        """Hang, until somebody ends the process."""
        while True:
            time.sleep(3600)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class WorldProcess:
    """A world in a process of its own, which outlives this one until its drone is down."""

    def __init__(self, spec: dict[str, Any], tracker_port: int, record: Path) -> None:
        """Start it. record: a file to which it adds a line for each command that arrives."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pacbayes_control.robots.swing.flight.simulated"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        setup = {"world": spec, "tracker": tracker_port, "record": str(record)}
        self.process.stdin.write(json.dumps(setup).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.close()
            raise OSError("the simulated world could not be started")
        self.port: int = json.loads(answer)["port"]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        reap(self.process)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def serve(setup: dict[str, Any]) -> None:
    """Be the world, in real time, until nobody needs it."""
    commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    frames = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with commands, frames, Path(setup["record"]).open("a", encoding="utf-8") as file:
        commands.bind(("127.0.0.1", 0))

        def sink(entry: dict[str, Any]) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        world = world_from(setup["world"], sink)
        print(json.dumps({"port": commands.getsockname()[1]}), flush=True)
        began, answered, orphaned = time.monotonic(), {}, None
        watched: list[Any] = [commands, sys.stdin]
        while True:
            now = time.monotonic()
            world.advance(now - began)
            for _, datagram in world.arrived():
                with suppress(OSError):  # nobody listens
                    frames.sendto(datagram, ("127.0.0.1", setup["tracker"]))
            if orphaned is not None and (now - orphaned > (ALONE if world.quiet else LONGEST)):
                return
            due = began + (world.steps + 1) * STEP
            ready = select.select(watched, [], [], max(due - time.monotonic(), 0.0))[0]
            if sys.stdin in ready:  # it is never written to again: whoever started us is gone
                watched, orphaned = [commands], now
            if commands in ready:
                world.advance(time.monotonic() - began)
                if _converse(commands, world, answered) and orphaned is not None:
                    orphaned = now


def _converse(commands: socket.socket, world: World, answered: dict[Any, Any]) -> bool:
    """Answer one datagram. One that comes again, for its answer was late, is obeyed once."""
    try:
        datagram, sender = commands.recvfrom(1 << 12)
        request = json.loads(datagram)
    except (OSError, ValueError):
        return False
    key = sender, request.get("number")
    if key not in answered:
        answered.clear() if len(answered) > 1000 else None
        answered[key] = world.answer(request)
    reply = answered[key]
    if reply is not None:
        with suppress(OSError):
            commands.sendto(json.dumps({**reply, "number": request.get("number")}).encode(), sender)
    return True


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hurry()  # it stands for a tracker and a drone, which have computers of their own
    serve(json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    main()
