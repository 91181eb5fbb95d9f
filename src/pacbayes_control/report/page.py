"""A page about a run: one HTML file that holds all it shows, and loads nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any, cast

import pacbayes_control
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.report import own_pictures, promise, sections
from pacbayes_control.report.environments import environment_costs
from pacbayes_control.report.markup import escape
from pacbayes_control.report.packing import Packed, pack_within
from pacbayes_control.report.pictures import BLUE, DARK, GREEN, GREY, ORANGE
from pacbayes_control.report.player import asset, data, player
from pacbayes_control.report.plots import PLOTS
from pacbayes_control.report.replay import (
    Replay,
    not_reproduced,
    roll_out,
    why_no_replay,
)
from pacbayes_control.rollouts.again import Again, roll_out_again
from pacbayes_control.tasks import Environments, Task, as_task
from pacbayes_control.tasks.registry import (
    recorded_class,
    recorded_environments,
    recorded_task,
    recorded_words,
)

MARK = '<meta name="generator" content="pbc report'  # by which a page is known as ours

SCRIPTS = ("rollouts.js", "drawing.js", "page.js")
REPEATED = 24  # rollouts that are run again to compare their costs; or a few seconds' worth
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


@dataclass(frozen=True)
class Page:
    """What was written."""

    path: Path
    size: int  # bytes
    replays: int  # rollouts that can be watched
    environments: int
    policies: int | None  # None for a Gaussian posterior
    again: Again  # recorded rollouts that were run again, and how many cost something else


@dataclass(frozen=True)
class Section:
    """A part of the page, with a heading of its own."""

    anchor: str
    link: str  # in the list at the top
    title: str
    content: str


def write_page(
    run: Run[Any],
    file: str | Path,
    task: Task | None = None,
    environments: Environments | None = None,
    name: str = "run",
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Write a page about a run; the same run gives the same bytes.

    task, environments: what the run was learnt on, for the replays; a run of a robot that is
    installed tells them itself. The task needs `scenes` and `paths`. name: of the run's folder.
    pictures: files of the run's folder; shown are those that are PNG.
    """
    if (task is None) != (environments is None):
        raise ValueError("replays need both, the task and its environments: give the other too")
    if task is None:
        task, environments = _recorded(run)
    else:
        task = as_task(task)
    replay, packed = None, None
    reason = why_no_replay(run, task)
    if reason is None:
        full = roll_out(run, cast(Task, task), cast(Environments, environments))
        replay, packed = pack_within(full, environment_costs(run)[full.environments])
    again = Again(0, 0)
    if task is not None and environments is not None and reason != "":
        try:
            again = roll_out_again(run, task, environments, REPEATED if replay else None)
        except ValueError as error:
            reason = f"{reason or ''} No recorded cost was compared: {error}.".strip()
    known = recorded_class(run.costs)
    shown = own_pictures.section(pictures or {}, known.captions if known else {})
    text = _page(run, name, replay, packed, reason or "", shown, again).encode()
    Path(file).write_bytes(text)
    pairs, c = replay.pairs if replay else 0, run.certificate
    return Page(Path(file), len(text), pairs, c.environments, c.policies, again)


def _recorded(run: Run[Any]) -> tuple[Task, Environments] | tuple[None, None]:
    """The task and the environments of a run, where its own record tells them."""
    try:
        task = recorded_task(run.costs)
        environments = recorded_environments(run.costs, task)
    except ValueError:
        return None, None
    return (task, environments) if len(environments) == run.costs.environments else (None, None)


def is_page(file: Path) -> bool:
    """Whether a file was written by `write_page`, and may be written again."""
    with file.open("rb") as stream:
        return MARK.encode() in stream.read(2000)


