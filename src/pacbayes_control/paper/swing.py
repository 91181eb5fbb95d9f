"""The Swing (paper: Section 8): from a log of the drone to a certificate and flights under it.

The paper certifies one posterior on N = 1000 environments and flies it twenty times. Here the bound
is a mean over draws of the environments, for gains as the paper has them and for gains as uncertain
as a minute of flight leaves them, and the twenty flights go through the flight loop: the drone that
they fly is simulated, and is not the one that was modelled.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.flight.campaign import Campaign
from pacbayes_control.flight.log import Flight
from pacbayes_control.flight.stages import (
    drawn_obstacles,
    flight_seed,
    physics_of,
    place_of,
    virtual_stage,
)
from pacbayes_control.identification.identified import Identified
from pacbayes_control.identification.logs import synthetic_log
from pacbayes_control.identification.swing import identify
from pacbayes_control.monitor import Report
from pacbayes_control.paper.spread import Spread, Tally, over_draws
from pacbayes_control.paper.table1 import METHODS
from pacbayes_control.recipes.swing import GAINS, swing_of
from pacbayes_control.rollouts import Progress, evaluate, mean_costs
from pacbayes_control.run import Run
from pacbayes_control.tasks.swing import Swing

PAPER = {"bound": 0.114, "flights": 20, "successes": 18}
ENVIRONMENTS = 1000


@dataclass(frozen=True)
class Row(Spread):
    """One method with one view of the gains, over all draws of the training environments."""

    gains: str  # fixed (the paper's), drawn or worst (as a minute of flight leaves them)
    method: str  # paper, kl or occam
    environments: int
    test_environments: int


@dataclass(frozen=True, eq=False)
class Flown:
    """The rows, the model that two of three rest on, the run that was flown, and its flights."""

    rows: list[Row]
    model: Identified
    task: Swing
    run: Run[Any]
    flights: list[Flight]
    paths: list[NDArray[np.float64]]  # of each flight, (points, 2) as x, y in m, as tracked
    fields: list[NDArray[np.float64]]  # its cylinders, (cylinders, 3) as x, y, radius in m
    report: Report  # the monitor's verdict

    @property
    def successes(self) -> int:
        """How many flights ended well."""
        return sum(flight.cost == 0 for flight in self.flights)


def tasks(seed: int = 0) -> tuple[Identified, dict[str, Swing]]:
    """A model from a minute of flight, and the drone with each view of its gains."""
    model = identify([synthetic_log(seed=seed)])
    found = {gains: swing_of(model, gains) for gains in GAINS[1:]}
    return model, {GAINS[0]: Swing(), **found}


def sizes(test_environments: int) -> dict[str, int]:
    """Test environments for each view; the worst of nine drones is asked of a ninth."""
    return {gains: max(test_environments // (9 if gains == "worst" else 1), 1) for gains in GAINS}


def rollouts_of(draws: int, test_environments: int) -> int:
    """How many rollouts the rows take; those of several drones count once."""
    in_all = sum(sizes(test_environments).values()) + len(GAINS) * draws * ENVIRONMENTS
    return in_all * len(Swing().gain_grid())


def certificates(
    drones: dict[str, Swing],
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[list[Row], Run[Any]]:
    """The rows, and the run of the first draw with the paper's gains by the kl bound."""
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    tally = Tally(progress, rollouts_of(draws, test_environments))
    rows, first = [], []
    for gains, task in drones.items():
        policies, n = task.gain_grid(), sizes(test_environments)[gains]
        test = task.environments(n, stream="swing test", seed=seed)
        true_costs = mean_costs(task, policies, test, progress=tally)
        found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
        for draw in range(draws):
            train = task.environments(ENVIRONMENTS, stream=f"swing train {draw}", seed=seed)
            costs = evaluate(task, policies, train, task.gain_names(), progress=tally)
            for method, learn in METHODS.items():
                run = learn(costs)
                truth = float(run.posterior.probabilities @ true_costs)
                found[method].append((run.certificate.bound, truth))
                first += [run] if (gains, method, draw) == ("fixed", "kl", 0) else []
        for method, pairs in found.items():
            spread = over_draws(*np.array(pairs).T)
            rows.append(
                Row(
                    gains=gains,
                    method=method,
                    environments=ENVIRONMENTS,
                    test_environments=n,
                    **spread,
                )
            )
    return rows, first[0]


def swing(
    draws: int,
    test_environments: int,
    seed: int,
    folder: Path,
    progress: Progress | None = None,
) -> Flown:
    """Run the experiment. The flights' logs, outcomes and monitor go to `folder`, made anew."""
    _remove(folder)
    model, drones = tasks(seed)
    rows, run = certificates(drones, draws, test_environments, seed, progress)
    task = drones["fixed"]
    flights, paths, fields = [], [], []
    with Campaign(folder, run, simulated=True) as campaign:
        for number in range(1, PAPER["flights"] + 1):
            obstacles = drawn_obstacles(task, seed, number)
            own = flight_seed(seed, number)
            stage = virtual_stage(place_of(task, obstacles), physics_of(task), seed=own)
            flights.append(campaign.fly(task, obstacles, stage, seed))
            paths.append(logged_path(campaign.stem(number).with_suffix(".csv")))
            fields.append(obstacles)
        report = campaign.report()
    assert report is not None
    return Flown(rows, model, task, run, flights, paths, fields, report)


def _remove(folder: Path) -> None:
    """Delete the flights of an earlier time; an error where the folder holds anything else."""
    numbers = "|".join(f"{number:04d}" for number in range(1, PAPER["flights"] + 1))
    known = re.compile(rf"flight-({numbers})\.(csv|json)|outcomes\.csv|monitor\.json|\.lock")
    others = [path for path in folder.glob("*") if not known.fullmatch(path.name)]
    if others:
        raise ValueError(f"{others[0]} is not of this experiment: move it, or give another folder")
    if folder.exists():
        shutil.rmtree(folder)


def logged_path(file: Path) -> NDArray[np.float64]:
    """Where a flight went: x, y of every row of its log that has them; (points, 2)."""
    table = np.genfromtxt(file, delimiter=",", names=True)
    points = np.stack([np.atleast_1d(table["x"]), np.atleast_1d(table["y"])], axis=1)
    return points[np.isfinite(points).all(axis=1)]


def to_dict(result: Flown) -> dict[str, Any]:
    """Plain values for JSON: what is flown first, beside the paper's."""
    [headline] = [row for row in result.rows if (row.gains, row.method) == ("fixed", "kl")]
    return {
        "bound": headline.bound,
        "true_cost": headline.true_cost,
        "paper_bound": PAPER["bound"],
        "flights": len(result.flights),
        "successes": result.successes,
        "paper_successes": PAPER["successes"],
        "rows": [asdict(row) for row in result.rows],
        "model": result.model.to_dict(),
        "monitor": result.report.to_dict(),
    }
