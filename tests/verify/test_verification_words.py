"""Words that the files of a run contradict are refused; what no file can prove is listed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint

from origins import certifying
from pacbayes_control.certify.certificate import Budget, Constraint, HeldOutEstimate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import hash_file, json_bytes, seal, sha256
from pacbayes_control.certify.issuing import Basis, Provenance, issue_sampled
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.text import quoted
from pacbayes_control.learn import learn_constrained, learn_finite
from pacbayes_control.learn.gaussian import split_budget
from pacbayes_control.rollouts import Draws, certifying_draws
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.verify import InvalidCertificate, verify

TRAIN: dict[str, object] = {"task": "test", "stream": "train", "seed": 0, "start": 0, "stop": 200}


def check_refused(run: Run[Any], folder: Path, message: str) -> None:
    with pytest.raises(InvalidCertificate, match=message):
        verify(run.save(folder))


def restated(run: Run[Any], **changes: Any) -> Run[Any]:
    """The same run, whose certificate says something else; its sentence follows."""
    return dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, **changes))


def with_prior(run: Run[Any], other: Categorical, **changes: Any) -> Run[Any]:
    hashes = {**run.certificate.hashes, "prior": sha256(other.to_bytes())}
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
    c = verify(learn_finite(drawn, method="kl").save(tmp_path / "run")).certificate
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
        ({"set_aside": 7}, "7 environments are stated as set aside"),
        ({"objective": "magic"}, "the objective “magic” is not one of kl"),
        ({"objective": "occam"}, "the objective “occam” is not one of kl"),
        ({"versions": {"mujoco": "3.4"}}, "wrong about versions"),
        ({"prior": "uniform over the rest"}, "is called “uniform over the rest”, and it is not"),
    ],
)
def test_words_that_the_origin_contradicts_are_refused(
    drawn: Costs, tmp_path: Path, change: dict[str, Any], message: str
):
    check_refused(restated(learn_finite(drawn, method="kl"), **change), tmp_path / "run", message)


@pytest.fixture
def limited(drawn: Costs) -> Costs:
    """The same, of which two rollouts took too long."""
    late = [divmod(int(at), 6) for at in np.flatnonzero(drawn.values)[:2]]
    more = {"rollout_timeout": 30.0, "timed_out": late, "incidents": {"timeouts": 2}}
    return Costs(drawn.values, origin={**drawn.origin, **more})


def test_a_time_limit_is_part_of_what_a_rollout_costs(limited: Costs, tmp_path: Path):
    verification = verify(learn_finite(limited, method="kl").save(tmp_path / "run"))
    c = verification.certificate
    assert c.cost_rule == "1 for a collision, 1 where it takes longer than 30 s"
    late = "2 rollouts count as failures since they took longer than the time limit"
    assert c.sentence.endswith(f"; {late}.")
    assert f"how the rollouts went: {late}" in verification.told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost_rule": "1 for a collision"}, "wrong about the cost_rule"),
        ({"incidents": {}}, "wrong about incidents"),
        ({"incidents": {"timeouts": 1}}, "wrong about incidents"),
    ],
)
def test_a_time_limit_that_the_certificate_hides_is_refused(
    limited: Costs, tmp_path: Path, change: dict[str, Any], message: str
):
    check_refused(restated(learn_finite(limited, method="kl"), **change), tmp_path / "run", message)


def test_a_timeout_that_did_not_cost_1_is_refused(limited: Costs, tmp_path: Path):
    run = learn_finite(limited, method="kl")
    row, column = np.argwhere(limited.values == 0)[0].tolist()
    _, other = sorted(limited.timed_out)
    moved = limited.with_origin(timed_out=[[row, column], other])
    forged = dataclasses.replace(run, costs=Costs(limited.values, origin=moved.origin))
    check_refused(forged, tmp_path / "run", "timed out, and its cost is 0: it must be 1")


def test_a_point_mass_is_not_uniform(binary_costs: Costs, tmp_path: Path):
    prior = Categorical([0, 0, 1, 0, 0, 0])
    run = learn_finite(binary_costs, prior=prior, method="kl")
    verify(run.save(tmp_path / "honest"))
    for words in ("uniform over the policies that differ", "uniform over all policies"):
        check_refused(restated(run, prior=words), tmp_path / words[:16], "and it is not")


def test_uniform_over_the_policies_that_differ_needs_their_parameters(
    binary_costs: Costs, tmp_path: Path
):
    parameters = np.array([[0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    known = Costs(binary_costs.values, parameters=parameters)
    verify(learn_finite(known, method="kl").save(tmp_path / "honest"))
    prior = Categorical.uniform_over_distinct(parameters)
    unknown = learn_finite(binary_costs, prior=prior, method="kl")
    words = "uniform over the policies that differ"
    check_refused(restated(unknown, prior=words), tmp_path / "run", "and it is not")


def test_rows_that_were_dropped_are_missed(drawn: Costs, tmp_path: Path):
    fewer = Costs(drawn.values[:-10], origin=drawn.origin)
    check_refused(learn_finite(fewer, method="kl"), tmp_path / "drawn", "origin names 200")
    table = Costs(drawn.values[:-10], origin={"file": "a.csv", "sha256": "0" * 64, "rows": 200})
    check_refused(learn_finite(table, method="kl"), tmp_path / "table", "another number of rows")


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
    first = learn_finite(drawn, method="kl")
    uniform = learn_finite(Costs(drawn.values), method="kl")
    for number, run in enumerate((first, uniform)):
        posterior = learn_finite(run.costs, method="kl").posterior
        kl = run.posterior.kl(posterior)
        forged = with_prior(run, posterior, prior="given in advance", kl=kl)
        check_refused(
            forged,
            tmp_path / str(number),
            r"depends on environments that the bound counts|was learnt from",
        )
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
        certificate = issue_sampled(Basis(costs, gaussian, gaussian, budget, provenance), "kl")
        return Run(certificate, costs, gaussian, gaussian)

    honest = sampled(certifying(gaussian))
    verify(honest.save(tmp_path / "honest"))
    wrong: list[dict[str, object]] = [{}, {"policies": {"stream": "sample"}}, {"policies": 7}]
    wrong.append(certifying(gaussian, "sample"))
    for number, origin in enumerate(wrong):
        with pytest.raises(ValueError, match="only draws from the stream 'certify'"):
            sampled(origin)
        costs = Costs(values, origin=origin, draws="fresh")
        forged = dataclasses.replace(honest, costs=costs)
        check_refused(forged, tmp_path / str(number), "not from the one that is used")


def test_what_a_part_of_every_policy_has_seen_is_not_counted(drawn: Costs, tmp_path: Path):
    honest = learn_finite(drawn, method="kl")
    for number, seen in enumerate(
        (EnvironmentRange("train", 0, 199, 300), EnvironmentRange("train", 0, 0, 1))
    ):
        origin = {**drawn.origin, "data_used": [list(seen)]}
        costs = Costs(drawn.values, origin=origin)
        with pytest.raises(ValueError, match="a part of every policy was learnt from some"):
            learn_finite(costs, method="kl")
        forged = dataclasses.replace(honest, costs=costs)
        check_refused(forged, tmp_path / str(number), "depends on environments that")
    others = {**drawn.origin, "data_used": [["train", 0, 200, 260], ["elsewhere", 0, 0, 9]]}
    run = learn_finite(Costs(drawn.values, origin=others), method="kl")
    assert verify(run.save(tmp_path / "others")).certificate.set_aside == 60
    assert run.posterior.seen == (
        EnvironmentRange("elsewhere", 0, 0, 9),
        EnvironmentRange("train", 0, 0, 260),
    )
    unknown = Costs(drawn.values, origin={"data_used": [["elsewhere", 0, 0, 9]]})
    with pytest.raises(ValueError, match="the costs do not record theirs"):
        learn_finite(unknown, method="kl")


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
    bare = verify(learn_finite(Costs(drawn.values), method="kl").save(tmp_path / "bare")).told
    assert not any("prior came from" in words or "estimate" in words for words in bare)


def test_draws_of_another_posterior_are_refused(tmp_path: Path):
    task = FunctionTask(
        lambda policy, environment: float(abs(policy[0] - environment["goal"]) > 1),
        lambda rng: {"goal": rng.random()},
        "reach",
        2,
    )
    train = task.environments(40, stream="train")
    prior, good = DiagonalGaussian([0.0, 0.0], 1.0), DiagonalGaussian([0.1, 0.1], 0.01)
    costs = certifying_draws(task, good, train, Draws(5))
    budget = split_budget(0.05, "kl")
    with pytest.raises(ValueError, match="not drawn from the posterior that is to be certified"):
        issue_sampled(Basis(costs, prior, prior, budget, Provenance("kl")), "kl")
    told = good.with_data_used(train.range)
    certificate = issue_sampled(Basis(costs, prior, told, budget, Provenance("kl")), "kl")
    verify(Run(certificate, costs, prior, told).save(tmp_path / "honest"))
    silent = Run(
        issue_sampled(Basis(costs, prior, good, budget, Provenance("kl")), "kl"), costs, prior, good
    )
    check_refused(silent, tmp_path / "silent", "does not say that it was learnt from these")


def test_a_finite_posterior_that_hides_what_it_saw_is_refused(
    binary_costs: Costs, drawn: Costs, tmp_path: Path
):
    for number, costs in enumerate((binary_costs, drawn)):
        run = learn_finite(costs, method="kl")
        hiding = Categorical(run.posterior.probabilities)
        hashes = {**run.certificate.hashes, "posterior": sha256(hiding.to_bytes())}
        forged = dataclasses.replace(restated(run, hashes=hashes), posterior=hiding)
        check_refused(forged, tmp_path / str(number), "does not say that it was learnt from these")


def test_an_estimate_on_the_training_set_is_refused(drawn: Costs, tmp_path: Path):
    run = learn_finite(drawn, method="kl")
    honest = restated(run, test_estimate=HeldOutEstimate(0.1, 500, "test", 0))
    verify(honest.save(tmp_path / "honest"))
    same = restated(run, test_estimate=HeldOutEstimate(0.1, 500, "train", 0))
    check_refused(same, tmp_path / "same", "environments that were seen in training")
    for estimate in (HeldOutEstimate(0.1, -5, "test", 0), HeldOutEstimate(0.1, 5, "test", -3)):
        with pytest.raises(ValueError, match="bad test_estimate: a cost in"):
            verify(restated(run, test_estimate=estimate).save(tmp_path / "bad", overwrite=True))


def test_limits_that_are_no_numbers_are_refused_in_a_line(binary_costs: Costs, tmp_path: Path):
    run = learn_constrained(binary_costs, constraints=[LinearConstraint([0, 1, 0, 1, 0, 0], 0.2)])
    (held,) = run.certificate.constraints
    assert isinstance(held, Constraint)
    for number, change in enumerate(
        ({"weights": {"1": None}}, {"weights": {"x": 1.0}}, {"weights": 7}, {"lower": "a"})
    ):
        broken = dataclasses.replace(held, **change)  # type: ignore[arg-type]
        folder = restated(run, constraints=(broken,)).save(tmp_path / str(number))
        with pytest.raises(ValueError, match=r"certificate\.json is not a certificate"):
            verify(folder)


def test_environments_that_cannot_be_are_refused(binary_costs: Costs, tmp_path: Path):
    origin = TRAIN | {"start": 10**30, "stop": 10**30 + 200}
    run = learn_finite(Costs(binary_costs.values, origin=origin), method="kl")
    check_refused(run, tmp_path / "r", "names an impossible range of environments")


@pytest.mark.slow
def test_words_of_an_earlier_format_are_compared_and_shown_in_quotes(
    binary_costs: Costs, tmp_path: Path
):
    costs = Costs(binary_costs.values, [FORGERY, *"bcdef"])
    run = learn_finite(costs, method="occam", prior=Categorical([1, 0, 0, 0, 0, 0]))
    earlier = restated(run, format=3)
    verification = verify(earlier.save(tmp_path / "run"))
    assert FORGERY in earlier.certificate.to_dict()["sentence"]
    assert FORGERY not in str(verification)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["format"] == 2
    mixed = run.save(tmp_path / "mixed")
    shutil.copy(tmp_path / "run" / "certificate.json", mixed / "certificate.json")
    new = json.loads((mixed / "manifest.json").read_text())
    new["files"]["certificate.json"] = hash_file(mixed / "certificate.json")
    (mixed / "manifest.json").write_bytes(json_bytes(new | {"seal": seal(new)}))
    with pytest.raises(AlteredRun, match="of another version than"):
        verify(mixed)


@pytest.mark.parametrize("quote", ["”", "❞", "＂", "»", "„", "″", '"', "‟"])
def test_no_mark_that_looks_like_a_quote_stays_in_a_name(quote: str):
    assert quoted(f"slow{quote} fails")[1:-1] == "slow' fails"


def test_a_name_takes_sixty_characters_of_a_sentence_at_most():
    assert quoted("n" * 60) == f"“{'n' * 60}”"
    assert quoted("n" * 61) == f"“{'n' * 59}…”"


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
