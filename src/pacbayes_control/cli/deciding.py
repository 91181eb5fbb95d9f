"""`pbc choose`, `pbc compare` and `pbc rank`: from evaluation logs to decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import check_free
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.cli.logs import (
    Logs,
    check_inputs,
    follow_choice,
    follow_comparison,
    read_logs,
    read_simulated,
)
from pacbayes_control.report.console import say
from pacbayes_control.tasks.options import option
from pacbayes_control.trials.logs.options import LogOptions

UNDECIDED, WORSE = 3, 1  # exit codes of pbc compare, beside 0 for better
FOLLOW = "A table that grows during the trials: look again whenever it does."
Alpha = Annotated[
    float, typer.Option(help="Probability of a wrong statement, at any time: 1 - confidence.")
]
InOrder = Annotated[
    bool,
    typer.Option(
        "--in-order",
        help="Trials were carried out in random order, as recorded: what was decided on the way "
        "then stays decided.",
    ),
]
Summary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a Markdown summary, as for a pull request."),
]


@dataclass(frozen=True, kw_only=True)
class ChooseOptions(LogOptions):
    """Trials, and how to certify the best policy."""

    logs: Logs = None
    delta: float = option(0.05, "Probability that the certificate may be wrong: 1 - confidence.")
    stopping: str | None = option(
        None,
        "Whether the numbers of trials were decided before any was seen (fixed), or the trials "
        "might be stopped at any time (anytime).",
        metavar="fixed|anytime",
    )
    candidates: int | None = option(
        None,
        "How many policies were ever tried in these environments, or might be, decided beforehand; "
        "default: those in the logs.",
        least=1,
        most=options.MOST,
    )
    spent: float = option(
        0.0, "δ of other looks at these trials, earlier or planned ones, which is added."
    )
    simulated: options.SimulatedOption = None
    more_simulated: options.MoreSimulatedOption = None
    follow: Path | None = option(None, FOLLOW, metavar="FILE")
    until: float | None = option(
        None, "With --follow: end when a bound is at most this.", metavar="BOUND"
    )
    summary: Summary = None
    out_folder: Path | None = option(None, "Folder to keep the run in.", flag="--out")
    force: options.Force = False
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def choose(asked: ChooseOptions) -> None:
    """Choose the policy to ship by its trials, and certify it with the choice paid for.

    A table of every policy, with the interval that people usually print and the bound that can be
    promised for the best of them, and the certificate of the best, as a run for pbc verify, report,
    shift and monitor. The plainest log has the columns policy, environment and success.

    Example: pbc choose examples/trials.csv --out runs/choice
    """
    from pacbayes_control.report.decisions import show_choice
    from pacbayes_control.trials.choosing import choose as choose_policy

    check_inputs(asked, asked.logs, asked.follow)
    options.check_simulated(asked.simulated, asked.more_simulated, asked.json_file, asked.summary)
    if asked.follow and asked.simulated:
        raise ValueError("--follow takes no simulation: join it by --stopping anytime afterwards")
    if asked.stopping not in (None, "fixed", "anytime"):
        raise ValueError(f"--stopping is fixed or anytime, not {asked.stopping!r}")
    if asked.follow and asked.stopping == "fixed":
        raise ValueError("--follow may end at any trial: leave out --stopping fixed")
    if asked.follow and asked.candidates is None:
        raise ValueError(
            "--follow needs --candidates: how many policies may be tried, decided beforehand"
        )
    if asked.until is not None and not (asked.follow and 0 < asked.until < 1):
        raise ValueError("--until is a bound from 0 to 1 at which --follow ends")
    if asked.out_folder:
        check_free(asked.out_folder, asked.force)
    if asked.follow:
        trials, stopping = follow_choice(asked, asked.follow), "anytime"
    else:
        trials, stopping = read_logs(asked, asked.logs, pairs=False), asked.stopping
    known: dict[str, Any] = {"candidates": asked.candidates, "spent": asked.spent}
    if asked.simulated:
        known["simulated"] = read_simulated(asked)
    found = choose_policy(trials, asked.delta, stopping=stopping, **known)
    show_choice(found)
    if asked.out_folder:
        found.save(asked.out_folder, overwrite=asked.force)
        say(f"\nThe run is in {asked.out_folder}.")
    write_summary(asked.summary, "choice", found)
    record = {"understood": trials.understood, **found.to_dict()}
    options.write_json(asked.json_file, record)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(LogOptions):
    """Two policies, their trials, and how sure to be."""

    a: Annotated[str, typer.Argument(metavar="A", help="A policy, as the logs name it.")]
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")]
    logs: Logs = None
    alpha: Alpha = 0.05
    margin: float = option(0.0, "A difference up to which neither is better.")
    in_order: InOrder = False
    follow: Path | None = option(None, FOLLOW, metavar="FILE")
    summary: Summary = None
    out_folder: Path | None = option(None, "Folder to keep the comparison in.", flag="--out")
    force: bool = option(False, "Replace the comparison that is in the folder.")
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def compare(asked: CompareOptions) -> None:
    """Is policy A better than B? The answer may be looked at after every trial.

    Paired where both were tried in the same environments. Exit code 0 if A is better, 1 if it is
    worse, 3 if that is not decided yet, 2 for an error.

    Example: pbc compare ckpt-40k ckpt-30k examples/trials.csv
    """
    from pacbayes_control.report.decisions import show_comparison
    from pacbayes_control.trials.comparing import check_place, save_comparison
    from pacbayes_control.trials.comparing import compare as compare_policies

    check_inputs(asked, asked.logs, asked.follow)
    if asked.out_folder:
        check_place(asked.out_folder, asked.force)
    settings: dict[str, Any] = {"alpha": asked.alpha, "margin": asked.margin}
    settings["in_order"] = asked.in_order
    if asked.follow:
        trials = follow_comparison(asked, asked.follow, settings)
    else:
        trials = read_logs(asked, asked.logs)
    untried = asked.missing == "untried" or asked.follow is not None
    found = compare_policies(trials, asked.a, asked.b, **settings, untried=untried)
    show_comparison(found)
    if asked.out_folder:
        save_comparison(found, trials, asked.out_folder, overwrite=asked.force)
        say(f"\nThe comparison is in {asked.out_folder}.")
    write_summary(asked.summary, "comparison", found)
    record = {"understood": trials.understood, **found.to_dict()}
    options.write_json(asked.json_file, record)
    raise typer.Exit({"better": 0, "worse": WORSE}.get(found.verdict, UNDECIDED))


@dataclass(frozen=True, kw_only=True)
class RankOptions(LogOptions):
    """Trials of several policies, and how sure to be."""

    logs: Logs = None
    alpha: Alpha = 0.05
    in_order: InOrder = False
    picture: Path | None = option(None, "Draw the ranking: .svg, .pdf or .png.", metavar="FILE")
    summary: Summary = None
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def rank(asked: RankOptions) -> None:
    """Rank all policies: which are better than which, and which cannot be told apart.

    The probability that anything that it says is wrong is at most alpha, at any time.

    Example: pbc rank examples/trials.csv --picture ranking.svg
    """
    from pacbayes_control.report.decisions import show_ranking
    from pacbayes_control.trials.ranking import rank as rank_policies

    inputs = check_inputs(asked, asked.logs, None)
    options.check_outputs(asked.json_file, asked.picture, *inputs)
    trials = read_logs(asked, asked.logs)
    untried = asked.missing == "untried"
    found = rank_policies(trials, alpha=asked.alpha, in_order=asked.in_order, untried=untried)
    show_ranking(found)
    if asked.picture:
        from pacbayes_control.report.trial_plots import draw_ranking

        draw_ranking(found, asked.picture)
        say(f"Picture: {asked.picture}")
    write_summary(asked.summary, "ranking", found)
    options.write_json(asked.json_file, {"understood": trials.understood, **found.to_dict()})


def write_summary(file: Path | None, kind: str, found: Any) -> None:
    """Write a Markdown summary of a choice, a comparison or a ranking, if a file was given."""
    if file is not None:
        from pacbayes_control.report import markdown

        write_output(file, getattr(markdown, f"{kind}_markdown")(found).encode())
