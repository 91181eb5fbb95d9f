"""Priors over continuous policies: where they may come from.

A prior must not depend on the environments that the bound counts. Every prior here records which
environments it was learnt from, and a learner refuses to count those.

fixed in advance      GaussianPrior(DiagonalGaussian(mean, variance))
elsewhere             `pretrain_prior`: on any number of environments from another distribution;
                      the bound still counts the whole training set
on a part of them     `set_aside`, then any of these on the part; the bound counts the others
by imitation          `imitate`: regress an expert's actions over recorded observations
one of several        `learn_family` in `learn.gaussian`: a finite family declared in advance, such
                      as several variances, covered by a union bound
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn.search import GaussianSearch, SearchSettings
from pacbayes_control.learn.training import search_posterior
from pacbayes_control.rollouts import Execution
from pacbayes_control.tasks import Environments, Task, as_task

# For a search that minimises the cost and no bound: ranks of the costs, a fixed width, all steps.
PRETRAINING = SearchSettings(
    pairs=32, steps=2000, step_size=0.25, natural=False, ranks=True, variance=False
)
SHARE = 0.2  # of the environments to set aside, if nothing else is said


@dataclass(frozen=True)
class Pretraining:
    """How a prior is learnt on environments from another distribution."""

    search: SearchSettings = PRETRAINING
    per_step: int = 256  # environments, new ones in every step
    width: float = 1.0  # of the prior, in standard deviations of `start`
    seed: int = 0
    origin: str | None = None  # for the certificate; by default how many environments were used

    def __post_init__(self) -> None:
        if not 0 < self.width < np.inf:
            raise ValueError(f"width = {self.width} must be positive")


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A prior and its origin. Its distribution records the environments it was learnt from."""

    distribution: DiagonalGaussian
    origin: str = "given in advance"  # for the certificate

    def __post_init__(self) -> None:
        if not self.origin.isprintable():
            raise ValueError("the origin of a prior is one line of plain text")

    @classmethod
    def of(cls, prior: GaussianPrior | DiagonalGaussian) -> GaussianPrior:
        """A prior, from a distribution that was given in advance."""
        if isinstance(prior, DiagonalGaussian):
            return cls(prior)
        if not isinstance(prior, GaussianPrior):
            raise ValueError(f"a prior is a GaussianPrior or a DiagonalGaussian, not {prior!r}")
        return prior

    def check_unseen(self, environments: Environments) -> None:
        """Raise ValueError if the prior was learnt from environments that a bound is to count."""
        for other in self.distribution.seen:
            if environments.range.overlaps(other):
                raise ValueError(
                    f"the prior has seen some of these environments (stream {other.stream!r}, "
                    f"{other.start} to {other.stop}): the bound may count only the others"
                )


def set_aside(
    environments: Environments, share: float | None = None
) -> tuple[Environments, Environments]:
    """Split environments in two: a share to learn a prior on, and the rest for the bound.

    The share is declared in advance, never chosen by looking at the bound; None is a fifth.

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> part, rest = set_aside(Stopping().environments(1000, stream="train"), 0.2)
    >>> len(part), len(rest)
    (200, 800)
    """
    share = SHARE if share is None else share
    cut = round(len(environments) * share) if 0 < share < 1 else 0
    if not 0 < cut < len(environments):
        raise ValueError(
            f"a share of {share:g} of {len(environments)} environments leaves one part empty"
        )
    return environments[:cut], environments[cut:]


def pretrain_prior(
    task: Task,
    start: DiagonalGaussian,
    pretraining: Pretraining | None = None,
    execution: Execution | None = None,
) -> GaussianPrior:
    """Learn a prior on environments of the given task, new ones in every step.

    The mean is learnt by an evolution strategy that minimises the cost alone.

    Args:
        task: another task than the one to certify, such as with other obstacles or another
            simulator; its environments come from the stream "elsewhere"
        start: mean and standard deviations at which the search begins
        pretraining: settings of the search, and the width of the prior
        execution: where and how
    """
    task, how = as_task(task), pretraining or Pretraining()
    per_step, seed = how.per_step, how.seed
    search = GaussianSearch(start, per_step, 0.5, None, how.search, seed, "elsewhere search")

    def environments(step: int) -> Environments:
        return task.environments((step + 1) * per_step, "elsewhere", seed)[step * per_step :]

    search_posterior(task, environments, search, execution)
    used = task.environments(how.search.steps * per_step, "elsewhere", seed)
    words = how.origin or f"learnt on {len(used):,} environments from elsewhere ({used.task})"
    seen = (*search.posterior.seen, *(part.range for part in task.depends_on))
    learnt = DiagonalGaussian(search.posterior.mean, how.width**2 * start.variance, "prior", seen)
    return GaussianPrior(learnt, words)


def imitate(
    act: Callable[[NDArray, NDArray], NDArray],
    observations: NDArray,
    actions: NDArray,
    start: DiagonalGaussian,
    recorded_on: Sequence[Environments],
    ridge: float = 1e-3,
) -> GaussianPrior:
    """A prior centred on the policy that comes closest to an expert's actions, by least squares.

    Parameters that the recordings do not determine stay near `start`, in units of its standard
    deviations.

    Args:
        act: act(policy, observations) gives the actions of a policy, (n,)
        observations: (n, …), recorded from the expert
        actions: (n,), recorded from the expert
        start: where the fit begins; its variances are kept
        recorded_on: the environments of the recordings, which no bound may count; empty if they
            are of another distribution
        ridge: weight of the distance from `start`

    >>> start = DiagonalGaussian([0.0], 1.0)
    >>> expert = imitate(lambda w, x: x[:, 0] * w, np.ones((5, 1)), np.full(5, 3.0), start, [])
    >>> round(float(expert.distribution.mean[0]), 2)
    3.0
    """
    observations, actions = np.asarray(observations, float), np.asarray(actions, float)
    if len(observations) != len(actions) or actions.ndim != 1 or len(actions) == 0:
        raise ValueError(
            f"{len(observations)} observations and {actions.shape} actions: one each is needed"
        )
    if not (np.all(np.isfinite(observations)) and np.all(np.isfinite(actions))):
        raise ValueError("the recordings hold a NaN or an infinity")
    spread = np.sqrt(start.variance)
    scale = np.sqrt(len(actions)) * max(float(np.std(actions)), 1e-12)

    def misfit(moves: NDArray) -> NDArray:
        error = act(start.mean + spread * moves, observations) - actions
        return np.concatenate([error / scale, ridge * moves])

    if np.shape(act(start.mean, observations)) != actions.shape:
        raise ValueError("act(policy, observations) must give one action for each observation")
    found = least_squares(misfit, np.zeros(len(start)), method="trf", max_nfev=30)
    mean = start.mean + spread * found.x
    words = f"imitates an expert over {len(actions):,} recorded observations"
    seen = (*start.seen, *(environments.range for environments in recorded_on))
    return GaussianPrior(DiagonalGaussian(mean, start.variance, "prior", seen), words)


def scaled(prior: GaussianPrior, factors: tuple[float, ...]) -> list[GaussianPrior]:
    """A family of priors: the given one with its variances multiplied by each factor."""
    gaussian, family = prior.distribution, []
    for factor in factors:
        wider = DiagonalGaussian(gaussian.mean, gaussian.variance * factor, "prior", gaussian.seen)
        family.append(GaussianPrior(wider, f"{prior.origin}, variances × {factor:g}"))
    return family
