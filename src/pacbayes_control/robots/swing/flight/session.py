"""The flights of one command: their environments, stages and operator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.monitor import Report
from pacbayes_control.report.console import say
from pacbayes_control.report.terminal import show_report
from pacbayes_control.robots.swing.flight import parrot, stages
from pacbayes_control.robots.swing.flight.campaign import FlightCampaign
from pacbayes_control.robots.swing.flight.log import FlightRecord
from pacbayes_control.robots.swing.flight.obstacles import (
    read_obstacle_files,
    write_obstacles,
)
from pacbayes_control.robots.swing.flight.tracking import parse_address
from pacbayes_control.robots.swing.flight.world import Fault
from pacbayes_control.robots.swing.simulator import Swing


@dataclass(frozen=True)
class FlightSession:
    """Flights of one command, in the folder of a campaign."""

    campaign: FlightCampaign
    task: Swing
    seed: int | None = None  # of simulated flights
    virtual: bool = False  # simulated in virtual time
    faults: tuple[str, ...] = ()  # to rehearse, as NAME@SECONDS
    tracker: str = ""  # of real flights: udp://HOST:PORT
    drone: Mapping[str, Any] = field(default_factory=dict)  # of real flights, as `open_drone` takes
    confirm: bool = False  # whether to ask an operator before each flight

    def environments(self, files: list[Path], flights: int) -> list[NDArray[np.float64]]:
        """The obstacles of each flight: from its file, or drawn."""
        if not files:
            numbers = range(self.campaign.next, self.campaign.next + flights)
            return [stages.drawn_obstacles(self.task, self.seed or 0, n) for n in numbers]
        found = read_obstacle_files(files, self.task, certified=bool(self.drone))
        for file, obstacles in zip(files, found, strict=True):
            self.campaign.check_new(obstacles, file.name)
        return found

    def fly(self, environments: list[NDArray[np.float64]]) -> list[FlightRecord]:
        """Fly once in each; the last flight is one that was terminated, or a real one's fault."""
        if self.drone:
            parrot.pyparrot_swing()  # an error that says how to install it, before the question
        flown: list[FlightRecord] = []
        for i, obstacles in enumerate(environments):
            number = self.campaign.next
            if self.confirm:
                name = f"Flight {number} ({i + 1} of {len(environments)})"
                self._ask_operator(name, len(obstacles))
            hardware = {"tracker": self.tracker, **self.drone} if self.drone else {}
            with self._stage(obstacles) as stage:
                flight = self.campaign.fly(
                    self.task,
                    obstacles,
                    stage,
                    self.seed,
                    rehearsed=self.faults,
                    hardware=hardware,
                )
            flown.append(flight)
            say(f"Flight {number}: {flight.sentence(self.campaign.summaries[number])}")
            if flight.end == "terminated" or (self.drone and flight.fault):
                break
        if left := len(environments) - len(flown):
            say(f"{left} more {'was' if left == 1 else 'were'} requested and not flown.")
        return flown

    def _stage(self, obstacles: NDArray[np.float64]) -> AbstractContextManager[stages.Stage]:
        """Where the next flight takes place."""
        if self.drone:
            return stages.real_stage(parse_address(self.tracker), self.drone)
        number = self.campaign.next
        faults = tuple(Fault.parse(text) for text in self.faults)
        seed = stages.flight_seed(self.seed or 0, number)
        setup = stages.world_setup(self.task, obstacles, seed, faults)
        if self.virtual:
            return nullcontext(stages.virtual_stage(setup))
        return stages.simulated_stage(setup, self.campaign.stem(number).with_suffix(".world"))

    def _ask_operator(self, flight: str, cylinders: int) -> None:
        """Wait for the operator's confirmation; an error without a terminal."""
        if not sys.stdin.isatty():
            raise ValueError("a real flight waits for an operator: use a terminal, or give --yes")
        task, arena = self.task, self.task.arena
        typer.confirm(
            f"{flight} of {self.drone['address']} among {cylinders} cylinders, as in the file: "
            f"{task.steps} commands in {task.steps * task.time_step:g} s at {task.speed:g} m/s, "
            f"with a pitch of {self.drone['pitch']} %. It lands if it leaves "
            f"x = ±{arena.half_width:g}, y = 0 to {arena.length:g} m: does the net stand there, "
            "is the drone at the start, the area clear, and everyone behind the net?",
            abort=True,
            err=True,
        )


def draw_environment(file: Path, folder: Path, run: Run[Any], task: Swing) -> dict[str, Any]:
    """Write the obstacles of the next real flight of a folder to a file."""
    with FlightCampaign(folder, run, simulated=False) as campaign:
        obstacles, trial = campaign.draw_environment(task), campaign.trials + 1
        write_obstacles(file, obstacles)
    say(f"{file}: {len(obstacles)} cylinders for trial {trial} of {folder}.")
    record = {"folder": str(folder), "file": str(file), "trial": trial}
    return {**record, "obstacles": obstacles.tolist()}


def show_outcomes(campaign: FlightCampaign, rehearsed: bool) -> Report | None:
    """Show the monitor's report on all outcomes of a folder; returns it."""
    report = campaign.report()
    say("")
    if rehearsed:
        say("These were rehearsals: they are logged, and not counted.")
    if report is None:
        say("There is no outcome to test yet.")
    else:
        show_report(report, drawn_afresh=campaign.run.certificate.policy is None)
    return report
