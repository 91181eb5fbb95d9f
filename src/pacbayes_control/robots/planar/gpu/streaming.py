"""Rollouts on a GPU in parts: while one is rolled out, the next ones are drawn and sent."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar.gpu.compiling import loaded
from pacbayes_control.robots.planar.gpu.kernel import GROUP, THREADS, Work

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.drivers import Fixed, Inputs
    from pacbayes_control.tasks.environments import Environments

LAUNCH = 1 << 21  # rollouts that are sent at a time
WEIGHTS = 1 << 25  # the same, of weights where each environment has policies of its own
AHEAD = 4  # parts that are drawn while others are rolled out
ROLLOUTS = 1024  # of a block of threads, where that leaves enough blocks
BLOCKS = 2048  # that are enough
CACHED = 4096  # weights of the policies of a block, which should stay close to its threads


def roll_out(
    kernel_for: Callable[[Work], Any],
    fixed: Fixed,
    inputs: Callable[[slice], Inputs],
    parts: Iterable[slice],
    noise: tuple[NDArray[np.uint64], int] | None,
    results: Sequence[NDArray],
) -> None:
    """Fill the results, part by part.

    Args:
        kernel_for: compiles the kernel of the robot
        fixed: what all rollouts share
        inputs: of some rows of the results; called in threads
        parts: the rows
        noise: keys of all rows and the number of the first column, where there is noise
        results: costs (environments, policies), and distances of the same shape, or empty
    """
    cuda, (costs, closest) = loaded(), results
    measured, policies = closest.size > 0, costs.shape[1]
    dtype = closest.dtype.type
    work = Work(fixed.rays.shape[1], fixed.hidden, measured, noise is not None, dtype)
    kernel = kernel_for(work)
    keys, column = noise or (np.zeros(len(costs), np.uint64), 0)
    walls, rays, start = map(cuda.to_device, (fixed.walls, fixed.rays.reshape(-1), fixed.start))
    about = walls, rays, fixed.horizon, fixed.radius, start, fixed.steps, fixed.offset
    streams, launched = deque([cuda.stream(), cuda.stream()]), deque()

    def finish() -> None:
        stream, found, _ = launched.popleft()
        for on_device, here in found:
            on_device.copy_to_host(here, stream)
        stream.synchronize()
        streams.append(stream)

    for part, given in _ahead(inputs, parts):
        if not streams:
            finish()
        stream, shape = streams.popleft(), (len(given.counts), policies)
        sent = [cuda.to_device(each, stream) for each in _as_sent(given, keys[part])]
        weights, obstacles, counts, models, row_keys = sent
        hits = cuda.device_array(shape, np.uint8, stream=stream)
        gaps = cuda.device_array(shape if measured else (1, 1), dtype, stream=stream)
        own = weights.size // len(given.weights) if len(given.weights) > 1 else 0
        grid, width, deep = _blocks(*shape, given.weights.shape[1])
        kernel[grid, work.threads, stream](
            weights, own, obstacles, given.obstacles.shape[1], counts, *about, fixed.range_noise,
            models, row_keys, column, width, deep, hits, gaps,
        )  # fmt: skip
        found = [(hits, costs[part]), *([(gaps, closest[part])] if measured else [])]
        launched.append((stream, found, sent))
    while launched:
        finish()


def parts_of(environments: Environments, weights: NDArray) -> Iterator[slice]:
    """Rows that are rolled out at a time: whole blocks of environments, at first only a few.

    Args:
        environments: all of them
        weights: (1 or environments, policies, weights)
    """
    own, policies, rows = weights.shape
    most = LAUNCH // policies if own == 1 else min(LAUNCH, WEIGHTS // rows) // policies
    first, at, size = environments.start, environments.start, environments.block
    while at < environments.stop:
        end = min((at + size) // environments.block * environments.block, environments.stop)
        yield slice(at - first, end - first)
        at, size = end, max(environments.block, min(2 * size, most))


def _ahead(
    inputs: Callable[[slice], Inputs], parts: Iterable[slice]
) -> Iterator[tuple[slice, Inputs]]:
    """Each part with its inputs, while threads draw the next ones."""
    left, drawn = iter(parts), deque()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, AHEAD)) as threads:
        while True:
            for part in islice(left, AHEAD - len(drawn)):
                drawn.append((part, threads.submit(inputs, part)))
            if not drawn:
                return
            part, given = drawn.popleft()
            yield part, given.result()


def _as_sent(given: Inputs, keys: NDArray[np.uint64]) -> list[NDArray]:
    """The inputs as the kernel takes them.

    No count leads beyond the end of a row: the memory behind it is another's.
    """
    counts = np.clip(given.counts, 0, given.obstacles.shape[1]).astype(np.int32)
    own, rows, policies = given.weights.shape
    weights = np.zeros((own, rows, -(-policies // GROUP) * GROUP), given.weights.dtype)
    weights[..., :policies] = given.weights
    grouped = weights.reshape(own, rows, -1, GROUP).swapaxes(1, 2).reshape(-1)
    obstacles = np.append(given.obstacles, np.zeros(9, given.obstacles.dtype))  # read in vain
    return [grouped, obstacles, counts, given.models, keys]


def _blocks(environments: int, policies: int, rows: int) -> tuple[tuple[int, int], int, int]:
    """The grid of blocks, and policies and environments of each."""
    width = max(8, min(64, CACHED // rows))
    width = min(policies, max(width, -(-policies // 65_535)))  # the most blocks along an axis
    rollouts = min(max(environments * policies // BLOCKS, THREADS), ROLLOUTS)
    deep = max(1, rollouts // width)
    return (-(-environments // deep), -(-policies // width)), width, deep
