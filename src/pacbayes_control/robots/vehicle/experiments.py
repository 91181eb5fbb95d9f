"""The paper's experiments with the vehicle, as `pbc reproduce` runs them: tables and figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pacbayes_control.certify.text import round_up
from pacbayes_control.cli.options import DeviceOption, DrawsOption, Seed, TestEnvironments
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.console import progress_bars, say
from pacbayes_control.robots.planar.pictures import draw_rollouts
from pacbayes_control.robots.vehicle import Vehicle, continuous, pictures, table1, table2
from pacbayes_control.rollouts import Execution, evaluate


def reproduce_table1(
    folder: Path,
    *,
    draws: DrawsOption = 10,
    test_environments: TestEnvironments = 100_000,
    seed: Seed = 0,
    device: DeviceOption = None,
) -> dict[str, Any]:
    """Table 1: bound and true cost for N = 100 to 10,000 environments. A minute.

    Example: pbc reproduce table1 --draws 10 --json table1.json
    """
    with progress_bars() as tell:
        rows = table1.table1(
            draws, test_environments, seed, Execution(progress=tell, device=device)
        )
    pictures.draw_table1(rows, folder / "table1.svg")
    task = Vehicle()
    train = task.environments(1000, stream="train", seed=seed)
    run = learn_finite(evaluate(task, task.policies, train))
    shown = task.environments(3, stream="test", seed=seed)
    draw_rollouts(task, run, shown, file=folder / "vehicle.svg")
    table1.show_table1(rows)
    say(f"\nFigures: {folder / 'table1.svg'}, {folder / 'vehicle.svg'}")
    return {"rows": [asdict(row) for row in rows]}


def reproduce_table2(
    folder: Path,
    *,
    draws: DrawsOption = 10,
    test_environments: TestEnvironments = 100_000,
    seed: Seed = 0,
    device: DeviceOption = None,
) -> dict[str, Any]:
    """Table 2: policies that are robust to a shift of the environments. Two minutes.

    Example: pbc reproduce table2 --draws 10 --json table2.json
    """
    with progress_bars() as tell:
        rows = table2.table2(
            draws, test_environments, seed, Execution(progress=tell, device=device)
        )
    pictures.draw_table2(rows, folder / "table2.svg")
    pictures.draw_radii(folder / "radii.svg", seed)
    pictures.draw_fields(folder / "fields.svg", seed)
    table2.show_table2(rows)
    figures = (folder / f"{name}.svg" for name in ("table2", "radii", "fields"))
    say(f"\nFigures: {', '.join(map(str, figures))}")
    return {"rows": [asdict(row) for row in rows]}


def reproduce_continuous(
    folder: Path,
    *,
    draws: DrawsOption = 10,
    test_environments: TestEnvironments = 100_000,
    seed: Seed = 0,
    device: DeviceOption = None,
) -> dict[str, Any]:
    """Continuous policies: the paper's linear ones, and networks. Fifty minutes on two cores.

    Example: pbc reproduce continuous --draws 10 --json continuous.json
    """
    finished = folder / "finished.jsonl"
    with progress_bars() as tell:
        how = Execution(progress=tell, device=device)
        result = continuous.continuous(draws, test_environments, seed, finished, how)
    pictures.draw_gains(result.gains, folder / "gains.svg")
    continuous.show_continuous(result.rows)
    better = result.better
    say(
        f"The paper's linear policies from a prior learnt elsewhere, first draw of N = 100: bound "
        f"{round_up(better['bound'], 3)}, true cost {better['true_cost']:.3f}."
    )
    say(f"\nFigure: {folder / 'gains.svg'} (the optimised K against θ)")
    return continuous.to_dict(result)
