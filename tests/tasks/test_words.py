"""What tasks say of themselves in records: one printable line, the same in every process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import packages_distributions
from typing import Any

import cloudpickle
import gymnasium as gym
import numba
import numpy as np
import pytest
import scipy
from numpy.typing import NDArray
from tiny_envs import drift_task, x_at_the_end
from torch import nn

from pacbayes_control.robots import Grasping, Swing, Vehicle
from pacbayes_control.robots.planar.obstacles import Reshuffled
from pacbayes_control.robots.swing import WorstGains
from pacbayes_control.robots.vehicle import CommonRadius
from pacbayes_control.tasks import BatchTask, FunctionTask, identity
from pacbayes_control.tasks.gym import (
    FromInfo,
    FromReturn,
    FromTermination,
    FunctionPolicy,
    GymTask,
    PredictPolicy,
    TorchPolicy,
)
from pacbayes_control.tasks.task import Task, versions_of

FALL = FromTermination(success=False)


def draw(rng: np.random.Generator) -> dict[str, float]:
    return {"goal": rng.random()}


def rollout(policy: NDArray, environment: Mapping[str, float]) -> float:
    return helper(abs(policy[0] - environment["goal"]))


def helper(x: float) -> float:
    """Used by the rollout: what it names counts too."""
    return float(scipy.special.expit(x)) * math.exp(0)


def draw_many(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
    return {"goal": rng.random(n)}


def rollouts(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
    return np.abs(policies[..., 0] - environments["goal"][:, None])


class Far:
    """A rule that is an object without words of its own."""

    def __call__(self, episode: Any) -> float:
        return float(episode.steps > 3)


@dataclass(frozen=True)
class Odd:
    """Obstacles without words of their own, and with an ugly name."""

    name: str = "a\n\x1b[2Kb"

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        raise NotImplementedError


def function_task(**given: Any) -> FunctionTask:
    return FunctionTask(rollout, draw, "toy", **given)


def batch_task(**given: Any) -> BatchTask:
    return BatchTask(rollouts, draw_many, "toy", **given)


def cartpole(cost: Any = FALL, **given: Any) -> GymTask:
    push = FunctionPolicy(lambda gains, seen: int(gains @ seen > 0), 4)
    return GymTask("CartPole-v1", push, cost, **given)


# ---- the words ----------------------------------------------------------------------------------

WORDS = {
    "function": (function_task(), f"cost by rollout of {__name__}", f"drawn by draw of {__name__}"),
    "batch": (
        batch_task(),
        f"costs by rollouts of {__name__}",
        f"drawn by draw_many of {__name__}",
    ),
    "partial": (
        FunctionTask(partial(rollout), partial(draw), "toy"),
        f"cost by rollout of {__name__}",
        f"drawn by draw of {__name__}",
    ),
    "an id": (
        cartpole(steps=100),
        "1 where the episode ends by itself before its limit, 0 otherwise, in episodes of at most "
        "100 steps",
        "CartPole-v1 reset with random seeds",
    ),
    "arguments": (
        cartpole(FromTermination(success=True), arguments={"sutton_barto_reward": True}),
        "0 where the episode ends by itself before its limit, 1 otherwise",
        "CartPole-v1 with {'sutton_barto_reward': True} reset with random seeds",
    ),
    "a factory": (
        drift_task(cost=FromReturn(worst=-40, best=0, clipped=True)),
        "from the sum of rewards: 0 at 0, 1 at -40, in proportion between, and beyond either end "
        "as at that end",
        "Drift of tiny_envs reset with random seeds and options by physics of tiny_envs",
    ),
    "info": (
        drift_task(cost=FromInfo("cra\x1bshed", worst=1, best=0)),
        r"from 'cra\x1bshed' of the last step's info: 0 at 0, 1 at 1, in proportion between",
        "Drift of tiny_envs reset with random seeds and options by physics of tiny_envs",
    ),
    "a rule of one's own": (
        drift_task(cost=x_at_the_end, options=None),
        "cost by x_at_the_end of tiny_envs",
        "Drift of tiny_envs reset with random seeds",
    ),
    "an object as a rule": (
        drift_task(cost=Far(), options=None),
        f"cost by Far of {__name__}",
        "Drift of tiny_envs reset with random seeds",
    ),
    "vehicle": (
        Vehicle(),
        "1 where the robot touches a cylinder or a wall in 100 steps, 0 otherwise",
        "20 to 40 cylinders, uniform and independent: x -5 to 5 m, y 2 to 10 m, "
        "radius 0.05 to 0.2 m",
    ),
    "one radius": (
        Vehicle(CommonRadius()),
        "1 where the robot touches a cylinder or a wall in 100 steps, 0 otherwise",
        "7 cylinders, uniform and independent: x -5 to 5 m, y 2 to 10 m, all of one radius in m "
        "drawn from Beta(alpha=0.8, beta=1.25, low=0.1, high=1.1)",
    ),
    "reshuffled": (
        Vehicle(Reshuffled(Vehicle().environments(9, "train"))),
        "1 where the robot touches a cylinder or a wall in 100 steps, 0 otherwise",
        "cylinders reshuffled from environments 0 to 9 of 'train'",
    ),
    "obstacles of one's own": (
        Vehicle(Odd()),
        "1 where the robot touches a cylinder or a wall in 100 steps, 0 otherwise",
        r"Odd(name='a\n\x1b[2Kb')",
    ),
    "swing": (
        Swing(uncertainty=WorstGains((2.5, 3.5), (0.3, 0.5))),
        "1 where the drone touches a cylinder or the net in 50 steps of flight and 10 of landing, "
        "0 otherwise; the worst of 5 drones",
        "3 to 6 cylinders, uniform and independent: x -3.5 to 3.5 m, y 5 to 13 m, "
        "radius 0.25 to 0.5 m",
    ),
    "grasping": (
        Grasping(),
        "0 where the object is lifted more than 2 cm, held by both fingers, clear of the table "
        "and at rest, 1 otherwise",
        "Procedural objects, 0.05 to 0.15 kg, friction 0.4 to 0.8, dropped on a table and at rest "
        "in the camera's sight",
    ),
}


@pytest.mark.parametrize("which", WORDS)
def test_a_task_says_what_it_costs_and_how_environments_are_drawn(which: str):
    task, rule, distribution = WORDS[which]
    assert (task.cost_rule, task.distribution) == (rule, distribution)
    for words in (task.cost_rule, task.distribution):
        assert words.isprintable()
        assert len(words) <= 200


MAKE = {"function": function_task, "batch": batch_task, "gym": cartpole}


@pytest.mark.parametrize("which", MAKE)
def test_words_of_ones_own_take_their_place_and_stay_where_the_task_is_changed(which: str):
    own = {"cost_rule": "1 where it is late", "distribution": "roads of Lisbon"}
    task = replace(MAKE[which](**own), name="other")
    assert (task.cost_rule, task.distribution) == ("1 where it is late", "roads of Lisbon")
    assert repr(task) == repr(replace(MAKE[which](), name="other"))  # the costs are the same


def test_derived_words_follow_what_they_were_derived_from_also_in_another_process():
    changed = replace(cartpole(), cost=FromTermination(success=True), steps=7)
    changed = cloudpickle.loads(cloudpickle.dumps(changed))
    assert changed.cost_rule == (
        "0 where the episode ends by itself before its limit, 1 otherwise, in episodes of at most "
        "7 steps"
    )
    other = replace(function_task(), draw=lambda rng: {"goal": rng.random()})
    assert "<lambda>" in other.distribution
    assert "0x" not in other.distribution


@pytest.mark.parametrize("which", MAKE)
@pytest.mark.parametrize("field", ["cost_rule", "distribution"])
@pytest.mark.parametrize("words", ["a\nb", "\x1b[2K", "x" * 201, 3])
def test_words_that_are_no_line_are_refused(which: str, field: str, words: Any):
    with pytest.raises(ValueError, match=f"{field} of task .* must be one printable line"):
        MAKE[which](**{field: words})


def test_long_words_are_cut():
    def draw_from(rng: np.random.Generator) -> dict[str, float]:
        return draw(rng)

    draw_from.__qualname__ = "x" * 300
    task = FunctionTask(rollout, draw_from, "toy")
    assert len(task.distribution) == 200
    assert task.distribution.endswith("x…")


# ---- names of policies --------------------------------------------------------------------------


@pytest.mark.parametrize("which", MAKE)
def test_policies_have_names_of_their_own_or_none(which: str):
    rows = np.zeros((2, 4 if which == "gym" else 1))
    assert MAKE[which](policies=rows).policy_names == ()
    assert MAKE[which](policies=rows, policy_names=["a", "b"]).policy_names == ("a", "b")


@pytest.mark.parametrize("which", MAKE)
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "1 names .* for 2 policies: names must be unique, one for each"),
        (["a", "a"], r"2 names \(1 different ones\) were given for 2 policies"),
        (["a", ""], "must be a list of words"),
        (["a", 3], "must be a list of words"),
        ("ab", "must be a list of words"),
    ],
)
def test_names_that_do_not_tell_the_policies_apart_are_refused(which: str, names: Any, words: str):
    rows = np.zeros((2, 4 if which == "gym" else 1))
    with pytest.raises(ValueError, match=words):
        MAKE[which](policies=rows, policy_names=names)
    with pytest.raises(ValueError, match=r"for 0 policies|list of words"):
        MAKE[which](policy_names=names)


class Model:
    """Stands for one that was trained."""

    def predict(self, observation: Any) -> Any:
        return 0 * len(observation)

    def __repr__(self) -> str:
        return "Model()"


def test_names_of_models_are_those_of_the_policies_where_all_models_are():
    models = PredictPolicy([Model(), Model(), Model()], names=["ppo-10k", "ppo-20k", "sac"])
    task = GymTask("CartPole-v1", models, Far(), policies=models.rows)
    assert task.policy_names == models.names == ("ppo-10k", "ppo-20k", "sac")
    assert replace(task, policies=models.rows[:2]).policy_names == ()
    assert replace(task, policies=models.rows[::-1]).policy_names == ()
    assert replace(task, policy_names=["a", "b", "c"]).policy_names == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"2 names .* for 3 models"):
        PredictPolicy([Model(), Model(), Model()], names=["a", "b"])


# ---- simulators ---------------------------------------------------------------------------------


def test_the_software_that_functions_name_is_found_also_through_what_they_call():
    assert function_task().simulators == ("scipy",)
    assert batch_task().simulators == ("numpy",)
    assert versions_of(function_task()) == {"scipy": scipy.__version__}


def test_the_vehicle_and_the_arm_name_their_simulators():
    assert versions_of(Vehicle()) == {"numba": numba.__version__}
    assert Grasping().simulators == ("mujoco",)


def test_gymnasium_and_what_the_environment_is_made_of_are_found():
    assert versions_of(cartpole())["gymnasium"] == gym.__version__
    assert "mujoco" not in cartpole().simulators
    steady = FunctionPolicy(lambda _row, _seen: np.zeros(1, np.float32), 1)
    pendulum = GymTask("InvertedPendulum-v5", steady, Far())
    assert {"gymnasium", "mujoco"} <= {*pendulum.simulators}


@pytest.mark.parametrize("vector", [0, 2])
def test_wrappers_policies_and_rules_count_too(vector: int):
    network = TorchPolicy(nn.Linear(4, 2))
    assert "torch" in GymTask("CartPole-v1", network, Far(), vector=vector).simulators
    model = Model()
    model.policy = nn.Linear(4, 2)  # type: ignore[attr-defined]
    assert "torch" in GymTask("CartPole-v1", PredictPolicy([model]), Far()).simulators
    rule = GymTask("CartPole-v1", PredictPolicy([Model()]), lambda e: helper(e.steps))
    assert "scipy" in rule.simulators


def test_a_simulator_that_is_not_here_hides_nothing_else():
    def make() -> gym.Env:
        raise OSError("on the cluster only")

    assert "gymnasium" in drift_task(make=make).simulators


def test_software_that_is_not_installed_has_no_version():
    class Odd(Task):
        name, simulators = "odd", ("numpy", "no-such-simulator")

    assert versions_of(Odd()) == {"numpy": np.__version__}
    assert versions_of(Task()) == {}


def test_the_distribution_of_a_module_is_one_that_importlib_finds():
    owners = packages_distributions()
    assert len(owners) > 20
    for module, names in owners.items():
        same = [name for name in names if name.replace("-", "_").lower() == module.lower()]
        assert identity._distribution(module) == (same or sorted(names))[0]
    assert identity._distribution("no_such_module") == ""
