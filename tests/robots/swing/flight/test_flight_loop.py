"""A flight in virtual time: how it goes, how it ends, and that it always ends with a landing."""

from __future__ import annotations

import csv
import gc
import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aloft import CALM, GOOD, TASK, WALL, flown, pilot, received, stage
from pacbayes_control.robots.swing.flight.checks import Stop, Watch
from pacbayes_control.robots.swing.flight.drones import DroneError
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.log import (
    COLUMNS,
    Deadlines,
    FlightRecord,
    FlightRecorder,
)
from pacbayes_control.robots.swing.flight.stages import Pilot, Stage
from pacbayes_control.robots.swing.flight.tracking import Pose
from pacbayes_control.robots.swing.flight.world import (
    LOOP_FAULTS,
    PROCESS_FAULTS,
    WORLD_FAULTS,
    Fault,
    Physics,
    World,
)
from pacbayes_control.robots.swing.identification.logs import read_log

TEN_HZ = FlightLimits(TASK.steps, TASK.time_step)
# The end of each rehearsed fault. In all of them a landing command arrives.
ENDS = {
    "tracker-silent": "tracking lost",
    "tracker-jumps": "tracker jumped",
    "tracker-frozen": "tracking lost",
    "tracker-garbage": "tracking lost",
    "drone-raises": "drone failed",
    "drone-hangs": "drone failed",
    "drone-disconnects": "drone failed",
    "wind": "geofence",
    "battery-low": "battery low",
    "loop-late": "late",
    "loop-raises": "error",
    "terminated": "terminated",
}


# ---- as planned ---------------------------------------------------------------------------------


def test_a_flight_among_few_cylinders_succeeds(tmp_path: Path):
    where, log = stage(), FlightRecorder(tmp_path / "flight", {"seed": 3})
    flight = flown(where, log=log)
    assert (flight.cost, flight.end, flight.fault) == (0, "completed", False)
    assert flight.steps == 50
    assert flight.landing_acknowledged
    assert flight.landed
    assert flight.deadlines == Deadlines(50, 50, 0.0, 0.0, 0)
    assert where.world is not None
    record = where.world.record
    steers = received(record, "steer")
    assert len(steers) == 50
    assert np.allclose(np.diff(steers), 0.1)  # ten a second, by an absolute schedule
    [took_off], [landed] = received(record, "take_off"), received(record, "land")
    assert took_off < steers[0] < steers[-1] < landed
    assert received(record, "on the ground")
    assert 1.0 + 2 * 4 < where.world.y < TASK.arena.length  # type: ignore[attr-defined]
    summary = json.loads((tmp_path / "flight.json").read_text())
    assert summary["seed"] == 3
    assert summary["cost"] == 0
    assert summary["deadlines"]["met"] == 50
    assert [what for _, what in summary["events"]][1:] == [
        *("take-off commanded", summary["events"][2][1], "landing commanded"),
        *("landing acknowledged", "on the ground"),
    ]


def test_the_log_can_be_identified_from(tmp_path: Path):
    where = stage()
    flown(where, log=FlightRecorder(tmp_path / "flight"))
    path = tmp_path / "flight.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 50
    assert where.world is not None
    sent = [entry["value"] for entry in where.world.record if entry["what"] == "steer"]
    assert [float(row["yaw_percent"]) for row in rows] == sent
    log = read_log(path)
    assert np.allclose(np.diff(log.time), 0.1)
    assert np.allclose(np.diff([float(row["tracker_time"]) for row in rows]), 0.1, atol=0.03)
    assert log.y[0] == pytest.approx(1.0, abs=0.05)


def test_the_same_seed_flies_the_same_flight():
    first, again, other = flown(stage(seed=1)), flown(stage(seed=1)), flown(stage(seed=2))
    assert first == again
    assert first.clearance != other.clearance


def test_a_wall_of_cylinders_is_hit_and_that_is_an_outcome():
    where = stage(WALL)
    flight = flown(where, WALL)
    assert (flight.cost, flight.end, flight.fault) == (1, "contact", False)
    assert "touched a cylinder" in flight.reason
    assert where.world is not None
    [hit], lands = received(where.world.record, "contact"), received(where.world.record, "land")
    assert lands[0] - hit < 0.2
    assert flight.landed


