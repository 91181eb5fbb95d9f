"""`pbc learn swing`, `verify`, `report` and `check swing`: what they write, and how they fail."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, files
from pacbayes_control.certify.run import Run
from pacbayes_control.robots import Swing
from pacbayes_control.robots.swing import DrawnGains, WorstGains
from pacbayes_control.robots.swing.flight.limits import recorded_swing
from pages import draw_only
from sizes import sized

Pbc = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--environments", 10, "--test-environments", 50)


def model(**changes: Any) -> dict[str, Any]:
    """A fitted model, as `pbc swing identify --json` writes it."""
    return {
        "k_u": {"value": 3.2, "low": 3.0, "high": 3.4},
        "k_p": {"value": 0.45, "low": 0.4, "high": 0.5},
        "speed": {"value": 1.9, "low": 1.8, "high": 2.0},
        "latency": {"value": 0.05, "low": 0.0, "high": 0.1},
        "covariance": [[0.01, -0.001], [-0.001, 0.000625]],
        "noise": 0.01,
        "confidence": 0.95,
        "samples": 600,
        "fits": True,
        "remarks": [],
        **changes,
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(model()))
    return file


# ---- what works ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_swing_is_learnt_verified_and_shown(quick: Pbc, tmp_path: Path):
    learnt = quick("learn", "swing", *SMALL, "--json", "r.json")
    assert learnt.returncode == 0, learnt.stderr
    assert "With confidence 99 %" in learnt.stdout
    assert "pbc report runs/swing" in learnt.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["environments"], record["policies"]) == (10, 100)
    assert record["test_environments"] == 50
    assert 0 <= record["true_cost"] < record["bound"] < 1
    assert "<svg" in (tmp_path / "runs" / "swing" / "picture.svg").read_text()

    run = Run.load(tmp_path / "runs" / "swing")
    task = recorded_swing(run)
    assert task == Swing()
    train = task.environments(10, "train", 0)
    np.testing.assert_array_equal(run.costs.values, task.costs(task.policies, train))
    assert list(run.costs.names) == task.policy_names

    verified = quick("verify", "runs/swing")
    assert verified.returncode == 0, verified.stderr
    shown = quick("report", "runs/swing", "--json", "p.json")
    assert shown.returncode == 0, shown.stderr
    told = json.loads((tmp_path / "p.json").read_text())
    assert told["replays"] == 1000
    assert (told["environments"], told["policies"]) == (10, 100)
    text = (tmp_path / "runs" / "swing.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "do not end as" not in text


@pytest.mark.slow
def test_learning_twice_gives_the_same_bytes(quick: Pbc, tmp_path: Path):
    for name in ("a", "b"):
        options = "--environments", 4, "--test-environments", 0, "--out", name, "--seed", 4
        assert quick("learn", "swing", *options).returncode == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.slow
def test_the_swing_keeps_every_promise(quick: Pbc, tmp_path: Path):
    result = quick("check", "swing", "--json", "c.json")
    assert result.returncode == 0, result.stdout
    assert "It keeps every promise that was tried." in result.stdout
    assert json.loads((tmp_path / "c.json").read_text())["passed"] is True


@pytest.mark.slow
@pytest.mark.parametrize("gains", ["fixed", "drawn", "worst", "worst of 27"])
def test_a_fitted_model_is_flown_as_it_was_asked_for(
    quick: Pbc, written: Path, tmp_path: Path, gains: str, monkeypatch: pytest.MonkeyPatch
):
    gains, *of = gains.split(" of ")
    points = ("--set", "points=3") if of else ()
    draw_only((), monkeypatch)  # plots take most of the time
    options = "--environments", 2, "--test-environments", 0, "--model", written, "--out", "run"
    learnt = quick("learn", "swing", *options, "--gains", gains, *points)
    assert learnt.returncode == 0, learnt.stderr
    run = Run.load(tmp_path / "run")
    task = recorded_swing(run)
    assert (task.k_u, task.k_p, task.speed) == (3.2, 0.45, 1.9)
    if gains == "fixed":
        assert task.uncertainty is None
    elif gains == "worst":
        intervals = (3.0, 3.4), (0.4, 0.5), (1.8, 2.0)
        assert task.uncertainty == WorstGains(*intervals, 3 if of else 2, confidence=0.95)
        assert len(task.drones) == (27 if of else 9)
    else:
        assert isinstance(task.uncertainty, DrawnGains)
        assert task.uncertainty.k_u_sd == pytest.approx(0.1)
        assert task.uncertainty.k_p_sd == pytest.approx(0.025)
        assert task.uncertainty.correlation == pytest.approx(-0.4)
        assert task.uncertainty.speed_sd == pytest.approx(0.1 / 1.96, rel=1e-4)
        assert run.costs.noise is not None
        assert run.costs.noise.startswith("gains of s.d. 0.1 and 0.025")
    assert quick("verify", "run").returncode == 0
    shown = quick("report", "run", "--json", "-")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["replays"] == 200


@pytest.mark.slow
def test_noisy_rays_go_with_any_gains(quick: Pbc, written: Path, tmp_path: Path):
    options = "--environments", 4, "--test-environments", 0, "--out", "run"
    gains = "--model", written, "--gains", "drawn", "--range-noise", 0.05
    assert quick("learn", "swing", *options, *gains).returncode == 0
    task = recorded_swing(Run.load(tmp_path / "run"))
    assert task.range_noise == 0.05
    assert isinstance(task.uncertainty, DrawnGains)


# ---- options that have no effect ----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--policy", "linear"),
        ("--policies", "p.csv"),
        ("--family",),
        ("--share", 0.3),
        ("--certify", "draw"),
        ("--candidates", 3),
        ("--estimator", "differences"),
        ("--steps", 5),
        ("--prior-steps", 5),
        ("--draws", 5),
        ("--shared-draws",),
        ("--sampling-delta", 0.001),
        ("--wheel-slip", 0.1),
    ],
    ids=lambda options: options[0],
)
def test_options_that_are_not_for_the_swing_are_refused(
    quick: Pbc, options: tuple[object, ...], tmp_path: Path
):
    words = complaint(quick("learn", "swing", *SMALL, *options))
    assert words.startswith(f"pbc: No such option: {options[0]}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--robot", "--extractor", "--head", "--surrogate"])
def test_options_of_grasping_are_refused(quick: Pbc, option: str):
    words = complaint(quick("learn", "swing", *SMALL, option, "arm"))
    assert words.startswith(f"pbc: No such option: {option}")


@pytest.mark.parametrize(
    ("option", "field"),
    [("--allow-code-change", "allow_code_change=true"), ("--retries", "retries=VALUE")],
)
def test_an_option_that_became_a_field_says_so(quick: Pbc, option: str, field: str):
    words = complaint(quick("learn", "swing", *SMALL, option))
    assert words == f"pbc: {option}: write --set {field}"


OWN = """
import numpy as np
from pacbayes_control.tasks import FunctionTask

