"""`pbc shift` and `pbc monitor`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import (
    MOST,
    BallOption,
    Force,
    JsonFile,
    check_apart,
    check_json,
    check_picture,
    check_writable,
    refuse_given,
    run_folder,
    verified,
    write_json,
)

if TYPE_CHECKING:
    from pacbayes_control.certify.balls import Ball

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column to read, where a file has several.")
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a picture: .svg or .png.")]


@app.command()
def shift(
    context: typer.Context,
    run: RunFolder,
    ball: BallOption = None,
    shifted: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Or estimate B: a feature of environments out there."),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same feature of environments like the training's."),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…", help="All values that it can take, declared before the samples."
        ),
    ] = None,
    edges: Annotated[
        str | None, typer.Option(metavar="X,Y,…", help="Or where to cut a number into cells.")
    ] = None,
    shift_delta: Annotated[
        float, typer.Option(help="Probability that the estimate of B may be too small.")
    ] = 0.005,
    divergence: Annotated[
        str,
        typer.Option(
            help="kl, reverse-kl, total-variation, chi-squared, hellinger or renyi-ORDER."
        ),
    ] = "kl",
    limit: Annotated[
        float, typer.Option(help="A cost at which the promise is worth nothing.")
    ] = 0.5,
    column: Column = None,
    plot: Plot = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run as certified in the ball.")
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """How much a promise is worth when the world shifts.

    Shows the guarantee as a function of the shift B. With --ball, or with two samples to estimate
    one from, it is certified for every distribution in that ball. The run is verified first: exit
    code 1 if it does not hold.

    Example: pbc shift runs/vehicle --ball kl:0.08 --out runs/vehicle-robust
    """
    from pacbayes_control.certify.balls import Ball
    from pacbayes_control.certify.run import check_free
    from pacbayes_control.certify.shift import curve, under_shift
    from pacbayes_control.report.terminal import say, show_certificate, show_curve

    sampled = shifted is not None or training is not None
    if ball is not None and sampled:
        raise ValueError("give a ball, or samples to estimate one from, not both")
    unused = {}
    if not sampled:
        for_samples = "is for samples: give --shifted and --training too"
        unused |= dict.fromkeys(("cells", "edges", "shift_delta", "column"), for_samples)
    if ball is not None:
        unused["divergence"] = "has no use: the ball has one"
    refuse_given(context, unused)
    if out_folder and ball is None and not sampled:
        raise ValueError("--out keeps a run that is certified in a ball: give --ball too")
    run = run_folder(run)
    inputs = [run, *(file for file in (shifted, training) if file)]
    check_json(json_file, *inputs)
    check_picture(plot, *inputs)
    if out_folder:
        check_free(out_folder, force)
        if run.resolve() in (out_folder.resolve(), *out_folder.resolve().parents):
            raise ValueError(
                f"{out_folder} is the run itself, or in it: keep the new one elsewhere"
            )
    where = Ball.parse(ball) if ball is not None else None
    if sampled:
        where = _estimated(shifted, training, shift_delta, divergence, cells, edges, column)
    source = verified(run, json_file)
    result = curve(source.certificate, where.divergence if where else divergence, limit=limit)
    reach = result.tolerable if math.isfinite(result.tolerable) else None
    record = {**asdict(result), "bound": result.bounds[0], "tolerable": reach}
    robust = under_shift(source, where) if where else None
    show_curve(result)
    if robust:
        show_certificate(robust)
        record["certificate"] = robust.certificate.to_dict()
        if out_folder:
            picture = run / "picture.svg"
            attached = {"picture.svg": picture.read_bytes()} if picture.exists() else {}
            robust.save(out_folder, force, attached)
            say(f"\nThe run is in {out_folder}.")
    if plot:
        from pacbayes_control.report.shift_pictures import draw_curve

        certified = (where.radius, robust.certificate.bound) if where and robust else None
        draw_curve(result, plot, certified)
        say(f"Picture: {plot}")
    write_json(json_file, record)


def _estimated(
    shifted: Path | None,
    training: Path | None,
    delta: float,
    divergence: str,
    cells: str | None,
    edges: str | None,
    column: str | None,
) -> Ball:
    """A ball from two files of a feature."""
    from pacbayes_control.certify.balls import ball_of_samples
    from pacbayes_control.certify.tables.columns import numbers, read_feature

    if shifted is None or training is None:
        raise ValueError("an estimate needs both samples: --shifted and --training")
    if (cells is None) == (edges is None):
        raise ValueError("say what the feature can be: either --cells A,B,… or --edges X,Y,…")
    if shifted.resolve() == training.resolve():
        raise ValueError(f"{shifted} cannot be both samples: they are of different environments")
    numeric = edges is not None
    there, here = (read_feature(file, column, numeric) for file in (shifted, training))
    names = [name.strip() for name in cells.split(",")] if cells is not None else None
    for sample in (there, here) if names else ():
        if str(sample[0]) not in (names or ()) and column is None:
            raise ValueError(
                f"{sample[0]!r} is none of the cells; if it is a header, say --column {sample[0]}"
            )
    cuts = numbers(edges.split(","), "--edges") if edges is not None else None
    return ball_of_samples(there, here, delta, divergence, names, cuts)


@app.command()
def monitor(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of a run; or give --bound.")
    ] = None,
    outcomes: Annotated[
        Path | None,
        typer.Argument(metavar="[OUTCOMES]", help="CSV file of costs, in order: 0/1, or between."),
    ] = None,
    outcome: Annotated[list[float] | None, typer.Option(help="A single cost (repeatable).")] = None,
    failures: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, help="Failures, where only their number is known."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Among so many trials.")
    ] = None,
    bound: Annotated[
        float | None, typer.Option(help="Without a run: the cost that was promised at most.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="With --bound: its probability of error; 0.01 unless given."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Rate of false alarms, fixed from the start; 0.05 unless given."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File that keeps the outcomes so far, to append to."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Count all of a file, also if it looks familiar.")
    ] = False,
    grown: Annotated[
        bool, typer.Option("--grown", help="Count what a file has beyond an earlier state of it.")
    ] = False,
    column: Column = None,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Is the promise still holding out there?

    Weighs the outcomes of a deployment against a certificate. The verdict and the interval may be
    watched after every outcome; with --state, each day's outcomes are added to those before. The
    run is verified first: exit code 1 if it does not hold. The state tells which run was verified,
    so that this is not repeated for as long as the run stays the same.

    Example: pbc monitor runs/vehicle flights.csv --state vehicle.json --plot vehicle.svg
    """
    from pacbayes_control.certify.tables.columns import checked_outcomes, read_outcomes
    from pacbayes_control.deploy.monitor import Monitor, Promise
    from pacbayes_control.deploy.monitor.state import fingerprint, read_state
    from pacbayes_control.report.terminal import say, show_report

    if again and grown:
        raise ValueError("--again counts all of a file, --grown a part: give one of them")
    if (failures is None) != (trials is None):
        raise ValueError("--failures and --trials belong together")
    if bound is not None:  # then the one file is of outcomes
        if outcomes:
            raise ValueError("give a run or --bound, not both")
        run, outcomes = None, run
    elif delta is not None:
        raise ValueError("--delta is for --bound: a run knows its own")
    elif run is None:
        raise ValueError("give the folder of a run, or --bound if there is none")
    elif outcomes and run.is_file() and outcomes.is_dir():
        raise ValueError(f"the run comes first: pbc monitor {outcomes} {run}")
    if outcomes is None and (again or grown or column is not None):
        raise ValueError("--again, --grown and --column are for a file of outcomes: give one")
    run = run_folder(run) if run else None
    check_apart(plot, json_file)
    inputs = [path for path in (run, outcomes, state) if path]
    check_json(json_file, *inputs)
    check_picture(plot, *inputs)
    check_writable(state, *(path for path in (run, outcomes) if path))
    if bound is not None:
        certificate = Promise(bound, 0.01 if delta is None else delta)
    else:
        assert run is not None
        known = read_state(state)["verified"] if state and state.exists() else None
        certificate = verified(run, json_file, known).certificate
    if state and state.exists():
        watched = Monitor.load(state, certificate, alpha)
    else:
        watched = Monitor(certificate, 0.05 if alpha is None else alpha)
    before = watched.trials, watched.verified
    watched.verified = fingerprint(run) if run else None
    if outcomes:
        costs = read_outcomes(outcomes, column)
        repeated = "again" if again else "grown" if grown else None
        watched.observe_file(outcomes.name, costs, repeated)
    if outcome:
        watched.observe(checked_outcomes(outcome, "--outcome"))
    if failures is not None and trials is not None:
        watched.observe_counts(failures, trials)
    if watched.trials == 0:
        raise ValueError(
            "there are no outcomes: give a file, --outcome, or --failures and --trials"
        )
    report = watched.report()
    show_report(report, drawn_afresh=getattr(certificate, "policy", 0) is None)
    if plot:
        from pacbayes_control.report.shift_pictures import draw_monitor

        draw_monitor(watched, plot)
        say(f"Picture: {plot}")
    write_json(json_file, report.to_dict())
    if state and before != (watched.trials, watched.verified):
        watched.save(state)  # last: what fails before it can be repeated
    if state:
        say(f"{state}: {watched.trials - before[0]:,} outcomes added, {watched.trials:,} in all.")
