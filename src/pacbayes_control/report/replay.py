"""Rollouts for a page to replay: which ones, rolled out again, and packed as text.

A path is kept as its first point, its first step and its second differences, on a grid so fine
that no eye sees it: those are small whole numbers, which deflate to a byte or less for each.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.checks import checked_costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import printable
from pacbayes_control.report.summary import environment_costs, likeliest
from pacbayes_control.rollouts.again import recorded_noise
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import generator
from pacbayes_control.tasks.task import Scene, noise_of

DRAWS = 20  # policies drawn for the page from a Gaussian posterior
MOST_POLICIES = 200
MOST_ROLLOUTS = 60_000  # of a page: a few seconds of a fast simulator
MOST_BYTES = 3_500_000  # of a page's rollouts, as text
TOUCH = 1e-6  # m, within which a path that ends at an obstacle has met it


@dataclass(frozen=True, eq=False)
class Replay:
    """Rollouts of some policies in some environments, by rows and columns of the table of costs."""

    environments: NDArray[np.int64]  # (rows,), increasing
    policies: NDArray[np.int64]  # (columns,), the likeliest first
    drawn: bool  # whether the policies were drawn from the posterior for the page
    costs: NDArray[np.float64 | np.uint8]  # (rows, columns)
    paths: list[list[NDArray[np.float64]]]  # by rows and columns, each (points, 2 or 3)
    scenes: list[Scene]  # by rows
    contacts: NDArray[np.bool_]  # (rows, columns), whether a path ends at an obstacle

    @property
    def disagreements(self) -> int:
        """Rollouts with costs 0 or 1 whose path does not end as the cost says."""
        return int(np.sum(self.contacts != (self.costs == 1))) if self.binary else 0

    @property
    def mostly_agrees(self) -> bool:
        """Whether at most 1 % of the paths end otherwise than their costs say."""
        return self.disagreements <= 0.01 * self.costs.size

    @property
    def binary(self) -> bool:
        """Whether every cost is 0 or 1."""
        return self.costs.dtype == np.uint8

    def only(self, rows: NDArray[np.int64]) -> Replay:
        """The same for some of the environments, given by position."""
        return replace(
            self,
            environments=self.environments[rows],
            costs=self.costs[rows],
            paths=[self.paths[row] for row in rows],
            scenes=[self.scenes[row] for row in rows],
            contacts=self.contacts[rows],
        )


def roll_out(
    run: Run[Any], task: Task, environments: Environments, most: int = MOST_ROLLOUTS
) -> Replay:
    """Roll out the recorded rollouts of a run again, with the same noise.

    Of a Gaussian posterior, whose draws are not recorded, new policies are drawn for the page.

    Args:
        run: the run
        task: its task, which has `scenes` and `paths`
        environments: those that the run counts
        most: rollouts; where there are more, those of the likeliest policies, in the environments
            of highest cost
    """
    if len(environments) != run.costs.environments:
        raise ValueError(
            f"{len(environments)} environments were given for a run that counts "
            f"{run.costs.environments}: give those that its costs are of"
        )
    policies, noise = run.costs.parameters, recorded_noise(run.costs)
    drawn = policies is None
    if policies is None:
        policies = run.posterior.sample(generator(0, "report", of="policies"), DRAWS)
        noise = Noise("report noise", 0)
    columns = np.arange(len(policies))
    if isinstance(run.posterior, Categorical):
        columns = likeliest(run)[: max(1, min(most // 20, MOST_POLICIES))]
    rows = highest(environment_costs(run), max(1, most // len(columns)))
    noise = noise_of(task, environments, noise)
    robot: Any = task  # it has `scenes` and `paths`, or there is no replay: see `page`
    paths, scenes, costs = [], [], []
    for part in _parts(environments, rows):
        by_policy = [
            robot.paths(policies[j : j + 1], part, noise.shifted(int(j)) if noise else None)
            for j in columns
        ]
        paths += [[own[0] for own in row] for row in zip(*by_policy, strict=True)]
        scenes += robot.scenes(part)
        if drawn:
            costs.append(np.asarray(robot.costs(policies, part, *([noise] if noise else []))))
    table = checked_costs(np.concatenate(costs)) if drawn else run.costs.values[rows][:, columns]
    contacts = np.array([_touching(*pair) for pair in zip(scenes, paths, strict=True)])
    return Replay(rows, columns, drawn, table, paths, scenes, contacts)


def highest(values: NDArray, most: int) -> NDArray[np.int64]:
    """Where the largest values are, in increasing order of place."""
    return np.sort(np.argsort(-values, kind="stable")[:most])


def _parts(environments: Environments, rows: NDArray[np.int64]) -> Iterator[Environments]:
    """Consecutive environments among the rows; a block is drawn once, not for each of them."""
    numbers = rows + environments.start
    size = environments.block
    breaks = np.flatnonzero((np.diff(numbers) > 1) | (np.diff(numbers // size) > 0)) + 1
    block, drawn = -1, {}
    for run in np.split(numbers, breaks):
        start, stop = int(run[0]), int(run[-1]) + 1
        if start // size != block:
            block = start // size
            whole = replace(environments, start=block * size, stop=(block + 1) * size)
            drawn = whole.arrays()
        yield replace(environments, draw=lambda *_, kept=drawn: kept, start=start, stop=stop)


def _touching(scene: Scene, paths: list[NDArray]) -> NDArray[np.bool_]:
    """Whether the robot is in contact at the end of each path; shape (policies,)."""
    ends = np.array([path[-1, :2] for path in paths])
    x, y, radius = scene.circles.reshape(-1, 3).T
    gaps = np.hypot(ends[:, :1] - x, ends[:, 1:] - y) - radius
    left, right, bottom, top = scene.boxes.reshape(-1, 4).T
    beside = np.maximum(np.maximum(left - ends[:, :1], ends[:, :1] - right), 0)
    above = np.maximum(np.maximum(bottom - ends[:, 1:], ends[:, 1:] - top), 0)
    nearest = np.hstack([gaps, np.hypot(beside, above)]).min(axis=1, initial=np.inf)
    return nearest <= scene.robot_radius + TOUCH


# ---- packing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """Rollouts as the page's script reads them: plain values, and arrays as (kind, text)."""

    values: dict[str, Any]
    arrays: dict[str, tuple[str, str]]  # kind: the name of a typed array in JavaScript

    @property
    def size(self) -> int:
        """Bytes of the arrays' text."""
        return sum(len(text) for _, text in self.arrays.values())


