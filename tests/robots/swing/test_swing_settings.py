"""The Swing in a record: told in plain values, made again from them, and nothing else let in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacbayes_control as pbc
from pacbayes_control.certify.costs import Costs
from pacbayes_control.robots import Swing, Vehicle
from pacbayes_control.robots.planar import CommonRadius, ObstacleField
from pacbayes_control.robots.swing import DrawnGains, Net, WorstGains
from pacbayes_control.robots.swing.flight.limits import recorded_swing
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.tasks.registry import recorded_environments, recorded_task

DRAWN = DrawnGains(k_u_sd=0.1 / 3, k_p_sd=0.02, correlation=-0.3, speed_sd=0.1)
WORST = WorstGains(k_u=(2.5, 10 / 3), k_p=(0.35, 0.45), points=3)
KINDS = {
    "the paper's": Swing(),
    "of other numbers": Swing(
        steps=40, time_step=0.08, k_u=10 / 3, k_p=1 / 3, speed=math.e, largest_yaw=0.9, fan=0.7
    ),
    "elsewhere": Swing(
        start=(0.5, 2.0, 0.0),
        arena=Net(half_width=4.0, length=20.0),
        obstacles=ObstacleField(2, 2, (-1.0, 1.0), (4.0, 9.0), (0.1, 0.3)),
    ),
    "with noisy rays": Swing(range_noise=0.1),
    "of drawn gains": Swing(uncertainty=DRAWN),
    "of the worst gains": Swing(uncertainty=WORST),
    "of the worst gains and speed": Swing(uncertainty=replace(WORST, speed=(1.9, 2.2))),
}
GRID = Swing().policies


def plain(task: Swing) -> dict[str, Any]:
    """Settings as they come back from a record."""
    return json.loads(json.dumps(task.settings, allow_nan=False))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_drone_is_made_again_from_its_settings_to_the_last_bit(kind: str):
    task = KINDS[kind]
    again = Swing.from_settings(plain(task))
    assert again == task
    assert repr(again) == repr(task)
    environments = task.environments(8, stream="settings")
    assert again.environments(8, stream="settings").origin == environments.origin
    np.testing.assert_array_equal(
        again.costs(GRID, again.environments(8, stream="settings")),
        task.costs(GRID, environments),
    )


def test_drones_that_differ_have_settings_that_differ():
    assert len({json.dumps(plain(task), sort_keys=True) for task in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    "task", [Swing(obstacles=CommonRadius()), Swing(arena=Vehicle().arena)], ids=["field", "arena"]
)
def test_a_drone_among_what_no_record_tells_has_no_settings(task: Swing):
    assert task.settings is None


# ---- records that describe no drone -------------------------------------------------------------


class Absent:
    """Instead of a value: the field is not there."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()
DEEP: Any = reduce(lambda inner, _: [inner], range(700), 1.0)  # JSON reads it
HUGE = [0.0] * 100_000
NUMBERS = ("time_step", "robot_radius", "horizon", "fan", "speed", "k_u", "k_p", "largest_yaw")
WHOLE = ("steps", "landing_steps")
NONE_OF_THEM = {
    "a string": "0.3",
    "null": None,
    "a list": [1.0],
    "a huge list": HUGE,
    "a deep list": DEEP,
    "an object": {},
    "true": True,
    "NaN": math.nan,
    "an infinity": math.inf,
    "a negative": -0.1,
    "a huge number": 10**400,
}

