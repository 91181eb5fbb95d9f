"""The grasping task: costs of 0 and 1, the same in every process, and errors for bad input."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from fake_eyes import FakeEyes
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.camera import Camera, View
from pacbayes_control.robots.grasping.environments import Tabletop, minor_axis
from pacbayes_control.robots.grasping.labels import Grid, Labels, Surrogate, gradients
from pacbayes_control.robots.grasping.models import mujoco
from pacbayes_control.robots.grasping.objects import FAMILIES, Procedural
from pacbayes_control.robots.grasping.policy import GraspNetwork, Offsets
from pacbayes_control.robots.grasping.robots import Arm, Gripper, Hand
from pacbayes_control.robots.grasping.simulator import LIFTED, Drop, Simulator
from pacbayes_control.robots.grasping.task import Grasping, GraspingOptions
from pacbayes_control.rollouts import Execution, Progress, conformance, differences, evaluate
from pacbayes_control.rollouts.conformance import check_task
from pacbayes_control.rollouts.processes import Processes
from pacbayes_control.tasks.environments import Environments
from pacbayes_control.tasks.identity import identity
from sizes import sized

N, STREAM = 8, "tests of the task"
GRID = Grid(places=2, angles=3)
BLIND, SEEING = Grasping(), Grasping(GraspNetwork(FakeEyes(), (6, 5)))
EACH = pytest.mark.parametrize("task", [BLIND, SEEING], ids=["blind", "seeing"])


def policies(task: Grasping, n: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(4)
    if task is BLIND:
        return rng.uniform([-0.02, -0.02, 0], [0.02, 0.02, np.pi], (n, 3))
    return rng.normal(0, 1.5, (n, task.controller.parameters))


def objects(task: Grasping = BLIND, n: int = N) -> Environments:
    return task.environments(n, stream=STREAM)


def views(environments: Environments) -> list[View]:
    drawn = environments.arrays()
    columns = zip(*(drawn[n] for n in ("heights", "mask", "centroid", "top")), strict=True)
    return [View(h, m, centroid, float(top), True) for h, m, centroid, top in columns]


def labelled(task: Grasping, seed: int = 0) -> Labels:
    failures = np.random.default_rng(seed).integers(0, 2, (N, len(GRID.grasps)), np.uint8)
    return Labels(objects(task), failures, GRID)


# ---- costs --------------------------------------------------------------------------------------


@EACH
def test_costs_are_0_and_1_and_both_occur(task: Grasping):
    costs = task.costs(policies(task, 5), objects(task))
    assert costs.shape == (N, 5)
    assert costs.dtype == np.uint8
    assert set(costs.ravel().tolist()) == {0, 1}


@EACH
def test_a_cost_is_0_where_the_grasp_that_the_policy_chooses_lifts_the_object(task: Grasping):
    many, environments = policies(task, 5), objects(task)
    drawn, costs = environments.arrays(), task.costs(many, environments)
    for row, view in enumerate(views(environments)):
        grasps = np.array([task.act(one, view) for one in many])
        ends = Simulator().endings(
            task.tabletop.body(drawn, row), drawn["rest"][row], float(drawn["top"][row]), grasps
        )
        assert ((ends != LIFTED) == costs[row]).all()


@pytest.mark.slow
@EACH
def test_policies_of_their_own_cost_what_they_cost_when_shared(task: Grasping):
    environments, many = objects(task), policies(task, 2 * N)
    own = many.reshape(N, 2, -1)
    table = task.costs(many, environments)
    wanted = [table[row, [2 * row, 2 * row + 1]] for row in range(N)]
    assert np.array_equal(task.costs(own, environments), wanted)
    shared = np.broadcast_to(many[:3], (N, *many[:3].shape))
    assert np.array_equal(task.costs(shared, environments), table[:, :3])


def test_across_the_object_is_better_than_along_it():
    environments = objects(n=16)
    across = np.array([minor_axis(mask) for mask in environments.arrays()["mask"]])
    zeros = np.zeros(16)
    own = np.stack(
        [np.column_stack([zeros, zeros, across + turn]) for turn in (0, np.pi / 2)], axis=1
    )
    costs = BLIND.costs(own, environments).mean(axis=0)
    assert costs[0] < costs[1] - 0.2


def test_the_robot_of_the_task_is_the_one_that_grasps():
    narrow = replace(BLIND, robot=Gripper(Hand(opening=0.012)))
    many = policies(BLIND, 4)
    assert narrow.costs(many, objects()).mean() > BLIND.costs(many, objects()).mean() + 0.1


@EACH
@pytest.mark.parametrize("wrong", ["shorter", "longer", "one row", "four axes"])
def test_policies_of_another_form_are_refused(task: Grasping, wrong: str):
    good = policies(task, 2)
    bad = {
        "shorter": good[:, :-1],
        "longer": np.pad(good, ((0, 0), (0, 1))),
        "one row": good[0],
        "four axes": good[None, None],
    }[wrong]
    match = r"policies of \d+ parameters were given to task grasping|policies need one row each"
    for call in (task.check_policies, lambda p: task.costs(p, objects(task))):
        with pytest.raises(ValueError, match=match):
            call(bad)
    task.check_policies(good)


# ---- the same in every process ------------------------------------------------------------------


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("workers", [1, 2])
def test_threads_come_to_the_same_table(task: Grasping, workers: int):
    many, environments = policies(task, 6), objects(task)
    alone = evaluate(task, many, environments)
    together = evaluate(task, many, environments, execution=Execution(workers=workers))
    assert np.array_equal(alone.values, task.costs(many, environments))
    assert together.digests == alone.digests
    assert together.origin == alone.origin


@EACH
@pytest.mark.parametrize("module", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_a_task_and_its_objects_are_the_same_after_pickling(task: Grasping, module: Any):
    environments = objects(task)[1:3]
    copy, copies = module.loads(module.dumps((task, environments)))
    assert repr(copy) == repr(task)
    assert copies.digest() == environments.digest()
    many = policies(task, 3)
    assert np.array_equal(copy.costs(many, copies), task.costs(many, environments))


def in_another_process(*args: Any) -> tuple[NDArray, str, str]:
    task, many, environments = args
    return task.costs(many, environments), environments.digest(), repr(task)


@pytest.mark.slow
def test_another_process_draws_the_same_objects_and_comes_to_the_same_costs():
    pool = Processes(1)
    try:
        for task in (BLIND, SEEING):
            many, environments = policies(task, 4), objects(task)
            wanted = in_another_process(task, many, environments)
            costs, digest, words = pool.submit(
                in_another_process, task, many, environments
            ).result()
            assert np.array_equal(costs, wanted[0])
            assert (digest, words) == wanted[1:]
            alone = evaluate(task, many, environments)
            assert (
                evaluate(task, many, environments, execution=Execution(workers=pool)).digests
                == alone.digests
            )
    finally:
        pool.shutdown()


class Stopped(Exception):  # noqa: N818 - not an error
    pass


@pytest.mark.slow
def test_an_evaluation_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch):
    many, environments = policies(BLIND, 24), objects(BLIND)
    wanted = evaluate(BLIND, many, environments)
    grasps: list[int] = []
    endings = Simulator.endings

    def counted(*args: Any) -> Any:
        grasps.append(len(args[-1]))
        return endings(*args)

    def stop(now: Progress) -> None:
        if now.done > 20:
            raise Stopped

    monkeypatch.setattr(Simulator, "endings", counted)
    with pytest.raises(Stopped):
        evaluate(BLIND, many, environments, execution=Execution(progress=stop, store=tmp_path))
    done = sum(grasps)
    assert 20 < done < N * 24
    told: list[int] = []
    found = evaluate(
        BLIND,
        many,
        environments,
        execution=Execution(progress=lambda now: told.append(now.done), store=tmp_path),
    )
    assert found.digests == wanted.digests
    assert 20 < told[0] <= done
    assert told[-1] == N * 24
    assert sum(grasps) <= N * 24 + 16 + (done - told[0])  # and a few to see that it repeats


# ---- what tells tasks apart ---------------------------------------------------------------------

OTHERS: dict[str, Callable[[Grasping], Grasping]] = {
    "arm": lambda t: replace(t, robot=Arm()),
    "hand": lambda t: replace(t, robot=Gripper(Hand(force=11.0))),
    "hand's width": lambda t: replace(t, robot=Gripper(Hand(width=0.021))),
    "sizes": lambda t: replace(t, tabletop=Tabletop(objects=Procedural((0.06, 0.1)))),
    "masses": lambda t: replace(t, tabletop=Tabletop(mass=(0.05, 0.16))),
    "friction": lambda t: replace(t, tabletop=Tabletop(friction=(0.5, 0.8))),
    "drop": lambda t: replace(t, tabletop=Tabletop(drop=Drop(roll=0.4))),
    "camera": lambda t: replace(t, tabletop=Tabletop(camera=Camera(height=0.7))),
    "eyes": lambda t: replace(t, controller=GraspNetwork(FakeEyes(seed=1), (6, 5))),
    "layers": lambda t: replace(t, controller=GraspNetwork(FakeEyes(), (7, 5))),
    "head": lambda t: replace(t, controller=GraspNetwork(FakeEyes(), (6, 5), "paper")),
    "blind": lambda t: t.blind(),
    "surrogate": lambda t: replace(t, surrogate_cost=Surrogate("distance")),
    "labels": lambda t: replace(t, labels=labelled(t)),
    "other labels": lambda t: replace(t, labels=labelled(t, seed=1)),
}


def test_tasks_are_told_apart_by_all_that_they_are_made_of():
    words = [identity(SEEING), *(identity(other(SEEING)) for other in OTHERS.values())]
    assert len(set(words)) == len(OTHERS) + 1
    assert not any(" at 0x" in one for one in words)
    assert all(f"MuJoCo {mujoco().__version__}" in one for one in words)


@pytest.mark.parametrize("name", ["sizes", "masses", "friction", "drop", "camera"])
def test_objects_of_other_distributions_are_other_objects(name: str):
    other = OTHERS[name](SEEING)
    assert objects(other).task != objects(SEEING).task


@pytest.mark.parametrize("name", ["arm", "eyes", "blind", "surrogate", "labels"])
def test_objects_are_the_same_for_every_robot_and_policy(name: str):
    other = OTHERS[name](SEEING)
    assert objects(other).origin == objects(SEEING).origin
    assert objects(other, 2).digest() == objects(SEEING, 2).digest()


def test_an_object_is_described_by_its_family_in_words():
    told, drawn = BLIND.describe(objects()), objects().arrays()
    assert told["family"].tolist() == [[*FAMILIES][family] for family in drawn["family"]]
    assert told["mass"].tolist() == drawn["mass"].tolist()
    assert "heights" not in told


# ---- acting -------------------------------------------------------------------------------------


@EACH
def test_acting_is_the_grasp_that_is_rolled_out(task: Grasping):
    many = policies(task, 4)
    for view in views(objects(task)):
        grasps = task.grasps(many, view.heights, view.centroid)
        assert grasps.shape == (4, 3)
        for one, wanted in zip(many, grasps, strict=True):
            assert np.array_equal(task.act(one, view), wanted)


def test_a_grasp_is_relative_to_the_centroid():
    view = views(objects())[0]
    moved = replace(view, centroid=view.centroid + np.array([0.01, -0.02]))
    for task in (BLIND, SEEING):
        one = policies(task, 1)[0]
        difference = task.act(one, moved) - task.act(one, view)
        np.testing.assert_allclose(difference, [0.01, -0.02, 0], atol=1e-12)
    np.testing.assert_allclose(BLIND.act(np.zeros(3), view), [*view.centroid, 0])


@pytest.mark.parametrize("wrong", [None, np.zeros((64, 64)), {"heights": np.zeros((64, 64))}])
def test_only_what_a_camera_saw_can_be_acted_on(wrong: Any):
    with pytest.raises(ValueError, match=r"an observation is a View, as Camera\.look gives it"):
        BLIND.act(np.zeros(3), wrong)


# ---- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "distance"])
def test_gradients_are_those_of_the_labelled_objects_that_are_asked_for(kind: str):
    task = replace(SEEING, labels=labelled(SEEING), surrogate_cost=Surrogate(kind))
    labels, many = labelled(SEEING), policies(SEEING, 2)
    means, slopes = task.gradients(many, objects(task)[2:5])
    goal = Surrogate(kind).goal(labels, slice(2, 5))
    network, _ = task.trainable()
    images = objects(task).arrays()["heights"][2:5]
    features = np.array([network.features(image) for image in images])
    wanted = gradients(network, many, features, goal)
    assert np.array_equal(means, wanted[0])
    assert np.array_equal(slopes, wanted[1])
    assert slopes.shape == (2, network.parameters)


def test_what_cannot_be_trained_is_told_in_a_line():
    task = replace(SEEING, labels=labelled(SEEING))
    many = policies(SEEING, 1)
    with pytest.raises(ValueError, match=r"^objects 0 to 4 of stream 'others' have no labels: "):
        task.gradients(many, task.environments(4, stream="others"))
    with pytest.raises(ValueError, match=r"^objects 4 to 12 .* have no labels: label them first$"):
        task.gradients(many, task.environments(16, stream=STREAM)[4:12])
    with pytest.raises(ValueError, match=r"^a network is trained on labelled objects: give the ta"):
        SEEING.gradients(many, objects(SEEING))
    with pytest.raises(ValueError, match=r"^there is nothing to train in Offsets\(\)$"):
        BLIND.gradients(np.zeros((1, 3)), objects())


def test_the_blind_task_is_the_same_but_for_its_policies():
    task = replace(SEEING, labels=labelled(SEEING), robot=Gripper(Hand(force=8.0)))
    blind = task.blind()
    assert blind.controller == Offsets()
    assert blind.labels is None
    assert (blind.tabletop, blind.robot) == (task.tabletop, task.robot)
    assert blind.policy_class.startswith("Offsets() by Gripper(")
    assert "force=8.0" in blind.policy_class


def test_what_a_run_is_for_is_told_by_eyes_widths_and_robot():
    network: Any = SEEING.controller
    tasks = [
        SEEING,
        replace(SEEING, robot=Gripper(Hand(force=8.0))),
        replace(SEEING, robot=Arm()),
        replace(SEEING, controller=replace(network, half_width=0.02)),
        replace(SEEING, controller=replace(network, extractor=FakeEyes(seed=1))),
    ]
    assert len({task.policy_class for task in tasks}) == len(tasks)


@pytest.mark.parametrize("name", ["robot", "controller"])
def test_a_word_is_neither_a_robot_nor_a_controller(name: str):
    wrong: Any = {name: "arm"}
    with pytest.raises(TypeError, match=f"{name} = 'arm' has no (world|offsets): see robots"):
        Grasping(**wrong)


@pytest.mark.slow
def test_the_task_passes_the_conformance_checks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(differences, "LOOKED_AT", sized(144, full=256))  # objects that are drawn
    monkeypatch.setattr(conformance, "Processes", lambda _: Processes(sized(1, full=2)))
    checks = check_task(BLIND, policies(BLIND, 3), environments=4, seconds=0.1)
    assert [f"{check.name}: {check.detail}" for check in checks if not check.passed] == []
    assert len(checks) > 8


# ---- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        GraspingOptions(),
        GraspingOptions(robot="arm", head="paper", surrogate="distance"),
    ],
    ids=["usual", "paper"],
)
def test_a_task_is_made_again_from_its_settings(options: GraspingOptions):
    task = Grasping.from_options(options)
    settings = json.loads(json.dumps(task.settings))
    again = Grasping.from_settings(settings)
    assert again == task
    assert repr(again) == repr(task)
    assert again.policy_class == task.policy_class


def test_a_task_that_no_option_describes_has_no_settings():
    usual = Grasping.from_options(GraspingOptions())
    assert Grasping().settings is None
    assert replace(usual, tabletop=Tabletop(mass=(0.1, 0.2))).settings is None
    assert replace(usual, robot=Gripper(Hand(force=5.0))).settings is None
    network: Any = usual.controller
    assert replace(usual, controller=replace(network, hidden=(8, 8))).settings is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"robot": "gripper"},
        {"robot": "crane", "head": "circle", "surrogate": "table"},
        {"robot": "arm", "head": "circle", "surrogate": "table", "weights": "/etc/passwd"},
        {"robot": "arm", "head": "circle", "surrogate": "table", "meshes": "/"},
        {"robot": ["arm"], "head": "circle", "surrogate": "table"},
    ],
    ids=str,
)
def test_a_strangers_record_is_checked_and_reads_no_file(settings: dict[str, Any]):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Grasping.from_settings(settings)
