"""The certificate, and the δ budget that it spends."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from types import NoneType
from typing import Any

import numpy as np
import scipy

import pacbayes_control
from pacbayes_control.balls import Ball

FORMAT = 3
READABLE = (2, FORMAT)  # those of format 2 know no shift


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
    constraints: Sequence[str]  # under which, in words
    budget: Mapping[str, float]  # how delta was spent
    ball: Ball | None  # the distributions that it holds for, where that is more than the training's
    bound_without_shift: float | None  # on the training's own distribution, where there is a ball
    tilt: float | None  # λ, for the method tilted
    hashes: Mapping[str, str]  # SHA-256 of the files that the certificate rests on
    versions: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The promise in one English sentence, its number rounded upwards."""
        confidence = f"With confidence {confidence_percent(self.delta)}"
        if self.method == "single-draw":
            who = f"the one policy drawn from the posterior over {self.parameters} parameters"
        elif self.policy is None and self.policies is None:
            who = f"a policy drawn afresh from the posterior over {self.parameters} parameters"
        elif self.policy is None:
            who = f"a policy drawn afresh from the posterior over {self.policies} policies"
        else:
            name = self.policy if self.policy_name is None else f"“{self.policy_name}”"
            who = f"policy {name}"
        if self.binary:
            what = f"fails in at most {percent_up(self.bound)} of new environments"
        else:
            what = f"has an expected cost of at most {round_up(self.bound)} in new environments"
        source = self._source()
        noise = ""
        if self.noise:
            noise = f", averaged over noise drawn independently of the policy ({self.noise})"
        return f"{confidence}, {who} {what} {source}{noise}."

    def _source(self) -> str:
        """Where the new environments come from."""
        purpose = "certified on" if self.set_aside else "learnt from"
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
        return {"format": FORMAT, **record, "sentence": self.sentence}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Certificate:
        """Read what `to_dict` wrote."""
        version = record.get("format") if isinstance(record, dict) else None
        if type(version) is not int or version not in READABLE:
            raise ValueError(f"certificate.json is not a certificate of format {FORMAT}")
        fields = {key: value for key, value in record.items() if key not in ("format", "sentence")}
        if version == 2:
            later = {"ball": None, "bound_without_shift": None, "tilt": None}
            if later.keys() & fields.keys():
                raise ValueError("certificate.json is not a certificate: format 2 has no ball")
            fields |= later
        try:
            if fields["ball"] is not None:
                fields["ball"] = Ball.from_record(fields["ball"])
            certificate = cls(**{**fields, "constraints": tuple(fields["constraints"])})
        except (TypeError, KeyError):
            raise ValueError("certificate.json is not a certificate: it has other fields") from None
        except ValueError as error:
            raise ValueError(f"certificate.json is not a certificate: {error}") from None
        _check_types(certificate)
        return certificate


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
        (str, NoneType): ("policy_name", "noise"),
        dict: ("budget", "hashes", "versions"),
    }
    for kind, names in kinds.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        for name in names:
            _check_value(name, getattr(c, name), allowed)
    for name, share in c.budget.items():
        _check_value(f"budget of {name}", share, (int, float))


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


def versions() -> dict[str, str]:
    """What computed the certificate."""
    return {
        "pacbayes-control": pacbayes_control.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
