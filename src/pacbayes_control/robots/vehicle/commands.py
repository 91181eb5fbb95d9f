"""`pbc vehicle`: commands of this robot alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.certify.files import write_output
from pacbayes_control.cli import options
from pacbayes_control.learn.priors import Pretraining
from pacbayes_control.report.console import progress_bars, say
from pacbayes_control.robots.vehicle import Vehicle, priors
from pacbayes_control.rollouts import Execution

app = typer.Typer()
OUT = Path("prior.json")


@app.command()
def pretrain(
    steps: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Steps, of 64 policies each.")
    ] = priors.STEPS,
    per_step: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Environments of a step.")
    ] = Pretraining.per_step,
    seed: options.Seed = 0,
    device: options.DeviceOption = None,
    out_file: Annotated[Path, typer.Option("--out", help="File for the prior.")] = OUT,
    json_file: options.JsonFile = None,
) -> None:
    """Learn a prior over network policies on another distribution of obstacles, and save it.

    The prior that ships with the library is from --steps 8000 --per-step 4096 --device cuda.
    An interrupted search continues when the command is run again.

    Example: pbc vehicle pretrain --out prior.json
    """
    options.check_writable(out_file)
    options.check_json(json_file, out_file)
    checkpoint = out_file.with_name(f"{out_file.name}.checkpoint")
    with progress_bars() as tell:
        how = Execution(store=checkpoint, progress=tell, title="pretraining", device=device)
        prior = priors.pretrain(Vehicle(), steps, seed, how, per_step)
    record = json.loads(prior.distribution.to_bytes()) | {"origin": prior.origin}
    write_output(out_file, f"{json.dumps(record)}\n".encode())
    checkpoint.unlink(missing_ok=True)
    size, origin = len(prior.distribution), prior.origin
    say(f"{out_file}: a prior over {size} parameters, {origin}.")
    say(f"Use it: pbc learn vehicle --policy network --prior {out_file}")
    options.write_json(json_file, {"prior": str(out_file), "parameters": size, "origin": origin})
