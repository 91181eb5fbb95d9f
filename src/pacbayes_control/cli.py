"""The command `pbc`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

import pacbayes_control

# Everything else is imported inside the commands: `pbc --help` should not wait for a simulator.

app = typer.Typer(
    name="pbc",
    help="Learn a policy for a robot, and a certificate of how it will do in new environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# Some versions of Typer stand on Click and some carry a copy: its base class of errors, either way.
USAGE_ERRORS: Any = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for the terminal."),
]
Delta = Annotated[
    float, typer.Option(help="Probability that the certificate may be wrong: 1 - confidence.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of every random stream.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")]
Prior = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Prior over the policies: .json, .csv or .npy."),
]
MOST = 1_000_000_000  # of anything that is counted
METHODS = (
    "kl (PAC-Bayes, a mixture of policies), kl-maurer and pinsker (the same, looser), "
    "occam (one policy), or best (the smaller of kl and occam, paid for)."
)


def main() -> None:
    """Run `pbc`: one clear line and exit code 2 for bad input, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no error
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERRORS as error:
        code = _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except (ValueError, OSError, ImportError, MemoryError, ArithmeticError) as error:
        code = _complain(str(error) or type(error).__name__)
    if code == 130:
        _complain("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    if message:  # Click's error for a missing command has none: it has shown the help
        print("pbc:", " ".join(message.split()), file=sys.stderr)
    return 2


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        print(pacbayes_control.__version__)
        raise typer.Exit


@app.command()
def learn(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to learn: vehicle.")],
    environments: Annotated[
        int, typer.Option(min=2, max=MOST, help="Training environments.")
    ] = 1000,
    delta: Delta = 0.01,
    method: Annotated[str, typer.Option(help=f"The certificate: {METHODS}")] = "kl",
    objective: Annotated[
        str | None, typer.Option(help="What to minimise, if not the method's own bound.")
    ] = None,
    prior: Prior = None,
    test_environments: Annotated[
        int, typer.Option(min=0, max=MOST, help="New environments to estimate the true cost on.")
    ] = 20_000,
    seed: Seed = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; default runs/TASK.")
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Learn a policy for a task and certify it.

    Example: pbc learn vehicle --environments 1000 --delta 0.01 --out runs/vehicle
    """
    from pacbayes_control.certificate import Budget
    from pacbayes_control.learn import learn_best, learn_finite
    from pacbayes_control.learn.finite import check_method
    from pacbayes_control.reading import read_prior
    from pacbayes_control.report.pictures import draw_vehicle
    from pacbayes_control.report.terminal import bar, say, show_certificate
    from pacbayes_control.rollouts import evaluate, mean_costs
    from pacbayes_control.run import check_free
    from pacbayes_control.tasks import Vehicle

    if task != "vehicle":
        raise ValueError(f"task {task!r} is unknown: choose vehicle")
    if method == "best" and objective:
        raise ValueError("best takes no objective: it minimises each method's own bound")
    if method != "best":
        check_method(method, objective)
    Budget(delta)  # an error for a delta that is none, before the rollouts
    folder = out_folder or Path("runs") / task
    check_free(folder, force)
    _check_writable(json_file)
    vehicle = Vehicle()
    policies, names = vehicle.gain_grid(), vehicle.gain_names()
    weights = read_prior(prior, names) if prior else None
    train = vehicle.environments(environments, stream="train", seed=seed)
    with bar("training rollouts (compiled once)", environments * len(policies)) as progress:
        costs = evaluate(vehicle, policies, train, names, progress)
    if method == "best":
        run = learn_best(costs, delta, weights)
    else:
        run = learn_finite(costs, delta, method, objective, weights)
    test = vehicle.environments(max(3, test_environments), stream="test", seed=seed)
    picture = BytesIO()
    draw_vehicle(vehicle, policies, run.prior, run.posterior, test[:3], picture)
    run.save(folder, force, {"picture.svg": picture.getvalue()})

    result = {**run.certificate.to_dict(), "run": str(folder)}
    show_certificate(run)
    if test_environments:
        with bar("test rollouts", test_environments * len(policies)) as progress:
            means = mean_costs(vehicle, policies, test[:test_environments], [train], progress)
        result["true_cost"] = float(run.posterior.probabilities @ means)
        result["test_environments"] = test_environments
        say(
            f"Estimated on {test_environments:,} environments that it has never seen: "
            f"{result['true_cost']:.4f}."
        )
    say(f"\nThe run is in {folder} (picture: {folder / 'picture.svg'}).")
    say(f"Anybody can check it: pbc verify {folder}")
    _write_json(json_file, result)


@app.command()
def certify(
    costs_file: Annotated[
        Path, typer.Argument(metavar="COSTS", help="Environments × policies: .csv, .npy or .npz.")
    ],
    delta: Delta = 0.01,
    method: Annotated[
        str, typer.Option(help=f"The certificate to use, decided on beforehand: {METHODS}")
    ] = "kl",
    prior: Prior = None,
    at_least: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHARE:POLICIES",
            help="Constraint on the mixture, such as 0.2:slow,careful; names, or numbers from 0 "
            "such as 3,7-9 (repeatable).",
        ),
    ] = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARE:POLICIES", help="Likewise, from above (repeatable)."),
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            help="Minimise by the paper's relative entropy programmes with this solver: clarabel "
            "(the default for constraints), scs, ecos, mosek."
        ),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the chosen run in.")
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Certify a matrix of costs by every method that applies.

    One row an environment, one column a policy, costs from 0 (success) to 1 (failure). A CSV file
    may have a header with the policies' names, a first column with the environments' (headed
    site), and a row named prior.

    Example: pbc certify examples/campaign.csv --delta 0.05 --out runs/campaign
    """
    from pacbayes_control.learn import compare
    from pacbayes_control.learn.constraints import at_least_on, at_most_on
    from pacbayes_control.reading import read_campaign, read_prior
    from pacbayes_control.report.terminal import say, show_comparison
    from pacbayes_control.run import check_free

    _check_writable(json_file, costs_file)
    if out_folder:
        check_free(out_folder, force)
    campaign = read_campaign(costs_file)
    costs, weights = campaign.costs, campaign.prior
    if prior and weights:
        raise ValueError(f"{costs_file.name} has a prior of its own: give one, not two")
    if prior:
        weights = read_prior(prior, costs.names or costs.policies)
    limits = [at_least_on(text, costs) for text in at_least or []]
    limits += [at_most_on(text, costs) for text in at_most or []]
    comparison = compare(costs, delta, weights, method, limits, solver)
    say(f"{costs_file}: {campaign.reading}.")
    if costs.policies > costs.environments:
        say("There are more policies than environments: are rows and columns as they should be?")
    show_comparison(comparison, method)
    if out_folder:
        comparison.chosen.save(out_folder, overwrite=force)
        say(f"\nThe run is in {out_folder}.")
    posterior = comparison.chosen.posterior.probabilities
    shares = {costs.name(i): float(posterior[i]) for i in range(costs.policies)}
    _write_json(
        json_file,
        {
            "certificates": [run.certificate.to_dict() for run in comparison.runs],
            "chosen": comparison.chosen.certificate.to_dict(),
            "posterior": shares,
        },
    )


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    json_file: JsonFile = None,
) -> None:
    """Recompute a certificate from its files.

    Exit code 0 if it holds, 1 if it does not or a file was altered, 2 if the run cannot be read.

    Example: pbc verify runs/vehicle
    """
    from pacbayes_control.report.terminal import say
    from pacbayes_control.run import AlteredRun
    from pacbayes_control.verification import InvalidCertificate
    from pacbayes_control.verification import verify as verify_run

    _check_writable(json_file)
    try:
        verification = verify_run(run)
    except (AlteredRun, InvalidCertificate) as error:
        _write_json(json_file, {"verified": False, "reason": str(error)})
        _complain(f"NOT VERIFIED: {error}")
        raise typer.Exit(1) from None
    say(str(verification))
    record = verification.certificate.to_dict()
    _write_json(json_file, {**record, "verified": True, "recomputed": verification.recomputed})


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which experiment: table1.")],
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=MOST, help="Draws of the largest training set; more of smaller ones."
        ),
    ] = 10,
    test_environments: Annotated[
        int, typer.Option(min=1, max=MOST, help="Environments to estimate the true cost on.")
    ] = 100_000,
    seed: Seed = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the figures; default runs/NAME.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Run an experiment of the paper and print its figures beside ours.

    Example: pbc reproduce table1 --draws 10 --json table1.json
    """
    from pacbayes_control.learn import learn_finite
    from pacbayes_control.paper.table1 import rollouts_of, table1, to_dicts
    from pacbayes_control.report.pictures import draw_table1, draw_vehicle
    from pacbayes_control.report.terminal import bar, say, show_table1
    from pacbayes_control.rollouts import evaluate
    from pacbayes_control.tasks import Vehicle

    if name != "table1":
        raise ValueError(f"experiment {name!r} is unknown: choose table1")
    _check_writable(json_file)
    folder = out_folder or Path("runs") / name
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give a folder for the figures")
    folder.mkdir(parents=True, exist_ok=True)
    with bar("rollouts", rollouts_of(draws, test_environments)) as progress:
        rows = table1(draws, test_environments, seed, progress)
    _write_json(json_file, {"rows": to_dicts(rows)})
    draw_table1(rows, folder / "table1.svg")
    task = Vehicle()
    policies = task.gain_grid()
    train = task.environments(1000, stream="train", seed=seed)
    run = learn_finite(evaluate(task, policies, train))
    shown = task.environments(3, stream="test", seed=seed)
    draw_vehicle(task, policies, run.prior, run.posterior, shown, folder / "vehicle.svg")
    show_table1(rows)
    say(f"\nFigures: {folder / 'table1.svg'}, {folder / 'vehicle.svg'}")


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure: vehicle or learn.")],
    environments: Annotated[
        int,
        typer.Option(min=1, max=MOST, help="vehicle: environments that PyBullet simulates too."),
    ] = 120,
    scale_to: Annotated[
        int, typer.Option(min=4, max=MOST, help="vehicle: environments of the largest scaling run.")
    ] = 16_384,
    solver: Annotated[str, typer.Option(help="learn: solver of the programmes.")] = "clarabel",
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure speed against a reference in the same run.

    Example: pbc bench vehicle --json bench.json
    """
    from pacbayes_control import bench as benchmarks
    from pacbayes_control.report.terminal import bar, show_bench

    _check_writable(json_file)
    if name == "vehicle":
        with bar("PyBullet rollouts", environments * 50) as progress:
            result = benchmarks.bench_vehicle(environments, scale_to, seed, progress)
    elif name == "learn":
        result = benchmarks.bench_learn(solver, seed)
    else:
        raise ValueError(f"benchmark {name!r} is unknown: choose vehicle or learn")
    record = asdict(result)
    _write_json(json_file, record)
    show_bench(name, record)


# ---- what the commands share --------------------------------------------------------------------


def _check_writable(json_file: Path | None, *inputs: Path) -> None:
    """Before the work, not after it."""
    if json_file and json_file.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"{json_file} is the input: write the JSON to another file")
    if json_file and not json_file.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {json_file.parent} to write {json_file.name} in")
    if json_file and json_file.is_dir():
        raise ValueError(f"{json_file} is a folder, not a file to write JSON to")


def _write_json(json_file: Path | None, record: Any) -> None:
    if json_file is None:
        return
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    if str(json_file) == "-":
        sys.stdout.write(text)
    else:
        json_file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
