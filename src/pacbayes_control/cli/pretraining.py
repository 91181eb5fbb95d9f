"""`pbc pretrain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import (
    MOST,
    JsonFile,
    Seed,
    WorkersOption,
    check_json,
    check_writable,
    refuse_given,
    write_json,
)


@app.command()
def pretrain(
    context: typer.Context,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to learn for: vehicle or grasping.")
    ],
    steps: Annotated[
        int, typer.Option(min=1, max=MOST, help="vehicle: steps, of 16,384 rollouts each.")
    ] = 4000,
    environments: Annotated[
        int, typer.Option(min=2, max=MOST, help="grasping: objects, with 750 grasps each.")
    ] = 4096,
    epochs: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="grasping: passes over them.")
    ] = None,
    workers: WorkersOption = None,
    seed: Seed = 0,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="File for the prior; default prior.json or prior.safetensors."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Learn a prior for network policies on environments from elsewhere, and keep it in a file.

    The priors that ship with the library are the results of this command with its defaults. An
    interrupted search, or labelling, is taken up where it was. For grasping, the extractor is
    learnt with the prior.

    Example: pbc pretrain vehicle --out prior.json
    """
    if task not in ("vehicle", "grasping"):
        raise ValueError(f"task {task!r} is unknown: choose vehicle or grasping")
    suffix = ".safetensors" if task == "grasping" else ".json"
    out_file = out_file or Path(f"prior{suffix}")
    if task == "grasping":
        refuse_given(context, {"steps": "is for the vehicle: choose --epochs"})
        if out_file.suffix != suffix:
            raise ValueError(f"{out_file}: a prior for grasping is a {suffix} file")
        return _pretrain_grasping(environments, epochs, workers, seed, out_file, json_file)
    names = ("environments", "epochs", "workers")
    refuse_given(context, dict.fromkeys(names, "is for grasping"))
    return _pretrain_vehicle(steps, seed, out_file, json_file)


def _pretrain_vehicle(steps: int, seed: int, out_file: Path, json_file: Path | None) -> None:
    from pacbayes_control.recipes.vehicle import pretrain as learn_prior
    from pacbayes_control.report.terminal import say, watch

    check_writable(out_file)
    check_json(json_file, out_file)
    checkpoint = out_file.with_name(f"{out_file.name}.checkpoint")
    with watch() as watching:
        prior = learn_prior(steps, seed, checkpoint, watching("learning elsewhere"))
    record = json.loads(prior.distribution.to_bytes()) | {"origin": prior.origin}
    out_file.write_text(json.dumps(record) + "\n", encoding="utf-8")
    checkpoint.unlink(missing_ok=True)
    say(f"{out_file}: a prior over {len(prior.distribution)} parameters, {prior.origin}.")
    say(f"Use it: pbc learn vehicle --policy network --prior {out_file}")
    size, origin = len(prior.distribution), prior.origin
    write_json(json_file, {"prior": str(out_file), "parameters": size, "origin": origin})


def _pretrain_grasping(
    environments: int,
    epochs: int | None,
    workers: int | None,
    seed: int,
    out_file: Path,
    json_file: Path | None,
) -> None:
    from pacbayes_control.cli.grasping import labelled
    from pacbayes_control.cli.loading import workers_for
    from pacbayes_control.report.terminal import bar, say
    from pacbayes_control.tasks.grasping.compact import Compact
    from pacbayes_control.tasks.grasping.extras import needed
    from pacbayes_control.tasks.grasping.labels import Grid
    from pacbayes_control.tasks.grasping.pretraining import Training, pretrain
    from pacbayes_control.tasks.grasping.task import Grasping

    check_writable(out_file)
    check_json(json_file, out_file)
    needed("torch", "training a network")  # before an hour of labels
    needed("safetensors", "weights")
    training = Training() if epochs is None else Training(epochs=epochs, head_epochs=epochs)
    task = Grasping()
    elsewhere = task.environments(environments, "elsewhere", seed)
    with workers_for(task, workers, None) as executor:
        labels = labelled(task, elsewhere, Grid(), executor).labels
    assert labels is not None
    with bar("training", training.epochs + training.head_epochs) as progress:
        pretrain(labels, out_file, training, seed, progress=progress)
    prior, origin = Compact(out_file).prior()
    say(f"{out_file}: an extractor, and a prior over {len(prior)} parameters, {origin}.")
    say(f"Use it: pbc learn grasping --weights {out_file}")
    write_json(json_file, {"prior": str(out_file), "parameters": len(prior), "origin": origin})
