"""Whether robust certificates are verified if they are honest, and refused if they are not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from origins import certifying, single_draw
from pacbayes_control.bounds.divergences import divergence_of_samples
from pacbayes_control.bounds.shift import shift_inverse
from pacbayes_control.certify.balls import Ball, ball_between, ball_of_samples
from pacbayes_control.certify.certificate import Budget, Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.families import Beta
from pacbayes_control.certify.files import json_bytes, seal
from pacbayes_control.certify.issuing import Basis, Provenance, issue_sampled, issue_single_draw
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import learn_best, learn_finite
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.intervals import iv, mp, set_precision
from pacbayes_control.verify.shift import check_samples, shifted_condition
from sizes import sized

F_DIVERGENCES = ["kl", "reverse-kl", "total-variation", "chi-squared", "hellinger"]
SUMS = [*F_DIVERGENCES, "renyi-2", "renyi-0.5", "renyi-7.3", "renyi-0.01", "renyi-0.99"]
ALL = [*SUMS, "renyi-inf", "renyi-100", "renyi-1.01"]
SAMPLES = ((16, 24, 10), (60, 80, 60))
NOT_SUPPORTED = "which these samples do not support"
DOES_NOT_HOLD = "does not hold on every distribution"


def estimated(name: str, delta: float = 0.005, samples: Any = SAMPLES) -> Ball:
    radius = divergence_of_samples(samples[0], samples[1], delta, name)
    return Ball(name, radius, "estimated from two samples", delta, samples)


def forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the certificate, and every hash with it, as a careful forger would."""
    path = folder / "certificate.json"
    record = json.loads(path.read_text())
    change(record)
    sentence = Certificate.from_dict(record).sentence
    rewrite(folder, {**record, "sentence": sentence})


def rewrite(folder: Path, record: dict[str, Any]) -> None:
    """Put another certificate in a run, whatever it says, and seal the manifest anew."""
    (folder / "certificate.json").write_bytes(json_bytes(record))
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256((folder / "certificate.json").read_bytes()).hexdigest()
    manifest["files"]["certificate.json"] = digest
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


@pytest.fixture(scope="module")
def base() -> Run[Any]:
    """An honest run on the distribution of training: few environments are soon verified."""
    rates = np.array([0.5, 0.3, 0.05, 0.2, 0.9, 0.06])
    return learn_finite(np.random.default_rng(1).random((60, 6)) < rates, method="kl")


# ---- honest runs --------------------------------------------------------------------------------


def check_honest(run: Run[Any], folder: Path) -> None:
    verification = verify(run.save(folder))
    certificate = verification.certificate
    assert certificate == run.certificate
    assert verification.recomputed <= certificate.bound
    assert certificate.bound - verification.recomputed < 1e-8
    assert certificate.sentence in str(verification)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_honest_runs_in_a_ball_are_verified(tmp_path: Path, name: str, base: Run[Any]):
    for i, radius in enumerate((0.0, 1e-12, 1e-4, 0.03, 0.5)):
        check_honest(under_shift(base, Ball(name, radius)), tmp_path / str(i))


@pytest.mark.parametrize("name", ALL)
def test_honest_runs_in_a_ball_too_large_for_a_promise_are_verified(
    tmp_path: Path, name: str, base: Run[Any]
):
    run = under_shift(base, Ball(name, 1e4))
    assert run.certificate.bound == 1
    check_honest(run, tmp_path / "run")


@pytest.mark.parametrize("name", SUMS)
def test_honest_runs_in_an_estimated_ball_are_verified(tmp_path: Path, name: str, base: Run[Any]):
    check_honest(under_shift(base, estimated(name)), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("total-variation", ((5, 0, 40), (30, 9, 0))),
        ("hellinger", ((5, 0, 40), (30, 9, 0))),
        ("renyi-0.5", ((50, 0, 60), (50, 9, 60))),
        ("total-variation", ((7, 0), (0, 7))),
        ("hellinger", ((7, 0), (0, 7))),
        ("kl", ((0, 50), (20, 80))),
        ("reverse-kl", ((20, 80), (0, 50))),
    ],
)
def test_honest_runs_with_cells_never_met_are_verified(
    tmp_path: Path, name: str, samples: Any, base: Run[Any]
):
    ball = estimated(name, 0.1, samples)
    check_honest(under_shift(base, ball), tmp_path / "run")


