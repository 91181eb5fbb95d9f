"""The search apart from the rollouts: its gradients, its steps and its checkpoints."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import sha256
from pacbayes_control.learn import GaussianSearch, SearchSettings
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.search import saved_settings
from sizes import sized

PRIOR = DiagonalGaussian([0.5, -1.0], [0.25, 2.0])
POINT = np.array([[0.7, 0.4], [-0.6, 0.3]])  # m and ρ, away from the prior


# A cost in [0, 1] whose expectation has a closed form, since E sin w = exp(-s/2) sin μ.


def waves(policies: NDArray) -> NDArray:
    return (1 + np.sin(policies).mean(axis=1)) / 2


def waves_gradients(policies: NDArray) -> NDArray:
    return np.cos(policies) / 2 / policies.shape[1]


def expected_waves(search: GaussianSearch) -> float:
    m, rho = search.coordinates
    mean = search.prior.mean + np.sqrt(search.prior.variance) * m
    variance = search.prior.variance * np.exp(rho)
    return float(1 + np.mean(np.exp(-variance / 2) * np.sin(mean))) / 2


def search_at(point: NDArray, objective: str | None = None, n: int = 100, **settings):
    search = GaussianSearch(PRIOR, n, 0.01, objective, SearchSettings(**settings))
    search.coordinates = np.array(point)
    return search


def tell_waves(search: GaussianSearch) -> None:
    policies = search.ask()
    gradients = waves_gradients(policies) if search.settings.estimator == "gradient" else None
    search.tell(waves(policies), gradients, environments=())


def slope_of_first_step(search: GaussianSearch) -> NDArray:
    """The gradient that a search has just moved by, from what Adam remembers of it."""
    assert search.step == 1
    return search.moments[0] / (1 - search.MOMENTUM)


def numerical_slope(function: Callable[[NDArray], float], point: NDArray) -> NDArray:
    """Central differences of a function of m and ρ."""
    steps = 1e-5 * np.eye(point.size).reshape(-1, *point.shape)
    gaps = [function(point + step) - function(point - step) for step in steps]
    return np.reshape(gaps, point.shape) / 2e-5


# ---- gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "pairs", "stencil"),
    [("evolution", 200_000, 0.5), ("differences", 50_000, 0.01), ("gradient", 100_000, 0.5)],
)
@pytest.mark.parametrize("point", [np.zeros((2, 2)), POINT], ids=["at the prior", "away from it"])
def test_every_estimate_agrees_with_the_exact_gradient_of_the_expected_cost(
    estimator: str, pairs: int, stencil: float, point: NDArray
):
    search = search_at(point, estimator=estimator, pairs=pairs, stencil=stencil, natural=False)

    def expected(coordinates: NDArray) -> float:
        search.coordinates = coordinates
        return expected_waves(search)

    exact = numerical_slope(expected, point)
    search.coordinates = np.array(point)
    tell_waves(search)
    assert np.all(np.abs(exact) > 0.005)
    np.testing.assert_allclose(slope_of_first_step(search), exact, atol=0.002)


@pytest.mark.slow
def test_evolution_is_unbiased_even_with_few_pairs():
    search = search_at(POINT, natural=False, pairs=2, steps=100_000)
    slopes = []
    for step in range(sized(2_000, full=8_000)):
        search.step = step
        search.coordinates = np.array(POINT)
        slopes.append(search._cost_slope(waves(search.ask()), None))
    error = np.std(slopes, axis=0) / np.sqrt(len(slopes))

    def expected(coordinates: NDArray) -> float:
        search.coordinates = coordinates
        return expected_waves(search)

    exact = numerical_slope(expected, POINT)
    assert np.all(np.abs(np.mean(slopes, axis=0) - exact) < 4 * error)


def test_constant_costs_have_no_slope():
    for estimator in ("evolution", "differences"):
        search = search_at(POINT, estimator=estimator)
        search.tell(np.full(search.population, 0.3), environments=())
        np.testing.assert_allclose(slope_of_first_step(search), 0, atol=1e-15)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("point", [np.zeros((2, 2)), POINT], ids=["at the prior", "away from it"])
def test_the_gradient_of_a_bound_agrees_with_numerical_differentiation(
    objective: str, point: NDArray
):
    # With the noise held fixed, the mean cost is a smooth function of m and ρ, of which the
    # estimator "gradient" is the exact derivative.
    search = search_at(point, objective, 1000, estimator="gradient", natural=False, pairs=8)

    def bound(coordinates: NDArray) -> float:
        search.coordinates = coordinates
        m, rho = coordinates
        kl = float(np.sum(np.exp(rho) - 1 - rho + m**2)) / 2
        cost = waves(search.ask()).mean()
        return float(OBJECTIVES[objective].bound(cost, np.asarray(max(kl, 0.0)), 1000, 0.01))

    exact, value = numerical_slope(bound, point), bound(point)
    search.coordinates = np.array(point)
    tell_waves(search)
    np.testing.assert_allclose(slope_of_first_step(search), exact, rtol=1e-5, atol=1e-7)
    assert search.value == pytest.approx(value, rel=1e-12)
    assert value < 1  # where it is cut off, differences know of no slope


def test_natural_steps_scale_the_slope_of_the_mean_by_its_variance():
    plain, natural = (search_at(POINT, natural=natural) for natural in (False, True))
    for search in (plain, natural):
        tell_waves(search)
    m, rho = slope_of_first_step(plain)
    expected = np.array([m * np.exp(POINT[1]), rho])
    np.testing.assert_allclose(slope_of_first_step(natural), expected, rtol=1e-12)


# ---- where searches end -------------------------------------------------------------------------


def valley(policies: NDArray) -> NDArray:
    return 1 - np.exp(-((policies - 1) ** 2).sum(axis=1) / 20)


def valley_gradients(policies: NDArray) -> NDArray:
    return (1 - valley(policies))[:, None] * (policies - 1) / 10


def best_bound_in_the_valley(prior: DiagonalGaussian, n: int) -> float:
    """The smallest bound over all Gaussians N(μ, s) that treat parameters alike."""

    def bound(x: NDArray) -> float:
        mean, variance, d = x[0], np.exp(x[1]), len(prior)
        hit = (1 + variance / 10) ** (-d / 2) * np.exp(-d * (mean - 1) ** 2 / (20 + 2 * variance))
        kl = d * (variance - 1 - np.log(variance) + mean**2) / 2
        return float(OBJECTIVES["kl"].bound(np.asarray(1 - hit), np.asarray(kl), n, 0.01))

    return float(minimize(bound, [0.5, -1.0], method="Nelder-Mead", options={"xatol": 1e-6}).fun)


@pytest.mark.slow
@pytest.mark.parametrize("natural", [False, True])
def test_a_search_ends_at_the_smallest_bound(natural: bool):
    prior = DiagonalGaussian(np.zeros(20), 1.0)
    settings = SearchSettings(estimator="gradient", natural=natural, pairs=64)
    search = GaussianSearch(prior, 1000, 0.01, "kl", settings)
    while not search.done:
        policies = search.ask()
        search.tell(valley(policies), valley_gradients(policies), environments=())
    assert best_bound_in_the_valley(prior, 1000) < 0.15
    assert search.best_value < best_bound_in_the_valley(prior, 1000) + 0.005


@pytest.mark.parametrize("natural", [False, True])
def test_the_cost_alone_is_minimised_where_there_is_no_objective(natural: bool):
    settings = SearchSettings(natural=natural, ranks=True, variance=False, pairs=16)
    search = GaussianSearch(DiagonalGaussian(np.zeros(5), 0.25), 1, 0.5, None, settings)
    while not search.done:
        search.tell(valley(search.ask()), environments=())
    assert search.step == settings.steps  # without a bound, every step is taken
    np.testing.assert_allclose(search.posterior.mean, 1, atol=0.1)


@pytest.mark.parametrize(
    ("objective", "cost"),
    [(objective, cost) for objective in OBJECTIVES for cost in (0.0, 0.9999, 1.0)],
)
def test_a_search_lives_through_policies_that_all_cost_the_same(objective: str, cost: float):
    search = GaussianSearch(PRIOR, 1000, 0.01, objective)
    for _ in range(3):
        search.tell(np.full(search.population, cost), environments=())
    assert np.all(np.isfinite(search.posterior.mean))


# ---- steps --------------------------------------------------------------------------------------


def test_the_first_steps_of_adam_are_as_computed_by_hand():
    # For slopes 1 and then 3: 0.1 (1/1), then 0.1 (0.48/0.19) / √(0.0999/0.0199).
    search = search_at(
        np.zeros((2, 2)), estimator="gradient", schedule="constant", natural=False, variance=False
    )
    spread = np.sqrt(PRIOR.variance)
    for slope in (1.0, 3.0):
        gradients = np.full((search.population, 2), slope) / spread
        search.tell(np.full(search.population, 0.5), gradients, environments=())
    first = 0.1
    second = 0.1 * ((0.9 * 0.1 * 1 + 0.1 * 3) / 0.19) / np.sqrt((0.99 * 0.01 + 0.01 * 9) / 0.0199)
    expected = np.array([[-first - second] * 2, [0.0, 0.0]])
    np.testing.assert_allclose(search.coordinates, expected, rtol=1e-6)
    mean = (0.95 * 0.05 * -first + 0.05 * (-first - second)) / (1 - 0.95**2)
    np.testing.assert_allclose(search.posterior.mean, PRIOR.mean + spread * mean, rtol=1e-6)


def test_the_cosine_schedule_falls_from_all_of_the_step_size_to_a_twentieth():
    search = search_at(np.zeros((2, 2)), steps=200, step_size=0.4)
    sizes = []
    for search.step in (1, 101, 200, 201):
        sizes.append(search._step_size())
    np.testing.assert_allclose(sizes[:2], [0.4, 0.4 * (0.05 + 0.95 / 2)], rtol=1e-12)
    np.testing.assert_allclose(sizes[2:], 0.4 * 0.05, rtol=2e-3)


def test_a_constant_schedule_stays():
    search = search_at(np.zeros((2, 2)), schedule="constant", step_size=0.4)
    search.step = 250
    assert search._step_size() == 0.4


@pytest.mark.parametrize("objective", [None, "kl", "pinsker"])
def test_variances_that_are_not_to_be_learnt_stay_those_of_the_prior(objective: str | None):
    search = search_at(np.zeros((2, 2)), objective, variance=False, steps=20)
    while not search.done:
        tell_waves(search)
    assert np.array_equal(search.posterior.variance, PRIOR.variance)
    assert not np.allclose(search.posterior.mean, PRIOR.mean)


def test_ranks_do_not_change_with_a_monotone_transform_of_the_costs():
    searches = [search_at(np.zeros((2, 2)), ranks=True, steps=15) for _ in range(2)]
    plain, bent = searches
    while not plain.done:
        plain.tell(waves(plain.ask()), environments=())
        bent.tell(waves(bent.ask()) ** 3 / 7, environments=())
    assert np.array_equal(plain.coordinates, bent.coordinates)


def test_ranks_of_equal_costs_are_equal():
    search = search_at(np.zeros((2, 2)), ranks=True)
    search.tell(np.full(search.population, 0.3), environments=())
    np.testing.assert_allclose(slope_of_first_step(search), 0, atol=1e-15)


def test_a_search_without_ranks_does_notice_the_transform():
    plain, bent = (search_at(np.zeros((2, 2))) for _ in range(2))
    for _ in range(2):
        plain.tell(waves(plain.ask()), environments=())
        bent.tell(waves(bent.ask()) ** 3, environments=())
    assert not np.array_equal(plain.coordinates, bent.coordinates)


# ---- what is asked for --------------------------------------------------------------------------


def test_pairs_lie_on_opposite_sides_of_the_mean():
    search = search_at(POINT, pairs=5)
    policies = search.ask()
    assert policies.shape == (10, 2) == (search.population, 2)
    centre = PRIOR.mean + np.sqrt(PRIOR.variance) * POINT[0]
    np.testing.assert_allclose(policies[:5] + policies[5:], np.tile(2 * centre, (5, 1)))


def test_differences_ask_for_two_neighbours_in_each_direction():
    search = search_at(POINT, estimator="differences", pairs=3, stencil=0.25)
    policies = search.ask().reshape(3, 2, 2, 2)  # points, sides, directions, parameters
    gaps = policies[:, 0] - policies[:, 1]
    half_widths = 0.25 * np.sqrt(PRIOR.variance * np.exp(POINT[1]))
    np.testing.assert_allclose(gaps, np.tile(np.diag(2 * half_widths), (3, 1, 1)), atol=1e-12)
    assert search.population == 12


def test_the_same_step_asks_for_the_same_policies_and_another_for_others():
    search = search_at(POINT)
    first = search.ask()
    assert np.array_equal(first, search.ask())
    search.step = 1
    assert not np.any(first == search.ask())
    others = [
        GaussianSearch(PRIOR, 100, 0.01, seed=1),
        GaussianSearch(PRIOR, 100, 0.01, stream="another"),
    ]
    for other in others:
        other.coordinates = np.array(POINT)
        assert not np.any(first == other.ask())


# ---- its end ------------------------------------------------------------------------------------


def test_a_search_is_done_after_all_its_steps():
    search = search_at(np.zeros((2, 2)), "kl", steps=7)
    for step in range(7):
        assert search.step == step
        assert not search.done
        tell_waves(search)
    assert search.done


def test_a_search_stops_early_when_its_objective_no_longer_improves():
    search = search_at(np.zeros((2, 2)), "kl", patience=5)
    for cost in (0.5, 0.4):
        search.tell(np.full(search.population, cost), environments=())
    assert search.best_step == 1
    while not search.done:
        search.tell(np.full(search.population, 0.8), environments=())
    assert search.step == 1 + 5


def test_a_search_without_an_objective_has_endless_patience():
    search = search_at(np.zeros((2, 2)), None, patience=1, steps=9)
    while not search.done:
        search.tell(np.full(search.population, 0.8), environments=())
    assert search.step == 9


def test_before_its_first_step_a_search_has_found_its_prior():
    posterior = GaussianSearch(PRIOR, 100, 0.01).posterior
    assert np.array_equal(posterior.mean, PRIOR.mean)
    assert np.array_equal(posterior.variance, PRIOR.variance)


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "magic"}, "estimator = 'magic' must be evolution"),
        ({"schedule": "linear"}, r"schedule = 'linear' must be constant \| cosine"),
        ({"pairs": 0}, "pairs = 0: at least 1 is needed"),
        ({"pairs": 1}, "one pair says nothing about the variances: at least 2 are needed"),
        ({"steps": -1}, "steps = -1: at least 1 is needed"),
        ({"patience": 0}, "patience = 0: at least 1 is needed"),
        ({"step_size": 0.0}, "step_size = 0.0 must be positive"),
        ({"step_size": np.nan}, "step_size = nan must be a finite number"),
        ({"stencil": np.inf}, "stencil = inf must be a finite number"),
    ],
)
def test_bad_settings_get_a_clear_error(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        SearchSettings(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"variance": False}, {"estimator": "differences"}, {"estimator": "gradient"}],
)
def test_one_pair_is_enough_where_it_tells_all_that_is_learnt(settings: dict):
    search = GaussianSearch(PRIOR, 100, 0.01, "kl", SearchSettings(pairs=1, **settings))
    policies = search.ask()
    search.tell(waves(policies), waves_gradients(policies), environments=())
    assert search.step == 1


@pytest.mark.parametrize("stream", ["certify", "single draw", "candidates"])
def test_a_search_does_not_use_the_draws_of_certificates(stream: str):
    with pytest.raises(ValueError, match=f"the stream '{stream}' is kept for certificates"):
        GaussianSearch(PRIOR, 100, 0.01, stream=stream)


def test_an_unknown_objective_gets_a_clear_error():
    with pytest.raises(ValueError, match="objective 'magic' is unknown: choose from kl, kl-maurer"):
        GaussianSearch(PRIOR, 100, 0.01, "magic")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda costs: costs[:-1],
        lambda costs: np.append(costs, 0.5),
        lambda costs: costs[:, None],
        lambda costs: np.where(np.arange(len(costs)) == 3, np.nan, costs),
        lambda costs: np.where(np.arange(len(costs)) == 3, np.inf, costs),
    ],
    ids=["one missing", "one too many", "two dimensions", "NaN", "infinite"],
)
def test_bad_costs_are_refused_and_change_nothing(spoil):
    search = search_at(POINT, "kl")
    with pytest.raises(ValueError, match="64 finite costs are needed, one for each policy"):
        search.tell(spoil(waves(search.ask())), environments=())
    assert search.step == 0
    assert np.array_equal(search.coordinates, POINT)
    assert np.isnan(search.value)


@pytest.mark.parametrize(
    "gradients",
    [
        None,
        np.zeros((63, 2)),
        np.zeros((64, 3)),
        np.full((64, 2), np.nan),
    ],
    ids=["none", "one missing", "a parameter too many", "NaN"],
)
def test_bad_gradients_are_refused_and_change_nothing(gradients: NDArray | None):
    search = search_at(POINT, "kl", estimator="gradient")
    with pytest.raises(ValueError, match=r"needs a .*gradient for each policy|NaN or infinite"):
        search.tell(waves(search.ask()), gradients, environments=())
    assert search.step == 0
    assert np.array_equal(search.coordinates, POINT)


# ---- checkpoints --------------------------------------------------------------------------------


def a_search(**changes) -> GaussianSearch:
    options = {"prior": PRIOR, "n": 100, "delta": 0.01, "seed": 4, **changes}
    return GaussianSearch(**options)


def written(write, *arrays: NDArray, **named: NDArray) -> bytes:
    file = io.BytesIO()
    write(file, *arrays, **named)
    return file.getvalue()


def state(search: GaussianSearch) -> list:
    numbers = [search.step, search.best_step, search.best_value, search.cost, search.value]
    arrays = (search.coordinates, search.average, search.best, search.moments)
    return [*map(repr, numbers), *(array.tobytes() for array in arrays)]


@pytest.mark.parametrize("steps", [0, 1, 12])
def test_a_search_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(tmp_path: Path, steps: int):
    search, path = a_search(), tmp_path / "checkpoint"
    for _ in range(steps):
        tell_waves(search)
    search.save(path, search.fingerprint())
    loaded = a_search()
    loaded.load(path, loaded.fingerprint())
    assert state(loaded) == state(search)
    for _ in range(5):
        tell_waves(search)
        tell_waves(loaded)
    assert state(loaded) == state(search)
    assert loaded.posterior.to_bytes() == search.posterior.to_bytes()


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "text": lambda _: b"not a checkpoint",
    "cut short": lambda whole: whole[:-200],
    "cut very short": lambda whole: whole[:300],
    "an array": lambda _: written(np.save, np.zeros(3)),
    "other arrays": lambda _: written(np.savez, numbers=np.zeros(3)),
    "a pickle": lambda _: written(np.savez, fingerprint=np.array([{}], dtype=object)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # np.load's, of a broken zip
def test_a_file_that_is_no_checkpoint_gets_one_clear_error(tmp_path: Path):
    search, path = a_search(), tmp_path / "checkpoint"
    before = state(search)
    for what, spoil in SPOILT.items():
        search.save(path, search.fingerprint())
        path.write_bytes(spoil(path.read_bytes()))
        with pytest.raises(
            ValueError, match="is not a checkpoint: delete it to start ane"
        ) as error:
            search.load(path, search.fingerprint())
        assert error.value.__suppress_context__, what
        assert state(search) == before, what
    del error
    gc.collect()  # here, not in whatever test comes next


@pytest.mark.parametrize(
    "changes",
    [
        {"prior": DiagonalGaussian(PRIOR.mean, 2 * PRIOR.variance)},
        {"n": 101},
        {"delta": 0.02},
        {"objective": "pinsker"},
        {"settings": SearchSettings(steps=301)},
        {"seed": 5},
        {"stream": "another"},
    ],
)
def test_a_checkpoint_of_another_search_is_refused(tmp_path: Path, changes: dict):
    search, other, path = a_search(), a_search(**changes), tmp_path / "checkpoint"
    tell_waves(search)
    search.save(path, search.fingerprint())
    before = state(other)
    with pytest.raises(ValueError, match=r"belongs to another run .*: delete it to start anew"):
        other.load(path, other.fingerprint())
    assert state(other) == before


def test_a_fingerprint_tells_surroundings_apart():
    search = a_search()
    assert search.fingerprint(task="a") == search.fingerprint(task="a")
    assert search.fingerprint(task="a") != search.fingerprint(task="b")


def test_a_fingerprint_of_before_there_were_batches_is_still_the_same():
    search = a_search()
    settings = asdict(search.settings)
    del settings["batch"]
    plain = {name: getattr(search, name) for name in ("n", "delta", "objective", "seed", "stream")}
    record = {**plain, "prior": sha256(search.prior.to_bytes()), "settings": settings}
    assert search.fingerprint() == sha256(json.dumps(record, sort_keys=True).encode())
    assert a_search(settings=SearchSettings(batch=5)).fingerprint() != search.fingerprint()


def test_a_checkpoint_tells_the_settings_of_its_search(tmp_path: Path):
    settings, path = SearchSettings(pairs=3, batch=5), tmp_path / "checkpoint"
    search = a_search(settings=settings)
    search.save(path, search.fingerprint())
    assert saved_settings(path) == settings
    for words in (b'{"pairs": 0}', b'{"speed": 1}', b"[", b"3"):
        path.write_bytes(written(np.savez, settings=np.frombuffer(words, np.uint8)))
        assert saved_settings(path) is None
    for content in (
        written(np.savez, numbers=np.zeros(5)),
        b"no checkpoint",
    ):  # of before, and none
        path.write_bytes(content)
        assert saved_settings(path) is None


def test_the_old_checkpoint_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    search, path = a_search(), tmp_path / "checkpoint"
    search.save(path, search.fingerprint())
    old = path.read_bytes()
    tell_waves(search)

    def half(file, **_: object) -> None:
        file.write(old[: len(old) // 2])
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", half)
        with pytest.raises(OSError, match="no space"):
            search.save(path, search.fingerprint())
    assert path.read_bytes() == old
    search.save(path, search.fingerprint())  # what is left of the attempt is in nobody's way
    assert path.read_bytes() != old
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_a_search_that_finds_nothing_better_returns_the_prior():
    prior = DiagonalGaussian(np.zeros(300), 1.0)
    search = GaussianSearch(prior, 100, 0.01, "kl", SearchSettings(pairs=2, steps=40))
    rng = np.random.default_rng(0)
    while not search.done:
        search.ask()
        search.tell(rng.random(search.population) * 0.1 + 0.1, environments=())  # noise alone
    assert search.posterior.kl(prior) < 0.05


def test_what_is_returned_is_the_average_where_the_objective_was_lowest():
    search = GaussianSearch(
        DiagonalGaussian([0.0, 0.0], 1.0), 100, 0.01, settings=SearchSettings(steps=60)
    )
    lowest, best = np.inf, search.posterior
    while not search.done:
        policies = search.ask()
        here = search._gaussian(search._averaged())
        search.tell(np.mean(np.abs(policies - 1) > 1.5, axis=1), environments=())
        if search.value < lowest - 1e-5:
            lowest, best = search.value, here
    assert search.best_value == lowest
    assert search.posterior.to_bytes() == best.to_bytes()
