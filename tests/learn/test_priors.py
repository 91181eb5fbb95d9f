"""Where priors may come from, and what they remember to have seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from toys import Reach

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.issuing import set_aside_by
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import (
    GaussianPrior,
    Plan,
    Pretraining,
    SearchSettings,
    imitate,
    learn_gaussian,
    learn_one,
    pretrain_prior,
    set_aside,
)
from pacbayes_control.learn.priors import PRETRAINING, scaled
from pacbayes_control.learn.search import GaussianSearch
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Linear, Reshuffled, paper_prior
from pacbayes_control.rollouts import Execution, Progress, mean_costs
from pacbayes_control.tasks import Environments
from pacbayes_control.verify import verify

TASK = Reach(radius=1.5)
TRAIN = TASK.environments(200, stream="train")
START = DiagonalGaussian([0.0, 0.0], 0.25)
QUICK = SearchSettings(steps=40, pairs=8, step_size=0.25, natural=False, ranks=True, variance=False)


# ---- setting environments aside -----------------------------------------------------------------


@pytest.mark.parametrize(("share", "cut"), [(None, 40), (0.2, 40), (0.5, 100), (0.004, 1)])
def test_environments_are_cut_in_two_parts_that_have_nothing_in_common(
    share: float | None, cut: int
):
    part, rest = set_aside(TRAIN, share)
    assert (part.start, part.stop, rest.start, rest.stop) == (0, cut, cut, 200)
    assert not part.range.overlaps(rest.range)
    goals = np.concatenate([part.arrays()["goal"], rest.arrays()["goal"]])
    np.testing.assert_array_equal(goals, TRAIN.arrays()["goal"])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0, 0.001, 0.999])
def test_a_share_that_leaves_a_part_empty_is_refused(share: float):
    with pytest.raises(
        ValueError, match=f"a share of {share:g} of 200 environments leaves one part empty"
    ):
        set_aside(TRAIN, share)


def test_only_environments_of_the_same_sequence_count_as_set_aside():
    part, rest = set_aside(TRAIN, 0.25)
    seen = (
        part,
        TASK.environments(500, stream="elsewhere"),
        TASK.environments(500, stream="train", seed=1),
    )
    prior = GaussianPrior(START.with_data_used(*(environments.range for environments in seen)))
    prior.check_unseen(rest)
    assert set_aside_by(prior.distribution, costs_in(rest)) == 50
    assert set_aside_by(START, costs_in(rest)) == 0


def costs_in(environments: Environments) -> Costs:
    return Costs(np.zeros((len(environments), 1)), origin=environments.origin)


def test_a_part_of_the_data_is_the_price_of_a_prior_that_learnt_from_it(tmp_path: Path):
    part, rest = set_aside(TRAIN, 0.25)
    actions = part.arrays()["goal"].ravel()  # an expert goes to the goals
    prior = imitate(towards, np.tile([0, 1], len(part)), actions, START, [part])
    runs = [
        learn_gaussian(TASK, rest, prior, Plan(search=SearchSettings(steps=5, pairs=4), draws=10)),
        learn_one(TASK, rest, prior),
    ]
    for number, run in enumerate(runs):
        c = verify(run.save(tmp_path / str(number))).certificate
        assert (c.environments, c.set_aside) == (150, 50)
        assert "imitates an expert over 100 recorded observations" in c.prior
        assert ("tested on" if c.policies == 1 else "certified on") in c.sentence
    for learn in (learn_gaussian, learn_one):
        with pytest.raises(ValueError, match="has seen some of these environments"):
            learn(TASK, TRAIN, prior)


def towards(policy: NDArray, which: NDArray) -> NDArray:
    """The policy's coordinate in a direction."""
    return policy[which.astype(int)]


# ---- learning elsewhere -------------------------------------------------------------------------


