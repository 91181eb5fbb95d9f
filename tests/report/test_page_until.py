"""The page of a run whose environments were added until its bound was small enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.report.plots import PLOTS, UNTIL, write_plots
from pacbayes_control.report.projection import project
from pacbayes_control.tasks.demo import Stopping
from pages import Write, words


@pytest.fixture(scope="module")
def run() -> Run[Any]:
    return learn_task(Stopping(), Plan(until=0.13, delta=0.05, test_environments=0))


def test_the_page_shows_the_bound_as_it_fell(run: Run[Any], page: Write):
    text = words(page(run, (UNTIL,)))
    assert "0.13 was asked for, with at most 10,000 environments. It was reached with 163." in text
    assert "Each point is a valid bound; all hold at once, at the same δ." in text
    assert "it need not be fixed beforehand" in text
    assert "takes a share of δ each" not in text
    assert page(run, (UNTIL,)) == page(run, (UNTIL,))


def test_the_page_of_another_run_says_nothing_of_it(run: Run[Any], page: Write, tmp_path: Path):
    other = learn_finite(run.costs, 0.05, method="kl")
    assert "as environments were added" not in words(page(other))
    assert not [file for file in write_plots(other, tmp_path) if UNTIL in file.name]
    with pytest.raises(ValueError, match="were not added until a bound was reached"):
        PLOTS[UNTIL](other, tmp_path / "plot.svg")


@pytest.mark.parametrize("costs", ["0 and 1", "graded", "equal"])
def test_a_bound_by_bets_is_projected_to_other_numbers_of_environments(costs: str):
    kinds = {
        "0 and 1": np.random.default_rng(0).random((200, 3)) < [0.1, 0.2, 0.3],
        "graded": np.random.default_rng(0).beta(2, 8, (200, 3)),
        "equal": np.full((200, 3), 0.25),
    }
    run = learn_finite(kinds[costs], method="betting")
    projection, c = project(run), run.certificate
    by_number = dict(zip(projection.environments, projection.bounds, strict=True))
    assert by_number[200] == pytest.approx(c.bound)
    assert projection.limit == pytest.approx(c.empirical_cost, abs=1e-4)
    assert all(np.diff(projection.bounds) <= 0)