def test_balls_from_families_and_from_features_are_verified(tmp_path: Path, base: Run[Any]):
    check_honest(under_shift(base, ball_between(Beta(1, 1), Beta(0.8, 1.25))), tmp_path / "family")
    rng = np.random.default_rng(3)
    ball = ball_of_samples(rng.normal(0.2, 1, 300), rng.normal(0, 1, 500), 0.01, edges=[-1, 0, 1])
    check_honest(under_shift(base, ball), tmp_path / "features")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker", "occam"])
def test_every_method_is_verified_under_a_shift(
    tmp_path: Path, method: str, binary_costs: Costs, graded_costs: Costs
):
    for i, costs in enumerate((binary_costs, graded_costs)):
        run = learn_finite(costs, 0.03, method=method)
        check_honest(under_shift(run, Ball("kl", 0.08)), tmp_path / str(i))
        check_honest(under_shift(run, estimated("hellinger")), tmp_path / f"{i} estimated")
    check_honest(under_shift(learn_best(binary_costs, 0.02), Ball("kl", 0.08)), tmp_path / "best")


def gaussian_run(single: bool) -> Run[DiagonalGaussian]:
    prior = DiagonalGaussian([0.0, 0.0], [1.0, 0.5])
    posterior = DiagonalGaussian([0.3, -0.2], [0.5, 0.7])
    budget, provenance = Budget(0.05), Provenance("kl", "a test's")
    values = np.random.default_rng(5).random((100, 1 if single else 4)) < 0.15
    if single:
        costs = Costs(values, origin=single_draw(posterior), parameters=np.array([[0.1, -0.9]]))
        budget.spend("single-draw")
        certificate = issue_single_draw(Basis(costs, prior, posterior, budget, provenance))
    else:
        costs = Costs(values, origin=certifying(posterior), draws="fresh")
        budget.spend("sampling", 0.005)
        budget.spend("kl")
        certificate = issue_sampled(Basis(costs, prior, posterior, budget, provenance), "kl")
    return Run(certificate, costs, prior, posterior)


@pytest.mark.parametrize("single", [False, True])
def test_gaussian_posteriors_are_verified_under_a_shift(tmp_path: Path, single: bool):
    run = gaussian_run(single)
    check_honest(under_shift(run, Ball("chi-squared", 0.1)), tmp_path / "known")
    check_honest(under_shift(run, estimated("kl")), tmp_path / "estimated")


@pytest.mark.slow
def test_many_random_robust_runs_are_verified_at_the_last_digit(tmp_path: Path):
    # The fast path must never be below the 50-digit one: rounding is always upwards.
    rng = np.random.default_rng(4)
    for i in range(sized(26, full=39)):
        n, policies = int(rng.integers(2, 200)), int(rng.integers(1, 10))
        values = rng.random((n, policies)) ** rng.integers(1, 6)
        costs = Costs(values < rng.random() if i % 2 else values)
        run = learn_finite(costs, float(10 ** rng.uniform(-9, -1)))
        ball = Ball(ALL[i % len(ALL)], float(10 ** rng.uniform(-12, 1)))
        check_honest(under_shift(run, ball), tmp_path / str(i))


