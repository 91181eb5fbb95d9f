"""Whether one policy is better than another: an answer that may be looked at after every trial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.bounds.anytime import (
    MARGIN,
    difference_limits,
    log_e_of_difference,
    outcomes_needed,
)
from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.certify.files import has_type, json_bytes, read_json, sha256, write_atomic
from pacbayes_control.certify.run import AlteredRun
from pacbayes_control.certify.text import confidence_percent, interval_ends, quoted
from pacbayes_control.certify.trials import COMPARISON as FILE
from pacbayes_control.certify.trials import FILE as TRIALS
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.pairing import Pairs, pairs_of, policy_number
from pacbayes_control.verify.comparisons import check_comparison

FORMAT = 1
SMALLEST = 1e-100  # alpha

Verdict = Literal["better", "worse", "undecided"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answer to "is A better than B?", and the evidence for it."""

    a: str
    b: str
    alpha: float  # probability of a wrong verdict, half of it for each direction
    margin: float  # differences up to this do not count
    in_order: bool  # whether looks on the way count, since trials came in random order
    untried: bool  # whether environments were left out in which one of both was not tried
    pairs: Pairs
    verdict: Verdict
    decided_after: int | None  # pairs of the log after which the e-value was first large enough
    log_e_better: Floats  # (pairs,): ln of the e-value against "A is not better", after each pair
    log_e_worse: Floats  # (pairs,): against "A is not worse"
    difference: tuple[float, float]  # limits on how much more B costs than A, valid at any time
    more: int | None  # pairs after which it may be decided, if they go on like these; None if not
    tasks: tuple[str, ...]  # of a fixed list, if it is about the mean over them
    graded: bool
    unit: str

    @property
    def needed(self) -> float:
        """The e-value that decides."""
        return 2 / self.alpha

    @property
    def log_e(self) -> float:
        """ln of the larger e-value: at the end, or on the way where the order counts."""
        together = self.pairs.together
        ends = [path[together - 1 :: together] for path in (self.log_e_better, self.log_e_worse)]
        return max(float(path.max() if self.in_order else path[-1]) for path in ends)

    @property
    def mean_difference(self) -> float:
        """The mean cost of B less that of A."""
        return float(self.pairs.differences.mean())

    @property
    def decided_in_words(self) -> str:
        """After how many pairs an e-value first decided it, and in which order."""
        order = "" if self.in_order else ", in the order of the log"
        return f"{self.decided_after or 0:,} pairs{order}"

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.difference[0] > self.difference[1]:
            return "Undecided: looks on the way contradict each other: the order was not random."
        a, b = quoted(self.a), quoted(self.b)
        where = "in new environments"
        if self.tasks:
            where = f"in new episodes, on average over {len(self.tasks)} tasks"
        cost = "expected cost" if self.graded else "failure rate"
        low, high = interval_ends(*self.difference)
        by = f" by more than {self.margin:g}" if self.margin else ""
        shown = f"the {cost} of {b} less that of {a} lies between {low} and {high}"
        confidence = f"With confidence {confidence_percent(self.alpha)}"
        if self.verdict == "undecided":
            beyond = f"; only a difference beyond {self.margin:g} decides" if self.margin else ""
            return f"Undecided: {confidence[0].lower()}{confidence[1:]}, {shown} {where}{beyond}."
        return f"{confidence}, {a} is {self.verdict} than {b}{by} {where}: {shown}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "verdict": self.verdict,
            "decided_after": self.decided_after,
            "e_value": finite_exp(self.log_e),
            "needed": self.needed,
            "difference": list(self.difference),
            "mean_difference": self.mean_difference,
            "pairs": len(self.pairs.differences),
            "paired": self.pairs.in_same_environment,
            "left_out": self.pairs.left_out,
            "more": self.more,
            "a": self.a,
            "b": self.b,
            "alpha": self.alpha,
            "margin": self.margin,
            "in_order": self.in_order,
            "untried": self.untried,
            "tasks": list(self.tasks),
            "sentence": self.sentence,
        }


