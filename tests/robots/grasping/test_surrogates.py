"""Smooth costs: what they are near success and failure, their slopes, and what descends them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from fake_eyes import FakeEyes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import one_thread
from pacbayes_control.robots.grasping.labels import (
    ANGLE_WIDTH,
    KINDS,
    PLACE_WIDTH,
    Grid,
    Labels,
    Surrogate,
    descend,
    distance,
    gradients,
    near_failures,
)
from pacbayes_control.robots.grasping.policy import HEADS, GraspNetwork
from pacbayes_control.tasks.environments import Arrays, Environments

Floats = NDArray[np.float64]
GRID = Grid(places=5, angles=12)
HALF = GRID.half_width
OBJECTS = 24
BOTH_HEADS = pytest.mark.parametrize("head", list(HEADS))
BOTH_KINDS = pytest.mark.parametrize("kind", KINDS)
PLACES = st.tuples(st.floats(-HALF, HALF), st.floats(-HALF, HALF))
ANGLES = st.floats(-2 * np.pi, 2 * np.pi)


def draw(rng: np.random.Generator, n: int) -> Arrays:
    return {"number": rng.random(n)}


@pytest.fixture(scope="module")
def labels() -> Labels:
    """Objects that are grasped around an angle and a place of their own; the last one never."""
    rng = np.random.default_rng(0)
    failures = np.ones((OBJECTS, len(GRID.grasps)), np.uint8)
    for row in range(OBJECTS - 1):
        x, y, angle = rng.uniform([-0.015, -0.015, 0], [0.015, 0.015, np.pi])
        near = np.hypot(GRID.grasps[:, 0] - x, GRID.grasps[:, 1] - y) < 0.02
        failures[row] = ~(near & (turn(GRID.grasps[:, 2], angle) < 0.5))
    return Labels(Environments(draw, "fake", "train", 0, 0, OBJECTS), failures, GRID)


@pytest.fixture
def features() -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(size=(OBJECTS, 12)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Tests set the number of torch's threads as they like; many would wait for busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def turn(one: Floats | float, other: Floats | float) -> Floats:
    """Between two angles of closing, of which half a turn is none; up to π/2."""
    return np.abs((np.asarray(one) - other + np.pi / 2) % np.pi - np.pi / 2)


def grasp(*grasps: tuple[float, float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and directions as a network's head has them."""
    rows = torch.tensor(np.array(grasps, float).reshape(-1, 3))
    double = 2 * rows[:, 2]
    return rows[:, :2], torch.stack([torch.cos(double), torch.sin(double)], 1)


def far(aim: tuple[float, float, float], *grasps: tuple[float, float, float]) -> Floats:
    aims = torch.tensor(np.tile(aim, (len(grasps), 1)))
    known = torch.ones(len(grasps), dtype=torch.bool)
    return distance(aims, known, HALF, *grasp(*grasps)).numpy()


def small(head: str) -> GraspNetwork:
    return GraspNetwork(FakeEyes(), (5, 4), head)


def start(network: GraspNetwork, spread: float = 0.7, n: int = 1) -> Floats:
    return np.random.default_rng(2).normal(0, spread, (n, network.parameters))


# ---- the paper's: distance to the target --------------------------------------------------------


@given(PLACES, ANGLES, PLACES, ANGLES)
def test_the_distance_is_that_of_three_numbers_scaled_to_1(place, angle, other, angle2):
    found = far((*place, angle), (*other, angle2))[0]
    shift = (np.array(place) - other) / (2 * HALF)
    wanted = np.sqrt((shift @ shift + (turn(angle, angle2) / (np.pi / 2)) ** 2) / 3)
    assert 0 <= found <= 1
    assert found == pytest.approx(wanted, abs=1e-4)


def test_the_distance_is_zero_at_the_target_and_1_at_the_opposite():
    aim = (-HALF, HALF, 0.3)
    assert far(aim, aim)[0] < 1e-4
    assert far(aim, (HALF, -HALF, 0.3 + np.pi / 2))[0] == pytest.approx(1, abs=1e-4)
    assert far(aim, (HALF, HALF, 0.3))[0] == pytest.approx(3**-0.5, abs=1e-4)


@given(ANGLES, ANGLES)
def test_half_a_turn_changes_nothing(aim: float, angle: float):
    one, more, less = far(
        (0, 0, aim), (0.01, 0, angle), (0.01, 0, angle + np.pi), (0.01, 0, angle - np.pi)
    )
    assert one == pytest.approx(more, abs=1e-6)
    assert one == pytest.approx(less, abs=1e-6)


