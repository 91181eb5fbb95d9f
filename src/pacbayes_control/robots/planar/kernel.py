"""Compiled rollouts of robots in the plane: scalar functions of geometry, and their drivers.

The scalar functions are arithmetic on a few numbers each, without arrays, so that Numba compiles
the same source for a CPU, where a loop over rollouts side by side becomes vector instructions, and
for a CUDA device. Their precision is that of their arguments; literals are float32, which do not
turn a float32 result into a float64, and are exact.

Frames. The heading is (-sin ψ, cos ψ) and the robot's right is (cos ψ, sin ψ); "across" and "ahead"
are a point's coordinates along right and heading, seen from the robot. A ray at angle θ, clockwise
from the heading, points along (sin θ, cos θ) in them.

Robots differ in how they move. The drivers call `robot_moves`, a placeholder for a robot's own rule
of motion; `drivers.py` compiles them for each robot with that rule, and caches the result on disk.

Scalars and drivers share one file because Numba's cache on disk watches only the file of the
function that it stores: in two files, a change to a scalar would leave a stale driver behind.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from pacbayes_control.bounds.compiling import compiled_once

LOST = np.uint8(2)  # instead of a cost: the robot's position is NaN or infinite
LANES = 64  # rollouts advanced side by side in one environment
SLACK = np.float32(0.01)  # rad added to each side of a disc's angular interval when culling rays
DRAWS = 64  # random numbers of a rollout's stream that are reserved for each step
F, U = np.float32, np.uint64
GOLDEN = U(0x9E3779B97F4A7C15)  # an odd step between counters, so that they repeat only after 2⁶⁴

# Only the fusing of a multiplication with an addition is allowed: no reassociation, NaN honoured.
OPTIONS: Any = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
compiled = njit(**OPTIONS)


# ---- scalar functions ---------------------------------------------------------------------------


@compiled
def across(dx, dy, sin, cos):
    """How far the offset (dx, dy) lies to the right of a robot with this heading."""
    return dx * cos + dy * sin


@compiled
def ahead(dx, dy, sin, cos):
    """How far the offset (dx, dy) lies ahead of a robot with this heading."""
    return dy * cos - dx * sin


@compiled
def ray_disc(side, front, radius, ray_sin, ray_cos, horizon):
    """Distance along a ray to a disc centred at (side, front); `horizon` where it misses.

    The centre's distance from the ray's line is taken directly, not as a difference of two
    squares, which would cancel in single precision.
    """
    offset = side * ray_cos - front * ray_sin
    nearest = side * ray_sin + front * ray_cos
    half_chord = radius * radius - offset * offset
    entry = nearest - math.sqrt(max(half_chord, F(0)))
    return entry if (half_chord >= F(0)) & (entry >= F(0)) & (entry < horizon) else horizon


@compiled
def ray_box(left, right, bottom, top, inverse_x, inverse_y, horizon):
    """Distance along a ray to a box, by slabs; `horizon` where it misses.

    The sides are relative to the ray's origin; `inverse_x` and `inverse_y` are the reciprocals of
    the ray's direction in the world.
    """
    enter_x = min(left * inverse_x, right * inverse_x)
    leave_x = max(left * inverse_x, right * inverse_x)
    enter_y = min(bottom * inverse_y, top * inverse_y)
    leave_y = max(bottom * inverse_y, top * inverse_y)
    entry = max(enter_x, enter_y)
    leave = min(leave_x, leave_y)
    return entry if (entry <= leave) & (entry >= F(0)) & (entry < horizon) else horizon


@compiled
def box_gap_squared(left, right, bottom, top):
    """Squared distance from the origin to a box with its sides at these relative coordinates."""
    gap_x = max(max(left, -right), F(0))
    gap_y = max(max(bottom, -top), F(0))
    return gap_x * gap_x + gap_y * gap_y


@compiled
def turn_sin(angle):
    """sin of a turn: Taylor's series, error below 1e-15 up to 0.3 rad and 1e-10 up to 0.95."""
    z = angle * angle
    tail = F(1) - z / F(42) * (F(1) - z / F(72) * (F(1) - z / F(110)))
    return angle * (F(1) - z / F(6) * (F(1) - z / F(20) * tail))


