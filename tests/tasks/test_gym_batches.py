"""Policies that act in a batch of episodes: a cost depends on nothing but its own rollout."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from tiny_envs import GAINS, STEER_TOGETHER, Drift, Together, drift_task, steer, x_at_the_end
from torch import nn

from pacbayes_control.rollouts import Execution, RolloutError, evaluate
from pacbayes_control.rollouts.conformance import check_task
from pacbayes_control.tasks.gym import FunctionPolicy, GymTask, PredictPolicy, TorchPolicy
from pacbayes_control.tasks.identity import identity
from pacbayes_control.tasks.user_task import RolloutFailed

N = 21
TRAIN = drift_task().environments(N, stream="train", seed=3)
PUSHED = partial(Drift, actions=spaces.Box(-1, 1, (1,), np.float32))


class Memory(nn.Module):
    """A recurrent network that keeps its state from step to step, as people write it."""

    def __init__(self, cell: type, units: int) -> None:
        super().__init__()
        self.cell, self.head, self.state = cell(2, units), nn.Linear(units, 1), None

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        features, self.state = self.cell(batch[None], self.state)
        return torch.tanh(self.head(features[0]))


class Unbatched(Memory):
    """One that takes the rows of a batch for the steps of a sequence: right for a batch of one."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        features, self.state = self.cell(batch, self.state)
        return torch.tanh(self.head(features))


def network(*units: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(2, units[0])]
    for before, after in zip(units, (*units[1:], 1), strict=True):
        layers += [nn.Tanh(), nn.Linear(before, after)]
    return nn.Sequential(*layers)


ODD = partial(network, 11, 7)  # in a batch, the last bits of a row depend on its place
MODULES = {
    "odd": ODD,
    "even": partial(network, 64, 64),
    "GRU": partial(Memory, nn.GRU, 5),
    "LSTM": partial(Memory, nn.LSTM, 17),
}


def torch_task(module: Any, vector: int, **changes: Any) -> tuple[GymTask, NDArray]:
    """A task with continuous actions and costs, so that every bit shows, and two policies."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        policy = TorchPolicy(module())
    task = drift_task(make=PUSHED, policy=policy, cost=x_at_the_end, vector=vector, **changes)
    return task, policy.weights + np.array([[0.0], [0.5]])


# ---- bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", [8, 16])
@pytest.mark.parametrize("name", MODULES)
def test_a_cost_depends_neither_on_its_company_nor_on_its_chunk(name: str, vector: int):
    task, rows = torch_task(MODULES[name], vector)
    costs = task.costs(rows, TRAIN)
    assert len(np.unique(costs)) == costs.size
    for size in (1, 3, 5, 8):
        for first in range(0, N, size):
            part = task.costs(rows[::-1], TRAIN[first : first + size])
            np.testing.assert_array_equal(part[:, ::-1], costs[first : first + size])
    own = np.stack([rows[::-1]] * N)
    np.testing.assert_array_equal(task.costs(own, TRAIN)[:, ::-1], costs)
    np.testing.assert_allclose(costs, torch_task(MODULES[name], 0)[0].costs(rows, TRAIN), rtol=1e-3)


@pytest.mark.slow
def test_the_conformance_check_passes_with_batches():
    task, rows = torch_task(ODD, 8)
    checks = check_task(task, rows, seconds=0.01)
    assert all(check.passed for check in checks), checks


@pytest.mark.slow
def test_worker_processes_give_the_same_costs_in_batches(another_process: Executor):
    task, rows = torch_task(ODD, 8)
    elsewhere = evaluate(task, rows, TRAIN, execution=Execution(workers=another_process)).values
    np.testing.assert_array_equal(elsewhere, task.costs(rows, TRAIN))


def test_a_batch_has_always_as_many_rows_and_an_episode_always_its_own():
    seen: list[NDArray] = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            seen.append(batch.numpy().copy())
            return self.weight.expand(len(batch), 1)

    task = torch_task(Looking, 4)[0]
    task.costs(np.zeros((1, 1)), TRAIN[:1])  # before the first, it is tried
    start, _ = Drift().reset(seed=int(TRAIN.arrays()["seed"][6]))
    for first, last in ((5, 8), (6, 7), (3, 14)):
        seen.clear()
        task.costs(np.zeros((1, 1)), TRAIN[first:last])
        assert {batch.shape for batch in seen} == {(4, 2)}
        np.testing.assert_array_equal(seen[0][6 % 4], start)


# ---- policies that cannot act in a batch --------------------------------------------------------


class Centred(nn.Linear):
    """It subtracts the mean over a batch of several."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return super().forward(batch - 0.5 * batch.mean(0) * (len(batch) > 1))


