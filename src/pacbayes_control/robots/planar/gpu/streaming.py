"""Rollouts on a GPU in parts: while one is rolled out, the next ones are drawn and sent."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from threading import Lock, local
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from pacbayes_control.bounds.compiling import compiled_once
from pacbayes_control.robots.planar.gpu.compiling import loaded
from pacbayes_control.robots.planar.gpu.kernel import (
    DISC,
    GROUP,
    HELD,
    OWN_GROUP,
    THREADS,
    TOGETHER,
    Work,
)
from pacbayes_control.robots.planar.obstacles import ObstacleField
from pacbayes_control.tasks.environments import in_a_line

if TYPE_CHECKING:
    from pacbayes_control.robots.planar.drivers import Fixed
    from pacbayes_control.tasks.environments import Arrays, Environments

LAUNCH, FIRST = 1 << 21, 1 << 17  # rollouts that are sent at a time, and at first
WEIGHTS = 1 << 25  # the same, of weights where each environment has policies of its own
AHEAD = 4  # parts that are drawn while others are rolled out, at most
ROLLOUTS = 512  # of a block of threads, where that leaves enough blocks
BLOCKS = 2048  # that are enough
CACHED = 24_000  # weights of the policies of a block, which should stay close to its threads
FEW = 256  # numbers that are compared with those that were sent before
FULL = 512  # rollouts of a block with enough work for all of its threads


class Sent(NamedTuple):
    """The inputs of some rollouts as the kernel takes them."""

    fields: NDArray  # (environments, 4 + 4 · discs), as `fill` says
    weights: NDArray  # (1 or environments, groups of policies, rows, policies of a group)
    models: NDArray  # (1 or environments, policies, constants)
    keys: NDArray  # (environments,), of the random numbers; empty without noise


class Lane:
    """A stream of the GPU, with memory that stays for the next rollouts."""

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.stream = cuda, cuda.stream()
        self.held: dict[str, Any] = {}
        self.parts: dict[str, Any] = {}  # of what is held, as long as was asked for last
        self.sent: dict[str, NDArray] = {}  # what is there already, of a few numbers

    def room(self, name: str, size: int, dtype: Any) -> Any:
        """An array on the GPU, of this size; what was in it is lost."""
        size, held = max(size, 1), self.held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            self.held[name] = self.parts[name] = self.cuda.device_array(size, dtype)
        elif self.parts[name].size != size:
            self.parts[name] = held[:size]
        return self.parts[name]

    def send(self, name: str, array: NDArray) -> Any:
        """The numbers of an array, on the GPU."""
        few, known = 0 < array.size <= FEW, self.sent.pop(name, np.empty(0))
        if few and array.dtype == known.dtype and np.array_equal(array, known):
            self.sent[name] = known
            return self.parts[name]
        there = self.room(name, array.size, array.dtype)
        if array.size:
            there.copy_to_device(array.reshape(-1), self.stream)
        if few:
            self.sent[name] = array.copy()
        return there


class Device:
    """The GPU: two lanes, one of which is sent to while the other one rolls out."""

    def __init__(self, cuda: Any) -> None:
        self.lanes, self.lock = (Lane(cuda), Lane(cuda)), Lock()


device = cache(Device)
drawing = local()  # whether this thread draws environments for a GPU


def roll_out(
    kernel_for: Callable[[Work], Any],
    fixed: Fixed,
    weights: NDArray,
    models: Callable[[slice], NDArray],
    environments: Environments,
    noise: tuple[NDArray[np.uint64], int] | None,
    results: Sequence[NDArray],
) -> None:
    """Fill the results, part by part.

    Args:
        kernel_for: compiles the kernel of the robot
        fixed: what all rollouts share
        weights: (1 or environments, policies, rows)
        models: (1 or environments, constants, policies) for some rows; called in threads
        environments: of the results
        noise: keys of all rows and the number of the first column, where there is noise
        results: costs (environments, policies), and distances of the same shape, or empty
    """
    if getattr(drawing, "now", False):
        raise ValueError("what draws environments for a GPU cannot roll out on it: take the CPU")
    used, (costs, closest) = device(loaded()), results
    measured, policies = closest.size > 0, costs.shape[1]
    keys, column = noise or (np.empty(0, np.uint64), 0)
    shared = grouped(weights, fixed) if len(weights) == 1 else None
    spare: deque[NDArray] = deque()  # memory for fields that is free again
    free, launched = deque(used.lanes), deque()
    threads = AHEAD if settled(environments) else 1  # a user's code may not be for several

    def sent(part: slice) -> Sent:
        own = grouped(weights[part], fixed) if shared is None else shared
        drawing.now = True
        try:
            fields = _drawn(environments[part], fixed, spare)
            own_models = np.ascontiguousarray(models(part).swapaxes(1, 2))
        finally:
            drawing.now = False
        return Sent(fields, own, own_models, keys[part])

    def finish() -> None:
        lane, part, given, found = launched.popleft()
        wanted = [here[part] for here in ((costs, closest) if measured else (costs,))]
        fetched = [np.ascontiguousarray(here) for here in wanted]  # itself, if it is in order
        for on_device, here in zip(found, fetched, strict=False):
            on_device.copy_to_host(here.reshape(-1), lane.stream)
        lane.stream.synchronize()
        for here, came in zip(wanted, fetched, strict=True):
            if came is not here:
                here[...] = came
        spare.append(given.fields)
        free.append(lane)

    with used.lock:
        for part, given in _ahead(sent, parts_of(environments, weights), threads):
            if not free:
                finish()
            lane = free.popleft()
            found = _launch(lane, kernel_for, fixed, given, policies, column, measured)
            launched.append((lane, part, given, found))  # what is sent stays until it is finished
        while launched:
            finish()


def _launch(
    lane: Lane,
    kernel_for: Callable[[Work], Any],
    fixed: Fixed,
    given: Sent,
    policies: int,
    column: int,
    measured: bool,
) -> tuple[Any, Any]:
    """Begin to roll out a part; its results, on the GPU."""
    (n, size), dtype = given.fields.shape, given.fields.dtype.type
    grid, width, deep = _blocks(n, policies, given.weights.shape[2], size)
    work = Work(
        FAN=tuple(map(float, fixed.rays[1:].T.reshape(-1))),
        EDGE=float(fixed.rays[0, -1]),
        HIDDEN=fixed.hidden,
        MEASURED=measured,
        NOISY=given.keys.size > 0,
        OFFSET=float(fixed.offset),
        KEPT=deep * size <= HELD,
        GROUP=given.weights.shape[3],
        DTYPE=dtype,
    )
    hits = lane.room("hits", n * policies, np.uint8)
    gaps = lane.room("gaps", n * policies if measured else 1, dtype)
    given_arrays = (
        lane.send("weights", given.weights),
        own_size(given.weights),
        lane.send("fields", given.fields),
        size // int(DISC),
        lane.send("world", np.concatenate([fixed.start, fixed.walls.reshape(-1)])),
        fixed.horizon,
        fixed.radius,
        fixed.steps,
        fixed.range_noise,
        lane.send("models", given.models),
        own_size(given.models),
        given.models.shape[2],
        lane.send("keys", given.keys),
        *(column, n, policies, width, deep, hits, gaps),
    )
    try:
        kernel_for(work)[grid, work.threads, lane.stream](*given_arrays)
    except (KeyError, NotImplementedError, RecursionError) as error:  # Numba's, of a rule
        raise NumbaError(in_a_line(error)) from error
    return hits, gaps


def parts_of(environments: Environments, weights: NDArray) -> Iterator[slice]:
    """Rows that are rolled out at a time: whole blocks of environments, at first only a few.

    Args:
        environments: all of them
        weights: (1 or environments, policies, weights)
    """
    own, policies, rows = weights.shape
    most = LAUNCH // policies if own == 1 else min(LAUNCH, WEIGHTS // rows) // policies
    first, at, size = environments.start, environments.start, FIRST // policies
    while at < environments.stop:
        whole = max(environments.block, min(size, most))
        end = min((at + whole) // environments.block * environments.block, environments.stop)
        yield slice(at - first, end - first)
        at, size = end, 2 * size


def _ahead(
    sent: Callable[[slice], Sent], parts: Iterable[slice], threads: int = AHEAD
) -> Iterator[tuple[slice, Sent]]:
    """Each part with its inputs, while threads draw the next ones, if there are any."""
    first, *others = parts
    if not others:
        yield first, sent(first)
        return
    left, drawn, most = iter([first, *others]), deque(), min(os.cpu_count() or 1, threads)
    with ThreadPoolExecutor(most) as pool:
        while True:
            for part in islice(left, most - len(drawn)):
                drawn.append((part, pool.submit(sent, part)))
            if not drawn:
                return
            part, given = drawn.popleft()
            yield part, given.result()


def _drawn(
    environments: Environments, fixed: Fixed, spare: deque[NDArray], most: int = 0
) -> NDArray:
    """The fields of some environments, block by block: what is drawn stays in the cache.

    most: discs of an environment, as far as is known
    """
    fields, done, dtype = np.empty((0, 0)), 0, fixed.start.dtype
    for block in environments.chunks(environments.block):
        arrays = _arrays(block)
        obstacles, n = np.asarray(arrays["obstacles"], dtype), len(block)
        if done and obstacles.shape[1] > most:  # a user's distribution: begin again, with more room
            spare.append(fields)
            return _drawn(environments, fixed, spare, obstacles.shape[1])
        if not done:
            most = -(-max(most, obstacles.shape[1]) // TOGETHER) * TOGETHER
            fields = _memory(len(environments), (1 + most) * int(DISC), dtype, spare)
        fill(fields[done : done + n], obstacles, arrays["counts"], fixed.horizon, fixed.radius)
        done += n
    return fields


def _arrays(block: Environments) -> Arrays:
    """Environments of one block, which is remembered if they are but a part: the next may follow.

    So it is for the steps of a search. A user's distribution is drawn each time: it may change.
    """
    first = block.start // block.block * block.block
    if len(block) == block.block or not settled(block):
        return block.arrays()
    arrays = _whole(replace(block, start=first, stop=first + block.block))
    return {name: array[block.start - first : block.stop - first] for name, array in arrays.items()}


def settled(environments: Environments) -> bool:
    """Whether they are drawn by the library's own code from numbers that cannot change."""
    return type(getattr(environments.draw, "__self__", None)) is ObstacleField


