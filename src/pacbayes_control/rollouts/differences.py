"""Whether environments differ as they are drawn, and rollouts with them.

A simulator that ignores its seed or its options runs one environment again and again: the costs
repeat and lie in [0, 1], but they are not a sample. So values are swapped between environments, and
rollouts in which nothing else changed are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.rollouts.evaluation import equal_costs, table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.environments import Arrays

STEPS = 50  # steps of an episode that are compared first
MANY = 32  # environments whose whole episodes are compared before a task is refused
LOOKED_AT = 256  # environments that are drawn to see whether they look independent
STREAM = "conformance"
SEED = "seed"  # the name of a Gymnasium environment's seed, beside its options
NAMES = 20  # values that are swapped one by one, at most


class Broken(Exception):  # noqa: N818 - a fault of the task, not of the program
    """A requirement that the task does not meet, and how it was found."""


class Warned(str):
    """A line that is a warning."""

    __slots__ = ()


def environments_differ(
    job: Job, costs: NDArray, roll: Callable[[Job], NDArray] = table_of, each: bool = True
) -> str:
    """A line on what was compared, `Warned` where that is a warning; `Broken` where it is refused.

    A task with the hook `observed`, such as a GymTask, is refused if its observations and costs do
    not change with the environment, or with its options. Costs alone may be coarse, so other tasks
    get a warning.

    Args:
        job: the rollouts to compare
        costs: of the job
        roll: a function that rolls out a job
        each: whether values are also swapped one by one, to name those that make no difference
    """
    here = job.environments
    names = list(here.arrays())
    few = _Look(job, roll, costs)
    if job.task.observed is None:
        return _by_costs(few, names, each)
    many = replace(job, environments=replace(here, stop=max(here.stop, here.start + MANY)))
    begun = _Look(replace(job, task=_Observed(job.task, STEPS)), roll)
    whole = _Look(replace(many, task=_Observed(job.task, None)), roll)
    return _by_observations((begun, few, whole, _Look(many, roll)), names, each)


def _by_observations(looks: Sequence[_Look], names: list[str], each: bool) -> str:
    options = [name for name in names if name != SEED]
    environments, policies = looks[-1].job.shape
    tried = f"{environments} environments under {policies} policies"
    if not any(look.varies for look in looks):
        raise Broken(
            f"nothing that is observed, and no cost, differs across {tried}: does reset use the "
            "seed and the options that it is given?"
        )
    if options and not any(look.shows(options) for look in looks):
        raise Broken(
            f"options are drawn and nothing reads them ({', '.join(options)}): nothing that is "
            f"observed, and no cost, changed in {tried} with the options of another environment; "
            "have reset read them, or draw none"
        )
    if not each:
        return "what is observed differs"
    idle = [name for name in names[:NAMES] if not any(look.shows([name]) for look in looks)]
    if idle:
        return Warned(
            f"swapped alone, {', '.join(idle)} made no difference to what is observed, nor to the "
            f"cost: does the simulator read it? ({tried})"
        )
    return f"what is observed differs with {', '.join(names[:NAMES])}"


def _by_costs(look: _Look, names: list[str], each: bool) -> str:
    environments, policies = look.job.shape
    if not each and look.varies and look.job.noise is None:
        return "costs differ"
    groups = [[name] for name in names[:NAMES]] if each else [names]
    reads = [group[0] for group in groups if look.shows(group)]
    if equal := equal_costs(look.table):
        return Warned(equal)
    if not reads:
        return Warned(
            f"no cost of {policies} policies in {environments} environments changed when "
            f"{' or '.join(names[:NAMES])} was that of another environment: does the rollout read "
            "what is drawn?"
        )
    idle = [name for name in names[:NAMES] if each and name not in reads]
    return f"costs differ with {', '.join(reads)}" + (
        f", not with {', '.join(idle)}" if idle else ""
    )


@dataclass(frozen=True)
class _Look:
    """Rollouts to compare: their costs, or their observations as numbers."""

    job: Job
    roll: Callable[[Job], NDArray]  # the costs of a job
    known: NDArray | None = None  # the costs of this one, if they are known

    @cached_property
    def table(self) -> NDArray:
        """The costs as drawn, of shape (environments, policies)."""
        return self.roll(self.job) if self.known is None else self.known

    @property
    def varies(self) -> bool:
        """Whether any environment differs from the first, for any policy."""
        return bool((self.table != self.table[:1]).any())

    def shows(self, names: Sequence[str]) -> bool:
        """Whether any rollout changes if these values are taken from other environments."""
        before = self.table
        try:
            other = replace(self.job, environments=swapped(self.job.environments, names))
            return not np.array_equal(self.roll(other), before)
        except Exception:  # values that do not fit together: so the task reads them
            return True


class _Observed(Task):
    """A task whose costs encode its observations: equal only if all observations are equal."""

    one_by_one = True

    def __init__(self, task: Any, steps: int | None) -> None:
        self.name, self.task, self.steps = task.name, task, steps

    def costs(self, policies: NDArray, environments: Environments, *_: Any) -> NDArray:
        return self.task.observed(policies, environments, self.steps)


def swapped(environments: Environments, names: Sequence[str]) -> Environments:
    """The same environments, with the named values taken from other environments."""

    def draw(rng: np.random.Generator, n: int) -> Arrays:
        arrays = environments.draw(rng, n)
        return {**arrays, **{name: _others(np.asarray(arrays[name])) for name in names}}

    words = f"{environments.task} with {', '.join(names)} swapped"
    return replace(environments, draw=draw, task=words)


def _others(array: NDArray) -> NDArray:
    """Each row replaced by one of the next rows that differs from it, if there is one."""
    found = array.copy()
    for shift in range(1, min(len(array), MANY)):
        same = (found == array).reshape(len(array), -1).all(axis=1)
        if not same.any():
            break
        found[same] = np.roll(array, -shift, axis=0)[same]
    return found


# ---- the environments themselves ----------------------------------------------------------------


def _environments_repeat(task: Task) -> str:
    """Environments are the same if drawn again, fewer at a time, or from the middle."""
    many = task.environments(LOOKED_AT, stream=STREAM, seed=1)
    arrays = many.arrays()
    for again, what in (
        (task.environments(LOOKED_AT, stream=STREAM, seed=1).arrays(), slice(None)),
        (task.environments(5, stream=STREAM, seed=1).arrays(), slice(5)),
        (many[100:140].arrays(), slice(100, 140)),
    ):
        for name, array in arrays.items():
            before, now = np.asarray(array)[what], np.asarray(again[name])
            if (now.shape, now.tobytes()) != (before.shape, before.tobytes()):
                raise Broken(f"{name!r} of the same environments was different when drawn again")
    return f"{len(arrays)} values make an environment: {', '.join(arrays)}"


def _streams_differ(task: Task) -> str:
    """Other streams and seeds give other environments, not correlated with these."""
    first, next_seed, stream = (
        _rows(task.environments(LOOKED_AT, stream, seed))
        for stream, seed in ((STREAM, 0), (STREAM, 1), (f"{STREAM} 2", 0))
    )
    if np.all(first == first[0]):
        raise Broken("all environments are the same: does draw use the generator that it is given?")
    rows = {row.tobytes() for row in first}
    limit = 5 / np.sqrt(LOOKED_AT)
    for other, what in ((next_seed, "the next seed"), (stream, "another stream")):
        shared = rows & {row.tobytes() for row in other}
        if len(rows) == len(first) and len(shared) > LOOKED_AT / 10:  # a few may be equal by chance
            raise Broken(f"{what} draws some of the same environments")
        if np.array_equal(first, other) or _correlation(first, other) > limit:
            raise Broken(f"environments of {what} are correlated with these")
    if _correlation(first[1:], first[:-1]) > limit:
        raise Broken("an environment is correlated with the one before it")
    return f"{LOOKED_AT} each from two streams and two seeds"


def _rows(environments: Environments) -> NDArray[np.float64]:
    """Environments as rows of numbers."""
    columns = [
        np.asarray(array, float).reshape(len(environments), -1)
        for array in environments.arrays().values()
        if np.asarray(array).dtype.kind in "biuf"
    ]
    if not columns:
        raise Broken("an environment has no numbers by which to tell it from others")
    return np.concatenate(columns, axis=1)


def _correlation(first: NDArray, other: NDArray) -> float:
    """The largest absolute correlation between equal columns, of the first 50."""
    pairs = zip(first.T[:50], other.T[:50], strict=True)
    varied = [np.corrcoef(a, b)[0, 1] for a, b in pairs if a.std() > 0 and b.std() > 0]
    return float(np.nanmax(np.abs(varied), initial=0.0))


DRAWN = {"environments repeat": _environments_repeat, "streams look independent": _streams_differ}
