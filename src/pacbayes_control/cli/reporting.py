"""`pbc report`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, cast

import typer

from pacbayes_control.certify.files import read_json
from pacbayes_control.certify.run import AlteredRun, read_manifest
from pacbayes_control.certify.trials import COMPARISON, Trials
from pacbayes_control.certify.trials import FILE as TRIALS
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.report.console import say, warn, working
from pacbayes_control.report.summary import hardest_records, not_reproduced
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import load_task, recorded_environments
from pacbayes_control.tasks.watching import choose_renderer


@dataclass(frozen=True)
class ReportOptions:
    """A run or several, and the files to write about them."""

    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
    out_file: Path | None = option(
        None,
        "The page; default RUN.html, beside the run; of several, side-by-side.html.",
        flag="--out",
        metavar="FILE",
    )
    task: str | None = option(
        None, "The task of yours that it is for, to replay it.", metavar="MODULE:TASK"
    )
    plots: Path | None = option(None, "Also keep the plots, a file each.", metavar="FOLDER")
    plot_format: str | None = option(
        None, "Of the plots: svg (the default), pdf or png.", flag="--format"
    )
    force: bool = option(False, "Replace a file that this command did not write.")
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def report(asked: ReportOptions) -> None:
    """Write a page about a run, with its rollouts to watch: one HTML file, for any browser.

    Or about a comparison of two policies; or about several runs side by side, with the confidence
    that is left if one of them is picked. They are verified first. Exit code 1 if one does not
    hold, as for `pbc verify`.

    Example: pbc report runs/braking --out braking.html
    """
    if len(asked.runs) > 1:
        _report_side_by_side(asked)
        return
    folder, json_file, plots = _folder(asked.runs[0]), asked.json_file, asked.plots
    options.check_json(json_file, folder)
    name = str(folder) if folder.name else folder.resolve().name
    page = asked.out_file or options.beside(folder, ".html")
    _check_page(page, folder, asked.force)
    check_plots(plots, asked.plot_format, folder)
    if json_file and json_file.resolve() == page.resolve():
        raise ValueError(f"{json_file} cannot be both the page and the JSON")
    if options.holds(folder, COMPARISON):
        _report_comparison(asked, folder, page, name)
        return
    loaded = options.verified(folder, json_file)

    from pacbayes_control.report.page import write_page
    from pacbayes_control.report.plots import PlotFormat, write_all, write_plots
    from pacbayes_control.report.trial_plots import choice_plots
    from pacbayes_control.report.trials import choice_of

    if asked.task:
        choose_renderer()  # before the task imports its simulator
    own = load_task(asked.task) if asked.task else None
    environments = recorded_environments(loaded.costs, own) if own is not None else None
    trials = None
    if loaded.certificate.candidates is not None:
        trials = Trials.from_record(read_json(folder / TRIALS))
    with working("rolling out what the page shows"):
        written = write_page(
            loaded,
            page,
            task=own,
            environments=environments,
            name=name,
            pictures=_pictures(folder),
            trials=trials,
        )
    replays = f", {written.replays:,} rollouts to watch" if written.replays else ""
    say(f"{page}: {written.size / 1e6:.1f} MB{replays}. Open it in a browser.")
    if warning := not_reproduced(written.again):
        say(f"NOT REPRODUCED: {warning}", style="bold red")
    if plots:
        kind = cast(PlotFormat, asked.plot_format or "svg")
        files = write_plots(loaded, plots, kind)
        if trials is not None:
            files += write_all(choice_plots(choice_of(loaded, trials)), plots, kind)
        for file in files:
            say(f"Plot: {file}")
    options.write_json(
        json_file,
        {
            "page": str(page),
            "bytes": written.size,
            "replays": written.replays,
            "environments": loaded.certificate.environments,
            "policies": loaded.certificate.policies,
            "hardest": hardest_records(loaded),
            "again": asdict(written.again),
        },
    )


def _folder(path: Path) -> Path:
    """The folder of a run or a comparison, from its path or that of its main file."""
    if path.name == COMPARISON and path.is_file():
        return path.parent
    return options.run_folder(path)


def _report_comparison(asked: ReportOptions, folder: Path, page: Path, name: str) -> None:
    """Write the page and the plots of a comparison, after it was verified."""
    from pacbayes_control.report.comparison import plots_of, write_comparison_page
    from pacbayes_control.report.plots import PlotFormat, write_all
    from pacbayes_control.trials.comparing import load_comparison
    from pacbayes_control.verify import InvalidCertificate

    if asked.task:
        raise ValueError("--task is for the rollouts of a run, and this is a comparison of trials")
    try:
        with working("verifying"):
            comparison, trials = load_comparison(folder)
    except (AlteredRun, InvalidCertificate) as error:
        raise options.not_verified(asked.json_file, error) from None
    with working("drawing"):
        written = write_comparison_page(comparison, trials, page, name=name)
    say(f"{page}: {written.size / 1e3:.0f} kB. Open it in a browser.")
    if asked.plots:
        kind = cast(PlotFormat, asked.plot_format or "svg")
        for file in write_all(plots_of(comparison, trials), asked.plots, kind):
            say(f"Plot: {file}")
    record = {"page": str(page), "bytes": written.size, "comparison": comparison.to_dict()}
    options.write_json(asked.json_file, record)


def _report_side_by_side(asked: ReportOptions) -> None:
    """Write the page and the plot of several runs, after all of them were verified."""
    from pacbayes_control.report.plots import PlotFormat, write_all
    from pacbayes_control.report.side_by_side import (
        NamedRun,
        check_number,
        distinct_names,
        plots_of_runs,
        record,
        write_side_by_side,
    )

    if asked.task:
        raise ValueError("--task is for the rollouts of one run, and several are given")
    check_number(len(asked.runs))
    folders = [options.certified_folder(path) for path in asked.runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("a run is named twice: name each once")
    page = asked.out_file or options.beside(folders[0], ".html").with_name("side-by-side.html")
    options.check_json(asked.json_file, *folders)
    for folder in folders:
        _check_page(page, folder, asked.force)
        check_plots(asked.plots, asked.plot_format, folder)
    if asked.json_file and asked.json_file.resolve() == page.resolve():
        raise ValueError(f"{page} cannot be both the page and the JSON")
    names = distinct_names(folders)
    loaded = [options.verified(path, asked.json_file, one_of_several=True) for path in folders]
    runs = [NamedRun(name, run) for name, run in zip(names, loaded, strict=True)]
    with working("drawing"):
        written = write_side_by_side(runs, page)
    told = record(runs)
    say(f"{page}: {written.size / 1e3:.0f} kB. Open it in a browser.")
    say(told["together"], style="bold")
    warn("to pick one of them by its bound costs confidence: it holds at the joint one only.")
    for words in told["findings"]:
        warn(words)
    if asked.plots:
        kind = cast(PlotFormat, asked.plot_format or "svg")
        for file in write_all(plots_of_runs(runs), asked.plots, kind):
            say(f"Plot: {file}")
    options.write_json(asked.json_file, {"page": str(page), "bytes": written.size, **told})


def _pictures(folder: Path) -> dict[str, bytes]:
    """The pictures among the files that the run's manifest lists."""
    from pacbayes_control.report.page import LARGEST_PICTURE, MOST_PICTURES

    files = [folder / name for name in read_manifest(folder)["files"] if name.endswith(".png")]
    shown = files[:MOST_PICTURES]
    return {f.name: f.read_bytes() for f in shown if f.stat().st_size <= LARGEST_PICTURE}


