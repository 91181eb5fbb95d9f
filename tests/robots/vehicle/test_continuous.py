"""The experiment with continuous policies, at a size that a test can afford."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.learn import Plan, SearchSettings
from pacbayes_control.robots.vehicle import continuous as module
from pacbayes_control.robots.vehicle.continuous import continuous, to_dict
from sizes import sized

STEPS = SearchSettings(steps=2, pairs=sized(8, full=32))
DRAWS, TEST_ENVIRONMENTS = sized(200, full=3000), sized(400, full=1000)
KEYS = {"setting", "environments", "bound", "bound_std", "true_cost", "paper_bound"}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of a few steps, certified with few draws."""
    few = {"search": STEPS, "draws": DRAWS}

    def brief(plan: Plan) -> Plan:
        if plan.prior == "split":
            plan = replace(plan, prior_steps=2)
        return replace(plan, **few) if plan.certify == "posterior" else plan

    settings = [
        (name, n, brief(plan)) for name, n, plan in module.SETTINGS if n == 100 or name == "split"
    ]
    monkeypatch.setattr(module, "SETTINGS", tuple(settings))
    monkeypatch.setattr(module, "_PAPER", replace(module._PAPER, **few))
    monkeypatch.setattr(module, "BETTER_PRIOR_STEPS", 2)
    monkeypatch.setattr(module, "REPEATS", {100: 1, 1000: 1})


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_every_setting_has_a_row_that_keeps_the_contract(tmp_path: Path):
    kept = tmp_path / "finished.jsonl"
    result = continuous(draws=2, test_environments=TEST_ENVIRONMENTS, kept=kept)
    rows = to_dict(result)["rows"]
    assert [row["setting"] for row in rows] == ["paper", "ours", "deterministic", "split"]
    for row in rows:
        assert row.keys() >= KEYS
        assert 0 <= row["true_cost"] < row["bound"] < 1  # of few environments
        assert row["violations"] == 0
        assert row["draws"] == 2
    assert [row["paper_bound"] for row in rows] == [0.224, 0.224, 0.178, 0.121]
    assert len(result.gains) == 3
    assert 0 < result.better["true_cost"] < result.better["bound"] < 1
    for gains in result.gains.values():
        np.testing.assert_allclose(gains, -gains[::-1])  # odd
    by_setting = {row["setting"]: row for row in rows}
    assert by_setting["deterministic"]["bound"] < by_setting["ours"]["bound"]
    assert by_setting["ours"]["bound"] < by_setting["paper"]["bound"]
    assert by_setting["ours"]["true_cost"] < by_setting["paper"]["true_cost"] / 2

    # What is finished is not computed again, and a line cut short by an interruption is.
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    again = continuous(draws=2, test_environments=TEST_ENVIRONMENTS, kept=kept)
    assert to_dict(again) == to_dict(result)
    assert kept.read_text().count("{") > len(lines)


@pytest.mark.usefixtures("short")
def test_a_setting_of_one_policy_has_its_row(monkeypatch: pytest.MonkeyPatch):
    one = [setting for setting in module.SETTINGS if setting[0] == "deterministic"]
    monkeypatch.setattr(module, "SETTINGS", tuple(one))
    monkeypatch.setattr(module, "_PAPER", replace(module._PAPER, draws=5))
    result = continuous(draws=1, test_environments=100)
    assert [row.setting for row in result.rows] == ["deterministic"]
    assert result.rows[0].true_cost < result.rows[0].bound < 1


def test_no_draws_is_an_error():
    with pytest.raises(ValueError, match="at least one is needed"):
        continuous(draws=0)
