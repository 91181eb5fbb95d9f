"""Costs: the checked record of what each policy cost in each environment."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.distributions import Categorical, Seen, ranges_from
from pacbayes_control.certify.text import quoted

DRAWS = ("fresh", "shared")
# What may happen while costs come about that a reader of a promise should know of: rollouts that
# failed and were run again, rollouts that count as failures for an error that was declared
# beforehand, changes of the task's code after rollouts were finished, and interruptions.
INCIDENTS = ("retries", "raised", "code changes", "resumed")
AT_A_TIME = 1 << 20  # costs that are checked at a time
MOST_ROWS = 100_000  # environments of a stream that a posterior also tells one by one


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs in [0, 1], one row an environment and one column a policy.

    >>> costs = Costs([[0, 1], [0, 1], [1, 1]])
    >>> costs.binary, costs.means.round(3).tolist()
    (True, [0.333, 1.0])
    """

    values: NDArray[np.float64 | np.uint8]  # (environments, policies); uint8 where all are 0 or 1
    names: tuple[str, ...] = ()  # of the policies; may be empty
    origin: Mapping[str, object] = field(default_factory=dict)  # where the environments came from
    parameters: NDArray | None = None  # (policies, parameters), where they are known
    draws: str | None = None  # "fresh" or "shared" where columns are draws from a posterior
    sites: tuple[str, ...] = ()  # names of the environments; may be empty

    def __init__(
        self,
        values: ArrayLike,
        names: Sequence[str] = (),
        origin: Mapping[str, object] | None = None,
        parameters: NDArray | None = None,
        draws: str | None = None,
        sites: Sequence[str] = (),
    ) -> None:
        if draws not in (None, *DRAWS):
            raise ValueError(f"draws are {' or '.join(DRAWS)}, not {draws!r}")
        checked = np.ascontiguousarray(_checked(values))
        checked.setflags(write=False)
        check_names(names, checked.shape[1])
        check_names(sites, checked.shape[0], "environment")
        if parameters is not None:
            parameters = np.array(parameters)
            if parameters.dtype.kind not in "biuf" or parameters.ndim == 0:
                raise ValueError("the policies' parameters are not rows of numbers")
            if not np.all(np.isfinite(parameters)):
                raise ValueError("the policies' parameters hold a NaN or an infinity")
            parameters.setflags(write=False)
            if len(parameters) != checked.shape[1]:
                raise ValueError(
                    f"{len(parameters)} rows of parameters for {checked.shape[1]} policies"
                )
        object.__setattr__(self, "values", checked)
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "origin", dict(origin or {}))
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "draws", draws)
        object.__setattr__(self, "sites", tuple(sites))
        if isinstance(values, np.memmap):
            _ = self.digests  # now: whoever alters the file later alters no costs unseen

    def __repr__(self) -> str:
        kind = "0/1" if self.binary else "graded"
        what = f"{self.draws} draws" if self.draws else "policies"
        return f"Costs({self.environments} environments × {self.policies} {what}, {kind})"

    @property
    def noise(self) -> str | None:
        """What was random in the rollouts beside the policy, in words; None where nothing was."""
        record = self.origin.get("noise")
        if record is None:
            return None
        words = record.get("of") if isinstance(record, Mapping) else None
        if not isinstance(words, str) or not words or not words.isprintable():
            raise ValueError("the costs' origin does not say in plain words what was random")
        return words

    @property
    def incidents(self) -> dict[str, int]:
        """How often something went otherwise than planned in the rollouts, by its kind."""
        record = self.origin.get("incidents", {})
        if not is_incidents(record):
            raise ValueError("the costs' origin does not say plainly how the rollouts went")
        return dict(record)  # type: ignore[call-overload]

    @property
    def range(self) -> Seen | None:
        """Which environments these are, where they were drawn from a stream."""
        fields = [self.origin.get(name) for name in ("stream", "seed", "start", "stop")]
        if [type(value) for value in fields] != [str, int, int, int]:
            return None
        return Seen(*fields)  # type: ignore[arg-type]

    @property
    def policies_seen(self) -> tuple[Seen, ...]:
        """Environments that the policies depend on whatever their parameters: an extractor's."""
        return ranges_from(self.origin.get("data_used", []), "the costs' origin")

    @cached_property
    def rows(self) -> frozenset[str]:
        """Digests of the environments one by one: of their costs, and of their names.

        Those of a stream, which are told by their range too, are of a kind of their own.
        """
        kind = b"s" if self.range else b"v"
        digests = {_row_digest(kind, row) for row in _distinct_rows(self.values)}
        names = {_row_digest(b"n", site.casefold().encode()) for site in self.sites}
        return frozenset(digests | names)

    @property
    def rows_told(self) -> frozenset[str]:
        """The same as far as a posterior lists them: not for a long range of a stream."""
        return self.rows if not self.range or self.environments <= MOST_ROWS else frozenset()

    @property
    def environments(self) -> int:
        """The number of environments, N."""
        return self.values.shape[0]

    @property
    def policies(self) -> int:
        """The number of policies, L."""
        return self.values.shape[1]

    @property
    def binary(self) -> bool:
        """Whether every cost is 0 or 1."""
        return self.values.dtype == np.uint8

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """The mean cost of each policy, C̄ in the paper; shape (policies,)."""
        means = self.values.sum(axis=0, dtype=float) / self.environments
        means.setflags(write=False)
        return means

    @cached_property
    def exponential_means(self) -> NDArray[np.float64]:
        """The mean of (e^C - 1)/(e - 1) of each policy; the same as `means` for 0/1 costs."""
        return self.tilted_means(1.0)

    def tilted_means(self, tilt: float) -> NDArray[np.float64]:
        """The mean of (e^{λC} - 1)/(e^λ - 1) of each policy, for λ > 0; shape (policies,)."""
        if self.binary:
            return self.means
        total = np.zeros(self.policies)
        for start in range(0, self.environments, 4096):
            total += rescaled_exponential(self.values[start : start + 4096], tilt).sum(axis=0)
        return total / self.environments

    @property
    def failures(self) -> NDArray[np.int64]:
        """How many environments each policy failed in; only for 0/1 costs."""
        if not self.binary:
            raise ValueError("failures can only be counted where every cost is 0 or 1")
        return self.values.sum(axis=0, dtype=np.int64)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the `.npy` files of the costs and of the parameters, and of the names."""
        digests = {"costs": _hash_array(self.values)}
        if self.parameters is not None:
            digests["policies"] = _hash_array(self.parameters)
        for kind, texts in (("names", self.names), ("sites", self.sites)):
            if texts:
                digests[kind] = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
        return digests

    def name(self, policy: int) -> str:
        """The policy's name, or its number where it has none."""
        return self.names[policy] if self.names else f"policy {policy}"

    def site(self, environment: int) -> str:
        """The environment's name, or its number where it has none."""
        return self.sites[environment] if self.sites else f"environment {environment}"


