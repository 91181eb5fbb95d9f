"""Grasping (paper: Section 7.2): objects never seen, a neural policy, and a bound on its failures.

The paper certifies one posterior on N = 2000 objects of ShapeNet and tries it on 1000 others, next
to the same network without the regulariser. Here both are done twice, on procedural objects:

ours     a prior learnt on other objects, with the extractor; grasps as points of a circle; trained
         on the share of failures near a grasp
paper    the paper's prior, which knows nothing, its head and its surrogate, on the same extractor
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import binomtest

from pacbayes_control.certify.certificate import round_up
from pacbayes_control.certify.run import Run
from pacbayes_control.cli.loading import workers_for
from pacbayes_control.cli.options import MOST, Seed
from pacbayes_control.cli.steps import remove
from pacbayes_control.learn.gaussian import ROLLOUTS
from pacbayes_control.learn.training import Watch
from pacbayes_control.report.console import bar, say, show, watch
from pacbayes_control.report.page import write_page
from pacbayes_control.robots.grasping.assembling import grasping_task
from pacbayes_control.robots.grasping.cache import cache_folder
from pacbayes_control.robots.grasping.compact import Compact
from pacbayes_control.robots.grasping.environments import minor_axis
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.policy import Network
from pacbayes_control.robots.grasping.recipe import Recipe, baseline, label, learn_grasping
from pacbayes_control.robots.grasping.surrogates import Surrogate
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.rollouts import Progress, evaluate, sample_costs
from pacbayes_control.rollouts.evaluation import counting_on, table_of
from pacbayes_control.rollouts.jobs import CHUNK, Job
from pacbayes_control.rollouts.pools import Workers
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.environments import generator

PAPER = {"bound": 0.294, "test_success": 0.82, "baseline_test_success": 0.78}
CONFIDENCE = 0.95  # of the intervals on new objects
SAMPLE = 16  # objects to measure the speed on

# From a title and a total to who watches while that lasts.
Told = Callable[[str, int], AbstractContextManager[Progress | None]]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is."""

    environments: int = 2000  # objects to learn from
    test_environments: int = 1000  # new objects
    draws: int | None = None  # policies for each object to certify with: 30,000 grasps
    grid: Grid = field(default_factory=Grid)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.environments < 2 or self.test_environments < 2:
            raise ValueError(
                f"{self.environments} objects and {self.test_environments} new ones: at least two "
                "of each are needed"
            )


QUICK = Settings(300, 300, 20, Grid(places=5, angles=12))


@dataclass(frozen=True)
class Row:
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

    rows: list[Row]
    narrow_side_success: float  # at the centroid, across what is seen of the object
    any_angle_success: float  # at the centroid, at an angle by chance
    run: Run[Any]
    task: Grasping
    environments: int
    test_environments: int
    grasps_per_second: float


def grasping(
    settings: Settings | None = None,
    labels_in: Path | None = None,
    checkpoint: Path | None = None,
    executor: Workers = None,
    told: Told | None = None,
    watch: Callable[[str], Watch] | None = None,
) -> Grasped:
    """Run the experiment. labels_in: a folder for labels, which are made once."""
    settings = settings or Settings()
    network = Network(Compact())
    task = Grasping(network)
    train = task.environments(settings.environments, "train", settings.seed)
    test = task.environments(settings.test_environments, "test", settings.seed)
    told = told or (lambda *_: nullcontext())
    with told("labelling grasps", len(train) * len(settings.grid.grasps)) as labelling:
        labels = label(task, train, settings.grid, labels_in, labelling, executor)
    ours = Recipe(draws=settings.draws, grid=settings.grid, seed=settings.seed)
    rows, runs = [], []
    for setting, mine, recipe in (
        ("ours", task.with_labels(labels), ours),
        ("paper", _as_in_the_paper(task, labels), replace(ours, prior="paper")),
    ):
        file = checkpoint.with_name(f"{checkpoint.name}.{setting}") if checkpoint else None
        watching = watch(f"{setting}: learning the posterior") if watch else None
        with told(f"{setting}: certifying grasps", ROLLOUTS) as certifying:
            run = learn_grasping(mine, recipe, file, watching, certifying, executor)
        plain = baseline(mine, recipe)
        with told(f"{setting}: grasps of new objects", 2 * len(test)) as trying:
            failed = _on_new_objects(mine, run, plain, test, settings.seed, trying, executor)
        rows.append(_row(setting, mine, run, *failed))
        runs.append(run)
    rules = _by_rule(task, test, settings.seed, executor)
    speed = _speed(task, test[:SAMPLE], settings.grid, executor)
    return Grasped(rows, *rules, runs[0], task, len(train), len(test), speed)