def test_angles_on_both_sides_of_0_are_near_each_other():
    assert far((0, 0, 0.01), (0, 0, np.pi - 0.01))[0] < 0.01
    assert far((0, 0, 0.01), (0, 0, np.pi / 2))[0] > 0.5


def test_without_a_target_every_grasp_costs_1_and_has_no_slope():
    places, directions = grasp((0, 0, 0), (0.01, 0.02, 1.0))
    places.requires_grad_()
    cost = distance(
        torch.zeros(2, 3).double(), torch.tensor([False, True]), HALF, places, directions
    )
    assert cost[0] == 1
    assert cost[1] < 1
    cost.sum().backward()
    assert places.grad is not None
    assert not places.grad[0].any()
    assert places.grad[1].any()


# ---- ours: failures nearby ----------------------------------------------------------------------


def nearby(table: Floats, x: float, y: float, angle: float) -> float:
    """The mean of a table weighted by how near, in a loop over its grasps."""
    spacing = GRID.offsets[1] - GRID.offsets[0]
    step = 2 * np.pi / GRID.angles
    total = weight = 0.0
    for failure, (gx, gy, theta) in zip(table, GRID.grasps, strict=True):
        apart = ((x - gx) ** 2 + (y - gy) ** 2) / (PLACE_WIDTH * spacing) ** 2
        w = np.exp(-apart / 2 + (np.cos(2 * (angle - theta)) - 1) / (ANGLE_WIDTH * step) ** 2)
        total, weight = total + w * failure, weight + w
    return total / weight


@given(PLACES, ANGLES, st.integers(0, 99))
def test_the_table_is_the_mean_of_failures_weighted_by_nearness(place, angle, seed):
    table = np.random.default_rng(seed).integers(0, 2, (1, len(GRID.grasps))).astype(float)
    found = near_failures(torch.as_tensor(table), GRID, *grasp((*place, angle))).item()
    assert found == pytest.approx(nearby(table[0], place[0], place[1], angle), abs=1e-12)
    assert 0 <= found <= 1


def test_the_table_is_near_0_among_successes_and_near_1_among_failures():
    failures = np.ones(GRID.shape)
    failures[:3, :3, 3:10] = 0
    table = torch.as_tensor(failures.reshape(1, -1))
    middle = GRID.directions[6]
    cost = [
        near_failures(table, GRID, *grasp(one)).item()
        for one in ((-0.015, -0.015, middle), (-0.015, -0.015, 0.0), (0.03, 0.03, middle))
    ]
    assert cost[0] < 0.1
    assert cost[1] > 0.9
    assert cost[2] > 0.95


@given(PLACES, ANGLES)
def test_what_always_fails_costs_1_and_what_never_does_0(place, angle):
    for failures in (0.0, 1.0):
        table = torch.full((1, len(GRID.grasps)), failures, dtype=torch.float64)
        found = near_failures(table, GRID, *grasp((*place, angle))).item()
        assert found == pytest.approx(failures, abs=1e-12)


@given(PLACES, ANGLES, st.integers(0, 99))
def test_half_a_turn_changes_nothing_in_the_table(place, angle, seed):
    table = torch.as_tensor(np.random.default_rng(seed).random((1, len(GRID.grasps))))
    one, other = (
        near_failures(table, GRID, *grasp((*place, angle + k * np.pi))).item() for k in (0, 1)
    )
    assert one == pytest.approx(other, abs=1e-9)


# ---- slopes -------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH_KINDS
@BOTH_HEADS
def test_the_slopes_are_those_of_finite_differences(kind: str, head: str, labels, features):
    network, goal = small(head), Surrogate(kind).goal(labels, slice(None))
    policies = start(network, n=2)
    means, slopes = gradients(network, policies, features, goal)
    assert means.shape == (2,)
    assert slopes.shape == policies.shape
    assert ((means > 0) & (means < 1)).all()
    step = 1e-5
    for policy, slope in zip(policies, slopes, strict=True):
        moved = policy + step * np.concatenate([np.eye(len(policy)), -np.eye(len(policy))])
        values = gradients(network, moved, features, goal)[0].reshape(2, -1)
        np.testing.assert_allclose((values[0] - values[1]) / (2 * step), slope, atol=1e-7)
        assert np.abs(slope).max() > 1e-4