def test_a_prior_learnt_elsewhere_finds_where_to_go_and_keeps_the_variances():
    prior = pretrain_prior(TASK, START, Pretraining(search=QUICK, per_step=16))
    np.testing.assert_allclose(prior.distribution.mean, 1, atol=0.3)
    assert np.array_equal(prior.distribution.variance, START.variance)
    half = pretrain_prior(
        TASK, START, Pretraining(search=QUICK, per_step=16, width=0.5)
    ).distribution
    assert np.array_equal(half.mean, prior.distribution.mean)
    assert np.array_equal(half.variance, START.variance / 4)
    assert prior.origin == "learnt on 640 environments from elsewhere (reach 1)"


def test_a_prior_learnt_elsewhere_knows_all_that_it_has_seen():
    start = START.with_data_used(TRAIN[:10].range)
    prior = pretrain_prior(TASK, start, Pretraining(search=QUICK, per_step=16, seed=3))
    used, given = prior.distribution.seen
    assert given == ("train", TRAIN.seed, 0, 10)
    assert used == ("elsewhere", 3, 0, 640)
    prior.check_unseen(TRAIN[10:])
    for environments in (TRAIN, TASK.environments(5000, "elsewhere", 3)[639:]):
        with pytest.raises(ValueError, match="has seen some of these environments"):
            prior.check_unseen(environments)


@pytest.mark.slow
def test_a_prior_learnt_elsewhere_is_free_and_helps(tmp_path: Path):
    task, elsewhere = Reach(radius=1.2), Reach(radius=1.2, centre=0.9)
    train = task.environments(200, stream="train")
    prior = pretrain_prior(
        elsewhere, START, Pretraining(search=QUICK, per_step=16, origin="from another room")
    )
    settings = SearchSettings(steps=40, pairs=8, natural=False)
    informed = learn_gaussian(task, train, prior, Plan(search=settings, draws=10))
    c = verify(informed.save(tmp_path / "run")).certificate
    assert (c.prior, c.set_aside, c.environments) == ("from another room", 0, 200)
    naive = learn_gaussian(task, train, START, Plan(search=settings, draws=10))
    assert c.bound < 0.8 * naive.certificate.bound


def test_learning_elsewhere_repeats_and_goes_on_from_a_checkpoint(tmp_path: Path):
    def learn(seed: int = 0, **options) -> DiagonalGaussian:
        how = Pretraining(QUICK, 16, seed=seed)
        return pretrain_prior(TASK, START, how, Execution(**options)).distribution

    def interrupt(now: Progress) -> None:
        if ", step 25 of" in now.remark:
            raise KeyboardInterrupt

    whole, checkpoint = learn(), tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        learn(store=checkpoint, progress=interrupt)
    assert learn(store=checkpoint).to_bytes() == whole.to_bytes()
    assert learn(seed=1).to_bytes() != whole.to_bytes()


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf])
def test_a_width_that_is_none_is_refused(width: float):
    with pytest.raises(ValueError, match=f"width = {width} must be positive"):
        pretrain_prior(TASK, START, Pretraining(search=QUICK, width=width))


def test_a_search_elsewhere_takes_all_its_steps_at_the_width_it_was_given():
    assert PRETRAINING.variance is False
    assert PRETRAINING.ranks is True
    assert PRETRAINING.estimator == "evolution"


# ---- imitation ----------------------------------------------------------------------------------


def linear(policy: NDArray, observations: NDArray) -> NDArray:
    return observations @ policy


def nonlinear(policy: NDArray, observations: NDArray) -> NDArray:
    return policy[0] * np.tanh(observations @ policy[1:])


@pytest.mark.parametrize(
    ("act", "expert"),
    [(linear, [0.5, -2.0, 3.0, 1.0]), (nonlinear, [1.5, 0.5, -1.0, 0.3])],
    ids=["linear", "nonlinear"],
)
def test_an_expert_of_the_same_class_is_recovered(act, expert: list[float]):
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((400, len(expert) - (act is nonlinear)))
    actions = act(np.array(expert), observations)
    start = DiagonalGaussian(np.full(4, 0.5), [1.0, 0.5, 2.0, 4.0])
    prior = imitate(act, observations, actions, start, [], ridge=1e-6)
    np.testing.assert_allclose(prior.distribution.mean, expert, atol=1e-4)
    assert np.array_equal(prior.distribution.variance, start.variance)
    assert prior.origin == "imitates an expert over 400 recorded observations"
    assert prior.distribution.seen == ()