@lru_cache(maxsize=2)
def _whole(block: Environments) -> Arrays:
    return block.arrays()


def _memory(n: int, size: int, dtype: np.dtype, spare: deque[NDArray]) -> NDArray:
    """An array (n, size): what is free again, if it is large enough, or new."""
    found = spare.popleft() if spare else np.empty(0, dtype)
    whole = found if found.base is None else found.base
    if whole.size < n * size:
        whole = np.empty(n * size, dtype)
    return whole[: n * size].reshape(n, size)


@compiled_once(nogil=True)
def fill(fields, obstacles, counts, horizon, radius):
    """Write environments as the kernel reads them: four numbers at a time.

    First the number of discs, and squared the furthest that the centre of one is in reach. Then of
    each disc x, y and the radius, which is NaN beyond the number of discs, so that it is never in
    sight; and the square of the distance at which the robot touches it.
    """
    for e in range(len(fields)):
        count, largest = min(max(counts[e], 0), obstacles.shape[1]), radius - radius
        fields[e, 4:] = np.nan
        for j in range(count):
            size, at = obstacles[e, j, 2], 4 * j + 4
            fields[e, at], fields[e, at + 1] = obstacles[e, j, 0], obstacles[e, j, 1]
            fields[e, at + 2], fields[e, at + 3] = size, (size + radius) * (size + radius)
            largest = max(largest, size)
        fields[e, 0], fields[e, 1] = count, (horizon + largest) * (horizon + largest)


def grouped(weights: NDArray, fixed: Fixed) -> NDArray:
    """Weights (1 or environments, policies, rows) side by side, as the kernel reads them."""
    own, policies, rows = weights.shape
    group = GROUP if own == 1 else OWN_GROUP
    groups, rays = -(-policies // group), fixed.rays.shape[1]
    padded = np.zeros((own, groups * group, rows), weights.dtype)
    padded[:, :policies] = weights
    fold(padded[..., rays:].reshape(own, groups * group, -1, rays + 2)[..., :rays])
    return np.ascontiguousarray(padded.reshape(own, groups, group, rows).swapaxes(2, 3))


def fold(units: NDArray) -> None:
    """Turn weights of rays into those of sums and differences of mirrored rays, in place.

    units: (…, rays); the differences are last, in the order that `kernel.respond` has.
    """
    half, mirrored = units.shape[-1] // 2, units[..., ::-1]
    sums, differences = (units + mirrored) / 2, (mirrored - units) / 2
    units[..., :half] = sums[..., :half]
    units[..., units.shape[-1] - half :] = differences[..., units.shape[-1] - half :]


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
