"""The dead man's switch, with real processes: if any of them dies or hangs, the drone is landed.

The commands that arrived are read from the record of the simulated world, its own process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aloft import CALM, TASK, read_record, received
from pacbayes_control.robots.swing.flight import keeper, kept_drone
from pacbayes_control.robots.swing.flight.driver import Driver
from pacbayes_control.robots.swing.flight.drones import (
    LANDING_TIMEOUT,
    RETRY_PAUSE,
    DroneError,
    open_drone,
)
from pacbayes_control.robots.swing.flight.keeper import Keeper
from pacbayes_control.robots.swing.flight.kept_drone import KeptDrone
from pacbayes_control.robots.swing.flight.processes import Channel, ChannelClosed, ChannelFull
from pacbayes_control.robots.swing.flight.simulated import VirtualClock, WorldProcess
from pacbayes_control.robots.swing.flight.stages import place_of
from pacbayes_control.robots.swing.flight.tracking import UdpTracker
from pacbayes_control.robots.swing.flight.world import Fault, Physics, WorldSetup
from polling import wait_until, wait_until_gone
from sizes import sized

UNUSED_PORT = 9  # at which no process listens for frames


class Sky:
    """A world with a drone in it, kept, with patience for a busy machine."""

    def __init__(
        self, record: Path, *faults: str, silence: float = 30.0, patience: float = 30.0
    ) -> None:
        parsed = tuple(Fault.parse(text) for text in faults)
        setup = WorldSetup(place_of(TASK, CALM), Physics(descent=8.0), parsed)
        self.record = record
        self.world = WorldProcess(setup, UNUSED_PORT, record)
        self.drone = KeptDrone(self.spec, silence, patience)

    @property
    def spec(self) -> dict[str, Any]:
        return {"kind": "simulated", "port": self.world.port}

    def take_off(self) -> None:
        self.drone.connect()
        self.drone.take_off()
        wait_until(lambda: self.received("take_off"))

    def hold_until(self, condition: Callable[[], Any]) -> None:
        def step() -> Any:
            self.drone.hold()
            return condition()

        wait_until(step)

    def received(self, what: str) -> list[float]:
        return received(read_record(self.record), what)

    def down(self) -> bool:
        """Whether the landing command has arrived and the drone come down."""
        return bool(self.received("land") and self.received("on the ground"))

    @property
    def processes(self) -> tuple[int, int]:
        assert self.drone.process is not None
        assert self.drone.driver is not None
        return self.drone.process.pid, self.drone.driver


@pytest.fixture
def open_sky(tmp_path: Path) -> Iterator[Callable[..., Sky]]:
    skies: list[Sky] = []

    def make(*faults: str, **seconds: float) -> Sky:
        skies.append(Sky(tmp_path / f"world-{len(skies)}", *faults, **seconds))
        return skies[-1]

    yield make
    for sky in skies:
        sky.drone.disconnect()
        sky.world.close()
    for process in kept_drone.STILL_LANDING:  # whose world has ended
        process.kill()
        process.wait()
    kept_drone.STILL_LANDING.clear()


@pytest.fixture
def sky(open_sky: Callable[..., Sky]) -> Sky:
    made = open_sky()
    made.take_off()
    return made


def landed(drone: KeptDrone) -> bool:
    """Whether landing is acknowledged, by a loop that connects anew after a failure."""
    try:
        return drone.land()
    except DroneError:
        with suppress(DroneError):
            drone.connect()
        return False


# ---- as it should be ----------------------------------------------------------------------------


def test_commands_reach_the_drone_and_their_times_come_back(sky: Sky):
    sent: list[tuple[int, float]] = []
    before = time.monotonic()
    for n in range(5):
        sky.drone.steer(n)
        time.sleep(0.05)

    def all_sent() -> bool:
        sky.drone.hold()
        sent.extend(sky.drone.sent())
        return len(sent) == 5

    wait_until(all_sent)
    assert [n for n, _ in sent] == [0, 1, 2, 3, 4]
    assert all(before <= at <= time.monotonic() for _, at in sent)
    assert sky.drone.battery() == pytest.approx(95, abs=1)
    values = [entry["value"] for entry in read_record(sky.record) if entry["what"] == "steer"]
    assert values == [0, 1, 2, 3, 4]
    keeper, driver = sky.processes
    wait_until(sky.drone.land)
    sky.drone.disconnect()
    wait_until_gone(keeper, driver)
    assert sky.received("disconnect")


@pytest.mark.slow
def test_a_flight_can_follow_a_flight(sky: Sky):
    wait_until(sky.drone.land)
    wait_until(sky.down)
    sky.drone.take_off()
    sky.hold_until(lambda: len(sky.received("take_off")) == 2)
    wait_until(sky.drone.land)
    assert len(sky.received("land")) >= 2


@pytest.mark.slow
def test_a_drone_that_does_not_answer_is_an_error(open_sky: Callable[..., Sky]):
    sky = open_sky()
    sky.world.close()
    with pytest.raises(DroneError, match="the drone does not answer"):
        sky.drone.connect()


def test_a_drone_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="no drone of kind 'kite'"):
        open_drone({"kind": "kite"})


def test_a_channel_never_waits_for_the_reader():
    ours, theirs = (Channel(end) for end in Pipe())
    full = False
    for _ in range(100_000):
        try:
            ours.send({"alive": True})
        except ChannelFull:
            full = True
            break
    assert full
    assert theirs.receive() == {"alive": True}
    ours.close()
    while theirs.connection.poll():
        try:
            theirs.receive()
        except ChannelClosed:
            break
    with pytest.raises(ChannelClosed):
        theirs.send({})
    theirs.close()


# ---- failures -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_loop_that_falls_silent(open_sky: Callable[..., Sky]):
    sky = open_sky(silence=0.3)
    sky.take_off()
    wait_until(sky.down)
    with pytest.raises(DroneError, match="no message from the loop"):
        wait_until(lambda: sky.drone.hold())


def test_a_command_that_stays_unanswered_is_a_failure():
    ours, theirs = (Channel(end) for end in Pipe())
    drone = KeptDrone({}, patience=0.0)
    drone.keeper = ours
    with pytest.raises(DroneError, match="no answer to hold for 0 s"):
        wait_until(lambda: drone.hold())
    assert theirs.receive() == {"number": 1, "do": "hold", "value": None}
    for channel in (ours, theirs):
        channel.close()


def test_a_keeper_that_ends_while_a_landing_is_awaited_is_a_failure():
    ours, theirs = (Channel(end) for end in Pipe())
    drone = KeptDrone({})
    drone.keeper = ours
    assert drone.land() is False
    theirs.close()
    with pytest.raises(DroneError, match="the keeper ended"):
        wait_until(drone.land)
    ours.close()


def test_a_keeper_that_hears_nothing_lands_and_says_why(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = (Channel(end) for end in Pipe())
    made = Keeper(theirs, {}, silence=0.0)

    def take_off() -> None:
        made.flying = True

    def land() -> bool:
        made.flying, made.loop_gone = False, True
        return True

    monkeypatch.setattr(made, "receive", take_off)
    monkeypatch.setattr(made, "land_until_acknowledged", land)
    made.run()
    reason = "no message from the loop for 0 s"
    assert ours.receive() == {"fault": reason, "landed": True}
    for channel in (ours, theirs):
        channel.close()


def test_a_landing_comes_before_all_that_was_asked(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = (Channel(end) for end in Pipe())
    made = Keeper(theirs, {}, flying=False)
    monkeypatch.setattr(made, "land_until_acknowledged", lambda: True)
    for number, what in enumerate(("connect", "take_off", "land")):
        ours.send({"number": number, "do": what, "value": None})
        made.receive_from_loop()
    assert ours.receive() == {"number": 2, "do": "land", "ok": True}
    assert not made.queue  # or it would take off after the landing
    for channel in (ours, theirs):
        channel.close()


FAILURES = ("drone-raises", "drone-hangs", "drone-disconnects")


@pytest.mark.slow
@pytest.mark.parametrize("name", sized(FAILURES[1:2], full=FAILURES))
def test_a_loop_hears_that_its_driver_has_failed(open_sky: Callable[..., Sky], name: str):
    sky = open_sky(f"{name}@0.1", patience=0.5)
    sky.take_off()
    with pytest.raises(DroneError):
        sky.hold_until(lambda: False)
    wait_until(sky.down)  # by the keeper, which was not asked
    assert wait_until(lambda: landed(sky.drone))
    assert len(sky.received("connect")) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_a_driver_that_fails_while_the_loop_goes_on_talking(
    open_sky: Callable[..., Sky], name: str
):
    """So that it is the failure that makes the keeper land, and not the silence after it."""
    sky = open_sky(f"{name}@0.1")
    sky.take_off()

    def talk() -> bool:  # and does not listen
        sky.drone._send("steer", 1.0)
        time.sleep(0.05)
        return sky.down()

    wait_until(talk)
    with pytest.raises(DroneError):
        wait_until(lambda: sky.drone.hold())
    assert wait_until(lambda: landed(sky.drone))
    assert len(sky.received("connect")) >= 2


@pytest.mark.slow
def test_a_driver_that_is_killed(sky: Sky):
    os.kill(sky.processes[1], signal.SIGKILL)
    wait_until(sky.down)
    assert len(sky.received("connect")) >= 2


@pytest.mark.slow
def test_a_keeper_that_is_killed(sky: Sky):
    os.kill(sky.processes[0], signal.SIGKILL)
    wait_until(sky.down)  # by the driver, or by the next keeper
    with pytest.raises(DroneError, match="the keeper ended"):
        wait_until(lambda: sky.drone.hold())
    assert wait_until(lambda: landed(sky.drone))


def kill_both(sky: Sky) -> None:
    """So that neither outlives the other."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in reversed(sky.processes):
            os.kill(pid, number)


