"""Labels of every plot of a page: on awkward inputs, no text lies on another or leaves the picture.

Plots within a page scale as a whole, so that what holds here holds on a telephone too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import Curve
from pacbayes_control.certify.simulated import with_simulation
from pacbayes_control.learn import learn_finite
from pacbayes_control.report import axes, failure_plots, plots, simulation, trial_plots
from pacbayes_control.report.running import Running
from pacbayes_control.study.failures import Failures, find_failures
from pacbayes_control.study.importance import Importance
from pacbayes_control.study.importance import Ranking as OfParameters
from pacbayes_control.trials.ranking import Ranking

SLACK = 0.5  # pixels of a hundredth of an inch
LONG = "a checkpoint with a name of about sixty letters, number {:03d}"
Label = tuple[str, Bbox]


class Reader(RendererAgg):
    """Notes each text that is drawn, and where."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(*figure.bbox.size, figure.dpi)
        self.labels: list[Label] = []

    def draw_text(self, *given: Any, **named: Any) -> None:
        self.labels.append((given[3], named["mtext"].get_window_extent(self)))


def faults(figure: Figure) -> list[str]:
    """Pairs of labels that overlap, and labels that are cut off at the edge."""
    FigureCanvasAgg(figure).draw()  # which lays it out
    reader = Reader(figure)
    figure.draw(reader)
    assert reader.labels
    found = []
    for (one, a), (other, b) in combinations(reader.labels, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > SLACK and high > SLACK:
            found.append(f"{one!r} lies on {other!r}")
    for words, box in reader.labels:
        inside = box.x0 > -SLACK and box.y0 > -SLACK
        if not inside or box.x1 > figure.bbox.x1 + SLACK or box.y1 > figure.bbox.y1 + SLACK:
            found.append(f"{words!r} is cut off")
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Draw a plot and return the faults of its labels."""
    drawn: list[Figure] = []
    for module in (plots, trial_plots, failure_plots, simulation):
        monkeypatch.setattr(module, "save_figure", lambda figure, _: drawn.append(figure))

    def read(draw: Callable[..., None], *given: Any) -> list[str]:
        draw(*given, None)
        return faults(drawn[-1])

    return read


def run_of(rates: Sequence[float], n: int, *, graded: bool = False, **options: Any) -> Run[Any]:
    """A run of policies with long names that fail at some rates."""
    rng = np.random.default_rng(1)
    names = [LONG.format(i) for i in range(len(rates))]
    values = rng.random((n, len(rates))) < np.array(rates)
    if graded:
        values = np.clip(np.array(rates) + rng.normal(0, 0.2, values.shape), 0, 1)
    return learn_finite(Costs(values, names), **options)


RUNS: dict[str, Callable[[], Run[Any]]] = {
    "two environments": lambda: run_of([0.5, 0.5], 2),
    "no failure": lambda: run_of([0, 0, 0], 1000),
    "only failures": lambda: run_of([1, 1], 40),
    "a hundred policies": lambda: run_of(np.linspace(0, 1, 100).tolist(), 300, method="kl"),
    "alike": lambda: run_of([0.0951, 0.0952, 0.0953], 5000, method="kl"),
    "graded": lambda: run_of([0.5, 0.3, 0.52], 20_000, graded=True),
    "cheap": lambda: run_of([1e-4, 2e-4], 20_000),
}


@pytest.fixture(scope="module")
def made() -> Callable[[str], Run[Any]]:
    kept: dict[str, Run[Any]] = {}
    return lambda name: kept.setdefault(name, RUNS[name]())


@pytest.mark.parametrize("name", RUNS)
def test_no_label_of_a_run_lies_on_another(name: str, made, read):
    run, shown = made(name), 0
    for plot in (
        "methods",
        "posterior",
        "environment-costs",
        "bound-against-environments",
        "shift",
    ):
        assert read(plots.PLOTS[plot], run) == [], plot
        shown += 1
    assert shown == 5


# ---- one plot ------------------------------------------------------------------------------------


def test_a_distribution_function_and_a_campaign_until_its_bound(made, read, monkeypatch):
    run = made("graded")
    one = replace(run.certificate, policy=0, margin=0.02, until=0.0953, at_most=10**6)
    run = replace(run, certificate=one)
    assert read(plots.draw_distribution, run) == []
    for steps in ([2, 3], [100, 110, 120, 130, 999_000, 10**6], [*range(20, 3000, 20)]):
        way = steps, np.linspace(0.0953, 0.0951, len(steps)).tolist()
        monkeypatch.setattr(plots, "bounds_on_the_way", lambda _, way=way: way)
        assert read(plots.draw_bound_as_environments_were_added, run) == []


@pytest.mark.parametrize("tolerable", [1e-4, 0.03, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("certified", [None, (0.03, 0.0953), (1.0, 1.0)])
def test_the_end_of_a_curve_is_labelled_within_the_picture(tolerable, certified, read):
    curve = Curve("kl", (0.0, 0.5, 1.0), (0.1, 0.4, 0.5), 0.5, tolerable)

    def draw(curve: Curve, file: Any) -> None:
        plots.draw_curve(curve, file, certified)

    assert read(draw, curve) == []


def test_a_million_environments_are_labelled(made, read, monkeypatch):
    for costs in (np.full(10**6, 0.97), np.tile(np.linspace(0, 1, 500), 2000)):
        monkeypatch.setattr(plots, "environment_costs", lambda _, costs=costs: costs)
        assert read(plots.draw_environment_costs, made("alike")) == []


def test_the_tallest_of_crowded_bars_keep_their_counts():
    counts = np.zeros(20, int)
    counts[[0, 1, 2, 9, 10, 11, 19]] = 9, 1, 8, 12_345, 12_346, 12_344, 7
    assert axes.labelled_bars(counts) == [10, 0, 2, 19, 1]


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("n", [2, 12_345])
def test_no_label_of_a_simulation_lies_on_another(graded: bool, n: int, read):
    costs = np.random.default_rng(2).random((3 * n, 1))
    costs = costs if graded else (costs < 0.5).astype(float)
    joined = with_simulation(costs[:n], costs[:n], costs[n:])
    one = SimpleNamespace(costs=joined, certificate=SimpleNamespace(policy=0))
    assert read(simulation.draw_simulation, one) == []


# ---- failures ------------------------------------------------------------------------------------

PARAMETERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "a parameter with a name of about sixty letters, of the wind": lambda rng, n: rng.random(n),
    "far from zero": lambda rng, n: 1e6 + rng.random(n) / 100,
    "skewed": lambda rng, n: np.exp(20 * rng.random(n)),
    "tiny": lambda rng, n: -1e-9 * rng.random(n),
    "words": lambda rng, n: rng.choice(
        ["A gravel road after heavy rain", "$x^2$", "b" * 60, "M" * 9, "W" * 9], n
    ),
    "few": lambda rng, n: rng.integers(0, 3, n),
}


@pytest.fixture(scope="module", params=[40, 600])
def failures(request: Any) -> Failures:
    n, rng = request.param, np.random.default_rng(0)
    parameters = {name: draw(rng, n) for name, draw in PARAMETERS.items()}
    with pytest.MonkeyPatch.context() as patch:
        rows = tuple(Importance(name, 0.2, 0.3, True) for name in parameters)
        ranking = OfParameters(rows, 0.5, 0.01, n, 10)
        patch.setattr("pacbayes_control.study.failures.rank", lambda *_: ranking)
        return find_failures((rng.random(n) < 0.3).astype(float), parameters, binary=True)


def test_no_label_of_failures_lies_on_another(failures: Failures, read):
    drawn = failure_plots.failure_plots(failures)
    assert len(drawn) == 1 + 6 + 15
    for name, draw in drawn.items():
        assert read(draw) == [], name


# ---- trials --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 12, 100])
def test_no_label_of_trials_lies_on_another(size: int, read):
    names = [LONG.format(i) for i in range(size)]
    bounds = np.linspace(0.0951, 0.0953, size)
    rows = [SimpleNamespace(name=n, usual_interval=(0.05, 0.2), mean=0.0951, bound=b)
            for n, b in zip(names, bounds, strict=True)]  # fmt: skip
    for graded in (False, True):
        trials = SimpleNamespace(graded=graded)
        choice = SimpleNamespace(by_bound=rows, chosen=names[0], trials=trials)
        assert read(trial_plots.draw_policies, choice) == []
        none, zero = np.zeros((size, size), bool), np.zeros((size, size))
        ranking = Ranking(
            tuple(names), bounds, zero[0].astype(int), zero.astype(int), zero, none, 0.05, graded
        )
        assert read(trial_plots.draw_ranking, ranking) == []


@pytest.mark.parametrize("pairs", [2, 300, 10**6])
def test_no_label_of_a_comparison_lies_on_another(pairs: int, read, monkeypatch):
    numbers = np.unique(np.linspace(1, pairs, 80).astype(int))
    rising = np.linspace(0, 7, len(numbers))
    names = {"a": LONG.format(1), "b": LONG.format(2)}
    compared = SimpleNamespace(
        **names, needed=40.0, decided_after=pairs, verdict="better", margin=0.05
    )
    monkeypatch.setattr(trial_plots, "evidence", lambda _: (numbers, rising, -rising))
    assert read(trial_plots.draw_evidence, compared) == []
    limits = Running(numbers, rising / 100, rising / 100 - 0.001, rising / 100 + 0.001)
    assert read(trial_plots.draw_difference, compared, limits) == []
    needed = SimpleNamespace(environments=pairs, power=0.8)
    assert read(trial_plots.draw_power, lambda n: n / (2 * pairs), needed) == []


# ---- names ---------------------------------------------------------------------------------------


def test_wide_letters_take_the_room_of_two():
    assert axes.short("机" * 13) == "机" * 13
    assert axes.short("机" * 14) == "机" * 6 + "…" + "机" * 6
    assert axes.short("a\nb" + "c" * 40 + "d") == "a b" + "c" * 9 + "…" + "c" * 11 + "d"


def test_long_names_that_differ_at_either_end_stay_apart():
    assert len({axes.short(LONG.format(i)) for i in range(100)}) == 100
    assert axes.short(f"1 {'x' * 60}") != axes.short(f"2 {'x' * 60}")
