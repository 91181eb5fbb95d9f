"""`pbc check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import MOST, JsonFile, PoliciesFile, check_json, write_json


@app.command()
def check(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="A task of yours, robot.py:task, or one that is installed."
        ),
    ],
    policies: PoliciesFile = None,
    environments: Annotated[
        int, typer.Option(min=2, max=MOST, help="Environments to roll out in.")
    ] = 8,
    json_file: JsonFile = None,
) -> None:
    """Test whether a task keeps the promises that a certificate rests on.

    Same seed, same cost; costs in [0, 1]; environments that look independent and make a difference;
    no global random state; the same in other processes; and how fast it is. Exit code 0 if all are
    kept, 1 if not. A WARNING is not a failure, but read it.

    Example: pbc check examples/cartpole.py:task
    """
    from pacbayes_control.certify.tables.campaigns import read_policies
    from pacbayes_control.report.console import say
    from pacbayes_control.report.terminal import show_checks
    from pacbayes_control.rollouts.conformance import check_task, passed
    from pacbayes_control.tasks.loading import load_task

    check_json(json_file, *([policies] if policies else []))
    rows = read_policies(Path(policies))[0] if policies else None
    checks = check_task(load_task(task), rows, environments)
    show_checks(checks)
    good, warned = passed(checks), any(check.warning for check in checks)
    if not good:
        say("A certificate for this task would be worth nothing: fix it first.")
    elif warned:
        say("No promise that was tried is broken. Read the WARNING before you rely on it.")
    else:
        say("It keeps every promise that was tried.")
    write_json(json_file, {"passed": good, "checks": [asdict(check) for check in checks]})
    if not good:
        raise typer.Exit(1)
