"""A table of costs in pieces: every rollout once, and the same costs whatever the pieces are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import small_robots as robots
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_robots import TASKS, Erratic, Scrambled, policies

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.rollouts import jobs
from pacbayes_control.rollouts.dispatch import roll_out
from pacbayes_control.rollouts.jobs import FreshDraws, Job, Pace, Piece, pieces
from pacbayes_control.rollouts.pools import WorkerPool
from pacbayes_control.tasks import Noise
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from pacbayes_control.tasks.task import noise_of
from sizes import sized

SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=9)
TASK_NAMES = pytest.mark.parametrize("name", list(TASKS))


def job_of(
    task: FunctionTask | BatchTask,
    n: int = 40,
    columns: int = 7,
    start: int = 0,
    kind: str = "given",
) -> Job:
    """A job with policies that are given, each environment's own, or drawn."""
    environments = task.environments(start + n, stream="pieces", seed=3)[start:]
    noise = noise_of(task, environments, Noise("wind", 5))
    rows: NDArray | FreshDraws = policies(columns)
    if kind == "own":
        rows = np.random.default_rng(0).random((n, columns, 2))
    if kind == "drawn":
        rows = FreshDraws(DiagonalGaussian([1.0, 2.0], 0.5), columns, "sample", 4)
    return Job(task, environments, rows, noise)


def whole(job: Job) -> NDArray:
    """All of a table at once, with nothing of the package between the task and the costs."""
    drawn = isinstance(job.policies, FreshDraws)
    rows = job.policies.of(job.environments) if isinstance(job.policies, FreshDraws) else None
    given = rows if drawn else job.policies
    if job.noise:
        return np.asarray(job.task.costs(given, job.environments, job.noise), float)  # type: ignore[call-arg]
    return np.asarray(job.task.costs(given, job.environments), float)  # type: ignore[arg-type]


def covered(job: Job, parts: list[Piece]) -> NDArray[np.int64]:
    """How often the rollouts of a table are in pieces."""
    times = np.zeros(job.shape, np.int64)
    for part in parts:
        times[place(part)] += 1
    return times


def place(piece: Piece) -> tuple[slice, slice]:
    first_row, last_row, first, last = piece
    return slice(first_row, last_row), slice(first, last)


def assembled(job: Job, pace: Pace | None, executor: Scrambled | None = None) -> NDArray:
    values = np.full(job.shape, np.nan)
    total = job.shape[0] * job.shape[1]
    workers = WorkerPool(executor)
    todo = pieces(job, [(0, total)], pace, workers.limit)
    for piece, done in roll_out(job, todo, workers):
        assert np.isnan(values[place(piece)]).all()
        values[place(piece)] = done.costs
    return values


def same_bits(a: NDArray, b: NDArray) -> bool:
    return a.shape == b.shape and np.asarray(a, float).tobytes() == np.asarray(b, float).tobytes()


# ---- pieces -------------------------------------------------------------------------------------


@settings(max_examples=sized(100, full=300))
@given(
    n=st.integers(1, 90),
    columns=st.integers(1, 12),
    begins=st.tuples(st.integers(0, 50), st.booleans()),
    ends=st.sets(st.integers(0, 1080), max_size=10),
    sizes=st.none() | SIZES,
    most=st.sampled_from([1, 5, 64, 1 << 24]),
    sharers=st.integers(1, 20),
)
def test_pieces_cover_every_rollout_of_the_gaps_once_and_no_other(
    n: int,
    columns: int,
    begins: tuple[int, bool],
    ends: set[int],
    sizes: list[int] | None,
    most: int,
    sharers: int,
):
    start, batched = begins
    task = robots.BATCHED[0] if batched else robots.ONE_BY_ONE[0]
    job = job_of(task, n, columns, start)
    total = n * columns
    cuts = sorted({0, total, *(end for end in ends if end < total)})
    gaps = list(pairwise(cuts))[:: 1 + len(ends) % 2]
    pace = Erratic(sizes) if sizes else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "TABLE", most)
        parts = list(pieces(job, gaps, pace, sharers))
    expected = np.zeros(total, np.int64)
    for first, last in gaps:
        expected[first:last] = 1
    assert np.array_equal(covered(job, parts), expected.reshape(n, columns))
    for part in parts:
        rows, wide = part.last_row - part.first_row, part.last_column - part.first_column
        assert part.rollouts == rows * wide >= 1
        assert rows == 1 or (wide == columns and rows * columns <= max(most, columns))


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 400), st.integers(0, 40))
def test_a_piece_is_no_larger_than_the_pace_says(n: int, columns: int, size: int, start: int):
    job = job_of(robots.ONE_BY_ONE[0], n, columns, start)
    parts = list(pieces(job, [(0, n * columns)], Erratic([size])))
    assert max(part.rollouts for part in parts) <= size


@given(st.integers(1, 300), st.integers(1, 5), st.integers(16, 2000), st.integers(0, 40))
def test_no_block_of_environments_is_drawn_twice_for_large_pieces(
    n: int, columns: int, size: int, start: int
):
    job = job_of(robots.ONE_BY_ONE[0], n, columns, start)
    parts = list(pieces(job, [(0, n * columns)], Erratic([size * columns])))
    for part in parts[:-1]:
        rows = part.last_row - part.first_row
        assert rows < 16 or (start + part.last_row) % 16 == 0


