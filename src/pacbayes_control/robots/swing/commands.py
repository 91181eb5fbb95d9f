"""`pbc swing`: commands of this robot alone."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.cli import options

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.identification.identified import IdentifiedModel

SIMULATED = "simulated"  # in place of an address

app = typer.Typer()


@app.command()
def identify(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="LOG…", help="CSV files: time, yaw_percent, x, y, yaw."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Of each interval; default 0.95.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the residuals: .svg, .png or .pdf.")
    ] = None,
    example: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a log of a simulated flight, to try this on."),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Fit the drone's gains, speed and latency to logs of its flights, with confidence intervals.

    Steps show k_u, sinusoids and chirps k_p; a minute in all is enough, in one log or several. Exit
    code 0 if the model fits, 1 if it does not: then do not use its gains.

    Example: pbc swing identify --example log.csv, then pbc swing identify log.csv --plot fit.svg
    """
    from pacbayes_control.report.console import say
    from pacbayes_control.robots.swing.identification.logs import read_log, write_log
    from pacbayes_control.robots.swing.identification.swing import identify_swing
    from pacbayes_control.robots.swing.identification.synthetic import SyntheticDrone

    if example:
        given = {"--confidence": confidence, "--plot": plot, "--json": json_file}
        unused = [*(logs or ()), *(name for name in given if given[name] is not None)]
        if unused:
            raise ValueError(f"{unused[0]} has no use with --example, which only writes a log")
        options.check_writable(example)
        if example.exists():
            raise ValueError(f"{example} exists: give a name that is free for the example")
        write_log(SyntheticDrone().log(), example)
        say(f"The log of a simulated minute is in {example}: pbc swing identify {example}")
        return
    if not logs:
        raise ValueError("give logs of flights, or --example FILE to write one to try")
    options.check_outputs(json_file, plot, *logs)
    sure = 0.95 if confidence is None else confidence
    found = identify_swing([read_log(file) for file in logs], sure)
    _show(found)
    if plot:
        from pacbayes_control.robots.swing.pictures import draw_identified

        draw_identified(found, plot)
        say(f"Picture: {plot}")
    options.write_json(json_file, found.to_dict())
    if not found.fits:
        raise typer.Exit(1)


def _show(found: IdentifiedModel) -> None:
    """Show the fitted values, whether the model fits, and the remarks."""
    from rich.table import Table

    from pacbayes_control.certify.text import interval_ends
    from pacbayes_control.report.console import say, show

    table = Table("", "fitted", "from", "to", "")
    units = {"k_u": "rad of yaw for a full command", "k_p": "1/s", "speed": "m/s", "latency": "s"}
    for name, unit in units.items():
        one = getattr(found, name)
        table.add_row(name, f"{one.value:.4f}", *interval_ends(one.low, one.high), unit)
    show(table)
    count, confidence = len(found.responses), 100 * Decimal(repr(found.confidence))
    say(
        f"{found.samples:,} yaws of {count} log{'s' if count > 1 else ''}, noise "
        f"{found.noise:.4f} rad; each interval holds its true value with confidence "
        f"{confidence.normalize():f} %, if the model fits."
    )
    if found.fits:
        say("The model fits.", style="bold")
    else:
        say("The model does not fit: use neither these gains nor their intervals.", style="bold")
    for remark in found.remarks:
        say(f"- {remark}")


# ---- flights ------------------------------------------------------------------------------------


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


@app.command()
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
    session.check_flights(asked)
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


def _check_apart(folder: Path, run: Path, *files: Path | None) -> None:
    """An error for flights in the run's folder, or for another file among the flights."""
    if run.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} is the run, or lies in it: keep the flights elsewhere")
    for file in files:
        if file and folder.resolve() in file.resolve().parents:
            raise ValueError(f"{file} lies in {folder}, where the flights are kept")
