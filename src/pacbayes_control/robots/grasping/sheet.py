"""Sheets of small pictures with words over them, laid out in pixels, as PNG."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, eq=False)
class PictureSheet:
    """Rows of pictures of one size, with room for words; lengths in pixels."""

    count: int  # pictures
    columns: int
    size: tuple[int, int]  # width and height of a picture
    words: int = 0  # height of the words over each picture
    left: int = 0  # of all pictures
    above: int = 0  # all pictures

    @cached_property
    def figure(self) -> Figure:
        """The whole sheet."""
        rows = -(-self.count // self.columns)
        width = self.left + GAP + self.columns * (self.size[0] + GAP)
        height = self.above + GAP + rows * (self.size[1] + self.words + GAP)
        return Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)

    def box(self, number: int) -> Box:
        """The place of a picture."""
        row, column = divmod(number, self.columns)
        top = self.above + GAP + row * (self.size[1] + self.words + GAP) + self.words
        return self.left + GAP + column * (self.size[0] + GAP), top, *self.size

    def panel(self, box: Box, image: NDArray[np.uint8] | None = None) -> Axes:
        """Axes at a place of the sheet, with an image pixel by pixel."""
        (left, top, width, height), (whole, tall) = box, self.figure.get_size_inches() * DOTS
        place = (left / whole, 1 - (top + height) / tall, width / whole, height / tall)
        axis = self.figure.add_axes(place, xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set_color(GREY)
            spine.set_linewidth(0.6)
        if image is not None:
            axis.imshow(image, aspect="auto", interpolation="none")
        return axis

    def png(self) -> bytes:
        """A small file; the same picture gives the same bytes."""
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        whole = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        stream = BytesIO()
        whole.save(stream, "png", optimize=True)
        return stream.getvalue()


def title(axis: Axes, words: str, colour: str = DARK) -> None:
    """Write words over a picture."""
    axis.set_title(words, fontsize=9, color=colour, pad=4)
