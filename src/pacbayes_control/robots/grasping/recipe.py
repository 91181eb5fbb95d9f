"""How grasping is learnt by the commands: labels, a prior, a posterior, and a baseline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control import __version__
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.gaussian import learn_gaussian, split_budget
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import Settings
from pacbayes_control.learn.training import Watch
from pacbayes_control.robots.grasping.cache import digest_of
from pacbayes_control.robots.grasping.compact import Compact
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.policy import Network
from pacbayes_control.robots.grasping.surrogates import descend
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Progress
from pacbayes_control.rollouts.evaluation import counting_on, table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.rollouts.pools import Workers, gathered
from pacbayes_control.rollouts.spreading import spread
from pacbayes_control.tasks import Environments

PRIORS = ("elsewhere", "paper")
PART = 256  # objects whose labels are kept together

# From a prior that grasps well already, small steps; from the paper's, which knows nothing, large.
SEARCH = {
    "elsewhere": Settings(estimator="gradient", pairs=2, steps=200, step_size=0.01),
    "paper": Settings(estimator="gradient", pairs=2, steps=400, step_size=0.1, patience=400),
}


@dataclass(frozen=True)
class Recipe:
    """What to learn from, and what to certify."""

    prior: str = "elsewhere"  # that of the compact extractor's file, or paper
    delta: float = 0.01
    sampling_delta: float | None = None  # of it, for what sampled policies may miss; a tenth
    method: str = "kl"
    objective: str | None = None
    draws: int | None = None  # policies for each object to certify with
    grid: Grid = field(default_factory=Grid)
    settings: Settings | None = None  # of the search; by default those of the prior
    seed: int = 0
    retries: int = 0  # how often a rollout that failed may be run again and still count

    def __post_init__(self) -> None:
        split_budget(self.delta, self.method, self.sampling_delta)
        _check_prior(self.prior)
        usable = [name for name, objective in OBJECTIVES.items() if not objective.exponential]
        if self.objective is not None and self.objective not in usable:
            raise ValueError(
                f"objective {self.objective!r} cannot be used for grasping: choose from "
                f"{', '.join(usable)}"
            )

    @property
    def search(self) -> Settings:
        """How to search."""
        return self.settings or SEARCH[self.prior]


def _check_prior(name: str) -> None:
    if name not in PRIORS:
        raise ValueError(
            f"prior {name!r} is unknown for grasping: choose from {', '.join(PRIORS)}; a file of "
            "pbc grasping pretrain is given as weights (--weights)"
        )


def label(
    task: Grasping,
    environments: Environments,
    grid: Grid,
    folder: Path | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
    retries: int = 0,
) -> Labels:
    """Try every grasp of a grid on every object: an evaluation of policies that do not look.

    folder: where labels are kept, those of each kind of task apart and in parts of PART objects, so
    that an interrupted labelling goes on where it was and a larger one takes over whole parts.
    """
    blind, columns = task.blind(), len(grid.grasps)
    words = [__version__, repr(blind), repr(grid)]
    kept = folder / f"labels-{digest_of(words)[:16]}" if folder else None
    parts = []
    with gathered(blind, executor) as crew:
        for part in environments.chunks(PART):
            done = (part.start - environments.start) * columns
            counted = counting_on(progress, done, len(environments) * columns)
            job, out = Job(blind, part, grid.grasps), _part_of(kept, part)
            table = table_of(job, counted, crew.executor, out, retries=retries)
            parts.append(np.array(table, np.uint8))
    return Labels(environments, np.concatenate(parts), grid)


def _part_of(kept: Path | None, part: Environments) -> Path | None:
    if kept is None:
        return None
    kept.mkdir(parents=True, exist_ok=True)
    return kept / f"{part.stream}-{part.seed}-{part.start}-{part.stop}"


def prior_for(network: Network, name: str, seed: int = 0) -> GaussianPrior:
    """A prior over a network's layers, by name."""
    _check_prior(name)
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


def learn_grasping(
    task: Grasping,
    recipe: Recipe,
    checkpoint: Path | None = None,
    watch: Watch | None = None,
    certifying: Progress | None = None,
    executor: Workers = None,
) -> Run[DiagonalGaussian]:
    """Learn a posterior over a network's layers on labelled objects, and certify it by grasps."""
    network, labels = task.trainable()
    prior = prior_for(network, recipe.prior, recipe.seed)
    with spread(task, executor) as spread_task:
        return learn_gaussian(
            spread_task,
            labels.environments,
            prior,
            recipe.delta,
            recipe.method,
            recipe.objective,
            recipe.search,
            recipe.sampling_delta,
            recipe.draws,
            seed=recipe.seed,
            checkpoint=checkpoint,
            progress=watch,
            certifying=certifying,
            retries=recipe.retries,
        )


def baseline(task: Grasping, recipe: Recipe) -> NDArray[np.float64]:
    """The same network without the regulariser, from the same start: one policy, (parameters,)."""
    network, labels = task.trainable()
    start = prior_for(network, recipe.prior, recipe.seed).distribution
    settings = recipe.search
    goal = task.surrogate_cost.goal(labels, slice(None))
    return descend(
        network,
        start.mean,
        np.sqrt(start.variance) * settings.step_size,
        settings.steps,
        task.features(labels.environments),
        goal,
    )
