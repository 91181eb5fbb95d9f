"""A replay as text in a page.

A path is kept as its first point, its first step and its second differences, on a grid so fine
that no eye sees it: those are small whole numbers, which deflate to a byte or less for each.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.report.replay import Replay

MOST_BYTES = 3_500_000  # of a page's rollouts, as text


@dataclass(frozen=True)
class Packed:
    """What the page's script reads: plain values, and arrays by name as (kind, text)."""

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
        rows = np.sort(np.argsort(-order, kind="stable")[:keep])
        replay, order = replay.first(rows), order[rows]
        packed = pack(replay)
    return replay, packed


def pack(replay: Replay) -> Packed:
    """Everything that the page needs to show the rollouts."""
    paths = [path[:, :2] for row in replay.paths for path in row]
    lengths = np.array([len(path) for path in paths])
    points = np.concatenate(paths)
    circles = np.concatenate([scene.circles.reshape(-1, 3) for scene in replay.scenes])
    boxes = np.concatenate([scene.boxes.reshape(-1, 4) for scene in replay.scenes])
    view = _view(replay, points, circles, boxes)
    grid = _grid(view)
    starts, steps, bends = _differences(np.rint(points / grid).astype(np.int64), lengths)
    small = np.abs(bends).max(initial=0) < 128
    costs = np.rint(replay.costs * (1 if replay.binary else 65535))
    arrays = {
        "lengths": ("Uint32Array", lengths.astype("<u4")),
        "starts": ("Int32Array", starts.astype("<i4")),
        "steps": ("Int32Array", steps.astype("<i4")),
        "bends": ("Int8Array", bends.astype("i1"))
        if small
        else ("Int16Array", bends.astype("<i2")),
        "contacts": ("Uint8Array", replay.contacts.astype("u1")),
        "costs": ("Uint16Array", costs.astype("<u2")),
        "circles": ("Float32Array", circles.astype("<f4")),
        "circle-counts": ("Uint32Array", _counts(scene.circles for scene in replay.scenes)),
    }
    alike = all(np.array_equal(s.boxes, replay.scenes[0].boxes) for s in replay.scenes)
    kept = replay.scenes[:1] if alike else replay.scenes
    arrays["boxes"] = "Float32Array", np.concatenate([s.boxes for s in kept]).astype("<f4")
    arrays["box-counts"] = "Uint32Array", _counts(scene.boxes for scene in kept)
    values = {
        "grid": grid,
        "view": [round(float(edge), 4) for edge in view],
        "robotRadius": replay.scenes[0].robot_radius,
        "timeStep": replay.scenes[0].time_step,
        "costScale": 1 if replay.binary else 65535,
        "binary": replay.binary,
        "environments": replay.environments.tolist(),
        "policies": replay.policies.tolist(),
    }
    return Packed(values, {name: (kind, _text(array)) for name, (kind, array) in arrays.items()})


def _counts(arrays: Any) -> NDArray:
    return np.array([len(array) for array in arrays], "<u4")


def _differences(
    points: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray, NDArray, NDArray]:
    """First points, first steps and second differences of paths that lie one after another.

    Shapes (paths, 2), (paths, 2), and all second differences in x, then all in y; a path of one
    point has a step of zero.
    """
    ends = np.cumsum(lengths)
    first = ends - lengths
    second = np.minimum(first + 1, ends - 1)
    bends = points[2:] - 2 * points[1:-1] + points[:-2]
    within = np.ones(max(len(points) - 2, 0), bool)  # those of three points of the same path
    for edge in (first - 1, first - 2):
        within[edge[(edge >= 0) & (edge < len(within))]] = False
    return points[first], points[second] - points[first], bends[within].T.reshape(-1)


def _view(replay: Replay, *places: NDArray) -> NDArray[np.float64]:
    """What is to be seen of the plane, as left, right, bottom, top in m."""
    points, circles, boxes = places
    margin = replay.scenes[0].robot_radius
    low = [points.min(axis=0) - margin, (circles[:, :2] - circles[:, 2:]).min(axis=0, initial=0)]
    high = [points.max(axis=0) + margin, (circles[:, :2] + circles[:, 2:]).max(axis=0, initial=0)]
    if len(boxes):
        low.append(boxes[:, [0, 2]].min(axis=0))
        high.append(boxes[:, [1, 3]].max(axis=0))
    (left, bottom), (right, top) = np.min(low, axis=0), np.max(high, axis=0)
    return np.array([left, right, bottom, top])


def _grid(view: NDArray[np.float64]) -> float:
    """The grid's width in m: 1 cm, finer in a small world, coarser where 16 bits need it."""
    extent = max(view[1] - view[0], view[3] - view[2], np.abs(view).max())
    return float(min(0.01, extent / 1000) if extent <= 80 else extent / 8000)


def _text(array: NDArray) -> str:
    # Level 7 is a tenth of the work of 9, for 4 % more letters.
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 7)).decode()
