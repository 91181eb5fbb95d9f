"""`pbc learn`."""

# ruff: noqa: ARG001 - options that only a recipe needs are read from the context

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import (
    METHODS,
    MOST,
    BallOption,
    Delta,
    Force,
    JsonFile,
    PoliciesFile,
    Scheduler,
    Seed,
    WorkersOption,
    check_json,
    refuse_given,
    write_json,
)


@app.command()
def learn(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="vehicle, swing, grasping, or MODULE:TASK of yours: robot.py:task.",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(help="vehicle: class of policies: grid (the paper's 50), linear or network."),
    ] = "grid",
    policies: PoliciesFile = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Names of the policies, such as checkpoints, in their order, for the certificate.",
        ),
    ] = None,
    environments: Annotated[
        int, typer.Option(min=2, max=MOST, help="Training environments.")
    ] = 1000,
    delta: Delta = 0.01,
    method: Annotated[str | None, typer.Option(help=f"The certificate: {METHODS}")] = None,
    objective: Annotated[
        str | None, typer.Option(help="What to minimise, if not the method's own bound.")
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="linear, network: paper, elsewhere (never saw these environments), split (learnt "
            "on a share of them), imitation, or a file. grasping: elsewhere or "
            "paper. Otherwise a file.",
        ),
    ] = None,
    family: Annotated[
        bool, typer.Option("--family", help="Choose among five prior variances, by a union bound.")
    ] = False,
    share: Annotated[
        float, typer.Option(help="--prior split: share of the environments that it may see.")
    ] = 0.2,
    certify: Annotated[
        str,
        typer.Option(
            help="Continuous policies: posterior, draw (one policy from it, kept for good) or one "
            "(the best of a few candidates from the prior)."
        ),
    ] = "posterior",
    candidates: Annotated[
        int, typer.Option(min=1, max=MOST, help="--certify one: policies to choose from.")
    ] = 1,
    estimator: Annotated[
        str, typer.Option(help="Gradient of the cost: evolution, or differences of the surrogate.")
    ] = "evolution",
    steps: Annotated[
        int,
        typer.Option(
            min=1, max=MOST, help="Steps of the search; grasping with --prior paper takes 400."
        ),
    ] = 200,
    prior_steps: Annotated[
        int, typer.Option(min=1, max=MOST, help="Steps of the search for a prior.")
    ] = 400,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="Policies for each environment to certify with; default 30,000 rollouts in all.",
        ),
    ] = None,
    shared_draws: Annotated[
        bool, typer.Option("--shared-draws", help="The same in every environment, as in the paper.")
    ] = False,
    sampling_delta: Annotated[
        float | None, typer.Option(help="Share of delta for sampling; default a tenth.")
    ] = None,
    wheel_slip: Annotated[float, typer.Option(help="Noise of the wheels, relative.")] = 0.0,
    range_noise: Annotated[float, typer.Option(help="Noise of the depths, relative.")] = 0.0,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="swing: gains and speed as `pbc swing identify --json` fitted them.",
        ),
    ] = None,
    gains: Annotated[
        str,
        typer.Option(
            help="swing, with --model: fixed (as if exact), drawn (anew for each rollout, as "
            "uncertain as the fit) or worst (of the corners of the intervals)."
        ),
    ] = "fixed",
    robot: Annotated[
        str, typer.Option(help="grasping: gripper (floating, fast) or arm (KUKA iiwa).")
    ] = "gripper",
    meshes: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="grasping: objects from meshes, as in ShapeNet."),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="grasping: leave out meshes without a volume.")
    ] = False,
    extractor: Annotated[
        str, typer.Option(help="grasping: what looks at the image: compact (ours) or vgg16.")
    ] = "compact",
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="grasping: weights of the extractor: ImageNet's for vgg16 (.pth, .safetensors), "
            "or a file of `pbc grasping pretrain`.",
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option(help="grasping: circle (the angle as a point of it) or paper (a sigmoid)."),
    ] = "circle",
    surrogate: Annotated[
        str,
        typer.Option(
            help="grasping: to train on: table (failures near a grasp) or distance (the paper's)."
        ),
    ] = "table",
    test_environments: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            help="New environments to estimate the true cost on; default 20,000 for vehicle and "
            "swing, 1,000 for grasping, none for a task of yours.",
        ),
    ] = None,
    ball: BallOption = None,
    workers: WorkersOption = None,
    scheduler: Scheduler = None,
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST,
            help="How often a rollout that failed may be run again and still count, where machines "
            "fail and not the task: the certificate tells how many did.",
        ),
    ] = 0,
    allow_code_change: Annotated[
        bool,
        typer.Option(
            "--allow-code-change",
            help="Go on although the task's code has changed: finished rollouts are kept, and the "
            "certificate tells it.",
        ),
    ] = False,
    seed: Seed = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; default runs/TASK.")
    ] = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Learn a policy for a task and certify it.

    Interrupted at any moment, the same command goes on where it was. A task of yours chooses from
    its `policies`, or --policies; where it has neither, it learns from its `prior`, or --prior.

    Example: pbc learn vehicle --policy network --environments 1000 --out runs/network

    Example: pbc learn swing --out runs/swing

    Example: pbc learn grasping --environments 500 --out runs/grasping

    Example: pbc learn examples/cartpole.py:task --environments 500 --workers 2
    """
    from pacbayes_control.certify.balls import Ball
    from pacbayes_control.certify.certificate import Budget
    from pacbayes_control.certify.run import check_free
    from pacbayes_control.certify.shift import under_shift
    from pacbayes_control.cli.loading import WRITE, load_task, task_name, workers_for
    from pacbayes_control.cli.steps import (
        candidates_of,
        drawn,
        estimated,
        learn_continuous,
        learn_listed,
        remove,
        swing_for,
        vehicle_for,
    )
    from pacbayes_control.report.terminal import bar, say, show_certificate, warn
    from pacbayes_control.robots.grasping import assembling as grasping
    from pacbayes_control.rollouts.differences import equal_costs

    Budget(delta)  # an error for a delta that is none, before the rollouts
    where = Ball.parse(ball) if ball is not None else None
    folder = out_folder or Path("runs") / task_name(task)
    check_free(folder, force)
    check_json(json_file)
    if task not in BUILT_IN and ":" not in task:
        raise ValueError(f"task {task!r} is unknown: choose {', '.join(BUILT_IN)}, or {WRITE}")
    own: Any = load_task(task) if task not in BUILT_IN else None
    if test_environments is None:
        test_environments = BUILT_IN.get(task, 0)
    listed = policies is not None or (own is not None and own.policies is not None)
    finite = listed if own is not None else task == "swing" or (task, policy) == ("vehicle", "grid")
    _refuse_unused(context, task, finite, policy, prior, certify)
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    recipe = None if finite else _recipe(task, context)
    if task == "grasping":
        chosen: Any = grasping.grasping_task(
            robot, meshes, skip_broken, extractor, weights, head, surrogate
        )
    elif task == "swing":
        chosen = swing_for(model, gains, range_noise)
    else:
        chosen = own if own is not None else vehicle_for(policy, wheel_slip, range_noise)
    train = drawn(chosen, environments, "train", seed)
    with workers_for(chosen, workers, scheduler) as executor:
        if recipe is None:
            rows, known = candidates_of(chosen, policies)
            run = learn_listed(
                chosen,
                rows,
                [name.strip() for name in names.split(",")] if names is not None else known,
                train,
                delta,
                method,
                objective,
                prior,
                executor,
                checkpoint,
                retries=retries,
                allow_code_change=allow_code_change,
            )
        elif task == "grasping":
            run = grasping.learn(chosen, train, recipe, executor, checkpoint)
        else:
            run = learn_continuous(chosen, train, recipe, executor, checkpoint)
        if where:
            run = under_shift(run, where)
        test = drawn(chosen, max(3, test_environments), "test", seed)
        if test_environments:
            with bar("test rollouts", test_environments) as progress:
                new = test[:test_environments]
                run = estimated(run, chosen, new, progress, executor)
        run.save(folder, force, chosen.pictures(run, test))
        remove(checkpoint)  # the run holds what they led to

        result = {**run.certificate.to_dict(), "run": str(folder)}
        show_certificate(run)
        single, parameters = run.certificate.policy, run.costs.parameters
        if own is not None and single is not None and parameters is not None:
            say(f"Its parameters: {parameters[single].tolist()}")
        if run.certificate.test_estimate is not None:
            result["true_cost"] = run.certificate.test_estimate.cost
            result["test_environments"] = test_environments
        warn(equal_costs(run.costs.values))
    picture = folder / "picture.svg"
    say(f"\nThe run is in {folder}" + (f" (picture: {picture})." if picture.exists() else "."))
    say(f"Anybody can check it: pbc verify {folder}")
    say(f"To look at: pbc report {folder}" + (f" --task {task}" if own is not None else ""))
    write_json(json_file, result)


BUILT_IN = {"vehicle": 20_000, "swing": 20_000, "grasping": 1000}  # and their new environments
VEHICLES = ("policy", "family", "share", "prior_steps", "wheel_slip", "range_noise")
SWINGS = ("model", "gains")
GRASPS = ("robot", "meshes", "skip_broken", "extractor", "weights", "head", "surrogate")
REPEATED = ("retries", "allow_code_change")
SAMPLED = ("draws", "shared_draws", "sampling_delta")
SEARCHED = ("family", "estimator", "steps", "objective", "method")


def _recipe(task: str, context: typer.Context) -> Any:
    """What to learn over continuous policies, from the options."""
    given = context.params
    common = {
        name: given[name]
        for name in ("delta", "objective", "draws", "sampling_delta", "seed", "retries")
    }
    common["method"] = given["method"] or "kl"
    if task == "grasping":
        from dataclasses import replace

        from pacbayes_control.robots.grasping.recipe import Recipe as GraspingRecipe

        recipe = GraspingRecipe(prior=given["prior"] or "elsewhere", **common)
        source = context.get_parameter_source("steps")
        if source is not None and source.name == "COMMANDLINE":
            recipe = replace(recipe, settings=replace(recipe.search, steps=given["steps"]))
        return recipe
    from pacbayes_control.learn.search import Settings
    from pacbayes_control.robots.vehicle.recipe import OWN, Recipe

    names = ("prior", "family", "certify", "share", "prior_steps", "candidates", "shared_draws")
    return Recipe(
        policy=given["policy"] if task == "vehicle" else OWN,
        settings=Settings(estimator=given["estimator"], steps=given["steps"]),
        **{name: given[name] for name in names},
        **common,
    )


def _refuse_unused(
    context: typer.Context, task: str, finite: bool, policy: str, prior: str | None, certify: str
) -> None:
    """An error for an option that has no effect: none is accepted and ignored."""
    own = task not in BUILT_IN
    unused: dict[str, str] = {}
    if task == "grasping":
        names = (*VEHICLES, *SWINGS, "estimator", "certify", "candidates", "shared_draws")
        names += ("policies", "names", "allow_code_change")
        unused |= dict.fromkeys(names, "is not for grasping")
        return refuse_given(context, unused)
    unused |= dict.fromkeys(GRASPS, "is for grasping")
    if task == "swing":
        names = (*SAMPLED, *SEARCHED[:3], "certify", "candidates", *VEHICLES[:-1])
        unused |= dict.fromkeys((*names, "policies", "names", *REPEATED), "is not for the Swing")
        return refuse_given(context, unused)
    unused |= dict.fromkeys(SWINGS, "is for the Swing")
    if not finite:
        unused["allow_code_change"] = "is for a list of policies: a search begins again"
        unused["names"] = "is for a list of policies"
        if not own:
            unused["scheduler"] = "is for --policy grid, and for tasks of yours"
    if finite:
        names = (*SAMPLED, *SEARCHED[:3], "certify", "candidates", "share", "prior_steps")
        kind = "continuous policies: a task with a prior" if own else "--policy linear or network"
        unused |= dict.fromkeys(names, f"is for {kind}")
        if prior in ("paper", "elsewhere", "split", "imitation"):
            raise ValueError(f"the prior {prior!r} is for --policy linear or network: give a file")
    else:
        if certify != "posterior":
            unused |= dict.fromkeys(SAMPLED, "is for --certify posterior")
        if certify == "one":
            unused |= dict.fromkeys(SEARCHED, "has no use where one of a few is certified")
        else:
            unused["candidates"] = "is for --certify one"
        if certify == "draw":
            unused["method"] = "has no use: one draw has a bound of its own"
        if prior != "split":
            unused["share"] = "is for --prior split"
        if prior != "split" and (prior != "elsewhere" or policy == "network"):
            unused["prior_steps"] = "is for priors that are learnt on the spot"
    if own:
        unused |= dict.fromkeys(VEHICLES, "is for the vehicle")
    else:
        unused |= dict.fromkeys(("policies", "names", *REPEATED), "is for tasks of yours")
    return refuse_given(context, unused)