def compare(
    trials: Trials,
    a: str,
    b: str,
    *,
    alpha: float = 0.05,
    margin: float = 0.0,
    in_order: bool = False,
    untried: bool = False,
) -> Comparison:
    """Decide whether policy A is better than B, worse, or whether more trials are needed.

    A is better if a confidence interval for the difference of their expected costs lies above the
    margin. The interval holds at any time: trials may be added and looked at again. It depends on
    the pairs so far and not on their order, so that a log that is sorted, say by task, is no
    problem. What was decided on the way to the last trial counts only if the order was random.
    Trials in different environments are paired in the order of recording, which must not depend on
    their outcomes.

    Args:
        trials: of both policies; paired where they were tried in the same environments
        a: the name of a policy
        b: the name of another
        alpha: probability of a wrong verdict, at any time
        margin: a difference up to which neither is better
        in_order: whether trials were carried out in random order, as recorded: what was decided
            after some of them then stays decided
        untried: whether environments in which one of both was not tried may be left out

    >>> trials = Trials.from_costs([[0, 1], [0, 0], [0, 1]] * 5, ["new", "old"])
    >>> answer = compare(trials, "new", "old")
    >>> answer.verdict, answer.decided_after
    ('better', 9)
    """
    check_delta(alpha, "alpha")
    if alpha < SMALLEST:
        raise ValueError(f"alpha = {alpha:g} is too small: at least {SMALLEST:g}")
    if not 0 <= margin < 1:
        raise ValueError(f"a margin of {margin:g} is not possible: give one from 0 to below 1")
    first, second = (policy_number(trials, name) for name in (a, b))
    if first == second:
        raise ValueError(f"{quoted(a)} cannot be compared with itself")
    pairs = pairs_of(trials, first, second, untried)
    d, every = pairs.differences, pairs.together
    better, worse = log_e_of_difference(d, margin), log_e_of_difference(-d, margin)
    limits = difference_limits(d, alpha, every=every if in_order else 0)
    verdict, path = _verdict(better, worse, limits, margin=margin)
    goal = math.log(2 / alpha) + MARGIN
    after = _first(path[every - 1 :: every], goal) if verdict != "undecided" else None
    decided = None if after is None else min(after * every, len(d))
    return Comparison(
        a=a,
        b=b,
        alpha=alpha,
        margin=margin,
        in_order=in_order,
        untried=untried,
        pairs=pairs,
        verdict=verdict,
        decided_after=decided,
        log_e_better=better,
        log_e_worse=worse,
        difference=limits,
        more=_more(d, alpha, margin) if verdict == "undecided" and limits[0] <= limits[1] else None,
        tasks=trials.tasks,
        graded=bool(trials.graded),
        unit=trials.unit,
    )


def _verdict(
    better: Floats, worse: Floats, limits: tuple[float, float], *, margin: float
) -> tuple[Verdict, Floats]:
    """The verdict, and the e-process that is for it."""
    low, high = limits
    if low > margin and low <= high:
        return "better", better
    if high < -margin and low <= high:
        return "worse", worse
    return "undecided", better  # also where looks on the way contradict each other


def _first(path: Floats, goal: float) -> int:
    """After how many entries a path reaches a goal; all of them if rounding hides it."""
    reached = np.flatnonzero(path >= goal)
    return int(reached[0]) + 1 if len(reached) else len(path)


def _more(d: Floats, alpha: float, margin: float) -> int | None:
    """How many more pairs would decide it if they went on like these; None if none would."""
    ways = [
        outcomes_needed((1 + sign * d) / 2, (1 + margin) / 2, alpha / 2) for sign in (1.0, -1.0)
    ]
    known = [each for each in ways if each is not None]
    return max(1, min(known) - len(d)) if known else None


# ---- files ---------------------------------------------------------------------------------------


def save_comparison(
    comparison: Comparison, trials: Trials, folder: str | Path, overwrite: bool = False
) -> Path:
    """Write a comparison and its trials as a folder that can be verified, and read by a page."""
    folder = Path(folder)
    check_place(folder, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    content = json_bytes(trials.to_record())
    record = comparison.to_dict() | {"format": FORMAT, "trials": sha256(content)}
    write_atomic(folder / TRIALS, content)
    write_atomic(folder / FILE, json_bytes(record))
    return folder


def check_place(folder: Path, overwrite: bool) -> None:
    """Raise ValueError unless a comparison may be written to a folder, and replaces no other."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a comparison is a folder: choose another name")
    inside = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if inside and not overwrite:
        raise ValueError(f"{folder} is not empty: choose another folder, or allow --force")
    if not inside <= {FILE, TRIALS}:
        raise ValueError(f"{folder} holds other things than a comparison: choose another folder")


def load_comparison(folder: str | Path) -> tuple[Comparison, Trials]:
    """A saved comparison and its trials, verified: everything is computed again.

    Its e-values and limits are also recomputed by code that shares no arithmetic with `compare`.
    """
    folder = Path(folder)
    record = read_json(folder / FILE)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{folder / FILE} is not a comparison of format {FORMAT}")
    content = read_json(folder / TRIALS)
    if sha256(json_bytes(content)) != record.get("trials"):
        raise AlteredRun(f"{TRIALS} was altered: its SHA-256 is not the one in {FILE}")
    trials = Trials.from_record(content)
    check_comparison(record, trials)
    again = compare(
        trials,
        record["a"],
        record["b"],
        alpha=record["alpha"],
        margin=record["margin"],
        in_order=record["in_order"],
        untried=record["untried"],
    )
    expected = again.to_dict()
    if record.keys() != {*expected, "format", "trials"}:
        raise AlteredRun(f"{FILE} has other fields than a comparison of format {FORMAT}")
    for name, value in expected.items():
        if record.get(name) != value and not _near(record.get(name), value):
            raise AlteredRun(f"{FILE} has another {name} than its trials give: {value}")
    return again, trials


def _near(stated: Any, value: Any) -> bool:
    """Whether numbers agree up to the rounding of another computer's library."""
    if isinstance(value, list):
        same = isinstance(stated, list) and len(stated) == len(value)
        return same and all(map(_near, stated, value))
    numbers = has_type(stated, float) and isinstance(value, float)
    return numbers and math.isclose(stated, value, rel_tol=1e-9, abs_tol=1e-9)


def finite_exp(log_value: float) -> float:
    """e to a power, at most 1e300, for JSON."""
    return math.exp(min(log_value, 690.0))
