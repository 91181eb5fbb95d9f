"""What was identified: gains with their intervals, and whether the model may be believed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KEYS = (
    "k_u",
    "k_p",
    "speed",
    "latency",
    "covariance",
    "noise",
    "confidence",
    "samples",
    "fits",
    "remarks",
)


@dataclass(frozen=True)
class Estimate:
    """A number, and the interval that holds the true one with the stated confidence."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (
            math.isfinite(self.low)
            and math.isfinite(self.high)
            and self.low <= self.value <= self.high
        ):
            raise ValueError(
                f"value {self.value} with an interval from {self.low} to {self.high}: all must be "
                "finite, and the value in the interval"
            )

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def to_dict(self) -> dict[str, float]:
        """Plain values, for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}

    @classmethod
    def from_record(cls, record: Any, name: str = "estimate") -> Estimate:
        """From plain values, checked."""
        if not isinstance(record, dict) or set(record) != {"value", "low", "high"}:
            raise ValueError(f"{name} must have value, low and high, and nothing else")
        try:
            return cls(*(_number(record[key], key) for key in ("value", "low", "high")))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


@dataclass(frozen=True, eq=False)
class Response:
    """The yaw of one log where it was measured, and what the fitted model makes of it."""

    name: str
    time: Floats  # s from the log's first row
    measured: Floats  # rad
    fitted: Floats  # rad

    @property
    def residuals(self) -> Floats:
        """Measured less fitted (rad)."""
        return self.measured - self.fitted


@dataclass(frozen=True)
class Identified:
    """The Swing's gains as fitted. If `fits` is False, neither gains nor intervals are to be used.

    Each interval holds its own true value with probability `confidence` over logs of the same
    commands; together they may be wrong more often. `covariance` is that of (k_u, k_p).
    """

    k_u: Estimate  # rad of yaw for a full command
    k_p: Estimate  # 1/s
    speed: Estimate  # m/s
    latency: Estimate  # s
    covariance: tuple[tuple[float, float], tuple[float, float]]
    noise: float  # standard deviation of the yaw residuals, rad
    confidence: float
    samples: int  # measured yaws that were fitted
    fits: bool
    remarks: tuple[str, ...] = ()
    responses: tuple[Response, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("k_u", "k_p", "speed"):
            if not getattr(self, name).value > 0:
                raise ValueError(f"{name} is {getattr(self, name).value:g}, and must be positive")
        if not (0 < self.confidence < 1):
            raise ValueError(f"confidence {self.confidence:g} is outside (0, 1)")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise {self.noise:g} must be finite, and at least 0")
        if self.samples < 1:
            raise ValueError(f"{self.samples} samples: there must be at least one")
        matrix = np.array(self.covariance, float)
        if matrix.shape != (2, 2) or not np.isfinite(matrix).all():
            raise ValueError("covariance must be two rows of two finite numbers")
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2).min())
        slack = 1e-9 * float(np.abs(matrix).max())
        if abs(matrix[0, 1] - matrix[1, 0]) > slack or lowest < -slack:
            raise ValueError("covariance must be symmetric and positive semidefinite")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the residuals are left out."""
        record: dict[str, Any] = {key: getattr(self, key) for key in KEYS}
        for key in ("k_u", "k_p", "speed", "latency"):
            record[key] = record[key].to_dict()
        record["covariance"] = [list(row) for row in self.covariance]
        record["remarks"] = list(self.remarks)
        return record

    @classmethod
    def from_record(cls, record: Any) -> Identified:
        """From plain values that anyone may have written: each is checked."""
        if not isinstance(record, dict):
            raise ValueError("a fitted model must be an object, as pbc identify --json writes it")
        missing = [key for key in KEYS if key not in record]
        unknown = [str(key) for key in record if key not in KEYS]
        if missing or unknown:
            what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)} too"
            raise ValueError(
                f"a fitted model {what}: it must be as pbc swing identify --json writes it"
            )
        rows = record["covariance"]
        if not isinstance(rows, list) or [isinstance(r, list) and len(r) for r in rows] != [2, 2]:
            raise ValueError("covariance must be two rows of two finite numbers")
        first, second = ([_number(value, "covariance") for value in row] for row in rows)
        samples, fits, remarks = record["samples"], record["fits"], record["remarks"]
        if type(samples) is not int:
            raise ValueError(f"samples is {samples!r}, and must be a whole number")
        if type(fits) is not bool:
            raise ValueError(f"fits is {fits!r}, and must be true or false")
        if not isinstance(remarks, list) or not all(isinstance(text, str) for text in remarks):
            raise ValueError("remarks must be a list of sentences")
        estimates = ("k_u", "k_p", "speed", "latency")
        return cls(
            *(Estimate.from_record(record[key], key) for key in estimates),
            covariance=((first[0], first[1]), (second[0], second[1])),
            noise=_number(record["noise"], "noise"),
            confidence=_number(record["confidence"], "confidence"),
            samples=samples,
            fits=fits,
            remarks=tuple(remarks),
        )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, and must be a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError(f"{name} is {value!r}, and must be finite")
    return float(value)