@pytest.mark.slow
def test_many_random_samples_are_verified_at_the_last_digit():
    set_precision()
    rng = np.random.default_rng(5)
    for i in range(sized(10, full=20)):
        cells, name = int(rng.integers(2, 5)), SUMS[i % len(SUMS)]
        there, here = (rng.dirichlet(np.full(cells, 3.0)) for _ in range(2))
        sizes = 10 ** rng.uniform(1, 2.7, 2)
        samples = tuple(
            tuple((1 + rng.multinomial(int(size), p)).tolist())
            for size, p in zip(sizes, (there, here), strict=True)
        )
        ball = estimated(name, float(10 ** rng.uniform(-6, -0.5)), samples)
        check_samples(ball, ball.delta)
        smaller = Ball(name, ball.radius * (1 - 1e-6), "x", ball.delta, ball.samples)
        with pytest.raises(InvalidCertificate, match=NOT_SUPPORTED):
            check_samples(smaller, ball.delta)


@pytest.mark.parametrize("name", SUMS)
def test_four_limits_are_what_two_cells_need_and_eight_as_earlier_versions_had_are_accepted(name):
    set_precision()
    samples = ((70, 430), (40, 260))
    ball = estimated(name, 0.01, samples)
    check_samples(ball, 0.01)
    smaller = Ball(name, ball.radius * (1 - 1e-6), "x", 0.01, samples)
    with pytest.raises(InvalidCertificate, match=NOT_SUPPORTED):
        check_samples(smaller, 0.01)
    eight = divergence_of_samples(*samples, 0.01 / 2, name)  # limits at δ/8 instead of δ/4
    assert eight > ball.radius
    check_samples(Ball(name, eight, "x", 0.01, samples), 0.01)


@pytest.mark.parametrize("bound", [0.0, 1.0])
@pytest.mark.parametrize("name", ALL)
def test_bounds_of_zero_and_one_are_judged_rightly(name: str, bound: float):
    set_precision()
    for radius in (0.0, 1e-9, 0.1, 100.0):
        robust = float(shift_inverse(bound, radius, name))
        holds = shifted_condition(Ball(name, radius), bound)
        assert holds(iv.mpf(robust))
        assert holds(iv.mpf(1))
        if 0 < robust < 1:
            assert not holds(iv.mpf(robust * (1 - 0.02)))


@pytest.mark.parametrize("name", ALL)
def test_the_condition_accepts_the_inverse_and_refuses_what_is_below_it(name: str):
    set_precision()
    rng = np.random.default_rng(6)
    refused, n = 0, sized(12, full=25)
    for u, b in zip(rng.random(n) ** 2, 10 ** rng.uniform(-6, 0, n), strict=True):
        robust = float(shift_inverse(u, b, name))
        holds = shifted_condition(Ball(name, float(b)), float(u))
        assert holds(iv.mpf(robust))
        if robust < 1:
            assert not holds(iv.mpf(robust) - mp.mpf(10) ** -9)
            refused += 1
        assert not holds(iv.mpf(float(u) / 2))
    assert refused > n / 3


# ---- forged runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, base: Run[Any]) -> Path:
    """A run in a kl ball of radius 0.05, and one in a kl ball that was estimated: both verified."""
    folder = tmp_path_factory.mktemp("honest")
    for name, ball in (("known", Ball("kl", 0.05)), ("sampled", estimated("kl"))):
        verify(under_shift(base, ball).save(folder / name))
    return folder


@pytest.fixture
def known(tmp_path: Path, honest: Path) -> Path:
    """An honest run in a kl ball of radius 0.05."""
    return Path(shutil.copytree(honest / "known", tmp_path / "known"))


@pytest.fixture
def sampled(tmp_path: Path, honest: Path) -> Path:
    """An honest run in a kl ball that was estimated."""
    return Path(shutil.copytree(honest / "sampled", tmp_path / "sampled"))


