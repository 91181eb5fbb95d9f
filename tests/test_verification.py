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

from pacbayes_control.bounds import log_xi
from pacbayes_control.certificate import Certificate
from pacbayes_control.costs import Costs
from pacbayes_control.distributions import Categorical
from pacbayes_control.learn import learn_best, learn_constrained, learn_finite
from pacbayes_control.run import Run, json_bytes, seal
from pacbayes_control.verification import (
    InvalidCertificate,
    _log_factorial,
    _tail,
    _xi,
    verify,
)

METHODS = ["kl", "kl-maurer", "pinsker", "occam"]


@pytest.mark.parametrize("method", METHODS)
def test_honest_runs_are_verified(
    tmp_path: Path, method: str, binary_costs: Costs, graded_costs: Costs
):
    for i, costs in enumerate((binary_costs, graded_costs)):
        folder = learn_finite(costs, 0.03, method).save(tmp_path / str(i))
        verification = verify(folder)
        assert verification.recomputed <= verification.certificate.bound
        assert verification.certificate.bound - verification.recomputed < 1e-9
        assert verification.certificate.sentence in str(verification)


def test_many_random_runs_are_verified_at_the_last_digit(tmp_path: Path):
    # The fast path must never be below the 50-digit one: rounding is always upwards.
    rng = np.random.default_rng(0)
    for i in range(40):
        n, policies = int(rng.integers(2, 400)), int(rng.integers(1, 30))
        values = rng.random((n, policies)) ** rng.integers(1, 6)
        costs = Costs(values < rng.random() if i % 2 else values)
        prior = Categorical(rng.dirichlet(np.full(policies, 0.7)))
        method = METHODS[i % 4]
        run = learn_finite(costs, float(10 ** rng.uniform(-9, -0.5)), method, prior=prior)
        verify(run.save(tmp_path / str(i)))


def test_runs_from_solvers_and_union_bounds_are_verified(tmp_path: Path, binary_costs: Costs):
    verify(learn_constrained(binary_costs).save(tmp_path / "solver"))
    verify(learn_best(binary_costs, 0.02).save(tmp_path / "best"))


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
        ({"policies": 7}, "another number of environments or policies"),
        ({"delta": 0.001}, "overspends"),
        ({"budget": {"kl": 0.02}}, "overspends"),
        ({"budget": {"kl": -0.02}}, "overspends"),
        ({"budget": {}}, "overspends"),
        ({"budget": {"other": 0.01}}, "nothing for kl"),
        ({"method": "magic"}, "unknown"),
        ({"method": "occam", "budget": {"occam": 0.01}}, "cannot certify"),
        ({"policy": 2}, "cannot certify"),
        ({"binary": False}, "whether all costs"),
        ({"bound": -0.1}, r"outside \[0, 1\]"),
        ({"bound": 1.1}, r"outside \[0, 1\]"),
        ({"hashes": {}}, "about other costs"),
        ({"constraints": ["at least 0.5 on 1"], "bound": 0.01}, "is below what"),
    ],
)
def test_a_forged_certificate_is_refused(
    tmp_path: Path, binary_costs: Costs, change: dict, message: str
):
    folder = learn_finite(binary_costs).save(tmp_path / "run")
    forge(folder, lambda record: record.update(change))
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


def test_a_sentence_that_promises_more_is_refused(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs).save(tmp_path / "run")
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
    run = learn_finite(binary_costs)
    prior = Categorical([0.2, 0.2, 0.0, 0.2, 0.2, 0.2])
    hashes = dict(run.certificate.hashes) | {"prior": prior.digest}
    forged = dataclasses.replace(run.certificate, hashes=hashes)
    folder = Run(forged, run.costs, prior, run.posterior).save(tmp_path / "run")
    with pytest.raises(InvalidCertificate, match="the prior is zero where the posterior is not"):
        verify(folder)


def test_the_certificate_file_leads_to_its_run(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs).save(tmp_path / "run")
    assert verify(folder / "certificate.json").certificate == verify(folder).certificate


def test_a_certificate_for_another_policy_than_the_posteriors_is_refused(
    tmp_path: Path, binary_costs: Costs
):
    run = learn_finite(binary_costs, method="occam")
    forged = dataclasses.replace(run.certificate, policy=0)
    folder = Run(forged, run.costs, run.prior, run.posterior).save(tmp_path / "run")
    with pytest.raises(InvalidCertificate, match="not the single policy"):
        verify(folder)


# ---- its own arithmetic -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5, 99, 100, 101, 1000, 12345])
def test_the_factorials_enclose_the_truth(n: int):
    mpmath.iv.dps = mpmath.mp.dps = 50
    truth = mpmath.loggamma(mpmath.mpf(n) + 1)
    interval = _log_factorial(n)
    assert interval.a <= truth * (1 + mpmath.mpf(10) ** -45) + mpmath.mpf(10) ** -45
    assert interval.b >= truth * (1 - mpmath.mpf(10) ** -45) - mpmath.mpf(10) ** -45
    assert interval.delta < mpmath.mpf(10) ** -25


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 1000])
def test_xi_agrees_with_the_other_path_and_is_not_above_it(n: int):
    mpmath.iv.dps = 50
    assert float(mpmath.log(_xi(n).b)) <= log_xi(n)
    assert float(mpmath.log(_xi(n).a)) == pytest.approx(log_xi(n), rel=1e-10)


@pytest.mark.parametrize(("k", "n", "p"), [(0, 5, 0.3), (3, 5, 0.3), (80, 1000, 0.1), (5, 5, 0.2)])
def test_the_binomial_tail_encloses_the_direct_sum(k: int, n: int, p: float):
    mpmath.iv.dps = mpmath.mp.dps = 50
    q = mpmath.mpf(p)
    direct = mpmath.fsum(mpmath.binomial(n, i) * q**i * (1 - q) ** (n - i) for i in range(k + 1))
    interval: Any = mpmath.iv.mpf
    tail = _tail(k, n, interval(p))
    assert tail.a <= direct * (1 + mpmath.mpf(10) ** -24)
    assert tail.b >= direct * (1 - mpmath.mpf(10) ** -40)
    assert tail.delta < 1e-20
