"""Environments drawn under named streams, and the noise of rollouts in them."""

from __future__ import annotations

import hashlib
import operator
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import walk_tb
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.descriptions import MOST_COLUMNS, checked_descriptions
from pacbayes_control.certify.ranges import EnvironmentRange

Arrays = Mapping[str, NDArray]  # by name; the first axis of each is the environment

# Streams of policies that only a certificate draws from: to look at them before would void it.
KEPT_STREAMS = ("certify", "single draw", "candidates")

BLOCK = 1024  # environments drawn from one generator
FEW = 16  # the same where each environment is drawn by a call in Python

# Folders of code that is not a user's: this package and the standard library.
NOT_USERS = (Path(__file__).parents[1], *map(sysconfig.get_path, ("stdlib", "platstdlib")))


def generator(
    seed: int,
    stream: str,
    block: int = 0,
    of: Literal["environments", "policies", "noise"] = "environments",
    *size: int,
) -> np.random.Generator:
    """A generator of its own for every (seed, stream, block), and for each kind of draws.

    Seeds enter as entropy and streams and blocks as spawn keys of a SeedSequence, so consecutive
    seeds and different streams never overlap.

    Args:
        seed: from 0 to 2⁶⁴ - 1
        stream: the name of the stream
        block: the number of the block within the stream
        of: the kind of draws: different kinds are independent, also in streams of the same name
        size: of the blocks, if it is not the usual one: blocks of different sizes share nothing

    >>> generator(0, "train").random() == generator(1, "train").random()
    False
    """
    if not 0 <= seed < 2**64:  # longer ones would run into the key
        raise ValueError(f"seed {seed} is not a whole number from 0 to 2⁶⁴ - 1")
    kind = {"environments": 256, "policies": 257, "noise": 258}[of]
    key = (*stream.encode(), kind, block, *size)  # no byte is as large as a kind: keys differ
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=key))


def in_a_line(error: BaseException) -> str:
    """An exception in one line: its type and message, its innermost cause, and the user's line.

    The cause is what it was raised `from`, left out where the message tells it. The file and line
    are the innermost that are neither of this package nor of an installed one.
    """
    cause, seen = error, {id(error)}
    while cause.__cause__ is not None and id(cause.__cause__) not in seen:
        cause = cause.__cause__
        seen.add(id(cause))
    words, reason = _message(error), _message(cause)
    if reason not in words:
        words += f", caused by {reason}"
    place = _users_line(cause) or _users_line(error)
    return words if not place or place in words else f"{words} ({place})"


