"""What can be rolled out: the Task protocol, and environments drawn under named streams."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray]  # by name; the first axis of each is the environment

BLOCK = 1024  # environments drawn from one generator


def generator(seed: int, stream: str, block: int = 0) -> np.random.Generator:
    """A generator of its own for every (seed, stream, block).

    Seeds enter as entropy and streams and blocks as spawn keys of a SeedSequence, so consecutive
    seeds and different streams never overlap.

    >>> generator(0, "train").random() == generator(1, "train").random()
    False
    """
    if not 0 <= seed < 2**64:  # longer ones would run into the key
        raise ValueError(f"seed {seed} is not a whole number from 0 to 2⁶⁴ - 1")
    key = (*stream.encode(), 256, block)  # 256 is no byte: no two names give the same key
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=key))


@dataclass(frozen=True)
class Environments:
    """A range of the endless sequence of i.i.d. environments that a stream and a seed name.

    Nothing is held in memory: a block is drawn when it is asked for, and always the same, so a set
    may be larger than memory, and the first hundred of a thousand are the same hundred.
    """

    draw: Callable[[np.random.Generator, int], Arrays]  # how a task draws a block
    task: str  # the task and the distribution, in words that tell them from others
    stream: str  # what they are for: "train", "test", …
    seed: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, part: slice) -> Environments:
        if not isinstance(part, slice):
            raise TypeError("environments are sliced: write environments[i : i + 1] for one")
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError("environments are sliced without a step")
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    def arrays(self) -> Arrays:
        """All of them at once, drawn."""
        parts = []
        first_block = self.start // BLOCK
        for block in range(first_block, max(first_block + 1, -(-self.stop // BLOCK))):
            drawn = self.draw(generator(self.seed, self.stream, block), BLOCK)
            first = max(self.start - block * BLOCK, 0)
            last = min(self.stop - block * BLOCK, BLOCK)
            parts.append({name: array[first:last] for name, array in drawn.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def chunks(self, size: int) -> Iterator[Environments]:
        """Consecutive parts of whole blocks, about `size` each, so that no block is drawn twice."""
        size = max(1, size // BLOCK) * BLOCK
        position = self.start
        while position < self.stop:
            end = min((position // size + 1) * size, self.stop)
            yield replace(self, start=position, stop=end)
            position = end

    def overlaps(self, other: Environments) -> bool:
        """Whether any environment belongs to both."""
        same = (self.task, self.stream, self.seed) == (other.task, other.stream, other.seed)
        return same and self.start < other.stop and other.start < self.stop

    @property
    def origin(self) -> dict[str, object]:
        """How to draw them again, as plain values for a record."""
        return {
            "task": self.task,
            "stream": self.stream,
            "seed": self.seed,
            "start": self.start,
            "stop": self.stop,
        }

    def digest(self) -> str:
        """SHA-256 of the environments themselves."""
        sha = hashlib.sha256()
        for chunk in self.chunks(BLOCK):
            for name, array in sorted(chunk.arrays().items()):
                sha.update(name.encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


class Task(Protocol):
    """A distribution over environments, and what a policy costs in one."""

    @property
    def name(self) -> str:
        """A short name, for records."""
        ...

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        ...

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        """Costs in [0, 1] of every policy (a row of parameters) in every environment.

        Shape (environments, policies). Called with chunks that fit in memory.
        """
        ...
