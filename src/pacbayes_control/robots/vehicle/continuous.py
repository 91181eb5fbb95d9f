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

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pacbayes_control import __version__
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.learn.repeated import Spread, over_draws
from pacbayes_control.learn.search import Settings
from pacbayes_control.learn.training import Watch
from pacbayes_control.report.console import say, show
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import paper_prior
from pacbayes_control.robots.vehicle.pretrained import pretrained
from pacbayes_control.robots.vehicle.recipe import CONTROLLERS, Recipe, learn_vehicle
from pacbayes_control.rollouts import estimate_true_cost
from pacbayes_control.tasks import Environments

DELTA, SAMPLING_DELTA = 0.01, 0.001  # δ = 0.009 and δ' = 0.001 in the paper
PAPER_CONTINUOUS = 0.224  # bound at N = 100; true cost 0.075
PAPER_FINITE = {100: 0.178, 1000: 0.121}  # over 50 policies: the paper has no other at N = 1000

Titles = Callable[[str], Watch | None] | None  # from the title of a search to who watches it

REPEATS = {100: 3, 1000: 1}  # times as many draws of a small N, whose bounds vary the most

_OURS = Recipe(
    "network",
    "elsewhere",
    delta=DELTA,
    sampling_delta=SAMPLING_DELTA,
    settings=Settings(steps=20, step_size=0.05),
)
_PAPER = Recipe(
    "linear",
    "paper",
    delta=DELTA,
    sampling_delta=SAMPLING_DELTA,
    method="kl-maurer",
    objective="pinsker",
    draws=3000,  # fresh for each environment: a tenth of the paper's rollouts
    settings=Settings(steps=100, step_size=0.2),
)
_ONE = Recipe("network", "elsewhere", certify="one", delta=DELTA)
_SPLIT = replace(_ONE, prior="split")

BETTER_PRIOR_STEPS = 400

# setting, environments, recipe
SETTINGS: tuple[tuple[str, int, Recipe], ...] = (
    ("paper", 100, _PAPER),
    ("ours", 100, replace(_OURS, draws=3000)),
    ("ours", 1000, replace(_OURS, draws=300)),
    ("deterministic", 100, _ONE),
    ("deterministic", 1000, _ONE),
    ("split", 1000, _SPLIT),
)


@dataclass(frozen=True)
class Row(Spread):
    """One setting at one N, over all draws of the training environments."""

    setting: str  # paper, ours, deterministic or split
    environments: int
    policy: str  # linear or network
    prior: str  # where it came from
    certified: str  # a posterior, or one policy
    kl: float  # mean over draws
    paper_bound: float  # published: continuous policies at N = 100, or 50 policies


@dataclass(frozen=True)
class Continuous:
    """The rows, and the gains K of linear policies for the plot against the rays' angles."""

    rows: list[Row]
    gains: dict[str, NDArray[np.float64]]  # name -> (rays,)
    better: dict[str, Any]  # the paper's policies from a better prior, for one draw of N = 100


def continuous(
    draws: int = 10,
    test_environments: int = 100_000,
    seed: int = 0,
    kept: Path | None = None,
    watch: Titles = None,
) -> Continuous:
    """Every setting over so many draws of its training environments, more for a small N.

    kept: a file in which every finished draw is kept, and from which an interrupted experiment is
    taken up.
    """
    if draws < 1:
        raise ValueError(f"{draws} draws were asked for: at least one is needed")
    finished = _Finished(kept)
    rows = []
    gains = {"prior": CONTROLLERS["linear"].weights(paper_prior().mean)}
    for setting, n, recipe in SETTINGS:
        task = Vehicle(controller=CONTROLLERS[recipe.policy])
        test = task.environments(test_environments, stream="continuous test", seed=seed)
        truths = _Truths(task, test)
        results = []
        repeats = draws * REPEATS[n]
        for draw in range(repeats):
            train = task.environments(n, stream=f"continuous train {n} {draw}", seed=seed)
            title = f"{setting}, N = {n:,}, draw {draw + 1} of {repeats}"
            name = f"{setting} {n} {draw} {seed} {test_environments} {_fingerprint(recipe)}"
            mine = replace(recipe, seed=seed + draw)
            results.append(
                finished.get(name, partial(_one, truths, train, mine, _titled(watch, title)))
            )
        rows.append(_row(setting, n, recipe, results))
        if setting == "paper":
            name = "the paper's prior, optimised"
            gains[name] = task.controller.weights(np.array(results[0]["mean"]))
    better = replace(_PAPER, prior="elsewhere", prior_steps=BETTER_PRIOR_STEPS, seed=seed)
    task = Vehicle(controller=CONTROLLERS["linear"])
    train = task.environments(100, stream="continuous train 100 0", seed=seed)
    test = task.environments(test_environments, stream="continuous test", seed=seed)
    titled = _titled(watch, "linear, better prior")
    result = finished.get(
        f"better 100 0 {seed} {test_environments} {_fingerprint(better)}",
        partial(_one, _Truths(task, test), train, better, titled),
    )
    gains["a prior from elsewhere, optimised"] = task.controller.weights(np.array(result["mean"]))
    return Continuous(rows, gains, {name: result[name] for name in ("bound", "true_cost", "kl")})


