"""A prior over network policies that ships with the library, and where it was learnt.

It was learnt by `pbc vehicle pretrain` on obstacle fields that are deliberately others than the
paper's: other numbers of cylinders, of other radii. It has never seen an environment of the paper's
distribution, so it costs nothing to use it there.
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
    """The prior over `NETWORK` policies, and in words where it comes from.

    >>> len(pretrained()[0]) == NETWORK.parameters
    True
    """
    record = json.loads(
        files("pacbayes_control.robots.vehicle").joinpath(FILE).read_text(encoding="utf-8")
    )
    return DiagonalGaussian.from_record(record, "prior"), str(record["origin"])
