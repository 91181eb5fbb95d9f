"""Rollouts on a GPU: how many a second, and whether they end as on the CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from measuring import Scale, conclude, main, peak_mib, repeat
from pacbayes_control.cli.options import MOST, JsonFile, Seed, check_json
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import drivers
from pacbayes_control.robots.planar.gpu import compiling
from pacbayes_control.robots.vehicle import priors
from pacbayes_control.robots.vehicle.pretrained import NETWORK, pretrained
from pacbayes_control.rollouts import Execution, mean_costs
from pacbayes_control.tasks import Environments

NETWORKS = 64  # policies, as a search asks for in each step
COMPARED = 20_000  # environments whose costs are compared with the CPU's, at most
ON_GPU = Execution(device="cuda")


@dataclass(frozen=True)
class GpuBench:
    """The first table's work, networks of 16 hidden units, and the search for a prior."""

    device: str
    environments: int
    policies: int
    rollouts_per_second: float  # with everything: drawing, sending, fetching, averaging
    kernel_rollouts_per_second: float  # of the kernel alone, timed by the GPU
    cpu_rollouts_per_second: float  # on all cores
    ratio: float
    agreement: float  # share of rollouts that cost the same as on the CPU
    mean_cost: float
    cpu_mean_cost: float
    network_rollouts_per_second: float
    network_agreement: float
    pretrain_steps: int
    pretrain_seconds: float  # compiling included
    scaling: list[Scale]


def bench_gpu(environments: int = 4_000_000, steps: int = priors.STEPS, seed: int = 0) -> GpuBench:
    """Time and compare; the kernels are compiled before, but for the search's."""
    here = Vehicle()
    task, policies = here.on_device("cuda"), here.policies
    started = time.perf_counter()
    priors.pretrain(here, steps, seed, ON_GPU)
    pretraining = time.perf_counter() - started
    drawn = task.environments(environments, stream="bench", seed=seed)
    few = drawn[: min(COMPARED, environments)]
    costs, cpu_costs, cpu_seconds = _compared(here, policies, few)
    _, seconds = repeat(lambda: mean_costs(task, policies, drawn))
    network = replace(here, controller=NETWORK)
    sample = pretrained()[0].sample(np.random.default_rng(seed), NETWORKS)
    network_costs, same, _ = _compared(network, sample, few)
    many = replace(network, device="cuda")
    _, network_seconds = repeat(lambda: mean_costs(many, sample, drawn))
    speed = environments * len(policies) / seconds
    cpu_speed = cpu_costs.size / cpu_seconds
    return GpuBench(
        device=task.hardware,
        environments=environments,
        policies=len(policies),
        rollouts_per_second=speed,
        kernel_rollouts_per_second=_kernel_alone(task, drawn[: 10 * COMPARED]),
        cpu_rollouts_per_second=cpu_speed,
        ratio=speed / cpu_speed,
        agreement=float((costs == cpu_costs).mean()),
        mean_cost=float(costs.mean()),
        cpu_mean_cost=float(cpu_costs.mean()),
        network_rollouts_per_second=environments * NETWORKS / network_seconds,
        network_agreement=float((network_costs == same).mean()),
        pretrain_steps=steps,
        pretrain_seconds=pretraining,
        scaling=_scaling(task, environments, seed),
    )


def _compared(
    task: Vehicle, policies: NDArray, environments: Environments
) -> tuple[NDArray, NDArray, float]:
    """Costs on the GPU and on the CPU, and the seconds that the CPU took."""
    task.costs(policies[:1], environments[:1])  # compiles
    task.on_device("cuda").costs(policies[:1], environments[:1])
    cpu, seconds = repeat(lambda: task.costs(policies, environments), 0.0)
    return task.on_device("cuda").costs(policies, environments), cpu, seconds


def _kernel_alone(task: Vehicle, environments: Environments) -> float:
    """Rollouts a second in a launch: all environments are one block, and so one part."""
    cuda, plain, seconds = compiling.loaded(), drivers.kernel_for, []
    block = replace(environments, block=len(environments))

    class Timed:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, launch: tuple[Any, ...]) -> Any:
            return lambda *given: self.call(launch, *given)

        def call(self, launch: tuple[Any, ...], *given: Any) -> None:
            before, after = cuda.event(), cuda.event()
            before.record(launch[2])
            self.kernel[launch](*given)
            after.record(launch[2])
            after.synchronize()
            seconds.append(cuda.event_elapsed_time(before, after) / 1000)

    drivers.kernel_for = lambda *robot: Timed(plain(*robot))
    try:
        for _ in range(4):
            task.costs(task.policies, block)
    finally:
        drivers.kernel_for = plain
    return len(environments) * len(task.policies) / min(seconds)


def _scaling(task: Vehicle, largest: int, seed: int) -> list[Scale]:
    """Time and memory for a quarter, a half and all of the environments."""
    found = []
    for n in (max(1, largest // 4), max(1, largest // 2), largest):
        environments = task.environments(n, stream="bench scale", seed=seed)
        started = time.perf_counter()
        mean_costs(task, task.policies, environments)
        each = (time.perf_counter() - started) / (n * len(task.policies)) * 1e6
        found.append(Scale(n, len(task.policies), each, peak_mib()))
    return found


def command(
    environments: Annotated[
        int, typer.Option(min=1, max=MOST, help="Environments, of 50 rollouts each.")
    ] = 4_000_000,
    steps: Annotated[
        int, typer.Option(min=1, max=MOST, help="Steps of the search for a prior.")
    ] = priors.STEPS,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure rollouts on this machine's NVIDIA GPU.

    A billion rollouts, and the memory that they take: --environments 20000000.

    Example: .venv/bin/python benchmarks/gpu.py --json gpu.json
    """
    check_json(json_file)
    conclude("gpu", bench_gpu(environments, steps, seed), json_file)


if __name__ == "__main__":
    main(command)
