"""A simulated drone and a simulated tracker, behind the same interfaces as real ones.

In real time the world is its own process: frames of the tracker come by UDP as from any other, and
commands go to it by UDP, in place of Bluetooth. In virtual time the same world advances while the
loop waits.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from pacbayes_control.robots.swing.flight import processes
from pacbayes_control.robots.swing.flight.drones import DroneError
from pacbayes_control.robots.swing.flight.tracking import FrameReader, Pose
from pacbayes_control.robots.swing.flight.world import STEP, World, WorldSetup

ANSWER = 0.45  # s to wait for the answer to a command
HANGING = 0.5  # s of a call that hangs in virtual time, as long as a keeper would wait
KILLED = 1e6  # s of one in real time: until the process is killed
ON_THE_GROUND = 3.0  # s that a world runs on after its parent process, with the drone on the ground
IN_THE_AIR = 120.0  # s that it runs on in any case


class RealClock:
    """The system's monotonic clock, which every process on the machine shares."""

    real = True

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(max(seconds, 0.0))


class VirtualClock:
    """A time that passes only in `sleep`, and then calls a function with the new time.

    >>> clock = VirtualClock()
    >>> clock.sleep(600)
    >>> clock.now()
    600.0
    """

    real = False

    def __init__(self, follower: Callable[[float], None] | None = None) -> None:
        self._now, self._follower = 0.0, follower

    def now(self) -> float:
        """The time."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and tell the follower."""
        self._now += max(seconds, 0.0)
        if self._follower:
            self._follower(self._now)


Clock = RealClock | VirtualClock  # a time that never goes back, in s from an arbitrary zero


class SimulatedDrone:
    """The simulated Swing: each command is acknowledged, or fails."""

    def __init__(self, world: World | RemoteWorld, clock: Clock) -> None:
        self.world, self.clock = world, clock
        self.session = ""
        self._percent = 0.0
        self._steered = 0
        self._sent: list[tuple[int, float]] = []

    def connect(self) -> None:
        """Begin a new session."""
        self.session = secrets.token_hex(4)
        self._command("connect")

    def battery(self) -> float:
        """Percent, as of the last answer."""
        return self._percent

    def take_off(self) -> None:
        """Take off."""
        self._steered = 0
        self._command("take_off")

    def hold(self) -> None:
        """Keep the connection alive."""
        self._command("hold")

    def steer(self, yaw_percent: float) -> None:
        """Steer."""
        self._command("steer", yaw_percent)
        self._sent.append((self._steered, self.clock.now()))
        self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Commands that were acknowledged."""
        sent, self._sent = self._sent, []
        return sent

    def land(self) -> bool:
        """Land."""
        self._command("land")
        return True

    def disconnect(self) -> None:
        """End the session."""
        with suppress(DroneError):
            self._command("disconnect")
        if isinstance(self.world, RemoteWorld):
            self.world.socket.close()

    def _command(self, what: str, value: float | None = None) -> None:
        """Send a command; in virtual time, a drone out of reach takes the time of a timeout."""
        reply = self.world.answer({"session": self.session, "do": what, "value": value})
        if reply is None:
            self.clock.sleep(0.0 if self.clock.real else ANSWER)
            raise DroneError("the drone does not answer")
        if reply.get("hang"):
            self.clock.sleep(KILLED if self.clock.real else HANGING)
            raise DroneError("the driver hangs")
        if "error" in reply:
            raise DroneError(reply["error"])
        self._percent = reply["battery"]


class VirtualTracker(FrameReader):
    """The tracker of a world in this process; the world advances while it waits."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        super().__init__()
        self.world, self.clock = world, clock

    def start(self) -> None:
        """Forget earlier frames."""
        self.world.arrived()
        self.forget()

    def poses(self) -> list[Pose]:
        """Frames that have arrived."""
        found = [self.read(datagram, at) for at, datagram in self.world.arrived()]
        return [pose for pose in found if pose is not None]

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock.sleep(seconds)


class RemoteWorld:
    """A world in another process, by UDP."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(ANSWER)
        self.socket.connect(("127.0.0.1", port))
        self.number = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a command, and wait for its answer: within a machine no datagram gets lost."""
        self.number += 1
        try:
            self.socket.send(json.dumps({**request, "number": self.number}).encode())
            while True:
                reply = json.loads(self.socket.recv(1 << 12))
                if reply.get("number") == self.number:  # not a late answer to an earlier command
                    return reply
        except OSError:  # it takes too long, or no process listens there
            return None


class WorldProcess:
    """A world in its own process, which outlives this one until its drone has landed."""

    def __init__(self, setup: WorldSetup, tracker_port: int, record: Path) -> None:
        """Start it. record: a file to which it adds a line for each command that arrives."""
        spec = {"world": asdict(setup), "tracker": tracker_port, "record": str(record)}
        self.process, self.channel = processes.start_process("simulated", spec)
        try:
            answer = self.channel.receive(None)
        except processes.ChannelClosed:
            self.close()
            raise OSError("the simulated world could not be started") from None
        assert answer is not None
        self.port: int = answer["port"]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        processes.reap(self.process)
        self.channel.close()


def serve(parent: processes.Channel, spec: dict[str, Any]) -> None:
    """Run the world in real time, until its parent process has ended and the drone has landed."""
    commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    frames = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with commands, frames, Path(spec["record"]).open("a", encoding="utf-8") as file:
        commands.bind(("127.0.0.1", 0))
        setup = WorldSetup.from_record(spec["world"])
        world = World(setup, lambda entry: print(json.dumps(entry), file=file, flush=True))
        parent.send({"port": commands.getsockname()[1]})
        began, alone_since = time.monotonic(), None
        watched: list[Any] = [commands, parent.connection]
        while True:
            now = time.monotonic()
            world.advance(now - began)
            for _, datagram in world.arrived():
                with suppress(OSError):  # no process listens
                    frames.sendto(datagram, ("127.0.0.1", spec["tracker"]))
            landed = world.phase == "ground" and not world.underway
            limit = ON_THE_GROUND if landed else IN_THE_AIR
            if alone_since is not None and now - alone_since > limit:
                return
            due = began + (world.steps + 1) * STEP
            ready = wait(watched, max(due - time.monotonic(), 0.0))
            if parent.connection in ready:  # it never sends: it has ended
                watched, alone_since = [commands], now
            if commands in ready:
                world.advance(time.monotonic() - began)
                if _answer_datagram(commands, world) and alone_since is not None:
                    alone_since = now


def _answer_datagram(commands: socket.socket, world: World) -> bool:
    """Answer one datagram; whether it was a command."""
    try:
        datagram, sender = commands.recvfrom(1 << 12)
        request = json.loads(datagram)
    except (OSError, ValueError):
        return False
    reply = world.answer(request)
    if reply is not None:
        with suppress(OSError):
            commands.sendto(json.dumps({**reply, "number": request.get("number")}).encode(), sender)
    return True


def main() -> None:
    """Run the process; it replaces a tracker and a drone, which have their own computers."""
    serve(*processes.connect_to_parent())


if __name__ == "__main__":
    main()
