"""The command `pbc`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import pacbayes_control

# Everything else is imported inside the commands: `pbc --help` should not wait for a simulator.

app = typer.Typer(
    name="pbc",
    help="Learn a policy for a robot, and a certificate of how it will do in new environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out, err = Console(), Console(stderr=True)

# Some versions of Typer stand on Click and some carry a copy: its base class of errors, either way.
USAGE_ERRORS: Any = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")
]
Delta = Annotated[float, typer.Option(help="Probability that the certificate may be wrong.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random stream.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is in the folder.")]


def main() -> None:
    """Run `pbc`: one clear line and exit code 2 for bad input, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERRORS as error:
        code = _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = 130
    except (ValueError, OSError, ImportError, MemoryError) as error:
        code = _complain(str(error) or type(error).__name__)
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
    task: Annotated[str, typer.Argument(help="What to learn: vehicle.")],
    environments: Annotated[int, typer.Option(min=2, help="Training environments.")] = 1000,
    delta: Delta = 0.01,
    method: Annotated[str, typer.Option(help="kl, kl-maurer, pinsker or occam.")] = "kl",
    objective: Annotated[
        str | None, typer.Option(help="What to minimise, if not the method's own bound.")
    ] = None,
    prior: Annotated[
        Path | None, typer.Option(help="Prior over the policies (.json, .npy, .csv); else uniform.")
    ] = None,
    test_environments: Annotated[
        int, typer.Option(min=0, help="New environments to estimate the true cost on.")
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
    from pacbayes_control.costs import read_prior
    from pacbayes_control.learn import learn_finite
    from pacbayes_control.report.pictures import draw_vehicle
    from pacbayes_control.rollouts import evaluate, mean_costs
    from pacbayes_control.run import check_free
    from pacbayes_control.tasks import Vehicle

    if task != "vehicle":
        raise ValueError(f"task {task!r} is unknown: choose vehicle")
    folder = out_folder or Path("runs") / task
    Budget(delta)
    check_free(folder, force)
    _check_writable(json_file)
    vehicle = Vehicle()
    policies, names = vehicle.gain_grid(), vehicle.gain_names()
    train = vehicle.environments(environments, stream="train", seed=seed)
    with _bar("training rollouts") as progress:
        costs = evaluate(vehicle, policies, train, names, progress)
    weights = read_prior(prior, costs) if prior else None
    run = learn_finite(costs, delta, method, objective, weights, policies)
    run.save(folder, overwrite=force)
    test = vehicle.environments(max(3, test_environments), stream="test", seed=seed)
    draw_vehicle(vehicle, policies, run.prior, run.posterior, test[:3], folder / "picture.svg")

    result = {**run.certificate.to_dict(), "run": str(folder)}
    _print_certificate(run)
    if test_environments:
        with _bar("test rollouts") as progress:
            means = mean_costs(vehicle, policies, test[:test_environments], [train], progress)
        result["true_cost"] = float(run.posterior.probabilities @ means)
        result["test_environments"] = test_environments
        out.print(
            f"Estimated on {test_environments:,} environments that it has never seen: "
            f"{result['true_cost']:.4f}."
        )
    out.print(f"\nThe run is in {folder} (picture: {folder / 'picture.svg'}).", soft_wrap=True)
    out.print(f"Anybody can check it: pbc verify {folder}", soft_wrap=True)
    _write_json(json_file, result)


@app.command()
def certify(
    costs_file: Annotated[
        Path, typer.Argument(metavar="COSTS", help="Environments × policies: .npy, .npz or .csv.")
    ],
    delta: Delta = 0.01,
    method: Annotated[
        str, typer.Option(help="The certificate that counts: kl, kl-maurer, pinsker, occam, best.")
    ] = "kl",
    prior: Annotated[
        Path | None, typer.Option(help="Prior over the policies (.json, .npy, .csv); else uniform.")
    ] = None,
    at_least: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARE:POLICIES", help="Constraint such as 0.2:3,7-9 (repeatable)."),
    ] = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARE:POLICIES", help="Constraint such as 0.5:0 (repeatable)."),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="Solver for constraints: clarabel, scs, ecos, mosek.")
    ] = "clarabel",
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the chosen run in.")
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Certify a matrix of costs by every method that applies.

    Example: pbc certify campaign.csv --delta 0.05 --out runs/campaign
    """
    from pacbayes_control.costs import read_costs, read_prior
    from pacbayes_control.learn import compare
    from pacbayes_control.run import check_free

    _check_writable(json_file)
    if out_folder:
        check_free(out_folder, force)
    costs, weights = read_costs(costs_file)
    if prior:
        weights = read_prior(prior, costs)
    limits = [_constraint(text, costs, lower=True) for text in at_least or []]
    limits += [_constraint(text, costs, lower=False) for text in at_most or []]
    comparison = compare(costs, delta, weights, method, limits, solver)
    _print_comparison(comparison, method)
    if out_folder:
        comparison.chosen.save(out_folder, overwrite=force)
        out.print(f"\nThe run is in {out_folder}.", soft_wrap=True)
    _write_json(
        json_file,
        {
            "certificates": [run.certificate.to_dict() for run in comparison.runs],
            "chosen": comparison.chosen.certificate.to_dict(),
        },
    )


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    json_file: JsonFile = None,
) -> None:
    """Recompute a certificate from its files; exit code 1 if it does not hold.

    Example: pbc verify runs/vehicle
    """
    from pacbayes_control.run import AlteredRun
    from pacbayes_control.verification import InvalidCertificate
    from pacbayes_control.verification import verify as verify_run

    _check_writable(json_file)
    try:
        verification = verify_run(run)
    except (AlteredRun, InvalidCertificate) as error:
        _write_json(json_file, {"verified": False, "reason": str(error)})
        print(f"pbc: NOT VERIFIED: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    out.print(str(verification), soft_wrap=True, highlight=False)
    record = verification.certificate.to_dict()
    _write_json(json_file, {**record, "verified": True, "recomputed": verification.recomputed})


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="Which experiment: table1.")],
    draws: Annotated[
        int, typer.Option(min=1, help="Draws of 10,000 environments (ten times as many of fewer).")
    ] = 10,
    test_environments: Annotated[
        int, typer.Option(min=1, help="Environments to estimate the true cost on.")
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
    from pacbayes_control.paper.table1 import table1, to_dicts
    from pacbayes_control.report.pictures import draw_table1, draw_vehicle
    from pacbayes_control.rollouts import evaluate
    from pacbayes_control.tasks import Vehicle

    if name != "table1":
        raise ValueError(f"experiment {name!r} is unknown: choose table1")
    _check_writable(json_file)
    folder = out_folder or Path("runs") / name
    folder.mkdir(parents=True, exist_ok=True)
    with _bar("rollouts") as progress:
        rows = table1(draws, test_environments, seed, progress)
    _write_json(json_file, {"rows": to_dicts(rows)})
    draw_table1(rows, folder / "table1.svg")
    task = Vehicle()
    policies = task.gain_grid()
    train = task.environments(1000, stream="train", seed=seed)
    run = learn_finite(evaluate(task, policies, train), policies=policies)
    shown = task.environments(3, stream="test", seed=seed)
    draw_vehicle(task, policies, run.prior, run.posterior, shown, folder / "vehicle.svg")
    _print_table1(rows)
    out.print(f"\nFigures: {folder / 'table1.svg'}, {folder / 'vehicle.svg'}", soft_wrap=True)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="What to measure: vehicle or learn.")],
    environments: Annotated[
        int, typer.Option(min=1, help="vehicle: environments that PyBullet simulates too.")
    ] = 120,
    scale_to: Annotated[
        int, typer.Option(min=4, help="vehicle: environments of the largest scaling run.")
    ] = 16_384,
    solver: Annotated[str, typer.Option(help="learn: solver of the programmes.")] = "clarabel",
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure speed against a reference in the same run.

    Example: pbc bench vehicle --json bench.json
    """
    from dataclasses import asdict

    from pacbayes_control import bench as benchmarks

    _check_writable(json_file)
    if name == "vehicle":
        with _bar("PyBullet rollouts") as progress:
            result = benchmarks.bench_vehicle(environments, scale_to, seed, progress)
    elif name == "learn":
        result = benchmarks.bench_learn(solver, seed)
    else:
        raise ValueError(f"benchmark {name!r} is unknown: choose vehicle or learn")
    record = asdict(result)
    _write_json(json_file, record)
    table = Table("measure", "value", title=f"pbc bench {name}")
    for key, value in record.items():
        if key != "scaling":
            table.add_row(key.replace("_", " "), f"{value:,.6g}" if _number(value) else str(value))
    out.print(table)
    if "scaling" in record:
        scaling = Table("environments", "policies", "µs a rollout", "peak MiB")
        for row in record["scaling"]:
            scaling.add_row(
                f"{row['environments']:,}",
                f"{row['policies']}",
                f"{row['microseconds']:.2f}",
                f"{row['peak_mib']:.0f}",
            )
        out.print(scaling)


