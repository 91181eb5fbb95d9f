"""Whether the distance between two samples is an upper confidence bound, and the best of its kind.

The truth is known: both samples are drawn from given probabilities. A bound that is wrong with
probability δ at most exceeds `most_violations` with probability LEVEL at most; estimates without
limits are put to the same test, and must fail it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from covering import most_violations
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linprog
from scipy.special import rel_entr

from pacbayes_control.bounds.divergences import checked_counts, divergence_of_samples
from sizes import sized

Floats = NDArray[np.float64]
Counts = tuple[int, ...]

BOUNDED = ["total-variation", "hellinger", "renyi-0.5", "renyi-0.01"]
UNBOUNDED = ["kl", "chi-squared", "renyi-2", "renyi-7.3"]
ALL = [*UNBOUNDED, *BOUNDED, "reverse-kl"]


def h(name: str, x: Floats, y: Floats) -> Floats:
    """What a cell with probabilities x > 0 under D' and y > 0 under D adds, by textbooks."""
    if name == "kl":
        return x * np.log(x / y) - x + y
    if name == "reverse-kl":
        return y * np.log(y / x) + x - y
    if name == "total-variation":
        return np.abs(x - y) / 2
    if name == "chi-squared":
        return (x - y) ** 2 / y
    if name == "hellinger":
        return (np.sqrt(x) - np.sqrt(y)) ** 2 / 2
    order = float(name.removeprefix("renyi-"))
    return (x**order * y ** (1 - order) - y - order * (x - y)) / (order - 1)


def of_sum(name: str, total: float) -> float:
    if not name.startswith("renyi-"):
        return total
    order = float(name.removeprefix("renyi-"))
    return math.log(1 + (order - 1) * total) / (order - 1)


def exact(name: str, shifted: Any, training: Any) -> float:
    """D(p'‖p)."""
    return of_sum(name, float(np.sum(h(name, np.asarray(shifted), np.asarray(training)))))


# ---- coverage -----------------------------------------------------------------------------------


DELTA, PAIRS = 0.2, sized(400, full=2000)
PROBLEMS = {
    "alike": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], 60),
    "apart": ([0.1, 0.25, 0.65], [0.55, 0.25, 0.2], 16),
}


@cache
def pairs_of_samples(problem: str) -> list[tuple[Counts, Counts]]:
    """Independent samples of D' and of D."""
    shifted, training, n = PROBLEMS[problem]
    rng = np.random.default_rng(sum(problem.encode()))
    there, here = rng.multinomial(n, shifted, PAIRS), rng.multinomial(n, training, PAIRS)
    return [(tuple(x), tuple(y)) for x, y in zip(there.tolist(), here.tolist(), strict=True)]


def violations(problem: str, name: str, estimate: Callable[[Counts, Counts, str], float]) -> int:
    """How many pairs of samples have an estimate below the truth."""
    truth = exact(name, *PROBLEMS[problem][:2])
    values = {pair: estimate(*pair, name) for pair in sorted(set(pairs_of_samples(problem)))}
    return sum(values[pair] < truth for pair in pairs_of_samples(problem))


def the_library_s(shifted: Counts, training: Counts, name: str) -> float:
    return divergence_of_samples(shifted, training, DELTA, name)


def plug_in(shifted: Counts, training: Counts, name: str) -> float:
    x, y = (np.array(sample) + 1e-9 for sample in (shifted, training))
    return exact(name, x / x.sum(), y / y.sum())


