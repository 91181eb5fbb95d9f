"""Trials that simulation replaces: the bounds, what they are worth, and the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom

from commands import complaint
from pacbayes_control.bounds.stratified import PairCounts, failure_limits, stratified_exact_tail
from pacbayes_control.robots import Swing
from pacbayes_control.robots.sim_to_real import pairs
from pacbayes_control.robots.sim_to_real.bounds import (
    TRIALS,
    Draw,
    SimToRealRow,
    bounds_of,
    draws_of,
    equivalent_trials,
    expected_bound,
)
from pacbayes_control.robots.sim_to_real.pairs import Rollouts, robots, rolled_out
from pacbayes_control.robots.vehicle.bullet import BulletVehicle
from pacbayes_control.rollouts import Execution

FIND = "pacbayes_control.robots.vehicle.bullet.find_spec"
FIGURES = {"trials", "bound", "bound_without", "equivalent_trials", "true_cost", "agreement"}
NAMES = {"policy", "robot", "draws", "bound_sd"}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies are chosen in few environments."""
    monkeypatch.setattr(pairs, "CHOICE", 100)


def rollouts(trials: int, agreement: float = 0.97, rate: float = 0.3) -> Rollouts:
    """Reality that differs from simulation at random."""
    rng = np.random.default_rng(1)
    simulated, more = rng.random(trials) < rate, rng.random(100_000) < rate
    real = np.where(rng.random(trials) < agreement, simulated, rng.random(trials) < rate)
    return Rollouts("vehicle", "weaker", real, simulated, more)


def by_hand(trials: int, rate: float) -> float:
    """The expected bound of the exact tail, with other functions."""
    k = np.arange(trials + 1)
    limits = np.append(beta.ppf(0.99, k[:-1] + 1, trials - k[:-1]), 1.0)
    return float(np.sum(binom.pmf(k, trials, rate) * limits))


# ---- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "rate"), [(1, 0.5), (30, 0.085), (300, 0.3)])
def test_the_expected_bound_is_a_sum_over_failures(trials: int, rate: float):
    assert expected_bound(trials, rate) == pytest.approx(by_hand(trials, rate), abs=1e-9)


@pytest.mark.parametrize(("bound", "rate"), [(0.379, 0.3), (0.16, 0.085), (0.9, 0.3), (0.6, 0.01)])
def test_fewer_trials_than_the_equivalent_ones_have_a_larger_bound(bound: float, rate: float):
    [first] = [n for n in range(1, 400) if by_hand(n, rate) <= bound][:1]
    assert equivalent_trials(bound, rate) == first


def test_no_number_of_trials_gives_a_bound_below_the_rate():
    assert equivalent_trials(0.29, 0.3) is None


def test_a_draws_bounds_are_the_stratified_one_and_the_exact_tail():
    counts = PairCounts(both=28, simulated=30, alone=2, other=70)
    bound, without = Draw(counts, 30_000, 100_000).bounds()
    limits = failure_limits(30_000, 100_000, 0.0002)
    assert bound == stratified_exact_tail(counts, limits, 0.0098)
    assert without == pytest.approx(beta.ppf(0.99, 31, 70), abs=1e-9)


def test_a_draw_that_simulation_shows_to_be_odd_is_bounded_without_it():
    odd = Draw(PairCounts(both=25, simulated=28, alone=0, other=2), 30_000, 100_000)
    expected = beta.ppf(0.99, 26, 5)
    np.testing.assert_allclose(odd.bounds(), expected, atol=1e-9)


def test_draws_are_disjoint_and_hold_all_trials():
    all_of_them = rollouts(2 * 300 + 299)  # the last ones are not enough for a draw
    assert TRIALS == (30, 100, 300)
    assert [len([*draws_of(all_of_them, n)]) for n in TRIALS] == [20, 6, 2]
    used = slice(0, 600)
    whole = PairCounts.of(all_of_them.reality[used], all_of_them.simulation[used])
    for trials in TRIALS:
        found = [draw.counts for draw in draws_of(all_of_them, trials)]
        assert all(each.simulated + each.other == trials for each in found)
        for name in ("both", "simulated", "alone", "other"):
            assert sum(getattr(each, name) for each in found) == getattr(whole, name)


def test_good_simulation_is_worth_trials_and_a_coin_costs_little():
    good = rollouts(600)
    coin = good.with_coin(0)
    draws = [draw for each in (good, coin) for draw in draws_of(each, 100)]
    known = bounds_of(draws, workers=0)
    row, worse = (SimToRealRow.of(each, 100, known) for each in (good, coin))
    assert row.agreement == np.mean(good.reality == good.simulation) > 0.95
    assert row.equivalent_trials is not None
    assert row.equivalent_trials >= 182
    assert row.draws == worse.draws == 6
    assert row.errors == 0
    assert row.looser < 0.95
    assert 0.9 < worse.looser < 1.04
    assert worse.bound_without == row.bound_without


