"""The bounds as a picture and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pacbayes_control.report.console import print_table, say
from pacbayes_control.report.pictures import BLUE, DARK, ORANGE, save_figure
from pacbayes_control.robots.sim_to_real.bounds import TRIALS, SimToRealRow


def draw_sim_to_real(rows: list[SimToRealRow], path: Path) -> None:
    """Bounds with simulation and without it against the number of trials, for each policy."""
    cases = [*dict.fromkeys((row.robot, row.policy) for row in rows)]
    figure = Figure(figsize=(1.2 + 2.5 * len(cases), 3.8), layout="constrained")
    axes = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for axis, case in zip(axes, cases, strict=True):
        chosen = [row for row in rows if (row.robot, row.policy) == case]
        n, spread = [row.trials for row in chosen], [row.bound_sd for row in chosen]
        bounds = [row.bound for row in chosen]
        axis.plot(n, [row.bound_without for row in chosen], "s--", color=ORANGE, label="without")
        style: Any = {"color": BLUE, "marker": "o", "capsize": 3, "label": "with simulation"}
        axis.errorbar(n, bounds, spread, **style)
        axis.axhline(chosen[0].true_cost, color=DARK, ls=":", label="true cost")
        box: Any = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
        where: Any = {"textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 8}
        for row in chosen:
            words, place = f"{row.equivalent_trials or ''}", (row.trials, row.bound)
            axis.annotate(words, place, (-6, -5), color=BLUE, bbox=box, **where)
        axis.set_xscale("log")
        axis.set_xticks(n, [f"{trials}" for trials in n])
        axis.minorticks_off()
        axis.set_xlim(15, 420)
        agreement = f"{100 * chosen[0].agreement:.1f} % agreement"
        axis.set_title(f"{case[0].capitalize()}, {case[1]} policy\n{agreement}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set(ylim=(0, None), ylabel="failure rate in reality")
    axes[0].legend(frameon=False, fontsize=8)
    words = "trials in reality; below a bound: trials that would give it without simulation"
    figure.supxlabel(words, fontsize=9)
    save_figure(figure, path)


def show_sim_to_real(rows: list[SimToRealRow], coin: list[SimToRealRow]) -> None:
    """The rows as a table, and the largest loss where simulation is a coin."""
    headings = (
        *("robot", "policy", "trials", "bound", "± s.d.", "without", "equivalent"),
        *("true", "agreement"),
    )
    cells = [
        [
            *(row.robot, row.policy, f"{row.trials}", f"{row.bound:.3f}", f"{row.bound_sd:.3f}"),
            *(f"{row.bound_without:.3f}", f"{row.equivalent_trials or '-'}"),
            *(f"{row.true_cost:.3f}", f"{100 * row.agreement:.1f} %"),
        ]
        for row in rows
    ]
    title = "Failures in reality, bounded with simulation and without it, δ = 0.01"
    print_table(title, headings, cells, left=("robot", "policy"), section=len(TRIALS))
    say(
        "Means over disjoint draws of the trials; the true cost is the share of all trials that "
        "failed. equivalent: trials that would give the same bound without simulation. agreement: "
        "trials that ended as in simulation. With a coin as simulation, the bound is at most "
        f"{100 * (max(row.looser for row in coin) - 1):.1f} % larger than without."
    )
