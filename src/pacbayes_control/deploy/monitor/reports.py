"""The report of a monitor: the bound, the numbers and the verdict in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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
        record = self.ball.to_record() if self.ball else None
        return {"bound": self.bound, "delta": self.delta, "ball": record}


@dataclass(frozen=True)
class Report:
    """The evidence of the outcomes so far for or against the certificate."""

    trials: int
    mean_cost: float
    bound: float
    p_value: float  # exact, for one look at a number of trials that was fixed in advance
    e_value: float  # of the outcomes so far; valid at every look
    largest_e_value: float  # ever reached
    anytime_p_value: float  # one over the largest e-value; valid at every look
    alarm_at: int | None  # the trial at which the e-value first reached 1/α
    interval: tuple[float, float]  # for the cost as deployed, at every number of trials at once
    alpha: float
    verdict: str  # holding, no evidence yet, or violated at level α
    error_rate: float  # δ + α: of the conclusion that the environments are not as certified
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"interval": list(self.interval)}


def sentence(
    certificate: Certificate | Promise, alpha: float, verdict: str, alarm_at: int | None
) -> str:
    """The verdict in plain words."""
    c = certificate
    promise = f"the promise of at most {shown(c.bound)}"
    if verdict == HOLDING:
        return (
            f"Holding: with confidence {confidence_percent(alpha)}, at every look, the "
            f"cost as deployed, if it has not changed meanwhile, is below {promise}."
        )
    if verdict == OPEN:
        return f"No evidence yet against {promise}, nor enough to call it confirmed."
    world = "drawn like those of training"
    if c.ball is not None:
        known = c.ball.samples is None
        world = f"from any D′ with {c.ball}" if known else "drawn like the shifted sample"
    return (
        f"Violated: the outcomes up to trial {alarm_at} are evidence against {promise}. "
        f"The environments are not {world}, or something else has changed; this conclusion is "
        f"wrong with probability at most δ + α = {c.delta:g} + {alpha:g}."
    )
