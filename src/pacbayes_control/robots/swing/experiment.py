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
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run
from pacbayes_control.cli.options import DeviceOption, DrawsOption, Seed, TestEnvironments
from pacbayes_control.deploy.monitor import Report
from pacbayes_control.learn import repeated
from pacbayes_control.report.console import print_table, progress_bars, say
from pacbayes_control.report.page import write_page
from pacbayes_control.robots.swing import Swing
from pacbayes_control.robots.swing.flight import stages
from pacbayes_control.robots.swing.flight.campaign import FlightCampaign
from pacbayes_control.robots.swing.flight.log import FlightRecord
from pacbayes_control.robots.swing.identification.identified import IdentifiedModel, fitted_swing
from pacbayes_control.robots.swing.identification.swing import identify_swing
from pacbayes_control.robots.swing.identification.synthetic import SyntheticDrone
from pacbayes_control.robots.vehicle.table1 import METHODS
from pacbayes_control.rollouts import Execution

PAPER = {"bound": 0.114, "flights": 20, "successes": 18}
ENVIRONMENTS = 1000
GAINS = ("fixed", "drawn", "worst")


@dataclass(frozen=True)
class SwingRow(repeated.Spread):
    """One method with one view of the gains, over all draws of the training environments."""

    gains: str  # fixed (the paper's), drawn or worst (as a minute of flight leaves them)
    method: str  # paper, kl or occam
    environments: int
    test_environments: int
    drones: int  # that a cost is the worst of


@dataclass(frozen=True, eq=False)
class Flown:
    """The rows, the model that two of three rest on, the run that was flown, and its flights."""

    rows: list[SwingRow]
    model: IdentifiedModel
    task: Swing
    run: Run[Any]
    flights: list[FlightRecord]
    paths: list[NDArray[np.float64]]  # of each flight, (points, 2) as x, y in m, as tracked
    fields: list[NDArray[np.float64]]  # its cylinders, (cylinders, 3) as x, y, radius in m
    report: Report  # the monitor's verdict

    @property
    def successes(self) -> int:
        """How many flights ended well."""
        return sum(flight.cost == 0 for flight in self.flights)


def tasks(seed: int = 0, points: int = 2) -> tuple[IdentifiedModel, dict[str, Swing]]:
    """A model from a minute of flight, and the drone with each view of its gains."""
    model = identify_swing([SyntheticDrone().log(seed=seed)])
    worst = fitted_swing(model, "worst", points)
    return model, {"fixed": Swing(), "drawn": fitted_swing(model, "drawn"), "worst": worst}


def certificates(
    drones: dict[str, Swing],
    *,
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    execution: Execution | None = None,
) -> tuple[list[SwingRow], Run[Any]]:
    """The rows, and the run of the first draw with the paper's gains by the kl bound."""
    # the worst of drones is asked of a ninth of the test environments; its rollouts count once
    tests = {gains: max(test_environments // (9 if gains == "worst" else 1), 1) for gains in drones}
    in_all = sum(tests.values()) + len(drones) * draws * ENVIRONMENTS
    experiment = repeated.Experiment(draws, seed, in_all * len(Swing().policies), execution)
    first: dict[tuple[str, str], Run[Any]] = {}
    for gains, task in drones.items():
        true_costs = experiment.true_costs(task, tests[gains], "swing test")
        for costs in experiment.costs(task, ENVIRONMENTS, "swing train"):
            for method, learn in METHODS.items():
                run = learn(costs)
                first.setdefault((gains, method), run)
                experiment.add(run, true_costs, gains, method)
    worst_of = {gains: max(len(task.drones), 1) for gains, task in drones.items()}
    rows = [
        SwingRow(
            *(gains, method, ENVIRONMENTS, tests[gains], worst_of[gains]),
            **experiment.spread(gains, method),
        )
        for gains, method in first
    ]
    return rows, first["fixed", "kl"]


def swing(
    draws: int,
    test_environments: int,
    seed: int,
    folder: Path,
    execution: Execution | None = None,
    points: int = 2,
) -> Flown:
    """Run the experiment. The flights' logs, outcomes and monitor go to `folder`, made anew."""
    _remove(folder)
    model, drones = tasks(seed, points)
    rows, run = certificates(
        drones, draws=draws, test_environments=test_environments, seed=seed, execution=execution
    )
    task = drones["fixed"]
    flights, paths, fields = [], [], []
    with FlightCampaign(folder, run, simulated=True) as campaign:
        for number in range(1, PAPER["flights"] + 1):
            obstacles = stages.drawn_obstacles(task, seed, number)
            world = stages.world_setup(task, obstacles, stages.flight_seed(seed, number))
            stage = stages.virtual_stage(world)
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


def show_swing(result: Flown) -> None:
    """The certificate and the flights, beside the paper's."""
    print_table(
        "The Swing, N = 1,000, δ = 0.01",
        ("gains", "method", "bound", "± s.d.", "true"),
        (
            (row.gains if row.method == "paper" else "", row.method, *repeated.cells(row))
            for row in result.rows
        ),
        left=("gains", "method"),
        section=len(METHODS),
    )
    found, flights = result.model, len(result.flights)
    say(
        f"Means over draws ({result.rows[0].draws}) of the environments; the paper's bound, of one "
        f"draw and with its gains, is {PAPER['bound']}. drawn and worst: with the gains as a "
        f"minute of flight tells them, k_u = {found.k_u.value:.3f} ± {found.k_u.margin:.3f} and "
        f"k_p = {found.k_p.value:.4f} ± {found.k_p.margin:.4f}; drawn for each rollout, or the "
        f"worst of {result.rows[-1].drones} drones over their intervals."
    )
    say(
        f"\n{result.successes} of {flights} flights of a simulated drone that is harder to fly "
        "than its model succeeded; in the paper "
        f"{PAPER['successes']} of {PAPER['flights']} real ones did. {result.report.sentence}"
    )


def reproduce_swing(
    folder: Path,
    *,
    draws: DrawsOption = 10,
    test_environments: TestEnvironments = 100_000,
    seed: Seed = 0,
    points: Annotated[
        int, typer.Option(min=2, max=20, help="Drones along each interval, for the worst of them.")
    ] = 2,
    device: DeviceOption = None,
) -> dict[str, Any]:
    """The drone of Section 8: certificates, and flights of a simulated one. A minute.

    Example: pbc reproduce swing --draws 10 --json swing.json
    """
    from pacbayes_control.robots.swing.pictures import attachments

    run, flights = folder / "swing", folder / "flights"
    with progress_bars() as tell:
        how = Execution(progress=tell, device=device)
        result = swing(draws, test_environments, seed, flights, how, points)
    pictures = attachments(result, result.task.environments(3, stream="swing test", seed=seed))
    result.run.save(run, True, pictures)
    write_page(result.run, folder / "swing.html", name=str(run), pictures=pictures)
    show_swing(result)
    say(f"\nThe run is in {run}: pbc verify {run}")
    say(f"The flights are in {flights}; to look at: {folder / 'swing.html'}")
    return to_dict(result)
