"""Recorded rollouts run again: those of honest runs repeat, and forged costs are found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from small_robots import TASKS, policies

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan, SearchSettings, learn_finite, learn_gaussian
from pacbayes_control.learn.gaussian import certify_draw
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate, roll_out_again
from pacbayes_control.rollouts.again import recorded_noise
from pacbayes_control.tasks import Noise
from pacbayes_control.tasks.functions import FunctionTask

PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)
QUICK = SearchSettings(steps=2, pairs=2, natural=False)
N, DRAWS = 6, 5
KINDS = ("list", "fresh", "shared", "single draw")


def a_run(kind: str, task: Any) -> tuple[Run[Any], Any]:
    train = task.environments(40, stream="train", seed=3)[34:]
    if kind == "list":
        costs = evaluate(task, policies(DRAWS), train, noise=Noise("wind", 7))
        return learn_finite(costs), train
    if kind == "single draw":
        return certify_draw(task, train, PRIOR, PRIOR), train
    shared = kind == "shared"
    return learn_gaussian(
        task, train, PRIOR, Plan(search=QUICK, draws=DRAWS, shared_draws=shared)
    ), train


def with_costs(run: Run[Any], values: Any) -> Run[Any]:
    old = run.costs
    return replace(
        run, costs=Costs(values, old.names, old.origin, parameters=old.parameters, draws=old.draws)
    )


@pytest.mark.parametrize("name", ["slip", "slip_all", "hit"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_rollout_of_a_run_repeats_bit_for_bit_also_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
):
    monkeypatch.setattr("pacbayes_control.rollouts.jobs.CELLS", 4)  # shared draws in parts
    task = TASKS[name]
    run, train = a_run(kind, task)
    run = Run.load(run.save(tmp_path / "run"))
    again = roll_out_again(run, task, train, count=10**6)
    assert again.tried == run.costs.environments * run.costs.policies
    assert (again.different, again.first) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_cost_is_found_and_named(kind: str):
    task = TASKS["slip"]
    run, train = a_run(kind, task)
    values = np.array(run.costs.values)
    values[4, -1] = 0.125
    again = roll_out_again(with_costs(run, values), task, train, count=1000)
    assert again.different == 1
    true = float(run.costs.values[4, -1])
    assert again.first == (
        f"policy {values.shape[1] - 1} in environment 38 cost 0.125 when it was recorded, and "
        f"{true!r} now"
    )
    away = with_costs(run, 1.0 - values)
    assert roll_out_again(away, task, train, count=6).different == 6


def test_nobody_can_foresee_which_rollouts_are_picked():
    task = TASKS["slip"]
    train = task.environments(60, stream="train")
    run = learn_finite(evaluate(task, policies(5), train))
    forged = with_costs(run, np.array(run.costs.values) * 0.5)
    found = {roll_out_again(forged, task, train, count=1).first for _ in range(12)}
    assert len(found) > 3
    rng = np.random.default_rng
    same = {roll_out_again(forged, task, train, count=1, rng=rng(1)).first for _ in range(3)}
    assert len(same) == 1


def test_without_a_number_at_least_one_is_run_and_then_as_many_as_there_is_time_for():
    task = TASKS["slip"]
    run, train = a_run("list", task)
    assert roll_out_again(run, task, train, seconds=0).tried == 1
    assert roll_out_again(run, task, train, seconds=60).tried == N * DRAWS


def test_a_rollout_that_raises_now_differs():
    run, train = a_run("list", TASKS["hit"])

    def stuck(policy: Any, environment: Any) -> float:  # noqa: ARG001
        raise RuntimeError("stuck")

    again = roll_out_again(run, FunctionTask(stuck, robots.draw, "hit", 2), train, count=3)
    assert again.different == 3
    words = r"and raised RuntimeError: stuck \(test_again\.py:\d+\) now$"
    assert re.search(words, again.first)


def test_rollouts_that_timed_out_are_not_run_again():
    task = TASKS["hit"]
    run, train = a_run("list", task)
    values, ended = np.array(run.costs.values), [[0, 1], [4, 2], [5, 4]]
    values[tuple(np.transpose(ended))] = 1
    more = {"rollout_timeout": 1.0, "timed_out": ended, "incidents": {"timeouts": 3}}
    known = Costs(values, origin={**run.costs.origin, **more}, parameters=run.costs.parameters)
    for count in (2, N * DRAWS):
        again = roll_out_again(replace(run, costs=known), task, train, count=count)
        assert (again.tried, again.different) == (min(count, N * DRAWS - 3), 0)
    assert roll_out_again(with_costs(run, values), task, train, count=N * DRAWS).different


def test_a_run_of_timeouts_alone_has_nothing_to_run_again():
    run, train = a_run("list", TASKS["hit"])
    every = [[row, column] for row in range(N) for column in range(DRAWS)]
    more = {"rollout_timeout": 1.0, "timed_out": every, "incidents": {"timeouts": N * DRAWS}}
    origin = {**run.costs.origin, **more}
    known = Costs(np.ones((N, DRAWS)), origin=origin, parameters=run.costs.parameters)
    with pytest.raises(ValueError, match="every rollout of the run timed out"):
        roll_out_again(replace(run, costs=known), TASKS["hit"], train)


def test_the_vehicle_repeats_too():
    task = Vehicle(wheel_slip=0.1)
    train = task.environments(8, stream="train")
    run = learn_finite(evaluate(task, task.policies[:4], train))
    assert roll_out_again(run, task, train, count=9) == roll_out_again(run, task, train, count=9)
    assert roll_out_again(run, task, train, count=9).different == 0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda t: t.environments(5, "train", 3), "its start is 34, not 0"),
        (lambda t: t.environments(41, "train", 3)[34:], "its stop is 40, not 41"),
        (lambda t: t.environments(40, "test", 3)[34:], "its stream is train, not test"),
        (lambda t: t.environments(40, "train", 4)[34:], "its seed is 3, not 4"),
        (lambda _: TASKS["hit"].environments(40, "train", 3)[34:], "its task is slip .*, not hit"),
    ],
)
def test_other_environments_and_tasks_are_refused(other: Any, words: str):
    task = TASKS["slip"]
    run, _ = a_run("list", task)
    with pytest.raises(ValueError, match=f"^the run cannot be rolled out with this task: {words}"):
        roll_out_again(run, task, other(task))


def test_other_noise_and_runs_without_policies_are_refused():
    task = TASKS["slip"]
    run, train = a_run("list", task)
    for other in (replace(task, noise="wind"), FunctionTask(robots.miss, robots.draw, "slip", 2)):
        with pytest.raises(ValueError, match="its noise is another"):
            roll_out_again(run, other, train)
    bare = replace(run, costs=Costs(run.costs.values, origin=run.costs.origin))
    with pytest.raises(ValueError, match="made from a table of costs: it holds no policies to"):
        roll_out_again(bare, task, train)
    with pytest.raises(ValueError, match=r"^0 rollouts to run again were asked for"):
        roll_out_again(run, task, train, count=0)
    fresh, _ = a_run("fresh", task)
    origin = {key: value for key, value in fresh.costs.origin.items() if key != "policies"}
    lost = replace(fresh, costs=Costs(fresh.costs.values, origin=origin, draws="fresh"))
    with pytest.raises(ValueError, match="does not say which stream their policies are from"):
        roll_out_again(lost, task, train)


def test_the_recorded_noise_is_that_of_the_rollouts():
    run, _ = a_run("list", TASKS["slip"])
    assert recorded_noise(run.costs) == Noise("wind", 7)
    run, _ = a_run("list", TASKS["hit"])
    assert recorded_noise(run.costs) is None
