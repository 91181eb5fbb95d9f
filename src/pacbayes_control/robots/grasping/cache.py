"""A folder for results that take long to compute: the convex parts of meshes, and labels."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from pacbayes_control.certify.files import write_atomic
from pacbayes_control.robots.grasping.shapes import Floats


def cache_folder() -> Path:
    """The user's folder for what can be computed again: in $XDG_CACHE_HOME, or in ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # unset, or to be ignored by the XDG specification
        base = Path.home() / ".cache"
    return base / "pacbayes-control"


def digest_of(value: object) -> str:
    """SHA-256 of plain values, as JSON writes them.

    >>> digest_of(["mug.obj", 0.05])[:16]
    'a4ce3d42091afd9c'
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def content_digest(mesh: Path) -> str:
    """SHA-256 of a mesh: of its file, and of the files that a .gltf file keeps its numbers in."""
    data = mesh.read_bytes()
    sha = hashlib.sha256(data)
    if mesh.suffix.lower() == ".gltf":
        try:
            for buffer in json.loads(data)["buffers"]:
                uri = buffer.get("uri", "data:")
                if not uri.startswith("data:") and ".." not in uri and uri[:1] not in "/\\":
                    sha.update(hashlib.sha256((mesh.parent / unquote(uri)).read_bytes()).digest())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # then it cannot be loaded either, which is an error of its own
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


@lru_cache(maxsize=4096)
def remembered_hulls(file: Path) -> list[Floats]:
    """The same, read once and kept in memory; an error where the file is missing or damaged."""
    hulls = read_hulls(file)
    if hulls is None:
        raise FileNotFoundError(f"{file} is missing or damaged: compute it again")
    return hulls
