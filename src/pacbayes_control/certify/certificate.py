"""The certificate, and the δ budget that it spends."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from types import NoneType
from typing import Any

import numpy as np
import scipy

import pacbayes_control
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import is_incidents
from pacbayes_control.certify.text import quoted

FORMAT = 4
# Fields that came with a format, and what a certificate of an earlier one is taken to say.
LATER: dict[int, dict[str, Any]] = {
    2: {
        "set_aside": 0,
        "parameters": None,
        "training_cost_bound": None,
        "draws": None,
        "shared_draws": None,
        "noise": None,
        "prior": "not recorded",
    },
    3: {"ball": None, "bound_without_shift": None, "tilt": None},
    4: {"incidents": {}, "cost_rule": None, "distribution": None, "test_estimate": None},
}
# Incidents as the sentence tells them, in the singular and in the plural.
TOLD = {
    "retries": (
        "1 rollout counts that had failed before it was run again",
        "{} rollouts count that had failed before they were run again",
    ),
    "raised": (
        "1 rollout counts as a failure for an error declared beforehand",
        "{} rollouts count as failures for errors declared beforehand",
    ),
    "code changes": (
        "the task's code was changed once after rollouts were finished, which were kept",
        "the task's code was changed {} times after rollouts were finished, which were kept",
    ),
    "resumed": (
        "the rollouts were interrupted once and resumed",
        "the rollouts were interrupted {} times and resumed",
    ),
}


@dataclass
class Budget:
    """The probability of error that a run may spend, handed out by name.

    >>> budget = Budget(0.01)
    >>> budget.spend("kl", 0.006), budget.left
    (0.006, 0.004)
    """

    total: float
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.total < 1:
            raise ValueError(f"delta = {self.total} must lie strictly between 0 and 1")

    @property
    def left(self) -> float:
        """What has not been spent."""
        return self.total - sum(self.spent.values())

    def spend(self, name: str, delta: float | None = None) -> float:
        """Take `delta`, or all that is left, for the theorem of this name."""
        delta = self.left if delta is None else delta
        if name in self.spent:
            raise ValueError(f"the budget has been spent on {name!r} already")
        if not 0 < delta <= self.left * (1 + 1e-12):
            raise ValueError(f"delta = {delta:g} for {name!r} overspends: {self.left:g} is left")
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
        """Limits, with words for them that name the policies."""
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
        """A constraint from a stranger's record."""
        constraint = cls(**record)
        if not isinstance(constraint.weights, dict) or not isinstance(constraint.words, str):
            raise ValueError("bad constraint")
        for weight in constraint.weights.values():
            _check_value("constraint", weight, (int, float))
        for limit in (constraint.lower, constraint.upper):
            _check_value("constraint", limit, (int, float, NoneType))
        if not all(key.isdecimal() and key.isascii() for key in constraint.weights):
            raise ValueError("bad constraint")
        return constraint

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
        """An estimate from a stranger's record."""
        estimate = cls(**record)
        _check_value("test estimate", estimate.cost, (int, float))
        for number in (estimate.environments, estimate.seed):
            _check_value("test estimate", number, (int,))
        _check_value("test estimate", estimate.stream, (str,))
        known = 0 < estimate.environments < 2**62 and 0 <= estimate.seed < 2**64
        if not known or not 0 <= estimate.cost <= 1 or not estimate.stream.isprintable():
            raise ValueError("bad test estimate")
        return estimate


