"""Joining trials on the robot with simulation of the same environments, and of further ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.looks import ORIGIN as LOOKS
from pacbayes_control.certify.ranges import ranges_from
from pacbayes_control.certify.simulation import Simulation
from pacbayes_control.certify.text import quoted

UNLIKELY = 0.001  # probability of a difference at which costs in simulation are refused

Floats = NDArray[np.float64]


def with_simulation(
    costs: Costs | ArrayLike, simulated: Costs | ArrayLike, more: Costs | ArrayLike | None = None
) -> Costs:
    """Costs on the robot, with those of the same policies in simulation beside them.

    Environments of tables are paired by their names, those of a stream by their range, and rows of
    plain arrays by their order. Policies with names are matched by these. A certificate of the
    result is about the robot: it holds however bad the simulation is, if the further environments
    are drawn like those of the trials. An error where costs in simulation show that they are not.

    Args:
        costs: on the robot, (environments, policies)
        simulated: in simulation of the same environments
        more: in simulation of further environments, (further environments, policies); by default
            those of `simulated` that are not on the robot

    >>> rng = np.random.default_rng(1)
    >>> simulated = rng.random(5100) < 0.3
    >>> robot = np.where(rng.random(100) < 0.03, ~simulated[:100], simulated[:100])
    >>> joined = with_simulation(robot[:, None], simulated[:100, None], simulated[100:, None])
    >>> from pacbayes_control.learn import learn_finite
    >>> c, alone = (learn_finite(x).certificate for x in (joined, robot[:, None]))
    >>> round(c.bound, 2), round(alone.bound, 2)
    (0.38, 0.41)
    """
    given = [t for t in (costs, simulated, more) if t is not None]
    plain = not isinstance(costs, Costs) and not isinstance(simulated, Costs)
    real, *tables = (t if isinstance(t, Costs) else Costs(t) for t in given)
    _check_joinable(real, tables)
    tables = [_in_order(real, table) for table in tables]
    known = [t.parameters for t in (real, *tables) if t.parameters is not None]
    if not all(np.array_equal(known[0], parameters) for parameters in known[1:]):
        raise ValueError("the policies in simulation are others: their parameters differ")
    rows = np.arange(real.environments) if plain else _rows_of_pairs(real, tables[0])
    if plain and tables[0].environments != real.environments:
        raise ValueError(
            f"{tables[0].environments} rows in simulation and {real.environments} on the robot are "
            "not pairs: give as many, and the others as further ones"
        )
    rest = np.setdiff1d(np.arange(tables[0].environments), rows)
    if len(tables) == 1 and len(rest) == 0:
        raise ValueError(
            "simulation of the same environments alone does not help: simulate further ones, too"
        )
    further = tables[1] if len(tables) > 1 else _rows(tables[0], rest)
    pairs = np.ascontiguousarray(tables[0].values[rows])
    pairs.setflags(write=False)
    found = Simulation(pairs, further, dict(tables[0].origin))
    fault = describe_fault(real, found)
    if fault:
        raise ValueError(fault)
    ranges = [table.range for table in tables if table.range]
    if len(ranges) == 2 and ranges[0].overlaps(ranges[1]):
        raise ValueError("environments of a stream are in both tables in simulation")
    _check_alike(real, found)
    return real.with_simulation(found)


def _check_joinable(real: Costs, tables: Sequence[Costs]) -> None:
    """An error for costs that cannot be joined, or are not all of the same policies."""
    for table in (real, *tables):
        if table.draws is not None or table.trial_facts.tasks:
            raise ValueError(
                "simulation joins trials of given policies in environments that are drawn at "
                "random, and neither draws from a posterior nor a fixed list of tasks"
            )
        if table.device != tables[0].device and table is not real:
            raise ValueError("the tables in simulation are from two devices, which round otherwise")
        if table.origin.keys() & {*LOOKS}:
            raise ValueError("simulation joins costs of one look, and not of a growing campaign")
    counts = {table.policies for table in (real, *tables)}
    named = [table for table in (real, *tables) if table.names]
    if max(counts) > 1 and len(named) not in (0, 1 + len(tables)):
        raise ValueError("name the policies in all tables, or in none: nothing else tells which")
    first = named[0] if named else real
    for table in named[1:]:
        missing = [name for name in first.names if name not in table.names]
        if missing:
            raise ValueError(
                f"policy {quoted(missing[0])} is not in all tables: it has trials on the robot "
                "and is not simulated, or has another name there; name policies alike"
            )


def _in_order(real: Costs, table: Costs) -> Costs:
    """Costs in simulation with their columns in the order of the policies on the robot."""
    columns = list(range(real.policies))
    if real.names and table.names:
        columns = [table.names.index(name) for name in real.names]
    elif table.policies != real.policies:
        raise ValueError(
            f"{table.policies} policies are simulated, and {real.policies} were on the robot"
        )
    own = None if table.parameters is None else table.parameters[columns]
    values = table.values if columns == [*range(table.policies)] else table.values[:, columns]
    names = real.names or tuple(table.names)
    return Costs(values, names, table.origin, parameters=own, sites=table.sites)


def _rows_of_pairs(real: Costs, table: Costs) -> NDArray[np.intp]:
    """The row in simulation of each environment on the robot."""
    mine, other = real.range, table.range
    if mine and other:
        if mine[:3] != other[:3] or other.stop < mine.stop:
            raise ValueError(
                f"environments {mine.start} to {mine.stop} of stream {mine.stream!r} were on the "
                f"robot, and {other.start} to {other.stop} of {other.stream!r} are simulated: "
                "simulate those on the robot first"
            )
        return np.arange(real.environments)
    if not real.sites or not table.sites:
        raise ValueError(
            "trials are paired with simulation by the names of environments, or their seeds: "
            "head a column site or environment in both tables"
        )
    place = {site: row for row, site in enumerate(table.sites)}
    missing = [site for site in real.sites if site not in place]
    if missing:
        raise ValueError(
            f"environment {quoted(missing[0])} of the robot is not simulated ({len(missing)} of "
            f"{real.environments} are not): every trial needs its pair"
        )
    return np.array([place[site] for site in real.sites])


def _rows(table: Costs, rows: NDArray[np.intp]) -> Costs:
    """Some rows of a table, of a stream the last ones."""
    origin = dict(table.origin)
    if table.range:
        origin["start"] = table.range.stop - len(rows)
    if len(rows) == 1:
        raise ValueError("one further environment is not a sample: simulate more")
    sites = [table.sites[row] for row in rows] if table.sites else ()
    return Costs(table.values[rows], table.names, origin, sites=sites)


def describe_fault(real: Costs, simulation: Simulation) -> str:
    """Why further environments are not others than those of the trials, or not new to policies.

    In words; empty if nothing is wrong.
    """
    more = simulation.more
    if real.range and more.range and real.range.overlaps(more.range):
        return (
            f"environments of stream {real.range.stream!r} are among the further ones, too: "
            "simulate others"
        )
    names = [site.strip().casefold() for site in more.sites]
    known = {*names}
    twice = [site for site in real.sites if site.strip().casefold() in known]
    if twice:
        return f"environment {quoted(twice[0])} is among the further ones, too: simulate others"
    if len(known) < len(names):
        return "names of further environments differ in nothing but capitals or spaces"
    if not names and not more.range and _repeats(simulation.pairs, more.values):
        return "environments of the trials are among the further ones, too: simulate others"
    seen = [*real.policies_seen, *more.policies_seen]
    if "data_used" in simulation.origin:
        seen += ranges_from(simulation.origin["data_used"], "the costs in simulation")
    if seen and (more.range is None or any(more.range.overlaps(part) for part in seen)):
        return (
            "policies were learnt from some of the further environments, or nothing tells that "
            "they were not: there simulation is better than in new ones"
        )
    left_out = simulation.incidents.get("untried", 0)
    if left_out:
        return f"{left_out:,} rollouts in simulation were left out: count them as failures"
    return ""


def _repeats(pairs: NDArray, more: NDArray) -> bool:
    """Whether most rows of the pairs with fractions, if fine enough to tell, are further ones."""
    fractions = pairs[np.any((pairs != 0) & (pairs != 1), axis=1)]
    if len(fractions) < 5 or len(np.unique(fractions)) < 20:  # coarse grades repeat by chance
        return False
    further = {row.tobytes() for row in np.asarray(more, float)}
    return 2 * sum(row.tobytes() in further for row in fractions) > len(fractions)


def _check_alike(real: Costs, simulation: Simulation) -> None:
    """An error where the further environments cannot be drawn like those of the trials."""
    for policy in range(real.policies):
        f, more = simulation.of(policy, binary=False)
        chance = chance_of_difference(f, more)
        if chance < UNLIKELY / real.policies:
            raise ValueError(
                f"{quoted(real.name(policy))} costs {f.mean():.3g} in simulation of the "
                f"environments of the trials and {more.mean():.3g} in further ones, which is no "
                f"chance (p = {chance:.1g}): they are not drawn alike, and no bound follows"
            )


def chance_of_difference(f: Floats, more: Floats) -> float:
    """The p-value of costs that are drawn alike: Fisher's exact test, or Kolmogorov and Smirnov's.

    >>> f, more = np.repeat([0.0, 1.0], [20, 10]), np.repeat([0.0, 1.0], [900, 100])
    >>> round(chance_of_difference(f, more), 5)
    0.00061
    """
    from scipy import stats  # slow to import, and for simulation only

    found: Any = stats.ks_2samp
    given: Any = f, more
    if {*np.unique(f), *np.unique(more)} <= {0.0, 1.0}:
        found, given = stats.fisher_exact, ([[int(x.sum()), int(np.sum(x == 0))] for x in given],)
    return float(found(*given).pvalue)
