"""What the commands do for grasping: the task from its options, labels, learning, pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes_control.robots.grasping.task import Grasping


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
    from pacbayes_control.robots.grasping.arm import Arm
    from pacbayes_control.robots.grasping.compact import Compact
    from pacbayes_control.robots.grasping.environments import Tabletop
    from pacbayes_control.robots.grasping.gripper import Gripper
    from pacbayes_control.robots.grasping.policy import Extractor, Network
    from pacbayes_control.robots.grasping.surrogates import Surrogate
    from pacbayes_control.robots.grasping.task import Grasping
    from pacbayes_control.robots.grasping.vgg import Vgg16

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
        from pacbayes_control.robots.grasping.meshes import MeshFolder

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
    from pacbayes_control.report.terminal import bar
    from pacbayes_control.robots.grasping.cache import cache_folder
    from pacbayes_control.robots.grasping.recipe import label

    folder = cache_folder() / "grasping"
    with bar("labelling grasps", len(environments) * len(grid.grasps)) as progress:
        labels = label(task, environments, grid, folder, progress, executor, retries)
        return task.with_labels(labels)


def learn(task: Grasping, environments: Any, recipe: Any, executor: Any, checkpoint: Path) -> Any:
    """Label, search and certify."""
    from pacbayes_control.learn.gaussian import ROLLOUTS
    from pacbayes_control.report.terminal import bar, watch
    from pacbayes_control.robots.grasping.recipe import learn_grasping, prior_for

    network: Any = task.controller
    prior_for(network, recipe.prior, recipe.seed).check_unseen(environments)
    ready = labelled(task, environments, recipe.grid, executor, recipe.retries)
    file = checkpoint.with_name(f"{checkpoint.name}.search")
    with watch() as watching, bar("certifying grasps", ROLLOUTS) as certifying:
        searching = watching("learning the posterior")
        return learn_grasping(ready, recipe, file, searching, certifying, executor)
