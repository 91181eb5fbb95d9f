"""Sheets of small pictures with words over them, laid out in pixels, as PNG."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from pacbayes_control.report.pictures import DARK, GREY

Box = tuple[int, int, int, int]  # left, top, width and height, in pixels of the sheet

DOTS = 100  # pixels in an inch
GAP, LINE = 8, 20  # pixels between pictures, and of a line of words


def blank(
    columns: int, rows: int, size: tuple[int, int], lines: int = 0, left: int = 0, above: int = 0
) -> Figure:
    """A sheet for rows of pictures with room for words over each, and to their left and above."""
    width = left + GAP + columns * (size[0] + GAP)
    height = above + GAP + rows * (size[1] + lines + GAP)
    return Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)


def slot(
    number: int, columns: int, size: tuple[int, int], lines: int = 0, left: int = 0, above: int = 0
) -> Box:
    """Where a picture is on such a sheet."""
    row, column = divmod(number, columns)
    top = above + GAP + row * (size[1] + lines + GAP) + lines
    return left + GAP + column * (size[0] + GAP), top, *size


def panel(figure: Figure, box: Box, image: NDArray[np.uint8] | None = None) -> Axes:
    """Axes in a place of the sheet, pixel by pixel."""
    (left, top, width, height), (whole, tall) = box, figure.get_size_inches() * DOTS
    axis = figure.add_axes(
        (left / whole, 1 - (top + height) / tall, width / whole, height / tall),
        xticks=[],
        yticks=[],
    )
    for spine in axis.spines.values():
        spine.set_color(GREY)
        spine.set_linewidth(0.6)
    if image is not None:
        axis.imshow(image, aspect="auto", interpolation="none")
    return axis


def title(axis: Axes, words: str, colour: str = DARK) -> None:
    """Words over a picture."""
    axis.set_title(words, fontsize=9, color=colour, pad=4)


def png(figure: Figure) -> bytes:
    """A small file; the same picture gives the same bytes."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    stream = BytesIO()
    whole.save(stream, "png", optimize=True)
    return stream.getvalue()
