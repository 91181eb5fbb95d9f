"""Gradient descent on a bound over Gaussian posteriors, apart from the rollouts (ask and tell).

A search proposes policies (`ask`), is told what each cost in training (`tell`), and moves. It works
in units of the prior: m = (μ - μ₀)/√s₀ and ρ = ln(s/s₀), so that a step means the same for every
parameter, and KL = ½ Σ (e^ρ + m² - ρ - 1). The gradient of the bound B(r̂, KL) is

    ∂B/∂r̂ ∇r̂ + ∂B/∂KL ∇KL,    ∇_m KL = m,    ∇_ρ KL = (e^ρ - 1)/2,

in which only ∇r̂ is estimated, from the costs of sampled policies w = μ + √s ε:

evolution     pairs ±ε, which see the same environments: ∇_m r̂ = E[C ε] √(s₀/s), and
              ∇_ρ r̂ = E[C (ε² - 1)]/2. It needs no derivative and no surrogate.
differences   central differences around each w, as in the paper; for a surrogate cost.
gradient      the task's own derivatives ∂C/∂w.

Random numbers are a function of the seed and the step, and all state is in a few arrays: a search
that is saved and loaded goes on exactly as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian, merged_ranges, ranges_from
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.tasks.environments import KEPT_STREAMS, Environments, generator

Floats = NDArray[np.float64]

ESTIMATORS = ("evolution", "differences", "gradient")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Settings:
    """How to search. The defaults suit 0/1 costs and a fast simulator."""

    estimator: str = "evolution"
    pairs: int = 32  # of policies a step, for evolution and gradient; points for differences
    steps: int = 300  # at most
    step_size: float = 0.1  # in standard deviations of the prior
    schedule: str = "cosine"  # of the step size, from all of it to a twentieth; or constant
    natural: bool = True  # scale the gradient in m by s/s₀, by the Fisher metric: less noise
    variance: bool = True  # learn the variances too
    ranks: bool = False  # replace costs by their ranks: for searches without a bound
    patience: int = 100  # steps without a better objective before stopping early
    stencil: float = 0.5  # half width of the differences, in standard deviations

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"estimator {self.estimator!r} is unknown: choose from {', '.join(ESTIMATORS)}"
            )
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule {self.schedule!r} is unknown: choose from {', '.join(SCHEDULES)}"
            )
        for name in ("pairs", "steps", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: at least 1 is needed")
        if self.estimator == "evolution" and self.variance and self.pairs < 2:
            raise ValueError("one pair says nothing about the variances: at least 2 are needed")
        for name in ("step_size", "stencil"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} = {getattr(self, name)} must be positive")


class GaussianSearch:
    """The state of a search, and its two moves.

    >>> search = GaussianSearch(DiagonalGaussian([0.0, 0.0], 1.0), n=100, delta=0.01)
    >>> while not search.done:
    ...     policies = search.ask()
    ...     costs = np.mean(np.abs(policies - 1) > 1.5, axis=1)  # what each policy costs
    ...     search.tell(costs, environments=())  # and where: here, in none
    >>> bool(search.posterior.mean.min() > 0.1)
    True
    """

    # Adam's: the usual momentum, and a shorter memory of squares than for exact gradients.
    MOMENTUM, SQUARES, TINY = 0.9, 0.99, 1e-8
    SMOOTHING = 0.95  # of the objective and of the iterate that is returned

    def __init__(
        self,
        prior: DiagonalGaussian,
        n: int,
        delta: float,
        objective: str | None = "kl",
        settings: Settings | None = None,
        seed: int = 0,
        stream: str = "search",
    ) -> None:
        """Search from `prior`, for a bound on n environments; objective None for the cost alone."""
        if objective is not None and objective not in OBJECTIVES:
            raise ValueError(
                f"objective {objective!r} is unknown: choose from {', '.join(OBJECTIVES)}"
            )
        if stream in KEPT_STREAMS:
            raise ValueError(f"the stream {stream!r} is kept for certificates: use another name")
        self.prior, self.n, self.delta, self.objective = prior, n, delta, objective
        self.settings, self.seed, self.stream = settings or Settings(), seed, stream
        d = len(prior)
        self.seen = prior.seen  # environments that the search has learnt from, and its prior
        self.step = 0
        self.best_value, self.best_step = np.inf, 0
        self.cost = np.nan  # of the policies asked for, smoothed over steps
        self.value = np.nan  # the objective at this cost and at the averaged iterate
        self.coordinates = np.zeros((2, d))  # m and ρ
        self.average = np.zeros((2, d))  # of the coordinates, with the weight on the last
        self.best = np.zeros((2, d))  # the average where the objective was lowest
        self.moments = np.zeros((2, 2, d))  # Adam's: mean and square of the gradient

    # ---- the two moves --------------------------------------------------------------------------

    def ask(self) -> Floats:
        """The policies to roll out next; shape (policies, parameters)."""
        centre = self._gaussian(self.coordinates)
        noise, spread = self._noise(), np.sqrt(centre.variance)
        if self.settings.estimator != "differences":
            return centre.mean + spread * np.concatenate([noise, -noise])
        offsets = self.settings.stencil * np.eye(len(centre))
        points = noise[:, None, :] + np.concatenate([offsets, -offsets])
        return centre.mean + spread * points.reshape(-1, len(centre))

    def tell(
        self,
        costs: Floats,
        gradients: Floats | None = None,
        *,
        environments: Environments | Sequence[Environments],
    ) -> None:
        """Move, given the mean cost in training of each policy that was asked for.

        Args:
            costs: (policies,).
            gradients: (policies, parameters), the task's own; for the estimator of that name only.
            environments: those that the costs are of, which the posterior remembers to have seen:
                no bound for which it is the prior may count them. Empty if they depend on none.

        """
        seen = [environments] if isinstance(environments, Environments) else list(environments)
        if not all(isinstance(part, Environments) for part in seen):
            raise ValueError("tell which Environments the costs are of; () if they are of none")
        costs = np.asarray(costs, float)
        asked = self.population
        if costs.shape != (asked,) or not np.all(np.isfinite(costs)):
            raise ValueError(f"{asked} finite costs are needed, one for each policy asked for")
        slope = self._cost_slope(costs, gradients)
        self._record(float(costs.mean()))
        m, rho = self.coordinates
        if self.objective is not None:
            point = self._point(float(costs.mean()), self.coordinates)
            by_cost, by_kl = OBJECTIVES[self.objective].slopes(*point)
            slope = by_cost * slope + by_kl * np.array([m, np.expm1(rho) / 2])
        if self.settings.natural:
            slope[0] *= np.exp(rho)
        if not self.settings.variance:
            slope[1] = 0
        self._move(slope)
        self.seen = merged_ranges([*self.seen, *(part.range for part in seen)])

    @property
    def population(self) -> int:
        """How many policies `ask` proposes."""
        doubled = len(self.prior) if self.settings.estimator == "differences" else 1
        return 2 * self.settings.pairs * doubled

    @property
    def done(self) -> bool:
        """Whether all steps are taken, or the objective has stopped improving."""
        stale = self.objective is not None and self.step - self.best_step >= self.settings.patience
        return self.step >= self.settings.steps or stale

    @property
    def posterior(self) -> DiagonalGaussian:
        """What has been found: where the objective was lowest, which may be the prior itself.

        Steps are noisy, so it is not the iterates that count but their average, with the weight on
        the last. Without an objective there is nothing to compare, and the last average is it.
        """
        return self._gaussian(self._averaged() if self.objective is None else self.best)

    # ---- its parts ------------------------------------------------------------------------------

    def _gaussian(self, coordinates: Floats) -> DiagonalGaussian:
        m, rho = coordinates
        prior = self.prior
        return DiagonalGaussian(
            prior.mean + np.sqrt(prior.variance) * m,
            prior.variance * np.exp(rho),
            "posterior",
            self.seen,
        )

    def _averaged(self) -> Floats:
        return self.average / (1 - self.SMOOTHING**self.step) if self.step else self.coordinates

    def _noise(self) -> Floats:
        rng = generator(self.seed, self.stream, self.step, of="policies")
        return rng.standard_normal((self.settings.pairs, len(self.prior)))

    def _cost_slope(self, costs: Floats, gradients: Floats | None) -> Floats:
        """∇r̂ in m and ρ; shape (2, parameters)."""
        noise, pairs = self._noise(), self.settings.pairs
        width = np.exp(self.coordinates[1] / 2)  # √(s/s₀)
        if self.settings.ranks:
            costs = scipy.stats.rankdata(costs) / len(costs) - 0.5  # ties share their mean rank
        if self.settings.estimator == "evolution":
            plus, minus = costs[:pairs], costs[pairs:]
            odd, even = (plus - minus) / 2, (plus + minus) / 2
            even = (even - even.mean()) * pairs / max(pairs - 1, 1)  # a baseline, left unbiased
            return np.array([odd @ noise / pairs / width, even @ (noise**2 - 1) / pairs / 2])
        if self.settings.estimator == "differences":
            around = costs.reshape(pairs, 2, len(self.prior))
            by_noise = (around[:, 0] - around[:, 1]) / (2 * self.settings.stencil)  # ∂C/∂ε
        else:
            if gradients is None or np.shape(gradients) != (2 * pairs, len(self.prior)):
                raise ValueError("the estimator 'gradient' needs a gradient for each policy")
            if not np.all(np.isfinite(gradients)):
                raise ValueError("a gradient is NaN or infinite")
            noise = np.concatenate([noise, -noise])
            by_noise = np.asarray(gradients, float) * width * np.sqrt(self.prior.variance)
        return np.array([(by_noise / width).mean(axis=0), (by_noise * noise).mean(axis=0) / 2])

    def _point(self, cost: float, coordinates: Floats) -> tuple[float, float, int, float]:
        m, rho = coordinates
        kl = float(np.sum(np.expm1(rho) - rho + m**2)) / 2
        return float(np.clip(cost, 1e-6, 1 - 1e-6)), max(kl, 0.0), self.n, self.delta

    def _record(self, cost: float) -> None:
        """The objective where the search stands, and whether it was ever lower."""
        smooth = self.SMOOTHING
        self.cost = cost if self.step == 0 else smooth * self.cost + (1 - smooth) * cost
        if self.objective is None:
            self.value = self.cost
            return
        here = self._averaged()
        self.value = float(OBJECTIVES[self.objective].bound(*self._point(self.cost, here)))
        vacuous = self.value >= 1  # cut off there, it cannot show progress
        if vacuous or self.value < self.best_value - 1e-5:
            self.best_value, self.best_step, self.best = self.value, self.step, here.copy()

    def _move(self, slope: Floats) -> None:
        """One step of Adam."""
        self.step += 1
        mean, square = self.moments
        mean += (1 - self.MOMENTUM) * (slope - mean)
        square += (1 - self.SQUARES) * (slope**2 - square)
        unbiased = mean / (1 - self.MOMENTUM**self.step)
        scale = np.sqrt(square / (1 - self.SQUARES**self.step)) + self.TINY
        self.coordinates -= self._step_size() * unbiased / scale
        self.average = self.SMOOTHING * self.average + (1 - self.SMOOTHING) * self.coordinates

    def _step_size(self) -> float:
        size = self.settings.step_size
        if self.settings.schedule == "constant":
            return size
        share = (self.step - 1) / self.settings.steps
        return size * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * share)))

    # ---- keeping it -----------------------------------------------------------------------------

    def fingerprint(self, **surroundings: Any) -> str:
        """SHA-256 of all that decides how a search goes: what a checkpoint must agree with."""
        record = {
            "prior": self.prior.digest,
            "n": self.n,
            "delta": self.delta,
            "objective": self.objective,
            "settings": asdict(self.settings),
            "seed": self.seed,
            "stream": self.stream,
            **surroundings,
        }
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    def save(self, path: Path, fingerprint: str) -> None:
        """Write a checkpoint; the old one stays until the new one is whole."""
        numbers = [self.step, self.best_step, self.best_value, self.cost, self.value]
        unfinished = path.with_name(path.name + ".part")
        with unfinished.open("wb") as file:
            np.savez(
                file,
                fingerprint=np.frombuffer(fingerprint.encode(), np.uint8),
                numbers=np.array(numbers, float),
                coordinates=self.coordinates,
                average=self.average,
                best=self.best,
                moments=self.moments,
                seen=np.frombuffer(json.dumps(self.seen).encode(), np.uint8),
            )
        os.replace(unfinished, path)

    def load(self, path: Path, fingerprint: str) -> None:
        """Go on from a checkpoint of the same search; an error if it is of another."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                found = saved["fingerprint"].tobytes().decode()
                numbers, arrays = saved["numbers"], [saved[name] for name in self._ARRAYS]
                seen = ranges_from(json.loads(saved["seen"].tobytes()), "the checkpoint")
        except Exception:
            raise ValueError(f"{path} is not a checkpoint: delete it to start anew") from None
        if found != fingerprint:
            raise ValueError(
                f"{path} belongs to another run (other options, prior or environments): "
                "delete it to start anew, or choose another folder"
            )
        self.step, self.best_step = int(numbers[0]), int(numbers[1])
        self.best_value, self.cost, self.value = map(float, numbers[2:])
        self.coordinates, self.average, self.best, self.moments = arrays
        self.seen = seen

    _ARRAYS = ("coordinates", "average", "best", "moments")
