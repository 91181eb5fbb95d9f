"""`pbc fly`."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.cli.app import app, complain
from pacbayes_control.cli.options import JsonFile, check_json, refuse_given, write_json

if TYPE_CHECKING:
    from pacbayes_control.flight.campaign import Campaign
    from pacbayes_control.flight.faults import Fault
    from pacbayes_control.flight.log import Flight
    from pacbayes_control.flight.stages import Stage
    from pacbayes_control.run import Run

SIMULATED = "simulated"
ADDRESS = re.compile(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


@app.command()
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
        typer.Option(min=0, max=2**64 - 1, help="Of all draws; 0, or unpredictable for real ones."),
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Logs and outcomes; default RUN.flights."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a real flight.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Fly a certified policy, and weigh what came of it.

    Each flight draws a policy from the posterior. The drone is landed whatever fails: the loop, the
    tracker, the driver, or this process. Logs and outcomes go to a folder that grows; the outcomes
    are weighed against the certificate. The run is verified first: exit code 1 if it does not hold,
    and also if a flight was ended by a fault.

    Example: pbc fly runs/swing --flights 5 --virtual
    """
    from pacbayes_control.flight.campaign import Campaign
    from pacbayes_control.flight.faults import Fault
    from pacbayes_control.report.terminal import say, show_report

    check_json(json_file, run)
    real = drone != SIMULATED or tracker != SIMULATED
    refuse_given(context, _useless(real))
    if real:
        _check_hardware(drone, tracker, obstacles)
    if obstacles and len(obstacles) != flights:
        raise ValueError(
            f"{flights} flights and {len(obstacles)} files of obstacles: every flight needs an "
            "environment of its own, so give --obstacles once for each"
        )
    faults = [Fault.parse(text) for text in fault or ()]
    if virtual:
        _check_virtual(faults)
    folder = out_folder or _beside(run)
    if run.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} is the run, or lies in it: keep the flights elsewhere")
    if json_file and folder.resolve() in json_file.resolve().parents:
        raise ValueError(f"{json_file} lies in {folder}, where the flights are kept")
    loaded = _verified(run, json_file)
    task = _task(loaded)
    if seed is None:
        seed = secrets.randbits(63) if real else 0
    spec = {"kind": "swing", "address": drone, "pitch": pitch}
    with Campaign(folder, loaded, simulated=not real) as campaign:
        fields = _fields(campaign, task, obstacles, flights, seed)
        if real:
            from pacbayes_control.flight.parrot import pyparrot_swing

            pyparrot_swing()  # an error that says how to install it, before anybody is asked
        flown: list[Flight] = []
        for i, field in enumerate(fields):
            number = campaign.next
            if real and not yes:
                _ask(number, i, len(fields), drone, len(field))
            with _stage(
                campaign, task, field, faults, seed, virtual, (tracker, spec) if real else None
            ) as stage:
                flight = campaign.fly(task, field, stage, seed, rehearsed=fault or ())
            flown.append(flight)
            say(f"Flight {number}: {_line(flight, campaign.summaries[number])}")
            if flight.end == "terminated":
                break
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
        "flights": [_record(flight) for flight in flown],
        "monitor": report.to_dict() if report else None,
    }
    write_json(json_file, record)
    if any(flight.fault for flight in flown):
        raise typer.Exit(1)


# ---- what was given -----------------------------------------------------------------------------


def _useless(real: bool) -> dict[str, str]:
    """Options that have no effect."""
    if real:
        return {
            "virtual": "is for simulated flights",
            "fault": "is for simulated flights: nobody rehearses a failure in the air",
        }
    return {"pitch": "is for a real drone", "yes": "is for real flights: nobody would ask"}


def _check_hardware(drone: str, tracker: str, obstacles: list[Path] | None) -> None:
    from pacbayes_control.flight.tracking import parse_address

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
    from pacbayes_control.flight.faults import WITH_PROCESSES

    for fault in faults:
        if fault.name in WITH_PROCESSES:
            raise ValueError(f"fault {fault.name!r} needs real processes: leave out --virtual")


def _beside(run: Path) -> Path:
    """RUN.flights next to the folder, however that was named."""
    whole = run.resolve()
    plain = run.name not in ("", "..")
    return (run if plain else whole).with_name(f"{whole.name}.flights")


def _verified(run: Path, json_file: Path | None) -> Run[Any]:
    """The run, if it holds."""
    from pacbayes_control.run import AlteredRun, Run
    from pacbayes_control.verification import InvalidCertificate, verify

    if not run.is_dir():
        raise FileNotFoundError(f"there is no run at {run}")
    try:
        verify(run)
    except (AlteredRun, InvalidCertificate) as error:
        write_json(json_file, {"verified": False, "reason": str(error)})
        complain(f"NOT VERIFIED: {error}")
        raise typer.Exit(1) from None
    return Run.load(run)


def _task(run: Run[Any]) -> Any:
    from pacbayes_control.recipes.swing import recorded_swing

    return recorded_swing(run)


def _fields(
    campaign: Campaign, task: Any, files: list[Path] | None, flights: int, seed: int
) -> list[Any]:
    """The obstacles of each flight: from its file, or drawn."""
    from pacbayes_control.flight.campaign import read_obstacles, same_obstacles
    from pacbayes_control.flight.stages import drawn_obstacles

    if not files:
        first = campaign.next
        return [drawn_obstacles(task, seed, first + i) for i in range(flights)]
    fields = [read_obstacles(file, task) for file in files]
    for i, (file, field) in enumerate(zip(files, fields, strict=True)):
        campaign.check_new(field, file.name)
        for other, before in zip(files[:i], fields[:i], strict=True):
            if same_obstacles(field, before):
                raise ValueError(
                    f"{file.name} has the obstacles of {other.name}: every flight needs an "
                    "environment of its own"
                )
    return fields


def _ask(number: int, i: int, of: int, drone: str, cylinders: int) -> None:
    """Wait for the operator; an error where there is none to ask."""
    if not sys.stdin.isatty():
        raise ValueError("a real flight waits for an operator: use a terminal, or say --yes")
    typer.confirm(
        f"Flight {number} ({i + 1} of {of}) of {drone} among {cylinders} cylinders, as in the "
        "file. Drone at the start, area clear, everybody behind the net?",
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
    seed: int,
    virtual: bool,
    hardware: tuple[str, dict[str, Any]] | None,
) -> Iterator[Stage]:
    """Where the next flight takes place."""
    from pacbayes_control.flight import stages
    from pacbayes_control.flight.tracking import parse_address

    number = campaign.next
    if hardware:
        with stages.real_stage(parse_address(hardware[0]), hardware[1]) as stage:
            yield stage
        return
    place, own = stages.place_of(task, obstacles), stages.flight_seed(seed, number)
    physics = stages.physics_of(task)
    if virtual:
        yield stages.virtual_stage(place, physics, faults, own)
        return
    record = campaign.stem(number).with_suffix(".world")
    with stages.simulated_stage(place, record, physics, faults, own) as stage:
        yield stage


def _line(flight: Flight, summary: dict[str, Any]) -> str:
    """How a flight ended, in a line."""
    what = {0: "success", 1: "failure", None: "no trial"}[flight.cost]
    drawn = summary["policy_name"] or summary["policy"]
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


def _record(flight: Flight) -> dict[str, Any]:
    """The same for machines."""
    record = dict(vars(flight))
    record["deadlines"] = vars(flight.deadlines)
    record["events"] = [list(event) for event in flight.events]
    return record
