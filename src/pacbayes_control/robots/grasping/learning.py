"""Labels of objects, and priors over a network's layers, to learn grasping with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pacbayes_control import __version__
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.robots.grasping.cache import cache_folder, digest_of
from pacbayes_control.robots.grasping.compact import Compact
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.policy import GraspNetwork
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Execution
from pacbayes_control.rollouts.evaluation import table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.rollouts.pools import open_workers
from pacbayes_control.tasks import Environments

PART = 256  # objects whose labels are kept together

# From a prior that grasps well already, small steps; from the paper's, which knows nothing, large.
SEARCH = {
    "elsewhere": SearchSettings(estimator="gradient", pairs=2, steps=200, step_size=0.01),
    "paper": SearchSettings(estimator="gradient", pairs=2, steps=400, step_size=0.1, patience=400),
}


def labelled(
    task: Grasping, environments: Environments, execution: Execution, grid: Grid | None = None
) -> Grasping:
    """The task with labels for the objects to train on, made once and kept in the cache."""
    kept = replace(execution, store=cache_folder() / "grasping", title="labelling grasps")
    return task.with_labels(label(task, environments, grid or Grid(), kept))


def label(
    task: Grasping, environments: Environments, grid: Grid, execution: Execution | None = None
) -> Labels:
    """Try every grasp of a grid on every object: an evaluation of policies that do not look.

    Labels are kept in the execution's store, those of each kind of task apart and in parts of PART
    objects, so that an interrupted labelling goes on where it was and a larger one takes over whole
    parts.
    """
    execution = execution or Execution()
    blind, columns = task.blind(), len(grid.grasps)
    words = [__version__, repr(blind), repr(grid)]
    kept = None
    if execution.store is not None:
        kept = Path(execution.store) / f"labels-{digest_of(words)[:16]}"
        kept.mkdir(parents=True, exist_ok=True)
    parts = []
    with open_workers(blind, execution.workers) as executor:
        for part in environments.chunks(PART):
            done = (part.start - environments.start) * columns
            counted = execution.counting_on(done, len(environments) * columns)
            name = f"{part.stream}-{part.seed}-{part.start}-{part.stop}"
            here = replace(counted, workers=executor, store=kept / name if kept else None)
            parts.append(np.array(table_of(Job(blind, part, grid.grasps), here), np.uint8))
    return Labels(environments, np.concatenate(parts), grid)


def prior_named(network: GraspNetwork, name: str, seed: int = 0) -> GaussianPrior:
    """A prior over a network's layers: that of the compact extractor's file, or the paper's."""
    if name == "paper":
        return GaussianPrior(network.paper_prior(seed), "the paper's, around random means near 0")
    if not isinstance(network.extractor, Compact):
        raise ValueError(
            f"the prior {name!r} was learnt with the compact extractor: with "
            f"{network.extractor.name}, choose the prior paper (--prior paper)"
        )
    gaussian, origin = network.extractor.prior()
    if len(gaussian) != network.parameters:
        raise ValueError(
            f"the prior {name!r} has {len(gaussian)} parameters and the network "
            f"{network.parameters}: for other layers or another head choose the prior paper "
            "(--prior paper)"
        )
    return GaussianPrior(gaussian, origin)
