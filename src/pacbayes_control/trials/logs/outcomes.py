"""Outcomes as costs: which word is a success, and between which limits a score lies.

A direction that is guessed wrongly would choose the worst policy, and limits that are derived from
the data would make every bound invalid: what a log does not say is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pacbayes_control.certify.tables.sheets import MISSING, TRUTHS, WORDS
from pacbayes_control.certify.text import as_number, quoted
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.rows import Scoring

# Words that are clear in themselves, with their costs.
CLEAR = {**WORDS, "succeeded": 0.0, "successful": 0.0, "unsuccessful": 1.0}
YES = {"1", "true", "yes", "y", "wahr", "ja", "✓", "✔", "✅"}
NO = {"0", "n", "✗", "✘", "✕", "❌", *(TRUTHS - YES)}
ASK_SUCCESS = "say --success VALUE, the outcome that is a success"
ASK_SCALE = "say --scale WORST:BEST, the limits of the score, known beforehand"
MOST_SHOWN = 5  # values of a column that an error lists

Costs = list[float | None]


@dataclass(frozen=True)
class Outcomes:
    """The cells with the outcomes, as text, and where they are."""

    file: str
    name: str  # of the column; "" for the cells of a matrix
    kind: str  # success, failure, score, cost, reward, loss; "" if unknown
    cells: Sequence[str]
    lines: Sequence[int]
    place: str = "line"
    number: Callable[[str], float | None] = as_number
    growing: bool = False

    @property
    def title(self) -> str:
        """The column as errors name it."""
        return quoted(self.name) if self.name else "a cell"

    def where(self, at: int) -> str:
        """The file and the position of an outcome, for an error."""
        return f"{self.file}, {self.place} {self.lines[at]}"

    def values(self) -> list[str]:
        """The different outcomes, in the order of their first trials."""
        return list(dict.fromkeys(c.casefold() for c in self.cells if not is_missing(c)))

    def listed(self) -> str:
        """The first of the different outcomes."""
        values = self.values()
        more = len(values) - MOST_SHOWN
        shown = ", ".join(quoted(value) for value in values[:MOST_SHOWN])
        return shown + (f" and {more} more" if more > 0 else "")


def is_missing(cell: str) -> bool:
    """Whether the cell is blank, NaN, or says in another way that there is no value."""
    return cell.casefold() in MISSING


def read_outcomes(outcomes: Outcomes, options: LogOptions) -> tuple[Costs, Scoring]:
    """The cost of each trial, None where the outcome is missing, and how they were read."""
    if options.success is not None and options.scale is not None:
        raise ValueError(
            "--success is for trials that succeed or fail, and --scale for scores: give one of them"
        )
    if options.success is not None:
        return _by_value(outcomes, options.success)
    if options.scale is not None:
        return _by_limits(outcomes, options.scale)
    if outcomes.kind in ("success", "failure"):
        return _by_words(outcomes)
    if outcomes.kind in ("score", "cost"):
        return _between_0_and_1(outcomes)
    if outcomes.kind in ("reward", "loss"):
        raise ValueError(f"{outcomes.file}: {outcomes.title} has no limits of its own: {ASK_SCALE}")
    return _by_clear_words(outcomes)


# ---- success or failure -------------------------------------------------------------------------


def _truth(outcomes: Outcomes, cell: str) -> bool | None:
    """Whether the cell says 1, true or yes; None if it says neither that nor the opposite."""
    text = cell.casefold()
    if text in YES or text in NO:
        return text in YES
    number = outcomes.number(cell)
    return bool(number) if number in (0, 1) else None


def _by_words(outcomes: Outcomes) -> tuple[Costs, Scoring]:
    up, known, costs = outcomes.kind == "success", {}, []
    for at, cell in enumerate(outcomes.cells):
        if cell not in known:
            known[cell] = _word_cost(outcomes, cell, at, up)
        costs.append(known[cell])
    told = next((c for c, cost in known.items() if cost == (0 if up else 1)), "1")
    words = f"{outcomes.title} = {_plain(told)} is a {'success' if up else 'failure'}"
    return costs, Scoring(words, False, (outcomes.kind, "words"))


def _word_cost(outcomes: Outcomes, cell: str, at: int, up: bool) -> float | None:
    if is_missing(cell):
        return None
    if cell.casefold() in CLEAR:
        return CLEAR[cell.casefold()]
    truth = _truth(outcomes, cell)
    if truth is not None:
        return float(truth != up)
    where = f"{outcomes.where(at)}: {outcomes.title} is {quoted(cell)}"
    if outcomes.number(cell.removesuffix("%").strip()) is not None:
        raise ValueError(
            f"{where}, neither success nor failure: write 1 or 0, or, if it is a score, say "
            "--scale WORST:BEST, with its limits known beforehand"
        )
    raise ValueError(f"{where}, neither success nor failure: write 1 or 0, or {ASK_SUCCESS}")


def _by_clear_words(outcomes: Outcomes) -> tuple[Costs, Scoring]:
    values = outcomes.values()
    unclear = [value for value in values if value not in CLEAR]
    if not unclear:
        costs = [CLEAR.get(cell.casefold()) for cell in outcomes.cells]
        told = next((value for value in values if not CLEAR[value]), "pass")
        words = f"{outcomes.title} = {_plain(told)} is a success"
        return costs, Scoring(words, False, ("words",))
    where = f"{outcomes.file}: {outcomes.title}" if outcomes.name else f"{outcomes.file}: its cells"
    if len(unclear) < len(values):
        raise ValueError(
            f"{where} mixes words such as pass and fail with {quoted(unclear[0])}: {ASK_SUCCESS}"
        )
    if not outcomes.name:
        raise ValueError(
            f"{where} may be scores or costs: say --scale 0:1 if 1 is the best, --scale 1:0 if 0 "
            "is the best, or other limits WORST:BEST, known beforehand"
        )
    if any(_truth(outcomes, value) is None and _is_number(outcomes, value) for value in unclear):
        raise ValueError(f"{where} does not say which number is best: {ASK_SCALE}")
    raise ValueError(f"{where} has the values {outcomes.listed()}: {ASK_SUCCESS}")


def _by_value(outcomes: Outcomes, success: str) -> tuple[Costs, Scoring]:
    wanted, number = success.strip().casefold(), outcomes.number(success)
    if is_missing(wanted):
        raise ValueError(
            f"--success {quoted(success)} is no outcome: name the one that is a success"
        )
    truth = _truth(outcomes, wanted)

    def same(cell: str) -> bool:
        if cell.casefold() == wanted or (number is not None and outcomes.number(cell) == number):
            return True
        return truth is not None and _truth(outcomes, cell) == truth

    known = {
        cell: None if is_missing(cell) else float(not same(cell)) for cell in {*outcomes.cells}
    }
    values = outcomes.values()
    if truth is not None:
        alike = all(_truth(outcomes, value) is not None for value in values)
    else:
        alike = number is not None and all(_is_number(outcomes, value) for value in values)
    if 0.0 not in known.values() and not alike and not outcomes.growing:
        raise ValueError(
            f"{outcomes.file}: no trial has the outcome {quoted(success)}: {outcomes.title} is "
            f"{outcomes.listed()}"
        )
    words = f"{outcomes.title} = {_plain(success)} is a success"
    if len(values) > 2:
        words += f", and the {len(values) - 1} other values are failures"
    return [known[cell] for cell in outcomes.cells], Scoring(words, False, ("value", wanted))


# ---- scores -------------------------------------------------------------------------------------


def limits_of(scale: str) -> tuple[float, float]:
    """The worst and the best score that are possible, from `WORST:BEST`.

    >>> limits_of("0:100")
    (0.0, 100.0)
    """
    parts = [as_number(part.strip()) for part in scale.split(":")]
    if len(parts) == 2 and parts[0] is not None and parts[1] is not None:
        worst, best = parts[0], parts[1]
        if math.isfinite(best - worst) and worst != best:
            return worst, best
    raise ValueError(
        f"--scale {quoted(scale)}: give two different numbers WORST:BEST, such as 0:100 for a "
        "score in per cent, or 1:0 for costs"
    )


def _by_limits(outcomes: Outcomes, scale: str) -> tuple[Costs, Scoring]:
    worst, best = limits_of(scale)
    up = {"success": True, "score": True, "reward": True, "failure": False, "cost": False}
    direction = up.get(outcomes.kind, False if outcomes.kind == "loss" else None)
    if direction is not None and direction != (best > worst):
        raise ValueError(
            f"{outcomes.file}: {outcomes.title} counts {'up' if direction else 'down'}, and "
            f"--scale {scale} says that {best:g} is the best: turn the limits round, or rename the "
            "column"
        )
    costs: Costs = []
    for at, cell in enumerate(outcomes.cells):
        value = _score(outcomes, cell, at, percent=True)
        if value is not None and not min(worst, best) <= value <= max(worst, best):
            raise ValueError(
                f"{outcomes.where(at)}: {outcomes.title} is {quoted(cell)}, outside --scale "
                f"{scale}: give limits that no trial can leave"
            )
        costs.append(None if value is None else abs((best - value) / (best - worst)))
    title = outcomes.title if outcomes.name else "a score"
    words = f"{title} from {worst:g}, the worst, to {best:g}, the best"
    return costs, Scoring(words, True, ("scale", worst, best, outcomes.name))


def _between_0_and_1(outcomes: Outcomes) -> tuple[Costs, Scoring]:
    up, costs = outcomes.kind == "score", []
    for at, cell in enumerate(outcomes.cells):
        value = _score(outcomes, cell, at)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(
                f"{outcomes.where(at)}: {outcomes.title} is {quoted(cell)}, outside [0, 1]: "
                f"{ASK_SCALE}"
            )
        costs.append(value if value is None or not up else 1 - value)
    ends = "0, the worst, to 1, the best" if up else "0, the best, to 1, the worst"
    rule = ("scale", float(not up), float(up), outcomes.name)
    return costs, Scoring(f"{outcomes.title} from {ends}", True, rule)


def _score(outcomes: Outcomes, cell: str, at: int, percent: bool = False) -> float | None:
    """The cell as a number; None if it is missing."""
    if is_missing(cell):
        return None
    value = outcomes.number(cell.removesuffix("%").strip() if percent else cell)
    if value is not None and not math.isnan(value):
        return value
    where = f"{outcomes.where(at)}: {outcomes.title} is {quoted(cell)}"
    if cell.endswith("%"):
        raise ValueError(f"{where}, a percentage: say --scale 0:100")
    raise ValueError(f"{where}, not a number")


def _is_number(outcomes: Outcomes, cell: str) -> bool:
    return outcomes.number(cell.removesuffix("%").strip()) is not None


def _plain(value: str) -> str:
    """A value as it is shown, with quotation marks unless it is a short word or number."""
    value = value.strip()
    return value if value.isalnum() and value.isascii() and len(value) < 20 else quoted(value)
