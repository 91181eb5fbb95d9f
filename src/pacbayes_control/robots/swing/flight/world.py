"""The simulated world: a drone with its own physics, a tracker, and faults.

It is not the task's model: speed, gains, latency, noise and wind differ, as they do for a real
drone. It is plain Python, since the same code runs in its own process, in real time, and within the
loop's process under a virtual clock.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

Sink = Callable[[dict[str, Any]], None]  # takes each entry of the record

STEP = 0.005  # s of physics, 200 a second
FRAME = 0.01  # s between two frames of the tracker
# Faults of the simulated world: no more frames come; all are shifted by 1.5 m; the same pose comes
# again and again; datagrams come that are not frames; every call of the driver raises, or hangs;
# the drone is out of reach until the next connection; a wind of 4 m/s blows from the left; the
# battery falls to 5 %.
WORLD_FAULTS = (
    *("tracker-silent", "tracker-jumps", "tracker-frozen", "tracker-garbage"),
    *("drone-raises", "drone-hangs", "drone-disconnects", "wind", "battery-low"),
)
# Faults of the loop and of its keeper: the loop stands still for 0.35 s; an error within it; its
# process gets SIGTERM, or SIGKILL; the keeper's process gets SIGKILL.
PROCESS_FAULTS = ("killed", "keeper-killed")
LOOP_FAULTS = ("loop-late", "loop-raises", "terminated", *PROCESS_FAULTS)
GARBAGE = (b"", b"\xff\xfe\x00", b"{", b"[1, 2]", b'{"x": NaN}', b"null", b"9" * 600)


class Fault(NamedTuple):
    """A fault, and how many seconds after the take-off command it begins."""

    name: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read NAME@SECONDS.

        >>> Fault.parse("tracker-silent@2.5")
        Fault(name='tracker-silent', seconds=2.5)
        """
        name, _, when = text.partition("@")
        if name not in WORLD_FAULTS + LOOP_FAULTS:
            known = ", ".join(WORLD_FAULTS + LOOP_FAULTS)
            raise ValueError(f"fault {name!r} is unknown: choose from {known}")
        try:
            seconds = float(when)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise ValueError(f"fault {text!r} needs a time: give seconds, as {name}@2.5")
        return cls(name, seconds)


@dataclass(frozen=True)
class Physics:
    """The true drone and tracker, which differ from the model."""

    speed: float = 1.95  # m/s
    k_u: float = 3.08  # rad of steady yaw for a full command
    k_p: float = 0.41  # 1/s
    start_up: float = 0.15  # s, time constant of the speed when it grows
    braking: float = 0.5  # s, the same when it falls
    latency: float = 0.03  # s from a command to its effect
    altitude: float = 1.0  # m, of the hover after take-off
    climb: float = 0.9  # m/s
    descent: float = 0.8  # m/s
    turbulence: float = 0.05  # m/s, of gusts that last about a second
    yaw_disturbance: float = 0.02  # rad/√s
    hover_after: float = 0.5  # s without a command after which the drone stops and hovers
    tracker_noise: float = 0.001  # m and rad
    tracker_latency: float = 0.008  # s
    tracker_loss: float = 0.01  # share of the frames
    battery: float = 95.0  # percent at the start


@dataclass(frozen=True)
class Place:
    """The start of the drone, the net and the obstacles; lengths in m."""

    start: tuple[float, float, float]  # x, y, and the heading ψ in rad
    half_width: float  # of the netted area, which reaches from y = 0 to `length`
    length: float
    robot_radius: float
    obstacles: tuple[tuple[float, float, float], ...]  # cylinders as x, y, radius

    def touched(self, x: float, y: float) -> bool:
        """Whether a drone at a point touches a cylinder or the net."""
        inside = min(self.half_width - abs(x), y, self.length - y)
        gaps = [math.hypot(x - a, y - b) - radius for a, b, radius in self.obstacles]
        return min([inside, *gaps]) <= self.robot_radius


