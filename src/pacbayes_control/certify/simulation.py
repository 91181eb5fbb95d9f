"""Costs of the same policies in simulation, beside those of their trials on the robot.

Trials on the robot are paired with simulation of the same environments, and many more environments
are simulated alone. The bound on the cost on the robot is then `occam.simulated_bound`.
`simulated.with_simulation` joins them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import numpy as np
import scipy
from numpy.typing import NDArray

from pacbayes_control.bounds.stratified import PairCounts
from pacbayes_control.certify.checks import checked_costs
from pacbayes_control.certify.costs import (
    INCIDENTS,
    MOST_ROWS,
    Costs,
    are_incidents,
    name_digests,
    npy_digest,
)
from pacbayes_control.certify.files import check_record, json_bytes, sha256
from pacbayes_control.certify.ranges import EnvironmentRange

SHARE = "simulation"  # the budget's name for the δ of limits on the cost in simulation
PART = 0.02  # of δ, that it takes: little, since there are many further environments
PAIRS, MORE, FACTS = "simulated.npy", "more_simulated.npy", "simulation.json"  # files of a run
MOST_TRIALS = 1e9  # that a bound is said to be worth

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Costs in simulation of the policies of `Costs`, of which it is a part."""

    pairs: NDArray[np.float64 | np.uint8]  # F, (environments, policies): where there were trials
    more: Costs  # F in further environments
    origin: Mapping[str, object]  # of the pairs

    def __post_init__(self) -> None:
        if self.pairs.shape[1] != self.more.policies or self.more.draws is not None:
            raise ValueError("the costs in simulation are not of the same policies")

    def of(self, policy: int, binary: bool) -> tuple[Floats, Floats]:
        """F of one policy, of the pairs and of further environments, in the order of the costs.

        binary: whether trials on the robot only succeed or fail; F then is, too: failure above ½.
        """
        pairs, more = (v[:, policy].astype(float) for v in (self.pairs, self.more.values))
        if binary:
            pairs, more = (np.asarray(f > 0.5, float) for f in (pairs, more))
        return pairs, more

    @property
    def seen(self) -> tuple[EnvironmentRange, ...]:
        """The further environments, if they are of a stream."""
        return (self.more.range,) if self.more.range else ()

    @property
    def rows(self) -> frozenset[str]:
        """The names of the further environments, as `Costs.rows` lists them, if not too many."""
        few = self.more.environments <= MOST_ROWS
        return frozenset(name_digests(self.more.sites) if few else ())

    @property
    def incidents(self) -> dict[str, int]:
        """The number of incidents of the rollouts in simulation, by their kind."""
        pairs, more = (incidents_from(origin) for origin in (self.origin, self.more.origin))
        return {kind: n for kind in INCIDENTS if (n := pairs.get(kind, 0) + more.get(kind, 0))}

    @property
    def facts(self) -> dict[str, Any]:
        """All but the costs, for a file."""
        origins = {"pairs": dict(self.origin), "more": dict(self.more.origin)}
        return {"origins": origins, "sites": list(self.more.sites)}

    @property
    def arrays(self) -> dict[str, NDArray]:
        """The files of costs, by name."""
        return {PAIRS: self.pairs, MORE: self.more.values}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of its files."""
        arrays = {name.removesuffix(".npy"): npy_digest(a) for name, a in self.arrays.items()}
        return arrays | {"simulation": sha256(json_bytes(self.facts))}

    @classmethod
    def from_files(cls, pairs: NDArray, more: NDArray, facts: Any) -> Simulation:
        """The record of files that may hold anything."""
        check_record(facts, {"origins": dict[str, dict], "sites": list[str]}, FACTS)
        origins = facts["origins"]
        if origins.keys() != {"pairs", "more"}:
            raise ValueError(f"{FACTS} does not tell where the costs in simulation came from")
        further = Costs(more, origin=origins["more"], sites=facts["sites"])
        mine = further.range
        if mine and not (mine.start >= 0 and mine.stop - mine.start == len(more)):
            raise ValueError(f"{FACTS} names another number of environments than there are costs")
        return cls(checked_costs(pairs), further, origins["pairs"])


@dataclass(frozen=True)
class SimulationUse:
    """How good the simulation of the certified policy was, and how much it helped."""

    environments: int  # that were simulated alone, M
    cost: float  # the mean of F in these
    cost_of_pairs: float  # and in the environments of the trials
    low: float | None  # limits on E F; None if the bound needs none
    high: float
    agreement: float  # 1 less the mean of |Y - F|; the share of pairs that agree on failure
    correlation: float | None  # of Y and F across environments; None if one does not vary
    bound_without: float  # from the trials alone, of the policy with the smallest
    # on the robot, which alone would give such a bound; None if simulation did not make it smaller
    equivalent_trials: float | None
    incidents: Mapping[str, int] = field(default_factory=dict)  # of rollouts in simulation, by kind

    @classmethod
    def from_record(cls, record: Any) -> SimulationUse:
        """The record of a certificate that may hold anything."""
        check_record(record, get_type_hints(cls), "simulation")
        found = cls(**record)
        shares = (found.cost, found.cost_of_pairs, found.high, found.agreement, found.bound_without)
        known = 1 < found.environments < 2**53 and all(0 <= share <= 1 for share in shares)
        known = known and (found.low is None or 0 <= found.low <= found.high)
        known = known and (found.correlation is None or abs(found.correlation) <= 1)
        if not known or not 0 < (found.equivalent_trials or 1) < MOST_TRIALS:
            raise ValueError("bad simulation: shares in [0, 1] and numbers of environments")
        incidents_from(record)
        return found

    @classmethod
    def of(
        cls,
        costs: Costs,
        policy: int,
        bounds: tuple[float, float],
        level: float | None,
        limits: tuple[float | None, float],
    ) -> SimulationUse:
        """How good the simulation of a policy was, and how much it helped.

        Args:
            costs: on the robot, beside which there is simulation
            policy: its number
            bounds: with simulation, and without it
            level: the δ of the latter, if it is an exact tail; None if it is by bets
            limits: on the expected cost in simulation
        """
        assert costs.simulation is not None
        y = costs.values[:, policy].astype(float)
        f, more = costs.simulation.of(policy, costs.success_or_failure)
        spread = float(y.std() * f.std())
        return cls(
            environments=len(more),
            cost=float(more.mean()),
            cost_of_pairs=float(f.mean()),
            low=limits[0],
            high=limits[1],
            agreement=1 - float(np.abs(y - f).mean()),
            correlation=float(np.clip(_covariance(y, f) / spread, -1, 1)) if spread > 0 else None,
            bound_without=bounds[1],
            equivalent_trials=equivalent_trials(y, f, more, bounds, level),
            incidents=costs.simulation.incidents,
        )

    def words(self, trials: int, bound: float) -> str:
        """How much it helped, in words.

        trials: on the robot
        bound: with simulation
        """
        source = f"simulation of these and of {self.environments:,} more"
        if not bound < self.bound_without:
            return f"{source} did not make the bound smaller"
        if self.equivalent_trials is None:
            return f"{source} made the bound smaller"
        alone = f"about {int(self.equivalent_trials):,} trials on the robot alone would"
        return f"{source} made the bound as small as {alone}, instead of {trials:,}"


def incidents_from(origin: Mapping[str, object]) -> dict[str, int]:
    """Counts of incidents in an origin that may hold anything."""
    record: Any = origin.get("incidents", {})
    if not are_incidents(record):
        raise ValueError("the origin of costs in simulation has incidents that are not counts")
    return record


def equivalent_trials(
    y: Floats, f: Floats, more: Floats, bounds: tuple[float, float], level: float | None = None
) -> float | None:
    """About how many trials on the robot alone would give the bound with simulation.

    By the exact tail of failures: the N at which it gives this bound, if the share of failures is
    the one that trials and simulation together estimate. By bets: n times the square of the ratio
    of what the two bounds add to the estimates of the cost that they rest on. None if the bound is
    no smaller, or N no larger than n.

    Args:
        y: costs on the robot, (trials,)
        f: in simulation of the same environments
        more: in simulation of further ones
        bounds: with simulation, and without it
        level: the δ of the latter, if it is an exact tail; None if it is by bets

    >>> f = np.repeat([0.0, 1.0], [70, 30])
    >>> equivalent_trials(f, f, np.tile(f, 50), (0.35, 0.42), 0.01)
    502.78
    """
    bound, without = bounds
    if not bound < without:
        return None
    if level is not None:
        rate = PairCounts.of(y, f).estimate(float(more.mean()))
        found = trials_for(rate, bound, level)
    else:
        share = _covariance(y, f) / float(f.var()) if f.var() > 0 else 0.0
        added = bound - float(y.mean()) + share * float(f.mean() - more.mean())
        found = len(y) * ((without - float(y.mean())) / added) ** 2 if added > 0 else math.inf
    return float(np.round(found, 3)) if len(y) < found < MOST_TRIALS else None


def _covariance(y: Floats, f: Floats) -> float:
    return float(np.mean((y - y.mean()) * (f - f.mean())))


def trials_for(rate: float, bound: float, level: float) -> float:
    """The number of trials at which the exact tail of this share of failures gives a bound.

    >>> round(trials_for(0.3, 0.4, 0.01))
    136
    """
    if not rate < bound < 1:
        return math.inf
    low, high = 1.0, MOST_TRIALS
    while high > low * (1 + 1e-12):
        n = math.sqrt(low * high)
        enough = scipy.special.betaincc(rate * n + 1, (1 - rate) * n, bound) <= level
        low, high = (low, n) if enough else (n, high)
    return high
