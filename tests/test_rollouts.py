"""evaluate() and mean_costs(): what a task says, checked, in chunks."""

import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.rollouts import CHUNK, evaluate, mean_costs
from pacbayes_control.tasks import Environments, Vehicle


@dataclass
class Threshold:
    """A task in one line: a policy (a threshold) costs the square of an environment's excess."""

    name: str = "threshold"
    calls: list[int] = field(default_factory=list)  # environments in each call to costs

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Environments(self._draw, self.name, stream, seed, 0, n)

    def _draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"level": rng.random(n)}

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        self.calls.append(len(environments))
        level = environments.arrays()["level"]
        return np.maximum(level[:, None] - policies[:, 0], 0) ** 2


@dataclass
class Spoilt(Threshold):
    """The same, but its costs go through `spoil` first."""

    spoil: Any = None

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return self.spoil(super().costs(policies, environments))


def thresholds(n: int = 5) -> NDArray:
    return np.linspace(0, 1, n)[:, None]


MANY = 2 * CHUNK + 100


# ---- evaluate -----------------------------------------------------------------------------------


def test_evaluate_returns_what_the_task_says():
    task = Threshold()
    environments = task.environments(50, stream="train")
    costs = evaluate(task, thresholds(), environments)
    np.testing.assert_array_equal(costs.values, task.costs(thresholds(), environments))


def test_evaluate_joins_chunks_in_order():
    task = Threshold()
    environments = task.environments(MANY, stream="train")[37:]
    costs = evaluate(task, thresholds(), environments)
    assert len(task.calls) == 3
    assert max(task.calls) <= CHUNK
    np.testing.assert_array_equal(costs.values, task.costs(thresholds(), environments))


def test_evaluate_keeps_names_and_origin():
    task = Threshold()
    environments = task.environments(20, stream="train", seed=3)
    costs = evaluate(task, thresholds(2), environments, names=["low", "high"])
    assert costs.names == ("low", "high")
    assert costs.origin == environments.origin


def test_evaluate_runs_the_vehicle():
    task = Vehicle()
    gains, names = task.gain_grid(), task.gain_names()
    environments = task.environments(40, stream="train")
    costs = evaluate(task, gains, environments, names)
    np.testing.assert_array_equal(costs.values, task.costs(gains, environments))
    assert costs.binary


# ---- mean_costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 500, MANY])
def test_mean_costs_are_the_means_of_evaluate(n):
    task = Threshold()
    environments = task.environments(n, stream="test")
    means = mean_costs(task, thresholds(), environments)
    assert means.shape == (5,)
    expected = evaluate(task, thresholds(), environments).means
    np.testing.assert_allclose(means, expected, rtol=1e-12)


def test_mean_costs_of_zeros_and_ones_are_not_summed_in_eight_bits():
    task = Spoilt(spoil=lambda costs: np.ones(costs.shape, np.uint8))
    assert (
        mean_costs(task, thresholds(), task.environments(1000, stream="test")).tolist() == [1] * 5
    )


def test_mean_costs_refuse_environments_that_were_seen():
    task = Threshold()
    training = task.environments(100, stream="train")
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        mean_costs(task, thresholds(), task.environments(1000, stream="train"), seen=[training])
    assert task.calls == []


def test_mean_costs_refuse_an_overlap_with_any_of_those_seen():
    task = Threshold()
    seen = [task.environments(100, stream="prior"), task.environments(100, stream="train")]
    with pytest.raises(ValueError, match="a stream of its own"):
        mean_costs(task, thresholds(), seen[1][99:], seen=seen)


def test_mean_costs_accept_environments_that_were_not_seen():
    task = Threshold()
    whole = task.environments(1000, stream="train")
    seen = [whole[:500], task.environments(100, stream="train", seed=1)]
    assert mean_costs(task, thresholds(), whole[500:], seen=seen).shape == (5,)


def test_mean_costs_take_no_more_memory_for_more_environments():
    """All the costs at once would take 80 MB."""
    task = Threshold()
    environments = task.environments(200_000, stream="test")
    mean_costs(task, thresholds(50), environments[:CHUNK])
    tracemalloc.start()
    try:
        mean_costs(task, thresholds(50), environments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


# ---- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [evaluate, mean_costs])
def test_progress_is_told_of_every_rollout_up_to_the_total(run):
    task, told = Threshold(), []
    environments = task.environments(MANY, stream="test")
    run(task, thresholds(), environments, progress=lambda done, total: told.append((done, total)))
    assert told == [(CHUNK * 5, MANY * 5), (2 * CHUNK * 5, MANY * 5), (MANY * 5, MANY * 5)]


# ---- tasks and policies that are wrong ----------------------------------------------------------


@pytest.mark.parametrize("run", [evaluate, mean_costs])
@pytest.mark.parametrize(
    "spoil",
    [np.transpose, lambda costs: costs[:-1], lambda costs: costs[:, 0], lambda costs: costs[None]],
    ids=["transposed", "a row missing", "one policy", "three dimensions"],
)
def test_costs_of_the_wrong_shape_are_an_error(run, spoil):
    task = Spoilt(spoil=spoil)
    with pytest.raises(
        ValueError, match=r"task threshold returned costs of shape .* 9 environments × 5 policies"
    ):
        run(task, thresholds(), task.environments(9, stream="test"))


CHECKED_RUNS = pytest.mark.parametrize("run", [evaluate, mean_costs])


def replaced(value: float):
    """Put a value at environment 6, policy 2."""

    def spoil(costs: NDArray) -> NDArray:
        costs[6, 2] = value
        return costs

    return spoil


@CHECKED_RUNS
def test_a_cost_that_is_nan_is_an_error(run):
    task = Spoilt(spoil=replaced(np.nan))
    with pytest.raises(ValueError, match="environment 6, policy 2 is NaN"):
        run(task, thresholds(), task.environments(9, stream="test"))


@CHECKED_RUNS
@pytest.mark.parametrize("value", [-0.25, 1.5, np.inf])
def test_a_cost_outside_0_to_1_is_an_error(run, value):
    task = Spoilt(spoil=replaced(value))
    with pytest.raises(ValueError, match=rf"cost {value:g} at environment 6, policy 2 is outside"):
        run(task, thresholds(), task.environments(9, stream="test"))


def test_fractions_after_a_chunk_of_whole_numbers_are_kept():
    def spoil(costs: NDArray) -> NDArray:
        whole = len(costs) == CHUNK
        return np.zeros(costs.shape, np.uint8) if whole else np.full(costs.shape, 0.5)

    task = Spoilt(spoil=spoil)
    costs = evaluate(task, thresholds(), task.environments(CHUNK + 10, stream="test"))
    assert np.all(costs.values[CHUNK:] == 0.5)


@pytest.mark.parametrize("run", [evaluate, mean_costs])
@pytest.mark.parametrize("policies", [np.zeros(5), np.zeros((0, 5)), np.zeros((2, 2, 2))])
def test_policies_without_rows_are_an_error(run, policies):
    task = Threshold()
    with pytest.raises(ValueError, match="policies need one row each"):
        run(task, policies, task.environments(9, stream="test"))


@pytest.mark.parametrize("run", [evaluate, mean_costs])
def test_no_environments_to_roll_out_in_is_an_error(run):
    task = Threshold()
    with pytest.raises(ValueError, match="no environments"):
        run(task, thresholds(), task.environments(9, stream="test")[9:])
