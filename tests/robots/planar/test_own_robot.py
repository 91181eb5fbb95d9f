"""A robot of one's own: a bicycle in a yard, against its rules in plain NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import bicycle_oracle
import cloudpickle
import numpy as np
import pytest
from bicycles import EXAMPLE, Bicycle, Yard, example
from numpy.typing import NDArray

import pacbayes_control as pbc
from pacbayes_control.robots.planar import (
    GainGrid,
    Gains,
    Linear,
    Network,
    ObstacleField,
    Planar,
    Trajectory,
    ray_angles,
)
from pacbayes_control.tasks import Environments
from robots.vehicle import oracle
from robots.vehicle.scenes import difference, discs_in, scene

GRID = GainGrid(x0=(0.1, 5, 4), y0=(0, 2, 8), rays=12).policies
RAYS = 12

pytestmark = pytest.mark.slow  # its rule is compiled


@dataclass(frozen=True)
class Reference:
    """Policies in a few environments, by the reference and by the compiled robot in float64."""

    task: Bicycle
    environments: Environments
    policies: NDArray
    discs: list[NDArray]
    poses: list[NDArray]  # by environment, (steps + 1, policies, 3)
    contact: NDArray  # (environments, policies), the step of first contact or 0
    taken: list[list[Trajectory]]  # by policy and environment


def referred(task: Bicycle, policies: NDArray, control=oracle.gains_control, n=12) -> Reference:
    environments = task.environments(n, stream="reference")
    discs = discs_in(environments)
    found = [bicycle_oracle.rollouts(task, policies, each, control) for each in discs]
    return Reference(
        task,
        environments,
        policies,
        discs,
        [poses for poses, _ in found],
        np.array([contact for _, contact in found]),
        [task.trajectories(policy, environments) for policy in policies],
    )


@pytest.fixture(scope="module")
def reference() -> Reference:
    return referred(Bicycle(), GRID)


def agrees(reference: Reference) -> None:
    """Every rollout in float64 ends where the reference's does, on the same way."""
    assert 0.1 < np.mean(reference.contact > 0) < 0.99
    for p, by_environment in enumerate(reference.taken):
        for e, one in enumerate(by_environment):
            contact = reference.contact[e, p]
            assert one.collided == (contact > 0)
            assert len(one.poses) - 1 == (contact or reference.task.steps)
            expected = reference.poses[e][: len(one.poses), p]
            assert difference(one.poses, expected).max() < 1e-6


# ---- against the reference ----------------------------------------------------------------------


def test_every_rollout_of_the_bicycle_is_the_references(reference):
    agrees(reference)


def test_costs_in_single_precision_are_the_references_but_for_a_few(reference):
    costs = reference.task.costs(reference.policies, reference.environments)
    assert np.mean(costs != (reference.contact > 0)) < 0.005


def test_the_surrogate_is_one_less_the_smallest_distance_on_the_way(reference):
    found = reference.task.surrogate(reference.policies, reference.environments)
    assert np.all((found >= 0) & (found <= 1))
    assert len(np.unique(found)) > found.size / 4  # it tells policies apart
    expected = np.empty_like(found)
    for e, discs in enumerate(reference.discs):
        for p, contact in enumerate(reference.contact[e]):
            way = reference.poses[e][1 : (contact or 100) + 1, p, :2]
            nearest = bicycle_oracle.clearance(reference.task, way, discs).min()
            expected[e, p] = 1 - np.clip(nearest, 0, 1)
    costs = reference.task.costs(reference.policies, reference.environments)
    same = costs == (reference.contact > 0)
    apart = np.abs(found - expected)[same]
    assert np.quantile(apart, 0.9) < 1e-3
    assert apart.max() < 0.05


