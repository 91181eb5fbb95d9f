"""The costs of policies in environments: checked, and with a record of where they came from."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.checks import check_declaration, check_names, checked_costs
from pacbayes_control.certify.descriptions import Descriptions, checked_descriptions, to_bytes
from pacbayes_control.certify.files import has_type, sha256
from pacbayes_control.certify.ranges import EnvironmentRange, ranges_from
from pacbayes_control.certify.trials import TrialFacts

if TYPE_CHECKING:
    from pacbayes_control.certify.simulation import Simulation

DrawKind = Literal["fresh", "shared"]
# Incidents that a reader of a certificate should know of, as its sentence tells them, in the
# singular and in the plural.
INCIDENTS = {
    "retries": (
        "1 rollout counts that had failed before it was run again",
        "{} rollouts count that had failed before they were run again",
    ),
    "raised": (
        "1 rollout counts as a failure for an error declared beforehand",
        "{} rollouts count as failures for errors declared beforehand",
    ),
    "timeouts": (
        "1 rollout counts as a failure since it took longer than the time limit",
        "{} rollouts count as failures since they took longer than the time limit",
    ),
    "broken": (
        "1 trial in the log counts as a failure since it broke off",
        "{} trials in the log count as failures since they broke off",
    ),
    "missing": (
        "1 trial in the log without an outcome counts as a failure",
        "{} trials in the log without an outcome count as failures",
    ),
    "untried": (
        "1 trial without an outcome was left out as not tried",
        "{} trials without an outcome were left out as not tried",
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
MOST_ROWS = 100_000  # environments of a stream that a posterior also lists one by one


def are_incidents(record: object) -> bool:
    """Whether a record that may hold anything has counts of incidents, by their kind.

    >>> are_incidents({"retries": 3}), are_incidents({"retries": 0}), are_incidents({"luck": 1})
    (True, False, False)
    """
    return isinstance(record, Mapping) and all(
        kind in INCIDENTS and type(count) is int and 0 < count < 2**53
        for kind, count in record.items()
    )


def incidents_in_words(incidents: Mapping[str, int]) -> list[str]:
    """Each kind of incident, in words.

    >>> incidents_in_words({"resumed": 1})
    ['the rollouts were interrupted once and resumed']
    """
    counts = [(texts, incidents.get(kind, 0)) for kind, texts in INCIDENTS.items()]
    return [texts[count > 1].format(f"{count:,}") for texts, count in counts if count]


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
    parameters: NDArray | None = None  # (policies, parameters), if they are known
    draws: DrawKind | None = None  # if the columns are draws from a posterior, which kind
    sites: tuple[str, ...] = ()  # names of the environments; may be empty
    # numbers or words that were drawn for each environment, by name, as far as they are known
    described: Descriptions = field(default_factory=dict)
    environments: int = field(init=False)  # their number, N
    policies: int = field(init=False)  # their number, L
    binary: bool = field(init=False)  # whether every cost is 0 or 1
    range: EnvironmentRange | None = field(init=False)  # of the environments, if from a stream
    simulation: Simulation | None = field(init=False)  # beside these costs, which are on the robot

    def __init__(
        self,
        values: ArrayLike,
        names: Sequence[str] = (),
        origin: Mapping[str, object] | None = None,
        *,
        parameters: NDArray | None = None,
        draws: DrawKind | None = None,
        sites: Sequence[str] = (),
        described: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        if draws not in (None, *get_args(DrawKind)):
            raise ValueError(f"draws are {' or '.join(get_args(DrawKind))}, not {draws!r}")
        checked, origin = np.ascontiguousarray(checked_costs(values)), dict(origin or {})
        checked.setflags(write=False)
        environments, policies = checked.shape
        if checked.size == 0:
            raise ValueError(
                f"the costs are empty: {environments} environments × {policies} policies"
            )
        if environments == 1:
            raise ValueError("one environment is not a sample: costs need at least two rows")
        check_names(names, policies)
        check_names(sites, environments, "environment")
        if parameters is not None:
            parameters = np.array(parameters)
            if parameters.dtype.kind not in "biuf" or parameters.ndim == 0:
                raise ValueError("the policies' parameters are not rows of numbers")
            if not np.all(np.isfinite(parameters)):
                raise ValueError("the policies' parameters hold a NaN or an infinity")
            if len(parameters) != policies:
                raise ValueError(f"{len(parameters)} rows of parameters for {policies} policies")
            parameters.setflags(write=False)
        check_declaration(origin.get("graded"), checked)
        place = [origin.get(name) for name in EnvironmentRange._fields]
        known = [type(part) for part in place] == [str, int, int, int]
        # The record is frozen: its fields are set past `__setattr__`.
        vars(self).update(values=checked, names=tuple(names), sites=tuple(sites), draws=draws)
        vars(self).update(origin=origin, parameters=parameters, binary=checked.dtype == np.uint8)
        vars(self).update(environments=environments, policies=policies)
        vars(self).update(described=checked_descriptions(described or {}, environments))
        vars(self).update(range=EnvironmentRange._make(place) if known else None, simulation=None)
        if isinstance(values, np.memmap):
            _ = self.digests  # now, so that a later change of the file is noticed

    def __repr__(self) -> str:
        kind = "0/1" if self.binary else "graded"
        columns = f"{self.draws} draws" if self.draws else "policies"
        return f"Costs({self.environments} environments × {self.policies} {columns}, {kind})"

    @property
    def noise(self) -> str | None:
        """Randomness in the rollouts other than the policy, in words; None if there is none."""
        record = self.origin.get("noise")
        if record is None:
            return None
        words = record.get("of") if isinstance(record, Mapping) else None
        if not isinstance(words, str) or not words or not words.isprintable():
            raise ValueError("the costs' origin does not describe the noise in plain words")
        return words

    @property
    def graded(self) -> bool | None:
        """Whether costs between 0 and 1 may occur, as declared; None if nothing was declared."""
        return check_declaration(self.origin.get("graded"), self.values)

    @property
    def success_or_failure(self) -> bool:
        """Whether trials only succeed or fail: declared so, or else as recorded."""
        return self.binary if self.graded is None else not self.graded

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """An order of the environments for bets, which costs cannot favour.

        That of the stream they were drawn from. For a table, that of the hashes of the names, or of
        the numbers, of its rows together with a digest of all rows that does not depend on their
        order. If names and numbers do not depend on the costs, then, whatever the costs are, each
        order of them is as likely as any other. If they do, as in a table that is sorted by cost,
        it is still a permutation that nobody has chosen, another one for each table. Trials of a
        fixed list of tasks are in rounds, of one trial of each task.
        """
        if self.range:
            return np.arange(self.environments)
        rows = sorted(np.ascontiguousarray(row, "<f8").tobytes() for row in self.values)
        table = hashlib.sha256(b"".join(rows)).digest()
        names = self.sites or map(str, range(self.environments))
        digests = [hashlib.sha256(table + name.encode()).digest() for name in names]
        order = np.array(sorted(range(self.environments), key=digests.__getitem__))
        return self.trial_facts.in_rounds(order)

    @cached_property
    def trial_facts(self) -> TrialFacts:
        """Facts about trials in their origin, where they come from an evaluation log."""
        return TrialFacts.of(self.origin, self.environments)

    @cached_property
    def first_equal(self) -> NDArray[np.intp]:
        """For each policy, the number of the first one with equal parameters; (policies,).

        Each is its own where parameters are not known, or where rollouts are noisy, so that equal
        policies have costs of their own.
        """
        if self.parameters is None or self.noise is not None:
            return np.arange(self.policies)
        rows = self.parameters.reshape(self.policies, -1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        first = first[group.reshape(-1)]
        for policy in np.flatnonzero(first != np.arange(self.policies)):
            if not np.array_equal(self.values[:, policy], self.values[:, first[policy]]):
                raise ValueError(
                    f"policies {first[policy]} and {policy} have equal parameters and different "
                    "costs: the rollouts are noisy, so the task must declare its noise"
                )
        return first

    @property
    def incidents(self) -> dict[str, int]:
        """The number of incidents in the rollouts, by their kind."""
        record: Any = self.origin.get("incidents", {})
        if not are_incidents(record):
            raise ValueError(
                f"the costs' origin has incidents that are not counts of {', '.join(INCIDENTS)}"
            )
        if record.get("timeouts", 0) != len(self.timed_out):
            raise ValueError("the costs' origin does not list each rollout that timed out, once")
        return dict(record)

    @property
    def rollout_timeout(self) -> float | None:
        """Seconds after which a rollout was ended and cost 1; None if there was no limit."""
        seconds: Any = self.origin.get("rollout_timeout")
        if seconds is not None and not (has_type(seconds, float) and seconds > 0):
            raise ValueError("the costs' origin has a rollout_timeout that is not in seconds")
        return seconds

    @cached_property
    def timed_out(self) -> frozenset[tuple[int, int]]:
        """The row and the column of each rollout that took longer than `rollout_timeout`."""
        listed: Any = self.origin.get("timed_out", [])
        if not has_type(listed, list[tuple[int, int]]) or not all(
            0 <= row < self.environments and 0 <= column < self.policies for row, column in listed
        ):
            raise ValueError("the costs' origin lists rollouts that timed out and do not exist")
        if listed and self.rollout_timeout is None:
            raise ValueError("the costs' origin lists rollouts that timed out without a limit")
        for row, column in listed:
            if self.values[row, column] != 1:
                raise ValueError(
                    f"the rollout of policy {column} in environment {row} timed out, and its cost "
                    f"is {self.values[row, column]:g}: it must be 1"
                )
        places = frozenset((row, column) for row, column in listed)
        if len(places) != len(listed):
            raise ValueError("the costs' origin lists a rollout that timed out twice")
        return places

    @property
    def cost_rule(self) -> str | None:
        """How a rollout is scored, in words, with the time limit if there was one."""
        rule, seconds = self._words("cost_rule"), self.rollout_timeout
        if seconds is None:
            return rule
        limit = f"1 where it takes longer than {seconds:.12g} s"
        return f"{rule}, {limit}" if rule else limit

    @property
    def distribution(self) -> str | None:
        """How environments are drawn, in words."""
        return self._words("distribution")

    @property
    def device(self) -> str:
        """The device that the rollouts ran on; empty for a CPU."""
        return self._words("device") or ""

    def _words(self, name: str) -> str | None:
        """An entry of the origin that is plain words, or None."""
        text = self.origin.get(name)
        if text is not None and not (isinstance(text, str) and text and text.isprintable()):
            raise ValueError(f"the costs' origin does not say the {name} in plain words")
        return text

    @property
    def policies_seen(self) -> tuple[EnvironmentRange, ...]:
        """Environments that all policies depend on, such as those of a shared feature extractor."""
        known = "data_used" in self.origin
        return ranges_from(self.origin["data_used"], "the costs' origin") if known else ()

    @cached_property
    def rows(self) -> dict[str, int]:
        """Digests of the environments one by one, of their costs and of their names; and numbers.

        The first letter is "n" for a name, "s" for the costs in an environment of a stream, which
        has a range too, and "v" for other costs. The digest of a row of 0 and 1 is the same in a
        table with fractions. The number is that of the environment, or of the last of equal ones.
        """
        last: dict[bytes, int] = {}  # the number of the last row with these bytes
        for number, row in enumerate(self.values):
            whole = self.binary or bool(np.all((row == 0) | (row == 1)))
            content = row.astype(np.uint8) if whole else np.asarray(row, "<f8")
            last[content.tobytes()] = number
        kind = "s" if self.range else "v"
        digests = {kind + sha256(content)[:16]: number for content, number in last.items()}
        return digests | name_digests(self.sites)

    @property
    def listed_rows(self) -> frozenset[str]:
        """The rows that a posterior lists: none for a long range of a stream."""
        listed = not self.range or self.environments <= MOST_ROWS
        simulated = self.simulation.rows if self.simulation else frozenset[str]()
        return frozenset(self.rows if listed else ()) | simulated

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
        """The number of environments in which each policy failed; only for 0/1 costs."""
        if not self.binary:
            raise ValueError("failures can be counted only if every cost is 0 or 1")
        return self.values.sum(axis=0, dtype=np.int64)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the files of the costs, the parameters and the environments, and of names."""
        digests = {}
        for kind, array in (("costs", self.values), ("policies", self.parameters)):
            if array is not None:
                digests[kind] = npy_digest(array)
        for kind, texts in (("names", self.names), ("sites", self.sites)):
            if texts:
                digests[kind] = sha256(json.dumps(texts).encode())
        if self.described:
            digests["environments"] = sha256(to_bytes(self.described))
        return digests | (self.simulation.digests if self.simulation else {})

    def with_origin(self, **entries: object) -> Costs:
        """The same costs with other entries of their origin; None removes one."""
        other, origin = copy(self), {**self.origin, **entries}
        check_declaration(origin.get("graded"), self.values)
        vars(other)["origin"] = {name: entry for name, entry in origin.items() if entry is not None}
        return other

    def with_simulation(self, simulation: Simulation | None) -> Costs:
        """The same costs, as those on the robot beside costs in simulation; or without these."""
        other = copy(self)
        vars(other)["simulation"] = simulation
        vars(other).pop("digests", None)
        if simulation is not None and len(simulation.pairs) != self.environments:
            raise ValueError("there is not one cost in simulation for each on the robot")
        return other

    def name(self, policy: int) -> str:
        """The policy's name, or its number if it has no name."""
        return self.names[policy] if self.names else f"policy {policy}"

    def site(self, environment: int) -> str:
        """The environment's name, or its number if it has no name."""
        return self.sites[environment] if self.sites else f"environment {environment}"


def name_digests(sites: Sequence[str]) -> dict[str, int]:
    """The numbers of environments by the digests of their names, as `Costs.rows` has them."""
    names = enumerate(site.casefold().encode() for site in sites)
    return {"n" + sha256(name)[:16]: number for number, name in names}


def npy_digest(array: NDArray) -> str:
    """SHA-256 of an array as an `.npy` file, without a copy of the whole file."""
    header = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(header, description)
    sha = hashlib.sha256(header.getvalue())
    sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def rescaled_exponential(costs: NDArray, tilt: float = 1.0) -> NDArray[np.float64]:
    """(e^{λC} - 1)/(e^λ - 1), which lies in [0, 1] like C (paper: before eq. 32, with λ = 1).

    >>> rescaled_exponential(np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0, 0.3775, 1.0]
    """
    return np.minimum(np.expm1(tilt * costs) / math.expm1(tilt), 1.0)