def _check_page(page: Path, folder: Path, force: bool) -> None:
    """Raise ValueError if the page cannot be written, or would replace another kind of file."""
    if folder.resolve() in page.resolve().parents:
        raise ValueError(f"{page} lies in {folder}, whose files are sealed: write elsewhere")
    if page.is_dir():
        raise ValueError(f"{page} is a folder, not a file to write a page to")
    options.check_writable(page)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{page}: a page is an .html file")
    if page.exists() and not force:
        from pacbayes_control.report.rendering import is_page

        if not is_page(page):
            raise ValueError(
                f"{page} was not written by pbc report: choose another name, or --force"
            )


def check_plots(plots: Path | None, plot_format: str | None, folder: Path) -> None:
    """Raise ValueError if plots cannot be written, or if their format is not known."""
    if plot_format not in (None, "svg", "pdf", "png"):
        raise ValueError(f"plots are written as svg, pdf or png, not as {plot_format!r}")
    if plots is None and plot_format is not None:
        raise ValueError("--format is for plots: give --plots too")
    if plots is not None:
        if folder.resolve() in (plots.resolve(), *plots.resolve().parents):
            raise ValueError(f"{plots} is the run, or lies in it: keep the plots elsewhere")
        if plots.exists() and not plots.is_dir():
            raise ValueError(f"{plots} is a file: plots go to a folder")