def test_without_a_pace_a_piece_has_a_chunk_of_rows():
    job = job_of(robots.BATCHED[0], 2500, 3)
    assert list(pieces(job, [(0, 7500)], None)) == [
        Piece(0, 1024, 0, 3),
        Piece(1024, 2048, 0, 3),
        Piece(2048, 2500, 0, 3),
    ]


def test_towards_the_end_pieces_get_smaller_so_that_those_who_share_them_end_together():
    job = job_of(robots.ONE_BY_ONE[0], 1000, 1)
    sizes = [part.rollouts for part in pieces(job, [(0, 1000)], Erratic([400]), 4)]
    assert sizes[0] > 200
    assert sum(sizes) == 1000
    assert max(sizes[-4:]) <= 400 // 16 + 1


PIECES = st.builds(
    lambda row, rows, column, columns: Piece(row, row + rows, column, column + columns),
    st.integers(0, 20),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(1, 9),
)


@given(PIECES, st.integers(0, 8), st.integers(0, 8))
def test_a_piece_without_a_rollout_is_all_the_others(piece: Piece, i: int, j: int):
    row = piece.first_row + i % (piece.last_row - piece.first_row)
    column = piece.first_column + j % (piece.last_column - piece.first_column)
    times = np.zeros((30, 30), int)
    for part in piece.around(row, column):
        times[place(part)] += 1
    expected = np.zeros((30, 30), int)
    expected[place(piece)] = 1
    expected[row, column] = 0
    assert np.array_equal(times, expected)


@given(PIECES.filter(lambda piece: piece.rollouts > 1))
def test_halves_are_the_whole_and_each_is_smaller(piece: Piece):
    halves = piece.halves()
    times = np.zeros((30, 30), int)
    for part in halves:
        assert 1 <= part.rollouts < piece.rollouts
        times[place(part)] += 1
    expected = np.zeros((30, 30), int)
    expected[place(piece)] = 1
    assert np.array_equal(times, expected)


# ---- the pace -----------------------------------------------------------------------------------


def test_a_pace_begins_with_one_rollout_and_grows_to_what_fits_the_time():
    pace, sizes = Pace(1.0), []
    for _ in range(8):
        sizes.append(pace.size)
        pace.tell(pace.size, pace.size / 1024)
    assert sizes == [1, 8, 64, 512, 1024, 1024, 1024, 1024]


def test_a_pace_gets_over_a_first_rollout_that_waits_for_a_compiler():
    pace = Pace(0.25)
    pace.tell(1, 30.0)
    assert pace.size == 1
    for _ in range(30):
        pace.tell(pace.size, pace.size * 0.01)
    assert 20 <= pace.size <= 25


def test_a_pace_stays_at_one_for_slow_rollouts():
    pace = Pace(0.25)
    for _ in range(5):
        pace.tell(pace.size, 2.0 * pace.size)
    assert pace.size == 1


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e6)), max_size=30))
def test_a_pace_is_always_of_at_least_one_rollout(told: list[tuple[int, float]]):
    pace = Pace(0.25)
    for rollouts, seconds in told:
        pace.tell(rollouts, seconds)
        assert pace.size >= 1
        assert isinstance(pace.size, int)


# ---- the same costs, whatever the pieces and their order ----------------------------------------


@TASK_NAMES
@pytest.mark.parametrize("kind", ["given", "own", "drawn"])
@settings(max_examples=sized(5, full=25))
@given(
    n=st.integers(1, 40), columns=st.integers(1, 9), start=st.integers(0, 40), sizes=SIZES, seed=...
)
def test_costs_depend_neither_on_the_pieces_nor_on_the_order_in_which_they_end(
    name: str, kind: str, n: int, columns: int, start: int, sizes: list[int], seed: bool
):
    job = job_of(TASKS[name], n, columns, start, kind)
    expected = whole(job)
    assert same_bits(assembled(job, Erratic(sizes)), expected)
    with Scrambled(int(seed)) as executor:
        assert same_bits(assembled(job, Erratic(sizes), executor), expected)


def test_the_scrambled_executor_does_scramble():
    """Otherwise the tests with it would say little."""
    job = job_of(TASKS["slip"], 20, 5)
    with Scrambled(1) as executor:
        assembled(job, Erratic([1]), executor)
        assert sorted(executor.order) == list(range(100))
        assert executor.order != sorted(executor.order)


def test_the_robots_would_show_noise_that_is_shared_or_shifted():
    for name in ("slip", "slip_all"):
        assert np.unique(whole(job_of(TASKS[name], 60, 9))).size == 540
    for name in ("hit", "trip", "hit_all", "trip_all"):
        assert set(np.unique(whole(job_of(TASKS[name])))) == {0.0, 1.0}


def signed(policy: NDArray, environment: dict[str, float]) -> float:
    """Zero with a minus sign, as from `-min(0, x)`, for most; half for a few."""
    return 0.5 if environment["goal"] > 0.8 and policy[0] == 0 else -0.0


@example(sizes=[1])
@settings(max_examples=5)
@given(sizes=SIZES)
def test_zeros_with_a_sign_do_not_show_the_pieces(sizes: list[int]):
    job = job_of(FunctionTask(signed, robots.draw, "signed", 2), 20, 3)
    one, other = (Costs(assembled(job, Erratic(s))) for s in (sizes, [60]))
    assert not one.binary
    assert one.digests == other.digests
