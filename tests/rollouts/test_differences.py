"""Environments that make no difference are refused, or warned of, before anything is certified."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import broken_promises as broken
import gymnasium as gym
import numpy as np
import pytest
from broken_promises import POLICIES, made_of
from numpy.typing import NDArray

from pacbayes_control.rollouts import Execution
from pacbayes_control.rollouts.conformance import refuse_broken
from pacbayes_control.rollouts.differences import Broken, Warned, environments_differ, swapped
from pacbayes_control.rollouts.evaluation import equal_costs, table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.tasks import BatchTask, FunctionTask
from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask
from pacbayes_control.tasks.task import noise_of

GAINS = np.array([[0.0, 0, 1, 1], [0, 0, -1, 0], [0.1, 0.2, 1, 1]])
FALLS = FromTermination(success=False)


def push(gains: NDArray, observation: NDArray) -> int:
    return int(gains @ observation > 0)


def physics(rng: np.random.Generator) -> dict[str, Any]:
    return {"force_mag": rng.uniform(5, 20), "gravity": rng.uniform(8, 12)}


class Wrapped(gym.Wrapper):
    """A wrapper that a user may write, and what it forgets."""

    def __init__(self, env: gym.Env, reads: tuple[str, ...] = (), seed: int | None = None) -> None:
        super().__init__(env)
        self.reads, self.always = reads, seed

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        for name in self.reads:
            setattr(self.env.unwrapped, name, options[name])
        return self.env.reset(seed=seed if self.always is None else self.always)


def cartpole(wrapped: Any = None, options: Any = None, **changes: Any) -> GymTask:
    def make() -> gym.Env:
        env = gym.make("CartPole-v1", max_episode_steps=12)
        return env if wrapped is None else Wrapped(env, **wrapped)

    policy = FunctionPolicy(push, parameters=4)
    known: dict[str, Any] = {"name": "cartpole", "policies": GAINS}
    return GymTask(make, policy, FALLS, options, **(known | changes))


def looked_at(task: Any, policies: NDArray, n: int = 4, **options: Any) -> str:
    here = task.environments(n, stream="look")
    job = Job(task, here, policies, noise_of(task, here, None))
    return environments_differ(job, table_of(job), **options)


# ---- Gymnasium ----------------------------------------------------------------------------------

NOTHING = r"nothing that is observed, and no cost, differs across 32 environments under 3 policies"
UNREAD = r"options are drawn and nothing reads them \(force_mag, gravity\)"
REFUSED: dict[str, tuple[GymTask, str]] = {
    "stock CartPole with options": (cartpole(options=physics), UNREAD),
    "a wrapper that forgets its options": (cartpole({}, physics), UNREAD),
    "the same in a vector": (cartpole(options=physics, vector=2), UNREAD),
    "always seed 0": (cartpole({"seed": 0}), NOTHING),
    "always seed 0, and options that are not read": (cartpole({"seed": 0}, physics), NOTHING),
    "always seed 0 in a vector": (cartpole({"seed": 0}, vector=2), NOTHING),
}


@pytest.mark.parametrize(
    "which", [pytest.param(k, marks=[pytest.mark.slow] * ("vector" in k)) for k in REFUSED]
)
def test_a_gymnasium_environment_that_ignores_what_is_drawn_is_refused(which: str):
    task, words = REFUSED[which]
    with pytest.raises(Broken, match=words):
        looked_at(task, GAINS)
    with pytest.raises(ValueError, match=rf"rests on \(environments differ\): {words}"):
        refuse_broken(task, GAINS)


@pytest.mark.parametrize(
    "task",
    [
        cartpole(),
        cartpole(vector=3),
        cartpole({"reads": ("force_mag", "gravity")}, physics),
        cartpole({"reads": ("force_mag", "gravity")}, physics, vector=2),
    ],
)
def test_one_that_reads_what_is_drawn_passes(task: GymTask):
    assert refuse_broken(task, GAINS) is None
    detail = looked_at(task, GAINS)
    assert (
        detail == f"what is observed differs with {', '.join(task.environments(1, 's').arrays())}"
    )
    assert not isinstance(detail, Warned)


@pytest.mark.parametrize(
    ("wrapped", "idle"),
    [
        ({"reads": ("gravity",)}, "force_mag"),
        ({"reads": ("gravity", "force_mag"), "seed": 0}, "seed"),
        ({"reads": ("gravity",), "seed": 0}, "seed, force_mag"),
    ],
)
def test_values_that_make_no_difference_alone_are_named(wrapped: Any, idle: str):
    task = cartpole(wrapped, physics)
    detail = looked_at(task, GAINS)
    assert isinstance(detail, Warned)
    assert detail.startswith(f"swapped alone, {idle} made no difference to what is observed")
    assert refuse_broken(task, GAINS) is None


@pytest.mark.slow
def test_options_that_matter_seldom_or_late_are_not_refused():
    class Gusty(gym.Wrapper):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.gust, self.steps = options["gust"], 0
            return self.env.reset(seed=seed)

        def step(self, action: Any) -> Any:
            self.steps += 1
            observation, *rest = self.env.step(action)
            late = self.steps == 55 and self.gust > 0.8
            return observation + np.float32(late), *rest

    def gusts(rng: np.random.Generator) -> dict[str, Any]:
        return {"gust": rng.random()}

    task = GymTask(
        lambda: Gusty(gym.make("CartPole-v1", max_episode_steps=60)),
        FunctionPolicy(push, 4),
        FALLS,
        gusts,
        policies=GAINS,
    )
    assert looked_at(task, GAINS, each=False) == "what is observed differs"


def test_a_difference_that_only_costs_show_will_do():
    class Hidden(gym.Wrapper):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.goal = options["goal"]
            return self.env.reset(seed=0 * (seed or 0))

        def step(self, action: Any) -> Any:
            *shown, _ = self.env.step(action)
            return *shown, {"goal": self.goal}

    def goals(rng: np.random.Generator) -> dict[str, Any]:
        return {"goal": rng.random()}

    task = GymTask(
        lambda: Hidden(gym.make("CartPole-v1", max_episode_steps=9)),
        FunctionPolicy(push, 4),
        lambda episode: episode.info["goal"],
        goals,
        name="hidden",
        policies=GAINS,
    )
    assert looked_at(task, GAINS, each=False) == "what is observed differs"


@pytest.mark.slow
def test_they_are_observed_in_the_workers_that_roll_out(another_process: Executor):
    here = os.getpid()

    class Elsewhere(gym.Wrapper):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            assert os.getpid() != here, "the simulator is on the cluster only"
            return self.env.reset(seed=seed, options=options)

    task = GymTask(
        lambda: Elsewhere(gym.make("CartPole-v1", max_episode_steps=9)),
        FunctionPolicy(push, 4),
        FALLS,
        physics,
        name="elsewhere",
        policies=GAINS,
    )
    with pytest.raises(ValueError, match=UNREAD):
        refuse_broken(task, GAINS, Execution(workers=another_process))


# ---- other tasks --------------------------------------------------------------------------------


def goal_only(policy: NDArray, environment: Any) -> float:
    return abs(policy[0] - environment["goal"])


def blind(policy: NDArray, environment: Any) -> float:
    del environment
    return policy[0] / 2


def noise_only(policy: NDArray, environment: Any, rng: np.random.Generator) -> float:
    del environment
    return float(rng.random() < policy[0])


def failing(policy: NDArray, environment: Any) -> float:
    del policy, environment
    return 1.0


@pytest.mark.parametrize(
    ("rollout", "words"),
    [
        (blind, r"all costs of 4 environments are the same for each policy"),
        (failing, r"all costs of 4 environments are 1: nothing that was drawn shows"),
        (noise_only, r"no cost of 3 policies in 4 .* when goal or obstacles was that of an"),
    ],
)
def test_rollouts_that_ignore_the_environment_are_warned_of(rollout: Any, words: str):
    task = made_of(rollout)
    detail = looked_at(task, POLICIES)
    assert isinstance(detail, Warned)
    assert re.match(words, detail)
    assert re.match(words, refuse_broken(task, POLICIES) or "")


@pytest.mark.parametrize("rollout", [broken.miss, broken.slip])
def test_rollouts_that_read_the_environment_are_not(rollout: Any):
    task = made_of(rollout)
    assert looked_at(task, POLICIES) == "costs differ with goal, obstacles"
    assert refuse_broken(task, POLICIES) is None


def test_values_that_change_no_cost_are_named():
    detail = looked_at(made_of(goal_only), POLICIES)
    assert detail == "costs differ with goal, not with obstacles"
    assert not isinstance(detail, Warned)


def test_values_that_do_not_go_together_are_read():
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        low = rng.random()
        return {"low": low, "high": low + 1e-9}

    def rollout(policy: NDArray, environment: Any) -> float:
        if not 0 < environment["high"] - environment["low"] < 1e-6:
            raise ValueError("no range")
        return policy[0] / 2 + environment["low"] / 4

    task = FunctionTask(rollout, draw, "range", 1, policies=POLICIES)
    assert looked_at(task, POLICIES) == "costs differ with low, high"


def test_batches_are_compared_too():
    def rollouts(policies: NDArray, environments: Any) -> NDArray:
        return np.zeros(len(environments["goal"]))[:, None] + policies[..., 0] / 2

    task = BatchTask(rollouts, broken.many, "toy", parameters=1, policies=POLICIES)
    assert isinstance(looked_at(task, POLICIES), Warned)


# ---- swapping -----------------------------------------------------------------------------------


def test_swapped_values_are_those_of_others_and_the_rest_stays():
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        return {"x": rng.random(), "flag": rng.random() < 0.3, "map": f"map {rng.integers(2)}"}

    task = FunctionTask(lambda _p, _e: 0.0, draw, "toy", 1)
    here = task.environments(40, stream="s", seed=2)
    before = here.arrays()
    for names in (["x"], ["flag", "map"]):
        after = swapped(here, names).arrays()
        for name in before:
            assert (before[name] != after[name]).all() == (name in names)
            assert np.isin(after[name], before[name]).all() or name == "x"
        np.testing.assert_array_equal(swapped(here, names)[5:9].arrays()["x"], after["x"][5:9])


def test_what_is_constant_stays():
    task = FunctionTask(lambda _p, _e: 0.0, broken.always_the_same, "toy", 1)
    after = swapped(task.environments(3, stream="s"), ["goal", "obstacles"]).arrays()
    assert after["goal"].tolist() == [0.3] * 3


def test_equal_costs_are_told_in_a_line():
    assert equal_costs(np.array([[0, 1], [0, 1]])) == (
        "all costs of 2 environments are the same for each policy: nothing that was drawn shows in "
        "them; see pbc check"
    )
    assert str(equal_costs(np.ones((9, 2)))).startswith("all costs of 9 environments are 1:")
    assert equal_costs(np.array([[0, 1], [0, 0]])) is None
    assert equal_costs(np.zeros((1, 5))) is None  # one environment says nothing


# ---- the command --------------------------------------------------------------------------------

TASK = """
import numpy as np
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"goal": rng.random()}

def rollout(policy, environment):
    return policy[0] / 2

task = FunctionTask(rollout, draw, "blind", policies=np.array([[0.0], [0.5]]))
"""


def test_the_command_prints_a_warning_and_is_content(
    quick: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "pacbayes_control.rollouts.conformance._elsewhere_the_same", lambda *_: "spared"
    )
    (tmp_path / "blind.py").write_text(TASK)
    done = quick("check", "blind.py:task", "--json", "check.json")
    assert done.returncode == 0
    assert "WARNING" in done.stdout
    assert "Read the WARNING before you rely on it" in done.stdout
    assert '"warning": true' in (tmp_path / "check.json").read_text()
