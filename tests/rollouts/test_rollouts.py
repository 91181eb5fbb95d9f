"""What a task says, checked, in chunks: costs of policies, of draws, and their means."""

import tracemalloc
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from origins import single_draw
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.issuing import Basis, Provenance, issue_sampled, issue_single_draw
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Linear, paper_prior
from pacbayes_control.rollouts import (
    Draws,
    Execution,
    Quantity,
    certifying_draws,
    estimate_true_cost,
    evaluate,
    jobs,
    mean_costs,
    sample_costs,
    sampled_mean,
)
from pacbayes_control.rollouts.jobs import CHUNK
from pacbayes_control.tasks import BatchTask, Environments, Noise


@dataclass
class Threshold:
    """A task in one line: a policy (a threshold) costs the square of an environment's excess."""

    name: str = "threshold"
    calls: list[int] = field(default_factory=list)  # environments in each call to costs

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Environments(self._draw, self.name, stream, seed, 0, n)

    def _draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray]:
        return {"level": rng.random(n)}

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        self.calls.append(len(environments))
        level = environments.arrays()["level"]
        return np.maximum(level[:, None] - policies[:, 0], 0) ** 2


@dataclass
class Spoilt(Threshold):
    """The same, but its costs go through `spoil` first."""

    spoil: Any = None

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return self.spoil(super().costs(policies, environments))


def thresholds(n: int = 5) -> NDArray:
    return np.linspace(0, 1, n)[:, None]


MANY = 2 * CHUNK + 100


# ---- evaluate -----------------------------------------------------------------------------------


def test_evaluate_returns_what_the_task_says():
    task = Threshold()
    environments = task.environments(50, stream="train")
    costs = evaluate(task, thresholds(), environments)
    np.testing.assert_array_equal(costs.values, task.costs(thresholds(), environments))


def test_evaluate_joins_chunks_in_order():
    task = Threshold()
    environments = task.environments(MANY, stream="train")[37:]
    costs = evaluate(task, thresholds(), environments)
    assert len(task.calls) == 3
    assert max(task.calls) <= CHUNK
    np.testing.assert_array_equal(costs.values, task.costs(thresholds(), environments))


def test_evaluate_keeps_names_and_origin():
    task = Threshold()
    environments = task.environments(20, stream="train", seed=3)
    costs = evaluate(task, thresholds(2), environments, names=["low", "high"])
    assert costs.names == ("low", "high")
    assert costs.origin == environments.origin


def test_environments_are_described_in_parts_that_fit_into_memory():
    drawn: list[int] = []

    class Told(BatchTask):
        def describe(self, environments):
            drawn.append(len(environments))
            return super().describe(environments)

    def draw(rng, n):
        return {"wind": rng.uniform(0, 10, n), "map": np.zeros((n, 8, 8))}

    def rollouts(policies, environments):
        return policies[:, 0] < environments["wind"][:, None]

    task = Told(rollouts, draw, "windy")
    environments = task.environments(3000, "train")
    costs = evaluate(task, np.array([[5.0]]), environments)
    assert len(drawn) > 1
    assert sum(drawn) == 3000
    assert list(costs.described) == ["wind"]
    assert costs.described["wind"].tolist() == environments.arrays()["wind"].tolist()


def test_evaluate_runs_the_vehicle():
    task = Vehicle()
    gains, names = task.policies, task.policy_names
    environments = task.environments(40, stream="train")
    costs = evaluate(task, gains, environments, names)
    np.testing.assert_array_equal(costs.values, task.costs(gains, environments))
    assert costs.binary


# ---- mean_costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 500, MANY])
def test_mean_costs_are_the_means_of_evaluate(n):
    task = Threshold()
    environments = task.environments(n, stream="test")
    means = mean_costs(task, thresholds(), environments)
    assert means.shape == (5,)
    expected = evaluate(task, thresholds(), environments).means
    np.testing.assert_allclose(means, expected, rtol=1e-12)


def test_mean_costs_of_zeros_and_ones_are_not_summed_in_eight_bits():
    task = Spoilt(spoil=lambda costs: np.ones(costs.shape, np.uint8))
    assert (
        mean_costs(task, thresholds(), task.environments(1000, stream="test")).tolist() == [1] * 5
    )


