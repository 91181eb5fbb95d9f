"""`pbc vehicle`: commands of this robot alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.cli.options import (
    MOST,
    JsonFile,
    Seed,
    check_json,
    check_writable,
    write_json,
)
from pacbayes_control.report.console import say, watch
from pacbayes_control.robots.vehicle.recipe import pretrain as learn_prior

app = typer.Typer()


@app.command()
def pretrain(
    steps: Annotated[
        int, typer.Option(min=1, max=MOST, help="Steps, of 16,384 rollouts each.")
    ] = 4000,
    seed: Seed = 0,
    out_file: Annotated[Path, typer.Option("--out", help="File for the prior.")] = Path(
        "prior.json"
    ),
    json_file: JsonFile = None,
) -> None:
    """Learn a prior for network policies on obstacle fields from elsewhere, and keep it in a file.

    The prior that ships with the library is the result of this command with its defaults. An
    interrupted search is taken up where it was.

    Example: pbc vehicle pretrain --out prior.json
    """
    check_writable(out_file)
    check_json(json_file, out_file)
    checkpoint = out_file.with_name(f"{out_file.name}.checkpoint")
    with watch() as watching:
        prior = learn_prior(steps, seed, checkpoint, watching("learning elsewhere"))
    record = json.loads(prior.distribution.to_bytes()) | {"origin": prior.origin}
    out_file.write_text(json.dumps(record) + "\n", encoding="utf-8")
    checkpoint.unlink(missing_ok=True)
    size, origin = len(prior.distribution), prior.origin
    say(f"{out_file}: a prior over {size} parameters, {origin}.")
    say(f"Use it: pbc learn vehicle --policy network --prior {out_file}")
    write_json(json_file, {"prior": str(out_file), "parameters": size, "origin": origin})