@BOTH_KINDS
@BOTH_HEADS
def test_the_mean_is_that_of_the_policys_own_grasps(kind: str, head: str, labels, features):
    """By numpy alone, from the grasps that the policy would make."""
    network = small(head)
    policy = start(network, 2.0)[0]
    values = features.astype(float)
    for weights, biases in network.layers(policy):
        values = 1 / (1 + np.exp(-(values @ weights + biases)))
    grasps = network.grasps(values)
    if kind == "table":
        rows = zip(labels.failures.astype(float), grasps, strict=True)
        costs = [nearby(table, x, y, angle) for table, (x, y, angle) in rows]
    else:
        aims, known = labels.targets
        shift = (grasps[:, :2] - aims[:, :2]) / (2 * HALF)
        angle = turn(grasps[:, 2], aims[:, 2]) / (np.pi / 2)
        size = np.sqrt(((shift**2).sum(axis=1) + angle**2) / 3)
        costs = np.where(known, size, 1.0)
    goal = Surrogate(kind).goal(labels, slice(None))
    mean = gradients(network, policy[None], features, goal)[0][0]
    assert mean == pytest.approx(np.mean(costs), abs=2e-3)  # near the middle, directions are short


@BOTH_KINDS
@BOTH_HEADS
def test_slopes_are_finite_at_the_worst_of_places(kind: str, head: str, labels, features):
    network, goal = small(head), Surrogate(kind).goal(labels, slice(None))
    policies = np.stack([np.zeros(network.parameters), *start(network, 100.0, 3)])
    means, slopes = gradients(network, policies, features, goal)
    assert np.isfinite(slopes).all()
    assert ((means >= 0) & (means <= 1)).all()


@BOTH_KINDS
def test_rows_are_those_of_the_objects(kind: str, labels, features):
    network = small("circle")
    policy = start(network)
    goals = [Surrogate(kind).goal(labels, slice(i, i + 8)) for i in (0, 8, 16)]
    parts = [
        gradients(network, policy, features[8 * i : 8 * i + 8], goal)[0][0]
        for i, goal in enumerate(goals)
    ]
    whole = gradients(network, policy, features, Surrogate(kind).goal(labels, slice(None)))[0][0]
    assert whole == pytest.approx(np.mean(parts), abs=1e-12)
    assert np.unique(parts).size == 3


# ---- to the bit ---------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH_KINDS
@BOTH_HEADS
def test_slopes_and_descents_are_the_same_to_the_bit_on_any_number_of_cores(kind, head, labels):
    network = GraspNetwork(FakeEyes(size=300), (64, 32), head)
    features = np.random.default_rng(1).normal(size=(OBJECTS, 300)).astype(np.float32)
    inside = Surrogate(kind).goal(labels, slice(None))

    def goal(places: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        assert torch.get_num_threads() == 1
        return inside(places, directions)

    policies = start(network, 0.3, 2)
    sizes = np.full(network.parameters, 0.02)
    found = []
    for number in (1, 2):
        torch.set_num_threads(number)
        means, slopes = gradients(network, policies, features, goal)
        learnt = descend(network, policies[0], sizes, 3, features, goal)
        found.append(means.tobytes() + slopes.tobytes() + learnt.tobytes())
        assert torch.get_num_threads() == number
    assert found[0] == found[1]


@BOTH_KINDS
def test_a_policys_slope_is_the_same_to_the_bit_in_any_batch(kind: str, labels, features):
    network, goal = small("circle"), Surrogate(kind).goal(labels, slice(None))
    policies = start(network, n=5)
    means, slopes = gradients(network, policies, features, goal)
    for i in (0, 4):
        mean, slope = gradients(network, policies[i : i + 1], features, goal)
        assert mean[0] == means[i]
        assert np.array_equal(slope[0], slopes[i])


def test_the_number_of_threads_comes_back_after_an_error():
    torch.set_num_threads(2)

    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 2


# ---- descent ------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH_KINDS
@BOTH_HEADS
def test_a_descent_lowers_the_surrogate(kind: str, head: str, labels, features):
    network, goal = small(head), Surrogate(kind).goal(labels, slice(None))
    policy = start(network)
    sizes = np.full(network.parameters, 0.1)
    learnt = descend(network, policy[0], sizes, 80, features, goal)
    before, after = (gradients(network, p, features, goal)[0][0] for p in (policy, learnt[None]))
    assert after < before - 0.1
    again = descend(network, policy[0], sizes, 80, features, goal)
    assert np.array_equal(again, learnt)
    assert np.array_equal(policy, start(network))  # which was not written to


def test_parameters_with_steps_of_0_stay(labels, features):
    network, goal = small("circle"), Surrogate().goal(labels, slice(None))
    policy = start(network)[0]
    sizes = np.where(np.arange(len(policy)) < 20, 0.0, 0.1)
    learnt = descend(network, policy, sizes, 5, features, goal)
    assert np.array_equal(learnt[:20], policy[:20])
    assert (learnt[20:] != policy[20:]).all()


def test_an_unknown_surrogate_is_refused():
    with pytest.raises(
        ValueError, match="surrogate 'hope' is unknown: choose from table, distance"
    ):
        Surrogate("hope")
