"""Quantiles and CVaR through the commands, and refusals in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import shown
from pacbayes_control.learn import learn_finite

Pbc = Callable[..., subprocess.CompletedProcess[str]]

COSTS = Costs(np.random.default_rng(0).beta(2, 8, (200, 3)).round(3), ["slow", "fast", "both"])
NO_CVAR = "pbc: cvar has no bound under a shift here: certify the mean or a quantile"


@pytest.fixture(scope="module")
def quantile() -> Run:
    return learn_finite(COSTS, 0.05, of="quantile:0.9")


@pytest.fixture(scope="module")
def worst() -> Run:
    return learn_finite(COSTS, 0.05, of="cvar:0.2")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [",".join(COSTS.names), *(",".join(map(str, row)) for row in COSTS.values)]
    (tmp_path / "costs.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "costs.csv"


def test_certify_names_what_it_promises_and_compares_nothing(quick: Pbc, table: Path):
    result = quick("certify", table, "--of", "quantile:0.9", "--delta", "0.05", "--out", "run")
    assert result.returncode == 0, result.stderr
    cost = Run.load(Path("run")).certificate.shown_bound
    assert "promises a quantile of the cost of" in result.stdout
    assert f"costs more than {cost} in at most 10 % of new environments" in result.stdout
    assert "Distribution: at most 50 % cost more than" in result.stdout
    for wrong in ("expected cost", "Each line", "Decide on it"):
        assert wrong not in result.stdout
    assert quick("verify", "run").returncode == 0


def test_certify_takes_a_ball_with_a_quantile(quick: Pbc, table: Path):
    result = quick(
        "certify", table, "--of", "quantile:0.9", "--ball", "total-variation:0.05", "--out", "run"
    )
    assert result.returncode == 0, result.stderr
    assert "in at most 15.01 % of new environments from any distribution D′ with TV" in (
        result.stdout.replace("\n", " ")
    )
    assert quick("verify", "run").returncode == 0


def test_shift_shows_the_share_that_costs_more(quick: Pbc, quantile: Run, tmp_path: Path):
    cost = quantile.certificate.shown_bound
    quantile.save(tmp_path / "run")
    result = quick(
        "shift",
        "run",
        "--ball",
        "kl:0.02",
        "--out",
        "robust",
        "--plot",
        "p.svg",
        "--json",
        "j.json",
    )
    assert result.returncode == 0, result.stderr
    assert f"share that costs more than {cost}, at most" in result.stdout
    assert f"The share of environments that cost more than {cost} stays at 0.5" in result.stdout
    assert "without a shift    exceeded in at most 10 %" in result.stdout
    assert "expected cost" not in result.stdout
    record = json.loads((tmp_path / "j.json").read_text())
    certificate = Run.load(tmp_path / "robust").certificate
    assert (record["above"], record["bound"]) == (certificate.bound, 1 - 0.9)
    assert record["certificate"]["exceeded"] == certificate.exceeded
    assert (tmp_path / "p.svg").exists()
    assert quick("verify", "robust").returncode == 0


def test_monitor_counts_trials_above_the_quantile(quick: Pbc, quantile: Run, tmp_path: Path):
    quantile.save(tmp_path / "run")
    cost = quantile.certificate.bound
    lines = [0.0, cost, min(1.0, cost + 0.001), 1.0]
    (tmp_path / "day.csv").write_text("cost\n" + "\n".join(map(str, lines)) + "\n")
    result = quick(
        "monitor", "run", "day.csv", "--state", "s.json", "--plot", "p.svg", "--json", "j.json"
    )
    assert result.returncode == 0, result.stderr
    said = result.stdout.replace("\n", " ")
    assert f"2 of 4 trials cost more than {shown(cost)}." in said
    assert "share as deployed" in result.stdout
    record = json.loads((tmp_path / "j.json").read_text())
    assert (record["above"], record["mean_cost"]) == (cost, 0.5)
    again = quick("monitor", "run", "--failures", 1, "--trials", 6, "--state", "s.json")
    assert f"3 of 10 trials cost more than {shown(cost)}." in again.stdout.replace("\n", " ")


@pytest.mark.usefixtures("blank_plots")
def test_report_writes_a_page_about_a_quantile_and_about_cvar(
    quick: Pbc, quantile: Run, worst: Run, tmp_path: Path
):
    for name, run in (("quantile", quantile), ("worst", worst)):
        run.save(tmp_path / name)
        result = quick("report", name, "--plots", f"{name}-plots")
        assert result.returncode == 0, result.stderr
        plots = {path.stem for path in (tmp_path / f"{name}-plots").iterdir()}
        assert "distribution" in plots
        assert ("shift" in plots) == (name == "quantile")


def test_cvar_is_refused_in_one_line_where_it_has_no_promise(
    quick: Pbc, worst: Run, table: Path, tmp_path: Path
):
    worst.save(tmp_path / "run")
    assert complaint(quick("shift", "run")) == NO_CVAR
    assert complaint(quick("shift", "run", "--ball", "kl:0.1", "--out", "b")) == NO_CVAR
    assert complaint(quick("certify", table, "--of", "cvar:0.2", "--ball", "kl:0.1")) == NO_CVAR
    plan = ("--of", "cvar:0.2", "--ball", "kl:0.1", "--environments", "10", "--out", "c")
    assert complaint(quick("learn", "vehicle", *plan)) == NO_CVAR
    told = complaint(quick("monitor", "run", "--failures", 1, "--trials", 10))
    assert told == "pbc: cvar cannot be monitored: certify the mean or a quantile"
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "c").exists()