def test_contact_between_two_commands_is_seen():
    """A frame that touches, between two ticks at which nothing touches, makes a failure."""
    where = stage()
    spot = CALM[0, :2]

    class Twitching:
        """A tracker that once reports a touch of a cylinder, in frames that jump no further."""

        def __init__(self, tracker: Any) -> None:
            self.tracker = tracker

        def __getattr__(self, name: str) -> Any:
            return getattr(self.tracker, name)

        def poses(self) -> list[Pose]:
            poses = self.tracker.poses()
            if len(poses) > 2 and poses[0].y > 6:
                poses[1] = replace(poses[1], x=float(spot[0]), y=float(spot[1]))
            return poses

    flight = flown(
        where._replace(tracker=Twitching(where.tracker)), limits=replace(TEN_HZ, jump=9.0)
    )
    assert (flight.cost, flight.end) == (1, "contact")


def test_contact_while_landing_is_a_failure():
    straight = Pilot(TASK, np.zeros_like(GOOD))
    post = np.array([[0.0, 11.2, 0.3]])  # beyond the last step, within the way to a stop
    where = stage(post, physics=Physics(turbulence=0.0, yaw_disturbance=0.0, speed=2.0))
    flight = flown(where, post, by=straight)
    assert (flight.cost, flight.end, flight.steps) == (1, "contact", 50)
    assert flight.reason.endswith("landing")


# ---- out of sight -------------------------------------------------------------------------------


class Blind:
    """A tracker that does not see the drone in some places."""

    def __init__(self, where: Stage, hidden: Callable[[Pose, World], bool]) -> None:
        self.tracker, self.world, self.hidden = where.tracker, where.world, hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tracker, name)

    def poses(self) -> list[Pose]:
        assert self.world is not None
        return [pose for pose in self.tracker.poses() if not self.hidden(pose, self.world)]


def blindly(
    cylinders: np.ndarray, hidden: Callable[[Pose, World], bool]
) -> tuple[FlightRecord, list[float]]:
    """A flight straight on, in which a contact has no effect; and the times of contacts."""
    where = stage(cylinders, physics=Physics(turbulence=0.0, yaw_disturbance=0.0))
    world, touched = where.world, []
    assert world is not None
    move = world._step_drone

    def unharmed() -> None:
        before = world.phase, world.speed
        move()
        if world.phase == "crashed":
            world.phase, world.speed = before
            touched.append(world.time)

    world._step_drone = unharmed  # type: ignore[method-assign]
    straight = Pilot(TASK, np.zeros_like(GOOD))
    blind: Any = Blind(where, hidden)
    return flown(where._replace(tracker=blind), cylinders, by=straight), touched


@pytest.mark.parametrize("beside", [0.3, 0.45, 0.49, -0.45])
def test_contact_between_two_frames_is_seen(beside: float):
    post = np.array([[beside, 6.0, 0.3]])
    flight, touched = blindly(post, lambda pose, _: abs(pose.y - 6.0) < 0.27)
    assert touched
    assert (flight.cost, flight.end) == (1, "contact")


def test_a_near_miss_between_two_frames_is_no_contact():
    post = np.array([[0.53, 6.0, 0.3]])
    flight, touched = blindly(post, lambda pose, _: abs(pose.y - 6.0) < 0.27)
    assert not touched
    assert flight.cost == 0
    assert 0.2 < flight.gap < 0.3
    assert flight.clearance == pytest.approx(0.03, abs=0.01)


def test_a_landing_out_of_sight_is_a_failure():
    flight, _ = blindly(CALM, lambda _, world: world.phase == "landing")
    assert (flight.cost, flight.end, flight.steps) == (1, "tracking lost", 50)
    assert flight.reason.endswith("landing")
    assert flight.landed


def test_contact_in_a_landing_out_of_sight_is_noticed():
    post = np.array([[0.0, 11.3, 0.3]])
    flight, touched = blindly(post, lambda _, world: world.phase == "landing")
    assert touched
    assert (flight.cost, flight.end, flight.steps) == (1, "contact", 50)


def test_a_gap_that_ends_between_two_commands_counts():
    flight, _ = blindly(CALM, lambda pose, _: 6.0 < pose.y < 6.0 + 0.33 * 1.95)
    assert flight.gap > 0.3
    assert (flight.cost, flight.end) == (1, "tracking lost")


def test_a_take_off_out_of_sight_is_a_trial():
    flight, _ = blindly(CALM, lambda _, world: world.phase != "ground")
    assert flight.landed
    assert (flight.cost, flight.end, flight.steps) == (1, "tracking lost", 0)


def test_a_contact_is_reported_before_its_consequences():
    watch, (x, y, _) = Watch(pilot(), CALM, TEN_HZ, airborne=True), CALM[0].tolist()
    watch.see([Pose(0.0, 1, x, y, 1.0, 0.0)])
    with pytest.raises(Stop) as stop:
        watch.check(10.0)
    assert stop.value.kind == "contact"


