"""verify() on runs whose environments were added until the bound was small enough."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.verify import InvalidCertificate, verify


@pytest.fixture(scope="module")
def run() -> Run[Any]:
    return learn_task(Stopping(), Plan(until=0.13, delta=0.05, test_environments=0))


def restated(run: Run[Any], **changes: Any) -> Run[Any]:
    """The same run, whose certificate says something else; its sentence follows."""
    return dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, **changes))


def test_a_run_that_ended_by_its_bound_is_verified(run: Run[Any], tmp_path: Path):
    verification = verify(run.save(tmp_path / "run"))
    assert verification.certificate == run.certificate
    assert verification.recomputed <= run.certificate.bound
    assert not any("look" in claim for claim in verification.told)  # all are covered


def test_it_is_verified_under_a_shift_too(run: Run[Any], tmp_path: Path):
    shifted = under_shift(run, Ball("kl", 0.05))
    c = verify(shifted.save(tmp_path / "run")).certificate
    assert c.bound > 0.13
    assert "until the bound without a shift was at most 0.13" in c.sentence


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until": 0.1}, "added until the bound was 0.1, and it is above that"),
        ({"until": None}, "added until a bound is reached, or at most so many"),
        ({"at_most": None}, "added until a bound is reached, or at most so many"),
        ({"until": 1.0}, "by the method betting alone"),
        ({"at_most": 150}, "163 is not one of the numbers of environments, up to 150"),
        ({"at_most": 1}, "163 is not one of the numbers of environments"),
        ({"at_most": -(2**63)}, "163 is not one of the numbers of environments"),
        ({"at_most": 2**70}, "163 is not one of the numbers of environments"),
    ],
)
def test_a_certificate_with_another_target_or_number_is_refused(
    run: Run[Any], tmp_path: Path, changes: dict[str, Any], message: str
):
    with pytest.raises(InvalidCertificate, match=message):
        verify(restated(run, **changes).save(tmp_path / "run"))


def test_a_number_of_environments_that_is_not_declared_is_refused(tmp_path: Path, run: Run[Any]):
    other = learn_finite(run.costs.values[:162], 0.05, method="betting")
    assert verify(other.save(tmp_path / "plain"))
    changed = restated(other, until=0.5, at_most=10_000)
    with pytest.raises(InvalidCertificate, match="162 is not one of the numbers of environments"):
        verify(changed.save(tmp_path / "run"))


@pytest.mark.parametrize("method", ["kl", "occam"])
def test_no_other_method_may_say_so(run: Run[Any], tmp_path: Path, method: str):
    other = learn_finite(run.costs, 0.05, method=method)
    with pytest.raises(InvalidCertificate, match="by the method betting alone"):
        verify(restated(other, until=0.5, at_most=10_000).save(tmp_path / "run"))
