"""The distribution of environments: objects that have come to rest on a table."""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.camera import Camera
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.models import Body, Floats, build, data_at
from pacbayes_control.robots.grasping.objects import Procedural
from pacbayes_control.robots.grasping.simulator import Drop
from pacbayes_control.tasks.environments import Arrays

BLOCK = 16  # objects drawn from one generator
KEPT = 512  # blocks that a process keeps in memory, 200 MB
ATTEMPTS = 50  # draws of one object, after which the distribution is an error

_kept: OrderedDict[tuple[str, bytes], Arrays] = OrderedDict()  # a block is a function of its key
_lock = Lock()


@dataclass(frozen=True)
class Tabletop:
    """A distribution of objects: shape, mass and friction, dropped on a table and at rest.

    An object that does not settle wholly in the camera's sight is drawn anew, with its shape, until
    one does: the rule looks at no policy, so the accepted objects are i.i.d. draws of objects that
    settle. The number of draws for each is recorded as `attempts`.

    Mass and pose are the paper's. It draws moments of inertia from 0.75 to 1.25 without a unit;
    here these are factors of the shape's own moments. It does not give the friction.
    """

    # The shapes: each `draw` gives arrays that are equally large for every shape, of which `parts`
    # makes convex parts; its `repr` must tell a distribution from every other.
    objects: Procedural | MeshFolder = field(default_factory=Procedural)
    mass: tuple[float, float] = (0.05, 0.15)  # kg
    inertia: tuple[float, float] = (0.75, 1.25)  # factors
    friction: tuple[float, float] = (0.4, 0.8)
    drop: Drop = field(default_factory=Drop)
    camera: Camera = field(default_factory=Camera)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """The arrays of n objects: those of their shapes, and those that `_settled` adds."""
        seeds = rng.integers(0, 2**63, size=n)
        key = (repr(self), seeds.tobytes())
        with _lock:
            if key not in _kept:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    drawn = list(pool.map(self._one, seeds))
                _kept[key] = {name: np.stack([one[name] for one in drawn]) for name in drawn[0]}
                for array in _kept[key].values():
                    array.setflags(write=False)
                while len(_kept) > KEPT:
                    _kept.popitem(last=False)
            return _kept[key]

    def at_rest(self, arrays: Arrays, row: int) -> tuple[Body, Floats, float]:
        """The object in a row of the arrays, its pose, (7,), and its height as seen, in m."""
        return self.body(arrays, row), arrays["rest"][row], float(arrays["top"][row])

    def body(self, arrays: Arrays, row: int) -> Body:
        """The object in a row of the arrays."""
        return self._body({name: array[row] for name, array in arrays.items()})

    def _body(self, shape: Arrays) -> Body:
        mass, friction = float(shape["mass"]), float(shape["friction"])
        return Body(self.objects.parts(shape), mass, shape["inertia"], friction)

    def _one(self, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        for attempt in range(1, ATTEMPTS + 1):
            found = self._settled(rng)
            if found is not None:
                return {**found, "attempts": np.array(attempt)}
        raise ValueError(
            f"{ATTEMPTS} objects in a row did not settle on the table in the camera's sight: these "
            "objects cannot be used as they are"
        )

    def _settled(self, rng: np.random.Generator) -> Arrays | None:
        """One draw of an object; None where it does not settle wholly in sight."""
        shape = {
            **self.objects.draw(rng),
            "mass": np.array(rng.uniform(*self.mass)),  # kg
            "inertia": rng.uniform(*self.inertia, size=3),
            "friction": np.array(rng.uniform(*self.friction)),
        }
        turn = self.drop.turn(rng)
        body = self._body(shape)
        model = build(body)
        rest = self.drop.settle(model, body, turn)
        view = None if rest is None else self.camera.look(model, data_at(model, rest))
        if rest is None or view is None or not view.whole:
            return None
        seen = {name: np.array(value) for name, value in vars(view).items() if name != "whole"}
        return {**shape, "rest": rest, **seen}  # rest: (7,), place in m and quaternion


def minor_axis(mask: NDArray) -> float:
    """The direction in which the object of a mask is narrowest, in rad from 0 to π."""
    rows, columns = np.nonzero(mask)
    spread = np.cov(np.stack([columns, rows]).astype(float))
    across = np.linalg.eigh(spread)[1][:, 0]
    return float(np.arctan2(across[1], across[0]) % np.pi)
