"""The statistic of the cost that a certificate bounds: the mean, a quantile, or the worst cases."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Self, get_args

from pacbayes_control.bounds.distribution import check_share

Kind = Literal["mean", "quantile", "cvar"]
HELP = (  # of the option of this name
    "The statistic of the cost to bound, for one policy: mean, quantile:0.9 (exceeded in a tenth "
    "of new environments at most) or cvar:0.1 (the mean of the worst tenth)."
)
FUNCTION = "distribution function"  # the budget's name for its share of δ


@dataclass(frozen=True)
class Statistic:
    """What is bounded: mean, quantile:SHARE or cvar:SHARE.

    >>> str(Statistic.parse("quantile:0.9")), Statistic.parse("cvar:0.1").share
    ('quantile:0.9', 0.1)
    """

    kind: Kind = "mean"
    # of the environments: those below the quantile, or the worst ones; 0 for the mean
    share: float = 0.0
    # of δ, for the whole distribution function of the policy's cost beside it; None: a tenth, and
    # nothing for the mean
    function_delta: float | None = None

    @classmethod
    def parse(cls, text: str, function_delta: float | None = None) -> Self:
        """A statistic from its name and share, such as quantile:0.9; an error if it is none."""
        kind, colon, number = text.partition(":")
        try:
            share = float(number) if colon else 0.0
            known = kind in get_args(Kind) and bool(colon) == (kind != "mean") and "_" not in number
        except ValueError:
            known, share = False, 0.0
        if not known:
            raise ValueError(
                f"{text!r} is no statistic of the cost: choose mean, quantile:0.9 or cvar:0.1, "
                "with a share of the environments"
            )
        if kind != "mean":
            check_share(share)
        return cls(kind, share, function_delta)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        return self.kind if self.kind == "mean" else f"{self.kind}:{self.share!r}"


MEAN = Statistic()


def percent(share: float) -> str:
    """A share as a percentage, with all of its digits.

    >>> percent(0.9), percent(0.025)
    ('90 %', '2.5 %')
    """
    return _percent(Decimal(repr(share)))


def rest_percent(share: float) -> str:
    """The rest of a share as a percentage: 1 - 0.7 is 30 %, though not among floats.

    >>> rest_percent(0.7), rest_percent(0.999)
    ('30 %', '0.1 %')
    """
    return _percent(1 - Decimal(repr(share)))


def _percent(share: Decimal) -> str:
    return f"{(share * 100).normalize():f} %"
