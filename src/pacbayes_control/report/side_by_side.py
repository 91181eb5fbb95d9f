"""A page about several runs: their certificates side by side, and what holds for all together.

Each certificate is wrong with probability δᵢ at most. So all of them hold together with probability
1 - Σ δᵢ at least, whatever they have in common: a union bound. To look at all of them and then pick
the smallest bound is covered at this joint confidence, and not at that of the picked one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, BinaryIO

import pacbayes_control
from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import confidence_percent, printable, quoted
from pacbayes_control.report import rendering
from pacbayes_control.report.axes import new_figure, short
from pacbayes_control.report.held_out import held_out_error
from pacbayes_control.report.pictures import BLUE, DARK, GREY, ORANGE, save_figure

MOST = 50  # runs on a page
UNSAID = "not said"
SECTIONS = (  # the name of its template, its link at the top of the page, and its heading
    ("together", "Together", "What holds for all of them"),
    ("runs", "Runs", "The runs"),
    ("bounds", "Bounds", "Bounds and costs"),
    ("common", "In common", "What they have in common, and what not"),
)
# Facts that must agree, or else the numbers are about different things; and what none means.
COMPARED: dict[str, tuple[Callable[[Run[Any]], object], str]] = {
    "statistics of the cost": (lambda run: run.certificate.of, ""),
    "cost rules": (lambda run: run.certificate.cost_rule, UNSAID),
    "distributions of the environments": (lambda run: run.certificate.distribution, UNSAID),
    "balls of distributions": (lambda run: run.certificate.ball, "none"),
    "kinds of noise": (lambda run: run.certificate.noise, "none"),
    "kinds of environment": (lambda run: run.certificate.unit, UNSAID),
    "numbers of tasks in a fixed list": (lambda run: run.certificate.tasks, "none"),
    "tasks": (lambda run: run.costs.origin.get("task"), UNSAID),
}


@dataclass(frozen=True, eq=False)
class NamedRun:
    """A run with the name that tells it from the others."""

    name: str
    run: Run[Any]

    @property
    def quoted(self) -> str:
        """The name as sentences show it."""
        return quoted(self.name)


@dataclass(frozen=True)
class SideBySidePage:
    """A page that was written."""

    path: Path
    size: int  # bytes


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many parts as tell it from the others.

    >>> distinct_names([Path("/a/runs/x"), Path("/b/runs/x"), Path("/a/runs/y")])
    ['a/runs/x', 'b/runs/x', 'y']
    """
    parts = [folder.resolve().parts for folder in folders]
    names = []
    for mine in parts:
        size = 1
        while sum(other[-size:] == mine[-size:] for other in parts) > 1:
            size += 1
        names.append("/".join(mine[-size:]))
    return names


def joint_delta(runs: Sequence[NamedRun]) -> float:
    """The probability that one of the certificates or more is wrong, at most: the sum of all δ."""
    total = sum((Decimal(repr(each.run.certificate.delta)) for each in runs), Decimal(0))
    return float(min(total, Decimal(1)))


def joint_sentence(runs: Sequence[NamedRun]) -> str:
    """The confidence with which all certificates hold together."""
    delta, many = joint_delta(runs), f"all {len(runs)} certificates"
    if delta >= 1:
        return f"The δ of {many} sum to 1 or more: nothing is promised of all of them together."
    return (
        f"With confidence {confidence_percent(delta)}, {many} hold together (δ = {delta:.12g}, the "
        "sum of theirs)."
    )


# ---- what the runs have in common ---------------------------------------------------------------


def findings(runs: Sequence[NamedRun]) -> Iterator[str]:
    """Sentences on what two or more runs share, and on what keeps them from being compared."""
    for what, (fact, absent) in COMPARED.items():
        told = [_told(fact(each.run), absent) for each in runs]
        values = {
            value: [e for e, t in zip(runs, told, strict=True) if t == value] for value in told
        }
        if len(values) > 1:
            known = "are not said to be" if UNSAID in values else "are not"
            yield (
                f"Their numbers {known} about the same {what}: "
                + "; ".join(f"{value} for {_listed(group)}" for value, group in values.items())
                + ". A smaller bound does not mean a better policy there."
            )
    for group in _groups(runs, _same_costs):
        methods = sorted({each.run.certificate.method for each in group})
        how = f", certified by {' and by '.join(methods)}" if len(methods) > 1 else ""
        yield (
            f"{_listed(group)} rest on the same costs{how}. To keep the smallest bound is to "
            "choose by the data: it holds at the joint confidence only."
        )
    for group in _groups(runs, _overlapping):
        yield (
            f"Some of the same environments count in {_listed(group)}: where these were easier "
            "than usual, all of these bounds may be too small at once."
        )
    for group in _groups(runs, _same_sites):
        yield f"Environments of the same names count in {_listed(group)}: they may be the same."
    for a, b in permutations(runs, 2):
        yield from _learnt_from(a, b)


def _told(value: object, absent: str) -> str:
    return absent if value is None else quoted(str(value), 200)


def _listed(group: Sequence[NamedRun]) -> str:
    *first, last = (each.quoted for each in group)
    return f"{', '.join(first)} and {last}" if first else last


def _groups(
    runs: Sequence[NamedRun], alike: Callable[[NamedRun, NamedRun], bool]
) -> Iterator[list[NamedRun]]:
    """Runs that are alike, or of which each is like one that is like another."""
    groups: list[list[NamedRun]] = []
    for each in runs:
        near = [group for group in groups if any(alike(each, other) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(one for group in near for one in group), each])
    for group in groups:
        if len(group) > 1:
            yield [each for each in runs if each in group]


