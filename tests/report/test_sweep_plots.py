"""The plot of a sweep: every kind of field has an axis, and no label lies on another."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from pacbayes_control.learn import Plan
from pacbayes_control.report import sweep_plots
from pacbayes_control.report.sweep_plots import MOST_LINES, draw_sweep
from pacbayes_control.study.sweep import FIGURES, Sweep

METHODS = ["occam", "kl", "kl-maurer", "pinsker", "betting", "best"]
OVER: dict[str, dict[str, list[Any]]] = {
    "one value": {"environments": [100]},
    "numbers": {"environments": [100, 110, 120, 1000, 20_000, 1_000_000]},
    "numbers and words": {"environments": [100, 1000], "method": METHODS},
    "words": {"method": METHODS, "policy": ["$linear$", "a network with a long name, of sixty"]},
    "long words": {"policy": [f"a network with a long name, number {i}" for i in range(7)]},
    "long numbers": {"task.x": [1.2345678e-9, 1.3e-9, 2e-9, 123456789.0], "graded": [True, False]},
    "many lines": {"delta": [0.01, 0.05], "width": [i / 7 for i in range(MOST_LINES + 3)]},
    "zero": {"width": [0, 1, 5]},
}


def sweep_over(over: dict[str, list[Any]]) -> Sweep:
    rows = []
    for number, values in enumerate(product(*over.values())):
        figures = dict.fromkeys(FIGURES, 0.02) | {"draws": 5, "bound": 0.3 + 0.001 * number}
        rows.append({**dict(zip(over, values, strict=True)), **figures})
    return Sweep("stopping", Plan(), tuple(over), rows, 100, False)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(sweep_plots, "save_figure", lambda figure, _: figures.append(figure))
    return figures


@pytest.mark.parametrize("kind", OVER)
def test_no_label_lies_on_another_or_is_cut_off(kind: str, drawn: list[Figure]):
    draw_sweep(sweep_over(OVER[kind]), Path("sweep.svg"))
    [figure] = drawn
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer: Any = canvas.get_renderer()
    [axis] = figure.axes
    legend: Any = axis.get_legend()
    texts: list[Text] = [*legend.get_texts(), axis.xaxis.label, axis.yaxis.label]
    top = axis.get_ylim()[1]  # Matplotlib has a tick beyond it, which it does not draw
    texts += [text for text in axis.get_yticklabels() if text.get_position()[1] <= top]
    texts = [text for text in [*texts, *axis.get_xticklabels()] if text.get_text()]
    for one, other in combinations(texts, 2):
        if one.get_rotation() % 90 or other.get_rotation() % 90:
            continue  # the boxes of aslant words overlap, and not the words
        a, b = one.get_window_extent(renderer), other.get_window_extent(renderer)
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(wide, high) < 0.5, (one.get_text(), other.get_text())
    for text in texts:
        box = text.get_window_extent(renderer)
        assert box.x0 > -0.5, text.get_text()
        assert box.y0 > -0.5
        assert box.x1 < figure.bbox.x1 + 0.5, text.get_text()
        assert box.y1 < figure.bbox.y1 + 0.5, text.get_text()


def test_environments_have_a_logarithmic_axis_and_a_line_for_each_method(drawn: list[Figure]):
    draw_sweep(sweep_over(OVER["numbers and words"]), Path("sweep.svg"))
    [axis] = drawn[0].axes
    assert axis.get_xscale() == "log"
    assert axis.get_xlabel() == "environments, N"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1,000", "100"]
    names = [text.get_text() for text in axis.get_legend().get_texts()]
    assert names == [*METHODS, "bound, ± s.d.", "true cost, ± s.e."]


def test_lines_that_are_too_many_are_counted(drawn: list[Figure]):
    draw_sweep(sweep_over(OVER["many lines"]), Path("sweep.svg"))
    words = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert words[-1] == "3 more lines are not drawn"


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_plot_is_written_by_its_suffix(tmp_path: Path, suffix: str):
    draw_sweep(sweep_over(OVER["words"]), tmp_path / f"sweep.{suffix}")
    beginning = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    assert (tmp_path / f"sweep.{suffix}").read_bytes().startswith(beginning[suffix])
