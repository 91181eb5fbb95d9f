"""A job, all rollouts of a table of costs; its pieces, for workers; and spans of rollouts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.checks import checked_costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import generator

CHUNK = 1024  # environments given to a task at a time, unless its speed is measured
MANY = 1 << 25  # rollouts at a time of a task that wants more environments than that together
CELLS = 1 << 22  # numbers of sampled policies held at a time
TABLE = 1 << 22  # costs held at a time, beside those that are done
Table = NDArray[np.float64 | np.uint8]  # of costs, (environments, policies)
Span = tuple[int, int]  # rollouts, counted along the rows of a table: first, last (exclusive)


class Piece(NamedTuple):
    """A part of the table of costs: some rows, or some columns of one row."""

    first_row: int
    last_row: int  # exclusive
    first_column: int
    last_column: int  # exclusive

    @classmethod
    def at(cls, row: int, column: int) -> Piece:
        """A single rollout."""
        return cls(row, row + 1, column, column + 1)

    @property
    def rollouts(self) -> int:
        """How many rollouts it has."""
        return (self.last_row - self.first_row) * (self.last_column - self.first_column)

    def span(self, columns: int) -> Span:
        """Its rollouts, counted along the rows of a table of so many columns."""
        first = self.first_row * columns + self.first_column
        return first, first + self.rollouts

    def span_in(self, part: Piece) -> Span | None:
        """Its rollouts, counted along the rows of a larger part; None if it is no piece of that."""
        rows, columns = self.first_row - part.first_row, self.first_column - part.first_column
        wide = part.last_column - part.first_column
        inside = min(rows, columns) >= 0 and self.last_row <= part.last_row
        inside = inside and self.last_column <= part.last_column
        whole = self.last_column - self.first_column == wide or self.last_row - self.first_row == 1
        first = rows * wide + columns
        return (first, first + self.rollouts) if inside and whole and self.rollouts > 0 else None

    def around(self, row: int, column: int) -> list[Piece]:
        """The other rollouts of the piece, without the given one, in at most four pieces."""
        parts = [
            self._replace(last_row=row),
            Piece(row, row + 1, self.first_column, column),
            Piece(row, row + 1, column + 1, self.last_column),
            self._replace(first_row=row + 1),
        ]
        return [part for part in parts if part.rollouts]

    def halves(self) -> list[Piece]:
        """Two halves: split by rows if there are several, by columns otherwise."""
        if self.last_row - self.first_row > 1:
            middle = (self.first_row + self.last_row) // 2
            return [self._replace(last_row=middle), self._replace(first_row=middle)]
        middle = (self.first_column + self.last_column) // 2
        return [self._replace(last_column=middle), self._replace(first_column=middle)]


@dataclass(frozen=True)
class FreshDraws:
    """Policies drawn from a posterior, for each environment by its index and the seed."""

    posterior: DiagonalGaussian
    draws: int
    stream: str
    seed: int
    columns: tuple[int, int] | None = None  # first and last (exclusive) draw to use; None: all

    @property
    def shape(self) -> tuple[int, int]:
        """Draws in each environment × parameters."""
        first, last = self.columns or (0, self.draws)
        return last - first, len(self.posterior)

    def of(self, environments: Environments) -> NDArray[np.float64]:
        """Shape (environments, draws, parameters)."""
        numbers = range(environments.start, environments.stop)
        rngs = [generator(self.seed, self.stream, i, of="policies") for i in numbers]
        policies = np.stack([self.posterior.sample(rng, self.draws) for rng in rngs])
        return policies[:, slice(*self.columns)] if self.columns else policies


def shared_draws(
    posterior: DiagonalGaussian, draws: int, stream: str, seed: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Policies that all environments share, in parts that fit in memory, each with its start."""
    width, rng = max(1, CELLS // len(posterior)), generator(seed, stream, of="policies")
    for first in range(0, draws, width):
        yield first, posterior.sample(rng, min(width, draws - first))


@dataclass(frozen=True)
class Job:
    """Everything that a table of costs, or a part of one, depends on."""

    task: Task
    environments: Environments
    policies: NDArray | FreshDraws  # (policies, parameters), (environments, policies, parameters)
    noise: Noise | None = None
    surrogate: bool = False
    first_column: int = 0  # of a part, in its table
    first_rollout: int = 0  # of a part of a table that is filled in several parts
    hardware: str | None = None  # that the task must have wherever it runs; None: any

    def span(self, piece: Piece) -> Span:
        """The rollouts of a piece, as they are counted in the log of failures."""
        first, last = piece.span(self.shape[1])
        return self.first_rollout + first, self.first_rollout + last

    @property
    def shape(self) -> tuple[int, int]:
        """Environments × policies."""
        return len(self.environments), self.policies.shape[-2]

    def part(self, piece: Piece) -> Job:
        """The job of one piece, with its own environments and policies only."""
        first_row, last_row, first, last = piece
        if isinstance(self.policies, FreshDraws):
            policies = replace(self.policies, columns=(first, last))
        else:
            own = self.policies[first_row:last_row] if self.policies.ndim == 3 else self.policies
            policies = own[..., first:last, :]
        return replace(
            self,
            environments=self.environments[first_row:last_row],
            policies=policies,
            noise=self.noise.shifted(first) if self.noise else None,
            first_column=self.first_column + first,
        )

    def run(self) -> tuple[Table, int]:
        """The checked costs, and how many are 1 because of an error declared to be a failure.

        An error names a place by its row and column in the whole table. The task gets a read-only
        view of the policies: those in the record must not change.
        """
        task: Any = self.task
        if self.hardware is not None and task.hardware != self.hardware:
            raise WrongCosts(
                f"rollouts are to run on {self.hardware or 'a CPU'}, and a worker has "
                f"{task.hardware or 'none'}: rounding differs, so take workers of one kind"
            )
        arguments, raised = self._arguments(), 0
        policies, environments = arguments[:2]
        if self.surrogate:
            part = task.surrogate(*arguments)
        else:
            part, raised = task.costs_and_raised(*arguments)
        masked, part = isinstance(part, np.ma.MaskedArray), np.asarray(part)
        rows, columns = len(environments), policies.shape[-2]
        wrong = "that are masked" if masked else ""
        if not wrong and part.dtype.kind not in "biuf":
            wrong = f"that are not numbers (dtype {part.dtype})"
        if not wrong and part.shape != (rows, columns):
            own = " (policies of their own, a 3-d array)" if policies.ndim == 3 else ""
            wrong = f"of shape {part.shape} for {rows} environments × {columns} policies{own}"
        if wrong:
            raise WrongCosts(f"task {self.task.name} returned costs {wrong}")
        try:
            return checked_costs(part, environments.start, self.first_column), int(np.sum(raised))
        except ValueError as error:
            raise WrongCost(str(error)) from None

    def rounding_decides(self) -> bool:
        """Whether another device may find another cost, for a job of one rollout."""
        return self.task.rounding_decides(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        """What the task's functions take: policies, environments, and noise if there is any."""
        policies = self.policies
        if isinstance(policies, FreshDraws):
            policies = policies.of(self.environments)
        policies = policies.view()
        policies.setflags(write=False)
        return policies, self.environments, *((self.noise,) if self.noise else ())


class WrongCosts(ValueError):  # noqa: N818 - what a task returned, not a fault of the program
    """A task returned something that is not a table of costs; trying again would not help."""


class WrongCost(WrongCosts):
    """A single cost is NaN or outside [0, 1]; other rollouts may be right."""


class Pace:
    """The number of rollouts in a piece, so that a piece takes about the given number of seconds.

    The first piece has one rollout; each later one at most eight times as many as a finished one.
    The rate is measured over the last few pieces: the first ones wait for compilers, and rollouts
    differ in length.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.size = 1
        self._rollouts = self._seconds = 0.0  # of the last pieces, each counting half of the next

    @property
    def rollout(self) -> float:
        """Seconds of a rollout, lately; 0 if none was measured."""
        return self._seconds / self._rollouts if self._rollouts else 0.0

    def tell(self, rollouts: int, seconds: float) -> None:
        """Record how many seconds a piece of so many rollouts took."""
        self._rollouts = self._rollouts / 2 + rollouts
        self._seconds = self._seconds / 2 + seconds
        wanted = int(self._rollouts / max(self._seconds, 1e-9) * self.seconds)
        self.size = max(1, min(wanted, max(self.size, 8 * rollouts)))


def pieces(
    job: Job, gaps: list[Span], pace: Pace | None = None, sharers: int = 1
) -> Iterator[Piece]:
    """Pieces that fill the gaps of a table, in order, as large as the pace says at that moment.

    A piece of a block of environments or more ends where a block ends, so that no block is drawn
    twice.

    Args:
        job: the table
        gaps: ranges of rollouts, counted along the rows
        pace: the size of a piece; without it, CHUNK rows
        sharers: how many pieces are in flight at a time; towards the end pieces get smaller, so
            that all workers finish together
    """
    columns, start, block = job.policies.shape[-2], job.environments.start, job.environments.block
    usual = rows_at_once(job.task, columns)
    most_rows = max(1, TABLE // columns)  # so that the arrays of a piece stay small
    if usual > CHUNK:
        most_rows = max(most_rows, usual)
    if isinstance(job.policies, FreshDraws):
        most_rows = max(1, CELLS // (columns * len(job.policies.posterior)))
    left = sum(last - first for first, last in gaps)
    for first, last in gaps:
        at = first
        while at < last:
            row, column = divmod(at, columns)
            size = pace.size if pace else usual * columns
            if sharers > 1:
                size = max(min(size, left // sharers), size // 16, 1)
            size = max(size, min(job.task.together, most_rows) * columns)
            if column == 0 and size >= columns and last - at >= columns:
                rows, wide = min(size // columns, most_rows, (last - at) // columns), columns
                if rows >= block and at + rows * columns < last:
                    rows = (start + row + rows) // block * block - start - row
            else:
                rest = min(columns - column, last - at)
                parts = -(-rest // size)  # of about the same size
                rows, wide = 1, -(-rest // parts)
            at += rows * wide
            left -= rows * wide
            yield Piece(row, row + rows, column, column + wide)


def rows_at_once(task: Task, columns: int) -> int:
    """Environments given to a task at a time, if its speed is not measured."""
    return max(CHUNK, min(task.together, MANY // columns))


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same rollouts in increasing order, without overlaps.

    >>> merged([(4, 6), (0, 2), (2, 5)])
    [(0, 6)]
    """
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without(spans: Iterable[Span], done: Sequence[Span]) -> list[Span]:
    """The parts of some spans that are not done; `done` is in increasing order, without overlaps.

    >>> without([(0, 10)], [(2, 3), (8, 20)])
    [(0, 2), (3, 8)]
    """
    left: list[Span] = []
    for first, last in spans:
        at, index = first, max(0, bisect_right(done, first, key=lambda span: span[0]) - 1)
        while index < len(done) and done[index][0] < last:
            begin, end = done[index]
            if begin > at:
                left.append((at, begin))
            at, index = max(at, end), index + 1
        if at < last:
            left.append((at, last))
    return left
