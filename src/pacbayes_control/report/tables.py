"""The tables of experiments and benchmarks, as the commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from pacbayes_control.certificate import round_up
from pacbayes_control.paper.continuous import Row as ContinuousRow
from pacbayes_control.paper.grasping import PAPER, Grasped
from pacbayes_control.paper.swing import PAPER as SWING
from pacbayes_control.paper.swing import Flown
from pacbayes_control.paper.table1 import Row
from pacbayes_control.paper.table2 import Row as ShiftRow
from pacbayes_control.report.terminal import say, show


def show_table1(rows: Sequence[Row]) -> None:
    """The paper's figures beside ours."""
    table = Table(title="Table 1: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("N", "draws", "method", "bound", "± s.d.", "true", "paper: bound", "true"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in rows:
        published = row.method == "paper"
        table.add_row(
            f"{row.environments:,}" if published else "",
            f"{row.draws}" if published else "",
            row.method,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}" if published else "",
            f"{row.paper_true_cost:.3f}" if published else "",
            end_section=row.method == "occam",
        )
    show(table)
    say(
        "paper: minimises C_PAC, reports Maurer's bound (Algorithm 1). kl: minimises the kl bound "
        "with ξ(N). occam: the best single policy. The last two pay once for policies that are "
        "equal. Means over draws of the training environments; the paper's own columns show one."
    )


def show_table2(rows: Sequence[ShiftRow]) -> None:
    """The paper's figures beside ours."""
    table = Table(title="Table 2: the vehicle under a shift, δ = 0.01", title_justify="left")
    for heading in ("N", "method", "bound", "true", "paper", "true", "exact", "occam"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in rows:
        first = row.method == "robust"
        table.add_row(
            f"{row.environments:,} ({row.draws})" if first else "",
            row.method,
            f"{row.bound:.3f}" + (f" ± {row.bound_std:.3f}" if row.draws > 1 else ""),
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}",
            f"{row.paper_true_cost:.3f}",
            f"{row.exact_bound:.3f}",
            f"{row.occam_bound:.3f}",
            end_section=row.method == "test",
        )
    show(table)
    say(
        "robust: learnt on D by minimising C_PAC′, bounded on every D′ with KL(D′‖D) ≤ 0.08185. "
        "train: on D itself; test: learnt on D′ (Algorithm 1). bound: the paper's method; exact: "
        "the kl bound with ξ(N) minimised, on the same costs; occam: the best single policy. "
        "Means ± s.d. over as many draws as the brackets say; the paper's own columns show one."
    )


def show_continuous(rows: Sequence[ContinuousRow]) -> None:
    """The paper's setting beside ours."""
    table = Table(title="Continuous policies: the vehicle, δ = 0.01", title_justify="left")
    for heading in ("setting", "N", "draws", "certified", "bound", "± s.d.", "true", "paper"):
        left = heading in ("setting", "certified")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.setting,
            f"{row.environments:,}",
            f"{row.draws}",
            row.certified,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            f"{row.paper_bound:.3f}",
        )
    show(table)
    say(
        "paper: linear policies, the paper's prior and method, with fresh draws. ours: networks, "
        "a prior learnt on other environments. deterministic: one network, that prior's mean. "
        "split: one network, learnt on a fifth of the N and certified on the rest. Last column: "
        "the bound published, for continuous policies at N = 100 and for 50 policies otherwise."
    )


