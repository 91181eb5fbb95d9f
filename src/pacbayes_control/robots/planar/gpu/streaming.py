"""Rollouts on a GPU in parts: while one is rolled out, the next ones are drawn and sent."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar.gpu.compiling import loaded
from pacbayes_control.robots.planar.gpu.kernel import GROUP, HELD, OWN_GROUP, THREADS, TOGETHER, Work

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.drivers import Fixed, Inputs
    from pacbayes_control.tasks.environments import Environments

LAUNCH = 1 << 21  # rollouts that are sent at a time
WEIGHTS = 1 << 25  # the same, of weights where each environment has policies of its own
AHEAD = 4  # parts that are drawn while others are rolled out
ROLLOUTS = 1024  # of a block of threads, where that leaves enough blocks
BLOCKS = 2048  # that are enough
CACHED = 4096  # weights of the policies of a block, which should stay close to its threads
FULL = 512  # rollouts of a block with enough work for all of its threads


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
    keys, column = noise or (np.zeros(len(costs), np.uint64), 0)
    walls, start = cuda.to_device(fixed.walls.reshape(-1)), cuda.to_device(fixed.start)
    fan = tuple(map(float, fixed.rays[1:].T.reshape(-1)))
    about = walls, fixed.horizon, fixed.radius, start, fixed.steps
    streams, launched = deque([cuda.stream(), cuda.stream()]), deque()

    def sent(part: slice) -> Sent:
        return as_sent(inputs(part), keys[part], fixed)

    def finish() -> None:
        stream, found, _ = launched.popleft()
        for on_device, here in found:
            on_device.copy_to_host(here, stream)
        stream.synchronize()
        streams.append(stream)

    for part, given in _ahead(sent, parts):
        if not streams:
            finish()
        stream, shape = streams.popleft(), (len(given.counts), policies)
        on_device = Sent(*(cuda.to_device(each.reshape(-1), stream) for each in given))
        hits = cuda.device_array(shape, np.uint8, stream=stream)
        gaps = cuda.device_array(shape if measured else (1, 1), dtype, stream=stream)
        most, constants = given.obstacles.shape[1], given.models.shape[2]
        grid, width, deep = _blocks(*shape, given.weights.shape[2], 4 * most)
        work = Work(
            fan, float(fixed.rays[0, -1]), fixed.hidden, measured, noise is not None,
            float(fixed.offset), deep * 4 * most <= HELD, given.weights.shape[3], dtype,
        )  # fmt: skip
        kernel_for(work)[grid, work.threads, stream](
            on_device.weights, own_size(given.weights), on_device.obstacles, most, on_device.counts,
            on_device.far, *about, fixed.range_noise, on_device.models, own_size(given.models),
            constants, on_device.keys, column, width, deep, hits, gaps,
        )  # fmt: skip
        found = [(hits, costs[part]), *([(gaps, closest[part])] if measured else [])]
        launched.append((stream, found, on_device))
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
    """Each part with its inputs, while threads draw the next ones, if there are any."""
    first, *others = parts
    if not others:
        yield first, inputs(first)
        return
    left, drawn = iter([first, *others]), deque()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, AHEAD)) as threads:
        while True:
            for part in islice(left, AHEAD - len(drawn)):
                drawn.append((part, threads.submit(inputs, part)))
            if not drawn:
                return
            part, given = drawn.popleft()
            yield part, given.result()


class Sent(NamedTuple):
    """The inputs of some rollouts as the kernel takes them; it reads the flat memory of each."""

    weights: NDArray  # (1 or environments, groups of policies, rows, policies of a group)
    obstacles: NDArray  # (environments, most, 4); NaN beyond a count
    counts: NDArray  # (environments,), at most `most`, which is a multiple of TOGETHER
    far: NDArray  # (environments,), squared, the furthest that a centre is in reach
    models: NDArray  # (1 or environments, policies, constants)
    keys: NDArray  # (environments,), of the random numbers


def as_sent(given: Inputs, keys: NDArray[np.uint64], fixed: Fixed) -> Sent:
    """The inputs in the kernel's order. What a count leads to is never beyond the end of a row."""
    n, most, _ = given.obstacles.shape
    counts = np.clip(given.counts, 0, most).astype(np.int32)
    there, radii = np.arange(most) < counts[:, None], given.obstacles[..., 2]
    obstacles = np.full((n, -(-most // TOGETHER) * TOGETHER, 4), np.nan, given.obstacles.dtype)
    np.copyto(obstacles[:, :most, :3], given.obstacles, where=there[..., None])
    obstacles[:, :most, 3] = (radii + fixed.radius) ** 2
    far = (fixed.horizon + (radii * there).max(axis=1, initial=0)) ** 2
    own, rows, policies = given.weights.shape
    rays = fixed.rays.shape[1]
    group = GROUP if own == 1 else OWN_GROUP
    weights = np.zeros((own, rows, -(-policies // group) * group), given.weights.dtype)
    weights[..., :policies] = given.weights
    fold(weights[:, rays:].reshape(own, -1, rays + 2, weights.shape[2])[:, :, :rays])
    grouped = np.ascontiguousarray(weights.reshape(own, rows, -1, group).swapaxes(1, 2))
    models = np.ascontiguousarray(given.models.swapaxes(1, 2))
    return Sent(grouped, obstacles, counts, far, models, keys)


def fold(units: NDArray) -> None:
    """Turn weights of rays into those of sums and differences of mirrored rays, in place.

    units: (…, rays, policies); the differences are last, in the order that `kernel.respond` has.
    """
    rays, mirrored = units.shape[-2], units[..., ::-1, :]
    sums, differences = (units + mirrored) / 2, (mirrored - units) / 2
    units[..., : rays // 2, :] = sums[..., : rays // 2, :]
    units[..., rays - rays // 2 :, :] = differences[..., rays - rays // 2 :, :]


def own_size(array: NDArray) -> int:
    """How many numbers each environment has of its own; 0 if all share the first ones."""
    return array.size // len(array) if len(array) > 1 else 0


def _blocks(
    environments: int, policies: int, rows: int, numbers: int
) -> tuple[tuple[int, int], int, int]:
    """The grid of blocks, and policies and environments of each.

    Args:
        environments: of a launch
        policies: of each environment
        rows: weights of a policy
        numbers: of an environment
    """
    width = max(8, min(64, CACHED // rows // 8 * 8))
    width = min(policies, max(width, -(-policies // 65_535)))  # the most blocks along an axis
    rollouts = min(max(environments * policies // BLOCKS, THREADS), ROLLOUTS)
    deep = max(1, rollouts // width)
    held = HELD // max(1, numbers)
    if held * width >= FULL:  # a block with fewer would have idle threads
        deep = min(deep, held)
    return (-(-environments // deep), -(-policies // width)), width, deep