def _page(
    run: Run[Any],
    name: str,
    replay: Replay | None,
    packed: Packed | None,
    reason: str,
    pictures: str,
    again: Again,
) -> str:
    parts = [part for part in _sections(run, name, replay, reason, pictures) if part.content]
    links = "".join(f'<li><a href="#{part.anchor}">{part.link}</a></li>' for part in parts)
    content = "\n".join(
        f'<section id="{part.anchor}" aria-labelledby="{part.anchor}-title">\n'
        f'<h2 id="{part.anchor}-title">{part.title}</h2>\n{part.content}\n</section>'
        for part in parts
    )
    return Template(asset("page.html")).substitute(
        generator=f"pbc report (pacbayes-control {pacbayes_control.__version__})",
        title=escape(Path(name).name),
        css=asset("page.css"),
        navigation=links,
        alarm=_alarm(again),
        content=content,
        data=data(run, replay, packed) if replay and packed else "",
        script="".join(asset(name) for name in SCRIPTS) if replay else "",
    )


def _sections(
    run: Run[Any], name: str, replay: Replay | None, reason: str, pictures: str
) -> list[Section]:
    c = run.certificate
    side = sections.why_no_methods(run)
    if compared := sections.methods(run):
        remark, table = compared
        side = _beside(remark + _plot(run, "methods", "Bounds by method"), table)
    costs, hardest = sections.environments(run, replay)
    moved = isinstance(run.posterior, Categorical) or run.posterior.kl(run.prior) > 0
    shares = _plot(run, "posterior", "The posterior and the prior") if moved else ""
    spread = _plot(run, "environment-costs", "Histogram of the mean cost of environments")
    growth = _plot(run, "bound-against-environments", "The bound against the number N")
    shifted = _plot(run, "shift", "The bound against the size of a shift")
    costs += f'<p class="small">{escape(reason)}</p>' if reason else ""
    return [
        Section("promise", "Promise", "What is promised", _promise(run, name)),
        Section("budget", "Confidence", "How δ was spent", promise.budget(c)),
        Section("methods", "Methods", "Bounds side by side", side),
        Section(
            "posterior",
            "Policies",
            "The policies",
            _beside(shares, sections.posterior(run)) if moved else sections.posterior(run),
        ),
        Section(
            "environments", "Environments", "Cost by environment", _beside(costs + spread, hardest)
        ),
        Section("pictures", "Pictures", "What it looks like", pictures),
        Section("replay", "Replay", "Watch the rollouts", player(run, replay) if replay else ""),
        Section(
            "outlook", "More data", "More environments", _beside(growth, sections.outlook(run))
        ),
        Section("shift", "Shift", "If the world shifts", _beside(shifted, sections.shift(run))),
    ]


def _promise(run: Run[Any], name: str) -> str:
    c = run.certificate
    number, words = promise.bound_words(c)
    return (
        f'<div class="promise"><p class="bound"><b>{number}</b> <span>{words}</span></p>'
        f'<p class="sentence">{escape(c.sentence)}</p></div>\n{promise.facts(run)}\n'
        f"{promise.meaning(c, recorded_words(run.costs))}\n"
        f"<h3>Check it yourself</h3><p>The certificate can be recomputed from the run's files, "
        f"without trust in whoever made it: <code>pbc verify {escape(shlex.quote(name))}</code></p>"
        '<details class="checks"><summary>Hashes and versions</summary>'
        f"{promise.record(c)}</details>"
    )


def _alarm(again: Again) -> str:
    """A banner where recorded costs are not reproduced."""
    words = not_reproduced(again)
    if not words:
        return ""
    return (
        f'<div class="alarm" role="alert"><p><strong>Not reproduced:</strong> {escape(words)} What '
        "this page replays need not be what was certified.</p></div>"
    )


def _beside(left: str, right: str) -> str:
    return f'<div class="beside"><div>{left}</div><div>{right}</div></div>'


def _plot(run: Run[Any], name: str, label: str) -> str:
    """A plot as SVG within the page."""
    stream = BytesIO()
    PLOTS[name](run, stream)
    svg = stream.getvalue().decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    svg = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: _colour(found[0]), svg)
    # Each plot numbers its parts alike: their ids must not meet in one page.
    inner = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg[svg.index(">") + 1 :])
    title = escape(label)
    return (
        f'<figure class="plot"><svg {box[0]} role="img" aria-label="{title}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<title>{title}</title>{inner.strip()}</figure>"
    )


def _colour(colour: str) -> str:
    return f"var(--{COLOURS[colour]})" if colour in COLOURS else colour