TAMPERED: dict[str, tuple[str, tuple[str, ...], Any]] = {  # the kind, where, and what instead
    f"{name} is {what}": ("the paper's", (name,), value)
    for name in (*NUMBERS, *WHOLE, "range_noise")
    for what, value in NONE_OF_THEM.items()
}
TAMPERED |= {
    f"{'.'.join(where)} is {what}": (kind, where, value)
    for kind, where in (
        ("the paper's", ("net", "half_width")),
        ("the paper's", ("net", "length")),
        ("the paper's", ("obstacles", "most")),
        ("of drawn gains", ("uncertainty", "k_u_sd")),
        ("of drawn gains", ("uncertainty", "speed_sd")),
        ("of the worst gains", ("uncertainty", "points")),
    )
    for what, value in NONE_OF_THEM.items()
}
TAMPERED |= {
    f"start is {value!r:.30}": ("the paper's", ("start",), value)
    for value in (
        *(None, "010", [0.0, 1.0], [0.0, 1.0, 0.0, 0.0], ["0", "1", "0"], HUGE, {}),
        *([0.0, math.nan, 0.0], [math.inf, 1.0, 0.0], [[0.0], 1.0, 0.0]),
    )
}
TAMPERED |= {
    f"{name} is {value!r:.30}": ("the paper's", ("obstacles", name), value)
    for name in ("x", "radius")
    for value in (
        *(None, 1.0, [0.5], [0.1, 0.2, 0.3], [0.2, 0.1], ["a", "b"], HUGE, {}),
        *([math.nan, 1.0], [0.0, math.inf]),
    )
}
TAMPERED |= {
    f"{where[-1]} of {kind} is {value!r:.30}": (kind, where, value)
    for kind, where, value in (
        ("the paper's", ("obstacles", "fewest"), -1),
        ("the paper's", ("obstacles", "fewest"), 7),  # more than the most
        ("the paper's", ("obstacles", "fewest"), 3.0),
        ("the paper's", ("obstacles", "most"), 6.0),
        ("the paper's", ("obstacles", "most"), 10**12),
        ("the paper's", ("obstacles", "radius"), [-0.5, -0.25]),
        ("the paper's", ("net", "half_width"), 0.0),
        ("the paper's", ("steps",), 50.0),
        ("the paper's", ("steps",), 10**12),
        ("the paper's", ("net",), [3.5, 18.0]),
        ("the paper's", ("net",), None),
        ("the paper's", ("obstacles",), "ObstacleField()"),
        ("the paper's", ("uncertainty",), None),
        ("the paper's", ("uncertainty",), {}),
        ("the paper's", ("uncertainty",), "drawn"),
        ("the paper's", ("uncertainty",), HUGE),
        ("the paper's", ("uncertainty",), {"kind": "drawn"}),
        ("of drawn gains", ("uncertainty", "kind"), "worst"),
        ("of drawn gains", ("uncertainty", "kind"), ["drawn"]),
        ("of drawn gains", ("uncertainty", "kind"), "other"),
        ("of drawn gains", ("uncertainty", "correlation"), 1.5),
        ("of drawn gains", ("uncertainty", "correlation"), None),
        ("of the worst gains", ("uncertainty", "kind"), "drawn"),
        ("of the worst gains", ("uncertainty", "k_u"), [1.0]),
        ("of the worst gains", ("uncertainty", "k_u"), [1.0, 2.0, 3.0]),
        ("of the worst gains", ("uncertainty", "k_u"), [3.0, 2.0]),
        ("of the worst gains", ("uncertainty", "k_u"), None),
        ("of the worst gains", ("uncertainty", "speed"), [math.nan, 2.0]),
        ("of the worst gains", ("uncertainty", "points"), 10**9),
    )
}
TAMPERED |= {
    f"{'.'.join(where)} is missing": (kind, where, ABSENT)
    for kind, where in (
        *(("the paper's", (name,)) for name in KINDS["the paper's"].settings),
        ("the paper's", ("net", "length")),
        ("the paper's", ("obstacles", "x")),
        ("of drawn gains", ("uncertainty", "kind")),
        ("of drawn gains", ("uncertainty", "k_u_sd")),
        ("of drawn gains", ("uncertainty", "correlation")),
        ("of the worst gains", ("uncertainty", "points")),
    )
}
TAMPERED |= {
    f"{'.'.join(where)} is there too": (kind, where, 1.0)
    for kind, where in (
        ("the paper's", ("wings",)),
        ("the paper's", ("controller",)),
        ("the paper's", ("arena",)),
        ("the paper's", ("net", "height")),
        ("the paper's", ("obstacles", "height")),
        ("of drawn gains", ("uncertainty", "points")),
    )
}


def tampered(what: str) -> dict[str, Any]:
    kind, where, value = TAMPERED[what]
    record = plain(KINDS[kind])
    parent = reduce(lambda part, name: part[name], where[:-1], record)
    if value is ABSENT:
        del parent[where[-1]]
    else:
        parent[where[-1]] = value
    return record


@pytest.mark.parametrize("what", TAMPERED)
def test_a_record_of_no_drone_is_told_in_one_line(what: str):
    words = r"^the record does not describe a Swing: [^\n]+$"
    with pytest.raises(ValueError, match=words) as complaint:
        Swing.from_settings(tampered(what))
    assert len(str(complaint.value)) < 1000


@pytest.mark.parametrize("record", [None, 5, "swing", [], [[1]], {}, {1: 2}], ids=repr)
def test_what_is_no_record_at_all_is_told_in_one_line(record: Any):
    with pytest.raises(ValueError, match=r"^the record does not describe a Swing: [^\n]+$"):
        Swing.from_settings(record)


# ---- from a run ---------------------------------------------------------------------------------


def run_of(task: Any, policies: Any, n: int = 20) -> pbc.Run:
    costs = pbc.evaluate(task, policies, task.environments(n, stream="train", seed=3))
    return pbc.learn_finite(costs, 0.05)


def with_origin(run: pbc.Run, **changes: Any) -> pbc.Run:
    """The same of another origin, as somebody might write it."""
    origin = {**run.costs.origin, **changes}
    origin = {name: value for name, value in origin.items() if value is not ABSENT}
    costs = Costs(run.costs.values, run.costs.names, origin, parameters=run.costs.parameters)
    return pbc.Run(run.certificate, costs, run.prior, run.posterior)


