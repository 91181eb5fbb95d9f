"""How many deadlines are met, for minutes on end, on a machine that has other things to do."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from measuring import conclude, main
from pacbayes_control.cli.options import JsonFile, check_json
from pacbayes_control.robots.swing import Swing
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.log import FlightRecorder
from pacbayes_control.robots.swing.flight.loop import fly_once
from pacbayes_control.robots.swing.flight.processes import reap
from pacbayes_control.robots.swing.flight.stages import Pilot, place_of, simulated_stage
from pacbayes_control.robots.swing.flight.world import Physics, WorldSetup


@dataclass(frozen=True)
class Soak:
    """Deadlines of one long flight."""

    minutes: float
    busy: int  # processes that did nothing but compute, beside the five of the flight
    cores: int
    ticks: int
    met: int  # commands that the driver had sent within the deadline
    share: float  # of the ticks
    deadline: float  # s
    worst: float  # s from a tick to its command sent, acknowledged by the world
    percentile: float  # the same, of 99.9 % of them
    unsent: int
    priority: str  # that the system gave: real-time, nice or normal
    end: str  # "completed", or what ended it early


def soak(minutes: float = 10.0, busy: int = 2) -> Soak:
    """Fly for minutes with the real socket, keeper, driver and log, beside `busy` other processes.

    The simulated drone hovers among three cylinders, so that there is no end of the net to fly to;
    the loop senses, computes, commands and logs as in any flight. Deadlines that are missed are
    counted and do not end it; everything else does, but that it is not the certified speed.
    """
    task = Swing()
    steps = max(1, round(60 * minutes / task.time_step))
    limits = FlightLimits(
        steps, task.time_step, misses=steps + 1, late=math.inf, speed_tolerance=math.inf
    )
    cylinders = np.array([[-1.5, 4.0, 0.4], [0.5, 5.0, 0.3], [1.8, 3.5, 0.5]])
    pilot = Pilot(task, task.policies[35])
    with tempfile.TemporaryDirectory() as folder, _busy(busy):
        setup = WorldSetup(place_of(task, cylinders), Physics(speed=0.0))
        recorder = FlightRecorder(Path(folder) / "soak")
        with simulated_stage(setup, Path(folder) / "world.jsonl") as stage:
            flight = fly_once(pilot, cylinders, stage, limits, recorder)
        recorder.close()
    found = flight.deadlines
    return Soak(
        minutes=minutes,
        busy=busy,
        cores=os.cpu_count() or 1,
        ticks=found.ticks,
        met=found.met,
        share=found.met / max(found.ticks, 1),
        deadline=limits.deadline,
        worst=found.worst,
        percentile=found.percentile,
        unsent=found.unsent,
        priority=found.priority,
        end=flight.end if flight.end == "completed" else f"{flight.end}: {flight.reason}",
    )


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep cores busy with other processes."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            reap(process)


def command(
    minutes: Annotated[
        float, typer.Option(min=0.05, max=1440, help="How long to fly, in real time.")
    ] = 10.0,
    json_file: JsonFile = None,
) -> None:
    """Count the deadlines that a simulated flight meets beside other work.

    Example: .venv/bin/python benchmarks/fly.py --minutes 1
    """
    check_json(json_file)
    conclude("fly", soak(minutes), json_file)


if __name__ == "__main__":
    main(command)
