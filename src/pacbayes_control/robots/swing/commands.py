"""`pbc swing`: commands of this robot alone, and `pbc swing identify`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacbayes_control.cli import options
from pacbayes_control.robots.swing.flying import fly

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.identification.identified import IdentifiedModel

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

    from pacbayes_control.report.console import say, show
    from pacbayes_control.report.terminal import interval_ends

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


app.command()(fly)