def show_grasping(result: Grasped) -> None:
    """The paper's figures beside ours, with intervals on new objects."""
    n, new = result.environments, result.test_environments
    table = Table(
        title=f"Grasping: {n:,} objects to learn from, {new:,} new ones", title_justify="left"
    )
    for heading in ("", "bound", "success", "interval of 95 %"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in result.rows:
        lifted = _rate(row.test_success, row.test_interval)
        name = "the paper's prior" if row.setting == "paper" else row.setting
        table.add_row(f"{name}: posterior", round_up(row.bound, 3), *lifted)
        plain = _rate(row.baseline_test_success, row.baseline_interval)
        table.add_row("  without the regulariser", "", *plain)
        table.add_row("  difference", "", *_rate(row.difference, row.difference_interval))
        table.add_section()
    table.add_row("centroid, across the narrow side", "", f"{result.narrow_side_success:.3f}")
    table.add_row("centroid, at any angle", "", f"{result.any_angle_success:.3f}")
    table.add_section()
    table.add_row("published", f"{PAPER['bound']:.3f}", f"{PAPER['test_success']:.3f}")
    table.add_row("  without the regulariser", "", f"{PAPER['baseline_test_success']:.3f}")
    show(table)
    say(
        "bound: on the rate of failures, with confidence 99 %. success: on the new objects. ours: "
        "a prior learnt on other objects. The paper's prior knows nothing of these. published: the "
        "paper's own figures, on objects of ShapeNet."
    )
    for row in result.rows:
        held = "holds" if row.holds else "does NOT hold"
        say(
            f"{row.setting}: the bound {round_up(row.bound, 3)} {held} on the new objects, where "
            f"{1 - row.test_success:.3f} failed."
        )
    say(f"{result.grasps_per_second:,.0f} grasps a second.")


def show_swing(result: Flown) -> None:
    """The certificate and the flights, beside the paper's."""
    table = Table(title="The Swing, N = 1,000, δ = 0.01", title_justify="left")
    for heading in ("gains", "method", "bound", "± s.d.", "true"):
        left = heading in ("gains", "method")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in result.rows:
        table.add_row(
            row.gains if row.method == "paper" else "",
            row.method,
            f"{row.bound:.3f}",
            f"{row.bound_std:.3f}" if row.draws > 1 else "-",
            f"{row.true_cost:.3f}",
            end_section=row.method == "occam",
        )
    show(table)
    found, flights = result.model, len(result.flights)
    say(
        f"Means over draws ({result.rows[0].draws}) of the environments; the paper's bound, of one "
        f"draw and with its gains, is {SWING['bound']}. drawn and worst: with the gains as a "
        f"minute of flight tells them, k_u = {found.k_u.value:.3f} ± {found.k_u.margin:.3f} and "
        f"k_p = {found.k_p.value:.4f} ± {found.k_p.margin:.4f}; drawn for each rollout, or the "
        "worst of the intervals' corners."
    )
    say(
        f"\n{result.successes} of {flights} flights of a simulated drone that is harder to fly "
        "than its model succeeded; in the paper "
        f"{SWING['successes']} of {SWING['flights']} real ones did. {result.report.sentence}"
    )


def _rate(value: float, interval: tuple[float, float]) -> tuple[str, str]:
    return f"{value:.3f}", f"{interval[0]:.3f} to {interval[1]:.3f}"


def show_bench(name: str, record: dict[str, Any]) -> None:
    """Measured figures, and how they grow."""
    table = Table("measure", "value", title=f"pbc bench {name}", title_justify="left")
    for key, value in record.items():
        if key not in ("scaling", "power"):
            table.add_row(key.replace("_", " "), _figure(value))
    show(table)
    if "scaling" in record:
        scaling = Table("environments", "policies", "µs a rollout", "peak MiB")
        for row in record["scaling"]:
            scaling.add_row(
                f"{row['environments']:,}",
                f"{row['policies']}",
                f"{row['microseconds']:.2f}",
                f"{row['peak_mib']:.0f}",
            )
        show(scaling)

    if "power" in record:
        power = Table("failure rate", "trials", "monitor", "fixed sample", "Hoeffding")
        for row in record["power"]:
            chances = (row[name] for name in ("monitor", "fixed_sample", "hoeffding"))
            power.add_row(f"{row['rate']:.3f}", f"{row['trials']}", *(f"{p:.4f}" for p in chances))
        show(power)
        say(
            "How often each test finds the promise of 0.114 broken at level 0.05; in the first rows"
        )
        say("wrongly. The monitor looks after every outcome, the other two once, at the end.")


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.6f}"