def test_a_coin_fails_as_often_and_knows_nothing_of_the_trials():
    real = rollouts(30_000, agreement=1.0)
    coin, again, other = (real.with_coin(seed) for seed in (0, 0, 1))
    assert np.array_equal(coin.simulation, again.simulation)
    assert not np.array_equal(coin.simulation, other.simulation)
    assert coin.more.mean() == pytest.approx(0.3, abs=0.01)
    assert abs(np.corrcoef(coin.simulation, coin.reality)[0, 1]) < 0.03


# ---- rollouts -----------------------------------------------------------------------------------


def test_the_drone_of_reality_takes_the_commands_of_its_model():
    task = Swing()
    true = pairs.harder_to_fly(task)
    assert true.largest_control == task.largest_control
    assert true.speed > task.speed
    assert true.k_u < task.k_u
    assert true.k_p < task.k_p


@pytest.mark.usefixtures("hasty")
def test_policies_are_chosen_in_simulation_and_rolled_out_in_both(tmp_path: Path):
    robot = robots()[-1]
    assert robot.name == "swing"
    how = Execution(store=tmp_path / "kept")
    best, weaker = rolled_out(robot, 40, 500, 3, how)
    policies = robot.policies(3)
    factor = policies["weaker"] / policies["best"]
    np.testing.assert_allclose(factor, factor[0])
    assert 0 < factor[0] < 1
    where = robot.simulation.environments(40, "sim-to-real trials", 3)
    more = robot.simulation.environments(500, "sim-to-real simulated", 3)
    for each, gains in zip((best, weaker), policies.values(), strict=True):
        np.testing.assert_array_equal(each.reality, robot.reality.costs([gains], where)[:, 0])
        np.testing.assert_array_equal(each.simulation, robot.simulation.costs([gains], where)[:, 0])
        np.testing.assert_array_equal(each.more, robot.simulation.costs([gains], more)[:, 0])
    assert 0.2 < weaker.more.mean() < 0.4
    assert best.more.mean() < 0.1
    assert len([*tmp_path.iterdir()]) == 3  # a store for each table
    with pytest.raises(ValueError, match="ask for as many, or more"):
        rolled_out(robot, 20, 500, 3, how)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond 3.11")
@pytest.mark.usefixtures("hasty")
def test_the_vehicle_drives_in_pybullet():
    robot = robots()[0]
    assert isinstance(robot.reality, BulletVehicle)
    found = rolled_out(robot, 6, 20, 0, Execution())
    gains, where = robot.policies(0), robot.reality.environments(6, "sim-to-real trials")
    real = robot.reality.costs(np.stack([*gains.values()]), where)
    np.testing.assert_array_equal(np.stack([each.reality for each in found], axis=1), real)


# ---- the command --------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
def test_without_pybullet_the_swing_is_shown_alone(
    quick: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(FIND, lambda _: None)
    options = "--draws", 1, "--simulated", 5000, "--workers", 0, "--json", "s.json"
    result = quick("reproduce", "sim-to-real", *options)
    assert result.returncode == 0, result.stderr
    assert "the Swing is shown alone" in result.stdout
    assert "pip install 'pacbayes-control[pybullet]'" in result.stdout
    assert "<svg" in (tmp_path / "runs" / "sim-to-real" / "sim-to-real.svg").read_text()
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["environments_simulated"] == 5000
    assert "PyBullet is not installed" in record["note"]
    assert 0 <= record["errors"] <= 0.1
    cases = [(row["policy"], row["trials"], row["draws"]) for row in record["rows"]]
    sizes = [(30, 10), (100, 3), (300, 1)]
    assert cases == [(policy, *size) for policy in ("best", "weaker") for size in sizes]
    for row in record["rows"]:
        assert row["robot"] == "swing"
        assert row.keys() >= FIGURES | NAMES
        assert row["bound"] > row["true_cost"]
        n = row["equivalent_trials"]
        assert by_hand(n, row["true_cost"]) <= row["bound"] < by_hand(n - 1, row["true_cost"])
        assert f"{row['bound']:.3f}" in result.stdout
    assert [row["trials"] for row in record["coin"]] == 2 * [*TRIALS]
    assert all(row["looser"] == row["bound"] / row["bound_without"] for row in record["coin"])


def test_no_draws_are_an_error(quick: Callable):
    assert "Invalid value for '--draws'" in complaint(
        quick("reproduce", "sim-to-real", "--draws", 0)
    )
