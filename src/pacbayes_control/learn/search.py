"""Gradient descent on a bound over Gaussian posteriors, separate from the rollouts (ask and tell).

A search proposes policies (`ask`), is given their training costs (`tell`), and moves. It works
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

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.certify import files
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.ranges import merged_ranges, ranges_from
from pacbayes_control.learn.objectives import OBJECTIVES
from pacbayes_control.tasks.environments import KEPT_STREAMS, Environments, generator
from pacbayes_control.tasks.options import from_values, option, options_of, plain

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search. The defaults suit 0/1 costs and a fast simulator."""

    estimator: Literal["evolution", "differences", "gradient"] = option(
        "evolution",
        "Gradient of the cost: evolution, differences of the surrogate, or the task's gradient.",
        rare=True,
    )
    pairs: int = option(
        32,
        "Half of the policies a step, which come in pairs; for differences: points. Where rollouts "
        "are slow, there is also a batch: environments a step.",
        least=1,
    )
    steps: int = option(
        300,
        "Steps of the search, at most; `pbc learn` takes 200 unless the task knows better.",
        least=1,
    )
    batch: int | None = option(
        None,
        "Environments a step, all of them in turn; default: all in every step.",
        least=1,
        hidden=True,  # the help of --pairs tells of it
    )
    step_size: float = option(0.1, "In standard deviations of the prior.", rare=True)
    schedule: Literal["constant", "cosine"] = option(
        "cosine", "Of the step size, from all of it to a twentieth; or constant.", rare=True
    )
    natural: bool = option(
        True, "Scale the gradient in m by s/s₀, by the Fisher metric: less noise.", rare=True
    )
    variance: bool = option(True, "Learn the variances too.", rare=True)
    ranks: bool = option(
        False, "Replace costs by their ranks: for searches without a bound.", rare=True
    )
    patience: int = option(
        100, "Steps without a better objective before stopping early.", rare=True, least=1
    )
    stencil: float = option(
        0.5, "Half width of the differences, in standard deviations.", rare=True
    )

    def __post_init__(self) -> None:
        for name, each in options_of(SearchSettings).items():
            each.check(getattr(self, name))
        if self.estimator == "evolution" and self.variance and self.pairs < 2:
            raise ValueError("one pair says nothing about the variances: at least 2 are needed")
        for name, value in (("step_size", self.step_size), ("stencil", self.stencil)):
            if not 0 < value < np.inf:
                raise ValueError(f"{name} = {value} must be positive")