# ---- what the commands share --------------------------------------------------------------------


@contextmanager
def _bar(title: str) -> Iterator[Any]:
    """A progress bar on a terminal, nothing in a pipe; yields the callback for it."""
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _check_writable(json_file: Path | None) -> None:
    """Before the work, not after it."""
    if json_file and not json_file.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {json_file.parent} to write {json_file.name} in")
    if json_file and json_file.is_dir():
        raise ValueError(f"{json_file} is a folder, not a file to write JSON to")


def _write_json(json_file: Path | None, record: Any) -> None:
    if json_file:
        json_file.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _constraint(text: str, costs: Any, lower: bool) -> Any:
    """'0.2:3,7-9' or '0.2:name,name' as a linear constraint on the posterior."""
    import numpy as np
    from scipy.optimize import LinearConstraint

    share, colon, chosen = text.partition(":")
    try:
        value = float(share)
    except ValueError:
        value = np.nan
    if not colon or not 0 <= value <= 1:
        raise ValueError(f"constraint {text!r}: write SHARE:POLICIES, such as 0.2:3,7-9")
    row = np.zeros(costs.policies)
    for part in chosen.split(","):
        row[_policies(part.strip(), costs)] = 1
    return LinearConstraint(row, *((value, np.inf) if lower else (-np.inf, value)))


