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
ALL = np.uint32(0xFFFFFFFF)
TILE = 32  # discs that are marked at a time, each in a bit of a number
GROUP = 8  # policies whose weights are side by side: from one weight to the next is a constant


class Work(NamedTuple):
    """What a kernel is compiled for."""

    RAYS: int
    HIDDEN: int  # units of the controller
    MEASURED: bool  # whether the closest distances are wanted
    NOISY: bool
    DTYPE: type[np.floating] = np.float32

    @property
    def threads(self) -> int:
        """Of a block, whose readings fit in its shared memory."""
        return max(1, THREADS * 4 // np.dtype(self.DTYPE).itemsize)

    @property
    def constants(self) -> dict[str, Any]:
        """The names in capitals, and the sizes that follow from them."""
        sizes = {"READINGS": self.RAYS * self.threads, "FAN": 3 * self.RAYS}
        sizes["WEIGHTS"] = GROUP * (self.RAYS + self.HIDDEN * (self.RAYS + 2))
        return {
            "THREADS": self.threads,
            "TILE": TILE,
            "ALL": ALL,
            "GROUP": GROUP,
            **self._asdict(),
            **sizes,
        }


RAYS, HIDDEN, MEASURED, NOISY, DTYPE = Work(2, 0, False, False)  # placeholders, like these:
READINGS, FAN, WEIGHTS = 2 * THREADS, 6, 2 * GROUP
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
    row_keys,
    first_column,
    width,
    deep,
    collided,
    closest,
):
    """The kernel: a block rolls out `width` policies in `deep` environments.

    Arrays and results are those of `kernel.collisions`, and one-dimensional where their places
    are computed here.

    Args:
        weights: (1 or environments, groups of policies, rows, GROUP), flat
        own_weights: how many an environment has of its own; 0 where all share the first ones
        obstacles: (environments, most, 3), flat
        most: obstacles of an environment
        counts: (environments,), at most `most`
        walls: (walls, 4)
        rays: (3, rays), flat
        horizon: the sensor's reach
        radius: of the robot
        start: (5,)
        steps: of a rollout
        offset: subtracted from a depth before it is inverted
        range_noise: relative
        models: (1 or environments, constants, policies)
        row_keys: (environments,), of the random numbers; unused without noise
        first_column: of the first policy, in the noise
        width: policies of a block
        deep: environments of a block
        collided: the result, (environments, policies)
        closest: (environments, policies); unused where distances are not wanted
    """
    depths = cuda.shared.array(READINGS, DTYPE)
    fan = cuda.shared.array(FAN, DTYPE)
    taken = cuda.shared.array(1, np.int32)
    t = np.uint32(cuda.threadIdx.x)
    if t == 0:
        taken[0] = 0
    i = t
    while i < FAN:
        fan[i] = rays[i]
        i = np.uint32(i + THREADS)
    cuda.syncthreads()
    first_policy, first = cuda.blockIdx.y * width, cuda.blockIdx.x * deep
    wide = np.int32(min(width, collided.shape[1] - first_policy))
    total = np.int32(min(deep, collided.shape[0] - first) * wide)
    step, e, k = np.int32(-1), U(0), U(0)
    x, y, sin, cos, own = start[0], start[1], start[2], start[3], start[4]
    nearest, key = horizon, U(0)
    while True:
        if step < 0:  # take the next rollout
            number = cuda.atomic.add(taken, 0, 1)
            if number >= total:
                break
            step = np.int32(0)
            e, k = U(first + number // wide), U(first_policy + number % wide)
            x, y, sin, cos, own = start[0], start[1], start[2], start[3], start[4]
            nearest = horizon
            if NOISY:
                key = scramble((row_keys[e] + U(first_column) + k) * GOLDEN)
        discs, count = e * U(3 * most), counts[e]
        hit = sense_discs(x, y, sin, cos, obstacles, discs, count, fan, horizon, radius, depths, t)
        hit |= hit_walls(x, y, walls, radius)
        if MEASURED and step > 0:
            nearest = approached(x, y, obstacles, discs, count, walls, nearest)
        if (step > 0 and hit) or step == steps:
            collided[e, k] = outcome(x, y, hit)
            if MEASURED:
                closest[e, k] = nearest
            step = np.int32(-1)
        else:
            sense_walls(x, y, sin, cos, walls, fan, horizon, depths, t)
            if NOISY:
                disturb(depths, t, range_noise, horizon, key, step)
            if HIDDEN:
                invert(depths, t, offset)
            at = U(own_weights) * e + k // U(GROUP) * U(WEIGHTS) + k % U(GROUP)
            control = respond(weights, at, depths, offset, t)
            model = models[e if len(models) > 1 else U(0)]
            state, draws = (x, y, sin, cos, own), drawn(key, step) if NOISY else (F(0), F(0))
            after = robot_moves(state, control, draws, step, model, k)
            x, y = DTYPE(after[0]), DTYPE(after[1])  # a rule may compute in another precision
            sin, cos, own = DTYPE(after[2]), DTYPE(after[3]), DTYPE(after[4])
            step = np.int32(step + 1)


def outcome(x, y, hit):
    """The cost of a rollout that has ended, `LOST` if that is not known."""
    return np.uint8(hit) if abs(x) + abs(y) < F(np.inf) else LOST


def sense_discs(x, y, sin, cos, obstacles, discs, count, fan, horizon, radius, depths, t):
    """Depths along all rays to the nearest disc; returns whether the robot touches one."""
    edge, edge_sin, edge_cos = fan[RAYS - 1], fan[2 * RAYS - 1], fan[3 * RAYS - 1]
    per_radian = F(RAYS - 1) / (F(2) * edge)
    hit = False
    for i in range(RAYS):
        depths[np.uint32(i * THREADS + t)] = horizon
    base = np.int32(0)
    while base < count:
        at, last = discs, np.int32(min(count - base, TILE))
        j, seen, touched = np.int32(0), np.uint32(0), np.uint32(0)
        while j < last:  # up to three beyond the last one are looked at in vain
            for i in range(4):
                near, visible = looked_at(
                    x, y, sin, cos, obstacles, at + U(3 * i), radius, edge_sin, edge_cos, horizon
                )
                touched = np.uint32(touched | (np.uint32(near) << np.uint32(j + i)))
                seen = np.uint32(seen | (np.uint32(visible) << np.uint32(j + i)))
            at += U(12)
            j = np.int32(j + 4)
        known = np.uint32(ALL >> np.uint32(TILE - last))
        hit |= np.uint32(touched & known) > 0
        seen = np.uint32(seen & known)
        while seen > 0:
            at = discs + U(3) * U(lowest(seen))
            seen = np.uint32(seen & (seen - 1))
            dx, dy, size = obstacles[at] - x, obstacles[at + U(1)] - y, obstacles[at + U(2)]
            side, front = across(dx, dy, sin, cos), ahead(dx, dy, sin, cos)
            distance = math.sqrt(dx * dx + dy * dy + F(1e-12))
            inverse = F(1) / (distance * (distance + front + F(1e-6)))
            angle = bearing(side, distance, inverse) + edge
            half = half_width(size, distance, front + F(1e-6), inverse)
            i = np.int32(max(np.int32((angle - half) * per_radian + F(1)), np.int32(0)))
            high = np.int32(min(np.int32((angle + half) * per_radian), np.int32(RAYS - 1)))
            while i <= high:
                ray = np.uint32(i)
                ray_sin, ray_cos = fan[U(ray) + U(RAYS)], fan[U(ray) + U(2 * RAYS)]
                reading = ray_disc(side, front, size, ray_sin, ray_cos, horizon)
                place = np.uint32(ray * THREADS + t)
                depths[place] = min(depths[place], reading)
                i = np.int32(i + 1)
        discs += U(3 * TILE)
        base = np.int32(base + TILE)
    return hit


def looked_at(x, y, sin, cos, obstacles, at, radius, edge_sin, edge_cos, horizon):
    """Whether the robot touches a disc, and whether its sensor might see it."""
    dx, dy, size = obstacles[at] - x, obstacles[at + U(1)] - y, obstacles[at + U(2)]
    squared, reach = dx * dx + dy * dy, size + radius
    side, front = across(dx, dy, sin, cos), ahead(dx, dy, sin, cos)
    visible = sees(side, front, squared, size, edge_sin, edge_cos, horizon)
    return squared <= reach * reach, visible


def lowest(bits):
    """The place of the lowest bit that is set."""
    return cuda.ffs(bits) - 1


def sides(walls, w, x, y):
    """Left, right, bottom and top side of a wall, seen from a point."""
    return walls[w, 0] - x, walls[w, 1] - x, walls[w, 2] - y, walls[w, 3] - y


def sense_walls(x, y, sin, cos, walls, fan, horizon, depths, t):
    """Reduce the depths to those of the walls that the fan of rays can reach."""
    edge_sin, edge_cos, none = fan[2 * RAYS - 1], fan[3 * RAYS - 1], F(0)
    last_x, last_y = edge_sin * cos - edge_cos * sin, edge_cos * cos + edge_sin * sin
    first_x, first_y = -edge_sin * cos - edge_cos * sin, edge_cos * cos - edge_sin * sin
    # the furthest that it reaches to each side: all of the horizon where it points that way
    most_x = horizon if -sin >= edge_cos else horizon * max(max(first_x, last_x), none)
    least_x = -horizon if sin >= edge_cos else horizon * min(min(first_x, last_x), none)
    most_y = horizon if cos >= edge_cos else horizon * max(max(first_y, last_y), none)
    least_y = -horizon if -cos >= edge_cos else horizon * min(min(first_y, last_y), none)
    w, left, right, bottom, top = np.uint32(0), none, none, none, none
    while w < len(walls):
        reached = False
        while w < len(walls) and not reached:  # so that all threads have one that they reach
            left, right, bottom, top = sides(walls, w, x, y)
            reached = (left <= most_x) & (right >= least_x) & (bottom <= most_y) & (top >= least_y)
            w = np.uint32(w + 1)
        if reached:
            for i in range(RAYS):
                ray_sin, ray_cos = fan[RAYS + i], fan[2 * RAYS + i]
                inverse_x = F(1) / (ray_sin * cos - ray_cos * sin)
                inverse_y = F(1) / (ray_cos * cos + ray_sin * sin)
                reading = ray_box(left, right, bottom, top, inverse_x, inverse_y, horizon)
                place = np.uint32(i * THREADS + t)
                depths[place] = min(depths[place], reading)


def hit_walls(x, y, walls, radius):
    """Whether the robot touches a wall."""
    hit, w = False, np.uint32(0)
    while w < len(walls):
        left, right, bottom, top = sides(walls, w, x, y)
        hit |= box_gap_squared(left, right, bottom, top) <= radius * radius
        w = np.uint32(w + 1)
    return hit


def approached(x, y, obstacles, discs, count, walls, nearest):
    """The distance to the nearest disc or wall, if it is less than `nearest`."""
    for _ in range(count):
        dx, dy = obstacles[discs] - x, obstacles[discs + U(1)] - y
        gap = math.sqrt(dx * dx + dy * dy) - obstacles[discs + U(2)]
        nearest = min(nearest, max(gap, F(0)))
        discs += U(3)
    for w in range(len(walls)):
        left, right, bottom, top = sides(walls, w, x, y)
        nearest = min(nearest, math.sqrt(box_gap_squared(left, right, bottom, top)))
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


def invert(depths, t, offset):
    """Replace depths by the inputs of a policy."""
    for i in range(RAYS):
        place = np.uint32(i * THREADS + t)
        depths[place] = inverted(depths[place], offset)


def inverted(depth, offset):
    """The input of a policy for a depth, at most 16."""
    return F(1) / max(depth - offset, F(0.0625))


def respond(weights, at, depths, offset, t):
    """The control of a policy by the formula of `kernel.respond`; its first weight is at `at`.

    For a network, depths are inverted before.
    """
    control = DTYPE(0)
    for i in range(RAYS):
        z = depths[np.uint32(i * THREADS + t)]
        control += weights[at] * (z if HIDDEN else inverted(z, offset))
        at += U(GROUP)
    for _ in range(HIDDEN):
        there = mirrored = weights[at + U(RAYS * GROUP)]
        for i in range(RAYS):
            weight = weights[at]
            there += weight * depths[np.uint32(i * THREADS + t)]
            mirrored += weight * depths[np.uint32((RAYS - 1 - i) * THREADS + t)]
            at += U(GROUP)
        at += U(GROUP)
        control += weights[at] * (squash(there) - squash(mirrored))
        at += U(GROUP)
    return control


SOURCES = (
    *(outcome, looked_at, lowest, sides, sense_discs, sense_walls, hit_walls, approached),
    *(drawn, disturb, inverted, invert, respond),
)
