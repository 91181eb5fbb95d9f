"""The grasping experiment, at a size that a test can afford."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, multinomial

import pacbayes_control as pbc
from pacbayes_control.report.console import out
from pacbayes_control.robots.grasping import experiment as module
from pacbayes_control.robots.grasping.environments import minor_axis
from pacbayes_control.robots.grasping.experiment import (
    PAPER,
    QUICK,
    Grasped,
    Size,
    _difference,
    _interval,
    grasping,
    show_grasping,
    to_dict,
)
from pacbayes_control.robots.grasping.extractors import Compact
from pacbayes_control.robots.grasping.labels import Grid
from pacbayes_control.robots.grasping.learning import SEARCH
from pacbayes_control.robots.grasping.simulator import Simulator
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Execution, Progress
from shortcuts import plain_kl
from sizes import sized

SMALL = Size(environments=12, test_environments=10, draws=3, grid=Grid(places=2, angles=4))
GRASPS = len(SMALL.grid.grasps)
LABELS = 12 * GRASPS
STEPS = 4  # of each search
CONTRACT = {
    "bound",
    "test_success",
    "baseline_test_success",
    "paper_bound",
    "paper_test_success",
    "environments",
    "grasps_per_second",
}


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Searches of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name, settings in SEARCH.items():
            patch.setitem(SEARCH, name, replace(settings, steps=STEPS, pairs=1))
        yield patch


@pytest.fixture(scope="module")
def grasps(patch: pytest.MonkeyPatch) -> list[int]:
    """How many grasps were simulated, call by call."""
    counted: list[int] = []
    endings = Simulator.endings

    def counting(*arguments: Any) -> Any:
        counted.append(len(arguments[-1]))
        return endings(*arguments)

    patch.setattr(Simulator, "endings", counting)
    return counted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Path:
    """A cache without labels."""
    cache = tmp_path_factory.mktemp("cache")
    patch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "pacbayes-control" / "grasping"


@pytest.fixture(scope="module")
def told() -> list[Progress]:
    return []


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.slow, id="once")])
def result(grasps: list[int], folder: Path, told: list[Progress]) -> Grasped:
    assert not folder.exists()
    found = grasping(SMALL, execution=Execution(progress=told.append))
    told.append(Progress("grasps", sum(grasps), 0))
    return found


def test_both_ways_to_learn_have_a_row(result: Grasped):
    ours, paper = result.rows
    assert (ours.setting, ours.head, ours.surrogate) == ("ours", "circle", "table")
    assert (paper.setting, paper.head, paper.surrogate) == ("paper", "paper", "distance")
    assert ours.prior.startswith("learnt on 4,096 other objects")
    assert paper.prior == "the paper's, around random means near 0"
    assert ours.empirical_cost < paper.empirical_cost  # one knows something, the other nothing
    assert ours.bound < paper.bound
    for row in result.rows:
        assert row.certifying_grasps == 12 * 3
        assert 0 <= row.empirical_cost < row.bound <= 1
        assert row.kl >= 0
        assert row.holds == (1 - row.test_success <= row.bound)
        for rate, (low, high) in (
            (row.test_success, row.test_interval),
            (row.baseline_test_success, row.baseline_interval),
            (row.difference, row.difference_interval),
        ):
            assert -1 <= low <= rate <= high <= 1
            assert rate * 10 == pytest.approx(round(rate * 10))  # of ten new objects
        assert row.difference == pytest.approx(row.test_success - row.baseline_test_success)


def test_the_record_keeps_the_contract_and_is_plain_json(result: Grasped):
    record = json.loads(json.dumps(to_dict(result), allow_nan=False))
    assert record.keys() >= CONTRACT
    assert record["paper_bound"] == PAPER["bound"] == 0.294
    assert record["paper_test_success"] == PAPER["test_success"] == 0.82
    assert record["environments"] == 12
    assert record["test_environments"] == 10
    assert record["grasps_per_second"] > 0
    assert 0 <= record["any_angle_success"] <= 1
    assert 0 <= record["narrow_side_success"] <= 1
    ours = record["rows"][0]
    for name in ("bound", "test_success", "baseline_test_success"):
        assert record[name] == ours[name]


def test_the_run_is_ours_and_verifies(
    result: Grasped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain_kl(monkeypatch)
    assert result.run.certificate.bound == result.rows[0].bound
    assert result.run.costs.values.shape == (12, 3)
    pbc.verify(result.run.save(tmp_path / "run"))
    train = result.task.environments(12, "train").range
    assert set(result.run.posterior.seen) == {*Compact().seen, train}


def test_grasps_are_simulated_for_the_certificates_and_for_the_new_objects(
    result: Grasped, told: list[Progress]
):
    certified = sum(row.certifying_grasps for row in result.rows)
    tried = 2 * 2 * result.test_environments  # the posterior and the baseline, twice
    tried += 2 * result.test_environments  # and two rules
    timed = min(module.SAMPLE, result.test_environments) * GRASPS
    assert told[-1] == Progress("grasps", LABELS + certified + tried + timed, 0)
    parts = [(title, list(now)) for title, now in groupby(told[:-1], lambda now: now.title)]
    expected = [("labelling grasps", LABELS)]
    for setting, row in zip(("ours", "paper"), result.rows, strict=True):
        expected += [
            (f"{setting}: learning", STEPS * 2 * 12),
            ("certifying rollouts", row.certifying_grasps),
            (f"{setting}: grasps of new objects", 2 * result.test_environments),
        ]
    assert [title for title, _ in parts] == [title for title, _ in expected]
    for (title, total), (_, now) in zip(expected, parts, strict=True):
        assert {each.total for each in now} == {total}
        assert now[-1].done == total
        assert sorted(each.done for each in now) == [each.done for each in now], title


def test_labels_are_reused_and_the_result_is_the_same(
    result: Grasped, grasps: list[int], folder: Path
):
    grasps.clear()
    [labels] = folder.iterdir()
    kept = {path: path.stat().st_mtime_ns for path in labels.rglob("*.npy")}
    assert {path.parent.name for path in kept} == {"train-0-0-12"}
    again = grasping(SMALL, execution=Execution(workers=2))
    assert {path: path.stat().st_mtime_ns for path in labels.rglob("*.npy")} == kept
    certified = sum(row.certifying_grasps for row in result.rows)
    timed = min(module.SAMPLE, result.test_environments) * GRASPS
    others = certified + 6 * result.test_environments + timed
    assert others <= sum(grasps) <= others + 16  # a few, to see that they repeat
    assert again.rows == result.rows
    assert again.narrow_side_success == result.narrow_side_success
    assert again.any_angle_success == result.any_angle_success
    assert again.run.posterior.to_bytes() == result.run.posterior.to_bytes()


def test_the_table_shows_every_row_beside_the_published_figures(
    result: Grasped, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(out, "stderr", False)
    failing = replace(result.rows[1], holds=False)
    show_grasping(replace(result, rows=[result.rows[0], failing]))
    shown = capsys.readouterr().out
    for words in ("ours", "paper", "0.294", "0.820", "12 objects to learn from, 10 new ones"):
        assert words in shown
    assert shown.count("does NOT hold") == 1
    assert f"{result.rows[0].test_success:.3f}" in shown


def test_the_quick_size_is_a_part_of_the_papers():
    full = Size()
    assert (full.environments, full.test_environments) == (2000, 1000)
    assert QUICK.environments < full.environments
    assert len(QUICK.grid.grasps) < len(full.grid.grasps)


def test_the_rules_that_ours_is_compared_with_are_blind_grasps_at_the_centroid(result: Grasped):
    new = result.task.environments(10, "test")
    across = [minor_axis(mask) for mask in new.arrays()["mask"]]
    grasps = np.array([[[0.0, 0.0, angle]] for angle in across])
    costs = Grasping().costs(grasps, new)
    assert result.narrow_side_success == pytest.approx(1 - costs.mean())


# ---- intervals ----------------------------------------------------------------------------------


def happened(times: int, of: int) -> NDArray[np.bool_]:
    return np.arange(of) < times


@pytest.mark.parametrize("confidence", [0.95, 0.975])
@pytest.mark.parametrize(("times", "of"), [(0, 10), (3, 10), (10, 10), (820, 1000), (1, 1)])
def test_intervals_of_rates_are_quantiles_of_beta_distributions(
    times: int, of: int, confidence: float
):
    risk = (1 - confidence) / 2
    low = beta.ppf(risk, times, of - times + 1) if times else 0.0
    high = beta.isf(risk, times + 1, of - times) if times < of else 1.0
    found = _interval(happened(times, of), confidence)
    assert found == pytest.approx((low, high), abs=1e-9)


OBJECTS = sized(20, full=30)
COUNTS = [(b, w) for b in range(OBJECTS + 1) for w in range(OBJECTS + 1 - b)]
TRUTHS = [(0.2, 0.2), (0.3, 0.1), (0.05, 0.0), (0.5, 0.45), (0.02, 0.3), (0.0, 0.0)]


def coverage(better: float, worse: float) -> float:
    """How often the interval holds the true difference, over all that can come out."""
    chances = multinomial.pmf(
        [(b, w, OBJECTS - b - w) for b, w in COUNTS], OBJECTS, [better, worse, 1 - better - worse]
    )
    held = []
    for b, w in COUNTS:
        low, high = _difference(happened(b, OBJECTS), happened(w, OBJECTS)[::-1])
        held.append(low <= better - worse <= high)
    return float(chances[held].sum() / chances.sum())


def test_the_interval_of_a_difference_holds_the_truth_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
):
    kept: dict[tuple, tuple[float, float]] = {}

    def remembered(found: NDArray, confidence: float) -> tuple[float, float]:
        key = int(found.sum()), confidence
        if key not in kept:
            kept[key] = _interval(found, confidence)
        return kept[key]

    monkeypatch.setattr(module, "_interval", remembered)
    assert min(coverage(*truth) for truth in TRUTHS) >= 0.95
    monkeypatch.setattr(module, "CONFIDENCE", 0.3)  # so that the test could fail
    assert min(coverage(*truth) for truth in TRUTHS) < 0.95


def test_a_difference_that_is_turned_about_has_the_interval_turned_about():
    better, worse = happened(7, 40), happened(2, 40)[::-1]
    low, high = _difference(better, worse)
    assert _difference(worse, better) == pytest.approx((-high, -low))
    assert low < 5 / 40 < high
