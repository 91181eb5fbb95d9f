"""Tasks that keep what a certificate rests on pass; one that breaks a promise is told which."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import broken_promises as broken
import numpy as np
import pytest
import torch
from broken_promises import POLICIES, made_of
from numpy.typing import NDArray

from pacbayes_control import DiagonalGaussian
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import conformance
from pacbayes_control.rollouts.conformance import Check, check_task, passed, some_policies
from pacbayes_control.rollouts.processes import Processes
from pacbayes_control.tasks import BatchTask, FunctionTask

pytestmark = pytest.mark.slow

REPEAT = "environments repeat"
STREAMS = "streams look independent"
RANGE = "costs lie in [0, 1]"
SAME = "the same seed gives the same cost"
COMPANY = "a cost does not depend on its company"
OWN = "policies of their own cost the same"
GLOBAL = "no global random state is used"
DIFFER = "environments differ"
ELSEWHERE = "other processes give the same costs"
TOLD = "it can be told from other tasks"
SPEED = "speed"
ALL = [REPEAT, STREAMS, RANGE, SAME, COMPANY, OWN, GLOBAL, ELSEWHERE, DIFFER, TOLD, SPEED]
NOT_TRIED = [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE, DIFFER, TOLD]
EXAMPLES = Path(__file__).parents[2] / "examples"


class KeptPool(Processes):
    """A process that outlives a check, to spare the start of another for the next."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del wait, cancel_futures


@pytest.fixture(scope="module")
def kept_process() -> Iterator[Processes]:
    pool = KeptPool(1)
    yield pool
    Processes.shutdown(pool)


@pytest.fixture
def check(
    kept_process: Processes, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Check]]:
    """The checks of a task by name, in another process that is kept."""
    monkeypatch.setattr(conformance, "Processes", lambda _: kept_process)

    def run(task: Any, **options: Any) -> dict[str, Check]:
        checks = check_task(task, **{"seconds": 0.01, "environments": 6, **options})
        assert all(check.detail and "\n" not in check.detail for check in checks)
        return {check.name: check for check in checks}

    return run


Checks = Callable[..., dict[str, Check]]


def failed(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if not check.passed]


# ---- promises that are kept ---------------------------------------------------------------------


def test_a_task_that_keeps_every_promise_passes_every_check(check: Checks):
    checks = check(made_of(broken.miss))
    assert list(checks) == ALL
    assert failed(checks) == []
    assert passed(list(checks.values()))
    assert checks[REPEAT].detail == "2 values make an environment: goal, obstacles"
    assert checks[RANGE].detail.startswith("18 rollouts cost between 0.")
    assert "18 rollouts" in checks[SAME].detail
    assert "two other processes agree; the task takes" in checks[ELSEWHERE].detail
    assert "nor torch's" in checks[GLOBAL].detail
    assert checks[DIFFER].detail == "costs differ with goal, obstacles"
    assert not any(check.warning for check in checks.values())
    assert checks[SPEED].detail.endswith("rollouts a second")


def test_noise_from_the_generator_that_is_given_is_kept_promises(check: Checks):
    assert failed(check(made_of(broken.slip))) == []


def test_the_vehicle_passes(check: Checks):
    vehicle = Vehicle()
    assert failed(check(vehicle, policies=vehicle.policies[::10])) == []


def test_the_vehicle_with_noise_passes(check: Checks):
    vehicle = Vehicle(wheel_slip=0.05, range_noise=0.1)
    assert failed(check(vehicle, policies=vehicle.policies[::10])) == []


