"""The vehicle's simulator against PyBullet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from measuring import Scale, conclude, main, peak_mib, repeat
from pacbayes_control.cli.options import MOST, JsonFile, Seed, check_json
from pacbayes_control.report.console import progress_bars
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle.bullet import BulletVehicle
from pacbayes_control.rollouts import Execution, mean_costs


@dataclass(frozen=True)
class VehicleBench:
    """Ours on all cores against PyBullet in one process, on the same environments."""

    environments: int
    policies: int
    rollouts_per_second: float
    reference_rollouts_per_second: float
    ratio: float
    agreement: float  # share of rollouts that end alike
    mean_cost: float
    reference_mean_cost: float
    scaling: list[Scale]


def bench_vehicle(
    environments: int = 120,
    scale_to: int = 16_384,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> VehicleBench:
    """Time both simulators on the paper's 50 policies, then ours at growing sizes."""
    task, bullet = Vehicle(), BulletVehicle()
    policies = task.policies
    sample = task.environments(environments, stream="bench", seed=seed)
    task.costs(policies, sample[:1])  # compiles
    ours, seconds = repeat(lambda: task.costs(policies, sample))
    bullet.costs(policies[:1], sample[:1])  # loads PyBullet
    started = time.perf_counter()
    reference = bullet.costs(policies, sample, progress=progress)
    reference_seconds = time.perf_counter() - started
    return VehicleBench(
        environments=environments,
        policies=len(policies),
        rollouts_per_second=ours.size / seconds,
        reference_rollouts_per_second=reference.size / reference_seconds,
        ratio=reference_seconds / seconds,
        agreement=float((ours == reference).mean()),
        mean_cost=float(ours.mean()),
        reference_mean_cost=float(reference.mean()),
        scaling=scale_vehicle(scale_to, seed),
    )


def scale_vehicle(largest: int, seed: int = 0) -> list[Scale]:
    """Time and memory for a quarter, a half and all of `largest` environments, then of policies."""
    task = Vehicle()
    grid = task.policies
    sizes = [(max(1, largest // 4), 1), (max(1, largest // 2), 1), (largest, 1)]
    sizes += [(max(1, largest // 4), 2), (max(1, largest // 4), 4)]
    scales = []
    for n, copies in sizes:
        policies = np.concatenate([grid] * copies)
        environments = task.environments(n, stream="bench scale", seed=seed)
        started = time.perf_counter()
        mean_costs(task, policies, environments)
        seconds = time.perf_counter() - started
        per_rollout = seconds / (n * len(policies)) * 1e6
        scales.append(Scale(n, len(policies), per_rollout, peak_mib()))
    return scales


def command(
    environments: Annotated[
        int, typer.Option(min=1, max=MOST, help="Environments that PyBullet simulates too.")
    ] = 120,
    scale_to: Annotated[
        int, typer.Option(min=4, max=MOST, help="Environments of the largest scaling run.")
    ] = 16_384,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure the vehicle's simulator against PyBullet, on the same environments.

    Example: .venv/bin/python benchmarks/vehicle.py --json bench.json
    """
    check_json(json_file)
    with progress_bars() as tell:
        told = Execution(progress=tell, title="PyBullet rollouts").tell
        result = bench_vehicle(environments, scale_to, seed, told)
    conclude("vehicle", result, json_file)


if __name__ == "__main__":
    main(command)
