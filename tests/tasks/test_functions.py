"""Tasks from plain functions: what they draw, whose noise is whose, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import kstest

from pacbayes_control.rollouts import Execution, RolloutError, evaluate
from pacbayes_control.tasks import Noise
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from pacbayes_control.tasks.identity import identity


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """With as many random numbers as the first of them says."""
    goal = rng.random()
    return {"goal": goal, "path": np.full(3, rng.random(1 + int(4 * goal)).sum())}


def draw_many(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
    return {"goal": rng.random(n), "path": rng.random((n, 3))}


def still(policy: NDArray, environment: Mapping[str, Any]) -> float:
    return abs(float(policy[0] - environment["goal"])) % 1


def noisy(policy: NDArray, environment: Mapping[str, Any], rng: np.random.Generator) -> float:  # noqa: ARG001
    """The first number of its generator, after which it takes others."""
    first = rng.random()
    rng.normal(size=1 + int(20 * environment["goal"]))
    rng.integers(0, 9, dtype=np.uint32)
    return first


def still_all(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
    return np.abs(policies[..., 0] - environments["goal"][:, None]) % 1


def noisy_all(policies: NDArray, environments: Mapping[str, NDArray], bits: NDArray) -> NDArray:
    assert bits.dtype == np.uint64
    assert bits.shape == (len(environments["goal"]), policies.shape[-2])
    return bits / 2.0**64


STILL, NOISY = (FunctionTask(f, draw, f.__name__, 2) for f in (still, noisy))
STILL_ALL, NOISY_ALL = (BatchTask(f, draw_many, f.__name__, 2) for f in (still_all, noisy_all))
TASKS = [STILL, NOISY, STILL_ALL, NOISY_ALL]
EVERY_TASK = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
WITH_NOISE = pytest.mark.parametrize("task", [NOISY, NOISY_ALL], ids=lambda task: task.name)


def rows(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).random((n, 2))


# ---- environments -------------------------------------------------------------------------------


@EVERY_TASK
@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(0, 2**64 - 1), st.data())
def test_any_part_of_the_environments_is_the_same_part(task: Any, n: int, seed: int, data: Any):
    first = data.draw(st.integers(0, n - 1))
    last = data.draw(st.integers(first + 1, n))
    whole = task.environments(n, stream="train", seed=seed)
    prefix = task.environments(last, stream="train", seed=seed)
    for part in (whole[first:last], prefix[first:]):
        for name, array in part.arrays().items():
            assert np.array_equal(array, whole.arrays()[name][first:last])
    assert whole.arrays()["path"].shape == (n, 3)


@EVERY_TASK
def test_streams_and_seeds_have_environments_of_their_own(task: Any):
    sets = [
        task.environments(50, stream=stream, seed=seed).arrays()["goal"]
        for stream in ("train", "test")
        for seed in (0, 1)
    ]
    assert np.unique(sets).size == 200


@EVERY_TASK
def test_environments_are_independent_across_blocks(task: Any):
    goals = task.environments(3000, stream="train").arrays()["goal"]
    assert np.unique(goals).size == 3000
    assert kstest(goals, "uniform").pvalue > 1e-3


@EVERY_TASK
@pytest.mark.parametrize("n", [0, -1])
def test_at_least_one_environment_is_needed(task: Any, n: int):
    with pytest.raises(ValueError, match=f"^{n} environments were asked for: at least one"):
        task.environments(n, stream="train")


@pytest.mark.parametrize(
    "drawn",
    [
        lambda rng: {"goal": 0.5} if rng.random() < 0.7 else {"gaol": 0.5},
        lambda rng: {"goal": 0.5} | ({"more": 1.0} if rng.random() < 0.3 else {}),
        lambda rng: rng.random(),
        lambda rng: [rng.random()],
    ],
    ids=["another name", "one more", "a number", "a list"],
)
def test_environments_that_change_their_names_are_refused(drawn: Any):
    task = FunctionTask(still, drawn, "changing", 2)
    environments = task.environments(40, stream="train")
    with pytest.raises(ValueError, match=r"values by name"):
        environments.arrays()
    with pytest.raises(ValueError, match=r"values by name") as caught:
        evaluate(task, rows(3), environments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "drawn",
    [lambda rng, n: {"goal": rng.random(n - 1)}, lambda rng, n: rng.random(n)],
    ids=["one too few", "no names"],
)
def test_batches_of_environments_of_another_form_are_refused(drawn: Any):
    task = BatchTask(still_all, drawn, "wrong", 2)
    with pytest.raises(ValueError, match=r"draw\(rng, n\) must return arrays of n = 1024 rows"):
        evaluate(task, rows(3), task.environments(40, stream="train"))


# ---- noise --------------------------------------------------------------------------------------


@WITH_NOISE
@settings(max_examples=40)
@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 12), st.integers(1, 6), st.booleans())
def test_the_noise_of_a_rollout_depends_on_its_environment_and_policy_alone(
    task: Any, first: int, n: int, column: int, columns: int, own: bool
):
    environments = task.environments(40, stream="train")
    whole = task.costs(rows(18), environments, Noise("wind", 3))
    part = environments[first : first + n]
    policies = rows(18)[column : column + columns]
    if own:
        policies = np.stack([policies] * len(part))
    noise = Noise("wind", 3).shifted(column)
    costs = task.costs(policies, part, noise)
    assert np.array_equal(costs, whole[first : first + n, column : column + columns])


@WITH_NOISE
def test_every_rollout_has_noise_of_its_own(task: Any):
    environments = task.environments(300, stream="train")
    costs = task.costs(rows(7), environments, Noise("wind"))
    others = [
        task.costs(rows(7), environments, Noise("wind", 1)),
        task.costs(rows(7), environments, Noise("waves")),
        task.costs(rows(7), environments),
    ]
    assert np.unique([costs, *others]).size == 4 * 2100
    assert kstest(costs.ravel(), "uniform").pvalue > 1e-3
    for a, b in ((costs[:-1], costs[1:]), (costs[:, :-1], costs[:, 1:])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.1


@WITH_NOISE
def test_noise_does_not_depend_on_what_the_policies_are(task: Any):
    environments = task.environments(20, stream="train")
    one, other = (task.costs(p, environments, Noise("wind")) for p in (rows(4), rows(4) + 1))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("task", "kind"), [(STILL, ""), (STILL_ALL, ""), (NOISY, "its own randomness")]
)
def test_a_task_says_whether_it_has_noise(task: Any, kind: str):
    assert task.noise_kind == kind
    costs = evaluate(task, rows(3), task.environments(5, stream="train"))
    assert costs.noise == (kind or None)


def test_noise_may_be_put_in_words():
    task = FunctionTask(noisy, draw, "noisy", 2, noise="wind")
    assert evaluate(task, rows(3), task.environments(5, stream="train")).noise == "wind"


# ---- costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_a_rollout_is_given_its_policy_and_its_environment(own: bool):
    environments = STILL.environments(20, stream="train")
    policies = np.random.default_rng(0).random((20, 3, 2)) if own else rows(3)
    costs = STILL.costs(policies, environments)
    goals = environments.arrays()["goal"]
    for i in range(20):
        for j in range(3):
            row = policies[i, j] if own else policies[j]
            assert costs[i, j] == abs(row[0] - goals[i])


@given(st.integers(1, 30), st.integers(1, 5))
def test_one_by_one_and_in_batches_are_the_same(n: int, columns: int):
    one = FunctionTask(still, lambda rng: {"goal": rng.random()}, "one", 2)
    many = BatchTask(still_all, lambda rng, n: {"goal": rng.random(n)}, "many", 2)
    environments = many.environments(n, stream="train")
    policies = rows(columns)
    assert np.array_equal(one.costs(policies, environments), many.costs(policies, environments))


def test_progress_is_told_after_the_first_rollout():
    told: list[int] = []
    environments = STILL.environments(50, stream="train")
    evaluate(
        STILL,
        rows(2),
        environments,
        execution=Execution(progress=lambda now: told.append(now.done)),
    )
    assert (told[0], told[-1]) == (1, 100)


@EVERY_TASK
def test_policies_of_another_length_are_refused_before_any_rollout(task: Any):
    calls = []

    def spy(policies: Any, environments: Any) -> Any:
        calls.append((policies, environments))

    spying = type(task)(spy, task.draw, "spying", 2)
    environments = spying.environments(5, stream="train")
    words = r"^policies of 3 parameters were given to task spying, whose policies have 2$"
    with pytest.raises(ValueError, match=words):
        evaluate(spying, np.zeros((4, 3)), environments)
    with pytest.raises(ValueError, match=words):
        spying.costs(np.zeros((5, 4, 3)), environments)
    for shape in [(2,), (2, 2, 2, 2)]:
        with pytest.raises(ValueError, match=rf"not an array of shape {re.escape(str(shape))}"):
            spying.costs(np.zeros(shape), environments)
    assert calls == []


def test_any_number_of_parameters_will_do_where_none_is_said():
    task = FunctionTask(still, draw, "any")
    environments = task.environments(5, stream="train")
    for parameters in (1, 2, 7):
        assert evaluate(task, np.ones((3, parameters)), environments).policies == 3


@EVERY_TASK
def test_a_task_cannot_write_to_the_policies(task: Any):
    def greedy(policies: NDArray, *_: Any) -> Any:
        policies[...] = 0.0

    writing = type(task)(lambda p, e: greedy(p, e), task.draw, "writing", 2)
    given = rows(3)
    with pytest.raises(ValueError, match="read-only"):
        evaluate(writing, given, writing.environments(5, stream="train"))
    assert np.array_equal(given, rows(3))


# ---- functions that are none --------------------------------------------------------------------


def one_argument(policy: NDArray) -> float:  # noqa: ARG001
    return 0.0


def four_arguments(policy: Any, environment: Any, rng: Any, world: Any) -> Any:  # noqa: ARG001
    return 0.0


def keyword(policy: Any, environment: Any, *, rng: Any) -> float:  # noqa: ARG001
    return 0.0


def optional(policy: Any, environment: Any, rng: Any = None) -> float:  # noqa: ARG001
    return 0.0


def any_arguments(*arguments: Any) -> Any:  # noqa: ARG001
    return 0.0


@pytest.mark.parametrize(
    "function", [one_argument, four_arguments, any_arguments, keyword, optional]
)
def test_a_rollout_of_another_signature_is_refused(function: Any):
    with pytest.raises(
        TypeError, match=r"cannot be rolled out: write rollout\(policy, environment"
    ):
        FunctionTask(function, draw, "wrong", 2)


@pytest.mark.parametrize("function", [one_argument, four_arguments, any_arguments])
def test_batches_of_another_signature_are_refused(function: Any):
    with pytest.raises(TypeError, match=r"cannot be rolled out: write rollouts\(policies, envir"):
        BatchTask(function, draw_many, "wrong", 2)


@pytest.mark.parametrize("task", [FunctionTask, BatchTask])
def test_what_cannot_be_called_is_refused(task: Any):
    for functions in ((0.5, draw), (still, {"goal": 1.0}), (None, None)):
        with pytest.raises(TypeError, match=r"^a task needs two functions: rollout"):
            task(*functions, "wrong", 2)


def test_optional_arguments_and_objects_that_are_called_are_fine():
    class Robot:
        def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
            return still(policy, environment)

    def more(policy: NDArray, environment: Mapping[str, Any], speed: float = 1.0) -> float:
        return still(policy, environment) * speed

    for function in (Robot(), more, partial(more, speed=1.0)):
        task = FunctionTask(function, draw, "still", 2)
        environments = STILL.environments(5, stream="train")
        assert np.array_equal(task.costs(rows(2), environments), STILL.costs(rows(2), environments))


# ---- how they are known -------------------------------------------------------------------------


@EVERY_TASK
def test_a_task_is_known_by_words_without_an_address(task: Any):
    function = task.rollouts if isinstance(task, BatchTask) else task.rollout
    again = type(task)(function, task.draw, task.name, 2)
    assert repr(again) == repr(task)
    for words in (repr(task), str(task.environments(5, stream="train").origin)):
        assert " at 0x" not in words
        assert "draw" in words
    assert task.name in repr(task)


def test_tasks_that_differ_are_known_by_other_words():
    tasks = [
        *TASKS,
        FunctionTask(still, draw, "another", 2),
        FunctionTask(still, draw, "still", 3),
        FunctionTask(lambda p, e: still(p, e), draw, "still", 2),
        FunctionTask(still, lambda rng: draw(rng), "still", 2),
        FunctionTask(noisy, draw, "noisy", 2, noise="wind"),
    ]
    assert len({repr(task) for task in tasks}) == len(tasks)


def test_a_partial_function_leaves_no_address_in_words():
    task = FunctionTask(partial(still), partial(draw), "partial", 2)
    assert " at 0x" not in repr(task)
    assert " at 0x" not in str(task.environments(5, stream="train").origin)


# ---- declared failures --------------------------------------------------------------------------


class RobotFell(Exception):  # noqa: N818 - an event, not a mistake
    """A failure of the robot, which a rollout may raise."""


class FellBackwards(RobotFell):
    """One kind of it."""


def falling(policy: NDArray, environment: Any) -> float:
    if environment["fall"] < policy[0]:
        raise FellBackwards("over")
    return 0.25


def with_falls(rng: np.random.Generator) -> dict[str, float]:
    return {"fall": rng.random()}


FALLS = np.array([[0.0], [0.4], [1.0]])


def test_a_declared_failure_costs_1_and_is_counted_and_the_others_go_on():
    task = FunctionTask(falling, with_falls, "toy", failures=(RobotFell,))
    here = task.environments(20, stream="s")
    fell = here.arrays()["fall"][:, None] < FALLS[:, 0]
    assert 0 < fell[:, 1].sum() < 20
    costs, raised = task.costs_and_raised(FALLS, here)
    np.testing.assert_array_equal(costs, np.where(fell, 1, 0.25))
    assert raised == fell.sum()
    np.testing.assert_array_equal(task.costs(FALLS, here), costs)
    np.testing.assert_array_equal(evaluate(task, FALLS, here).values, costs)
    own, again = task.costs_and_raised(np.repeat(FALLS[None], 20, axis=0), here)
    np.testing.assert_array_equal(own, costs)
    assert again == raised


def test_noise_after_a_declared_failure_is_what_it_is_without_one():
    def noisy(policy: NDArray, environment: Any, rng: np.random.Generator) -> float:
        rng.random(int(policy[0] * 10))
        falling(policy, environment)
        return rng.random()

    task = FunctionTask(noisy, with_falls, "toy", failures=(RobotFell,))
    here = task.environments(6, stream="s")
    costs, raised = task.costs_and_raised(FALLS, here)
    assert raised >= 6
    np.testing.assert_array_equal(task.costs(FALLS[:1], here), costs[:, :1])


@pytest.mark.parametrize("failures", [(), (KeyError,), (KeyError, ZeroDivisionError)])
def test_what_is_not_declared_is_an_error(failures: Any):
    task = FunctionTask(falling, with_falls, "toy", failures=failures)
    with pytest.raises(RolloutError, match="FellBackwards: over"):
        evaluate(task, FALLS, task.environments(3, stream="s"))


def test_a_cost_that_is_none_is_no_declared_failure():
    rollout: Any = lambda _policy, _environment: "?"  # noqa: E731
    task = FunctionTask(rollout, with_falls, "toy", failures=(TypeError, ValueError))
    with pytest.raises(RolloutError, match="TypeError: a rollout came to"):
        evaluate(task, FALLS, task.environments(3, stream="s"))


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        ((Exception,), "would count mistakes in the code as failures too"),
        ((RobotFell, BaseException), "would count mistakes in the code as failures too"),
        ((KeyboardInterrupt,), r"must be a tuple of exceptions: \(RobotFell,\)"),
        (RobotFell, "must be a tuple of exceptions"),
        ([RobotFell], "must be a tuple of exceptions"),
        (("RobotFell",), "must be a tuple of exceptions"),
        ((RobotFell(),), "must be a tuple of exceptions"),
    ],
)
def test_failures_are_a_tuple_of_exceptions_that_are_no_mistakes(failures: Any, words: str):
    with pytest.raises(ValueError, match=words):
        FunctionTask(falling, with_falls, "toy", failures=failures)


def test_declared_failures_tell_a_task_from_others_and_stand_in_its_rule():
    plain = FunctionTask(falling, with_falls, "toy")
    task = FunctionTask(falling, with_falls, "toy", failures=(RobotFell, KeyError))
    assert identity(task) != identity(plain)
    assert identity(task) != identity(replace(task, failures=(RobotFell,)))
    assert identity(task) == identity(replace(task, failures=(KeyError, RobotFell)))
    raised = f"1 where it raises builtins.KeyError or {__name__}.RobotFell"
    assert task.cost_rule == f"cost by falling of {__name__}, {raised}"