def refused(folder: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    """An honest run is refused once it is forged."""
    forge(folder, change)
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


@pytest.mark.parametrize("name", ALL)
def test_a_robust_bound_lowered_by_a_hair_is_refused(tmp_path: Path, name: str, base: Run[Any]):
    run = under_shift(base, Ball(name, 0.03))
    folder = run.save(tmp_path / "run")
    refused(folder, lambda record: record.update(bound=record["bound"] - 1e-6), DOES_NOT_HOLD)


@pytest.mark.parametrize("name", ALL)
def test_a_radius_raised_by_a_hair_is_refused(tmp_path: Path, name: str, base: Run[Any]):
    run = under_shift(base, Ball(name, 0.03))
    folder = run.save(tmp_path / "run")
    refused(folder, lambda record: record["ball"].update(radius=0.0300001), DOES_NOT_HOLD)


def test_a_bound_without_shift_that_is_too_low_is_refused(known: Path):
    def lower(record: dict[str, Any]) -> None:
        base = record["bound_without_shift"] - 1e-6
        robust = float(shift_inverse(base, record["ball"]["radius"], "kl"))
        record.update(bound_without_shift=base, bound=robust)

    refused(known, lower, "is below what kl gives on these costs")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bound_without_shift": 0.0}, "is below what kl gives"),
        ({"bound_without_shift": -0.1}, r"outside \[0, 1\]"),
        ({"bound_without_shift": 1.1}, r"outside \[0, 1\]"),
        ({"bound_without_shift": 1.0}, DOES_NOT_HOLD),
        ({"bound_without_shift": 0.9, "bound": 0.8}, DOES_NOT_HOLD),
        ({"bound_without_shift": None}, "belongs to a certificate in a ball only"),
        ({"ball": None}, "belongs to a certificate in a ball only"),
        ({"bound": 0.0}, DOES_NOT_HOLD),
        ({"bound": -0.1}, r"outside \[0, 1\]"),
        ({"bound": 1.1}, r"outside \[0, 1\]"),
        ({"budget": {"kl": 0.01, "shift": 0.001}}, "overspends"),
        (
            {"budget": {"kl": 0.01, "shift": 0.001}, "delta": 0.02},
            "share for the shift is not that of the ball",
        ),
    ],
)
def test_a_forged_robust_certificate_is_refused(known: Path, change: dict, message: str):
    refused(known, lambda record: record.update(change), message)


@pytest.mark.parametrize(
    "ball",
    [
        Ball("reverse-kl", 0.05),
        Ball("hellinger", 0.05),
        Ball("total-variation", 0.2),
        Ball("chi-squared", 0.5),
        Ball("renyi-0.5", 0.05),
        Ball("renyi-0.01", 0.05),
        Ball("renyi-inf", 0.9),
    ],
    ids=str,
)
def test_a_ball_swapped_for_a_larger_one_is_refused(known: Path, ball: Ball):
    refused(known, lambda record: record.update(ball=asdict(ball)), DOES_NOT_HOLD)


@pytest.mark.parametrize("ball", [Ball("kl", 0.04), Ball("renyi-2", 0.05)], ids=str)
def test_a_ball_within_the_ball_is_as_good(known: Path, ball: Ball):
    forge(known, lambda record: record.update(ball=asdict(ball)))
    assert verify(known).certificate.ball == ball


def test_a_bound_that_was_never_shifted_is_refused(tmp_path: Path, base: Run[Any]):
    folder = base.save(tmp_path / "run")

    def pretend(record: dict[str, Any]) -> None:
        record.update(ball=asdict(Ball("kl", 0.05)), bound_without_shift=record["bound"])

    refused(folder, pretend, DOES_NOT_HOLD)


def test_a_robust_bound_is_no_bound_without_a_shift_in_a_ball(known: Path):
    """The ball and what belongs to it struck out: what is left is true, and said as such."""
    forge(known, lambda record: record.update(ball=None, bound_without_shift=None))
    assert "any distribution" not in str(verify(known))


@pytest.mark.parametrize(
    "samples",
    [
        [[20, 24, 10], [60, 80, 60]],
        [[16, 24, 10], [60, 60, 80]],
        [[2, 3, 1], [60, 80, 60]],
        [[16, 24, 10], [6, 8, 6]],
        [[16, 24, 10, 0], [60, 80, 60, 1]],
        [[16, 24, 10], [140, 0, 60]],
        [[24, 16, 10], [60, 80, 60]],
    ],
    ids=str,
)
def test_samples_altered_while_the_radius_is_kept_are_refused(sampled: Path, samples: list):
    refused(sampled, lambda record: record["ball"].update(samples=samples), NOT_SUPPORTED)


