"""Templates, plots and values in one HTML file that holds all it shows, and loads nothing.

Everything that the templates show is escaped, except markup of our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pacbayes_control.certify import text
from pacbayes_control.certify.statistics import percent, rest_percent
from pacbayes_control.report import pictures as colours
from pacbayes_control.report import summary
from pacbayes_control.report.held_out import held_out_words
from pacbayes_control.report.links import target

MARK = '<meta name="generator" content="pbc report'  # of pages that may be overwritten
COLOURS = {  # of the plots, by their names in page.css, where a dark screen has others
    "#000000": "ink",
    "#ffffff": "paper",
    "#b0b0b0": "grid",
    colours.DARK: "dark",
    colours.GREY: "grey",
    colours.BLUE: "blue",
    colours.ORANGE: "orange",
    colours.GREEN: "green",
}

MONTHS = (  # in English for any locale
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)

Draw = Callable[[BinaryIO], None]  # writes SVG


def render(template: str, values: Mapping[str, Any], plots: Mapping[str, Draw]) -> str:
    """A page, or a part of it; every value is text unless it is `Markup`."""

    def plot(name: str, label: str) -> Markup:
        return embedded(name, label, plots[name])

    return _ENVIRONMENT.get_template(template).render({**values, "plot": plot})


def is_page(file: Path) -> bool:
    """Whether a file is a page of ours, and may be overwritten."""
    with file.open("rb") as stream:
        return MARK.encode() in stream.read(2000)


def _visible(value: Any) -> Any:
    r"""Text in which every character can be seen; Jinja then escapes it.

    >>> _ENVIRONMENT.from_string("{{ name }}").render(name="<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return value if isinstance(value, Markup) else text.printable(str(value))


def asset(name: str) -> Markup:
    """A style sheet or a script of the page, as it is."""
    folder = files("pacbayes_control.report") / "assets"
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def moment(created: str | None) -> str:
    """A date and a time for people and for machines.

    >>> str(moment("2026-11-18T15:50:07+01:00"))
    '<time datetime="2026-11-18T15:50:07+01:00">18 November 2026, 14:50 UTC</time>'
    """
    try:
        at = datetime.fromisoformat(created or "").astimezone(UTC)
    except (ValueError, OverflowError):  # of a record that is not a run's
        return created or "not recorded"
    words = f"{at.day} {MONTHS[at.month - 1]} {at.year}, {at:%H:%M} UTC"
    return Markup('<time datetime="{}">{}</time>').format(created, words)


def embedded(name: str, label: str, draw: Draw) -> Markup:
    """A plot as SVG within the page."""
    stream = BytesIO()
    draw(stream)
    svg = stream.getvalue().decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    box = re.search(r'<svg[^>]*(viewBox="[^"]*")[^>]*>', svg)
    assert box is not None
    inner = re.sub("<[^>]*>", partial(_in_page, name), svg[box.end() :])
    return Markup(
        '<figure class="plot"><svg {box} role="img" aria-label="{label}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        "<title>{label}</title>{inner}</figure>"
    ).format(box=Markup(box[1]), label=label, inner=Markup(inner.strip()))


def _in_page(plot_name: str, tag: re.Match[str]) -> str:
    """A tag of a plot in the colours of the page; text between tags, such as names, stays."""
    found = tag[0]
    for colour, its_name in COLOURS.items():
        found = re.sub(rf"(?<=: ){colour}\b", f"var(--{its_name})", found)
    # Each plot numbers its parts alike: their ids must not meet in one page.
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{plot_name}-", found)


_ENVIRONMENT = Environment(
    loader=PackageLoader("pacbayes_control.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_visible,
)
_ENVIRONMENT.policies.update(
    {"json.dumps_function": text.json_text, "json.dumps_kwargs": {"indent": None}}
)
_ENVIRONMENT.globals.update(
    asset=asset,
    format=format,
    held_out_words=held_out_words,
    moment=moment,
    percent=percent,
    rest_percent=rest_percent,
    summary=summary,
    target=target,
    text=text,
)