@pytest.mark.parametrize(
    ("file", "name"),
    [("cartpole", "task"), ("cartpole", "continuous"), ("pendulum_mujoco", "task")],
)
def test_the_examples_pass(check: Checks, monkeypatch: pytest.MonkeyPatch, file: str, name: str):
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(f"example_{file}", EXAMPLES / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # in no registry: it is sent to workers by value
    task = getattr(module, name)
    assert failed(check(task, environments=4)) == []


# ---- promises that are broken -------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A task, exactly those checks that fail, and words of the one that is meant."""

    task: Any
    fails: list[str]
    words: str


AGAIN = "when it was rolled out again"
BROKEN = {
    "hidden randomness": Case(
        made_of(broken.hidden),
        [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE],
        f"{AGAIN} (18 of 18 differ)",
    ),
    "draws from np.random": Case(
        made_of(broken.numpy_draws), [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE], AGAIN
    ),
    "draws from random": Case(
        made_of(broken.python_draws), [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE], AGAIN
    ),
    "draws from torch": Case(
        made_of(broken.torch_draws), [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE], AGAIN
    ),
    "seeds np.random": Case(
        made_of(broken.numpy_seeded),
        [GLOBAL],
        "draws from np.random: use the generator it is given",
    ),
    "wastes a draw of random": Case(
        made_of(broken.python_wasted), [GLOBAL], "draws from Python's random"
    ),
    "wastes a draw of torch": Case(
        made_of(broken.torch_wasted), [GLOBAL], "draws from torch's generator"
    ),
    "wears out": Case(broken.Worn(), [SAME, COMPANY, OWN, GLOBAL, ELSEWHERE], AGAIN),
    "remembers the last environment": Case(broken.Remembering(), [COMPANY], "differ)"),
    "depends on its batch": Case(broken.BATCH, [COMPANY, ELSEWHERE], "and 0.0 alone ("),
    "mistakes policies of their own": Case(
        broken.Mistaken(), [OWN], "as one of its environment's own (12 of 18 differ)"
    ),
    "knows its process": Case(broken.Local(), [ELSEWHERE], "in another process (18 of 18 differ)"),
    "cannot be pickled": Case(broken.Locked(), [ELSEWHERE], "cannot pickle '_thread.lock' object"),
    "has no words for itself": Case(
        broken.Anonymous(), [TOLD], "task toy cannot be told from others by its solver: give it a"
    ),
    "ignores the generator": Case(
        made_of(broken.miss, broken.always_the_same),
        [STREAMS],
        "all environments are the same: does draw use the generator that it is given?",
    ),
    "consecutive seeds overlap": Case(
        broken.Counting(), [STREAMS], "the next seed draws some of the same environments"
    ),
    "seeds are correlated": Case(
        broken.Alike(), [STREAMS], "environments of the next seed are correlated with these"
    ),
    "streams are one": Case(
        broken.SameStream(), [STREAMS], "another stream draws some of the same environments"
    ),
    "environments wander": Case(
        broken.Wandering(), [STREAMS], "an environment is correlated with the one before it"
    ),
    "environments change": Case(
        broken.Changing(), [REPEAT], "'colour' of the same environments was different when drawn"
    ),
    "a cost of 1.2": Case(
        made_of(broken.large),
        [RANGE, *NOT_TRIED],
        "cost 1.2 at environment 0, policy 1 is outside [0, 1]: rescale the costs",
    ),
    "a cost of NaN": Case(
        made_of(broken.undefined), [RANGE, *NOT_TRIED], "the cost at environment 0, policy 2 is NaN"
    ),
    "raises": Case(
        made_of(broken.raising),
        [RANGE, *NOT_TRIED],
        "the rollout of policy 1 in environment 0 of stream 'conformance' (seed 0) failed, also "
        "when it was tried again: RuntimeError: the gripper slipped",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found_and_no_other_is_blamed(check: Checks, name: str):
    case = BROKEN[name]
    before = random.getstate()
    with torch.random.fork_rng():
        checks = check(case.task)
    random.setstate(before)
    assert failed(checks) == case.fails, {n: checks[n].detail for n in failed(checks)}
    assert not passed(list(checks.values()))
    assert case.words in checks[case.fails[0]].detail
    if RANGE in case.fails:
        assert {checks[name].detail for name in NOT_TRIED} == {
            "not tried, since the rollouts failed"
        }
        assert SPEED not in checks


def test_environments_out_of_many_recorded_scenes_pass(check: Checks):
    assert failed(check(made_of(broken.scene_cost, broken.of_many_scenes))) == []


def test_environments_out_of_a_few_pass(check: Checks):
    def few(rng: np.random.Generator) -> dict[str, Any]:
        return {"scene": int(rng.integers(5))}

    assert failed(check(made_of(broken.scene_cost, few))) == []


def test_environments_without_a_number_cannot_be_told_apart(check: Checks):
    def named(rng: np.random.Generator) -> dict[str, Any]:
        return {"map": f"map {rng.integers(100)}"}

    def cost(policy: NDArray, environment: Any) -> float:
        return float(policy[0] < 0.5 and environment["map"] > "map 3")

    checks = check(made_of(cost, named))
    assert failed(checks) == [STREAMS]
    assert "has no numbers by which to tell it from others" in checks[STREAMS].detail


def test_a_draw_that_raises_is_a_broken_promise(check: Checks):
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        raise OSError(f"no map server for {type(rng).__name__}")

    checks = check(made_of(broken.miss, draw))
    assert failed(checks) == [REPEAT, STREAMS, RANGE, *NOT_TRIED]
    assert all("no map server" in checks[name].detail for name in (REPEAT, STREAMS, RANGE))


# ---- the global generators ----------------------------------------------------------------------


def states() -> tuple[Any, Any, bytes]:
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return (
        random.getstate(),
        (numpy[1].tobytes(), *numpy[2:]),
        torch.get_rng_state().numpy().tobytes(),
    )


@pytest.fixture
def put_back() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        np.random.seed(123)  # noqa: NPY002 - whatever was before, a change shows
        yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize(
    "rollout",
    [
        broken.miss,
        broken.hidden,
        broken.raising,
        broken.numpy_draws,
        broken.python_draws,
        broken.torch_draws,
        broken.numpy_seeded,
        broken.torch_wasted,
    ],
)
def test_global_generators_are_left_as_they_were(check: Checks, rollout: Any):
    before = states()
    check(made_of(rollout))
    assert states() == before


def test_without_torch_only_the_other_generators_are_read(
    check: Checks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert failed(check(made_of(broken.python_wasted))) == [GLOBAL]
    assert failed(check(made_of(broken.miss))) == []


# ---- policies to try it with --------------------------------------------------------------------


def plain(**known: Any) -> FunctionTask:
    return FunctionTask(broken.miss, broken.draw, "toy", **known)


def test_a_few_of_a_tasks_own_policies_are_tried():
    own = np.arange(20.0)[:, None]
    assert some_policies(plain(policies=own)).tolist() == [[0], [9], [19]]
    assert some_policies(plain(policies=own[:2])).tolist() == [[0], [1]]


def test_where_there_are_none_they_are_drawn_from_the_prior_or_at_random():
    prior = DiagonalGaussian([5.0, -5.0], 0.01)
    drawn = some_policies(plain(prior=prior))
    assert drawn.shape == (3, 2)
    assert np.all(np.abs(drawn - [5, -5]) < 1)
    anything = some_policies(plain(parameters=4))
    assert anything.shape == (3, 4)
    np.testing.assert_array_equal(anything, some_policies(plain(parameters=4)))


def test_a_task_without_any_needs_some():
    with pytest.raises(ValueError, match="toy has no policies of its own to try: give some"):
        check_task(plain())


def test_policies_of_the_wrong_length_are_refused_at_once():
    with pytest.raises(ValueError, match="policies of 2 parameters were given to task toy"):
        check_task(made_of(broken.miss), np.zeros((3, 2)))


def test_the_policies_that_are_given_are_tried(check: Checks):
    seen = []

    def rollout(policy: NDArray, environment: Any) -> float:
        seen.append(policy[0])
        return broken.miss(policy, environment)

    check(made_of(rollout), policies=POLICIES[:1] + 0.25, environments=3)
    assert {*seen} == {0.25}


def test_a_batch_task_that_keeps_its_promises_passes(check: Checks):
    def rollouts(policies: NDArray, environments: Any) -> NDArray:
        return np.abs(policies[..., 0] - environments["goal"][:, None])

    task = BatchTask(rollouts, broken.many, "toy", parameters=1, policies=POLICIES)
    assert failed(check(task)) == []
