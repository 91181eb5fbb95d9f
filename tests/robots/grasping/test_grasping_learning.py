"""Learning to grasp: labels that are kept, priors by name, certificates by grasps, a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import pacbayes_control as pbc
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan, SearchSettings, learn_gaussian, training
from pacbayes_control.learn.planned import learn_on
from pacbayes_control.robots.grasping import learning as grasping
from pacbayes_control.robots.grasping.experiment import baseline
from pacbayes_control.robots.grasping.extractors import Compact, Vgg16
from pacbayes_control.robots.grasping.labels import Grid, Labels, Surrogate
from pacbayes_control.robots.grasping.learning import label, prior_named
from pacbayes_control.robots.grasping.policy import GraspNetwork
from pacbayes_control.robots.grasping.robots import Gripper, Hand
from pacbayes_control.robots.grasping.simulator import Simulator
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Draws, Execution, Progress, evaluate, pools
from pacbayes_control.rollouts.sampling import certifying_draws
from shortcuts import plain_kl

N, GRID = 16, Grid(places=3, angles=4)  # 36 grasps
TINY = Grid(places=2, angles=2)  # 8 grasps
PROBES = 16  # grasps that are tried again before a kept part is trusted
TASK = Grasping(GraspNetwork(Compact()))
SHORT = SearchSettings(estimator="gradient", pairs=1, steps=3, step_size=0.02)
PLAN = Plan("grasping", draws=3, search=SHORT)


@pytest.fixture(scope="module")
def labels() -> Labels:
    return label(TASK, TASK.environments(N, stream="train"), GRID)


@pytest.fixture(scope="module")
def task(labels: Labels) -> Grasping:
    return replace(TASK, labels=labels)


@pytest.fixture(scope="module")
def run(task: Grasping) -> Run[DiagonalGaussian]:
    return learnt(task)


@pytest.fixture
def no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels take long: what is wrong must be found before."""

    def label(*_: Any) -> Labels:
        pytest.fail("objects were labelled first")

    monkeypatch.setattr(grasping, "label", label)


