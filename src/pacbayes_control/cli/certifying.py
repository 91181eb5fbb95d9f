"""`pbc certify` and `pbc check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pacbayes_control.certify import statistics
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.run import check_free
from pacbayes_control.certify.shift import check_statistic, under_shift
from pacbayes_control.certify.statistics import Statistic
from pacbayes_control.certify.tables.campaigns import read_campaign, read_policies, read_prior
from pacbayes_control.certify.tables.pilots import read_pilot
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app, show_traceback, tracebacks
from pacbayes_control.report.console import say
from pacbayes_control.report.summary import hardest_records
from pacbayes_control.report.terminal import show_checks, show_methods
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import load_task

if TYPE_CHECKING:
    from pacbayes_control.certify.costs import Costs
    from pacbayes_control.certify.distributions import Categorical
    from pacbayes_control.learn import MethodComparison

Method = Literal["occam", "kl", "betting", "kl-maurer", "pinsker", "best", "tilted"]


@dataclass(frozen=True)
class CertifyOptions:
    """A table of costs, and how to certify it."""

    costs_file: Annotated[
        Path,
        typer.Argument(metavar="COSTS", help="Costs: .csv, .tsv, .npy, .npz or .parquet."),
    ]
    delta: float = option(0.01, "Probability that the certificate may be wrong: 1 - confidence.")
    method: Method | None = option(
        None,
        "The certificate to use, decided on beforehand: occam (one policy, the default), kl "
        "(PAC-Bayes, a mixture of policies; the default under constraints), betting (the same by "
        "bets, for graded costs), kl-maurer and pinsker (looser), or best (the smaller of kl and "
        "occam, paid for). With --ball kl:B and graded costs, tilted.",
    )
    of: str = option(
        "mean",
        statistics.HELP,
        metavar="STATISTIC",
    )
    parts: str | None = option(
        None,
        "Parts of the world to certify beside the whole, by the parameters in a table with one row "
        'a rollout: "wind<8,wind>=8". They share a half of delta. Declare them before any rollout, '
        "by what is known of an environment before it.",
        metavar="A<X,…",
    )
    prior: Path | None = option(
        None, "Prior over the policies: .json, .csv or .npy.", metavar="FILE"
    )
    pilot: Path | None = option(
        None,
        "Costs of the same policies in other environments, a table like COSTS or a run: the prior "
        "gives more weight to those that cost less there.",
        metavar="FILE",
    )
    simulated: options.SimulatedOption = None
    more_simulated: options.MoreSimulatedOption = None
    at_least: list[str] | None = option(
        None,
        "Constraint on the mixture, such as 0.2:slow,careful; names, or numbers from 0 such as "
        "3,7-9 (repeatable).",
        metavar="SHARE:POLICIES",
    )
    at_most: list[str] | None = option(
        None, "Likewise, from above (repeatable).", metavar="SHARE:POLICIES"
    )
    solver: str | None = option(
        None,
        "Minimise by the paper's relative entropy programmes with this solver: clarabel (the "
        "default for constraints), scs, ecos, mosek.",
    )
    ball: options.BallOption = None
    header: bool | None = option(
        None,
        "Whether the first line is a header, where the table does not tell.",
        flag="--header/--no-header",
    )
    graded: bool | None = option(
        None,
        "Whether costs between 0 and 1 may occur, where the table does not tell: few rows with "
        "fractions are then environments, and not a header or a summary.",
        flag="--graded/--binary",
    )
    out_folder: Path | None = option(None, "Folder to keep the chosen run in.", flag="--out")
    force: options.Force = False
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def certify(asked: CertifyOptions) -> None:
    """Certify a matrix of costs by every method that applies.

    One row an environment, one column a policy, costs from 0 (success) to 1 (failure). A CSV file
    may have a header with the policies' names, a first column with the environments' (headed
    site), and a row named prior. Or one row a rollout, as pbc evaluate writes it: columns
    environment, policy and cost, and parameters of the environment.

    Example: pbc certify examples/campaign.csv --delta 0.05 --out runs/campaign
    """
    file, out = asked.costs_file, asked.out_folder
    options.check_json(asked.json_file, file)
    options.check_simulated(asked.simulated, asked.more_simulated, asked.json_file)
    if out:
        check_free(out, asked.force)
    table = read_campaign(file, header=asked.header, graded=asked.graded)
    costs, weights = table.costs, table.prior
    if asked.prior and asked.pilot:
        raise ValueError("a pilot gives the prior: leave out --prior or --pilot")
    if (asked.prior or asked.pilot) and weights:
        raise ValueError(f"{file.name} has a prior of its own: give one, not two")
    policies = costs.names or costs.policies
    if asked.prior:
        weights = read_prior(asked.prior, policies)
    if asked.pilot:
        weights = read_pilot(asked.pilot, policies, header=asked.header, graded=asked.graded)
    say(f"{file}: {table.reading}.")
    if asked.simulated:
        costs = _with_simulation(costs, asked.simulated, asked)
    comparison = _certified(costs, weights, asked)
    chosen = comparison.chosen
    if costs.policies > costs.environments:
        say("There are more policies than environments: are rows and columns as they should be?")
    show_methods(comparison, asked.method or chosen.certificate.method)
    if out:
        chosen.save(out, overwrite=asked.force)
        say(f"\nThe run is in {out}.")
    posterior = chosen.posterior.probabilities
    options.write_json(
        asked.json_file,
        {
            "certificates": [run.certificate.to_dict() for run in comparison.runs],
            "chosen": chosen.certificate.to_dict(),
            "posterior": {costs.name(i): float(posterior[i]) for i in range(costs.policies)},
            "hardest": hardest_records(chosen),
        },
    )


def _with_simulation(costs: Costs, simulated: Path, asked: CertifyOptions) -> Costs:
    """The costs, with the tables in simulation beside them."""
    from pacbayes_control.certify.simulated import with_simulation

    tables = []
    for file in (simulated, asked.more_simulated):
        if file is not None:
            table = read_campaign(file, header=asked.header, graded=asked.graded or None)
            say(f"{file}: {table.reading}.")
            tables.append(table.costs)
    return with_simulation(costs, *tables)


def _certified(costs: Costs, prior: Categorical | None, asked: CertifyOptions) -> MethodComparison:
    """The certificates that were asked for, side by side."""
    from pacbayes_control.learn import MethodComparison, compare_methods, learn_finite
    from pacbayes_control.learn.finite import learn_in_parts
    from pacbayes_control.learn.relative_entropy import limit_on

    method, delta = asked.method, asked.delta
    limits = [limit_on(text, costs) for text in asked.at_least or []]
    limits += [limit_on(text, costs, at_most=True) for text in asked.at_most or []]
    ball = Ball.parse(asked.ball) if asked.ball is not None else None
    if ball:
        check_statistic(Statistic.parse(asked.of))
    if asked.parts is not None:
        unfit = ball or limits or asked.solver or asked.of != "mean"
        if unfit or method not in (None, "occam", "kl", "kl-maurer", "pinsker"):
            raise ValueError(
                "--parts is for the mean cost by occam, kl, kl-maurer or pinsker: leave out --of, "
                "--ball, --solver and constraints"
            )
        parts = asked.parts.split(",")
        run = learn_in_parts(costs, parts, delta, method=method, prior=prior)
        return MethodComparison((run,), run)
    if asked.of == "mean":
        return compare_methods(
            costs,
            delta,
            prior=prior,
            method=method,
            constraints=limits,
            solver=asked.solver,
            ball=ball,
        )
    if limits or asked.solver or method not in (None, "occam"):
        raise ValueError(f"--of {asked.of} is for one policy: use occam, without constraints")
    run = learn_finite(costs, delta, method=method, prior=prior, of=asked.of)
    run = under_shift(run, ball) if ball else run
    return MethodComparison((run,), run)


@dataclass(frozen=True)
class CheckOptions:
    """A task, and what to roll out."""

    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="A task of yours, robot.py:task, or one that is installed."
        ),
    ]
    policies: Path | None = option(
        None, "Policies, one a row: .npy, or .csv, with names first.", metavar="FILE"
    )
    environments: int = option(8, "Environments to roll out in.", least=2, most=options.MOST)
    rollout_timeout: float | None = option(
        None, "Seconds after which a rollout is ended, and named.", metavar="S"
    )
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def check(asked: CheckOptions) -> None:
    """Test whether a task keeps the promises that a certificate rests on.

    Same seed, same cost; costs in [0, 1]; environments that look independent and make a difference;
    no global random state; the same in other processes; and how fast it is. Exit code 0 if all are
    kept, 1 if not. A WARNING is not a failure, but read it.

    Example: pbc check examples/cartpole.py:task
    """
    from pacbayes_control.rollouts.conformance import check_task, passed

    policies, json_file = asked.policies, asked.json_file
    options.check_json(json_file, *([policies] if policies else []))
    rows = read_policies(policies)[0] if policies else None
    limit = asked.rollout_timeout
    checks = check_task(load_task(asked.task), rows, asked.environments, rollout_timeout=limit)
    show_checks(checks)
    if tracebacks.shown:
        show_traceback(dict.fromkeys(check.trace for check in checks))
    good, warned = passed(checks), any(check.warning for check in checks)
    if not good:
        say("A certificate for this task would be worth nothing: fix it first.")
    elif warned:
        say("No promise that was tried is broken. Read the WARNING before you rely on it.")
    else:
        say("It keeps every promise that was tried.")
    records = [asdict(check) for check in checks]
    for record in records:
        del record["trace"]
    options.write_json(json_file, {"passed": good, "checks": records})
    if not good:
        raise typer.Exit(1)
