"""Rollouts on a GPU: on that of this machine, or on Numba's simulator of one, against the CPU's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from bicycles import Bicycle
from emulated import CUDA, emulate, module, roughen
from numba import njit
from numpy.typing import NDArray

from pacbayes_control.bounds.compiling import config
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.learn import (
    GaussianSearch,
    Plan,
    SearchSettings,
    learn_finite,
    learn_gaussian,
)
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.robots import Swing, Vehicle
from pacbayes_control.robots.planar import Network, ObstacleField
from pacbayes_control.robots.planar import kernel as scalars
from pacbayes_control.robots.planar.gpu import compiling, streaming
from pacbayes_control.robots.planar.gpu.kernel import Work
from pacbayes_control.robots.swing.gains import DrawnGains, WorstGains
from pacbayes_control.robots.vehicle.pretrained import NETWORK, pretrained
from pacbayes_control.rollouts import Execution, evaluate, mean_costs, roll_out_again
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.demo import Stopping
from sizes import sized

MACHINE = Path("/dev/nvidiactl").exists()  # that has an NVIDIA GPU
NETWORKS = Network(hidden=2)


def unload() -> None:
    """Forget what was loaded of Numba for CUDA: with its simulator it loads other modules."""
    compiling.loaded.cache_clear()
    for name in [name for name in sys.modules if name.startswith("numba.cuda")]:
        del sys.modules[name]
    vars(numba).pop("cuda", None)


@pytest.fixture(scope="module")
def gpu() -> Iterator[None]:
    """Numba for CUDA: for the GPU of this machine, or its simulator of one."""
    if MACHINE:
        yield
        return
    unload()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_ENABLE_CUDASIM", "1")
        patch.setattr(config, "ENABLE_CUDASIM", 1)  # which was read before
        compiling.loaded()
    yield
    unload()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)


def rows(task: Any, count: int, seed: int = 0) -> NDArray:
    """Policies of a robot, at random."""
    return np.random.default_rng(seed).normal(0, 2, (count, task.parameters))


def both(
    task: Any, policies: NDArray, environments: Environments, dtype: Any = np.float32
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Costs on the CPU and on the device, and closest distances there."""
    shape = len(environments), policies.shape[-2]
    here, there = np.empty(shape, dtype), np.empty(shape, dtype)
    costs = task.costs(policies, environments, dtype=dtype, closest=here)
    on_gpu = task.on_device("cuda")
    assert on_gpu == task  # the device is no part of a task
    again = on_gpu.costs(policies, environments, dtype=dtype, closest=there)
    return costs, again, here, there


# ---- the kernel itself --------------------------------------------------------------------------

CROWDED = ObstacleField(fewest=33, most=70)  # more than are marked at a time
ROBOTS = {
    "gains": Vehicle(steps=12),
    "network and noise": Vehicle(steps=8, controller=NETWORKS, range_noise=0.1, wheel_slip=0.1),
    "many discs": Vehicle(steps=5, obstacles=CROWDED),
    "no discs": Vehicle(steps=5, obstacles=ObstacleField(fewest=0, most=2)),
    "drone": Swing(steps=5, landing_steps=3),
    "drawn drones": Swing(steps=5, landing_steps=2, uncertainty=DrawnGains(0.5, 0.1, 0.2, 0.3)),
    "a user's": Bicycle(steps=8),
}


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of numbers that are to overflow
@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.usefixtures("gpu")
def test_rollouts_on_a_gpu_are_those_on_the_cpu(name: str):
    task = ROBOTS[name]
    costs, again, here, there = both(task, rows(task, 3), task.environments(3, stream="gpu"))
    np.testing.assert_array_equal(again, costs)
    np.testing.assert_allclose(there, here, atol=2e-5)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.usefixtures("gpu")
def test_each_environment_may_have_policies_of_its_own():
    task = Vehicle(steps=12, controller=NETWORKS)
    policies = rows(task, 6).reshape(3, 2, -1)
    costs, again, here, there = both(task, policies, task.environments(3, stream="gpu"))
    np.testing.assert_array_equal(again, costs)
    np.testing.assert_allclose(there, here, atol=2e-5)
    other = both(task, policies[::-1], task.environments(3, stream="gpu"))[3]
    assert not np.array_equal(other, there)


