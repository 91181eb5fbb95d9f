"""Flights in a folder: none is overwritten, left out, or counted twice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aloft import CALM, TASK, WALL, certified, stage
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.columns import read_outcomes
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots.swing.flight.campaign import FlightCampaign
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.stages import (
    check_certified,
    draw_pilot,
    drawn_obstacles,
    flight_seed,
    read_obstacles,
    write_obstacles,
)
from pacbayes_control.robots.swing.flight.world import Physics


@pytest.fixture(scope="module")
def run() -> Run[Any]:
    return certified()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "flights"


def fly_once(campaign: FlightCampaign, cylinders: np.ndarray = CALM, *faults: str) -> Any:
    where = stage(cylinders, *faults)
    return campaign.fly(TASK, cylinders, where, seed=5, rehearsed=faults)


def costs(folder: Path) -> list[float]:
    return read_outcomes(folder / "outcomes.csv", "cost").tolist()


# ---- the files ----------------------------------------------------------------------------------


def test_numbers_go_on_and_the_monitor_counts(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        assert campaign.report() is None
        assert fly_once(campaign).cost == 0
        assert fly_once(campaign, WALL).cost == 1
    with FlightCampaign(folder, run, simulated=True) as campaign:
        assert campaign.next == 3
        assert fly_once(campaign).cost == 0
        report = campaign.report()
        assert report is not None
        assert report.trials == 3
    assert costs(folder) == [0, 1, 0]
    assert Monitor.load(folder / "monitor.json", run.certificate).total == 1
    files = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    flights = {f"flight-000{n}.{kind}" for n in (1, 2, 3) for kind in ("csv", "json")}
    assert files == flights | {"outcomes.csv", "monitor.json"}


@pytest.mark.slow
def test_each_flight_draws_a_policy_of_its_own_and_tells_which(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        for _ in range(6):
            fly_once(campaign)
    records = [json.loads((folder / f"flight-000{n}.json").read_text()) for n in range(1, 7)]
    assert len({record["policy_seed"] for record in records}) == 6
    assert len({record["policy"] for record in records}) > 1
    for record in records:
        assert record["policy_seed"] == flight_seed(5, record["flight"])
        again = draw_pilot(run, TASK, record["policy_seed"])
        assert again.index == record["policy"]
        assert run.costs.parameters is not None
        assert run.costs.parameters[again.index].tolist() == record["policy_parameters"]
        assert record["obstacles"] == CALM.tolist()


def test_policies_are_drawn_as_the_posterior_says(run: Run[Any]):
    drawn = [draw_pilot(run, TASK, flight_seed(0, n)).index for n in range(1, 401)]
    shares = np.bincount(np.array(drawn, int), minlength=100) / 400
    assert np.abs(shares - run.posterior.probabilities).max() < 0.08


def test_a_continuous_posterior_is_drawn_from_too(run: Run[Any]):
    posterior = DiagonalGaussian(np.zeros(40), np.full(40, 0.01))
    gaussian = replace(run, posterior=posterior, prior=posterior)
    pilot = draw_pilot(gaussian, TASK, seed=3)
    assert pilot.index is None
    assert pilot.policy.shape == (40,)
    assert np.any(pilot.policy != 0)


def test_a_rehearsal_is_logged_and_not_counted(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        assert fly_once(campaign, CALM, "tracker-silent@2").fault
        assert campaign.report() is None
    assert not (folder / "outcomes.csv").exists()
    record = json.loads((folder / "flight-0001.json").read_text())
    assert record["rehearsed"] == ["tracker-silent@2"]


def summary(folder: Path, number: int) -> dict[str, Any]:
    return json.loads((folder / f"flight-{number:04d}.json").read_text())


def test_hardware_and_limits_are_recorded(run: Run[Any], folder: Path):
    hardware = {"tracker": "udp://127.0.0.1:5005", "address": "e0:14:d0:63:3d:d0", "pitch": 43}
    with FlightCampaign(folder, run, simulated=True) as campaign:
        limits = FlightLimits(speed_tolerance=math.inf)
        campaign.fly(TASK, CALM, stage(), 5, limits=limits, hardware=hardware)
    record = summary(folder, 1)
    assert record["hardware"] == hardware
    assert record["settings"]["altitude"] == 1.0
    assert record["settings"]["speed_tolerance"] is None
    assert record["speed"] == pytest.approx(1.95, rel=0.05)
    assert 0 < record["gap"] < 0.3


# ---- the draws ----------------------------------------------------------------------------------


def test_the_policy_is_not_written_before_take_off(run: Run[Any], folder: Path):
    where, known = stage(), []
    connect, take_off = where.drone.connect, where.drone.take_off

    def look(then: Callable[[], None]) -> Callable[[], None]:
        def looked() -> None:
            known.append(summary(folder, 1).get("policy_parameters"))
            then()

        return looked

    where.drone.connect, where.drone.take_off = look(connect), look(take_off)  # type: ignore[method-assign]
    with FlightCampaign(folder, run, simulated=True) as campaign:
        campaign.fly(TASK, CALM, where, seed=5)
    assert known[0] is None
    assert known[1] == summary(folder, 1)["policy_parameters"]


def fly_for_real(
    campaign: FlightCampaign, cylinders: np.ndarray = CALM, battery: float = 90.0
) -> Any:
    """As a campaign of real flights takes it; the drone is simulated."""
    where = stage(cylinders, physics=Physics(battery=battery))
    return campaign.fly(TASK, cylinders, where, seed=None)


def test_giving_up_on_the_ground_is_no_way_to_another_policy(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=False) as campaign:
        first = campaign.policy_seed(None)
        assert fly_for_real(campaign, battery=3.0).cost is None
        assert campaign.policy_seed(None) == first
    assert "policy_seed" not in summary(folder, 1)
    with FlightCampaign(folder, run, simulated=False) as campaign:
        assert fly_for_real(campaign).cost == 0
        assert campaign.trials == 1
        assert campaign.policy_seed(None) != first
    assert summary(folder, 2)["policy_seed"] == first


def test_a_policy_that_fails_on_the_ground_is_a_trial_and_told(
    run: Run[Any], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(type(TASK), "act", lambda *_: math.nan)
    with FlightCampaign(folder, run, simulated=False) as campaign:
        assert fly_for_real(campaign).cost == 1
        assert campaign.trials == 1
    assert "policy_parameters" in summary(folder, 1)


def test_real_draws_are_secret_and_of_the_folder(run: Run[Any], folder: Path, tmp_path: Path):
    with FlightCampaign(folder, run, simulated=False) as campaign:
        secret = campaign.secret
        with pytest.raises(ValueError, match="a seed is for simulated flights"):
            campaign.fly(TASK, CALM, stage(), seed=5)
        fly_for_real(campaign)
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    with FlightCampaign(folder, run, simulated=False) as campaign:
        assert campaign.secret == secret
    with FlightCampaign(tmp_path / "other", run, simulated=False) as campaign:
        assert campaign.secret != secret
    (folder / "secret").write_text("0x5\n")
    with pytest.raises(ValueError, match="is damaged"):
        FlightCampaign(folder, run, simulated=False)
    (folder / "secret").unlink()
    with pytest.raises(ValueError, match="is missing, and flights are drawn with it"):
        FlightCampaign(folder, run, simulated=False)


def test_an_environment_is_drawn_once_for_each_trial(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=False) as campaign:
        field = campaign.draw_environment(TASK)
        assert fly_for_real(campaign, field, battery=3.0).cost is None
        assert campaign.draw_environment(TASK).tolist() == field.tolist()
        assert fly_for_real(campaign, field).cost is not None
        assert campaign.draw_environment(TASK).tolist() != field.tolist()
        assert fly_for_real(campaign).cost == 0
    assert [summary(folder, n)["obstacles_drawn"] for n in (1, 2, 3)] == [True, True, False]


# ---- no trials ----------------------------------------------------------------------------------


def test_a_flight_that_never_took_off_is_no_trial(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        where = stage(physics=Physics(battery=3.0))
        flight = campaign.fly(TASK, CALM, where, seed=5, limits=FlightLimits())
        assert flight.cost is None
        assert campaign.report() is None
        assert campaign.next == 2


# ---- failures -----------------------------------------------------------------------------------


def test_a_flight_whose_process_was_killed_is_a_failure(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        fly_once(campaign)
        fly_once(campaign)
    path = folder / "flight-0002.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "state": "in flight", "cost": None}))
    table = folder / "outcomes.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:2]))
    (folder / "monitor.json").unlink()
    with FlightCampaign(folder, run, simulated=True) as campaign:
        report = campaign.report()
        assert report is not None
        assert report.trials == 2
    assert costs(folder) == [0, 1]
    assert json.loads(path.read_text())["reason"] == "the process ended in flight"
    with FlightCampaign(folder, run, simulated=True):
        assert costs(folder) == [0, 1]  # once


def test_an_outcome_that_is_missing_in_the_table_is_counted(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        fly_once(campaign)
    (folder / "outcomes.csv").unlink()
    (folder / "monitor.json").unlink()
    with FlightCampaign(folder, run, simulated=True) as campaign:
        report = campaign.report()
        assert report is not None
        assert report.trials == 1


def test_a_flight_that_was_killed_on_the_ground_is_no_trial(run: Run[Any], folder: Path):
    folder.mkdir()
    (folder / "flight-0001.json").write_text('{"state": "on the ground"}')
    with FlightCampaign(folder, run, simulated=True) as campaign:
        assert campaign.report() is None
        assert campaign.next == 2


def test_a_summary_that_does_not_say_how_a_flight_ended_is_refused(run: Run[Any], folder: Path):
    folder.mkdir()
    (folder / "flight-0001.json").write_text('{"state": "ended", "cost": 0}')
    with pytest.raises(ValueError, match=r"flight 1 .* does not say how it ended"):
        FlightCampaign(folder, run, simulated=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "is not the summary of a flight: restore it, or report these flights"),
        ('{"state": 1}', r"state: expected str$"),
        (
            '{"state": "ended", "cost": true, "end": "", "reason": ""}',
            r"cost: expected int \| None$",
        ),
        ('{"state": "ended", "cost": "0", "end": "", "reason": ""}', "cost: expected int"),
        ('{"state": "ended", "cost": 2, "end": "", "reason": ""}', "does not say how it ended"),
        ('{"state": "ended", "cost": 0, "end": "", "reason": {}}', "reason: expected str$"),
        ('{"state": "ended", "obstacles": {"x": 1}}', "obstacles: expected list"),
        ('{"rehearsed": "no"}', "rehearsed: expected list"),
        ('{"cost": 0, "cost": 1}', "is corrupt: it is not JSON"),
    ],
)
def test_an_altered_summary_is_refused_and_counts_nothing(
    run: Run[Any], folder: Path, text: str, words: str
):
    folder.mkdir()
    (folder / "flight-0001.json").write_text(text)
    with pytest.raises(ValueError, match=rf"^[^\n]*{words}[^\n]*$"):
        FlightCampaign(folder, run, simulated=True)
    assert not (folder / "outcomes.csv").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("number,cost\n1,0\n", "no column 'flight'"),
        ("flight,cost\none,0\n", "'one', entry 1, is not a finite number"),
        ("flight,cost\n,0\n", "the value is missing"),
        ("flight,cost\n1.5,0\n", "has flights without a whole number: restore it"),
    ],
)
def test_an_altered_table_of_outcomes_is_refused(
    run: Run[Any], folder: Path, text: str, words: str
):
    folder.mkdir()
    (folder / "outcomes.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        FlightCampaign(folder, run, simulated=True)


def test_a_folder_is_flown_in_by_one_at_a_time(run: Run[Any], folder: Path):
    with (
        FlightCampaign(folder, run, simulated=True),
        pytest.raises(ValueError, match="is in use by another flight"),
    ):
        FlightCampaign(folder, run, simulated=True)


def test_simulated_and_real_flights_are_not_mixed(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        fly_once(campaign)
    with pytest.raises(ValueError, match=r"flight 1 .* is simulated, and these are real"):
        FlightCampaign(folder, run, simulated=False)


def test_flights_of_two_runs_are_not_mixed(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        fly_once(campaign)
    other = learn_finite(run.costs, delta=0.05)
    with pytest.raises(ValueError, match="holds flights of another certificate"):
        FlightCampaign(folder, other, simulated=True)


def test_a_file_is_no_folder(run: Run[Any], folder: Path):
    folder.touch()
    with pytest.raises(ValueError, match="is a file"):
        FlightCampaign(folder, run, simulated=True)


def test_obstacles_that_were_flown_among_are_not_new(run: Run[Any], folder: Path):
    with FlightCampaign(folder, run, simulated=True) as campaign:
        fly_once(campaign)
        with pytest.raises(ValueError, match=r"a.csv has the obstacles of flight 1"):
            campaign.check_new(CALM[::-1], "a.csv")
        campaign.check_new(WALL, "b.csv")


# ---- obstacles ----------------------------------------------------------------------------------


def obstacles_in(tmp_path: Path, text: str) -> np.ndarray:
    path = tmp_path / "room.csv"
    path.write_text(text)
    return read_obstacles(path, TASK)


def test_obstacles_are_read_by_their_columns(tmp_path: Path):
    found = obstacles_in(tmp_path, "name,y,x,radius\na,8,-1.5,0.3\nb,9,1,0.4\n")
    assert found.tolist() == [[-1.5, 8.0, 0.3], [1.0, 9.0, 0.4]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,8\n", "no column radius; obstacles have x, y, radius in m, and this one has x, y"),
        ("1,8,0.3\n", "no column x, y, radius; obstacles have x, y, radius in m"),
        ("x,y,radius\n", "no obstacles below the header"),
        ("x,y,radius\n1,8,big\n", "line 2: 'big' is not a number in column radius"),
        ("x,y,radius\n1,8,nan\n", "line 2: a radius of nan m is not in"),
        ("x,y,radius\nnan,8,0.3\n", "line 2: x = nan, y = 8 is outside the net"),
        ("x,y,radius\n1,8,0\n", "line 2: a radius of 0 m is not in"),
        ("x,y,radius\n1,8,30\n", "line 2: a radius of 30 m is not in"),
        ("x,y,radius\n1,8,0.3\n9,8,0.3\n", "line 3: x = 9, y = 8 is outside the net"),
        ("x,y,radius\n0,1.4,0.3\n", "line 2: the cylinder stands where the drone starts"),
        ("", "it is empty"),
    ],
)
def test_obstacles_that_cannot_stand_are_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(ValueError, match=words):
        obstacles_in(tmp_path, text)


def test_what_was_drawn_and_written_is_read_and_certified(tmp_path: Path):
    for number in range(1, 30):
        field, path = drawn_obstacles(TASK, 3, number), tmp_path / f"{number}.csv"
        write_obstacles(path, field)
        assert read_obstacles(path, TASK).tolist() == field.tolist()
        check_certified(field, TASK, path.name)
    with pytest.raises(ValueError, match="exists already"):
        write_obstacles(path, field)


@pytest.mark.parametrize(
    ("cylinders", "words"),
    [
        ([[0, 8, 0.3]] * 2, "a.csv: there are 2 cylinders, and 3 to 6 were certified"),
        ([[0, 8, 0.3]] * 7, "a.csv: there are 7 cylinders, and 3 to 6 were certified"),
        ([[0, 8, 0.3]] * 2 + [[1, 3, 0.3]], "at x = 1, y = 3.* y from 5 to 13 m"),
        ([[0, 8, 0.3]] * 2 + [[1, 14, 0.3]], "at x = 1, y = 14"),
        ([[0, 8, 0.3]] * 2 + [[1, 8, 0.1]], "of radius 0.1 m.* radius from 0.25 to 0.5 m"),
        ([[0, 8, 0.3]] * 2 + [[1, 8, 0.6]], "of radius 0.6 m"),
    ],
)
def test_what_the_certified_distribution_never_draws_is_refused(
    cylinders: list[list[float]], words: str
):
    with pytest.raises(ValueError, match=words):
        check_certified(np.array(cylinders), TASK, "a.csv")


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_obstacles(tmp_path / "none.csv", TASK)
