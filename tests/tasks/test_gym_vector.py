"""Several episodes at a time in a vector: the same episodes, bit for bit, and no others."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from tiny_envs import (
    GAINS,
    RETURN,
    STEER_TOGETHER,
    Drift,
    Event,
    Script,
    Together,
    drift_task,
    episodes_in,
    steer,
    steer_pad,
    x_at_the_end,
)

from pacbayes_control.rollouts import Execution, RolloutError, evaluate
from pacbayes_control.tasks.gym import (
    Episode,
    FromInfo,
    FromReturn,
    FromTermination,
    FunctionPolicy,
    GymTask,
    episodes,
)
from pacbayes_control.tasks.identity import identity

N = 7
TRAIN = drift_task().environments(N, stream="train", seed=3)
DISABLED = AutoresetMode.DISABLED
RULES = {
    "return": RETURN,
    "termination": FromTermination(success=False),
    "success": FromInfo("success", worst=0, best=1),  # which only the last step tells
    "score": FromInfo("score", worst=0, best=1),
    "x": x_at_the_end,
}


def in_a_vector(n: int, mode: AutoresetMode = DISABLED) -> SyncVectorEnv:
    return SyncVectorEnv([Drift] * n, autoreset_mode=mode)


@pytest.fixture
def registered() -> Any:
    make: Any = Drift
    gym.register("OnlyVector-v0", make, kwargs={"length": 9}, max_episode_steps=11)
    yield "OnlyVector-v0"
    gym.registry.pop("OnlyVector-v0")


# ---- bit for bit --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "steps"), [*((rule, None) for rule in RULES), ("return", 5), ("x", 1), ("x", 5)]
)
@pytest.mark.parametrize("places", [1, 2, 5, 16])
def test_a_vector_gives_the_costs_of_single_episodes(rule: str, steps: int | None, places: int):
    single = drift_task(cost=RULES[rule], steps=steps)
    expected = single.costs(GAINS, TRAIN)
    batches = {"vector": places, "policy": STEER_TOGETHER}
    for changes in (batches, {"make": partial(in_a_vector, places)}, {"vector": places}):
        together = drift_task(cost=RULES[rule], steps=steps, **changes)
        np.testing.assert_array_equal(together.costs(GAINS, TRAIN), expected)
        np.testing.assert_array_equal(together.costs(GAINS, TRAIN), expected)  # and once more
    assert len(np.unique(expected)) > 1


def test_a_rule_sees_the_same_of_an_episode():
    told: dict[int, list[Episode]] = {0: [], 4: []}
    for vector, seen in told.items():
        task = drift_task(
            vector=vector,
            policy=STEER_TOGETHER,
            cost=lambda episode, seen=seen: seen.append(episode) or 0,
        )
        task.costs(GAINS, TRAIN)
    assert sorted(map(str, told[0])) == sorted(map(str, told[4]))
    assert len({episode.steps for episode in told[0]}) > 5
    assert {"x", "steps", "success", "score"} == told[4][0].info.keys()


def test_fewer_pairs_than_places_are_no_matter():
    expected = drift_task().costs(GAINS[:1], TRAIN[:1])
    for places in (1, 2, 9):
        np.testing.assert_array_equal(
            drift_task(vector=places, policy=STEER_TOGETHER).costs(GAINS[:1], TRAIN[:1]), expected
        )


def test_each_environment_may_have_policies_of_its_own_in_a_vector():
    own = np.stack([np.roll(GAINS, i, axis=0) for i in range(N)])
    np.testing.assert_array_equal(
        drift_task(vector=3, policy=STEER_TOGETHER).costs(own, TRAIN),
        drift_task().costs(own, TRAIN),
    )


def test_a_vector_of_an_id_gives_the_costs_of_single_episodes(registered: str):
    for arguments in ({}, {"length": 20}, {"max_episode_steps": 4}):
        single, vector = (
            drift_task(
                make=registered,
                policy=STEER_TOGETHER,
                arguments=arguments,
                options=None,
                vector=places,
            )
            for places in (0, 3)
        )
        some = single.environments(N, stream="train")
        expected = single.costs(GAINS, some)
        np.testing.assert_array_equal(vector.costs(GAINS, some), expected)
        np.testing.assert_array_equal(evaluate(vector, GAINS, some).values, expected)


@pytest.mark.slow
def test_a_vector_sent_to_workers_gives_the_same(registered: str, another_process: Executor):
    task = drift_task(make=registered, policy=STEER_TOGETHER, vector=2)
    expected = drift_task(make=registered).costs(GAINS, TRAIN)
    np.testing.assert_array_equal(
        evaluate(task, GAINS, TRAIN, execution=Execution(workers=another_process)).values, expected
    )


def test_observations_may_be_dictionaries():
    changes: dict[str, Any] = {
        "make": partial(Drift, pad=True),
        "policy": Together(steer_pad, 2),
    }
    expected = drift_task(**changes).costs(GAINS, TRAIN)
    assert len(np.unique(expected)) > 30
    np.testing.assert_array_equal(drift_task(**changes, vector=3).costs(GAINS, TRAIN), expected)


def push(gains: NDArray, observation: NDArray) -> NDArray:
    """An action as most people write it: in double precision."""
    return np.clip([-gains @ observation.astype(float)], -1, 1)


def push_single(gains: NDArray, observation: NDArray) -> NDArray:
    return push(gains, observation).astype(np.float32)


@pytest.mark.parametrize(
    "act",
    [
        push_single,
        pytest.param(
            push,
        ),
    ],
)
def test_continuous_actions_are_the_same_in_a_vector(act: Any):
    changes: dict[str, Any] = {
        "make": partial(Drift, actions=spaces.Box(-1, 1, (1,), np.float32)),
        "policy": Together(act, 2),
    }
    expected = drift_task(**changes).costs(GAINS, TRAIN)
    np.testing.assert_array_equal(drift_task(**changes, vector=3).costs(GAINS, TRAIN), expected)


# ---- what a vector says of its places -----------------------------------------------------------


class Talking(Script):
    """Its info at the end is what the seed makes of it."""

    def __init__(self, say: Any) -> None:
        super().__init__(lambda n: (0.0, n >= 2, False, say(self.number)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        self.number = options["number"]
        return super().reset(seed=seed)


def talking(say: Any, rule: Any, vector: int) -> NDArray:
    task = GymTask(
        partial(Talking, say),
        Together(lambda _gains, _observation: 0, 1),
        rule,
        options=lambda rng: {"number": int(rng.integers(4))},
        vector=vector,
    )
    some = task.environments(12, stream="train")
    assert len(np.unique(some.arrays()["number"])) == 4
    return task.costs(np.zeros((1, 1)), some)


def some_success(number: int) -> dict[str, Any]:
    return {"success": True} if number % 2 else {}


def nested(number: int) -> dict[str, Any]:
    return {"metrics": {"score": number / 4}}


def sometimes_whole(number: int) -> dict[str, Any]:
    return {"score": 1 if number == 3 else number / 4}  # as json and many simulators write it


def arrays(number: int) -> dict[str, Any]:
    return {"errors": np.array([number / 4, 0.0])}


def words(number: int) -> dict[str, Any]:
    return {"outcome": "crashed" if number == 2 else "arrived"}


@pytest.mark.parametrize(
    ("say", "rule"),
    [
        (some_success, lambda episode: float(episode.info.get("success", False))),
        (arrays, lambda episode: float(episode.info["errors"].max())),
        (words, lambda episode: float(episode.info["outcome"] == "crashed")),
        pytest.param(
            nested,
            lambda episode: float(episode.info["metrics"]["score"]),
        ),
        pytest.param(
            sometimes_whole,
            FromInfo("score", worst=0, best=1),
        ),
    ],
)
def test_what_an_environment_says_is_the_same_in_a_vector(say: Any, rule: Any):
    np.testing.assert_array_equal(talking(say, rule, vector=4), talking(say, rule, vector=0))


def test_a_key_that_other_places_have_is_still_missing():
    with pytest.raises(Exception, match="the last step's info has no 'success': it has nothing"):
        talking(some_success, FromInfo("success", worst=0, best=1), vector=4)


# ---- one episode for each environment and policy ------------------------------------------------


@pytest.mark.parametrize("places", [2, 5])
def test_a_vector_resets_by_seed_alone_and_asks_policies_no_more_often(places: int):
    logs: list[list[Event]] = []

    def make_one() -> Drift:
        logs.append([])
        return Drift(logs[-1])

    def make(vector: int) -> Any:
        if not vector:
            return make_one()
        return SyncVectorEnv([make_one] * vector, autoreset_mode=DISABLED)

    def calls_of(vector: int) -> Counter[tuple[float, ...]]:
        calls: Counter[tuple[float, ...]] = Counter()

        def act(gains: NDArray, observation: NDArray) -> int:
            calls[(*gains.tolist(), *observation.tolist())] += 1
            return steer(gains, observation)

        logs.clear()
        task = drift_task(make=partial(make, vector), policy=FunctionPolicy(act, 2))
        task.costs(GAINS, TRAIN)
        return calls

    assert calls_of(places) == calls_of(0)  # the very same steps, each counted once
    calls_of(places)
    assert len(logs) == places
    known = TRAIN.arrays()["seed"].tolist()
    resets = [event for log in logs for event in log if event[0] == "reset"]
    begun = [done[0] for log in logs for done in episodes_in(log) if len(done) > 1]
    assert {seed for _, seed, _ in resets} == {*known}  # never None: no autoreset
    assert all(options.keys() == {"length", "wind"} for _, _, options in resets)
    extra = len(begun) - N * len(GAINS)
    assert 0 <= extra <= 13 * places  # those that only keep the others company at the end


def test_a_place_that_has_nothing_to_do_is_never_stepped_after_its_end():
    # Drift refuses that; places outnumber the pairs, and the longest episode outlasts the others
    task = drift_task(make=partial(in_a_vector, 8), options=None)
    some = task.environments(3, stream="train")
    expected = drift_task(options=None).costs(GAINS[:2], some)
    np.testing.assert_array_equal(task.costs(GAINS[:2], some), expected)


# ---- vectors of one's own -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_that_resets_itself_is_refused(mode: AutoresetMode):
    task = drift_task(make=partial(in_a_vector, 2, mode))
    with pytest.raises(
        RolloutError,
        match=r"must be made with autoreset_mode=AutoresetMode\.DISABLED: otherwise it goes on in "
        r"environments that the task has not drawn$",
    ):
        evaluate(task, GAINS, TRAIN)
    with pytest.raises(ValueError, match="the task has not drawn"):
        task.costs(GAINS, TRAIN)


def test_a_vector_that_does_not_say_whether_it_resets_itself_is_refused():
    class Silent(SyncVectorEnv):
        def __init__(self) -> None:
            super().__init__([Drift, Drift], autoreset_mode=DISABLED)
            self.metadata = {}

    with pytest.raises(ValueError, match="the task has not drawn"):
        drift_task(make=Silent).costs(GAINS, TRAIN)


@pytest.mark.slow
def test_a_vector_in_processes_of_its_own_gives_the_same():
    made: list[AsyncVectorEnv] = []

    def make() -> AsyncVectorEnv:
        made.append(AsyncVectorEnv([Drift] * 2, context="spawn", autoreset_mode=DISABLED))
        return made[-1]

    task = drift_task(make=make, cost=RULES["score"])
    try:
        costs = task.costs(GAINS, TRAIN)
    finally:
        for env in made:
            env.close()
    assert len(made) == 1
    np.testing.assert_array_equal(costs, drift_task(cost=RULES["score"]).costs(GAINS, TRAIN))


def test_actions_are_those_of_one_environment():
    assert drift_task(vector=3).action_space == spaces.Discrete(3)
    assert drift_task(make=partial(in_a_vector, 3)).action_space == spaces.Discrete(3)
    assert drift_task(vector=3).actor(np.array([-1.0, 0]))(np.ones(2)) == 2


def test_how_many_are_stepped_together_is_no_matter_where_a_policy_acts_in_one_at_a_time():
    assert identity(drift_task(vector=3)) == identity(drift_task())
    assert drift_task(vector=3).policy_class == drift_task().policy_class


def test_a_negative_number_of_places_is_refused():
    with pytest.raises(ValueError, match="-1"):
        drift_task(vector=-1).costs(GAINS, TRAIN)


class Careless(SyncVectorEnv):
    """It pays no heed to the mask: every slot begins anew."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        rest = {name: value for name, value in (options or {}).items() if name != "reset_mask"}
        return super().reset(seed=[7 if one is None else one for one in seed], options=rest)