# ---- not what was certified ---------------------------------------------------------------------


def test_a_drone_that_falls_is_a_failure():
    where = stage()
    world = where.world
    assert world is not None
    move = world._step_drone

    def failing() -> None:
        if world.phase == "flying" and world.y > 5:
            world.phase = "crashed"
        move()

    world._step_drone = failing  # type: ignore[method-assign]
    flight = flown(where)
    assert (flight.cost, flight.end, flight.fault) == (1, "sank", False)
    assert flight.steps < 50
    assert flight.landed


def test_a_drone_that_does_not_move_is_landed_soon():
    where = stage(physics=Physics(speed=0.0))
    flight = flown(where)
    assert (flight.cost, flight.end, flight.fault) == (1, "not the certified speed", True)
    assert flight.steps < 25
    assert "where 2 m/s was certified" in flight.reason
    assert where.world is not None
    assert received(where.world.record, "land")


@pytest.mark.parametrize("speed", [1.4, 2.6])
def test_a_drone_of_another_speed_is_a_failure(speed: float):
    flight = flown(stage(physics=Physics(speed=speed)))
    assert (flight.cost, flight.end, flight.fault) == (1, "not the certified speed", True)
    assert flight.steps == 50
    assert flight.speed == pytest.approx(speed, rel=0.05)


@pytest.mark.parametrize("speed", [1.6, 2.4])
def test_a_speed_that_is_about_right_is_flown(speed: float):
    flight = flown(stage(physics=Physics(speed=speed)))
    assert flight.cost == 0
    assert flight.speed == pytest.approx(speed, rel=0.05)


def test_the_speed_may_be_left_alone():
    hovering = stage(physics=Physics(speed=0.0))
    assert flown(hovering, limits=replace(TEN_HZ, speed_tolerance=math.inf)).cost == 0


# ---- failures -----------------------------------------------------------------------------------


def test_every_fault_that_can_be_rehearsed_is_tested():
    assert set(ENDS) | set(PROCESS_FAULTS) == set(WORLD_FAULTS) | set(LOOP_FAULTS)


@pytest.mark.parametrize("seconds", [0.3, 3.0])  # climbing, and under way
@pytest.mark.parametrize("name", ENDS)
def test_a_fault_ends_with_the_landing_command_received(name: str, seconds: float):
    where = stage(CALM, f"{name}@{seconds}")
    flight = flown(where)
    assert where.world is not None
    record = where.world.record
    assert flight.end == ENDS[name]
    assert flight.cost == 1
    assert flight.fault == (name != "wind")
    assert flight.landing_acknowledged
    [began] = received(record, "take_off")
    lands = received(record, "land")
    assert lands
    assert lands[0] >= began + seconds
    assert lands[0] < began + seconds + 2.5  # the wind takes its time to the net
    assert received(record, "on the ground")
    assert not [at for at in received(record, "steer") if at > lands[0]]


def test_signals_and_the_collector_are_as_before():
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    assert gc.isenabled()
    flown(stage(CALM, "terminated@2"))
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Broken:
    """A part of a flight of which one call raises from a time on."""

    def __init__(self, part: Any, name: str, error: BaseException, where: Stage, after: float):
        self.part, self.name, self.error, self.where, self.after = part, name, error, where, after

    def __getattr__(self, name: str) -> Any:
        if name == self.name and self.where.clock.now() > self.after:
            return self._raise
        return getattr(self.part, name)

    def _raise(self, *_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        MemoryError(),
        KeyboardInterrupt(),
        SystemExit(),
        DroneError("x"),
        OSError(),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("tracker", "poses"),
        ("tracker", "wait"),
        ("pilot", "steer"),
        ("pilot", "clearance"),
        ("drone", "steer"),
        ("drone", "battery"),
        ("drone", "sent"),
        ("log", "row"),
    ],
)
def test_the_drone_is_landed_after_any_error_in_flight(part: str, name: str, error: BaseException):
    where, log, by = stage(), FlightRecorder(), pilot()
    parts: dict[str, Any] = {
        "tracker": where.tracker,
        "drone": where.drone,
        "log": log,
        "pilot": by,
    }
    parts[part] = Broken(parts[part], name, error, where, after=3.0)
    struck = where._replace(tracker=parts["tracker"], drone=parts["drone"])
    quick = replace(TEN_HZ, patience=20.0)
    flight = flown(struck, limits=quick, log=parts["log"], by=parts["pilot"])
    assert flight.cost == 1
    assert flight.fault
    assert where.world is not None
    lands = received(where.world.record, "land")
    assert lands
    assert 3.0 < lands[0] < 4.0