def _by_rule(
    task: Grasping, test: Environments, seed: int, executor: Workers
) -> tuple[float, float]:
    """How often grasps at the centroid succeed: across the narrow side, and at any angle."""
    rng = generator(seed, "any angle", of="policies")
    failed = []
    for part in test.chunks(CHUNK):
        angles = [minor_axis(mask) for mask in part.arrays()["mask"]]
        grasps = np.zeros((len(part), 2, 3))
        grasps[:, 0, 2], grasps[:, 1, 2] = angles, rng.uniform(0, np.pi, len(part))
        failed.append(table_of(Job(task.blind(), part, grasps), executor=executor))
    narrow, chance = 1 - np.concatenate(failed).mean(axis=0)
    return float(narrow), float(chance)


def _speed(task: Grasping, sample: Environments, grid: Grid, executor: Workers) -> float:
    """Grasps a second, labelling objects that are at rest already."""
    sample.arrays()
    started = time.perf_counter()
    costs = evaluate(task.blind(), grid.grasps, sample, executor=executor)
    return costs.values.size / (time.perf_counter() - started)


def _as_in_the_paper(task: Grasping, labels: Labels) -> Grasping:
    network: Any = task.controller
    return replace(
        task,
        controller=replace(network, head="paper"),
        surrogate_cost=Surrogate("distance"),
        labels=labels,
    )


def _on_new_objects(
    task: Grasping,
    run: Run[Any],
    plain: NDArray,
    test: Environments,
    seed: int,
    progress: Progress | None,
    executor: Workers,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which objects the posterior failed at, drawn anew for each, and which the baseline."""
    first, second = (counting_on(progress, n * len(test), 2 * len(test)) for n in (0, 1))
    drawn = sample_costs(
        task, run.posterior, test, 1, "test", seed, progress=first, executor=executor
    )
    fixed = evaluate(task, plain[None], test, progress=second, executor=executor)
    return drawn.values[:, 0] == 1, fixed.values[:, 0] == 1


def _row(
    setting: str,
    task: Grasping,
    run: Run[Any],
    failed: NDArray[np.bool_],
    plain_failed: NDArray[np.bool_],
) -> Row:
    c, network = run.certificate, task.trainable()[0]
    assert c.draws is not None
    better, worse = plain_failed & ~failed, failed & ~plain_failed
    return Row(
        setting=setting,
        prior=c.prior or "",
        head=network.head,
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
    ours = result.rows[0]
    return {
        "bound": ours.bound,
        "test_success": ours.test_success,
        "baseline_test_success": ours.baseline_test_success,
        "paper_bound": PAPER["bound"],
        "paper_test_success": PAPER["test_success"],
        "paper_baseline_test_success": PAPER["baseline_test_success"],
        "environments": result.environments,
        "test_environments": result.test_environments,
        "narrow_side_success": result.narrow_side_success,
        "any_angle_success": result.any_angle_success,
        "grasps_per_second": result.grasps_per_second,
        "rows": [asdict(row) for row in result.rows],
    }


def show_grasping(result: Grasped) -> None:
    """The paper's figures beside ours, with intervals on new objects."""
    n, new = result.environments, result.test_environments
    table = Table(
        title=f"Grasping: {n:,} objects to learn from, {new:,} new ones", title_justify="left"
    )
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
    settings = replace(QUICK if quick else Settings(), seed=seed)
    if environments is not None:
        settings = replace(settings, environments=environments)
    if test_environments is not None:
        settings = replace(settings, test_environments=test_environments)
    checkpoint = folder / "checkpoint"
    task = grasping_task()
    with workers_for(task, None, None) as executor, watch() as watching:
        result = grasping(
            settings, cache_folder() / "grasping", checkpoint, executor, bar, watching
        )
    new = task.environments(settings.test_environments, "test", seed)
    with bar("pictures", 1):
        kept = result.task.pictures(result.run, new)
    run = folder / "grasping"
    result.run.save(run, True, kept)
    remove(checkpoint)
    write_page(result.run, folder / "grasping.html", name=str(run), pictures=kept)
    show_grasping(result)
    say(f"\nThe run is in {run}: pbc verify {run}")
    say(f"To look at: {folder / 'grasping.html'}")
    return to_dict(result)