@compiled
def turn_cos(angle):
    """cos of a turn: Taylor's series, error below 1e-15 up to 0.3 rad and 1e-10 up to 0.95."""
    z = angle * angle
    tail = F(1) - z / F(30) * (F(1) - z / F(56) * (F(1) - z / F(90) * (F(1) - z / F(132))))
    return F(1) - z / F(2) * (F(1) - z / F(12) * tail)


@compiled
def turned(sin, cos, angle):
    """Sine and cosine of a heading after a turn of at most 0.95 rad."""
    return (
        sin * turn_cos(angle) + cos * turn_sin(angle),
        cos * turn_cos(angle) - sin * turn_sin(angle),
    )


@compiled
def inside(x, y, left, right, bottom, top):
    """Whether a point lies strictly inside a rectangle."""
    return (x > left) & (x < right) & (y > bottom) & (y < top)


@compiled
def sees(side, front, distance_squared, radius, edge_sin, edge_cos, horizon):
    """False only if no ray of a fan with this edge can meet a disc centred at (side, front)."""
    reach = horizon + radius
    return (distance_squared <= reach * reach) & (
        abs(side) * edge_cos - front * edge_sin <= radius + SLACK
    )


@compiled
def bearing(side, distance, inverse):
    """The angle of a point clockwise from the heading, held within ±π/2, to 0.004 rad.

    2·atan(side / (distance + front)) by a polynomial; `inverse` is 1/(distance·(distance + front)).
    """
    q = min(max(side * distance * inverse, F(-1)), F(1))
    z = q * q
    return q * (F(2) + z * (F(-0.6656) + z * (F(0.37) + z * F(-0.134))))


@compiled
def half_width(radius, distance, front, inverse):
    """At least half the angle that a disc fills: asin(w) ≤ w + (π/2 - 1) w³ for w in [0, 1]."""
    w = min(radius * (distance + front) * inverse, F(1))
    return w * (F(1) + F(0.5709) * w * w) + SLACK


@compiled
def squash(x):
    """A sigmoid from -1 to 1 in plain arithmetic: x / √(1 + x²)."""
    return x / math.sqrt(F(1) + x * x)


