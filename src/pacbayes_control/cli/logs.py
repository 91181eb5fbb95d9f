"""Evaluation logs of commands: which files, how they are read, and a table that grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes_control.certify.text import quoted, round_up
from pacbayes_control.certify.trials import Trials
from pacbayes_control.cli import options
from pacbayes_control.cli.interrupting import interruption
from pacbayes_control.report.console import say
from pacbayes_control.trials.logs.options import LogOptions

Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LOGS",
        help="Evaluation logs: tables (.csv, .tsv, .xlsx, .parquet, .jsonl), eval_info.json, "
        "vla-eval results, evaluations.npz; files, folders or patterns.",
        show_default=False,
    ),
]


def log_options(asked: Any) -> LogOptions:
    """The options that say how to read logs."""
    return LogOptions(**{each.name: getattr(asked, each.name) for each in fields(LogOptions)})


def check_inputs(asked: Any, logs: list[str] | None, follow: Path | None) -> list[Path]:
    """The inputs, after a check that outputs can be written and are not among them."""
    if bool(logs) == (follow is not None):
        either = "logs, or a table to --follow" if hasattr(asked, "follow") else "logs"
        raise ValueError(f"give {either}{', not both' if logs else ''}")
    if follow and asked.tasks == "fixed":
        raise ValueError(
            "--follow cannot know a fixed list of tasks before all of them were tried: leave it "
            "out, and look again after each round of one trial of each task"
        )
    inputs = [follow] if follow else [Path(each) for each in logs or []]
    options.check_json(asked.json_file, *inputs)
    options.check_writable(asked.summary, *inputs)
    if asked.summary and asked.json_file and asked.summary.resolve() == asked.json_file.resolve():
        raise ValueError(f"{asked.summary} cannot be both the summary and the JSON")
    return inputs


def read_logs(asked: Any, logs: list[str] | None, *, pairs: bool = True) -> Trials:
    """The trials in the logs; how they were read is said in a line.

    pairs: whether it matters which trials were in the same environment
    """
    from pacbayes_control.trials.logs.reading import read_trials

    trials = read_trials(logs or [], log_options(asked), pairs=pairs)
    say(f"{trials.understood}.")
    return trials


def read_simulated(asked: Any) -> tuple[Trials, Trials | None]:
    """The trials in simulation: of the same environments, and of further ones if there is a log."""
    same, further = (
        file and read_logs(asked, [str(file)], pairs=False)
        for file in (asked.simulated, asked.more_simulated)
    )
    return same, further


# ---- a table that grows --------------------------------------------------------------------------


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Go on after a first Ctrl-C, which ends the trials and not the command."""
    try:
        yield
    except KeyboardInterrupt:
        interruption.came = False
        say("\nStopped here.")


def _growing(asked: Any, file: Path) -> Iterator[Trials]:
    from pacbayes_control.trials.following import follow

    waiting = "" if file.exists() else ", which does not exist yet"
    say(f"Following {file}{waiting}: Ctrl-C ends the trials, and what is known then is reported.")
    yield from follow(file, log_options(asked))


def follow_comparison(asked: Any, file: Path, settings: dict[str, Any]) -> Trials:
    """The trials in a growing table, up to the decision or an interruption."""
    from pacbayes_control.trials.comparing import compare as compare_policies

    trials, told = None, -1
    with until_interrupted():
        for trials in _growing(asked, file):
            absent = [name for name in (asked.a, asked.b) if name not in trials.policies]
            if absent:
                if told < 0:
                    there = ", ".join(map(quoted, trials.policies)) or "no policy"
                    say(f"no trials of {' and '.join(map(quoted, absent))} yet, but of {there}")
                continue
            found = compare_policies(trials, asked.a, asked.b, **settings, untried=True)
            count = len(found.pairs.differences)
            if count != told:
                say(_progress(found))
                told = count
            if found.verdict != "undecided":
                break
    if trials is None:
        raise ValueError(f"there were no trials in {file}")
    say(f"{trials.understood}.")
    return trials


def _progress(found: Any) -> str:
    """How far a comparison is from its decision, in a line."""
    low, high = found.difference
    more = f", about {found.more:,} more" if found.more is not None else ""
    more = f": {found.verdict}" if found.verdict != "undecided" else more
    e_value = f"e-value {found.to_dict()['e_value']:.3g} of {found.needed:g}"
    count = len(found.pairs.differences)
    return f"after {count:,} pairs: {e_value}, difference {low:+.3f} to {high:+.3f}{more}"


def follow_choice(asked: Any, file: Path) -> Trials:
    """The trials in a growing table, until a bound is small enough or an interruption."""
    from pacbayes_control.trials.choosing import choose as choose_policy

    trials, told = None, -1
    with until_interrupted():
        for trials in _growing(asked, file):
            if len(trials) == told or not any(trials.counts >= 2):
                continue
            told = len(trials)
            found = choose_policy(
                trials, asked.delta, stopping="anytime", candidates=asked.candidates
            )
            best = found.run.certificate.bound
            name, aim = quoted(found.chosen), _still_needed(asked, found)
            say(f"after {told:,} trials: {name} is certified at most {round_up(best)}{aim}")
            if asked.until is not None and best <= asked.until:
                break
    if trials is None or not len(trials):
        raise ValueError(f"there were no trials in {file}")
    say(f"{trials.understood}.")
    return trials


def _still_needed(asked: Any, found: Any) -> str:
    """About how many more trials of the best policy reach the promise, if they go on like these."""
    from pacbayes_control.bounds.anytime import outcomes_needed

    if asked.until is None:
        return ""
    costs, level = found.run.costs.values[:, 0], asked.delta / asked.candidates
    needed = outcomes_needed(1.0 - costs, 1 - asked.until, level)
    more = 0 if needed is None else needed - len(costs)
    about = f", about {more:,} more of its trials" if more > 0 else ""
    return f", to be at most {asked.until:g}{about}"