def test_an_expert_with_noise_is_recovered_as_least_squares_would():
    rng = np.random.default_rng(1)
    observations = rng.standard_normal((300, 3))
    actions = observations @ [1.0, 2.0, -1.0] + 0.3 * rng.standard_normal(300)
    prior = imitate(linear, observations, actions, DiagonalGaussian(np.zeros(3), 1.0), [], 1e-6)
    expected = np.linalg.lstsq(observations, actions, rcond=None)[0]
    np.testing.assert_allclose(prior.distribution.mean, expected, atol=1e-5)


def test_parameters_that_the_recordings_leave_open_stay_where_they_were():
    rng = np.random.default_rng(2)
    observations = rng.standard_normal((100, 3))
    observations[:, 1] = 0  # never anything to see
    actions = observations @ [1.0, 5.0, -1.0]
    start = DiagonalGaussian([0.0, 7.0, 0.0], 1.0)
    mean = imitate(linear, observations, actions, start, []).distribution.mean
    np.testing.assert_allclose(mean, [1.0, 7.0, -1.0], atol=1e-3)


def test_the_ridge_is_that_of_ridge_regression_in_units_of_the_start():
    rng = np.random.default_rng(3)
    observations, spread = rng.standard_normal((50, 2)), np.array([0.5, 3.0])
    actions = observations @ [2.0, -1.0] + rng.standard_normal(50)
    start = DiagonalGaussian([1.0, 1.0], spread**2)
    mean = imitate(linear, observations, actions, start, [], ridge=0.4).distribution.mean
    scaled_ridge = 0.4**2 * 50 * np.var(actions)
    design = observations * spread
    moves = np.linalg.solve(
        design.T @ design + scaled_ridge * np.eye(2),
        design.T @ (actions - observations.sum(axis=1)),
    )
    np.testing.assert_allclose(mean, 1 + spread * moves, rtol=1e-5)
    far = imitate(linear, observations, actions, start, [], ridge=1e4).distribution.mean
    np.testing.assert_allclose(far, [1, 1], atol=1e-4)


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (np.zeros((3, 2)), np.zeros(4), r"3 observations and \(4,\) actions: one each is needed"),
        (np.zeros((3, 2)), np.zeros((3, 1)), r"3 observations and \(3, 1\) actions"),
        (np.zeros((0, 2)), np.zeros(0), r"0 observations and \(0,\) actions"),
        (np.full((3, 2), np.nan), np.zeros(3), "the recordings hold a NaN or an infinity"),
        (np.zeros((3, 2)), np.array([0, np.inf, 0]), "the recordings hold a NaN or an infinity"),
    ],
)
def test_bad_recordings_get_a_clear_error(observations: NDArray, actions: NDArray, message: str):
    with pytest.raises(ValueError, match=message):
        imitate(linear, observations, actions, START, [])


# ---- families -----------------------------------------------------------------------------------


def test_a_scaled_family_differs_in_its_variances_only():
    gaussian = DiagonalGaussian([1.0, 2.0], [0.5, 4.0], seen=[TRAIN[:10].range])
    prior = GaussianPrior(gaussian, "learnt")
    family = scaled(prior, (0.25, 1.0, 2.0))
    assert [member.origin for member in family] == [
        "learnt, variances × 0.25",
        "learnt, variances × 1",
        "learnt, variances × 2",
    ]
    for member, factor in zip(family, (0.25, 1.0, 2.0), strict=True):
        assert np.array_equal(member.distribution.mean, prior.distribution.mean)
        assert np.array_equal(member.distribution.variance, factor * prior.distribution.variance)
        assert member.distribution.seen == prior.distribution.seen


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_a_factor_that_leaves_no_variance_is_refused(factor: float):
    with pytest.raises(ValueError, match="it must be positive"):
        scaled(GaussianPrior(START), (1.0, factor))


