"""One rollout that was watched: on a terminal, as JSON and as a table."""

from __future__ import annotations

import csv
import io
import traceback
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from pacbayes_control.certify.text import printable, quoted
from pacbayes_control.report.console import key_values, print_table, say, show, warn
from pacbayes_control.rollouts.evaluation import described_by
from pacbayes_control.study.failure_records import plain_value
from pacbayes_control.study.one_rollout import Rollout
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.task import Watched
from pacbayes_control.tasks.watching import POSE

ENDS = 4  # steps that are shown from the beginning, and from the end
MOST_COLUMNS = 7  # of a trajectory that are shown
MOST_NUMBERS = 8  # parameters of a policy that are shown


def show_rollout(one: Rollout, seen: Watched) -> None:
    """Its cost, its policy, its environment and the first and last steps, on the terminal."""
    cost = "no cost: it raised an error" if seen.cost is None else f"{seen.cost:.6g}"
    if one.recorded is not None:
        cost += f" (recorded: {one.recorded:.6g})"
    where = f"{one.number} of the stream {quoted(one.environments.stream)}"
    rows = [
        ("cost", cost),
        ("policy", f"{quoted(one.name)} {_few(one.policy)}"),
        ("environment", f"{where}, seed {one.environments.seed}"),
        *((f"  {printable(name)}", value_words(value)) for name, value in drawn(one).items()),
    ]
    steps = _steps(seen)
    if seen.ended or steps:
        rows.append(("ended", f"{seen.ended}{' ' * bool(seen.ended)}after {steps or 0:,} steps"))
    show(key_values(rows))
    if seen.columns:
        _show_steps(seen.columns)
    if seen.cost is not None and seen.error is not None:
        say(f"A declared failure, which costs 1: {in_a_line(seen.error)}")
    if seen.cost != seen.filmed_cost and seen.filmed_cost is not None:
        warn(
            f"the rollout cost {seen.filmed_cost:.6g} where it was filmed, and {seen.cost:.6g} "
            "where it was not: drawing changes the simulation, and the video shows another rollout"
        )
    if one.recorded is not None and seen.cost not in (None, one.recorded):
        words = f"the cost is {seen.cost!r} now, and {one.recorded!r} is recorded"
        if one.excused:
            say(f"Rounding decides this rollout, {one.devices}: {words}.")
        else:
            say(f"NOT REPRODUCED: {words}", style="bold red")


def drawn(one: Rollout) -> dict[str, Any]:
    """The environment by what was drawn, as plain values."""
    described = described_by(one.task, one.environments)
    return {name: plain_value(column[0]) for name, column in described.items()}


def rollout_record(one: Rollout, seen: Watched) -> dict[str, Any]:
    """All of it as plain values for JSON."""
    columns = {
        name: [plain_value(value) for value in column] for name, column in seen.columns.items()
    }
    record: dict[str, Any] = {
        "task": one.task.name,
        "cost": seen.cost,
        "recorded_cost": one.recorded,
        "environment": drawn(one),
        "number": one.number,
        "stream": one.environments.stream,
        "seed": one.environments.seed,
        "policy": one.name,
        "parameters": [plain_value(value) for value in one.policy],
        "note": one.note or None,
        "steps": _steps(seen),
        "ended": seen.ended or None,
        "rewards": columns["reward"][1:] if "reward" in columns else None,
        "observations": _rows(columns, "observation"),
        "actions": _rows({name: column[1:] for name, column in columns.items()}, "action"),
        "path": _rows(columns, POSE),
        "error": None if seen.error is None else in_a_line(seen.error),
        "traceback": None,
    }
    if seen.error is not None:
        record["traceback"] = "".join(traceback.format_exception(seen.error))
    return record


def trajectory_csv(seen: Watched) -> bytes:
    """The trajectory, one row a step; row 0 is the state that it began in."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *(printable(name) for name in seen.columns)])
    for step, row in enumerate(zip(*seen.columns.values(), strict=True)):
        values = (plain_value(value) for value in row)
        writer.writerow([step, *("" if value is None else value for value in values)])
    return text.getvalue().encode()


def _steps(seen: Watched) -> int | None:
    """How many were taken; None if the task does not tell its steps."""
    return max(map(len, seen.columns.values())) - 1 if seen.columns else None


def _rows(columns: Mapping[str, list[Any]], names: str | tuple[str, ...]) -> list[list[Any]] | None:
    """The values of some columns, a list for each step; None if there are no such columns."""
    chosen = [column for name, column in columns.items() if name.startswith(names)]
    return [list(row) for row in zip(*chosen, strict=True)] if chosen else None


def _show_steps(columns: Mapping[str, NDArray]) -> None:
    """The first and last steps in a table; of many columns the first, the action and the reward."""
    names = list(columns)
    last = [name for name in names if name == "reward" or name.startswith("action")][-3:]
    names = [name for name in names if name not in last][: MOST_COLUMNS - len(last)] + last
    steps = len(columns[names[0]])
    shown = list(range(steps))
    if steps > 2 * ENDS + 1:
        shown = [*range(ENDS), -1, *range(steps - ENDS, steps)]
    rows = [
        ["…"] * (len(names) + 1)
        if step < 0
        else [str(step), *(value_words(plain_value(columns[name][step])) for name in names)]
        for step in shown
    ]
    left_out = len(columns) - len(names)
    title = "Trajectory" + (f", without {left_out} more columns" if left_out else "")
    print_table(title, ["step", *map(printable, names)], rows)


def _few(policy: NDArray) -> str:
    words = ", ".join(f"{value:.4g}" for value in policy[:MOST_NUMBERS].tolist())
    return f"[{words}{', …' if len(policy) > MOST_NUMBERS else ''}]"


def value_words(value: Any) -> str:
    """A number or a word as it is shown; empty for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value), 60)