def test_a_radius_that_the_samples_do_not_support_is_refused(sampled: Path):
    def lower(record: dict[str, Any]) -> None:
        radius = record["ball"]["radius"] * (1 - 1e-6)
        record["ball"]["radius"] = radius
        record["bound"] = float(shift_inverse(record["bound_without_shift"], radius, "kl"))

    refused(sampled, lower, NOT_SUPPORTED)


def test_the_radius_of_another_divergence_is_refused(sampled: Path):
    """Where the same samples give a larger radius, or an infinite one."""
    for name in ("chi-squared", "renyi-2", "renyi-7.3", "renyi-inf"):
        forge(sampled, lambda record, name=name: record["ball"].update(divergence=name))
        with pytest.raises(InvalidCertificate, match=NOT_SUPPORTED):
            verify(sampled)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": {"kl": 0.01}}, "share for the shift is not that of the ball"),
        ({"budget": {"kl": 0.01, "shift": 0.004}}, "share for the shift is not that of the ball"),
        (
            {"budget": {"kl": 0.01, "shift": 0.006}, "delta": 0.02},
            "share for the shift is not that of the ball",
        ),
        ({"budget": {"kl": 0.01, "Shift": 0.005}}, "share for the shift is not that of the ball"),
        ({"budget": {"kl": 0.01, "shift": 0.0}}, "overspends"),
        ({"budget": {"kl": 0.01, "shift": -0.005}}, "overspends"),
        ({"budget": {"shift": 0.005}}, "no share for kl"),
        ({"delta": 0.01}, "overspends"),
        ({"delta": 0.0149}, "overspends"),
        ({"ball": None}, "belongs to a certificate in a ball only"),
        ({"ball": None, "bound_without_shift": None}, "has a share for a shift without a ball"),
    ],
)
def test_a_shift_that_is_not_paid_for_is_refused(sampled: Path, change: dict, message: str):
    refused(sampled, lambda record: record.update(change), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.004}, "share for the shift is not that of the ball"),
        ({"delta": 0.5}, "share for the shift is not that of the ball"),
        ({"delta": 0.0, "samples": None}, "share for the shift is not that of the ball"),
    ],
)
def test_a_ball_at_another_confidence_than_was_paid_for_is_refused(
    sampled: Path, change: dict, message: str
):
    refused(sampled, lambda record: record["ball"].update(change), message)


def test_more_confidence_than_the_samples_give_is_refused(sampled: Path):
    def claim(record: dict[str, Any]) -> None:
        record["ball"]["delta"] = record["budget"]["shift"] = 1e-9
        record["delta"] = 0.01 + 1e-9

    refused(sampled, claim, NOT_SUPPORTED)


def test_a_budget_for_a_shift_without_a_ball_is_refused(tmp_path: Path, base: Run[Any]):
    folder = base.save(tmp_path / "run")
    change = {"budget": {"kl": 0.01, "shift": 0.005}, "delta": 0.015}
    refused(folder, lambda record: record.update(change), "has a share for a shift without a ball")


def test_a_sentence_about_a_larger_ball_is_refused(known: Path):
    record = json.loads((known / "certificate.json").read_text())
    assert "KL(D′‖D) ≤ 0.05," in record["sentence"]
    rewrite(known, {**record, "sentence": record["sentence"].replace("0.05,", "0.5,")})
    with pytest.raises(InvalidCertificate, match="the sentence does not say what the numbers say"):
        verify(known)


def test_a_certificate_changed_without_its_seal_is_refused(known: Path):
    path = known / "certificate.json"
    record = json.loads(path.read_text())
    record["ball"]["radius"] = 0.5
    path.write_bytes(json_bytes(record))
    with pytest.raises(AlteredRun, match=r"certificate\.json was altered"):
        verify(known)


HONEST = asdict(Ball("kl", 0.05))


