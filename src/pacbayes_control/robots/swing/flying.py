"""`pbc swing fly`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.cli.options import (
    JsonFile,
    beside,
    check_json,
    check_writable,
    refuse_given,
    run_folder,
    verified,
    write_json,
)

if TYPE_CHECKING:
    from pacbayes_control.certify.run import Run
    from pacbayes_control.robots.swing.flight.campaign import Campaign
    from pacbayes_control.robots.swing.flight.faults import Fault
    from pacbayes_control.robots.swing.flight.log import Flight
    from pacbayes_control.robots.swing.flight.stages import Stage

SIMULATED = "simulated"
ADDRESS = re.compile(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


def fly(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of the Swing.")],
    flights: Annotated[int, typer.Option(min=1, max=9999, help="How many to fly.")] = 1,
    obstacles: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Cylinders of a flight: CSV with x, y, radius in m; one a flight."
        ),
    ] = None,
    tracker: Annotated[
        str, typer.Option(metavar="udp://HOST:PORT", help="Where poses come in, or simulated.")
    ] = SIMULATED,
    drone: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Bluetooth address of a Swing, or simulated.")
    ] = SIMULATED,
    pitch: Annotated[
        int, typer.Option(min=1, max=100, help="A real drone's percent of pitch for its speed.")
    ] = 50,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Simulated, as fast as it can be computed.")
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME@SECONDS", help="A failure to rehearse, so long after take-off; simulated."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**64 - 1, help="Of simulated flights; default 0."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Do not fly: write the next real flight's obstacles."),
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Logs and outcomes; default RUN.flights."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a real flight.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Fly a certified policy, and weigh what came of it.

    Each flight draws a policy from the posterior; real ones unpredictably, and nobody learns of it
    before take-off. The drone is landed whatever fails: the loop, the tracker, the driver, or this
    process. Logs and outcomes go to a folder that grows; the outcomes are weighed against the
    certificate. The run is verified first: exit code 1 if it does not hold, and also if a flight
    was ended by a fault, after which no real one follows.

    Example: pbc swing fly runs/swing --flights 5 --virtual
    """
    from pacbayes_control.report.terminal import say, show_report
    from pacbayes_control.robots.swing.flight.campaign import Campaign
    from pacbayes_control.robots.swing.flight.faults import Fault
    from pacbayes_control.robots.swing.flight.log import in_a_line
    from pacbayes_control.robots.swing.flight.settings import check_flyable

    run = run_folder(run)
    check_json(json_file, run)
    check_writable(draw, run)
    flying = drone != SIMULATED or tracker != SIMULATED
    real = flying or draw is not None
    refuse_given(context, _useless(real, draw is not None))
    if flying:
        _check_hardware(drone, tracker, obstacles)
    if obstacles and len(obstacles) != flights:
        raise ValueError(
            f"{flights} flights and {len(obstacles)} files of obstacles: every flight needs an "
            "environment of its own, so give --obstacles once for each"
        )
    faults = [Fault.parse(text) for text in fault or ()]
    if virtual:
        _check_virtual(faults)
    folder = out_folder or beside(run, ".flights")
    if run.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} is the run, or lies in it: keep the flights elsewhere")
    for file in (json_file, draw):
        if file and folder.resolve() in file.resolve().parents:
            raise ValueError(f"{file} lies in {folder}, where the flights are kept")
    loaded = verified(run, json_file)
    task = _task(loaded)
    check_flyable(task, real)
    if draw:
        _draw(draw, folder, loaded, task, json_file)
        return
    if seed is None and not real:
        seed = 0
    spec = {"kind": "swing", "address": drone, "pitch": pitch}
    with Campaign(folder, loaded, simulated=not real) as campaign:
        for number in campaign.lost:
            say(f"Flight {number} was cut off, the process ended in flight: it is a failure.")
        fields = _fields(campaign, task, obstacles, flights, seed, real)
        if real:
            from pacbayes_control.robots.swing.flight.parrot import pyparrot_swing

            pyparrot_swing()  # an error that says how to install it, before anybody is asked
        flown: list[Flight] = []
        for i, field in enumerate(fields):
            number = campaign.next
            if real and not yes:
                _ask(f"Flight {number} ({i + 1} of {len(fields)})", task, spec, len(field))
            with _stage(
                campaign, task, field, faults, seed, virtual, (tracker, spec) if real else None
            ) as stage:
                hardware = {"tracker": tracker, **spec} if real else {}
                flight = campaign.fly(
                    task, field, stage, seed, rehearsed=fault or (), hardware=hardware
                )
            flown.append(flight)
            say(f"Flight {number}: {in_a_line(flight, campaign.summaries[number])}")
            if flight.end == "terminated" or (real and flight.fault):
                break
        if left := len(fields) - len(flown):
            say(f"{left} more {'was' if left == 1 else 'were'} asked for and not flown.")
        report = campaign.report()
        say("")
        if fault:
            say("These were rehearsals: they are logged, and not counted.")
        if report is None:
            say("There is no outcome to weigh yet.")
        else:
            show_report(report, drawn_afresh=loaded.certificate.policy is None)
        added = f"{len(flown)} flight{'s' if len(flown) > 1 else ''} added"
        say(f"{folder}: {added}, {campaign.next - 1} in all.")
    record = {
        "folder": str(folder),
        "seed": seed,
        "flights": [flight.to_dict() for flight in flown],
        "monitor": report.to_dict() if report else None,
    }
    write_json(json_file, record)
    if any(flight.fault for flight in flown):
        raise typer.Exit(1)


