"""Tables and figures for a paper."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_trials import random
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.learn import learn_finite, learn_in_parts, learn_task
from pacbayes_control.learn.plan import Plan
from pacbayes_control.report.exports import (
    Cell,
    Export,
    Plot,
    Table,
    check_replaceable,
    csv_text,
    file_names,
)
from pacbayes_control.report.latex import Column, escape
from pacbayes_control.report.pictures import column
from pacbayes_control.report.plots import PLOTS, UNTIL
from pacbayes_control.report.run_captions import guarantee, plot_captions
from pacbayes_control.report.run_exports import facts, run_export
from pacbayes_control.report.sweep_exports import sweep_export
from pacbayes_control.report.trial_exports import comparison_export
from pacbayes_control.report.trial_plots import draw_evidence
from pacbayes_control.study.sweep import Sweep
from pacbayes_control.study.sweep_grid import FIGURES
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.trials.choosing import choose
from pacbayes_control.trials.comparing import compare

NAMES = (r"\input{/etc/passwd}", "$x_1$", "=HYPERLINK(1)")


@pytest.fixture(scope="module")
def run() -> Run[Any]:
    failed = np.random.default_rng(0).random((200, 3)) < [0.3, 0.05, 0.1]
    return learn_finite(Costs(failed, NAMES, {"graded": False}), 0.01, method="kl")


def tables(export: Export) -> dict[str, Table]:
    return {table.name: table for table in export.tables}


def cells(table: Table) -> list[Cell]:
    return [cell for row in table.rows for cell in row if isinstance(cell, Cell)]


# ---- captions -----------------------------------------------------------------------------------


def test_the_caption_states_the_certificate_with_its_bound_rounded_upwards(
    run: Any, tmp_path: Path
):
    export = run_export(run, "mine")
    Export("mine", export.tables, ()).write(tmp_path)
    c = run.certificate
    for table in export.tables:
        text = (tmp_path / f"mine-table-{table.name}.tex").read_text()
        assert escape(c.sentence) in text
        assert escape(percent_up(c.bound)) in text
        assert r"99 \%" in text
    text = (tmp_path / "mine-table-certificate.tex").read_text()
    assert round_up(c.bound) in text
    assert "a single environment may cost more" in text
    assert "not for one policy of the mixture" in text


def test_captions_of_figures_state_it_too(run: Any):
    for plot in run_export(run, "mine").plots:
        assert run.certificate.sentence in plot.caption
    captions = {plot.name: plot.caption for plot in run_export(run, "mine").plots}
    assert "a projection, and no guarantee" in captions["bound-against-environments"]
    assert "to keep the smallest voids the confidence" in captions["methods"]
    assert {*captions} <= {*PLOTS}


def test_side_by_side_methods_say_that_only_the_one_chosen_beforehand_holds(run: Any):
    methods = tables(run_export(run, "mine"))["methods"]
    assert "Only the bound of this run, by kl, was certified" in methods.caption
    assert sum("(this run)" in str(row[0]) for row in methods.rows) == 1


def test_a_certificate_of_one_policy_in_a_ball_is_not_said_to_be_of_a_mixture():
    costs = Costs(np.random.default_rng(0).random((100, 2)) < 0.1)
    words = guarantee(under_shift(learn_finite(costs), Ball("kl", 0.05)).certificate)
    assert "mixture" not in words
    assert "outside of that ball" in words


@pytest.mark.parametrize("of", ["quantile:0.9", "cvar:0.1"])
def test_other_statistics_have_their_own_words(of: str):
    costs = Costs(np.random.default_rng(1).beta(1, 9, (100, 2)))
    found = tables(run_export(learn_finite(costs, of=of), "mine"))
    first = str(found["certificate"].rows[0][0])
    assert ("exceeded in at most 10 %" if of[0] == "q" else "worst 10 %") in first
    assert "hold together" in found["distribution"].caption


def test_a_shift_is_not_promised_and_excluded_in_one_caption(run: Any):
    for each, symbol in ((run, "KL(D′‖D)"), (under_shift(run, Ball("kl", 0.05)), "KL(D′‖D)")):
        caption = plot_captions(each)["shift"]
        assert f"a shift: {symbol} ≤ B" in caption
        assert each.certificate.sentence in caption
        assert "Nothing is promised" not in caption


def test_bounds_as_environments_were_added_are_said_to_be_without_the_shift():
    run = learn_task(Stopping(), Plan(until=0.3, at_most=500, method="betting"))
    shifted = under_shift(run, Ball("kl", 0.02))
    assert "They are without the shift." in plot_captions(shifted)[UNTIL]
    assert "without the shift" not in plot_captions(run)[UNTIL]


@pytest.mark.parametrize(
    ("method", "error"), [("occam", "95 % interval"), ("kl", "standard error at most 0.0")]
)
def test_a_test_estimate_stands_with_its_error(method: Any, error: str):
    run = learn_task(Stopping(), Plan(environments=50, test_environments=200, method=method))
    [row] = [row for row in facts(run) if "Test estimate" in row[0]]
    assert isinstance(row[1], Cell)
    assert error in row[1].shown
    assert run.certificate.test_estimate is not None
    assert row[1].value == run.certificate.test_estimate.cost


def test_failures_are_exported_as_the_page_shows_them_and_certify_nothing():
    rng = np.random.default_rng(0)
    described = {"wind & rain_%": rng.uniform(0, 10, 200), "road": np.repeat(["wet", "dry"], 100)}
    failed = rng.random((200, 2)) < described["wind & rain_%"][:, None] / 20
    export = run_export(learn_finite(Costs(failed.astype(float), described=described)), "mine")
    captions = {p.name: p.caption for p in export.plots if p.name.startswith("failures")}
    assert len(captions) >= 3
    assert all("Nothing here is certified" in caption for caption in captions.values())
    table = tables(export)["environments"]
    assert {"wind & rain_%", "road"} <= {column.heading for column in table.columns}
    assert all(len(row) == 4 for row in table.rows)
    assert "no guarantee is about a single environment" in table.caption


def test_a_run_of_an_earlier_format_is_exported_without_what_it_does_not_record():
    earlier = Path(__file__).parents[1] / "certify" / "earlier_runs" / "2-sampled"
    export = run_export(Run.load(earlier), "mine")
    assert "certificate" in tables(export)
    assert "methods" not in tables(export)


# ---- numbers ------------------------------------------------------------------------------------


def test_no_bound_is_rounded_downwards(run: Any):
    found = tables(run_export(run, "mine"))
    bounds = [row[-1] for row in found["methods"].rows]
    bounds += [row[1] for row in found["certificate"].rows if "Bound" in str(row[0])]
    assert len(bounds) >= 6
    for cell in bounds:
        assert isinstance(cell, Cell)
        assert Decimal(cell.shown) >= Decimal(cell.value)  # type: ignore[arg-type]


def test_csv_has_all_digits_whole_names_and_no_formulas(run: Any):
    found = tables(run_export(run, "mine"))
    rows = list(csv.reader(io.StringIO(csv_text(found["policies"]))))
    assert rows[0] == ["Policy", "Posterior", "Prior", "Observed"]
    assert {row[0] for row in rows[1:]} == {*NAMES[:2], "'" + NAMES[2]}
    assert repr(run.certificate.bound) in csv_text(found["certificate"])


# ---- choices, comparisons and sweeps ------------------------------------------------------------


def test_a_choice_lists_every_policy_with_its_trials():
    export = run_export(choose(random([0.1, 0.5, 0.3], 60)).run, "mine")
    table = tables(export)["choice"]
    assert len(table.rows) == 3
    assert "hold at once, with confidence 95 %" in table.caption
    assert "do not allow for the choice" in table.caption
    assert "policies" in {plot.name for plot in export.plots}


def test_parts_that_were_declared_have_a_table():
    rng = np.random.default_rng(0)
    wind = rng.uniform(0, 10, 200)
    costs = Costs((rng.random((200, 2)) < 0.1).astype(float), described={"wind": wind})
    run = learn_in_parts(costs, ["wind<5", "wind>=5"], 0.05)
    table = tables(run_export(run, "mine"))["parts"]
    assert [row[0] for row in table.rows] == [part.words for part in run.certificate.parts]
    assert "declared before any rollout" in table.caption


@pytest.mark.parametrize("rates", [[0.1, 0.6], [0.3, 0.3]])
def test_a_comparison_states_its_verdict_and_limits(rates: list[float]):
    trials = random(rates, 60)
    comparison = compare(trials, "a", "b")
    found = tables(comparison_export(comparison, trials, "mine"))
    assert comparison.sentence in found["verdict"].caption
    told: dict[Any, Any] = dict(found["verdict"].rows)  # type: ignore[arg-type]
    low, high = told["Lower limit at any time"], told["Upper limit at any time"]
    shown = [float(cell.shown.replace("−", "-")) for cell in (low, high)]  # type: ignore[union-attr]
    assert shown[0] <= comparison.difference[0] <= comparison.difference[1] <= shown[1]
    assert sum(cell.value for row in found["outcomes"].rows for cell in row[1:2]) == 60  # type: ignore[union-attr, misc]


def test_a_sweep_has_its_rows_and_says_what_picking_one_does():
    figures = dict.fromkeys(FIGURES, 0.123456) | {"draws": 3}
    rows = [{"environments": 100, "method": "kl", **figures}]
    sweep = Sweep("braking", Plan(), ("environments", "method"), rows, 500, False)
    export = sweep_export(sweep, "mine")
    [table] = export.tables
    assert sweep.caption in table.caption
    assert "does not pay for" in table.caption
    assert "0.1235" in [cell.shown for cell in cells(table)]  # a bound, upwards
    headings = [column.heading for column in table.columns]
    assert headings == ["N", "method", "bound", "± s.d.", "training", "true", "± s.e.", "too low"]
    assert [plot.name for plot in export.plots] == ["sweep"]


# ---- files --------------------------------------------------------------------------------------


def test_a_figure_is_a_pdf_of_a_columns_width_with_embedded_letters(run: Any, tmp_path: Path):
    plot = Plot("methods", lambda file: PLOTS["methods"](run, file), "x")
    files = Export("mine", (), [plot]).write(tmp_path, 3.0)
    assert [file.name for file in files] == ["mine-figure-methods.pdf", "mine-figure-methods.tex"]
    pdf = files[0].read_bytes()
    width = re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", pdf)
    assert width is not None
    assert float(width[1]) == pytest.approx(3.0 * 72)
    assert b"/CIDFontType2" in pdf or b"/Type42" in pdf
    assert b"/Type3" not in pdf
    assert b"/Subtype /Image" not in pdf


@pytest.mark.parametrize("width", [3.0, 3.4])
def test_no_legend_is_cut_off_in_a_column(width: float, monkeypatch: pytest.MonkeyPatch):
    trials = replace(random([0.1, 0.6], 60), policies=("a policy before & now", "the other policy"))
    comparison = compare(trials, *trials.policies)
    kept: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda f, *a, **k: (kept.append(f), save(f, *a, **k))[1])
    with column(width):
        draw_evidence(comparison, BytesIO())
    [figure] = kept
    [legend] = figure.findobj(Legend)
    assert isinstance(legend, Legend)
    assert len(legend.get_texts()) == 4
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_the_size_is_for_exports_alone(run: Any, tmp_path: Path):
    for name in ("before", "after"):
        PLOTS["methods"](run, tmp_path / f"{name}.pdf")
        if name == "before":
            plot = Plot("m", lambda file: PLOTS["methods"](run, file), "x")
            Export("mine", (), [plot]).write(tmp_path)
    assert (tmp_path / "before.pdf").read_bytes() == (tmp_path / "after.pdf").read_bytes()


def test_names_are_safe_and_differ():
    found = file_names([Path("a/x"), Path("b/x"), Path("c/$%{}"), Path("d/" + "y" * 200)])
    assert found[:3] == ["x", "x-2", "run"]
    assert len(found[3]) == 60


def test_a_file_of_the_author_is_not_replaced(tmp_path: Path):
    table = Table("t", [Column("a")], [["1"]], "x")
    export = Export("mine", [table], ())
    export.write(tmp_path)
    check_replaceable(export.files(tmp_path), force=False)
    (tmp_path / "mine-table-t.tex").write_text("my own")
    with pytest.raises(ValueError, match="was not written by pbc export"):
        check_replaceable(export.files(tmp_path), force=False)
    check_replaceable(export.files(tmp_path), force=True)
