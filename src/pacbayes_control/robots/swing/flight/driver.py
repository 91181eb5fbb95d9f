"""The process that alone talks to the drone. It may hang or die: the keeper then replaces it.

If instead the keeper dies, the driver lands the drone before it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pacbayes_control.robots.swing.flight.channel import Channel, ChannelClosed, started
from pacbayes_control.robots.swing.flight.drones import (
    PATIENCE,
    PAUSE,
    Drone,
    DroneError,
    in_words,
    open_drone,
)
from pacbayes_control.robots.swing.flight.priority import hurry


class Driver:
    """Does what the keeper asks, one thing after another."""

    def __init__(self, above: Channel, make: Callable[[], Drone], flying: bool = False) -> None:
        """Serve a keeper; `flying`: the drone is in the air already."""
        self.above, self.make, self.flying = above, make, flying
        self.drone: Drone | None = None

    def run(self) -> None:
        """Serve until the keeper is gone."""
        while True:
            try:
                request = self.above.receive(None)
                if request is not None:
                    self.above.send(self.reply_to(request))
            except ChannelClosed:
                break
        if self.flying:
            self.bring_down()
        self.let_go()

    def reply_to(self, request: dict[str, Any]) -> dict[str, Any]:
        """What came of a request; it tells when, as the call returned."""
        reply: dict[str, Any] = {"number": request["number"], "do": request["do"], "ok": True}
        try:
            self.perform(request["do"], request.get("value"))
            if self.drone is not None and request["do"] in ("battery", "hold", "steer"):
                reply["battery"] = self.drone.battery()
        except BaseException as error:
            reply |= {"ok": False, "error": in_words(error)}
        reply["time"] = time.monotonic()
        return reply

    def perform(self, what: str, value: Any) -> None:
        """Do one thing, or raise."""
        if what == "disconnect":
            self.let_go()
            return
        if what == "connect":
            self.let_go()
            self.drone = self.make()
            self.drone.connect()
            return
        if self.drone is None:
            raise DroneError("the drone is not connected")
        if what == "take_off":
            self.flying = True
            self.drone.take_off()
        elif what == "hold":
            self.drone.hold()
        elif what == "steer":
            self.drone.steer(float(value))
        elif what == "land":
            if not self.drone.land():
                raise DroneError("the landing command was not acknowledged")
            self.flying = False
        elif what != "battery":
            raise DroneError(f"a drone cannot {what}")

    def bring_down(self) -> None:
        """Land, again and again, connecting anew in between."""
        until = time.monotonic() + PATIENCE
        while self.flying and time.monotonic() < until:
            try:
                self.perform("land", None)
            except BaseException:
                time.sleep(PAUSE)
                try:
                    self.perform("connect", None)
                except BaseException:
                    time.sleep(PAUSE)

    def let_go(self) -> None:
        """Disconnect, whatever comes of it."""
        drone, self.drone = self.drone, None
        if drone is not None:
            try:
                drone.disconnect()
            except BaseException:
                return


def main() -> None:
    """Run the process."""
    above, spec = started()
    hurry()
    Driver(above, lambda: open_drone(spec["drone"]), spec["flying"]).run()


if __name__ == "__main__":
    main()