def test_a_vector_that_resets_other_slots_too_is_refused():
    task = drift_task(make=lambda: Careless([Drift] * 3, autoreset_mode=DISABLED))
    with pytest.raises(RolloutError, match="resets other slots than the one in reset_mask"):
        evaluate(task, GAINS, TRAIN)


# ---- what goes wrong ----------------------------------------------------------------------------


def test_an_endless_episode_in_a_vector_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(episodes, "ENDLESS", 50)
    task = GymTask(
        lambda: Script(lambda _: (0.0, False, False, {})),
        Together(lambda _gains, _observation: 0, 1),
        FromReturn(-1, 1),
        vector=2,
    )
    with pytest.raises(RolloutError, match="no end after 50 steps: give the task steps=…"):
        evaluate(task, np.zeros((2, 1)), task.environments(2, stream="train"))


class Brittle(Drift):
    """It raises in one environment; `stays` says whether it is of any use afterwards."""

    def __init__(self, bad_seed: int, stays: bool) -> None:
        super().__init__()
        self.bad_seed, self.stays, self.broken = bad_seed, stays, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.broken, "it was used after it broke"
        self.seed = seed
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.seed == self.bad_seed and self.steps == 1:
            self.broken = self.stays
            raise RuntimeError("diverged")
        return super().step(action)


