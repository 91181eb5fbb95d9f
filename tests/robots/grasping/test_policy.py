"""From an image to a grasp: the same in numpy and torch, alone and in a batch, near a half turn."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_eyes import FakeEyes
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import cm, colors
from numpy.typing import NDArray
from scipy.special import expit

from pacbayes_control.robots.grasping import policy
from pacbayes_control.robots.grasping.policy import HEADS, GraspNetwork, Offsets, forward, jet

EYES = FakeEyes()
BOTH = pytest.mark.parametrize("head", list(HEADS))


def images(n: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).uniform(0, 0.1, (n, 16, 16)).astype(np.float32)


def policies(network: GraspNetwork, n: int, spread: float = 0.6) -> NDArray[np.float64]:
    return np.random.default_rng(8).normal(0, spread, (n, network.parameters))


def by_torch(network: GraspNetwork, policies: NDArray, heights: NDArray) -> NDArray[np.float64]:
    features = torch.as_tensor(network.features(heights)[None], dtype=torch.float64)
    outputs = [forward(network, torch.as_tensor(one), features)[0].numpy() for one in policies]
    return network.grasps(np.array(outputs))


def apart(one: NDArray, other: NDArray) -> NDArray[np.float64]:
    """How far grasps are from each other, with half a turn being none."""
    turn = np.abs((one[..., 2] - other[..., 2] + np.pi / 2) % np.pi - np.pi / 2)
    return np.linalg.norm(one[..., :2] - other[..., :2], axis=-1) + turn


# ---- the network --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("hidden", [(64, 32), (5, 3), (1, 1)])
def test_there_are_three_layers_with_weights_and_biases(head: str, hidden: tuple[int, int]):
    network = GraspNetwork(EYES, hidden, head)
    a, b, outputs = *hidden, HEADS[head]
    assert network.shapes == [(12, a), (a, b), (b, outputs)]
    assert network.parameters == 12 * a + a + a * b + b + b * outputs + outputs
    layers = network.layers(np.arange(network.parameters))
    assert len(layers) == 3
    flat = np.concatenate([np.concatenate([w.ravel(), c]) for w, c in layers])
    assert np.array_equal(flat, np.arange(network.parameters))
    assert [w.shape for w, _ in layers] == network.shapes


@BOTH
def test_grasps_are_those_of_three_sigmoid_layers_written_out(head: str):
    network = GraspNetwork(EYES, (5, 3), head)
    heights, one = images(1)[0], policies(network, 1)[0]
    values = network.features(heights).astype(float)
    at = 0
    for inputs, outputs in ((12, 5), (5, 3), (3, HEADS[head])):
        new = []
        for j in range(outputs):
            total = one[at + inputs * outputs + j]
            for i in range(inputs):
                total += values[i] * one[at + i * outputs + j]
            new.append(expit(total))
        at += (inputs + 1) * outputs
        values = np.array(new)
    x, y = (2 * values[:2] - 1) * 0.03
    if head == "paper":
        angle = np.pi * values[2]
    else:
        angle = np.angle((2 * values[2] - 1) + 1j * (2 * values[3] - 1)) / 2 % np.pi
    found = network.offsets(one[None], heights)
    np.testing.assert_allclose(found, [[x, y, angle]], atol=1e-12)


@BOTH
def test_numpy_and_torch_come_to_the_same_grasp(head: str):
    network = GraspNetwork(EYES, head=head)
    for heights in images(6):
        many = policies(network, 10)
        found = network.offsets(many, heights)
        assert apart(found, by_torch(network, many, heights)).max() < 1e-10


@BOTH
def test_a_policy_comes_to_the_same_grasp_to_the_bit_in_any_batch(head: str):
    network = GraspNetwork(EYES, head=head)
    heights, many = images(1)[0], policies(network, 50)
    batch = network.offsets(many, heights)
    assert np.unique(batch, axis=0).shape == (50, 3)
    for i in range(50):
        assert np.array_equal(network.offsets(many[i : i + 1], heights)[0], batch[i])
    order = np.random.default_rng(0).permutation(50)
    assert np.array_equal(network.offsets(many[order], heights), batch[order])
    strided = np.asfortranarray(many)
    assert np.array_equal(network.offsets(strided, heights), batch)


@BOTH
def test_grasps_stay_in_their_range_for_any_weights(head: str):
    network = GraspNetwork(EYES, head=head, half_width=0.02)
    for spread in (0.0, 1.0, 1e3, 1e6):
        found = network.offsets(policies(network, 20, spread), images(1)[0])
        assert np.isfinite(found).all()
        assert np.abs(found[:, :2]).max() <= 0.02
        assert found[:, 2].min() >= 0
        assert found[:, 2].max() <= np.pi


def test_different_objects_get_different_grasps():
    network = GraspNetwork(EYES)
    one = policies(network, 1)
    found = np.concatenate([network.offsets(one, heights) for heights in images(8)])
    assert np.unique(found, axis=0).shape == (8, 3)


def test_an_unknown_head_is_refused():
    with pytest.raises(ValueError, match="head 'square' is unknown: choose from circle, paper"):
        GraspNetwork(EYES, head="square")


def test_networks_are_told_apart_by_eyes_layers_and_head():
    networks = [
        GraspNetwork(EYES),
        GraspNetwork(FakeEyes(seed=1)),
        GraspNetwork(FakeEyes(size=13)),
        GraspNetwork(EYES, (32, 32)),
        GraspNetwork(EYES, head="paper"),
        GraspNetwork(EYES, half_width=0.02),
    ]
    assert len({repr(network) for network in networks}) == len(networks)
    assert repr(GraspNetwork(FakeEyes())) == repr(GraspNetwork(EYES))


# ---- heads --------------------------------------------------------------------------------------


def test_the_papers_head_wraps_at_half_a_turn():
    head = GraspNetwork(EYES, head="paper").grasps
    outputs = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 1.0], [0.0, 1.0, 0.25], [1.0, 0.0, 0.75]])
    angles = np.pi * np.array([0, 0, 0.25, 0.75])
    places = np.array([[0, 0], [0, 0], [-0.03, 0.03], [0.03, -0.03]])
    np.testing.assert_allclose(head(outputs), np.column_stack([places, angles]), atol=1e-15)


@given(st.floats(-np.pi, np.pi), st.floats(0.01, 0.5))
def test_the_circle_head_reads_the_angle_of_a_point_in_the_plane(double: float, radius: float):
    c, s = 0.5 + radius * np.cos(double), 0.5 + radius * np.sin(double)
    found = GraspNetwork(EYES).grasps(np.array([0.5, 0.5, c, s]))
    assert apart(found, np.array([0, 0, double / 2])) < 1e-9


@pytest.mark.parametrize("around", [0.0, np.pi, 2.0, -1.0])
def test_the_circle_head_is_continuous_everywhere(around: float):
    """Also through θ = 0, where the angle itself jumps to π."""
    doubles = around + np.linspace(-0.05, 0.05, 101)
    outputs = np.full((101, 4), 0.5)
    outputs[:, 2] += 0.4 * np.cos(doubles)
    outputs[:, 3] += 0.4 * np.sin(doubles)
    found = GraspNetwork(EYES).grasps(outputs)
    assert apart(found[1:], found[:-1]).max() < 0.0006
    if around == 0.0:
        assert np.abs(np.diff(found[:, 2])).max() > 3


def test_the_two_ends_of_the_papers_output_are_nearly_the_same_grasp():
    head = GraspNetwork(EYES, head="paper").grasps
    low, high = (head(np.array([0.5, 0.5, output])) for output in (0.001, 0.999))
    assert apart(low, high) < 0.01


@BOTH
def test_decoded_tensors_are_the_same_grasps(head: str):
    network = GraspNetwork(EYES, head=head)
    outputs = np.random.default_rng(0).random((200, HEADS[head]))
    places, directions = network.decoded(torch.as_tensor(outputs))
    wanted = network.grasps(outputs)
    np.testing.assert_allclose(places.numpy(), wanted[:, :2], atol=1e-12)
    angles = np.arctan2(*directions.numpy().T[::-1]) / 2
    assert apart(np.column_stack([places.numpy(), angles]), wanted).max() < 1e-9
    lengths = np.linalg.norm(directions.numpy(), axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert np.median(lengths) > 0.999


# ---- the paper's prior --------------------------------------------------------------------------


def test_the_papers_prior_has_its_means_and_variances_and_tells_what_the_eyes_have_seen():
    network = GraspNetwork(EYES)
    prior = network.paper_prior()
    assert len(prior) == network.parameters > 3000
    assert np.array_equal(prior.variance, np.full(network.parameters, 0.01))
    assert prior.mean.std() == pytest.approx(0.001, rel=0.05)
    assert abs(prior.mean.mean()) < 1e-4
    assert prior.seen == EYES.seen
    assert replace(network, extractor=FakeEyes(seen=())).paper_prior().seen == ()


def test_the_papers_prior_is_the_same_for_a_seed_and_others_for_others():
    network = GraspNetwork(EYES)
    assert np.array_equal(network.paper_prior(3).mean, network.paper_prior(3).mean)
    assert not np.isin(network.paper_prior(3).mean, network.paper_prior(4).mean).any()


# ---- what is seen -------------------------------------------------------------------------------


def test_colours_are_matplotlibs_jet_up_to_10_cm():
    heights = np.linspace(-0.02, 0.12, 512).reshape(16, 32).astype(np.float32)
    scale = cm.ScalarMappable(colors.Normalize(0, 0.1, clip=True), "jet")
    wanted = scale.to_rgba(heights.astype(float))[..., :3]
    found = jet(heights)
    assert found.shape == (3, 16, 32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), wanted, atol=1e-6)
    np.testing.assert_allclose(jet(np.array([[0.0, 0.1]]))[:, 0].T, [[0, 0, 0.5], [0.5, 0, 0]])


def test_colours_of_several_images_are_those_of_each():
    many = images(5)
    assert np.array_equal(jet(many), np.stack([jet(one) for one in many]))


class Counting(FakeEyes):
    """Counts how often it is asked."""

    asked: list[int] = []  # noqa: RUF012 - one list for all

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"counting").hexdigest()

    def features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        self.asked.append(len(images))
        return super().features(images)


def test_features_are_remembered_for_each_image_and_only_so_many(monkeypatch: pytest.MonkeyPatch):
    network = GraspNetwork(Counting())
    first, second, third = images(3)
    monkeypatch.setattr(policy, "REMEMBERED", 2 * 4 * 12)
    monkeypatch.setattr(policy, "_remembered", type(policy._remembered)())
    for heights in (first, first, second, first):
        wanted = EYES.features(jet(heights)[None])[0]
        assert np.array_equal(network.features(heights), wanted)
    assert len(Counting.asked) == 2
    network.features(third)  # which pushes out the first
    network.features(second)
    assert len(Counting.asked) == 3
    network.features(first)
    assert len(Counting.asked) == 4


def test_other_eyes_are_not_given_what_these_have_seen():
    heights = images(1)[0]
    one, other = (GraspNetwork(FakeEyes(seed=seed)).features(heights) for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_offsets_are_the_policies_themselves():
    many = np.random.default_rng(0).normal(size=(4, 3))
    assert np.array_equal(Offsets().offsets(many, images(1)[0]), many)
    assert Offsets().parameters == 3
