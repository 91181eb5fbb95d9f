"""Monitor: the outcomes of a deployment, one after another, against a certificate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.bounds import sequential
from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.certify import files
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.tables.columns import checked_outcomes
from pacbayes_control.deploy.monitor import state
from pacbayes_control.deploy.monitor.reports import (
    HOLDING,
    OPEN,
    Counted,
    Promise,
    Report,
    verdict_words,
    watched_of,
)
from pacbayes_control.deploy.monitor.state import MOST_TRIALS, Batch, require

LARGEST_LOG = 690.0  # of an e-value in a report: e⁶⁹⁰ ≈ 1e299
PLAIN = ("alpha", "trials", "total", "binary", "log_e", "largest", "alarm_at", "verified")


class Monitor:
    """The outcomes of a deployment, and their evidence for or against a certificate.

    >>> monitor = Monitor(Promise(bound=0.114, delta=0.01))  # or a run's certificate
    >>> monitor.observe([0, 0, 1])  # outcomes, in order
    >>> monitor.observe_counts(failures=1, trials=17)  # or their numbers
    >>> report = monitor.report()
    >>> report.verdict, round(report.p_value, 2)
    ('no evidence yet', 0.68)
    """

    def __init__(self, certificate: Certificate | Promise, alpha: float = 0.05) -> None:
        if not isinstance(certificate, Certificate | Promise):
            raise ValueError(
                "a monitor watches a certificate, such as run.certificate, or a Promise"
            )
        check_delta(alpha, "alpha")
        self.certificate, self.alpha = certificate, float(alpha)
        self.bound, self.above = watched_of(certificate)
        self.trials, self.total, self.binary = 0, 0.0, True
        self.betting = sequential.BettingState.initial(self.bound)
        self.log_e, self.largest, self.alarm_at = 0.0, 0.0, None
        self.batches: list[Batch] = []  # the files that were counted
        self.verified: dict[str, str] | None = None  # the `fingerprint` of the verified run
        self._saved: str | None = None  # SHA-256 of the state file when it was read or written
        self.history: list[tuple[int, float, float]] = []  # trials, sum of costs, ln e-value

    # ---- outcomes -------------------------------------------------------------------------------

    def observe(self, costs: ArrayLike) -> None:
        """Count one cost or several, in the order in which they occurred."""
        values = checked_outcomes(np.atleast_1d(costs) if np.isscalar(costs) else costs)
        self._check_room(len(values))
        if self.above is not None:
            values = (values > self.above).astype(float)
        self.betting, path = sequential.update_wealth(self.betting, values, self.bound)
        trials, sums = self.trials + 1 + np.arange(len(values)), self.total + np.cumsum(values)
        # From the sums, as in a saved state: a cost of 1e-20 is lost in them, and counts as 0.
        self.binary = self.binary and bool(np.all(sums == np.floor(sums)))
        self._update(trials, sums, path)

    def observe_file(
        self, name: str, costs: ArrayLike, repeated: Literal["again", "grown"] | None = None
    ) -> None:
        """Count the outcomes of a file, and record it: counting a file twice is an error.

        Args:
            name: of the file.
            costs: its outcomes, in order.
            repeated: for a file of a name that was counted before. "again": all of its outcomes are
                new. "grown": it begins with the counted ones, and the rest, if any, is new.
        """
        if repeated not in (None, "again", "grown"):
            raise ValueError(f"repeated is 'again', 'grown' or None, not {repeated!r}")
        values = checked_outcomes(costs, name)
        earlier = [batch for batch in self.batches if batch.name == name]
        if earlier and repeated is None:
            raise ValueError(
                f"{name} was appended before: if it has grown, say --grown; if all of its "
                "outcomes are new, --again"
            )
        counted = self._counted(name, values, earlier) if repeated == "grown" else 0
        if repeated is None:
            self._check_new(name, values)
        if counted < len(values):
            self.observe(values[counted:])
            again = bool(earlier) and repeated == "again"
            self.batches.append(Batch(name, len(values), files.sha256(values.tobytes()), again))

    def _counted(self, name: str, values: NDArray, earlier: list[Batch]) -> int:
        """The number of outcomes at the beginning of a grown file that were counted before."""
        if any(batch.again for batch in earlier):
            raise ValueError(
                f"{name} was counted again before: it is not known which of its outcomes are new"
            )
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
        """An error for a copy of an earlier file; short or constant ones may be equal by chance."""
        if len(values) < 50 or len(np.unique(values)) == 1:
            return
        for batch in self.batches:
            if batch.trials == len(values) and batch.begins(values):
                raise ValueError(f"{name} is a copy of {batch.name!r}: if it is not, say --again")

    def observe_counts(self, failures: int, trials: int) -> None:
        """Count 0/1 outcomes of which only the numbers are known.

        Failures are, for the certificate of a quantile, trials that cost more than it.
        """
        if not 1 <= trials <= MOST_TRIALS or trials != int(trials):
            raise ValueError(f"{trials} trials: a whole number of at least one is needed")
        if not 0 <= failures <= trials or failures != int(failures):
            wanted = f"a whole number from 0 to {trials} is needed"
            raise ValueError(f"{failures} failures in {trials} trials: {wanted}")
        self._check_room(trials)
        self.betting = sequential.update_wealth_by_counts(
            self.betting, int(failures), int(trials), self.bound
        )
        log_e = self.betting.log_value(self.bound)
        latest = (self.trials + int(trials), self.total + failures, log_e)
        self._update(*(np.array([number]) for number in latest))

    def _update(self, trials: NDArray, sums: NDArray, path: NDArray) -> None:
        """Add looks at the data: the trials, sum of costs and ln of the e-value at each."""
        self.trials, self.total = int(trials[-1]), float(sums[-1])
        alarms = np.flatnonzero(path >= state.alarm_threshold(self.alpha, self.trials))
        if self.alarm_at is None and alarms.size:
            self.alarm_at = int(trials[alarms[0]])
        self.log_e, self.largest = float(path[-1]), max(self.largest, float(path.max()))
        # Points for a picture of the evidence over time; fewer of them for many outcomes.
        stride = state.stride_of(self.trials)
        kept = [point for point in self.history[:-1] if point[0] % stride == 0]
        chosen = (trials % stride == 0) | (trials == self.trials)
        new = zip(*(part[chosen].tolist() for part in (trials, sums, path)), strict=True)
        self.history = [*kept, *self.history[-1:], *new]

    def _check_room(self, trials: int) -> None:
        if self.trials + trials > MOST_TRIALS:
            raise ValueError("there are more outcomes than can be counted exactly")

    # ---- the report -----------------------------------------------------------------------------

    def report(self) -> Report:
        """The verdict so far, and the numbers behind it."""
        require(self.trials > 0, "there are no outcomes to judge the certificate by")
        bound, mean = self.bound, min(self.total / self.trials, 1.0)
        low, high = sequential.confidence_sequence(self.total, self.trials, self.alpha)
        if self.binary:
            p_value = float(sequential.binomial_p_value(self.total, self.trials, bound))
        else:
            p_value = float(sequential.chernoff_p_value(mean, self.trials, bound))
        if self.alarm_at is not None:
            verdict = f"violated at level {self.alpha:g}"
        else:
            verdict = HOLDING if high <= bound else OPEN
        counted = Counted(self.trials, self.total, self.alarm_at)
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
            above=self.above,
            sentence=verdict_words(self.certificate, verdict, counted, self.alpha),
        )

    # ---- the state file -------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the state to a file; the old one stays until the new one is complete.

        An error if the file exists, unless this monitor was loaded from it or saved to it, and it
        has not changed since then: no other outcomes are overwritten.
        """
        path = Path(path)
        record = {name: getattr(self, name) for name in (*PLAIN, "batches", "history")} | {
            "format": state.FORMAT,
            "certificate": state.certificate_digest(self.certificate),
            "wealth": self.betting.wealth.tolist(),
            "scale": self.betting.scale,
            "stride": state.stride_of(self.trials),
        }
        content = files.json_bytes(record | {"seal": files.seal(record)})
        busy = f"{path} is being written by another process: try again"
        with files.locked(path.with_name(f".{path.name}.lock"), busy):
            same = not path.exists() or files.hash_file(path) == self._saved
            require(same, f"{path} was changed meanwhile, or is of another monitor: load it")
            files.write_atomic(path, content)
        self._saved = files.sha256(content)

    @classmethod
    def load(
        cls, path: str | Path, certificate: Certificate | Promise, alpha: float | None = None
    ) -> Monitor:
        """Read a state file; an error if it is of another certificate or α, or was altered."""
        path = Path(path)
        saved = files.hash_file(path) if path.is_file() else ""
        record = state.read_state(path)
        same = files.hash_file(path) == saved
        require(same, f"{path} is being written by another process: try again")
        same = record["certificate"] == state.certificate_digest(certificate)
        require(same, f"{path} belongs to another certificate: choose another file")
        same, begun = alpha in (None, record["alpha"]), f"alpha = {record['alpha']:g}"
        require(same, f"{path} was started with {begun}: it cannot be changed")
        monitor = cls(certificate, record["alpha"])
        try:
            state.check_consistent(record, monitor.bound)
        except ValueError as error:
            raise ValueError(f"{path} contradicts itself: {error}") from None
        for name in PLAIN:
            setattr(monitor, name, record[name])
        monitor.batches = [Batch(*entry) for entry in record["batches"]]
        wealth = np.array(record["wealth"], float)
        monitor.betting = sequential.BettingState(wealth, float(record["scale"]), monitor.trials)
        monitor._saved = saved
        monitor.history = [(int(n), float(s), float(e)) for n, s, e in record["history"]]
        return monitor