class Scaled(nn.Linear):
    """It acts on another scale in a batch of several, in each row by itself."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return super().forward(batch * (1 + 0.1 * (len(batch) > 1)))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (partial(Unbatched, nn.GRU, 5), "an action depends on the observations of other episodes"),
        (partial(Centred, 2, 1), "an action depends on the observations of other episodes"),
        (partial(Scaled, 2, 1), "an action is another than without a batch"),
    ],
)
def test_a_module_that_does_not_treat_rows_alike_is_refused_in_a_batch(module: Any, words: str):
    task, rows = torch_task(module, 8)
    with pytest.raises(RolloutError, match=f"in a batch of 8: {words}; with vector=0 it acts in"):
        evaluate(task, rows, TRAIN)
    torch_task(module, 0)[0].costs(rows, TRAIN)
    declared, _ = torch_task(module, 8, failures=(ValueError,))
    with pytest.raises(RolloutError, match=words):  # it is no failure of the robot
        evaluate(declared, rows, TRAIN)


class Counting:
    """A recurrent model as of sb3-contrib, whose state has a row for each episode."""

    def __init__(self, period: int) -> None:
        self.period, self.starts = period, []

    def __repr__(self) -> str:
        return f"Counting({self.period})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: Any = 0
    ) -> tuple[Any, Any]:
        assert deterministic is True
        self.starts.append(episode_start)
        batch = observation if observation.ndim > 1 else observation[None]
        count = np.zeros(len(batch), int) if state is None else np.where(episode_start, 0, state)
        actions = (count + (batch[:, 0] > 0)) % self.period
        return (actions if observation.ndim > 1 else actions[0]), count + 1


def test_a_recurrent_model_gives_the_same_costs_in_batches():
    models = [Counting(2), Counting(3)]
    tasks = [
        drift_task(policy=PredictPolicy(models), cost=x_at_the_end, vector=vector)
        for vector in (0, 4, 8)
    ]
    alone, *together = (task.costs(np.array([[0.0], [1.0]]), TRAIN) for task in tasks)
    assert len(np.unique(alone)) > N
    for costs in together:
        np.testing.assert_array_equal(costs, alone)
    models[0].starts.clear()
    tasks[1].costs(np.zeros((1, 1)), TRAIN[:2])
    first, *rest = models[0].starts
    assert (first.dtype, first.tolist()) == (np.bool_, [True] * 4)
    assert rest
    assert not np.any(rest)


def test_observations_that_are_dictionaries_are_stacked_by_name():
    class Model:
        def __repr__(self) -> str:
            return "Model()"

        def predict(self, observation: Any) -> Any:
            state = np.asarray(observation["state"])
            return np.where(state[..., 0] + 0.01 * observation["step"] > 0, 0, 2)

    tasks = [
        drift_task(make=partial(Drift, pad=True), policy=PredictPolicy([Model()]), vector=vector)
        for vector in (0, 4)
    ]
    alone, together = (task.costs(np.zeros((1, 1)), TRAIN) for task in tasks)
    np.testing.assert_array_equal(together, alone)


class Single:
    """A model that takes one observation, and no batch."""

    def __repr__(self) -> str:
        return "Single()"

    def predict(self, observation: Any) -> int:
        return steer(np.ones(2), observation.reshape(2))


class Scalar(Single):
    def predict(self, observation: Any) -> int:
        return int(np.sum(observation) > 0)


@pytest.mark.parametrize("model", [Single(), Scalar()])
def test_a_model_that_takes_no_batch_is_refused_with_what_to_do(model: Any):
    task = drift_task(policy=PredictPolicy([Counting(2), model]), vector=3)
    task.costs(np.zeros((1, 1)), TRAIN)
    with pytest.raises(
        RolloutError, match=r"cannot act in a batch of 3: .*; with vector=0 it acts"
    ):
        evaluate(task, np.ones((1, 1)), TRAIN)


class Diverged(Exception):  # noqa: N818 - an event, not a mistake
    """What a simulator or a policy may raise."""


def test_an_error_of_the_policy_is_that_of_the_episode_which_it_comes_from():
    def act(gains: NDArray, observation: NDArray) -> int:
        if gains[1] == 0.1 and observation[0] > 0.4:
            raise Diverged("beyond the table")
        return steer(gains, observation)

    declared: dict[str, Any] = {"failures": (Diverged,), "cost": x_at_the_end}
    expected, count = drift_task(policy=FunctionPolicy(act, 2), **declared).costs_and_raised(
        GAINS, TRAIN
    )
    costs, raised = drift_task(policy=Together(act, 2), vector=4, **declared).costs_and_raised(
        GAINS, TRAIN
    )
    assert 0 < raised == count < N
    np.testing.assert_array_equal(costs, expected)
    bad = int(np.flatnonzero(expected[:, 1] == 1)[0])
    assert bad % 4
    with pytest.raises(RolloutError, match=f"policy 1 in environment {bad} .*: Diverged: beyond"):
        evaluate(drift_task(policy=Together(act, 2), vector=4), GAINS, TRAIN)


def test_an_error_that_does_not_come_again_is_an_error():
    raised: list[bool] = []

    def act(gains: NDArray, observation: NDArray) -> int:
        if gains[1] == 0.1 and not raised:
            raised.append(True)
            raise OSError("busy")
        return steer(gains, observation)

    task = drift_task(policy=Together(act, 2), vector=4)
    with pytest.raises(RolloutFailed, match="busy"):
        task.costs(GAINS, TRAIN)


# ---- environments -------------------------------------------------------------------------------


class Diverging(Drift):
    """A simulator that gives up where the point gets far, and can then not be reset."""

    broken = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.broken, "reset after an exception"
        if seed is not None and seed % 5 == 0:
            self.broken = True
            raise Diverged("at the start")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        shown = super().step(action)
        if abs(self.x) > 0.6:
            self.broken = True
            raise Diverged(f"at {self.x}")
        return shown


@pytest.mark.parametrize("vector", [2, 5])
def test_declared_failures_are_told_apart_in_a_batch(vector: int):
    changes: dict[str, Any] = {"make": Diverging, "failures": (Diverged,), "cost": x_at_the_end}
    task = drift_task(policy=STEER_TOGETHER, vector=vector, **changes)
    costs, raised = task.costs_and_raised(GAINS, TRAIN)
    expected, count = drift_task(**changes).costs_and_raised(GAINS, TRAIN)
    assert 0 < raised == count < costs.size
    np.testing.assert_array_equal(costs, expected)
    with pytest.raises(RolloutError, match="Diverged: at"):
        evaluate(drift_task(policy=STEER_TOGETHER, make=Diverging, vector=vector), GAINS, TRAIN)


def test_no_more_simulators_are_made_than_slots_are_in_use():
    made: list[Drift] = []

    def make() -> Drift:
        made.append(Drift())
        return made[-1]

    task = drift_task(make=make, policy=STEER_TOGETHER, vector=8)
    task.costs(GAINS, TRAIN[:3])
    assert len(made) == 3
    task.costs(GAINS, TRAIN)
    assert len(made) == 8


def test_a_factory_that_returns_one_environment_again_and_again_is_refused():
    env = Drift()
    task = drift_task(make=lambda: env, policy=STEER_TOGETHER, vector=2, failures=(ValueError,))
    with pytest.raises(RolloutError, match="the same environment each time: have it make a new"):
        evaluate(task, GAINS, TRAIN)
    drift_task(make=lambda: env).costs(GAINS, TRAIN)


def test_an_environment_that_cannot_be_made_is_reported_as_it_is():
    def make() -> Drift:
        raise KeyError("no licence")

    task = drift_task(make=make, policy=STEER_TOGETHER, vector=2)
    with pytest.raises(RolloutError, match=r"KeyError: 'no licence' \(test_gym_b"):
        evaluate(task, GAINS, TRAIN)


def test_a_vector_of_vectors_is_refused():
    def make() -> SyncVectorEnv:
        return SyncVectorEnv([Drift] * 2, autoreset_mode=AutoresetMode.DISABLED)

    task = drift_task(make=make, policy=STEER_TOGETHER, vector=2)
    with pytest.raises(RolloutError, match="makes a vector by itself: leave out vector=…"):
        evaluate(task, GAINS, TRAIN)


# ---- what identifies a task ---------------------------------------------------------------------


def test_another_batch_makes_another_task_and_stands_in_the_record():
    tasks = {vector: torch_task(ODD, vector)[0] for vector in (0, 1, 8, 16)}
    assert identity(tasks[0]) == identity(tasks[1])
    assert len({identity(task) for task in tasks.values()}) == 3
    assert tasks[8].policy_class == f"{tasks[0].policy_class} in batches of 8"
    rows = torch_task(ODD, 8)[1]
    assert evaluate(tasks[8], rows, TRAIN).origin["policy_class"] == tasks[8].policy_class


def test_a_task_says_how_it_would_be_run_in_batches():
    task, rows = torch_task(ODD, 0, policies=np.zeros((2, 125)), policy_names=("a", "b"))
    faster = task.in_batches()
    assert faster is not None
    assert (task.together, faster.together) == (0, 8)
    assert faster.in_batches() is None
    assert faster.policy_names == ("a", "b")
    np.testing.assert_allclose(faster.costs(rows, TRAIN), task.costs(rows, TRAIN), rtol=1e-3)
    assert drift_task().in_batches() is None
