"""How the vehicle's policies are learnt by the commands: classes, priors and what is certified.

Each recipe is a few calls of the library, and shows how to put them together for another task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run, read_json
from pacbayes_control.learn.gaussian import learn_family, learn_gaussian, split_budget
from pacbayes_control.learn.one_policy import certify_draw, learn_one
from pacbayes_control.learn.priors import (
    LEARN_ELSEWHERE,
    GaussianPrior,
    imitate,
    learn_elsewhere,
    scaled,
    set_aside,
)
from pacbayes_control.learn.search import GaussianSearch, Settings
from pacbayes_control.learn.training import Watch, search_posterior
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar import ray_angles
from pacbayes_control.robots.vehicle import (
    Gains,
    Linear,
    Network,
    Reshuffled,
    network_start,
    paper_prior,
    reactive_gains,
)
from pacbayes_control.robots.vehicle.pretrained import ELSEWHERE, NETWORK, pretrained
from pacbayes_control.tasks import Environments, Task

CONTROLLERS = {"linear": Linear(), "network": NETWORK}
PRIORS = ("paper", "elsewhere", "split", "imitation")
CERTIFY = ("posterior", "draw", "one")
OWN = "own"
FAMILY = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # factors of the prior's variances, declared here
PRETRAINING = replace(LEARN_ELSEWHERE, steps=4000)
WIDTH = 0.25  # of a learnt prior, against the spread of its search: near its mean, costs are flat


@dataclass(frozen=True)
class Recipe:
    """What to learn over continuous policies, from what, and what to certify."""

    policy: str = "linear"  # linear or network, of the vehicle; own, of a task that has its prior
    prior: str | None = None  # one of PRIORS, or a file; paper or elsewhere where none is given
    family: bool = False  # choose among FAMILY of the prior's variances, by a union bound
    certify: str = "posterior"  # the posterior, one draw from it, or one of a few candidates
    delta: float = 0.01
    sampling_delta: float | None = None  # of it, for what sampled policies may miss
    method: str = "kl"
    objective: str | None = None
    share: float = 0.2  # of the environments, for a prior learnt on a part of them
    prior_steps: int = 400  # of a search for a prior
    candidates: int = 1
    draws: int | None = None  # policies for each environment to certify with
    shared_draws: bool = False
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    retries: int = 0  # how often a rollout that failed may be run again and still count

    def __post_init__(self) -> None:
        if self.policy not in (*CONTROLLERS, OWN):
            raise ValueError(
                f"policy {self.policy!r} is unknown: choose from grid, {', '.join(CONTROLLERS)}"
            )
        if self.certify not in CERTIFY:
            raise ValueError(
                f"{self.certify!r} cannot be certified: choose from {', '.join(CERTIFY)}"
            )
        if self.prior == "paper" and self.policy != "linear":
            raise ValueError("the paper's prior is over linear policies: choose another for these")
        if self.family and self.certify != "posterior":
            raise ValueError("a family of priors certifies the posterior: leave out --certify")
        split_budget(self.delta, self.method, self.sampling_delta)

    @property
    def prior_name(self) -> str:
        """The prior, or the usual one of the class."""
        return self.prior or ("paper" if self.policy == "linear" else "elsewhere")


def learn_vehicle(
    task: Vehicle,
    environments: Environments,
    recipe: Recipe,
    checkpoint: Path | None = None,
    watch: Callable[[str], Watch | None] | None = None,
) -> Run[Any]:
    """Follow a recipe. checkpoint: a file name whose beginning the searches' files share."""
    watching = watch("learning the prior") if watch else None
    prior, counted = _prior(task, environments, recipe, checkpoint, watching)
    if len(prior.distribution) != task.controller.parameters:
        raise ValueError(
            f"the prior has {len(prior.distribution)} parameters: {recipe.policy} policies need "
            f"{task.controller.parameters} parameters each"
        )
    return learn_from(prior, task, counted, recipe, checkpoint, watch)


def own_prior(task: Task, file: str | None) -> GaussianPrior:
    """The prior over the policies of a user's task: from a file, or the one that it has."""
    if file is not None:
        if not Path(file).is_file():
            raise FileNotFoundError(f"there is no prior at {file}: give a file")
        return _prior_from(file)
    prior = task.prior
    if isinstance(prior, GaussianPrior):
        return prior
    if not isinstance(prior, DiagonalGaussian):
        raise ValueError(
            f"the task {task.name} has neither policies nor a prior: give --policies or --prior "
            "a file, or the task an attribute of that name"
        )
    return GaussianPrior(prior, f"that of the task {task.name}")


