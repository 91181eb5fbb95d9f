"""`pbc grasping`: commands of this robot alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.cli import options
from pacbayes_control.report.console import say
from pacbayes_control.robots.grasping import Compact, Grasping, learning
from pacbayes_control.robots.grasping.extras import needed

app = typer.Typer()


@app.command()
def pretrain(
    environments: Annotated[
        int, typer.Option(min=2, max=options.MOST, help="Objects, with 750 grasps each.")
    ] = 4096,
    epochs: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Passes over them.")
    ] = None,
    workers: options.WorkersOption = None,
    seed: options.Seed = 0,
    out_file: Annotated[
        Path, typer.Option("--out", help="File for the prior and its extractor.")
    ] = Path("prior.safetensors"),
    json_file: options.JsonFile = None,
) -> None:
    """Learn an extractor and a prior over its network on objects from elsewhere, and keep both.

    The prior that ships with the library is the result of this command with its defaults. An
    interrupted labelling is taken up where it was.

    Example: pbc grasping pretrain --out prior.safetensors
    """
    if out_file.suffix != ".safetensors":
        raise ValueError(f"{out_file}: a prior for grasping is a .safetensors file")
    options.check_writable(out_file)
    options.check_json(json_file, out_file)
    needed("torch", "training a network")  # before an hour of labels
    needed("safetensors", "weights")
    training = learning.Training()
    if epochs is not None:
        training = learning.Training(epochs=epochs, head_epochs=epochs)
    task = Grasping()
    elsewhere = task.environments(environments, "elsewhere", seed)
    with options.executing(task, workers) as execution:
        labels = learning.labelled(task, elsewhere, execution).labels
        assert labels is not None
        told = replace(execution, title="training")
        learning.pretrain(labels, out_file, training, seed, progress=told.tell)
    prior, origin = Compact(out_file).prior()
    say(f"{out_file}: an extractor, and a prior over {len(prior)} parameters, {origin}.")
    say(f"Use it: pbc learn grasping --weights {out_file}")
    options.write_json(
        json_file, {"prior": str(out_file), "parameters": len(prior), "origin": origin}
    )
