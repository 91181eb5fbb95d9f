"""The grasping simulator against PyBullet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from bullet_grasping import bullet_endings
from measuring import Scale, conclude, main, peak_mib, repeat
from pacbayes_control.cli.options import JsonFile, Seed, check_json
from pacbayes_control.report.console import say
from pacbayes_control.robots.grasping.robots import Arm
from pacbayes_control.robots.grasping.simulator import LIFTED
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Execution
from pacbayes_control.rollouts.evaluation import table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.environments import generator

Floats = NDArray[np.float64]

HALF_WIDTH = 0.03  # m, around the centroid, as in the grid of labels


@dataclass(frozen=True)
class GraspingBench:
    """Ours on all cores against PyBullet in one process and the arm, on the same grasps.

    What is of PyBullet is None where it is not installed.
    """

    objects: int
    grasps: int  # of each object
    grasps_per_second: float
    reference_grasps_per_second: float | None
    ratio: float | None
    agreement: float | None  # share of grasps that both lift, or neither
    success: float  # share of grasps that lift
    reference_success: float | None
    arm_grasps_per_second: float  # of the arm in place of the floating gripper, on all cores
    arm_agreement: float  # share of the same grasps that both lift, or neither
    scaling: list[Scale]


def bench_grasping(
    objects: int = 40,
    per_object: int = 25,
    reference: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> GraspingBench:
    """Time random grasps of objects at rest in both simulators, then ours at growing sizes.

    reference: False leaves PyBullet out, as where it is not installed.
    """
    task = Grasping()
    sample = task.environments(objects, "bench", seed)
    arrays, offsets = sample.arrays(), random_offsets(objects, per_object, seed)
    _ours(task, sample[:1], offsets[:1, :1])  # loads MuJoCo
    ours, seconds = repeat(lambda: _ours(task, sample, offsets))
    started = time.perf_counter()
    arm = _ours(replace(task, robot=Arm()), sample, offsets)
    arm_seconds = time.perf_counter() - started
    theirs, reference_seconds = None, 0.0
    if reference and find_spec("pybullet") is not None:
        grasps = offsets + np.insert(arrays["centroid"], 2, 0.0, axis=1)[:, None]
        bullet_endings(task.tabletop, arrays, [0], grasps[:1, :1])  # loads PyBullet
        started = time.perf_counter()
        ends = bullet_endings(task.tabletop, arrays, range(objects), grasps, progress=progress)
        reference_seconds = time.perf_counter() - started
        theirs = ends != LIFTED
    return GraspingBench(
        objects=objects,
        grasps=per_object,
        grasps_per_second=ours.size / seconds,
        reference_grasps_per_second=None if theirs is None else theirs.size / reference_seconds,
        ratio=None if theirs is None else reference_seconds / seconds,
        agreement=None if theirs is None else float((ours == theirs).mean()),
        success=float((ours == 0).mean()),
        reference_success=None if theirs is None else float((~theirs).mean()),
        arm_grasps_per_second=ours.size / arm_seconds,
        arm_agreement=float((ours == arm).mean()),
        scaling=scale_grasping(task, sample, per_object, seed),
    )


def scale_grasping(
    task: Grasping, sample: Environments, per_object: int, seed: int = 0
) -> list[Scale]:
    """Time and memory for a quarter, a half and all of the objects, then for more grasps of each.

    A `Scale` has objects as environments and the grasps of each as policies.
    """
    most = len(sample)
    quarter, half = max(1, most // 4), max(1, most // 2)
    sizes = [(quarter, 1), (half, 1), (most, 1), (quarter, 2), (quarter, 4)]
    scales = []
    for objects, times in sizes:
        offsets = random_offsets(objects, times * per_object, seed)
        started = time.perf_counter()
        _ours(task, sample[:objects], offsets)
        per_grasp = (time.perf_counter() - started) / (objects * offsets.shape[1]) * 1e6
        scales.append(Scale(objects, offsets.shape[1], per_grasp, peak_mib()))
    return scales


def random_offsets(objects: int, per_object: int, seed: int = 0) -> Floats:
    """Grasps anywhere near the centroids and at any angle, (objects, per_object, 3).

    >>> random_offsets(2, 5).shape
    (2, 5, 3)
    """
    low, high = [-HALF_WIDTH, -HALF_WIDTH, 0.0], [HALF_WIDTH, HALF_WIDTH, np.pi]
    rng = generator(seed, "bench", 0, "policies")
    return rng.uniform(low, high, size=(objects, per_object, 3))


def _ours(task: Grasping, sample: Environments, offsets: Floats) -> NDArray:
    """Which grasps (objects, per object, 3) of objects fail, on all cores."""
    return table_of(Job(task, sample, offsets), Execution(os.cpu_count()))


def command(seed: Seed = 0, json_file: JsonFile = None) -> None:
    """Measure the grasping simulator against PyBullet, where that is installed.

    Example: .venv/bin/python benchmarks/grasping.py --json bench.json
    """
    check_json(json_file)
    result = bench_grasping(seed=seed)
    conclude("grasping", result, json_file)
    if result.ratio is None:
        say("PyBullet is not installed, so there is no reference: pip install '.[pybullet]'")


if __name__ == "__main__":
    main(command)