def learn_from(
    prior: GaussianPrior,
    task: Task,
    counted: Environments,
    recipe: Recipe,
    checkpoint: Path | None = None,
    watch: Callable[[str], Watch | None] | None = None,
) -> Run[Any]:
    """Follow a recipe from a prior on, with environments that it has not seen."""
    rollouts = _named(checkpoint, "rollouts")
    if recipe.certify == "one":
        return learn_one(
            task,
            counted,
            prior,
            recipe.delta,
            recipe.candidates,
            seed=recipe.seed,
            out=rollouts,
            retries=recipe.retries,
        )
    common: dict[str, Any] = {
        "delta": recipe.delta,
        "method": recipe.method,
        "objective": recipe.objective,
        "settings": recipe.settings,
        "sampling_delta": recipe.sampling_delta,
        "draws": recipe.draws,
        "seed": recipe.seed,
        "retries": recipe.retries,
        "progress": watch("learning the posterior") if watch else None,
    }
    if recipe.certify == "posterior":
        common["shared"] = recipe.shared_draws
    if recipe.family:
        common["checkpoint"] = _named(checkpoint, "family")
        return learn_family(task, counted, scaled(prior, FAMILY), **common)
    file = _named(checkpoint, "search")
    if recipe.certify == "posterior":
        return learn_gaussian(task, counted, prior, checkpoint=file, **common)
    objective = recipe.objective or recipe.method
    search = GaussianSearch(
        prior.distribution, len(counted), recipe.delta, objective, recipe.settings, recipe.seed
    )
    search_posterior(task, counted, search, file, common["progress"], recipe.retries)
    return certify_draw(
        task,
        counted,
        prior,
        search.posterior,
        recipe.delta,
        objective,
        recipe.seed,
        rollouts,
        recipe.retries,
    )


def pretrain(
    steps: int = PRETRAINING.steps,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Watch | None = None,
) -> GaussianPrior:
    """Learn the prior that ships with the library: networks, on obstacle fields from elsewhere."""
    task = Vehicle(controller=NETWORK, obstacles=ELSEWHERE)
    start, settings = network_start(NETWORK, seed), replace(PRETRAINING, steps=steps)
    return learn_elsewhere(
        task,
        start,
        settings,
        width=WIDTH,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )


def _prior(
    task: Vehicle,
    environments: Environments,
    recipe: Recipe,
    checkpoint: Path | None,
    progress: Watch | None,
) -> tuple[GaussianPrior, Environments]:
    """The prior, and the environments that are left for the bound to count."""
    name, seed = recipe.prior_name, recipe.seed
    if name == "paper":
        return GaussianPrior(paper_prior(), "the paper's, around x0 = 2.5, y0 = 10"), environments
    if name == "elsewhere" and recipe.policy == "network":
        return GaussianPrior(*pretrained()), environments
    if name not in PRIORS:
        if not Path(name).is_file():
            raise ValueError(f"there is no prior {name!r}: choose {', '.join(PRIORS)}, or a file")
        return _prior_from(name), environments
    start = _start(task.controller, seed)
    elsewhere = replace(task, obstacles=ELSEWHERE)
    if name == "imitation":
        return _imitation(task, elsewhere, start, seed), environments
    settings = replace(LEARN_ELSEWHERE, steps=recipe.prior_steps)
    file = _named(checkpoint, "prior")
    if name == "elsewhere":
        learnt = learn_elsewhere(
            elsewhere,
            start,
            settings,
            width=WIDTH,
            seed=seed,
            checkpoint=file,
            progress=progress,
        )
        return learnt, environments
    part, rest = set_aside(environments, recipe.share)
    words = f"learnt on {len(part)} of the environments, which the bound does not count"
    reshuffled = replace(task, obstacles=Reshuffled(part))
    learnt = learn_elsewhere(
        reshuffled,
        start,
        settings,
        width=WIDTH,
        seed=seed,
        origin=words,
        checkpoint=file,
        progress=progress,
    )
    return learnt, rest


def _prior_from(file: str) -> GaussianPrior:
    record = read_json(Path(file))
    gaussian = DiagonalGaussian.from_record(record, f"prior in {file}")
    return GaussianPrior(gaussian, str(record.get("origin", f"from {file}")))


def _imitation(
    task: Vehicle, elsewhere: Vehicle, start: DiagonalGaussian, seed: int
) -> GaussianPrior:
    """Imitate the paper's linear policy as it drives on fields from elsewhere."""
    recorded = elsewhere.environments(10, stream="expert", seed=seed)
    expert = replace(elsewhere, controller=Gains())
    observations, actions = expert.recordings(reactive_gains(2.5, 10, ray_angles()), recorded)
    return imitate(task.respond, observations, actions, start, [recorded])


def _start(controller: Any, seed: int) -> DiagonalGaussian:
    """Where to begin a search for a prior, and how wide the prior shall be."""
    if isinstance(controller, Network):
        return network_start(controller, seed)
    return DiagonalGaussian(paper_prior().mean, 0.25, "start")


def _named(checkpoint: Path | None, part: str) -> Path | None:
    return checkpoint.with_name(f"{checkpoint.name}.{part}") if checkpoint else None
