"""The grasping task: objects at rest, policies that look at them, and whether they are lifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.robots.grasping.camera import View
from pacbayes_control.robots.grasping.environments import BLOCK, Tabletop
from pacbayes_control.robots.grasping.gripper import Gripper
from pacbayes_control.robots.grasping.labels import Labels
from pacbayes_control.robots.grasping.options import (
    GraspingOptions,
    full,
    grasping_task,
    settings_of,
)
from pacbayes_control.robots.grasping.policy import GraspController, GraspNetwork, Offsets
from pacbayes_control.robots.grasping.simulator import LIFTED, Robot, Simulator, physics
from pacbayes_control.robots.grasping.surrogates import Surrogate, gradients
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.environments import Environments, first_environments
from pacbayes_control.tasks.identity import one_line
from pacbayes_control.tasks.options import from_values
from pacbayes_control.tasks.user_task import check_parameters

Floats = NDArray[np.float64]


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
        for name, value, needs in (
            ("robot", self.robot, "world"),
            ("controller", self.controller, "offsets"),
        ):
            if not hasattr(value, needs):
                raise TypeError(f"{name} = {value!r} has no {needs}: see robots.grasping")

    name = "grasping"

    def __repr__(self) -> str:
        fields = (self.controller, self.tabletop, self.robot, self.surrogate_cost, self.labels)
        return f"Grasping({physics(self.robot)}, {', '.join(map(repr, fields))})"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n objects at rest under a named stream."""
        words = f"grasping {self.tabletop!r}, {physics()}"
        return first_environments(self.tabletop.draw, words, n, stream, seed, BLOCK)

    @property
    def cost_rule(self) -> str:
        """How a rollout is scored, in one line."""
        return (
            "0 where the object is lifted more than 2 cm, held by both fingers, clear of the table "
            "and at rest, 1 otherwise"
        )

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
        fields = zip(
            *(arrays[name] for name in ("heights", "mask", "centroid", "top")), strict=True
        )
        return [View(image, mask, centroid, float(top)) for image, mask, centroid, top in fields]

    def pictures(self, run: Any, environments: Environments) -> dict[str, bytes]:
        """Of objects, of what the policy sees and does, of the arm, and of failures."""
        from pacbayes_control.robots.grasping.arm import Arm
        from pacbayes_control.robots.grasping.pictures import attachments

        return attachments(self, run, environments, Arm(self.robot.hand))

    @property
    def parameters(self) -> int:  # type: ignore[override]
        """Numbers in a policy."""
        return self.controller.parameters

    @classmethod
    def from_options(cls, options: GraspingOptions) -> Self:
        """The robot, the objects and the network that were chosen."""
        return grasping_task(cls, options)  # type: ignore[return-value]

    @property
    def settings(self) -> dict[str, Any] | None:
        """The options that make it; None if it rests on files, or on parts that no option names."""
        return settings_of(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The task of a stranger's record, which may not name a file of this machine."""
        options = from_values(GraspingOptions, settings)
        if options.meshes or options.weights or dict(settings) != full(options):
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
        network: Any = self.controller
        key = (network.extractor.digest, environments.task, environments.range)
        found = _known.get(key)
        if found is None:
            images = (image for part in environments.chunks(BLOCK) for image in _heights(part))
            found = np.array([network.features(image) for image in images])
            _known.clear()  # a search asks for the same again and again
            _known[key] = found
        return found

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


_known: dict[tuple[Any, ...], NDArray[np.float32]] = {}


def _heights(environments: Environments) -> NDArray[np.float32]:
    return environments.arrays()["heights"]