def smoothed_plug_in(shifted: Counts, training: Counts, name: str) -> float:
    x, y = (np.array(sample) + 1 for sample in (shifted, training))
    return exact(name, x / x.sum(), y / y.sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kl", "total-variation", "hellinger"])
def test_the_bound_is_below_the_truth_no_more_often_than_delta_allows(name):
    assert violations("apart", name, the_library_s) <= most_violations(PAIRS, DELTA)


@pytest.mark.parametrize("estimate", [plug_in, smoothed_plug_in])
@pytest.mark.parametrize("name", ["kl", "total-variation", "hellinger"])
def test_an_estimate_without_limits_is_caught(name, estimate):
    assert violations("apart", name, estimate) > most_violations(PAIRS, DELTA)


@pytest.mark.parametrize("name", ["kl", "total-variation", "hellinger"])
def test_the_bound_says_something(name):
    values = [the_library_s(*pair, name) for pair in pairs_of_samples("alike")[:40]]
    assert np.mean(values) < {"kl": 0.6, "total-variation": 0.5, "hellinger": 0.15}[name]
    assert min(values) > 0


def worst_error(names: list[str], delta: float, sizes: tuple[int, int]) -> float:
    """The largest probability, over many truths, that one of the bounds is below its truth.

    Two cells and few environments: every outcome is counted with its probability.
    """
    n, m = sizes
    outcomes = [(k, j) for k in range(n + 1) for j in range(m + 1)]
    bounds = np.array(
        [
            [divergence_of_samples([k, n - k], [j, m - j], delta, name) for k, j in outcomes]
            for name in names
        ]
    )
    assert bounds.min() < (5 if names == ["chi-squared"] else 1)
    worst = 0.0
    for x in np.linspace(0.02, 0.98, 25):
        for y in np.linspace(0.02, 0.98, 25):
            truths = np.array([[exact(name, [x, 1 - x], [y, 1 - y])] for name in names])
            low = np.any(bounds < truths, axis=0).reshape(n + 1, m + 1)
            there = stats.binom.pmf(np.arange(n + 1), n, x)
            worst = max(worst, float(there @ low @ stats.binom.pmf(np.arange(m + 1), m, y)))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [["kl"], ["total-variation"], ["hellinger"], ["chi-squared"], ALL]
)
@pytest.mark.parametrize("delta", [0.5, 0.2])
def test_no_truth_whatever_is_above_the_bound_more_often_than_delta(names, delta):
    """All divergences hold at once: one that is chosen after a look at the samples is no worse."""
    assert 0 < worst_error(names, delta, sized((5, 8), full=(9, 14))) <= delta


@pytest.mark.slow
def test_limits_that_each_spend_all_of_delta_are_caught():
    assert worst_error(ALL, 4 * 0.2, (5, 8)) > 0.2


# ---- the number itself --------------------------------------------------------------------------


def limits(counts: Any, level: float) -> tuple[Floats, Floats]:
    """Clopper and Pearson's, by the quantiles of Beta distributions."""
    k, n = np.array(counts), sum(counts)
    low = np.where(k > 0, stats.beta.ppf(level, np.maximum(k, 1), n - k + 1), 0)
    high = np.where(k < n, stats.beta.isf(level, k + 1, np.maximum(n - k, 1)), 1)
    return low, high


SAMPLES = [
    ([210, 390, 400], [200, 400, 400]),
    ([5, 5, 10], [30, 40, 30]),
    ([60, 25, 10, 5], [20, 30, 25, 25]),
    ([1, 9], [9, 3]),
    ([2, 3, 4, 5, 6, 7], [70, 60, 50, 40, 30, 20]),
    ([33] * 12, [40, 30] * 6),
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("shifted", "training"), SAMPLES)
@pytest.mark.parametrize("delta", [0.3, 0.01])
def test_filling_the_steepest_cells_first_solves_the_linear_programme(
    name, shifted, training, delta
):
    level = delta / (4 * len(shifted) if len(shifted) > 2 else 4)
    (low, high), (below, above) = limits(shifted, level), limits(training, level)
    left = np.maximum(h(name, low, below), h(name, low, above))
    right = np.maximum(h(name, high, below), h(name, high, above))
    rise = (right - left) / (high - low)
    sums = np.ones((1, len(low)))
    solved = linprog(-rise, A_eq=sums, b_eq=[1], bounds=np.column_stack([low, high]))
    assert solved.status == 0
    total = float(left.sum() - rise @ low - solved.fun)
    if name in ("total-variation", "hellinger"):
        total = min(total, 1)
    elif name in ("renyi-0.5", "renyi-0.01"):
        total = min(total, 1 / (1 - float(name.removeprefix("renyi-"))))
    expected = math.inf if total * (1 - 1e-9) > 1e300 else of_sum_or_infinite(name, total)
    value = divergence_of_samples(shifted, training, delta, name)
    assert value == pytest.approx(expected, rel=1e-6)
    assert value >= expected * (1 - 1e-12)