def _policies(part: str, costs: Any) -> slice:
    if part in costs.names:
        index = costs.names.index(part)
        return slice(index, index + 1)
    first, _, last = part.partition("-")
    if first.isdigit() and (last or first).isdigit():
        start, stop = int(first), int(last or first) + 1
        if start < stop <= costs.policies:
            return slice(start, stop)
    raise ValueError(f"{part!r} names no policy: give a name, or numbers 0 to {costs.policies - 1}")


def _print_certificate(run: Any) -> None:
    c = run.certificate
    out.print(f"\n[bold]{c.sentence}[/bold]\n", highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("bound", f"{c.bound:.4f}  (method {c.method}, δ = {c.delta:g})")
    table.add_row("cost in training", f"{c.empirical_cost:.4f}")
    table.add_row("KL from the prior", f"{c.kl:.3f} nats")
    if c.policy is None:
        shares = run.posterior.probabilities
        top = [int(i) for i in shares.argsort()[::-1][:3] if shares[i] > 0.005]
        likely = ", ".join(f"{run.costs.name(i)} ({shares[i]:.0%})" for i in top)
        table.add_row("most likely", likely)
    out.print(table, highlight=False)


def _print_comparison(comparison: Any, method: str) -> None:
    first = comparison.runs[0]
    out.print(
        f"{first.certificate.environments} environments × {first.certificate.policies} policies, "
        f"confidence {100 * (1 - first.certificate.delta):.10g} %\n",
        highlight=False,
    )
    table = Table("method", "bound", "in training", "KL", "promises the expected cost of")
    chosen = comparison.chosen.certificate
    for run in comparison.runs:
        c = run.certificate
        if c.policy is None:
            who = "a policy drawn anew each time"
        else:
            who = f"one policy, always: {run.costs.name(c.policy)}"
        mark = " *" if c.method == chosen.method and method != "best" else ""
        cells = f"{c.bound:.4f}", f"{c.empirical_cost:.4f}", f"{c.kl:.3f}", who
        table.add_row(c.method + mark, *cells)
    if method == "best":
        who = "the better of kl and occam, δ shared"
        cells = f"{chosen.bound:.4f}", f"{chosen.empirical_cost:.4f}", f"{chosen.kl:.3f}", who
        table.add_row("best *", *cells)
    out.print(table)
    out.print(
        "Each line holds on its own. The one marked * was chosen before the costs were seen, and "
        "counts; to keep whichever comes out smallest, pay for it: --method best.\n",
    )
    out.print(f"[bold]{chosen.sentence}[/bold]", highlight=False)


def _print_table1(rows: Any) -> None:
    table = Table(title="Table 1: the vehicle, δ = 0.01", title_justify="left")
    for heading in (
        "N",
        "draws",
        "method",
        "bound",
        "± s.d.",
        "true cost",
        "paper: bound",
        "true cost",
    ):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        published = row.method == "paper"
        table.add_row(
            f"{row.environments:,}" if published else "",
            f"{row.draws}" if published else "",
            row.method,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}" if published else "",
            f"{row.paper_true_cost:.3f}" if published else "",
            end_section=row.method == "occam",
        )
    out.print(table)
    out.print(
        "paper: minimises C_PAC, reports Maurer's bound (Algorithm 1). kl: minimises the kl bound "
        "with ξ(N). occam: the best single policy. The last two pay once for policies that are "
        "equal. Means over draws of the training environments; the paper's own columns show one."
    )


if __name__ == "__main__":
    main()
