"""The flights of one command: their environments, stages and operator."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.report.console import say
from pacbayes_control.report.terminal import show_report
from pacbayes_control.robots.swing.flight import parrot, stages
from pacbayes_control.robots.swing.flight.campaign import FlightCampaign
from pacbayes_control.robots.swing.flight.log import FlightRecord
from pacbayes_control.robots.swing.flight.tracking import parse_address
from pacbayes_control.robots.swing.flight.world import Fault
from pacbayes_control.robots.swing.flying import FlyOptions
from pacbayes_control.robots.swing.simulator import Swing


@dataclass(frozen=True)
class FlightSession:
    """Flights of one command, in the folder of a campaign."""

    asked: FlyOptions
    campaign: FlightCampaign
    task: Swing
    seed: int | None  # of simulated flights

    def environments(self) -> list[NDArray[np.float64]]:
        """The obstacles of each flight: from its file, or drawn."""
        files, first = self.asked.obstacles or [], self.campaign.next
        if not files:
            numbers = range(first, first + self.asked.flights)
            return [stages.drawn_obstacles(self.task, self.seed or 0, n) for n in numbers]
        found = stages.read_obstacle_files(files, self.task, certified=self.asked.real)
        for file, obstacles in zip(files, found, strict=True):
            self.campaign.check_new(obstacles, file.name)
        return found

    def fly(self) -> list[FlightRecord]:
        """Fly once in each; the last flight is one that was terminated, or a real one's fault."""
        environments, real, drone = self.environments(), self.asked.real, self.asked.real_drone
        if real:
            parrot.pyparrot_swing()  # an error that says how to install it, before the question
        flown: list[FlightRecord] = []
        for i, obstacles in enumerate(environments):
            number = self.campaign.next
            if real and not self.asked.yes:
                name = f"Flight {number} ({i + 1} of {len(environments)})"
                self._ask_operator(name, len(obstacles))
            with self._stage(obstacles) as stage:
                flight = self.campaign.fly(
                    self.task,
                    obstacles,
                    stage,
                    self.seed,
                    rehearsed=self.asked.fault or (),
                    hardware={"tracker": self.asked.tracker, **drone} if real else {},
                )
            flown.append(flight)
            say(f"Flight {number}: {flight.sentence(self.campaign.summaries[number])}")
            if flight.end == "terminated" or (real and flight.fault):
                break
        if left := len(environments) - len(flown):
            say(f"{left} more {'was' if left == 1 else 'were'} requested and not flown.")
        return flown

    def _stage(self, obstacles: NDArray[np.float64]) -> AbstractContextManager[stages.Stage]:
        """Where the next flight takes place."""
        if self.asked.real:
            return stages.real_stage(parse_address(self.asked.tracker), self.asked.real_drone)
        number = self.campaign.next
        faults = tuple(Fault.parse(text) for text in self.asked.fault or ())
        seed = stages.flight_seed(self.seed or 0, number)
        setup = stages.world_setup(self.task, obstacles, seed, faults)
        if self.asked.virtual:
            return nullcontext(stages.virtual_stage(setup))
        return stages.simulated_stage(setup, self.campaign.stem(number).with_suffix(".world"))

    def _ask_operator(self, flight: str, cylinders: int) -> None:
        """Wait for the operator's confirmation; an error without a terminal."""
        if not sys.stdin.isatty():
            raise ValueError("a real flight waits for an operator: use a terminal, or give --yes")
        task, arena = self.task, self.task.arena
        typer.confirm(
            f"{flight} of {self.asked.drone} among {cylinders} cylinders, as in the file: "
            f"{task.steps} commands in {task.steps * task.time_step:g} s at {task.speed:g} m/s, "
            f"with a pitch of {self.asked.pitch} %. It lands if it leaves "
            f"x = ±{arena.half_width:g}, y = 0 to {arena.length:g} m: does the net stand there, "
            "is the drone at the start, the area clear, and everyone behind the net?",
            abort=True,
            err=True,
        )


def fly_all(asked: FlyOptions, folder: Path, run: Run[Any], task: Swing) -> dict[str, Any]:
    """Fly, and show the monitor's report on all outcomes of the folder; returns both for JSON."""
    seed = asked.seed if asked.real else asked.seed or 0
    with FlightCampaign(folder, run, simulated=not asked.real) as campaign:
        for number in campaign.lost:
            say(f"Flight {number} is a failure: its process ended in flight.")
        flown = FlightSession(asked, campaign, task, seed).fly()
        report = campaign.report()
        say("")
        if asked.fault:
            say("These were rehearsals: they are logged, and not counted.")
        if report is None:
            say("There is no outcome to test yet.")
        else:
            show_report(report, drawn_afresh=run.certificate.policy is None)
        added = f"{len(flown)} flight{'s' if len(flown) > 1 else ''} added"
        say(f"{folder}: {added}, {campaign.next - 1} in all.")
    return {
        "folder": str(folder),
        "seed": seed,
        "flights": [asdict(flight) for flight in flown],
        "monitor": report.to_dict() if report else None,
    }


def draw_environment(file: Path, folder: Path, run: Run[Any], task: Swing) -> dict[str, Any]:
    """Write the obstacles of the next real flight of a folder to a file."""
    with FlightCampaign(folder, run, simulated=False) as campaign:
        obstacles, trial = campaign.draw_environment(task), campaign.trials + 1
        stages.write_obstacles(file, obstacles)
    say(f"{file}: {len(obstacles)} cylinders for trial {trial} of {folder}.")
    record = {"folder": str(folder), "file": str(file), "trial": trial}
    return {**record, "obstacles": obstacles.tolist()}