@pytest.mark.parametrize(
    ("controller", "control"),
    [
        (Gains(7), oracle.gains_control),
        (Linear(RAYS), bicycle_oracle.linear),
        (Linear(40), bicycle_oracle.linear),
        (Network(hidden=2, rays=RAYS), bicycle_oracle.network),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_controller_with_another_number_of_rays_is_the_references(controller, control):
    scale = 4 / controller.rays
    policies = scale * np.random.default_rng(3).normal(size=(8, controller.parameters))
    task = Bicycle(controller=controller, steps=80)
    there = referred(task, policies, control, n=6)
    agrees(there)
    costs = task.costs(policies, there.environments)
    assert np.mean(costs != (there.contact > 0)) < 0.05


@pytest.mark.parametrize("rays", [2, 3, 20, 62])
@pytest.mark.parametrize("fan", [0.3, np.pi / 3, 1.5])
def test_depths_are_those_of_a_full_search(rays: int, fan: float):
    task, rng = Bicycle(controller=Gains(rays), fan=fan), np.random.default_rng(rays)
    angles, tried = ray_angles(rays, fan), 0
    for discs in discs_in(task.environments(10, stream="depths")):
        poses = rng.uniform([-3.9, 0.1, -3.1], [3.9, 9.9, 3.1], (20, 3))
        free = bicycle_oracle.clearance(task, poses[:, :2], discs) > 1e-3
        expected = oracle.depths(poses, discs, task.arena.walls, angles)
        for pose, seen in zip(poses[free], expected[free], strict=True):
            np.testing.assert_allclose(task.depths(pose, discs), seen, atol=1e-9)
            tried += 1
    assert tried > 100


@pytest.mark.parametrize("fan", [1.7, 2.5])
def test_a_fan_wider_than_the_kernel_looks_is_an_error_or_seen_in_full(fan: float):
    """Bearings are held within a right angle: rays beyond must not miss what is there."""
    behind = np.array([[1.5 * np.sin(fan), 5 + 1.5 * np.cos(fan), 0.3]])
    try:
        task = Bicycle(fan=fan)
    except ValueError:
        return
    assert task.depths((0.0, 5.0, 0.0), behind)[-1] == pytest.approx(1.2)


def test_clearance_is_the_distance_to_the_nearest_surface_and_0_within_one(reference):
    task, rng = reference.task, np.random.default_rng(4)
    for discs in reference.discs:
        points = rng.uniform([-4.5, -0.5], [4.5, 10.5], (200, 2))
        expected = np.maximum(bicycle_oracle.clearance(task, points, discs), 0)
        np.testing.assert_allclose(task.clearance(points, discs), expected, atol=1e-12)
        assert (expected == 0).any()


def test_clearance_needs_no_cylinders():
    assert Bicycle().clearance([(0.0, 5.5)], []) == pytest.approx(0.5)  # the shed


def test_the_shed_is_the_arenas_and_open_areas_hide_no_wall():
    wide = replace(Bicycle(), arena=Yard(shed=2.0))
    straight = np.zeros((1, 12))
    for start, costs in (((1.5, 1.0, 0.0), (0, 1)), ((0.0, 1.0, 0.0), (1, 1))):
        for task, cost in zip((Bicycle(), wide), costs, strict=True):
            there = replace(task, start=start, steps=60)
            assert there.costs(straight, scene())[0, 0] == cost
    assert Bicycle().depths((1.5, 2.0, 0.0), [])[5:7].min() == pytest.approx(5)
    assert wide.depths((1.5, 2.0, 0.0), [])[5:7].max() < 4.1


def test_the_steering_angle_is_the_robots_own_number_and_follows_to_its_limit_with_a_lag():
    taken = Bicycle(steps=9).trajectory(np.full(12, 10.0), scene(), 0)
    turns = np.diff(taken.poses[:, 2])
    steering = 0.5 * (1 - 0.75 ** np.arange(9))
    np.testing.assert_allclose(turns, 0.1 / 0.4 * np.tan(steering), atol=1e-8)


# ---- as any other task --------------------------------------------------------------------------


def test_the_bicycle_is_evaluated_learnt_and_certified(tmp_path: Path):
    task = Bicycle()
    train = task.environments(200, stream="train")
    costs = pbc.evaluate(task, GRID, train)
    assert costs.origin["task"] == f"bicycle {task.obstacles}"
    assert costs.origin["policy_class"] == "gains, 12 rays"
    np.testing.assert_array_equal(costs.values, task.costs(GRID, train))
    run = pbc.learn_finite(costs, 0.01)
    assert run.certificate.bound < costs.means.mean()
    assert pbc.verify(run.save(tmp_path / "run")).certificate == run.certificate


def test_the_bicycle_keeps_every_promise_also_in_other_processes():
    checks = pbc.check_task(Bicycle(range_noise=0.05), GRID[::11], seconds=0.05)
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 11


def test_a_robot_that_was_pickled_costs_the_same():
    task = Bicycle(wheelbase=0.5)
    again = cloudpickle.loads(cloudpickle.dumps(task))
    environments = task.environments(20, stream="pickled")
    np.testing.assert_array_equal(again.costs(GRID, environments), task.costs(GRID, environments))


def test_a_robot_of_a_script_goes_to_other_processes(tmp_path: Path):
    """Its class travels by value, since no other process can import it."""
    script = EXAMPLE.read_text() + (
        "\nimport json\n"
        "import pacbayes_control as pbc\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "if __name__ == '__main__':\n"
        "    train = task.environments(200, stream='script')\n"
        "    with ProcessPoolExecutor(1, get_context('spawn')) as executor:\n"
        "        how = pbc.Execution(executor)\n"
        "        costs = pbc.evaluate(task, task.policies, train, execution=how)\n"
        "    print(json.dumps(costs.means.tolist()))\n"
    )
    (tmp_path / "mine.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    task = example().task
    expected = task.costs(task.policies, task.environments(200, stream="script")).mean(axis=0)
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-12)


def test_the_robot_steers_on_its_own_as_in_its_rollouts(reference):
    for e, one in enumerate(reference.taken[9]):
        seen = one.depths[len(one.depths) // 2]
        pose = one.poses[len(one.depths) // 2]
        np.testing.assert_allclose(
            reference.task.depths(pose, reference.discs[e]), seen, atol=1e-12
        )
        control = reference.task.act(GRID[9], seen)
        assert control == pytest.approx(float((GRID[9] / seen).sum()))


# ---- what is none -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Linear, lambda rays: Network(rays=rays)])
@pytest.mark.parametrize("rays", [-2, 0, 1, 7, 61])
def test_an_odd_number_of_rays_is_an_error_for_what_has_two_sides(kind, rays: int):
    with pytest.raises(ValueError, match=f"^{rays} rays: an even number is needed"):
        kind(rays)


@pytest.mark.parametrize("controller", [Gains(1), Gains(-1), Gains(63), Linear(64), Gains(1000)])
def test_more_rays_than_the_kernel_casts_are_an_error(controller):
    with pytest.raises(ValueError, match=f"rays = {controller.rays} must be a whole number from 2"):
        Bicycle(controller=controller)


def test_policies_of_another_length_are_an_error():
    with pytest.raises(ValueError, match="gains, 12 rays policies need 12 parameters each"):
        Bicycle().costs(np.zeros((3, 20)), scene())


@pytest.mark.parametrize("value", [-0.01, 0.26, np.nan])
def test_range_noise_out_of_reason_is_an_error(value: float):
    with pytest.raises(ValueError, match=r"^range_noise = "):
        Bicycle(range_noise=value)


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 0},
        {"steps": -5},
        {"horizon": np.nan},
        {"horizon": -1.0},
        {"robot_radius": np.nan},
        {"robot_radius": -0.2},
        {"fan": np.nan},
        {"start": (0.0, np.nan, 0.0)},
    ],
    ids=str,
)
def test_numbers_that_no_robot_has_are_an_error_and_never_a_cost(fields: dict):
    """A cylinder and a shed stand right ahead: nothing may carry a robot through them."""
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Bicycle(**fields).costs(np.zeros((1, 12)), scene((0.0, 4.0, 1.0)))


def test_new_environments_come_from_recorded_ones_of_any_robot():
    few = ObstacleField(2, 2)
    assert Bicycle(obstacles=few).environments(1, "a").task == f"bicycle {few}"


@dataclass(frozen=True)
class Greedy(Bicycle):
    """Reads a constant more than it has."""

    @property
    def constants(self) -> tuple[float, ...]:
        return super().constants[:-1]


@dataclass(frozen=True)
class Bare(Bicycle):
    """As if `constants` were misspelt."""

    constants = ()  # type: ignore[assignment]


@dataclass(frozen=True)
class Motionless(Planar):
    """Without a rule."""

    arena: Yard = field(default_factory=Yard, kw_only=True)


@dataclass(frozen=True)
class Vague(Bicycle):
    """With a constant that is NaN."""

    @property
    def constants(self) -> tuple[float, ...]:
        return (*super().constants[:-1], float("nan"))


@dataclass(frozen=True)
class Short(Bicycle):
    """Returns too little."""

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004
        return state[0], state[1]


@dataclass(frozen=True)
class Unheard(Bicycle):
    """Uses a name that there is not."""

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004
        return state[0] + nowhere, *state[1:]  # noqa: F821  # pyright: ignore


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Greedy, "reads a constant beyond the"),
        (Bare, "reads a constant beyond the 0 of `constants`"),
        (Motionless, "has no move\\(state, control, draws, step, model\\)"),
        (Vague, "constant .* of the vague is NaN or infinite"),
        (Short, "must return x, y, sine, cosine and a number of its own"),
        (Unheard, "name 'nowhere' is not defined"),
    ],
)
def test_a_rule_that_does_not_compile_gives_one_line_and_is_never_rolled_out(
    kind: type, words: str
):
    task = kind()
    policies = np.zeros((2, task.controller.parameters))
    environments = task.environments(3, "none")
    for run in (task.costs, task.surrogate, lambda p, e: task.trajectory(p[0], e, 0)):
        with pytest.raises(ValueError, match=words) as caught:
            run(policies, environments)
        assert len(str(caught.value)) < 400
        assert "\n" not in str(caught.value)
