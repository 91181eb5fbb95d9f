"""A dead man's switch: the process that lands the drone when no other process does.

It stands between the loop and the driver, and waits for neither. It lands the drone if the loop
asks for it, is silent for half a second or has ended, and if a call of the driver fails or does not
return. A driver that hangs is killed, which frees the radio, and another one connects. The landing
command is repeated until it is acknowledged, for a minute at most.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from pacbayes_control.robots.swing.flight import processes
from pacbayes_control.robots.swing.flight.drones import CALL_LIMITS, LANDING_TIMEOUT, RETRY_PAUSE
from pacbayes_control.robots.swing.flight.processes import Channel, ChannelClosed, ChannelFull

HEARTBEAT = 0.3  # s between signs of life to the loop
STALE_LIMIT = 3.0  # s that the driver of an earlier keeper has to end by itself


class Keeper:
    """State of the process: the loop's requests, the driver's call, whether the drone flies."""

    def __init__(
        self,
        loop: Channel,
        drone: dict[str, Any],
        silence: float = 0.5,
        flying: bool = False,
        stale: int | None = None,
    ) -> None:
        """Keep a drone, as `open_drone` takes it; land it if the loop is silent for `silence` s.

        flying: in the air already, left there by an earlier keeper, whose driver is process `stale`
        """
        self.loop, self.spec, self.silence, self.flying = loop, drone, silence, flying
        self.fault = "another keeper ended in flight" if flying else None
        self.process: subprocess.Popen[bytes] | None = None
        self.driver: Channel | None = None
        self.queue: deque[dict[str, Any]] = deque()  # requests not yet sent to the driver
        self.pending: dict[str, Any] | None = None  # the request that it has not answered yet
        self.pending_until = 0.0  # when the answer is due
        self.started_at = self.last_heard = self.last_told = time.monotonic()
        self.stale, self.loop_gone = stale, False

    def run(self) -> None:
        """Keep the drone until the loop has ended and the drone is on the ground."""
        if self.flying:
            self.land_until_acknowledged()
        while not self.loop_gone:
            self.receive()
            self.send_next_request()
            now = time.monotonic()
            if self.pending and now > self.pending_until:
                what = self.pending["do"]
                self.on_driver_failure(f"no answer to {what} for {CALL_LIMITS[what]:g} s")
            if self.flying and not self.fault and now - self.last_heard > self.silence:
                self.land_on_fault(f"no message from the loop for {self.silence:g} s")
        if self.flying:
            self.land_until_acknowledged()
        self.disconnect()

    def receive(self) -> None:
        """Receive messages of the loop and the driver, or wait a little."""
        channels = [self.loop, *([self.driver] if self.driver else [])]
        pause = 0.02 if self.flying or self.pending else 0.2
        for channel in processes.wait_for_messages(channels, pause):
            if channel is self.loop:
                self.receive_from_loop()
            elif channel is self.driver:
                self.receive_from_driver()

    def receive_from_loop(self) -> None:
        """Receive a request; land at once, and queue everything else."""
        try:
            request = self.loop.receive()
        except ChannelClosed:
            self.loop_gone = True
            return
        if request is None:
            return
        self.last_heard = time.monotonic()
        what = request["do"]
        if what == "land":
            self.queue.clear()
            landed = self.land_until_acknowledged()
            self.tell_loop(self.reply_to(request, landed, "the landing was not acknowledged"))
        elif self.fault and what in ("take_off", "hold", "steer"):
            self.tell_loop(self.reply_to(request, False, f"the keeper has landed: {self.fault}"))
        elif what == "hold" and (self.pending or self.queue):
            self.tell_loop(self.reply_to(request, True))
        else:
            if what == "steer" and self.queue and self.queue[-1]["do"] == "steer":
                self.tell_loop(self.reply_to(self.queue.pop(), True) | {"skipped": True})
            self.queue.append(request)

    def tell_loop(self, record: dict[str, Any]) -> None:
        """Send a message to the loop, if it still runs."""
        self.last_told = time.monotonic()
        try:
            self.loop.send(record)
        except ChannelFull:  # it does not read; the drone is more important
            return
        except ChannelClosed:
            self.loop_gone = True

    def send_heartbeat(self) -> None:
        """Show the loop now and then that the keeper is landing its drone."""
        if time.monotonic() - self.last_told > HEARTBEAT:
            self.tell_loop({"alive": True})

    def reply_to(self, request: dict[str, Any], ok: bool, error: str = "") -> dict[str, Any]:
        """A reply in place of the driver's."""
        reply = {"number": request["number"], "do": request["do"], "ok": ok}
        return reply if ok else reply | {"error": error}

    # ---- the driver -----------------------------------------------------------------------------

    def send_next_request(self) -> None:
        """Send the driver the next request, if it is idle."""
        if self.pending or not self.queue:
            return
        request = self.queue.popleft()
        if self.driver is None:
            self.start_driver()
        if request["do"] == "take_off":
            self.flying = True
        if not self.send_to_driver(request):
            self.on_driver_failure("the driver ended")

    def send_to_driver(self, request: dict[str, Any]) -> bool:
        """Send a request to the driver; False if that was not possible."""
        limit = CALL_LIMITS.get(request["do"], 1.0)
        self.pending, self.pending_until = request, time.monotonic() + limit
        if self.driver is None:
            return False
        try:
            self.driver.send(request)
        except ChannelClosed:
            return False
        return True

    def receive_from_driver(self) -> None:
        """Pass on an answer of the driver; land if it failed in flight."""
        assert self.driver is not None
        try:
            reply = self.driver.receive()
        except ChannelClosed:
            self.on_driver_failure("the driver ended")
            return
        if reply is None:
            return
        self.pending = None
        self.tell_loop(reply)
        if not reply["ok"] and self.flying:
            self.land_on_fault(f"{reply['do']} failed: {reply['error']}")

    def on_driver_failure(self, reason: str) -> None:
        """Kill a driver that hangs or has ended; another one lands a drone that is in the air."""
        request, self.pending = self.pending, None
        self.kill_driver()
        if request:
            self.tell_loop(self.reply_to(request, False, reason))
        if self.flying:
            self.land_on_fault(reason)

    def start_driver(self) -> None:
        """Start a driver; it must know whether the drone flies, in case it outlives the keeper."""
        spec = {"drone": self.spec, "flying": self.flying}
        self.process, self.driver = processes.start_process("driver", spec)
        self.tell_loop({"driver": self.process.pid})

    def kill_driver(self) -> None:
        """End the driver and its child processes: a call that hangs ends in no other way."""
        process, driver, self.process, self.driver = self.process, self.driver, None, None
        if driver is not None and process is not None:
            processes.kill_session(process.pid)
            processes.reap(process)
            driver.close()

    # ---- landing --------------------------------------------------------------------------------

    def land_on_fault(self, reason: str) -> None:
        """Land without a request of the loop, and tell it why."""
        self.fault = reason
        self.queue.clear()
        self.tell_loop({"fault": reason, "landed": self.land_until_acknowledged()})

    def land_until_acknowledged(self) -> bool:
        """Repeat the landing command, with a new driver after each failure; False if in vain.

        A landing command does no harm to a drone on the ground, so no state is asked for first.
        """
        if self.pending and self.driver and not self.finish_pending_call():
            self.kill_driver()
        self.pending = None
        until = time.monotonic() + LANDING_TIMEOUT
        while time.monotonic() < until:
            self.send_heartbeat()
            with suppress(Exception):  # try again after any error
                if self.try_landing():
                    self.flying = False
                    self.tell_loop({"landed": True})
                    return True
            time.sleep(RETRY_PAUSE)
        return False

    def try_landing(self) -> bool:
        """Connect, if needed, and send one landing command; whether it was acknowledged."""
        if self.driver is None:
            self.start_driver()
            if not self.call_driver({"number": -1, "do": "connect"}):
                self.kill_driver()
                return False
        if self.call_driver({"number": -1, "do": "land"}):
            return True
        self.kill_driver()
        return False

    def finish_pending_call(self) -> bool:
        """Wait for the end of the pending call; False if it does not end within its limit."""
        reply = self.wait_for_reply()
        if reply is None:
            return False
        self.tell_loop(reply)
        return True

    def call_driver(self, request: dict[str, Any]) -> bool:
        """Whether a request to the driver succeeds; a driver that does not answer is killed."""
        reply = self.wait_for_reply() if self.send_to_driver(request) else None
        self.pending = None
        if reply is None:
            self.kill_driver()
            return False
        return bool(reply["ok"])

    def wait_for_reply(self) -> dict[str, Any] | None:
        """The answer to the pending call; None if it does not come within its limit."""
        while self.driver is not None and (left := self.pending_until - time.monotonic()) > 0:
            self.send_heartbeat()
            self.kill_stale_driver()  # it may hold the radio
            try:
                reply = self.driver.receive(min(left, HEARTBEAT))
            except ChannelClosed:
                return None
            if reply is not None:
                return reply
        return None

    def kill_stale_driver(self) -> None:
        """End the driver of an earlier keeper that was killed: it may hold the radio."""
        if self.stale is not None and time.monotonic() > self.started_at + STALE_LIMIT:
            with suppress(OSError):  # it has ended
                command = Path(f"/proc/{self.stale}/cmdline").read_bytes()
                # Another process may have its number by now.
                if b"pacbayes_control.robots.swing.flight.driver" in command:
                    processes.kill_session(self.stale)
            self.stale = None

    def disconnect(self) -> None:
        """Disconnect and end the driver, which ends by itself when its channel closes."""
        process, driver = self.process, self.driver
        if driver is None or process is None:
            return
        self.call_driver({"number": -1, "do": "disconnect"})
        driver.close()
        try:
            process.wait(CALL_LIMITS["disconnect"])
        except subprocess.TimeoutExpired:
            processes.kill_session(process.pid)
            processes.reap(process)


def main() -> None:
    """Run the process."""
    loop, spec = processes.connect_to_parent()
    keeper = Keeper(loop, **spec)
    try:
        keeper.run()
    except BaseException:  # an error of the keeper must not leave a drone in the air
        if keeper.flying:
            keeper.land_until_acknowledged()
        raise


if __name__ == "__main__":
    main()
