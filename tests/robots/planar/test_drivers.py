"""The compiled drivers of a robot's own rule: which are kept on disk, and what they do."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import pytest
from bicycles import Bicycle, Yard
from numpy.typing import NDArray

from pacbayes_control.robots import Swing, Vehicle
from pacbayes_control.robots.planar import kernel
from pacbayes_control.robots.planar.drivers import drivers_of
from pacbayes_control.tasks import Environments, Noise
from robots.vehicle.scenes import scene
from sizes import sized

# ---- what a rule's result depends on ------------------------------------------------------------

RULE = """
def move(state, control, draws, step, model):
    x, y, sin, cos, own = state
    return x + {body}, y, sin, cos, own
"""


def rule_of(body: str = "1.0", source: str = RULE, **names: Any) -> Callable:
    """A rule from its text, with its global names."""
    namespace = {"__name__": "rules", **names}
    exec(source.replace("{body}", body), namespace)
    return namespace["move"]


def half(x):
    return x / 2


def third(x):
    return x / 3


def quarter(x):
    return half(half(x))


def quarter_by_thirds(x):
    return third(third(x))


def closed_over(value: float) -> Callable:
    def move(state, control, draws, step, model):  # noqa: ARG001
        x, y, sin, cos, own = state
        return x + value, y, sin, cos, own

    return move


def with_default(value: Any) -> Callable:
    def move(state, control, draws, step, model, by=value):  # noqa: ARG001
        x, y, sin, cos, own = state
        return x + by, y, sin, cos, own

    return move


INNER = """
def move(state, control, draws, step, model):
    x, y, sin, cos, own = state
    def further(value):
        return value + BY
    return further(x), y, sin, cos, own
"""

DIFFERENT = {
    "its code": (rule_of("x"), rule_of("y")),
    "the order of its code": (rule_of("x - y"), rule_of("y - x")),
    "a constant": (rule_of("1.0"), rule_of("2.0")),
    "the last digit of a constant": (rule_of("0.1"), rule_of("0.10000000000000002")),
    "the kind of a constant": (rule_of("1"), rule_of("1.0")),
    "the sign of zero": (rule_of("1 / 0.0"), rule_of("1 / -0.0")),
    "a global number": (rule_of("BY", BY=1.0), rule_of("BY", BY=2.0)),
    "the kind of a global number": (rule_of("BY", BY=1), rule_of("BY", BY=1.0)),
    "its precision": (rule_of("BY", BY=np.float32(1)), rule_of("BY", BY=np.float64(1))),
    "a global tuple": (rule_of("BY[1]", BY=(1.0, 2.0)), rule_of("BY[1]", BY=(1.0, 3.0))),
    "a function that it calls": (rule_of("f(x)", f=half), rule_of("f(x)", f=third)),
    "a compiled function": (
        rule_of("f(x)", f=numba.njit(half)),
        rule_of("f(x)", f=numba.njit(third)),
    ),
    "a function that that calls": (
        rule_of("f(x)", f=quarter),
        rule_of("f(x)", f=quarter_by_thirds),
    ),
    "a name that hides a builtin": (rule_of("abs(x)"), rule_of("abs(x)", abs=half)),
    "which module": (rule_of("m.sqrt(x)", m=math), rule_of("m.sqrt(x)", m=np)),
    "which type": (rule_of("F(x)", F=np.float32), rule_of("F(x)", F=np.float64)),
    "a closure": (closed_over(1.0), closed_over(2.0)),
    "a default": (with_default(1.0), with_default(2.0)),
    "a global number of a function within it": (
        rule_of(source=INNER, BY=1.0),
        rule_of(source=INNER, BY=2.0),
    ),
    "a function's options for Numba": (
        rule_of("f(x)", f=numba.njit(half)),
        rule_of("f(x)", f=numba.njit(fastmath=True)(half)),
    ),
    "a name within a tuple": (
        rule_of("BY.a", BY=namedtuple("Pair", "a b")(1.0, 2.0)),
        rule_of("BY.a", BY=namedtuple("Pair", "b a")(1.0, 2.0)),
    ),
    "an array by default, in its last digits": (
        with_default(np.array([0.12345678901])),
        with_default(np.array([0.12345678902])),
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_rules_digest_changes_with(what: str):
    one, other = (drivers_of(rule).digest for rule in DIFFERENT[what])
    assert one is None or other is None or one != other


@pytest.mark.parametrize("what", [*DIFFERENT][:18])
def test_the_usual_rules_are_told_apart_by_a_digest_and_not_by_none(what: str):
    for rule in DIFFERENT[what]:
        digest = drivers_of(rule).digest
        assert digest is not None
        assert len(digest) == 16
        assert int(digest, 16) >= 0


def test_a_digest_is_that_of_the_same_rule_elsewhere_in_a_file():
    moved = "# A comment,\n\n\n" + RULE.replace("    return", "    # another,\n\n    return")
    assert (
        drivers_of(rule_of("BY", BY=2.5)).digest == drivers_of(rule_of("BY", moved, BY=2.5)).digest
    )
    assert (
        drivers_of(rule_of("BY", BY=2.5, unused=3)).digest
        == drivers_of(rule_of("BY", BY=2.5, unused=4)).digest
    )


def cyclic(x):
    return half(x) if x < 1 else cyclic(x / 2)


UNKNOWN = {
    "an array": rule_of("BY[0]", BY=np.array([1.0])),
    "a list": rule_of("BY[0]", BY=[1.0]),
    "a dictionary": rule_of("BY['a']", BY={"a": 1.0}),
    "an object": rule_of("BY.by", BY=Bicycle()),
    "a module of one's own": rule_of("m.LOST", m=kernel),
    "a tuple of arrays": rule_of("BY[0][0]", BY=(np.array([1.0]),)),
    "a closure's array": closed_over(np.array([1.0])),  # type: ignore[arg-type]
    "a function of such a function": rule_of("f(x)", f=closed_over(np.array([1.0]))),  # type: ignore[arg-type]
    "a function that calls itself": rule_of("f(x)", f=cyclic),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_told_has_no_digest_and_nothing_of_it_is_kept_on_disk(what: str):
    rule = UNKNOWN[what]
    assert drivers_of(rule).digest is None
    drivers = drivers_of(rule)
    assert drivers.collisions.stats.cache_path is None
    assert drivers.trajectories.stats.cache_path is None


def test_what_can_be_told_is_kept_on_disk_under_its_digest():
    constants = len(Bicycle().constants)
    drivers = drivers_of(Bicycle.move, constants)
    digest = f"{drivers_of(Bicycle.move).digest}_{constants}"
    assert drivers.collisions.stats.cache_path is not None
    assert drivers.collisions.__name__ == f"collisions_{digest}"
    assert drivers.trajectories.__name__ == f"trajectories_{digest}"
    assert drivers_of(Bicycle.move, constants) is drivers


def python(*arguments: object, **environment: object) -> str:
    """What another process prints."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- on disk ------------------------------------------------------------------------------------

