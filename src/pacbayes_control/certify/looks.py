"""Looks at a growing campaign, each of which is paid for in δ.

A campaign of rollouts may grow, by environments or by policies, and be learnt from each time. To
look until the bound is small enough, and to state the δ of the last look alone, would void the
confidence. Each look's theorem is wrong with a probability of at most its own δ, so that all of
them hold at once except with the sum of these: that is the δ of a certificate. Looks that were
declared beforehand have equal shares of one δ instead.

The sum counts numbers of environments that were not chosen by the costs seen before.

A bound that holds for every number of environments at once, by bets, needs none of this: one δ
covers all looks, at the numbers of `growth`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs, npy_digest
from pacbayes_control.certify.files import check_record, has_type

EARLIER, OTHER = "earlier looks", "other looks"  # the budget's names for their shares
ORIGIN = "looks", "declared_looks"  # entries of the costs' origin
UNSEEN = "policies_unseen"  # the entry that declares how added policies were made
MOST = 100  # looks at one campaign
LISTED = 8  # looks that a sentence lists
FIRST = 100  # environments of the first look, where they are added until a bound is reached
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")


def growth(at_most: int) -> tuple[int, ...]:
    """Numbers of environments at which to look where they are added until a bound is reached.

    Each is 1.1 times the one before, rounded upwards, and the last is `at_most`.

    >>> growth(140)
    (100, 110, 121, 134, 140)
    """
    numbers, n = [], FIRST
    while n < at_most:
        numbers.append(n)
        n = -(-11 * n // 10)
    return (*numbers, at_most)


@dataclass(frozen=True)
class Look:
    """Costs that were learnt from once."""

    environments: int  # N
    policies: str  # SHA-256 of the list of policies, as an .npy file
    count: int  # of policies
    delta: float | None  # that its theorems spent; None if it was not recorded

    @classmethod
    def at(cls, costs: Costs, delta: float | None) -> Look:
        """A look at these costs."""
        return cls(costs.environments, list_digest(costs.parameters), costs.policies, delta)

    @classmethod
    def from_record(cls, record: Any) -> Look:
        """A look from a record that may hold anything."""
        check_record(record, get_type_hints(cls), "looks")
        look = cls(**record)
        counted = 2 <= look.environments < 2**62 and 1 <= look.count < 2**53
        if not counted or not re.fullmatch(r"[0-9a-f]{64}", look.policies):
            raise ValueError("bad looks: each is at environments and at a list of policies")
        if look.delta is not None and not 0 < look.delta < 1:
            raise ValueError("bad looks: their delta must lie strictly between 0 and 1")
        return look

    def same_costs(self, other: Look) -> bool:
        """Whether both are at the same environments and policies."""
        return (self.environments, self.policies) == (other.environments, other.policies)

    def same_as(self, other: Look) -> bool:
        """Whether both are one look: at the same costs, and at the same δ."""
        mine, others = self.spent(0), other.spent(0)
        return self.same_costs(other) and math.isclose(mine, others, rel_tol=1e-9)

    def spent(self, by_default: float) -> float:
        """Its δ, or the given one if that was not recorded."""
        return by_default if self.delta is None else self.delta


def looks_from(record: Any) -> tuple[Look, ...]:
    """Looks from a record that may hold anything."""
    if not has_type(record, list[Any]) or len(record) > MOST:
        raise ValueError(f"bad looks: expected a list of at most {MOST}")
    return tuple(map(Look.from_record, record))


def checked_numbers(record: Any) -> tuple[int, ...]:
    """Numbers of environments of declared looks, from a record that may hold anything."""
    known = has_type(record, list[int]) and len(record) <= MOST and len(record) != 1
    if not known or list(record) != sorted({*record}) or not all(1 < n < 2**62 for n in record):
        raise ValueError(
            "looks are declared as two or more numbers of environments, each larger than the one "
            "before, such as 1000,2000"
        )
    return tuple(record)


def declared_looks(origin: Mapping[str, object]) -> tuple[int, ...]:
    """The numbers of environments of looks that were declared beforehand; empty if none were."""
    return checked_numbers(origin.get("declared_looks", []))


def looks_until(origin: Mapping[str, object], present: Look) -> tuple[Look, ...]:
    """The looks at a campaign up to the present one, which is the last, by its costs' origin.

    A look that is repeated is one look, and those after it do not count for it. One whose δ was not
    recorded is one with that after it if both are at the same costs.
    """
    earlier = looks_from(origin.get("looks", []))
    pairs = pairwise((*earlier, present))
    earlier = [x for x, after in pairs if x.delta is not None or not x.same_costs(after)]
    again = (number for number, look in enumerate(earlier) if look.same_as(present))
    return (*earlier[: next(again, len(earlier))], present)


def list_digest(parameters: NDArray | None, count: int | None = None) -> str:
    """SHA-256 of a list of policies, or of its first ones; empty if they are not known."""
    return "" if parameters is None else npy_digest(np.ascontiguousarray(parameters[:count]))


def describe_fault(
    looks: Sequence[Look], declared: Sequence[int], parameters: NDArray | None, *, unseen: object
) -> str:
    """Why no δ can pay for the last of some looks, in words; empty if one can.

    Args:
        looks: so far, the present one last
        declared: numbers of environments of looks that were declared beforehand, if any were
        parameters: the policies of the present look, (policies, parameters)
        unseen: whether it is declared that added policies were made without knowledge of the costs
    """
    *earlier, present = looks
    if parameters is None:
        return "only a list of policies with their parameters can be looked at more than once"
    lists = {count: list_digest(parameters, count) for count in {x.count for x in earlier}}
    for look in earlier:
        most, n = max(look.environments, present.environments), present.environments
        if most > n:
            return (
                f"the campaign was looked at after {most:,} environments: a later look at {n:,} "
                "would be a choice by their costs"
            )
        if look.count > present.count or look.policies != lists[look.count]:
            return (
                f"the campaign was looked at with {look.count:,} policies, and they are not the "
                "first of these: leaving some out would be a choice by their costs"
            )
    added = present.count - min((look.count for look in earlier), default=present.count)
    if added and unseen is not True:
        return (
            f"{added:,} policies were added after the campaign was looked at: the bound counts "
            "them only if they were made without knowledge of its environments and their costs, "
            "so say it if it is true (Plan(unseen=True), --set unseen=true)"
        )
    return _undeclared(earlier, present, declared) if declared else ""


def _undeclared(earlier: Sequence[Look], present: Look, declared: Sequence[int]) -> str:
    """How looks differ from those that were declared, in words; empty if they do not."""
    numbers = [look.environments for look in (*earlier, present)]
    for n in numbers:
        if n not in declared:
            return (
                f"a look at {n:,} environments was not declared: the looks at this campaign are at "
                f"{in_words(declared)}"
            )
        if numbers.count(n) > 1:
            return f"each declared look is one look, and this is another at {n:,} environments"
    share = present.spent(0)
    for look in earlier:
        if look.spent(share) > share * (1 + 1e-12):
            return (
                f"the look at {look.environments:,} environments spent {look.delta:g} of delta, "
                f"more than the share {share:g} of each declared look: give the delta of before"
            )
    return ""


def describe(looks: Sequence[Look], declared: Sequence[int]) -> str:
    """The looks of a certificate, for its sentence."""
    *earlier, present = looks
    if declared:
        numbers = in_words(declared)
        which = f"{_ordinal(declared.index(present.environments))} of {len(declared)} looks"
        known = f"that were declared beforehand, at {numbers} environments"
        return f"this is the {which} at a growing campaign {known}, all paid for in δ"
    fewer = [f" (with {x.count:,} policies)" * (x.count != present.count) for x in earlier]
    after = in_words([x.environments for x in earlier], fewer)
    which = f"{_ordinal(len(earlier))} look at a growing campaign"
    return f"this is the {which}, after {after} environments, all paid for in δ"


def in_words(numbers: Sequence[int], remarks: Sequence[str] = ()) -> str:
    """Numbers in a sentence.

    >>> in_words([1000, 2000, 4000])
    '1,000, 2,000 and 4,000'
    """
    remarks = remarks or [""] * len(numbers)
    texts = [f"{n:,}{remark}" for n, remark in zip(numbers, remarks, strict=True)]
    if len(texts) > LISTED:
        texts = [*texts[: LISTED - 1], f"{len(texts) - LISTED + 1:,} more"]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _ordinal(index: int) -> str:
    return ORDINALS[index] if index < len(ORDINALS) else f"number {index + 1}"
