"""Words that the files of a run contradict are refused; what no file can prove is listed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint

from origins import CERTIFYING
from pacbayes_control.certificate import Budget, Constraint, HeldOutEstimate
from pacbayes_control.costs import Costs
from pacbayes_control.distributions import Categorical, DiagonalGaussian, Seen
from pacbayes_control.issuing import Provenance, issue_sampled
from pacbayes_control.learn import learn_constrained, learn_finite
from pacbayes_control.run import Run
from pacbayes_control.verification import InvalidCertificate, verify

TRAIN: dict[str, object] = {"task": "test", "stream": "train", "seed": 0, "start": 0, "stop": 200}


def check_refused(run: Run[Any], folder: Path, message: str) -> None:
    with pytest.raises(InvalidCertificate, match=message):
        verify(run.save(folder))


def restated(run: Run[Any], **changes: Any) -> Run[Any]:
    """The same run, whose certificate says something else; its sentence follows."""
    return dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, **changes))


def with_prior(run: Run[Any], other: Categorical, **changes: Any) -> Run[Any]:
    hashes = {**run.certificate.hashes, "prior": other.digest}
    return dataclasses.replace(restated(run, hashes=hashes, **changes), prior=other)


@pytest.fixture
def drawn(binary_costs: Costs) -> Costs:
    """Costs that were rolled out on a stream, with everything that an origin tells."""
    origin = TRAIN | {
        "cost_rule": "1 for a collision",
        "distribution": "twenty cylinders",
        "versions": {"mujoco": "3.3"},
        "incidents": {"retries": 2},
    }
    return Costs(binary_costs.values, origin=origin)


def test_a_certificate_says_what_it_certifies(drawn: Costs, tmp_path: Path):
    c = verify(learn_finite(drawn).save(tmp_path / "run")).certificate
    assert (c.cost_rule, c.distribution) == ("1 for a collision", "twenty cylinders")
    assert c.versions["mujoco"] == "3.3"
    assert dict(c.incidents) == {"retries": 2}
    assert c.sentence.endswith("; 2 rollouts count that had failed before they were run again.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"incidents": {}}, "wrong about incidents"),
        ({"incidents": {"retries": 1}}, "wrong about incidents"),
        ({"cost_rule": "1 for a fall"}, "wrong about the cost_rule"),
        ({"cost_rule": None}, "wrong about the cost_rule"),
        ({"distribution": "all of the world"}, "wrong about the distribution"),
        ({"set_aside": 7}, "7 environments are said to be set aside"),
        ({"objective": "magic"}, "the objective “magic” is not one of kl"),
        ({"objective": "occam"}, "the objective “occam” is not one of kl"),
        ({"versions": {"mujoco": "3.4"}}, "wrong about versions"),
        ({"prior": "uniform over the rest"}, "is called “uniform over the rest”, and it is not"),
    ],
)
def test_words_that_the_origin_contradicts_are_refused(
    drawn: Costs, tmp_path: Path, change: dict[str, Any], message: str
):
    check_refused(restated(learn_finite(drawn), **change), tmp_path / "run", message)


def test_a_point_mass_is_not_uniform(binary_costs: Costs, tmp_path: Path):
    prior = Categorical([0, 0, 1, 0, 0, 0])
    run = learn_finite(binary_costs, prior=prior)
    verify(run.save(tmp_path / "honest"))
    for words in ("uniform over the policies that differ", "uniform over all policies"):
        check_refused(restated(run, prior=words), tmp_path / words[:16], "and it is not")


def test_uniform_over_the_policies_that_differ_needs_their_parameters(
    binary_costs: Costs, tmp_path: Path
):
    parameters = np.array([[0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    known = Costs(binary_costs.values, parameters=parameters)
    verify(learn_finite(known).save(tmp_path / "honest"))
    prior = Categorical.uniform_over_distinct(parameters)
    unknown = learn_finite(binary_costs, prior=prior)
    words = "uniform over the policies that differ"
    check_refused(restated(unknown, prior=words), tmp_path / "run", "and it is not")


def test_rows_that_were_dropped_are_missed(drawn: Costs, tmp_path: Path):
    fewer = Costs(drawn.values[:-10], origin=drawn.origin)
    check_refused(learn_finite(fewer), tmp_path / "drawn", "origin names 200")
    table = Costs(drawn.values[:-10], origin={"file": "a.csv", "sha256": "0" * 64, "rows": 200})
    check_refused(learn_finite(table), tmp_path / "table", "another number of rows")


def test_constraints_are_checked_against_the_posterior(binary_costs: Costs, tmp_path: Path):
    costs = Costs(binary_costs.values, names=list("abcdef"))
    run = learn_constrained(costs, constraints=[LinearConstraint([0, 1, 0, 1, 0, 0], 0.2)])
    (held,) = verify(run.save(tmp_path / "honest")).certificate.constraints
    assert str(held) == "at least 0.2 on “b”, “d”"
    broken = Constraint.of({1: 1.0, 3: 1.0}, 0.9, None, name_of=costs.name)
    check_refused(restated(run, constraints=(broken,)), tmp_path / "broken", "breaks the const")
    assert isinstance(held, Constraint)
    reworded = dataclasses.replace(held, words="at least 0.9 on “b”, “d”")
    check_refused(restated(run, constraints=(reworded,)), tmp_path / "words", "not those of its")
    absent = Constraint.of({6: 1.0}, 0.0, None, name_of=str)
    check_refused(restated(run, constraints=(absent,)), tmp_path / "absent", "do not exist")


def test_a_finite_prior_that_has_seen_these_costs_is_refused(drawn: Costs, tmp_path: Path):
    first = learn_finite(drawn)
    uniform = learn_finite(Costs(drawn.values))
    for number, run in enumerate((first, uniform)):
        posterior = learn_finite(run.costs).posterior
        kl = run.posterior.kl(posterior)
        forged = with_prior(run, posterior, prior="given in advance", kl=kl)
        check_refused(forged, tmp_path / str(number), r"has seen|was learnt from")
    silent = Categorical(first.prior.probabilities, seen=None)
    check_refused(with_prior(first, silent), tmp_path / "silent", "does not say which")


def test_draws_from_another_stream_than_the_one_kept_are_refused(tmp_path: Path):
    gaussian = DiagonalGaussian([0.0, 0.0], 1.0)
    values = np.random.default_rng(0).random((50, 4)) < 0.1
    budget = Budget(0.05)
    budget.spend("sampling", 0.01)
    budget.spend("kl")

    def sampled(origin: dict[str, object]) -> Run[DiagonalGaussian]:
        costs = Costs(values, origin=origin, draws="fresh")
        provenance = Provenance("kl")
        certificate = issue_sampled(costs, gaussian, gaussian, "kl", budget, provenance)
        return Run(certificate, costs, gaussian, gaussian)

    honest = sampled(CERTIFYING)
    verify(honest.save(tmp_path / "honest"))
    wrong: list[dict[str, object]] = [{}, {"policies": {"stream": "sample"}}, {"policies": 7}]
    for number, origin in enumerate(wrong):
        with pytest.raises(ValueError, match="from the stream 'certify' alone"):
            sampled(origin)
        costs = Costs(values, origin=origin, draws="fresh")
        forged = dataclasses.replace(honest, costs=costs)
        check_refused(forged, tmp_path / str(number), "not from the one that is kept")


def test_what_a_part_of_every_policy_has_seen_is_not_counted(drawn: Costs, tmp_path: Path):
    honest = learn_finite(drawn)
    for number, seen in enumerate((Seen("train", 0, 199, 300), Seen("train", 0, 0, 1))):
        origin = {**drawn.origin, "data_used": [list(seen)]}
        costs = Costs(drawn.values, origin=origin)
        with pytest.raises(ValueError, match="a part of every policy was learnt from some"):
            learn_finite(costs)
        forged = dataclasses.replace(honest, costs=costs)
        check_refused(forged, tmp_path / str(number), "has seen environments")
    others = {**drawn.origin, "data_used": [["train", 0, 200, 260], ["elsewhere", 0, 0, 9]]}
    run = learn_finite(Costs(drawn.values, origin=others))
    assert verify(run.save(tmp_path / "others")).certificate.set_aside == 60
    assert run.posterior.seen == (Seen("elsewhere", 0, 0, 9), Seen("train", 0, 0, 260))
    unknown = Costs(drawn.values, origin={"data_used": [["elsewhere", 0, 0, 9]]})
    with pytest.raises(ValueError, match="the costs do not tell theirs"):
        learn_finite(unknown)


def test_what_can_only_be_believed_is_listed(drawn: Costs, tmp_path: Path):
    prior = Categorical([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    run = learn_finite(drawn, objective="pinsker", prior=prior, origin="a guess” that holds. “")
    run = restated(run, test_estimate=HeldOutEstimate(0.1, 1000, "test", 0))
    told = "\n".join(verify(run.save(tmp_path / "run")).told)
    for words in (
        "what a rollout costs: “1 for a collision”",
        "how environments are drawn: “twenty cylinders”",
        "where the prior came from: “a guess' that holds. '”",
        "chosen to minimise “pinsker”",
        "2 rollouts count",
        "the estimate on unseen environments",
        "the date",
    ):
        assert words in told
    bare = verify(learn_finite(Costs(drawn.values)).save(tmp_path / "bare")).told
    assert not any("prior came from" in words or "estimate" in words for words in bare)


FORGERY = "a” fails in at most 0.01 % of new environments drawn like the 9 it was tested on. “b"


def test_no_name_and_no_noise_can_leave_its_quotes(binary_costs: Costs):
    origin = {"noise": {"stream": "s", "seed": 0, "of": FORGERY + FORGERY}}
    costs = Costs(binary_costs.values, [FORGERY, *"bcdef"], origin)
    for method in ("occam", "kl"):
        prior = Categorical([1, 0, 0, 0, 0, 0])
        sentence = learn_finite(costs, method=method, prior=prior).certificate.sentence
        inside = sentence.split("“")[1:]
        assert all(part.count("”") == 1 for part in inside)
        outside = sentence.split("“")[0] + "".join(part.split("”")[1] for part in inside)
        assert "0.01 %" not in outside
        assert len(sentence) < 500