@compiled
def scramble(counter):
    """64 bits that look random, a function of a 64-bit counter alone (the mixer of SplitMix64)."""
    z = (counter ^ (counter >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


@compiled
def bell(bits):
    """A draw with mean 0 and variance 1: four uniform 16-bit numbers added, within ±3.47."""
    low, high = bits & U(0xFFFF), (bits >> U(16)) & U(0xFFFF)
    total = F(low) + F(high) + F((bits >> U(32)) & U(0xFFFF)) + F(bits >> U(48))
    return (total - F(131070)) * F(2.6428998e-05)  # by √3 / 65536


# ---- many policies in many environments ---------------------------------------------------------


def robot_moves(state, control, draws, step, models, k) -> Any:
    """One step of a robot: a placeholder that `drivers_of` replaces with the robot's own rule.

    Args:
        state: x, y, sin ψ, cos ψ and one number that the robot may use as it likes
        control: the output of the policy
        draws: two numbers of mean 0 and variance 1, the noise of this step; zeros without noise
        step: the number of steps taken before this one
        models: (constants, lanes)
        k: the lane, whose column of `models` holds this robot's constants

    Returns:
        the state after the step
    """
    raise NotImplementedError


def moves(rule: Any, constants: int, place: str = "{}, k") -> Any:
    """A function that calls a compiled rule of motion in the place of `robot_moves`.

    The constants are a tuple: code that reads beyond its end does not compile. Beyond the end of
    an array it would read any memory, without an error.

    Args:
        rule: the rule
        constants: how many it has
        place: of a constant in `models`, by its number
    """
    model = "".join(f"models[{place.format(i)}], " for i in range(constants))
    call = f"rule(state, control, draws, step, ({model}))"
    names = {"rule": rule, "U": U, "__name__": __name__}
    return eval(f"lambda state, control, draws, step, models, k: {call}", names)


def collisions(weights, obstacles, counts, world, robot, models, keys, collided, closest):
    """Fill `collided` (environments, policies) with 1 where the rollout touches something, else 0.

    2 (`LOST`) where the robot's position has become NaN or infinite, so that the cost is unknown.

    All floating-point arrays have one dtype.

    Args:
        weights: (1 or environments, rows, policies), one set of policies for all environments or
            one for each; rows as in `respond`
        obstacles: (environments, most, 3) as x, y, radius
        counts: (environments,), how many of the obstacles are used
        world: walls (walls, 4) as left, right, bottom, top; open areas (areas, 4), rectangles
            without walls; rays (3, rays) as angle, sin, cos, evenly spaced and symmetric; the
            sensor's reach
        robot: its radius; its start (5,) as x, y, sin ψ, cos ψ and its own number; the number of
            steps; hidden units of its controller; what is subtracted from a depth before it is
            inverted; relative noise of the depths
        models: (1 or environments, constants, policies), the constants for `robot_moves`
        keys: (environments, policies), of the random numbers; empty without noise
        collided: the result
        closest: (environments, policies), filled with the smallest distance from the robot's
            centre to a surface, or empty
    """
    policies = weights.shape[2]
    groups = (policies + LANES - 1) // LANES
    width = (policies + groups - 1) // groups
    for e in prange(len(counts)):
        own = np.int64(e) if len(weights) > 1 else 0
        kind = np.int64(e) if len(models) > 1 else 0
        for group in range(groups):
            part = slice(group * width, group * width + width)
            advance_group(
                weights[own, :, part],
                obstacles[e, : counts[e]],
                world,
                robot,
                models[kind, :, part],
                keys[e, part] if keys.size else keys[0],
                collided[e, part],
                closest[e, part] if closest.size else closest[0],
            )


def advance_group(weights, obstacles, world, robot, models, keys, collided, closest):
    """Roll out a group of policies, one in each lane, in one environment.

    A lane whose robot has collided is replaced by the last lane, so no lane in use has collided.
    """
    walls, open_areas, rays, horizon = world
    radius, start, steps, hidden, offset, range_noise = robot
    lanes = weights.shape[1]
    lane_weights = weights.copy()
    lane_models = models.copy()
    lane_keys = keys.copy()
    policy = np.arange(lanes)
    collided[:] = 0
    state = np.empty((6, lanes), weights.dtype)  # as `start`, and the nearest surface so far
    state[:5] = start.reshape(5, 1)
    state[5] = horizon
    depths = np.empty((rays.shape[1], lanes), weights.dtype)
    scratch = np.empty((2, lanes), weights.dtype)
    hit = np.zeros(lanes, np.uint8)
    for step in range(steps):
        x, y, sin, cos = state[0, :lanes], state[1, :lanes], state[2, :lanes], state[3, :lanes]
        sense_discs(x, y, sin, cos, obstacles, rays, horizon, depths, scratch)
        sense_walls(x, y, sin, cos, walls, open_areas, rays, horizon, depths, scratch)
        if keys.size:
            disturb(depths, lanes, range_noise, horizon, lane_keys, step)
        invert(depths, lanes, offset)
        control = scratch[0, :lanes]
        respond(lane_weights, hidden, depths, control, scratch[1, :lanes])
        move(control, state, lane_models, lane_keys, step)
        if closest.size:
            approach(x, y, obstacles, walls, state[5, :lanes])
        if touch(x, y, obstacles, walls, radius, hit[:lanes]):
            lanes = drop_collided(
                lanes, hit, policy, state, lane_weights, lane_models, lane_keys, collided, closest
            )
            if lanes == 0:
                return
    for k in range(lanes):
        if not abs(state[0, k]) + abs(state[1, k]) < np.inf:
            collided[policy[k]] = LOST
        if closest.size:
            closest[policy[k]] = state[5, k]


def move(control, state, models, keys, step):
    """Move every robot that has not collided by one step, in place."""
    x, y, sin, cos, own = state[0], state[1], state[2], state[3], state[4]
    if keys.size:
        for k in range(len(control)):
            draws = (
                bell(scramble(keys[k] + U(step * DRAWS + DRAWS - 2) * GOLDEN)),
                bell(scramble(keys[k] + U(step * DRAWS + DRAWS - 1) * GOLDEN)),
            )
            before = (x[k], y[k], sin[k], cos[k], own[k])
            after = robot_moves(before, control[k], draws, step, models, k)
            x[k], y[k], sin[k], cos[k], own[k] = after
    else:
        for k in range(len(control)):
            before = (x[k], y[k], sin[k], cos[k], own[k])
            after = robot_moves(before, control[k], (F(0), F(0)), step, models, k)
            x[k], y[k], sin[k], cos[k], own[k] = after


@compiled
def drop_collided(lanes, hit, policy, state, weights, models, keys, collided, closest):
    """Record the lanes that are `hit`, replace them by the last ones; returns how many stay."""
    k = 0
    while k < lanes:
        if not hit[k]:
            k += 1
            continue
        collided[policy[k]] = 1
        if closest.size:
            closest[policy[k]] = state[5, k]
        lanes -= 1
        policy[k] = policy[lanes]
        hit[k] = hit[lanes]
        if keys.size:
            keys[k] = keys[lanes]
        state[:, k] = state[:, lanes]
        weights[:, k] = weights[:, lanes]
        models[:, k] = models[:, lanes]
    hit[:] = 0
    return lanes


@compiled
def sense_discs(x, y, sin, cos, obstacles, rays, horizon, depths, scratch):
    """Depths along all rays to the nearest disc, (rays, lanes); `horizon` where there is none.

    Each disc is tested only against the rays between the first and the last that it can meet in
    any lane: a superset of the rays that do meet it, so the depths are those of a full search.
    """
    count = rays.shape[1]
    edge, edge_sin, edge_cos = rays[0, count - 1], rays[1, count - 1], rays[2, count - 1]
    per_radian = F(count - 1) / (F(2) * edge)
    depths[:, : len(x)] = horizon
    for j in range(len(obstacles)):
        disc_x, disc_y, radius = obstacles[j, 0], obstacles[j, 1], obstacles[j, 2]
        seen = np.int32(0)
        for k in range(len(x)):
            dx, dy = disc_x - x[k], disc_y - y[k]
            side, front = across(dx, dy, sin[k], cos[k]), ahead(dx, dy, sin[k], cos[k])
            seen |= sees(side, front, dx * dx + dy * dy, radius, edge_sin, edge_cos, horizon)
        if not seen:
            continue
        low, high = np.int32(count), np.int32(-1)
        for k in range(len(x)):
            dx, dy = disc_x - x[k], disc_y - y[k]
            side, front = across(dx, dy, sin[k], cos[k]), ahead(dx, dy, sin[k], cos[k])
            scratch[0, k] = side
            scratch[1, k] = front
            squared = dx * dx + dy * dy
            distance = math.sqrt(squared + F(1e-12))
            inverse = F(1) / (distance * (distance + front + F(1e-6)))
            angle = bearing(side, distance, inverse) + edge
            half = half_width(radius, distance, front + F(1e-6), inverse)
            visible = sees(side, front, squared, radius, edge_sin, edge_cos, horizon)
            lane_low = np.int32((angle - half) * per_radian + F(1))
            lane_high = np.int32((angle + half) * per_radian)
            low = min(low, lane_low if visible else np.int32(count))
            high = max(high, lane_high if visible else np.int32(-1))
        for i in range(max(low, 0), min(high + 1, count)):
            for k in range(len(x)):
                reading = ray_disc(
                    scratch[0, k], scratch[1, k], radius, rays[1, i], rays[2, i], horizon
                )
                depths[i, k] = min(depths[i, k], reading)


@compiled
def sense_walls(x, y, sin, cos, walls, open_areas, rays, horizon, depths, scratch):
    """Reduce the depths to those of the walls.

    Rays that stay within one open area in every lane are skipped: an open area is convex and
    holds no wall, so a segment with both ends in it meets none.
    """
    for i in range(rays.shape[1]):
        ray_sin, ray_cos = rays[1, i], rays[2, i]
        exposed = np.int32(1)  # where there are no open areas
        for a in range(len(open_areas)):
            left, right = open_areas[a, 0], open_areas[a, 1]
            bottom, top = open_areas[a, 2], open_areas[a, 3]
            leaves = np.int32(0)
            for k in range(len(x)):
                end_x = x[k] + horizon * (ray_sin * cos[k] - ray_cos * sin[k])
                end_y = y[k] + horizon * (ray_cos * cos[k] + ray_sin * sin[k])
                leaves |= not (
                    inside(x[k], y[k], left, right, bottom, top)
                    & inside(end_x, end_y, left, right, bottom, top)
                )
            exposed = leaves
            if not leaves:
                break
        if not exposed:
            continue
        for k in range(len(x)):
            scratch[0, k] = F(1) / (ray_sin * cos[k] - ray_cos * sin[k])
            scratch[1, k] = F(1) / (ray_cos * cos[k] + ray_sin * sin[k])
        for w in range(len(walls)):
            left, right, bottom, top = walls[w, 0], walls[w, 1], walls[w, 2], walls[w, 3]
            for k in range(len(x)):
                reading = ray_box(
                    left - x[k],
                    right - x[k],
                    bottom - y[k],
                    top - y[k],
                    scratch[0, k],
                    scratch[1, k],
                    horizon,
                )
                depths[i, k] = min(depths[i, k], reading)


@compiled
def invert(depths, lanes, offset):
    """Replace depths by the inputs of a policy, in place: z = 1 / (y - offset), at most 16."""
    for i in range(len(depths)):
        for k in range(lanes):
            depths[i, k] = F(1) / max(depths[i, k] - offset, F(0.0625))


@compiled
def respond(weights, hidden, z, control, scratch):
    """The control u_diff of each lane's policy for its inputs `z` (rays, lanes).

    u = K·z + Σ_h v_h (σ(a_h·z + b_h) - σ(a_h·z' + b_h)), where z' is z in reverse order, so that
    the hidden units' part changes its sign in the mirror image of a scene.
    weights: (rows, lanes); the rows are K, then a_h, b_h and v_h for each hidden unit.
    """
    rays = len(z)
    control[:] = F(0)
    for i in range(rays):
        for k in range(len(control)):
            control[k] += weights[i, k] * z[i, k]
    row = rays
    for _ in range(hidden):
        for k in range(len(control)):
            scratch[k] = weights[row + rays, k]
        for i in range(rays):
            for k in range(len(control)):
                scratch[k] += weights[row + i, k] * z[i, k]
        for k in range(len(control)):
            control[k] += weights[row + rays + 1, k] * squash(scratch[k])
            scratch[k] = weights[row + rays, k]
        for i in range(rays):
            for k in range(len(control)):
                scratch[k] += weights[row + i, k] * z[rays - 1 - i, k]
        for k in range(len(control)):
            control[k] -= weights[row + rays + 1, k] * squash(scratch[k])
        row += rays + 2


# ---- noise of the sensor ------------------------------------------------------------------------


@compiled
def disturb(depths, lanes, spread, horizon, keys, step):
    """Multiply each reading by its own random factor near 1, within the sensor's range."""
    for i in range(len(depths)):
        for k in range(lanes):
            draw = bell(scramble(keys[k] + U(step * DRAWS + i) * GOLDEN))
            reading = depths[i, k] * (F(1) + spread * draw)
            depths[i, k] = min(max(reading, F(0)), horizon)


# ---- contact ------------------------------------------------------------------------------------


@compiled_once(**OPTIONS)
def approach(x, y, obstacles, walls, closest):
    """Lower `closest` to the distance from each robot's centre to the nearest disc or wall."""
    for j in range(len(obstacles)):
        disc_x, disc_y, radius = obstacles[j, 0], obstacles[j, 1], obstacles[j, 2]
        for k in range(len(x)):
            dx, dy = disc_x - x[k], disc_y - y[k]
            closest[k] = min(closest[k], max(math.sqrt(dx * dx + dy * dy) - radius, F(0)))
    for w in range(len(walls)):
        left, right, bottom, top = walls[w, 0], walls[w, 1], walls[w, 2], walls[w, 3]
        for k in range(len(x)):
            gap = box_gap_squared(left - x[k], right - x[k], bottom - y[k], top - y[k])
            closest[k] = min(closest[k], math.sqrt(gap))


@compiled
def touch(x, y, obstacles, walls, robot, hit):
    """Set `hit` where a robot of this radius touches a disc or a wall; returns whether any does."""
    any_hit = False
    for j in range(len(obstacles)):
        disc_x, disc_y, reach = obstacles[j, 0], obstacles[j, 1], obstacles[j, 2] + robot
        near = np.int32(0)
        for k in range(len(x)):
            dx, dy = disc_x - x[k], disc_y - y[k]
            near |= dx * dx + dy * dy <= reach * reach
        if near:
            any_hit = True
            for k in range(len(x)):
                dx, dy = disc_x - x[k], disc_y - y[k]
                hit[k] |= dx * dx + dy * dy <= reach * reach
    for w in range(len(walls)):
        left, right, bottom, top = walls[w, 0], walls[w, 1], walls[w, 2], walls[w, 3]
        near = np.int32(0)
        for k in range(len(x)):
            gap = box_gap_squared(left - x[k], right - x[k], bottom - y[k], top - y[k])
            near |= gap <= robot * robot
        if near:
            any_hit = True
            for k in range(len(x)):
                gap = box_gap_squared(left - x[k], right - x[k], bottom - y[k], top - y[k])
                hit[k] |= gap <= robot * robot
    return any_hit


# ---- one policy, step by step --------------------------------------------------------------------


def trajectories(weights, obstacles, counts, world, robot, models, keys, ends, poses, seen):
    """Follow a single policy step by step in each environment.

    Each step and each argument is as in `collisions`, with one column of weights, models and keys.
    Fills `ends` (environments, 2) with the number of steps taken and whether the robot collided,
    `poses` (environments, steps + 1, 3) with x, y, ψ and `seen` (environments, steps, rays) with
    the depths measured.
    """
    walls, open_areas, rays, horizon = world
    radius, start, steps, hidden, offset, range_noise = robot
    depths = np.empty((rays.shape[1], 1), weights.dtype)
    scratch = np.empty((2, 1), weights.dtype)
    hit = np.zeros(1, np.uint8)
    ends[:] = 0
    for e in range(len(counts)):
        discs, model, key = obstacles[e, : counts[e]], models[e % len(models)], keys[e % len(keys)]
        state = start.copy().reshape(5, 1)
        x, y, sin, cos = state[0], state[1], state[2], state[3]
        ends[e, 0] = steps
        for step in range(steps + 1):
            poses[e, step, 0] = x[0]
            poses[e, step, 1] = y[0]
            poses[e, step, 2] = math.atan2(sin[0], cos[0])
            if step > 0 and touch(x, y, discs, walls, radius, hit):
                ends[e, 0], ends[e, 1] = step, 1
                break
            if step < steps:
                sense_discs(x, y, sin, cos, discs, rays, horizon, depths, scratch)
                sense_walls(x, y, sin, cos, walls, open_areas, rays, horizon, depths, scratch)
                if key.size:
                    disturb(depths, 1, range_noise, horizon, key, step)
                seen[e, step] = depths[:, 0]
                invert(depths, 1, offset)
                respond(weights[0], hidden, depths, scratch[0], scratch[1])
                move(scratch[0], state, model, key, step)


@compiled_once(**OPTIONS)
def sense(x, y, sin, cos, obstacles, walls, open_areas, rays, horizon, depths):
    """Fill `depths` (rays, poses) with the readings of a sensor at each pose in one environment."""
    scratch = np.empty((2, len(x)), depths.dtype)
    sense_discs(x, y, sin, cos, obstacles, rays, horizon, depths, scratch)
    sense_walls(x, y, sin, cos, walls, open_areas, rays, horizon, depths, scratch)