@dataclass(frozen=True)
class Certificate:
    """A theorem applied to recorded costs. The same inputs give the same record, byte for byte."""

    bound: float  # on the expected cost in a new environment; from any D' in the ball, if there is
    method: str  # the theorem: kl, kl-maurer, pinsker, occam, single-draw or tilted
    delta: float  # the probability, over all that was drawn at random, that the bound is wrong
    environments: int  # N, those that the bound counts
    set_aside: int  # environments that were used before and that the bound does not count
    policies: int | None  # L; None for a Gaussian posterior
    parameters: int | None  # of a policy, for a Gaussian posterior
    empirical_cost: float  # on the N environments; an estimate where policies were sampled
    training_cost_bound: float | None  # on its expectation, where policies were sampled
    draws: int | None  # sampled policies for each environment
    shared_draws: bool | None  # whether they were the same ones in every environment
    kl: float  # KL(posterior‖prior); the logarithm of their ratio at the policy for a single one
    policy: int | None  # the one that is certified, or None for the distribution over all
    policy_name: str | None
    binary: bool  # whether every cost was 0 or 1
    noise: str | None  # what was random in the rollouts beside the policy; its KL is none
    prior: str  # where the prior came from, in words
    objective: str  # what the posterior was chosen to minimise
    constraints: Sequence[Constraint | str]  # under which; words alone before format 4
    budget: Mapping[str, float]  # how delta was spent
    ball: Ball | None  # the distributions that it holds for, where that is more than the training's
    bound_without_shift: float | None  # on the training's own distribution, where there is a ball
    tilt: float | None  # λ, for the method tilted
    hashes: Mapping[str, str]  # SHA-256 of the files that the certificate rests on
    versions: Mapping[str, str]  # of what computed the costs and the bound
    incidents: Mapping[str, int] = field(default_factory=dict)  # of the rollouts, by kind
    cost_rule: str | None = None  # what a rollout costs, in words
    distribution: str | None = None  # of the environments, in words
    test_estimate: HeldOutEstimate | None = None  # on environments that were never seen
    format: int = FORMAT

    @property
    def sentence(self) -> str:
        """The promise in one English sentence, its number rounded upwards."""
        return self._sentence(quoted)

    @property
    def recorded_sentence(self) -> str:
        """The sentence as the file of its format has it.

        Before format 4 names and noise were not quoted, so that a name could forge a promise: such
        words are compared, and not shown.
        """
        return self._sentence(quoted if self.format >= 4 else str)

    def _sentence(self, quote: Callable[[str], str]) -> str:
        confidence = f"With confidence {confidence_percent(self.delta)}"
        if self.method == "single-draw":
            who = f"the one policy drawn from the posterior over {self.parameters} parameters"
        elif self.policy is None and self.policies is None:
            who = f"a policy drawn afresh from the posterior over {self.parameters} parameters"
        elif self.policy is None:
            who = f"a policy drawn afresh from the posterior over {self.policies} policies"
        else:
            name = f"“{self.policy_name}”" if quote is str else quoted(self.policy_name or "")
            name = self.policy if self.policy_name is None else name
            who = f"policy {name}"
        if self.binary:
            what = f"fails in at most {percent_up(self.bound)} of new environments"
        else:
            what = f"has an expected cost of at most {round_up(self.bound)} in new environments"
        source = self._source()
        noise = ""
        if self.noise:
            noise = f", averaged over noise drawn independently of the policy ({quote(self.noise)})"
        told = "".join(f"; {words}" for words in self.incident_words)
        return f"{confidence}, {who} {what} {source}{noise}{told}."

    @property
    def incident_words(self) -> list[str]:
        """What happened on the way that a reader should know, each in words."""
        counts = [(kind, self.incidents[kind]) for kind in TOLD if kind in self.incidents]
        return [TOLD[kind][count > 1].format(f"{count:,}") for kind, count in counts]

    @property
    def purpose(self) -> str:
        """What the environments that the bound counts were for."""
        if self.policies == 1 and self.format >= 4:
            return "tested on"
        return "certified on" if self.set_aside else "learnt from"

    def _source(self) -> str:
        """Where the new environments come from."""
        purpose = self.purpose
        training = f"the {self.environments} it was {purpose}"
        if self.ball is None:
            return f"drawn like {training}"
        if self.ball.samples is None:
            return f"from any distribution D′ with {self.ball}, where D is that of {training}"
        shifted = self.ball.samples[0]
        return (
            f"drawn like the shifted sample of {sum(shifted)}, if it differs from {training} in "
            f"nothing but how often each of {len(shifted)} cells occurs"
        )

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = asdict(self) | {"ball": self.ball.to_record() if self.ball else None}
        later = {name for since, names in LATER.items() if since > self.format for name in names}
        record = {name: value for name, value in record.items() if name not in later}
        return {**record, "sentence": self.recorded_sentence}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Certificate:
        """Read what `to_dict` wrote."""
        version = record.get("format") if isinstance(record, dict) else None
        if type(version) is not int or not 1 <= version <= FORMAT:
            raise ValueError(f"certificate.json is not a certificate of format 1 to {FORMAT}")
        fields = {key: value for key, value in record.items() if key != "sentence"}
        for since, later in LATER.items():
            if version < since and later.keys() & fields.keys():
                raise ValueError(
                    f"certificate.json is not a certificate: format {version} has no "
                    f"{min(later.keys() & fields.keys())}"
                )
            fields |= later if version < since else {}
        try:
            certificate = cls(**fields | _read_parts(fields))
        except (TypeError, KeyError):
            raise ValueError("certificate.json is not a certificate: it has other fields") from None
        except ValueError as error:
            raise ValueError(f"certificate.json is not a certificate: {error}") from None
        _check_types(certificate)
        return certificate


