"""Pictures of grasping that are drawn with a sixteenth of the rays, which are what takes long."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray

from pacbayes_control.report import grasp_pictures
from pacbayes_control.tasks.grasping.rendering import shaded
from sizes import sized

STEP = sized(4, full=1)  # pixels by which one ray stands


def coarsely(model: Any, data: Any, eye: Any, target: Any, size: Any, *more: Any) -> NDArray:
    width, height = size
    fewer = (-(-width // STEP), -(-height // STEP))
    image = shaded(model, data, eye, target, fewer, *more)
    return image.repeat(STEP, axis=0).repeat(STEP, axis=1)[:height, :width]


def coarse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grasp_pictures, "shaded", coarsely)
