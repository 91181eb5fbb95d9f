"""Gymnasium environments as tasks: exactly one episode a rollout, and nothing between them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import Executor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_envs import (
    GAINS,
    RETURN,
    STEER,
    Drift,
    Script,
    drift_task,
    episodes_in,
    physics,
    steer,
    steer_pad,
    x_at_the_end,
)
from torch import nn
from torch.nn.utils import parameters_to_vector

from pacbayes_control.deploy.policy import DeployedPolicy
from pacbayes_control.learn import learn_finite
from pacbayes_control.rollouts import Execution, RolloutError, evaluate
from pacbayes_control.tasks.gym import (
    Episode,
    FromInfo,
    FromReturn,
    FromTermination,
    FunctionPolicy,
    GymTask,
    PredictPolicy,
    TorchPolicy,
    episodes,
)
from pacbayes_control.tasks.identity import identity

N = 7
TRAIN = drift_task().environments(N, stream="train", seed=3)
COSTS = drift_task().costs(GAINS, TRAIN)
ADDRESS = re.compile("0x[0-9a-f]{6}")


def one(total: float = 0.0, **changes: Any) -> Episode:
    known: dict[str, Any] = {"steps": 1, "terminated": False, "truncated": True, "info": {}}
    return Episode(total, **(known | changes))


def zeros(n: int = 1) -> NDArray:
    return np.zeros((n, 1))


def scripted(cost: Any, *, at: int = 3, **said: Any) -> GymTask:
    """A task of one parameter whose episodes end after a few steps with some info."""
    act = FunctionPolicy(lambda _gains, _observation: 0, 1)
    return GymTask(lambda: Script(lambda n: (1.0, n >= at, False, said)), act, cost)


def once(task: GymTask) -> float:
    return float(evaluate(task, zeros(), task.environments(2, stream="s")).values[0, 0])


# ---- one episode for each environment and policy ------------------------------------------------


def test_every_pair_is_reset_once_and_never_stepped_after_its_end():
    events: list[Any] = []
    task = drift_task(make=lambda: Drift(events))
    task.costs(GAINS, TRAIN)
    done = episodes_in(events)  # Drift refuses a step after its end
    assert len(done) == N * len(GAINS)
    assert all(len(episode) > 1 for episode in done)
    seeds = Counter(episode[0][1] for episode in done)
    assert seeds == dict.fromkeys(TRAIN.arrays()["seed"].tolist(), len(GAINS))


def test_the_seed_and_the_options_reach_the_environment_exactly():
    events: list[Any] = []

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        masses = rng.random(3).astype(np.float32)
        flag, n = bool(rng.random() < 0.5), int(rng.integers(9))
        return {"wind": rng.normal(), "masses": masses, "flag": flag, "map": f"map {n}", "n": n}

    task = drift_task(make=lambda: Drift(events), options=draw)
    some = task.environments(4, stream="train")
    task.costs(GAINS[:1], some)
    arrays = some.arrays()
    assert len({*arrays["map"]}) > 1
    for i, (_, seed, options) in enumerate(e for e in events if e[0] == "reset"):
        assert (type(seed), seed) == (int, arrays["seed"][i])
        assert options.keys() == {"wind", "masses", "flag", "map", "n"}
        assert {k: type(v) for k, v in options.items() if k != "masses"} == {
            "wind": float,
            "flag": bool,
            "map": str,
            "n": int,
        }
        assert all(options[name] == arrays[name][i] for name in ("wind", "flag", "map", "n"))
        assert options["masses"].dtype == np.float32
        np.testing.assert_array_equal(options["masses"], arrays["masses"][i])


def test_without_options_a_reset_has_a_seed_and_no_options():
    events: list[Any] = []
    drift_task(make=lambda: Drift(events), options=None).costs(
        GAINS[:1], drift_task(options=None).environments(2, stream="train")
    )
    resets = [event for event in events if event[0] == "reset"]
    assert [options for _, _, options in resets] == [{}, {}]
    assert len({seed for _, seed, _ in resets}) == 2


def test_costs_are_those_of_episodes_run_by_hand():
    arrays, env = TRAIN.arrays(), Drift()
    for i in range(N):
        options = {"length": int(arrays["length"][i]), "wind": float(arrays["wind"][i])}
        for j, gains in enumerate(GAINS):
            observation, _ = env.reset(seed=int(arrays["seed"][i]), options=options)
            total, ended = 0.0, False
            while not ended:
                observation, reward, fell, late, _ = env.step(steer(gains, observation))
                total, ended = total + reward, fell or late
            assert COSTS[i, j] == -total / 40


def test_costs_are_the_same_in_any_order_after_others_and_in_a_fresh_environment():
    assert len(np.unique(COSTS)) == COSTS.size  # any mistake would show
    used, order = drift_task(), [3, 0, 4, 2, 1]
    np.testing.assert_array_equal(used.costs(GAINS[order], TRAIN), COSTS[:, order])
    for i in reversed(range(N)):
        np.testing.assert_array_equal(used.costs(GAINS, TRAIN[i : i + 1])[0], COSTS[i])
        np.testing.assert_array_equal(drift_task().costs(GAINS, TRAIN[i : i + 1])[0], COSTS[i])


def test_each_environment_may_have_policies_of_its_own():
    own = np.stack([np.roll(GAINS, i, axis=0) for i in range(N)])
    expected = np.stack([np.roll(row, i) for i, row in enumerate(COSTS)])
    np.testing.assert_array_equal(drift_task().costs(own, TRAIN), expected)


def test_the_simulator_is_made_once_and_not_before_it_is_needed():
    made = []

    def make() -> Drift:
        made.append(1)
        return Drift()

    task = drift_task(make=make)
    task.environments(5, stream="train").arrays()
    assert not made
    task.costs(GAINS, TRAIN)
    task.costs(GAINS, TRAIN)
    assert len(made) == 1


class Greedy(Drift):
    """It takes an array of its options for its own, and writes to it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        self.position = options["position"]
        return super().reset(seed=seed, options={})

    def step(self, action: Any) -> Any:
        self.position += 1
        observation, _, fell, late, info = super().step(action)
        return observation, -float(self.position[0]), fell, late, info