@pytest.mark.slow
def test_keeper_and_driver_killed_the_loop_starts_others(sky: Sky):
    kill_both(sky)
    assert not sky.received("land")
    assert wait_until(lambda: landed(sky.drone))
    wait_until(sky.down)


SLOW = """
import pathlib, sys, time
module = "pacbayes_control.robots.swing.flight.{module}"
if module in sys.orig_argv and pathlib.Path({file!r}).exists():
    time.sleep(1.3)
"""


def sky_of_the_slow(
    module: str,
    open_sky: Callable[..., Sky],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Sky:
    """A drone in the air; from now on a module takes longer to start than most commands may."""
    (folder / "slow").mkdir()
    code = SLOW.format(module=module, file=str(folder / "now"))
    (folder / "slow" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder / "slow"), prepend=os.pathsep)
    sky = open_sky()
    sky.take_off()
    (folder / "now").touch()
    return sky


@pytest.mark.slow
def test_a_driver_that_is_slow_to_start_lands_all_the_same(
    open_sky: Callable[..., Sky], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sky = sky_of_the_slow("driver", open_sky, tmp_path, monkeypatch)
    os.kill(sky.processes[1], signal.SIGKILL)
    wait_until(sky.down)
    assert len(sky.received("connect")) == 2  # the first attempt was the last


@pytest.mark.slow
def test_a_keeper_that_is_slow_to_start_is_waited_for(
    open_sky: Callable[..., Sky], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kept_drone, "KEEPER_TIMEOUT", 0.8)
    sky = sky_of_the_slow("keeper", open_sky, tmp_path, monkeypatch)
    kill_both(sky)
    assert wait_until(lambda: landed(sky.drone))
    wait_until(sky.down)


def test_a_driver_of_a_drone_in_the_air_lands_it_when_its_keeper_dies():
    """Although it was asked nothing yet."""
    ours, theirs = (Channel(end) for end in Pipe())
    asked: list[str] = []

    class Recorded:
        def __getattr__(self, name: str) -> Callable[[], bool]:
            return lambda: asked.append(name) or True

    driver = Driver(theirs, Recorded, flying=True)  # type: ignore[arg-type]
    ours.close()
    driver.run()
    assert asked == ["connect", "land", "disconnect"]
    theirs.close()


def test_a_keeper_whose_driver_does_not_start_goes_on_trying(monkeypatch: pytest.MonkeyPatch):
    clock, tried = VirtualClock(), [0]

    def failing(*_: object) -> None:
        tried[0] += 1
        raise OSError("no more processes")

    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=clock.now, sleep=clock.sleep))
    monkeypatch.setattr(keeper.processes, "start_process", failing)
    ours, theirs = (Channel(end) for end in Pipe())
    made = Keeper(theirs, {}, flying=True)
    assert made.call_driver({"number": -1, "do": "land"}) is False
    assert made.land_until_acknowledged() is False
    assert tried[0] == pytest.approx(LANDING_TIMEOUT / RETRY_PAUSE, abs=1)
    assert clock.now() == pytest.approx(LANDING_TIMEOUT, abs=RETRY_PAUSE)
    for channel in (ours, theirs):
        channel.close()


