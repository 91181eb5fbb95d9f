"""A drone that is kept by another process, as the loop sees it: no call waits in flight."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from typing import Any

from pacbayes_control.robots.swing.flight.channel import Channel, ChannelClosed, reap, start
from pacbayes_control.robots.swing.flight.drones import DroneError

ON_THE_GROUND = 60.0  # s to wait for answers before take-off
GONE = 15.0  # s that a keeper with a drone on the ground may take to end
START_UP = 10.0  # s that a new keeper may take to give its first one
GIVE_UP = 4.0  # s without a sign of life after which a keeper is replaced; it beats every 0.3 s

# Keepers that are left alone because they are still trying to land their drone.
LEFT: list[subprocess.Popen[bytes]] = []


class KeptDrone:
    """A drone behind a keeper.

    `connect` and the first `battery` wait for the answer. In flight every call hands over a command
    and returns at once; what has failed meanwhile raises at the next one. If the keeper dies,
    `connect` starts another, which lands the drone without being asked.
    """

    def __init__(
        self, spec: Mapping[str, Any], silence: float = 0.5, patience: float = 0.5
    ) -> None:
        """A drone as `open_drone` knows it.

        silence: s without a command after which the keeper lands. patience: s that a command may
        stay unanswered in flight.
        """
        self.spec, self.silence, self.patience = dict(spec), silence, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.keeper: Channel | None = None
        self.driver: int | None = None  # the process that talks to the drone
        self.flying = False
        self._numbers = 0
        self._steered = 0
        self._unanswered: dict[int, tuple[str, float, int]] = {}  # what, when, steered before
        self._replies: dict[int, dict[str, Any]] = {}
        self._awaited: int | None = None
        self._sent: list[tuple[int, float]] = []
        self._battery: float | None = None
        self._failure: str | None = None
        self._landing: float | None = None  # when it was asked for
        self._landed = False
        self._heard = 0.0

    # ---- on the ground --------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect; in flight, start another keeper, which lands at once."""
        if not self.flying:
            refuse_while_landing()
        if self.keeper is None or self._failure or self.flying:
            self._replace()
        if not self.flying:
            self._battery = None
            self._ask("connect")

    def battery(self) -> float:
        """Percent, as last reported with an answer; asked for if there was none."""
        if self.flying:
            self._take_in()
        if self._battery is None:
            self._ask("battery")
        if self._battery is None:
            raise DroneError("the drone does not tell the state of its battery")
        return self._battery

    def disconnect(self) -> None:
        """Let the keeper go. One that is still landing the drone is left to do so."""
        keeper, process = self.keeper, self.process
        self.keeper = self.process = None
        if keeper is None or process is None:
            return
        keeper.close()
        try:
            process.wait(0.0 if self.flying else GONE)
        except subprocess.TimeoutExpired:
            LEFT.append(process)

    # ---- in flight ------------------------------------------------------------------------------

    def take_off(self) -> None:
        """Hand over the command."""
        self.flying, self._landed, self._landing = True, False, None
        self._steered = 0
        self._hand_over("take_off")

    def hold(self) -> None:
        """Show the keeper that the loop is there."""
        self._hand_over("hold")

    def steer(self, yaw_percent: float) -> None:
        """Hand over the command."""
        self._hand_over("steer", yaw_percent)
        self._steered += 1

    def sent(self) -> list[tuple[int, float]]:
        """Which commands the driver has sent, and when its call returned."""
        sent, self._sent = self._sent, []
        return sent

    def land(self) -> bool:
        """Ask the keeper to land, once; then tell whether the drone has acknowledged it."""
        self._take_in()
        if self.keeper is None:
            raise DroneError("there is no keeper to land the drone")
        if self._landed and self._landing is not None:
            self.flying, self._landing = False, None
            return True
        now = time.monotonic()
        if self._landing is None:
            self._landing, self._landed = now, False
            self._post("land")
        elif now - max(self._heard, self._landing) > GIVE_UP:
            self._failure = f"the keeper gave no sign of life for {GIVE_UP:g} s"
            raise DroneError(self._failure)
        return False

    # ---- the keeper -----------------------------------------------------------------------------

    def process_killed(self) -> None:
        """Kill the keeper's process, to rehearse that."""
        if self.process is not None:
            self.process.kill()

    def _replace(self) -> None:
        """Start a keeper. One that is there is ended, and its driver lands what is in the air."""
        if self.process is not None and self.keeper is not None:
            if self.flying:
                self.process.kill()
            self.keeper.close()
            try:
                self.process.wait(GONE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                reap(self.process)
        spec = {"drone": self.spec, "silence": self.silence, "flying": self.flying}
        stale = self.driver if self.flying else None
        self.process, self.keeper = start("keeper", spec | {"stale": stale})
        self._failure, self._landing, self._landed = None, None, False
        self._unanswered.clear()
        self._heard = time.monotonic() + START_UP

    def _hand_over(self, what: str, value: float | None = None) -> None:
        self._take_in()
        if self._failure:
            raise DroneError(self._failure)
        now = time.monotonic()
        if self._unanswered and what != "take_off":
            oldest, since, _ = next(iter(self._unanswered.values()))
            limit = self.patience if oldest != "take_off" else 5.0
            if now - since > limit:
                raise DroneError(f"no answer to {oldest} for {limit:g} s")
        number = self._post(what, value)
        self._unanswered[number] = what, now, self._steered

    def _ask(self, what: str) -> None:
        """Hand over something on the ground, and wait for the answer."""
        number = self._awaited = self._post(what)
        until = time.monotonic() + ON_THE_GROUND
        while number not in self._replies:
            self._take_in(0.1)
            if self.keeper is None or self._failure:
                raise DroneError(self._failure or "the keeper ended")
            if time.monotonic() > until:
                raise DroneError(f"no answer to {what} for {ON_THE_GROUND:g} s")
        reply = self._replies.pop(number)
        if not reply["ok"]:
            raise DroneError(reply["error"])

    def _post(self, what: str, value: float | None = None) -> int:
        if self.keeper is None:
            raise DroneError(self._failure or "the drone is not connected")
        self._numbers += 1
        try:
            self.keeper.send({"number": self._numbers, "do": what, "value": value})
        except ChannelClosed:
            self._failure = "the keeper ended"
            raise DroneError(self._failure) from None
        return self._numbers

    def _take_in(self, timeout: float = 0.0) -> None:
        """Read what the keeper has said."""
        while self.keeper is not None:
            try:
                record = self.keeper.receive(timeout)
            except ChannelClosed:
                self._failure = "the keeper ended"
                if self._landing is not None or self._awaited is not None:
                    self._landing = self._awaited = None
                    raise DroneError(self._failure) from None
                return
            if record is None:
                return
            timeout, self._heard = 0.0, time.monotonic()
            self._note(record)

    def _note(self, record: dict[str, Any]) -> None:
        """Take in a record of the keeper: a reply, or news."""
        if "driver" in record:
            self.driver = record["driver"]
        if record.get("landed"):
            self._landed = True
        if "fallen" in record:
            self._failure = f"the keeper has landed: {record['fallen']}"
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


def refuse_while_landing() -> None:
    """An error while the keeper of an earlier flight still tries to land its drone."""
    LEFT[:] = [process for process in LEFT if process.poll() is None]
    if LEFT:
        raise DroneError(
            f"process {LEFT[0].pid} still tries to land the drone of an earlier flight: wait for "
            "its end, and see that the drone is on the ground"
        )