# ---- what learnt distributions remember ---------------------------------------------------------


def test_a_posterior_cannot_be_the_prior_of_the_environments_that_it_learnt_from(tmp_path: Path):
    quick = SearchSettings(steps=2)
    run = learn_gaussian(TASK, TRAIN, START, Plan(search=quick, draws=2))
    kept = Run.load(run.save(tmp_path / "run")).posterior
    for posterior in (run.posterior, kept):
        with pytest.raises(ValueError, match="has seen some of these environments"):
            learn_gaussian(TASK, TRAIN, posterior, Plan(search=quick, draws=2))
    others = TASK.environments(50, stream="others")
    again = learn_gaussian(TASK, others, kept, Plan(search=quick, draws=2))
    assert {part.stream for part in again.posterior.seen} == {"train", "others"}
    with pytest.raises(ValueError, match="has seen some"):
        learn_one(TASK, TRAIN, again.posterior)


def test_a_prior_from_reshuffled_environments_has_seen_the_recorded_ones():
    task = Vehicle(controller=Linear())
    train = task.environments(20, stream="train")
    reshuffled = Vehicle(controller=Linear(), obstacles=Reshuffled(train))
    settings = SearchSettings(steps=1, pairs=2)
    prior = pretrain_prior(reshuffled, paper_prior(), Pretraining(search=settings, per_step=4))
    with pytest.raises(ValueError, match="has seen some of these environments"):
        learn_one(task, train, prior)
    assert set_aside_by(prior.distribution, costs_in(train)) == 20


def test_a_search_remembers_what_it_has_learnt_from(tmp_path: Path):
    start = START.with_data_used(TRAIN[:10].range)
    search = GaussianSearch(start, 10, 0.01, settings=SearchSettings(steps=12))
    search_posterior(
        TASK, lambda step: TRAIN[10 + step : 11 + step], search, Execution(store=tmp_path / "c")
    )
    assert search.posterior.seen == (("train", TRAIN.seed, 0, 22),)
    with pytest.raises(ValueError, match="has seen some of these environments"):
        learn_gaussian(TASK, TRAIN[21:], search.posterior)
    resumed = GaussianSearch(start, 10, 0.01, settings=SearchSettings(steps=12))
    search_posterior(
        TASK, lambda step: TRAIN[10 + step : 11 + step], resumed, Execution(store=tmp_path / "c")
    )
    assert resumed.posterior.to_bytes() == search.posterior.to_bytes()


def test_a_search_by_ask_and_tell_remembers_what_it_was_told_of(tmp_path: Path):
    search = GaussianSearch(START, len(TRAIN), 0.01, settings=SearchSettings(steps=3, pairs=2))
    costs = mean_costs(TASK, search.ask(), TRAIN)
    with pytest.raises(TypeError, match="environments"):
        search.tell(costs)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="tell which Environments the costs are of"):
        search.tell(costs, environments=["train"])  # type: ignore[list-item]
    assert search.step == 0
    search.tell(costs, environments=TRAIN)
    search.save(tmp_path / "c", "mine")
    resumed = GaussianSearch(START, len(TRAIN), 0.01, settings=SearchSettings(steps=3, pairs=2))
    resumed.load(tmp_path / "c", "mine")
    for found in (search.posterior, resumed.posterior):
        assert found.seen == (TRAIN.range,)
        with pytest.raises(ValueError, match="has seen some of these environments"):
            learn_one(TASK, TRAIN, found)


def test_ranges_that_meet_are_one():
    seen = [TRAIN[:20].range, TRAIN[10:50].range, TRAIN[50:60].range, TRAIN[70:80].range]
    gaussian = DiagonalGaussian([0.0], 1.0, seen=seen)
    assert [(part.start, part.stop) for part in gaussian.seen] == [(0, 60), (70, 80)]
    assert set_aside_by(gaussian, costs_in(TRAIN)) == 70
