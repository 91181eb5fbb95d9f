"""The templates of a page. Everything that they show is escaped, except markup of our own."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files
from io import BytesIO
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import (
    confidence_percent,
    percent_up,
    printable,
    quoted,
    round_down,
    round_up,
    shortened,
)
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE
from pacbayes_control.report.plots import PLOTS
from pacbayes_control.report.side_by_side import MEANING
from pacbayes_control.report.words import PRIOR_KEPT, policy_words, shift_words

COLOURS = {  # of the plots, by their names in page.css, where a dark screen has others
    "#000000": "ink",
    "#ffffff": "paper",
    "#b0b0b0": "grid",
    DARK: "dark",
    GREY: "grey",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
}


def render(template: str, run: Run[Any], **values: Any) -> str:
    """A page, or a part of it, about a run; every value is text unless it is `Markup`."""
    known = {"run": run, "c": run.certificate, "plot": partial(plot, run)}
    return _ENVIRONMENT.get_template(template).render(known | values)


def _visible(value: Any) -> Any:
    r"""Text in which every character can be seen; Jinja then escapes it.

    >>> _ENVIRONMENT.from_string("{{ name }}").render(name="<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return value if isinstance(value, Markup) else printable(str(value))


def asset(name: str) -> Markup:
    """A style sheet or a script of the page, as it is."""
    folder = files("pacbayes_control.report") / "assets"
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def plot(run: Run[Any], name: str, label: str) -> Markup:
    """A plot as SVG within the page."""
    stream = BytesIO()
    PLOTS[name](run, stream)
    svg = stream.getvalue().decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    box = re.search(r'<svg[^>]*(viewBox="[^"]*")[^>]*>', svg)
    assert box is not None
    inner = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: _colour(found[0]), svg[box.end() :])
    # Each plot numbers its parts alike: their ids must not meet in one page.
    inner = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", inner)
    return Markup(
        '<figure class="plot"><svg {box} role="img" aria-label="{label}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        "<title>{label}</title>{inner}</figure>"
    ).format(box=Markup(box[1]), label=label, inner=Markup(inner.strip()))


def _colour(colour: str) -> str:
    return f"var(--{COLOURS[colour]})" if colour in COLOURS else colour


_ENVIRONMENT = Environment(
    loader=PackageLoader("pacbayes_control.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_visible,
)
_ENVIRONMENT.globals |= {
    "MEANING": MEANING,
    "PRIOR_KEPT": PRIOR_KEPT,
    "asset": asset,
    "confidence_percent": confidence_percent,
    "format": format,
    "percent_up": percent_up,
    "policy_words": policy_words,
    "quoted": quoted,
    "round_down": round_down,
    "round_up": round_up,
    "shift_words": shift_words,
    "shortened": shortened,
}
