"""`pbc reproduce` and `pbc bench`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import (
    MOST,
    JsonFile,
    Seed,
    check_json,
    refuse_given,
    write_json,
)

BENCHMARKS = ("vehicle", "learn", "continuous", "monitor", "rollouts", "grasping", "swing", "fly")


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Which experiment: table1, table2, continuous, grasping or swing.",
        ),
    ],
    draws: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST,
            help="Draws of the training set; tables: of the largest, and more of smaller ones.",
        ),
    ] = 10,
    environments: Annotated[
        int | None,
        typer.Option(min=2, max=MOST, help="grasping: objects to learn from; default 2,000."),
    ] = None,
    test_environments: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="Environments to estimate the true cost on; default 100,000, for grasping 1,000.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="grasping: 300 objects and fewer grasps: a few minutes."),
    ] = False,
    seed: Seed = 0,
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the figures; default runs/NAME, or runs/reproduce-NAME for grasping "
            "and swing.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Run an experiment of the paper and print its figures beside ours.

    table1, table2 and swing take a minute or two; continuous and grasping about twenty on two
    cores, most of it, for grasping, once for labels. Interrupted ones are taken up where they were.

    Example: pbc reproduce table1 --draws 10 --json table1.json

    Example: pbc reproduce grasping --quick
    """
    experiments = {
        "table1": _table1,
        "table2": _table2,
        "continuous": _continuous,
        "swing": _swing,
    }
    if name not in experiments and name != "grasping":
        known = ", ".join([*experiments, "grasping"])
        raise ValueError(f"experiment {name!r} is unknown: choose {known}")
    if name == "grasping":
        refuse_given(context, {"draws": "is not for grasping: it learns from one draw"})
    else:
        refuse_given(context, dict.fromkeys(("environments", "quick"), "is for grasping"))
    check_json(json_file)
    named = name in ("grasping", "swing")  # `pbc learn` has runs of these names
    usual = f"reproduce-{name}{'-quick' if quick else ''}" if named else name
    folder = out_folder or Path("runs") / usual
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give a folder for the figures")
    if (folder / "manifest.json").exists():
        raise ValueError(f"{folder} holds a run: give another folder for the figures")
    if named:
        _own(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    if name == "grasping":
        from pacbayes_control.cli.grasping import reproduce as reproduce_grasping

        record = reproduce_grasping(quick, environments, test_environments, seed, folder)
        write_json(json_file, record)
    else:
        experiments[name](draws, test_environments or 100_000, seed, folder, json_file)


def _own(folder: Path, name: str) -> None:
    """Mark a folder as this command's; an error where it would replace what is somebody else's."""
    mark = folder / ".reproduced"
    if not mark.exists():
        for inside in (folder / name, folder / "flights"):
            if inside.exists():
                raise ValueError(f"{inside} is not of this command: give another folder (--out)")
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _table1(
    draws: int, test_environments: int, seed: int, folder: Path, json_file: Path | None
) -> None:
    from pacbayes_control.learn import learn_finite
    from pacbayes_control.paper.table1 import rollouts_of, table1, to_dicts
    from pacbayes_control.report.pictures import draw_rollouts, draw_table1
    from pacbayes_control.report.tables import show_table1
    from pacbayes_control.report.terminal import bar, say
    from pacbayes_control.rollouts import evaluate
    from pacbayes_control.tasks import Vehicle

    with bar("rollouts", rollouts_of(draws, test_environments)) as progress:
        rows = table1(draws, test_environments, seed, progress)
    write_json(json_file, {"rows": to_dicts(rows)})
    draw_table1(rows, folder / "table1.svg")
    task = Vehicle()
    train = task.environments(1000, stream="train", seed=seed)
    run = learn_finite(evaluate(task, task.gain_grid(), train))
    shown = task.environments(3, stream="test", seed=seed)
    draw_rollouts(task, run, shown, folder / "vehicle.svg")
    show_table1(rows)
    say(f"\nFigures: {folder / 'table1.svg'}, {folder / 'vehicle.svg'}")


def _table2(
    draws: int, test_environments: int, seed: int, folder: Path, json_file: Path | None
) -> None:
    from pacbayes_control.paper.table2 import rollouts_of, table2, to_dicts
    from pacbayes_control.report.shift_pictures import draw_fields, draw_radii, draw_table2
    from pacbayes_control.report.tables import show_table2
    from pacbayes_control.report.terminal import bar, say

    with bar("rollouts", rollouts_of(draws, test_environments)) as progress:
        rows = table2(draws, test_environments, seed, progress)
    write_json(json_file, {"rows": to_dicts(rows)})
    draw_table2(rows, folder / "table2.svg")
    draw_radii(folder / "radii.svg", seed)
    draw_fields(folder / "fields.svg", seed)
    show_table2(rows)
    figures = (folder / f"{name}.svg" for name in ("table2", "radii", "fields"))
    say(f"\nFigures: {', '.join(map(str, figures))}")


def _continuous(
    draws: int, test_environments: int, seed: int, folder: Path, json_file: Path | None
) -> None:
    from pacbayes_control.certificate import round_up
    from pacbayes_control.paper.continuous import continuous, to_dict
    from pacbayes_control.report.pictures import draw_gains
    from pacbayes_control.report.tables import show_continuous
    from pacbayes_control.report.terminal import say, watch

    with watch() as watching:
        result = continuous(draws, test_environments, seed, folder / "finished.jsonl", watching)
    write_json(json_file, to_dict(result))
    draw_gains(result.gains, folder / "gains.svg")
    show_continuous(result.rows)
    better = result.better
    say(
        f"The paper's linear policies from a prior learnt elsewhere, first draw of N = 100: bound "
        f"{round_up(better['bound'], 3)}, true cost {better['true_cost']:.3f}."
    )
    say(f"\nFigure: {folder / 'gains.svg'} (the optimised K against θ)")


def _swing(
    draws: int, test_environments: int, seed: int, folder: Path, json_file: Path | None
) -> None:
    from pacbayes_control.paper.swing import rollouts_of, swing, to_dict
    from pacbayes_control.report.flight_pictures import attachments
    from pacbayes_control.report.page import write_page
    from pacbayes_control.report.tables import show_swing
    from pacbayes_control.report.terminal import bar, say

    run, flights = folder / "swing", folder / "flights"
    with bar("rollouts", rollouts_of(draws, test_environments)) as progress:
        result = swing(draws, test_environments, seed, flights, progress)
    pictures = attachments(result, result.task.environments(3, stream="swing test", seed=seed))
    result.run.save(run, True, pictures)
    write_page(result.run, folder / "swing.html", name=str(run), pictures=pictures)
    write_json(json_file, to_dict(result))
    show_swing(result)
    say(f"\nThe run is in {run}: pbc verify {run}")
    say(f"The flights are in {flights}; to look at: {folder / 'swing.html'}")


@app.command()
def bench(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"What to measure: {', '.join(BENCHMARKS)}.",
        ),
    ],
    environments: Annotated[
        int,
        typer.Option(min=1, max=MOST, help="vehicle: environments that PyBullet simulates too."),
    ] = 120,
    scale_to: Annotated[
        int, typer.Option(min=4, max=MOST, help="vehicle: environments of the largest scaling run.")
    ] = 16_384,
    solver: Annotated[str, typer.Option(help="learn: solver of the programmes.")] = "clarabel",
    minutes: Annotated[
        float, typer.Option(min=0.05, max=1440, help="fly: how long to fly, in real time.")
    ] = 10.0,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure speed against a reference in the same run; fly: deadlines met beside other work.

    Example: pbc bench vehicle --json bench.json
    """
    from pacbayes_control import bench as benchmarks
    from pacbayes_control.report.tables import show_bench
    from pacbayes_control.report.terminal import bar, say

    check_json(json_file)
    if name != "vehicle":
        names = ("environments", "scale_to")
        refuse_given(context, dict.fromkeys(names, "is for bench vehicle"))
    if name != "learn":
        refuse_given(context, {"solver": "is for bench learn"})
    if name != "fly":
        refuse_given(context, {"minutes": "is for bench fly"})
    if name == "vehicle":
        with bar("PyBullet rollouts", environments * 50) as progress:
            result = benchmarks.bench_vehicle(environments, scale_to, seed, progress)
    elif name == "learn":
        result = benchmarks.bench_learn(solver, seed)
    elif name == "continuous":
        result = benchmarks.bench_continuous(seed=seed)
    elif name == "monitor":
        result = benchmarks.bench_monitor(seed=seed)
    elif name == "rollouts":
        result = benchmarks.bench_rollouts()
    elif name == "grasping":
        result = benchmarks.bench_grasping(seed=seed)
    elif name == "swing":
        result = benchmarks.bench_swing(seed=seed)
    elif name == "fly":
        from pacbayes_control.flight.soak import soak

        result = soak(minutes)
    else:
        raise ValueError(f"benchmark {name!r} is unknown: choose {', '.join(BENCHMARKS)}")
    record = asdict(result)
    write_json(json_file, record)
    show_bench(name, record)
    if name == "grasping" and record["ratio"] is None:
        say("PyBullet is not installed, so there is no reference: pip install '.[pybullet]'")
