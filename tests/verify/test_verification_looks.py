"""verify() on looks at a growing campaign: none may be omitted, invented or left unpaid."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import hash_file, json_bytes, read_json, seal
from pacbayes_control.certify.looks import Look
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.learn import learn_best, learn_finite
from pacbayes_control.verify import InvalidCertificate, verify

POLICIES = np.arange(6.0)[:, None]
FAILS = np.random.default_rng(5).random((300, 6)) < [0.3, 0.1, 0.5, 0.2, 0.4, 0.05]
FEWER, ALL = (
    Costs(FAILS[:, :count], parameters=POLICIES[:count]).digests["policies"] for count in (4, 6)
)
FIRST: dict[str, Any] = {"environments": 100, "policies": ALL, "count": 6, "delta": 0.02}
SECOND = FIRST | {"environments": 200, "delta": None}
UNDECLARED = {"looks": [FIRST, SECOND]}
DECLARED = {"looks": [FIRST | {"delta": 0.005}], "declared_looks": [100, 300]}


def learnt(origin: dict[str, Any], delta: float = 0.01) -> Run[Any]:
    return learn_finite(Costs(FAILS, origin=origin, parameters=POLICIES), delta)


def restated(run: Run[Any], **changes: Any) -> Run[Any]:
    """The same run, whose certificate says something else; its sentence follows."""
    return dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, **changes))


def with_origin(run: Run[Any], **entries: Any) -> Run[Any]:
    return dataclasses.replace(run, costs=run.costs.with_origin(**entries))


def check_refused(run: Run[Any], folder: Path, message: str) -> None:
    with pytest.raises(InvalidCertificate, match=message):
        verify(run.save(folder))


@pytest.mark.parametrize("origin", [UNDECLARED, DECLARED], ids=["undeclared", "declared"])
def test_a_look_at_a_grown_campaign_is_verified_and_told(origin: dict[str, Any], tmp_path: Path):
    verification = verify(learnt(origin).save(tmp_path / "run"))
    c, told = verification.certificate, " ".join(verification.told)
    assert c.bound >= verification.recomputed
    assert len(c.looks) == len(origin["looks"]) + 1
    assert "that these are all looks at the campaign, and that " in told
    if origin is DECLARED:
        assert c.delta == 0.01
        assert "that 100 and 300 were declared before any cost was seen" in told
    else:
        assert c.delta == pytest.approx(0.04)  # 0.02, and twice 0.01
        assert "no number of environments was chosen by costs that were seen before" in told
    assert "policies added" not in told
    assert "all that format" not in told


def test_other_certificates_of_the_campaign_are_verified_too(tmp_path: Path):
    costs = learnt(UNDECLARED).costs
    for number, run in enumerate(
        [
            learn_best(costs),
            learn_finite(costs, method="occam"),
            under_shift(learn_finite(costs), Ball("kl", 0.05)),
            learnt({"looks": [FIRST | {"environments": 300, "delta": 0.01}]}),  # repeated
            learnt({"looks": [FIRST | {"environments": 300, "delta": None}]}),
        ]
    ):
        assert verify(run.save(tmp_path / str(number))).certificate == run.certificate


def test_added_policies_are_taken_as_told(tmp_path: Path):
    fewer = {"looks": [FIRST | {"policies": FEWER, "count": 4}], "policies_unseen": True}
    run = learnt(fewer)
    told = verify(run.save(tmp_path / "run")).told
    assert any("policies added after a look were made without knowledge of" in x for x in told)
    check_refused(
        with_origin(run, policies_unseen=None), tmp_path / "silent", "2 policies were added"
    )


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"looks": None}, "does not list the looks at the campaign as its costs do"),
        ({"looks": [FIRST]}, "does not list the looks"),
        ({"looks": [SECOND, FIRST]}, "does not list the looks"),
        ({"looks": [FIRST | {"delta": 0.01}, SECOND]}, "does not list the looks"),
        ({"looks": [FIRST, SECOND, FIRST | {"environments": 250}]}, "does not list the looks"),
        ({"declared_looks": [100, 200, 300]}, "does not list the looks"),
        ({"looks": [FIRST, {}]}, "the costs' origin: looks has other fields"),
        ({"looks": "none"}, "the costs' origin: bad looks"),
        ({"declared_looks": [300]}, "the costs' origin: looks are declared as two or more"),
    ],
)
def test_looks_of_another_campaign_are_refused(
    entries: dict[str, Any], message: str, tmp_path: Path
):
    check_refused(with_origin(learnt(UNDECLARED), **entries), tmp_path / "run", message)


def test_a_look_that_the_certificate_omits_is_refused(tmp_path: Path):
    """The shortest lie: the certificate of the costs by themselves, at the δ of one look."""
    honest = learnt(UNDECLARED)
    alone = learnt({})
    forged = dataclasses.replace(alone, costs=honest.costs)
    check_refused(forged, tmp_path / "silent", "does not list the looks at the campaign")
    c = honest.certificate
    fewer = restated(honest, looks=(c.looks[0], c.looks[2]))
    check_refused(fewer, tmp_path / "one", "does not list the looks at the campaign")
    declared = dataclasses.replace(alone, costs=learnt(DECLARED).costs)
    check_refused(declared, tmp_path / "declared", "does not list the looks at the campaign")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.01}, "overspends delta"),
        ({"delta": 0.01, "budget": {"kl": 0.01}}, "does not pay for the other looks"),
        ({"budget": {"kl": 0.01, "earlier looks": 0.02}}, "does not pay for the other looks"),
        ({"budget": {"kl": 0.01, "other looks": 0.03}}, "does not pay for the other looks"),
        ({"budget": {"kl": 0.02, "earlier looks": 0.02}}, "spends more than its delta"),
        ({"declared_looks": (100, 300)}, "does not list the looks"),
    ],
)
def test_looks_that_are_not_paid_for_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
):
    check_refused(restated(learnt(UNDECLARED), **changes), tmp_path / "run", message)


def test_declared_looks_that_are_not_paid_for_are_refused(tmp_path: Path):
    run = learnt(DECLARED)
    unpaid = restated(run, delta=0.005, budget={"kl": 0.005})
    check_refused(unpaid, tmp_path / "unpaid", "does not pay for the other looks")
    greedy = restated(run, budget={"kl": 0.0075, "other looks": 0.0025})
    check_refused(greedy, tmp_path / "greedy", "spends more than its delta")
    invented = restated(learnt({}), budget={"kl": 0.01, "other looks": 1e-9}, delta=0.02)
    check_refused(invented, tmp_path / "invented", "a share for looks that the certificate does")


def test_the_present_look_is_at_these_costs(tmp_path: Path):
    run = learnt(UNDECLARED)
    *earlier, present = run.certificate.looks
    for number, change in enumerate([{"environments": 400}, {"policies": FEWER}, {"count": 5}]):
        other = dataclasses.replace(present, **change)
        forged = restated(run, looks=(*earlier, other))
        check_refused(forged, tmp_path / str(number), "the present look is at other costs")
    unknown = restated(run, looks=(*earlier, dataclasses.replace(present, delta=None)))
    check_refused(unknown, tmp_path / "unknown", "spends more than its delta")


def test_a_smaller_campaign_than_before_is_refused(tmp_path: Path):
    run = learnt(UNDECLARED)
    larger = dataclasses.replace(Look(**FIRST), environments=400)
    looks = (larger, *run.certificate.looks[1:])
    forged = restated(run, looks=looks)
    forged = with_origin(forged, looks=[dataclasses.asdict(look) for look in looks[:-1]])
    check_refused(forged, tmp_path / "run", "was looked at after 400 environments")


def test_a_sentence_that_hides_the_looks_is_refused(tmp_path: Path):
    folder = learnt(UNDECLARED).save(tmp_path / "run")
    text = (folder / "certificate.json").read_text()
    words = "; this is the third look at a growing campaign, after 100 and 200 environments, all"
    assert words in text
    shorter = text.replace(f"{words} paid for in δ", "")
    (folder / "certificate.json").write_text(shorter)
    manifest = read_json(folder / "manifest.json")
    manifest["files"]["certificate.json"] = hash_file(folder / "certificate.json")
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(InvalidCertificate, match="the sentence does not say"):
        verify(folder)