def test_a_driver_that_was_left_behind_is_ended_while_another_connects(
    monkeypatch: pytest.MonkeyPatch,
):
    """It may have the radio, and then no attempt to connect ends before it does."""
    words = [
        sys.executable,
        "-c",
        "import time; time.sleep(60)",
        "pacbayes_control.robots.swing.flight.driver",
    ]
    with subprocess.Popen(words, start_new_session=True) as stale:
        monkeypatch.setitem(keeper.CALL_LIMITS, "connect", 0.1)
        ours, theirs, radio, silent = (Channel(end) for _ in range(2) for end in Pipe())
        made = Keeper(theirs, {}, flying=True, stale=stale.pid)
        try:
            for seconds, number in ((60.0, stale.pid), (0.0, None)):
                monkeypatch.setattr(keeper, "STALE_LIMIT", seconds)  # to end by itself
                made.driver = radio
                assert not made.call_driver({"number": -1, "do": "connect"})
                assert made.stale == number
            assert stale.wait(60) == -signal.SIGKILL
        finally:
            stale.kill()
            for channel in (ours, theirs, radio, silent):
                channel.close()


@pytest.mark.slow
def test_no_drone_takes_off_while_an_earlier_one_is_being_landed(open_sky: Callable[..., Sky]):
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words) as process:
        kept_drone.STILL_LANDING.append(process)
        sky = open_sky()
        with pytest.raises(DroneError, match=f"process {process.pid} still tries to land"):
            sky.drone.connect()
        process.kill()
        process.wait()
        sky.take_off()
    wait_until(sky.drone.land)


