"""A dead man's switch: the process that lands the drone when nobody else does.

It stands between the loop and the driver, and waits for neither. The drone is landed if the loop
asks for it, is silent for half a second, or is gone; if a call of the driver fails or does not
return; if the driver is gone. A driver that hangs is killed, which frees the radio, and another one
connects. The landing command is repeated until it was acknowledged, for a minute at most.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from pacbayes_control.robots.swing.flight.channel import (
    Channel,
    ChannelClosed,
    ChannelFull,
    first_of,
    kill_all,
    reap,
    start,
    started,
)
from pacbayes_control.robots.swing.flight.drones import PATIENCE, PAUSE
from pacbayes_control.robots.swing.flight.priority import hurry

# s that a call of the driver may take. PyParrot waits half a second for each acknowledgement, and
# tries thrice; a Swing may be told twice to land. The first call of a driver is to connect, and has
# the time that its process takes to start.
LIMITS = {
    "connect": 20.0,
    "battery": 5.0,
    "take_off": 4.0,
    "hold": 1.0,
    "steer": 0.5,
    "land": 4.0,
    "disconnect": 5.0,
}
HEARTBEAT = 0.3  # s between signs of life to the loop
STALE = 3.0  # s that a driver left behind by another keeper has to end by itself


class Keeper:
    """State of the process: what was asked, what is under way, and whether the drone flies."""

    def __init__(
        self,
        above: Channel,
        drone: dict[str, Any],
        silence: float = 0.5,
        flying: bool = False,
        stale: int | None = None,
    ) -> None:
        """Keep a drone; `flying`: it is in the air already, left there by another keeper."""
        self.above, self.spec, self.silence, self.flying = above, drone, silence, flying
        self.fallen = "another keeper ended in flight" if flying else None
        self.stale, self.began = stale, time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.driver: Channel | None = None
        self.asked: deque[dict[str, Any]] = deque()  # not handed to the driver yet
        self.pending: dict[str, Any] | None = None  # handed to it, and not answered
        self.due = 0.0  # when it should be
        self.heard = self.told = time.monotonic()
        self.orphaned = False

    def run(self) -> None:
        """Keep the drone until the loop is gone and the drone on the ground."""
        if self.flying:
            self.bring_down()
        while not self.orphaned:
            self.listen()
            self.hand_over()
            now = time.monotonic()
            if self.pending and now > self.due:
                what = self.pending["do"]
                self.driver_failed(f"no answer to {what} for {LIMITS[what]:g} s")
            if self.flying and not self.fallen and now - self.heard > self.silence:
                self.fall(f"nothing was heard from the loop for {self.silence:g} s")
        if self.flying:
            self.bring_down()
        self.let_go()

    # ---- the loop -------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take in what the loop and the driver say, or wait a little."""
        channels = [self.above, *([self.driver] if self.driver else [])]
        for channel in first_of(channels, 0.02 if self.flying or self.pending else 0.2):
            if channel is self.above:
                self.hear_loop()
            elif channel is self.driver:
                self.hear_driver()

    def hear_loop(self) -> None:
        """Take in a request; to land is done at once, everything else by and by."""
        try:
            request = self.above.receive()
        except ChannelClosed:
            self.orphaned = True
            return
        if request is None:
            return
        self.heard = time.monotonic()
        what = request["do"]
        if what == "land":
            self.asked.clear()
            self.tell(self.answer(request, self.bring_down(), "the landing was not acknowledged"))
        elif self.fallen and what in ("take_off", "hold", "steer"):
            self.tell(self.answer(request, False, f"the keeper has landed: {self.fallen}"))
        elif what == "hold" and (self.pending or self.asked):
            self.tell(self.answer(request, True))  # heard; the driver is busy
        else:
            if what == "steer" and self.asked and self.asked[-1]["do"] == "steer":
                self.tell(self.answer(self.asked.pop(), True) | {"skipped": True})
            self.asked.append(request)

    def tell(self, record: dict[str, Any]) -> None:
        """Tell the loop, if it is there."""
        self.told = time.monotonic()
        try:
            self.above.send(record)
        except ChannelFull:  # it does not listen; the drone comes first
            return
        except ChannelClosed:
            self.orphaned = True

    def beat(self) -> None:
        """Show the loop now and then that somebody is landing its drone."""
        if time.monotonic() - self.told > HEARTBEAT:
            self.tell({"alive": True})

    def answer(self, request: dict[str, Any], ok: bool, error: str = "") -> dict[str, Any]:
        """A reply in the name of the driver."""
        said = {} if ok else {"error": error}
        return {"number": request["number"], "do": request["do"], "ok": ok, **said}

    # ---- the driver -----------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Give the driver what was asked first, if it has nothing to do."""
        if self.pending or not self.asked:
            return
        request = self.asked.popleft()
        if self.driver is None:
            self.start_driver()
        if request["do"] == "take_off":
            self.flying = True
        if not self.ask(request):
            self.driver_failed("the driver ended")

    def ask(self, request: dict[str, Any]) -> bool:
        """Send a request to the driver; whether that was possible."""
        self.pending, self.due = request, time.monotonic() + LIMITS.get(request["do"], 1.0)
        if self.driver is None:
            return False
        try:
            self.driver.send(request)
        except ChannelClosed:
            return False
        return True

    def hear_driver(self) -> None:
        """Pass on an answer of the driver; a failure in flight is an end to it."""
        assert self.driver is not None
        try:
            reply = self.driver.receive()
        except ChannelClosed:
            self.driver_failed("the driver ended")
            return
        if reply is None:
            return
        self.pending = None
        self.tell(reply)
        if not reply["ok"] and self.flying:
            self.fall(f"{reply['do']} failed: {reply['error']}")

    def driver_failed(self, reason: str) -> None:
        """Give up a driver that hangs or is gone; what is in the air is landed by another."""
        request, self.pending = self.pending, None
        self.kill_driver()
        if request:
            self.tell(self.answer(request, False, reason))
        if self.flying:
            self.fall(reason)

    def start_driver(self) -> None:
        """Start a driver; if it should outlive us, it must know whether the drone flies."""
        self.process, self.driver = start("driver", {"drone": self.spec, "flying": self.flying})
        self.tell({"driver": self.process.pid})

    def kill_driver(self) -> None:
        """End the driver's process and what it has started: a call that hangs ends no other way."""
        process, driver, self.process, self.driver = self.process, self.driver, None, None
        if driver is not None and process is not None:
            kill_all(process.pid)
            reap(process)
            driver.close()

    # ---- the ground -----------------------------------------------------------------------------

    def fall(self, reason: str) -> None:
        """Land without being asked, and say why."""
        self.fallen = reason
        self.asked.clear()
        self.tell({"fallen": reason, "landed": self.bring_down()})

    def bring_down(self) -> bool:
        """Land, again and again, with a new driver after each failure; whether it was heard.

        A landing command to a drone on the ground does no harm, so nothing is asked beforehand.
        """
        if self.pending and self.driver and not self.settle():
            self.kill_driver()
        self.pending = None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.beat()
            with suppress(Exception):  # whatever it was, the next attempt is the answer to it
                if self.attempt():
                    self.flying = False
                    self.tell({"landed": True})
                    return True
            time.sleep(PAUSE)
        return False

    def attempt(self) -> bool:
        """Connect, if need be, and send one landing command; whether it was acknowledged."""
        if self.driver is None:
            self.start_driver()
            if not self.wait_for({"number": -1, "do": "connect"}):
                self.kill_driver()
                return False
        if self.wait_for({"number": -1, "do": "land"}):
            return True
        self.kill_driver()
        return False

    def settle(self) -> bool:
        """Let a call that is under way end; whether it did, in its time."""
        reply = self.reply_of_driver()
        if reply is None:
            return False
        self.tell(reply)
        return True

    def wait_for(self, request: dict[str, Any]) -> bool:
        """Ask the driver and wait; whether it did so. One that hangs or ended is killed."""
        reply = self.reply_of_driver() if self.ask(request) else None
        self.pending = None
        if reply is None:
            self.kill_driver()
            return False
        return bool(reply["ok"])

    def reply_of_driver(self) -> dict[str, Any] | None:
        """The answer to what is under way; None if none came in its time."""
        while self.driver is not None and (left := self.due - time.monotonic()) > 0:
            self.beat()
            self.end_stale()  # it may be what keeps the radio from us
            try:
                reply = self.driver.receive(min(left, HEARTBEAT))
            except ChannelClosed:
                return None
            if reply is not None:
                return reply
        return None

    def end_stale(self) -> None:
        """End the driver of a keeper that was killed, if it is still there: it has the radio."""
        if self.stale is not None and time.monotonic() > self.began + STALE:
            with suppress(OSError):  # it has ended
                command = Path(f"/proc/{self.stale}/cmdline").read_bytes()
                if (
                    b"pacbayes_control.robots.swing.flight.driver" in command
                ):  # the number is not another's
                    kill_all(self.stale)
            self.stale = None

    def let_go(self) -> None:
        """Disconnect and end the driver, which ends by itself when its channel closes."""
        process, driver = self.process, self.driver
        if driver is None or process is None:
            return
        self.wait_for({"number": -1, "do": "disconnect"})
        driver.close()
        try:
            process.wait(LIMITS["disconnect"])
        except subprocess.TimeoutExpired:
            kill_all(process.pid)
            reap(process)


def main() -> None:
    """Run the process."""
    above, spec = started()
    hurry()
    keeper = Keeper(above, **spec)
    try:
        keeper.run()
    except BaseException:  # a mistake of ours is no reason to leave a drone in the air
        if keeper.flying:
            keeper.bring_down()
        raise


if __name__ == "__main__":
    main()
