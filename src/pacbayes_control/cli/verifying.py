"""`pbc verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.cli.app import app, complain
from pacbayes_control.cli.options import MOST, JsonFile, check_json, run_folder, write_json
from pacbayes_control.cli.signing import KeyOption, SignerOption, signature_of

if TYPE_CHECKING:
    from pacbayes_control.certify.run import Run
    from pacbayes_control.rollouts.again import Again


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    again: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            metavar="K",
            help="Also run K of its rollouts again, picked at random, and compare their costs; "
            "0 for as many as take a few seconds.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="MODULE:TASK", help="--again: the task of yours that it is of."),
    ] = None,
    costs_file: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE", help="Also check that it rests on this table."),
    ] = None,
    key: KeyOption = None,
    signer: SignerOption = None,
    json_file: JsonFile = None,
) -> None:
    """Recompute a certificate from its files, and list what no file can prove.

    Exit code 0 if it holds, 1 if it does not, a file was altered, the key did not sign it, or
    rollouts or a table are not those that it rests on; 2 if the run cannot be read.

    Example: pbc verify runs/braking

    Example: pbc verify runs/braking --again 100

    Example: pbc verify runs/campaign --costs examples/campaign.csv
    """
    from pacbayes_control.certify.run import AlteredRun
    from pacbayes_control.report.console import say, working
    from pacbayes_control.verify import InvalidCertificate
    from pacbayes_control.verify import verify as verify_run

    folder = run_folder(run)
    check_json(json_file, folder, *([costs_file] if costs_file else []))
    if task is not None and again is None:
        raise ValueError("--task is for rollouts to run again: give --again K too")
    repeated: Again | None = None
    resting = ""
    try:
        with working("verifying"):
            verification = verify_run(folder)
            signed = signature_of(folder, key, signer)
            if costs_file:
                resting = _check_table(verification.run, costs_file)
        if again is not None:
            with working("running rollouts again"):
                repeated = _rolled_out_again(verification.run, task, again)
    except (AlteredRun, InvalidCertificate) as error:
        write_json(json_file, {"verified": False, "reason": str(error)})
        complain(f"NOT VERIFIED: {error}")
        raise typer.Exit(1) from None
    record: dict[str, Any] = verification.certificate.to_dict() | {
        "verified": True,
        "recomputed": verification.recomputed,
        "told": list(verification.told),
        "signature": signed.record,
        "again": asdict(repeated) if repeated else None,
        "costs_file": str(costs_file) if costs_file else None,
    }
    if repeated and repeated.different:
        words = f"{repeated.different} of {repeated.tried:,} rollouts that were run again"
        reason = f"{words} do not cost what is recorded: {repeated.first}"
        write_json(json_file, record | {"verified": False, "reason": reason})
        complain(f"NOT VERIFIED: {reason}")
        raise typer.Exit(1)
    say(str(verification))
    if signed.words:
        say(signed.words)
    if repeated:
        say(f"{repeated.tried:,} rollouts were run again, and cost what is recorded.")
    if resting:
        say(resting)
    say("Taken as told, since no file can prove it:")
    for words in verification.told:
        say(f"- {words}")
    write_json(json_file, record)


def _rolled_out_again(run: Run[Any], place: str | None, count: int) -> Again:
    """Some of a run's rollouts, run again with the given task or the recorded one."""
    from pacbayes_control.rollouts.again import roll_out_again
    from pacbayes_control.tasks.loading import load_task
    from pacbayes_control.tasks.registry import recorded_environments, recorded_task

    if place is not None:
        task = load_task(place)
    else:
        try:
            task = recorded_task(run.costs)
        except ValueError as error:
            raise ValueError(
                f"{error}: name the task that it is of (--task MODULE:TASK) to run rollouts again"
            ) from None
    environments = recorded_environments(run.costs, task)
    return roll_out_again(run, task, environments, count or None)


def _check_table(run: Run[Any], file: Path) -> str:
    """Raise InvalidCertificate unless a run rests on this table: bytes, costs and names."""
    import numpy as np

    from pacbayes_control.certify.files import hash_file
    from pacbayes_control.certify.tables.campaigns import read_campaign
    from pacbayes_control.verify import InvalidCertificate

    costs, recorded = run.costs, run.costs.origin.get("sha256")
    options: Any = costs.origin.get("reading", {})
    if not isinstance(options, dict) or not all(
        name in ("header", "graded") and isinstance(value, bool) for name, value in options.items()
    ):
        raise InvalidCertificate("the run does not say plainly how its table was read")
    table = read_campaign(file, **options).costs
    if recorded is not None and recorded != hash_file(file):
        raise InvalidCertificate(f"the run rests on another file than {file}: the SHA-256 differs")
    same = table.values.shape == costs.values.shape and np.array_equal(table.values, costs.values)
    if not same or table.names != costs.names or table.sites != costs.sites:
        raise InvalidCertificate(f"the costs or names of the run are not those of {file}")
    words = f"It rests on {file}: every cost and every name is the same"
    return words + (", and every byte." if recorded is not None else "; it tells no SHA-256.")
