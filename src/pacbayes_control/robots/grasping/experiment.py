"""Grasping (paper: Section 7.2): objects never seen, a neural policy, and a bound on its failures.

The paper certifies one posterior on N = 2000 objects of ShapeNet and tries it on 1000 others, next
to the same network without the regulariser. Here both are done twice, on procedural objects:

ours     a prior learnt on other objects, with the extractor; grasps as points of a circle; trained
         on the share of failures near a grasp
paper    the paper's prior, which knows nothing, its head and its surrogate, on the same extractor
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import binomtest

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import round_up
from pacbayes_control.cli.options import MOST, Seed, executing, remove_store
from pacbayes_control.learn import Plan, SearchSettings, learn_gaussian
from pacbayes_control.report.console import say, show, working
from pacbayes_control.report.page import write_page
from pacbayes_control.robots.grasping import Compact, Grasping, GraspNetwork, Grid, Surrogate
from pacbayes_control.robots.grasping.environments import minor_axis
from pacbayes_control.robots.grasping.labels import descend
from pacbayes_control.robots.grasping.learning import SEARCH, labelled, prior_named
from pacbayes_control.robots.grasping.models import Floats
from pacbayes_control.robots.grasping.task import GraspingOptions
from pacbayes_control.rollouts import Draws, Execution, Workers, evaluate, sample_costs
from pacbayes_control.rollouts.evaluation import table_of
from pacbayes_control.rollouts.jobs import CHUNK, Job
from pacbayes_control.tasks.environments import Environments, generator

PAPER = {"bound": 0.294, "test_success": 0.82, "baseline_test_success": 0.78}
CONFIDENCE = 0.95  # of the intervals on new objects
SAMPLE = 16  # objects to measure the speed on

Interval = tuple[float, float]


@dataclass(frozen=True)
class Size:
    """How large the experiment is."""

    environments: int = 2000  # objects to learn from
    test_environments: int = 1000  # new objects
    draws: int | None = None  # policies for each object to certify with: 30,000 grasps
    grid: Grid = field(default_factory=Grid)

    def __post_init__(self) -> None:
        if self.environments < 2 or self.test_environments < 2:
            raise ValueError(
                f"{self.environments} objects and {self.test_environments} new ones: at least two "
                "of each are needed"
            )


QUICK = Size(300, 300, 20, Grid(places=5, angles=12))


@dataclass(frozen=True)
class GraspingRow:
    """One way to learn, with and without the regulariser."""

    setting: str  # ours or paper
    prior: str
    head: str
    surrogate: str
    bound: float  # on the rate of failures, with confidence 99 %
    empirical_cost: float  # failures among the certifying grasps
    kl: float
    certifying_grasps: int
    test_success: float  # of the posterior on new objects, a new policy for each
    test_interval: Interval
    baseline_test_success: float  # of the same network without the regulariser
    baseline_interval: Interval
    difference: float  # of the two
    difference_interval: Interval
    holds: bool  # whether the bound lies above the failures on new objects


@dataclass(frozen=True, eq=False)
class Grasped:
    """The rows, and the run that is ours."""

    rows: list[GraspingRow]
    narrow_side_success: float  # at the centroid, across what is seen of the object
    any_angle_success: float  # at the centroid, at an angle by chance
    run: Run[Any]
    task: Grasping
    environments: int
    test_environments: int
    grasps_per_second: float


def grasping(
    size: Size | None = None, seed: int = 0, execution: Execution | None = None
) -> Grasped:
    """Run the experiment. Labels are made once, and kept in the cache."""
    size, execution, network = size or Size(), execution or Execution(), GraspNetwork(Compact())
    task = Grasping(network)
    train = task.environments(size.environments, "train", seed)
    test = task.environments(size.test_environments, "test", seed)
    ours = labelled(task, train, execution, size.grid)
    as_published = replace(network, head="paper")
    paper = replace(ours, controller=as_published, surrogate_cost=Surrogate("distance"))
    rows, runs = [], []
    for setting, mine, prior in (("ours", ours, "elsewhere"), ("paper", paper, "paper")):
        here = replace(execution.keeping(setting), title=f"{setting}: learning")
        start = prior_named(mine.trainable()[0], prior, seed)
        plan = Plan(draws=size.draws, seed=seed, prior=prior, search=SEARCH[prior])
        run = learn_gaussian(mine, train, start, plan, here)
        plain = baseline(mine, start.distribution, SEARCH[prior])
        trying = replace(here, title=f"{setting}: grasps of new objects", store=None)
        rows.append(_row(setting, mine, run, plain, test, trying))
        runs.append(run)
    rules = _by_rule(task, test, execution.workers)
    speed = _speed(task, test[:SAMPLE], size.grid, execution.workers)
    return Grasped(rows, *rules, runs[0], task, len(train), len(test), speed)


def baseline(task: Grasping, start: DiagonalGaussian, search: SearchSettings) -> Floats:
    """The same network without the regulariser, from the same start: one policy, (parameters,)."""
    network, labels = task.trainable()
    sizes, features = np.sqrt(start.variance) * search.step_size, task.features(labels.environments)
    goal = task.surrogate_cost.goal(labels, slice(None))
    return descend(network, start.mean, sizes, search.steps, features, goal)


def _by_rule(task: Grasping, test: Environments, executor: Workers) -> tuple[float, float]:
    """How often grasps at the centroid succeed: across the narrow side, and at any angle."""
    rng, failed = generator(test.seed, "any angle", of="policies"), []
    for part in test.chunks(CHUNK):
        angles = [minor_axis(mask) for mask in part.arrays()["mask"]]
        grasps = np.zeros((len(part), 2, 3))
        grasps[:, 0, 2], grasps[:, 1, 2] = angles, rng.uniform(0, np.pi, len(part))
        failed.append(table_of(Job(task.blind(), part, grasps), Execution(executor)))
    narrow, chance = 1 - np.concatenate(failed).mean(axis=0)
    return float(narrow), float(chance)


def _speed(task: Grasping, sample: Environments, grid: Grid, executor: Workers) -> float:
    """Grasps a second, labelling objects that are at rest already."""
    sample.arrays()
    started = time.perf_counter()
    costs = evaluate(task.blind(), grid.grasps, sample, execution=Execution(executor))
    return costs.values.size / (time.perf_counter() - started)


def _row(
    setting: str,
    task: Grasping,
    run: Run[Any],
    plain: Floats,
    test: Environments,
    execution: Execution,
) -> GraspingRow:
    """Try the posterior on new objects, drawn anew for each, and the policy without regulariser."""
    first, second = (execution.counting_on(n * len(test), 2 * len(test)) for n in (0, 1))
    drawn = sample_costs(task, run.posterior, test, Draws(1, test.seed, stream="test"), first)
    fixed = evaluate(task, plain[None], test, execution=second)
    failed, plain_failed = drawn.values[:, 0] == 1, fixed.values[:, 0] == 1
    better, worse = plain_failed & ~failed, failed & ~plain_failed
    c = run.certificate
    return GraspingRow(
        setting=setting,
        prior=c.prior or "",
        head=task.trainable()[0].head,
        surrogate=task.surrogate_cost.kind,
        bound=c.bound,
        empirical_cost=c.empirical_cost,
        kl=c.kl,
        certifying_grasps=run.costs.values.size,
        test_success=float(1 - failed.mean()),
        test_interval=_interval(~failed),
        baseline_test_success=float(1 - plain_failed.mean()),
        baseline_interval=_interval(~plain_failed),
        difference=float(better.mean() - worse.mean()),
        difference_interval=_difference(better, worse),
        holds=bool(failed.mean() <= c.bound),
    )


def _interval(happened: NDArray[np.bool_], confidence: float = CONFIDENCE) -> Interval:
    """Clopper and Pearson's, of a rate."""
    found = binomtest(int(happened.sum()), len(happened)).proportion_ci(confidence, "exact")
    return float(found.low), float(found.high)


