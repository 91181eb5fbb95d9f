"""One rollout that is watched: its cost, its error and its path; drawing without a display."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.environments import Environments, Noise
from pacbayes_control.tasks.task import Film, Task, Watched

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
POSE = ("x", "y", "heading")  # columns of a path


def watch_costs(
    task: Task,
    policy: NDArray,
    environments: Environments,
    noise: Noise | None = None,
    film: Film | None = None,
) -> Watched:
    """One rollout of any task, by its `costs` and its `paths`."""
    check_no_film(task.name, film)
    noises = () if noise is None else (noise,)

    def cost() -> float:
        return float(np.asarray(task.costs(policy[None], environments, *noises))[0, 0])

    found, error = caught(cost)
    columns: dict[str, NDArray] = {}
    if error is None and task.paths is not None:
        path = task.paths(policy[None], environments, noise)[0][0]
        columns = dict(zip(POSE, path.T, strict=False))
    return Watched(found, error, columns=columns)


def caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a user's function returns; or None and the error that it raised."""
    try:
        return call(), None
    except (Exception, SystemExit) as error:
        return None, error


def check_no_film(name: str, film: Film | None) -> None:
    """An error if a task that draws no frames is to be filmed."""
    if film is not None:
        raise ValueError(
            f"the task {name} cannot be filmed: it draws no frames, as a Gymnasium environment "
            "does with render_mode='rgb_array'"
        )


# ---- drawing without a display ------------------------------------------------------------------


def choose_renderer() -> None:
    """Have MuJoCo and pygame draw without a display, if there is none and no choice was made.

    It sets MUJOCO_GL and SDL_VIDEODRIVER for this process. Some environments read them when they
    are imported.
    """
    if not without_display():
        return
    # not "dummy", with which highway-env leaves its frames black
    os.environ.setdefault("SDL_VIDEODRIVER", "offscreen")
    if found := offscreen_renderer():
        os.environ.setdefault("MUJOCO_GL", found)


def without_display() -> bool:
    """Whether no window can be opened."""
    return sys.platform == "linux" and not any(os.environ.get(name) for name in DISPLAYS)


def offscreen_renderer() -> str | None:
    """What MuJoCo can draw with, as it calls it."""
    for library, name in (("EGL", "egl"), ("OSMesa", "osmesa")):
        if ctypes.util.find_library(library):
            return name
    return None