def test_mean_costs_refuse_environments_that_were_seen():
    task = Threshold()
    training = task.environments(100, stream="train")
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        mean_costs(task, thresholds(), task.environments(1000, stream="train"), seen=[training])
    assert task.calls == []


def test_mean_costs_refuse_an_overlap_with_any_of_those_seen():
    task = Threshold()
    seen = [task.environments(100, stream="prior"), task.environments(100, stream="train")]
    with pytest.raises(ValueError, match="a stream of its own"):
        mean_costs(task, thresholds(), seen[1][99:], seen=seen)


def test_mean_costs_accept_environments_that_were_not_seen():
    task = Threshold()
    whole = task.environments(1000, stream="train")
    seen = [whole[:500], task.environments(100, stream="train", seed=1)]
    assert mean_costs(task, thresholds(), whole[500:], seen=seen).shape == (5,)


def test_mean_costs_take_no_more_memory_for_more_environments():
    """All the costs at once would take 80 MB."""
    task = Threshold()
    environments = task.environments(200_000, stream="test")
    mean_costs(task, thresholds(50), environments[:CHUNK])
    tracemalloc.start()
    try:
        mean_costs(task, thresholds(50), environments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


# ---- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [evaluate, mean_costs])
def test_progress_is_told_of_every_rollout_up_to_the_total(run):
    task, told = Threshold(), []
    environments = task.environments(MANY, stream="test")
    how = Execution(progress=lambda now: told.append((now.done, now.total)))
    run(task, thresholds(), environments, execution=how)
    assert told == [(CHUNK * 5, MANY * 5), (2 * CHUNK * 5, MANY * 5), (MANY * 5, MANY * 5)]


# ---- tasks and policies that are wrong ----------------------------------------------------------


@pytest.mark.parametrize("run", [evaluate, mean_costs])
@pytest.mark.parametrize(
    "spoil",
    [np.transpose, lambda costs: costs[:-1], lambda costs: costs[:, 0], lambda costs: costs[None]],
    ids=["transposed", "a row missing", "one policy", "three dimensions"],
)
def test_costs_of_the_wrong_shape_are_an_error(run, spoil):
    task = Spoilt(spoil=spoil)
    with pytest.raises(
        ValueError, match=r"task threshold returned costs of shape .* 9 environments × 5 policies"
    ):
        run(task, thresholds(), task.environments(9, stream="test"))


CHECKED_RUNS = pytest.mark.parametrize("run", [evaluate, mean_costs])


def replaced(value: float):
    """Put a value at environment 6, policy 2."""

    def spoil(costs: NDArray) -> NDArray:
        costs[6, 2] = value
        return costs

    return spoil


@CHECKED_RUNS
def test_a_cost_that_is_nan_is_an_error(run):
    task = Spoilt(spoil=replaced(np.nan))
    with pytest.raises(ValueError, match="environment 6, policy 2 is NaN"):
        run(task, thresholds(), task.environments(9, stream="test"))


@CHECKED_RUNS
@pytest.mark.parametrize("value", [-0.25, 1.5, np.inf])
def test_a_cost_outside_0_to_1_is_an_error(run, value):
    task = Spoilt(spoil=replaced(value))
    with pytest.raises(ValueError, match=rf"cost {value:g} at environment 6, policy 2 is outside"):
        run(task, thresholds(), task.environments(9, stream="test"))


def test_fractions_after_a_chunk_of_whole_numbers_are_kept():
    def spoil(costs: NDArray) -> NDArray:
        whole = len(costs) == CHUNK
        return np.zeros(costs.shape, np.uint8) if whole else np.full(costs.shape, 0.5)

    task = Spoilt(spoil=spoil)
    costs = evaluate(task, thresholds(), task.environments(CHUNK + 10, stream="test"))
    assert np.all(costs.values[CHUNK:] == 0.5)


@pytest.mark.parametrize("run", [evaluate, mean_costs])
@pytest.mark.parametrize("policies", [np.zeros(5), np.zeros((0, 5)), np.zeros((2, 2, 2))])
def test_policies_without_rows_are_an_error(run, policies):
    task = Threshold()
    with pytest.raises(ValueError, match="policies need one row each"):
        run(task, policies, task.environments(9, stream="test"))


@pytest.mark.parametrize("run", [evaluate, mean_costs])
def test_no_environments_to_roll_out_in_is_an_error(run):
    task = Threshold()
    with pytest.raises(ValueError, match="no environments"):
        run(task, thresholds(), task.environments(9, stream="test")[9:])


# ---- costs of policies drawn from a posterior ---------------------------------------------------

POSTERIOR = DiagonalGaussian([0.3, -1.0], [0.25, 4.0])


@dataclass
class Echo(Threshold):
    """Costs that tell which policy was drawn: its first parameter through the normal cdf."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of the policies in each call

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        self.shapes.append(policies.shape)
        told = norm(POSTERIOR.mean[0], np.sqrt(POSTERIOR.variance[0])).cdf(policies[..., 0])
        return np.broadcast_to(told, (len(environments), policies.shape[-2]))


@dataclass
class Meeting(Threshold):
    """Costs that depend on both the environment and the policy, which may be its own."""

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        level = environments.arrays()["level"]
        return np.abs(np.tanh(level[:, None] - policies.sum(axis=-1)))


@dataclass
class Windy(Threshold):
    """Costs that are nothing but the noise of the rollout."""

    noise_kind: str = "wind"
    given: list[Noise | None] = field(default_factory=list)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        self.given.append(noise)
        assert noise is not None
        return noise.keys(environments, policies.shape[-2]) / 2.0**64


def test_fresh_draws_are_all_different_and_follow_the_posterior():
    task = Echo()
    costs = sample_costs(task, POSTERIOR, task.environments(500, stream="train"), 4)
    assert costs.draws == "fresh"
    assert costs.values.shape == (500, 4)
    assert np.unique(costs.values).size == 2000
    assert kstest(costs.values.ravel(), "uniform").pvalue > 0.01
    for column in costs.values.T:
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 0.1


def test_shared_draws_are_the_same_in_every_environment():
    task = Echo()
    environments = task.environments(MANY, stream="train")
    costs = sample_costs(task, POSTERIOR, environments, Draws(200, shared=True))
    assert costs.draws == "shared"
    assert costs.values.shape == (MANY, 200)
    assert np.all(costs.values == costs.values[0])
    assert np.unique(costs.values[0]).size == 200
    assert kstest(costs.values[0], "uniform").pvalue > 0.01


def test_a_task_is_given_policies_of_their_own_only_for_fresh_draws():
    task = Echo()
    environments = task.environments(50, stream="train")
    sample_costs(task, POSTERIOR, environments, 4)
    sample_costs(task, POSTERIOR, environments, Draws(4, shared=True))
    assert task.shapes == [(50, 4, 2), (4, 2)]


@pytest.mark.parametrize("shared", [False, True])
def test_the_same_seed_and_stream_give_the_same_draws(shared: bool):
    task = Meeting()
    environments = task.environments(30, stream="train")

    def values(**kwargs: Any) -> NDArray:
        draws = Draws(3, shared=shared, **kwargs)
        return sample_costs(task, POSTERIOR, environments, draws).values

    assert np.array_equal(values(seed=1), values(seed=1))
    assert not np.any(values(seed=1) == values(seed=2))
    assert not np.any(values() == values(stream="other"))


@pytest.mark.parametrize("shared", [False, True])
def test_the_draws_of_a_certificate_are_nobody_elses(shared: bool):
    task = Meeting()
    environments = task.environments(30, stream="train")
    with pytest.raises(ValueError, match="the stream 'certify' is kept for certificates"):
        sample_costs(task, POSTERIOR, environments, Draws(3, shared=shared, stream="certify"))
    for seed in (0, 5):
        certified = certifying_draws(
            task, POSTERIOR, environments, Draws(3, seed=seed, shared=shared)
        )
        again = certifying_draws(task, POSTERIOR, environments, Draws(3, seed=seed, shared=shared))
        looked = sample_costs(task, POSTERIOR, environments, Draws(3, seed=seed, shared=shared))
        assert np.array_equal(certified.values, again.values)
        assert not np.any(certified.values == looked.values)
        assert certified.draws == looked.draws == ("shared" if shared else "fresh")
        drawn = {"seed": seed, "posterior": POSTERIOR.parameters_digest}
        assert certified.origin["policies"] == {"stream": "certify", **drawn}
        assert looked.origin["policies"] == {"stream": "sample", **drawn}


@pytest.mark.parametrize("cells", [1, 16, 1000])
@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_fresh_draws_do_not_depend_on_the_chunks(
    monkeypatch: pytest.MonkeyPatch, cells: int, chunk: int
):
    task = Meeting()
    environments = task.environments(1200, stream="train")[1000:]
    expected = sample_costs(task, POSTERIOR, environments, 3)
    monkeypatch.setattr(jobs, "CELLS", cells)
    monkeypatch.setattr(jobs, "CHUNK", chunk)
    actual = sample_costs(task, POSTERIOR, environments, 3)
    assert np.array_equal(actual.values, expected.values)


def test_shared_draws_do_not_depend_on_the_chunks_of_environments(monkeypatch: pytest.MonkeyPatch):
    task = Meeting()
    environments = task.environments(MANY, stream="train")[37:]
    expected = sample_costs(task, POSTERIOR, environments, Draws(3, shared=True))
    monkeypatch.setattr(jobs, "CHUNK", 4 * CHUNK)
    actual = sample_costs(task, POSTERIOR, environments, Draws(3, shared=True))
    assert np.array_equal(actual.values, expected.values)


def test_shared_draws_in_several_parts_are_still_shared_and_different(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(jobs, "CELLS", 10)
    task = Echo()
    environments = task.environments(20, stream="train")
    costs = sample_costs(task, POSTERIOR, environments, Draws(12, shared=True))
    assert task.shapes == [(5, 2), (5, 2), (2, 2)]
    assert np.all(costs.values == costs.values[0])
    assert np.unique(costs.values[0]).size == 12


def test_the_first_environments_have_the_same_draws_however_many_follow():
    task = Meeting()
    many = task.environments(60, stream="train")
    costs = sample_costs(task, POSTERIOR, many, 3).values
    assert np.array_equal(costs[:20], sample_costs(task, POSTERIOR, many[:20], 3).values)
    assert np.array_equal(costs[20:], sample_costs(task, POSTERIOR, many[20:], 3).values)


def test_sampled_costs_say_where_they_came_from():
    task = Meeting()
    environments = task.environments(10, stream="train", seed=3)
    costs = sample_costs(task, POSTERIOR, environments, Draws(2, seed=5, stream="certify 2"))
    digest = POSTERIOR.parameters_digest
    policies = {"stream": "certify 2", "seed": 5, "posterior": digest}
    assert costs.origin == environments.origin | {"policies": policies}
    assert costs.parameters is None
    assert costs.names == ()


def test_sampled_costs_of_zeros_and_ones_are_kept_as_bytes_and_others_not():
    zeros = Spoilt(spoil=lambda costs: costs > 0.3)
    graded = Spoilt(spoil=lambda costs: costs)
    one = DiagonalGaussian([0.5], 0.01)
    for shared in (False, True):
        for task, binary in ((zeros, True), (graded, False)):
            environments = task.environments(20, stream="train")
            assert sample_costs(task, one, environments, Draws(1, shared=shared)).binary == binary


@pytest.mark.parametrize("shared", [False, True])
def test_sampled_fractions_after_whole_numbers_are_kept(
    monkeypatch: pytest.MonkeyPatch, shared: bool
):
    calls = []

    def spoil(costs: NDArray) -> NDArray:
        calls.append(1)
        return np.zeros(costs.shape, np.uint8) if len(calls) == 1 else np.full(costs.shape, 0.5)

    monkeypatch.setattr(jobs, "CELLS", 5)
    task = Spoilt(spoil=spoil)
    one = DiagonalGaussian([0.5], 0.01)
    draws = 10 if shared else 1
    costs = sample_costs(
        task, one, task.environments(10, stream="train"), Draws(draws, shared=shared)
    )
    assert sorted(np.unique(costs.values)) == [0.0, 0.5]
    assert np.mean(costs.values) == 0.25


@pytest.mark.parametrize("shared", [False, True])
def test_sampling_tells_its_progress_up_to_the_total(monkeypatch: pytest.MonkeyPatch, shared: bool):
    monkeypatch.setattr(jobs, "CELLS", 24)
    task, told = Meeting(), []
    sample_costs(
        task,
        POSTERIOR,
        task.environments(10, stream="train"),
        Draws(6, shared=shared),
        Execution(progress=lambda now: told.append((now.done, now.total))),
    )
    assert told == ([(60, 60)] if shared else [(12, 60), (24, 60), (36, 60), (48, 60), (60, 60)])


@pytest.mark.parametrize("draws", [0, -3])
def test_at_least_one_draw_is_needed(draws: int):
    task = Meeting()
    with pytest.raises(ValueError, match=f"{draws} draws were asked for: at least one is needed"):
        sample_costs(task, POSTERIOR, task.environments(10, stream="train"), draws)


@pytest.mark.parametrize("shared", [False, True])
def test_a_bad_cost_of_a_draw_is_an_error_that_names_its_environment(shared: bool):
    def spoil(costs: NDArray) -> NDArray:
        costs = costs.copy()
        costs[6, 0] = np.nan
        return costs

    task = Spoilt(spoil=spoil)
    with pytest.raises(ValueError, match="environment 6, policy 0 is NaN"):
        sample_costs(
            task,
            DiagonalGaussian([0.5], 0.01),
            task.environments(9, stream="train"),
            Draws(1, shared=shared),
        )


def test_a_task_that_does_not_take_policies_of_their_own_is_found_out():
    """Threshold reads a row of parameters as if it were a policy of every environment."""
    task = Threshold()
    with pytest.raises(ValueError, match=r"returned costs of shape .* 9 environments × 3 policies"):
        sample_costs(task, POSTERIOR, task.environments(9, stream="train"), 3)


def test_the_vehicle_draws_fresh_and_shared_policies():
    task = Vehicle(controller=Linear())
    environments = task.environments(60, stream="train")
    fresh = sample_costs(task, paper_prior(), environments, 3)
    shared = sample_costs(task, paper_prior(), environments, Draws(3, shared=True))
    assert fresh.binary
    assert shared.binary
    assert fresh.origin["policy_class"] == shared.origin["policy_class"] == "linear"
    assert fresh.noise is None


# ---- an estimate of a posterior's true cost -----------------------------------------------------


def test_the_sampled_mean_is_close_to_the_truth():
    task = Echo()
    environments = task.environments(2 * CHUNK, stream="test")
    assert sampled_mean(task, POSTERIOR, environments, draws=1000) == pytest.approx(0.5, abs=0.02)


def test_the_sampled_mean_has_new_draws_for_each_chunk():
    task = Echo()
    environments = task.environments(2 * CHUNK, stream="test")
    whole = sampled_mean(task, POSTERIOR, environments)
    halves = [sampled_mean(task, POSTERIOR, environments[i : i + CHUNK]) for i in (0, CHUNK)]
    assert halves[0] != halves[1]
    assert whole == pytest.approx(np.mean(halves))


def test_the_sampled_mean_is_of_draws_of_its_own():
    task = Echo()
    environments = task.environments(50, stream="test")
    estimate = sampled_mean(task, POSTERIOR, environments, draws=3)
    assert estimate == sampled_mean(task, POSTERIOR, environments, draws=3)
    assert estimate != sampled_mean(task, POSTERIOR, environments, draws=3, seed=1)
    certified = certifying_draws(task, POSTERIOR, environments, Draws(3, shared=True))
    assert estimate != pytest.approx(certified.means.mean())


def test_the_sampled_mean_tells_its_progress_and_gives_noise():
    task, told = Windy(), []
    environments = task.environments(MANY, stream="test")
    sampled_mean(
        task,
        POSTERIOR,
        environments,
        draws=2,
        execution=Execution(progress=lambda now: told.append((now.done, now.total))),
    )
    assert told == [(2 * CHUNK, 2 * MANY), (4 * CHUNK, 2 * MANY), (2 * MANY, 2 * MANY)]
    assert task.given == [Noise("estimate noise", 0, "wind")] * 3


def test_the_sampled_mean_refuses_environments_that_were_seen():
    task = Meeting()
    training = task.environments(100, stream="train")
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        sampled_mean(task, POSTERIOR, training[50:60], [training])
    learnt = POSTERIOR.with_data_used(training.range)
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        sampled_mean(task, learnt, training[50:60])
    assert 0 < sampled_mean(task, learnt, task.environments(10, stream="test")) < 1


def test_the_true_cost_is_estimated_of_what_the_run_certifies():
    task = Meeting()
    train, test = (task.environments(200, stream=stream) for stream in ("train", "test"))
    policies = np.random.default_rng(0).normal(size=(4, 2))
    means = mean_costs(task, policies, test)
    costs = evaluate(task, policies, train)
    finite = learn_finite(costs)
    assert estimate_true_cost(task, finite, test) == pytest.approx(
        finite.posterior.probabilities @ means
    )
    occam = learn_finite(costs, method="occam")
    assert estimate_true_cost(task, occam, test) == pytest.approx(means[occam.posterior.single()])

    budget = Budget(0.05)
    for name in ("sampling", "kl", "single-draw"):
        budget.spend(name, 0.01)
    provenance = Provenance("kl")
    drawn = certifying_draws(task, POSTERIOR, train, Draws(2))
    certificate = issue_sampled(Basis(drawn, POSTERIOR, POSTERIOR, budget, provenance), "kl")
    sampled = Run(certificate, drawn, POSTERIOR, POSTERIOR)
    assert estimate_true_cost(task, sampled, test) == sampled_mean(task, POSTERIOR, test)
    rolled_out = evaluate(task, policies[:1], train)
    origin = {**rolled_out.origin, **single_draw(POSTERIOR)}
    one = Costs(rolled_out.values, origin=origin, parameters=policies[:1])
    certificate = issue_single_draw(Basis(one, POSTERIOR, POSTERIOR, budget, provenance))
    single = Run(certificate, one, POSTERIOR, POSTERIOR)
    assert estimate_true_cost(task, single, test) == pytest.approx(means[0])


def test_the_true_cost_is_not_estimated_on_what_was_seen_nor_without_parameters():
    task = Meeting()
    train = task.environments(50, stream="train")
    run = learn_finite(evaluate(task, np.eye(2), train))
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        estimate_true_cost(task, run, train[10:20])
    draws = certifying_draws(task, POSTERIOR, train, Draws(2))
    sampled = replace(run, costs=draws, prior=POSTERIOR, posterior=POSTERIOR)
    with pytest.raises(ValueError, match=r"stream 'train' with seed 0 was used for training"):
        estimate_true_cost(task, sampled, train[49:])
    elsewhere = task.environments(50, stream="elsewhere")
    for field_name in ("prior", "posterior"):
        used = Categorical(run.prior.probabilities, seen=[elsewhere.range])
        learnt = replace(run, **{field_name: used})
        with pytest.raises(ValueError, match="stream 'elsewhere' with seed 0 was used for train"):
            estimate_true_cost(task, learnt, elsewhere)
    origin = {**run.costs.origin, "data_used": [list(elsewhere.range)]}
    trained = Costs(run.costs.values, origin=origin, parameters=run.costs.parameters)
    with pytest.raises(ValueError, match="stream 'elsewhere' with seed 0 was used for training"):
        estimate_true_cost(task, replace(run, costs=trained), elsewhere)
    assert 0 <= estimate_true_cost(task, run, elsewhere) <= 1
    bare = learn_finite(Costs(run.costs.values))
    with pytest.raises(ValueError, match="the run holds no parameters of its policies"):
        estimate_true_cost(task, bare, task.environments(50, stream="test"))


# ---- noise of the rollouts ----------------------------------------------------------------------


def test_a_task_without_noise_is_given_none():
    task = Threshold()
    environments = task.environments(20, stream="train")
    costs = evaluate(task, thresholds(), environments, noise=Noise("mine"))
    assert costs.noise is None
    assert "noise" not in costs.origin


def test_a_task_with_noise_is_given_a_stream_that_the_record_tells():
    task = Windy()
    environments = task.environments(20, stream="train", seed=4)
    costs = evaluate(task, thresholds(), environments)
    assert task.given == [Noise("train noise", 4, "wind")]
    assert costs.origin["noise"] == {"stream": "train noise", "seed": 4, "of": "wind"}
    assert costs.noise == "wind"


def test_noise_may_be_named_by_the_caller():
    task = Windy()
    costs = evaluate(task, thresholds(), task.environments(20, stream="train"), noise=Noise("a", 9))
    assert costs.origin["noise"] == {"stream": "a", "seed": 9, "of": "wind"}


@pytest.mark.parametrize("shared", [False, True])
def test_noise_of_sampled_rollouts_has_a_stream_of_its_own(shared: bool):
    task = Windy()
    environments = task.environments(20, stream="train")
    looked = sample_costs(task, POSTERIOR, environments, Draws(3, seed=6, shared=shared))
    named = sample_costs(
        task, POSTERIOR, environments, Draws(3, seed=6, shared=shared, stream="mine")
    )
    certified = certifying_draws(task, POSTERIOR, environments, Draws(3, seed=6, shared=shared))
    trained = evaluate(task, np.zeros((3, 2)), environments)
    for costs, stream in ((looked, "sample"), (named, "mine"), (certified, "certify")):
        assert costs.origin["noise"] == {"stream": f"{stream} noise", "seed": 6, "of": "wind"}
        assert costs.noise == "wind"
    everything = [costs.values for costs in (looked, named, certified, trained)]
    assert np.unique(everything).size == 4 * 20 * 3


def test_every_rollout_has_noise_of_its_own():
    task = Windy()
    costs = evaluate(task, thresholds(), task.environments(MANY, stream="train"))
    assert np.unique(costs.values).size == MANY * 5
    assert kstest(costs.values.ravel(), "uniform").pvalue > 0.01


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("cells", [2, 10, 1000])
def test_noise_does_not_depend_on_the_chunks(
    monkeypatch: pytest.MonkeyPatch, cells: int, shared: bool
):
    task = Windy()
    environments = task.environments(50, stream="train")[10:]
    expected = sample_costs(task, POSTERIOR, environments, Draws(7, shared=shared))
    assert np.unique(expected.values).size == 280
    monkeypatch.setattr(jobs, "CELLS", cells)
    actual = sample_costs(task, POSTERIOR, environments, Draws(7, shared=shared))
    assert np.array_equal(actual.values, expected.values)


def test_noise_of_the_vehicle_is_told():
    task = Vehicle(wheel_slip=0.1, range_noise=0.05)
    costs = evaluate(task, task.policies[:3], task.environments(20, stream="train"))
    assert costs.noise == "wheel slip 0.1, range noise 0.05"


# ---- the surrogate cost -------------------------------------------------------------------------


@dataclass
class Smooth(Threshold):
    """With a surrogate: half of the cost's root."""

    def surrogate(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.sqrt(super().costs(policies, environments)) / 2


def test_the_mean_surrogate_is_asked_for_by_name():
    task = Smooth()
    environments = task.environments(MANY, stream="train")
    costs = mean_costs(task, thresholds(), environments)
    surrogate = mean_costs(task, thresholds(), environments, of=Quantity(surrogate=True))
    np.testing.assert_allclose(costs, task.costs(thresholds(), environments).mean(axis=0))
    np.testing.assert_allclose(surrogate, task.surrogate(thresholds(), environments).mean(axis=0))


def test_the_surrogate_of_the_vehicle_is_checked_like_a_cost():
    task = Vehicle()
    environments = task.environments(30, stream="train")
    actual = mean_costs(task, task.policies[:4], environments, of=Quantity(surrogate=True))
    expected = task.surrogate(task.policies[:4], environments).mean(axis=0)
    np.testing.assert_allclose(actual, expected)


def test_a_surrogate_outside_0_to_1_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Smooth, "surrogate", lambda self, p, e: 2 + self.costs(p, e))
    task = Smooth()
    with pytest.raises(ValueError, match="is outside"):
        mean_costs(
            task, thresholds(), task.environments(9, stream="train"), of=Quantity(surrogate=True)
        )


def test_shared_draws_do_not_depend_on_how_many_are_held_at_a_time(monkeypatch):
    from pacbayes_control.robots.vehicle import Linear, paper_prior

    task = Vehicle(controller=Linear(), range_noise=0.1)
    environments = task.environments(5, stream="shared")
    whole = sample_costs(task, paper_prior(), environments, Draws(7, shared=True))
    monkeypatch.setattr(jobs, "CELLS", 20)
    parts = sample_costs(task, paper_prior(), environments, Draws(7, shared=True))
    assert np.array_equal(whole.values, parts.values)
