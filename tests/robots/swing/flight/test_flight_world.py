"""The simulated world itself, and the loop in real time with all its processes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from aloft import CALM, TASK, pilot, read_record, received, stage
from pacbayes_control.robots.swing.flight import processes
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.loop import fly_once
from pacbayes_control.robots.swing.flight.processes import raised_priority
from pacbayes_control.robots.swing.flight.simulated import RealClock, VirtualClock, WorldProcess
from pacbayes_control.robots.swing.flight.stages import place_of, simulated_stage
from pacbayes_control.robots.swing.flight.tracking import UdpTracker
from pacbayes_control.robots.swing.flight.world import Fault, Physics, Place, World, WorldSetup
from polling import wait_until
from sizes import sized

EMPTY = Place((0.0, 1.0, 0.0), 3.5, 18.0, 0.2, ())
FAST_CLIMB = Physics(climb=4.0)
PATIENT = FlightLimits(TASK.steps, TASK.time_step, alive=60.0, climb_time=60.0)  # before the flight
EXACT = Physics(turbulence=0.0, yaw_disturbance=0.0, tracker_noise=0.0, tracker_loss=0.0)


def command(world: World, what: str, value: float | None = None) -> None:
    reply = world.answer({"session": "me", "do": what, "value": value})
    assert reply is not None
    assert reply["ok"]


def cruise(world: World, seconds: float, yaw_percent: float) -> None:
    until = world.time + seconds
    while world.time < until - 1e-9:
        command(world, "steer", yaw_percent)
        world.advance(world.time + 0.1)


def test_the_drone_follows_its_equation():
    world = World(WorldSetup(EMPTY, EXACT))
    command(world, "connect")
    command(world, "take_off")
    world.advance(2.0)
    assert world.z == pytest.approx(1.0, abs=0.02)
    assert (world.x, world.y) == (0.0, 1.0)  # it hovers until it is steered
    cruise(world, 4.0, 10.0)
    p = world.physics
    flown = 4.0 - p.latency
    assert world.yaw == pytest.approx(p.k_u * 0.1 * (1 - math.exp(-p.k_p * flown)), rel=0.01)
    assert world.speed == pytest.approx(p.speed, rel=0.01)
    assert world.x < 0  # counter-clockwise, from a heading along y
    command(world, "land")
    world.advance(world.time + 3.0)
    assert (world.phase, world.z) == ("ground", 0.0)


def test_without_commands_it_hovers_and_does_not_land():
    world = World(WorldSetup(EMPTY, EXACT))
    command(world, "connect")
    command(world, "take_off")
    world.advance(2.0)
    cruise(world, 1.0, 0.0)
    world.advance(30.0)
    assert world.phase == "flying"
    assert world.speed == pytest.approx(0.0, abs=1e-6)


def test_a_touch_is_a_crash():
    place = Place((0.0, 1.0, 0.0), 3.5, 18.0, 0.2, ((0.0, 4.0, 0.5),))
    world = World(WorldSetup(place, EXACT))
    command(world, "connect")
    command(world, "take_off")
    world.advance(2.0)
    cruise(world, 3.0, 0.0)
    [entry] = [entry for entry in world.record if entry["what"] == "contact"]
    assert entry["y"] == pytest.approx(4.0 - 0.5 - 0.2, abs=0.02)
    assert world.phase == "ground"


def test_commands_without_a_connection_are_refused():
    world = World(WorldSetup(EMPTY))
    assert world.answer({"session": "me", "do": "take_off"}) == {"error": "not connected"}


def test_frames_come_a_hundred_times_a_second_some_are_lost_and_all_are_late():
    world = World(WorldSetup(EMPTY, Physics(tracker_loss=0.1)))
    world.advance(10.0)
    frames = [(at, json.loads(datagram)) for at, datagram in world.arrived()]
    assert 850 < len(frames) < 950
    assert all(at - frame["time"] == pytest.approx(0.008) for at, frame in frames)
    assert np.std([frame["x"] for _, frame in frames]) == pytest.approx(0.001, rel=0.2)


def test_a_world_travels_as_a_record():
    setup = WorldSetup(place_of(TASK, CALM), EXACT, (Fault("wind", 2.0),), "seven")
    assert WorldSetup.from_record(json.loads(json.dumps(asdict(setup)))) == setup


def test_a_world_process_ends_soon_after_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    soon = (
        "from pacbayes_control.robots.swing.flight import simulated as s;"
        "s.ON_THE_GROUND = 0.1; s.main()"
    )
    begin = subprocess.Popen
    monkeypatch.setattr(
        processes.subprocess,
        "Popen",
        lambda words, **options: begin([sys.executable, "-c", soon, *words[-2:]], **options),
    )
    tracker = UdpTracker()
    world = WorldProcess(WorldSetup(EMPTY, EXACT), tracker.port, tmp_path / "record")
    try:
        wait_until(lambda: (tracker.wait(0.1), tracker.poses())[1])
        world.channel.close()
        wait_until(lambda: world.process.poll() is not None)
    finally:
        world.close()
        tracker.close()


# ---- real time ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_flight_in_real_time_with_all_its_processes(tmp_path: Path):
    record, steps = tmp_path / "world", sized(12, full=50)
    with simulated_stage(WorldSetup(place_of(TASK, CALM), FAST_CLIMB), record) as where:
        flight = fly_once(pilot(), CALM, where, replace(PATIENT, steps=steps))
    assert flight.landing_acknowledged, flight
    assert received(read_record(record), "land")
    if not flight.fault:  # a machine that is busy enough may end it, and then it landed
        assert (flight.cost, flight.steps) == (0, steps)
        assert len(received(read_record(record), "steer")) == steps
        assert flight.frames["frames"] > 6 * steps


@pytest.mark.slow
def test_a_keeper_killed_in_flight(tmp_path: Path):
    record = tmp_path / "world"
    faults = (Fault("keeper-killed", 0.5),)
    with simulated_stage(WorldSetup(place_of(TASK, CALM), FAST_CLIMB, faults), record) as where:
        flight = fly_once(pilot(), CALM, where, PATIENT)
    assert flight.cost == 1
    assert flight.fault or flight.end == "sank"  # a busy machine may see first that it comes down
    assert flight.landing_acknowledged
    assert received(read_record(record), "land")


# ---- time ---------------------------------------------------------------------------------------


def test_virtual_time_does_not_drift():
    seen: list[float] = []
    clock = VirtualClock(seen.append)
    for _ in range(3):
        clock.sleep(0.1)
    clock.sleep(-1)
    assert clock.now() == pytest.approx(0.3)
    assert seen == pytest.approx([0.1, 0.2, 0.3, 0.3])


def test_real_time_goes_forward():
    clock = RealClock()
    before = clock.now()
    clock.sleep(0.001)
    clock.sleep(-1)
    assert clock.now() > before


def test_priority_is_given_back():
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    with raised_priority() as given:
        assert given in ("real-time", "nice", "normal")
        if given == "real-time":
            assert os.sched_getscheduler(0) & os.SCHED_RR
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_a_flight_in_a_thread_leaves_signals_alone():
    ends: list[str] = []

    def run() -> None:
        ends.append(fly_once(pilot(), CALM, stage()).end)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ends == ["completed"]