def draw(rng):
    return {"x": rng.random()}

def cost(policy, environment):
    return float(environment["x"] < policy[0])

task = FunctionTask(cost, draw, "own", policies=np.array([[0.1], [0.2]]))
"""


@pytest.mark.parametrize("option", [("--gains", "drawn"), ("--model", "model.json")])
@pytest.mark.parametrize(
    "task", [("vehicle",), ("vehicle", "--policy", "linear"), ("grasping",), ("own.py:task",)]
)
def test_the_swings_options_are_refused_elsewhere(
    quick: Pbc, task: tuple[str, ...], option: tuple[str, str], tmp_path: Path, written: Path
):
    (tmp_path / "own.py").write_text(OWN)
    assert written.exists()
    words = complaint(quick("learn", *task, *SMALL, *option))
    assert words.startswith(f"pbc: No such option: {option[0]}")
    assert not (tmp_path / "runs" / "vehicle").exists()


# ---- models -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gains", ["drawn", "worst"])
def test_gains_that_are_uncertain_need_a_model(quick: Pbc, gains: str):
    words = complaint(quick("learn", "swing", *SMALL, "--gains", gains))
    assert words == f"pbc: {gains} gains need a model that was fitted: give --model FILE"


def test_unknown_gains_are_told_which_there_are(quick: Pbc, written: Path):
    words = complaint(quick("learn", "swing", *SMALL, "--model", written, "--gains", "other"))
    assert "'other' is not one of 'fixed', 'drawn', 'worst'" in words
    words = complaint(quick("learn", "swing", *SMALL, "--gains", "other"))
    assert "'other' is not one of 'fixed', 'drawn', 'worst'" in words


def test_a_model_that_is_not_there_is_told_so(quick: Pbc, tmp_path: Path):
    for name in ("none.json", "."):
        words = complaint(quick("learn", "swing", *SMALL, "--model", name))
        assert words == f"pbc: there is no model at {name}: make one with pbc swing identify"
    assert not any(path.suffix for path in tmp_path.iterdir())


BAD: dict[str, str | dict[str, Any] | list[Any]] = {
    "no JSON": "{",
    "empty": "",
    "a list": [],
    "no model": {"bound": 0.1},
    "a field too many": model(extra=1),
    "a field too few": {k: v for k, v in model().items() if k != "k_p"},
    "a gain of words": model(k_u={"value": "3", "low": 2.0, "high": 4.0}),
    "a gain that is a number": model(k_u=3.0),
    "a negative gain": model(k_u={"value": -3.0, "low": -4.0, "high": -2.0}),
    "a value beside its interval": model(k_p={"value": 0.9, "low": 0.4, "high": 0.5}),
    "a NaN": json.dumps(model()).replace("0.01,", "NaN,", 1),
    "an infinity": json.dumps(model()).replace("0.45", "1e999"),
    "a huge number": json.dumps(model()).replace("0.45", "1" + "0" * 400),
    "a covariance that is none": model(covariance=[[0.01, 0.02], [-0.02, 0.01]]),
    "a covariance of one row": model(covariance=[[0.01, 0.0]]),
    "a confidence of 1": model(confidence=1.0),
    "no samples": model(samples=0),
    "fits is a word": model(fits="true"),
    "a key that stands twice": json.dumps(model())[:-1] + ', "fits": true}',
    "deep": json.dumps(model())[:-1] + ', "deep": ' + "[" * 9000 + "]" * 9000 + "}",
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_model_is_told_in_one_line_with_its_file(quick: Pbc, what: str, tmp_path: Path):
    content = BAD[what]
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "m.json").write_text(text)
    for gains in sized(("worst",), full=("fixed", "worst")):
        words = complaint(quick("learn", "swing", *SMALL, "--model", "m.json", "--gains", gains))
        assert words.startswith("pbc: m.json")
        assert words.endswith("give a file of pbc swing identify --json")
        assert len(words) < 1000
    assert not (tmp_path / "runs" / "swing").exists()


@pytest.mark.parametrize("gains", ["fixed", "drawn", "worst"])
def test_a_model_that_does_not_fit_is_not_flown(quick: Pbc, tmp_path: Path, gains: str):
    remark = "The residuals look as if\nit had a second lag."
    (tmp_path / "m.json").write_text(json.dumps(model(fits=False, remarks=[remark])))
    words = complaint(quick("learn", "swing", *SMALL, "--model", "m.json", "--gains", gains))
    assert "the model does not fit its logs" in words
    assert "it had a second lag" in words


@pytest.mark.parametrize("name", ["k_u", "k_p", "speed"])
@pytest.mark.parametrize("gains", ["drawn", "worst"])
def test_a_number_that_may_be_0_is_not_known_well_enough(
    quick: Pbc, tmp_path: Path, gains: str, name: str
):
    vague = model(**{name: {"value": 0.5, "low": -0.1, "high": 1.1}})
    (tmp_path / "m.json").write_text(json.dumps(vague))
    words = complaint(quick("learn", "swing", *SMALL, "--model", "m.json", "--gains", gains))
    assert f"{name} may be as small as -0.1: it is not known well enough" in words


def test_drones_along_an_interval_are_for_the_worst_of_them_alone(quick: Pbc, written: Path):
    options = "--model", written, "--gains", "drawn", "--set", "points=3"
    words = complaint(quick("learn", "swing", *SMALL, *options))
    assert words == "pbc: points = 3 has no effect with drawn gains: only with worst"


def test_a_model_without_any_uncertainty_cannot_be_drawn(quick: Pbc, tmp_path: Path):
    exact = {name: {"value": v, "low": v, "high": v} for name, v in (("speed", 2.0), ("k_u", 3.0))}
    (tmp_path / "m.json").write_text(json.dumps(model(covariance=[[0, 0], [0, 0]], **exact)))
    options = "--model", "m.json", "--gains", "drawn"
    words = complaint(quick("learn", "swing", *SMALL, *options))
    assert "gains that are drawn need a standard deviation above 0" in words
