"""`pbc failures`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.text import interval_ends, printable
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.cli.reporting import check_plots
from pacbayes_control.report.console import print_table, say, working
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import load_task

if TYPE_CHECKING:
    from pacbayes_control.study.failures import Failures
    from pacbayes_control.study.importance import Ranking

COLUMNS = 6  # parameters in a table on the terminal
BINNED = 3  # parameters whose bins are shown there
LONGEST = 24  # characters of a name or a word there


@dataclass(frozen=True)
class FailureOptions:
    """A run, and what to show and write about its failures."""

    run: options.RunFolder
    task: str | None = option(
        None,
        "The task of yours that it is for, to draw the parameters of an older run again.",
        metavar="MODULE:TASK",
    )
    all: bool = option(False, "Show all environments, not only the hardest.")
    top: int = option(10, "The hardest environments to show.", least=1, most=options.MOST)
    csv_file: Path | None = option(
        None, "Write every environment, with its cost and parameters.", flag="--csv", metavar="FILE"
    )
    plots: Path | None = option(None, "Write the plots, a file each.", metavar="FOLDER")
    plot_format: str | None = option(
        None, "Of the plots: svg (the default), pdf or png.", flag="--format"
    )
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def failures(asked: FailureOptions) -> None:
    """Show which environments a run fails in, and which of their parameters go with failure.

    The run is verified first. Nothing that is shown is certified: it describes the environments
    that were recorded.

    Example: pbc failures runs/braking --csv environments.csv --plots figures
    """
    folder, json_file, csv_file = options.run_folder(asked.run), asked.json_file, asked.csv_file
    options.check_json(json_file, folder)
    options.check_writable(csv_file, folder)
    check_plots(asked.plots, asked.plot_format, folder)
    if csv_file and json_file and csv_file.resolve() == json_file.resolve():
        raise ValueError(f"{csv_file} cannot be both the table and the JSON")
    run = options.verified(options.certified_folder(folder), json_file)

    from pacbayes_control.study.failure_records import to_csv, to_record
    from pacbayes_control.study.failures import described_environments, failures_of

    own = load_task(asked.task) if asked.task else None
    described, why_no_parameters = described_environments(run, own)
    with working("looking at the failures"):
        found = failures_of(run, described)
    shown = found.hardest.tolist() if asked.all else found.worst(asked.top)
    _show(found, shown, why_no_parameters)
    if csv_file:
        write_output(csv_file, to_csv(found))
        say(f"Table: {csv_file}")
    if asked.plots:
        from pacbayes_control.report.failure_plots import failure_plots
        from pacbayes_control.report.plots import PlotFormat, write_all

        kind = cast(PlotFormat, asked.plot_format or "svg")
        for file in write_all(failure_plots(found), asked.plots, kind):
            say(f"Plot: {file}")
    options.write_json(json_file, to_record(found))


def _show(found: Failures, shown: list[int], why_no_parameters: str) -> None:
    """Some environments, the ranking and the first parameters, and what they mean."""
    from pacbayes_control.study.failures import MEANING

    _show_environments(found, shown)
    if why_no_parameters:
        say(why_no_parameters)
    if found.too_little:
        say(found.too_little)
    if found.ranking is not None:
        _show_ranking(found.ranking)
    _show_bins(found)
    for note in found.notes:
        say(note)
    say(MEANING)


def _show_environments(found: Failures, numbers: list[int]) -> None:
    """A table of environments, with as many parameters as have room."""
    columns = found.columns[:COLUMNS]
    names = ["name"] if found.names else []
    rows = [
        [
            f"{i}",
            *([_short(found.names[i])] if found.names else []),
            f"{found.costs[i]:.4f}",
            *(_shown(found.described[name][i]) for name in columns),
        ]
        for i in numbers
    ]
    failed = int(found.costs.sum())
    if found.binary:
        title = f"Failed in {failed:,} of {len(found.costs):,} environments"
    else:
        title = f"Mean cost {found.costs.mean():.4f} in {len(found.costs):,} environments"
    if not numbers:
        say(f"{title}.")
        return
    which = f"the {len(numbers):,} hardest"
    if len(numbers) == len(found.costs):
        which = "all"
    elif found.binary and len(numbers) == failed:
        which = "all of these"
    headings = ["environment", *names, "cost", *map(_short, columns)]
    print_table(f"{title}; {which}", headings, rows, left=names)
    if len(found.columns) > len(columns):
        left_out = len(found.columns) - len(columns)
        say(f"Parameters that are not shown here: {left_out}. --csv FILE has them all.")


def _show_ranking(ranking: Ranking) -> None:
    from pacbayes_control.study.failures import SHARED

    rows = [
        [
            _short(row.name),
            f"{row.share:.3f}",
            f"{row.spread:.3f}",
            "explains" if row.explains else "not told from noise",
        ]
        for row in ranking.parameters
    ]
    headings = ["parameter", "fall of R²", "spread", "verdict"]
    title = "Which parameter goes with the cost"
    print_table(title, headings, rows, left=("parameter", "verdict"))
    say(ranking.words)
    say(SHARED)


def _show_bins(found: Failures) -> None:
    """The cost against the first parameters."""
    if not found.bins:
        return
    rows = [
        [_short(name), _short(b.label), f"{b.environments:,}", f"{b.mean:.4f}", " to ".join(ends)]
        for name, bins in list(found.bins.items())[:BINNED]
        for b in bins
        for ends in [interval_ends(b.low, b.high)]
    ]
    headings = ["parameter", "values", "environments", "mean cost", "interval"]
    print_table("Cost against parameters", headings, rows, left=("parameter", "values"))
    say(found.interval_words)


def _short(name: str) -> str:
    return printable(" ".join(name.split()), LONGEST)


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _short(str(value))