def test_an_environment_that_writes_to_its_options_does_not_change_those_of_the_next_episode():
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        return {"position": rng.random(2)}

    rule = FromReturn(worst=-1000, best=0)
    task = drift_task(make=Greedy, options=draw, cost=rule)
    some = task.environments(3, stream="train")
    together = task.costs(GAINS, some)
    for j in range(len(GAINS)):
        np.testing.assert_array_equal(task.costs(GAINS[j : j + 1], some)[:, 0], together[:, j])


# ---- the end of an episode ----------------------------------------------------------------------


def test_a_limit_of_steps_truncates():
    seen = []

    def rule(episode: Episode) -> float:
        seen.append(episode)
        return 0.5

    ending = scripted(rule, at=3, x=1)
    endless = GymTask(
        lambda: Script(lambda n: (0.5, False, False, {"n": n})),
        scripted(rule).policy,
        rule,
        steps=4,
    )
    for task in (ending, endless):
        assert task.costs(zeros(), task.environments(1, stream="s")).tolist() == [[0.5]]
    assert seen == [
        Episode(3.0, 3, True, False, {"x": 1}),
        Episode(2.0, 4, False, True, {"n": 4}),
    ]


def test_an_end_at_the_limit_of_steps_is_an_end():
    task = scripted(FromTermination(success=False), at=4)
    assert once(GymTask(task.make, task.policy, task.cost, steps=4)) == 1.0
    assert once(GymTask(task.make, task.policy, task.cost, steps=3)) == 0.0


@pytest.mark.parametrize("steps", [0, -3])
def test_episodes_of_no_steps_are_refused(steps: int):
    with pytest.raises(ValueError, match=f"episodes of {steps} steps: at least one"):
        drift_task(steps=steps)


def test_an_endless_episode_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(episodes, "ENDLESS", 2000)
    task = scripted(RETURN, at=10**9)
    with pytest.raises(RolloutError, match="no end after 2,000 steps: give the task steps=…"):
        once(task)


# ---- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("worst", "best"), [(0, 500), (-16.3, 0), (10, -10), (0.1, 0.3)])
def test_a_return_costs_nothing_at_the_best_and_one_at_the_worst(worst: float, best: float):
    for rule in (FromReturn(worst, best), FromReturn(worst, best, clipped=True)):
        assert str(rule(one(best))) == "0.0"  # and not -0
        assert rule(one(worst)) == 1.0
        assert rule(one((worst + best) / 2)) == pytest.approx(0.5)


@pytest.mark.slow
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.floats(0, 1), st.booleans())
def test_what_lies_in_the_declared_range_costs_between_0_and_1(
    worst: float, best: float, share: float, clipped: bool
):
    if worst == best:
        return
    low, high = sorted((worst, best))
    value = min(max(worst + share * (best - worst), low), high)
    assert 0 <= FromReturn(worst, best, clipped)(one(value)) <= 1


@pytest.mark.parametrize(("worst", "best"), [(0, 500), (500, 0)])
@pytest.mark.parametrize("value", [-0.5, 500.5, 1e9, float("inf"), float("-inf"), float("nan")])
def test_what_lies_outside_is_an_error_with_the_value_and_the_range(
    worst: float, best: float, value: float
):
    words = (
        f"{value!r} lies outside the declared range from worst = {worst} to best = {best}: declare"
    )
    with pytest.raises(ValueError, match=re.escape(f"a return of {words}")):
        FromReturn(worst, best)(one(value))
    with pytest.raises(ValueError, match=re.escape(f"score = {words}")):
        FromInfo("score", worst, best)(one(info={"score": value}))


def test_a_value_just_outside_is_told_with_all_its_digits():
    with pytest.raises(ValueError, match=re.escape("1.0000000000000002 lies outside")):
        FromReturn(0, 1)(one(1.0000000000000002))


@pytest.mark.parametrize(("value", "cost"), [(-3, 1), (501, 0), (float("inf"), 0), (250, 0.5)])
def test_a_clipped_rule_cuts_off_what_it_declares(value: float, cost: float):
    assert FromReturn(0, 500, clipped=True)(one(value)) == cost
    assert FromInfo("score", 0, 500, clipped=True)(one(info={"score": value})) == cost


def test_nan_is_never_clipped():
    with pytest.raises(ValueError, match="nan lies outside"):
        FromReturn(0, 1, clipped=True)(one(float("nan")))


