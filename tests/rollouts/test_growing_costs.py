"""Costs that grow by environments are those of one evaluation of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.rollouts.growing import GrowingCosts
from pacbayes_control.tasks import FunctionTask

POLICIES = np.linspace(0, 1, 4)[:, None]


def draw(rng: np.random.Generator) -> dict[str, Any]:
    return {"goal": rng.random()}


def miss(policy: Any, environment: Any, rng: np.random.Generator) -> float:
    return min(1.0, abs(policy[0] - environment["goal"]) + 0.1 * rng.random())


def noisy() -> FunctionTask:
    return FunctionTask(miss, draw, "noisy", parameters=1, noise="wind")


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a store"])
def test_costs_that_grow_are_those_of_all_at_once(tmp_path: Path, kept: bool):
    task = noisy()
    environments = task.environments(40, stream="train")
    execution = Execution(store=tmp_path / "kept" if kept else None)
    growing = GrowingCosts(task, POLICIES, environments, "abcd", execution)
    for n in (7, 20, 39, 40):  # also by one
        costs, whole = growing.of_first(n), evaluate(task, POLICIES, environments[:n], "abcd")
        assert costs.digests == whole.digests
        own = {name: costs.origin.get(name) for name in whole.origin}
        assert own == dict(whole.origin)


def test_each_environment_is_rolled_out_once():
    seen: list[float] = []

    def counted(policy: Any, environment: Any) -> float:
        seen.append(environment["goal"])
        return float(policy[0] > environment["goal"])

    task = FunctionTask(counted, draw, "counted", parameters=1)
    growing = GrowingCosts(task, POLICIES[:1], task.environments(30, stream="train"))
    for n in (10, 25, 30):
        growing.of_first(n)
    assert len(seen) == len({*seen}) == 30


def test_incidents_are_added_up_and_places_counted_from_the_first_row():
    task = noisy()
    growing = GrowingCosts(task, POLICIES, task.environments(9, stream="train"))
    late = {"rollout_timeout": 2.0, "timed_out": [[1, 3]], "incidents": {"timeouts": 1}}
    growing._add(np.ones((4, 4), np.uint8), late)
    growing._add(np.full((5, 4), 0.5), late | {"incidents": {"timeouts": 1, "raised": 2}})
    assert growing.facts["incidents"] == {"timeouts": 2, "raised": 2}
    assert growing.facts["timed_out"] == [[1, 3], [5, 3]]
    assert growing.table.dtype == np.float64
    assert growing.table.shape == (9, 4)
