"""`pbc swing fly`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes_control.cli import options

SIMULATED = "simulated"
ADDRESS = re.compile(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class FlyOptions:
    """A run, and how to fly it."""

    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of the Swing.")]
    flights: Annotated[int, typer.Option(min=1, max=9999, help="How many to fly.")] = 1
    obstacles: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Cylinders of a flight: CSV with x, y, radius in m; a file for each.",
        ),
    ] = None
    tracker: Annotated[
        str, typer.Option(metavar="udp://HOST:PORT", help="Where poses arrive, or simulated.")
    ] = SIMULATED
    drone: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Bluetooth address of a Swing, or simulated.")
    ] = SIMULATED
    pitch: Annotated[
        int, typer.Option(min=1, max=100, help="Pitch of a real drone at its speed, in percent.")
    ] = 50
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Simulate as fast as it can be computed.")
    ] = False
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME@SECONDS", help="A fault to rehearse, so long after take-off; simulated."
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**64 - 1, help="Of simulated flights; default 0."),
    ] = None
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Do not fly: write the next real flight's obstacles."),
    ] = None
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Logs and outcomes; default RUN.flights."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a real flight.")] = False
    json_file: options.JsonFile = None

    @property
    def real(self) -> bool:
        """Whether a real drone flies."""
        return self.drone != SIMULATED or self.tracker != SIMULATED

    @property
    def real_drone(self) -> dict[str, Any]:
        """The drone of real flights, as `open_drone` takes it."""
        return {"kind": "swing", "address": self.drone, "pitch": self.pitch}


@options.takes_record
def fly(asked: FlyOptions) -> None:
    """Fly a certified policy, and test the outcomes against the certificate.

    Each flight draws a policy from the posterior; that of a real one is unpredictable, and unknown
    until take-off. The drone lands after any failure: of the loop, the tracker, the driver, or this
    process. Logs and outcomes are added to a folder, and the monitor tests all outcomes in it. The
    run is verified first: exit code 1 if it does not hold, and also if a fault ended a flight,
    after which no further real one begins.

    Example: pbc swing fly runs/swing --flights 5 --virtual
    """
    from pacbayes_control.robots.swing.flight import session
    from pacbayes_control.robots.swing.flight.limits import check_flyable, recorded_swing

    run, draw, json_file = options.run_folder(asked.run), asked.draw, asked.json_file
    options.check_json(json_file, run)
    options.check_writable(draw, run)
    options.refuse_set(asked, _without_effect(asked.real, draw is not None))
    _check_flights(asked)
    folder = asked.out_folder or options.beside(run, ".flights")
    _check_apart(folder, run, json_file, draw)
    loaded = options.verified(run, json_file)
    task = recorded_swing(loaded)
    check_flyable(task, asked.real or draw is not None)
    if draw:
        options.write_json(json_file, session.draw_environment(draw, folder, loaded, task))
        return
    record = session.fly_all(asked, folder, loaded, task)
    options.write_json(json_file, record)
    if any(flight["fault"] for flight in record["flights"]):
        raise typer.Exit(1)


def _without_effect(real: bool, draw: bool) -> dict[str, str]:
    """Options that have no effect, and why."""
    if draw:
        names = ("flights", "obstacles", "tracker", "drone", "pitch", "virtual", "fault", "yes")
        return dict.fromkeys((*names, "seed"), "has no effect with --draw, which does not fly")
    if real:
        return {
            "virtual": "is for simulated flights",
            "fault": "is for simulated flights: a fault of a real one is not rehearsed",
            "seed": "is for simulated flights: the draw of a real one must be unpredictable",
        }
    return {"pitch": "is for a real drone", "yes": "is for real flights: there is no question"}


def _check_flights(asked: FlyOptions) -> None:
    """An error for hardware, obstacles or faults that do not go together."""
    from pacbayes_control.robots.swing.flight.tracking import parse_address
    from pacbayes_control.robots.swing.flight.world import PROCESS_FAULTS, Fault

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
        parse_address(asked.tracker)
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
        name = Fault.parse(text).name
        if asked.virtual and name in PROCESS_FAULTS:
            raise ValueError(f"fault {name!r} needs real processes: leave out --virtual")


def _check_apart(folder: Path, run: Path, *files: Path | None) -> None:
    """An error for flights in the run's folder, or for another file among the flights."""
    if run.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} is the run, or lies in it: keep the flights elsewhere")
    for file in files:
        if file and folder.resolve() in file.resolve().parents:
            raise ValueError(f"{file} lies in {folder}, where the flights are kept")
