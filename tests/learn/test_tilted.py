"""Tilted certificates: graded costs on every distribution in a KL ball."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from pacbayes_control.bounds import log_xi, maurer_xi
from pacbayes_control.bounds.shift import robust_c_pac, shift_inverse, tilted_maurer
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.files import json_bytes, seal
from pacbayes_control.certify.issuing import METHODS
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import curve, under_shift
from pacbayes_control.learn import compare_methods, learn_finite, learn_tilted
from pacbayes_control.learn.finite import TILTS
from pacbayes_control.verify import InvalidCertificate, verify
from sizes import sized

BALL = Ball("kl", 0.08)


def even_costs(n: int, seed: int = 0) -> Costs:
    return Costs(np.random.default_rng(seed).uniform(0.1, 0.3, (n, 4)))


@pytest.mark.parametrize("tilt", [0.1, 1.0, 2.5, 8.0, 30.0])
@pytest.mark.parametrize("cost", [0.0, 1e-9, 0.2, 0.9, 1.0])
def test_the_bound_is_the_formula_with_50_digits(tilt: float, cost: float):
    mpmath.mp.dps = 50
    lam, n, delta, kl, radius = mpmath.mpf(tilt), 500, 0.01, 1.3, 0.05
    allowed = (mpmath.mpf(kl) + mpmath.mpf(log_xi(n)) - mpmath.log(mpmath.mpf(delta))) / n
    q = mpmath.mpf(cost)

    def binary_kl(p: Any) -> Any:
        left = q * mpmath.log(q / p) if q else mpmath.mpf(0)
        return left + ((1 - q) * mpmath.log((1 - q) / (1 - p)) if q < 1 else 0)

    low, high = q, mpmath.mpf(1)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (middle, high) if binary_kl(middle) <= allowed else (low, middle)
    exact = min((radius + mpmath.log(1 + (mpmath.exp(lam) - 1) * high)) / lam, mpmath.mpf(1))
    bound = float(tilted_maurer(cost, kl, n, delta, radius=radius, tilt=tilt))
    assert -1e-17 <= bound - exact < 1e-9


def test_at_tilt_one_it_is_never_above_the_papers_c_pac_prime():
    for cost in (0.0, 0.1, 0.5):
        ours = float(tilted_maurer(cost, 1.0, 1000, 0.01, radius=0.05, tilt=1.0))
        assert ours <= robust_c_pac(1 + (math.e - 1) * cost, 1.0, 1000, 0.01, radius=0.05)


def test_for_binary_costs_the_best_tilt_recovers_the_exact_bound():
    exact = float(shift_inverse(maurer_xi(0.1, 1.0, 1000, 0.01), 0.05, "kl"))
    best = minimize_scalar(
        lambda tilt: float(tilted_maurer(0.1, 1.0, 1000, 0.01, radius=0.05, tilt=tilt)),
        bounds=(0.05, 20),
    )
    assert exact - 1e-9 <= best.fun < exact + 1e-6


def test_costs_that_vary_little_are_promised_much_more():
    costs = even_costs(4000)
    tilted = learn_tilted(costs, BALL).certificate
    assert (
        tilted.bound
        < 0.29
        < 0.39
        < under_shift(learn_finite(costs, method="kl"), BALL).certificate.bound
    )
    assert tilted.bound_without_shift is not None
    assert tilted.bound_without_shift < tilted.bound


def test_each_tilt_has_its_share_of_delta_and_an_estimated_ball_its_own():
    rng = np.random.default_rng(1)
    ball = ball_of_samples(rng.choice(2, 4000), rng.choice(2, 4000), 0.002, cells=[0, 1])
    certificate = learn_tilted(even_costs(500), ball, delta=0.01).certificate
    assert certificate.delta == 0.01
    assert certificate.budget["shift"] == 0.002
    assert certificate.budget["tilted"] == pytest.approx(0.008 / len(TILTS))
    assert sum(certificate.budget.values()) == pytest.approx(0.01)


def test_it_minimises_over_every_posterior():
    costs = Costs(np.random.default_rng(2).beta(2, 8, (300, 5)) ** [[0.5, 1, 1.5, 2, 3]])
    run = learn_tilted(costs, BALL)
    share, prior = run.certificate.budget["tilted"], Categorical.uniform(5)
    posteriors = np.random.default_rng(3).dirichlet(np.full(5, 0.4), 500)
    kl = np.array([Categorical(p / p.sum()).kl(prior) for p in posteriors])
    for tilt in TILTS:
        others = tilted_maurer(
            posteriors @ costs.tilted_means(tilt), kl, 300, share, radius=BALL.radius, tilt=tilt
        )
        assert np.all(run.certificate.bound <= others + 1e-9)


@pytest.mark.slow
def test_honest_runs_are_verified_and_others_are_not(tmp_path: Path):
    folder = learn_tilted(even_costs(300), BALL).save(tmp_path / "run")
    verification = verify(folder)
    bound = verification.certificate.bound
    assert 0 <= bound - verification.recomputed < 1e-9

    def refused(**changes: object) -> str:
        record = json.loads((folder / "certificate.json").read_text())
        kept = (folder / "certificate.json").read_bytes(), (folder / "manifest.json").read_bytes()
        record |= changes
        record["sentence"] = Certificate.from_dict(record).sentence
        (folder / "certificate.json").write_bytes(json_bytes(record))
        manifest = json.loads(kept[1])
        digest = hashlib.sha256((folder / "certificate.json").read_bytes()).hexdigest()
        manifest["files"]["certificate.json"] = digest
        manifest["seal"] = seal(manifest)
        (folder / "manifest.json").write_bytes(json_bytes(manifest))
        with pytest.raises(InvalidCertificate) as error:
            verify(folder)
        (folder / "certificate.json").write_bytes(kept[0])
        (folder / "manifest.json").write_bytes(kept[1])
        return str(error.value)

    base = verification.certificate.bound_without_shift
    assert base is not None
    assert "does not hold" in refused(bound=bound - 1e-6)
    assert "below what tilted" in refused(bound_without_shift=base - 1e-6)
    assert "does not hold" in refused(ball=asdict(Ball("kl", 0.09)))
    assert "kl ball" in refused(ball=asdict(Ball("total-variation", 0.01)))
    assert "tilt" in refused(tilt=None)
    assert "below what tilted" in refused(tilt=8.0)
    assert "tilt" in refused(method="kl", budget={"kl": 0.01})
    assert "overspends" in refused(budget={"tilted": 0.01, "others": 0.01})
    verify(folder)


@pytest.mark.slow
def test_the_bound_covers_the_worst_distribution_in_the_ball():
    """D: the cost is uniform on ten levels; D': tilted towards the dear ones, KL(D'‖D) = B."""
    levels, radius, delta, n, repeats = (
        np.linspace(0.05, 0.5, 10),
        0.08,
        0.2,
        60,
        sized(80, full=600),
    )

    def tilted(s: float) -> np.ndarray:
        weights = np.exp(s * levels)
        return weights / weights.sum()

    def excess(s: float) -> float:
        p = tilted(s)
        return float(p @ np.log(p * 10)) - radius

    there = tilted(float(brentq(excess, 0, 50)))  # type: ignore[arg-type]
    truth = float(there @ levels)
    rng, failures, broken = np.random.default_rng(4), 0, 0
    for _ in range(repeats):
        costs = Costs(rng.choice(levels, (n, 1)))
        run = learn_tilted(costs, Ball("kl", radius), delta)
        failures += run.certificate.bound < truth
        broken += float(costs.means[0]) + 0.01 < truth  # what a bound without a shift might say
    assert failures <= delta * repeats
    assert broken > delta * repeats


@pytest.mark.slow
def test_compare_offers_it_for_graded_costs_in_kl_balls_only(binary_costs: Costs):
    def names(costs: Costs, ball: Ball | None) -> list[str]:
        return [run.certificate.method for run in compare_methods(costs, ball=ball).runs]

    graded = even_costs(100)
    assert names(graded, BALL) == [*METHODS, "tilted"]
    assert names(graded, Ball("hellinger", 0.01)) == [*METHODS]
    assert names(binary_costs, BALL) == [*METHODS]
    assert compare_methods(graded, method="tilted", ball=BALL).chosen.certificate.method == "tilted"
    best = compare_methods(graded, method="best", ball=BALL)
    assert best.chosen.certificate.ball == BALL
    assert len(best.runs) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ball": Ball("chi-squared", 0.1)}, "kl balls"),
        ({"tilts": ()}, "at least one tilt"),
        ({"tilts": (0.0,)}, "tilt of 0"),
        ({"tilts": (31.0,)}, "tilt of 31"),
        ({"delta": 1.5}, "delta"),
    ],
)
def test_bad_input_gets_one_clear_line(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        learn_tilted(**({"costs": even_costs(50), "ball": BALL} | change))


def test_the_method_needs_a_ball():
    with pytest.raises(ValueError, match="tilted certifies in a ball"):
        compare_methods(even_costs(50), method="tilted")


def test_a_saved_run_keeps_its_tilt(tmp_path: Path):
    run = learn_tilted(even_costs(100), BALL)
    loaded = Run.load(run.save(tmp_path / "run"))
    assert loaded.certificate == run.certificate


def test_the_curve_of_a_tilted_certificate_meets_its_own_bound():
    certificate = learn_tilted(even_costs(2000), BALL).certificate
    at = curve(certificate, "kl", radii=[0.0, BALL.radius])
    assert at.bounds[0] == pytest.approx(certificate.bound_without_shift, abs=1e-9)
    assert certificate.bound - 1e-9 <= at.bounds[1] <= certificate.bound + 1e-9
    assert curve(certificate, "kl", radii=[at.tolerable]).bounds[0] <= 0.5 + 1e-9
