"""One flight: checks, take-off, ten commands a second, and the ground, whatever happens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.swing.flight.clock import Clock
from pacbayes_control.robots.swing.flight.drones import Drone, in_words
from pacbayes_control.robots.swing.flight.interruptions import signals_noted, undisturbed
from pacbayes_control.robots.swing.flight.log import Deadlines, Flight, FlightLog
from pacbayes_control.robots.swing.flight.pace import check_moving, check_speed, flown_speed
from pacbayes_control.robots.swing.flight.pilot import Pilot
from pacbayes_control.robots.swing.flight.preflight import OF_THE_POLICY, ready
from pacbayes_control.robots.swing.flight.settings import Settings
from pacbayes_control.robots.swing.flight.tracking import Pose, Tracker
from pacbayes_control.robots.swing.flight.watching import OUTCOMES, Stop, Watch, as_stop

HOLD = 0.1  # s between two signs of life where there is nothing to command
AGAIN = 2.0  # s after which an acknowledged landing command is repeated to a drone in the air


def fly(
    pilot: Pilot,
    obstacles: ArrayLike,
    tracker: Tracker,
    drone: Drone,
    clock: Clock,
    settings: Settings | None = None,
    log: FlightLog | None = None,
) -> Flight:
    """Fly once with the policy that was drawn, and tell how it ended.

    Whatever fails after take-off was commanded, be it an exception, a signal or a full disk, the
    landing command is sent until it is acknowledged. obstacles: (n, 3) as x, y, radius in m.

    Command n is due n periods after the first, by an absolute schedule, so nothing drifts. It is in
    time if the driver has sent it within `settings.deadline` of that; the time of the driver's own
    call counts, not that of handing it over.
    """
    field = np.ascontiguousarray(obstacles, float).reshape(-1, 3)  # else it is compiled anew
    settings = settings or Settings(pilot.task.steps, pilot.task.time_step)
    attempt = _Attempt(pilot, field, tracker, drone, clock, settings, log or FlightLog())
    with signals_noted() as asked, undisturbed(), clock.hurried() as attempt.priority:
        attempt.asked = asked
        return attempt.fly()


class _Attempt:
    """A flight under way."""

    def __init__(
        self,
        pilot: Pilot,
        obstacles: NDArray[np.float64],
        tracker: Tracker,
        drone: Drone,
        clock: Clock,
        settings: Settings,
        log: FlightLog,
    ) -> None:
        self.pilot, self.obstacles, self.tracker = pilot, obstacles, tracker
        self.drone, self.clock, self.settings, self.log = drone, clock, settings, log
        self.watch = Watch(pilot, obstacles, settings)
        self.asked: list[str] = []  # signals that came
        self.steps = 0
        self.path: list[Pose] = []  # at each command, and after the last
        self.due: list[float] = []  # of each command
        self.out: dict[int, float] = {}  # when each went out
        self.judged = self.missed = 0  # commands that were looked at, and missed in a row
        self.acknowledged = False
        self.priority = "normal"

    def fly(self) -> Flight:
        """All of it."""
        try:
            ready(self.pilot, self.watch, self.tracker, self.drone, self.clock, self._sleep)
            self._event(f"ready, battery {self.drone.battery():.0f} %")
            self._obey_signals()
        except BaseException as error:
            stop = as_stop(error)
            self._event(f"not flown: {stop.words}")
            self._let_go()
            return self._report(stop, counts=stop.kind in OF_THE_POLICY)
        stop = Stop("completed", "all steps were flown")
        try:
            self.log.take_off(self.clock.now())
            self.watch.see(self.tracker.poses())  # what came while that was written
            self.watch.airborne = True
            self._event("take-off commanded")
            self.drone.take_off()
            self._climb()
            self._control()
        except BaseException as error:
            stop = as_stop(error)
            self._event(f"{stop.kind}: {stop.words}")
        finally:
            self._land()
        end = self._judge(stop)
        self._let_go()
        return self._report(end, counts=self.watch.airborne and not self._stayed_down())

    # ---- in flight ------------------------------------------------------------------------------

    def _climb(self) -> None:
        """Hold until the tracker shows the drone at its altitude."""
        limits = self.settings
        looked = self.clock.now()
        until = looked + limits.climb_time
        while True:
            behind = self.clock.now() - looked - HOLD
            looked = self.clock.now()
            if behind > limits.late:
                raise Stop("late", f"the loop was {1e3 * behind:.0f} ms behind")
            pose = self._look()
            height = pose.z - self.watch.ground
            if abs(height - limits.altitude) <= limits.altitude_tolerance:
                self._event(f"at {height:.2f} m")
                self.watch.risen = True
                return
            if self.clock.now() > until:
                raise Stop(
                    "no climb", f"at {height:.2f} m after {limits.climb_time:g} s of climbing"
                )
            self.drone.hold()
            self._sleep(HOLD)

    def _control(self) -> None:
        """The certified part: a pose, a depth image, a command, `steps` times."""
        limits, first = self.settings, self.clock.now()
        for n in range(limits.steps):
            due = first + n * limits.period
            self._sleep(due - self.clock.now())
            pose = self._look()
            self.path.append(pose)
            check_moving(self.path, self.pilot.task.speed, limits)
            yaw_percent = self.pilot.steer(pose, self.obstacles)
            self.due.append(due)
            self.drone.steer(yaw_percent)
            self.steps = n + 1
            now = self.clock.now()
            self._punctual(now, now - due)
            self.log.row(
                *(now, yaw_percent, pose.x, pose.y, pose.yaw, round(pose.z, 6), pose.frame),
                *(round(self.watch.age(now), 6), round(now - due, 6)),
                *(round(self.watch.clearance, 6), round(self.drone.battery(), 1)),
                pose.sender_time,
            )
        # The last command has its period, as every other.
        self._sleep(first + limits.steps * limits.period - self.clock.now())
        self.path.append(self._look())
        check_speed(self.path, self.pilot.task.speed, limits)

    def _look(self) -> Pose:
        """The pose to act on, after everything that could end the flight was looked at."""
        self._obey_signals()
        self.watch.see(self.tracker.poses())
        pose = self.watch.check(self.clock.now())
        battery = self.drone.battery()
        if not battery >= self.settings.battery_in_flight:
            raise Stop("battery low", f"the battery is at {battery:.0f} %")
        return pose

    def _punctual(self, now: float, handed: float) -> None:
        """Take note of deadlines, and stop where the loop or the driver does not keep up."""
        limits = self.settings
        self.out.update(self.drone.sent())
        if handed > limits.late:
            raise Stop("late", f"the loop was {1e3 * handed:.0f} ms behind")
        while self.judged < len(self.due):
            due = self.due[self.judged]
            if self.judged not in self.out and now - due <= limits.deadline:
                return
            late = self.out.get(self.judged, math.inf) - due
            self.judged += 1
            if late <= limits.deadline:
                self.missed = 0
                continue
            self.missed += 1
            self._event(f"command {self.judged - 1} missed its deadline")
            if self.missed >= limits.misses:
                raise Stop("late", f"{self.missed} commands in a row missed their deadlines")

    def _sleep(self, seconds: float) -> None:
        """Wait, and take in every frame as it comes."""
        until = self.clock.now() + seconds
        while True:
            self.watch.see(self.tracker.poses())
            left = until - self.clock.now()
            if left <= 0:
                return
            self.tracker.wait(left)

    def _obey_signals(self) -> None:
        if self.asked:
            raise Stop("terminated", f"{self.asked[0]} was received")

    # ---- the ground -----------------------------------------------------------------------------

    def _land(self) -> None:
        """Have the drone land, whatever it takes; raises nothing."""
        until = self.clock.now() + self.settings.patience
        self._event("landing commanded")
        while not self.acknowledged and self.clock.now() < until:
            self._command_landing()
            self._watch_quietly(0.05)
        if not self.acknowledged:
            self._event("THE LANDING COMMAND WAS NOT ACKNOWLEDGED")
            return
        self._event("landing acknowledged")
        blind, again = self.clock.now() + self.settings.touch_down, self.clock.now() + AGAIN
        while not self.watch.on_the_ground and self.clock.now() < until:
            self._watch_quietly(0.05)
            now = self.clock.now()
            if now > blind and self.watch.age(now) > self.settings.pose_age:
                return  # nobody sees it, and there is nothing more to say to it
            if now > again:
                self._command_landing()
                again = now + AGAIN
        if self.watch.on_the_ground:
            self._event("on the ground")

    def _command_landing(self) -> None:
        """One attempt: ask to land, and if that fails, connect anew."""
        try:
            self.acknowledged = self.drone.land() or self.acknowledged
        except BaseException as error:
            self._event(f"the landing command failed: {in_words(error)}; connecting anew")
            try:
                self.drone.connect()
            except BaseException as another:
                self._event(f"no connection: {in_words(another)}")
                with suppress(BaseException):
                    self.clock.sleep(HOLD)

    def _watch_quietly(self, seconds: float) -> None:
        """Wait and take in frames; a tracker that fails must not stand in the way of landing."""
        try:
            self._sleep(seconds)
        except BaseException as error:
            self._event(f"while landing: {in_words(error)}")
            with suppress(BaseException):
                self.clock.sleep(seconds)

    def _judge(self, stop: Stop) -> Stop:
        """How the flight ended, with what was seen of the landing."""
        watch = self.watch
        with suppress(BaseException):
            self.out.update(self.drone.sent())
        if stop.kind not in OUTCOMES:
            return stop
        if not self.acknowledged:
            return Stop("landing failed", "the landing command was not acknowledged")
        if watch.jumped:
            return Stop("tracker jumped", watch.jumped)
        if stop.kind == "completed" and watch.contact:
            kind = "geofence" if "the net" in watch.contact else "contact"
            return Stop(kind, f"{watch.contact}, landing")
        if stop.kind == "completed" and watch.gap > self.settings.pose_age:
            return Stop("tracking lost", f"no new pose for {watch.gap:.2f} s, landing")
        if not watch.on_the_ground:
            return Stop("landing failed", "the drone was not seen on the ground afterwards")
        return stop

    def _let_go(self) -> None:
        with suppress(BaseException):
            self.drone.disconnect()

    # ---- afterwards -----------------------------------------------------------------------------

    def _report(self, end: Stop, counts: bool) -> Flight:
        """The record of the flight; a log that cannot be written does not hide how it ended.

        counts: whether it was a trial.
        """
        watch, limits = self.watch, self.settings
        lateness = [self.out.get(n, math.inf) - due for n, due in enumerate(self.due)]
        frames: Mapping[str, int] = getattr(self.tracker, "counts", {})
        flight = Flight(
            cost=(0 if end.kind == "completed" else 1) if counts else None,
            end=end.kind,
            reason=end.words,
            fault=end.kind not in OUTCOMES,
            steps=self.steps,
            landing_acknowledged=self.acknowledged,
            landed=watch.on_the_ground,
            clearance=watch.nearest if math.isfinite(watch.nearest) else None,
            speed=flown_speed(self.path, limits),
            gap=watch.gap,
            deadlines=Deadlines.of(lateness, limits.deadline, self.priority),
            frames=dict(frames),
            events=self.log.events,
        )
        try:
            self.log.finish(flight)
        except Exception as error:  # counted as it will be found: as a flight without an end
            words = f"the log cannot be written: {in_words(error)}"
            cost = 1 if counts else None
            return replace(flight, cost=cost, end="log failed", reason=words, fault=True)
        return flight

    def _stayed_down(self) -> bool:
        """Whether the drone was seen on the ground all along, by a tracker that could be trusted.

        Where that cannot be told, the flight is a trial.
        """
        watch = self.watch
        low = watch.highest <= self.settings.landed_height and watch.on_the_ground
        seen = max(watch.age(self.clock.now()), watch.gap) <= self.settings.pose_age
        odd = watch.jumped or watch.contact
        return self.steps == 0 and low and seen and not odd and self.acknowledged

    def _event(self, what: str) -> None:
        self.log.event(self.clock.now(), what)
