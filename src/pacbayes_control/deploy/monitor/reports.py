"""What a monitor watches, and its report in numbers and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.text import confidence_percent, shown

HOLDING, OPEN = "holding", "no evidence yet"


@dataclass(frozen=True)
class Promise:
    """A bound and its δ as they were stated, if there is no run to load."""

    bound: float
    delta: float
    ball: Ball | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.bound <= 1:
            raise ValueError(f"the bound {self.bound:g} must lie in [0, 1]")
        check_delta(self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def watched_of(certificate: Certificate | Promise) -> tuple[float, float | None]:
    """The promised mean of what is counted, and the quantile c of a certificate that has one.

    Costs are counted as they are; for a quantile, 1 for each that is above c, and 0 for others.
    """
    if isinstance(certificate, Promise):
        return certificate.bound, None
    if certificate.statistic.kind == "cvar":
        raise ValueError("cvar cannot be monitored: certify the mean or a quantile")
    if certificate.most_above is not None:
        return certificate.most_above, certificate.bound
    return certificate.bound, None


@dataclass(frozen=True)
class Report:
    """The evidence of the outcomes so far for or against the certificate."""

    trials: int
    mean_cost: float  # for a quantile, the share of trials above it
    bound: float  # on its expectation, as promised
    p_value: float  # exact, for one look at a number of trials that was fixed in advance
    e_value: float  # of the outcomes so far; valid at every look
    largest_e_value: float  # ever reached
    anytime_p_value: float  # one over the largest e-value; valid at every look
    alarm_at: int | None  # the trial at which the e-value first reached 1/α
    interval: tuple[float, float]  # for the cost as deployed, at every number of trials at once
    alpha: float
    verdict: str  # holding, no evidence yet, or violated at level α
    error_rate: float  # δ + α: of the conclusion that the environments are not as certified
    above: float | None  # the quantile, where trials above it are counted
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"interval": list(self.interval)}


class Counted(NamedTuple):
    """The outcomes so far."""

    trials: int
    total: float  # of their costs; for a quantile, the number of those above it
    alarm_at: int | None


def verdict_words(
    certificate: Certificate | Promise, verdict: str, counted: Counted, alpha: float
) -> str:
    """A verdict in plain words."""
    c, (bound, above) = certificate, watched_of(certificate)
    what, promised, told = "cost", shown(bound), ""
    if above is not None and isinstance(c, Certificate):
        what, cost = "share", shown(above)
        promised = f"{c.most_above_percent} of environments above a cost of {cost}"
        told = f" {int(counted.total):,} of {counted.trials:,} trials cost more than {cost}."
    promise = f"the promise of at most {promised}"
    if verdict == HOLDING:
        return (
            f"Holding: with confidence {confidence_percent(alpha)}, at every look, the {what} as "
            f"deployed, if it has not changed meanwhile, is below {promise}.{told}"
        )
    if verdict == OPEN:
        return f"No evidence yet against {promise}, nor enough to call it confirmed.{told}"
    world = "drawn like those of training"
    if c.ball is not None:
        known = c.ball.samples is None
        world = f"from any D′ with {c.ball}" if known else "drawn like the shifted sample"
    return (
        f"Violated: the outcomes up to trial {counted.alarm_at} are evidence against {promise}. "
        f"The environments are not {world}, or something else has changed; this conclusion is "
        f"wrong with probability at most δ + α = {c.delta:g} + {alpha:g}.{told}"
    )