@pytest.fixture(scope="module")
def learnt() -> pbc.Run:
    return run_of(Swing(), GRID)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_run_tells_its_drone_and_its_environments(kind: str, tmp_path: Path):
    task = KINDS[kind]
    loaded = pbc.Run.load(run_of(task, GRID).save(tmp_path / "run"))
    assert recorded_swing(loaded) == task
    again = recorded_task(loaded.costs)
    environments = recorded_environments(loaded.costs, again)
    assert again == task
    assert environments.origin == task.environments(20, "train", 3).origin
    np.testing.assert_array_equal(again.costs(GRID, environments), loaded.costs.values)


def test_a_part_of_the_environments_is_that_part(learnt: pbc.Run):
    environments = recorded_environments(with_origin(learnt, start=5).costs, Swing())
    assert (environments.start, environments.stop) == (5, 20)


def test_a_run_of_the_vehicle_is_the_vehicles(tmp_path: Path):
    task = Vehicle(range_noise=0.05)
    loaded = pbc.Run.load(run_of(task, task.policies).save(tmp_path / "run"))
    assert recorded_task(loaded.costs) == task
    with pytest.raises(ValueError, match=r"^the run is of the task vehicle, and not of the Swing$"):
        recorded_swing(loaded)


def test_a_table_of_costs_is_of_no_task(tmp_path: Path):
    file = tmp_path / "costs.csv"
    file.write_text("site,a,b\n" + "".join(f"{i},0,{i % 2}\n" for i in range(20)))
    run = pbc.learn_finite(pbc.read_campaign(file).costs, 0.05)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_task(run.costs)
    with pytest.raises(ValueError, match=r"^the run is of a table of costs, and not of the Swing$"):
        recorded_swing(run)


@pytest.mark.slow
def test_a_task_of_ones_own_is_neither():
    def draw(rng: np.random.Generator) -> dict[str, float]:
        return {"x": rng.random()}

    def cost(policy: Any, environment: Any) -> float:
        return float(environment["x"] < policy[0])

    run = run_of(FunctionTask(cost, draw, name="swing door"), np.array([[0.1], [0.4]]))
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_task(run.costs)


def test_a_drone_that_no_record_describes_is_not_made_up():
    run = run_of(Swing(obstacles=CommonRadius()), GRID)
    with pytest.raises(ValueError, match=r"^the run is of a Swing that its record does not desc"):
        recorded_swing(run)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_task(run.costs)


ORIGINS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "the settings are missing": lambda _: {"settings": ABSENT},
    "the settings are a list": lambda _: {"settings": [1, 2]},
    "the settings are empty": lambda _: {"settings": {}},
    "the settings are of other obstacles": lambda _: {"settings": plain(KINDS["elsewhere"])},
    "the settings have a negative gain": lambda own: {"settings": {**own["settings"], "k_u": -1}},
    "the settings have a radius of words": lambda own: {
        "settings": {**own["settings"], "robot_radius": "wide"}
    },
    "the settings have no robot": lambda own: {"settings": {**own["settings"], "robot_radius": -1}},
    "the settings are deep": lambda own: {"settings": {**own["settings"], "fan": DEEP}},
    "the task is missing": lambda _: {"task": ABSENT},
    "the task is a number": lambda _: {"task": 5},
    "the task is a space": lambda _: {"task": " "},
    "the task is another": lambda _: {"task": "swing ObstacleField()"},
    "the task is the vehicle": lambda _: {"task": f"vehicle {ObstacleField()}"},
    "the policies are others": lambda _: {"policy_class": "linear, 40 rays"},
    "the policies are the vehicle's": lambda _: {"policy_class": "gains"},
    "the policies are a list": lambda _: {"policy_class": ["gains, 40 rays"]},
}


@pytest.mark.parametrize("what", ORIGINS)
def test_a_run_whose_origin_was_tampered_with_is_told_in_one_line(what: str, learnt: pbc.Run):
    run = with_origin(learnt, **ORIGINS[what](dict(learnt.costs.origin)))
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_swing(run)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_task(run.costs)


@pytest.mark.parametrize(
    "changes",
    [
        {"stop": "20"},
        {"stop": 0},
        {"stop": -3},
        {"stop": True},
        {"stop": ABSENT},
        {"start": 3.0},
        {"seed": -1},
        {"seed": 2**70},
        {"seed": None},
        {"stream": 7},
        {"stream": ABSENT},
    ],
    ids=str,
)
def test_environments_that_nobody_can_draw_are_told_in_one_line(changes: Any, learnt: pbc.Run):
    run = with_origin(learnt, **changes)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        recorded_environments(run.costs, Swing()).arrays()


def test_noise_that_the_settings_do_not_have_is_a_contradiction(learnt: pbc.Run):
    """The costs are said to be of drawn gains, and the drone's are fixed; and the other way."""
    drawn = run_of(Swing(uncertainty=DRAWN), GRID)
    for run, other in ((learnt, drawn), (drawn, learnt)):
        told = with_origin(run, noise=other.costs.origin.get("noise", ABSENT))
        with pytest.raises(ValueError, match="contradicts itself"):
            recorded_swing(told)
