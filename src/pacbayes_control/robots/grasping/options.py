"""Options of grasping, and the task that they make."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pacbayes_control.report.console import progress_bars, say
from pacbayes_control.robots.grasping.arm import Arm
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.extractors import Compact, Vgg16
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.gripper import Gripper
from pacbayes_control.robots.grasping.labels import Surrogate
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.policy import GraspNetwork
from pacbayes_control.rollouts import Progress
from pacbayes_control.tasks.options import option

if TYPE_CHECKING:
    from pacbayes_control.robots.grasping.task import Grasping


ROBOTS = {"gripper": Gripper, "arm": Arm}


@dataclass(frozen=True)
class GraspingOptions:
    """The robot, the objects, and the network that looks at them."""

    robot: Literal["gripper", "arm"] = option(
        "gripper", "gripper (floating, fast) or arm (KUKA iiwa)."
    )
    meshes: Path | None = option(None, "Objects from meshes, as in ShapeNet.", metavar="FOLDER")
    extractor: Literal["compact", "vgg16"] = option(
        "compact", "Network that looks at the image: compact (ours) or vgg16.", rare=True
    )
    weights: Path | None = option(
        None,
        "Weights of the extractor: ImageNet's for vgg16 (.pth, .safetensors), or a file of "
        "`pbc grasping pretrain`.",
        metavar="FILE",
    )
    skip_broken: bool = option(False, "Leave out meshes without a volume.", rare=True)
    head: Literal["circle", "paper"] = option(
        "circle", "circle (the angle as a point of it) or paper (a sigmoid).", rare=True
    )
    surrogate: Literal["table", "distance"] = option(
        "table", "To train on: table (failures near a grasp) or distance (the paper's).", rare=True
    )

    def __post_init__(self) -> None:
        if self.extractor == "vgg16" and self.weights is None:
            raise ValueError("vgg16 needs its weights: give --weights FILE (.pth or .safetensors)")
        if self.skip_broken and self.meshes is None:
            raise ValueError("skip_broken is for --meshes: give that too")


def grasping_task(made: type[Grasping], options: GraspingOptions) -> Grasping:
    """The task; an error before anything is simulated."""
    needed("torch", "training a network")
    vgg = options.extractor == "vgg16" and options.weights
    eyes = Vgg16(options.weights) if vgg and options.weights else Compact(options.weights)
    controller = GraspNetwork(eyes, head=options.head)
    repr(controller)  # reads the weights: an error now, not after the labels
    tabletop = Tabletop(_mesh_folder(options)) if options.meshes else Tabletop()
    return made(controller, tabletop, ROBOTS[options.robot](), Surrogate(options.surrogate))


def full(options: GraspingOptions) -> dict[str, Any]:
    """The options that name no file, for records."""
    return {name: getattr(options, name) for name in ("robot", "head", "surrogate")}


def settings_of(task: Grasping) -> dict[str, Any] | None:
    """The options that a task was made from; None if it was made in another way."""
    network, robot = task.controller, "arm" if isinstance(task.robot, Arm) else "gripper"
    if not isinstance(network, GraspNetwork) or network.head not in ("circle", "paper"):
        return None
    usual = (GraspNetwork(Compact(), head=network.head), Tabletop(), ROBOTS[robot]())
    if (network, task.tabletop, task.robot) != usual:
        return None
    return {"robot": robot, "head": network.head, "surrogate": task.surrogate_cost.kind}


def _mesh_folder(options: GraspingOptions) -> MeshFolder:
    assert options.meshes is not None
    with progress_bars() as tell:
        objects = MeshFolder(
            options.meshes,
            skip_broken=options.skip_broken,
            workers=os.cpu_count() or 1,
            progress=lambda done, total: tell(Progress("decomposing meshes", done, total)),
        )
    for path, why in objects.skipped:
        say(f"Left out: {path} {why}")
    return objects
