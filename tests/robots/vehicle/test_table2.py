"""The second table, in small: its rows, the paper's figures, and what must hold in every draw."""

from __future__ import annotations

from dataclasses import asdict, fields
from itertools import pairwise

import numpy as np
import pytest

from pacbayes_control.bounds import maurer
from pacbayes_control.bounds.shift import robust_maurer
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import table2 as module
from pacbayes_control.robots.vehicle.table2 import (
    PAPER,
    SHIFTED,
    SIZES,
    TRAINING,
    Table2Row,
    ball,
    table2,
)
from pacbayes_control.rollouts import Execution
from sizes import FULL, sized

METHODS = ("robust", "train", "test")
WHOLE = sized(SIZES[:3], full=SIZES)
TEST_ENVIRONMENTS = 2000
PUBLISHED = {  # N: bound and true cost of each method, as the paper prints them
    100: {"robust": (0.453, 0.079), "train": (0.221, 0.054), "test": (0.262, 0.081)},
    500: {"robust": (0.276, 0.081), "train": (0.107, 0.057), "test": (0.170, 0.080)},
    1000: {"robust": (0.238, 0.080), "train": (0.089, 0.054), "test": (0.138, 0.081)},
    5000: {"robust": (0.197, 0.082), "train": (0.070, 0.054), "test": (0.110, 0.079)},
    10000: {"robust": (0.185, 0.080), "train": (0.066, 0.056), "test": (0.096, 0.083)},
}

Rows = dict[tuple[int, str], Table2Row]


def by_name(rows: list[Table2Row]) -> Rows:
    return {(row.environments, row.method): row for row in rows}


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.slow, id="once")])
def rows() -> Rows:
    """The table; without its last two sizes, which take most of its time, unless it is full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SIZES", WHOLE)
        return by_name(table2(1, TEST_ENVIRONMENTS, seed=11))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with small sets of environments only."""
    monkeypatch.setattr(module, "SIZES", (20, 100))


# ---- the whole of it ----------------------------------------------------------------------------


def test_every_row_has_the_papers_figures_and_the_largest_reach_their_level(rows: Rows):
    for (n, method), row in rows.items():
        assert (row.paper_bound, row.paper_true_cost) == PUBLISHED[n][method]
        assert row.bound > rows[n, "train"].bound or method == "train"
    margin = 0.012 if FULL else 0.03  # a single draw of 1,000 varies more than one of 10,000
    for method in METHODS:  # the truth is estimated on 2,000: margins of four standard errors
        row = rows[WHOLE[-1], method]
        assert row.bound == pytest.approx(row.paper_bound, abs=margin)
        assert row.true_cost == pytest.approx(row.paper_true_cost, abs=0.025)


# ---- its form -----------------------------------------------------------------------------------


def test_the_papers_figures_are_as_printed():
    assert tuple(PUBLISHED) == SIZES
    assert tuple(PAPER) == METHODS
    for method, (bounds, true_costs) in PAPER.items():
        printed = [PUBLISHED[n][method] for n in SIZES]
        assert list(zip(bounds, true_costs, strict=True)) == printed


def test_there_is_a_row_for_every_size_and_setting(rows: Rows):
    assert list(rows) == [(n, method) for n in WHOLE for method in METHODS]


def test_rows_become_plain_records_with_the_fields_of_the_contract(rows: Rows):
    contract = {"environments", "method", "bound", "true_cost", "paper_bound", "paper_true_cost"}
    records = [asdict(row) for row in rows.values()]
    for record, row in zip(records, rows.values(), strict=True):
        assert record.keys() >= contract
        assert set(record) == {field.name for field in fields(Table2Row)}
        assert {type(value) for value in record.values()} == {int, float, str}
        assert Table2Row(**record) == row  # pyright: ignore[reportArgumentType]


