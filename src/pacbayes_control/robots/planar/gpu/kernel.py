"""A rollout on a GPU: the scalar functions of `planar.kernel`, with a thread for each rollout.

A thread has one rollout at a time, and takes the next of its block when that has ended: none waits
for a longer one. It first marks the discs that its sensor can see, so that all threads of a warp
are then busy with a disc that they see, each with its own.

These functions are sources: `compiling` compiles copies of them for each robot, together with the
scalar functions and the robot's rule of motion. Names in capitals are constants there. Indices are
cast to unsigned numbers of a fixed width: for others Numba also compiles what a negative one means.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.kernel import (
    DRAWS,
    GOLDEN,
    LOST,
    F,
    U,
    across,
    ahead,
    bearing,
    bell,
    box_gap_squared,
    half_width,
    ray_box,
    ray_disc,
    scramble,
    sees,
    squash,
)

THREADS = 128  # of a block, in single precision
MARKED = 64  # discs that are marked at a time, each in a bit of a number
TOGETHER = 4  # discs that a thread looks at without a branch; a field has a multiple of them
HELD = 2560  # numbers of the fields that a block keeps in shared memory, where they fit
GROUP, OWN_GROUP = 32, 8  # policies whose weights are side by side: shared ones, and own ones


class Work(NamedTuple):
    """What a kernel is compiled for."""

    RAYS: int
    HIDDEN: int  # units of the controller
    MEASURED: bool  # whether the closest distances are wanted
    NOISY: bool
    KEPT: bool = True  # whether a block's fields fit in its shared memory
    GROUP: int = GROUP
    DTYPE: type[np.floating] = np.float32

    @property
    def threads(self) -> int:
        """Of a block, whose readings fit in its shared memory."""
        return max(1, THREADS * 4 // np.dtype(self.DTYPE).itemsize)

    @property
    def constants(self) -> dict[str, Any]:
        """The names in capitals, and the sizes that follow from them."""
        return {
            "THREADS": self.threads,
            "MARKED": MARKED,
            "TOGETHER": TOGETHER,
            **self._asdict(),
            "READINGS": self.RAYS * self.threads,
            "FAN": 3 * self.RAYS,
            "FIELDS": HELD if self.KEPT else 1,
            "WEIGHTS": self.GROUP * (self.RAYS + self.HIDDEN * (self.RAYS + 2)),
        }


RAYS, HIDDEN, MEASURED, NOISY, KEPT, _, DTYPE = Work(2, 0, False, False)  # placeholders, like
READINGS, FAN, FIELDS, WEIGHTS = 2 * THREADS, 6, HELD, 2 * GROUP  # these
cuda: Any = None
robot_moves: Any = kernel.robot_moves


def rollouts(
    weights,
    own_weights,
    obstacles,
    most,
    counts,
    walls,
    rays,
    horizon,
    radius,
    start,
    steps,
    offset,
    range_noise,
    models,
    own_models,
    constants,
    row_keys,
    first_column,
    width,
    deep,
    collided,
    closest,
):
    """The kernel: a block rolls out `width` policies in `deep` environments.

    Values and results are those of `kernel.collisions`. Arrays are flat where their places are
    computed here, and ordered as `streaming.Sent` says.

    Args:
        weights: (1 or environments, groups of policies, rows, GROUP), flat
        own_weights: how many an environment has of its own; 0 where all share the first ones
        obstacles: (environments, most, 3), flat; those beyond a count are out of sight
        most: obstacles of an environment, a multiple of TOGETHER
        counts: (environments,), at most `most`
        walls: (walls, 4), flat
        rays: (3, rays), flat
        horizon: the sensor's reach
        radius: of the robot
        start: (5,)
        steps: of a rollout
        offset: subtracted from a depth before it is inverted
        range_noise: relative
        models: (1 or environments, policies, constants), flat
        own_models: how many an environment has of its own, as for the weights
        constants: of a model
        row_keys: (environments,), of the random numbers; unused without noise
        first_column: of the first policy, in the noise
        width: policies of a block
        deep: environments of a block
        collided: the result, (environments, policies)
        closest: (environments, policies); unused where distances are not wanted
    """
    depths = cuda.shared.array(READINGS, DTYPE)
    fan = cuda.shared.array(FAN, DTYPE)
    kept = cuda.shared.array(FIELDS, DTYPE)
    taken = cuda.shared.array(1, np.int32)
    t = np.uint32(cuda.threadIdx.x)
    first_policy, first = cuda.blockIdx.y * width, cuda.blockIdx.x * deep
    wide = np.uint32(min(width, collided.shape[1] - first_policy))
    fields = np.uint32(min(deep, collided.shape[0] - first))
    total, size = np.uint32(fields * wide), np.uint32(3 * most)
    if t == 0:
        taken[0] = THREADS  # each thread begins with the rollout of its own number
    i = t
    while i < FAN:
        fan[i] = rays[i]
        i = np.uint32(i + THREADS)
    if KEPT:
        i = t
        while i < fields * size:
            kept[i] = obstacles[U(first * size) + U(i)]
            i = np.uint32(i + THREADS)
    cuda.syncthreads()
    field = kept if KEPT else obstacles
    number, step = t, np.int32(0)
    x, y, sin, cos, own = start[0], start[1], start[2], start[3], start[4]
    nearest, key = horizon, U(0)
    row, e, k = number // wide, U(first) + U(number // wide), U(first_policy) + U(number % wide)
    while number < total:
        if NOISY and step == 0:
            key = scramble((row_keys[e] + U(first_column) + k) * GOLDEN)
        discs = np.uint32(row * size) if KEPT else e * U(size)
        hit = sense_walls(x, y, sin, cos, walls, fan, horizon, radius, depths, t)
        count = counts[e]
        hit |= sense_discs(x, y, sin, cos, field, discs, count, fan, horizon, radius, depths, t)
        if MEASURED and step > 0:
            nearest = approached(x, y, field, discs, count, walls, nearest)
        if (step > 0 and hit) or step == steps:  # the rollout has ended: take the next one
            collided[e, k] = outcome(x, y, hit)
            if MEASURED:
                closest[e, k] = nearest
            number, step = np.uint32(cuda.atomic.add(taken, 0, 1)), np.int32(0)
            x, y, sin, cos, own = start[0], start[1], start[2], start[3], start[4]
            nearest, row = horizon, number // wide
            e, k = U(first) + U(row), U(first_policy) + U(number % wide)
        else:
            if NOISY:
                disturb(depths, t, range_noise, horizon, key, step)
            at = U(own_weights) * e + k // U(GROUP) * U(WEIGHTS) + k % U(GROUP)
            control = respond(weights, at, depths, offset, t)
            model = U(own_models) * e + U(constants) * k
            state, draws = (x, y, sin, cos, own), drawn(key, step) if NOISY else (F(0), F(0))
            after = robot_moves(state, control, draws, step, models, model)
            x, y = DTYPE(after[0]), DTYPE(after[1])  # a rule may compute in another precision
            sin, cos, own = DTYPE(after[2]), DTYPE(after[3]), DTYPE(after[4])
            step = np.int32(step + 1)


def outcome(x, y, hit):
    """The cost of a rollout that has ended, `LOST` if that is not known."""
    return np.uint8(hit) if abs(x) + abs(y) < F(np.inf) else LOST


def sense_walls(x, y, sin, cos, walls, fan, horizon, radius, depths, t):
    """Depths along all rays to the nearest wall; returns whether the robot touches one."""
    edge_sin, edge_cos, none = fan[2 * RAYS - 1], fan[3 * RAYS - 1], F(0)
    last_x, last_y = edge_sin * cos - edge_cos * sin, edge_cos * cos + edge_sin * sin
    first_x, first_y = -edge_sin * cos - edge_cos * sin, edge_cos * cos - edge_sin * sin
    # the furthest that the fan reaches to each side: all of the horizon where it points that way
    most_x = horizon if -sin >= edge_cos else horizon * max(max(first_x, last_x), none)
    least_x = -horizon if sin >= edge_cos else horizon * min(min(first_x, last_x), none)
    most_y = horizon if cos >= edge_cos else horizon * max(max(first_y, last_y), none)
    least_y = -horizon if -cos >= edge_cos else horizon * min(min(first_y, last_y), none)
    for i in range(RAYS):
        depths[np.uint32(i * THREADS + t)] = horizon
    at, end, hit = np.uint32(0), np.uint32(len(walls)), False
    left, right, bottom, top = none, none, none, none
    while at < end:
        reached = False
        while at < end and not reached:  # so that all threads have a wall that they reach
            left, right = walls[at] - x, walls[np.uint32(at + 1)] - x
            bottom, top = walls[np.uint32(at + 2)] - y, walls[np.uint32(at + 3)] - y
            hit |= box_gap_squared(left, right, bottom, top) <= radius * radius
            reached = (left <= most_x) & (right >= least_x) & (bottom <= most_y) & (top >= least_y)
            at = np.uint32(at + 4)
        if reached:
            for i in range(RAYS):
                ray = np.uint32(i)
                ray_sin, ray_cos = fan[np.uint32(ray + RAYS)], fan[np.uint32(ray + 2 * RAYS)]
                inverse_x = F(1) / (ray_sin * cos - ray_cos * sin)
                inverse_y = F(1) / (ray_cos * cos + ray_sin * sin)
                reading = ray_box(left, right, bottom, top, inverse_x, inverse_y, horizon)
                place = np.uint32(ray * THREADS + t)
                depths[place] = min(depths[place], reading)
    return hit


def sense_discs(x, y, sin, cos, field, discs, count, fan, horizon, radius, depths, t):
    """Reduce the depths to those of the discs; returns whether the robot touches one."""
    edge, edge_sin, edge_cos = fan[RAYS - 1], fan[2 * RAYS - 1], fan[3 * RAYS - 1]
    per_radian = F(RAYS - 1) / (F(2) * edge)
    hit, base = False, np.int32(0)
    while base < count:
        last, j, seen, at = min(count - base, MARKED), np.int32(0), U(0), discs
        while j < last:  # up to three beyond the last one are looked at in vain
            some = np.uint32(0)
            for i in range(TOGETHER):
                near, visible = looked_at(
                    x, y, sin, cos, field, at + np.uint32(3 * i), radius, edge_sin, edge_cos, horizon
                )
                hit |= near
                some = np.uint32(some | (np.uint32(visible) << np.uint32(i)))
            seen |= U(some) << U(j)
            at = at + np.uint32(3 * TOGETHER)
            j = np.int32(j + TOGETHER)
        while seen > U(0):
            at = discs + np.uint32(3) * np.uint32(lowest(seen))
            seen &= seen - U(1)
            dx, dy = field[at] - x, field[at + np.uint32(1)] - y
            size = field[at + np.uint32(2)]
            side, front = across(dx, dy, sin, cos), ahead(dx, dy, sin, cos)
            distance = math.sqrt(dx * dx + dy * dy + F(1e-12))
            inverse = F(1) / (distance * (distance + front + F(1e-6)))
            angle = bearing(side, distance, inverse) + edge
            half = half_width(size, distance, front + F(1e-6), inverse)
            i = np.int32(max(np.int32((angle - half) * per_radian + F(1)), np.int32(0)))
            high = np.int32(min(np.int32((angle + half) * per_radian), np.int32(RAYS - 1)))
            while i <= high:
                ray = np.uint32(i)
                ray_sin, ray_cos = fan[np.uint32(ray + RAYS)], fan[np.uint32(ray + 2 * RAYS)]
                reading = ray_disc(side, front, size, ray_sin, ray_cos, horizon)
                place = np.uint32(ray * THREADS + t)
                depths[place] = min(depths[place], reading)
                i = np.int32(i + 1)
        discs = discs + np.uint32(3 * MARKED)
        base = np.int32(base + MARKED)
    return hit


def looked_at(x, y, sin, cos, field, at, radius, edge_sin, edge_cos, horizon):
    """Whether the robot touches a disc, and whether its sensor might see it."""
    dx, dy, size = field[at] - x, field[at + np.uint32(1)] - y, field[at + np.uint32(2)]
    squared, reach = dx * dx + dy * dy, size + radius
    side, front = across(dx, dy, sin, cos), ahead(dx, dy, sin, cos)
    visible = sees(side, front, squared, size, edge_sin, edge_cos, horizon)
    return squared <= reach * reach, visible


def lowest(bits):
    """The place of the lowest bit that is set."""
    return cuda.popc(~bits & (bits - U(1)))


def approached(x, y, field, discs, count, walls, nearest):
    """The distance to the nearest disc or wall, if it is less than `nearest`."""
    for _ in range(count):
        dx, dy = field[discs] - x, field[discs + np.uint32(1)] - y
        gap = math.sqrt(dx * dx + dy * dy) - field[discs + np.uint32(2)]
        nearest = min(nearest, max(gap, F(0)))
        discs = discs + np.uint32(3)
    at = np.uint32(0)
    while at < len(walls):
        left, right = walls[at] - x, walls[np.uint32(at + 1)] - x
        bottom, top = walls[np.uint32(at + 2)] - y, walls[np.uint32(at + 3)] - y
        nearest = min(nearest, math.sqrt(box_gap_squared(left, right, bottom, top)))
        at = np.uint32(at + 4)
    return nearest


def drawn(key, step):
    """The two numbers of a step's own noise."""
    last = U(step * DRAWS + DRAWS)
    return (
        bell(scramble(key + (last - U(2)) * GOLDEN)),
        bell(scramble(key + (last - U(1)) * GOLDEN)),
    )