@dataclass(eq=False)
class GaussianSearch:
    """The state of a search, with the two methods `ask` and `tell`.

    >>> search = GaussianSearch(DiagonalGaussian([0.0, 0.0], 1.0), n=100, delta=0.01)
    >>> while not search.done:
    ...     policies = search.ask()
    ...     costs = np.mean(np.abs(policies - 1) > 1.5, axis=1)
    ...     search.tell(costs, environments=())  # these costs depend on no environments
    >>> bool(search.posterior.mean.min() > 0.1)
    True
    """

    # Adam's: the usual momentum, and a shorter memory of squares than for exact gradients.
    MOMENTUM, SQUARES, TINY = 0.9, 0.99, 1e-8
    SMOOTHING = 0.95  # of the objective and of the iterate that is returned

    prior: DiagonalGaussian  # of the bound; the search begins here
    n: int  # environments that the bound counts
    delta: float  # of the bound
    objective: str | None = "kl"  # the bound to minimise; None: the training cost alone
    settings: SearchSettings = field(default_factory=SearchSettings)
    seed: int = 0  # of the random numbers
    stream: str = "search"  # of the random numbers

    def __post_init__(self) -> None:
        if self.objective not in (None, *OBJECTIVES):
            known = ", ".join(OBJECTIVES)
            raise ValueError(f"objective {self.objective!r} is unknown: choose from {known}")
        if self.stream in KEPT_STREAMS:
            raise ValueError(f"the stream {self.stream!r} is kept for certificates: use another")
        d = len(self.prior)
        self.seen = self.prior.seen  # environments that the search has learnt from, and its prior
        self.step = 0
        self.best_value, self.best_step = np.inf, 0
        self.cost = np.nan  # of the policies asked for, smoothed over steps
        self.value = np.nan  # the objective at this cost and at the averaged iterate
        self.coordinates = np.zeros((2, d))  # m and ρ
        self.average = np.zeros((2, d))  # of the coordinates, weighted towards the last ones
        self.best = np.zeros((2, d))  # the average where the objective was lowest
        self.moments = np.zeros((2, 2, d))  # Adam's: mean and square of the gradient
        self._last: tuple[int, Floats] = -1, np.empty(0)  # a step and its noise

    # ---- ask and tell ---------------------------------------------------------------------------

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
        """Move, given the mean training cost of each policy that was asked for.

        Args:
            costs: (policies,)
            gradients: (policies, parameters), from the task; for the estimator "gradient" only
            environments: those of the costs, which the posterior records: if it is used as a prior,
                no bound may count them. Empty if the costs depend on no environments
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
        """The posterior where the objective was lowest, which may be the prior itself.

        Steps are noisy, so the average of the iterates is used, weighted towards the last ones.
        Without an objective it is the last average.
        """
        return self._gaussian(self._averaged() if self.objective is None else self.best)

    # ---- parts of a step ------------------------------------------------------------------------

    def _gaussian(self, coordinates: Floats) -> DiagonalGaussian:
        m, rho = coordinates
        mean = self.prior.mean + np.sqrt(self.prior.variance) * m
        variance = self.prior.variance * np.exp(rho)
        return DiagonalGaussian(mean, variance, "posterior", self.seen)

    def _averaged(self) -> Floats:
        return self.average / (1 - self.SMOOTHING**self.step) if self.step else self.coordinates

    def _noise(self) -> Floats:
        """The noise of this step, which is asked for twice."""
        if self._last[0] != self.step:
            rng = generator(self.seed, self.stream, self.step, of="policies")
            self._last = self.step, rng.standard_normal((self.settings.pairs, len(self.prior)))
        return self._last[1]

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
        """Compute the objective at the current average, and keep the best."""
        smooth = self.SMOOTHING
        self.cost = cost if self.step == 0 else smooth * self.cost + (1 - smooth) * cost
        if self.objective is None:
            self.value = self.cost
            return
        here = self._averaged()
        self.value = float(OBJECTIVES[self.objective].bound(*self._point(self.cost, here)))
        vacuous = self.value >= 1  # the bound is cut off at 1, where it cannot show progress
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

    # ---- checkpoints ----------------------------------------------------------------------------

    def fingerprint(self, **surroundings: Any) -> str:
        """SHA-256 of everything that determines a search, which a checkpoint must match."""
        plain = ("n", "delta", "objective", "seed", "stream")
        record = {name: getattr(self, name) for name in plain} | surroundings
        # fields that are None are left out: a checkpoint of before there was `batch` goes on
        settings = {name: v for name, v in asdict(self.settings).items() if v is not None}
        record |= {"prior": files.sha256(self.prior.to_bytes()), "settings": settings}
        return files.sha256(json.dumps(record, sort_keys=True).encode())

    def save(self, path: Path, fingerprint: str) -> None:
        """Write a checkpoint; the old one stays until the new one is complete."""
        numbers = [self.step, self.best_step, self.best_value, self.cost, self.value]
        content = BytesIO()
        np.savez(
            content,
            fingerprint=np.frombuffer(fingerprint.encode(), np.uint8),
            numbers=np.array(numbers, float),
            seen=np.frombuffer(json.dumps(self.seen).encode(), np.uint8),
            settings=np.frombuffer(json.dumps(plain(self.settings)).encode(), np.uint8),
            **{name: getattr(self, name) for name in self._ARRAYS},
        )
        files.write_atomic(path, content.getvalue())

    def load(self, path: Path, fingerprint: str) -> None:
        """Continue from a checkpoint of the same search; an error if it is of another."""
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


def saved_settings(checkpoint: Path) -> SearchSettings | None:
    """The settings of the search that a checkpoint is of; None if it does not tell."""
    try:
        with checkpoint.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            return from_values(SearchSettings, json.loads(saved["settings"].tobytes()))
    except Exception:  # `load` says what is wrong with it
        return None
