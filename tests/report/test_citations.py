"""References to theorems."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pacbayes_control
from pacbayes_control.certify import issuing
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.citations import (
    BETS,
    EVIDENCE,
    METHODS,
    PAPER,
    bibtex,
    entries,
    keys_of,
)
from pacbayes_control.verify.runs import METHODS as VERIFIED

FIELDS = {"article": "journal", "book": "publisher", "inproceedings": "booktitle", "misc": "note"}


def certificate(costs: Costs, **plan: Any) -> Any:
    return learn_finite(costs, 0.05, **plan).certificate


@pytest.fixture(scope="module")
def failures() -> Costs:
    return Costs(np.random.default_rng(0).random((60, 3)) < 0.1, origin={"graded": False})


@pytest.fixture(scope="module")
def graded() -> Costs:
    return Costs(np.random.default_rng(0).beta(1, 9, (60, 3)))


def simulated(costs: Costs) -> Costs:
    """The same on the robot, with a simulation that agrees."""
    rooms = [f"room {i}" for i in range(60)]
    values = costs.values
    more = np.concatenate([values * (1 - 1e-6 * i) for i in range(1, 6)])
    real, same = (Costs(values, origin=o, sites=rooms) for o in (costs.origin, {}))
    return with_simulation(real, same, more)


def test_every_method_has_references():
    known = {*issuing.METHODS, issuing.ANYTIME, issuing.TILTED, "single-draw"}
    assert known == {*METHODS} == {*VERIFIED}
    for keys in METHODS.values():
        assert keys
        assert {*keys} <= {*entries()}


def test_entries_are_whole_with_unique_keys():
    whole = "\n".join(entries().values())
    keys = re.findall(r"@\w+\{([^,]+),", whole)
    assert len(keys) == len({*keys}) == len(entries())
    for key, entry in entries().items():
        assert entry.count("{") == entry.count("}")
        kind = re.match(r"@(\w+)\{", entry)
        assert kind is not None
        names = re.findall(r"^  (\w+) +=", entry, re.MULTILINE)
        assert {"author", "title", "year", FIELDS[kind[1]]} <= {*names}, key
        assert len(names) == len({*names})
        assert entry.isascii()


def test_no_entry_is_without_use(failures: Costs, graded: Costs):
    every = {PAPER, *BETS, *EVIDENCE} | {key for keys in METHODS.values() for key in keys}
    plain = certificate(failures)
    every |= {*keys_of(replace(plain, tasks=3))}
    every |= {*keys_of(under_shift(learn_finite(failures), Ball("kl", 0.1)).certificate)}
    for of in ("quantile:0.9", "cvar:0.1"):
        every |= {*keys_of(certificate(graded, of=of))}
    every |= {*keys_of(replace(plain, budget={"sampling": 0.01}))}
    for costs in (failures, graded):
        every |= {*keys_of(certificate(simulated(costs)))}
    assert every == {*entries()}


@pytest.mark.parametrize(
    ("plan", "keys"),
    [
        ({"method": "kl"}, ["maurer2004note"]),
        ({"method": "pinsker"}, ["mcallester1999some", "maurer2004note"]),
        ({"method": "occam"}, ["langford2005tutorial", "clopper1934use"]),
        ({"method": "betting"}, ["jang2023tighter"]),
    ],
)
def test_a_certificate_names_the_theorems_that_it_applies(
    plan: dict[str, str], keys: list[str], failures: Costs
):
    assert keys_of(certificate(failures, **plan)) == keys


def test_graded_costs_are_bounded_by_bets(graded: Costs):
    assert keys_of(certificate(graded, method="occam")) == ["langford2005tutorial", *BETS]


def test_simulation_beside_trials_is_cited(failures: Costs, graded: Costs):
    usual = ["langford2005tutorial", "clopper1934use", "buehler1957confidence"]
    assert keys_of(certificate(simulated(failures))) == usual
    assert keys_of(certificate(simulated(graded)))[-1] == "angelopoulos2023prediction"


def test_the_paper_comes_first_and_the_software_last_with_its_version():
    text = bibtex(["maurer2004note"])
    assert text.startswith("@article{majumdar2021pac,")
    assert f"Version {pacbayes_control.__version__}, MIT license" in text.rsplit("@", 1)[1]
    assert text.count("{") == text.count("}")
    assert text.count("\n@") == 2
