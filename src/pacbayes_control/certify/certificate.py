"""The certificate, and the δ budget that it spends."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

import numpy as np
import scipy

import pacbayes_control
from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import are_incidents, incidents_in_words
from pacbayes_control.certify.files import check_record, has_type
from pacbayes_control.certify.looks import Look, checked_numbers, describe, looks_from
from pacbayes_control.certify.parts import CertifiedPart
from pacbayes_control.certify.sentence import sentence_of
from pacbayes_control.certify.simulation import SimulationUse
from pacbayes_control.certify.statistics import Statistic, rest_percent
from pacbayes_control.certify.text import percent_up, quoted, round_up, shown

FORMAT = 9
WITH_LOOKS = 5  # the first that may tell of looks at a growing campaign, and then had to
# Fields that were added in a format, and their values for a certificate of an earlier format.
LATER: dict[int, dict[str, Any]] = {
    2: {"set_aside": 0, "prior": "not recorded"}
    | dict.fromkeys(("parameters", "training_cost_bound", "draws", "shared_draws", "noise")),
    3: {"ball": None, "bound_without_shift": None, "tilt": None},
    4: {"incidents": {}, "cost_rule": None, "distribution": None, "test_estimate": None},
    5: {"looks": (), "declared_looks": ()},
    6: {"of": "mean", "until": None, "at_most": None}
    | dict.fromkeys(("graded", "grid", "threshold", "stake", "exceeded", "margin")),
    7: dict.fromkeys(("unit", "candidates", "tasks")),
    8: {"parts": []},
    9: {"simulation": None},
}


@dataclass
class Budget:
    """The probability of error δ of a run, and the shares that its theorems have spent of it.

    >>> budget = Budget(0.01)
    >>> budget.spend("kl", 0.006), budget.spend("sampling")  # the rest
    (0.006, 0.004)
    """

    total: float
    spent: dict[str, float] = field(default_factory=dict)
    looks: tuple[Look, ...] = ()  # at a campaign, the present one last, which it pays for
    declared_looks: tuple[int, ...] = ()  # their numbers of environments, if declared beforehand

    def __post_init__(self) -> None:
        check_delta(self.total)

    @property
    def left(self) -> float:
        """The share of δ that is not spent."""
        return self.total - sum(self.spent.values())

    def spend(self, name: str, delta: float | None = None, parts: int = 1) -> float:
        """Spend `delta`, or one of equal parts of all that is left, on the theorem of this name."""
        left = self.left
        delta = left / parts if delta is None else delta
        if name in self.spent:
            raise ValueError(f"the budget has been spent on {name!r} already")
        if not 0 < delta <= left * (1 + 1e-12):
            raise ValueError(f"delta = {delta:g} for {name!r} overspends: {left:g} is left")
        self.spent[name] = delta
        return delta


@dataclass(frozen=True)
class Constraint:
    """Limits on a weighted sum of the posterior's probabilities."""

    weights: Mapping[str, float]  # by the policy's number, as text, those that are not 0
    lower: float | None
    upper: float | None
    words: str

    @classmethod
    def of(
        cls,
        weights: Mapping[int, float],
        lower: float | None,
        upper: float | None,
        name_of: Callable[[int], str],
    ) -> Constraint:
        """A constraint by the numbers of the policies, with words that name the policies."""
        by_number = {str(j): float(weight) for j, weight in weights.items()}
        terms = [
            (f"{weight:g} " if weight != 1 else "") + quoted(name_of(j))
            for j, weight in weights.items()
        ]
        limits = [("at least", lower), ("at most", upper)]
        shares = [f"{which} {limit:g}" for which, limit in limits if limit is not None]
        return cls(by_number, lower, upper, f"{' and '.join(shares)} on {', '.join(terms)}")

    @classmethod
    def from_record(cls, record: Any) -> Constraint:
        """A constraint from a record that may hold anything."""
        check_record(record, get_type_hints(cls), "constraints")
        if not all(key.isdecimal() and key.isascii() for key in record["weights"]):
            raise ValueError("bad constraints.weights: they are by the numbers of policies")
        return cls(**record)

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class HeldOutEstimate:
    """The mean cost on environments that were not used for anything else."""

    cost: float
    environments: int
    stream: str
    seed: int

    @classmethod
    def from_record(cls, record: Any) -> HeldOutEstimate:
        """An estimate from a record that may hold anything."""
        check_record(record, get_type_hints(cls), "test_estimate")
        estimate = cls(**record)
        known = 0 < estimate.environments < 2**62 and 0 <= estimate.seed < 2**64
        if not known or not 0 <= estimate.cost <= 1 or not estimate.stream.isprintable():
            raise ValueError("bad test_estimate: a cost in [0, 1] on environments of a stream")
        return estimate


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A theorem applied to recorded costs. The same inputs give the same record, byte for byte."""

    bound: float  # on the expected cost in a new environment, from any D' in the ball if there is
    # the theorem: kl, kl-maurer, pinsker, betting, occam, anytime, single-draw or tilted
    method: str
    of: str = "mean"  # the statistic of the cost that it bounds: a `Statistic`
    delta: float  # the probability, over everything drawn at random, that the bound is wrong
    environments: int  # N, those that the bound counts
    set_aside: int  # environments that were used before and that the bound does not count
    policies: int | None = None  # L; None for a Gaussian posterior
    parameters: int | None = None  # of a policy, for a Gaussian posterior
    empirical_cost: float  # on the N environments; an estimate if policies were sampled
    training_cost_bound: float | None = None  # on its expectation, if policies were sampled
    draws: int | None = None  # sampled policies for each environment
    shared_draws: bool | None = None  # whether they were the same in every environment
    kl: float  # KL(posterior‖prior); for a single draw, the logarithm of their density ratio
    policy: int | None = None  # the certified one, or None for the distribution over all
    policy_name: str | None = None
    binary: bool  # whether every cost was 0 or 1
    graded: bool | None = None  # whether others may occur, as declared; None if it was not
    noise: str | None  # other randomness in the rollouts, in words; it does not add to the KL
    prior: str  # where the prior came from, in words
    objective: str  # the quantity that the posterior was chosen to minimise
    constraints: Sequence[Constraint | str]  # of the posterior; words alone before format 4
    budget: Mapping[str, float]  # the share of delta that each theorem has spent
    ball: Ball | None = None  # distributions that it holds for, if more than the training's
    bound_without_shift: float | None = None  # on the training distribution, if there is a ball
    exceeded: float | None = None  # share of environments above a quantile, anywhere in the ball
    tilt: float | None = None  # λ, for the method tilted
    # candidates (j/grid)² of the bound, or of the one on the training cost, where found by bets
    grid: int | None = None
    threshold: float | None = None  # c, of a bound on CVaR by c + E(C - c)₊/α
    stake: float | None = None  # s, for the method betting
    margin: float | None = None  # ε, of a certified distribution function: F ≥ F̂ - ε
    until: float | None = None  # environments were added until the bound was at most this,
    at_most: int | None = None  # or until there were so many
    hashes: Mapping[str, str]  # SHA-256 of the files that the certificate rests on
    versions: Mapping[str, str]  # of the software that computed the costs and the bound
    incidents: Mapping[str, int] = field(default_factory=dict)  # of the rollouts, by kind
    cost_rule: str | None = None  # how a rollout is scored, in words
    distribution: str | None = None  # of the environments, in words
    unit: str | None = None  # the kind of environment, of trials from an evaluation log
    candidates: int | None = None  # policies that it was chosen among by their trials
    tasks: int | None = None  # of a fixed list, if the bound is on the mean over them
    parts: Sequence[CertifiedPart] = ()  # of the world, declared beforehand: hold at once with it
    test_estimate: HeldOutEstimate | None = None  # on environments used for nothing else
    # of the same policy, beside trials on the robot, which the certificate is then about
    simulation: SimulationUse | None = None
    looks: Sequence[Look] = ()  # at a growing campaign so far, this one last; empty if only this
    declared_looks: Sequence[int] = ()  # numbers of environments, if declared beforehand
    format: int = FORMAT

    @property
    def sentence(self) -> str:
        """The guarantee in one English sentence, with the bound rounded upwards."""
        return sentence_of(self)

    @property
    def reached(self) -> bool:
        """Whether its bound, without a shift, is as small as was asked for."""
        return self.until is None or self.bound_on_training <= self.until

    @property
    def bound_on_training(self) -> float:
        """The bound on the training distribution, without a shift."""
        return self.bound if self.bound_without_shift is None else self.bound_without_shift

    @property
    def statistic(self) -> Statistic:
        """The statistic of the cost that it bounds."""
        return Statistic.parse(self.of)

    @property
    def shown_bound(self) -> str:
        """The bound as it is shown, rounded upwards; a quantile, which is a cost, as recorded."""
        return shown(self.bound) if self.most_above is not None else round_up(self.bound)

    @property
    def most_above(self) -> float | None:
        """The promised share of environments that cost more than a quantile; None for others."""
        if self.statistic.kind != "quantile":
            return None
        return 1 - self.statistic.share if self.exceeded is None else self.exceeded

    @property
    def most_above_percent(self) -> str:
        """The same as a percentage, rounded upwards."""
        if self.exceeded is None:
            return rest_percent(self.statistic.share)
        return percent_up(self.exceeded)

    @property
    def success_or_failure(self) -> bool:
        """Whether it rests on trials that only succeed or fail."""
        return self.binary if self.graded is None else not self.graded

    @property
    def assumes_binary(self) -> bool:
        """Whether it takes trials to succeed or fail since all recorded ones did."""
        undeclared = self.format >= 6 and self.binary and self.graded is None
        return undeclared and self.of == "mean"

    @property
    def look_words(self) -> str:
        """The looks at a growing campaign, in words; empty if there was one look only."""
        return describe(self.looks, self.declared_looks) if self.looks else ""

    @property
    def incident_words(self) -> list[str]:
        """Incidents of the rollouts, each in words."""
        return incidents_in_words(self.incidents)

    @property
    def purpose(self) -> str:
        """The use of the environments that the bound counts, in words."""
        if self.policies == 1 and self.format >= 4:
            return "tested on"
        return "certified on" if self.set_aside else "learnt from"

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the sentence as a file of this certificate's format has it.

        Before format 4 names and noise were not quoted, so that a name could look like another
        guarantee: such a sentence is compared, and never shown.
        """
        later = {name for since, names in LATER.items() if since > self.format for name in names}
        record = {name: value for name, value in asdict(self).items() if name not in later}
        return {**record, "sentence": sentence_of(self, quoted if self.format >= 4 else str)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Certificate:
        """A certificate from the result of `to_dict`, which may come from any file."""
        version = record.get("format") if isinstance(record, dict) else None
        if type(version) is not int or not 1 <= version <= FORMAT:
            raise ValueError(f"certificate.json is not a certificate of format 1 to {FORMAT}")
        fields = {key: value for key, value in record.items() if key != "sentence"}
        try:
            for since, later in LATER.items():
                added = later.keys() & fields.keys()
                if version < since and added:
                    raise ValueError(f"format {version} has no {min(added)}")
                fields |= later if version < since else {}
            return cls(**_checked_fields(fields))
        except ValueError as error:
            raise ValueError(f"certificate.json is not a certificate: {error}") from None


def _checked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a certificate, from a file that may hold anything."""
    inner = dict.fromkeys(("constraints", "looks", "parts"), list[Any])
    inner |= dict.fromkeys(("ball", "test_estimate", "simulation"), Any)
    check_record(fields, get_type_hints(Certificate) | inner)
    constraints = fields["constraints"]
    texts = [value for value in fields.values() if isinstance(value, str)]
    for name in ("budget", "hashes", "versions"):
        texts += [*fields[name], *map(str, fields[name].values())]
    if fields["format"] >= 4:
        constraints = [Constraint.from_record(constraint) for constraint in constraints]
    elif not has_type(constraints, list[str]):
        raise ValueError("bad constraints")
    if not all(text.isprintable() for text in [*texts, *constraints] if isinstance(text, str)):
        raise ValueError("it holds characters that cannot be shown")
    if not are_incidents(fields["incidents"]):
        raise ValueError("bad incidents")
    kinds = {"ball": Ball, "test_estimate": HeldOutEstimate, "simulation": SimulationUse}
    known = {name: kind for name, kind in kinds.items() if fields[name] is not None}
    records = {name: kind.from_record(fields[name]) for name, kind in known.items()}
    looks, declared = looks_from(fields["looks"]), checked_numbers(fields["declared_looks"])
    here = looks and looks[-1].environments
    told = fields["format"] > WITH_LOOKS or bool(looks) == (fields["format"] == WITH_LOOKS)
    if not told or (declared and here not in declared):
        raise ValueError("bad looks: the last is the present one, and among those declared")
    records |= {"looks": looks, "declared_looks": declared}
    records["parts"] = tuple(map(CertifiedPart.from_record, fields["parts"]))
    Statistic.parse(fields["of"])
    return fields | records | {"constraints": tuple(constraints)}


def versions(origin: Mapping[str, object]) -> dict[str, str]:
    """The versions of the software that computed the certificate and, by its origin, the costs."""
    simulators = origin.get("versions", {})
    if not isinstance(simulators, Mapping):
        raise ValueError("the costs' origin does not record versions by name")
    return {str(name): str(version) for name, version in simulators.items()} | {
        "pacbayes-control": pacbayes_control.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