def disturb(depths, t, spread, horizon, key, step):
    """Multiply each reading by its own random factor near 1, within the sensor's range."""
    for i in range(RAYS):
        place = np.uint32(i * THREADS + t)
        draw = bell(scramble(key + U(step * DRAWS + i) * GOLDEN))
        depths[place] = min(max(depths[place] * (F(1) + spread * draw), F(0)), horizon)


def inverted(depth, offset):
    """The input of a policy for a depth, at most 16."""
    return F(1) / max(depth - offset, F(0.0625))


def respond(weights, at, depths, offset, t):
    """The control of a policy by the formula of `kernel.respond`; its first weight is at `at`.

    A hidden unit sees the scene and its mirror image. Of a ray and its mirrored one, the sum adds
    the same to both and the difference the opposite: so it has weights for these, ordered as the
    rays, differences last.
    """
    control, inputs = DTYPE(0), cuda.local.array(RAYS, DTYPE)
    for i in range(RAYS):
        inputs[i] = inverted(depths[np.uint32(i * THREADS + t)], offset)
        control += weights[at + U(i * GROUP)] * inputs[i]
    if HIDDEN:
        for i in range(RAYS // 2):
            a, b = inputs[i], inputs[RAYS - 1 - i]
            inputs[i], inputs[RAYS - 1 - i] = a + b, a - b
        at += U(RAYS * GROUP)
        for _ in range(HIDDEN):
            even, odd = weights[at + U(RAYS * GROUP)], DTYPE(0)
            for i in range((RAYS + 1) // 2):
                even += weights[at + U(i * GROUP)] * inputs[i]
            for i in range((RAYS + 1) // 2, RAYS):
                odd += weights[at + U(i * GROUP)] * inputs[i]
            out = weights[at + U((RAYS + 1) * GROUP)]
            control += out * (squash(even + odd) - squash(even - odd))
            at += U((RAYS + 2) * GROUP)
    return control


SOURCES = (
    *(outcome, looked_at, lowest, sense_walls, sense_discs, approached),
    *(drawn, disturb, inverted, respond),
)
