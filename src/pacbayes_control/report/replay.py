"""Rollouts for a page to replay: which ones, and rolled out again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import checked_costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.report.environments import environment_costs
from pacbayes_control.rollouts.again import recorded_noise
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import generator
from pacbayes_control.tasks.registry import recorded_class
from pacbayes_control.tasks.task import Scene, noise_of

DRAWS = 20  # policies drawn for the page from a Gaussian posterior
MOST_POLICIES = 200
MOST_ROLLOUTS = 60_000  # of a page: a few seconds of a fast simulator
TOUCH = 1e-6  # m, within which a path that ends at an obstacle has met it


@dataclass(frozen=True, eq=False)
class Replay:
    """Rollouts of some policies in some environments, by rows and columns of the table of costs."""

    environments: NDArray[np.int64]  # (rows,), increasing
    policies: NDArray[np.int64]  # (columns,), the likeliest first
    drawn: bool  # whether the policies were drawn from the posterior for the page
    costs: NDArray[np.float64 | np.uint8]  # (rows, columns)
    paths: list[list[NDArray[np.float64]]]  # by rows and columns, each (points, 2 or 3)
    scenes: list[Scene]  # by rows
    contacts: NDArray[np.bool_]  # (rows, columns), whether a path ends at an obstacle

    @property
    def rollouts(self) -> int:
        """How many there are."""
        return self.costs.size

    @property
    def disagreements(self) -> int:
        """Rollouts with costs 0 or 1 whose path does not end as the cost says."""
        return int(np.sum(self.contacts != (self.costs == 1))) if self.binary else 0

    @property
    def mostly_agrees(self) -> bool:
        """Whether at most 1 % of the paths end otherwise than their costs say."""
        return self.disagreements <= 0.01 * self.rollouts

    @property
    def binary(self) -> bool:
        """Whether every cost is 0 or 1."""
        return self.costs.dtype == np.uint8

    def only(self, rows: NDArray[np.int64]) -> Replay:
        """The same for some of the environments, given by position."""
        return replace(
            self,
            environments=self.environments[rows],
            costs=self.costs[rows],
            paths=[self.paths[row] for row in rows],
            scenes=[self.scenes[row] for row in rows],
            contacts=self.contacts[rows],
        )


def why_no_replay(run: Run[Any], task: Task | None) -> str | None:
    """The reason why the rollouts of a run cannot be shown, in one line; None where they can.

    It is empty for a table of costs, which holds no policies that could be rolled out again.
    """
    if run.costs.draws is None and run.costs.parameters is None:
        return ""
    if task is not None and task.scenes is not None and task.paths is not None:
        return None
    known = type(task) if task is not None else recorded_class(run.costs)
    if known is not None and known.no_replay:
        return known.no_replay
    if task is None:
        return (
            "The run does not say which task it is of: with pbc report --task MODULE:TASK, this "
            "page shows the rollouts of a task that can show itself."
        )
    return f"The task {task.name} cannot show itself: it has no scenes and paths."


def roll_out(
    run: Run[Any], task: Task, environments: Environments, most: int = MOST_ROLLOUTS
) -> Replay:
    """Roll out the recorded rollouts of a run again, with the same noise.

    Of a Gaussian posterior, whose draws are not recorded, new policies are drawn for the page.

    Args:
        run: the run
        task: its task, which has `scenes` and `paths`
        environments: those that the run counts
        most: rollouts; where there are more, those of the likeliest policies, in the environments
            of highest cost
    """
    if len(environments) != run.costs.environments:
        raise ValueError(
            f"{len(environments)} environments were given for a run that counts "
            f"{run.costs.environments}: give those that its costs are of"
        )
    policies, noise = run.costs.parameters, recorded_noise(run.costs)
    drawn = policies is None
    if policies is None:
        policies = run.posterior.sample(generator(0, "report", of="policies"), DRAWS)
        noise = Noise("report noise", 0)
    columns = np.arange(len(policies))
    if isinstance(run.posterior, Categorical):
        columns = likeliest(run)[: max(1, min(most // 20, MOST_POLICIES))]
    rows = highest(environment_costs(run), max(1, most // len(columns)))
    noise = noise_of(task, environments, noise)
    own_noise = (noise,) if noise else ()
    assert task.paths is not None  # or there is no replay: see `why_no_replay`
    assert task.scenes is not None
    paths: list[list[NDArray]] = []
    scenes: list[Scene] = []
    costs = []
    for part in _parts(environments, rows):
        by_policy = [
            task.paths(policies[j : j + 1], part, noise.shifted(int(j)) if noise else None)
            for j in columns
        ]
        paths += [[own[0] for own in row] for row in zip(*by_policy, strict=True)]
        scenes += task.scenes(part)
        if drawn:
            costs.append(np.asarray(task.costs(policies, part, *own_noise)))
    table = checked_costs(np.concatenate(costs)) if drawn else run.costs.values[rows][:, columns]
    contacts = np.array([_touching(*pair) for pair in zip(scenes, paths, strict=True)])
    return Replay(rows, columns, drawn, table, paths, scenes, contacts)


def highest(values: NDArray, most: int) -> NDArray[np.int64]:
    """Where the largest values are, in increasing order of place."""
    return np.sort(np.argsort(-values, kind="stable")[:most])


def likeliest(run: Run[Categorical]) -> NDArray[np.int64]:
    """All policies by their share of the posterior; among equals, the cheapest first."""
    return np.lexsort((run.costs.means, -run.posterior.probabilities))


def _parts(environments: Environments, rows: NDArray[np.int64]) -> Iterator[Environments]:
    """Consecutive environments among the rows; a block is drawn once, not for each of them."""
    numbers = rows + environments.start
    size = environments.block
    breaks = np.flatnonzero((np.diff(numbers) > 1) | (np.diff(numbers // size) > 0)) + 1
    block, drawn = -1, {}
    for run in np.split(numbers, breaks):
        start, stop = int(run[0]), int(run[-1]) + 1
        if start // size != block:
            block = start // size
            whole = replace(environments, start=block * size, stop=(block + 1) * size)
            drawn = whole.arrays()
        yield replace(environments, draw=lambda *_, kept=drawn: kept, start=start, stop=stop)


def _touching(scene: Scene, paths: list[NDArray]) -> NDArray[np.bool_]:
    """Whether the robot is in contact at the end of each path; shape (policies,)."""
    ends = np.array([path[-1, :2] for path in paths])
    x, y, radius = scene.circles.reshape(-1, 3).T
    gaps = np.hypot(ends[:, :1] - x, ends[:, 1:] - y) - radius
    left, right, bottom, top = scene.boxes.reshape(-1, 4).T
    beside = np.maximum(np.maximum(left - ends[:, :1], ends[:, :1] - right), 0)
    above = np.maximum(np.maximum(bottom - ends[:, 1:], ends[:, 1:] - top), 0)
    nearest = np.hstack([gaps, np.hypot(beside, above)]).min(axis=1, initial=np.inf)
    return nearest <= scene.robot_radius + TOUCH