SMALL = """
from pacbayes_control.robots.planar import kernel

def trajectories(weights, obstacles, counts, world, robot, models, keys, ends, poses, seen):
    start, way = robot[1], poses[0]
    state = start[0], start[1], start[2], start[3], start[4]
    for step in range(len(way)):
        way[step, 0], way[step, 1], way[step, 2] = state[0], state[1], 0.0
        state = robot_moves(state, 0.0, (0.0, 0.0), step, models[0], 0)
    ends[0, 0], ends[0, 1] = len(way) - 1, 0

kernel.trajectories = trajectories
"""
SCRIPT = """
import json, sys
from dataclasses import dataclass, field
import numpy as np
from bicycles import Bicycle
from pacbayes_control.robots import Swing, Vehicle
from pacbayes_control.robots.planar import Gains, Planar
from pacbayes_control.robots.planar.drivers import drivers_of
from pacbayes_control.robots.swing import Net

DRIFT = float(sys.argv[1])

@dataclass(frozen=True)
class Robot(Planar):
    arena: Net = field(default_factory=Net, kw_only=True)

    @staticmethod
    def move(state, control, draws, step, model):
        return state[0] + DRIFT, state[1] + 0.1, state[2], state[3], state[4]

task = Robot(controller=Gains(2), steps=3)
driver = drivers_of(Robot.move).trajectories
DRIFT = float(sys.argv[2])
poses = task.trajectory(np.zeros(2), task.environments(1, "kept"), 0).poses
stats = driver.stats
hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
digests = [drivers_of(robot.move).digest for robot in (Bicycle, Swing, Vehicle)]
print(json.dumps([hits, misses, poses[:, 0].tolist(), digests]))
"""


