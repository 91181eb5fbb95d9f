"""The world's own noise: its numbers, its geometry, and whose draw it is."""

from dataclasses import replace

import numba
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scenes import difference, discs_in, scene

from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.drivers import drivers_of
from pacbayes_control.robots.vehicle import Linear, Network, network_start, paper_prior
from pacbayes_control.tasks import Environments, Noise

PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
LIMIT = 65535 / 65536 * 2 * np.sqrt(3)  # of a draw
words = st.integers(0, 2**64 - 1)


# ---- numbers ------------------------------------------------------------------------------------


@given(words)
def test_scramble_is_splitmix64_in_whole_numbers(counter):
    assert int(kernel.scramble(np.uint64(counter))) == oracle.scramble(counter)


def test_scrambled_counters_are_the_published_stream_of_splitmix64():
    """The first numbers for seed 1234567 of Vigna's reference implementation in C."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    counters = [(1234567 + i * 0x9E3779B97F4A7C15) % 2**64 for i in (1, 2, 3)]
    assert [int(kernel.scramble(np.uint64(each))) for each in counters] == published


@given(words)
def test_a_draw_is_the_standardized_sum_of_its_four_quarters(bits):
    assert kernel.bell(np.uint64(bits)) == pytest.approx(oracle.bell(bits), rel=1e-6, abs=1e-9)


def test_draws_reach_from_minus_to_plus_twice_the_root_of_three():
    assert kernel.bell(np.uint64(0)) == pytest.approx(-LIMIT, rel=1e-6)
    assert kernel.bell(np.uint64(2**64 - 1)) == pytest.approx(LIMIT, rel=1e-6)
    assert kernel.bell(np.uint64(0xFFFF)) == pytest.approx(-LIMIT / 2, rel=1e-6)
    assert kernel.bell(np.uint64(0x0000FFFF0000FFFF)) == 0


def test_noise_numbers_have_types_that_widen_no_float32():
    kernel.scramble(np.uint64(1))
    kernel.bell(np.uint64(1))
    of = (numba.uint64,)
    assert kernel.scramble.overloads[of].signature.return_type == numba.uint64
    assert kernel.bell.overloads[of].signature.return_type == numba.float32


def ray_draws(keys: NDArray[np.uint64], steps: int) -> NDArray:
    """What `disturb` draws, (steps, rays, rollouts)."""
    draws = np.empty((steps, 20, len(keys)))
    for step in range(steps):
        depths = np.ones((20, len(keys)))
        kernel.disturb(depths, len(keys), 0.25, 5.0, keys, step)
        draws[step] = (depths - 1) / 0.25
    return draws


def slip(
    control: NDArray, state: NDArray, spread: float, keys: NDArray[np.uint64], step: int
) -> None:
    """Move vehicles whose wheels slip by a step; the state (5, rollouts), in place."""
    constants = np.array(Vehicle(wheel_slip=spread).constants)
    models = np.repeat(constants[:, None], len(keys), axis=1)
    drivers_of(Vehicle.move, len(constants)).move(control, state, models, keys, step)


def wheel_draws(keys: NDArray[np.uint64], steps: int) -> NDArray:
    """What wheels draw, (steps, left and right, rollouts), by what becomes of a straight drive."""
    spread = 0.2
    draws = np.empty((steps, 2, len(keys)))
    for step in range(steps):
        state = np.zeros((5, len(keys)))
        state[3] = 1
        slip(np.zeros(len(keys)), state, spread, keys, step)
        _, y, sin, cos, _ = state
        # y = v₀Δt (1 + (left + right)/2), and a turn of (v₀Δt/L)(right - left)
        mean, half = y / 0.125 - 1, np.arctan2(sin, cos) / 0.25 / 2
        draws[step] = (mean - half) / spread, (mean + half) / spread
    return draws


@pytest.fixture(scope="module")
def draws() -> NDArray:
    """All that is drawn in 20 steps of 60 × 40 rollouts, (steps, rays and wheels, rollouts)."""
    environments = Vehicle().environments(60, stream="draws")
    keys = Noise("draws").keys(environments, 40).ravel()
    return np.concatenate([ray_draws(keys, 20), wheel_draws(keys, 20)], axis=1)


@pytest.mark.slow
def test_draws_are_the_oracles(draws):
    environments = Vehicle().environments(60, stream="draws")
    keys = Noise("draws").keys(environments, 40).ravel()
    for rollout in (0, 1, 40, 2399):
        expected = np.concatenate(oracle.draws(keys[rollout], 20), axis=1)
        np.testing.assert_allclose(draws[:, :, rollout], expected, rtol=0, atol=2e-6)


@pytest.mark.slow
def test_draws_have_mean_0_and_variance_1_at_every_place(draws):
    n = draws.shape[2]
    assert np.abs(draws).max() <= LIMIT * (1 + 1e-6)
    # Four uniform numbers: the fourth moment is 2.7, so a variance deviates by √(1.7/n).
    assert np.abs(draws.mean(axis=-1)).max() < 4.5 / np.sqrt(n)
    assert np.abs(draws.var(axis=-1) - 1).max() < 4.5 * np.sqrt(1.7 / n)
    everything = draws.size
    assert abs(draws.mean()) < 4 / np.sqrt(everything)
    assert abs(draws.var() - 1) < 4 * np.sqrt(1.7 / everything)
    assert np.mean(draws**4) == pytest.approx(2.7, abs=0.02)


def largest_correlation(variables: NDArray) -> float:
    """Between any two rows, in standard deviations of that of independent ones."""
    correlations = np.corrcoef(variables)
    return float(np.abs(correlations[np.triu_indices(len(variables), k=1)]).max()) * np.sqrt(
        variables.shape[1]
    )


@pytest.mark.slow
def test_draws_are_uncorrelated_across_steps_rays_wheels_and_rollouts(draws):
    """Among so many pairs the largest of independent ones is at some 5 deviations."""
    places = draws.reshape(20 * 22, -1)
    assert largest_correlation(places) < 5.5  # steps and rays, by rollout
    assert largest_correlation(places.T[:400]) < 5.5  # rollouts, by step and ray
    table = draws.reshape(20 * 22, 60, 40)
    for neighbour in (table[:, 1:], table[:, :, 1:]):  # environments, then columns
        here = table[:, : neighbour.shape[1], : neighbour.shape[2]]
        product = np.mean(here * neighbour)
        assert abs(product) < 4 / np.sqrt(neighbour.size)


@pytest.mark.slow
def test_squared_draws_are_uncorrelated_too(draws):
    assert largest_correlation(draws.reshape(20 * 22, -1) ** 2) < 5.8


# ---- geometry -----------------------------------------------------------------------------------


def state_of(poses: NDArray, dtype: type = np.float64) -> NDArray:
    x, y, psi = poses.T
    return np.array([x, y, np.sin(psi), np.cos(psi), 0 * psi], dtype)


def poses_of(state: NDArray) -> NDArray:
    x, y, sin, cos, _ = state.astype(float)
    return np.stack([x, y, np.arctan2(sin, cos)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.02, 0.1, 0.25])
def test_a_slipping_step_is_that_of_two_wheels_each_off_by_its_own_factor(spread):
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 200, dtype=np.uint64)
    poses = rng.uniform((-4, 0, -3), (4, 9, 3), (200, 3))
    control = rng.uniform(-20, 20, 200)
    state = state_of(poses)
    slip(control, state, spread, keys, 7)
    errors = np.array([spread * oracle.draws(key, 8)[1][7] for key in keys])
    assert difference(poses_of(state), oracle.drive(poses, control, errors)).max() < 1e-7


def test_the_oracles_wheels_turn_left_when_the_right_one_is_faster():
    """A circle about a wheel that stands still, to hold the oracle itself to account."""
    moved = oracle.drive(np.zeros((1, 3)), np.zeros(1), (-1.0, 0.0))[0]
    np.testing.assert_allclose(moved, [0, 0.125 / 2, 0.125 / 0.5])


@pytest.mark.slow
@PRECISIONS
def test_readings_are_multiplied_and_held_within_the_sensors_range(dtype):
    keys = np.random.default_rng(2).integers(0, 2**64, 50, dtype=np.uint64)
    depths = np.random.default_rng(3).uniform(0.1, 5, (20, 50)).astype(dtype)
    depths[3] = 5
    noisy = depths.copy()
    kernel.disturb(noisy, 50, dtype(0.25), dtype(5), keys, 4)
    factors = 1 + 0.25 * np.array([oracle.draws(key, 5)[0][4] for key in keys]).T
    np.testing.assert_allclose(noisy, np.clip(depths * factors, 0, 5), rtol=1e-5)
    assert noisy.max() == 5  # a ray that meets nothing may not read more
    assert 0.3 < np.mean(noisy[3] == 5) < 0.7


@PRECISIONS
def test_only_lanes_in_use_are_disturbed(dtype):
    depths = np.ones((20, 6), dtype)
    keys = np.arange(6, dtype=np.uint64)
    kernel.disturb(depths, 4, dtype(0.1), dtype(5), keys, 0)
    assert np.all(depths[:, :4] != 1)
    assert np.all(depths[:, 4:] == 1)


NOISY = Vehicle(controller=Linear(), wheel_slip=0.1, range_noise=0.1)


def policies(n: int) -> NDArray:
    rng = np.random.default_rng(4)
    return paper_prior().sample(rng, n) * rng.uniform(0.2, 1, (n, 1))


@pytest.mark.parametrize(("slip", "ranges"), [(0.1, 0.1), (0.2, 0.0), (0.0, 0.2)])
def test_noisy_trajectories_are_the_oracles_step_by_step(slip, ranges):
    """Readings and wheels both, with the draws of the rollout's own key."""
    task = Vehicle(controller=Linear(), wheel_slip=slip, range_noise=ranges)
    environments = task.environments(20, stream="noise")[15:]
    noise = Noise("world", 5).shifted(9)
    keys, discs = noise.keys(environments, 1)[:, 0], discs_in(environments)
    policy = paper_prior().mean
    for e in range(len(environments)):
        taken = task.trajectory(policy, environments, e, noise)
        steps = len(taken.depths)
        assert len(taken.poses) == steps + 1
        rays, wheels = oracle.draws(keys[e], steps)
        before = taken.poses[:-1]
        seen = np.clip(oracle.depths(before, discs[e]) * (1 + ranges * rays), 0, 5)
        np.testing.assert_allclose(taken.depths, seen, atol=2e-6)
        control = oracle.linear_control(policy, taken.depths)
        expected = oracle.drive(before, control, slip * wheels)
        assert difference(taken.poses[1:], expected).max() < 1e-6


