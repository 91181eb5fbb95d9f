"""The model as identified: gains with their intervals, whether it fits, and the Swing of them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import scipy

from pacbayes_control.certify.files import check_record, read_json
from pacbayes_control.robots.swing.gains import DrawnGains, WorstGains
from pacbayes_control.robots.swing.identification.logs import Floats
from pacbayes_control.robots.swing.simulator import Swing

ESTIMATES = ("k_u", "k_p", "speed", "latency")
Covariance = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Estimate:
    """A number, and the interval that holds the true one with the stated confidence."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low <= self.value <= self.high < math.inf:
            raise ValueError(
                f"value {self.value} with an interval from {self.low} to {self.high}: all must be "
                "finite, and the value in the interval"
            )

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    @classmethod
    def from_record(cls, record: Any, name: str) -> Estimate:
        """Check and read plain values."""
        check_record(record, get_type_hints(cls), name)
        try:
            return cls(**{key: float(value) for key, value in record.items()})
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


@dataclass(frozen=True, eq=False)
class YawResponse:
    """The measured yaw of one log, and that of the fitted model at the same times."""

    time: Floats  # s from the log's first row
    measured: Floats  # rad
    fitted: Floats  # rad

    @property
    def residuals(self) -> Floats:
        """Measured minus fitted (rad)."""
        return self.measured - self.fitted


@dataclass(frozen=True)
class IdentifiedModel:
    """The Swing's gains as fitted. If `fits` is False, use neither gains nor intervals.

    Each interval holds its own true value with probability `confidence` over logs of the same
    commands; that all of them do is less likely. `covariance` is that of (k_u, k_p).
    """

    k_u: Estimate  # rad of yaw for a full command
    k_p: Estimate  # 1/s
    speed: Estimate  # m/s
    latency: Estimate  # s
    covariance: Covariance
    noise: float  # standard deviation of the yaw residuals, rad
    confidence: float
    samples: int  # measured yaws that were fitted
    fits: bool
    remarks: tuple[str, ...] = ()
    responses: tuple[YawResponse, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("k_u", "k_p", "speed"):
            if not getattr(self, name).value > 0:
                raise ValueError(f"{name} is {getattr(self, name).value:g}, and must be positive")
        for good, problem in (
            (0 < self.confidence < 1, f"confidence {self.confidence:g} is outside (0, 1)"),
            (0 <= self.noise < math.inf, f"noise {self.noise:g} must be finite, and at least 0"),
            (self.samples >= 1, f"{self.samples} samples: there must be at least one"),
        ):
            if not good:
                raise ValueError(problem)
        matrix = np.array(self.covariance, float)
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2).min())
        slack = 1e-9 * float(np.abs(matrix).max())
        if abs(matrix[0, 1] - matrix[1, 0]) > slack or lowest < -slack:
            raise ValueError("covariance must be symmetric and positive semidefinite")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, without the residuals."""
        record = asdict(replace(self, responses=()))
        del record["responses"]
        return json.loads(json.dumps(record))  # with lists, as it will be read

    @classmethod
    def from_record(cls, record: Any) -> IdentifiedModel:
        """Check and read plain values, from a source that is not trusted."""
        kinds = get_type_hints(cls) | dict.fromkeys(ESTIMATES, Any)
        del kinds["responses"]
        check_record(record, kinds, "model")
        values: dict[str, Any] = dict(record)
        values |= {key: Estimate.from_record(record[key], key) for key in ESTIMATES}
        values["covariance"] = tuple(map(tuple, record["covariance"]))
        values["remarks"] = tuple(record["remarks"])
        return cls(**values)


def fitted_swing(
    model: IdentifiedModel | None = None,
    gains: Literal["fixed", "drawn", "worst"] = "fixed",
    points: int | None = None,
) -> Swing:
    """The drone with gains and speed as they were fitted, and what to make of their uncertainty.

    fixed: as if they were exact · drawn: each rollout draws its own from the fit's normal
    distribution · worst: a rollout costs what it costs the worst of the corners of the intervals,
    or of a grid with so many points along each.
    """
    if points is not None and gains != "worst":
        raise ValueError(f"points = {points} has no effect with {gains} gains: only with worst")
    if model is None:
        if gains != "fixed":
            raise ValueError(f"{gains} gains need a model that was fitted: give --model FILE")
        return Swing()
    if not model.fits:
        raise ValueError(
            "the model does not fit its logs, so neither gains nor intervals mean anything: "
            f"{' '.join(model.remarks)}"
        )
    task = Swing(k_u=model.k_u.value, k_p=model.k_p.value, speed=model.speed.value)
    if gains == "fixed":
        return task
    estimates = {"k_u": model.k_u, "k_p": model.k_p, "speed": model.speed}
    for name, estimate in estimates.items():
        if estimate.low <= 0:
            few = f"{name} may be as small as {estimate.low:g}"
            raise ValueError(f"{few}: it is not known well enough, fly longer")
    if gains == "worst":
        k_u, k_p, speed = ((each.low, each.high) for each in estimates.values())
        worst = WorstGains(k_u, k_p, speed, points or WorstGains.points, model.confidence)
        return replace(task, uncertainty=worst)
    (k_u_variance, both), (_, k_p_variance) = model.covariance
    k_u_sd, k_p_sd = math.sqrt(max(k_u_variance, 0)), math.sqrt(max(k_p_variance, 0))
    correlation = both / (k_u_sd * k_p_sd) if k_u_sd * k_p_sd > 0 else 0.0
    speed_sd = model.speed.margin / float(scipy.stats.norm.ppf((1 + model.confidence) / 2))
    drawn = DrawnGains(k_u_sd, k_p_sd, min(max(correlation, -1.0), 1.0), speed_sd)
    return replace(task, uncertainty=drawn)


def read_model(file: str | Path) -> IdentifiedModel:
    """Read a file that `pbc swing identify --json FILE` wrote."""
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model at {path}: make one with pbc swing identify")
    try:
        return IdentifiedModel.from_record(read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}; give a file of pbc swing identify --json") from None
