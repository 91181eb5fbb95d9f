"""A prior over network policies that ships with the library, and its origin.

It was learnt by `pbc vehicle pretrain --steps 8000 --per-step 4096 --device cuda`, on an NVIDIA
H200, on obstacle fields that differ from the paper's on purpose: other numbers of cylinders, of
other radii. It does not depend on any environment of the paper's distribution, so a bound there may
count all environments.
"""

from __future__ import annotations

import json
from importlib.resources import files

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.robots.planar.obstacles import ObstacleField
from pacbayes_control.robots.planar.policies import Network

ELSEWHERE = ObstacleField(fewest=25, most=50, radius=(0.03, 0.25))
NETWORK = Network(hidden=16)
FILE = "pretrained.json"


def pretrained() -> tuple[DiagonalGaussian, str]:
    """The prior over `NETWORK` policies, and its origin in words.

    >>> len(pretrained()[0]) == NETWORK.parameters
    True
    """
    file = files("pacbayes_control.robots.vehicle") / FILE
    record = json.loads(file.read_text(encoding="utf-8"))
    return DiagonalGaussian.from_record(record, "prior"), str(record["origin"])