@pytest.mark.parametrize("name", ["kl", "total-variation", "hellinger", "renyi-0.5"])
@pytest.mark.parametrize("delta", [0.3, 0.01])
def test_two_cells_are_as_far_apart_as_the_limits_on_one_of_them_allow(name, delta):
    """Four limits, each at a quarter of δ: the divergence is convex, so a corner has the most."""
    (k, n), (j, m) = (70, 500), (40, 300)
    first = limits([k, n - k], delta / 4), limits([j, m - j], delta / 4)
    xs, ys = ([float(side[0]) for side in sides] for sides in first)
    most = max(exact(name, [x, 1 - x], [y, 1 - y]) for x in xs for y in ys)
    value = divergence_of_samples([k, n - k], [j, m - j], delta, name)
    assert value == pytest.approx(most, rel=1e-8)
    assert value >= most
    assert value == pytest.approx(
        divergence_of_samples([n - k, k], [m - j, j], delta, name), rel=1e-12
    )


def of_sum_or_infinite(name: str, total: float) -> float:
    try:
        return of_sum(name, total)
    except ValueError:  # the logarithm of zero: as far apart as can be
        return math.inf


@pytest.mark.parametrize("name", ALL)
def test_no_pair_of_distributions_within_the_limits_is_further_apart(name):
    shifted, training, delta = [12, 30, 58], [40, 35, 25], 0.1
    value = divergence_of_samples(shifted, training, delta, name)
    (low, high), (below, above) = limits(shifted, delta / 12), limits(training, delta / 12)
    rng = np.random.default_rng(6)
    furthest = 0.0
    for _ in range(sized(800, full=3000)):
        x, y = (sides[rng.integers(2, size=3), [0, 1, 2]] for sides in
                (np.array([low, high]), np.array([below, above])))  # fmt: skip
        free, other = rng.integers(3, size=2)  # one cell takes what the others leave
        x[free], y[other] = 1 - (x.sum() - x[free]), 1 - (y.sum() - y[other])
        if np.all((x >= low) & (x <= high)) and np.all((y >= below) & (y <= above)):
            furthest = max(furthest, exact(name, x, y))
    assert 0 < furthest <= value
    assert furthest > 0.6 * value


@pytest.mark.parametrize("name", ALL)
def test_the_bound_converges_to_the_truth(name):
    shifted, training = np.array([2, 3, 5]), np.array([4, 3, 3])
    truth = exact(name, shifted / 10, training / 10)
    values = [
        divergence_of_samples(shifted * n, training * n, 0.01, name)
        for n in (100, 10_000, 1_000_000, 100_000_000)
    ]
    assert values == sorted(values, reverse=True)
    assert truth < values[-1] < truth * 1.003
    assert values[0] > truth * 1.05


@pytest.mark.parametrize("name", ALL)
def test_the_bound_on_equal_distributions_converges_to_zero(name):
    values = [divergence_of_samples([n, 2 * n], [n, 2 * n], 0.01, name) for n in (100, 10_000_000)]
    assert 0 < values[1] < values[0] / 100


@pytest.mark.parametrize("name", ALL)
def test_less_confidence_and_another_order_of_cells_are_what_they_should_be(name):
    sure, unsure = (
        divergence_of_samples([5, 10, 15], [12, 10, 8], delta, name) for delta in (0.01, 0.3)
    )
    assert unsure < sure
    turned = divergence_of_samples([15, 5, 10], [8, 12, 10], 0.01, name)
    assert turned == pytest.approx(sure, rel=1e-12)


def test_one_cell_tells_no_distributions_apart():
    assert divergence_of_samples([7], [12], 0.01) == 0