def pack_within(replay: Replay, order: NDArray, most: int = MOST_BYTES) -> tuple[Replay, Packed]:
    """The replay, or as much of it as fits: environments with the largest `order` are kept.

    order: (rows,), such as the mean costs of the replay's environments.
    """
    packed = pack(replay)
    while packed.size > most and len(replay.environments) > 1:
        keep = max(1, int(len(replay.environments) * most / packed.size * 0.98))
        rows = highest(order, keep)
        replay, order = replay.only(rows), order[rows]
        packed = pack(replay)
    return replay, packed


def pack(replay: Replay) -> Packed:
    """Everything that the page needs to show the rollouts."""
    paths = [path[:, :2] for row in replay.paths for path in row]
    lengths = np.array([len(path) for path in paths])
    points = np.concatenate(paths)
    circles = np.concatenate([scene.circles.reshape(-1, 3) for scene in replay.scenes])
    boxes = np.concatenate([scene.boxes.reshape(-1, 4) for scene in replay.scenes])
    view = _view(replay.scenes[0].robot_radius, points, circles, boxes)
    grid = _grid(view)
    starts, steps, bends = _differences(np.rint(points / grid).astype(np.int64), lengths)
    small = np.abs(bends).max(initial=0) < 128
    scale = 1 if replay.binary else 65535
    alike = all(np.array_equal(s.boxes, replay.scenes[0].boxes) for s in replay.scenes)
    boxed = replay.scenes[:1] if alike else replay.scenes  # those whose boxes are written
    arrays = {
        "lengths": lengths.astype("<u4"),
        "starts": starts.astype("<i4"),
        "steps": steps.astype("<i4"),
        "bends": bends.astype("i1" if small else "<i2"),
        "contacts": replay.contacts.astype("u1"),
        "costs": np.rint(replay.costs * scale).astype("<u2"),
        "circles": circles.astype("<f4"),
        "circle-counts": np.array([len(scene.circles) for scene in replay.scenes], "<u4"),
        "boxes": np.concatenate([scene.boxes for scene in boxed]).astype("<f4"),
        "box-counts": np.array([len(scene.boxes) for scene in boxed], "<u4"),
    }
    values = {
        "grid": grid,
        "view": [round(float(edge), 4) for edge in view],
        "robotRadius": replay.scenes[0].robot_radius,
        "timeStep": replay.scenes[0].time_step,
        "costScale": scale,
        "binary": replay.binary,
        "environments": replay.environments.tolist(),
        "policies": replay.policies.tolist(),
    }
    return Packed(values, {name: _packed_array(array) for name, array in arrays.items()})


