"""The flights of one command: their environments, stages and operator."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pacbayes_control.certify.run import Run
from pacbayes_control.report.console import say
from pacbayes_control.report.terminal import show_report
from pacbayes_control.robots.swing.commands import SIMULATED, FlyOptions
from pacbayes_control.robots.swing.flight import parrot, stages, tracking, world
from pacbayes_control.robots.swing.flight.campaign import FlightCampaign
from pacbayes_control.robots.swing.flight.log import FlightRecord
from pacbayes_control.robots.swing.simulator import Swing

ADDRESS = re.compile(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


def check_flights(asked: FlyOptions) -> None:
    """An error for hardware, obstacles or faults that do not go together."""
    if asked.real:
        if asked.drone == SIMULATED:
            raise ValueError("a real tracker does not see a simulated drone: give --drone too")
        if not ADDRESS.fullmatch(asked.drone):
            raise ValueError(
                f"{asked.drone!r} is not a Bluetooth address: give six pairs of digits, as "
                "e0:14:d0:63:3d:d0"
            )
        if asked.tracker == SIMULATED:
            raise ValueError("a real drone needs a real tracker: give --tracker udp://HOST:PORT")
        tracking.parse_address(asked.tracker)
        if not asked.obstacles:
            raise ValueError(
                "a real flight needs the obstacles as they stand: give --obstacles FILE"
            )
    if asked.obstacles and len(asked.obstacles) != asked.flights:
        raise ValueError(
            f"{asked.flights} flights and {len(asked.obstacles)} files of obstacles: every flight "
            "needs its own environment, so give --obstacles once for each"
        )
    for text in asked.fault or ():
        name = world.Fault.parse(text).name
        if asked.virtual and name in world.PROCESS_FAULTS:
            raise ValueError(f"fault {name!r} needs real processes: leave out --virtual")


def _environments(asked: FlyOptions, campaign: FlightCampaign, task: Swing) -> list[stages.Floats]:
    """The obstacles of each flight: from its file, checked and each new, or drawn."""
    files, first = asked.obstacles or [], campaign.next
    if not files:
        numbers = range(first, first + asked.flights)
        return [stages.drawn_obstacles(task, asked.seed or 0, n) for n in numbers]
    found = [stages.read_obstacles(file, task) for file in files]
    for i, (file, obstacles) in enumerate(zip(files, found, strict=True)):
        if asked.real:
            stages.check_certified(obstacles, task, file.name)
        for other, earlier in zip(files[:i], found[:i], strict=True):
            if stages.same_obstacles(earlier, obstacles):
                raise ValueError(
                    f"{file.name} has the obstacles of {other.name}: every flight needs its own "
                    "environment"
                )
        campaign.check_new(obstacles, file.name)
    return found


def _fly(
    asked: FlyOptions, campaign: FlightCampaign, task: Swing, seed: int | None
) -> list[FlightRecord]:
    """Fly once in each; the last flight is one that was terminated, or a real one's fault."""
    environments, real, drone = _environments(asked, campaign, task), asked.real, asked.real_drone
    if real:
        parrot.pyparrot_swing()  # an error that says how to install it, before the question
    flown: list[FlightRecord] = []
    for i, obstacles in enumerate(environments):
        number = campaign.next
        if real and not asked.yes:
            name = f"Flight {number} ({i + 1} of {len(environments)})"
            _ask_operator(asked, task, name, len(obstacles))
        with _stage(asked, campaign, task, obstacles) as stage:
            flight = campaign.fly(
                task,
                obstacles,
                stage,
                seed,
                rehearsed=asked.fault or (),
                hardware={"tracker": asked.tracker, **drone} if real else {},
            )
        flown.append(flight)
        say(f"Flight {number}: {flight.sentence(campaign.summaries[number])}")
        if flight.end == "terminated" or (real and flight.fault):
            break
    if left := len(environments) - len(flown):
        say(f"{left} more {'was' if left == 1 else 'were'} requested and not flown.")
    return flown


def _stage(
    asked: FlyOptions, campaign: FlightCampaign, task: Swing, obstacles: stages.Floats
) -> AbstractContextManager[stages.Stage]:
    """Where the next flight takes place."""
    if asked.real:
        return stages.real_stage(tracking.parse_address(asked.tracker), asked.real_drone)
    number = campaign.next
    faults = tuple(world.Fault.parse(text) for text in asked.fault or ())
    seed = stages.flight_seed(asked.seed or 0, number)
    setup = stages.world_setup(task, obstacles, seed, faults)
    if asked.virtual:
        return nullcontext(stages.virtual_stage(setup))
    return stages.simulated_stage(setup, campaign.stem(number).with_suffix(".world"))


def _ask_operator(asked: FlyOptions, task: Swing, flight: str, cylinders: int) -> None:
    """Wait for the operator's confirmation; an error without a terminal."""
    if not sys.stdin.isatty():
        raise ValueError("a real flight waits for an operator: use a terminal, or give --yes")
    arena = task.arena
    typer.confirm(
        f"{flight} of {asked.drone} among {cylinders} cylinders, as in the file: "
        f"{task.steps} commands in {task.steps * task.time_step:g} s at {task.speed:g} m/s, "
        f"with a pitch of {asked.pitch} %. It lands if it leaves "
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
        flown = _fly(asked, campaign, task, seed)
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
