"""Which environments a run fails in: the hardest, and cost against what was drawn for them.

Nothing here is certified. Parameters are looked at after the costs were seen, and the policies were
chosen by these same costs: the numbers describe the environments that were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.statistics import percent
from pacbayes_control.certify.text import quoted
from pacbayes_control.study.bins import MOST_BINS, Bin, Groups, Pair, binned, grouped, paired
from pacbayes_control.study.importance import MOST, Ranking, rank, together

if TYPE_CHECKING:
    from pacbayes_control.certify.run import Run
    from pacbayes_control.tasks import Task

CONFIDENCE = 0.95  # of all intervals at once
IDENTITIES = ("seed",)  # columns that tell environments apart, and say nothing about them
FEWEST = 30  # environments to tell anything apart
FEWEST_FAILURES = 5
ALIKE = 0.05  # costs that differ by less from the median are like most others
PAIRED = 8  # parameters that are looked at in pairs
CLOSE = 5  # pairs that go together, that a note lists
MEANING = (
    "Nothing here is certified: the policies and what is shown were chosen after the costs were "
    "seen. The numbers describe the environments that were recorded; in new ones the cost may be "
    "higher."
)
SHARED = (
    "Parameters that go together share their importance: one may hide another. A parameter that "
    "goes with the cost need not be its cause."
)


@dataclass(frozen=True, eq=False)
class Failures:
    """The environments of a run by their cost and their parameters."""

    costs: NDArray[np.float64]  # (environments,): see `environment_costs`
    binary: bool  # whether each environment succeeded or failed
    names: tuple[str, ...]  # of the environments; may be empty
    described: Mapping[str, NDArray]  # their parameters by name, (environments,) each
    # by parameter, those that explain most first; empty where there is too little to tell apart
    bins: Mapping[str, tuple[Bin, ...]]
    groups: Mapping[str, Groups]
    pairs: tuple[Pair, ...]
    ranking: Ranking | None
    too_little: str  # why nothing can be told apart; empty where something can
    notes: tuple[str, ...]  # what was left out, a sentence each

    @property
    def hardest(self) -> NDArray[np.intp]:
        """The numbers of all environments, the highest cost first."""
        return np.argsort(-self.costs, kind="stable")

    def worst(self, most: int) -> list[int]:
        """The numbers of the hardest environments, without those of cost 0."""
        first = self.hardest[:most]
        return first[self.costs[first] > 0].tolist()

    @property
    def columns(self) -> tuple[str, ...]:
        """The parameters in the order of their importance, then those that were not ranked."""
        return (*self.bins, *(name for name in self.described if name not in self.bins))

    @property
    def interval_words(self) -> str:
        """How the intervals of the bins are to be read."""
        count = sum(map(len, self.bins.values()))
        kind = "by e-values"
        if self.binary:
            kind = "exact ones of Clopper and Pearson, for trials that only succeed or fail"
        return (
            f"Intervals ({kind}): with confidence {percent(CONFIDENCE)} all {count:,} bins of all "
            "parameters hold at once, and with the same confidence all cells of all pairs, if the "
            "policy was fixed beforehand. Bins are by the parameters alone, not by the costs."
        )


def environment_costs(run: Run[Any]) -> NDArray[np.float64]:
    """Mean cost under the posterior in each environment, or of the one policy that is certified."""
    if isinstance(run.posterior, Categorical):
        return run.costs.values @ run.posterior.probabilities
    return run.costs.values.mean(axis=1)


def described_environments(
    run: Run[Any], task: Task | None = None
) -> tuple[Mapping[str, NDArray], str]:
    """The parameters of a run's environments, and why there are none.

    Those that the run recorded; for a run without them, those of its environments drawn again.
    """
    from pacbayes_control.rollouts.evaluation import described_by
    from pacbayes_control.tasks.registry import recorded_environments, recorded_task

    if run.costs.described:
        return run.costs.described, ""
    if run.costs.range is None and task is None:
        return {}, "The run is of a table of costs: it has no parameters of its environments."
    try:
        known = recorded_task(run.costs) if task is None else task
        environments = recorded_environments(run.costs, known)
    except ValueError:
        if task is not None:
            raise
        return {}, (
            "The run does not record the parameters of its environments: give its task, as "
            "pbc failures --task MODULE:TASK."
        )
    if len(environments) != run.costs.environments:
        return {}, "The run's record contradicts itself: it counts other environments."
    found = described_by(known, environments)
    return found, "" if found else "Nothing that is one number or word was drawn."


def failures_of(run: Run[Any], described: Mapping[str, NDArray] | None = None) -> Failures:
    """Look at a run's costs by the parameters of its environments, as `find_failures`.

    described: the parameters, by default those that the run has recorded

    >>> from pacbayes_control.learn import Plan, learn_task
    >>> from pacbayes_control.tasks.demo import Stopping
    >>> failures_of(learn_task(Stopping(), Plan(environments=40))).binary
    True
    """
    costs = environment_costs(run)
    binary = bool(np.all((costs == 0) | (costs == 1))) and run.costs.success_or_failure
    known = run.costs.described if described is None else described
    return find_failures(costs, known, binary=binary, names=run.costs.sites)


def find_failures(
    costs: NDArray[np.float64],
    described: Mapping[str, NDArray],
    *,
    binary: bool,
    names: tuple[str, ...] = (),
) -> Failures:
    """Look at costs by the parameters of their environments; the same arguments, the same result.

    Args:
        costs: in [0, 1], (environments,)
        described: numbers and words by name, (environments,) each
        binary: whether costs are 0 or 1, and nothing between
        names: of the environments, if they have any
    """
    told = {name: np.asarray(values) for name, values in described.items()}
    usable, notes = usable_columns(told)
    too_little, ranking = why_too_little(costs), None
    groups: dict[str, Groups] = {}
    if not too_little and usable:
        try:
            ranking = rank(usable, costs)
            order = [one.name for one in ranking.parameters]
            if ranking.environments < len(costs):
                notes.append(f"The ranking is from the first {MOST:,} environments.")
        except ImportError as error:
            notes.append(f"No ranking: {error}.")
            order = list(usable)
        if close := together(usable):
            notes.append(_close_words(close))
        most = int(np.clip(len(costs) // 20, 3, MOST_BINS))
        groups = {name: grouped(name, usable[name], most) for name in order}
        groups = {name: one for name, one in groups.items() if len(one.labels) > 1}
    count = sum(len(one.labels) for one in groups.values())
    delta = (1 - CONFIDENCE) / max(count, 1)  # a union bound over every bin of every parameter
    bins = {name: binned(one, costs, delta, binary=binary) for name, one in groups.items()}
    if groups and ranking is None:
        bins = dict(sorted(bins.items(), key=lambda item: -_between(item[1])))
        groups = {name: groups[name] for name in bins}
    pairs = find_pairs({name: usable[name] for name in groups}, costs, binary=binary)
    if len(groups) > PAIRED:
        notes.append(f"Pairs are of the first {PAIRED} parameters.")
    return Failures(
        costs=costs,
        binary=binary,
        names=names,
        described=told,
        bins=bins,
        groups=groups,
        pairs=pairs,
        ranking=ranking,
        too_little=too_little,
        notes=tuple(notes),
    )


def usable_columns(described: Mapping[str, NDArray]) -> tuple[dict[str, NDArray], list[str]]:
    """The parameters that the cost can depend on, and a sentence on each kind left out."""
    usable, constant, unusual = {}, [], []
    for name, values in described.items():
        distinct, words = len(np.unique(values)), values.dtype.kind not in "biuf"
        if distinct == 1:
            constant.append(name)
        elif name in IDENTITIES or (words and distinct > max(20, len(values) / 5)):
            continue  # a number or a name of its own for each environment
        elif not words and not np.all(np.isfinite(values)):
            unusual.append(name)
        else:
            usable[name] = values.astype(int) if values.dtype.kind == "b" else values
    notes = []
    if constant:
        notes.append(f"The same in all environments: {_listed(constant)}.")
    if unusual:
        notes.append(f"Left out, as some values are NaN or infinite: {_listed(unusual)}.")
    return usable, notes


def why_too_little(costs: NDArray[np.float64]) -> str:
    """The reason why nothing can be told apart by these costs; empty where something can."""
    n = len(costs)
    if n < FEWEST:
        return f"{n} environments are too few to tell apart where it fails: at least {FEWEST}."
    if np.all((costs == 0) | (costs == 1)):
        failures = int(costs.sum())
        if failures in (0, n):
            which = "failed in all" if failures else "failed in none of"
            return f"It {which} {n:,} environments: there is nothing to tell apart."
        if min(failures, n - failures) < FEWEST_FAILURES:
            rare = failures < n - failures
            return (
                f"{failures if rare else n - failures} of {n:,} environments "
                f"{'failed' if rare else 'succeeded'}: too few to tell apart where it fails, at "
                f"least {FEWEST_FAILURES} are needed."
            )
    unlike = int(np.sum(np.abs(costs - np.median(costs)) >= ALIKE))
    if unlike < FEWEST_FAILURES:
        but = f" but {unlike}" if unlike else ""
        return (
            f"The cost is nearly the same in all{but} of {n:,} environments: too few differ to "
            "tell apart where it fails."
        )
    return ""


def find_pairs(
    usable: Mapping[str, NDArray], costs: NDArray[np.float64], *, binary: bool
) -> tuple[Pair, ...]:
    """The mean cost by each two of the first parameters, in cells of about 10 environments or more.

    Pairs of the first parameters come first. Which these are depends on the costs, so the intervals
    hold for all cells of all pairs, also of those that are not looked at.
    """
    most = int(np.clip(np.sqrt(len(costs) / 10), 2, 6))
    groups = [grouped(name, values, most) for name, values in usable.items()]
    sizes = np.array([len(one.labels) for one in groups])
    cells = int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
    delta = (1 - CONFIDENCE) / max(cells, 1)
    first = groups[:PAIRED]
    both = [(first[i], first[j]) for j in range(len(first)) for i in range(j)]
    return tuple(paired(one, other, costs, delta, binary=binary) for one, other in both)


def _between(bins: tuple[Bin, ...]) -> float:
    """The variance of the bins' mean costs, by which parameters are sorted without a ranking."""
    means, counts = np.array([b.mean for b in bins]), np.array([b.environments for b in bins])
    return float(np.average((means - np.average(means, weights=counts)) ** 2, weights=counts))


def _close_words(close: list[tuple[str, str, float]]) -> str:
    pairs = ", ".join(
        f"{quoted(one)} and {quoted(other)} ({share:.2f})" for one, other, share in close[:CLOSE]
    )
    rest = f" and {len(close) - CLOSE} more pairs" if len(close) > CLOSE else ""
    return (
        "These go together, so that the ranking cannot tell them apart (by rank correlation, or by "
        f"Cramér's V where one is of words): {pairs}{rest}."
    )


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(quoted(name) for name in names[:8]) + rest
