"""`pbc reproduce sim-to-real`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes_control.cli.options import MOST, Seed, WorkersOption, executing
from pacbayes_control.report.console import progress_bars, say
from pacbayes_control.robots.sim_to_real.bounds import (
    DELTA,
    TRIALS,
    SimToRealRow,
    bounds_of,
    draws_of,
)
from pacbayes_control.robots.sim_to_real.pairs import (
    WITHOUT_PYBULLET,
    Rollouts,
    robots,
    rolled_out,
)
from pacbayes_control.robots.sim_to_real.pictures import draw_sim_to_real, show_sim_to_real
from pacbayes_control.robots.vehicle.bullet import has_pybullet
from pacbayes_control.rollouts import Execution

DrawsOption = Annotated[
    int, typer.Option(min=1, max=MOST, help="Draws of 300 trials, cut into more of 100 and 30.")
]
SimulatedOption = Annotated[
    int, typer.Option(min=2, max=MOST, help="Further environments, in simulation alone.")
]


def reproduce_sim_to_real(
    folder: Path,
    *,
    draws: DrawsOption = 50,
    simulated: SimulatedOption = 100_000,
    workers: WorkersOption = None,
    seed: Seed = 0,
) -> dict[str, Any]:
    """Trials in reality that simulation replaces, shown without a robot. Six minutes on two cores.

    Example: pbc reproduce sim-to-real --draws 5
    """
    note = None if has_pybullet() else WITHOUT_PYBULLET
    if note:
        say(note)
    found: list[Rollouts] = []
    for robot in robots():
        number = None if robot.reality.uses_all_cores else workers
        with executing(robot.reality, number, folder / "rollouts") as execution:
            found += rolled_out(robot, draws * max(TRIALS), simulated, seed, execution)
    coins = [rollouts.with_coin(seed) for rollouts in found]
    with progress_bars() as tell:
        needed = (draw for each in found + coins for n in TRIALS for draw in draws_of(each, n))
        known = bounds_of(needed, workers, Execution(progress=tell))
    rows, coin = (
        [SimToRealRow.of(rollouts, n, known) for rollouts in each for n in TRIALS]
        for each in (found, coins)
    )
    picture = folder / "sim-to-real.svg"
    draw_sim_to_real(rows, picture)
    show_sim_to_real(rows, coin)
    say(f"\nFigure: {picture}")
    return {
        "environments_simulated": simulated,
        "delta": DELTA,
        "seed": seed,
        "note": note,
        "errors": sum(row.errors for row in rows) / sum(row.draws for row in rows),
        "rows": [asdict(row) for row in rows],
        "coin": [asdict(row) for row in coin],
    }
