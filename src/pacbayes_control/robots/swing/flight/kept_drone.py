"""A drone in another process, as the loop uses it: no call waits in flight."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from typing import Any

from pacbayes_control.robots.swing.flight import processes
from pacbayes_control.robots.swing.flight.drones import DroneError
from pacbayes_control.robots.swing.flight.processes import Channel, ChannelClosed

GROUND_TIMEOUT = 60.0  # s to wait for an answer before take-off
END_TIMEOUT = 15.0  # s that a keeper with a drone on the ground may take to end
START_TIMEOUT = 10.0  # s that a new keeper may take to give its first sign of life
KEEPER_TIMEOUT = 4.0  # s without a sign of life after which a keeper is replaced

# Keepers that are left running because they are still trying to land their drone.
STILL_LANDING: list[subprocess.Popen[bytes]] = []


class KeptDrone:
    """A drone behind a keeper.

    `connect` and the first `battery` wait for the answer. In flight every call sends a command and
    returns at once; a failure raises at the next call. If the keeper dies, `connect` starts
    another, which lands the drone without being asked.
    """

    def __init__(
        self, spec: Mapping[str, Any], silence: float = 0.5, patience: float = 0.5
    ) -> None:
        """A drone as `open_drone` takes it.

        silence: s without a command after which the keeper lands. patience: s that a command may
        stay unanswered in flight.
        """
        self.spec, self.silence, self.patience = dict(spec), silence, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.keeper: Channel | None = None
        self.driver: int | None = None  # the process that talks to the drone
        self.flying = False
        self._last_number = 0
        self._steered = 0
        # Commands without an answer: what, when, and how many calls of `steer` came before.
        self._unanswered: dict[int, tuple[str, float, int]] = {}
        self._replies: dict[int, dict[str, Any]] = {}
        self._awaited: int | None = None
        self._sent: list[tuple[int, float]] = []
        self._battery: float | None = None
        self._failure: str | None = None
        self._landing_since: float | None = None  # when landing was requested
        self._landed = False
        self._last_heard = 0.0

    # ---- on the ground --------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect; in flight, start another keeper, which lands at once."""
        if not self.flying:
            check_no_keeper_landing()
        if self.keeper is None or self._failure or self.flying:
            self._start_keeper()
        if not self.flying:
            self._battery = None
            self._call("connect")

    def battery(self) -> float:
        """Percent, as last reported with an answer; requested if there was none."""
        if self.flying:
            self._receive()
        if self._battery is None:
            self._call("battery")
        if self._battery is None:
            raise DroneError("the drone does not report its battery")
        return self._battery

    def disconnect(self) -> None:
        """Close the channel to the keeper. One that is still landing the drone goes on."""
        keeper, process = self.keeper, self.process
        self.keeper = self.process = None
        if keeper is None or process is None:
            return
        keeper.close()
        try:
            process.wait(0.0 if self.flying else END_TIMEOUT)
        except subprocess.TimeoutExpired:
            STILL_LANDING.append(process)

    # ---- in flight ------------------------------------------------------------------------------

    def take_off(self) -> None:
        """Send the command."""
        self.flying, self._landed, self._landing_since = True, False, None
        self._steered = 0
        self._send_in_flight("take_off")

    def hold(self) -> None:
        """Show the keeper that the loop is running."""
        self._send_in_flight("hold")

    def steer(self, yaw_percent: float) -> None:
        """Send the command."""
        self._send_in_flight("steer", yaw_percent)
        self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Commands that the driver has sent, and when its calls returned."""
        sent, self._sent = self._sent, []
        return sent

    def land(self) -> bool:
        """Request the keeper to land, once; then return whether the drone has acknowledged it."""
        self._receive()
        if self.keeper is None:
            raise DroneError("there is no keeper to land the drone")
        if self._landed and self._landing_since is not None:
            self.flying, self._landing_since = False, None
            return True
        now = time.monotonic()
        if self._landing_since is None:
            self._landing_since, self._landed = now, False
            self._send("land")
        elif now - max(self._last_heard, self._landing_since) > KEEPER_TIMEOUT:
            self._failure = f"the keeper gave no sign of life for {KEEPER_TIMEOUT:g} s"
            raise DroneError(self._failure)
        return False

    # ---- the keeper -----------------------------------------------------------------------------

    def kill_keeper(self) -> None:
        """Kill the keeper's process, to rehearse that fault."""
        if self.process is not None:
            self.process.kill()

    def _start_keeper(self) -> None:
        """Start a keeper. An earlier one is ended, and its driver lands a drone in the air."""
        if self.process is not None and self.keeper is not None:
            if self.flying:
                self.process.kill()
            self.keeper.close()
            try:
                self.process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                processes.reap(self.process)
        spec = {"drone": self.spec, "silence": self.silence, "flying": self.flying}
        stale = self.driver if self.flying else None
        self.process, self.keeper = processes.start_process("keeper", spec | {"stale": stale})
        self._failure, self._landing_since, self._landed = None, None, False
        self._unanswered.clear()
        self._last_heard = time.monotonic() + START_TIMEOUT

    def _send_in_flight(self, what: str, value: float | None = None) -> None:
        self._receive()
        if self._failure:
            raise DroneError(self._failure)
        now = time.monotonic()
        if self._unanswered and what != "take_off":
            oldest, since, _ = next(iter(self._unanswered.values()))
            limit = self.patience if oldest != "take_off" else 5.0
            if now - since > limit:
                raise DroneError(f"no answer to {oldest} for {limit:g} s")
        number = self._send(what, value)
        self._unanswered[number] = what, now, self._steered

    def _call(self, what: str) -> None:
        """Send a request on the ground, and wait for the answer."""
        number = self._awaited = self._send(what)
        until = time.monotonic() + GROUND_TIMEOUT
        while number not in self._replies:
            self._receive(0.1)
            if self.keeper is None or self._failure:
                raise DroneError(self._failure or "the keeper ended")
            if time.monotonic() > until:
                raise DroneError(f"no answer to {what} for {GROUND_TIMEOUT:g} s")
        reply = self._replies.pop(number)
        if not reply["ok"]:
            raise DroneError(reply["error"])

    def _send(self, what: str, value: float | None = None) -> int:
        if self.keeper is None:
            raise DroneError(self._failure or "the drone is not connected")
        self._last_number += 1
        try:
            self.keeper.send({"number": self._last_number, "do": what, "value": value})
        except ChannelClosed:
            self._failure = "the keeper ended"
            raise DroneError(self._failure) from None
        return self._last_number

    def _receive(self, timeout: float = 0.0) -> None:
        """Read all messages of the keeper."""
        while self.keeper is not None:
            try:
                record = self.keeper.receive(timeout)
            except ChannelClosed:
                self._failure = "the keeper ended"
                if self._landing_since is not None or self._awaited is not None:
                    self._landing_since = self._awaited = None
                    raise DroneError(self._failure) from None
                return
            if record is None:
                return
            timeout, self._last_heard = 0.0, time.monotonic()
            self._process(record)

    def _process(self, record: dict[str, Any]) -> None:
        """Process a message of the keeper: a reply, or a report."""
        if "driver" in record:
            self.driver = record["driver"]
        if record.get("landed"):
            self._landed = True
        if "fault" in record:
            self._failure = f"the keeper has landed: {record['fault']}"
        if "battery" in record:
            self._battery = record["battery"]
        if "number" not in record or record["number"] < 0:
            return
        number = record["number"]
        if number == self._awaited:
            self._replies[number], self._awaited = record, None
        what, _, count = self._unanswered.pop(number, ("", 0.0, 0))
        if what == "steer" and record["ok"] and "skipped" not in record:
            self._sent.append((count, record["time"]))
        if not record["ok"]:
            self._failure = self._failure or f"{record['do']}: {record['error']}"


def check_no_keeper_landing() -> None:
    """An error while the keeper of an earlier flight still tries to land its drone."""
    STILL_LANDING[:] = [process for process in STILL_LANDING if process.poll() is None]
    if STILL_LANDING:
        raise DroneError(
            f"process {STILL_LANDING[0].pid} still tries to land the drone of an earlier flight: "
            "wait for its end, and see that the drone is on the ground"
        )