def _read_parts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The records within the record; every error is for `from_dict` to word."""
    ball, estimate = fields["ball"], fields["test_estimate"]
    constraints = fields["constraints"]
    if fields["format"] >= 4:
        constraints = [Constraint.from_record(one) for one in constraints]
    return {
        "ball": None if ball is None else Ball.from_record(ball),
        "constraints": tuple(constraints),
        "test_estimate": None if estimate is None else HeldOutEstimate.from_record(estimate),
    }


def _check_types(c: Certificate) -> None:
    """A stranger's file may hold anything."""
    kinds: dict[type | tuple[type, ...], tuple[str, ...]] = {
        str: ("method", "objective", "prior"),
        int: ("environments", "set_aside"),
        (int, NoneType): ("policies", "parameters", "draws", "policy"),
        (int, float): ("bound", "delta", "empirical_cost", "kl"),
        (int, float, NoneType): ("training_cost_bound", "bound_without_shift", "tilt"),
        bool: ("binary",),
        (bool, NoneType): ("shared_draws",),
        (str, NoneType): ("policy_name", "noise", "cost_rule", "distribution"),
        dict: ("budget", "hashes", "versions", "incidents"),
    }
    for kind, names in kinds.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        for name in names:
            _check_value(name, getattr(c, name), allowed)
    for name, share in c.budget.items():
        _check_value(f"budget of {name}", share, (int, float))
    for name, value in [*c.hashes.items(), *c.versions.items()]:
        _check_value(name, value, (str,))
    words = [text for text in c.constraints if not isinstance(text, Constraint)]
    for text in words:
        _check_value("constraint", text, (str,))
    words += [c.method, c.objective, c.prior, c.policy_name, c.noise, c.cost_rule, c.distribution]
    for table in (c.budget, c.hashes, c.versions):
        words += [*table.keys(), *table.values()]
    if not all(text.isprintable() for text in words if isinstance(text, str)):
        raise ValueError("certificate.json holds characters that cannot be shown")
    if not is_incidents(c.incidents):
        raise ValueError("certificate.json is not a certificate: bad incidents")


def _check_value(name: str, value: object, kinds: tuple[type, ...]) -> None:
    finite = not isinstance(value, int | float) or abs(value) < 1e300
    if type(value) not in kinds or not finite:
        raise ValueError(f"certificate.json is not a certificate: bad {name}")


def confidence_percent(delta: float) -> str:
    """1 - δ as a percentage, never rounded up.

    >>> confidence_percent(0.01), confidence_percent(1e-12)
    ('99 %', '1 - 1e-12')
    """
    if delta < 1e-8:
        return f"1 - {delta:g}"
    exact = 100 * (1 - Decimal(repr(float(delta))))
    return f"{exact.quantize(Decimal('1e-8'), ROUND_FLOOR).normalize():f} %"


def round_up(value: float, digits: int = 4) -> str:
    """A number with so many decimals, rounded upwards: how every bound is shown.

    >>> round_up(0.21394001)
    '0.2140'
    """
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING):f}"


def percent_up(fraction: float) -> str:
    """A fraction as a percentage with two decimals, rounded upwards.

    >>> percent_up(0.120601)
    '12.07 %'
    """
    return f"{Decimal(round_up(fraction)) * 100:.2f} %"


def versions(origin: Mapping[str, object]) -> dict[str, str]:
    """What computed the certificate, and what the costs came from, as their origin tells."""
    simulators = origin.get("versions", {})
    if not isinstance(simulators, Mapping):
        raise ValueError("the costs' origin does not say which versions they came from")
    return {str(name): str(version) for name, version in simulators.items()} | {
        "pacbayes-control": pacbayes_control.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def words_of(origin: Mapping[str, object], name: str) -> str | None:
    """What the costs' origin says of something in plain words, or nothing."""
    words = origin.get(name)
    if words is not None and not (isinstance(words, str) and words and words.isprintable()):
        raise ValueError(f"the costs' origin does not say the {name} in plain words")
    return words
