"""The grasping task: objects at rest, policies that look at them, and whether they are lifted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.report.console import progress_bars, say
from pacbayes_control.robots.grasping.camera import View
from pacbayes_control.robots.grasping.environments import BLOCK, Tabletop
from pacbayes_control.robots.grasping.extractors import Compact, Vgg16
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.labels import Labels, Surrogate, gradients
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.models import Floats
from pacbayes_control.robots.grasping.objects import FAMILIES
from pacbayes_control.robots.grasping.policy import GraspController, GraspNetwork, Offsets
from pacbayes_control.robots.grasping.robots import Arm, Gripper, Robot
from pacbayes_control.robots.grasping.simulator import LIFTED, Simulator, physics
from pacbayes_control.rollouts import Progress
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import Arrays, Environments, first_environments
from pacbayes_control.tasks.identity import one_line
from pacbayes_control.tasks.options import from_values, option
from pacbayes_control.tasks.user_task import check_parameters

NAMES = np.array([*FAMILIES])
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


@dataclass(frozen=True)
class Grasping(Task):
    """A hand that picks up objects from a table by what it sees of them (paper: Section 7.2).

    What a policy is, the `controller` says. The cost is 0 if the object is lifted more than 2 cm,
    held by both fingers, clear of the table and at rest, and 1 otherwise.

    >>> task = Grasping()
    >>> task.costs(np.array([[0.0, 0.0, 0.0]]), task.environments(2, stream="example")).shape
    (2, 1)
    """

    controller: GraspController = field(default_factory=Offsets)
    tabletop: Tabletop = field(default_factory=Tabletop)
    robot: Robot = field(default_factory=Gripper)
    surrogate_cost: Surrogate = field(default_factory=Surrogate)
    labels: Labels | None = None  # of objects to train on

    releases_gil = True  # nearly all of the time is MuJoCo's
    learns = ("continuous",)
    test_environments = 1000
    priors = ("elsewhere", "paper")
    prior_hint = "weights are given as such (--weights)"
    Options = GraspingOptions
    cost_rule = (
        "0 where the object is lifted more than 2 cm, held by both fingers, clear of the table and "
        "at rest, 1 otherwise"
    )
    graded = False
    no_replay = (
        "A grasp is a motion in space, and what this page replays are paths in a plane: the "
        "pictures, where the run holds some, show grasps instead."
    )
    captions: ClassVar[dict[str, tuple[str, str]]] = {
        "objects.png": (
            "A grid of objects on a table.",
            "Objects as they came to rest on the table, whose squares are 5 cm wide.",
        ),
        "views.png": (
            "Images of heights, each with a hand's two open fingers and the line between them.",
            "What policies see, from blue on the table to red at 10 cm, and the grasps they chose: "
            "both fingers to scale, green where the object was lifted and red where it was not.",
        ),
        "film.png": (
            "A robot's hand above an object, around it, and at the end of the grasp.",
            "One grasp by the arm, from its beginning to its end: of a few objects, the largest "
            "that was lifted.",
        ),
        "failures.png": (
            "Grasps that failed, each with the image that it was chosen by.",
            "Failures: the moment when each was decided, and in the corner what the policy saw.",
        ),
    }

    def __post_init__(self) -> None:
        for name, needs in (("robot", "world"), ("controller", "offsets")):
            value = getattr(self, name)
            if not hasattr(value, needs):
                raise TypeError(f"{name} = {value!r} has no {needs}: see robots.grasping")

    name = "grasping"

    def __repr__(self) -> str:
        fields = (self.controller, self.tabletop, self.robot, self.surrogate_cost, self.labels)
        return f"Grasping({physics(self.robot)}, {', '.join(map(repr, fields))})"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n objects at rest under a named stream."""
        words = f"grasping {self.tabletop!r}, {physics()}"
        return first_environments(
            self.tabletop.draw, words, n, stream=stream, seed=seed, block=BLOCK
        )

    def describe(self, environments: Environments) -> Arrays:
        """The family or the mesh of each object, what it is like, and how high it lies."""
        drawn = environments.arrays()
        kept = ("family", "mesh", "scale", "mass", "friction", "attempts", "top")
        told = {name: drawn[name] for name in kept if name in drawn}
        return told | ({"family": NAMES[told["family"]]} if "family" in told else {})

    @property
    def distribution(self) -> str:
        """How objects are drawn, in a line for records."""
        (light, heavy), (low, high) = self.tabletop.mass, self.tabletop.friction
        return one_line(
            f"{type(self.tabletop.objects).__name__} objects, {light:g} to {heavy:g} kg, friction "
            f"{low:g} to {high:g}, dropped on a table and at rest in the camera's sight"
        )

    @property
    def simulators(self) -> tuple[str, ...]:
        """Installed distributions that the costs depend on."""
        return ("mujoco", "torch") if isinstance(self.controller, GraspNetwork) else ("mujoco",)

    @property
    def data_used(self) -> tuple[EnvironmentRange, ...]:
        """The objects that the network's extractor was trained on, with any prior."""
        return self.controller.extractor.seen if isinstance(self.controller, GraspNetwork) else ()

    @property
    def policy_class(self) -> str:
        """The meaning of a row of parameters, and the robot: a certificate holds for no other."""
        return f"{self.controller!r} by {self.robot!r}"

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.controller.parameters)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray[np.uint8]:
        """Whether each grasp failed; shape (environments, policies)."""
        return (self.endings(policies, environments) != LIFTED).astype(np.uint8)

    def endings(self, policies: NDArray, environments: Environments) -> NDArray[np.uint8]:
        """How each grasp ended, as `simulator.ENDINGS` tells; shape (environments, policies)."""
        self.check_policies(policies)
        arrays, simulator = environments.arrays(), Simulator(self.robot)
        rows = []
        for row in range(len(environments)):
            own = policies[row] if policies.ndim == 3 else policies
            grasps = self.grasps(own, arrays["heights"][row], arrays["centroid"][row])
            rows.append(simulator.endings(*self.tabletop.at_rest(arrays, row), grasps))
        return np.array(rows)

    def grasps(self, policies: NDArray, heights: NDArray, centroid: NDArray) -> Floats:
        """(policies, 3), x and y in m and the angle of closing, for one object as it is seen."""
        return self.controller.offsets(policies, heights) + np.array([*centroid, 0.0])

    def act(self, policy: NDArray, observation: View) -> Floats:
        """x and y in m and the angle of closing, for what the camera sees."""
        if not isinstance(observation, View):
            raise ValueError("an observation is a View, as Camera.look gives it")
        return self.grasps(np.asarray(policy)[None], observation.heights, observation.centroid)[0]

    def look(self, environments: Environments) -> list[View]:
        """Camera images of each object: observations for `act`."""
        arrays = environments.arrays()
        fields = (arrays[name] for name in ("heights", "mask", "centroid", "top"))
        return [View(h, m, c, float(top)) for h, m, c, top in zip(*fields, strict=True)]

    def pictures(self, run: Any, environments: Environments) -> dict[str, bytes]:
        """Of objects, of what the policy sees and does, of the arm, and of failures."""
        from pacbayes_control.robots.grasping.pictures import attachments

        return attachments(self, run, environments)

    @property
    def parameters(self) -> int:  # type: ignore[override]
        """Numbers in a policy."""
        return self.controller.parameters

    @classmethod
    def from_options(cls, options: GraspingOptions) -> Self:
        """The robot, the objects and the network that were chosen."""
        needed("torch", "training a network")  # an error before anything is simulated
        vgg = options.weights if options.extractor == "vgg16" else None
        extractor = Vgg16(vgg) if vgg else Compact(options.weights)
        controller = GraspNetwork(extractor, head=options.head)
        repr(controller)  # reads the weights: an error now, not after the labels
        meshes = options.meshes and _mesh_folder(options.meshes, options.skip_broken)
        tabletop = Tabletop(meshes) if meshes else Tabletop()
        return cls(controller, tabletop, ROBOTS[options.robot](), Surrogate(options.surrogate))

    @property
    def settings(self) -> dict[str, Any] | None:
        """The options that make it; None if it rests on files, or on parts that no option names."""
        network, robot = self.controller, "arm" if isinstance(self.robot, Arm) else "gripper"
        if isinstance(network, GraspNetwork):
            usual = (GraspNetwork(Compact(), head=network.head), Tabletop(), ROBOTS[robot]())
            if (network, self.tabletop, self.robot) == usual:
                return {"robot": robot, "head": network.head, "surrogate": self.surrogate_cost.kind}
        return None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The task of a stranger's record, which may not name a file of this machine."""
        options = from_values(GraspingOptions, settings)
        if set(settings) != {"robot", "head", "surrogate"}:
            raise ValueError("the record does not describe a task of grasping")
        return cls.from_options(options)

    # ---- training -------------------------------------------------------------------------------

    def learn_prior(
        self,
        name: str,
        environments: Environments,
        plan: Any,
        execution: Any,  # noqa: ARG002 - nothing is rolled out for it
    ) -> tuple[Any, Environments]:
        """That of the compact extractor's file, or the paper's."""
        from pacbayes_control.learn import Plan
        from pacbayes_control.robots.grasping.learning import prior_named

        if plan.prior_steps != Plan.prior_steps:
            raise ValueError("prior_steps is for priors that are learnt on the spot")
        return prior_named(self._network(), name, plan.seed), environments

    def search_from(self, prior: str | None) -> Any:
        """Small steps from a prior that grasps already, large ones from the paper's."""
        from pacbayes_control.robots.grasping.learning import SEARCH

        return SEARCH.get(prior or "elsewhere", SEARCH["elsewhere"])

    def prepared(self, environments: Environments, execution: Any) -> Grasping:
        """The same with labels of the objects to train on."""
        from pacbayes_control.robots.grasping.learning import labelled

        labels_needed = self.labels is None and isinstance(self.controller, GraspNetwork)
        return labelled(self, environments, execution) if labels_needed else self

    def with_labels(self, labels: Labels) -> Grasping:
        """The same, ready to be trained."""
        return replace(self, labels=labels)

    def blind(self) -> Grasping:
        """The same with grasps in place of policies: what labels are made with."""
        return replace(self, controller=Offsets(), surrogate_cost=Surrogate(), labels=None)

    def gradients(self, policies: NDArray, environments: Environments) -> tuple[Floats, Floats]:
        """The mean surrogate of each policy over labelled objects, and its derivatives."""
        network, labels = self.trainable()
        goal = self.surrogate_cost.goal(labels, labels.rows(environments))
        return gradients(network, policies, self.features(environments), goal)

    def features(self, environments: Environments) -> NDArray[np.float32]:
        """Features of each object by the extractor; (environments, features)."""
        return _features(self._network(), environments)

    def trainable(self) -> tuple[GraspNetwork, Labels]:
        """The network and the labels to train it with; an error if one of them is missing."""
        network = self._network()
        if self.labels is None:
            raise ValueError("a network is trained on labelled objects: give the task labels")
        return network, self.labels

    def _network(self) -> GraspNetwork:
        if not isinstance(self.controller, GraspNetwork):
            raise ValueError(f"there is nothing to train in {self.controller!r}")
        return self.controller


@lru_cache(maxsize=1)  # a search asks for the same again and again
def _features(network: GraspNetwork, environments: Environments) -> NDArray[np.float32]:
    parts = (part.arrays()["heights"] for part in environments.chunks(BLOCK))
    return np.array([network.features(image) for part in parts for image in part])


def _mesh_folder(folder: Path, skip_broken: bool) -> MeshFolder:
    """The objects of a folder, with a bar while they are decomposed."""
    with progress_bars() as tell:
        objects = MeshFolder(
            folder,
            skip_broken=skip_broken,
            workers=os.cpu_count() or 1,
            progress=lambda done, total: tell(Progress("decomposing meshes", done, total)),
        )
    for path, why in objects.skipped:
        say(f"Left out: {path} {why}")
    return objects
