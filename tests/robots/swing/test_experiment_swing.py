"""The Swing's experiment, from the log to the flights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.robots.swing import DrawnGains, Swing, WorstGains, experiment
from pacbayes_control.robots.swing.experiment import (
    ENVIRONMENTS,
    GAINS,
    PAPER,
    Flown,
    certificates,
    tasks,
    to_dict,
)
from pacbayes_control.robots.swing.flight import stages
from pacbayes_control.verify import verify
from sizes import sized

TEST = sized(900, full=2000)
FEW = sized(250, full=ENVIRONMENTS)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Flown:
    """The experiment, on fewer environments than the paper's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "ENVIRONMENTS", FEW)
        return experiment.swing(2, TEST, 0, tmp_path_factory.mktemp("swing") / "flights")


@pytest.fixture
def learnt(result: Flown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the certificates, which do not matter to the flights."""
    monkeypatch.setattr(experiment, "certificates", lambda *_, **__: (result.rows, result.run))


def test_the_papers_figures_are_the_papers():
    assert PAPER == {"bound": 0.114, "flights": 20, "successes": 18}
    assert ENVIRONMENTS == 1000


@pytest.mark.slow
def test_there_is_a_row_for_each_view_of_the_gains_and_each_method(result: Flown):
    found = [(row.gains, row.method) for row in result.rows]
    assert found == [(gains, method) for gains in GAINS for method in ("paper", "kl", "occam")]


def test_the_bound_is_no_more_than_two_hundredths_above_the_papers():
    """Means over draws; two draws are within a few hundredths of them."""
    rows = {
        row.method: row
        for row in certificates({"fixed": Swing()}, draws=2, test_environments=TEST)[0]
    }
    assert all(row.environments == ENVIRONMENTS for row in rows.values())
    assert rows["kl"].bound <= 0.134
    assert rows["paper"].bound <= 0.134
    assert rows["occam"].bound < rows["kl"].bound


@pytest.mark.slow
def test_every_bound_lies_above_the_estimate_of_the_true_cost(result: Flown):
    for row in result.rows:
        assert row.violations == 0
        assert 0.05 < row.true_cost < row.bound
        assert row.draws == 2


@pytest.mark.slow
def test_the_worst_of_several_drones_costs_more_than_one(result: Flown):
    rows = {(row.gains, row.method): row for row in result.rows}
    for method in ("paper", "kl", "occam"):
        assert rows["worst", method].bound > rows["fixed", method].bound


def test_the_views_of_the_gains_are_of_the_model_that_was_fitted():
    model, drones = tasks(0)
    assert model.fits
    assert drones["fixed"] == Swing()
    assert isinstance(drones["drawn"].uncertainty, DrawnGains)
    worst = drones["worst"].uncertainty
    assert isinstance(worst, WorstGains)
    assert worst.k_p == (model.k_p.low, model.k_p.high)
    assert worst.k_p[0] < 0.4 < worst.k_p[1]


@pytest.mark.slow
def test_the_run_that_is_flown_is_that_of_the_first_draw_and_verifies(
    result: Flown, tmp_path: Path
):
    train = result.task.environments(FEW, stream="swing train 0")
    origin = result.run.costs.origin
    assert origin["settings"] == Swing().settings
    assert {key: origin[key] for key in train.origin} == train.origin
    result.run.save(tmp_path / "run")
    verify(tmp_path / "run")


@pytest.mark.slow
def test_twenty_flights_go_through_the_loop_each_in_an_environment_of_its_own(result: Flown):
    assert len(result.flights) == len(result.paths) == len(result.fields) == 20
    assert len({field.tobytes() for field in result.fields}) == 20
    for flight, path in zip(result.flights, result.paths, strict=True):
        assert flight.landing_acknowledged
        assert not flight.fault
        assert len(path) > 10
        if flight.cost == 0:
            assert flight.steps == 50


@pytest.mark.slow
def test_the_monitor_has_weighed_all_of_them(result: Flown):
    assert result.report.trials == 20
    assert result.report.mean_cost == pytest.approx(1 - result.successes / 20)
    assert result.report.bound == result.run.certificate.bound
    assert "violated" not in result.report.verdict


@pytest.mark.slow
@pytest.mark.usefixtures("learnt")
def test_the_same_seed_gives_the_same_flights_over_those_of_an_earlier_time(
    result: Flown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(experiment.PAPER, "flights", 4)
    for _ in range(2):
        again = experiment.swing(1, TEST, 0, tmp_path / "flights")
        assert again.report.trials == 4  # the earlier ones are gone
    assert [f.cost for f in again.flights] == [f.cost for f in result.flights[:4]]
    for ours, theirs in zip(again.paths, result.paths, strict=False):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_the_record_is_what_was_promised(result: Flown):
    record = json.loads(json.dumps(to_dict(result), allow_nan=False))
    [row] = [row for row in result.rows if (row.gains, row.method) == ("fixed", "kl")]
    assert record["bound"] == row.bound
    assert record["true_cost"] == row.true_cost
    assert record["paper_bound"] == 0.114
    assert record["flights"] == 20
    assert record["successes"] == result.successes
    assert record["paper_successes"] == 18


def test_no_draws_are_an_error():
    with pytest.raises(ValueError, match="0 draws were asked for"):
        certificates({"fixed": Swing()}, draws=0)


@pytest.mark.slow
@pytest.mark.usefixtures("learnt")
def test_a_drone_much_slower_to_turn_than_its_model_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Flights that break the promise: the monitor must be able to say so."""
    monkeypatch.setitem(experiment.PAPER, "flights", 15)
    honest = stages.physics_of
    slow = lambda task: replace(honest(task), k_p=0.03)  # noqa: E731
    monkeypatch.setattr(stages, "physics_of", slow)
    again = experiment.swing(1, TEST, 0, tmp_path / "flights")
    assert again.successes < 12
    assert again.report.verdict.startswith("violated")


@pytest.mark.slow
def test_what_is_not_of_the_experiment_is_not_deleted(tmp_path: Path):
    folder = tmp_path / "flights"
    folder.mkdir()
    for name in ("mine.txt", "flight-0021.csv"):
        (folder / name).write_text("mine")
        with pytest.raises(ValueError, match="is not of this experiment"):
            experiment.swing(1, TEST, 0, folder)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
