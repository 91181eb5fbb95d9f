"""The colours of pictures, the policies they show, and how they are saved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import Run
from pacbayes_control.tasks.environments import generator

# Colours that stay apart for colour-blind readers and on paper.
BLUE, ORANGE, GREEN, GREY, DARK = "#0072b2", "#d55e00", "#009e73", "#9a9a9a", "#333333"
STABLE: Any = {
    "svg.hashsalt": "pacbayes-control",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters as letters, which journals ask for
}
FORMATS: Any = {
    "svg": {"format": "svg", "metadata": {"Date": None}},
    "pdf": {"format": "pdf", "metadata": {"CreationDate": None}},
    "png": {"format": "png", "dpi": 150},
}
SMALLEST, LARGEST = 7, 8  # points of letters in a column of a paper
ROOM = 0.8  # of its width, for a legend above the axes
_column: ContextVar[float | None] = ContextVar("column", default=None)  # its width in inches


def drawn_policies(run: Run[Any], count: int) -> tuple[NDArray, NDArray]:
    """Policies drawn from a run's prior and from its posterior; shapes (count, parameters).

    Where one policy is certified, it stands in place of draws from the posterior.
    """
    rng, single = generator(0, "picture", of="policies"), run.certificate.policy
    parameters: Any = run.costs.parameters  # of finitely many policies, or of the certified one
    before, after = run.prior.sample(rng, count), run.posterior.sample(rng, count)
    if not isinstance(run.posterior, DiagonalGaussian):  # these are numbers of policies
        before, after = parameters[before], parameters[after]
    if single is not None:
        after = np.repeat(parameters[single][None], count, axis=0)
    return before, after


@contextmanager
def column(width: float) -> Iterator[None]:
    """Within it, figures are saved with this width in inches, and with letters for a paper."""
    before = _column.set(width)
    try:
        yield
    finally:
        _column.reset(before)


def _fit(figure: Figure, width: float) -> None:
    """Make a figure as wide as a column.

    Letters shrink less than lines, labels are broken, and legends have one column if need be.
    """
    was, height = figure.get_size_inches()
    scale = width / was
    figure.set_size_inches(width, height * scale**0.5)
    for axis in figure.axes:
        axis.tick_params(labelsize=SMALLEST)
        for label in (axis.xaxis.label, axis.yaxis.label, axis.title):
            label.set_wrap(True)
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(min(max(scale * text.get_fontsize(), SMALLEST), LARGEST))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(constrained_layout|Glyph)", UserWarning)
        figure.draw_without_rendering()
    for legend in figure.findobj(Legend):
        assert isinstance(legend, Legend)
        if legend.get_window_extent().width > ROOM * figure.bbox.width:
            _stack(legend)


def _stack(legend: Legend) -> None:
    """Make a legend above its axes again, with one column."""
    words, place = legend.get_texts(), {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    size, labels = words[0].get_fontsize(), [text.get_text() for text in words]
    handles: list[Any] = list(legend.legend_handles)
    look: Any = {"frameon": False, "fontsize": size}
    legend.axes.legend(handles, labels, ncols=1, **place, **look)


def save_figure(figure: Figure, file: Path | BinaryIO) -> None:
    """Write PNG or PDF if the path says so, else SVG; the same bytes for the same picture."""
    kind = file.suffix.removeprefix(".") if isinstance(file, Path) else ""
    if (width := _column.get()) is not None:
        _fit(figure, width)
    with rc_context(STABLE), warnings.catch_warnings():
        # A name may have letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        drawn = BytesIO()
        figure.savefig(drawn, **FORMATS.get(kind, FORMATS["svg"]))
    if isinstance(file, Path):
        write_output(file, drawn.getvalue())
    else:
        file.write(drawn.getvalue())