@pytest.mark.parametrize("failures", [1, 5])
def test_a_landing_command_that_fails_is_repeated_over_new_connections(failures: int):
    where = stage()
    land, left = where.drone.land, [failures]

    def failing() -> bool:
        if left[0]:
            left[0] -= 1
            if left[0] % 2:
                raise DroneError("out of reach")
            return False  # not acknowledged
        return land()

    where.drone.land = failing  # type: ignore[method-assign]
    flight = flown(where)
    assert flight.cost == 0
    assert where.world is not None
    assert received(where.world.record, "land")
    assert len(received(where.world.record, "connect")) == 1 + failures // 2


def test_a_landing_that_is_never_acknowledged_is_a_failure_and_is_tried_to_the_end():
    where, tries = stage(), [0]

    def failing() -> bool:
        tries[0] += 1
        return False

    where.drone.land = failing  # type: ignore[method-assign]
    flight = flown(where, limits=replace(TEN_HZ, patience=30.0))
    assert (flight.cost, flight.end, flight.fault) == (1, "landing failed", True)
    assert not flight.landing_acknowledged
    assert tries[0] > 300
    assert "THE LANDING COMMAND WAS NOT ACKNOWLEDGED" in [what for _, what in flight.events]


def test_a_drone_that_stays_in_the_air_is_told_again():
    where = stage()
    assert where.world is not None
    obey, heard = where.world._execute, [0]

    def deaf(what: str, value: float) -> None:
        heard[0] += what == "land"
        if what != "land" or heard[0] >= 4:
            obey(what, value)

    where.world._execute = deaf  # type: ignore[method-assign]
    flight = flown(where)
    assert flight.landed
    assert len(received(where.world.record, "land")) == 4


def test_a_full_disk_ends_the_flight_and_not_the_landing(tmp_path: Path):
    where, log = stage(), FlightRecorder(tmp_path / "flight")
    assert log._file is not None
    log._file.close()
    log._file = open("/dev/full", "w")  # noqa: SIM115 - the log closes it
    with pytest.raises(OSError, match="No space"):
        log._file.write("x" * 100_000)
    flight = flown(where, log=log)
    assert flight.fault
    assert flight.cost == 1
    assert "No space left" in flight.reason
    assert where.world is not None
    assert received(where.world.record, "land")


def test_a_command_that_no_drone_can_fly_is_not_sent():
    class Task:
        def __getattr__(self, name: str) -> Any:
            return getattr(TASK, name)

        def act(self, policy: np.ndarray, observation: np.ndarray) -> float:  # noqa: ARG002
            return math.nan

    where = stage()
    flight = flown(where, by=Pilot(Task(), GOOD))  # type: ignore[arg-type]
    assert (flight.cost, flight.end, flight.steps) == (1, "policy failed", 0)
    assert "not in [-1, 1]" in flight.reason
    assert where.world is not None
    assert not received(where.world.record, "take_off")  # noticed before, and it counts


# ---- deadlines ----------------------------------------------------------------------------------


class Slow:
    """A drone whose radio takes its time for some of the commands."""

    def __init__(self, where: Stage, delays: dict[int, float]) -> None:
        self.drone, self.where, self.delays, self.told = where.drone, where, delays, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drone, name)

    def sent(self) -> list[tuple[int, float]]:
        self.told += self.drone.sent()
        now = self.where.clock.now()
        out = [(n, at + self.delays.get(n, 0.0)) for n, at in self.told]
        ready = [entry for entry in out if entry[1] <= now]
        self.told = [entry for entry, late in zip(self.told, out, strict=True) if late[1] > now]
        return ready


def test_one_missed_deadline_is_noted():
    where = stage()
    flight = flown(where._replace(drone=Slow(where, {10: 0.07, 20: 0.06})))
    assert (flight.cost, flight.deadlines.met) == (0, 48)
    assert flight.deadlines.worst == pytest.approx(0.07)
    words = [what for _, what in flight.events]
    assert "command 10 missed its deadline" in words
    assert "command 20 missed its deadline" in words


def test_several_in_a_row_end_the_flight():
    where = stage()
    flight = flown(where._replace(drone=Slow(where, {10: 0.07, 11: 0.07, 12: 0.07})))
    assert (flight.cost, flight.end) == (1, "late")
    assert "3 commands in a row" in flight.reason


def test_commands_that_never_go_out_end_the_flight():
    where = stage()
    flight = flown(where._replace(drone=Slow(where, dict.fromkeys(range(5, 50), 1e9))))
    assert (flight.end, flight.steps) == ("late", 9)
    assert flight.deadlines.unsent == 4


