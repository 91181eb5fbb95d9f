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
    SLACK,
    F,
    U,
    across,
    ahead,
    bearing,
    bell,
    box_gap_squared,
    half_width,
    ray_disc,
    scramble,
    squash,
)

THREADS = 128  # of a block, in single precision
REGISTERS = 64  # of a thread, likewise: with more, fewer threads would run at a time
MARKED = 64  # discs that are marked at a time, each in a bit of a number
WALLS = 16  # the same of walls, each of whose sides in sight has a bit
TOGETHER = 8  # discs that a thread looks at without a branch; a field has a multiple of them
DISC = U(4)  # numbers of each, and before the first one
WALL = U(5)  # the place of the first one in the world
HELD = 1920  # numbers of the fields that a block keeps in shared memory, where they fit
GROUP, OWN_GROUP = 32, 8  # policies whose weights are side by side: shared ones, and own ones


class Work(NamedTuple):
    """What a kernel is compiled for."""

    FAN: tuple[float, ...]  # sine and cosine of each ray, from the leftmost to the rightmost
    EDGE: float  # the angle of the rightmost
    HIDDEN: int  # units of the controller
    MEASURED: bool  # whether the closest distances are wanted
    NOISY: bool
    OFFSET: float = 0.0  # subtracted from a depth before it is inverted
    KEPT: bool = True  # whether a block's fields fit in its shared memory
    GROUP: int = GROUP
    DTYPE: type[np.floating] = np.float32

    @property
    def threads(self) -> int:
        """Of a block, whose readings fit in its shared memory."""
        return max(1, THREADS * 4 // np.dtype(self.DTYPE).itemsize)

    @property
    def registers(self) -> int:
        """Of a thread."""
        return REGISTERS * np.dtype(self.DTYPE).itemsize // 4

    @property
    def constants(self) -> dict[str, Any]:
        """The names in capitals, and the sizes that follow from them."""
        rays = len(self.FAN) // 2
        return {
            **{name: value for name, value in globals().items() if name.isupper()},
            **self._asdict(),
            "FAN": np.array(self.FAN, self.DTYPE),
            "RAYS": rays,
            "ENDS": 2 * rays,
            "READINGS": rays * self.threads,
            "THREADS": self.threads,
            "FIELDS": HELD if self.KEPT else 1,
            "WEIGHTS": self.GROUP * (rays + self.HIDDEN * (rays + 2)),
        }


# Placeholders.
FAN, EDGE, HIDDEN, MEASURED, NOISY, OFFSET, KEPT, _, DTYPE = Work((), 1.0, 0, False, False)
RAYS, ENDS, READINGS, FIELDS, WEIGHTS, ALIGNED = 2, 4, 2 * THREADS, HELD, 2 * GROUP, 16
cuda: Any = None
robot_moves: Any = kernel.robot_moves


def rollouts(
    weights,
    own_weights,
    fields,
    size,
    world,
    horizon,
    radius,
    steps,
    range_noise,
    models,
    own_models,
    constants,
    row_keys,
    first_column,
    environments,
    policies,
    width,
    deep,
    collided,
    closest,
):
    """The kernel: a block rolls out `width` policies in `deep` environments.

    Results are those of `kernel.collisions`. All arrays are flat.

    Args:
        weights: (1 or environments, groups of policies, rows, GROUP)
        own_weights: how many an environment has of its own; 0 where all share the first ones
        fields: (environments, 4 · size), as `streaming.fill` writes them
        size: of an environment, in fours of numbers
        world: the five numbers of the start, then the walls, (walls, 4)
        horizon: the sensor's reach
        radius: of the robot
        steps: of a rollout
        range_noise: relative
        models: (1 or environments, policies, constants)
        own_models: how many an environment has of its own, as for the weights
        constants: of a model
        row_keys: (environments,), of the random numbers; unused without noise
        first_column: of the first policy, in the noise
        environments: how many
        policies: how many
        width: policies of a block
        deep: environments of a block
        collided: the result, (environments, policies)
        closest: (environments, policies); unused where distances are not wanted
    """
    near = cuda.shared.array(READINGS, DTYPE)
    rays = cuda.shared.array(ENDS, DTYPE, alignment=ALIGNED)
    kept = cuda.shared.array(FIELDS, DTYPE, alignment=ALIGNED)
    taken = cuda.shared.array(1, np.int32)
    fan, t = cuda.const.array_like(FAN), np.uint32(cuda.threadIdx.x)
    first_policy, first = cuda.blockIdx.y * width, cuda.blockIdx.x * deep
    wide = np.uint32(min(width, policies - first_policy))
    rows, long = np.uint32(min(deep, environments - first)), DISC * U(size)
    total = np.uint32(rows * wide)
    if t == 0:
        taken[0] = THREADS  # each thread begins with the rollout of its own number
    i = t
    while i < ENDS:
        rays[i] = fan[i]
        i = np.uint32(i + THREADS)
    if KEPT:
        i = t
        while U(i) < U(rows) * long:
            kept[i] = fields[U(first) * long + U(i)]
            i = np.uint32(i + THREADS)
    i = t
    while i < total:  # a rule that raises an error ends its thread, which then writes no result
        collided[U(first + i // wide) * U(policies) + U(first_policy + i % wide)] = LOST
        i = np.uint32(i + THREADS)
    cuda.syncthreads()
    field = kept if KEPT else fields
    number, step = t, np.int32(0)
    x, y, sin, cos, own = world[U(0)], world[U(1)], world[U(2)], world[U(3)], world[U(4)]
    nearest, key = horizon, U(0)
    row = np.uint32(number // wide)
    e, k = np.uint32(first + row), np.uint32(first_policy + number % wide)
    while number < total:
        if NOISY and step == 0:
            key = scramble((row_keys[e] + U(first_column) + U(k)) * GOLDEN)
        at = U(row if KEPT else e) * long
        hit = sense_walls(x, y, sin, cos, world, fan, horizon, radius, near, t)
        hit |= sense_discs(x, y, sin, cos, field, at, fan, rays, horizon, near, t)
        if MEASURED and step > 0:
            nearest = approached(x, y, field, at, world, nearest)
        if (step > 0 and hit) or step == steps:  # the rollout has ended: take the next one
            place = U(e) * U(policies) + U(k)
            collided[place] = outcome(x, y, hit)
            if MEASURED:
                closest[place] = nearest
            number, step = np.uint32(cuda.atomic.add(taken, 0, 1)), np.int32(0)
            x, y, sin, cos, own = world[U(0)], world[U(1)], world[U(2)], world[U(3)], world[U(4)]
            nearest, row = horizon, np.uint32(number // wide)
            e, k = np.uint32(first + row), np.uint32(first_policy + number % wide)
        else:
            if NOISY:
                disturb(near, t, range_noise, horizon, key, step)
            at = U(own_weights) * U(e) + U(k // GROUP) * U(WEIGHTS) + U(k % GROUP)
            control = respond(weights, at, near, t)
            model = U(own_models) * U(e) + U(constants) * U(k)
            state, draws = (x, y, sin, cos, own), drawn(key, step) if NOISY else (F(0), F(0))
            after = robot_moves(state, control, draws, step, models, model)
            x, y = DTYPE(after[0]), DTYPE(after[1])  # a rule may compute in another precision
            sin, cos, own = DTYPE(after[2]), DTYPE(after[3]), DTYPE(after[4])
            step = np.int32(step + 1)


def outcome(x, y, hit):
    """The cost of a rollout that has ended, `LOST` if that is not known."""
    return np.uint8(hit) if abs(x) + abs(y) < F(np.inf) else LOST


def sense_walls(x, y, sin, cos, world, fan, horizon, radius, near, t):
    """Nearness along all rays of the nearest wall; returns whether the robot touches one."""
    edge_sin, edge_cos, none = fan[2 * RAYS - 2], fan[2 * RAYS - 1], F(0)
    last_x, last_y = edge_sin * cos - edge_cos * sin, edge_cos * cos + edge_sin * sin
    first_x, first_y = -edge_sin * cos - edge_cos * sin, edge_cos * cos - edge_sin * sin
    # the furthest that the fan reaches to each side: all of the horizon where it points that way
    most_x = horizon if -sin >= edge_cos else horizon * max(max(first_x, last_x), none)
    least_x = -horizon if sin >= edge_cos else horizon * min(min(first_x, last_x), none)
    most_y = horizon if cos >= edge_cos else horizon * max(max(first_y, last_y), none)
    least_y = -horizon if -cos >= edge_cos else horizon * min(min(first_y, last_y), none)
    for i in range(RAYS):
        near[U(i * THREADS) + U(t)] = F(1) / horizon
    base, hit = WALL, False
    while base < U(len(world)):
        at, bit, faces = base, np.uint32(1), np.uint32(0)
        while at < min(U(len(world)), base + U(4 * WALLS)):  # two sides may be in sight
            left, right = world[at] - x, world[at + U(1)] - x
            bottom, top = world[at + U(2)] - y, world[at + U(3)] - y
            hit |= box_gap_squared(left, right, bottom, top) <= radius * radius
            reached = (left <= most_x) & (right >= least_x) & (bottom <= most_y) & (top >= least_y)
            if reached & ((left > none) | (right < none)):
                faces = np.uint32(faces | bit)
            if reached & ((bottom > none) | (top < none)):
                faces = np.uint32(faces | np.uint32(bit + bit))
            at, bit = at + U(4), np.uint32(bit << np.uint32(2))
        while faces > 0:
            which = cuda.popc(np.uint32(~faces & np.uint32(faces - 1)))
            faces = np.uint32(faces & np.uint32(faces - 1))
            wall, level = base + U(which // 2 * 4), U(which & 1)
            to, along = wall + U(2) * level, wall + U(2) - U(2) * level
            here, there = (y, x) if level else (x, y)
            low, high = world[to] - here, world[to + U(1)] - here
            start, stop = world[along] - there, world[along + U(1)] - there
            gap, middle, half = low if low > none else high, start + stop, stop - start
            a, b = (sin, cos) if level else (cos, -sin)
            c, d = (cos, -sin) if level else (sin, cos)
            sense_side(gap, middle / F(2), half / F(2), a, b, c, d, fan, near, t)
        base = base + U(4 * WALLS)
    return hit


def sense_side(gap, middle, half, a, b, c, d, fan, near, t):
    """Raise the nearness along the rays that meet one side of a wall.

    A ray leads a·sin θ + b·cos θ towards the side and c·sin θ + d·cos θ along it for each metre.
    With w, the first of these over the gap, the ray meets the side's line after 1/w, and the side
    itself if it is then at most half the side's length from its middle: no ray needs a division.
    """
    inverse, inverse_half = F(1) / gap, F(1) / half
    a, b = a * inverse, b * inverse
    c, d = (c - middle * a) * inverse_half, (d - middle * b) * inverse_half
    for i in range((RAYS + 1) // 2):  # with its mirrored one
        sine, cosine, mirrored = fan[2 * i], fan[2 * i + 1], RAYS - 1 - i
        w, off = b * cosine + a * sine, d * cosine + c * sine
        place = U(i * THREADS) + U(t)
        near[place] = max(near[place], w if abs(off) <= w else F(0))
        w, off = b * cosine - a * sine, d * cosine - c * sine
        place = U(mirrored * THREADS) + U(t)
        near[place] = max(near[place], w if abs(off) <= w else F(0))


def sense_discs(x, y, sin, cos, field, discs, fan, rays, horizon, near, t):
    """Raise the nearness to that of the discs; returns whether the robot touches one.

    It first marks the discs that the fan might meet: those within both of its outermost rays, of
    which it needs the normals, and not too far away. `discs` leads to the environment.
    """
    edge_sin, edge_cos = fan[2 * RAYS - 2], fan[2 * RAYS - 1]
    per_radian = F((RAYS - 1) / (2 * EDGE))
    right = cos * edge_cos + sin * edge_sin, sin * edge_cos - cos * edge_sin
    left = sin * edge_sin - cos * edge_cos, -sin * edge_cos - cos * edge_sin
    hit, left_over, far = False, np.int32(field[discs]), field[discs | U(1)]
    discs = discs + DISC
    while left_over > 0:
        last, at, seen, j = np.int32(min(left_over, np.int32(MARKED))), discs, U(0), np.int32(0)
        while j < last:  # a few beyond the last one are looked at in vain
            some = np.uint32(0)
            for i in range(TOGETHER):
                dx, dy = field[at] - x, field[at | U(1)] - y
                size, touching = field[at | U(2)], field[at | U(3)]
                at = at + DISC
                squared = dx * dx + dy * dy
                hit |= squared <= touching
                outside = max(
                    left[0] * dx + (left[1] * dy - SLACK), right[0] * dx + (right[1] * dy - SLACK)
                )
                if (squared <= far) & (outside <= size):
                    some = np.uint32(some | np.uint32(1 << i))
            seen |= U(some) << U(j)
            j = np.int32(j + TOGETHER)
        while seen > U(0):
            at = discs + DISC * U(lowest(seen))
            seen &= seen - U(1)
            dx, dy, size = field[at] - x, field[at | U(1)] - y, field[at | U(2)]
            side, front = across(dx, dy, sin, cos), ahead(dx, dy, sin, cos)
            distance, more = math.sqrt(dx * dx + dy * dy + F(1e-12)), front + F(1e-6)
            inverse = F(1) / (distance * (distance + more))
            angle = bearing(side, distance, inverse) + F(EDGE)
            half = half_width(size, distance, more, inverse)
            first = min(max((angle - half) * per_radian + F(1), F(0)), F(RAYS - 1))
            last = min((angle + half) * per_radian, F(RAYS - 1))
            ray = U(np.uint32(first))
            count, place, ray = DTYPE(np.uint32(first)), ray * U(THREADS) + U(t), U(2) * ray
            while True:  # one ray at least: that one more is tested costs less than to ask
                reading = ray_disc(side, front, size, rays[ray], rays[ray | U(1)], horizon)
                near[place] = max(near[place], F(1) / reading)
                count, place, ray = count + F(1), place + U(THREADS), ray + U(2)
                if count > last:  # a condition on whole numbers would be unrolled
                    break
        discs = discs + DISC * U(MARKED)
        left_over = np.int32(left_over - MARKED)
    return hit


def lowest(bits):
    """The place of the lowest bit that is set."""
    return cuda.popc(~bits & (bits - U(1)))


def approached(x, y, field, at, world, nearest):
    """The distance to the nearest disc or wall, if it is less than `nearest`."""
    for _ in range(np.int32(field[at])):
        at = at + DISC
        dx, dy = field[at] - x, field[at | U(1)] - y
        gap = math.sqrt(dx * dx + dy * dy) - field[at | U(2)]
        nearest = min(nearest, max(gap, F(0)))
    at = WALL
    while at < U(len(world)):
        left, right = world[at] - x, world[at + U(1)] - x
        bottom, top = world[at + U(2)] - y, world[at + U(3)] - y
        nearest = min(nearest, math.sqrt(box_gap_squared(left, right, bottom, top)))
        at = at + U(4)
    return nearest


def drawn(key, step):
    """The two numbers of a step's own noise."""
    last = U(step * DRAWS + DRAWS)
    return (
        bell(scramble(key + (last - U(2)) * GOLDEN)),
        bell(scramble(key + (last - U(1)) * GOLDEN)),
    )


def disturb(near, t, spread, horizon, key, step):
    """Multiply each reading by its own random factor near 1, within the sensor's range."""
    for i in range(RAYS):
        place = U(i * THREADS) + U(t)
        draw = bell(scramble(key + U(step * DRAWS + i) * GOLDEN))
        near[place] = max(near[place] / (F(1) + spread * draw), F(1) / horizon)


def inverted(nearness):
    """The input of a policy for 1 / depth: 1 / max(depth - OFFSET, 1/16)."""
    if OFFSET == 0:
        return min(nearness, F(16))
    return nearness / max(F(1) - DTYPE(OFFSET) * nearness, nearness * F(0.0625))


def respond(weights, at, near, t):
    """The control of a policy by the formula of `kernel.respond`; its first weight is at `at`.

    A hidden unit sees the scene and its mirror image. Of a ray and its mirrored one, the sum adds
    the same to both and the difference the opposite: so it has weights for these, ordered as the
    rays, differences last.
    """
    control, inputs = DTYPE(0), cuda.local.array(RAYS, DTYPE)
    for i in range(RAYS):
        inputs[i] = inverted(near[U(i * THREADS) + U(t)])
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
    *(outcome, lowest, sense_side, sense_walls, sense_discs, approached),
    *(drawn, disturb, inverted, respond),
)