@pytest.mark.parametrize("rule", [FromReturn, partial(FromInfo, "score")])
@pytest.mark.parametrize(
    ("worst", "best"), [(1, 1), (0.0, -0.0), (float("nan"), 1), (0, float("inf"))]
)
def test_a_range_needs_two_finite_numbers(rule: Any, worst: float, best: float):
    with pytest.raises(ValueError, match="must be two finite numbers"):
        rule(worst, best)


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("truncated", [True, False])
def test_termination_is_a_failure_or_a_success_whatever_the_clock_says(
    terminated: bool, truncated: bool
):
    episode = one(terminated=terminated, truncated=truncated)
    assert FromTermination(success=False)(episode) == float(terminated)
    assert FromTermination(success=True)(episode) == float(not terminated)


@pytest.mark.parametrize(("value", "cost"), [(True, 0), (np.False_, 1), (0.25, 0.75), (1, 0)])
def test_a_value_of_the_last_info_is_a_cost(value: Any, cost: float):
    assert once(scripted(FromInfo("is_success", worst=0, best=1), is_success=value)) == cost


@pytest.mark.parametrize("ends", [(), (0,)])
def test_a_value_of_the_last_info_needs_both_ends_so_that_none_is_turned_round(ends: Any):
    with pytest.raises(TypeError, match="'best'"):
        FromInfo("crashed", *ends)
    assert once(scripted(FromInfo("crashed", worst=1, best=0), crashed=True)) == 1
    assert once(scripted(FromInfo("crashed", worst=1, best=0), crashed=False)) == 0


@pytest.mark.parametrize("success", ["False", None, 0])
def test_whether_termination_is_a_success_is_true_or_false(success: Any):
    with pytest.raises(ValueError, match="must be True or False"):
        FromTermination(success)


def test_a_missing_key_is_an_error_that_names_what_there_is():
    with pytest.raises(RolloutError, match="info has no 'success': it has score, crashed") as error:
        once(scripted(FromInfo("success", worst=0, best=1), score=1, crashed=False))
    assert "policy 0 in environment 0 of stream 's'" in str(error.value)
    with pytest.raises(RolloutError, match="info has no 'success': it has nothing"):
        once(scripted(FromInfo("success", worst=0, best=1)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.3, "cost 1.3 at environment 0, policy 0 is outside [0, 1]: rescale the costs"),
        (-0.01, "cost -0.01 at environment 0, policy 0 is outside [0, 1]"),
        (float("nan"), "the cost at environment 0, policy 0 is NaN"),
        (None, "TypeError: a rollout came to None, and a cost is a number from 0 to 1"),
    ],
)
def test_a_rule_of_ones_own_that_leaves_the_range_is_an_error(value: Any, words: str):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        once(scripted(lambda _: value))
    assert "\n" not in str(error.value)


def test_a_rule_that_raises_is_reported_with_its_rollout():
    def rule(episode: Episode) -> float:
        return 1 / (episode.steps - 3)

    with pytest.raises(RolloutError, match=r"policy 0 in environment 0 .* ZeroDivisionError"):
        once(scripted(rule))


# ---- functions as policies ----------------------------------------------------------------------


def test_a_function_is_given_its_row_and_the_observation():
    given = []

    def act(gains: NDArray, observation: NDArray) -> int:
        given.append((gains.tolist(), observation.dtype, observation.shape))
        return 1

    drift_task(policy=FunctionPolicy(act, 2), steps=2).costs(GAINS[:2], TRAIN[:1])
    assert given[0] == (GAINS[0].tolist(), np.float32, (2,))
    assert [gains for gains, *_ in given] == [GAINS[0].tolist()] * 2 + [GAINS[1].tolist()] * 2


def test_a_policy_without_parameters_is_refused():
    with pytest.raises(ValueError, match="a policy of 0 parameters"):
        FunctionPolicy(steer, 0)


@pytest.mark.parametrize("shape", [(3, 1), (3, 3), (4, 2, 5)])
def test_rows_of_another_length_are_refused_before_any_rollout(shape: tuple[int, ...]):
    events: list[Any] = []
    task = drift_task(make=lambda: Drift(events), name="drift")
    words = f"policies of {shape[-1]} parameters were given to task drift, whose policies have 2"
    with pytest.raises(ValueError, match=words):
        task.costs(np.zeros(shape), TRAIN)
    if len(shape) == 2:
        with pytest.raises(ValueError, match=words):
            evaluate(task, np.zeros(shape), TRAIN)
    assert events == []


# ---- torch modules as policies ------------------------------------------------------------------


class Constant(nn.Module):
    """Outputs that do not depend on the observation."""

    def __init__(self, *outputs: float) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.tensor(outputs, dtype=torch.float32))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.outputs.expand(len(batch), -1)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


def rows_for(policy: TorchPolicy, n: int = 4) -> NDArray:
    return policy.weights + np.random.default_rng(0).normal(0, 1, (n, policy.parameters))


def test_the_weights_of_a_module_are_a_row_and_back():
    module = network()
    policy = TorchPolicy(module)
    assert policy.parameters == policy.weights.size == 2 * 8 + 8 + 8 * 3 + 3
    assert policy.weights.dtype == np.float64
    expected = parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_array_equal(policy.weights, expected)

    act = policy.controller(policy.weights, spaces.Discrete(3))
    for observation in np.random.default_rng(1).normal(size=(30, 2)).astype(np.float32):
        with torch.inference_mode():
            outputs = module.eval()(torch.as_tensor(observation)[None])[0]
        assert act(observation) == int(outputs.argmax())


