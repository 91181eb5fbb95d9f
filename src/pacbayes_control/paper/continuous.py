"""Continuous policies for the vehicle (paper: Section 7.1): the paper's setting, and better ones.

The paper shows one draw of N = 100 environments. Here every row is a mean over draws, with the
spread beside it, and the true cost of each is estimated on environments from a stream of its own.

paper           the paper's linear policies, prior and objective (C_PAC), and Maurer's bound
ours            network policies; the prior was learnt elsewhere, never on this distribution
deterministic   one network, the mean of that prior: certified by the exact binomial tail
split           one network, learnt from a fifth of the environments and certified on the others:
                nothing but the training set is used
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.learn.search import Settings
from pacbayes_control.learn.training import Watch
from pacbayes_control.recipes import CONTROLLERS, Recipe, learn_vehicle
from pacbayes_control.rollouts import estimate_true_cost
from pacbayes_control.tasks import Environments, Vehicle
from pacbayes_control.tasks.vehicle import paper_prior

DELTA, SAMPLING_DELTA = 0.01, 0.001  # δ = 0.009 and δ' = 0.001 in the paper
PAPER_CONTINUOUS = 0.224  # bound at N = 100; true cost 0.075
PAPER_FINITE = {100: 0.178, 1000: 0.121}  # over 50 policies: the paper has no other at N = 1000

_OURS = Recipe("network", "elsewhere", delta=DELTA, sampling_delta=SAMPLING_DELTA)
_PAPER = Recipe(
    "linear",
    "paper",
    delta=DELTA,
    sampling_delta=SAMPLING_DELTA,
    method="kl-maurer",
    objective="pinsker",
)
_ONE = Recipe("network", "elsewhere", certify="one", delta=DELTA)
_SPLIT = replace(_ONE, prior="split")
_SHORT = Settings(steps=40, step_size=0.2)  # a thousand environments say more in each step

BETTER_PRIOR_STEPS = 400

# setting, environments, recipe
SETTINGS: tuple[tuple[str, int, Recipe], ...] = (
    ("paper", 100, _PAPER),
    ("ours", 100, _OURS),
    ("ours", 1000, replace(_OURS, settings=_SHORT)),
    ("deterministic", 100, _ONE),
    ("deterministic", 1000, _ONE),
    ("split", 1000, _SPLIT),
)


@dataclass(frozen=True)
class Row:
    """One setting at one N, over all draws of the training environments."""

    setting: str  # paper, ours, deterministic or split
    environments: int
    policy: str  # linear or network
    prior: str  # where it came from
    certified: str  # a posterior, or one policy
    bound: float  # mean over draws
    bound_std: float  # standard deviation over draws; 0 for one draw
    bound_min: float
    bound_max: float
    true_cost: float  # mean over draws
    true_cost_std: float
    kl: float  # mean over draws
    violations: int  # draws whose bound is below the estimate of the true cost
    draws: int
    paper_bound: float  # published: continuous policies at N = 100, or 50 policies


@dataclass(frozen=True)
class Continuous:
    """The rows, and the gains K of linear policies for the plot against the rays' angles."""

    rows: list[Row]
    gains: dict[str, NDArray[np.float64]]  # name -> (rays,)


def continuous(
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    settings: tuple[str, ...] = ("paper", "ours", "deterministic", "split"),
    watch: Callable[[str], Watch | None] | None = None,
) -> Continuous:
    """Every setting over so many draws of its training environments."""
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    rows = []
    gains = {"prior": CONTROLLERS["linear"].weights(paper_prior().mean)}
    for setting, n, recipe in SETTINGS:
        if setting not in settings:
            continue
        task = Vehicle(controller=CONTROLLERS[recipe.policy])
        test = task.environments(test_environments, stream="continuous test", seed=seed)
        results, run = [], None
        for draw, train in _training_sets(task, n, draws, seed):
            title = f"{setting}, N = {n:,}, draw {draw + 1} of {draws}"
            run = learn_vehicle(
                task,
                train,
                replace(recipe, seed=seed + draw),
                watch=_titled(watch, title) if watch else None,
            )
            results.append(
                (
                    run.certificate.bound,
                    estimate_true_cost(task, run, test, [train]),
                    run.certificate.kl,
                )
            )
            if setting == "paper" and draw == 0:
                gains["paper's prior, optimised"] = task.controller.weights(run.posterior.mean)
        assert run is not None
        rows.append(_row(setting, n, recipe, run.certificate.prior, np.array(results)))
    if "paper" in settings:
        gains["prior from elsewhere, optimised"] = _better_prior(seed, watch)
    return Continuous(rows, gains)


def to_dict(result: Continuous) -> dict[str, Any]:
    """Plain values for JSON."""
    return {
        "rows": [asdict(row) for row in result.rows],
        "gains": {name: gains.tolist() for name, gains in result.gains.items()},
    }


def _training_sets(
    task: Vehicle, n: int, draws: int, seed: int
) -> Iterator[tuple[int, Environments]]:
    for draw in range(draws):
        yield draw, task.environments(n, stream=f"continuous train {draw}", seed=seed)


def _titled(watch: Callable[[str], Watch | None], title: str) -> Callable[[str], Watch | None]:
    return lambda part: watch(f"{title}: {part}")


def _better_prior(seed: int, watch: Callable[[str], Watch | None] | None) -> NDArray[np.float64]:
    """The optimised K of the paper's policy class from a prior that was learnt elsewhere."""
    task = Vehicle(controller=CONTROLLERS["linear"])
    train = task.environments(100, stream="continuous train 0", seed=seed)
    recipe = replace(_PAPER, prior="elsewhere", prior_steps=BETTER_PRIOR_STEPS, seed=seed)
    titled = _titled(watch, "linear, better prior") if watch else None
    return task.controller.weights(learn_vehicle(task, train, recipe, watch=titled).posterior.mean)


def _row(setting: str, n: int, recipe: Recipe, prior: str, results: NDArray) -> Row:
    bounds, truths, kls = results.T
    spread = results.std(axis=0, ddof=1) if len(results) > 1 else np.zeros(3)
    continuous_row = n == 100 and recipe.certify == "posterior"
    return Row(
        setting=setting,
        environments=n,
        policy=recipe.policy,
        prior=prior,
        certified="a posterior" if recipe.certify == "posterior" else "one policy",
        bound=float(bounds.mean()),
        bound_std=float(spread[0]),
        bound_min=float(bounds.min()),
        bound_max=float(bounds.max()),
        true_cost=float(truths.mean()),
        true_cost_std=float(spread[1]),
        kl=float(kls.mean()),
        violations=int(np.sum(bounds < truths)),
        draws=len(results),
        paper_bound=PAPER_CONTINUOUS if continuous_row else PAPER_FINITE[n],
    )
