"""What the commands do for grasping: the task from its options, labels, learning, pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes_control.tasks.grasping.task import Grasping


def grasping_task(
    robot: str = "gripper",
    meshes: Path | None = None,
    skip_broken: bool = False,
    extractor: str = "compact",
    weights: Path | None = None,
    head: str = "circle",
    surrogate: str = "table",
) -> Grasping:
    """The task that the options of a command describe; an error before anything is simulated."""
    from pacbayes_control.report.terminal import bar, say
    from pacbayes_control.tasks.grasping.arm import Arm
    from pacbayes_control.tasks.grasping.compact import Compact
    from pacbayes_control.tasks.grasping.environments import Tabletop
    from pacbayes_control.tasks.grasping.gripper import Gripper
    from pacbayes_control.tasks.grasping.policy import Extractor, Network
    from pacbayes_control.tasks.grasping.surrogates import Surrogate
    from pacbayes_control.tasks.grasping.task import Grasping
    from pacbayes_control.tasks.grasping.vgg import Vgg16

    robots = {known.name: known for known in (Gripper(), Arm())}
    if robot not in robots:
        raise ValueError(f"robot {robot!r} is unknown: choose from {', '.join(robots)}")
    if extractor not in ("compact", "vgg16"):
        raise ValueError(f"extractor {extractor!r} is unknown: choose from compact, vgg16")
    if extractor == "vgg16" and weights is None:
        raise ValueError("vgg16 needs its weights: give --weights FILE (.pth or .safetensors)")
    eyes: Extractor = Vgg16(weights) if extractor == "vgg16" and weights else Compact(weights)
    controller = Network(eyes, head=head)
    repr(controller)  # reads the weights: an error now, not after the labels
    tabletop = Tabletop()
    if skip_broken and meshes is None:
        raise ValueError("--skip-broken is for --meshes: give that too")
    if meshes is not None:
        from pacbayes_control.tasks.grasping.meshes import MeshFolder

        cores = os.cpu_count() or 1
        with bar("decomposing meshes", 1) as progress:
            objects = MeshFolder(meshes, skip_broken=skip_broken, workers=cores, progress=progress)
        for path, why in objects.skipped:
            say(f"Left out: {path} {why}")
        tabletop = Tabletop(objects)
    return Grasping(controller, tabletop, robots[robot], Surrogate(surrogate))


def labelled(
    task: Grasping, environments: Any, grid: Any, executor: Any, retries: int = 0
) -> Grasping:
    """The task with labels for the objects to train on, made once and kept in the cache."""
    from pacbayes_control.recipes.grasping import label
    from pacbayes_control.report.terminal import bar
    from pacbayes_control.tasks.grasping.cache import cache_folder

    folder = cache_folder() / "grasping"
    with bar("labelling grasps", len(environments) * len(grid.grasps)) as progress:
        labels = label(task, environments, grid, folder, progress, executor, retries)
        return task.with_labels(labels)


def learn(task: Grasping, environments: Any, recipe: Any, executor: Any, checkpoint: Path) -> Any:
    """Label, search and certify."""
    from pacbayes_control.learn.gaussian import ROLLOUTS
    from pacbayes_control.recipes.grasping import learn_grasping, prior_for
    from pacbayes_control.report.terminal import bar, watch

    network: Any = task.controller
    prior_for(network, recipe.prior, recipe.seed).check_unseen(environments)
    ready = labelled(task, environments, recipe.grid, executor, recipe.retries)
    file = checkpoint.with_name(f"{checkpoint.name}.search")
    with watch() as watching, bar("certifying grasps", ROLLOUTS) as certifying:
        searching = watching("learning the posterior")
        return learn_grasping(ready, recipe, file, searching, certifying, executor)


def pictures(task: Grasping, run: Any, environments: Any) -> dict[str, bytes]:
    """Of objects, of what the policy sees and does, of the arm, and of failures."""
    from pacbayes_control.report.grasp_pictures import attachments
    from pacbayes_control.tasks.grasping.arm import Arm

    return attachments(task, run, environments, Arm(task.robot.hand))


def reproduce(
    quick: bool, environments: int | None, test_environments: int | None, seed: int, folder: Path
) -> dict[str, Any]:
    """The paper's experiment, its table, its run and its page."""
    from dataclasses import replace

    from pacbayes_control.cli.loading import workers_for
    from pacbayes_control.cli.steps import remove
    from pacbayes_control.paper.grasping import QUICK, Settings, grasping, to_dict
    from pacbayes_control.report.page import write_page
    from pacbayes_control.report.tables import show_grasping
    from pacbayes_control.report.terminal import bar, say, watch
    from pacbayes_control.tasks.grasping.cache import cache_folder

    settings = replace(QUICK if quick else Settings(), seed=seed)
    if environments is not None:
        settings = replace(settings, environments=environments)
    if test_environments is not None:
        settings = replace(settings, test_environments=test_environments)
    checkpoint = folder / "checkpoint"
    task = grasping_task()
    with workers_for(task, None, None) as executor, watch() as watching:
        result = grasping(
            settings, cache_folder() / "grasping", checkpoint, executor, bar, watching
        )
    new = task.environments(settings.test_environments, "test", seed)
    with bar("pictures", 1):
        kept = pictures(result.task, result.run, new)
    run = folder / "grasping"
    result.run.save(run, True, kept)
    remove(checkpoint)
    write_page(result.run, folder / "grasping.html", name=str(run), pictures=kept)
    show_grasping(result)
    say(f"\nThe run is in {run}: pbc verify {run}")
    say(f"To look at: {folder / 'grasping.html'}")
    return to_dict(result)