def test_acting_on_noisy_depths_is_what_the_kernel_does():
    network = Network(2)
    task = Vehicle(controller=network, range_noise=0.15)
    environments = task.environments(5, stream="noise")
    policy = network_start(network).sample(np.random.default_rng(5), 1)[0]
    for e in range(5):
        taken = task.trajectory(policy, environments, e)
        controls = np.array([task.act(policy, seen) for seen in taken.depths])
        turned = np.zeros((len(controls), 3))
        turned[:, 2] = np.diff(taken.poses[:, 2]) - 0.02 * controls
        assert difference(turned, np.zeros_like(turned)).max() < 1e-6


def test_slip_spreads_where_robots_end_as_a_random_walk_would():
    """Without steering ψ moves by v₀Δt/L·(right - left) a step: deviation 0.25·√2·spread·√steps."""
    task = Vehicle(wheel_slip=0.01, steps=60)
    ends = []
    for column in range(400):
        taken = task.trajectory(np.zeros(20), scene(), 0, Noise("walk").shifted(column))
        ends.append(taken.poses[-1, 2])
    deviation = 0.25 * np.sqrt(2) * 0.01 * np.sqrt(60)
    assert np.std(ends) == pytest.approx(deviation, rel=0.12)  # 3.4 deviations of 1/√800
    assert abs(np.mean(ends)) < 4 * deviation / 20


