"""A certificate against what happened in deployment: is the promise still holding out there?

Each outcome is the cost of one mission, in an environment of its own, of what the certificate
names: for a posterior, a policy drawn afresh. If new environments are drawn as promised, the
expected cost of each is at most the bound b, whatever came before, but for the probability δ that
the certificate is wrong. A bettor who stakes against that can multiply her wealth by 1/α with
probability at most α, however long she plays: so if she does, costs exceed the bound, and the world
is not as promised; this conclusion is wrong with probability at most δ + α.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.balls import Ball
from pacbayes_control.bounds.sequential import (
    bets,
    binomial_p_value,
    chernoff_p_value,
    confidence_sequence,
    wager,
    wager_on_counts,
)
from pacbayes_control.certificate import Certificate
from pacbayes_control.outcomes import checked_outcomes
from pacbayes_control.run import json_bytes, read_json

FORMAT = 1
POINTS = 2048  # of the history, at most
MOST_TRIALS = 2**53  # beyond, sums of outcomes are no longer exact
LARGEST_LOG = 690.0  # of an e-value that is shown: e⁶⁹⁰ ≈ 1e299

HOLDING, OPEN = "holding", "no evidence yet"


@dataclass(frozen=True)
class Promise:
    """A bound and its δ as somebody states them, where there is no run to load."""

    bound: float
    delta: float
    ball: Ball | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.bound <= 1:
            raise ValueError(f"a bound of {self.bound:g} is no promise: it must lie in [0, 1]")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta = {self.delta} must lie strictly between 0 and 1")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = self.ball.to_record() if self.ball else None
        return {"bound": self.bound, "delta": self.delta, "ball": record}


@dataclass(frozen=True)
class Report:
    """What the outcomes so far say about the certificate."""

    trials: int
    mean_cost: float
    bound: float
    p_value: float  # exact, for one look at a number of trials that was fixed in advance
    e_value: float  # of the outcomes so far; may be watched
    largest_e_value: float  # ever reached
    anytime_p_value: float  # one over the largest e-value; may be watched
    alarm_at: int | None  # the trial at which the e-value first reached 1/α
    interval: tuple[float, float]  # for the cost as deployed, at every number of trials at once
    alpha: float
    verdict: str  # holding, no evidence yet, or violated at level α
    error_rate: float  # δ + α: of the conclusion that the world is not as promised
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"interval": list(self.interval)}


class Monitor:
    """Outcomes of a deployment as they arrive, and the evidence that they are.

    >>> monitor = Monitor(Promise(bound=0.114, delta=0.01))  # or a run's certificate
    >>> monitor.observe([0, 0, 1])  # what happened, in order
    >>> monitor.observe_counts(failures=1, trials=17)  # or how often
    >>> report = monitor.report()
    >>> report.verdict, round(report.p_value, 2)
    ('no evidence yet', 0.68)
    """

    def __init__(self, certificate: Certificate | Promise, alpha: float = 0.05) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha = {alpha} must lie strictly between 0 and 1")
        self.certificate, self.alpha = certificate, float(alpha)
        self.trials, self.total, self.binary = 0, 0.0, True
        self.log_wealth = np.zeros(len(bets(certificate.bound)[0]))
        self.log_e, self.largest, self.alarm_at = 0.0, 0.0, None
        self.batches: list[str] = []  # SHA-256 of the name and content of what was read
        self.stride = 1
        self.history: list[tuple[int, float, float]] = []  # trials, sum of costs, ln e-value

    # ---- outcomes -------------------------------------------------------------------------------

    def observe(self, costs: ArrayLike) -> None:
        """Take in one cost or several, in the order in which they occurred."""
        values = checked_outcomes(np.atleast_1d(np.asarray(costs, float)))
        self._check_room(len(values))
        self.log_wealth, path = wager(self.log_wealth, values, self.certificate.bound)
        first = self.trials + 1
        sums = self.total + np.cumsum(values)
        self.trials += len(values)
        self.total = float(sums[-1])
        self.binary = self.binary and bool(np.all((values == 0) | (values == 1)))
        alarms = np.flatnonzero(path >= self._threshold)
        if self.alarm_at is None and alarms.size:
            self.alarm_at = first + int(alarms[0])
        self.log_e, self.largest = float(path[-1]), max(self.largest, float(path.max()))
        self._remember(np.arange(first, self.trials + 1), sums, path)

    def observe_counts(self, failures: int, trials: int) -> None:
        """Take in 0/1 outcomes of which only the numbers are known."""
        if trials < 1 or trials != int(trials) or failures != int(failures):
            raise ValueError(f"{failures} failures in {trials} trials: whole numbers are needed")
        if not 0 <= failures <= trials:
            raise ValueError(f"{failures} failures in {trials} trials: there cannot be so many")
        self._check_room(trials)
        bound = self.certificate.bound
        self.log_wealth, self.log_e = wager_on_counts(self.log_wealth, failures, trials, bound)
        self.trials += int(trials)
        self.total += int(failures)
        if self.alarm_at is None and self.log_e >= self._threshold:
            self.alarm_at = self.trials
        self.largest = max(self.largest, self.log_e)
        self._remember(*(np.array([x]) for x in (self.trials, self.total, self.log_e)))

    @property
    def _threshold(self) -> float:
        """ln 1/α, and a little more for what sums of logarithms lose."""
        return -math.log(self.alpha) + 1e-9 * (1 + math.sqrt(self.trials))

    def _check_room(self, trials: int) -> None:
        if self.trials + trials > MOST_TRIALS:
            raise ValueError("there are more outcomes than can be counted exactly")

    def _remember(self, trials: NDArray, sums: NDArray, path: NDArray) -> None:
        """Points for a picture of the evidence over time; fewer of them as they become many."""
        while self.trials // self.stride > POINTS:
            self.stride *= 2
        kept = [point for point in self.history[:-1] if point[0] % self.stride == 0]
        kept += self.history[-1:]
        chosen = np.flatnonzero((trials % self.stride == 0) | (trials == self.trials))
        rows = zip(trials[chosen], sums[chosen], path[chosen], strict=True)
        self.history = kept + [(int(n), float(total), float(e)) for n, total, e in rows]

    # ---- what they say --------------------------------------------------------------------------

    def report(self) -> Report:
        """The verdict so far, and the numbers behind it."""
        if self.trials == 0:
            raise ValueError("there are no outcomes to judge the certificate by")
        bound, mean = self.certificate.bound, min(self.total / self.trials, 1.0)
        low, high = confidence_sequence(self.total, self.trials, self.alpha)
        if self.binary:
            p_value = float(binomial_p_value(self.total, self.trials, bound))
        else:
            p_value = float(chernoff_p_value(mean, self.trials, bound))
        if self.alarm_at is not None:
            verdict = f"violated at level {self.alpha:g}"
        else:
            verdict = HOLDING if high <= bound else OPEN
        return Report(
            trials=self.trials,
            mean_cost=mean,
            bound=bound,
            p_value=p_value,
            e_value=math.exp(min(self.log_e, LARGEST_LOG)),
            largest_e_value=math.exp(min(self.largest, LARGEST_LOG)),
            anytime_p_value=math.exp(-min(self.largest, LARGEST_LOG)),
            alarm_at=self.alarm_at,
            interval=(float(low), float(high)),
            alpha=self.alpha,
            verdict=verdict,
            error_rate=min(self.certificate.delta + self.alpha, 1.0),
            sentence=self._sentence(verdict),
        )

    def _sentence(self, verdict: str) -> str:
        c = self.certificate
        promise = f"a cost of at most {c.bound:.6g}"
        if verdict == HOLDING:
            return (
                f"Holding: with confidence {1 - self.alpha:g}, at every look, the cost as deployed "
                f"is below the promise of {promise}."
            )
        if verdict == OPEN:
            return f"No evidence yet against {promise}, nor enough to call it confirmed."
        world = "drawn like those of training"
        if c.ball is not None:
            known = c.ball.samples is None
            world = f"from any D′ with {c.ball}" if known else "drawn like the shifted sample"
        return (
            f"Violated: the outcomes up to trial {self.alarm_at} are evidence against {promise}. "
            f"The environments are not {world}, or something else has changed; this conclusion is "
            f"wrong with probability at most δ + α = {c.delta:g} + {self.alpha:g}."
        )

    # ---- keeping it -----------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the state; the old one stays until the new one is whole."""
        path = Path(path)
        record = {
            "format": FORMAT,
            "certificate": certificate_digest(self.certificate),
            "alpha": self.alpha,
            "trials": self.trials,
            "total": self.total,
            "binary": self.binary,
            "log_wealth": self.log_wealth.tolist(),
            "log_e": self.log_e,
            "largest": self.largest,
            "alarm_at": self.alarm_at,
            "batches": self.batches,
            "stride": self.stride,
            "history": [list(point) for point in self.history],
        }
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_bytes(json_bytes(record))
        os.replace(unfinished, path)

    @classmethod
    def load(
        cls, path: str | Path, certificate: Certificate | Promise, alpha: float | None = None
    ) -> Monitor:
        """Go on from a state; an error if it is of another certificate or another α."""
        path = Path(path)
        record = read_json(path)
        if not _is_state(record):
            raise ValueError(f"{path} is not the state of a monitor")
        if record["certificate"] != certificate_digest(certificate):
            raise ValueError(f"{path} belongs to another certificate: choose another file")
        if alpha is not None and alpha != record["alpha"]:
            raise ValueError(
                f"{path} was begun with alpha = {record['alpha']:g}: it is fixed from the start"
            )
        monitor = cls(certificate, record["alpha"])
        if len(record["log_wealth"]) != len(monitor.log_wealth):
            raise ValueError(f"{path} is not the state of a monitor of this version")
        for name in ("trials", "total", "binary", "log_e", "largest", "alarm_at", "stride"):
            setattr(monitor, name, record[name])
        monitor.batches = list(record["batches"])
        monitor.log_wealth = np.array(record["log_wealth"], float)
        monitor.history = [(int(n), float(s), float(e)) for n, s, e in record["history"]]
        return monitor


def certificate_digest(certificate: Certificate | Promise) -> str:
    """What tells a certificate from others."""
    return hashlib.sha256(json_bytes(certificate.to_dict())).hexdigest()


def _is_state(record: Any) -> bool:
    """Whether a file that may hold anything has the fields and types of a state."""
    kinds = {
        "certificate": str,
        "alpha": float,
        "trials": int,
        "total": float,
        "binary": bool,
        "log_e": float,
        "largest": float,
        "stride": int,
        "log_wealth": list,
        "batches": list,
        "history": list,
    }
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return False
    if any(type(record.get(name)) is not kind for name, kind in kinds.items()):
        return False
    alarm, trials = record.get("alarm_at", 0), record["trials"]
    return (
        0 < record["alpha"] < 1
        and record["stride"] >= 1
        and 0 <= record["total"] <= trials <= MOST_TRIALS
        and (alarm is None or (type(alarm) is int and 0 < alarm <= trials))
        and _numbers(record["log_wealth"])
        and all(isinstance(text, str) for text in record["batches"])
        and all(isinstance(p, list) and len(p) == 3 and _numbers(p) for p in record["history"])
    )


def _numbers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, float) and math.isfinite(value) for value in values)