def test_deadlines_are_counted_to_the_last():
    found = Deadlines.of([0.0] * 999 + [0.2], 0.05)
    assert found == Deadlines(1000, 999, 0.2, 0.0, 0)
    assert Deadlines.of([], 0.05) == Deadlines(0, 0, 0.0, 0.0, 0)
    assert Deadlines.of([math.inf, 0.01], 0.05) == Deadlines(2, 1, 0.01, 0.01, 1)


# ---- before take-off ----------------------------------------------------------------------------


def not_flown(where: Stage, cylinders: np.ndarray = CALM, **limits: float) -> str:
    flight = flown(where, cylinders, replace(TEN_HZ, **limits))  # type: ignore[arg-type]
    assert flight.cost is None
    assert flight.fault
    assert where.world is not None
    assert not received(where.world.record, "take_off")
    return flight.reason


def test_a_silent_tracker_grounds_the_drone():
    where = stage(physics=Physics(tracker_loss=1.0))
    assert "0 frames of the tracker in 3 s, where 10 are needed" in not_flown(where)


def test_a_drone_elsewhere_is_not_flown():
    where = stage()
    assert where.world is not None
    where.world.x = 0.5
    assert "put it at x = 0, y = 1, heading 0" in not_flown(where)
    assert not received(where.world.record, "connect")
    where = stage()
    assert where.world is not None
    where.world.yaw = math.pi / 2
    assert "1.57 rad from the start" in not_flown(where)
    where = stage()
    assert where.world is not None
    where.world.yaw = 0.08  # 0.8 m beside after 10 m
    assert "0.08 rad from the start" in not_flown(where)
    where = stage()
    assert where.world is not None
    where.world.z = 0.8
    assert "at a height of 0.8" in not_flown(where)


def test_an_empty_battery_grounds_the_drone():
    assert "charge it to 30 %" in not_flown(stage(physics=Physics(battery=29.0)))


def test_an_obstacle_on_the_start_grounds_the_drone():
    here = np.array([[0.0, 1.3, 0.2]])
    assert "at the start" in not_flown(stage(here), here)


def test_a_policy_that_takes_too_long_is_not_flown():
    where = stage()

    class Thinker(Pilot):
        def steer(self, pose: Pose, obstacles: np.ndarray) -> int:
            where.clock.sleep(0.04)
            return super().steer(pose, obstacles)

    flight = flown(where, by=Thinker(TASK, GOOD))
    assert (flight.cost, flight.end) == (1, "too slow")  # the policy's own fault, so it counts
    assert "takes 40 ms" in flight.reason
    assert where.world is not None
    assert not received(where.world.record, "take_off")


def test_a_signal_before_take_off_grounds_the_drone():
    where = stage()
    connect = where.drone.connect

    def interrupted() -> None:
        connect()
        os.kill(os.getpid(), signal.SIGINT)

    where.drone.connect = interrupted  # type: ignore[method-assign]
    assert "SIGINT" in not_flown(where)


def test_a_drone_that_does_not_rise_is_landed_and_is_no_trial():
    where = stage()
    assert where.world is not None
    where.world._execute = lambda *_: None  # type: ignore[method-assign]
    flight = flown(where)
    assert (flight.cost, flight.end) == (None, "no climb")
    assert received(where.world.record, "land")


def test_a_take_off_that_fails_is_followed_by_a_landing():
    """The command may have arrived although its acknowledgement did not."""
    where = stage()
    take_off = where.drone.take_off

    def half() -> None:
        take_off()
        raise DroneError("not acknowledged")

    where.drone.take_off = half  # type: ignore[method-assign]
    flight = flown(where)
    assert where.world is not None
    assert received(where.world.record, "land")
    assert flight.fault
    assert flight.landing_acknowledged


# ---- faults and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["tracker-silent", "wind@", "wind@soon", "wind@-1", "wind@nan"])
def test_a_fault_needs_a_time(text: str):
    with pytest.raises(ValueError, match="needs a time: give seconds"):
        Fault.parse(text)


def test_an_unknown_fault_is_refused_with_a_list_of_known_ones():
    with pytest.raises(ValueError, match="fault 'meteor' is unknown: choose from tracker-silent"):
        Fault.parse("meteor@2")


def test_limits_that_are_not_finite_or_positive_are_refused():
    with pytest.raises(ValueError, match="pose_age = nan"):
        FlightLimits(pose_age=math.nan)
    with pytest.raises(ValueError, match="at least one step"):
        FlightLimits(steps=0)