def is_incidents(record: object) -> bool:
    """Whether a record counts incidents of known kinds, each at least once."""
    return isinstance(record, Mapping) and all(
        kind in INCIDENTS and type(count) is int and 0 < count < 2**53
        for kind, count in record.items()
    )


def _distinct_rows(values: NDArray[np.float64 | np.uint8]) -> Iterator[bytes]:
    """The bytes of each distinct row, the same for a row of 0 and 1 in either type."""
    seen: set[bytes] = set()
    for row in values:
        whole = row.dtype == np.uint8 or bool(np.all((row == 0) | (row == 1)))
        content = (row.astype(np.uint8) if whole else np.asarray(row, "<f8")).tobytes()
        if content not in seen:
            seen.add(content)
            yield content


def _row_digest(kind: bytes, content: bytes) -> str:
    return kind.decode() + hashlib.sha256(content).hexdigest()[:16]


def _hash_array(array: NDArray) -> str:
    """SHA-256 of the `.npy` file of an array, without a copy of it."""
    header = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(header, description)
    sha = hashlib.sha256(header.getvalue())
    sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def check_names(names: Sequence[str], count: int, of: str = "policy") -> None:
    """An error unless there are no names, or a different one for each of so many."""
    many = {"policy": "policies"}.get(of, f"{of}s")
    if names and len(names) != count:
        raise ValueError(f"{len(names)} names for {count} {many}")
    seen = set()
    for number, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"{of} {number} has an empty name")
        if not name.isprintable():
            raise ValueError(f"the name of {of} {number} has characters that cannot be shown")
        if name in seen:
            raise ValueError(f"two {many} are named {name!r}: names must be unique")
        seen.add(name)


