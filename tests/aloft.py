"""Shared by tests of flights: a task, a run, cylinders, and simulated stages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots.swing import Swing
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.log import FlightRecord, FlightRecorder
from pacbayes_control.robots.swing.flight.loop import fly_once
from pacbayes_control.robots.swing.flight.stages import Pilot, Stage, place_of, virtual_stage
from pacbayes_control.robots.swing.flight.world import Fault, Physics, WorldSetup
from pacbayes_control.rollouts.evaluation import origin_of
from pacbayes_control.tasks.task import noise_of

TASK = Swing()
GOOD = TASK.policies[35]  # the best of the paper's hundred
CALM = np.array([[-2.5, 8.0, 0.3], [2.5, 9.0, 0.3], [-2.6, 12.0, 0.4]])  # room in the middle
WALL = np.array([[x, 6.0, 0.5] for x in np.arange(-3.0, 3.5, 0.9)])  # no way through
SEED = 7


def certified(task: Any = TASK) -> Run[Any]:
    """A run with made-up costs: a dozen good policies, and the others fail every second time."""
    policies, n = task.policies, 100
    good = np.isin(np.arange(len(policies)), [21, 23, 29, 30, 37, 48, 49, 54, 55, 56, 57, 58])
    failed = np.arange(n)[:, None] % np.where(good, 20, 2) == 0
    train = task.environments(n, stream="train")
    origin = origin_of(task, train, noise_of(task, train, None))
    return learn_finite(Costs(failed, (), origin, parameters=policies), delta=0.01, method="kl")


def pilot() -> Pilot:
    return Pilot(TASK, GOOD)


def stage(
    cylinders: np.ndarray = CALM, *faults: str, physics: Physics | None = None, seed: int = SEED
) -> Stage:
    """A simulated world in virtual time."""
    place, parsed = place_of(TASK, cylinders), tuple(Fault.parse(text) for text in faults)
    return virtual_stage(WorldSetup(place, physics or Physics(), parsed, seed))


def flown(
    where: Stage,
    cylinders: np.ndarray = CALM,
    limits: FlightLimits | None = None,
    log: FlightRecorder | None = None,
    by: Pilot | None = None,
) -> FlightRecord:
    return fly_once(by or pilot(), cylinders, where, limits, log)


def received(record: Sequence[dict[str, Any]], what: str) -> list[float]:
    """When the world received a command, or recorded an event."""
    return [entry["time"] for entry in record if entry["what"] == what]


def read_record(path: Path) -> list[dict[str, Any]]:
    """The record of a world in another process, as far as it is written."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]
