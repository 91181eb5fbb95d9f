"""One flight: checks, take-off, ten commands a second, and the landing after any failure."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.robots.swing.flight import checks, processes
from pacbayes_control.robots.swing.flight.checks import OUTCOMES, Stop, as_stop
from pacbayes_control.robots.swing.flight.drones import describe_error
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.log import Deadlines, FlightRecord, FlightRecorder
from pacbayes_control.robots.swing.flight.stages import Pilot, Stage
from pacbayes_control.robots.swing.flight.tracking import Pose

HOLD = 0.1  # s between two signs of life where there is nothing to command
REPEAT = 2.0  # s after which an acknowledged landing command is repeated to a drone in the air


def fly_once(
    pilot: Pilot,
    obstacles: ArrayLike,
    stage: Stage,
    limits: FlightLimits | None = None,
    recorder: FlightRecorder | None = None,
) -> FlightRecord:
    """Fly once with the policy that was drawn.

    After any failure since the take-off command, be it an exception, a signal or a full disk, the
    landing command is sent until it is acknowledged.

    Command n is due n periods after the first, by an absolute schedule, so that nothing drifts. It
    is in time if the driver has sent it within `limits.deadline` of that; the time of the driver's
    own call counts, not that of giving it the command.

    obstacles: (n, 3) as x, y, radius in m. limits: by default with the task's steps and period.
    """
    cylinders = np.ascontiguousarray(obstacles, float).reshape(-1, 3)  # else it is compiled again
    limits = limits or FlightLimits(pilot.task.steps, pilot.task.time_step)
    attempt = _Attempt(pilot, cylinders, stage, limits, recorder or FlightRecorder())
    priority = processes.raised_priority() if stage.clock.real else nullcontext("normal")
    with (
        processes.signals_recorded() as attempt.signals,
        processes.garbage_collection_paused(),
        priority as attempt.priority,
    ):
        return attempt.fly()


@dataclass
class _Attempt:
    """A flight under way."""

    pilot: Pilot
    obstacles: NDArray[np.float64]  # (n, 3) as x, y, radius in m
    stage: Stage
    limits: FlightLimits
    recorder: FlightRecorder
    signals: list[str] = field(default_factory=list)  # names of received signals
    priority: str = "normal"
    steps: int = 0
    path: list[Pose] = field(default_factory=list)  # at each command, and after the last
    acknowledged: bool = False  # the landing

    def __post_init__(self) -> None:
        self.tracker, self.drone, self.clock, _ = self.stage
        self.watch = checks.Watch(self.pilot, self.obstacles, self.limits)
        self.deadlines = checks.DeadlineCheck(self.limits, self._event)

    def fly(self) -> FlightRecord:
        """Fly from the checks to the landing."""
        try:
            checks.check_ready(self.stage, self.watch, self._sleep)
            self._event(f"ready, battery {self.drone.battery():.0f} %")
            self._check_signals()
        except BaseException as error:
            stop = as_stop(error)
            self._event(f"not flown: {stop.words}")
            self._disconnect()
            return self._finish(stop, counts=stop.kind in checks.POLICY_FAILURES)
        stop = Stop("completed", "all steps were flown")
        try:
            self.recorder.take_off(self.clock.now())
            self.watch.see(self.tracker.poses())  # frames that came while that was written
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
        end = self._end_after_landing(stop)
        self._disconnect()
        return self._finish(end, counts=self.watch.airborne and not self._stayed_down())

    # ---- in flight ------------------------------------------------------------------------------

    def _climb(self) -> None:
        """Hold until the tracker shows the drone at its altitude."""
        limits, looked = self.limits, self.clock.now()
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
                raise Stop("no climb", f"at {height:.2f} m after {limits.climb_time:g} s")
            self.drone.hold()
            self._sleep(HOLD)

    def _control(self) -> None:
        """The certified part: a pose, a depth image, a command, `steps` times."""
        limits, first = self.limits, self.clock.now()
        for n in range(limits.steps):
            due = first + n * limits.period
            self._sleep(due - self.clock.now())
            pose = self._look()
            self.path.append(pose)
            checks.check_moving(self.path, self.pilot.task.speed, limits)
            yaw_percent = self.pilot.steer(pose, self.obstacles)
            self.deadlines.due.append(due)
            self.drone.steer(yaw_percent)
            self.steps = n + 1
            now = self.clock.now()
            self.deadlines.sent.update(self.drone.sent())
            self.deadlines.check(now)
            self.recorder.row(
                *(now, yaw_percent, pose.x, pose.y, pose.yaw, round(pose.z, 6), pose.frame),
                *(round(self.watch.age(now), 6), round(now - due, 6)),
                *(round(self.watch.clearance, 6), round(self.drone.battery(), 1)),
                pose.sender_time,
            )
        # The last command lasts for a period, as every other.
        self._sleep(first + limits.steps * limits.period - self.clock.now())
        self.path.append(self._look())
        checks.check_speed(self.path, self.pilot.task.speed, limits)

    def _look(self) -> Pose:
        """The pose to act on, after all checks that could end the flight."""
        self._check_signals()
        self.watch.see(self.tracker.poses())
        pose = self.watch.check(self.clock.now())
        battery = self.drone.battery()
        if not battery >= self.limits.battery_in_flight:
            raise Stop("battery low", f"the battery is at {battery:.0f} %")
        return pose

    def _sleep(self, seconds: float) -> None:
        """Wait, and take in every frame as it comes."""
        until = self.clock.now() + seconds
        while True:
            self.watch.see(self.tracker.poses())
            left = until - self.clock.now()
            if left <= 0:
                return
            self.tracker.wait(left)

    def _check_signals(self) -> None:
        if self.signals:
            raise Stop("terminated", f"{self.signals[0]} was received")

    # ---- landing --------------------------------------------------------------------------------

    def _land(self) -> None:
        """Land the drone; raises nothing."""
        until = self.clock.now() + self.limits.patience
        self._event("landing commanded")
        while not self.acknowledged and self.clock.now() < until:
            self._command_landing()
            self._wait_while_landing(0.05)
        if not self.acknowledged:
            self._event("THE LANDING COMMAND WAS NOT ACKNOWLEDGED")
            return
        self._event("landing acknowledged")
        blind, again = self.clock.now() + self.limits.touch_down, self.clock.now() + REPEAT
        while not self.watch.on_the_ground and self.clock.now() < until:
            self._wait_while_landing(0.05)
            now = self.clock.now()
            if now > blind and self.watch.age(now) > self.limits.pose_age:
                return  # the drone is out of sight, and has acknowledged the command
            if now > again:
                self._command_landing()
                again = now + REPEAT
        if self.watch.on_the_ground:
            self._event("on the ground")

    def _command_landing(self) -> None:
        """Command to land once; if that fails, connect again."""
        try:
            self.acknowledged = self.drone.land() or self.acknowledged
        except BaseException as error:
            self._event(f"the landing command failed: {describe_error(error)}; connecting again")
            try:
                self.drone.connect()
            except BaseException as another:
                self._event(f"no connection: {describe_error(another)}")
                with suppress(BaseException):
                    self.clock.sleep(HOLD)

    def _wait_while_landing(self, seconds: float) -> None:
        """Wait and take in frames; a tracker that fails must not prevent the landing."""
        try:
            self._sleep(seconds)
        except BaseException as error:
            self._event(f"while landing: {describe_error(error)}")
            with suppress(BaseException):
                self.clock.sleep(seconds)

    def _end_after_landing(self, stop: Stop) -> Stop:
        """The end of the flight, which the landing may have changed."""
        watch = self.watch
        with suppress(BaseException):
            self.deadlines.sent.update(self.drone.sent())
        if stop.kind not in OUTCOMES:
            return stop
        if not self.acknowledged:
            return Stop("landing failed", "the landing command was not acknowledged")
        if watch.jumped:
            return Stop("tracker jumped", watch.jumped)
        if stop.kind == "completed" and watch.contact:
            return watch.contact_stop(", landing")
        if stop.kind == "completed" and watch.gap > self.limits.pose_age:
            return Stop("tracking lost", f"no new pose for {watch.gap:.2f} s, landing")
        if not watch.on_the_ground:
            return Stop("landing failed", "the drone was not seen on the ground afterwards")
        return stop

    def _disconnect(self) -> None:
        with suppress(BaseException):
            self.drone.disconnect()

    # ---- afterwards -----------------------------------------------------------------------------

    def _finish(self, end: Stop, counts: bool) -> FlightRecord:
        """Write and return the record; an error in writing does not hide how the flight ended.

        counts: whether it was a trial.
        """
        watch, limits = self.watch, self.limits
        flight = FlightRecord(
            cost=(0 if end.kind == "completed" else 1) if counts else None,
            end=end.kind,
            reason=end.words,
            fault=end.kind not in OUTCOMES,
            steps=self.steps,
            landing_acknowledged=self.acknowledged,
            landed=watch.on_the_ground,
            clearance=watch.nearest if math.isfinite(watch.nearest) else None,
            speed=checks.flown_speed(self.path, limits),
            gap=watch.gap,
            deadlines=Deadlines.of(self.deadlines.lateness, limits.deadline, self.priority),
            frames=dict(self.tracker.counts),
            events=self.recorder.events,
        )
        try:
            self.recorder.finish(flight)
        except Exception as error:  # counted as `FlightCampaign` will: as a flight without an end
            words = f"the log cannot be written: {describe_error(error)}"
            cost = 1 if counts else None
            return replace(flight, cost=cost, end="log failed", reason=words, fault=True)
        return flight

    def _stayed_down(self) -> bool:
        """Whether the drone was seen on the ground throughout, by a tracker without faults.

        Where that is not certain, the flight is a trial.
        """
        watch = self.watch
        low = watch.highest <= self.limits.landed_height and watch.on_the_ground
        seen = max(watch.age(self.clock.now()), watch.gap) <= self.limits.pose_age
        odd = watch.jumped or watch.contact
        return self.steps == 0 and low and seen and not odd and self.acknowledged

    def _event(self, what: str) -> None:
        self.recorder.event(self.clock.now(), what)