@pytest.mark.parametrize(
    "ball",
    [
        "kl:0.05",
        [],
        {},
        {**HONEST, "divergence": "magic"},
        {**HONEST, "divergence": "renyi-1"},
        {**HONEST, "radius": -0.05},
        {**HONEST, "radius": "0.05"},
        {**HONEST, "radius": 0},
        {**HONEST, "origin": ""},
        {**HONEST, "delta": 0.5},
        {**HONEST, "samples": [[1], [1]]},
        {**HONEST, "delta": 0.5, "samples": [[1], [1, 2]]},
        {**HONEST, "delta": 0.5, "samples": [[1], [-1]]},
        {**HONEST, "delta": 0.5, "samples": [[1], [0.5]]},
        {**HONEST, "extra": 1},
    ],
    ids=str,
)
def test_a_hostile_ball_gets_a_clear_error(known: Path, ball: Any):
    record = json.loads((known / "certificate.json").read_text())
    rewrite(known, {**record, "ball": ball})
    with pytest.raises(ValueError, match=r"certificate\.json is not a certificate: ") as e:
        verify(known)
    assert "\n" not in str(e.value)


def test_a_certificate_of_this_format_without_its_fields_is_refused(known: Path):
    record = json.loads((known / "certificate.json").read_text())
    for name in ("ball", "bound_without_shift"):
        rewrite(known, {key: value for key, value in record.items() if key != name})
        with pytest.raises(ValueError, match="it has other fields"):
            verify(known)


# ---- once wrong ---------------------------------------------------------------------------------


def test_a_ball_of_one_cell_is_verified():
    set_precision()
    check_samples(ball_of_samples(["a"] * 5, ["a"] * 9, 0.01, cells=["a"]), 0.01)


@pytest.mark.slow
def test_honest_samples_that_are_large_are_verified_in_a_high_order():
    set_precision()
    ball = estimated("renyi-100", 0.005, ((215537, 147309, 672), (161945, 188263, 584)))
    check_samples(ball, 0.005)


@pytest.mark.parametrize("name", ["kl", "hellinger", "renyi-0.99"])
def test_the_bound_that_is_recomputed_from_zero_is_not_above_the_one_stated(
    tmp_path: Path, name: str
):
    prior, posterior = DiagonalGaussian([5.0], 1.0), DiagonalGaussian([0.0], 1.0)
    costs = Costs(np.zeros((50, 1)), origin=single_draw(posterior), parameters=prior.mean[None])
    budget = Budget(0.05)
    budget.spend("single-draw")
    certificate = issue_single_draw(
        Basis(costs, prior, posterior, budget, Provenance("kl", "a test's"))
    )
    assert certificate.bound == 0
    run = under_shift(Run(certificate, costs, prior, posterior), Ball(name, 0.05))
    assert verify(run.save(tmp_path / "run")).recomputed <= run.certificate.bound


def test_a_format_is_a_whole_number(tmp_path: Path, base: Run[Any]):
    folder = base.save(tmp_path / "run")
    record = json.loads((folder / "certificate.json").read_text())
    rewrite(folder, record | {"format": 4.0})
    with pytest.raises(ValueError, match="not a certificate of format 1 to 9"):
        verify(folder)


def test_a_sample_too_large_to_verify_is_refused(known: Path):
    record = json.loads((known / "certificate.json").read_text())
    for samples in ([[2**40, 1], [5, 5]], [[1] * 300, [1] * 300]):
        ball = HONEST | {"delta": 0.001, "samples": samples}
        rewrite(known, record | {"ball": ball})
        with pytest.raises(ValueError, match="at most 200 cells"):
            verify(known)


def test_a_tiny_delta_and_a_rare_cell_do_not_take_forever(tmp_path: Path, base: Run[Any]):
    there, here = ["a"] + ["b"] * 1000, ["a"] + ["b"] * 200_000
    ball = ball_of_samples(there, here, 1e-12, "hellinger", cells=["a", "b"])
    run = under_shift(base, ball)
    assert verify(run.save(tmp_path / "run")).certificate.ball == ball
