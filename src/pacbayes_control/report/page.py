"""A page about a run: one HTML file that holds all it shows, and loads nothing.

Everything that its templates show is escaped, except markup of our own.
"""

from __future__ import annotations

import base64
import re
import shlex
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import pacbayes_control
from pacbayes_control.certify import text
from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.statistics import percent, rest_percent
from pacbayes_control.report import pictures as colours
from pacbayes_control.report import summary
from pacbayes_control.report.plots import PLOTS
from pacbayes_control.report.replay import pack_within, replay_values, roll_out
from pacbayes_control.report.sections import MEANING, section_values
from pacbayes_control.rollouts.again import Again, roll_out_again
from pacbayes_control.tasks import Environments, Task, as_task
from pacbayes_control.tasks.registry import recorded_class, recorded_environments, recorded_task

MARK = '<meta name="generator" content="pbc report'  # of pages that may be overwritten
REPEATED = 24  # rollouts that are run again to compare their costs; or a few seconds' worth
SECTIONS = (  # the name of its template, its link at the top of the page, and its heading
    ("promise", "Promise", "What is promised"),
    ("budget", "Confidence", "How δ was spent"),
    ("methods", "Methods", "Bounds side by side"),
    ("posterior", "Policies", "The policies"),
    ("environments", "Environments", "Cost by environment"),
    ("distribution", "Distribution", "The distribution of the cost"),
    ("pictures", "Pictures", "What it looks like"),
    ("replay", "Replay", "Watch the rollouts"),
    ("outlook", "More data", "More environments"),
    ("shift", "Shift", "If the world shifts"),
)
LARGEST_PICTURE = 4 << 20  # bytes
MOST_PICTURES = 12
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


@dataclass(frozen=True)
class Page:
    """A page that was written."""

    path: Path
    size: int  # bytes
    replays: int  # rollouts that can be watched
    again: Again  # recorded rollouts that were run again, and how many of them cost something else


def write_page(
    run: Run[Any],
    file: str | Path,
    *,
    task: Task | None = None,
    environments: Environments | None = None,
    name: str = "run",
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Write a page about a run; the same run gives the same bytes.

    Args:
        run: the run
        file: the HTML file to write
        task: the task that the run was learnt on, for the replays: it needs `scenes` and `paths`.
            A run of an installed robot names its task and environments itself
        environments: those that the run counts, drawn from the task
        name: of the run's folder
        pictures: files of the run's folder; those that are PNG and have a caption are shown
    """
    if (task is None) != (environments is None):
        raise ValueError("replays need both, the task and its environments: give the other too")
    robot, known = None, recorded_class(run.costs)
    with suppress(ValueError):  # of a record that does not name its task or its environments
        recorded = recorded_task(run.costs)
        robot = recorded.words
        if task is None:
            counted = recorded_environments(run.costs, recorded)
            if len(counted) == run.costs.environments:
                task, environments = recorded, counted
    task = None if task is None else as_task(task)
    replay, packed = None, None
    reason = why_no_replay(run, task, known)
    if reason is None:
        full = roll_out(run, cast(Task, task), cast(Environments, environments))
        replay, packed = pack_within(full, summary.environment_costs(run)[full.environments])
    again = Again(0, 0)
    if task is not None and environments is not None and reason != "":
        try:
            again = roll_out_again(run, task, environments, count=REPEATED if replay else None)
        except ValueError as error:
            reason = f"{reason or ''} No recorded cost was compared: {error}.".strip()
    embedded = embedded_pictures(pictures or {}, known.captions if known else {})
    no_function = run.certificate.margin is None
    absent = {"pictures": not embedded, "replay": not replay, "distribution": no_function}
    content = render(
        "page.html",
        run,
        **section_values(run),
        version=pacbayes_control.__version__,
        title=Path(name).name,
        shell_name=shlex.quote(name),
        robot=robot,
        sections=[section for section in SECTIONS if not absent.get(section[0])],
        alarm=summary.not_reproduced(again),
        reason=reason,
        pictures=embedded,
        replay=replay,
        packed=packed,
        replay_values=replay_values(run, replay, packed) if replay and packed else None,
    ).encode()
    write_output(Path(file), content)
    return Page(Path(file), len(content), replay.costs.size if replay else 0, again)


def why_no_replay(run: Run[Any], task: Task | None, known: type[Task] | None) -> str | None:
    """The reason why the rollouts of a run cannot be shown, in one line; None where they can.

    It is empty for a table of costs, which holds no policies that could be rolled out again.
    """
    if run.costs.draws is None and run.costs.parameters is None:
        return ""
    if task is not None and task.scenes is not None and task.paths is not None:
        return None
    known = known if task is None else type(task)
    if known is not None and known.no_replay:
        return known.no_replay
    if task is None:
        return (
            "The run does not say which task it is of: with pbc report --task MODULE:TASK, this "
            "page shows the rollouts of a task that can show itself."
        )
    return f"The task {task.name} cannot show itself: it has no scenes and paths."


def is_page(file: Path) -> bool:
    """Whether a file was written by `write_page`, and may be overwritten."""
    with file.open("rb") as stream:
        return MARK.encode() in stream.read(2000)


# ---- pictures of the run's folder: a stranger's run may hold anything --------------------------


def embedded_pictures(
    pictures: Mapping[str, bytes], captions: Mapping[str, tuple[str, str]]
) -> list[tuple[Any, ...]]:
    """The pictures that have a caption, are PNG, and are not too large for a page.

    Each is its bytes in base64, its width and height in pixels, its description and its caption.

    captions: for each file name, a description of the picture and its caption.
    """
    embedded = []
    for name, words in captions.items():
        content = pictures.get(name, b"")
        opening = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        if not content.startswith(opening) or not 24 <= len(content) <= LARGEST_PICTURE:
            continue
        width, height = struct.unpack(">II", content[16:24])
        if 0 < width < 10_000 and 0 < height < 10_000:
            encoded = base64.b64encode(content).decode("ascii")
            embedded.append((encoded, width, height, *words))
    return embedded


# ---- templates ----------------------------------------------------------------------------------


def render(template: str, run: Run[Any], **values: Any) -> str:
    """A page, or a part of it, about a run; every value is text unless it is `Markup`."""
    values |= {"run": run, "c": run.certificate, "plot": partial(plot, run)}
    return _ENVIRONMENT.get_template(template).render(values)


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


def plot(run: Run[Any], name: str, label: str) -> Markup:
    """A plot as SVG within the page."""
    stream = BytesIO()
    PLOTS[name](run, stream)
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
    MEANING=MEANING,
    asset=asset,
    format=format,
    percent=percent,
    rest_percent=rest_percent,
    summary=summary,
    text=text,
)
