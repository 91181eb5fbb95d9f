"""The page's section on simulation beside trials: how well it agrees with them, and where not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from pacbayes_control.bounds.stratified import PairCounts
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.report.axes import legend_above, new_figure
from pacbayes_control.report.pictures import BLUE, DARK, ORANGE, save_figure
from pacbayes_control.report.summary import simulation_rows

LISTED = 20  # environments in which robot and simulation differ most
POINT, LARGEST = 4.5, 18.0  # points of a dot for one environment, and for very many
MOST_POINTS = 1500  # of a scatter
DARKEST = 0.5  # of the cells: the letters in them must be legible on a dark screen too

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """An environment where the costs on the robot and in simulation differ."""

    environment: int  # its number
    robot: float
    simulated: float


def costs_of_pairs(run: Run[Any]) -> tuple[Floats, Floats]:
    """Costs of the certified policy on the robot and in simulation; (environments,) each."""
    costs, policy = run.costs, run.certificate.policy
    if costs.simulation is None or policy is None:
        raise ValueError("there is no simulation beside the trials of this run")
    simulated, _ = costs.simulation.of(policy, costs.success_or_failure)
    return costs.values[:, policy].astype(float), simulated


def differences(run: Run[Any]) -> list[Difference]:
    """All environments where the costs differ, the largest difference first.

    Among equal ones, those that cost more on the robot: there simulation promised too much.
    """
    robot, simulated = costs_of_pairs(run)
    order = np.lexsort((simulated - robot, -np.abs(robot - simulated)))
    return [
        Difference(i, float(robot[i]), float(simulated[i]))
        for i in order.tolist()
        if robot[i] != simulated[i]
    ]


def simulation_values(run: Run[Any]) -> dict[str, Any] | None:
    """The values that the template of the section reads; None without simulation."""
    c = run.certificate
    if c.simulation is None:
        return None
    found = differences(run)
    return {
        "facts": simulation_facts(c)[:3],  # the others are in the next
        "helped": helped_words(c),
        "label": _label(run),
        "graded": not run.costs.success_or_failure,
        "differences": found[:LISTED],
        "left_out": len(found[LISTED:]),
        "cut": run.costs.success_or_failure and not _only_failures(run),
    }


def _only_failures(run: Run[Any]) -> bool:
    """Whether the recorded costs in simulation are 0 or 1, and none had to be made so."""
    simulation = run.costs.simulation
    assert simulation is not None
    pairs, more = simulation.of(run.certificate.policy or 0, binary=False)
    return {*np.unique(pairs), *np.unique(more)} <= {0.0, 1.0}


def simulation_facts(c: Certificate) -> list[tuple[str, str]]:
    """The rows that a terminal shows, with a name for each; empty without simulation."""
    rows: list[tuple[str, str]] = []
    for name, value in simulation_rows(c):
        if not name:
            name, before = rows.pop()
            value = f"{before}; {value}"
        rows.append((name, value))
    return rows


def helped_words(c: Certificate) -> str:
    """How much smaller the bound is for the simulation."""
    use, at_most = c.simulation, round_up if c.graded or not c.binary else percent_up
    assert use is not None
    trials, shift = f"{c.environments:,} trials on the robot", " without a shift" if c.ball else ""
    here, without = at_most(c.bound_on_training), at_most(use.bound_without)
    if not c.bound_on_training < use.bound_without:
        return (
            f"Simulation did not make the bound{shift} smaller: it is {here} with simulation, and "
            f"{trials} alone give {without}."
        )
    words = (
        f"With simulation, {trials} give a bound{shift} of {here}; from these trials alone it "
        f"would be {without}."
    )
    if use.equivalent_trials is not None:
        words += (
            f" The bound is as small as about {int(use.equivalent_trials):,} trials on the robot "
            f"alone would make it, instead of {c.environments:,}."
        )
    return words


def _label(run: Run[Any]) -> str:
    """The picture in words."""
    if not run.costs.success_or_failure:
        return "Cost on the robot against the cost in simulation, by environment"
    both, robot, simulated, neither = _counts(run)
    return (
        f"Environments: the policy fails in both in {both:,}, only on the robot in {robot:,}, only "
        f"in simulation in {simulated:,}, in neither in {neither:,}"
    )


def _counts(run: Run[Any]) -> tuple[int, int, int, int]:
    """Environments with failures in both, only on the robot, only in simulation, in neither."""
    found = PairCounts.of(*costs_of_pairs(run))
    return found.both, found.alone, found.simulated - found.both, found.other - found.alone


# ---- the picture --------------------------------------------------------------------------------


def draw_simulation(run: Run[Any], file: Path | BinaryIO) -> None:
    """Where robot and simulation differ: a table of failures, or the costs against each other."""
    if run.costs.success_or_failure:
        _draw_counts(_counts(run), file)
    else:
        _draw_costs(*costs_of_pairs(run), file)


def _draw_counts(counts: tuple[int, int, int, int], file: Path | BinaryIO) -> None:
    """Blue where they agree, orange where not, the darker the more environments."""
    both, robot, simulated, neither = counts
    total = sum(counts)
    cells = {  # place from the lower left: words, count and colour
        (0, 1): ("fails in both", both, BLUE),
        (1, 1): ("fails only on the robot", robot, ORANGE),
        (0, 0): ("fails only in simulation", simulated, ORANGE),
        (1, 0): ("fails in neither", neither, BLUE),
    }
    figure, axis = new_figure(2.9)
    for (column, row), (words, count, colour) in cells.items():
        shade = DARKEST * (count / total) ** 0.5
        axis.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, alpha=shade, lw=0))
        middle = column + 0.5
        axis.text(middle, row + 0.5, f"{count:,}", ha="center", va="bottom", fontsize=17)
        axis.text(middle, row + 0.4, words, ha="center", va="top", fontsize=9)
    axis.set(xlim=(0, 2), ylim=(0, 2), xlabel="in simulation", ylabel="on the robot")
    axis.set_xticks([0.5, 1.5], _ends(both + simulated, total))
    axis.set_yticks([1.5, 0.5], _ends(both + robot, total), rotation=90, va="center")
    axis.tick_params(length=0)
    for place in (0, 1, 2):
        axis.axvline(place, color=DARK, lw=0.8)
        axis.axhline(place, color=DARK, lw=0.8)
    axis.spines[:].set_visible(False)
    save_figure(figure, file)


def _ends(failures: int, total: int) -> list[str]:
    """Labels of failures and successes."""
    return [f"fails: {failures:,}", f"succeeds: {total - failures:,}"]


def _draw_costs(robot: Floats, simulated: Floats, file: Path | BinaryIO) -> None:
    """One dot an environment, on the diagonal where the costs are equal."""
    places, counts = np.unique(np.stack([simulated, robot]), axis=1, return_counts=True)
    thinned = slice(None, None, -(-len(counts) // MOST_POINTS))
    places, counts = places[:, thinned], counts[thinned]
    widths = np.minimum(POINT * np.sqrt(counts), LARGEST)
    figure, axis = new_figure(4.2)
    axis.plot([0, 1], [0, 1], color=DARK, ls=":", lw=1.2, label="equal costs")
    several = "; larger: several" if counts.max() > 1 else ""
    alpha = 0.8 if len(counts) <= 100 else 0.35
    label = f"an environment{several}"
    axis.scatter(*places, s=widths**2, color=BLUE, lw=0, alpha=alpha, label=label)
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axis.set(xlabel="cost in simulation", ylabel="cost on the robot")
    axis.set_aspect("equal")
    axis.grid(alpha=0.3)
    legend_above(axis)
    save_figure(figure, file)