def test_smaller_sets_are_drawn_more_often(rows: Rows):
    largest = WHOLE[-1]
    for (n, _), row in rows.items():
        assert row.draws == min(10, largest // n)
        assert (row.bound_std == 0) == (n == largest)


def test_the_ball_is_the_papers():
    where = ball()
    assert where.divergence == "kl"
    assert where.radius == pytest.approx(0.08185, abs=5e-6)
    assert where.delta == 0  # it is known, not estimated


# ---- what must hold -----------------------------------------------------------------------------


def test_the_exact_optimum_is_never_above_the_papers_method(rows: Rows):
    for row in rows.values():
        assert row.exact_above == 0
        assert row.exact_bound < row.bound


def test_a_promise_for_a_whole_ball_is_larger_than_for_its_centre(rows: Rows):
    for n in WHOLE:
        robust, train = rows[n, "robust"], rows[n, "train"]
        assert robust.bound > train.bound
        assert robust.bound_min > train.bound_min
        assert robust.exact_bound > train.exact_bound
        assert robust.occam_bound > train.occam_bound


def test_bounds_and_extremes_are_in_order(rows: Rows):
    for row in rows.values():
        assert 0 < row.bound_min <= row.bound <= row.bound_max < 1
        assert 0 < row.true_cost < row.bound
        assert row.occam_bound < row.exact_bound  # one policy, with the exact binomial tail
    for method in METHODS:
        bounds = [rows[n, method].bound for n in WHOLE]
        assert all(more < fewer for fewer, more in pairwise(bounds))


def test_no_more_bounds_fail_than_a_confidence_of_99_percent_allows(rows: Rows):
    draws = sum(row.draws for row in rows.values())
    assert sum(row.violations for row in rows.values()) <= 0.05 * draws


def test_the_true_cost_is_higher_where_the_cylinders_are_wider(rows: Rows):
    for n in WHOLE:
        assert rows[n, "train"].true_cost < rows[n, "test"].true_cost - 0.01
        assert rows[n, "train"].true_cost < rows[n, "robust"].true_cost - 0.01


# ---- by hand ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_draw_is_what_the_paper_does_step_by_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SIZES", (100,))
    rows = {row.method: row for row in table2(1, 300, seed=4)}
    uniform = Categorical.uniform(50)
    for name, field, applied in (
        ("train", TRAINING, "train"),
        ("test", SHIFTED, "test"),
        ("robust", TRAINING, "test"),
    ):
        task = Vehicle(obstacles=field)
        there = Vehicle(obstacles=TRAINING if applied == "train" else SHIFTED)
        policies = task.policies
        drawn = task.environments(100, f"table2 {'test' if name == 'test' else 'train'} 0", 4)
        costs = Costs(task.costs(policies, drawn))
        unseen = there.environments(300, f"table2 estimate {applied}", 4)
        truth = there.costs(policies, unseen).mean(axis=0)
        objective = "robust-pinsker" if name == "robust" else "pinsker"
        p = learn_finite(
            costs, 0.01, method="kl-maurer", objective=objective, prior=uniform
        ).posterior
        cost, kl = float(p.probabilities @ costs.means), p.kl(uniform)
        if name == "robust":
            expected = robust_maurer(cost, kl, 100, 0.01, radius=ball().radius)
        else:
            expected = float(maurer(cost, kl, 100, 0.01))
        assert rows[name].bound == pytest.approx(expected, abs=1e-9)
        assert rows[name].true_cost == pytest.approx(float(p.probabilities @ truth), rel=1e-12)


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_the_same_seed_gives_the_same_table_and_another_seed_another():
    first, again, other = (table2(1, 100, seed=seed) for seed in (1, 1, 2))
    assert first == again
    for one, two in zip(first, other, strict=True):
        assert (one.environments, one.method) == (two.environments, two.method)
        assert one.bound != two.bound
        assert one.true_cost != two.true_cost


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_more_draws_add_to_those_before():
    one, two = table2(1, 100, seed=5), table2(2, 100, seed=5)
    for alone, both in zip(one, two, strict=True):
        assert both.draws == 2 * alone.draws
        assert both.bound_min <= alone.bound_min
        assert both.bound_max >= alone.bound_max
        assert both.bound != alone.bound


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_progress_counts_every_rollout_up_to_what_was_said():
    calls: list[tuple[int, int]] = []
    how = Execution(progress=lambda now: calls.append((now.done, now.total)))
    table2(2, 1100, seed=0, execution=how)
    total = 2 * (1100 + 2 * 100) * 50
    done = [count for count, _ in calls]
    assert {in_all for _, in_all in calls} == {total}
    assert np.all(np.diff(done) > 0)
    assert done[-1] == total


@pytest.mark.parametrize("draws", [0, -1])
def test_no_draws_are_refused(draws: int):
    with pytest.raises(ValueError, match=f"{draws} draws were asked for: at least one is needed"):
        table2(draws, 100)


def test_no_environments_to_estimate_the_truth_on_are_refused():
    with pytest.raises(ValueError, match="at least one is needed"):
        table2(1, 0)
