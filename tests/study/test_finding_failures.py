"""Where a run fails: parameters that matter are found, others are not, and intervals cover."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.certify.costs import Costs
from pacbayes_control.learn import learn_finite
from pacbayes_control.study import failures as module
from pacbayes_control.study.bins import OTHERS, grouped, interval, paired
from pacbayes_control.study.failure_records import to_csv, to_record
from pacbayes_control.study.failures import (
    described_environments,
    failures_of,
    find_failures,
    usable_columns,
    why_too_little,
)
from pacbayes_control.study.importance import INSTALL, rank, ranking_of, together
from pacbayes_control.tasks.demo import Stopping
from sizes import sized

N = 300


def drawn(rng: np.random.Generator, *names: str, n: int = N) -> dict[str, NDArray]:
    return {name: rng.random(n) for name in names}


def failed(rng: np.random.Generator, probability: NDArray) -> NDArray[np.float64]:
    return (rng.random(len(probability)) < probability).astype(float)


@pytest.fixture
def no_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without scikit-learn."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"] + ["sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)


# ---- which parameter ----------------------------------------------------------------------------


def test_the_parameter_that_failures_depend_on_is_first_and_others_are_no_better_than_noise():
    rng = np.random.default_rng(0)
    parameters = drawn(rng, "mass", "wind", "colour")
    costs = failed(rng, np.where(parameters["wind"] > 0.7, 0.7, 0.05))
    found = find_failures(costs, parameters, binary=True)
    assert found.ranking is not None
    assert found.ranking.useful == ("wind",)
    assert found.columns[0] == "wind"
    assert 0 < found.ranking.explained < 1
    highest = max(found.bins["wind"], key=lambda one: one.mean)
    assert highest.label.endswith(f" to {parameters['wind'].max():.4g}")
    assert highest.low > max(found.bins["wind"][0].high, 0.2)  # told apart


def test_of_parameters_that_fail_only_together_both_are_found_and_their_map_shows_it():
    rng = np.random.default_rng(1)
    parameters = drawn(rng, "mass", "wind", "gravity")
    wind, gravity = parameters["wind"] > 0.5, parameters["gravity"] > 0.5
    found = find_failures(failed(rng, 0.9 * (wind ^ gravity)), parameters, binary=True)
    assert found.ranking is not None
    assert {*found.ranking.useful} == {"wind", "gravity"}
    [pair] = [p for p in found.pairs if {p.across.name, p.down.name} == {"wind", "gravity"}]
    corners = pair.means[[0, -1]][:, [0, -1]]
    assert corners[0, 0] < 0.3 > corners[1, 1]
    assert corners[0, 1] > 0.6 < corners[1, 0]
    assert pair.environments.sum() == N


def test_a_fall_within_its_own_spread_is_not_told_from_noise():
    drops = np.zeros((4, 4))
    drops[:, 0] = 0.2, 0.1, 0.2, 0.1
    drops[:, 1] = 0.5, -0.3, 0.1, -0.1  # a larger mean than noise has, by one fit of four
    ranking = ranking_of(["wind", "mass"], drops, 0.3, 40)
    assert [one.share for one in ranking.parameters] == pytest.approx([0.15, 0.05])
    assert ranking.noise == 0
    assert ranking.useful == ("wind",)


def test_costs_of_chance_alone_have_no_parameter_that_is_better_than_noise():
    found = []
    for seed in range(sized(1, full=30)):
        rng = np.random.default_rng(seed)
        parameters, costs = drawn(rng, "a", "b", "c", n=100), failed(rng, np.full(100, 0.3))
        found += rank(parameters, costs).useful
    assert len(found) <= sized(0, full=8)


@pytest.mark.slow
def test_the_ranking_is_the_same_again():
    rng = np.random.default_rng(0)
    parameters, costs = drawn(rng, "a", "b", n=50), failed(rng, np.full(50, 0.3))
    assert rank(parameters, costs) == rank(parameters, costs)


def test_words_and_graded_costs_are_ranked_too():
    rng = np.random.default_rng(2)
    surface = rng.choice(["ice", "grass", "tarmac"], N)
    costs = np.clip(0.1 + 0.5 * (surface == "ice") + 0.1 * rng.random(N), 0, 1)
    found = find_failures(costs, {"surface": surface, **drawn(rng, "mass")}, binary=False)
    assert found.ranking is not None
    assert found.ranking.useful == ("surface",)
    ice = {one.label: one for one in found.bins["surface"]}["ice"]
    assert ice.environments == np.sum(surface == "ice")
    assert ice.low <= ice.mean <= ice.high
    assert ice.low > {one.label: one for one in found.bins["surface"]}["grass"].high


@pytest.mark.usefixtures("no_forest")
def test_parameters_that_go_together_are_told():
    rng = np.random.default_rng(0)
    parameters: dict[str, Any] = drawn(rng, "wind", "mass")
    parameters["gust"] = 10 - parameters["wind"] ** 3 - 0.02 * rng.random(N)
    parameters["season"] = np.where(parameters["mass"] > 0.5, "summer", "winter")
    parameters["tyres"] = np.where(parameters["season"] == "summer", "wide", "narrow")
    close = together(parameters)
    assert [pair[:2] for pair in close[:2]] == [("tyres", "season"), ("wind", "gust")]
    assert {frozenset(pair[:2]) for pair in close[2:]} == {
        frozenset(["season", "mass"]),
        frozenset(["tyres", "mass"]),
    }
    assert together(drawn(rng, *"abcdefgh")) == []
    found = find_failures(failed(rng, parameters["wind"] * 0.8), parameters, binary=True)
    assert any("go together" in note and "“wind” and “gust”" in note for note in found.notes)


@pytest.mark.usefixtures("no_forest")
def test_without_scikit_learn_only_the_ranking_is_missing():
    rng = np.random.default_rng(0)
    parameters = drawn(rng, "mass", "wind")
    found = find_failures(failed(rng, parameters["wind"] * 0.8), parameters, binary=True)
    assert found.ranking is None
    assert any(INSTALL in note for note in found.notes)
    assert list(found.bins) == ["wind", "mass"]  # by how much their bins differ
    assert len(found.pairs) == 1


def test_seeds_names_and_constants_are_shown_but_not_ranked():
    n = 100
    names = np.array([f"map {i}" for i in range(n)])
    described = {"seed": np.arange(n), "map": names, "planet": np.full(n, 3), "wind": np.arange(n)}
    usable, notes = usable_columns({**described, "drag": np.where(np.arange(n) < 9, np.nan, 1.0)})
    assert [*usable] == ["wind"]
    assert notes == [
        "The same in all environments: “planet”.",
        "Left out, as some values are NaN or infinite: “drag”.",
    ]


# ---- too little ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([0, 1] * 10, "20 environments are too few"),
        ([0] * 100, "failed in none of 100 environments"),
        ([1] * 100, "failed in all 100 environments"),
        ([1] * 4 + [0] * 96, "4 of 100 environments failed: too few"),
        ([0] * 2 + [1] * 98, "2 of 100 environments succeeded: too few"),
        ([0.04] * 99 + [1.0], "nearly the same in all but 1 of 100 environments"),
        ([0.3] * 100, "nearly the same in all of 100 environments"),
    ],
)
def test_where_there_is_too_little_nothing_is_told_apart(costs: list[float], words: str):
    values = np.array(costs, float)
    assert words in why_too_little(values)
    found = find_failures(values, drawn(np.random.default_rng(0), "a", n=len(costs)), binary=False)
    assert found.too_little
    assert (found.bins, found.pairs, found.ranking) == ({}, (), None)


def test_the_hardest_leave_out_those_of_cost_zero():
    costs = np.array([0, 0.5, 0, 1, 0.2])
    found = find_failures(costs, {}, binary=False)
    assert found.worst(10) == [3, 1, 4]
    assert found.worst(2) == [3, 1]
    assert found.hardest.tolist() == [3, 1, 4, 0, 2]


def test_five_failures_are_enough_to_look():
    assert why_too_little(np.array([1.0] * 5 + [0.0] * 95)) == ""


# ---- bins and intervals -------------------------------------------------------------------------


def violated(costs: NDArray, truth: NDArray, parameters: dict[str, Any], delta: float) -> bool:
    """Whether any interval misses the mean of the true costs of its environments."""
    for name, values in parameters.items():
        groups = grouped(name, values, 8)
        for number in range(len(groups.labels)):
            inside = groups.members == number
            low, high = interval(costs[inside], delta, binary=set(costs) <= {0.0, 1.0})
            if not low <= truth[inside].mean() <= high:
                return True
    return False


@pytest.mark.parametrize("graded", [False, True])
def test_all_intervals_hold_at_once_and_without_a_union_bound_they_do_not(graded: bool):
    rng = np.random.default_rng(3)
    data_sets, n, names = sized(20, full=400), 160, "abc"
    wrong = broken = 0
    for _ in range(data_sets):
        parameters = drawn(rng, *names, n=n)
        truth = 0.1 + 0.6 * parameters["a"] * parameters["b"]
        costs = failed(rng, truth)
        if graded:
            costs, truth = 0.05 + 0.9 * costs, 0.05 + 0.9 * truth
        bins = 8 * len(names)
        wrong += violated(costs, truth, parameters, 0.05 / bins)
        # E-values are cautious: it takes a larger level for them to fail.
        broken += violated(costs, truth, parameters, 0.6 if graded else 0.05)
    most = stats.binom.isf(1e-3, data_sets, 0.05)
    assert wrong <= most < broken


@pytest.mark.usefixtures("no_forest")
def test_the_confidence_is_shared_by_the_bins_of_all_parameters(monkeypatch: pytest.MonkeyPatch):
    shares = []
    real = module.binned

    def recorded(groups: Any, costs: Any, delta: float, *, binary: bool) -> Any:
        shares.append(delta * len(groups.labels))
        return real(groups, costs, delta, binary=binary)

    monkeypatch.setattr(module, "binned", recorded)
    rng = np.random.default_rng(0)
    parameters = {**drawn(rng, "a", "b"), "word": rng.choice(["x", "y"], N)}
    find_failures(failed(rng, np.full(N, 0.5)), parameters, binary=True)
    assert sum(shares) == pytest.approx(0.05)


@pytest.mark.parametrize("seed", range(4))
def test_ranges_of_whole_numbers_hold_the_numbers_that_they_name(seed: int):
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 40, 300) if seed % 2 else rng.poisson(3, 300)
    found = grouped("balls", values, 6)
    limits = [[int(word) for word in label.split(" to ")] for label in found.labels]
    for group, (low, *high) in enumerate(limits):
        inside = values[found.members == group]
        assert (low, (high or [low])[0]) == (inside.min(), inside.max())
    assert all(before[-1] < after[0] for before, after in pairwise(limits))


def test_bins_depend_on_the_parameters_alone():
    rng = np.random.default_rng(0)
    values = rng.random(100)
    members = grouped("a", values, 5).members
    assert np.bincount(members).tolist() == [20] * 5
    ties = grouped("b", np.where(np.arange(100) < 70, 0.0, values), 5)
    assert np.bincount(ties.members).min() > 0
    assert len(ties.labels) == len(ties.edges) - 1 == ties.members.max() + 1
    close = grouped("c", 1e6 + values / 100, 5)
    assert len({*close.labels}) == 5


def test_rare_words_are_joined():
    words = np.array(["ice"] * 30 + ["grass"] * 20 + [f"rare {i}" for i in range(8)])
    groups = grouped("surface", words, 8)
    assert groups.labels == ("grass", "ice", OTHERS)
    assert np.bincount(groups.members).tolist() == [20, 30, 8]


def test_cells_with_few_environments_are_blank():
    across = grouped("a", np.array([0, 1] * 20 + [0] * 4), 4)
    down = grouped("b", np.array([0, 0] * 20 + [1] * 4), 4)
    pair = paired(across, down, np.ones(44), 0.05, binary=True)
    few = pair.environments < 5
    assert few.any()
    for shown in (pair.means, pair.low, pair.high):
        assert np.array_equal(np.isnan(shown), few)
    assert np.all(pair.means[~few] == 1)
    assert np.all(pair.low[~few] < 1)


@pytest.mark.usefixtures("no_forest")
def test_the_confidence_is_shared_by_the_pairs_of_all_parameters_of_which_only_the_first_are_shown(
    monkeypatch: pytest.MonkeyPatch,
):
    deltas = []

    def recorded(*given: Any, binary: bool) -> Any:
        deltas.append(given[3])
        return paired(*given, binary=binary)

    monkeypatch.setattr(module, "paired", recorded)
    rng = np.random.default_rng(0)
    parameters = {f"word {i}": rng.choice(["x", "y"], N) for i in range(10)}
    found = find_failures(failed(rng, np.full(N, 0.5)), parameters, binary=True)
    assert len(found.pairs) == len(deltas) == 8 * 7 / 2
    cells = 4 * 10 * 9 / 2
    assert deltas == pytest.approx([0.05 / cells] * len(deltas))
    assert any("first 8 parameters" in note for note in found.notes)


# ---- runs and files -----------------------------------------------------------------------------


def test_a_table_of_costs_has_no_parameters_and_a_run_of_a_task_may_be_drawn_again():
    table = learn_finite(Costs(np.eye(40)[:, :2]))
    described, why = described_environments(table)
    assert not described
    assert "table of costs" in why
    with pytest.raises(ValueError, match="it is of no task"):
        described_environments(table, Stopping())
    task = Stopping()
    origin = task.environments(40, "train").origin
    older = learn_finite(Costs(np.eye(40)[:, :2], origin=origin))
    assert "--task MODULE:TASK" in described_environments(older)[1]
    described, why = described_environments(older, task)
    assert why == ""
    assert {len(values) for values in described.values()} == {40}


def test_every_environment_is_in_the_files_and_no_word_is_a_formula():
    rng = np.random.default_rng(0)
    n = 40
    described = {
        "=cmd()": np.full(n, "=1+1"),
        "cost": np.arange(n) - 3,
        "drag": np.where(np.arange(n) < 20, np.nan, 1.0),
    }
    sites = [f"-site {i}" for i in range(n)]
    costs = Costs(failed(rng, np.full(n, 0.5))[:, None], sites=sites)
    found = failures_of(learn_finite(costs), described)
    lines = to_csv(found).decode().splitlines()
    assert lines[0] == "environment,name,cost,'=cmd(),cost (drawn),drag"
    assert len(lines) == n + 1
    hardest = int(found.hardest[0])
    assert lines[1].startswith(f"{hardest},'-site {hardest},1.0,'=1+1,{hardest - 3},")
    record = to_record(found)
    assert record["certified"] is False
    assert [row["environment"] for row in record["environments"]] == found.hardest.tolist()
    assert record["environments"][0]["parameters"]["drag"] in (None, 1.0)
