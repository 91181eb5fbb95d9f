"""One episode that is watched: its steps, its error, and its frames."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from tiny_envs import GAINS, STEER_TOGETHER, Drift, Script, drift_task, steer_pad

from pacbayes_control.tasks import FunctionTask, watching
from pacbayes_control.tasks.gym import FromTermination, FunctionPolicy, GymTask
from pacbayes_control.tasks.gym.watching import NO_RENDERER, CannotFilmError

TRAIN = drift_task().environments(20, stream="train")


class Painted(Drift):
    """The point, drawn as a frame of one colour: the number of steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.render_mode = render_mode

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        return np.full((6, 8, 3), self.steps, np.uint8)


class Disturbed(Painted):
    """Its frames are drawn by random numbers of the simulation."""

    def render(self) -> Any:
        self.np_random.random()
        return super().render()


class Deaf(Painted):
    """It draws nothing unless it was made with a mode."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.made_with = render_mode

    def render(self) -> Any:
        return super().render() if self.made_with else None


class Frames:
    """A film that keeps all."""

    def __init__(self, every: int = 1) -> None:
        self.every, self.frames, self.fps = every, [], 0.0

    def take(self, frame: NDArray[np.uint8], fps: float) -> None:
        self.frames.append(frame)
        self.fps = fps


class FellError(Exception):
    """A robot that fell."""


def test_a_row_for_the_reset_and_one_for_each_step():
    task, one = drift_task(), TRAIN[3:4]
    seen = task.watch(GAINS[0], one)
    assert seen.cost == task.costs(GAINS[:1], one)[0, 0]
    assert seen.error is None
    assert seen.ended in ("terminated", "truncated")
    names = ["observation[0]", "observation[1]", "action", "reward"]
    assert list(seen.columns) == names
    rows = np.column_stack(list(seen.columns.values()))
    assert np.isnan(rows[0]).tolist() == [False, False, True, True]
    assert np.isfinite(rows[1:]).all()
    assert np.array_equal(rows[1:, 3].astype(np.float32), -np.abs(rows[1:, 0]).astype(np.float32))


def test_an_episode_has_its_place_in_a_batch():
    task = drift_task(policy=STEER_TOGETHER, vector=4)
    for i in (0, 6):
        assert task.watch(GAINS[1], TRAIN[i : i + 1]).cost == task.costs(
            GAINS[1:2], TRAIN[i : i + 1]
        )


def test_a_limit_of_steps_is_told_and_every_part_of_an_observation_has_a_name():
    pad = FunctionPolicy(steer_pad, parameters=2)
    task = drift_task(make=lambda: Drift(pad=True), policy=pad, steps=2, options=None)
    seen = task.watch(GAINS[0], TRAIN[:1])
    assert seen.ended == "stopped by the task's limit of steps"
    assert "observation.state[1]" in seen.columns
    assert seen.columns["observation.step"].tolist() == [0, 1, 2]


def test_an_image_is_no_part_of_a_table():
    class Pixels(Painted):
        def _observation(self) -> Any:
            return np.zeros((64, 64), np.float32)

    policy = FunctionPolicy(lambda *_: 1, parameters=2)
    seen = drift_task(make=Pixels, policy=policy).watch(GAINS[0], TRAIN[:1])
    assert list(seen.columns) == ["action", "reward"]


# ---- frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [Painted, lambda: Painted(), lambda render_mode=None: Deaf(render_mode)]
)
def test_every_step_has_a_frame_whatever_the_factory_takes(make: Any):
    task, film = drift_task(make=make), Frames()
    seen = task.watch(GAINS[0], TRAIN[:1], None, film)
    steps = len(seen.columns["reward"])
    assert [int(frame[0, 0, 0]) for frame in film.frames] == list(range(steps))
    assert film.fps == 20
    assert seen.cost == drift_task().watch(GAINS[0], TRAIN[:1]).cost
    assert seen.filmed_cost is None


def test_a_film_may_take_fewer_and_gets_the_last():
    film = Frames(every=5)
    seen = drift_task(make=Painted, options=None).watch(GAINS[0], TRAIN[:1], None, film)
    last = len(seen.columns["reward"]) - 1
    drawn = [int(frame[0, 0, 0]) for frame in film.frames]
    assert drawn == sorted({*range(0, last + 1, 5), last})


def test_drawing_that_changes_the_simulation_is_told():
    seen = drift_task(make=Disturbed).watch(GAINS[0], TRAIN[:1], None, Frames())
    assert seen.cost == drift_task().costs(GAINS[:1], TRAIN[:1])[0, 0]
    assert seen.filmed_cost not in (None, seen.cost)


@pytest.mark.parametrize(
    "make", [Drift, lambda: Deaf(), lambda: Script(lambda _: (0, True, False, {}))]
)
def test_an_environment_without_frames_is_one_line(make: Any):
    with pytest.raises(CannotFilmError, match="render_mode='rgb_array'") as error:
        drift_task(make=make).watch(GAINS[0], TRAIN[:1], None, Frames())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (np.zeros((40, 60), np.uint8), r"shape \(40, 60\) and type uint8"),
        (np.zeros((40, 60, 3)), "type float64"),
        (np.zeros((1, 60, 3), np.uint8), r"shape \(1, 60, 3\)"),
        ([np.zeros((40, 60, 3), np.uint8)], r"shape \(1, 40, 60, 3\)"),
    ],
)
def test_a_frame_that_is_no_picture_is_one_line(frame: Any, told: str):
    class Strange(Painted):
        def render(self) -> Any:
            return frame

    with pytest.raises(CannotFilmError, match=f"^Strange returns a frame of .*{told}"):
        drift_task(make=Strange).watch(GAINS[0], TRAIN[:1], None, Frames())


def test_frames_of_different_sizes_are_one_line():
    class Growing(Painted):
        def render(self) -> Any:
            return np.zeros((6 + self.steps, 8, 3), np.uint8)

    with pytest.raises(CannotFilmError, match=r"not \(6, 8, 3\) and \(7, 8, 3\)"):
        drift_task(make=Growing).watch(GAINS[0], TRAIN[:1], None, Frames())


def test_a_vector_is_not_filmed_but_has_its_cost():
    def make() -> Any:
        return SyncVectorEnv([Painted] * 2, autoreset_mode=AutoresetMode.DISABLED)

    task = drift_task(make=make)
    assert task.watch(GAINS[0], TRAIN[:1]).cost == task.costs(GAINS[:1], TRAIN[:1])[0, 0]
    with pytest.raises(CannotFilmError, match="vector"):
        task.watch(GAINS[0], TRAIN[:1], None, Frames())


def test_a_registered_environment_and_one_that_cannot_be_made_with_frames():
    push = FunctionPolicy(lambda gains, seen: int(gains @ seen > 0), 4)
    task = GymTask("CartPole-v1", push, FromTermination(success=False), steps=3)
    film = Frames(every=10)
    task.watch(np.ones(4), task.environments(1, "train"), None, film)
    assert film.frames[0].shape == (400, 600, 3)
    assert len(np.unique(film.frames[0])) > 2
    gym.register("WithoutFrames-v0", lambda: Drift())
    try:
        with pytest.raises(CannotFilmError):
            drift_task(make="WithoutFrames-v0").watch(GAINS[0], TRAIN[:1], None, Frames())
    finally:
        del gym.registry["WithoutFrames-v0"]


# ---- errors -------------------------------------------------------------------------------------


def failing(error: Exception) -> Any:
    def tell(step: int) -> Any:
        if step == 3:
            raise error
        return 1.0, False, False, {}

    class Failing(Script):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

        def render(self) -> Any:
            return np.zeros((4, 4, 3), np.uint8)

    policy = FunctionPolicy(lambda *_: 0, parameters=2)
    return drift_task(make=lambda: Failing(tell), policy=policy, failures=(FellError,))


def test_an_error_comes_with_the_steps_before_it_and_a_declared_failure_costs_one():
    film = Frames()
    seen = failing(RuntimeError("no contact")).watch(GAINS[0], TRAIN[:1], None, film)
    assert seen.cost is None
    assert str(seen.error) == "no contact"
    assert seen.ended == "raised"
    assert len(film.frames) == len(seen.columns["reward"]) == 3
    fell = failing(FellError("over")).watch(GAINS[0], TRAIN[:1])
    assert fell.cost == 1
    assert isinstance(fell.error, FellError)


def test_a_function_tells_its_error_and_is_not_filmed():
    def rollout(policy: NDArray, _: Any, rng: Any) -> Any:
        if policy[0] > 1:
            raise FellError("over") if policy[0] > 2 else ZeroDivisionError("a bug")
        return rng.random() if policy[0] else "much"

    task = FunctionTask(rollout, lambda rng: {"x": rng.random()}, "fn", failures=(FellError,))
    one = task.environments(1, "train")
    watched = [task.watch(np.array([float(row)]), one) for row in range(4)]
    assert [seen.cost is None for seen in watched] == [True, False, True, False]
    assert isinstance(watched[0].error, TypeError)
    assert isinstance(watched[2].error, ZeroDivisionError)
    assert watched[3].cost == 1
    with pytest.raises(ValueError, match="cannot be filmed"):
        task.watch(np.ones(1), one, None, Frames())


# ---- without a display --------------------------------------------------------------------------


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("library", "name"), [("EGL", "egl"), ("OSMesa", "osmesa"), ("", None)])
def test_mujoco_draws_with_what_is_installed(
    library: str, name: str | None, no_display: pytest.MonkeyPatch
):
    no_display.setattr("sys.platform", "linux")
    no_display.setattr("ctypes.util.find_library", lambda asked: asked == library)
    watching.choose_renderer()
    assert os.environ.get("MUJOCO_GL") == name
    assert os.environ["SDL_VIDEODRIVER"] == "offscreen"  # highway-env draws nothing with "dummy"


def test_a_choice_of_the_user_and_a_display_are_left_alone(no_display: pytest.MonkeyPatch):
    no_display.setenv("MUJOCO_GL", "osmesa")
    watching.choose_renderer()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    no_display.delenv("MUJOCO_GL")
    no_display.setenv("DISPLAY", ":0")
    watching.choose_renderer()
    assert "MUJOCO_GL" not in os.environ


@pytest.mark.slow
def test_mujoco_draws_without_a_display_and_says_what_to_install(no_display: pytest.MonkeyPatch):
    policy = FunctionPolicy(lambda gains, seen: np.clip([gains @ seen], -3, 3), 4)
    task = GymTask("InvertedPendulum-v5", policy, FromTermination(success=False), steps=2)
    one, film = task.environments(1, "train"), Frames()
    assert isinstance(task.action_space, spaces.Box)
    task.watch(np.ones(4), one, None, film)
    assert len(film.frames) == 3
    assert film.frames[0].std() > 5  # not blank
    no_display.setattr("ctypes.util.find_library", lambda _: None)
    no_display.delenv("MUJOCO_GL")
    no_display.setattr(
        "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer.render",
        lambda *_: (_ for _ in ()).throw(RuntimeError("no context")),
    )
    with pytest.raises(CannotFilmError) as error:
        task.watch(np.ones(4), one, None, Frames())
    assert str(error.value) == NO_RENDERER