# ---- no noise -----------------------------------------------------------------------------------


class Keyed(Vehicle):
    """A world that is said to have noise, and has none of any size."""

    @property
    def noise_kind(self) -> str:
        return "nothing"


@pytest.mark.slow
@PRECISIONS
def test_noise_of_no_size_changes_no_bit(dtype):
    plain, keyed = Vehicle(controller=Linear()), Keyed(controller=Linear())
    environments = plain.environments(60, stream="zero")
    np.testing.assert_array_equal(
        keyed.costs(policies(70), environments, dtype=dtype),
        plain.costs(policies(70), environments, dtype=dtype),
    )
    np.testing.assert_array_equal(
        keyed.surrogate(policies(70), environments), plain.surrogate(policies(70), environments)
    )
    for e in range(5):
        ours = keyed.trajectory(policies(1)[0], environments, e)
        theirs = plain.trajectory(policies(1)[0], environments, e)
        np.testing.assert_array_equal(ours.poses, theirs.poses)
        np.testing.assert_array_equal(ours.depths, theirs.depths)


def test_a_world_without_noise_has_no_draw_of_it():
    task = Vehicle(controller=Linear())
    environments = task.environments(60, stream="zero")
    costs = [task.costs(policies(20), environments, Noise("world", seed)) for seed in (0, 1)]
    np.testing.assert_array_equal(costs[0], costs[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel_slip", "range_noise"])
def test_a_little_noise_changes_few_costs_and_much_changes_many(kind):
    plain = Vehicle(controller=Linear())
    environments = plain.environments(200, stream="sizes")
    without = plain.costs(policies(20), environments)
    worlds = [replace(plain, **{kind: size}) for size in (1e-6, 0.02, 0.2)]
    changed = [np.mean(world.costs(policies(20), environments) != without) for world in worlds]
    assert changed[0] < changed[1] < changed[2]
    assert changed[0] < 0.005
    assert changed[2] > 0.03


# ---- whose draw it is ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environments() -> Environments:
    return NOISY.environments(100, stream="noise")


def test_the_same_noise_gives_the_same_costs(environments):
    costs = NOISY.costs(policies(70), environments, Noise("world", 1))
    again = NOISY.costs(policies(70), environments, Noise("world", 1))
    np.testing.assert_array_equal(costs, again)


@pytest.mark.slow
def test_other_seeds_streams_and_columns_give_other_noise(environments):
    noises = [
        Noise("world"),
        Noise("world", 1),
        Noise("other"),
        Noise("world").shifted(1),
        Noise("noise noise"),
    ]
    costs = [NOISY.surrogate(policies(30), environments, noise) for noise in noises]
    for i in range(len(noises)):
        for other in costs[:i]:
            assert np.mean(costs[i] != other) > 0.9


@pytest.mark.slow
def test_noise_that_is_not_named_is_named_after_the_environments(environments):
    costs = NOISY.surrogate(policies(30), environments)
    named = NOISY.surrogate(policies(30), environments, Noise("noise noise", 0))
    np.testing.assert_array_equal(costs, named)
    other = NOISY.environments(100, stream="noise", seed=1)
    np.testing.assert_array_equal(
        NOISY.surrogate(policies(30), other),
        NOISY.surrogate(policies(30), other, Noise("noise noise", 1)),
    )


def test_the_same_policy_in_another_column_has_noise_of_its_own(environments):
    same = np.tile(policies(1), (40, 1))
    surrogate = NOISY.surrogate(same, environments)
    assert np.mean([len(set(row)) > 30 for row in surrogate]) > 0.9  # of most, not all beyond 1 m
    costs = NOISY.costs(same, environments)
    assert np.any(costs.min(axis=1) < costs.max(axis=1))


@pytest.mark.slow
def test_a_trajectory_is_the_rollout_of_its_column(environments):
    """In double precision, where the same arithmetic gives the same outcome."""
    noise = Noise("world", 2)
    costs = NOISY.costs(policies(6), environments[:20], noise, dtype=np.float64)
    assert 0.05 < costs.mean() < 0.95
    for p, policy in enumerate(policies(6)):
        for e in range(20):
            taken = NOISY.trajectory(policy, environments, e, noise.shifted(p))
            assert taken.collided == costs[e, p]


def test_trajectories_are_those_of_one_environment_at_a_time(environments):
    noise, policy = Noise("world", 2), policies(1)[0]
    together = NOISY.trajectories(policy, environments[40:50], noise)
    assert len(together) == 10
    for i, taken in enumerate(together):
        alone = NOISY.trajectory(policy, environments, 40 + i, noise)
        np.testing.assert_array_equal(taken.poses, alone.poses)
        np.testing.assert_array_equal(taken.depths, alone.depths)
        assert taken.collided == alone.collided


def test_noise_is_drawn_independently_of_the_policy(environments):
    """Another policy in the same column meets the same draws (paper: Section 6.1)."""
    noise = Noise("world", 3)
    _, wheels = oracle.draws(noise.keys(environments, 1)[0, 0], oracle.STEPS)
    saw = []
    for gain in (0.0, 3.0, 9.0):
        taken = NOISY.trajectory(np.full(10, gain), environments, 0, noise)
        saw.append(taken.depths[0])
        control = oracle.linear_control(np.full(10, gain), taken.depths)
        expected = oracle.drive(taken.poses[:-1], control, 0.1 * wheels[: len(control)])
        assert difference(taken.poses[1:], expected).max() < 1e-6
    np.testing.assert_array_equal(saw[0], saw[1])
    np.testing.assert_array_equal(saw[0], saw[2])


@pytest.mark.parametrize(
    ("slip", "ranges", "words"),
    [
        (0.0, 0.0, ""),
        (0.1, 0.0, "wheel slip 0.1"),
        (0.0, 0.05, "range noise 0.05"),
        (0.1, 0.05, "wheel slip 0.1, range noise 0.05"),
    ],
)
def test_the_kinds_of_noise_are_said_in_words(slip, ranges, words):
    assert Vehicle(wheel_slip=slip, range_noise=ranges).noise_kind == words


@pytest.mark.parametrize("kind", ["wheel_slip", "range_noise"])
@pytest.mark.parametrize("size", [-0.01, 0.2501, np.nan, np.inf])
def test_noise_below_nothing_or_too_large_is_an_error(kind, size):
    with pytest.raises(ValueError, match=f"{kind} = .* must be a number from 0 to 0.25"):
        Vehicle(**{kind: size})


def test_the_largest_slip_keeps_heading_vectors_at_length_one():
    """The kernel's sine and cosine are series: they must hold for the largest turn there is."""
    model = Vehicle(wheel_slip=0.25).constants
    largest = model[1] * model[2] * (1 + 2 * LIMIT * 0.25)  # full lock, wheels apart
    for angle in np.linspace(-largest, largest, 101):
        assert kernel.turn_sin(angle) == pytest.approx(np.sin(angle), rel=0, abs=1e-9)
        assert kernel.turn_cos(angle) == pytest.approx(np.cos(angle), rel=0, abs=1e-9)