def test_each_row_fills_the_module_anew():
    policy = TorchPolicy(Constant(0.0, 0.0, 0.0))
    first = policy.controller(np.array([0.0, 1, 0]), spaces.Discrete(3))
    second = policy.controller(np.array([0.0, 0, 1]), spaces.Discrete(3))
    assert [first(np.zeros(2)), second(np.zeros(2)), first(np.zeros(2))] == [1, 2, 1]


@pytest.mark.parametrize("start", [0, -1, 5])
def test_discrete_actions_are_the_largest_output_counted_from_the_first_action(start: int):
    space = spaces.Discrete(3, start=start)
    for best in range(3):
        action = TorchPolicy(Constant(0, 0, 0)).controller(np.eye(3)[best], space)(np.zeros(2))
        assert (type(action), action) == (int, start + best)
        assert space.contains(action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_actions_are_cut_to_their_range_and_have_its_type(dtype: Any):
    space = spaces.Box(np.array([-1, -2], dtype), np.array([1, 3], dtype), dtype=dtype)
    policy = TorchPolicy(Constant(0, 0))
    for row, expected in (([0.5, -7], [0.5, -2]), ([9, 9], [1, 3]), ([-1, 3], [-1, 3])):
        action = policy.controller(np.array(row, float), space)(np.zeros(2))
        assert action.dtype == dtype
        np.testing.assert_array_equal(action, expected)
        assert space.contains(action)


def test_outputs_may_be_turned_into_an_action_by_a_function():
    policy = TorchPolicy(Constant(0, 0), action=lambda outputs: {"gripper": outputs[1] > 0})
    action = policy.controller(np.array([0.0, 1]), spaces.Dict(gripper=spaces.Discrete(2)))
    assert action(np.zeros(2)) == {"gripper": True}


def test_other_spaces_need_such_a_function():
    space = spaces.MultiBinary(2)
    with pytest.raises(ValueError, match=r"MultiBinary\(2\) need a function of their own: Torch"):
        TorchPolicy(Constant(0, 0)).controller(np.zeros(2), space)


def test_a_module_without_weights_is_refused():
    with pytest.raises(ValueError, match="the module has no weights"):
        TorchPolicy(nn.Tanh())


def test_evaluation_leaves_the_module_as_it_was():
    module = network().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    policy = TorchPolicy(module)
    task, rows = drift_task(policy=policy), rows_for(policy)
    kept = rows.copy()
    task.costs(rows, TRAIN)
    assert module.training
    assert all(weights.grad is None and weights.requires_grad for weights in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    np.testing.assert_array_equal(rows, kept)


def test_no_gradient_is_kept_while_it_acts():
    seen = []

    class Looking(Constant):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            outputs = super().forward(batch)
            seen.append((torch.is_grad_enabled(), outputs.grad_fn, tuple(batch.shape)))
            return outputs

    drift_task(policy=TorchPolicy(Looking(0, 0, 0)), steps=1).costs(np.zeros((1, 3)), TRAIN[:1])
    assert seen == [(False, None, (1, 2))]


def test_torchs_global_seed_changes_nothing_and_is_not_changed():
    policy = TorchPolicy(network())  # with dropout, which would draw from it
    task, rows = drift_task(policy=policy), rows_for(policy)
    first = task.costs(rows, TRAIN)
    assert len(np.unique(first)) > 10
    with torch.random.fork_rng():
        torch.manual_seed(99)
        before = torch.get_rng_state()
        np.testing.assert_array_equal(task.costs(rows, TRAIN), first)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_worker_processes_give_the_costs_of_a_module(another_process: Executor):
    policy = TorchPolicy(network())
    task, rows = drift_task(policy=policy), rows_for(policy)
    np.testing.assert_array_equal(
        evaluate(task, rows, TRAIN, execution=Execution(workers=another_process)).values,
        task.costs(rows, TRAIN),
    )


# ---- trained models as policies -----------------------------------------------------------------


class Recurrent:
    """A model as of sb3-contrib, which counts its steps in a state that it is handed back."""

    def __init__(self, period: int = 3) -> None:
        self.period, self.calls = period, []

    def __repr__(self) -> str:
        return f"Recurrent({self.period})"

    def predict(
        self,
        observation: NDArray,
        state: tuple[int] | None = None,
        episode_start: NDArray | None = None,
        deterministic: bool = False,
    ) -> tuple[Any, tuple[int]]:
        assert observation.shape == (2,)
        self.calls.append((state, episode_start, deterministic))
        count = state[0] if state else 0
        return np.int64(count % self.period), (count + 1,)


class Plain:
    """A model that is told the observation and nothing else."""

    def __init__(self) -> None:
        self.calls = 0

    def predict(self, observation: NDArray) -> int:
        self.calls += 1
        return steer(np.ones(2), observation)


def models_task(*models: Any, **changes: Any) -> GymTask:
    return drift_task(policy=PredictPolicy(models), **changes)


def test_a_model_is_handed_back_its_state_and_told_when_an_episode_begins():
    model, steps = Recurrent(), []

    def rule(episode: Episode) -> float:
        steps.append(episode.steps)
        return 0.0

    models_task(model, cost=rule).costs(zeros(), TRAIN)
    assert max(steps) > 3
    assert sum(steps) == len(model.calls)
    calls = iter(model.calls)
    for length in steps:
        for step in range(length):
            state, episode_start, deterministic = next(calls)
            assert state == (None if step == 0 else (step,))
            assert isinstance(episode_start, np.ndarray)
            assert (episode_start.shape, episode_start.dtype) == ((1,), np.bool_)
            assert episode_start[0] == (step == 0)
            assert deterministic is True


def test_a_recurrent_model_gives_the_same_costs_in_any_order():
    task = models_task(Recurrent(2), Recurrent(3), cost=x_at_the_end)
    together = task.costs(np.array([[0.0], [1.0]]), TRAIN)
    for i in reversed(range(N)):
        for j in (1, 0):
            alone = task.costs(np.array([[float(j)]]), TRAIN[i : i + 1])
            assert alone[0, 0] == together[i, j]


def test_a_row_is_the_number_of_a_model():
    policy = PredictPolicy([Recurrent(), Recurrent(), Recurrent()])
    assert policy.parameters == 1
    np.testing.assert_array_equal(policy.rows, [[0], [1], [2]])


def test_a_model_may_take_the_observation_alone():
    model = Plain()
    costs = models_task(model).costs(zeros(), TRAIN)
    np.testing.assert_array_equal(costs, drift_task().costs(np.ones((1, 2)), TRAIN))


def test_a_model_that_takes_the_observation_alone_can_act_once():
    model = Plain()
    models_task(model, steps=1).costs(zeros(), TRAIN[:1])
    assert model.calls == 1


class Failing(Recurrent):
    """A model with a mistake of its own: a TypeError that has nothing to do with how it is called.

    As in many that load their weights when first used, the second call meets another state.
    """

    def predict(self, observation: NDArray, **known: Any) -> Any:
        del observation
        self.calls.append(known)
        if len(self.calls) == 1:
            raise TypeError("unsupported operand type(s) for +: 'NoneType' and 'int'")
        return 1, None


def test_a_type_error_inside_a_model_is_reported_and_it_is_not_asked_again():
    model = Failing()
    with pytest.raises(Exception, match="unsupported operand"):
        models_task(model).costs(zeros(), TRAIN[:1])
    assert len(model.calls) == 1


class Undecided:
    """A model that cannot act without chance, and says so."""

    def predict(
        self,
        observation: NDArray,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[int, None]:
        del observation, state, episode_start
        if deterministic:
            raise TypeError("this model has no deterministic mode")
        return int(np.random.default_rng().integers(3)), None


def test_a_model_that_cannot_act_without_chance_is_never_asked_to_act_by_it():
    with pytest.raises(Exception, match="no deterministic mode"):
        models_task(Undecided(), steps=1).costs(zeros(), TRAIN)


def test_a_type_error_that_comes_with_every_call_is_reported_as_it_is():
    class Broken:
        def predict(self, observation: NDArray, **_: Any) -> Any:
            return observation + None

    with pytest.raises(RolloutError, match="unsupported operand type") as error:
        evaluate(models_task(Broken()), zeros(), TRAIN)
    assert "policy 0 in environment 0" in str(error.value)


def test_a_type_error_in_a_later_step_is_reported():
    class Later:
        def predict(self, observation: NDArray, state: Any = None, **_: Any) -> Any:
            return (1, 1) if state is None else observation + None

    with pytest.raises(RolloutError, match="unsupported operand type"):
        evaluate(models_task(Later()), zeros(), TRAIN)


@pytest.mark.parametrize("number", [-1.0, 2.0, 0.5, float("nan")])
def test_a_row_that_is_no_number_of_a_model_is_an_error(number: float):
    task = models_task(Recurrent(), Recurrent())
    with pytest.raises(ValueError, match=r"not the number of one of 2 models|hold a NaN"):
        evaluate(task, np.array([[number]]), TRAIN)


def test_no_models_and_models_without_predict_are_refused():
    with pytest.raises(ValueError, match="there are no models to choose from"):
        PredictPolicy([])
    with pytest.raises(TypeError, match=r"model 1 \(dict\) has no method predict"):
        PredictPolicy([Recurrent(), {"predict": 1}])


# ---- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NoSuchRobot-v0", "doesn't exist"),
        ("CartPole-v99", "v99"),
        ("no_such_module:Robot-v0", "No module named 'no_such_module'"),
        ("tiny_envs:NoSuchRobot-v0", "doesn't exist"),
    ],
)
def test_an_id_that_is_not_registered_is_refused_when_the_task_is_made(name: str, words: str):
    with pytest.raises(ValueError, match=f"no Gymnasium environment '{name}' is reg") as error:
        drift_task(make=name)
    assert words in str(error.value)
    assert "write 'its_module:its_id'" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def registered() -> Any:
    make: Any = Drift
    gym.register("OnlyHere-v3", make, kwargs={"length": 6}, max_episode_steps=9)
    yield "OnlyHere-v3"
    gym.registry.pop("OnlyHere-v3")


def test_an_id_makes_what_it_registers_with_the_arguments_given(registered: str):
    short, longer, limited = (
        drift_task(make=registered, arguments=arguments, cost=lambda e: e.steps / 100, options=None)
        for arguments in ({}, {"length": 20}, {"length": 20, "max_episode_steps": 3})
    )
    some = short.environments(20, stream="train")
    most = [task.costs(GAINS[:1], some).max() for task in (short, longer, limited)]
    assert most == [0.06, 0.09, 0.03]
    assert short.name == registered


@pytest.mark.slow
def test_an_id_that_is_registered_in_this_process_alone_reaches_workers(
    registered: str, another_process: Executor
):
    task = drift_task(make=registered)
    expected = task.costs(GAINS, TRAIN)
    np.testing.assert_array_equal(
        evaluate(task, GAINS, TRAIN, execution=Execution(workers=another_process)).values, expected
    )


class Nested(gym.Wrapper):
    """An environment that makes another by its id."""

    def __init__(self) -> None:
        super().__init__(gym.make("OnlyHere-v3"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: gym.make("OnlyHere-v3"), Nested])
def test_what_is_registered_in_this_process_reaches_workers_with_a_factory(
    make: Any, registered: str, another_process: Executor
):
    for length in (6, 4):  # the same id, registered anew: what was sent last holds
        gym.registry.pop(registered)
        gym.register(registered, Drift, kwargs={"length": length})  # type: ignore[arg-type]
        task = drift_task(make=make, cost=lambda episode: episode.steps / 100, options=None)
        some = task.environments(20, stream="train")
        elsewhere = evaluate(task, GAINS, some, execution=Execution(workers=another_process))
        np.testing.assert_array_equal(elsewhere.values, task.costs(GAINS, some))
        assert elsewhere.values.max() == length / 100


def test_a_registration_that_cannot_be_sent_or_read_holds_up_no_other(registered: str):
    with open(__file__) as file:
        gym.register("Unsendable-v0", lambda: file)  # type: ignore[arg-type, return-value]
        sent = cloudpickle.dumps(drift_task(make=lambda: gym.make(registered)))
    gym.registry.pop("Unsendable-v0")
    spec = gym.registry.pop(registered)
    copy = cloudpickle.loads(sent)
    copy.__dict__["_registrations"].insert(0, b"of a module that is not here")
    try:
        assert copy.costs(GAINS, TRAIN).shape == (N, len(GAINS))
    finally:
        gym.registry[registered] = spec


def test_a_factory_whose_id_is_not_registered_is_told_what_to_do():
    task = drift_task(make=lambda: gym.make("Elsewhere-v0"))
    with pytest.raises(RolloutError, match=r"gymnasium\.make\('its_module:its_id'\), caused by "):
        evaluate(task, GAINS, TRAIN)


SCRIPT = """
import gymnasium as gym
import numpy as np
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.tasks.gym import FromReturn, FunctionPolicy, GymTask
from tiny_envs import Drift, steer

class Mine(Drift):
    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, reward / 2, *rest

if __name__ == "__main__":
    gym.register("mine-v0", Mine)
    policy = FunctionPolicy(steer, 2)
    task = GymTask(lambda: gym.make("mine-v0"), policy, FromReturn(-40, 0))
    some = task.environments(6, stream="train")
    costs = evaluate(task, np.ones((2, 2)), some, execution=Execution(workers=2)).values
    np.testing.assert_array_equal(costs, task.costs(np.ones((2, 2)), some))
    print("the same")
"""


@pytest.mark.slow
def test_a_class_that_a_script_registers_reaches_its_workers(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "the same\n", done.stderr


def test_an_id_may_name_the_module_that_registers_it():
    task = GymTask(
        "gymnasium.envs:CartPole-v1", FunctionPolicy(lambda g, o: int(g @ o > 0), 4), RETURN
    )
    assert task.actor(np.ones(4))(np.ones(4)) == 1


def test_arguments_for_a_factory_are_refused():
    with pytest.raises(ValueError, match=r"arguments are for gymnasium\.make"):
        drift_task(arguments={"length": 3})


def test_a_factory_of_something_else_is_an_error():
    with pytest.raises(RolloutError, match="which is no Gymnasium environment"):
        evaluate(drift_task(make=lambda: 42), GAINS, TRAIN)  # type: ignore[arg-type, return-value]


# ---- what goes wrong in an episode --------------------------------------------------------------


class Fragile(Drift):
    """It breaks in one environment, and stays broken."""

    def __init__(self, bad_seed: int) -> None:
        super().__init__()
        self.bad_seed, self.broken = bad_seed, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.broken, "it was used after it broke"
        self.seed = seed
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.seed == self.bad_seed and self.steps == 1:
            self.broken = True
            raise RuntimeError("the contact solver\ndiverged")
        return super().step(action)


def test_an_environment_that_raises_is_reported_and_the_next_episode_has_a_fresh_one():
    bad = int(TRAIN.arrays()["seed"][4])
    task = drift_task(make=partial(Fragile, bad))
    with pytest.raises(
        RolloutError,
        match=r"^the rollout of policy 0 in environment 4 of stream 'train' \(seed 3\) failed, "
        r"also when it was tried again: RuntimeError: the contact solver diverged "
        r"\(test_gym\.py:\d+\)$",
    ):
        evaluate(task, GAINS, TRAIN)
    good = [i for i in range(N) if i != 4]
    for i in good:
        np.testing.assert_array_equal(task.costs(GAINS, TRAIN[i : i + 1])[0], COSTS[i])


def test_a_policy_that_raises_is_reported_with_its_rollout():
    def act(gains: NDArray, observation: NDArray) -> int:
        if gains[1] == 0.3:
            raise KeyError("no plan")
        return steer(gains, observation)

    with pytest.raises(RolloutError, match=r"policy 2 in environment 0 .* KeyError: 'no plan'"):
        evaluate(drift_task(policy=FunctionPolicy(act, 2)), GAINS, TRAIN)


# ---- what travels -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_simulator_is_not_sent_to_workers(another_process: Executor):
    class Unsendable(Drift):
        def __reduce__(self) -> Any:
            raise TypeError("a simulator cannot be pickled")

    task = drift_task(make=Unsendable)
    task.costs(GAINS, TRAIN)
    copy = cloudpickle.loads(cloudpickle.dumps(task))
    np.testing.assert_array_equal(copy.costs(GAINS, TRAIN), COSTS)
    np.testing.assert_array_equal(
        evaluate(task, GAINS, TRAIN, execution=Execution(workers=another_process)).values, COSTS
    )


def test_a_task_is_told_by_words_that_are_the_same_in_every_process():
    tasks = [
        drift_task(),
        drift_task(cost=x_at_the_end),
        drift_task(cost=lambda _: 0.0),
        drift_task(policy=TorchPolicy(network())),
        drift_task(policy=TorchPolicy(network(), action=np.argmax)),
        models_task(Recurrent(2)),
        models_task(Recurrent(3)),
        drift_task(make="CartPole-v1", steps=3, arguments={"max_episode_steps": 4}),
    ]
    for task in tasks:
        task.__dict__.get("_env")
        assert not ADDRESS.search(repr(task)), repr(task)
        assert identity(task) == repr(task)
    assert len({repr(task) for task in tasks}) == len(tasks)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": FunctionPolicy(steer, 3)},
        {"cost": FromReturn(-41, 0)},
        {"cost": FromReturn(-40, 0, clipped=True)},
        {"options": None},
        {"steps": 4},
        {"name": "another"},
        {"make": "CartPole-v1"},
        {"make": "CartPole-v1", "arguments": {"max_episode_steps": 3}},
    ],
)
def test_a_task_is_told_from_others(changes: dict[str, Any]):
    assert identity(drift_task(**changes)) != identity(drift_task())


