"""Environments drawn under named streams, and the noise of rollouts in them."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Seen

Arrays = Mapping[str, NDArray]  # by name; the first axis of each is the environment

# Streams of policies that only a certificate draws from: whoever looked beforehand would void it.
KEPT_STREAMS = ("certify", "single draw", "candidates")

BLOCK = 1024  # environments drawn from one generator


def generator(
    seed: int, stream: str, block: int = 0, of: str = "environments", *size: int
) -> np.random.Generator:
    """A generator of its own for every (seed, stream, block), and for what is drawn with it.

    Seeds enter as entropy and streams and blocks as spawn keys of a SeedSequence, so consecutive
    seeds and different streams never overlap. of: "environments", "policies" or "noise": whatever
    the streams are called, what is drawn of one kind is independent of the others. size: of the
    blocks, where it is not the usual one: blocks of different sizes share nothing.

    >>> generator(0, "train").random() == generator(1, "train").random()
    False
    """
    if not 0 <= seed < 2**64:  # longer ones would run into the key
        raise ValueError(f"seed {seed} is not a whole number from 0 to 2⁶⁴ - 1")
    kind = {"environments": 256, "policies": 257, "noise": 258}[of]
    key = (
        *stream.encode(),
        kind,
        block,
        *size,
    )  # these are no bytes: no two names give the same key
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=key))


def in_a_line(error: BaseException) -> str:
    """What was raised, its type and its message, whatever somebody's exception is like."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:
        return f"{type(error).__name__}, which cannot be shown"


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
    block: int = BLOCK  # how many are drawn from one generator, and so at least at a time

    def __post_init__(self) -> None:
        for name in ("seed", "start", "stop", "block"):  # plain numbers, for records
            object.__setattr__(self, name, operator.index(getattr(self, name)))

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
        size, first_block = self.block, self.start // self.block
        for block in range(first_block, max(first_block + 1, -(-self.stop // size))):
            drawn = self._drawn(block)
            if not isinstance(drawn, Mapping) or any(len(a) != size for a in drawn.values()):
                raise ValueError(f"draw(rng, n) must return arrays of n = {size} rows, by name")
            first = max(self.start - block * size, 0)
            last = min(self.stop - block * size, size)
            parts.append({name: array[first:last] for name, array in drawn.items()})
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for array in arrays.values():
            array.setflags(write=False)  # the next policy is to find what the last one found
        return arrays

    def _drawn(self, block: int) -> Arrays:
        size = () if self.block == BLOCK else (self.block,)
        rng = generator(self.seed, self.stream, block, "environments", *size)
        try:
            return self.draw(rng, self.block)
        except Exception as error:  # of whatever somebody brings
            words = in_a_line(error)
            raise ValueError(f"environments of {self.task} cannot be drawn: {words}") from error

    def chunks(self, size: int) -> Iterator[Environments]:
        """Consecutive parts of whole blocks, about `size` each, so that no block is drawn twice."""
        size = max(1, size // self.block) * self.block
        position = self.start
        while position < self.stop:
            end = min((position // size + 1) * size, self.stop)
            yield replace(self, start=position, stop=end)
            position = end

    def overlaps(self, other: Environments) -> bool:
        """Whether any were drawn by the same random numbers: not independent, whatever the task."""
        return self.range.overlaps(other.range)

    @property
    def range(self) -> Seen:
        """What tells them apart, for those that depend on them."""
        return Seen(self.stream, self.seed, self.start, self.stop)

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


def ranges_of(parts: Sequence[Environments | Seen]) -> tuple[Seen, ...]:
    """Environments by their ranges, for records."""
    ranges = [part.range if isinstance(part, Environments) else part for part in parts]
    if not all(isinstance(part, Seen) for part in ranges):
        raise ValueError("data_used lists the Environments that every policy was made with")
    return tuple(ranges)


@dataclass(frozen=True)
class Noise:
    """The world's own randomness in rollouts: a stream with a part of its own for each rollout.

    It is drawn independently of the policy (paper: Section 6.1). A rollout is known by its
    environment and its column in the table of costs.
    """

    stream: str
    seed: int = 0
    kind: str = ""  # what is random, in words, for records
    column: int = 0  # of the first policy

    def shifted(self, columns: int) -> Noise:
        """The same for a part of the table that begins so many columns further on."""
        return replace(self, column=self.column + columns)

    def keys(self, environments: Environments, policies: int) -> NDArray[np.uint64]:
        """64 bits for each rollout, for a compiled simulator; shape (environments, policies)."""
        first = generator(self.seed, self.stream, of="noise").integers(0, 2**64, dtype=np.uint64)
        rows = np.arange(environments.start, environments.stop, dtype=np.uint64)
        columns = np.arange(self.column, self.column + policies, dtype=np.uint64)
        return mixed(mixed(first + rows)[:, None] + columns)

    def generator(self, environments: Environments, row: int, policy: int) -> np.random.Generator:
        """A generator for one rollout of a chunk, for a simulator in Python."""
        name = f"{self.stream} {environments.start + row} {self.column + policy}"
        return generator(self.seed, name, of="noise")


def mixed(counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The mixer of SplitMix64: a one-to-one map of 64 bits whose values look random."""
    z = counters * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