@pytest.mark.parametrize("name", [*UNBOUNDED, "renyi-1.01", "renyi-100"])
def test_a_cell_never_met_in_training_leaves_the_divergence_unbounded(name):
    assert divergence_of_samples([20, 20, 60], [0, 40, 60], 0.01, name) == math.inf
    assert divergence_of_samples([0, 40, 60], [0, 40, 60], 0.01, name) == math.inf


@pytest.mark.parametrize("name", BOUNDED)
def test_a_cell_never_met_in_training_is_no_matter_for_other_divergences(name):
    value = divergence_of_samples([20, 20, 60], [0, 40, 60], 0.01, name)
    # At least what it is if the cell had its most likely probability, none.
    order = {"total-variation": 0.2, "hellinger": 1 - math.sqrt(0.08) - 0.6}.get(name, 0.0)
    assert order < value < 1


@pytest.mark.parametrize("name", ["total-variation", "hellinger"])
def test_samples_that_never_meet_are_at_most_as_far_apart_as_can_be(name):
    assert divergence_of_samples([9, 0], [0, 9], 0.01, name) == pytest.approx(1, rel=1e-8)


def test_the_bound_grows_with_a_cell_that_only_the_shift_meets():
    values = [
        divergence_of_samples([k, 100 - k], [10, 990], 0.01, "kl") for k in (10, 20, 40, 80, 100)
    ]
    assert values == sorted(values)
    assert values[-1] > float(rel_entr(0.95, 0.01))


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], "needs one count for each cell"),
        ([[1, 2]], "needs one count for each cell"),
        (["1", "2"], "needs one count for each cell"),
        ([None, 2], "needs one count for each cell"),
        (3, "needs one count for each cell"),
        ([1, -1], "must be whole numbers, not all zero"),
        ([1, 0.5], "must be whole numbers, not all zero"),
        ([1, math.nan], "must be whole numbers, not all zero"),
        ([1, math.inf], "must be whole numbers, not all zero"),
        ([0, 0], "must be whole numbers, not all zero"),
        ([2**60, 1], "must be whole numbers, not all zero"),
    ],
)
def test_what_are_no_counts_is_refused(counts, message):
    for call, name in (
        (lambda: divergence_of_samples(counts, [1, 2], 0.1), "shifted"),
        (lambda: divergence_of_samples([1, 2], counts, 0.1), "training"),
        (lambda: checked_counts(counts, "new"), "new"),
    ):
        with pytest.raises(ValueError, match=f"the {name} sample|counts of the {name} sample") as e:
            call()
        assert message in str(e.value)
        assert "\n" not in str(e.value)


def test_counts_may_be_whole_floats():
    np.testing.assert_array_equal(checked_counts([1.0, 2.0], "new"), [1, 2])


def test_samples_need_the_same_cells():
    with pytest.raises(
        ValueError, match="the shifted sample has 2 cells and the training sample 3"
    ):
        divergence_of_samples([1, 2], [1, 2, 3], 0.1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, 2.0])
def test_delta_must_be_a_probability(delta):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        divergence_of_samples([1, 2], [1, 2], delta)


def test_what_is_no_sum_over_cells_is_refused():
    with pytest.raises(ValueError, match="renyi-inf is not a sum over cells"):
        divergence_of_samples([1, 2], [1, 2], 0.1, "renyi-inf")
    with pytest.raises(ValueError, match="is unknown: choose from"):
        divergence_of_samples([1, 2], [1, 2], 0.1, "wasserstein")


# ---- once wrong ---------------------------------------------------------------------------------


def test_a_cell_never_met_after_the_shift_leaves_the_reverse_kl_unbounded():
    with np.errstate(invalid="ignore"):
        assert divergence_of_samples([0, 10, 90], [20, 20, 60], 0.01, "reverse-kl") == math.inf


@pytest.mark.parametrize("name", ["total-variation", "hellinger"])
def test_no_samples_are_further_apart_than_can_be(name):
    assert divergence_of_samples([9, 0], [0, 9], 0.01, name) <= 1