def _same_costs(a: NamedRun, b: NamedRun) -> bool:
    return a.run.costs.digests["costs"] == b.run.costs.digests["costs"]


def _overlapping(a: NamedRun, b: NamedRun) -> bool:
    if _same_costs(a, b) or not _same_task(a, b):
        return False
    return any(one.overlaps(other) for one in _ranges(a.run) for other in _ranges(b.run))


def _ranges(run: Run[Any]) -> list[EnvironmentRange]:
    """The environments that a bound rests on, of streams: those of simulation alone, too."""
    own, simulation = run.costs.range, run.costs.simulation
    return [*([own] if own else []), *(simulation.seen if simulation else ())]


def _same_sites(a: NamedRun, b: NamedRun) -> bool:
    return not _same_costs(a, b) and not _sites(a.run).isdisjoint(_sites(b.run))


def _sites(run: Run[Any]) -> set[str]:
    """The names of these environments."""
    simulation = run.costs.simulation
    return {*run.costs.sites, *(simulation.more.sites if simulation else ())}


def _learnt_from(a: NamedRun, b: NamedRun) -> Iterator[str]:
    """Whether a part of one run was learnt in the environments that another counts."""
    mine, theirs = a.run, b.run.costs.range
    if theirs is None or not _same_task(a, b):
        return
    for what, seen in (("prior", mine.prior.seen or ()), ("policies", mine.costs.policies_seen)):
        if any(theirs.overlaps(part) for part in seen):
            yield (
                f"The {what} of {a.quoted} depend{'s' * (what == 'prior')} on environments that "
                f"{b.quoted} counts: these environments are no test of {a.quoted}."
            )
    test = mine.certificate.test_estimate
    if test and theirs.overlaps(EnvironmentRange(test.stream, test.seed, 0, test.environments)):
        yield (
            f"The test estimate of {a.quoted} is on environments that {b.quoted} counts: it is no "
            "independent test of what was learnt there."
        )


def _same_task(a: NamedRun, b: NamedRun) -> bool:
    """Whether equal numbers of a stream are equal environments: drawn by the same rule."""
    return a.run.costs.origin.get("task") == b.run.costs.origin.get("task")


# ---- the page -----------------------------------------------------------------------------------


def write_side_by_side(runs: Sequence[NamedRun], file: str | Path) -> SideBySidePage:
    """Write a page about two or more runs; the same runs give the same bytes.

    Args:
        runs: as verified
        file: the HTML file to write
    """
    check_number(len(runs))
    values = {
        "runs": runs,
        "joint": joint_sentence(runs),
        "joint_delta": joint_delta(runs),
        "findings": list(findings(runs)),
        "parts": "side_by_side/",
        "version": pacbayes_control.__version__,
        "title": f"{len(runs)} runs side by side",
        "sections": SECTIONS,
        "held_out_error": held_out_error,
    }
    content = rendering.render("side_by_side.html", values, plots_of_runs(runs)).encode()
    write_output(Path(file), content)
    return SideBySidePage(Path(file), len(content))


def check_number(runs: int) -> None:
    """Raise ValueError unless this many runs can be shown side by side."""
    if not 2 <= runs <= MOST:
        raise ValueError(f"{runs} runs: a page shows from 2 to {MOST} side by side")


def plots_of_runs(runs: Sequence[NamedRun]) -> dict[str, Callable[[Path | BinaryIO], None]]:
    """The plots of several runs by name, each a function of the file to write."""
    return {"bounds-side-by-side": partial(draw_bounds, runs)}


def draw_bounds(runs: Sequence[NamedRun], file: Path | BinaryIO) -> None:
    """The observed cost, the test estimate and the bound of each run."""
    figure, axis = new_figure(1.0 + 0.36 * len(runs))
    for place, each in enumerate(runs):
        c = each.run.certificate
        axis.plot([c.empirical_cost, c.bound], [place, place], color=GREY, lw=2.5, zorder=2)
        axis.plot(c.empirical_cost, place, "o", mfc="white", color=DARK, ms=6, zorder=3)
        axis.plot(c.bound, place, "|", color=BLUE, ms=15, mew=3, zorder=3)
        if c.test_estimate is not None:
            axis.plot(c.test_estimate.cost, place, "x", color=ORANGE, ms=7, mew=2, zorder=4)
    axis.set_yticks(range(len(runs)), [short(each.name) for each in runs], parse_math=False)
    axis.set(ylim=(len(runs) - 0.4, -0.6), xlim=(0, None))
    axis.set_xlabel("○ observed mean cost   ✕ test estimate   ┃ bound")
    axis.grid(axis="x", alpha=0.3)
    save_figure(figure, file)


def record(runs: Sequence[NamedRun]) -> dict[str, Any]:
    """What the page says, as plain values for JSON."""
    rows = []
    for each in runs:
        c = each.run.certificate
        told = ("bound", "of", "delta", "environments", "method", "empirical_cost", "sentence")
        row = {"name": printable(each.name)} | {name: getattr(c, name) for name in told}
        row["test_estimate"] = None if c.test_estimate is None else c.test_estimate.cost
        rows.append(row | {"created": each.run.created})
    return {
        "runs": rows,
        "joint_delta": joint_delta(runs),
        "together": joint_sentence(runs),
        "findings": list(findings(runs)),
    }
