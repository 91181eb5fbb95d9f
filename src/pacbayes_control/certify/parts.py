"""Parts of the world, such as `wind<8`: declared in a plan, and certified beside the whole.

Let A be a set of environments that was chosen before any cost was seen, and n the number of the N
i.i.d. environments that lie in A. Given which of them do, those n are i.i.d. draws from the
distribution restricted to A. So every theorem for n environments holds for them, with the
probability of error that it has: given any n, and so on average over n. With δ/k for each of k
parts, all of their bounds hold at once, beside the one for the whole world, at its own share.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.descriptions import Descriptions
from pacbayes_control.certify.files import check_record
from pacbayes_control.certify.text import as_number

if TYPE_CHECKING:
    from pacbayes_control.certify.costs import Costs

SHARE = "parts"  # the budget's name for the share of δ of all parts together
MOST = 100  # parts of one plan
LONGEST = 200  # characters of a part
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
CONDITION = re.compile(r"\s*([^<>=!&]+?)\s*(<=|>=|!=|<|>|=)\s*([^<>=!&]+?)\s*")
WRITE = "write a parameter, a comparison and a value, such as wind<8 or wind<8&surface=ice"


@dataclass(frozen=True)
class Part:
    """The environments that meet every one of a few conditions on what was drawn for them.

    >>> part = Part.parse("wind<8 & surface=ice")
    >>> str(part)
    'wind < 8 & surface = ice'
    >>> part.holds({"wind": np.array([3.0, 3.0, 9.0]), "surface": np.array(["ice", "mud", "ice"])})
    array([ True, False, False])
    """

    conditions: tuple[tuple[str, str, str], ...]  # name, comparison and value as text

    @classmethod
    def parse(cls, text: str) -> Part:
        """A part from a user's words."""
        found = [CONDITION.fullmatch(piece) for piece in text.split("&")]
        if not all(found) or len(text) > LONGEST or not text.isprintable():
            raise ValueError(f"{text[:LONGEST]!r} is no part of the world: {WRITE}")
        return cls(tuple((m[1], m[2], m[3]) for m in found if m))

    def __str__(self) -> str:
        return " & ".join(map(" ".join, self.conditions))

    def check(self, described: Descriptions) -> None:
        """Raise ValueError unless its parameters exist, and are compared as their type allows."""
        for name, sign, value in self.conditions:
            if name not in described:
                known = ", ".join(described) or "none that are recorded"
                raise ValueError(
                    f"the part {self}: environments have no parameter {name!r}, but {known}"
                )
            numeric = described[name].dtype.kind in "if"
            if numeric and as_number(value) is None:
                raise ValueError(f"the part {self}: {name} is a number, and {value!r} is not")
            if not numeric and sign not in ("=", "!="):
                raise ValueError(f"the part {self}: {name} is a word, to be compared by = or !=")

    def holds(self, described: Descriptions) -> NDArray[np.bool_]:
        """Whether each environment is in it; (environments,)."""
        self.check(described)
        inside = np.True_
        for name, sign, value in self.conditions:
            column = described[name]
            other: Any = float(value) if column.dtype.kind in "if" else value
            inside = inside & COMPARISONS[sign](column, other)
        return np.asarray(inside)


def parsed_parts(texts: Sequence[str]) -> tuple[Part, ...]:
    """Parts from a user's words, each of them once."""
    parts = tuple(map(Part.parse, texts))
    if len({*parts}) != len(parts):
        raise ValueError(f"a part is declared twice: {', '.join(map(str, parts))}")
    if len(parts) > MOST:
        raise ValueError(f"{len(parts)} parts are declared: {MOST} at most")
    return parts


def costs_in(part: Part, costs: Costs) -> Costs | None:
    """The costs in the environments of a part; None if there are fewer than two."""
    from pacbayes_control.certify.costs import Costs

    inside = part.holds(costs.described)
    if inside.sum() < 2:
        return None
    kept = {name: costs.origin[name] for name in ("graded", "noise") if name in costs.origin}
    sites = [costs.sites[i] if costs.sites else str(i) for i in np.flatnonzero(inside)]
    return Costs(costs.values[inside], costs.names, kept, parameters=costs.parameters, sites=sites)


@dataclass(frozen=True)
class CertifiedPart:
    """A bound on the expected cost in new environments of a part."""

    words: str  # the part
    environments: int  # n, of those that the certificate counts
    empirical_cost: float | None  # on them; None where there are none
    bound: float
    delta: float  # its share of δ

    @classmethod
    def from_record(cls, record: Any) -> CertifiedPart:
        """A certified part from a record that may hold anything."""
        check_record(record, get_type_hints(cls), "parts")
        if str(Part.parse(record["words"])) != record["words"]:
            raise ValueError("bad parts: their words are not as they are written")
        return cls(**record)