def _checked(values: ArrayLike) -> NDArray[np.float64 | np.uint8]:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError("the costs are masked: every rollout needs a cost")
    try:
        array = values if isinstance(values, np.memmap) else np.asarray(values)
    except ValueError:
        raise ValueError(
            "the costs are ragged: every environment needs one cost a policy"
        ) from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the costs are not numbers (dtype {array.dtype})")
    if array.ndim != 2:
        raise ValueError(f"costs need two dimensions, environments × policies, not {array.ndim}")
    if array.size == 0:
        raise ValueError(
            f"the costs are empty: {array.shape[0]} environments × {array.shape[1]} policies"
        )
    if array.shape[0] == 1:
        raise ValueError("one environment is not a sample: costs need at least two rows")
    return checked_costs(array)


def checked_costs(
    array: NDArray, first: int = 0, first_policy: int = 0
) -> NDArray[np.float64 | np.uint8]:
    """The same with every cost known to lie in [0, 1]; bytes where all are 0 or 1.

    An error names the first environment and policy that is wrong, counting from `first` and
    `first_policy`. It is a copy, unless it is mapped from a file that cannot be written to.
    """
    if array.dtype not in (np.uint8, np.bool_):
        array = array.astype(np.float64, copy=False)
    binary, rows = True, max(1, AT_A_TIME // max(1, array.shape[1]))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        inside = (part >= 0) & (part <= 1)
        if not inside.all():
            i, j = np.argwhere(~inside)[0]
            where = f"at environment {first + start + i}, policy {first_policy + j}"
            if np.isnan(part[i, j]):
                raise ValueError(f"the cost {where} is NaN: every rollout needs a cost")
            raise ValueError(
                f"cost {part[i, j]:g} {where} is outside [0, 1]: rescale the costs by limits known "
                "beforehand"
            )
        binary = binary and bool(np.all((part == 0) | (part == 1)))
    dtype = np.uint8 if binary else np.float64
    if isinstance(array, np.memmap) and not array.flags.writeable:
        return array.astype(dtype, copy=False)
    return array.astype(np.uint8) if binary else array + 0.0  # a cost of -0 is one of 0


def rescaled_exponential(costs: NDArray, tilt: float = 1.0) -> NDArray[np.float64]:
    """(e^{λC} - 1)/(e^λ - 1), which lies in [0, 1] like C (paper: before eq. 32, with λ = 1).

    >>> rescaled_exponential(np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0, 0.3775, 1.0]
    """
    return np.minimum(np.expm1(tilt * costs) / math.expm1(tilt), 1.0)


def prior_for(costs: Costs, prior: Categorical | ArrayLike | None = None) -> Categorical:
    """A prior with one probability for each policy of `costs`.

    Where none is given: uniform over the policies that differ, or over all of them where their
    parameters are not known.
    """
    if costs.draws:
        raise ValueError(
            "these are costs of draws from a posterior, not of policies to choose from"
        )
    if prior is None and costs.parameters is not None:
        return Categorical.uniform_over_distinct(costs.parameters)
    if prior is None:
        return Categorical.uniform(costs.policies)
    distribution = prior_over(costs.policies, prior)
    overlap = seen_by(distribution, costs)
    if overlap:
        raise ValueError(f"{overlap}: the bound may count only other environments")
    return distribution


UNIFORM, UNIFORM_OVER_ALL = "uniform over the policies that differ", "uniform over all policies"


def prior_words(prior: Categorical, costs: Costs) -> str:
    """A prior in words, as far as its probabilities bear them out."""
    if costs.parameters is not None:
        distinct = Categorical.uniform_over_distinct(costs.parameters)
        if np.array_equal(prior.probabilities, distinct.probabilities):
            return UNIFORM
    uniform = Categorical.uniform(costs.policies)
    if np.array_equal(prior.probabilities, uniform.probabilities):
        return UNIFORM_OVER_ALL
    return "given in advance"


def seen_by(prior: Categorical, costs: Costs) -> str:
    """Words for what a prior has seen of the environments that a bound is to count, or nothing.

    Environments of streams are told by their ranges. Rows of a table are told by the names of the
    environments where both have some, and by their costs otherwise: rows that went alike cannot be
    told apart, and count as the same. Under other names, too, a table is known by its fractions:
    most rows that have some do not meet others like them by chance.
    """
    if prior.seen is None:
        return "the prior does not say which environments it was learnt from"
    mine = costs.range
    for other in prior.seen:
        if mine and mine.overlaps(other):
            return (
                f"the prior was learnt from some of these environments (stream {other.stream!r}, "
                f"{other.start} to {other.stop})"
            )
    named = bool(costs.sites) and any(row.startswith("n") for row in prior.rows)
    kinds = "n" if named else "v" if mine else "vs"  # those of streams are told by their ranges
    rows = {row[1:] for row in costs.rows if row.startswith("n") == named}
    shared = {row for row in prior.rows if row[0] in kinds and row[1:] in rows}
    if not shared and named and _mostly_known(costs, prior):
        return "the prior was learnt from environments of other names with the same costs"
    if not shared:
        return ""
    if named:
        site = next(s for s in costs.sites if _row_digest(b"n", s.casefold().encode()) in shared)
        return f"the prior was learnt from environments of the same names, such as {quoted(site)}"
    return (
        "the prior was learnt from environments with the same costs as some of these "
        f"({len(shared)} different rows); if they are others, name the environments in both tables "
        "to tell"
    )


def _mostly_known(costs: Costs, prior: Categorical) -> bool:
    """Whether a prior has seen most rows with fractions, where these are fine enough to tell."""
    fractions = np.any((costs.values != 0) & (costs.values != 1), axis=1)
    if len(np.unique(costs.values[fractions])) < 20:  # coarse grades repeat by chance
        return False
    digests = {_row_digest(b"v", row) for row in _distinct_rows(costs.values[fractions])}
    return len(digests) >= 5 and 2 * len(digests & prior.rows) > len(digests)


def learnt_from(posterior: Categorical, prior: Categorical, costs: Costs) -> Categorical:
    """A posterior that tells what it depends on: its prior's environments, and these."""
    ranges = [costs.range] if costs.range else []
    known = None if prior.seen is None else (*prior.seen, *ranges, *costs.policies_seen)
    return posterior.with_data_used(known, prior.rows.union(costs.rows_told))


def prior_over(policies: int, prior: Categorical | ArrayLike) -> Categorical:
    """A prior with one probability for each of so many policies."""
    distribution = prior if isinstance(prior, Categorical) else Categorical(prior, name="prior")
    if len(distribution) != policies:
        raise ValueError(f"the prior has {len(distribution)} entries for {policies} policies")
    return distribution


def read_npy(path: Path) -> NDArray:
    """A `.npy` file, and nothing else: a ValueError for whatever a stranger's file may be."""
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except MemoryError:
        raise
    except Exception:  # the header is parsed as Python, and fails in many ways
        raise ValueError(f"{path} is corrupt: it is not a NumPy array") from None
