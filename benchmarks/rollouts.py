"""Time that `evaluate` adds to the rollouts themselves, and that a second process saves."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring import conclude, main, peak_mib
from pacbayes_control.cli.options import JsonFile, check_json
from pacbayes_control.rollouts import Execution, Processes, evaluate
from pacbayes_control.rollouts.processes import cores
from pacbayes_control.tasks import FunctionTask

POLICIES = 10


@dataclass(frozen=True)
class RolloutsBench:
    """Shares of the time that the rollouts take by themselves, and a ratio."""

    overhead_1ms: float  # of evaluate over a bare loop, rollouts of about 1 ms
    overhead_10ms: float
    overhead_kept_1ms: float  # the same where every piece is kept on disk
    speedup_2_processes: float  # over one, rollouts of about 5 ms, once they have started
    torch_two_workers_speedup: float  # the same for a recurrent policy of torch, by default
    torch_all_threads_speedup: float  # and where each worker has a thread for each core
    large_task_overhead: float  # of a task of 200 MB over a small one, on two workers
    rollouts: int  # of a function that does nothing
    seconds: float  # that they took, kept on disk
    bare_seconds: float  # of a bare loop
    peak_mib: float  # of this process


def bench_rollouts(
    rounds: int = 5, speedup_rollouts: int = 4000, rollouts: int = 1_000_000
) -> RolloutsBench:
    """Measure side by side: rounds of the same rollouts, by turns."""
    seconds, bare = _many(rollouts)
    peak = peak_mib()  # before torch is imported, and a large task made
    short = _overhead(0.001, 1000, rounds)
    long = _overhead(0.010, 200, rounds)
    with tempfile.TemporaryDirectory() as folder:
        kept = _overhead(0.001, 1000, rounds, Path(folder))
    speedup = _speedup(FunctionTask(_Busy(0.005), draw, "busy", parameters=1), speedup_rollouts)
    recurrent = FunctionTask(_Recurrent(), draw, "recurrent", parameters=1)
    torch_speedup = _speedup(recurrent, 400)
    torch_threads = _speedup(recurrent, 400, threads=cores())
    large = _large_task(0.005, speedup_rollouts)
    return RolloutsBench(
        overhead_1ms=short,
        overhead_10ms=long,
        overhead_kept_1ms=kept,
        speedup_2_processes=speedup,
        torch_two_workers_speedup=torch_speedup,
        torch_all_threads_speedup=torch_threads,
        large_task_overhead=large,
        rollouts=rollouts,
        seconds=seconds,
        bare_seconds=bare,
        peak_mib=peak,
    )


def draw(rng: np.random.Generator) -> dict[str, float]:
    """An environment of one number."""
    return {"level": rng.random()}


def busy(
    policy: NDArray, environment: Mapping[str, Any], rng: np.random.Generator, loops: int
) -> float:
    """A rollout that is a certain amount of work, on any machine."""
    level, x = float(environment["level"]), rng.random()
    for _ in range(loops):
        x = 3.7 * x * (1 - x)
    return float(policy[0] * x > level)


def trivial(policy: NDArray, environment: Mapping[str, Any]) -> float:
    """A rollout of a fraction of a microsecond."""
    return 1.0 if policy[0] > environment["level"] else 0.0


class _Busy:
    """A rollout of about so many seconds, as a function of its own for other processes."""

    def __init__(self, seconds: float) -> None:
        loops = 10_000
        sample = partial(busy, np.ones(1), {"level": 0.5}, np.random.default_rng(0))
        spent = min(_timed(lambda: sample(loops)) for _ in range(20))
        self.loops = max(1, round(loops * seconds / spent))
        self.spent = 0.0  # s within the rollouts of this process
        self.load = np.empty(0)  # that it carries along

    def __repr__(self) -> str:
        return f"a rollout of {self.loops} loops"

    def __call__(
        self, policy: NDArray, environment: Mapping[str, Any], rng: np.random.Generator
    ) -> float:
        started = time.perf_counter()
        cost = busy(policy, environment, rng, self.loops)
        self.spent += time.perf_counter() - started
        return cost


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _overhead(seconds: float, rollouts: int, rounds: int, folder: Path | None = None) -> float:
    """The share that evaluate takes beyond a bare loop over the same rollouts.

    What either takes is set against the time within its own rollouts, by turns: machines change
    their speed from one moment to the next by more than is to be measured.
    """
    rollout = _Busy(seconds)
    task = FunctionTask(rollout, draw, "busy", parameters=1)
    policies = np.linspace(0, 1, POLICIES)[:, None]
    environments = task.environments(max(2, rollouts // POLICIES), stream="bench")
    drawn = environments.arrays()["level"]

    def bare() -> list[list[float]]:
        rng = np.random.default_rng(0)
        rows = list(policies)
        return [[rollout(row, {"level": level}, rng) for row in rows] for level in drawn]

    def ours(number: int) -> None:
        out = folder / str(number) if folder else None
        evaluate(task, policies, environments, execution=Execution(store=out))

    def beyond(work: Callable[[], Any]) -> float:
        rollout.spent = 0.0
        return _timed(work) / rollout.spent - 1

    ours(-1)
    shares = [beyond(partial(ours, number)) - beyond(bare) for number in range(rounds)]
    return statistics.median(shares)


def _speedup(
    task: FunctionTask, rollouts: int, processes: int = 2, threads: int | None = None
) -> float:
    """The time of one process over that of several, half of the first before and half after.

    threads: of the libraries in each process; by default its share of the cores
    """
    policies = np.linspace(0, 1, POLICIES)[:, None]
    environments = task.environments(rollouts // POLICIES, stream="bench")
    half = len(environments) // 2
    evaluate(task, policies, environments[:2])  # libraries load
    one = _timed(lambda: evaluate(task, policies, environments[:half]))
    with Processes(processes, threads) as executor:
        evaluate(task, policies, environments[:8], execution=Execution(executor))  # they start
        several = _timed(
            lambda: evaluate(task, policies, environments, execution=Execution(executor))
        )
    one += _timed(lambda: evaluate(task, policies, environments[half:]))
    return one / several


class _Recurrent:
    """A recurrent network of torch that reads 100 observations one by one."""

    def __repr__(self) -> str:
        return "a recurrent policy"

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
        import torch

        if not hasattr(self, "cell"):
            torch.manual_seed(0)
            self.cell, self.out = torch.nn.LSTMCell(16, 256), torch.nn.Linear(256, 4)
        state, seen = None, torch.full((1, 16), float(environment["level"]))
        with torch.inference_mode():
            for _ in range(100):
                state = self.cell(seen, state)
                seen = torch.tanh(self.out(state[0])).repeat(1, 4)
        return float(policy[0] > float(seen[0, 0].abs()))


def _large_task(seconds: float, rollouts: int, size: int = 200_000_000) -> float:
    """The share of time that a task takes beyond a small one, both from the start of workers."""
    busy = _Busy(seconds)
    policies = np.linspace(0, 1, POLICIES)[:, None]
    taken = []
    for load in (0, size, size, 0):
        rollout = copy.copy(busy)
        rollout.load = np.random.default_rng(0).random(load // 8)
        task = FunctionTask(rollout, draw, "busy", parameters=1)
        environments = task.environments(rollouts // POLICIES, stream="bench")
        how = Execution(2)
        taken.append(_timed(partial(evaluate, task, policies, environments, execution=how)))
    return (taken[1] + taken[2]) / (taken[0] + taken[3]) - 1


def _many(rollouts: int) -> tuple[float, float]:
    """Seconds of so many rollouts of a function that does nothing, ours and of a bare loop."""
    task = FunctionTask(trivial, draw, "trivial", parameters=1)
    policies = np.linspace(0, 1, 100)[:, None]
    environments = task.environments(rollouts // 100, stream="bench")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kept"
        seconds = _timed(
            lambda: evaluate(task, policies, environments, execution=Execution(store=out))
        )

    def bare() -> None:
        rows = list(policies)
        for level in environments.arrays()["level"]:
            for row in rows:
                trivial(row, {"level": level})

    return seconds, _timed(bare)


def command(json_file: JsonFile = None) -> None:
    """Measure what evaluate adds to rollouts, and what a second process takes away.

    Example: .venv/bin/python benchmarks/rollouts.py --json bench.json
    """
    check_json(json_file)
    conclude("rollouts", bench_rollouts(), json_file)


if __name__ == "__main__":
    main(command)
