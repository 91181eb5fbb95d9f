"""The class `Task`: every hook of a task, with its meaning and its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.tasks.environments import Arrays, Environments, Noise, in_a_line, scalars


@dataclass(frozen=True)
class Scene:
    """An environment in the plane, for a reader to look at; lengths in m."""

    circles: NDArray[np.float64]  # (circles, 3) as x, y, radius
    boxes: NDArray[np.float64]  # (boxes, 4) as left, right, bottom, top
    robot_radius: float
    time_step: float  # s between two points of a path


class Film(Protocol):
    """Where the frames of a rollout go, as it is filmed."""

    every: int  # frames from one that is drawn to the next: the others need not be drawn

    def take(self, frame: NDArray[np.uint8], fps: float) -> None:
        """Take a frame (height, width, 3); fps: of all frames, also of those that are not drawn."""


@dataclass(frozen=True, eq=False)
class Watched:
    """One rollout that was watched. Row 0 of its trajectory is the state that it began in."""

    cost: float | None  # None if it raised an error that is not a declared failure
    error: BaseException | None = None  # raised by the rollout, a declared failure too
    ended: str = ""  # how, in words; empty if the task does not tell
    columns: Mapping[str, NDArray] = field(default_factory=dict)  # (steps + 1,) each, by name
    # the cost where frames were drawn, if it is another: drawing has changed the rollout
    filmed_cost: float | None = None


class Task:
    """A distribution over environments, and what a policy costs in one.

    `name`, `environments` and `costs` are required; everything else has a default. An object with
    these three that does not inherit from this class is a task too: see `as_task`.
    """

    name: str  # short, for records; one word if the task is registered under it

    # ---- policies -------------------------------------------------------------------------------

    policies: Any = None  # an array to choose from, one per row, if there are finitely many
    policy_names: Sequence[str] = ()  # one for each row of `policies`
    parameters: int | None = None  # of a policy; None if any number is accepted
    policy_class: str | None = None  # the meaning of a row of parameters, for records
    prior: Any = None  # a DiagonalGaussian or GaussianPrior, if there are infinitely many
    priors: Sequence[str] = ()  # names of others that `learn_prior` makes, the default first
    prior_hint: str = ""  # what to do with a file that is not a prior, for an error

    # ---- how it is learnt by name ---------------------------------------------------------------

    # a frozen dataclass of `tasks.options.option` fields, that `from_options` makes the task from
    Options: ClassVar[type | None] = None
    learns: ClassVar[Sequence[str]] = ("finite", "continuous")  # kinds of policies
    test_environments: int = 0  # default number of new ones that estimate the true cost

    # ---- words and facts for records ------------------------------------------------------------

    noise_kind: str = ""  # the randomness of a rollout; if not empty, `costs` gets a Noise
    cost_rule: str = ""  # how a rollout is scored, in one line
    graded: bool | None = None  # whether it may cost more than 0 and less than 1; None: not said
    distribution: str = ""  # how environments are drawn, in one line
    words: str = ""  # which robot a certificate is about, in one line
    simulators: Sequence[str] = ()  # installed distributions whose versions matter for the costs
    # environments that were used to make every policy, such as those of a feature extractor: no
    # bound may count them
    data_used: Sequence[EnvironmentRange] = ()
    depends_on: Sequence[Environments] = ()  # environments its distribution was made from
    settings: Mapping[str, Any] | None = None  # plain values for `from_settings`

    # ---- how it wants to be run -----------------------------------------------------------------

    one_by_one: bool = False  # a chunk may be as small as a single rollout
    together: int = 0  # environments in which a policy is rolled out at once; a chunk needs as many
    marks: bool = (
        False  # whether `user_task.begins` is told of each rollout, and none runs beside it
    )
    uses_all_cores: bool = False  # workers on the same machine would not make it faster
    releases_gil: bool = False  # workers can be threads
    devices: Sequence[str] = ("cpu",)  # that `on_device` knows
    hardware: str = ""  # the device that rollouts run on, for records; empty for the CPU

    # ---- optional abilities; None if the task does not have them ---------------------------------

    # (policies, environments, noise) -> costs that vary smoothly with the policy, of the same form
    surrogate: Callable[..., NDArray] | None = None
    # (policies, environments) -> mean surrogate of each policy and its derivative, (policies,) and
    # (policies, parameters)
    gradients: Callable[..., tuple[NDArray, NDArray]] | None = None
    # (policies, environments, steps) -> a number in [0, 1] for each rollout, equal only if all
    # observations are equal
    observed: Callable[..., NDArray] | None = None
    # (policy, observation) -> action, for deployment
    act: Callable[..., Any] | None = None
    # (policy) -> a function from observation to action, if policies have a memory
    actor: Callable[..., Callable[[Any], Any]] | None = None
    # (environments) -> a Scene each, for the replays of a report
    scenes: Callable[..., list[Scene]] | None = None
    # (policies, environments, noise) -> for each environment a list with the path of each policy,
    # (points, 2) as x, y, or (points, 3) with the heading
    paths: Callable[..., list[list[NDArray]]] | None = None

    # ---- a report -------------------------------------------------------------------------------

    # for each picture that a run may hold: a description, and what to look at
    captions: ClassVar[Mapping[str, tuple[str, str]]] = {}
    no_replay: ClassVar[str] = ""  # why rollouts cannot be replayed, in a sentence

    # ---- methods: arguments that a default does not use are for tasks of their own ---------------

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
        self, policies: NDArray, environments: Environments, *noise: Any
    ) -> tuple[NDArray, int]:
        """The costs, and how many of them are 1 because of an error declared to be a failure."""
        return self.costs(policies, environments, *noise), 0

    def check_policies(self, policies: NDArray) -> None:
        """Raise ValueError, before any rollout, if rows are not valid policies."""

    def on_device(self, device: str) -> Task:
        """The same task with its rollouts on a device, or on the best one here (auto).

        Costs may differ between devices where rounding decides, so that records tell `hardware`.
        """
        if device in ("cpu", "auto"):
            return self
        raise ValueError(f"the rollouts of {self.name} run on the CPU alone: leave out the device")

    def rounding_decides(
        self,
        policies: NDArray,  # noqa: ARG002 - for tasks with several devices
        environments: Environments,  # noqa: ARG002
        *noise: Noise,  # noqa: ARG002
    ) -> bool:
        """Whether one rollout may cost something else on another device, by its rounding."""
        return False

    def describe(self, environments: Environments) -> Arrays:
        """Numbers and words that describe each environment, one value each, by name.

        They go into the run's files. By default all that was drawn and is one value, or a few.
        """
        return scalars(environments.arrays())

    def watch(
        self,
        policy: NDArray,
        environments: Environments,
        noise: Noise | None = None,
        film: Film | None = None,
    ) -> Watched:
        """One rollout: its cost or its error, and its trajectory if the task can tell it.

        Args:
            policy: (parameters,)
            environments: one of them
            noise: as for `costs`, shifted to the policy's column
            film: is given the frames; ValueError, before the rollout, if the task cannot draw them
        """
        from pacbayes_control.tasks.watching import watch_costs

        return watch_costs(self, policy, environments, noise, film)

    def in_batches(self, vector: int = 8) -> Task | None:  # noqa: ARG002
        """The task with so many rollouts of a policy at once, to measure; None: no other task."""
        return None

    def pictures(self, run: Any, environments: Environments) -> Mapping[str, bytes]:  # noqa: ARG002
        """Files for the folder of a run, .svg or .png, by name; environments: new ones."""
        return {}

    def learn_prior(
        self,
        name: str,
        environments: Environments,  # noqa: ARG002 - for priors that are learnt on some of them
        plan: Any,  # noqa: ARG002 - learn.Plan
        execution: Any,  # noqa: ARG002 - rollouts.Execution
    ) -> tuple[Any, Environments]:
        """One of `priors`, and the environments that the bound may count."""
        raise ValueError(f"the task {self.name} has no prior {name!r}")

    def search_from(self, prior: str | None) -> Any:  # noqa: ARG002 - for tasks that use it
        """The task's default learn.SearchSettings for a prior; None: the library's."""
        return None

    def prepared(self, environments: Environments, execution: Any) -> Task:  # noqa: ARG002
        """The task with data that a search on these environments needs, such as labels."""
        return self

    @classmethod
    def from_options(cls, options: Any) -> Self:  # noqa: ARG003 - for tasks that have some
        """The task that a user's `Options` describe."""
        return cls()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The task that an untrusted record describes; ValueError if it describes no task."""
        raise ValueError(f"the task {cls.__name__} cannot be made from a record: {settings}")


METHODS = (name for name, value in vars(Task).items() if callable(value) and name[0] != "_")
HOOKS = tuple(dict.fromkeys([*Task.__annotations__, *METHODS]))


class AdaptedTask(Task):
    """A task from an object that has hooks of a task but does not inherit from `Task`."""

    def __init__(self, own: Any) -> None:
        self.own = own
        for hook in HOOKS:
            try:
                setattr(self, hook, getattr(own, hook))
            except Exception as error:  # a user's property may raise anything
                if hasattr(type(own), hook) or not isinstance(error, AttributeError):
                    words = f"{hook} of the task {type(own).__name__} cannot be read"
                    raise ValueError(f"{words}: {in_a_line(error)}") from error
        if not hasattr(own, "on_device"):  # names that mean something of its own
            self.devices, self.hardware = Task.devices, Task.hardware
        if callable(self.policies):
            raise ValueError(
                f"the task {own!r} has policies that are a method: make them an array, one a row"
            )

    def __repr__(self) -> str:
        return repr(self.own)


def as_task(own: Any, needed: Sequence[str] = ("name", "environments", "costs")) -> Task:
    """A task with every hook, from an object that has the required ones."""
    if isinstance(own, Task):
        return own
    for hook in needed:
        if not hasattr(own, hook):
            raise ValueError(f"{own!r} is not a task: it has no {hook}")
    return AdaptedTask(own)


def brought(task: Any) -> Any:
    """The user's own object, if the task is an adapter of one; otherwise the task itself."""
    return brought(task.own) if isinstance(task, AdaptedTask) else task


def noise_of(task: Task, environments: Environments, noise: Noise | None) -> Noise | None:
    """The noise of a task's rollouts; None if the task has no `noise_kind`.

    If no noise is given, its stream is named after the environments' stream.
    """
    if not task.noise_kind:
        return None
    noise = noise or Noise(f"{environments.stream} noise", environments.seed)
    return replace(noise, kind=task.noise_kind)


def versions_of(task: Task) -> dict[str, str]:
    """The installed versions of a task's `simulators`, for records."""
    versions = {}
    for name in task.simulators:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
