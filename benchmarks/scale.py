"""What a chunk costs whoever hands them out: for plans of many rollouts on many workers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measuring import conclude, main
from pacbayes_control.cli.options import JsonFile, check_json
from pacbayes_control.rollouts import Execution, cluster, evaluate, open_workers, pools
from pacbayes_control.rollouts.cluster import ClusterWorkers
from pacbayes_control.rollouts.jobs import Pace
from pacbayes_control.tasks import FunctionTask

ROLLOUT = 0.1  # seconds that a rollout sleeps: workers are light, so that one machine holds many
PORT = 18786


@dataclass(frozen=True)
class ScaleBench:
    """Costs of a chunk, and how busy many light workers are kept."""

    client_ms_per_chunk: float  # in this process: to send it, collect it and write its file
    dask_chunks_per_second: float  # of chunks that take no time, through a scheduler
    scheduler_ms_per_chunk: float  # of processor time in the scheduler
    messages_per_chunk: float  # that the scheduler receives, from workers and from this process
    workers: int  # threads of light workers on one machine
    workers_busy: float  # their share of time within rollouts, by default
    scheduler_mib: float  # of memory, at most, with these workers
    client_mib: float  # the same of this process
    files_per_second: float  # chunks listed, read and checked when a campaign is resumed


def bench_scale(chunks: int = 3000, workers: int = 200) -> ScaleBench:
    """Measure with chunks that do nothing, and with workers that sleep."""
    with tempfile.TemporaryDirectory() as folder:
        client, files = _client(chunks, Path(folder))
    with _dask(1, 2) as (executor, scheduler):
        before = _cpu(scheduler)
        rate = _rate(executor, chunks // 3)
        spent = (_cpu(scheduler) - before) / (chunks // 3)
        messages = _messages(executor, chunks // 3)
    with _dask(4, workers // 4) as (executor, scheduler):
        busy = _busy(executor, workers)
        memory = _peak_mib(scheduler)
    return ScaleBench(
        client_ms_per_chunk=1000 * client,
        dask_chunks_per_second=rate,
        scheduler_ms_per_chunk=1000 * spent,
        messages_per_chunk=messages,
        workers=workers,
        workers_busy=busy,
        scheduler_mib=memory,
        client_mib=_peak_mib(os.getpid()),
        files_per_second=files,
    )


def draw(rng: np.random.Generator) -> dict[str, float]:
    """An environment of one number."""
    return {"level": rng.random()}


def nothing(policy: NDArray, environment: Mapping[str, Any]) -> float:
    """A rollout that takes no time."""
    return float(policy[0] > environment["level"])


def sleeping(policy: NDArray, environment: Mapping[str, Any]) -> float:
    """A rollout that takes a tenth of a second, and no processor."""
    time.sleep(ROLLOUT)
    return float(policy[0] > environment["level"])


class _AtOnce(Executor):
    """A worker that takes no time: what is left is the cost of handing out."""

    _max_workers = 1000

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Single(Pace):
    """Chunks of one rollout."""

    def tell(self, rollouts: int, seconds: float) -> None:
        """Nothing: the size stays."""


@contextmanager
def _single_chunks() -> Iterator[None]:
    usual, pools.Pace = pools.Pace, _Single
    try:
        yield
    finally:
        pools.Pace = usual


def _task(rollout: Any) -> tuple[FunctionTask, NDArray]:
    return FunctionTask(rollout, draw, rollout.__name__, parameters=1), np.array([[0.5]])


def _client(chunks: int, folder: Path) -> tuple[float, float]:
    """Seconds of this process for a chunk, and files a second when it is resumed."""
    task, policies = _task(nothing)
    environments, begun = task.environments(chunks, stream="scale"), folder / "campaign"
    told: list[float] = []

    def stop(now: Any) -> None:
        told.append(time.perf_counter())
        if now.done == chunks:
            raise KeyboardInterrupt  # before the chunks become a table

    with _single_chunks():
        try:
            how = Execution(_AtOnce(), begun, progress=stop)
            evaluate(task, policies, environments, execution=how)
        except KeyboardInterrupt:
            pass
        taken = (told[-1] - told[1]) / (chunks - 1)
        started, told[:] = time.perf_counter(), []
        how = Execution(store=begun, progress=lambda _: told.append(time.perf_counter()))
        evaluate(task, policies, environments, execution=how)
    return taken, chunks / (told[0] - started)


@contextmanager
def _dask(processes: int, threads: int) -> Iterator[tuple[ClusterWorkers, int]]:
    """A real scheduler and workers, each a process of its own, and the scheduler's number."""
    address = f"tcp://127.0.0.1:{PORT}"
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "dask"]
    with ExitStack() as stack:
        scheduler = subprocess.Popen(
            [*command, "scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard"],
            **quiet,
        )
        stack.callback(scheduler.wait)
        stack.callback(scheduler.kill)
        time.sleep(3)
        for _ in range(processes):
            options = ["--nthreads", str(threads), "--no-nanny", "--no-dashboard"]
            worker = subprocess.Popen([*command, "worker", address, *options], **quiet)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        executor = stack.enter_context(cluster(address))
        executor.client.wait_for_workers(processes, timeout=60)
        yield executor, scheduler.pid


def _rate(executor: Executor, chunks: int) -> float:
    task, policies = _task(nothing)
    with _single_chunks():
        started = time.perf_counter()
        train = task.environments(chunks, stream="scale")
        evaluate(task, policies, train, execution=Execution(executor))
    return chunks / (time.perf_counter() - started)


def _busy(executor: Executor, workers: int, seconds: float = 60.0) -> float:
    """The share of time that workers spend within rollouts, once the size of a chunk is known."""
    task, policies = _task(sleeping)
    rollouts = int(workers * seconds / ROLLOUT)
    with open_workers(task, Execution(executor)) as opened:
        for n in (workers, 16 * workers):  # the size of a chunk is measured
            evaluate(task, policies, task.environments(n, stream="first"), execution=opened)
        started = time.perf_counter()
        train = task.environments(rollouts, stream="scale")
        evaluate(task, policies, train, execution=opened)
    return rollouts * ROLLOUT / workers / (time.perf_counter() - started)


def _messages(executor: ClusterWorkers, chunks: int) -> float:
    """Messages for a chunk that the scheduler gets on the streams from workers and this process."""

    def count(dask_scheduler: Any = None) -> None:  # nested: it is sent by value, not imported
        from inspect import iscoroutinefunction

        dask_scheduler.counted = 0

        def counting(handler: Any) -> Any:
            def counted(*args: Any, **kwargs: Any) -> Any:
                dask_scheduler.counted += 1
                return handler(*args, **kwargs)

            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return await counted(*args, **kwargs)

            return awaited if iscoroutinefunction(handler) else counted

        handlers = dask_scheduler.stream_handlers
        handlers.update({name: counting(handler) for name, handler in handlers.items()})

    def counted(dask_scheduler: Any = None) -> int:
        return dask_scheduler.counted

    executor.client.run_on_scheduler(count)
    _rate(executor, chunks)
    found: Any = executor.client.run_on_scheduler(counted)
    return found / chunks


def _peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _cpu(process: int) -> float:
    """Seconds of processor time that a process has spent."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command(json_file: JsonFile = None) -> None:
    """Measure what a chunk costs, for plans of many rollouts on many workers.

    Example: .venv/bin/python benchmarks/scale.py --json scale.json
    """
    check_json(json_file)
    conclude("scale", bench_scale(), json_file)


if __name__ == "__main__":
    main(command)
