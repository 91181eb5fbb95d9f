"""What a flight leaves behind: a row for each control step, and a summary."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

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
    met: int  # gone out by the driver within the deadline
    worst: float  # s from a tick to its command gone out
    percentile: float  # the same, of all but one in a thousand
    unsent: int  # commands that never went out
    priority: str = "normal"  # of the process: real-time, nice or normal

    @classmethod
    def of(cls, lateness: list[float], deadline: float, priority: str = "normal") -> Deadlines:
        """Count; a command that never went out has infinite lateness."""
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
class Flight:
    """How a flight ended.

    cost: 0 if all steps were flown and the drone landed, both without contact; 1 otherwise, also
    where a fault ended the flight: to leave those out would be to choose among the outcomes after
    having seen them. None for a flight that never left the ground, which is no trial, unless it was
    the policy that failed there.
    """

    cost: int | None
    end: str  # kind of end, see `watching.OUTCOMES`
    reason: str  # in words
    fault: bool  # whether it ended otherwise than by the policy in its environment
    steps: int  # control steps that were flown
    landing_acknowledged: bool
    landed: bool  # seen on the ground afterwards
    clearance: float | None  # m, the smallest from the hull to a surface
    deadlines: Deadlines
    speed: float | None = None  # m/s, the mean over the control steps, as tracked
    gap: float = 0.0  # s, the longest without a frame, from take-off to the ground
    frames: dict[str, int] = field(default_factory=dict)  # of the tracker, by what they were
    events: list[tuple[float, str]] = field(default_factory=list)  # s from take-off, what

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        events = [list(event) for event in self.events]
        return {**vars(self), "deadlines": vars(self.deadlines), "events": events}


def in_a_line(flight: Flight, summary: Mapping[str, Any]) -> str:
    """How a flight ended, in a line."""
    what = {0: "success", 1: "failure", None: "no trial"}[flight.cost]
    drawn = summary.get("policy_name") or summary.get("policy")  # unknown before take-off
    words = [f"{what}, {flight.reason}"]
    if drawn is not None:
        words.append(str(drawn) if str(drawn).startswith("policy") else f"policy {drawn}")
    if flight.clearance is not None:
        words.append(f"nearest {max(flight.clearance, 0):.2f} m")
    if flight.deadlines.ticks:
        d = flight.deadlines
        words.append(f"{d.met} of {d.ticks} deadlines met, worst {1e3 * d.worst:.0f} ms")
    if flight.cost is not None and not flight.landing_acknowledged:
        words.append("THE LANDING WAS NOT ACKNOWLEDGED")
    return "; ".join(words) + "."


class FlightLog:
    """Two files of a flight, written as it goes on; without a file, a list in memory."""

    def __init__(
        self,
        stem: Path | None = None,
        about: Mapping[str, Any] | None = None,
        drawn: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin. stem: the path without suffix, of files that must not be there yet.

        drawn: the policy, which nobody learns of before take-off: whoever did could decide by it
        whether to fly.
        """
        self.stem, self.about, self.drawn = stem, dict(about or {}), dict(drawn or {})
        self.rows: list[tuple[Any, ...]] = []
        self.began: float | None = None  # when take-off was commanded
        self._events: list[tuple[float, str]] = []
        self._file: TextIO | None = None
        if stem is not None:
            self._file = stem.with_suffix(".csv").open("x", encoding="utf-8", newline="")
            self._write(COLUMNS)
            self.summarise({"state": "on the ground"})

    def take_off(self, now: float) -> None:
        """Mark the take-off, before it is commanded: what is killed after it is still a trial."""
        self.began = now
        self.about |= self.drawn
        self.summarise({"state": "in flight"})

    def row(self, now: float, *values: Any) -> None:
        """Add a row, and have it written."""
        row = (round(now - (self.began or 0.0), 6), *values)
        if self._file is None:
            self.rows.append(row)
        else:
            self._write(row)

    def event(self, now: float, what: str) -> None:
        """Remember something that happened. It is kept in memory, and cannot fail."""
        self._events.append((now, what))

    @property
    def events(self) -> list[tuple[float, str]]:
        """What happened, in s from take-off; from the first event where there was none."""
        first = self._events[0][0] if self._events else 0.0
        zero = first if self.began is None else self.began
        return [(round(time - zero, 6), what) for time, what in self._events]

    def finish(self, flight: Flight) -> None:
        """Write the summary."""
        self.close()
        if flight.cost is not None:
            self.about |= self.drawn
        self.summarise({"state": "ended", **flight.to_dict()})

    def summarise(self, record: Mapping[str, Any]) -> None:
        """Write the summary as it stands."""
        if self.stem is not None:
            write_summary(self.stem, {**self.about, **record})

    def close(self) -> None:
        """Close the file of rows."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, row: tuple[Any, ...]) -> None:
        assert self._file is not None
        csv.writer(self._file, lineterminator="\n").writerow(row)
        self._file.flush()


def write_summary(stem: Path, record: Mapping[str, Any]) -> None:
    """Write the summary of a flight; the old one stays until the new one is whole."""
    path = stem.with_suffix(".json")
    unfinished = path.with_name(f".{path.name}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json_text(record) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a file that is there has one only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