@pytest.fixture
def grasps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many grasps were simulated, call by call."""
    counted: list[int] = []
    endings = Simulator.endings

    def counting(*arguments: Any) -> Any:
        counted.append(len(arguments[-1]))
        return endings(*arguments)

    monkeypatch.setattr(Simulator, "endings", counting)
    return iter([counted])


class Stopped(Exception):  # noqa: N818 - not an error
    pass


def learnt(task: Grasping, plan: Plan = PLAN, execution: Execution | None = None) -> Run[Any]:
    """As the command learns, on the objects that have labels."""
    return learn_on(task, task.trainable()[1].environments, plan, execution)


# ---- labels -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_labels_are_an_evaluation_of_grasps_that_do_not_look(labels: Labels):
    few = labels.environments[:6]
    costs = evaluate(Grasping(), GRID.grasps, few)
    assert np.array_equal(labels.failures[:6], costs.values)
    assert labels.grid == GRID
    assert labels.failures.dtype == np.uint8
    assert 0.3 < labels.failures.mean() < 0.99


@pytest.mark.slow
def test_workers_come_to_the_same_labels_and_tell_how_far_they_are(labels: Labels):
    told: list[Progress] = []
    few = labels.environments[:6]
    found = label(TASK, few, GRID, Execution(2, progress=told.append, title="labels"))
    assert np.array_equal(found.failures, labels.failures[:6])
    assert told[-1] == Progress("labels", 6 * 36, 6 * 36)
    assert sorted(told) == told


@pytest.mark.slow
def test_labels_are_kept_in_parts_and_a_larger_set_begins_with_a_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: Labels, grasps: Iterator[list[int]]
):
    monkeypatch.setattr(grasping, "PART", 16)
    counted = next(grasps)
    first = label(TASK, labels.environments, TINY, Execution(store=tmp_path))
    assert sum(counted) == N * 8
    counted.clear()
    more = TASK.environments(20, stream="train")
    second = label(TASK, more, TINY, Execution(store=tmp_path))
    assert 4 * 8 <= sum(counted) <= 4 * 8 + PROBES
    counted.clear()
    third = label(TASK, more, TINY, Execution(store=tmp_path))
    assert sum(counted) <= 2 * PROBES
    fresh = label(TASK, more, TINY).failures
    assert np.array_equal(first.failures, fresh[:N])
    assert np.array_equal(second.failures, fresh)
    assert np.array_equal(third.failures, fresh)
    (folder,) = tmp_path.iterdir()
    parts = {part.name for part in folder.iterdir() if part.is_dir()}
    assert parts == {"train-0-0-16", "train-0-16-20"}


@pytest.mark.slow
def test_labels_are_the_same_for_every_network_but_not_for_every_robot_or_grid(
    tmp_path: Path, labels: Labels
):
    few = labels.environments[:2]
    seeing = [TASK, replace(TASK, controller=GraspNetwork(Compact(), head="paper")), Grasping()]
    for task in seeing:
        label(task, few, TINY, Execution(store=tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    label(replace(TASK, robot=Gripper(Hand(force=11.0))), few, TINY, Execution(store=tmp_path))
    label(TASK, few, replace(TINY, half_width=0.02), Execution(store=tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
def test_labels_are_the_same_for_every_surrogate(tmp_path: Path, labels: Labels):
    for kind in ("table", "distance"):
        other = replace(TASK, surrogate_cost=Surrogate(kind))
        label(other, labels.environments[:2], TINY, Execution(store=tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_labelling_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grasps: Iterator[list[int]]
):
    monkeypatch.setattr(grasping, "PART", 16)
    monkeypatch.setattr(pools, "HERE", 1e-6)  # a grasp at a time
    counted: list[int] = next(grasps)
    told: list[Progress] = []
    objects = TASK.environments(32, stream="train")

    def stop(now: Progress) -> None:
        assert now.total == 32 * 8
        if now.done > 17 * 8:  # in the second part
            raise Stopped

    with pytest.raises(Stopped):
        label(TASK, objects, TINY, Execution(store=tmp_path, progress=stop))
    before = sum(counted)
    assert 17 * 8 < before < 32 * 8
    found = label(TASK, objects, TINY, Execution(store=tmp_path, progress=told.append))
    assert before <= sum(counted) <= 32 * 8 + 2 * PROBES
    assert (told[-1].done, told[-1].total) == (32 * 8, 32 * 8)
    assert np.array_equal(found.failures, label(TASK, objects, TINY).failures)


def test_a_part_may_hold_a_single_object(monkeypatch: pytest.MonkeyPatch):
    """As the last of 257 objects."""
    monkeypatch.setattr(grasping, "PART", 16)
    objects = TASK.environments(17, stream="train")
    assert label(TASK, objects, TINY).failures.shape == (17, 8)


# ---- priors -------------------------------------------------------------------------------------


def test_the_prior_from_elsewhere_is_the_one_that_came_with_the_extractor():
    prior = prior_named(GraspNetwork(Compact()), "elsewhere")
    gaussian, origin = Compact().prior()
    assert prior.distribution.to_bytes() == gaussian.to_bytes()
    assert prior.origin == origin
    assert "other objects" in prior.origin


def test_the_papers_prior_is_around_random_means_near_0():
    network = GraspNetwork(Compact(), head="paper")
    prior = prior_named(network, "paper", seed=2)
    assert len(prior.distribution) == network.parameters
    assert np.array_equal(prior.distribution.variance, np.full(network.parameters, 0.01))
    assert 0.0008 < prior.distribution.mean.std() < 0.0012
    assert prior.origin == "the paper's, around random means near 0"
    same, other = (prior_named(network, "paper", seed).distribution for seed in (2, 3))
    assert np.array_equal(same.mean, prior.distribution.mean)
    assert not np.array_equal(other.mean, prior.distribution.mean)


def test_a_prior_from_elsewhere_is_refused_for_other_eyes(tmp_path: Path):
    network = GraspNetwork(Vgg16(tmp_path / "vgg16.pth"))
    match = r"^the prior 'elsewhere' was learnt with the compact extractor: with vgg16, choose the"
    with pytest.raises(ValueError, match=match):
        prior_named(network, "elsewhere")


@pytest.mark.parametrize(
    "network",
    [GraspNetwork(Compact(), head="paper"), GraspNetwork(Compact(), (32, 32))],
    ids=["head", "sizes"],
)
def test_a_prior_from_elsewhere_is_refused_for_other_layers(network: GraspNetwork):
    match = rf"has 10468 parameters and the network {network.parameters}: for other layers"
    with pytest.raises(ValueError, match=match):
        prior_named(network, "elsewhere")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prior": "eslewhere"}, "no prior 'eslewhere': choose elsewhere, paper, or give a file"),
        ({"prior": "mine.safetensors"}, r"a \.json file; weights are given as such \(--weights\)"),
        ({"delta": 0.001, "sampling_delta": 0.001}, "overspends"),
        ({"delta": 2.0}, "delta"),
        ({"method": "occam"}, "method 'occam' is unknown for a Gaussian posterior"),
        ({"objective": "robust-pinsker"}, r"robust-pinsker averages e\^C: use evolution or diff"),
        ({"objective": "guess"}, "objective = 'guess' must be kl | kl-maurer"),
        ({"prior_steps": 5}, "prior_steps is for priors that are learnt on the spot"),
        ({"prior_steps": 5, "prior": "paper"}, "prior_steps is for priors that are learnt on the"),
        ({"share": 0.5}, "share is for prior = split"),
        ({"candidates": 2}, "candidates is for certify = one"),
        ({"names": ("a", "b")}, "names is for a list of policies"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
@pytest.mark.usefixtures("no_labels")
def test_a_plan_that_cannot_be_followed_is_refused_before_labels(
    wrong: dict[str, Any], message: str
):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        learn_on(
            TASK, TASK.environments(2, stream="train"), Plan("grasping", search=SHORT, **wrong)
        )


@pytest.mark.usefixtures("no_labels")
def test_a_prior_in_a_file_is_json_and_as_long_as_the_network(tmp_path: Path):
    objects = TASK.environments(2, stream="train")
    (tmp_path / "short.json").write_text(
        '{"kind": "diagonal gaussian", "mean": [0.0], "variance": [1.0], "seen": []}'
    )
    for file, message in (
        (Compact().file, r"a \.json file; weights are given as such \(--weights\)"),
        (tmp_path / "short.json", "has 1 parameters: the policies of grasping need 10468"),
    ):
        with pytest.raises(ValueError, match=message):
            learn_on(TASK, objects, replace(PLAN, prior=str(file)))


# ---- learning -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_learnt_verifies_and_says_where_it_is_from(
    run: Run[DiagonalGaussian], tmp_path: Path
):
    record = run.certificate
    assert (record.draws, record.environments, record.parameters) == (3, N, 10468)
    assert record.prior is not None
    assert record.prior.startswith("learnt on 4,096 other objects")
    assert record.budget == pytest.approx({"sampling": 0.001, "kl": 0.009})
    assert 0 < record.bound < 1
    verified = pbc.verify(run.save(tmp_path / "run"))
    assert verified.certificate.bound == record.bound


@pytest.mark.slow
def test_a_certificate_is_made_of_grasps_that_are_simulated_for_it(
    task: Grasping, run: Run[DiagonalGaussian], grasps: Iterator[list[int]]
):
    counted = next(grasps)
    again = learnt(task)
    assert sum(counted) == N * 3  # the search looks at labels, and the certificate at none
    assert np.array_equal(again.costs.values, run.costs.values)
    fresh = certifying_draws(TASK, run.posterior, task.environments(N, stream="train"), Draws(3))
    assert np.array_equal(fresh.values, run.costs.values)
    assert fresh.digests == run.costs.digests


@pytest.mark.slow
def test_labels_that_lie_do_not_lower_a_certificate(labels: Labels):
    """They say that all grasps lift; the grasps of the certificate say what they came to."""
    liars = Labels(labels.environments, np.zeros_like(labels.failures), GRID)
    lied = learnt(replace(TASK, labels=liars))
    fresh = certifying_draws(TASK, lied.posterior, labels.environments, Draws(3))
    assert np.array_equal(lied.costs.values, fresh.values)
    assert lied.certificate.empirical_cost == pytest.approx(fresh.values.mean())
    assert fresh.values.mean() > 0


@pytest.mark.slow
def test_the_prior_has_seen_other_objects_and_the_posterior_these_too(
    run: Run[DiagonalGaussian], labels: Labels
):
    train = labels.environments.range
    assert isinstance(run.prior, DiagonalGaussian)
    assert run.prior.seen == Compact().seen
    assert not any(part.overlaps(train) for part in run.prior.seen)
    assert set(run.posterior.seen) == {*Compact().seen, train}


@pytest.mark.parametrize("prior", ["elsewhere", "paper"])
def test_objects_that_the_prior_or_its_eyes_have_seen_are_refused(
    prior: str, labels: Labels, grasps: Iterator[list[int]]
):
    elsewhere = TASK.environments(N, stream="elsewhere")
    clashing = replace(TASK, labels=Labels(elsewhere, labels.failures, GRID))
    with pytest.raises(ValueError, match=r"has seen some of these environments \(stream 'elsewh"):
        learnt(clashing, replace(PLAN, prior=prior))
    with pytest.raises(ValueError, match=r"has seen some of these environments \(stream 'elsewh"):
        learn_gaussian(clashing, elsewhere, prior_named(clashing.trainable()[0], prior), PLAN)
    assert next(grasps) == []


@pytest.mark.slow
def test_learning_is_the_same_to_the_bit_on_several_workers(
    task: Grasping, run: Run[DiagonalGaussian], tmp_path: Path
):
    other = learnt(task, execution=Execution(workers=2))
    folders = [one.save(tmp_path / name) for one, name in ((run, "one"), (other, "other"))]
    for name in ("certificate.json", "posterior.json", "prior.json", "costs.npy"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_where_it_was(
    task: Grasping,
    run: Run[DiagonalGaussian],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 1)
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", np.inf)
    steps: list[int] = []
    store = tmp_path / "checkpoint"

    def watch(now: Progress) -> None:
        if now.title == "learning the posterior":
            assert now.total == 3 * 2 * 16
            steps.append(now.done)

    def stop(now: Progress) -> None:
        watch(now)
        if now.done == 2 * 2 * 16:
            raise Stopped

    with pytest.raises(Stopped):
        learnt(task, execution=Execution(store=store, progress=stop))
    assert steps == [0, 32, 64]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.search"}
    found = learnt(task, execution=Execution(store=store, progress=watch))
    assert steps == [0, 32, 64, 64, 96]  # it says first how far it was
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.search", "checkpoint.draws-3"}
    assert found.posterior.to_bytes() == run.posterior.to_bytes()
    assert found.certificate == run.certificate


@pytest.mark.slow
def test_the_papers_way_learns_and_verifies_too(
    labels: Labels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain_kl(monkeypatch)
    paper = Grasping(
        GraspNetwork(Compact(), head="paper"), surrogate_cost=Surrogate("distance"), labels=labels
    )
    run = learnt(paper, replace(PLAN, prior="paper"))
    assert run.certificate.prior == "the paper's, around random means near 0"
    pbc.verify(run.save(tmp_path / "run"))


def test_what_has_no_labels_or_no_layers_is_refused():
    objects = TASK.environments(2, stream="train")
    prior = prior_named(GraspNetwork(Compact()), "elsewhere")
    for blind, message in (
        (TASK, "a network is trained on labelled objects"),
        (Grasping(), "there is nothing to train"),
    ):
        with pytest.raises(ValueError, match=message):
            learn_gaussian(blind, objects, prior, PLAN)
        with pytest.raises(ValueError, match=message):
            baseline(blind, prior.distribution, SHORT)
    with pytest.raises(ValueError, match="there is nothing to train"):
        learn_on(Grasping(), objects, PLAN)


def test_objects_without_labels_are_labelled_once_for_the_search_and_kept(
    labels: Labels, monkeypatch: pytest.MonkeyPatch, cache: Path
):
    asked: list[tuple[Any, ...]] = []

    def label(*arguments: Any) -> Labels:
        asked.append(arguments)
        return labels

    monkeypatch.setattr(grasping, "label", label)
    ready = TASK.prepared(labels.environments, Execution(workers=2, retries=1))
    assert ready == TASK.with_labels(labels)
    assert ready.prepared(labels.environments, Execution()) is ready
    [(task, objects, grid, execution)] = asked
    assert (task, objects, grid) == (TASK, labels.environments, Grid())
    assert (execution.workers, execution.retries, execution.title) == (2, 1, "labelling grasps")
    assert execution.store == cache / "pacbayes-control" / "grasping"


@pytest.mark.slow
@pytest.mark.usefixtures("no_labels")
def test_one_policy_from_the_prior_is_certified_without_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain_kl(monkeypatch)
    plan = Plan("grasping", certify="one", candidates=2)
    run = learn_on(TASK, TASK.environments(N, stream="train"), plan)
    assert run.costs.values.shape == (N, 2)
    pbc.verify(run.save(tmp_path / "run"))


# ---- the baseline -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "kind"), [("elsewhere", "table"), ("paper", "table"), ("paper", "distance")]
)
def test_the_baseline_is_one_policy_with_a_lower_surrogate(
    task: Grasping, prior: str, kind: Literal["table", "distance"]
):
    task = replace(task, surrogate_cost=Surrogate(kind))
    search = replace(SHORT, steps=40, step_size=0.05)
    network, labels = task.trainable()
    start = prior_named(network, prior).distribution
    plain = baseline(task, start, search)
    assert plain.shape == (network.parameters,)
    assert np.array_equal(baseline(task, start, search), plain)
    before, after = task.gradients(np.stack([start.mean, plain]), labels.environments)[0]
    assert after < before - 0.005
    assert task.costs(plain[None], labels.environments[:2]).shape == (2, 1)
