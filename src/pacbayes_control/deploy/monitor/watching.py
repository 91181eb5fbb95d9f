"""Outcomes as they arrive, and what they say of a certificate."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds.sequential import (
    Purse,
    binomial_p_value,
    chernoff_p_value,
    confidence_sequence,
    wager,
    wager_on_counts,
)
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.run import hash_file, json_bytes, seal
from pacbayes_control.certify.tables.columns import checked_outcomes
from pacbayes_control.deploy.monitor.consistency import alarm_threshold, check_consistent
from pacbayes_control.deploy.monitor.reports import HOLDING, OPEN, Promise, Report, sentence
from pacbayes_control.deploy.monitor.state import (
    FORMAT,
    MOST_TRIALS,
    Batch,
    certificate_digest,
    read_state,
    sha,
    stride_of,
)

LARGEST_LOG = 690.0  # of an e-value that is shown: e⁶⁹⁰ ≈ 1e299


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
        if not isinstance(certificate, Certificate | Promise):
            raise ValueError(
                "a monitor watches a certificate, such as run.certificate, or a Promise"
            )
        if not 0 < alpha < 1:
            raise ValueError(f"alpha = {alpha} must lie strictly between 0 and 1")
        self.certificate, self.alpha = certificate, float(alpha)
        self.trials, self.total, self.binary = 0, 0.0, True
        self.purse = Purse.full(certificate.bound)
        self.log_e, self.largest, self.alarm_at = 0.0, 0.0, None
        self.batches: list[Batch] = []  # the files that outcomes were read from
        self.verified: dict[str, str] | None = None  # the `fingerprint` of the run, once verified
        self._kept: str | None = None  # SHA-256 of the state as it was last read or written
        self.history: list[tuple[int, float, float]] = []  # trials, sum of costs, ln e-value

    # ---- outcomes -------------------------------------------------------------------------------

    def observe(self, costs: ArrayLike) -> None:
        """Take in one cost or several, in the order in which they occurred."""
        values = checked_outcomes(np.atleast_1d(costs) if np.isscalar(costs) else costs)
        self._check_room(len(values))
        self.purse, path = wager(self.purse, values, self.certificate.bound)
        trials, sums = self.trials + 1 + np.arange(len(values)), self.total + np.cumsum(values)
        # By the sums, as a state tells it: a cost of 1e-20 is lost in them, and taken for 0.
        self.binary = self.binary and bool(np.all(sums == np.floor(sums)))
        self._weigh(trials, sums, path)

    def observe_file(self, name: str, costs: ArrayLike, repeated: str | None = None) -> None:
        """Take in the outcomes of a file, and remember them: to count missions twice is an error.

        repeated: what to do with a file of a name that was taken in before. "again": all of its
        outcomes are new. "grown": it begins with those that were taken in, and the rest is new,
        which may be nothing.
        """
        if repeated not in (None, "again", "grown"):
            raise ValueError(f"a repeated file is counted again or grown, not {repeated!r}")
        values = checked_outcomes(costs, name)
        earlier = [batch for batch in self.batches if batch.name == name]
        if earlier and repeated is None:
            raise ValueError(
                f"{name} was appended before: if it has grown, say --grown; if all of its "
                "outcomes are new, --again"
            )
        new = values
        if repeated == "grown":
            new = values[self._counted(name, values, earlier) :]
        elif repeated is None:
            self._check_new(name, values)
        if len(new):
            self.observe(new)
            again = bool(earlier) and repeated == "again"
            self.batches.append(Batch(name, len(values), sha(values.tobytes()), again))

    def _counted(self, name: str, values: NDArray, earlier: list[Batch]) -> int:
        """With how many outcomes that were taken in before a file begins that has grown."""
        if any(batch.again for batch in earlier):
            raise ValueError(f"{name} was counted again before: what is new in it cannot be told")
        if earlier and not earlier[-1].begins(values):
            raise ValueError(
                f"{name} does not begin with the {earlier[-1].trials} outcomes that were appended "
                "before: what has been counted cannot be changed"
            )
        if earlier:
            return earlier[-1].trials
        other = next((batch for batch in reversed(self.batches) if batch.begins(values)), None)
        if other:
            raise ValueError(
                f"{name} begins with the {other.trials} outcomes of {other.name!r}: append it "
                "under that name, or say --again if all are new"
            )
        return 0

    def _check_new(self, name: str, values: NDArray) -> None:
        """An error for a copy of an earlier file; short or uniform ones may be alike by chance."""
        if len(values) < 50 or len(np.unique(values)) == 1:
            return
        for batch in self.batches:
            if batch.trials == len(values) and batch.begins(values):
                raise ValueError(f"{name} is a copy of {batch.name!r}: if it is not, say --again")

    def observe_counts(self, failures: int, trials: int) -> None:
        """Take in 0/1 outcomes of which only the numbers are known."""
        if not 1 <= trials <= MOST_TRIALS or trials != int(trials):
            raise ValueError(f"{trials} trials: a whole number of at least one is needed")
        if not abs(failures) <= MOST_TRIALS or failures != int(failures):
            raise ValueError(f"{failures} failures in {trials} trials: whole numbers are needed")
        if not 0 <= failures <= trials:
            raise ValueError(f"{failures} failures in {trials} trials: there cannot be so many")
        self._check_room(trials)
        bound = self.certificate.bound
        self.purse = wager_on_counts(self.purse, int(failures), int(trials), bound)
        known = (self.trials + int(trials), self.total + failures, self.purse.log_value(bound))
        self._weigh(*(np.array([number]) for number in known))

    def _weigh(self, trials: NDArray, sums: NDArray, path: NDArray) -> None:
        """Go on to the last of some looks: trials, sum of costs and ln of the e-value at each."""
        self.trials, self.total = int(trials[-1]), float(sums[-1])
        alarms = np.flatnonzero(path >= alarm_threshold(self.alpha, self.trials))
        if self.alarm_at is None and alarms.size:
            self.alarm_at = int(trials[alarms[0]])
        self.log_e, self.largest = float(path[-1]), max(self.largest, float(path.max()))
        self._remember(trials, sums, path)

    def _check_room(self, trials: int) -> None:
        if self.trials + trials > MOST_TRIALS:
            raise ValueError("there are more outcomes than can be counted exactly")

    def _remember(self, trials: NDArray, sums: NDArray, path: NDArray) -> None:
        """Points for a picture of the evidence over time; fewer of them as they become many."""
        stride = stride_of(self.trials)
        kept = [point for point in self.history[:-1] if point[0] % stride == 0]
        kept += self.history[-1:]
        chosen = np.flatnonzero((trials % stride == 0) | (trials == self.trials))
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
            sentence=sentence(self.certificate, self.alpha, verdict, self.alarm_at),
        )

    # ---- keeping it -----------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the state; the old one stays until the new one is whole.

        An error if the file is neither new nor the one that this monitor was loaded from or saved
        to, as it was then: nobody's outcomes are overwritten.
        """
        path = Path(path)
        record = {
            "format": FORMAT,
            "certificate": certificate_digest(self.certificate),
            "alpha": self.alpha,
            "trials": self.trials,
            "total": self.total,
            "binary": self.binary,
            "wealth": self.purse.wealth.tolist(),
            "scale": self.purse.scale,
            "log_e": self.log_e,
            "largest": self.largest,
            "alarm_at": self.alarm_at,
            "batches": [list(batch) for batch in self.batches],
            "stride": stride_of(self.trials),
            "history": [list(point) for point in self.history],
            "verified": self.verified,
        }
        content = json_bytes(record | {"seal": seal(record)})
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        with _alone(path):
            self.check_unchanged(path)
            unfinished.write_bytes(content)
            os.replace(unfinished, path)
        self._kept = sha(content)

    def check_unchanged(self, path: Path) -> None:
        """An error if a file is there that is not this monitor's, as it was last read or saved."""
        if path.exists() and hash_file(path) != self._kept:
            raise ValueError(f"{path} was changed meanwhile, or is another's: load it again")

    @classmethod
    def load(
        cls, path: str | Path, certificate: Certificate | Promise, alpha: float | None = None
    ) -> Monitor:
        """Go on from a state; an error if it is of another certificate or α, or altered."""
        path = Path(path)
        kept = hash_file(path) if path.is_file() else ""
        record = read_state(path)
        if hash_file(path) != kept:
            raise ValueError(f"{path} is being written by somebody else: try again")
        if record["certificate"] != certificate_digest(certificate):
            raise ValueError(f"{path} belongs to another certificate: choose another file")
        if alpha is not None and alpha != record["alpha"]:
            raise ValueError(
                f"{path} was begun with alpha = {record['alpha']:g}: it is fixed from the start"
            )
        try:
            check_consistent(record, certificate.bound)
        except ValueError as error:
            raise ValueError(f"{path} contradicts itself: {error}") from None
        monitor = cls(certificate, record["alpha"])
        for name in ("trials", "total", "binary", "log_e", "largest", "alarm_at", "verified"):
            setattr(monitor, name, record[name])
        monitor.batches = [Batch(*entry) for entry in record["batches"]]
        wealth = np.array(record["wealth"], float)
        monitor.purse = Purse(wealth, float(record["scale"]), monitor.trials)
        monitor._kept = kept
        monitor.history = [(int(n), float(s), float(e)) for n, s, e in record["history"]]
        return monitor


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a state file for oneself, by a file beside it that must not be there yet."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        raise ValueError(
            f"{path} is being written by somebody else: try again, or delete {lock}"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
