"""What tests of pages share: a run to write about, what a page holds, and plots left out of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pacbayes_control.certify.run import Run
from pacbayes_control.report.plots import PLOTS

Write = Callable[..., str]
BLANK = b'<svg viewBox="0 0 1 1"></svg>'
# The contrast of letters with what is behind them, for each of some elements.
CONTRAST = """all => all.map(one => {
  const style = getComputedStyle(one), svg = one.namespaceURI.endsWith("svg");
  let behind = one;
  const clear = (it) => getComputedStyle(it).backgroundColor === "rgba(0, 0, 0, 0)";
  while (clear(behind)) behind = behind.parentElement;
  const shade = (colour) => {
    const size = colour.startsWith("color(srgb") ? 1 : 255;
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map((c) => c / size)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [dark, light] = [shade(svg ? style.fill : style.color),
    shade(getComputedStyle(behind).backgroundColor)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
})"""


class Outline(HTMLParser):
    """Ids, tags and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def words(text: str) -> str:
    """What a reader sees of a page."""
    text = re.sub(r"<(script|style|svg).*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def _blank(_: Run[Any], file: Path | BinaryIO) -> None:
    """A plot of nothing: Matplotlib takes longer than the rest of a page."""
    if isinstance(file, Path):
        file.write_bytes(BLANK)
    else:
        file.write(BLANK)


def draw_only(plots: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """Leave the other plots blank."""
    for name in set(PLOTS) - set(plots):
        patch.setitem(PLOTS, name, _blank)
