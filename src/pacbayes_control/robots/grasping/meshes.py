"""Objects from a folder of meshes, each cut into convex parts by CoACD once and then kept."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from pacbayes_control.robots.grasping import decomposition
from pacbayes_control.robots.grasping.decomposition import SEED, Mesh, read_hulls
from pacbayes_control.robots.grasping.extras import INSTALL, cache_folder, digest_of
from pacbayes_control.robots.grasping.models import Floats, Hull, Part
from pacbayes_control.rollouts.processes import ProcessEnded, Processes
from pacbayes_control.tasks.environments import Arrays

FORMATS = (".obj", ".stl", ".ply", ".off", ".glb", ".gltf")
Y_UP = (".glb", ".gltf")  # by the standard of glTF
SHAPENET = (  # the model's folder and its one file: of version 2, and of version 1
    re.compile(r"(.*[^/])/models/model_normalized\.obj"),
    re.compile(r"((?:.*/)?(?:\d{8}/[^/]+|[0-9a-f]{20,}))/model\.obj"),
)
LAYOUT = 1  # of the files in the cache: with a new number, all hulls are computed again

Progress = Callable[[int, int], None]  # given the number of meshes that are done, and of all


@dataclass(frozen=True, repr=False, eq=False)
class MeshFolder:
    """The meshes of a folder, drawn uniformly and with replacement, in random sizes.

    Meshes are .obj, .stl, .ply, .off, .glb and .gltf files, however deep in the folder, in the
    order of their relative paths; hidden files, and links to folders, are left out. Of a model in
    ShapeNet's layout (`<synset>/<model>/models/model_normalized.obj`, or `<synset>/<model>/
    model.obj`) only that file counts.

    A new folder is read and decomposed by the constructor: seconds for each mesh, and minutes for
    one with holes, whose surface CoACD turns into a thin wall. This is done in other processes,
    since CoACD may crash. Each result is kept at once, so that an interrupted decomposition
    continues, and the next time takes only as long as hashing the files.

    Concavities are kept up to `concavity`. Hulls have at most `most_corners` corners, chosen among
    those that CoACD found, so that they lie within its hulls.
    """

    folder: Path
    longest: tuple[float, float] = (0.07, 0.10)  # m, the range of the bounding box's longest side
    # The axis that points up in the files. None: y in ShapeNet's layout and in glTF, whose
    # standards say so, and z in everything else.
    up: Literal["y", "z"] | None = None
    skip_broken: bool = False  # leave out meshes that cannot be used, and list them in `skipped`
    concavity: float = 0.05  # CoACD's threshold, from 0.01 to 1
    most_parts: int = 16  # of a mesh
    most_corners: int = 64  # of a part
    cache: Path = field(default_factory=lambda: cache_folder() / "hulls")
    workers: int = 1  # processes that decompose
    progress: Progress | None = None  # called by the constructor, and forgotten then
    meshes: tuple[Mesh, ...] = field(init=False)
    skipped: tuple[tuple[str, str], ...] = field(init=False)  # paths, each with its defect
    digest: str = field(init=False)  # SHA-256 of the distribution

    def __post_init__(self) -> None:
        counts = ("most_parts", "most_corners", "workers")
        vars(self).update(
            folder=Path(self.folder).expanduser().absolute(),
            cache=Path(self.cache).expanduser().absolute(),
            longest=tuple(float(side) for side in self.longest),
            concavity=float(self.concavity),
            **{name: operator.index(getattr(self, name)) for name in counts},
        )
        self._check()
        found = self._find()
        broken = self._decompose(found)
        if broken and (not self.skip_broken or len(broken) == len(found)):
            raise ValueError(_describe(broken, len(found), self.skip_broken))
        meshes = tuple(mesh for mesh in found if mesh.path not in broken)
        digest = digest_of([self.longest, [(mesh.path, mesh.key) for mesh in meshes]])
        vars(self).update(meshes=meshes, skipped=tuple(broken.items()), digest=digest)
        vars(self).update(progress=None)  # which may not be picklable

    def __repr__(self) -> str:
        count = f"{len(self.meshes)} mesh{'es' * (len(self.meshes) > 1)}"
        return f"MeshFolder({count}, sha256 {self.digest[:16]}, longest={self.longest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeshFolder) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def draw(self, rng: np.random.Generator) -> Arrays:
        """`mesh`, its number, and `scale`, the longest side in m."""
        mesh = rng.integers(len(self.meshes))
        return {"mesh": np.array(mesh), "scale": np.array(rng.uniform(*self.longest))}

    def parts(self, shape: Arrays) -> list[Part]:
        """The hulls of a shape in m, with the middle of their bounding box at 0 and z upwards."""
        number = int(shape["mesh"])
        if not 0 <= number < len(self.meshes):
            raise ValueError(f"there is no mesh {number} among {len(self.meshes)}: draw another")
        hulls = remembered_hulls(self, self.meshes[number])
        return [Hull(hull * float(shape["scale"])) for hull in hulls]

    # ---- inside ---------------------------------------------------------------------------------

    def _check(self) -> None:
        low, high = self.longest if len(self.longest) == 2 else (math.nan, math.nan)
        if not 0 < low <= high < math.inf:
            raise ValueError(
                f"longest {self.longest} is not a range: give (low, high) in m above 0"
            )
        if self.up not in (None, "y", "z"):
            raise ValueError(f"up {self.up!r} is not an axis that points up: give 'y', 'z' or None")
        if not 0.01 <= self.concavity <= 1:
            raise ValueError(f"concavity {self.concavity} is outside [0.01, 1]: CoACD needs that")
        for name, least in (("most_parts", 1), ("most_corners", 8), ("workers", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} {getattr(self, name)} is too few: give {least} or more")
        if not self.folder.exists():
            raise FileNotFoundError(f"{self.folder}: no such folder: give one that holds meshes")
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file: give the folder that the meshes are in")
        if find_spec("trimesh") is None or find_spec("coacd") is None:
            raise ImportError(f"a folder of meshes needs trimesh and coacd: {INSTALL}")

    @property
    def _settings(self) -> decomposition.HullSettings:
        return decomposition.HullSettings(self.concavity, self.most_parts, self.most_corners)

    def _find(self) -> list[Mesh]:
        paths, shapenet = _mesh_files(self.folder)
        if not paths:
            raise ValueError(f"{self.folder} holds no mesh: expected {', '.join(FORMATS)} in it")
        found = []
        for path in paths:
            file = self.folder / path
            up = self.up or ("y" if path in shapenet or file.suffix.lower() in Y_UP else "z")
            content = decomposition.content_digest(file)
            key = digest_of([LAYOUT, SEED, version("coacd"), self._settings, content, up])
            found.append(Mesh(path, content, up, key))
        return found

    def _kept(self, mesh: Mesh) -> Path:
        return self.cache / f"{mesh.key}.npz"

    def _decompose(self, meshes: Sequence[Mesh]) -> dict[str, str]:
        """Decompose the meshes that the cache lacks; returns the defects of broken ones by path."""
        missing = {m.key: m for m in meshes if read_hulls(self._kept(m)) is None}
        outcomes, before = {}, len(meshes) - len(missing)
        for mesh, defect in self._outcomes(list(missing.values())):
            outcomes[mesh.key] = defect
            if self.progress:
                self.progress(before + len(outcomes), len(meshes))
        return {mesh.path: outcomes[mesh.key] for mesh in meshes if outcomes.get(mesh.key)}

    def _outcomes(self, meshes: list[Mesh]) -> Iterator[tuple[Mesh, str]]:
        """Each mesh as soon as it is decomposed, with its defect in words, or ""."""
        if not meshes:
            return
        # One thread each: no result of CoACD can depend on scheduling.
        with Processes(min(self.workers, len(meshes)), threads=1) as pool:
            decompose = partial(pool.submit, decomposition.decompose, self.folder)
            running = {decompose(m, self._kept(m), self._settings): m for m in meshes}
            for job in as_completed(running):
                try:
                    defect = job.result()
                except ProcessEnded:
                    defect = "makes CoACD crash, or run out of memory"
                yield running[job], defect


@lru_cache(maxsize=4096)
def remembered_hulls(objects: MeshFolder, mesh: Mesh) -> list[Floats]:
    """The corners of a mesh's hulls, read once; decomposed where the cache has lost them."""
    broken = objects._decompose([mesh])
    hulls = read_hulls(objects._kept(mesh))
    if broken or hulls is None:
        raise ValueError(_describe(broken or {mesh.path: "cannot be kept"}, 1, skipping=True))
    return hulls


def _describe(broken: dict[str, str], of: int, skipping: bool) -> str:
    path, defect = next(iter(broken.items()))
    others = f" (and {len(broken) - 1} more of {of} meshes)" if len(broken) > 1 else ""
    skip = "" if skipping else ", or give skip_broken=True (--set skip_broken=true)"
    return f"{path} {defect}{others}: repair it or take it out{skip}"


# ---- files --------------------------------------------------------------------------------------


def _mesh_files(folder: Path) -> tuple[list[str], set[str]]:
    """The relative paths of the meshes, sorted, and those among them that are ShapeNet's."""

    def fail(error: OSError) -> None:
        raise error  # leaving out a folder that cannot be read would change the distribution

    paths = []
    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(FORMATS) and not name.startswith("."):
                paths.append((Path(place) / name).relative_to(folder).as_posix())
    models: dict[str, str] = {}
    for pattern in SHAPENET:
        for match in filter(None, map(pattern.fullmatch, sorted(paths))):
            models.setdefault(match[1], match[0])

    def counts(path: str) -> bool:
        inside = [models[str(p)] for p in PurePosixPath(path).parents if str(p) in models]
        return not inside or path in inside

    return sorted(filter(counts, paths)), set(models.values())