def _message(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:
        return f"{type(error).__name__}, which cannot be shown"


def _users_line(error: BaseException) -> str:
    """Where a user's code raised an error or called what did, such as robot.py:12; else nothing."""
    places = [(frame.f_code.co_filename, n) for frame, n in walk_tb(error.__traceback__)]
    lines = [f"{Path(file).name}:{line}" for file, line in places if _is_users(Path(file))]
    return lines[-1] if lines else ""


def _is_users(file: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & {*file.parts}
    ours = any(file.is_relative_to(folder) for folder in NOT_USERS)
    return not (installed or ours or file.name.startswith("<"))


@dataclass(frozen=True)
class Environments:
    """A range of the endless sequence of i.i.d. environments that a stream and a seed name.

    Nothing is held in memory: a block is drawn when it is needed, and is the same each time. So a
    set may be larger than memory, and the first hundred of a thousand are the same hundred.
    """

    draw: Callable[[np.random.Generator, int], Arrays]  # how a task draws a block
    task: str  # the task and the distribution, in words that tell them from others
    stream: str  # their purpose: "train", "test", …
    seed: int
    start: int
    stop: int
    block: int = BLOCK  # how many are drawn from one generator, and so at once

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
            key = () if size == BLOCK else (size,)
            rng = generator(self.seed, self.stream, block, "environments", *key)
            try:
                drawn = self.draw(rng, size)
            except Exception as error:  # a user's function may raise anything
                raise ValueError(
                    f"environments of {self.task} cannot be drawn: {in_a_line(error)}"
                ) from error
            if not isinstance(drawn, Mapping) or any(len(a) != size for a in drawn.values()):
                raise ValueError(f"draw(rng, n) must return arrays of n = {size} rows, by name")
            first = max(self.start - block * size, 0)
            last = min(self.stop - block * size, size)
            parts.append({name: array[first:last] for name, array in drawn.items()})
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for array in arrays.values():
            array.setflags(write=False)  # each policy must find the same environments
        return arrays

    def chunks(self, size: int) -> Iterator[Environments]:
        """Consecutive parts of whole blocks, about `size` each, so that no block is drawn twice."""
        size = max(1, size // self.block) * self.block
        position = self.start
        while position < self.stop:
            end = min((position // size + 1) * size, self.stop)
            yield replace(self, start=position, stop=end)
            position = end

    @property
    def range(self) -> EnvironmentRange:
        """Their stream, seed and numbers, for records of what depends on them.

        Sets whose ranges overlap were drawn by the same random numbers: they are not independent,
        for any task.
        """
        return EnvironmentRange(self.stream, self.seed, self.start, self.stop)

    @property
    def origin(self) -> dict[str, object]:
        """How to draw them again, as plain values for a record."""
        return {"task": self.task, **self.range._asdict()}

    def digest(self) -> str:
        """SHA-256 of the environments themselves."""
        sha = hashlib.sha256()
        for chunk in self.chunks(BLOCK):
            for name, array in sorted(chunk.arrays().items()):
                sha.update(name.encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


def first_environments(
    draw: Callable[[np.random.Generator, int], Arrays],
    task: str,
    n: int,
    *,
    stream: str,
    seed: int,
    block: int = BLOCK,
) -> Environments:
    """The first n environments of a stream; the arguments are fields of `Environments`."""
    if n < 1:
        raise ValueError(f"{n} environments were asked for: at least one is needed")
    return Environments(draw, task, stream, seed, 0, n, block)


def stacked(drawn: Sequence[Mapping[str, Any]]) -> Arrays:
    """Environments that were drawn one by one, as arrays by name."""
    if not all(isinstance(one, Mapping) and one.keys() == drawn[0].keys() for one in drawn):
        raise ValueError("an environment is values by name, and all must have the same names")
    arrays = {}
    for name in drawn[0]:
        values = [one[name] for one in drawn]
        kinds = {np.asarray(value).dtype.kind for value in values}
        shapes = {np.shape(value) for value in values}
        if len(kinds) > 1 or len(shapes) > 1 or not kinds <= set("biufUS"):
            raise ValueError(
                f"{name!r} must be a number, a word or an array of numbers, of the same type and "
                "shape in every environment"
            )
        arrays[name] = np.array(values)
    return arrays


def scalars(arrays: Arrays) -> Arrays:
    """What is one number or word for each environment, by name; short vectors number by number.

    >>> drawn = {"wind": np.zeros(2), "goal": np.ones((2, 3)), "map": np.zeros((2, 64, 64))}
    >>> list(scalars(drawn))
    ['wind', 'goal[0]', 'goal[1]', 'goal[2]']
    """
    found: dict[str, NDArray] = {}
    for name, array in arrays.items():
        few = array.ndim == 2 and array.shape[1] <= FEW
        columns = {name: array} if array.ndim == 1 else {}
        columns |= {f"{name}[{i}]": array[:, i] for i in range(array.shape[1])} if few else {}
        found |= {key: column for key, column in columns.items() if _in_a_table(key, column)}
    return dict(list(found.items())[:MOST_COLUMNS])


def _in_a_table(name: str, column: NDArray) -> bool:
    """Whether a table of environments can have this column."""
    try:
        checked_descriptions({name: column}, len(column))
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Noise:
    """The world's own randomness in rollouts: a stream with a part of its own for each rollout.

    It is drawn independently of the policy (paper: Section 6.1). A rollout is identified by its
    environment and its column in the table of costs.
    """

    stream: str
    seed: int = 0
    kind: str = ""  # a description of the randomness, for records
    column: int = 0  # of the first policy

    def shifted(self, columns: int) -> Noise:
        """The noise of a part of the table that begins so many columns further on."""
        return replace(self, column=self.column + columns)

    def keys(self, environments: Environments, policies: int) -> NDArray[np.uint64]:
        """64 bits for each rollout, for a compiled simulator; shape (environments, policies)."""
        columns = np.arange(self.column, self.column + policies, dtype=np.uint64)
        return mixed(self.row_keys(environments)[:, None] + columns)

    def row_keys(self, environments: Environments) -> NDArray[np.uint64]:
        """64 bits for each environment, from which those of its rollouts are mixed."""
        first = generator(self.seed, self.stream, of="noise").integers(0, 2**64, dtype=np.uint64)
        rows = np.arange(environments.start, environments.stop, dtype=np.uint64)
        return mixed(first + rows)

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
