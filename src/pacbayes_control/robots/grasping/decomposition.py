"""One mesh, cut into convex parts by CoACD in a process of its own, which may crash.

Wei, Liu, Ling and Su, "Approximate convex decomposition for 3D meshes with collision-aware
concavity and tree search", ACM Transactions on Graphics 41(4), 2022.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import loky
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from pacbayes_control.robots.grasping.cache import (
    content_digest,
    keep_hulls,
)
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.objects import Floats
from pacbayes_control.rollouts.pools import shielded
from pacbayes_control.tasks.environments import in_a_line

THINNEST = 0.01  # of the longest side: what is thinner than that is a sheet
SEED = 0  # of CoACD


@dataclass(frozen=True)
class Mesh:
    """A mesh of a folder."""

    path: str  # relative to the folder, with slashes
    content: str  # SHA-256
    up: str  # the axis that points up in the file, "y" or "z"
    key: str  # of its hulls in the cache: a SHA-256 of content, axis, settings and CoACD's version


class BrokenMeshError(ValueError):
    """What is wrong with a mesh, in words that follow its name."""


def process() -> loky.ProcessPoolExecutor:
    """A process that decomposes, in one thread: no result can depend on scheduling."""
    with shielded():
        return loky.ProcessPoolExecutor(max_workers=1, env={"OMP_NUM_THREADS": "1"})


def keep(
    folder: Path, mesh: Mesh, file: Path, concavity: float, most_parts: int, most_corners: int
) -> str:
    """Decompose a mesh and keep its hulls in a file. Returns what is wrong with it, or ""."""
    try:
        if content_digest(folder / mesh.path) != mesh.content:
            raise BrokenMeshError("is no longer what it was when the folder was read")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arithmetic with what is checked afterwards
            hulls = _decomposed(folder / mesh.path, mesh.up, concavity, most_parts, most_corners)
    except BrokenMeshError as error:
        return str(error)
    keep_hulls(file, hulls)
    return ""


def _decomposed(
    file: Path, up: str, concavity: float, most_parts: int, most_corners: int
) -> list[Floats]:
    """The hulls' corners, with the longest side of their bounding box 1 and its middle at 0."""
    vertices, faces = _loaded(file)
    coacd = needed("coacd", "a folder of meshes")
    coacd.set_log_level("off")
    pieces = coacd.run_coacd(
        coacd.Mesh(vertices, faces), concavity, max_convex_hull=most_parts, seed=SEED
    )
    hulls = []
    for corners, _ in pieces:
        try:
            hulls.append(_fewer(corners, most_corners))
        except QhullError:  # a sliver
            continue
    if not hulls:
        raise BrokenMeshError("is left without parts by CoACD")
    if up == "y":
        hulls = [np.stack([hull[:, 0], -hull[:, 2], hull[:, 1]], axis=1) for hull in hulls]
    points = np.concatenate(hulls)
    low, high = points.min(axis=0), points.max(axis=0)
    return [(hull - (low + high) / 2) / (high - low).max() for hull in hulls]


def _loaded(file: Path) -> tuple[NDArray, NDArray]:
    """Vertices (vertices, 3) and faces (faces, 3) of a mesh with volume, in a cube of side 1."""
    trimesh = needed("trimesh", "a folder of meshes")
    try:  # processing would drop vertices that are no numbers without a word
        scene = trimesh.load_scene(file, process=False, skip_materials=True)
        mesh = scene.to_mesh()
        points = np.asarray(mesh.vertices, float)[mesh.faces].reshape(-1, 3)
    except Exception as error:  # of a reader of somebody's files
        raise BrokenMeshError(f"cannot be read ({in_a_line(error)})") from error
    if not len(points):
        raise BrokenMeshError("cannot be read (no faces in it)")
    low, high = points.min(axis=0), points.max(axis=0)
    longest = (high - low).max()
    if not np.isfinite(longest):
        raise BrokenMeshError("has vertices that are no finite numbers")
    thickness = _thickness((points - low) / longest) if longest > 0 else 0.0
    if thickness < THINNEST:
        raise BrokenMeshError(
            f"has no volume (its thickness is {thickness:.2g} of its length, not {THINNEST})"
        )
    # CoACD is ten times faster with a closed surface, so faces are joined and turned alike.
    mesh = trimesh.Trimesh((mesh.vertices - low) / longest, mesh.faces).process(validate=True)
    return np.asarray(mesh.vertices), np.asarray(mesh.faces)


def _thickness(points: Floats) -> float:
    """How far apart two parallel planes must be for a body to fit between them, nearly."""
    try:
        corners = _fewer(points, 64)
        planes = ConvexHull(corners).equations
    except QhullError:
        return 0.0
    return float(-(corners @ planes[:, :3].T + planes[:, 3]).min(axis=0).max())


def _fewer(points: Floats, most: int) -> Floats:
    """Corners of the hull of points: all, or so many that leave little of it out.

    They begin with those of a simplex and of the bounding box, and then take in what lies farthest
    from the hull so far.
    """
    points = points[np.sort(ConvexHull(points).vertices)]
    if len(points) <= most:
        return points
    chosen = [*points.argmin(axis=0), *points.argmax(axis=0)]
    rest = points - points[chosen[0]]
    for _ in range(3):
        chosen.append(np.linalg.norm(rest, axis=1).argmax())
        axis = rest[chosen[-1]] / np.linalg.norm(rest[chosen[-1]])
        rest = rest - np.outer(rest @ axis, axis)
    chosen = list(dict.fromkeys(int(corner) for corner in chosen))[:most]
    hull = ConvexHull(points[chosen], incremental=True)
    while len(chosen) < most:
        outside = (points @ hull.equations[:, :3].T + hull.equations[:, 3]).max(axis=1)
        outside[chosen] = -np.inf
        chosen.append(int(outside.argmax()))
        hull.add_points(points[chosen[-1:]])
    return points[chosen]