def test_models_that_have_no_words_for_themselves_are_told_by_their_weights_or_not_at_all():
    class Trained:
        def __init__(self, *weights: float) -> None:
            self.policy = Constant(*weights)

        predict = Recurrent.predict

    first, same, second = (identity(models_task(Trained(*w))) for w in ([1, 2], [1, 2], [1, 3]))
    assert first == same != second
    with pytest.raises(ValueError, match="cannot be told from others by its"):
        identity(models_task(Plain()))


def test_tasks_of_one_name_in_different_environments_are_told_apart():
    first, second = (drift_task(make=make, name="mine") for make in ("CartPole-v1", "Acrobot-v1"))
    assert identity(first) != identity(second)


# ---- deployment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kl", "occam"])
def test_what_is_certified_acts_as_it_did_in_training(method: str):
    task = drift_task()
    run = learn_finite(
        evaluate(task, GAINS, task.environments(40, stream="train")), 0.05, method=method
    )
    robot = DeployedPolicy(run, drift_task(), seed=0)
    robot.reset()
    env, total, ended = Drift(), 0.0, False
    arrays = TRAIN.arrays()
    options = {"length": int(arrays["length"][0]), "wind": float(arrays["wind"][0])}
    observation, _ = env.reset(seed=int(arrays["seed"][0]), options=options)
    while not ended:
        action, state = robot.predict(observation, deterministic=method == "occam")
        assert state is None
        observation, reward, fell, late, _ = env.step(action)
        total, ended = total + reward, fell or late
    [[cost]] = task.costs(robot.policy[None], TRAIN[:1])
    assert cost == -total / 40


