"""Objects that have come to rest on a table, as the robot meets them."""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.camera import Camera
from pacbayes_control.robots.grasping.models import Body, build, mujoco
from pacbayes_control.robots.grasping.objects import Objects, Procedural
from pacbayes_control.robots.grasping.simulator import Drop
from pacbayes_control.tasks.environments import Arrays

BLOCK = 16  # objects drawn from one generator
KEPT = 512  # blocks that a process remembers, 200 MB
ATTEMPTS = 50  # at one object, before the distribution is given up

_kept: OrderedDict[tuple[str, bytes], Arrays] = OrderedDict()  # a block is a function of its key
_turn = Lock()


@dataclass(frozen=True)
class Tabletop:
    """The distribution of environments: an object of some mass and friction, dropped and at rest.

    An object that does not settle, or not wholly in the camera's sight, is drawn anew, shape and
    all, until one does: the rule looks at no policy, so what is left is an i.i.d. draw of objects
    that settle. How many draws each took is recorded as `attempts`.

    mass and pose are the paper's. It draws moments of inertia from 0.75 to 1.25 without a unit;
    here these are factors of the shape's own moments. Friction is ours: the paper says nothing.
    """

    objects: Objects = field(default_factory=Procedural)
    mass: tuple[float, float] = (0.05, 0.15)  # kg
    inertia: tuple[float, float] = (0.75, 1.25)  # factors
    friction: tuple[float, float] = (0.4, 0.8)
    drop: Drop = field(default_factory=Drop)
    camera: Camera = field(default_factory=Camera)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """The arrays of n objects, each a shape's and what `_settled` adds to them."""
        seeds = rng.integers(0, 2**63, size=n)
        key = (repr(self), seeds.tobytes())
        with _turn:
            if key not in _kept:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    drawn = list(pool.map(self._one, seeds))
                _kept[key] = {name: np.stack([one[name] for one in drawn]) for name in drawn[0]}
                for array in _kept[key].values():
                    array.setflags(write=False)
                while len(_kept) > KEPT:
                    _kept.popitem(last=False)
            return _kept[key]

    def at_rest(self, arrays: Arrays, row: int) -> tuple[Body, NDArray[np.float64], float]:
        """The object in a row of the arrays, where it lies, (7,), and its height as seen, in m."""
        return self.body(arrays, row), arrays["rest"][row], float(arrays["top"][row])

    def body(self, arrays: Arrays, row: int) -> Body:
        """The object in a row of the arrays."""
        shape = {name: array[row] for name, array in arrays.items()}
        return _body(self.objects, shape)

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
        mj = mujoco()
        shape = {
            **self.objects.draw(rng),
            "mass": np.array(rng.uniform(*self.mass)),  # kg
            "inertia": rng.uniform(*self.inertia, size=3),
            "friction": np.array(rng.uniform(*self.friction)),
        }
        turn = self.drop.turn(rng)
        body = _body(self.objects, shape)
        model = build(body)
        rest = self.drop.settle(model, body, turn)
        if rest is None:
            return None
        data = mj.MjData(model)
        data.qpos[:] = rest.pose
        mj.mj_forward(model, data)
        view = self.camera.look(model, data)
        if view is None or not view.whole:
            return None
        return {
            **shape,
            "rest": rest.pose,  # (7,), place in m and quaternion
            "heights": view.heights,  # (pixels, pixels) in m, around the centroid
            "mask": view.mask,  # (pixels, pixels)
            "centroid": view.centroid,  # (2,) in m
            "top": np.array(view.top),  # m
        }


def _body(objects: Objects, shape: Arrays) -> Body:
    return Body(
        objects.parts(shape), float(shape["mass"]), shape["inertia"], float(shape["friction"])
    )


def minor_axis(mask: NDArray) -> float:
    """The direction in which what a mask shows is narrowest, rad from 0 to π."""
    rows, columns = np.nonzero(mask)
    spread = np.cov(np.stack([columns, rows]).astype(float))
    across = np.linalg.eigh(spread)[1][:, 0]
    return float(np.arctan2(across[1], across[0]) % np.pi)