def _difference(better: NDArray[np.bool_], worse: NDArray[np.bool_]) -> Interval:
    """Of P(better) - P(worse) on the same objects: two intervals that both hold, at half the risk.

    >>> better, worse = np.arange(1000) < 60, np.arange(1000) >= 980
    >>> [round(end, 3) for end in _difference(better, worse)]
    [0.012, 0.068]
    """
    confidence = 1 - (1 - CONFIDENCE) / 2
    more, less = _interval(better, confidence), _interval(worse, confidence)
    return more[0] - less[1], more[1] - less[0]


def to_dict(result: Grasped) -> dict[str, Any]:
    """Plain values for JSON: ours first, beside the paper's."""
    sizes = ("environments", "test_environments")
    figures = (*sizes, "narrow_side_success", "any_angle_success", "grasps_per_second")
    return {
        **{name: getattr(result.rows[0], name) for name in PAPER},
        **{f"paper_{name}": value for name, value in PAPER.items()},
        **{name: getattr(result, name) for name in figures},
        "rows": [asdict(row) for row in result.rows],
    }


def show_grasping(result: Grasped) -> None:
    """The paper's figures beside ours, with intervals on new objects."""
    n, new = result.environments, result.test_environments
    title = f"Grasping: {n:,} objects to learn from, {new:,} new ones"
    table = Table(title=title, title_justify="left")
    for heading in ("", "bound", "success", "interval of 95 %"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in result.rows:
        lifted = _rate(row.test_success, row.test_interval)
        name = "the paper's prior" if row.setting == "paper" else row.setting
        table.add_row(f"{name}: posterior", round_up(row.bound, 3), *lifted)
        plain = _rate(row.baseline_test_success, row.baseline_interval)
        table.add_row("  without the regulariser", "", *plain)
        table.add_row("  difference", "", *_rate(row.difference, row.difference_interval))
        table.add_section()
    table.add_row("centroid, across the narrow side", "", f"{result.narrow_side_success:.3f}")
    table.add_row("centroid, at any angle", "", f"{result.any_angle_success:.3f}")
    table.add_section()
    table.add_row("published", f"{PAPER['bound']:.3f}", f"{PAPER['test_success']:.3f}")
    table.add_row("  without the regulariser", "", f"{PAPER['baseline_test_success']:.3f}")
    show(table)
    say(
        "bound: on the rate of failures, with confidence 99 %. success: on the new objects. ours: "
        "a prior learnt on other objects. The paper's prior knows nothing of these. published: the "
        "paper's own figures, on objects of ShapeNet."
    )
    for row in result.rows:
        held = "holds" if row.holds else "does NOT hold"
        say(
            f"{row.setting}: the bound {round_up(row.bound, 3)} {held} on the new objects, where "
            f"{1 - row.test_success:.3f} failed."
        )
    say(f"{result.grasps_per_second:,.0f} grasps a second.")


def _rate(value: float, interval: tuple[float, float]) -> tuple[str, str]:
    return f"{value:.3f}", f"{interval[0]:.3f} to {interval[1]:.3f}"


def reproduce_grasping(
    folder: Path,
    *,
    environments: Annotated[
        int | None, typer.Option(min=2, max=MOST, help="Objects to learn from; default 2,000.")
    ] = None,
    test_environments: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="New objects; default 1,000.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="300 objects and fewer grasps: a few minutes.")
    ] = False,
    seed: Seed = 0,
) -> dict[str, Any]:
    """The arm of Section 7.2, on procedural objects. Twenty minutes, most of it once, for labels.

    Example: pbc reproduce grasping --quick
    """
    given = {"environments": environments, "test_environments": test_environments}
    numbers = {name: number for name, number in given.items() if number is not None}
    size, checkpoint = replace(QUICK if quick else Size(), **numbers), folder / "checkpoint"
    task = Grasping.from_options(GraspingOptions())  # an error before the labels, if there is one
    with executing(task, store=checkpoint) as execution:
        result = grasping(size, seed, execution)
        new = result.task.environments(size.test_environments, "test", seed)
    with working("pictures"):
        kept = result.task.pictures(result.run, new)
    run = folder / "grasping"
    result.run.save(run, True, kept)
    remove_store(checkpoint)
    write_page(result.run, folder / "grasping.html", name=str(run), pictures=kept)
    show_grasping(result)
    say(f"\nThe run is in {run}: pbc verify {run}")
    say(f"To look at: {folder / 'grasping.html'}")
    return to_dict(result)