def test_descriptors_may_be_many():
    """`select` fails from 1024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    taken = [os.dup(1) for _ in range(1050)]
    try:
        ours, theirs = (Channel(end) for end in Pipe())
        ours.send({"alive": True})
        assert theirs.receive() == {"alive": True}
        tracker = UdpTracker()
        assert tracker.socket.fileno() >= 1024
        tracker.wait(0.01)
        tracker.close()
        for channel in (ours, theirs):
            channel.close()
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_keeper_that_stands_still(sky: Sky, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_drone, "KEEPER_TIMEOUT", 1.0)
    keeper, _ = sky.processes
    os.kill(keeper, signal.SIGSTOP)
    assert wait_until(lambda: landed(sky.drone))
    wait_until(sky.down)
    wait_until_gone(keeper)


@pytest.mark.slow
def test_signals_that_end_processes_do_not_end_these(sky: Sky):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for pid in sky.processes:
            os.kill(pid, number)
    started = sky.processes
    until = time.monotonic() + 0.3
    sky.hold_until(lambda: time.monotonic() > until)
    assert sky.processes == started
    assert not sky.received("land")


LOOP = """
import json, os, signal, sys, time
from pacbayes_control.robots.swing.flight.kept_drone import KeptDrone
drone = KeptDrone(json.loads(sys.argv[1]))
drone.connect()
drone.take_off()
began = time.monotonic()
while time.monotonic() < began + 0.3:
    drone.steer(1)
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [[], ["drone-hangs@0.2"], pytest.param(["drone-raises@0.2"], marks=pytest.mark.full)],
    ids=["alone", "hangs", "fails"],
)
def test_a_loop_that_is_killed(open_sky: Callable[..., Sky], fault: list[str]):
    """Alone, and while the driver hangs or fails."""
    sky = open_sky(*fault)
    command = [sys.executable, "-c", LOOP, json.dumps(sky.spec)]
    killed = subprocess.run(command, check=False, timeout=120, stderr=subprocess.DEVNULL)
    assert killed.returncode in (-signal.SIGKILL, 1)  # 1: the driver's failure came first
    wait_until(sky.down)