Follow = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Follow:
    """A process that follows a robot that drifts: hits, misses, where it goes, and digests.

    Its driver is a small one, which compiles in a moment, or the kernel's at full size. Little
    optimisation compiles faster; with none at all, Numba keeps nothing.
    """
    folder = tmp_path_factory.mktemp("kept")
    (folder / "small.py").write_text(sized(SMALL, full=""))
    settings = {"NUMBA_CACHE_DIR": str(folder), "NUMBA_OPT": "1"}

    def run(named_at: float, compiled_at: float, module: str = "robot", seed: int = 0) -> list[Any]:
        place = folder / module
        place.mkdir(exist_ok=True)
        (place / f"{module}.py").write_text(SCRIPT)
        path = os.pathsep.join(map(str, (place, folder, *sys.path)))
        script = "-c", f"import small, {module}", named_at, compiled_at
        return json.loads(python(*script, PYTHONPATH=path, PYTHONHASHSEED=seed, **settings))

    return run


@pytest.fixture(scope="module")
def followed(follow: Follow) -> list[list[Any]]:
    """By 0.1 twice; by 0.2 until the drivers have their name and by 0.3 then; and by 0.2."""
    ways = (0.1, 0.1), (0.1, 0.1), (0.2, 0.3), (0.2, 0.2)
    return [follow(*way, seed=seed) for seed, way in enumerate(ways)]


@pytest.mark.slow
def test_a_digest_is_the_same_in_other_processes(followed: list[list[Any]]):
    here = [drivers_of(robot.move).digest for robot in (Bicycle, Swing, Vehicle)]
    assert len(set(here)) == 3
    assert None not in here
    assert [digests for *_, digests in followed] == [here] * 4


@pytest.mark.slow
def test_a_driver_is_compiled_once_and_another_if_the_rule_has_changed(followed):
    first, second, changed, _ = followed
    assert first[:2] == [0, 1]
    assert second[:2] == [1, 0]
    assert changed[0] == 0
    assert first[2] == second[2] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert changed[2] == pytest.approx([0, 0.3, 0.6, 0.9])  # as it was when it was rolled out


@pytest.mark.slow
def test_a_number_that_changes_once_the_drivers_have_their_name_spoils_nothing(followed):
    """As in a notebook: a cell changes a global between rollouts of two kinds."""
    assert followed[3][2] == pytest.approx([0, 0.2, 0.4, 0.6])


@pytest.mark.slow
def test_a_rule_whose_file_was_renamed_runs_as_before(followed: list[list[Any]], follow: Follow):
    """What was kept of it names the module that it was compiled from, which is no longer there."""
    assert follow(0.1, 0.1, "renamed")[2] == followed[0][2]


# ---- in one process -----------------------------------------------------------------------------


def moved(rule: Callable) -> list[float]:
    """Where a rule takes two robots from x = 1 and 2, by the compiled `move`."""
    state = np.zeros((5, 2))
    state[0] = 1.0, 2.0
    drivers_of(rule).move(np.zeros(2), state, np.empty((0, 2)), np.empty(0, np.uint64), 0)
    return state[0].tolist()


@pytest.mark.slow
def test_rules_in_one_process_do_not_mix():
    rules = {by: rule_of("BY", BY=by) for by in (0.5, 2.5)}
    closures = {by: closed_over(by) for by in (0.25, 1.25)}
    for _ in range(2):
        for by, rule in {**rules, **closures}.items():
            assert moved(rule) == [1 + by, 2 + by]


@pytest.mark.slow
def test_robots_in_one_process_do_not_mix():
    vehicle, swing, bicycle = Vehicle(), Swing(), Bicycle()
    straight = {vehicle: 1 + 100 * 0.125, swing: 1 + 55 * 0.2, bicycle: 1 + 48 * 0.1}
    for _ in range(2):
        for task, end in straight.items():
            gains = np.zeros(task.controller.rays)
            poses = task.trajectory(gains, scene(), 0).poses
            assert poses[-1, 1] == pytest.approx(end)  # the bicycle's at the shed
            assert task.costs(gains[None], scene())[0, 0] == (task is bicycle)


# ---- rollouts whose robots differ ---------------------------------------------------------------


WHERE: Any = {"start": (0.0, 2.0, 0.0), "steps": 60}  # where there is room for a circle


@dataclass(frozen=True)
class Mixed(Bicycle):
    """Each rollout has a wheelbase of its own, or each column where `rows` is 1."""

    rows: int = 0

    def wheelbases(self, environments: Environments, policies: int) -> NDArray[np.float64]:
        """From 0.1 to 1.1 m, by environment and column."""
        rows = np.arange(environments.start, environments.stop)[:, None]
        mixed = (rows * 37 + np.arange(policies) * 11) % 101 / 101 + 0.1
        return mixed[: self.rows or None]

    def models(self, environments: Environments, policies: int, noise: Noise | None) -> NDArray:
        wheelbases = self.wheelbases(environments, policies)
        found = np.repeat(super().models(environments, policies, noise), len(wheelbases), axis=0)
        found[:, 1] = wheelbases
        return found


