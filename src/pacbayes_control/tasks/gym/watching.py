"""One episode that is watched step by step, and filmed by the `rgb_array` frames of Gymnasium."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pacbayes_control.tasks.environments import Environments, in_a_line
from pacbayes_control.tasks.task import Film, Watched
from pacbayes_control.tasks.user_task import OneByOneTask
from pacbayes_control.tasks.watching import choose_renderer, offscreen_renderer, without_display

if TYPE_CHECKING:
    from pacbayes_control.tasks.gym.task import GymTask

RGB = "rgb_array"
FPS = 30.0  # of an environment that does not tell its own
MOST_NUMBERS = 256  # of an observation or an action: an image is no row of a table
NO_RENDERER = (
    "MuJoCo needs EGL or OSMesa to draw without a display, and neither is installed: on Debian, "
    "apt-get install libegl1 libgl1-mesa-dri (EGL) or apt-get install libosmesa6 (OSMesa)"
)


class CannotFilmError(ValueError):
    """Why an environment draws no frames."""


def watch_episode(
    task: GymTask, policy: NDArray, environments: Environments, film: Film | None = None
) -> Watched:
    """One episode; if it is filmed, its cost is compared with that of the same without frames."""
    filming = None if film is None else _filming(task)
    seen = _watch(task, policy, environments, task._made())
    if filming is None:
        return seen
    filmed = _watch(task, policy, environments, filming, film)
    return seen if filmed.cost == seen.cost else replace(seen, filmed_cost=filmed.cost)


def _watch(
    task: GymTask, policy: NDArray, environments: Environments, env: Any, film: Film | None = None
) -> Watched:
    """One episode in an environment of its own, which is closed afterwards."""
    try:
        if isinstance(env, VectorEnv):
            return OneByOneTask.watch(task, policy, environments)
        steps = Steps(env, film)
        alone = replace(task)  # with this environment in the slot that the episode has
        slot = environments.start % task.together if task.together else 0
        vars(alone)["_envs"] = {slot: steps}
        seen = OneByOneTask.watch(alone, policy, environments)
        if isinstance(seen.error, CannotFilmError):
            raise seen.error
        return replace(seen, columns=steps.columns(), ended=steps.ended(seen))
    finally:
        env.close()


# ---- steps --------------------------------------------------------------------------------------


class Steps(gym.Wrapper):
    """An environment that notes its steps, and gives frames of them to a film."""

    def __init__(self, env: gym.Env, film: Film | None = None) -> None:
        super().__init__(env)
        self.film, self.fps = film, _fps(env)
        self.size: tuple[int, ...] = ()  # of frames
        # the numbers of each, by name; one more observation than actions
        self.observations: list[dict[str, float]] = []
        self.actions: list[dict[str, float]] = []
        self.rewards: list[float] = []
        self.ends: tuple[bool, bool] = False, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """A reset, and the first frame."""
        self.observations, self.actions, self.rewards = [], [], []
        observation, info = self.env.reset(seed=seed, options=options)
        self.observations.append(dict(_parts("observation", observation)))
        self._draw()
        return observation, info

    def step(self, action: Any) -> Any:
        """A step, and its frame; the last one is always drawn."""
        self.actions.append(dict(_parts("action", action)))
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.observations.append(dict(_parts("observation", observation)))
        self.rewards.append(float(reward))
        self.ends = bool(terminated), bool(truncated)
        self._draw(last=any(self.ends))
        return observation, reward, terminated, truncated, info

    def _draw(self, last: bool = False) -> None:
        if self.film is None or not (last or len(self.actions) % self.film.every == 0):
            return
        frame = _frame(self.env)
        self.size = self.size or frame.shape
        if frame.shape != self.size:
            raise CannotFilmError(
                f"frames of one episode must have one shape, not {self.size} and {frame.shape}"
            )
        self.film.take(frame, self.fps)

    def ended(self, seen: Watched) -> str:
        """How the episode ended, in words."""
        if seen.error is not None:
            return "raised"
        if any(self.ends):
            return "terminated" if self.ends[0] else "truncated"
        return "stopped by the task's limit of steps"

    def columns(self) -> dict[str, NDArray]:
        """Observations, actions and rewards in columns; row 0 is the reset, without the last two.

        Numbers only: an observation of words, or of more than MOST_NUMBERS, is left out.
        """
        blank: list[Any] = [np.nan]
        table = _columns(self.observations)
        for name, column in _columns(self.actions).items():
            table[name] = np.concatenate([blank, column])
        table["reward"] = np.array(blank + self.rewards)
        full = len(self.observations)  # an error in the middle of a step leaves a column short
        return {
            name: np.concatenate([column, blank * (full - len(column))])[:full]
            for name, column in table.items()
            if full
        }


def _columns(rows: list[dict[str, float]]) -> dict[str, NDArray[np.float64]]:
    """Numbers that all rows have, by name; too many, as of an image, are left out."""
    shared = [key for key in rows[0] if all(key in row for row in rows)] if rows else []
    if len(shared) > MOST_NUMBERS:
        return {}
    return {key: np.array([row[key] for row in rows]) for key in shared}


def _parts(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Each number of a value, and its name, such as observation[2] or observation.goal[0]."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _parts(f"{name}.{key}", part)
        return
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _parts(f"{name}[{index}]", part)
        return
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size > MOST_NUMBERS:
        return
    for place, number in np.ndenumerate(array):
        yield name + "".join(f"[{index}]" for index in place), float(number)


# ---- frames -------------------------------------------------------------------------------------


def _frame(env: gym.Env) -> NDArray[np.uint8]:
    """What the environment draws now."""
    try:
        with _quiet():
            frame = np.asarray(env.render())
    except Exception as error:
        raise CannotFilmError(_why(env, error)) from error
    if frame.ndim == 0:  # None
        raise CannotFilmError(_no_frames(env))
    picture = frame.ndim == 3 and min(frame.shape[:2]) > 1 and frame.shape[2] in (3, 4)
    if not picture or frame.dtype != np.uint8:
        raise CannotFilmError(
            f"{type(env.unwrapped).__name__} returns a frame of shape {frame.shape} and type "
            f"{frame.dtype}: a frame is of shape (height, width, 3), each side 2 or more, and of "
            "type uint8"
        )
    return frame[:, :, :3]


def _why(env: gym.Env, error: Exception) -> str:
    """Why an environment could not draw, in one line."""
    mujoco = "mujoco" in " ".join(cls.__module__ for cls in type(env.unwrapped).__mro__).lower()
    if (
        mujoco
        and without_display()
        and not os.environ.get("MUJOCO_GL")
        and not offscreen_renderer()
    ):
        return NO_RENDERER
    return f"the environment cannot be drawn: {in_a_line(error)}"


def _no_frames(env: gym.Env) -> str:
    name = type(env.unwrapped).__name__
    return (
        f"{name} returns no frames: have the factory take render_mode, and make the environment "
        f"with render_mode={RGB!r}, which {name} must know"
    )


def _filming(task: GymTask) -> gym.Env:
    """An environment of the task, made so that it draws frames; an error if it cannot."""
    choose_renderer()
    make: Any = task.make
    if isinstance(make, str):
        arguments = {**task.arguments, "render_mode": RGB}
        task = replace(task, arguments=arguments)
    elif _takes_mode(make):
        task = replace(task, make=lambda: make(render_mode=RGB))
    try:
        with _quiet():
            env = task._made()
    except TypeError as error:
        raise CannotFilmError(f"no environment with frames can be made: {in_a_line(error)}") from (
            error
        )
    if isinstance(env, VectorEnv):
        env.close()
        raise CannotFilmError(
            "a vector of environments cannot be filmed: have the factory make one"
        )
    if RGB not in (env.metadata.get("render_modes") or ()):
        words = _no_frames(env)
        env.close()
        raise CannotFilmError(words)
    if env.unwrapped.render_mode is None:
        # of a factory that does not ask: most environments read it when they draw; one that does
        # not returns no frame, which is an error
        env.unwrapped.render_mode = RGB
    return env


def _takes_mode(make: Any) -> bool:
    """Whether a factory takes the argument render_mode."""
    try:
        known = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(one.name == "render_mode" or one.kind is one.VAR_KEYWORD for one in known)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of Gymnasium and GLFW that nothing can be drawn: the error says it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*render_mode.*")
        warnings.filterwarnings("ignore", module="glfw")
        yield


def _fps(env: gym.Env) -> float:
    told = env.metadata.get("render_fps")
    return float(told) if isinstance(told, int | float) and 0 < told < 1000 else FPS
