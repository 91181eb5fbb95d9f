"""One mesh, cut into convex parts by CoACD in a process of its own, and the file that keeps them.

Wei, Liu, Ling and Su, "Approximate convex decomposition for 3D meshes with collision-aware
concavity and tree search", ACM Transactions on Graphics 41(4), 2022.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from pacbayes_control.certify.files import write_atomic
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.models import Floats
from pacbayes_control.tasks.environments import in_a_line

THINNEST = 0.01  # of the longest side: a thinner mesh is a sheet
SEED = 0  # of CoACD


@dataclass(frozen=True)
class Mesh:
    """A mesh of a folder."""

    path: str  # relative to the folder, with slashes
    content: str  # SHA-256
    up: str  # the axis that points up in the file, "y" or "z"
    key: str  # of its hulls in the cache: a SHA-256 of content, axis, settings and CoACD's version


class HullSettings(NamedTuple):
    """How finely a mesh is decomposed."""

    concavity: float  # CoACD's threshold
    most_parts: int  # of a mesh
    most_corners: int  # of a part


class BrokenMeshError(ValueError):
    """A mesh that cannot be used; the message follows its name."""


def decompose(folder: Path, mesh: Mesh, file: Path, settings: HullSettings) -> str:
    """Decompose a mesh and keep its hulls in a file; returns its defect in words, or ""."""
    try:
        if content_digest(folder / mesh.path) != mesh.content:
            raise BrokenMeshError("is no longer what it was when the folder was read")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arithmetic whose result is checked afterwards
            hulls = _hulls(folder / mesh.path, mesh.up, settings)
    except BrokenMeshError as error:
        return str(error)
    write_hulls(file, hulls)
    return ""


def _hulls(file: Path, up: str, settings: HullSettings) -> list[Floats]:
    """The hulls' corners, with the longest side of their bounding box 1 and its middle at 0."""
    coacd = needed("coacd", "a folder of meshes")
    coacd.set_log_level("off")
    mesh, most = coacd.Mesh(*_loaded(file)), settings.most_parts
    hulls = []
    for corners, _ in coacd.run_coacd(mesh, settings.concavity, max_convex_hull=most, seed=SEED):
        with suppress(QhullError):  # of a sliver
            hulls.append(_fewer_corners(corners, settings.most_corners))
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
    try:  # processing would drop vertices that are NaN without a warning
        scene = trimesh.load_scene(file, process=False, skip_materials=True)
        mesh = scene.to_mesh()
        points = np.asarray(mesh.vertices, float)[mesh.faces].reshape(-1, 3)
    except Exception as error:  # a damaged file can raise any exception
        raise BrokenMeshError(f"cannot be read ({in_a_line(error)})") from error
    if not len(points):
        raise BrokenMeshError("cannot be read (no faces in it)")
    low, high = points.min(axis=0), points.max(axis=0)
    longest = (high - low).max()
    if not np.isfinite(longest):
        raise BrokenMeshError("has vertices that are NaN or infinite")
    thickness = _thickness((points - low) / longest) if longest > 0 else 0.0
    if thickness < THINNEST:
        raise BrokenMeshError(
            f"has no volume (its thickness is {thickness:.2g} of its length, below {THINNEST})"
        )
    # CoACD is ten times faster with a closed surface, so faces are joined and oriented alike.
    mesh = trimesh.Trimesh((mesh.vertices - low) / longest, mesh.faces).process(validate=True)
    return np.asarray(mesh.vertices), np.asarray(mesh.faces)


def _thickness(points: Floats) -> float:
    """The approximate distance of the nearest two parallel planes with all points between."""
    try:
        corners = _fewer_corners(points, 64)
        planes = ConvexHull(corners).equations
    except QhullError:
        return 0.0
    return float(-(corners @ planes[:, :3].T + planes[:, 3]).min(axis=0).max())


def _fewer_corners(points: Floats, most: int) -> Floats:
    """At most so many corners of the hull of points, chosen to leave little of it out.

    The first are those of the bounding box and of a simplex; each further one is the point that
    lies farthest from the hull of those before it.
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


# ---- files --------------------------------------------------------------------------------------


def content_digest(mesh: Path) -> str:
    """SHA-256 of a mesh: of its file, and of the files that a .gltf file keeps its numbers in."""
    data = mesh.read_bytes()
    sha = hashlib.sha256(data)
    if mesh.suffix.lower() == ".gltf":
        # A file that is not as expected cannot be loaded either, which is an error of its own.
        wrong = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
        with suppress(*wrong):
            for buffer in json.loads(data)["buffers"]:
                uri = unquote(buffer.get("uri", "data:"))  # %2F is a slash, and %2E a dot
                if not uri.startswith("data:") and ".." not in uri and uri[:1] not in "/\\":
                    sha.update(hashlib.sha256((mesh.parent / uri).read_bytes()).digest())
    return sha.hexdigest()


def write_hulls(file: Path, hulls: list[Floats]) -> None:
    """Keep the corners of hulls, each (corners, 3), in a file of the cache."""
    stream = BytesIO()
    np.savez(stream, corners=np.concatenate(hulls), counts=np.array([len(h) for h in hulls]))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, stream.getvalue())
    except OSError as error:
        raise OSError(
            f"{file.parent} cannot keep hulls: {error.strerror or error}: give another folder as "
            "cache, or make room"
        ) from error


def read_hulls(file: Path) -> list[Floats] | None:
    """The corners of each hull, (corners, 3); None where the file is missing or damaged."""
    try:
        content = BytesIO(file.read_bytes())  # NumPy leaves a torn archive's file open
        with np.load(content, allow_pickle=False) as kept:
            corners, counts = kept["corners"], kept["counts"]
        ends = np.cumsum(counts)
        whole = counts.ndim == 1 and corners.shape == (ends[-1], 3) and (counts >= 4).all()
        if not whole or corners.dtype != np.float64 or not np.isfinite(corners).all():
            return None
    except Exception:  # a torn archive fails in many ways, and each means: compute it again
        return None
    corners.setflags(write=False)
    return np.split(corners, ends[:-1])
