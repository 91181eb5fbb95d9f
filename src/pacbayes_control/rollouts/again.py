"""Recorded rollouts, picked at random and run again: do they still cost the same?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.descriptions import to_bytes
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import has_type
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.text import printable, quoted
from pacbayes_control.rollouts.evaluation import described_by, in_time
from pacbayes_control.rollouts.jobs import FreshDraws, Job, Piece, shared_draws
from pacbayes_control.rollouts.processes import Place
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.task import as_task, noise_of
from pacbayes_control.tasks.user_task import RolloutFailed

MOST = 1000  # rollouts that are run again at most, if no number is given


@dataclass(frozen=True)
class Again:
    """How many rollouts were run again, and how many of them differ from the recorded cost."""

    tried: int
    different: int
    first: str = ""  # the first that differs and is not excused, in words, or the first
    # where it was recorded and where it was run again, in words, if these differ
    devices: str = ""
    excused: int = 0  # of those that differ: rounding decides them, which devices do differently

    @property
    def explained(self) -> bool:
        """Whether each cost is the recorded one, or differs by the rounding of another device."""
        return self.different == self.excused

    @property
    def remark(self) -> str:
        """On what was compared and explained, in a line; empty if it was on the same device."""
        if not self.devices:
            return ""
        words = f"{self.tried:,} rollouts, {self.devices}"
        if not self.different:
            return f"{words}, cost the same"
        why = ", since rounding decides them" if self.explained else ""
        return f"{self.different:,} of {words}, cost something else{why}"


def roll_out_again(
    run: Run[Any],
    task: Task,
    environments: Environments,
    *,
    count: int | None = None,
    seconds: float = 3.0,
    rng: np.random.Generator | None = None,
) -> Again:
    """Run rollouts of a run again, with the same policies and noise, and compare their costs.

    Rollouts that timed out are left out: how long one takes depends on the machine. Those of a GPU
    are run again on a GPU if there is one.

    Args:
        run: whose rollouts are run again
        task: the task of the run
        environments: the environments of the run's costs, drawn from the task
        count: how many rollouts; by default as many as take about `seconds`
        seconds: the time to take if no count is given
        rng: picks the rollouts; by default from the system's entropy, so that the choice cannot be
            predicted

    >>> from pacbayes_control.learn import learn_finite
    >>> from pacbayes_control.rollouts import evaluate
    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> train = task.environments(20, stream="train")
    >>> run = learn_finite(evaluate(task, task.policies, train))
    >>> roll_out_again(run, task, train, count=5)
    Again(tried=5, different=0, first='', devices='', excused=0)
    """
    if count is not None and count < 1:
        raise ValueError(f"{count} rollouts to run again were asked for: at least one is needed")
    costs, rng = run.costs, rng or np.random.default_rng()
    task, devices = as_recorded(as_task(task), costs)
    _check_same(costs, task, environments)
    left = costs.environments * costs.policies - len(costs.timed_out)
    if left == 0:
        raise ValueError("every rollout of the run timed out: there is none to run again")
    places = _picked(run, min(count or MOST, left), rng)
    jobs = _jobs(run, task, environments, places)
    tried, excused, others = 0, [], []
    for row, column in in_time(places, seconds if count is None else math.inf):
        tried += 1
        before, job = float(costs.values[row, column]), next(jobs)
        if before == (now := _cost(job)):
            continue
        words = (
            f"policy {column} in environment {environments.start + row} cost {before!r} when "
            f"it was recorded, and {now if isinstance(now, str) else repr(now)} now"
        )
        excusable = devices and not others and not isinstance(now, str)  # one that is not is enough
        (excused if excusable and job.rounding_decides() else others).append(words)
    different = [*others, *excused, ""]
    return Again(tried, len(different) - 1, different[0], devices, len(excused))


def as_recorded(task: Task, costs: Costs) -> tuple[Task, str]:
    """The task on a GPU, if costs are recorded on one and there is one here.

    And in words on which two devices they are recorded and run again, if these are not the same.
    """
    task = as_task(task.on_device("auto")) if costs.device else task
    if task.hardware == costs.device or len(task.devices) < 2:
        return task, ""
    before, now = (quoted(name, 100) if name else "a CPU" for name in (costs.device, task.hardware))
    return task, f"recorded on {before} and run again on {now}"


def _picked(run: Run[Any], count: int, rng: np.random.Generator) -> list[Place]:
    """Random rows and columns, each pair once; half of them by the posterior's weights."""
    costs = run.costs
    total, ended = costs.environments * costs.policies, len(costs.timed_out)
    picked = dict.fromkeys(rng.choice(total, min(count + ended, total), replace=False).tolist())
    if isinstance(run.posterior, Categorical):
        rows = rng.integers(costs.environments, size=-(-count // 2))
        columns = run.posterior.sample(rng, len(rows))
        weighty = dict.fromkeys((rows * costs.policies + columns).tolist())
        picked = weighty | picked
    places = (divmod(rollout, costs.policies) for rollout in picked)
    return [place for place in places if place not in costs.timed_out][:count]


def recorded_rollout(
    run: Run[Any], task: Task, environments: Environments, place: Place
) -> tuple[NDArray, Noise | None]:
    """The policy (parameters,) and the noise of one recorded rollout, by its row and column.

    Args:
        run: whose rollout it is
        task: the task of the run
        environments: as for `roll_out_again`
        place: row and column
    """
    _check_same(run.costs, task, environments)
    job = next(_jobs(run, task, environments, [place]))
    policies = job.policies
    rows = policies.of(job.environments)[0] if isinstance(policies, FreshDraws) else policies
    return rows[0], job.noise


def recorded_noise(costs: Costs) -> Noise | None:
    """The stream that the recorded rollouts took their noise from."""
    return None if costs.noise is None else Noise(*_stream(costs, "noise"))


def _stream(costs: Costs, kind: str) -> tuple[str, int]:
    """The recorded stream and seed of the noise or of the policies."""
    record: Any = costs.origin.get(kind)
    named: Any = (record.get("stream"), record.get("seed")) if isinstance(record, dict) else ()
    if not has_type(named, tuple[str, int]):
        raise ValueError(f"the costs' origin does not say which stream their {kind} are from")
    return named


def _check_same(costs: Costs, task: Task, environments: Environments) -> None:
    """Raise ValueError unless the task and the environments are those of the recorded costs."""
    now = environments.origin | {"policy_class": task.policy_class}
    for name, value in now.items():
        recorded = costs.origin.get(name)
        if recorded != value:
            told = printable(str(recorded)) if recorded is not None else "none"
            raise ValueError(
                f"the run cannot be rolled out with this task: its {name.replace('_', ' ')} is "
                f"{told}, not {value}; give the task that its costs are of"
            )
    if costs.described:
        drawn = described_by(task, environments)
        if to_bytes(drawn) != to_bytes(costs.described):
            raise AlteredRun("environments.csv of the run is not what its task draws")


def _jobs(
    run: Run[Any], task: Task, environments: Environments, places: list[Place]
) -> Iterator[Job]:
    """The rollouts to be run, one for each row and column."""
    costs, posterior = run.costs, run.posterior
    noise = noise_of(task, environments, recorded_noise(costs))
    if (noise.kind if noise else None) != costs.noise:
        raise ValueError("the run cannot be rolled out with this task: its noise is another")
    if costs.draws and not isinstance(posterior, DiagonalGaussian):
        raise ValueError("the run's draws are from no Gaussian: they cannot be made again")
    if not costs.draws and costs.parameters is None:
        raise ValueError(
            "the run was made from a table of costs: it holds no policies to roll out again"
        )
    if costs.draws == "shared":
        drawn: dict[int, NDArray[np.float64]] = {}
        wanted = {column for _, column in places}
        for first, part in shared_draws(posterior, costs.policies, *_stream(costs, "policies")):
            numbers = wanted.intersection(range(first, first + len(part)))
            # copies of some, so that the others take no memory
            drawn |= {number: part[number - first].copy() for number in numbers}
        for row, column in places:
            shifted = noise.shifted(column) if noise else None
            yield Job(task, environments[row : row + 1], drawn[column][None], shifted)
        return
    policies: Any = costs.parameters
    if costs.draws:
        policies = FreshDraws(posterior, costs.policies, *_stream(costs, "policies"))
    job = Job(task, environments, policies, noise)
    for row, column in places:
        yield job.part(Piece.at(row, column))


def _cost(job: Job) -> float | str:
    """The cost of one rollout, or the error that it raised, in one line."""
    try:
        return float(job.run()[0][0, 0])
    except Exception as error:
        return f"raised {in_a_line(error.error if isinstance(error, RolloutFailed) else error)}"
