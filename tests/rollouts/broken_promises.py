"""Tasks that each break one promise, in a module, so that workers can import them."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pacbayes_control.tasks import BatchTask, Environments, FunctionTask

Environment = Mapping[str, Any]
POLICIES = np.array([[0.0], [0.4], [0.8]])


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """A goal, and obstacles: a number and an array."""
    return {"goal": rng.random(), "obstacles": rng.random(2)}


def miss(policy: NDArray, environment: Environment) -> float:
    """A cost that differs in every bit between rollouts that differ."""
    return float(abs(policy[0] - environment["goal"]) + environment["obstacles"][0]) % 1


def slip(policy: NDArray, environment: Environment, rng: np.random.Generator) -> float:
    """The same with noise of its own, from where it should come from."""
    return (miss(policy, environment) + rng.random()) % 1


def made_of(rollout: Any, draw: Any = draw, name: str = "toy") -> FunctionTask:
    return FunctionTask(rollout, draw, name, parameters=1, policies=POLICIES)


# ---- randomness from where it should not come ---------------------------------------------------


def hidden(policy: NDArray, environment: Environment) -> float:
    """A generator that nobody seeds."""
    return (miss(policy, environment) + np.random.default_rng().random()) % 1


def numpy_draws(policy: NDArray, environment: Environment) -> float:
    return (miss(policy, environment) + np.random.random()) % 1  # noqa: NPY002


def python_draws(policy: NDArray, environment: Environment) -> float:
    return (miss(policy, environment) + random.random()) % 1


def torch_draws(policy: NDArray, environment: Environment) -> float:
    return (miss(policy, environment) + float(torch.rand(()))) % 1


def numpy_seeded(policy: NDArray, environment: Environment) -> float:
    """It repeats, and yet others that draw from NumPy's global state will not."""
    np.random.seed(int(1e6 * environment["goal"]))  # noqa: NPY002
    return (miss(policy, environment) + np.random.random()) % 1  # noqa: NPY002


def python_wasted(policy: NDArray, environment: Environment) -> float:
    """A draw that changes no cost, but the state of others'."""
    random.random()
    return miss(policy, environment)


def torch_wasted(policy: NDArray, environment: Environment) -> float:
    torch.rand(())
    return miss(policy, environment)


# ---- rollouts that are not alone ----------------------------------------------------------------


@dataclass
class Task:
    """What tasks of a class of their own have in common."""

    name: str = "toy"
    policies: NDArray = field(default_factory=lambda: POLICIES)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Environments(self.draw, self.name, stream, seed, 0, n)

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"goal": rng.random(n)}

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.abs(policies[..., 0] - environments.arrays()["goal"][:, None])


@dataclass(repr=False)
class Worn(Task):
    """It wears out: a cost depends on how many rollouts there were before."""

    rollouts: int = 0

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        costs = super().costs(policies, environments)
        self.rollouts += costs.size
        return costs * (1 - 1 / (1 + self.rollouts))


@dataclass(repr=False)
class Remembering(Task):
    """It remembers the environment before, and is better where that was the next one."""

    last: int = -1

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        costs = super().costs(policies, environments)
        if len(environments) == 1 and self.last == environments.start + 1:
            costs = costs / 2
        self.last = environments.stop - 1
        return costs


def ranked(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
    """Costs against the best of the batch."""
    costs = np.abs(policies[..., 0] - environments["goal"][:, None])
    return costs - costs.min()


def many(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
    return {"goal": rng.random(n)}


BATCH = BatchTask(ranked, many, "toy", parameters=1, policies=POLICIES)


@dataclass(repr=False)
class Mistaken(Task):
    """Where each environment has policies of its own, it takes those of the first for all."""

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return super().costs(policies if policies.ndim == 2 else policies[0], environments)


@dataclass(repr=False)
class Local(Task):
    """It knows the process that it was made in."""

    process: int = field(default_factory=os.getpid)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        costs = super().costs(policies, environments)
        return costs if os.getpid() == self.process else costs / 2


@dataclass(repr=False)
class Locked(Task):
    """It holds what cannot be sent."""

    lock: Any = field(default_factory=threading.Lock)


@dataclass(repr=False)
class Anonymous(Task):
    """It cannot be told from another by any words."""

    solver: Any = field(default_factory=object)
    __repr__ = object.__repr__


# ---- environments -------------------------------------------------------------------------------


def always_the_same(rng: np.random.Generator) -> dict[str, Any]:
    del rng
    return {"goal": 0.3, "obstacles": np.zeros(2)}


@dataclass(repr=False)
class Counting(Task):
    """Environments by consecutive seeds, from the one that is given."""

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        def draw(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
            del rng
            found = [np.random.default_rng(seed + i).random() for i in range(n)]
            return {"goal": np.array(found)}

        return Environments(draw, self.name, stream, seed, 0, n)


@dataclass(repr=False)
class Alike(Task):
    """Streams that differ, but not by much."""

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        common = np.random.default_rng(0).random(n)
        return {"goal": 0.8 * common + 0.2 * rng.random(n)}


@dataclass(repr=False)
class SameStream(Task):
    """The stream's name is forgotten."""

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        del stream
        return super().environments(n, "always", seed)


@dataclass(repr=False)
class Wandering(Task):
    """Each environment is near the one before it."""

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        steps = rng.random(n + 2)
        return {"goal": (steps[2:] + steps[1:-1] + steps[:-2]) / 3}


@dataclass(repr=False)
class Changing(Task):
    """A part of its environments, which costs nothing, is another each time."""

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"goal": rng.random(n), "colour": np.random.default_rng().random(n)}


def of_many_scenes(rng: np.random.Generator) -> dict[str, Any]:
    """A recorded scene out of 30,000, drawn as it should be."""
    return {"scene": int(rng.integers(30_000))}


def scene_cost(policy: NDArray, environment: Environment) -> float:
    return float(policy[0] + environment["scene"] / 7) % 1


# ---- costs --------------------------------------------------------------------------------------


def large(policy: NDArray, environment: Environment) -> float:
    return 1.2 if policy[0] == 0.4 else miss(policy, environment)


def undefined(policy: NDArray, environment: Environment) -> float:
    return float("nan") if policy[0] == 0.8 else miss(policy, environment)


def raising(policy: NDArray, environment: Environment) -> float:
    if policy[0] == 0.4:
        raise RuntimeError("the gripper\nslipped")
    return miss(policy, environment)
