"""Environments drawn under named streams: the same ones every time, and never another's."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pacbayes_control.tasks import registry
from pacbayes_control.tasks.environments import BLOCK, Environments, Noise, generator
from pacbayes_control.tasks.task import as_task, noise_of

Draw = Callable[[np.random.Generator, int], dict[str, NDArray]]


def draw(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
    return {"level": rng.random(n), "goal": rng.random((n, 2))}


def environments(
    n: int, stream: str = "train", seed: int = 0, draw: Draw = draw, task: str = "toy"
) -> Environments:
    return Environments(draw, task, stream, seed, 0, n)


def levels(some: Environments) -> NDArray:
    return some.arrays()["level"]


# ---- generators ---------------------------------------------------------------------------------


def test_a_generator_is_the_same_every_time():
    first, second = generator(3, "train", 2).random(8), generator(3, "train", 2).random(8)
    np.testing.assert_array_equal(first, second)


def test_seeds_streams_and_blocks_all_have_generators_of_their_own():
    drawn = [
        generator(seed, stream, block).random()
        for seed in (0, 1, 2, 2**32, 2**64 - 1)
        for stream in ("", "train", "test", "niart", "train ", "training")
        for block in (0, 1, 2)
    ]
    assert len(set(drawn)) == len(drawn) == 90


def test_a_negative_seed_is_an_error():
    with pytest.raises(ValueError, match="seed -1 is not a whole number"):
        generator(-1, "train")
    with pytest.raises(ValueError, match="seed -7 is not a whole number"):
        environments(3, seed=-7).arrays()


def test_a_seed_cannot_run_into_the_streams_name():
    with pytest.raises(ValueError, match="not a whole number from 0"):
        generator(5 + (ord("t") << 128), "rain")


def test_streams_whose_names_share_a_checksum_differ():
    assert generator(0, "plumless").random() != generator(0, "buckeroo").random()


# ---- streams ------------------------------------------------------------------------------------


def test_the_same_stream_and_seed_give_the_same_environments():
    first, second = environments(1500).arrays(), environments(1500).arrays()
    assert first.keys() == second.keys() == {"level", "goal"}
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_other_streams_and_seeds_give_other_environments():
    sets = [
        set(levels(environments(1500, stream, seed)).tolist())
        for stream in ("train", "test", "validation")
        for seed in (0, 1, 1000)
    ]
    assert len(set().union(*sets)) == sum(len(some) for some in sets) == 9 * 1500


def test_consecutive_seeds_share_no_environment():
    sets = [set(levels(environments(3 * BLOCK, seed=seed)).tolist()) for seed in range(12)]
    assert len(set().union(*sets)) == 12 * 3 * BLOCK


def test_no_environment_of_a_stream_comes_twice():
    assert len(set(levels(environments(5 * BLOCK)).tolist())) == 5 * BLOCK


@pytest.mark.parametrize("n", [1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3000])
def test_the_first_of_many_are_the_same_as_few(n):
    few, many = environments(n).arrays(), environments(4000).arrays()
    for name in many:
        assert len(few[name]) == n
        np.testing.assert_array_equal(few[name], many[name][:n])


def test_arrays_have_one_row_an_environment():
    arrays = environments(BLOCK + 5).arrays()
    assert arrays["level"].shape == (BLOCK + 5,)
    assert arrays["goal"].shape == (BLOCK + 5, 2)


# ---- slices -------------------------------------------------------------------------------------

ALL = environments(3000)
ALL_LEVELS = levels(ALL)
ends = st.none() | st.integers(-3500, 3500)


@given(ends, ends)
def test_slices_are_those_of_an_array(start, stop):
    part = ALL[start:stop]
    expected = ALL_LEVELS[start:stop]
    assert len(part) == len(expected)
    if len(part):
        np.testing.assert_array_equal(levels(part), expected)


def test_slices_of_slices_are_counted_from_their_own_start():
    part = ALL[1000:2500][20:1200]
    assert (part.start, part.stop) == (1020, 2200)
    np.testing.assert_array_equal(levels(part), ALL_LEVELS[1020:2200])


def test_a_slice_cannot_skip():
    with pytest.raises(ValueError, match="without a step"):
        ALL[::2]


# ---- chunks -------------------------------------------------------------------------------------


@given(st.integers(0, 3 * BLOCK), st.integers(1, 6 * BLOCK), st.integers(1, 5 * BLOCK))
def test_chunks_cover_everything_once_in_order(start, length, size):
    some = environments(start + length)[start:]
    chunks = list(some.chunks(size))
    assert chunks[0].start == some.start
    assert chunks[-1].stop == some.stop
    assert all(a.stop == b.start for a, b in pairwise(chunks))
    assert all(0 < len(chunk) <= max(size, BLOCK) for chunk in chunks)


def test_chunks_hold_the_environments_of_the_whole():
    some = environments(5000)[700:4900]
    together = np.concatenate([levels(chunk) for chunk in some.chunks(2 * BLOCK)])
    np.testing.assert_array_equal(together, levels(some))


def test_chunks_draw_no_block_twice():
    blocks = 0

    def counting(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        nonlocal blocks
        blocks += 1
        return draw(rng, n)

    for chunk in environments(6 * BLOCK, draw=counting)[500 : 5 * BLOCK + 1].chunks(2 * BLOCK):
        chunk.arrays()
    assert blocks == 6


# ---- overlaps -----------------------------------------------------------------------------------


def test_ranges_of_one_stream_overlap_where_they_share_an_environment():
    assert ALL.range.overlaps(ALL.range)
    assert ALL[:100].range.overlaps(ALL[99:200].range)
    assert ALL[50:60].range.overlaps(ALL.range)
    assert ALL.range.overlaps(ALL[50:60].range)
    assert not ALL[:100].range.overlaps(ALL[100:200].range)
    assert not ALL[100:200].range.overlaps(ALL[:100].range)


def test_other_streams_and_seeds_never_overlap():
    assert not ALL.range.overlaps(environments(3000, stream="test").range)
    assert not ALL.range.overlaps(environments(3000, seed=1).range)


def test_two_tasks_that_draw_with_the_same_numbers_overlap():
    """They may share every position and differ in radii alone: that is not independent."""
    assert ALL.range.overlaps(environments(3000, task="other").range)


# ---- digests and origins ------------------------------------------------------------------------


def test_a_digest_is_the_same_every_time():
    assert environments(2000).digest() == environments(2000).digest()
    assert len(environments(2000).digest()) == 64


def test_a_digest_changes_with_the_environments():
    def renamed(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        drawn = draw(rng, n)
        return {"height": drawn["level"], "goal": drawn["goal"]}

    def nudged(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        drawn = draw(rng, n)
        drawn["goal"][1, 1] = np.nextafter(drawn["goal"][1, 1], 2)
        return drawn

    digests = {
        environments(2000).digest(),
        environments(1999).digest(),
        environments(2000)[1:].digest(),
        environments(2000, seed=1).digest(),
        environments(2000, stream="test").digest(),
        environments(2000, draw=renamed).digest(),
        environments(2000, draw=nudged).digest(),
    }
    assert len(digests) == 7


def test_a_digest_is_of_the_environments_and_not_of_their_names():
    assert environments(50).digest() == environments(50, task="other").digest()


def test_an_origin_is_enough_to_draw_them_again():
    some = environments(2000, seed=4)[10:1500]
    assert some.origin == {
        "task": "toy",
        "stream": "train",
        "seed": 4,
        "start": 10,
        "stop": 1500,
    }
    again = Environments(draw, task="toy", stream="train", seed=4, start=10, stop=1500)
    np.testing.assert_array_equal(levels(again), levels(some))


# ---- noise --------------------------------------------------------------------------------------


def test_a_rollouts_noise_is_known_by_its_environment_and_column():
    """However the table of costs is cut up."""
    keys = Noise("world", 1).keys(ALL, 70)
    assert keys.shape == (3000, 70)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(Noise("world", 1).keys(ALL[1000:2000], 70), keys[1000:2000])
    np.testing.assert_array_equal(Noise("world", 1).keys(ALL[7:8], 3), keys[7:8, :3])
    shifted = Noise("world", 1).shifted(20).shifted(11)
    np.testing.assert_array_equal(shifted.keys(ALL[5:9], 39), keys[5:9, 31:])


@pytest.mark.slow
def test_no_two_rollouts_share_their_noise():
    keys = [
        Noise(stream, seed).keys(ALL[:300], 200)
        for stream in ("train", "test", "train noise")
        for seed in (0, 1, 2**40)
    ]
    assert len(np.unique(keys)) == 9 * 300 * 200


def test_keys_of_noise_look_random():
    bits = np.unpackbits(Noise("world").keys(ALL[:500], 40).view(np.uint8)).reshape(-1, 64)
    n = len(bits)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / np.sqrt(n)
    correlations = np.triu(np.corrcoef(bits.T), k=1)
    assert np.abs(correlations).max() < 5 / np.sqrt(n)


def test_a_generator_of_noise_belongs_to_one_rollout():
    noise = Noise("world", 3)
    drawn = {(e, p): noise.generator(ALL, e, p).random() for e in range(12) for p in range(12)}
    assert len(set(drawn.values())) == 144  # environment 1, column 11 is not 11 and 1
    assert noise.generator(ALL[3:], 1, 7).random() == drawn[4, 7]
    assert noise.shifted(5).generator(ALL, 4, 2).random() == drawn[4, 7]
    assert Noise("world", 4).generator(ALL, 4, 7).random() != drawn[4, 7]
    assert Noise("other", 3).generator(ALL, 4, 7).random() != drawn[4, 7]


class Quiet:
    """A task without noise, and without a word about it."""

    name = "quiet"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return environments(n, stream, seed)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.zeros((len(environments), len(policies)))


class Windy(Quiet):
    noise_kind = "wind of 3 m/s"


def test_a_task_without_noise_is_rolled_out_without():
    assert noise_of(as_task(Quiet()), ALL, None) is None
    assert noise_of(as_task(Quiet()), ALL, Noise("world")) is None


def test_noise_is_named_after_the_environments_unless_it_is_given():
    some = environments(5, stream="train", seed=8)
    assert noise_of(as_task(Windy()), some, None) == Noise("train noise", 8, "wind of 3 m/s")
    given = Noise("world", 2, column=30)
    assert noise_of(as_task(Windy()), some, given) == Noise("world", 2, "wind of 3 m/s", 30)


# ---- tasks that are installed -------------------------------------------------------------------


class Entries(tuple):
    """Entry points as Python has them from 3.12 on: they are looked up by name alone."""

    def __getitem__(self, name: Any) -> Any:
        raise KeyError(name)


def test_of_tasks_of_the_same_name_the_first_is_taken(monkeypatch: pytest.MonkeyPatch):
    names = ("b", "first"), ("a", "only"), ("b", "second")
    entries = Entries(EntryPoint(name, value, "pacbayes_control.tasks") for name, value in names)
    monkeypatch.setattr(registry, "entry_points", lambda **_: entries)
    found = registry.installed_tasks()
    assert [(name, entry.value) for name, entry in found.items()] == [("a", "only"), ("b", "first")]