def test_a_model_with_a_memory_is_deployed_with_it():
    model = Recurrent(3)
    task = models_task(model, cost=x_at_the_end)
    run = learn_finite(
        evaluate(task, zeros(), task.environments(20, stream="train")), 0.05, method="occam"
    )
    robot = DeployedPolicy(run, models_task(Recurrent(3)))
    for _ in range(2):  # each episode from its beginning
        robot.reset()
        assert [int(robot.predict(np.zeros(2))[0]) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_observations_that_are_dictionaries_reach_a_deployed_policy():
    task = drift_task(make=partial(Drift, pad=True), policy=FunctionPolicy(steer_pad, 2))
    run = learn_finite(
        evaluate(task, GAINS, task.environments(20, stream="train")), 0.05, method="occam"
    )
    robot = DeployedPolicy(run, task)
    observation: Any = {"state": np.array([-3.0, 0.0], np.float32), "step": 2}
    assert robot.predict(observation)[0] == steer_pad(robot.policy, observation)


# ---- environments -------------------------------------------------------------------------------


def test_the_first_of_many_environments_are_the_same_few():
    many, few = (drift_task().environments(n, stream="train", seed=3).arrays() for n in (100, 9))
    middle = drift_task().environments(100, stream="train", seed=3)[37:70].arrays()
    assert many.keys() == {"seed", "length", "wind"}
    for name, values in many.items():
        np.testing.assert_array_equal(values[:9], few[name])
        np.testing.assert_array_equal(values[37:70], middle[name])
    assert len(np.unique(many["seed"])) == 100
    assert (many["seed"].min() >= 0) & (many["seed"].max() < 2**31)


def test_other_seeds_and_streams_share_no_environment():
    sets = [
        set(drift_task().environments(200, stream, seed).arrays()["seed"].tolist())
        for stream in ("train", "test")
        for seed in (0, 1)
    ]
    assert len(set.union(*sets)) == 800


@pytest.mark.parametrize("name", ["seed", "reset_mask"])
def test_options_may_not_take_the_names_that_are_taken(name: str):
    task = drift_task(options=lambda rng: {"wind": rng.normal(), name: 3})
    with pytest.raises(ValueError, match="must return values by name, none of them its seed"):
        task.environments(3, stream="train").arrays()


def test_options_are_values_by_name():
    with pytest.raises(ValueError, match="must return values by name"):
        drift_task(options=lambda rng: rng.random(3)).environments(3, stream="train").arrays()  # type: ignore[arg-type, return-value]


def test_all_environments_have_the_same_options():
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        return {"wind": 0.0} if rng.random() < 0.5 else {"wind": 0.0, "goal": 1.0}

    with pytest.raises(ValueError, match="all must have the same names"):
        drift_task(options=draw).environments(3, stream="train").arrays()


def test_no_environments_are_refused():
    with pytest.raises(ValueError, match="0 environments were asked for"):
        drift_task().environments(0, stream="train")


def test_another_distribution_has_another_name():
    def calm(rng: np.random.Generator) -> dict[str, Any]:
        return physics(rng) | {"wind": 0.0}

    words = {drift_task(options=o).environments(3, stream="s").task for o in (physics, calm, None)}
    assert len(words) == 3
    assert drift_task(policy=STEER).environments(3, stream="s").task in words


# ---- declared failures --------------------------------------------------------------------------


class Diverged(Exception):  # noqa: N818 - an event, not a mistake
    """What a simulator may raise."""


class Diverging(Drift):
    """A simulator that gives up where the point gets far, and can then not be reset."""

    broken = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.broken, "reset after an exception"
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        shown = super().step(action)
        if abs(self.x) > 0.6:
            self.broken = True
            raise Diverged(f"at {self.x}")
        return shown


def test_a_declared_failure_of_a_simulator_costs_1_and_the_next_episode_has_a_fresh_one():
    task = drift_task(make=Diverging, failures=(Diverged,), cost=FromReturn(worst=-80, best=0))
    costs, raised = task.costs_and_raised(GAINS, TRAIN)
    assert 0 < raised < costs.size
    assert raised == (costs == 1).sum()
    plain = drift_task(cost=FromReturn(worst=-80, best=0)).costs(GAINS, TRAIN)
    np.testing.assert_array_equal(costs[costs < 1], plain[costs < 1])
    np.testing.assert_array_equal(evaluate(task, GAINS, TRAIN).values, costs)
    with pytest.raises(RolloutError, match="Diverged"):
        evaluate(drift_task(make=Diverging, failures=(KeyError,)), GAINS, TRAIN)


def test_a_rule_that_raises_is_no_declared_failure():
    def rule(episode: Episode) -> float:
        raise Diverged(f"in the rule, after {episode.steps} steps")

    with pytest.raises(RolloutError, match="Diverged: in the rule"):
        evaluate(drift_task(cost=rule, failures=(Diverged,)), GAINS, TRAIN)


@pytest.mark.parametrize("failures", [(Exception,), (BaseException,), Diverged, ("Diverged",)])
def test_failures_that_are_too_broad_or_no_exceptions_are_refused(failures: Any):
    with pytest.raises(ValueError, match=r"failures (must name|=)"):
        drift_task(failures=failures)


def test_failures_tell_a_task_from_others_and_stand_in_its_rule():
    task = drift_task(failures=(Diverged,))
    assert identity(task) != identity(drift_task())
    assert task.cost_rule.endswith(f", 1 where it raises {__name__}.Diverged")


def test_failures_in_ones_own_vector_are_refused_since_an_exception_ends_all_of_its_episodes():
    def make() -> SyncVectorEnv:
        return SyncVectorEnv([Drift] * 2, autoreset_mode=AutoresetMode.DISABLED)

    with pytest.raises(ValueError, match="failures are not told apart in a vector of your own"):
        drift_task(make=make, failures=(Diverged,)).costs(GAINS, TRAIN)


# ---- what is seen of an environment -------------------------------------------------------------


@pytest.mark.parametrize("vector", [0, 3])
@pytest.mark.parametrize("pad", [False, True])
def test_what_is_observed_differs_where_environments_or_policies_do(vector: int, pad: bool):
    act = FunctionPolicy(steer_pad if pad else steer, parameters=2)
    task = drift_task(make=lambda: Drift(pad=pad), policy=act, vector=vector)
    seen = task.observed(GAINS[:2], TRAIN)
    assert seen.shape == (N, 2)
    assert ((seen >= 0) & (seen < 1)).all()
    assert len(np.unique(seen[:, 0])) == N
    np.testing.assert_array_equal(task.observed(GAINS[:2], TRAIN), seen)
    np.testing.assert_array_equal(task.observed(GAINS[1:2], TRAIN)[:, 0], seen[:, 1])


def test_no_more_steps_are_observed_than_asked_for():
    events: list[Any] = []
    task = drift_task(make=lambda: Drift(events), options=None)
    task.observed(GAINS[:1], TRAIN, steps=2)
    assert {len(episode) for episode in episodes_in(events)} <= {2, 3}
    events.clear()
    drift_task(make=lambda: Drift(events), steps=1).observed(GAINS[:1], TRAIN)
    assert {len(episode) for episode in episodes_in(events)} == {2}


def test_a_declared_failure_may_happen_while_observing():
    task = drift_task(make=Diverging, failures=(Diverged,))
    assert len(np.unique(task.observed(GAINS, TRAIN))) > N


def test_every_option_is_in_the_docstring():
    told = re.findall(r"^        (\w+): ", GymTask.__doc__ or "", re.M)
    assert sorted(told) == sorted(each.name for each in fields(GymTask) if each.init)
