"""`pbc shift` and `pbc monitor`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.run import check_free
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.certify.tables import columns
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.report.console import say
from pacbayes_control.report.terminal import show_certificate, show_curve, show_report
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import recorded_words

if TYPE_CHECKING:
    from pacbayes_control.deploy.monitor import Monitor

Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column to read, where a file has several.")
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a picture: .svg or .png.")]


@dataclass(frozen=True)
class ShiftOptions:
    """A run, and a ball of distributions, given or estimated."""

    run: options.RunFolder
    ball: options.BallOption = None
    shifted: Path | None = option(
        None, "Or estimate B: a feature of environments out there.", metavar="FILE"
    )
    training: Path | None = option(
        None, "The same feature of environments like the training's.", metavar="FILE"
    )
    cells: str | None = option(
        None, "All values that it can take, declared before the samples.", metavar="A,B,…"
    )
    edges: str | None = option(None, "Or where to cut a number into cells.", metavar="X,Y,…")
    shift_delta: float | None = option(
        None, "Probability that the estimate of B may be too small; default 0.005."
    )
    divergence: str | None = option(
        None,
        "kl (the default), reverse-kl, total-variation, chi-squared, hellinger or renyi-ORDER.",
    )
    limit: float = option(
        0.5, "A cost, or for a quantile a share above it, at which the promise is worth nothing."
    )
    column: Column = None
    plot: Plot = None
    out_folder: Path | None = option(
        None, "Folder for the run as certified in the ball.", flag="--out"
    )
    force: options.Force = False
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def shift(asked: ShiftOptions) -> None:
    """How much a promise is worth when the world shifts.

    Shows the guarantee as a function of the shift B. With --ball, or with two samples to estimate
    one from, it is certified for every distribution in that ball. The run is verified first: exit
    code 1 if it does not hold.

    Example: pbc shift runs/braking --ball kl:0.08 --out runs/braking-robust
    """
    ball = _ball(asked)
    run, out, plot = options.certified_folder(asked.run), asked.out_folder, asked.plot
    source = options.verified(run, asked.json_file)
    divergence = ball.divergence if ball else asked.divergence or "kl"
    result = curve(source.certificate, divergence, limit=asked.limit)
    reach = result.tolerable if math.isfinite(result.tolerable) else None
    record = {**asdict(result), "bound": result.bounds[0], "tolerable": reach}
    robust = under_shift(source, ball) if ball else None
    show_curve(result)
    if robust:
        show_certificate(robust, recorded_words(robust.costs))
        record["certificate"] = robust.certificate.to_dict()
        if out:
            picture = run / "picture.svg"
            attached = {"picture.svg": picture.read_bytes()} if picture.exists() else {}
            robust.save(out, asked.force, attached)
            say(f"\nThe run is in {out}.")
    if plot:
        from pacbayes_control.report.plots import certified_point, draw_curve

        draw_curve(result, plot, certified_point(robust.certificate) if robust else None)
        say(f"Picture: {plot}")
    options.write_json(asked.json_file, record)


def _ball(asked: ShiftOptions) -> Ball | None:
    """The given ball, or one estimated from two files; an error for options that do not fit."""
    run, out = options.certified_folder(asked.run), asked.out_folder
    sampled = asked.shifted is not None or asked.training is not None
    if asked.ball is not None and sampled:
        raise ValueError("give a ball, or samples to estimate one from, not both")
    if not sampled:
        for_samples = "is for samples: give --shifted and --training too"
        options.refuse_set(
            asked, dict.fromkeys(("cells", "edges", "shift_delta", "column"), for_samples)
        )
    if asked.ball is not None:
        options.refuse_set(asked, {"divergence": "has no use: the ball has one"})
    if out and asked.ball is None and not sampled:
        raise ValueError("--out keeps a run that is certified in a ball: give --ball too")
    inputs = [run, *(file for file in (asked.shifted, asked.training) if file)]
    options.check_outputs(asked.json_file, asked.plot, *inputs)
    if out:
        check_free(out, asked.force)
        if run.resolve() in (out.resolve(), *out.resolve().parents):
            raise ValueError(f"{out} is the run itself, or in it: keep the new one elsewhere")
    if sampled:
        return _estimated(asked)
    return Ball.parse(asked.ball) if asked.ball is not None else None


def _estimated(asked: ShiftOptions) -> Ball:
    """A ball estimated from two files with values of a feature."""
    cells, edges, column = asked.cells, asked.edges, asked.column
    if asked.shifted is None or asked.training is None:
        raise ValueError("an estimate needs both samples: --shifted and --training")
    if (cells is None) == (edges is None):
        raise ValueError("say what the feature can be: either --cells A,B,… or --edges X,Y,…")
    if asked.shifted.resolve() == asked.training.resolve():
        raise ValueError(
            f"{asked.shifted} cannot be both samples: they are of different environments"
        )
    cuts = columns.numbers(edges.split(","), "--edges") if edges is not None else None
    names = [name.strip() for name in cells.split(",")] if cells is not None else None
    files = (asked.shifted, asked.training)
    there, here = (columns.read_feature(file, column, edges is not None) for file in files)
    for first in (there[0], here[0]):
        if names and str(first) not in names and column is None:
            raise ValueError(
                f"{first!r} is not one of the cells; if it is a header, say --column {first}"
            )
    delta = 0.005 if asked.shift_delta is None else asked.shift_delta
    return ball_of_samples(there, here, delta, asked.divergence or "kl", cells=names, edges=cuts)


@dataclass(frozen=True)
class MonitorOptions:
    """A promise, and outcomes to compare with it."""

    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of a run; or give --promise.")
    ] = None
    outcomes: Annotated[
        Path | None,
        typer.Argument(metavar="[OUTCOMES]", help="CSV file of costs, in order: 0/1, or between."),
    ] = None
    outcomes_file: Path | None = option(
        None, "The same, as an option.", flag="--outcomes", metavar="FILE"
    )
    outcome: list[float] | None = option(None, "A single cost (repeatable).")
    failures: int | None = option(
        None,
        "Failures, where only their number is known; for a quantile, trials above it.",
        least=0,
        most=options.MOST,
    )
    trials: int | None = option(None, "Among so many trials.", least=1, most=options.MOST)
    promise: float | None = option(
        None, "Without a run: the cost that was promised at most.", metavar="COST"
    )
    delta: float | None = option(
        None, "With --promise: its probability of error; 0.01 unless given."
    )
    alpha: float | None = option(
        None, "Rate of false alarms, fixed from the start; 0.05 unless given."
    )
    state: Path | None = option(
        None, "File that keeps the outcomes so far, to append to.", metavar="FILE"
    )
    again: bool = option(False, "Count all of a file, also if it looks familiar.")
    grown: bool = option(False, "Count what a file has beyond an earlier state of it.")
    column: Column = None
    plot: Plot = None
    json_file: options.JsonFile = None
    bound: float | None = option(None, "The promise, as it was called before.", hidden=True)

    def __post_init__(self) -> None:
        if self.bound is not None:
            raise ValueError(f"--bound is --promise now: write --promise {self.bound:g}")
        if self.again and self.grown:
            raise ValueError("--again counts all of a file, --grown a part: give one of them")
        if (self.failures is None) != (self.trials is None):
            raise ValueError("--failures and --trials belong together")
        if self.promise is None and self.delta is not None:
            raise ValueError("--delta is for --promise: a run knows its own")
        if self.promise is None and self.run is None:
            raise ValueError("give the folder of a run, or --promise if there is none")
        if self.promise is not None and self.outcomes is not None:
            raise ValueError("give a run or --promise, not both")
        if self.promise is not None and self.run is not None:
            raise ValueError(
                f"with --promise there is no run: if {self.run} holds outcomes, give it as "
                f"--outcomes {self.run}"
            )
        if self.outcomes is not None and self.outcomes_file is not None:
            raise ValueError("give the outcomes once, after the run or as --outcomes")
        if self.run and self.outcomes and self.run.is_file() and self.outcomes.is_dir():
            raise ValueError(f"the run comes first: pbc monitor {self.outcomes} {self.run}")
        if self.file is None and (self.again or self.grown or self.column is not None):
            raise ValueError("--again, --grown and --column are for a file of outcomes: give one")

    @property
    def folder(self) -> Path | None:
        """The folder of the run, if one is given."""
        return options.certified_folder(self.run) if self.run else None

    @property
    def file(self) -> Path | None:
        """The file of outcomes, if one is given."""
        return self.outcomes or self.outcomes_file


@app.command()
@options.takes_record
def monitor(asked: MonitorOptions) -> None:
    """Is the promise still holding out there?

    Weighs the outcomes of a deployment against a certificate. The verdict and the interval may be
    watched after every outcome; with --state, each day's outcomes are added to those before. The
    run is verified first: exit code 1 if it does not hold. The state tells which run was verified,
    so that this is not repeated for as long as the run stays the same.

    Example: pbc monitor runs/braking trials.csv --state braking.json --plot braking.svg

    Example: pbc monitor --promise 0.114 --failures 2 --trials 20
    """
    from pacbayes_control.deploy.monitor import Monitor, Promise
    from pacbayes_control.deploy.monitor.state import fingerprint, read_state

    run, plot, state = asked.folder, asked.plot, asked.state
    inputs = [path for path in (run, asked.file) if path]
    options.check_outputs(asked.json_file, plot, *inputs, *([state] if state else []))
    options.check_writable(state, *inputs)
    begun = state is not None and state.exists()
    if run is None:
        assert asked.promise is not None
        certificate: Any = Promise(asked.promise, 0.01 if asked.delta is None else asked.delta)
    else:
        known = read_state(state)["verified"] if state and begun else None
        certificate = options.verified(run, asked.json_file, known).certificate
    if state and begun:
        watched = Monitor.load(state, certificate, asked.alpha)
    else:
        watched = Monitor(certificate, 0.05 if asked.alpha is None else asked.alpha)
    before = watched.trials, watched.verified
    watched.verified = fingerprint(run) if run else None
    _observe(watched, asked)
    report = watched.report()
    show_report(report, drawn_afresh=run is not None and certificate.policy is None)
    if plot:
        from pacbayes_control.report.plots import draw_monitor

        draw_monitor(watched, plot)
        say(f"Picture: {plot}")
    options.write_json(asked.json_file, report.to_dict())
    if state and before != (watched.trials, watched.verified):
        watched.save(state)  # last, so that the command can be repeated after an earlier error
    if state:
        say(f"{state}: {watched.trials - before[0]:,} outcomes added, {watched.trials:,} in all.")


def _observe(watched: Monitor, asked: MonitorOptions) -> None:
    """Add the given outcomes; an error if there are none at all."""
    if asked.file:
        costs = columns.read_outcomes(asked.file, asked.column)
        repeated = "again" if asked.again else "grown" if asked.grown else None
        watched.observe_file(asked.file.name, costs, repeated)
    if asked.outcome:
        watched.observe(columns.checked_outcomes(asked.outcome, "--outcome"))
    if asked.failures is not None and asked.trials is not None:
        watched.observe_counts(asked.failures, asked.trials)
    if watched.trials == 0:
        raise ValueError(
            "there are no outcomes: give a file, --outcome, or --failures and --trials"
        )
