"""The files of a flight: a row for each control step, and a summary."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from pacbayes_control.certify.files import write_atomic
from pacbayes_control.certify.text import json_text

# `pbc swing identify` reads the first five.
COLUMNS = (
    *("time", "yaw_percent", "x", "y", "yaw"),
    *("z", "frame", "pose_age", "lateness", "clearance", "battery", "tracker_time"),
)


@dataclass(frozen=True)
class Deadlines:
    """How punctual the commands of a flight were."""

    ticks: int
    met: int  # commands that the driver sent within the deadline
    worst: float  # s from a tick to its command sent
    percentile: float  # the same, at the 99.9th percentile
    unsent: int  # commands that were never sent
    priority: str = "normal"  # of the process: real-time, nice or normal

    @classmethod
    def of(cls, lateness: list[float], deadline: float, priority: str = "normal") -> Deadlines:
        """Count; a command that was never sent has infinite lateness."""
        known = sorted(late for late in lateness if late < math.inf)
        rank = max(math.ceil(0.999 * len(known)) - 1, 0)
        return cls(
            ticks=len(lateness),
            met=sum(late <= deadline for late in lateness),
            worst=known[-1] if known else 0.0,
            percentile=known[rank] if known else 0.0,
            unsent=len(lateness) - len(known),
            priority=priority,
        )


@dataclass(frozen=True)
class FlightRecord:
    """How a flight ended.

    cost: 0 if all steps were flown and the drone landed, both without contact; 1 otherwise, also
    where a fault ended the flight: to leave those out would be to select outcomes after seeing
    them. None for a flight that never left the ground, which is not a trial, unless the policy
    failed there.
    """

    cost: int | None
    end: str  # kind of end, see `checks.OUTCOMES`
    reason: str  # in words
    fault: bool  # whether it ended otherwise than by the policy in its environment
    steps: int  # control steps that were flown
    landing_acknowledged: bool
    landed: bool  # seen on the ground afterwards
    clearance: float | None  # m, the smallest from the hull to a surface
    deadlines: Deadlines
    speed: float | None = None  # m/s, the mean over the control steps, as tracked
    gap: float = 0.0  # s, the longest time without a frame, from take-off to the ground
    frames: dict[str, int] = field(default_factory=dict)  # of the tracker, by kind
    events: list[tuple[float, str]] = field(default_factory=list)  # s from take-off, event

    def sentence(self, summary: Mapping[str, Any]) -> str:
        """How the flight ended, in one line; `summary`: with the policy, once it is known."""
        outcome = {0: "success", 1: "failure", None: "no trial"}[self.cost]
        words = [f"{outcome}, {self.reason}"]
        drawn = summary.get("policy_name") or summary.get("policy")
        if drawn is not None:
            words.append(str(drawn) if str(drawn).startswith("policy") else f"policy {drawn}")
        if self.clearance is not None:
            words.append(f"smallest clearance {max(self.clearance, 0):.2f} m")
        if self.deadlines.ticks:
            d = self.deadlines
            words.append(f"{d.met} of {d.ticks} deadlines met, worst {1e3 * d.worst:.0f} ms")
        if self.cost is not None and not self.landing_acknowledged:
            words.append("THE LANDING WAS NOT ACKNOWLEDGED")
        return "; ".join(words) + "."


@dataclass
class FlightRecorder:
    """Writes the two files of a flight as it goes on; without a path, keeps only the events."""

    stem: Path | None = None  # the path without suffix, of files that must not exist yet
    about: dict[str, Any] = field(default_factory=dict)  # entries of the summary
    # Entries about the policy, written only at take-off: an operator who knew the policy before
    # could decide by it whether to fly.
    drawn: dict[str, Any] = field(default_factory=dict)
    began: float | None = None  # when take-off was commanded

    def __post_init__(self) -> None:
        self._events: list[tuple[float, str]] = []
        self._file: TextIO | None = None
        if self.stem is not None:
            self._file = self.stem.with_suffix(".csv").open("x", encoding="utf-8", newline="")
            self._write(COLUMNS)
            self._summarise({"state": "on the ground"})

    def take_off(self, now: float) -> None:
        """Record the take-off before it is commanded: a flight killed later is still a trial."""
        self.began = now
        self.about |= self.drawn
        self._summarise({"state": "in flight"})

    def row(self, now: float, *values: Any) -> None:
        """Write a row."""
        self._write((round(now - (self.began or 0.0), 6), *values))

    def event(self, now: float, what: str) -> None:
        """Record an event, in memory, so that it cannot fail."""
        self._events.append((now, what))

    @property
    def events(self) -> list[tuple[float, str]]:
        """Events, in s from take-off; without one, from the first event."""
        first = self._events[0][0] if self._events else 0.0
        zero = first if self.began is None else self.began
        return [(round(time - zero, 6), what) for time, what in self._events]

    def finish(self, flight: FlightRecord) -> None:
        """Write the summary."""
        self.close()
        if flight.cost is not None:
            self.about |= self.drawn
        self._summarise({"state": "ended", **asdict(flight)})

    def close(self) -> None:
        """Close the file of rows."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _summarise(self, record: Mapping[str, Any]) -> None:
        if self.stem is not None:
            write_summary(self.stem, {**self.about, **record})

    def _write(self, row: tuple[Any, ...]) -> None:
        if self._file is not None:
            csv.writer(self._file, lineterminator="\n").writerow(row)
            self._file.flush()


def write_summary(stem: Path, record: Mapping[str, Any]) -> None:
    """Write the summary of a flight, and sync it to the disk."""
    write_atomic(stem.with_suffix(".json"), f"{json_text(record)}\n".encode(), durable=True)