@pytest.mark.parametrize(
    "stays",
    [
        False,
        pytest.param(
            True,
        ),
    ],
)
def test_an_environment_of_a_vector_that_raises_is_reported_and_others_go_on(stays: bool):
    bad = int(TRAIN.arrays()["seed"][4])
    task = drift_task(make=partial(Brittle, bad, stays), policy=STEER_TOGETHER, vector=2)
    with pytest.raises(
        RolloutError,
        match=r"policy 0 in environment 4 of stream 'train' \(seed 3\) failed, also when it was "
        r"tried again: RuntimeError: diverged \(test_gym_vector\.py:\d+\)$",
    ):
        evaluate(task, GAINS, TRAIN)
    expected = drift_task().costs(GAINS, TRAIN)
    np.testing.assert_array_equal(task.costs(GAINS, TRAIN[:4]), expected[:4])
    np.testing.assert_array_equal(task.costs(GAINS, TRAIN[5:]), expected[5:])


def test_a_rule_that_raises_in_a_vector_is_reported_with_its_rollout():
    steps = 100 * drift_task(cost=lambda episode: episode.steps / 100).costs(GAINS, TRAIN)
    longest = round(steps.max())
    row, column = np.argwhere(steps > longest - 0.5)[0]
    rule = FromInfo("steps", worst=longest - 1, best=1)
    with pytest.raises(
        RolloutError,
        match=rf"policy {column} in environment {row} .* steps = {longest}.0 lies outside",
    ):
        evaluate(drift_task(cost=rule, policy=STEER_TOGETHER, vector=3), GAINS, TRAIN)