@pytest.mark.usefixtures("gpu")
def test_a_block_has_some_policies_in_some_environments_and_all_are_covered(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(streaming, "_blocks", lambda n, k, *_: ((-(-n // 2), -(-k // 3)), 3, 2))
    monkeypatch.setattr(streaming, "FIRST", 1)
    task = Vehicle(steps=3)
    environments = task.environments(1026, stream="gpu")[1021:]  # of two parts
    costs, again, here, there = both(task, rows(task, 4), environments)
    np.testing.assert_array_equal(again, costs)
    np.testing.assert_allclose(there, here, atol=2e-5)


@pytest.mark.usefixtures("gpu")
def test_double_precision_agrees_with_double_precision():
    task = Vehicle(steps=8)
    policies, environments = rows(task, 2), task.environments(2, stream="gpu")
    costs, again, here, there = both(task, policies, environments, np.float64)
    np.testing.assert_array_equal(again, costs)
    np.testing.assert_allclose(there, here, atol=1e-12)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.usefixtures("gpu")
def test_a_robot_that_is_lost_is_an_error():
    @dataclass(frozen=True)
    class Lost(Vehicle):
        @staticmethod
        def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
            x, y, sin, cos, own = state
            return x + model[0] * np.inf, y, sin, cos, own

    task = Lost(steps=5).on_device("cuda")
    with pytest.raises(ValueError, match="of the lost is NaN or infinite in environment 0 under"):
        task.costs(task.policies[:2], task.environments(2, stream="gpu"))


@pytest.mark.usefixtures("gpu")
def test_a_count_beyond_the_obstacles_that_are_there_reads_nothing_else():
    def crowd(counts: list[int]) -> Environments:
        far = np.tile(np.float32([100, 100, 0.1]), (2, 3, 1))
        far[1] = [0, 2, 0.5]  # in the way of the first one, if its row were left

        def draw(_: np.random.Generator, n: int) -> Any:
            return {"obstacles": np.tile(far, (n // 2, 1, 1)), "counts": np.resize(counts, n)}

        return Environments(draw, "vehicle", "crowd", 0, 0, 2)

    task = Vehicle(steps=10).on_device("cuda")
    policies = np.zeros((1, 20))
    assert task.costs(policies, crowd([3, 3]))[:, 0].tolist() == [0, 1]
    assert task.costs(policies, crowd([6, 3]))[:, 0].tolist() == [0, 1]
    assert task.costs(policies, crowd([3, -1]))[:, 0].tolist() == [0, 0]


COMPILE = """
from numba import cuda, float32, int64, uint8, uint64
from numba.cuda import compile as compiled, dispatcher
class Device: compute_capability = 9, 0
dispatcher.get_current_device = Device  # of which there is none
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar.drivers import frozen
from pacbayes_control.robots.planar.gpu import compiling
from pacbayes_control.robots.planar.gpu.kernel import Work
from bicycles import Bicycle
flat = float32[::1]
signature = (
    flat, int64, flat, int64, flat, float32, float32, int64, float32, flat, int64, int64,
    uint64[::1], int64, int64, int64, int64, int64, uint8[::1], flat,
)
compiling.loaded = lambda: cuda
for robot, how in (
    (Vehicle(), (16, True, True, 0.2)),
    (Bicycle(), (0, False, False)),  # whose rule has numbers of double precision
):
    work = Work(tuple(robot.rays[1:].T.reshape(-1).tolist()), 1.0, *how)
    kernel = compiling.kernel_for(*frozen(type(robot).move), len(robot.constants), work)
    options = dict(cc=(9, 0), device=False, abi="numba", fastmath=True, output="ptx")
    code = compiled(kernel.py_func, signature, **options)[0]
    print(robot.name, ".target sm_90" in code, ".f64" in code, "ld.local" in code)
"""


def test_the_kernel_compiles_for_a_real_gpu_to_single_precision_in_registers():
    """Numba's simulator does not compile: it runs also what no GPU can."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    *ours, users = done.stdout.splitlines() or [done.stderr]
    assert ours == ["vehicle True False False"], done.stderr
    assert users.startswith("bicycle True"), done.stderr


# ---- its sensor, by the same source compiled for the CPU -----------------------------------------


def readings(walls: NDArray, poses: NDArray, radius: float = 0.2) -> tuple[NDArray, ...]:
    """Depths among walls at each pose (poses, rays): on the CPU, on a GPU; and whether it hits."""
    task, count = Vehicle(), len(poses)
    work = Work(tuple(task.rays[1:].T.reshape(-1)), task.fan, 0, False, False, DTYPE=np.float64)
    names = compiling.compiled_parts(Vehicle.move, 4, work, compiling.loaded())
    x, y, heading = poses.T
    here = x, y, np.sin(heading), np.cos(heading)
    on_cpu, on_gpu = np.empty((20, count)), np.empty((count, 20))
    none, world = np.empty((0, 3)), np.concatenate([np.zeros(5), walls.reshape(-1)])
    scalars.sense(*here, none, walls, np.empty((0, 4)), task.rays, 5.0, on_cpu)
    hits = [
        names["sense_walls"](*pose, world, names["FAN"], 5.0, radius, near, np.uint32(0))
        for pose, near in zip(zip(*here, strict=True), on_gpu, strict=True)
    ]
    return on_cpu.T, 1 / on_gpu, np.array(hits)


@pytest.mark.usefixtures("emulated")
def test_depths_of_walls_are_those_of_the_cpu():
    """More walls than are marked at a time, thin ones too, seen from outside and from within."""
    rng = np.random.default_rng(0)
    corners, sizes = rng.uniform(-6, 6, (40, 2)), rng.choice([0, 0.05, 1, 3], (40, 2))
    ends = corners + sizes
    walls = np.stack([corners[:, 0], ends[:, 0], corners[:, 1], ends[:, 1]], axis=1)
    poses = rng.uniform([-6, -6, -np.pi], [6, 6, np.pi], (sized(2000, 50_000), 3))
    on_cpu, on_gpu, hits = readings(walls, poses)
    assert np.isclose(on_cpu, on_gpu, atol=1e-6).mean() > 0.9999
    assert (on_cpu < 5).mean() > 0.5
    assert hits.mean() > 0.1
    shifted = readings(walls + 0.01, poses)[1]  # what is broken is noticed
    assert np.isclose(on_cpu, shifted, atol=1e-6).mean() < 0.9


@pytest.mark.usefixtures("emulated")
def test_a_wall_is_touched_where_it_is_nearer_than_the_radius():
    wall = np.array([[1.0, 2, -1, 1]])
    poses = np.array([[0.79, 0, 0], [0.81, 0, 0], [1.5, 1.19, 0], [0.85, 1.15, 2], [1.5, 0, 0]])
    assert readings(wall, poses)[2].tolist() == [False, True, True, False, True]


def test_environments_are_sent_in_fours_of_numbers_and_none_is_in_sight_beyond_a_count():
    obstacles = np.arange(24, dtype=np.float32).reshape(2, 4, 3) / 10
    fields = np.empty((2, 4 + 4 * 8), np.float32)
    streaming.fill(fields, obstacles, np.array([3, 9]), np.float32(5), np.float32(0.25))
    assert fields[:, 0].tolist() == [3, 4]  # a count beyond the row is cut off
    np.testing.assert_allclose(fields[:, 1], [(5 + 0.8) ** 2, (5 + 2.3) ** 2], rtol=1e-6)
    discs = fields[:, 4:].reshape(2, 8, 4)
    np.testing.assert_array_equal(discs[1, :4, :3], obstacles[1])
    np.testing.assert_allclose(discs[0, :3, 3], (obstacles[0, :3, 2] + 0.25) ** 2, rtol=1e-6)
    assert np.isnan(discs[0, 3:]).all()
    assert np.isnan(discs[1, 4:]).all()


# ---- many rollouts, by the same source compiled for the CPU --------------------------------------


def agreement(task: Any, policies: NDArray, environments: Environments) -> float:
    costs, again, *_ = both(task, policies, environments)
    assert 0 < costs.mean() < 1
    return float((costs == again).mean())


@pytest.mark.usefixtures("emulated")
def test_costs_agree_on_all_but_a_few_of_very_many_rollouts_of_several_drones():
    task = Swing(uncertainty=WorstGains((2.5, 3.5), (0.3, 0.5)))
    environments = task.environments(sized(60, 2000), stream="gpu")
    assert agreement(task, task.policies, environments) >= 0.999


@pytest.mark.usefixtures("emulated")
def test_networks_agree_also_where_roots_are_rough(monkeypatch: pytest.MonkeyPatch):
    roughen(monkeypatch)
    task = Vehicle(controller=NETWORK)
    policies = pretrained()[0].sample(np.random.default_rng(0), 40)
    assert agreement(task, policies, task.environments(sized(400, 10_000), stream="gpu")) >= 0.999


@pytest.mark.usefixtures("emulated")
def test_the_rollouts_that_differ_are_those_that_rounding_decides():
    """A shift of the start by a thousandth of a millimetre changes what the CPU finds, too."""
    task = Vehicle()
    environments = task.environments(sized(1500, 100_000), stream="gpu rounding")
    costs, again, *_ = both(task, task.policies, environments)
    assert (costs == again).mean() >= 0.999
    differ = np.argwhere(costs != again)[:60]
    assert len(differ) > 0

    def decided(e: int, k: int) -> bool:
        return task.rounding_decides(task.policies[k : k + 1], environments[e : e + 1])

    assert np.mean([decided(e, k) for e, k in differ]) >= 0.9
    others = [(e, k) for e in range(0, 1500, 500) for k in (3, 30)]
    assert not any(decided(e, k) for e, k in others)


# ---- what feeds it ------------------------------------------------------------------------------


def test_parts_are_whole_blocks_that_grow_and_cover_everything_once():
    task = Vehicle()
    environments = task.environments(200_000, stream="gpu")[1500:]
    weights = np.zeros((1, 50, 20), np.float32)
    parts = list(streaming.parts_of(environments, weights))
    assert parts[0] == slice(0, 2596)  # to the end of a block
    assert [each.start for each in parts[1:]] == [each.stop for each in parts[:-1]]
    assert parts[-1].stop == len(environments)
    assert all((1500 + each.stop) % 1024 == 0 for each in parts[:-1])
    sizes = [each.stop - each.start for each in parts]
    assert max(sizes) <= streaming.LAUNCH // 50 + 1024
    own = list(streaming.parts_of(environments, np.zeros((2, 50, 372), np.float32)))
    assert (
        max(each.stop - each.start for each in own) * 50 * 372
        <= streaming.WEIGHTS + 1024 * 50 * 372
    )


def test_blocks_share_the_policies_that_fit_their_cache_and_cover_all():
    cases = (1, 20, 20, 120), (20_000, 50, 20, 120), (300, 2000, 372, 0), (7, 9_000_000, 2, 9000)
    for n, policies, weights, numbers in cases:
        (wide, high), width, deep = streaming._blocks(n, policies, weights, numbers)
        assert wide * deep >= n > (wide - 1) * deep
        assert high * width >= policies > (high - 1) * width
        assert high <= 65_535


@pytest.mark.usefixtures("emulated")
def test_what_cannot_be_drawn_is_an_error_of_the_drawing():
    @dataclass(frozen=True)
    class Broken:
        def draw(self, *_: Any) -> Any:
            raise RuntimeError("no discs today")

    task = Vehicle(obstacles=Broken()).on_device("cuda")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be drawn: RuntimeError: no discs today"):
        task.costs(task.policies, task.environments(5, stream="gpu"))


@pytest.mark.usefixtures("emulated")
def test_steps_of_a_search_that_share_a_block_draw_it_once(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    draw = ObstacleField.draw

    def counted(field: ObstacleField, rng: np.random.Generator, n: int) -> Any:
        sizes.append(n)
        return draw(field, rng, n)

    monkeypatch.setattr(ObstacleField, "draw", counted)
    task = Vehicle(steps=20)
    on_gpu, many = task.on_device("cuda"), task.environments(2048, stream="gpu shared")
    parts = [many[start : start + 256] for start in range(0, 2048, 256)]
    found = [on_gpu.costs(task.policies[:2], part) for part in parts]
    assert sizes == [1024, 1024]
    np.testing.assert_array_equal(np.concatenate(found), task.costs(task.policies[:2], many))


# ---- distributions of a user's -------------------------------------------------------------------


class Ragged:
    """A distribution whose arrays are as wide as needed, and which changes: it counts its draws."""

    def __init__(self) -> None:
        self.most, self.drawing, self.together = 12, 0, 0

    def __repr__(self) -> str:
        return "Ragged()"

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        self.drawing += 1
        self.together = max(self.together, self.drawing)
        counts = rng.integers(1, rng.integers(2, self.most), size=n)
        obstacles = rng.uniform((-5, 2, 0.1), (5, 9, 0.4), size=(n, counts.max(), 3))
        self.drawing -= 1
        return {"obstacles": obstacles, "counts": counts}


@pytest.mark.usefixtures("emulated")
def test_a_distribution_may_be_ragged_and_change_and_is_drawn_by_one_thread(
    monkeypatch: pytest.MonkeyPatch,
):
    fields = Ragged()
    task = Vehicle(obstacles=fields, steps=30)  # type: ignore[arg-type]
    on_gpu, policies = task.on_device("cuda"), task.policies[:3]
    for first, most in ((0, 12), (0, 40), (500, 12)):
        fields.most = most
        some = task.environments(6000, stream="gpu")[first:]
        costs = np.concatenate([task.costs(policies, part) for part in some.chunks(1024)])
        for launch in (1, 1 << 21):
            monkeypatch.setattr(streaming, "LAUNCH", launch)
            np.testing.assert_array_equal(on_gpu.costs(policies, some), costs)
    assert fields.together == 1


@pytest.mark.usefixtures("emulated")
def test_what_draws_for_a_gpu_cannot_roll_out_on_it():
    inner = Vehicle(steps=3).on_device("cuda")

    class Screened(Ragged):
        def draw(self, rng: np.random.Generator, n: int) -> Any:
            inner.costs(inner.policies, inner.environments(2, stream="gpu"))
            return super().draw(rng, n)

    task = Vehicle(obstacles=Screened()).on_device("cuda")  # type: ignore[arg-type]
    for count in (5, 5000):  # drawn in this thread, and in another
        with pytest.raises(ValueError, match="cannot roll out on it: take the CPU"):
            task.costs(task.policies, task.environments(count, stream="gpu"))


# ---- what may go wrong on the way ----------------------------------------------------------------


@pytest.mark.usefixtures("emulated")
def test_a_rollout_that_no_thread_ends_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """A thread whose rule raises an error ends, and takes no other rollout."""
    monkeypatch.setattr(compiling, "_made", {})
    ends = njit(lambda array, place, more: np.int32(2**31 - 1))  # noqa: ARG005
    monkeypatch.setattr(CUDA, "atomic", module(add=ends))
    task = Vehicle(steps=3).on_device("cuda")
    with pytest.raises(ValueError, match="in environment 0 under policy 1, or it raised an error"):
        task.costs(task.policies, task.environments(2, stream="gpu"))


@pytest.mark.usefixtures("emulated")
def test_distances_are_written_to_any_array():
    task = Vehicle(steps=10)
    policies, some = task.policies[:3], task.environments(4, stream="gpu")
    here, there = np.empty((4, 3), np.float32), np.full((3, 4), np.nan, np.float32).T
    task.costs(policies, some, closest=here)
    task.on_device("cuda").costs(policies, some, closest=there)
    np.testing.assert_allclose(there, here, atol=2e-5)


def test_numbers_that_did_not_arrive_are_sent_again():
    lane, sent = streaming.Lane(CUDA), np.arange(3.0)
    lane.send("models", sent)
    lane.held["models"].copy_to_device = None  # as where a copy is interrupted
    with pytest.raises(TypeError):
        lane.send("models", sent + 1)
    del lane.held["models"].copy_to_device
    np.testing.assert_array_equal(lane.send("models", sent).array, sent)
    assert lane.send("models", sent + 0) is lane.parts["models"]
    sent[0] = 7  # an array that is used again
    np.testing.assert_array_equal(lane.send("models", sent).array, sent)


def test_drawing_runs_ahead_of_the_rollouts_and_only_so_far():
    drawn: list[int] = []

    def sent(part: slice) -> Any:
        drawn.append(part.start)
        return part

    taken = 0
    for part, given in streaming._ahead(sent, [slice(i, i + 1) for i in range(40)]):
        assert given is part
        assert part.start == taken
        taken += 1
        assert len(drawn) <= taken + streaming.AHEAD
    assert taken == 40


# ---- executions and records ---------------------------------------------------------------------

ON_GPU = Execution(device="cuda")


@pytest.mark.usefixtures("emulated")
def test_an_execution_takes_a_robot_to_its_device_and_the_costs_record_it():
    task = Vehicle()
    train = task.environments(60, stream="train")
    there = evaluate(task, task.policies, train, execution=ON_GPU)
    here = evaluate(task, task.policies, train)
    assert (there.device, here.device) == ("an emulator", "")
    versions = {"numba", "numba-cuda"}
    assert there.origin["versions"].keys() == versions  # type: ignore[union-attr]
    assert there.with_origin(device=None, versions=None).origin == {
        name: fact for name, fact in here.origin.items() if name != "versions"
    }
    assert (there.values == here.values).mean() > 0.99
    many = task.environments(1200, stream="test")
    np.testing.assert_allclose(
        mean_costs(task, task.policies, many, execution=ON_GPU),
        mean_costs(task, task.policies, many),
        atol=1e-3,
    )


@pytest.mark.usefixtures("emulated")
def test_a_search_on_a_gpu_and_its_certificate_have_fresh_policies_there():
    task = Vehicle(controller=NETWORK)
    prior, _ = pretrained()
    search = SearchSettings(steps=2, pairs=2, estimator="evolution")
    plan = Plan(search=search, draws=3)
    train = task.environments(20, stream="train")
    run = learn_gaussian(task, train, prior, plan, ON_GPU)
    assert run.costs.device == "an emulator"


@pytest.mark.usefixtures("emulated")
def test_rollouts_kept_from_one_device_are_not_mixed_with_those_of_another(tmp_path: Path):
    task = Vehicle()
    train = task.environments(20, stream="train")
    kept = replace(ON_GPU, store=tmp_path / "kept")
    evaluate(task, task.policies, train[:10], execution=kept)
    evaluate(task, task.policies, train, execution=kept)
    with pytest.raises(ValueError, match="rollouts of another device: an emulator, not null"):
        evaluate(task, task.policies, train, execution=Execution(store=tmp_path / "kept"))


def a_run(tmp_path: Path) -> tuple[Run[Any], Any, Environments]:
    task = Vehicle()
    train = task.environments(30, stream="train")
    run = learn_finite(evaluate(task, task.policies, train, execution=ON_GPU))
    return Run.load(run.save(tmp_path / "run")), task, train


def forged(run: Run[Any], where: Any) -> Run[Any]:
    """A run in which some of the costs are the opposite."""
    values = np.array(run.costs.values)
    values[where] = 1 - values[where]
    costs = Costs(values, run.costs.names, run.costs.origin, parameters=run.costs.parameters)
    return replace(run, costs=costs)


@pytest.mark.usefixtures("emulated")
def test_rollouts_of_a_gpu_are_run_again_there_if_there_is_one(tmp_path: Path):
    again = roll_out_again(*a_run(tmp_path), count=50)
    assert (again.different, again.devices, again.explained) == (0, "", True)


def test_elsewhere_what_rounding_explains_is_told_and_anything_more_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        emulate(patch)
        run, task, train = a_run(tmp_path)
    monkeypatch.setattr(compiling, "available", lambda: False)
    again = roll_out_again(run, task, train, count=300)
    assert again.explained
    told = "300 rollouts, recorded on “an emulator” and run again on a CPU"
    assert again.remark.startswith(told)
    for where, tried, least in (((3, 5), 1500, 1), (..., 20, 19)):  # one of them, or all
        again = roll_out_again(forged(run, where), task, train, count=tried)
        assert again.different >= least
        assert not again.explained
        assert "rounding" not in again.remark
        assert "when it was recorded" in again.first


@pytest.mark.usefixtures("emulated")
def test_rollouts_that_rounding_decides_are_excused_elsewhere_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, task, train = a_run(tmp_path)
    other = forged(run, (7, 3))
    monkeypatch.setattr(compiling, "available", lambda: False)
    monkeypatch.setattr(Vehicle, "rounding_decides", lambda *_: True)
    again = roll_out_again(other, task, train, count=1500)
    assert (again.different, again.excused, again.explained) == (1, 1, True)
    assert again.remark == (
        "1 of 1,500 rollouts, recorded on “an emulator” and run again on a CPU, cost something "
        "else, since rounding decides them"
    )
    monkeypatch.setattr(compiling, "available", lambda: True)  # on the same device each repeats
    assert not roll_out_again(other, task, train, count=1500).explained


def test_a_task_of_the_cpu_alone_has_no_other_device_to_excuse_it():
    task = Stopping()
    train = task.environments(20, stream="train")
    honest = evaluate(task, task.policies, train)
    origin = {**honest.origin, "device": "NVIDIA H200"}
    costs = Costs(1 - honest.values, honest.names, origin, parameters=honest.parameters)
    again = roll_out_again(learn_finite(costs), task, train, count=10)
    assert (again.different, again.devices, again.explained) == (10, "", False)


@pytest.mark.usefixtures("emulated")
def test_a_search_is_taken_up_on_the_device_that_it_began_on(tmp_path: Path):
    task = Vehicle(controller=NETWORKS)
    prior = DiagonalGaussian(np.zeros(NETWORKS.parameters), 0.01)
    train, checkpoint = task.environments(4, stream="train"), tmp_path / "checkpoint"

    def searched(**how: Any) -> None:
        settings = SearchSettings(steps=2, pairs=2)
        search = GaussianSearch(prior, 4, 0.01, settings=settings)
        search_posterior(task, train, search, Execution(store=checkpoint, **how))

    searched(device="cuda")
    searched(device="cuda")
    with pytest.raises(ValueError, match="belongs to another run"):
        searched()


def test_a_worker_with_another_device_is_refused():
    task = Stopping()
    job = Job(task, task.environments(2, stream="train"), task.policies, hardware="NVIDIA H200")
    with pytest.raises(ValueError, match="are to run on NVIDIA H200, and a worker has none"):
        job.run()


def test_simulation_is_of_one_device():
    def costs(device: str | None, first: int, last: int) -> Costs:
        task = Stopping()
        found = evaluate(task, task.policies, task.environments(last, stream="s")[first:])
        return found.with_origin(device=device)

    real = costs(None, 0, 10)
    with_simulation(real, costs("A", 0, 10), costs("A", 10, 40))
    with pytest.raises(ValueError, match="the tables in simulation are from two devices"):
        with_simulation(real, costs("A", 0, 10), costs(None, 10, 40))


def test_words_of_a_users_task_that_mean_something_else_are_not_its_device():
    @dataclass
    class Arm:
        name: str = "arm"
        hardware: Any = ("gripper", 2)
        devices: Any = ("camera", "arm")
        policies: Any = None

        def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
            return Stopping().environments(n, stream, seed)

        def costs(self, policies: NDArray, environments: Environments) -> NDArray:
            return Stopping().costs(policies, environments)

    task = Arm(policies=Stopping().policies)
    found = evaluate(task, task.policies, task.environments(3, stream="train"))
    assert found.device == ""


def test_a_task_of_the_cpu_says_so_and_auto_finds_what_there_is(monkeypatch: pytest.MonkeyPatch):
    task = Stopping()
    train = task.environments(5, stream="train")
    with pytest.raises(ValueError, match="the rollouts of stopping run on the CPU alone"):
        evaluate(task, task.policies, train, execution=ON_GPU)
    evaluate(task, task.policies, train, execution=Execution(device="auto"))
    with pytest.raises(ValueError, match="device = 'gpu' is none of cpu, cuda, auto"):
        Execution(device="gpu")
    monkeypatch.setattr(compiling, "available", lambda: False)
    assert Vehicle().on_device("auto").hardware == ""


WITHOUT = {
    "GPU": ("pass;", "pbc: no NVIDIA GPU with its driver was found"),
    "extra": (
        "import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *_: None if name == 'numba_cuda' else find(name, *_);",
        "pbc: a GPU needs numba-cuda: pip install 'pacbayes-control[cuda]'",
    ),
}


@pytest.mark.skipif(MACHINE, reason="this machine has a GPU")
@pytest.mark.parametrize("missing", WITHOUT)
def test_without_a_gpu_or_the_extra_one_line_says_so(tmp_path: Path, missing: str):
    before, words = WITHOUT[missing]
    command = f"{before} from pacbayes_control.__main__ import main; main()"
    arguments = ["learn", "vehicle", "--device", "cuda", "--environments", "10"]
    environment = {name: value for name, value in os.environ.items() if "CUDASIM" not in name}
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 1


def test_a_certificate_from_a_gpu_is_verified_without_one_and_tells_where_it_ran(
    quick: Any, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        emulate(patch)
        of = "--environments", 30, "--set", "test_environments=20", "--out", "run"
        done = quick("learn", "vehicle", "--device", "cuda", *of)
        assert done.returncode == 0, done.stderr
    monkeypatch.setattr(compiling, "available", lambda: False)
    done = quick("verify", "run", "--again", 50, "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout[done.stdout.index("{") :])
    assert record["again"]["devices"] == "recorded on “an emulator” and run again on a CPU"
    assert "that rollouts ran on “an emulator”" in record["told"]
    done = quick("rollout", "vehicle", "--run", "run", "--environment", 3)
    assert done.returncode == 0, done.stderr
    done = quick("report", "run")
    assert done.returncode == 0, done.stderr
    assert "an emulator" in Path("run.html").read_text(encoding="utf-8")
