"""What can be rolled out: every hook of a task, with what it means and what it is by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Seen
from pacbayes_control.tasks.environments import Environments, Noise, in_a_line


@dataclass(frozen=True)
class Scene:
    """An environment in the plane, for a reader to look at; lengths in m."""

    circles: NDArray[np.float64]  # (circles, 3) as x, y, radius
    boxes: NDArray[np.float64]  # (boxes, 4) as left, right, bottom, top
    robot_radius: float
    time_step: float  # s between two points of a path


class Task:
    """A distribution over environments, and what a policy costs in one.

    `name`, `environments` and `costs` are needed; all else has a default. An object that has these
    three and is not made from this class is a task too: see `as_task`.
    """

    name: str  # short, for records; of one word where the task is registered under it

    # ---- policies -------------------------------------------------------------------------------

    policies: Any = None  # an array to choose from, one a row, where there are finitely many
    policy_names: Sequence[str] = ()  # one for each of them
    parameters: int | None = None  # of a policy; None if any number will do
    policy_class: str | None = None  # what a row of parameters means, in words for records
    prior: Any = None  # a DiagonalGaussian or GaussianPrior, where there are infinitely many

    # ---- words and facts for records ------------------------------------------------------------

    noise_kind: str = ""  # what is random in a rollout; if not empty, `costs` is given a Noise
    cost_rule: str = ""  # what a rollout costs, in a line
    distribution: str = ""  # how environments are drawn, in a line
    words: str = ""  # which robot a promise is about, in a line
    simulators: Sequence[str] = ()  # installed distributions whose versions matter for the costs
    data_used: Sequence[Seen] = ()  # environments that every policy was made with: no bound may
    # count these, whatever the parameters are; such as those of a feature extractor
    depends_on: Sequence[Environments] = ()  # that its distribution was made from
    settings: Mapping[str, Any] | None = None  # plain values that `from_settings` makes it from

    # ---- how it wants to be run -----------------------------------------------------------------

    one_by_one: bool = False  # a chunk may be as small as a single rollout
    uses_all_cores: bool = False  # workers on the same machine would gain nothing
    releases_gil: bool = False  # threads will do

    # ---- what some tasks can do; None for those that cannot --------------------------------------

    # (policies, environments, noise) -> costs that vary smoothly with the policy, of the same form
    surrogate: Callable[..., NDArray] | None = None
    # (policies, environments) -> mean surrogate of each policy and its derivative, (policies,) and
    # (policies, parameters)
    gradients: Callable[..., tuple[NDArray, NDArray]] | None = None
    # (policies, environments, steps) -> a number in [0, 1] for each rollout, equal only where all
    # that a policy sees is
    observed: Callable[..., NDArray] | None = None
    # (policy, observation) -> action, for deployment
    act: Callable[..., Any] | None = None
    # (policy) -> a function from observation to action, where an episode has a memory
    actor: Callable[..., Callable[[Any], Any]] | None = None
    # (environments) -> a Scene each, for the replays of a report
    scenes: Callable[..., list[Scene]] | None = None
    # (policies, environments, noise) -> for each environment a list with the path of each policy,
    # (points, 2) as x, y, or (points, 3) with the heading
    paths: Callable[..., list[list[NDArray]]] | None = None

    # ---- a report -------------------------------------------------------------------------------

    # of each picture that a run may hold: a description, and what to look at
    captions: ClassVar[Mapping[str, tuple[str, str]]] = {}
    no_replay: ClassVar[str] = ""  # why rollouts cannot be replayed, in a sentence

    # ---- methods --------------------------------------------------------------------------------

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        """Draw n environments under a named stream."""
        raise NotImplementedError

    def costs(self, policies: NDArray, environments: Environments, *noise: Noise) -> NDArray:
        """Costs in [0, 1] of policies, each a row of parameters, in environments.

        Args:
            policies: (policies, parameters), each to be rolled out in every environment, or
                (environments, policies, parameters), where each environment has its own; not to be
                written to
            environments: a chunk that fits in memory
            noise: for the rollouts, where the task has a `noise_kind`

        Returns:
            (environments, policies)

        """
        raise NotImplementedError

    def costs_and_raised(
        self, policies: NDArray, environments: Environments, *noise: Noise
    ) -> tuple[NDArray, int]:
        """The costs, and how many of them are 1 for a failure that was declared in advance."""
        return self.costs(policies, environments, *noise), 0

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows that are no policies, before any is rolled out."""

    def pictures(
        self,
        run: Any,  # noqa: ARG002 - for tasks that draw some
        environments: Environments,  # noqa: ARG002
    ) -> Mapping[str, bytes]:
        """Files for the folder of a run, .svg or .png, by name; environments: never seen."""
        return {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The task that a stranger's record describes; an error for one that describes none."""
        raise ValueError(f"the task {cls.__name__} cannot be made from a record: {settings}")


METHODS = (name for name, value in vars(Task).items() if callable(value) and name[0] != "_")
HOOKS = tuple(dict.fromkeys([*Task.__annotations__, *METHODS]))


class AdaptedTask(Task):
    """An object that has hooks of a task under their names, and is not made from `Task`."""

    def __init__(self, own: Any) -> None:
        self.own = own
        for hook in HOOKS:
            try:
                setattr(self, hook, getattr(own, hook))
            except Exception as error:  # a user's property may raise anything
                if hasattr(type(own), hook) or not isinstance(error, AttributeError):
                    words = f"{hook} of the task {type(own).__name__} cannot be read"
                    raise ValueError(f"{words}: {in_a_line(error)}") from error
        if callable(self.policies):
            raise ValueError(
                f"the task {own!r} has policies that are a method: make them an array, one a row"
            )

    def __repr__(self) -> str:
        return repr(self.own)


def as_task(own: Any, needed: Sequence[str] = ("name", "environments", "costs")) -> Task:
    """A task that declares every hook, from any object that has the hooks that are needed."""
    if isinstance(own, Task):
        return own
    for hook in needed:
        if not hasattr(own, hook):
            raise ValueError(f"{own!r} is no task: it has no {hook}")
    return AdaptedTask(own)


def brought(task: Any) -> Any:
    """The object that a user brought, of a task that it was adapted to; or the task itself."""
    return brought(task.own) if isinstance(task, AdaptedTask) else task


def noise_of(task: Task, environments: Environments, noise: Noise | None) -> Noise | None:
    """The noise to run a task's rollouts with: none where the task has no `noise_kind`.

    Where none is given, a stream named after the environments'.
    """
    if not task.noise_kind:
        return None
    noise = noise or Noise(f"{environments.stream} noise", environments.seed)
    return replace(noise, kind=task.noise_kind)


def versions_of(task: Task) -> dict[str, str]:
    """The installed versions of a task's `simulators`, for records; empty where it names none."""
    versions = {}
    for name in task.simulators:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
