"""Where a prior over continuous policies may come from, at what price.

A prior is free if it does not depend on the environments that the bound counts. Every prior here
knows which environments it has seen, and a learner refuses to count those.

fixed in advance      GaussianPrior(DiagonalGaussian(mean, variance))
elsewhere             `learn_elsewhere`: on environments from another distribution, as many as you
                      like; it costs nothing, since it never saw the training set
on a part of them     `set_aside`, then any of these on the part; the bound counts the others
by imitation          `imitate`: regress an expert's actions over recorded observations
one of several        `learn_family` in `learn.gaussian`: a finite family declared in advance, such
                      as several variances, paid for by a union bound
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn.search import GaussianSearch, Settings
from pacbayes_control.learn.training import Watch, search_posterior
from pacbayes_control.tasks import Environments, Task, as_task

# For a search that has no bound to mind: ranks of the costs, a fixed width, every step taken.
LEARN_ELSEWHERE = Settings(
    pairs=32, steps=2000, step_size=0.25, natural=False, ranks=True, variance=False
)


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A prior, and in words where it came from. Its distribution knows what it has seen."""

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
        """An error if the prior depends on environments that a bound is about to count."""
        for other in self.distribution.seen:
            if environments.range.overlaps(other):
                raise ValueError(
                    f"the prior has seen some of these environments (stream {other.stream!r}, "
                    f"{other.start} to {other.stop}): the bound may count only the others"
                )


def set_aside(environments: Environments, share: float) -> tuple[Environments, Environments]:
    """Cut environments in two: a share to learn a prior on, and the rest to count.

    >>> from pacbayes_control.robots import Vehicle
    >>> part, rest = set_aside(Vehicle().environments(1000, stream="train"), 0.2)
    >>> len(part), len(rest)
    (200, 800)
    """
    cut = round(len(environments) * share) if 0 < share < 1 else 0
    if not 0 < cut < len(environments):
        raise ValueError(
            f"a share of {share:g} of {len(environments)} environments leaves one part empty"
        )
    return environments[:cut], environments[cut:]


def learn_elsewhere(
    task: Task,
    start: DiagonalGaussian,
    settings: Settings = LEARN_ELSEWHERE,
    per_step: int = 256,
    width: float = 1.0,
    seed: int = 0,
    origin: str | None = None,
    checkpoint: Path | None = None,
    progress: Watch | None = None,
) -> GaussianPrior:
    """A prior from environments of the given task, new ones in every step, as many as needed.

    The task should be another than the one to certify: other obstacles, another simulator. Its
    environments come from the stream "elsewhere". The mean is learnt by an evolution strategy on
    the cost alone, from the mean of `start` and with its spread; the prior's standard deviations
    are `width` times those of `start`.
    """
    task = as_task(task)
    if not 0 < width < np.inf:
        raise ValueError(f"width = {width} must be positive")
    search = GaussianSearch(start, per_step, 0.5, None, settings, seed, "elsewhere search")
    steps = settings.steps

    def environments(step: int) -> Environments:
        return task.environments((step + 1) * per_step, "elsewhere", seed)[step * per_step :]

    search_posterior(task, environments, search, checkpoint, progress)
    used = task.environments(steps * per_step, "elsewhere", seed)
    words = origin or f"learnt on {len(used):,} environments from elsewhere ({used.task})"
    recorded: tuple[Environments, ...] = tuple(task.depends_on)
    seen = (*search.posterior.seen, *(part.range for part in recorded))
    learnt = DiagonalGaussian(search.posterior.mean, width**2 * start.variance, "prior", seen)
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

    act(policy, observations) gives the actions of a policy; observations: (n, …), actions: (n,) as
    recorded from the expert. Parameters that the recordings leave open stay near `start`, in units
    of its standard deviations; its variances are kept. recorded_on: the environments that the
    recordings were made on, which no bound may count; none if they are of another kind.

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
    """The same prior with its variances multiplied by each factor: a family to declare."""
    return [
        replace(
            prior,
            distribution=DiagonalGaussian(
                prior.distribution.mean,
                prior.distribution.variance * factor,
                "prior",
                prior.distribution.seen,
            ),
            origin=f"{prior.origin}, variances × {factor:g}",
        )
        for factor in factors
    ]
