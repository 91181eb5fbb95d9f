"""The Swing from a model that was fitted, or from a run's record."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import scipy

from pacbayes_control.certify.files import read_json
from pacbayes_control.certify.run import Run
from pacbayes_control.robots.swing.gains import DrawnGains, WorstGains
from pacbayes_control.robots.swing.identification.identified import IdentifiedModel
from pacbayes_control.robots.swing.simulator import Swing
from pacbayes_control.tasks.registry import recorded_task


def fitted_swing(
    model: IdentifiedModel | None = None, gains: Literal["fixed", "drawn", "worst"] = "fixed"
) -> Swing:
    """The drone with gains and speed as they were fitted, and what to make of their uncertainty.

    fixed: as if they were exact · drawn: each rollout draws its own from the fit's normal
    distribution · worst: a rollout costs what it costs the worst of the corners of the intervals.
    """
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
        return replace(task, uncertainty=WorstGains(k_u, k_p, speed, confidence=model.confidence))
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
        raise ValueError(f"{path}: {error}") from None


def recorded_swing(run: Run[Any]) -> Swing:
    """The drone that `pbc learn swing` made a run with; an error where the run is of another task.

    A run is a stranger's: the drone must draw the environments that the run says it counts.
    """
    origin: Any = run.costs.origin
    words = str(origin.get("task", ""))
    if not words.startswith("swing "):
        of = f"of the task {words.split()[0]}" if words.strip() else "of a table of costs"
        raise ValueError(f"the run is {of}, and not of the Swing")
    if "settings" not in origin:
        raise ValueError("the run is of a Swing that its record does not describe")
    task = recorded_task(run.costs)
    assert isinstance(task, Swing)
    return task