def asking(policies: int) -> NDArray[np.float64]:
    """Gains that steer as far as the limit, some to the left and some to the right."""
    return np.where(np.arange(policies) % 3, 10.0, -10.0)[:, None] * np.ones(12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_each_rollout_has_its_own_model_also_after_others_have_ended(rows: int, noise: float):
    task = Mixed(rows=rows, range_noise=noise, **WHERE)
    environments, policies = task.environments(9, stream="mixed"), asking(150)
    wheelbases = np.broadcast_to(task.wheelbases(environments, 150), (9, 150))
    together = task.costs(policies, environments)
    lengths = set()
    for e in range(9):
        for p in range(0, 150, 7):
            alone = Bicycle(wheelbase=float(wheelbases[e, p]), range_noise=noise, **WHERE)
            shifted = Noise("mixed noise").shifted(p) if noise else None
            one = alone.trajectory(policies[p], environments, e, shifted)
            assert one.collided == together[e, p]
            lengths.add(len(one.poses))
    assert 0.2 < together.mean() < 0.9
    assert len(lengths) > 20  # lanes were dropped all along the way


@pytest.mark.slow
def test_models_of_each_rollout_reach_its_trajectory_and_its_surrogate():
    task = Mixed()
    environments, policies = task.environments(9, stream="mixed"), asking(4)
    wheelbases = task.wheelbases(environments, 4)
    surrogate = task.surrogate(policies, environments)
    ways = [task.trajectories(policy, environments) for policy in policies]
    for e in range(9):
        first = ways[0][e].poses
        alone = Bicycle(wheelbase=float(wheelbases[e, 0]))
        expected = alone.trajectory(policies[0], environments, e).poses
        np.testing.assert_array_equal(first, expected)
        for p in range(4):
            one = Bicycle(wheelbase=float(wheelbases[e, p]))
            near = one.surrogate(policies[p : p + 1], environments[e : e + 1])
            assert surrogate[e, p] == pytest.approx(near[0, 0], abs=1e-6)


# ---- rules that lose the robot ------------------------------------------------------------------


class Plain(Yard):
    """A wall far away, so that none ends a rollout."""

    @property
    def walls(self) -> NDArray[np.float64]:
        return np.array([[-1.0, 1.0, 90.0, 91.0]])

    @property
    def open_areas(self) -> NDArray[np.float64]:
        return np.array([[-80.0, 80.0, -80.0, 80.0]])


@dataclass(frozen=True)
class Broken(Bicycle):
    """One rollout's constants are spoilt."""

    row: int = 1
    column: int = 70
    constant: int = 0
    value: float = math.nan

    def models(self, environments: Environments, policies: int, noise: Noise | None) -> NDArray:
        found = np.repeat(super().models(environments, policies, noise), len(environments), axis=0)
        found[self.row, self.constant, self.column] = self.value
        return found


SPOILT = {
    "a speed that overflows": (0, 3e38),
    "a wheelbase of 0": (1, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("arena", [Yard(), Plain()], ids=["yard", "plain"])
@pytest.mark.parametrize("what", SPOILT)
def test_a_robot_whose_place_is_no_number_is_an_error_that_says_which(what: str, arena: Yard):
    constant, value = SPOILT[what]
    task = Broken(constant=constant, value=value, arena=arena)
    for costs in (task.costs, task.surrogate):
        with pytest.raises(ValueError, match="in environment 1 under policy 70: ") as complaint:
            costs(np.zeros((100, 12)), emptied(task, 3))
        words = str(complaint.value)
        assert words.startswith("the position of the broken is NaN or infinite")
        assert "\n" not in words


@pytest.mark.slow
def test_a_trajectory_without_a_place_is_an_error_too():
    task = Broken(row=0, column=0, constant=1, value=0.0)
    with pytest.raises(ValueError, match="the position of the broken is NaN or infinite"):
        task.trajectory(np.zeros(12), emptied(task, 1), 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_constant_that_is_no_number_is_not_rolled_out(value: float):
    task = Broken(value=value, constant=2, column=0)
    with pytest.raises(ValueError, match=r"^constant 2 of the broken is NaN or infinite$"):
        task.costs(np.zeros((100, 12)), emptied(task, 3))
    with pytest.raises(ValueError, match=r"^constant 2 of the broken is NaN or infinite$"):
        replace(task, row=0).trajectory(np.zeros(12), emptied(task, 1), 0)


def emptied(task: Bicycle, n: int) -> Environments:
    """Environments without a cylinder."""
    return replace(scene(), task=task.name, stop=n)