class _Finished:
    """Results by name, one a line of a file; what is there is not computed again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, Any] = {}
        for line in path.read_text().splitlines() if path and path.exists() else []:
            try:
                self.known |= json.loads(line)
            except ValueError:  # the line that an interruption cut short
                continue

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self.known:
            self.known[name] = compute()
            if self.path:
                with self.path.open("a") as file:
                    file.write("\n" + json.dumps({name: self.known[name]}))
        return self.known[name]


def _fingerprint(recipe: Recipe) -> str:
    """What decides a result beside its seed."""
    words = f"{__version__} {recipe!r} {pretrained()[0].digest}"
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _one(truths: _Truths, train: Environments, recipe: Recipe, watch: Titles) -> dict[str, Any]:
    """One draw of the training environments, learnt from and certified."""
    run = learn_vehicle(truths.task, train, recipe, watch=watch)
    c, true_cost = run.certificate, truths.of(run)
    linear = isinstance(run.posterior, DiagonalGaussian) and len(run.posterior) <= 20
    mean = run.posterior.mean.tolist() if linear else None
    return {"bound": c.bound, "true_cost": true_cost, "kl": c.kl, "prior": c.prior, "mean": mean}


class _Truths:
    """Estimates of true costs; a policy that is certified again is not rolled out again."""

    def __init__(self, task: Vehicle, test: Environments) -> None:
        self.task, self.test = task, test
        self.known: dict[str, float] = {}

    def of(self, run: Run[Any]) -> float:
        key = run.certificate.hashes.get("policies", "")
        if isinstance(run.posterior, DiagonalGaussian):
            key += run.posterior.mean.tobytes().hex() + run.posterior.variance.tobytes().hex()
        if key not in self.known:
            self.known[key] = estimate_true_cost(self.task, run, self.test)
        return self.known[key]


def to_dict(result: Continuous) -> dict[str, Any]:
    """Plain values for JSON."""
    return {
        "rows": [asdict(row) for row in result.rows],
        "gains": {name: gains.tolist() for name, gains in result.gains.items()},
        "linear_from_a_better_prior": result.better,
    }


def _titled(watch: Titles, title: str) -> Titles:
    return (lambda part: watch(f"{title}: {part}")) if watch else None


def _row(setting: str, n: int, recipe: Recipe, results: list[dict[str, Any]]) -> Row:
    bounds, truths, kls = ([r[name] for r in results] for name in ("bound", "true_cost", "kl"))
    continuous_row = n == 100 and recipe.certify == "posterior"
    return Row(
        setting=setting,
        environments=n,
        policy=recipe.policy,
        prior=results[0]["prior"],
        certified="a posterior" if recipe.certify == "posterior" else "one policy",
        kl=float(np.mean(kls)),
        paper_bound=PAPER_CONTINUOUS if continuous_row else PAPER_FINITE[n],
        **over_draws(bounds, truths),
    )


def show_continuous(rows: Sequence[Row]) -> None:
    """The paper's setting beside ours."""
    table = Table(title="Continuous policies: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("setting", "N", "draws", "certified", "bound", "± s.d.", "true", "paper"):
        left = heading in ("setting", "certified")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.setting,
            f"{row.environments:,}",
            f"{row.draws}",
            row.certified,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}",
        )
    show(table)
    say(
        "paper: linear policies, the paper's prior and method, with fresh draws. ours: networks, "
        "a prior learnt on other environments. deterministic: one network, that prior's mean. "
        "split: one network, learnt on a fifth of the N and certified on the rest. Last column: "
        "the bound published, for continuous policies at N = 100 and for 50 policies otherwise."
    )
