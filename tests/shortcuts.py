"""Shortcuts for tests of grasping, around what takes long and is tested elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.robots.grasping import pictures as grasp_pictures
from pacbayes_control.robots.grasping.camera import shaded
from pacbayes_control.verify import intervals
from pacbayes_control.verify.intervals import Interval, iv
from sizes import FULL, sized

STEP = sized(4, full=1)  # pixels by which one ray stands


def coarsely(model: Any, data: Any, eye: Any, target: Any, size: Any, *more: Any) -> NDArray:
    width, height = size
    fewer = (-(-width // STEP), -(-height // STEP))
    image = shaded(model, data, eye, target, fewer, *more)
    return image.repeat(STEP, axis=0).repeat(STEP, axis=1)[:height, :width]


def coarse_pictures(patch: pytest.MonkeyPatch) -> None:
    """Draw with a sixteenth of the rays."""
    patch.setattr(grasp_pictures, "shaded", coarsely)


def plain_kl(patch: pytest.MonkeyPatch) -> None:
    """Verify without the 50 digits of a sum over ten thousand parameters."""

    def kl(posterior: DiagonalGaussian, prior: DiagonalGaussian) -> Interval:
        return iv.mpf(posterior.kl(prior))

    if not FULL:
        patch.setattr(intervals, "kl_gaussian", kl)