@dataclass(frozen=True)
class WorldSetup:
    """All that determines a simulated world; it can be given to another process as JSON."""

    place: Place
    physics: Physics = field(default_factory=Physics)
    faults: tuple[Fault, ...] = ()
    seed: int | str = 0

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WorldSetup:
        """Read `dataclasses.asdict` of a setup, back from JSON."""
        place = {**record["place"], "start": tuple(record["place"]["start"])}
        place["obstacles"] = tuple(map(tuple, place["obstacles"]))
        faults = tuple(Fault(*fault) for fault in record["faults"])
        return cls(Place(**place), Physics(**record["physics"]), faults, record["seed"])


class World:
    """A drone, a tracker, and a record of every command that arrived."""

    def __init__(self, setup: WorldSetup, sink: Sink | None = None) -> None:
        """Begin at time 0."""
        self.place, self.physics, self.faults = setup.place, setup.physics, list(setup.faults)
        self.sink, self.record = sink, []
        self.random = Random(f"{setup.seed} world")
        self.time, self.steps, self.frame = 0.0, 0, 0
        self.x, self.y, self.yaw = setup.place.start
        self.z = self.speed = self.input = 0.0
        self.gust = [0.0, 0.0]
        self.phase = "ground"
        self.battery = self.physics.battery
        self.commanded = -math.inf  # when the drone was last steered
        self.took_off: float | None = None
        self.underway: deque[tuple[float, str, float]] = deque()  # when, what, value
        # The answer to every command of a connection in trouble, None for silence; {} without.
        self.sessions: dict[str, dict[str, Any] | None] = {}
        self.frames: deque[tuple[float, bytes]] = deque()  # when it arrives, the datagram
        self.last_pose: dict[str, float] | None = None

    # ---- physics --------------------------------------------------------------------------------

    def advance(self, to: float) -> None:
        """Advance the world to a time."""
        while (self.steps + 1) * STEP <= to + 1e-9:
            self.steps += 1
            self.time = self.steps * STEP
            self._apply_drone_faults()
            while self.underway and self.underway[0][0] <= self.time:
                self._execute(*self.underway.popleft()[1:])
            self._step_drone()
            if self.steps % round(FRAME / STEP) == 0:
                self._take_frame()

    def _execute(self, what: str, value: float) -> None:
        """A command takes effect."""
        if what == "take_off" and self.phase == "ground":
            self.phase = "climbing"
        elif what == "steer" and self.phase in ("climbing", "flying"):
            self.phase, self.input, self.commanded = "flying", value / 100, self.time
        elif what == "land" and self.phase in ("climbing", "flying"):
            self.phase, self.input = "landing", 0.0

    def _step_drone(self) -> None:
        if self.phase == "ground":
            return
        p, root = self.physics, math.sqrt(STEP)
        steered = self.phase == "flying" and self.time - self.commanded <= p.hover_after
        wanted, pace = (p.speed, p.start_up) if steered else (0.0, p.braking)
        self.speed += (wanted - self.speed) * STEP / pace
        for i in (0, 1):  # gusts: noise with a correlation time of a second
            kick = p.turbulence * math.sqrt(2) * root * self.random.gauss(0, 1)
            self.gust[i] += -self.gust[i] * STEP + kick
        share = self.speed / p.speed if p.speed else 0.0  # a hovering drone stays in place
        wind = 4.0 if self._has_fault("wind") else 0.0
        self.x += (-self.speed * math.sin(self.yaw) + share * self.gust[0] + wind) * STEP
        self.y += (self.speed * math.cos(self.yaw) + share * self.gust[1]) * STEP
        if self.phase in ("flying", "landing"):
            turn = p.k_p * (p.k_u * self.input - self.yaw)
            self.yaw += turn * STEP + share * p.yaw_disturbance * root * self.random.gauss(0, 1)
        if self.phase in ("climbing", "flying"):
            step = (p.altitude - self.z) * STEP / 0.3
            self.z += max(min(step, p.climb * STEP), -p.climb * STEP)
        else:
            self.z -= (p.descent if self.phase == "landing" else 3.0) * STEP
        self.battery -= 0.02 * STEP
        if self.phase != "crashed" and self.place.touched(self.x, self.y):
            self.phase, self.speed = "crashed", 0.0
            self.note("contact")
        if self.z <= 0 and self.phase in ("landing", "crashed"):
            self.z, self.speed, self.phase = 0.0, 0.0, "ground"
            self.note("on the ground")

    # ---- the tracker ----------------------------------------------------------------------------

    def _take_frame(self) -> None:
        """The tracker takes a frame, which may get lost."""
        self.frame += 1
        if self._has_fault("tracker-silent"):
            return
        if self._has_fault("tracker-garbage"):
            self._post(GARBAGE[self.frame % len(GARBAGE)])
            return
        noise = self.physics.tracker_noise
        pose = {"x": self.x, "y": self.y, "z": self.z, "yaw": self.yaw}
        pose = {name: value + noise * self.random.gauss(0, 1) for name, value in pose.items()}
        if self._has_fault("tracker-jumps"):
            pose["x"] += 1.5
        if self._has_fault("tracker-frozen") and self.last_pose is not None:
            pose = self.last_pose
        self.last_pose = pose
        if self.random.random() >= self.physics.tracker_loss:
            self._post(json.dumps({"time": self.time, "frame": self.frame, **pose}).encode())

    def _post(self, datagram: bytes) -> None:
        self.frames.append((self.time + self.physics.tracker_latency, datagram))

    def arrived(self) -> list[tuple[float, bytes]]:
        """New datagrams of the tracker, each with the time at which it arrived."""
        datagrams = []
        while self.frames and self.frames[0][0] <= self.time:
            datagrams.append(self.frames.popleft())
        return datagrams

    # ---- commands -------------------------------------------------------------------------------

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The drone's answer to a command; None where it is out of reach.

        A session is a connection. Faults of the drone affect the sessions that exist when they
        begin: a new connection works again.
        """
        session, what = str(request.get("session")), request.get("do")
        if what == "connect":
            self.sessions.setdefault(session, {})
        trouble = self.sessions.get(session, {"error": "not connected"})
        if trouble != {}:
            return trouble
        if what in ("take_off", "steer", "land"):
            value = float(request.get("value") or 0.0)
            self.underway.append((self.time + self.physics.latency, what, value))
            if what == "take_off" and self.took_off is None:
                self.took_off = self.time
        if what not in ("hold", "battery"):
            self.note(str(what), session=session, value=request.get("value"))
        return {"ok": True, "battery": self.battery}

    def _has_fault(self, name: str) -> bool:
        """Whether a fault has begun."""
        if self.took_off is None or not self.faults:
            return False
        since = self.time - self.took_off
        return any(fault.name == name and since >= fault.seconds for fault in self.faults)

    def _apply_drone_faults(self) -> None:
        """Apply faults of the drone that begin, each once."""
        if self._has_fault("battery-low"):
            self.battery = min(self.battery, 5.0)
        troubles = {
            "drone-raises": {"error": "the motors report an error"},
            "drone-hangs": {"hang": True},
            "drone-disconnects": None,
        }
        for name, trouble in troubles.items():
            if self._has_fault(name):
                self.faults = [fault for fault in self.faults if fault.name != name]
                self.sessions = dict.fromkeys(self.sessions, trouble)
                self.note(name)

    def note(self, what: str, **more: Any) -> None:
        """Record an event, with its time and place."""
        place = {"x": self.x, "y": self.y, "z": self.z, "phase": self.phase}
        entry = {"time": round(self.time, 6), "what": what, **more, **place}
        self.record.append(entry)
        if self.sink:
            self.sink(entry)
