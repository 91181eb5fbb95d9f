from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from origins import certifying
from pacbayes_control.bounds import log_xi
from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import json_bytes, seal
from pacbayes_control.certify.issuing import Basis, Provenance, issue_sampled, issue_single_draw
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_best, learn_constrained, learn_finite
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.intervals import binomial_tail, log_factorial, xi
from sizes import sized

METHODS = ["kl", "kl-maurer", "pinsker", "occam"]


@pytest.mark.parametrize("method", METHODS)
def test_honest_runs_are_verified(
    tmp_path: Path, method: str, binary_costs: Costs, graded_costs: Costs
):
    for i, costs in enumerate((binary_costs, graded_costs)):
        folder = learn_finite(costs, 0.03, method=method).save(tmp_path / str(i))
        verification = verify(folder)
        assert verification.recomputed <= verification.certificate.bound
        assert verification.certificate.bound - verification.recomputed < 1e-9
        assert verification.certificate.sentence in str(verification)


@pytest.mark.slow
def test_many_random_runs_are_verified_at_the_last_digit(tmp_path: Path):
    # The fast path must never be below the 50-digit one: rounding is always upwards.
    rng = np.random.default_rng(0)
    for i in range(sized(20, full=40)):
        n, policies = int(rng.integers(2, 400)), int(rng.integers(1, 30))
        values = rng.random((n, policies)) ** rng.integers(1, 6)
        costs = Costs(values < rng.random() if i % 2 else values)
        prior = Categorical(rng.dirichlet(np.full(policies, 0.7)))
        method = METHODS[i % 4]
        run = learn_finite(costs, float(10 ** rng.uniform(-9, -0.5)), method=method, prior=prior)
        verify(run.save(tmp_path / str(i)))


@pytest.mark.slow
def test_runs_from_solvers_and_union_bounds_are_verified(tmp_path: Path, binary_costs: Costs):
    verify(learn_constrained(binary_costs).save(tmp_path / "solver"))
    verify(learn_best(binary_costs, 0.02).save(tmp_path / "best"))


HALF_ON_1 = {
    "weights": {"1": 1.0},
    "lower": 0.5,
    "upper": None,
    "words": "at least 0.5 on “policy 1”",
}


def forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the certificate, and every hash with it, as a careful forger would."""
    path = folder / "certificate.json"
    record = json.loads(path.read_text())
    change(record)
    certificate = Certificate.from_dict(record)
    path.write_bytes(json_bytes({**record, "sentence": certificate.sentence}))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["certificate.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


@pytest.mark.parametrize("method", METHODS)
def test_a_bound_lowered_by_a_hair_is_refused_even_with_all_hashes_redone(
    tmp_path: Path, method: str, binary_costs: Costs
):
    folder = learn_finite(binary_costs, method=method).save(tmp_path / "run")
    forge(folder, lambda record: record.update(bound=record["bound"] - 1e-8))
    with pytest.raises(InvalidCertificate, match="is below what"):
        verify(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"empirical_cost": 0.01}, "empirical_cost is stated as 0.01"),
        ({"kl": 0.5}, "kl is stated as 0.5"),
        ({"environments": 201}, "another number of environments"),
        ({"policies": 7}, "another number of environments, policies, parameters or draws"),
        ({"policies": None}, "another number of environments, policies, parameters or draws"),
        ({"parameters": 6}, "another number of environments, policies, parameters or draws"),
        ({"draws": 6}, "another number of environments, policies, parameters or draws"),
        ({"shared_draws": True}, "another number of environments, policies, parameters or draws"),
        ({"training_cost_bound": 0.1}, "belongs to sampled policies only"),
        ({"method": "single-draw"}, "cannot certify a posterior of this kind"),
        ({"noise": "wind"}, "wrong about the noise"),
        ({"set_aside": -1}, "are stated as set aside"),
        ({"delta": 0.001}, "overspends"),
        ({"budget": {"kl": 0.02}}, "overspends"),
        ({"budget": {"kl": -0.02}}, "overspends"),
        ({"budget": {}}, "overspends"),
        ({"budget": {"other": 0.01}}, "no share for kl"),
        ({"method": "magic"}, "unknown"),
        ({"method": "occam", "budget": {"occam": 0.01}}, "cannot certify"),
        ({"policy": 2}, "cannot certify"),
        ({"binary": False}, "whether all costs"),
        ({"bound": -0.1}, r"outside \[0, 1\]"),
        ({"bound": 1.1}, r"outside \[0, 1\]"),
        ({"hashes": {}}, "about other costs"),
        ({"constraints": [HALF_ON_1], "bound": 0.01}, "breaks the constraint"),
        ({"constraints": [], "bound": 0.01}, "is below what"),
    ],
)
def test_a_forged_certificate_is_refused(
    tmp_path: Path, binary_costs: Costs, change: dict, message: str
):
    folder = learn_finite(binary_costs, method="kl").save(tmp_path / "run")
    forge(folder, lambda record: record.update(change))
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


def test_a_sentence_that_promises_more_is_refused(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs, method="kl").save(tmp_path / "run")
    path = folder / "certificate.json"
    record = json.loads(path.read_text())
    path.write_bytes(json_bytes({**record, "sentence": "It never fails."}))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["certificate.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(InvalidCertificate, match="sentence"):
        verify(folder)


def reseal(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest, and its seal with it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


def test_policies_cannot_change_their_names_or_parameters(tmp_path: Path, binary_costs: Costs):
    costs = Costs(binary_costs.values, list("abcdef"), parameters=np.arange(6.0).reshape(6, 1))
    folder = learn_finite(costs, method="occam").save(tmp_path / "names")
    reseal(folder, lambda manifest: manifest["policy_names"].reverse())
    with pytest.raises(InvalidCertificate, match="about other names"):
        verify(folder)

    folder = learn_finite(costs, method="occam").save(tmp_path / "policies")
    np.save(folder / "policies.npy", np.arange(6.0)[::-1].reshape(6, 1))
    digest = hashlib.sha256((folder / "policies.npy").read_bytes()).hexdigest()
    reseal(folder, lambda manifest: manifest["files"].update({"policies.npy": digest}))
    with pytest.raises(InvalidCertificate, match="about other policies"):
        verify(folder)

    folder = learn_finite(costs, method="occam").save(tmp_path / "name")
    forge(folder, lambda record: record.update(policy_name="f"))
    with pytest.raises(InvalidCertificate, match="is named 'c', not 'f'"):
        verify(folder)


def test_a_posterior_outside_the_prior_is_refused(tmp_path: Path, binary_costs: Costs):
    run = learn_finite(binary_costs, method="kl")
    prior = Categorical([0.2, 0.2, 0.0, 0.2, 0.2, 0.2])
    hashes = dict(run.certificate.hashes) | {"prior": hashlib.sha256(prior.to_bytes()).hexdigest()}
    forged = dataclasses.replace(run.certificate, hashes=hashes, prior="given in advance")
    folder = Run(forged, run.costs, prior, run.posterior).save(tmp_path / "run")
    with pytest.raises(InvalidCertificate, match="the prior is zero where the posterior is not"):
        verify(folder)


def test_the_certificate_file_leads_to_its_run(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs, method="kl").save(tmp_path / "run")
    assert verify(folder / "certificate.json").certificate == verify(folder).certificate


def test_a_certificate_for_another_policy_than_the_posteriors_is_refused(
    tmp_path: Path, binary_costs: Costs
):
    run = learn_finite(binary_costs, method="occam")
    forged = dataclasses.replace(run.certificate, policy=0)
    folder = Run(forged, run.costs, run.prior, run.posterior).save(tmp_path / "run")
    with pytest.raises(InvalidCertificate, match="not the single policy"):
        verify(folder)


# ---- Gaussian posteriors ------------------------------------------------------------------------

PRIOR = DiagonalGaussian([0.0, 0.0, 0.0], [1.0, 0.5, 2.0])
POSTERIOR = DiagonalGaussian([0.3, -0.2, 0.6], [0.5, 0.7, 1.2])
OTHER = DiagonalGaussian([0.3, -0.2, 0.4], [0.5, 0.7, 1.2])  # nearer to the prior
POLICY = np.array([[0.1, -0.9, 1.3]])
WIND: dict[str, object] = {"noise": {"stream": "certify noise", "seed": 0, "of": "wind"}}
SAMPLED = ["kl", "kl-maurer", "pinsker"]


def gaussian_run(
    costs: Costs,
    method: str = "kl",
    prior: DiagonalGaussian = PRIOR,
    posterior: DiagonalGaussian = POSTERIOR,
    delta: float = 0.05,
) -> Run[DiagonalGaussian]:
    """An honest run: sampled, or of a single draw."""
    budget, provenance = Budget(delta), Provenance("kl", "a test's")
    drawn = certifying(posterior, "single draw" if method == "single-draw" else "certify")
    origin = {**costs.origin, **drawn}
    costs = Costs(costs.values, costs.names, origin, parameters=costs.parameters, draws=costs.draws)
    posterior = posterior.with_data_used(*([costs.range] if costs.range else []))
    if method == "single-draw":
        budget.spend(method)
        certificate = issue_single_draw(Basis(costs, prior, posterior, budget, provenance))
    else:
        budget.spend("sampling", delta / 10)
        budget.spend(method)
        certificate = issue_sampled(Basis(costs, prior, posterior, budget, provenance), method)
    return Run(certificate, costs, prior, posterior)


def drawn_costs(
    shared: bool = False, graded: bool = False, origin: dict[str, object] | None = None
) -> Costs:
    """100 environments × 4 draws."""
    values = np.random.default_rng(5).random((100, 4))
    values = values**3 if graded else values < 0.15
    draws = "shared" if shared else "fresh"
    return Costs(values, draws=draws, origin=origin)


def one_drawn(
    policy: NDArray, graded: bool = False, origin: dict[str, object] | None = None
) -> Costs:
    values = drawn_costs(graded=graded).values[:, :1]
    return Costs(values, parameters=policy, origin=origin)


def costs_of_one(graded: bool = False) -> Costs:
    return one_drawn(POLICY, graded)


def rehash(folder: Path, *names: str) -> None:
    """Make the certificate and the manifest speak of the files as they are now."""
    certificate = json.loads((folder / "certificate.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        certificate["hashes"][name.split(".")[0]] = manifest["files"][name] = digest
    reseal(folder, lambda record: record.update(manifest))
    forge(folder, lambda record: record.update(certificate))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("method", SAMPLED)
def test_honest_sampled_runs_are_verified(tmp_path: Path, method: str, shared: bool, graded: bool):
    run = gaussian_run(drawn_costs(shared, graded, WIND), method)
    verification = verify(run.save(tmp_path / "run"))
    assert verification.certificate == run.certificate
    assert verification.recomputed <= verification.certificate.bound
    assert verification.certificate.bound - verification.recomputed < 1e-9
    assert "a policy drawn afresh from the posterior over 3 parameters" in str(verification)
    assert "averaged over noise drawn independently of the policy (“wind”)" in str(verification)


@pytest.mark.parametrize("graded", [False, True])
def test_honest_runs_of_a_single_draw_are_verified(tmp_path: Path, graded: bool):
    run = gaussian_run(costs_of_one(graded), "single-draw")
    verification = verify(run.save(tmp_path / "run"))
    assert verification.recomputed <= verification.certificate.bound
    assert verification.certificate.bound - verification.recomputed < 1e-9
    assert "the one policy drawn from the posterior over 3 parameters" in str(verification)


def test_a_single_draw_that_the_prior_likes_far_better_is_verified(tmp_path: Path):
    """Where the complexity is none, the bound is the cost itself."""
    prior, posterior = DiagonalGaussian([5.0], 1.0), DiagonalGaussian([0.0], 1.0)
    drawn = prior.mean[None]  # once in a million
    costs = Costs(np.zeros((50, 1)), parameters=drawn)
    run = gaussian_run(costs, "single-draw", prior, posterior)
    assert run.certificate.kl == pytest.approx(-12.5)
    assert run.certificate.bound == 0
    verify(run.save(tmp_path / "run"))


def test_a_single_draw_may_have_a_name(tmp_path: Path):
    costs = costs_of_one()
    named = Costs(costs.values, ["named"], costs.origin, parameters=costs.parameters)
    run = gaussian_run(named, "single-draw")
    assert run.certificate.policy_name == "named"
    folder = run.save(tmp_path / "run")
    assert verify(folder).certificate.policy_name == "named"
    forge(folder, lambda record: record.update(policy_name="another"))
    with pytest.raises(InvalidCertificate, match="is named 'named', not 'another'"):
        verify(folder)


@pytest.mark.slow
def test_many_random_gaussian_runs_are_verified_at_the_last_digit(tmp_path: Path):
    # As above: r̂, KL, the ratio and both bounds must be rounded upwards, whatever their sizes.
    rng = np.random.default_rng(1)
    for i in range(sized(24, full=60)):
        n, draws, size = (int(rng.integers(low, high)) for low, high in ((2, 200), (1, 6), (1, 40)))
        method = [*SAMPLED, "single-draw"][i % 4]
        values = rng.random((n, 1 if method == "single-draw" else draws)) ** rng.integers(1, 6)
        values = values < rng.random() if i % 3 else values
        prior = DiagonalGaussian(rng.normal(0, 1, size), 10 ** rng.uniform(-6, 2, size))
        shift = np.sqrt(prior.variance / size) * rng.normal(0, 2, size)
        factor = 1 + rng.uniform(-0.9, 2, size) * 10.0 ** -rng.integers(0, 9, size)
        posterior = DiagonalGaussian(prior.mean + shift, prior.variance * factor)
        if method == "single-draw":
            costs = Costs(values, parameters=posterior.sample(rng, 1))
        else:
            costs = Costs(values, draws=["fresh", "shared"][i % 2])
        delta = float(10 ** rng.uniform(-9, -0.5))
        run = gaussian_run(costs, method, prior, posterior, delta)
        verify(run.save(tmp_path / str(i)))


@pytest.mark.slow
def test_a_ratio_of_large_terms_that_cancel_is_rounded_upwards(tmp_path: Path):
    rng = np.random.default_rng(2)
    for i in range(sized(8, full=20)):
        size = int(rng.integers(1, 400))
        variance = 10 ** rng.uniform(-250, 250, size)  # logarithms of hundreds each
        posterior = DiagonalGaussian(np.sqrt(variance) * rng.normal(0, 1, size), variance)
        factor = 1 + 1e-9 * rng.standard_normal(size)
        prior = DiagonalGaussian(posterior.mean, variance * factor)
        policy = posterior.sample(rng, 1)
        run = gaussian_run(one_drawn(policy), "single-draw", prior, posterior)
        assert abs(run.certificate.kl) < 1e-5
        verify(run.save(tmp_path / str(i)))


@pytest.mark.parametrize("method", [*SAMPLED, "single-draw"])
def test_runs_whose_bound_is_one_are_verified(tmp_path: Path, method: str):
    single = method == "single-draw"
    far = DiagonalGaussian([400.0, 0.0, 0.0], 1.0)
    drawn = one_drawn(far.mean[None] + 1) if single else drawn_costs()
    run = gaussian_run(drawn, method, posterior=far)
    assert run.certificate.bound == 1
    assert verify(run.save(tmp_path / "far")).recomputed == pytest.approx(1)
    ones = np.ones((20, 1 if single else 4))
    costs = Costs(ones, draws="fresh")
    if single:
        costs = Costs(ones, parameters=POLICY)
    run = gaussian_run(costs, method)
    assert run.certificate.bound == 1
    assert verify(run.save(tmp_path / "ones")).recomputed == 1


def test_runs_without_a_failure_are_verified(tmp_path: Path):
    costs = Costs(np.zeros((50, 4)), draws="fresh")
    verify(gaussian_run(costs).save(tmp_path / "sampled"))
    costs = Costs(np.zeros((50, 1)), parameters=POLICY)
    verify(gaussian_run(costs, "single-draw").save(tmp_path / "single"))


@pytest.mark.parametrize("method", [*SAMPLED, "single-draw"])
def test_a_gaussian_bound_lowered_by_a_hair_is_refused(tmp_path: Path, method: str):
    costs = costs_of_one() if method == "single-draw" else drawn_costs()
    folder = gaussian_run(costs, method).save(tmp_path / "run")
    forge(folder, lambda record: record.update(bound=record["bound"] - 1e-8))
    with pytest.raises(InvalidCertificate, match="is below what"):
        verify(folder)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("graded", [False, True])
def test_a_training_cost_lowered_by_a_hair_is_refused(tmp_path: Path, graded: bool, shared: bool):
    folder = gaussian_run(drawn_costs(shared, graded)).save(tmp_path / "run")
    forge(
        folder,
        lambda record: record.update(training_cost_bound=record["training_cost_bound"] - 1e-8),
    )
    with pytest.raises(InvalidCertificate, match="which these draws do not support"):
        verify(folder)


ANOTHER_NUMBER = "another number of environments, policies, parameters or draws"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training_cost_bound": None}, "belongs to sampled policies only"),
        ({"training_cost_bound": -0.1}, "these draws do not support"),
        ({"training_cost_bound": 1.5}, "these draws do not support"),
        ({"training_cost_bound": 0.0, "bound": 0.01}, "these draws do not support"),
        ({"training_cost_bound": 1}, "is below what kl gives"),
        ({"empirical_cost": 0.01}, "empirical_cost is stated as 0.01"),
        ({"kl": 0.0}, "kl is stated as 0"),
        ({"shared_draws": False}, ANOTHER_NUMBER),
        ({"shared_draws": None}, ANOTHER_NUMBER),
        ({"draws": 400}, ANOTHER_NUMBER),
        ({"draws": None}, ANOTHER_NUMBER),
        ({"environments": 400}, ANOTHER_NUMBER),
        ({"parameters": 1}, ANOTHER_NUMBER),
        ({"parameters": None, "policies": 3}, ANOTHER_NUMBER),
        ({"policies": 4}, ANOTHER_NUMBER),
        ({"budget": {"kl": 0.045}}, "no share for sampling"),
        ({"budget": {"sampling": 0.005}}, "no share for kl"),
        ({"budget": {"kl": 0.045, "sampling": 0.0}}, "overspends"),
        ({"budget": {"kl": 0.05, "sampling": -0.01}}, "overspends"),
        ({"budget": {"kl": 0.045, "sampling": 0.05}}, "overspends"),
        ({"budget": {"kl": 0.05, "sampling": 0.05}}, "overspends"),
        ({"budget": {"kl": 0.045, "sampling": 0.005, "other": 0.001}}, "overspends"),
        ({"budget": {"kl": 0.045, "sampling": 0.001}}, "these draws do not support"),
        ({"delta": 0.01}, "overspends"),
        ({"noise": None}, "wrong about the noise"),
        ({"noise": "a breeze"}, "wrong about the noise"),
        ({"set_aside": -1}, "are stated as set aside"),
        ({"binary": False}, "whether all costs"),
        ({"policy": 0}, "cannot certify what the certificate names"),
        ({"policy_name": "the best"}, "is named None, not 'the best'"),
        ({"method": "occam", "policy": 0, "budget": {"occam": 0.05}}, "cannot certify a posterior"),
        ({"method": "single-draw"}, "not what this kind of certificate counts"),
        ({"method": "sampling"}, "the method 'sampling' is unknown"),
    ],
)
def test_a_forged_sampled_certificate_is_refused(tmp_path: Path, change: dict, message: str):
    folder = gaussian_run(drawn_costs(shared=True, origin=WIND)).save(tmp_path / "run")
    forge(folder, lambda record: record.update(change))
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


def test_the_bound_for_fresh_draws_is_not_to_be_had_for_shared_ones(tmp_path: Path):
    fresh = gaussian_run(drawn_costs()).certificate
    better = {
        name: getattr(fresh, name) for name in ("bound", "training_cost_bound", "shared_draws")
    }
    folder = gaussian_run(drawn_costs(shared=True)).save(tmp_path / "certificate")
    forge(folder, lambda record: record.update(better))
    with pytest.raises(InvalidCertificate, match=ANOTHER_NUMBER):
        verify(folder)
    forge(folder, lambda record: record.update(shared_draws=True))
    with pytest.raises(InvalidCertificate, match="these draws do not support"):
        verify(folder)
    folder = gaussian_run(drawn_costs(shared=True)).save(tmp_path / "manifest")
    reseal(folder, lambda manifest: manifest.update(draws="fresh"))
    with pytest.raises(InvalidCertificate, match=ANOTHER_NUMBER):
        verify(folder)
    reseal(folder, lambda manifest: manifest.update(draws=None))
    with pytest.raises(InvalidCertificate, match="not what this kind of certificate counts"):
        verify(folder)


def test_costs_of_policies_are_not_costs_of_draws(tmp_path: Path):
    folder = learn_finite(Costs(drawn_costs().values), method="kl").save(tmp_path / "run")
    reseal(folder, lambda manifest: manifest.update(draws="fresh"))
    with pytest.raises(InvalidCertificate, match="not what this kind of certificate counts"):
        verify(folder)


@pytest.mark.parametrize("name", ["prior", "posterior"])
@pytest.mark.parametrize("method", ["kl", "single-draw"])
def test_another_gaussian_is_refused_however_well_it_is_hidden(
    tmp_path: Path, method: str, name: str
):
    run = gaussian_run(costs_of_one() if method == "single-draw" else drawn_costs(), method)
    folder = run.save(tmp_path / "run")
    (folder / f"{name}.json").write_bytes(OTHER.to_bytes())
    with pytest.raises(ValueError, match=rf"{name}.json was altered"):
        verify(folder)
    digest = hashlib.sha256(OTHER.to_bytes()).hexdigest()
    reseal(folder, lambda manifest: manifest["files"].update({f"{name}.json": digest}))
    with pytest.raises(InvalidCertificate, match=f"about other {name}"):
        verify(folder)
    rehash(folder, f"{name}.json")
    with pytest.raises(InvalidCertificate, match=r"kl is stated as|not drawn from the posterior"):
        verify(folder)


@pytest.mark.parametrize("method", ["kl", "single-draw"])
def test_a_prior_and_its_divergence_swapped_together_leave_the_bound_too_low(
    tmp_path: Path, method: str
):
    run = gaussian_run(costs_of_one() if method == "single-draw" else drawn_costs(), method)
    folder, far = run.save(tmp_path / "run"), DiagonalGaussian([3.0, 3.0, 3.0], 1.0)
    (folder / "prior.json").write_bytes(far.to_bytes())
    rehash(folder, "prior.json")
    single = method == "single-draw"
    kl = POSTERIOR.log_ratio(far, POLICY[0]) if single else POSTERIOR.kl(far)
    forge(folder, lambda record: record.update(kl=kl))
    with pytest.raises(InvalidCertificate, match="is below what"):
        verify(folder)


def test_another_policy_than_the_one_drawn_is_refused_however_well_it_is_hidden(tmp_path: Path):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    likelier = np.array([[0.1, -3.0, 1.3]])  # under the posterior, compared with the prior
    np.save(folder / "policies.npy", likelier)
    digest = hashlib.sha256((folder / "policies.npy").read_bytes()).hexdigest()
    reseal(folder, lambda manifest: manifest["files"].update({"policies.npy": digest}))
    with pytest.raises(InvalidCertificate, match="about other policies"):
        verify(folder)
    rehash(folder, "policies.npy")
    with pytest.raises(InvalidCertificate, match="kl is stated as"):
        verify(folder)
    forge(folder, lambda record: record.update(kl=POSTERIOR.log_ratio(PRIOR, likelier[0])))
    with pytest.raises(InvalidCertificate, match="is below what single-draw gives"):
        verify(folder)


@pytest.mark.parametrize(
    "policy",
    [
        POSTERIOR.mean,
        POSTERIOR.mean + np.array([0, 0, 10]),
        POSTERIOR.mean + 1e10,
        np.full(3, 1e100),
    ],
    ids=["the mean", "far", "farther", "farthest"],
)
def test_a_policy_that_no_draw_is_like_is_refused_even_if_all_else_is_right(
    tmp_path: Path, policy: NDArray
):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    np.save(folder / "policies.npy", policy[None])
    rehash(folder, "policies.npy")
    kl = POSTERIOR.log_ratio(PRIOR, policy)
    forge(folder, lambda record: record.update(kl=kl, bound=1.0))
    with pytest.raises(InvalidCertificate, match="the policy is not a draw from the posterior"):
        verify(folder)


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_a_draw_pulled_towards_the_mean_or_away_is_refused(tmp_path: Path, share: float):
    rng = np.random.default_rng(3)
    posterior = DiagonalGaussian(rng.normal(size=500), 10 ** rng.uniform(-3, 1, 500))
    drawn = posterior.sample(rng, 1)
    run = gaussian_run(one_drawn(drawn), "single-draw", posterior, posterior)  # of ratio 1 anywhere
    folder = run.save(tmp_path / "run")
    verify(folder)
    np.save(folder / "policies.npy", posterior.mean + share * (drawn - posterior.mean))
    rehash(folder, "policies.npy")
    with pytest.raises(InvalidCertificate, match="the policy is not a draw from the posterior"):
        verify(folder)


@pytest.mark.parametrize(
    "policies",
    [np.zeros((1, 2)), np.zeros((1, 4)), np.zeros((1, 3, 1)), np.zeros(1)],
    ids=lambda array: str(array.shape),
)
def test_a_single_draw_of_another_shape_is_refused(tmp_path: Path, policies: np.ndarray):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    np.save(folder / "policies.npy", policies)
    rehash(folder, "policies.npy")
    with pytest.raises(InvalidCertificate, match="the one policy that was drawn is not among"):
        verify(folder)


def test_a_single_draw_without_its_policy_is_refused(tmp_path: Path):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    (folder / "policies.npy").unlink()
    reseal(folder, lambda manifest: manifest["files"].pop("policies.npy"))
    forge(folder, lambda record: record["hashes"].pop("policies"))
    with pytest.raises(InvalidCertificate, match="the one policy that was drawn is not among"):
        verify(folder)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_single_draw_that_is_no_number_is_refused(tmp_path: Path, bad: float):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    np.save(folder / "policies.npy", np.array([[0.1, bad, 1.3]]))
    rehash(folder, "policies.npy")
    with pytest.raises(ValueError, match=r"kl is stated as|NaN|finite"):
        verify(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kl": -5.0}, "kl is stated as -5"),
        ({"empirical_cost": 0.0}, "empirical_cost is stated as 0"),
        ({"policy": None}, "cannot certify what the certificate names"),
        ({"policy": 1}, "the one policy that was drawn is not among"),
        ({"policy": -1}, "the one policy that was drawn is not among"),
        ({"policies": 1}, ANOTHER_NUMBER),
        ({"parameters": 30}, ANOTHER_NUMBER),
        ({"draws": 1}, ANOTHER_NUMBER),
        ({"shared_draws": False}, ANOTHER_NUMBER),
        ({"training_cost_bound": 0.5}, "belongs to sampled policies only"),
        ({"budget": {"single-draw": 0.5}}, "overspends"),
        ({"budget": {"kl": 0.05}}, "no share for single-draw"),
        ({"budget": {"single-draw": 0.01}}, "is below what"),
        ({"method": "kl", "policy": None}, "not what this kind of certificate counts"),
        ({"method": "occam"}, "cannot certify a posterior of this kind"),
        ({"noise": "wind"}, "wrong about the noise"),
        ({"set_aside": -1}, "are stated as set aside"),
        ({"policy_name": "x"}, "is named None, not 'x'"),
    ],
)
def test_a_forged_single_draw_is_refused(tmp_path: Path, change: dict, message: str):
    folder = gaussian_run(costs_of_one(), "single-draw").save(tmp_path / "run")
    forge(folder, lambda record: record.update(change))
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


def test_several_draws_are_not_a_single_one(tmp_path: Path):
    run = gaussian_run(costs_of_one(), "single-draw")
    costs = Costs(drawn_costs().values, parameters=np.repeat(POLICY, 4, axis=0))
    hashes = dict(run.certificate.hashes) | costs.digests
    certificate = dataclasses.replace(run.certificate, hashes=hashes)
    folder = Run(certificate, costs, PRIOR, POSTERIOR).save(tmp_path / "run")
    with pytest.raises(InvalidCertificate, match=ANOTHER_NUMBER):
        verify(folder)


@pytest.mark.parametrize("name", ["prior", "posterior"])
def test_a_gaussian_and_a_categorical_distribution_are_not_mixed(tmp_path: Path, name: str):
    finite = Categorical.uniform(3)
    sampled = gaussian_run(drawn_costs()).save(tmp_path / "gaussian")
    (sampled / f"{name}.json").write_bytes(finite.to_bytes())
    rehash(sampled, f"{name}.json")
    learnt = learn_finite(Costs(drawn_costs().values[:, :3]), method="kl").save(tmp_path / "finite")
    (learnt / f"{name}.json").write_bytes(PRIOR.to_bytes())
    rehash(learnt, f"{name}.json")
    for folder in (sampled, learnt):
        with pytest.raises(InvalidCertificate, match="not over the same policies"):
            verify(folder)


def test_both_distributions_swapped_for_another_kind_are_refused(tmp_path: Path):
    sampled = gaussian_run(drawn_costs()).save(tmp_path / "gaussian")
    learnt = learn_finite(Costs(drawn_costs().values), method="kl").save(tmp_path / "finite")
    for folder, distribution in ((sampled, Categorical.uniform(4)), (learnt, PRIOR)):
        for name in ("prior.json", "posterior.json"):
            (folder / name).write_bytes(distribution.to_bytes())
        rehash(folder, "prior.json", "posterior.json")
        with pytest.raises(InvalidCertificate, match="not what this kind of certificate counts"):
            verify(folder)


def test_gaussians_of_different_lengths_are_refused(tmp_path: Path):
    folder = gaussian_run(drawn_costs()).save(tmp_path / "run")
    (folder / "prior.json").write_bytes(DiagonalGaussian([0.0, 0.0], 1.0).to_bytes())
    rehash(folder, "prior.json")
    with pytest.raises(InvalidCertificate, match="not over the same policies"):
        verify(folder)


@pytest.mark.parametrize("tiny", [5e-324, 1e-300])
def test_a_divergence_beyond_all_floats_is_refused(tmp_path: Path, tiny: float):
    folder = gaussian_run(drawn_costs()).save(tmp_path / "run")
    (folder / "prior.json").write_bytes(DiagonalGaussian([0.0, 0.0, 0.0], tiny).to_bytes())
    rehash(folder, "prior.json")
    with pytest.raises(InvalidCertificate, match="kl is stated as"):
        verify(folder)


UNSAID = '"kind": "diagonal gaussian", "mean": [0, 0, 0]'
GAUSSIAN = f'{UNSAID}, "seen": []'
DOES_NOT_SAY = "does not say which environments it depends on"
HOSTILE = [
    (f'{{{GAUSSIAN}, "variance": [1, Infinity, 1]}}', "corrupt: it is not JSON"),
    (f'{{{GAUSSIAN}, "variance": [1, NaN, 1]}}', "corrupt: it is not JSON"),
    (f'{{{GAUSSIAN}, "variance": [1, 1e400, 1]}}', "NaN or infinite at parameter 1"),
    (f'{{{GAUSSIAN}, "variance": [1, 1e-400, 1]}}', "variance 0 at parameter 1"),
    (f'{{{GAUSSIAN}, "variance": [1, 0, 1]}}', "variance 0 at parameter 1"),
    (f'{{{GAUSSIAN}, "variance": [1, -1, 1]}}', "variance -1 at parameter 1"),
    (f'{{{GAUSSIAN}, "variance": [1, 1]}}', "3 means and 2 variances"),
    (f'{{{GAUSSIAN}, "variance": 1}}', "holds no Gaussian distribution"),
    (f'{{{GAUSSIAN}, "variance": ["1", "1", "1"]}}', "not a row of numbers"),
    (f'{{{GAUSSIAN}, "variance": [[1, 1, 1]]}}', "not a row of numbers"),
    (f'{{{GAUSSIAN}, "variance": [null, 1, 1]}}', "not a row of numbers"),
    (f'{{{GAUSSIAN}, "variance": [{"9" * 400}, 1, 1]}}', "not a row of numbers"),
    (f'{{{GAUSSIAN}, "variance": [{"9" * 5000}, 1, 1]}}', "corrupt: it is not JSON"),
    (f'{{{GAUSSIAN}, "variance": {"[" * 100_000}', "corrupt: it is not JSON"),
    (f'{{{GAUSSIAN}, "mean": [9, 9, 9], "variance": [1, 1, 1]}}', "corrupt: it is not JSON"),
    (f"{{{GAUSSIAN}}}", "holds no Gaussian distribution"),
    (f'{{{UNSAID}, "variance": [1, 1, 1]}}', DOES_NOT_SAY),
    (f'{{{UNSAID}, "variance": [1, 1, 1], "seen": null}}', DOES_NOT_SAY),
    (f'{{{UNSAID}, "variance": [1, 1, 1], "seen": {{}}}}', DOES_NOT_SAY),
    (f'{{{UNSAID}, "variance": [1, 1, 1], "seen": [["train", 0, 5]]}}', DOES_NOT_SAY),
    (f'{{{UNSAID}, "variance": [1, 1, 1], "seen": [["train", 0, 5, 1]]}}', DOES_NOT_SAY),
    (f'{{{UNSAID}, "variance": [1, 1, 1], "seen": [["train", 0, 0, 1e3]]}}', DOES_NOT_SAY),
    (f'{{{GAUSSIAN}, "variance": [1, 1, 1], "seen": []}}', "corrupt: it is not JSON"),
    ('{"kind": "cauchy", "mean": [0], "variance": [1]}', "holds no categorical distribution"),
    ('{"kind": {}, "mean": [0], "variance": [1]}', "holds no categorical distribution"),
    ("[]", "holds no categorical distribution"),
    ("", "corrupt: it is not JSON"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=lambda part: part[40:90])
@pytest.mark.parametrize("name", ["prior", "posterior"])
def test_hostile_gaussians_get_a_clear_error(tmp_path: Path, name: str, text: str, message: str):
    folder = gaussian_run(drawn_costs()).save(tmp_path / "run")
    (folder / f"{name}.json").write_text(text)
    rehash(folder, f"{name}.json")
    with pytest.raises(ValueError, match=message):
        verify(folder)


# ---- priors that have seen environments ---------------------------------------------------------

ORIGIN: dict[str, object] = {"task": "test", "stream": "train", "seed": 2, "start": 0, "stop": 100}
ALL_METHODS = pytest.mark.parametrize("method", ["kl", "single-draw"])


def run_of_seen(
    method: str, origin: dict[str, object] | None, *seen: EnvironmentRange
) -> Run[DiagonalGaussian]:
    """Right in every number, whatever its prior has seen."""
    costs = drawn_costs(origin=origin)
    if method == "single-draw":
        costs = one_drawn(POLICY, origin=origin)
    return gaussian_run(costs, method, PRIOR.with_data_used(*seen))


@ALL_METHODS
@pytest.mark.parametrize(
    "seen",
    [
        [EnvironmentRange("train", 2, 0, 100)],
        [EnvironmentRange("train", 2, 99, 300)],
        [EnvironmentRange("train", 2, 0, 1)],
        [EnvironmentRange("train", 2, 0, 1000)],
        [
            EnvironmentRange("elsewhere", 2, 0, 100),
            EnvironmentRange("train", 2, 200, 300),
            EnvironmentRange("train", 2, 40, 41),
        ],
    ],
)
def test_a_prior_that_has_seen_what_the_bound_counts_is_refused(
    tmp_path: Path, method: str, seen: list[EnvironmentRange]
):
    folder = run_of_seen(method, ORIGIN, *seen).save(tmp_path / "run")
    with pytest.raises(
        InvalidCertificate, match="the prior depends on environments that the bound"
    ):
        verify(folder)


@ALL_METHODS
def test_a_prior_that_has_seen_others_is_verified(tmp_path: Path, method: str):
    others = [
        EnvironmentRange("train", 2, 100, 300),
        EnvironmentRange("train", 3, 0, 100),
        EnvironmentRange("elsewhere", 2, 0, 100),
    ]
    verify(run_of_seen(method, ORIGIN, *others).save(tmp_path / "run"))


@ALL_METHODS
@pytest.mark.parametrize(
    "change",
    [
        {"stream": None},
        {"stream": 7},
        {"seed": None},
        {"seed": "2"},
        {"seed": True},
        {"start": None},
        {"start": 0.0},
        {"stop": None},
        {"stop": [100]},
    ],
    ids=str,
)
def test_costs_of_unknown_environments_and_a_prior_that_saw_some_are_refused(
    tmp_path: Path, method: str, change: dict[str, object]
):
    seen = EnvironmentRange("elsewhere", 0, 0, 10)
    spoilt = {**ORIGIN, **change}
    missing = {name: value for name, value in spoilt.items() if value is not None}
    for i, origin in enumerate((spoilt, missing, None)):
        folder = run_of_seen(method, origin, seen).save(tmp_path / str(i))
        with pytest.raises(InvalidCertificate, match="the costs do not record their environments"):
            verify(folder)


@ALL_METHODS
def test_a_prior_that_has_seen_nothing_needs_no_origin(tmp_path: Path, method: str):
    verify(run_of_seen(method, None).save(tmp_path / "run"))


@ALL_METHODS
def test_what_a_prior_has_seen_cannot_be_struck_out(tmp_path: Path, method: str):
    folder = run_of_seen(method, ORIGIN, EnvironmentRange("train", 2, 0, 10)).save(tmp_path / "run")
    (folder / "prior.json").write_bytes(PRIOR.to_bytes())
    with pytest.raises(ValueError, match=r"prior.json was altered"):
        verify(folder)
    digest = hashlib.sha256(PRIOR.to_bytes()).hexdigest()
    reseal(folder, lambda manifest: manifest["files"].update({"prior.json": digest}))
    with pytest.raises(InvalidCertificate, match="about other prior"):
        verify(folder)


# ---- its own arithmetic -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5, 99, 100, 101, 1000, 12345])
def test_the_factorials_enclose_the_truth(n: int):
    mpmath.iv.dps = mpmath.mp.dps = 50
    truth = mpmath.loggamma(mpmath.mpf(n) + 1)
    interval = log_factorial(n)
    assert interval.a <= truth * (1 + mpmath.mpf(10) ** -45) + mpmath.mpf(10) ** -45
    assert interval.b >= truth * (1 - mpmath.mpf(10) ** -45) - mpmath.mpf(10) ** -45
    assert interval.delta < mpmath.mpf(10) ** -25


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 1000])
def test_xi_agrees_with_the_other_path_and_is_not_above_it(n: int):
    mpmath.iv.dps = 50
    assert float(mpmath.log(xi(n).b)) <= log_xi(n)
    assert float(mpmath.log(xi(n).a)) == pytest.approx(log_xi(n), rel=1e-10)


@pytest.mark.parametrize(("k", "n", "p"), [(0, 5, 0.3), (3, 5, 0.3), (80, 1000, 0.1), (5, 5, 0.2)])
def test_the_binomial_tail_encloses_the_direct_sum(k: int, n: int, p: float):
    mpmath.iv.dps = mpmath.mp.dps = 50
    q = mpmath.mpf(p)
    direct = mpmath.fsum(mpmath.binomial(n, i) * q**i * (1 - q) ** (n - i) for i in range(k + 1))
    interval: Any = mpmath.iv.mpf
    tail = binomial_tail(k, n, interval(p))
    assert tail.a <= direct * (1 + mpmath.mpf(10) ** -24)
    assert tail.b >= direct * (1 - mpmath.mpf(10) ** -40)
    assert tail.delta < 1e-20
