"""The Swing's simulator against the vehicle's, by ray and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measuring import conclude, main, repeat
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.robots import Planar, Swing, Vehicle

SAMPLE = 32  # environments to count steps in


@dataclass(frozen=True)
class SwingBench:
    """Both robots with the paper's policies, on all cores."""

    environments: int
    policies: int
    rollouts_per_second: float
    nanoseconds_per_ray_and_step: float  # of steps that were taken: contact ends a rollout
    vehicle_nanoseconds_per_ray_and_step: float
    ratio: float  # above 1: the Swing's are faster


def bench_swing(environments: int = 2048, seed: int = 0) -> SwingBench:
    """Time the rollouts of both in turn."""
    swing, vehicle = Swing(), Vehicle()
    rate, ours = _measured(swing, swing.policies, environments, seed)
    _, theirs = _measured(vehicle, vehicle.policies, environments, seed)
    return SwingBench(
        environments=environments,
        policies=len(swing.policies),
        rollouts_per_second=rate,
        nanoseconds_per_ray_and_step=ours,
        vehicle_nanoseconds_per_ray_and_step=theirs,
        ratio=theirs / ours,
    )


def _measured(
    task: Planar, policies: np.ndarray, environments: int, seed: int
) -> tuple[float, float]:
    """Rollouts a second, and nanoseconds a ray and step."""
    sample = task.environments(environments, stream="bench", seed=seed)
    task.costs(policies, sample[:1])  # compiles
    costs, seconds = repeat(lambda: task.costs(policies, sample), at_least=2.0)
    paths = task.paths(policies, sample[: min(SAMPLE, environments)])
    steps = float(np.mean([len(path) - 1 for row in paths for path in row]))
    return costs.size / seconds, 1e9 * seconds / (costs.size * steps * task.controller.rays)


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure the Swing's simulator against the vehicle's.

    Example: .venv/bin/python benchmarks/swing.py --json bench.json
    """
    check_json(json_file)
    conclude("swing", bench_swing(seed=seed), json_file)


if __name__ == "__main__":
    main(command)
