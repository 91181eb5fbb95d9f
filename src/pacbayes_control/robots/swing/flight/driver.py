"""The only process that talks to the drone. It may hang or die: the keeper then replaces it.

If instead the keeper dies, the driver lands the drone before it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pacbayes_control.robots.swing.flight import drones
from pacbayes_control.robots.swing.flight.drones import Drone, DroneError
from pacbayes_control.robots.swing.flight.processes import Channel, ChannelClosed, connect_to_parent


class Driver:
    """Carries out the keeper's requests, one after another."""

    def __init__(self, keeper: Channel, make: Callable[[], Drone], flying: bool = False) -> None:
        """Serve a keeper; `flying`: whether the drone is in the air already."""
        self.keeper, self.make, self.flying = keeper, make, flying
        self.drone: Drone | None = None

    def run(self) -> None:
        """Serve until the keeper has ended."""
        while True:
            try:
                request = self.keeper.receive(None)
                if request is not None:
                    self.keeper.send(self.reply_to(request))
            except ChannelClosed:
                break
        if self.flying:
            self.land_until_acknowledged()
        self.disconnect()

    def reply_to(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, with the time at which the call returned."""
        reply: dict[str, Any] = {"number": request["number"], "do": request["do"], "ok": True}
        try:
            self.perform(request["do"], request.get("value"))
            if self.drone is not None and request["do"] in ("battery", "hold", "steer"):
                reply["battery"] = self.drone.battery()
        except BaseException as error:
            reply |= {"ok": False, "error": drones.describe_error(error)}
        reply["time"] = time.monotonic()
        return reply

    def perform(self, what: str, value: Any) -> None:
        """Carry out one request, or raise."""
        if what == "disconnect":
            self.disconnect()
            return
        if what == "connect":
            self.disconnect()
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

    def land_until_acknowledged(self) -> None:
        """Repeat the landing command, and connect again after each failure."""
        until = time.monotonic() + drones.LANDING_TIMEOUT
        while self.flying and time.monotonic() < until:
            try:
                self.perform("land", None)
            except BaseException:
                time.sleep(drones.RETRY_PAUSE)
                try:
                    self.perform("connect", None)
                except BaseException:
                    time.sleep(drones.RETRY_PAUSE)

    def disconnect(self) -> None:
        """Disconnect, and ignore any error."""
        drone, self.drone = self.drone, None
        if drone is not None:
            with suppress(BaseException):
                drone.disconnect()


def main() -> None:
    """Run the process."""
    keeper, spec = connect_to_parent()
    Driver(keeper, lambda: drones.open_drone(spec["drone"]), spec["flying"]).run()


if __name__ == "__main__":
    main()