def replay_values(run: Run[Any], replay: Replay, packed: Packed) -> dict[str, Any]:
    """The plain values that the page's script reads."""
    shares = [1 / len(replay.policies)] * len(replay.policies)
    if replay.drawn:
        names = [f"draw {j + 1} from the posterior" for j in replay.policies]
    elif isinstance(run.posterior, Categorical):
        names = [run.costs.name(int(j)) for j in replay.policies]
        shares = [round(float(run.posterior.probabilities[j]), 6) for j in replay.policies]
    else:
        names = ["the policy that was drawn"]
    return packed.values | {
        "names": [printable(name) for name in names],
        "sites": [printable(run.costs.sites[i]) for i in replay.environments if run.costs.sites],
        "shares": shares,
        "recorded": not replay.drawn,
        "contactIsFailure": replay.mostly_agrees and replay.binary,
    }


def _differences(points: NDArray, lengths: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """First points, first steps and second differences of paths that lie one after another.

    Shapes (paths, 2), (paths, 2), and all second differences in x, then all in y; a path of one
    point has a step of zero.
    """
    ends, path = np.cumsum(lengths), np.repeat(np.arange(len(lengths)), lengths)
    first = ends - lengths
    steps = points[np.minimum(first + 1, ends - 1)] - points[first]
    bends = np.diff(points, 2, axis=0)[path[2:] == path[:-2]]  # of points of the same path
    return points[first], steps, bends.T.reshape(-1)


def _view(margin: float, points: NDArray, circles: NDArray, boxes: NDArray) -> NDArray[np.float64]:
    """The part of the plane that is shown, as left, right, bottom, top in m."""
    (left, bottom), (right, top) = points.min(axis=0) - margin, points.max(axis=0) + margin
    x, y, radius = circles.T
    around = np.column_stack([x - radius, x + radius, y - radius, y + radius])
    edges = np.vstack([[left, right, bottom, top], np.zeros(4), around, boxes])
    return np.where([True, False, True, False], edges.min(axis=0), edges.max(axis=0))


def _grid(view: NDArray[np.float64]) -> float:
    """The grid's width in m: 1 cm, finer in a small world, coarser where 16 bits need it."""
    extent = max(view[1] - view[0], view[3] - view[2], np.abs(view).max())
    return float(min(0.01, extent / 1000) if extent <= 80 else extent / 8000)


def _packed_array(array: NDArray) -> tuple[str, str]:
    """The name of the array's type in JavaScript, and its bytes, deflated, in base64."""
    # Level 7 is a tenth of the work of 9, for 4 % more letters.
    text = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 7)).decode()
    return f"{array.dtype.name.capitalize()}Array", text