# ---- what was given -----------------------------------------------------------------------------


def _useless(real: bool, draw: bool) -> dict[str, str]:
    """Options that have no effect."""
    if draw:
        names = ("flights", "obstacles", "tracker", "drone", "pitch", "virtual", "fault", "yes")
        return dict.fromkeys((*names, "seed"), "has no effect with --draw, which does not fly")
    if real:
        return {
            "virtual": "is for simulated flights",
            "fault": "is for simulated flights: nobody rehearses a failure in the air",
            "seed": "is for simulated flights: nobody may know what a real one draws",
        }
    return {"pitch": "is for a real drone", "yes": "is for real flights: nobody would ask"}


def _check_hardware(drone: str, tracker: str, obstacles: list[Path] | None) -> None:
    from pacbayes_control.robots.swing.flight.tracking import parse_address

    if drone == SIMULATED:
        raise ValueError("a real tracker does not see a simulated drone: give --drone too")
    if not ADDRESS.fullmatch(drone):
        raise ValueError(
            f"{drone!r} is no Bluetooth address: it has six pairs of digits, as e0:14:d0:63:3d:d0"
        )
    if tracker == SIMULATED:
        raise ValueError("a real drone needs a real tracker: give --tracker udp://HOST:PORT")
    parse_address(tracker)
    if not obstacles:
        raise ValueError("a real flight needs the obstacles as they stand: give --obstacles FILE")


def _check_virtual(faults: list[Fault]) -> None:
    from pacbayes_control.robots.swing.flight.faults import WITH_PROCESSES

    for fault in faults:
        if fault.name in WITH_PROCESSES:
            raise ValueError(f"fault {fault.name!r} needs real processes: leave out --virtual")


def _task(run: Run[Any]) -> Any:
    from pacbayes_control.robots.swing.recipe import recorded_swing

    return recorded_swing(run)


def _fields(
    campaign: Campaign,
    task: Any,
    files: list[Path] | None,
    flights: int,
    seed: int | None,
    real: bool,
) -> list[Any]:
    """The obstacles of each flight: from its file, or drawn."""
    from pacbayes_control.robots.swing.flight.fields import read_fields
    from pacbayes_control.robots.swing.flight.stages import drawn_obstacles

    if not files:
        first = campaign.next
        return [drawn_obstacles(task, seed or 0, first + i) for i in range(flights)]
    fields = read_fields(files, task, certified=real)
    for file, field in zip(files, fields, strict=True):
        campaign.check_new(field, file.name)
    return fields


def _draw(file: Path, folder: Path, run: Run[Any], task: Any, json_file: Path | None) -> None:
    """Write the environment of the next real flight, which nobody has chosen."""
    from pacbayes_control.report.terminal import say
    from pacbayes_control.robots.swing.flight.campaign import Campaign
    from pacbayes_control.robots.swing.flight.fields import write_obstacles

    with Campaign(folder, run, simulated=False) as campaign:
        field = campaign.drawn_field(task)
        write_obstacles(file, field)
        say(f"{file}: {len(field)} cylinders for trial {campaign.trials + 1} of {folder}.")
        record = {"folder": str(folder), "file": str(file), "trial": campaign.trials + 1}
    write_json(json_file, {**record, "obstacles": field.tolist()})


def _ask(flight: str, task: Any, spec: dict[str, Any], cylinders: int) -> None:
    """Wait for the operator; an error where there is none to ask."""
    if not sys.stdin.isatty():
        raise ValueError("a real flight waits for an operator: use a terminal, or say --yes")
    typer.confirm(
        f"{flight} of {spec['address']} among {cylinders} cylinders, as in the file: {task.steps} "
        f"commands in {task.steps * task.time_step:g} s at {task.speed:g} m/s, with a pitch of "
        f"{spec['pitch']} %. It lands if it leaves x = ±{task.arena.half_width:g}, y = 0 to "
        f"{task.arena.length:g} m: does the net stand there, and the drone at the start, with the "
        "area clear and everybody behind the net?",
        abort=True,
        err=True,
    )


# ---- flying -------------------------------------------------------------------------------------


@contextmanager
def _stage(
    campaign: Campaign,
    task: Any,
    obstacles: Any,
    faults: list[Fault],
    seed: int | None,
    virtual: bool,
    hardware: tuple[str, dict[str, Any]] | None,
) -> Iterator[Stage]:
    """Where the next flight takes place."""
    from pacbayes_control.robots.swing.flight import stages
    from pacbayes_control.robots.swing.flight.tracking import parse_address

    number = campaign.next
    if hardware:
        with stages.real_stage(parse_address(hardware[0]), hardware[1]) as stage:
            yield stage
        return
    place, own = stages.place_of(task, obstacles), stages.flight_seed(seed or 0, number)
    physics = stages.physics_of(task)
    if virtual:
        yield stages.virtual_stage(place, physics, faults, own)
        return
    record = campaign.stem(number).with_suffix(".world")
    with stages.simulated_stage(place, record, physics, faults, own) as stage:
        yield stage
