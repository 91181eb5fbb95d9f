"""Parts of the world, such as `wind<8`: declared in a plan, and certified beside the whole.

Let A be a set of environments that was chosen before any cost was seen, and n the number of the N
i.i.d. environments that lie in A. Given which of them do, those n are i.i.d. draws from the
distribution restricted to A. So every theorem for n environments holds for them, with the
probability of error that it has: given any n, and so on average over n. With δ/k for each of k
parts, all of their bounds hold at once, beside the one for the whole world, at its own share.
"""

from __future__ import annotations

import math
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
LONGEST = 200  # characters of a part as it is shown
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
CONDITION = re.compile(r"([^<>=!&]+)(<=|>=|!=|<|>|=)([^<>=!&]+)")
WHOLE = re.compile(r"[-+]?[0-9]+")
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
        part = cls(tuple((m[1].strip(), m[2], m[3].strip()) for m in found if m))
        filled = all(found) and all(all(condition) for condition in part.conditions)
        if not filled or not text.isprintable():
            raise ValueError(f"{text[:LONGEST]!r} is no part of the world: {WRITE}")
        if len(str(part)) > LONGEST:
            raise ValueError(
                f"the part {text[:LONGEST]!r}… is longer than {LONGEST} characters: a reader has "
                "to see all of it"
            )
        return part

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
            number = as_number(value) if value.isascii() else None
            if numeric and (number is None or not math.isfinite(number)):
                raise ValueError(f"the part {self}: compare {name} with a number, not {value!r}")
            if not numeric and sign not in ("=", "!="):
                raise ValueError(f"the part {self}: {name} is a word: compare it by = or !=")

    def holds(self, described: Descriptions) -> NDArray[np.bool_]:
        """Whether each environment is in it; (environments,)."""
        self.check(described)
        inside = np.True_
        for name, sign, value in self.conditions:
            column, other = described[name], value
            if column.dtype.kind in "if":  # whole numbers may be too large for a float
                exact = column.dtype.kind == "i" and WHOLE.fullmatch(value)
                other = int(value) if exact else float(value)
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


def costs_in(part: Part, costs: Costs) -> tuple[int, Costs | None]:
    """The number of environments in a part, and the costs in them; None for fewer than two.

    Whether trials only succeed or fail is told of the whole world: a part in which no cost between
    0 and 1 was recorded may have one in another environment.
    """
    from pacbayes_control.certify.costs import Costs

    inside = np.flatnonzero(part.holds(costs.described))
    if len(inside) < 2:
        return len(inside), None
    kept: dict[str, object] = {"graded": not costs.success_or_failure}
    if costs.noise is not None:
        kept["noise"] = costs.origin["noise"]
    sites = [costs.sites[i] if costs.sites else str(i) for i in inside]  # for the order of bets
    here = Costs(costs.values[inside], costs.names, kept, parameters=costs.parameters, sites=sites)
    return len(inside), here


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
