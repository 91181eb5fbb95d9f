"""`pbc shift` and `pbc reproduce table2`: what they print, what they write, and how they fail."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from commands import command, complaint
from pacbayes_control.bounds.shift import shift_inverse, tolerable_shift
from pacbayes_control.certify.balls import Ball, ball_of_samples
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import round_down, round_up
from pacbayes_control.learn import learn_finite
from pacbayes_control.robots.vehicle import table2
from pacbayes_control.verify import verify
from sizes import FULL

Result = subprocess.CompletedProcess[str]
Pbc = Callable[..., Result]

DIVERGENCES = [
    ("kl", 0.08, "KL(D′‖D)"),
    ("reverse-kl", 0.1, "KL(D‖D′)"),
    ("total-variation", 0.05, "TV(D′, D)"),
    ("chi-squared", 0.3, "χ²(D′‖D)"),
    ("hellinger", 0.02, "H²(D′, D)"),
    ("renyi-2", 0.2, "D_2(D′‖D)"),
    ("renyi-0.5", 0.05, "D_0.5(D′‖D)"),
    ("renyi-inf", 0.4, "D_inf(D′‖D)"),
]
WRITING = ("--json", "j.json", "--plot", "p.svg")
SAMPLES = ("--shifted", "there.csv", "--training", "here.csv")


@pytest.fixture(scope="module")
def learnt() -> Run[Categorical]:
    failed = np.random.default_rng(0).random((200, 3)) < [0.3, 0.05, 0.1]
    return learn_finite(failed, 0.01)


@pytest.fixture
def folder(learnt: Run[Categorical], tmp_path: Path) -> Path:
    """A run over three policies, in the folder that the commands are run in."""
    picture = {"picture.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    return learnt.save(tmp_path / "run", attachments=picture)


@pytest.fixture
def samples(tmp_path: Path) -> tuple[list[str], list[str]]:
    """The weather at 400 sites out there and at 600 like those of training, in two files."""
    rng = np.random.default_rng(1)
    there = rng.choice(["dry", "wet"], 400, p=[0.6, 0.4]).tolist()
    here = rng.choice(["dry", "wet"], 600, p=[0.7, 0.3]).tolist()
    (tmp_path / "there.csv").write_text("\n".join(there) + "\n")
    (tmp_path / "here.csv").write_text("\n".join(here) + "\n")
    return there, here


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def as_json(record: dict[str, Any]) -> Any:
    """Plain values as they come back from a file."""
    return json.loads(json.dumps(record))


def record_in(path: Path) -> Any:
    """What a strict reader makes of a JSON file."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# ---- the curve ----------------------------------------------------------------------------------


def test_a_run_alone_gets_a_curve_and_nothing_is_written(quick: Pbc, folder: Path, tmp_path: Path):
    before = content(tmp_path)
    result = quick("shift", "run")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    bound = Run.load(folder).certificate.bound
    tolerable = float(tolerable_shift(bound, 0.5, "kl"))
    assert "What is promised where KL(D′‖D) ≤ B" in result.stdout
    assert re.search(rf"│ 0(\.0+)? +│ {re.escape(round_up(bound))} +│", result.stdout)  # no shift
    assert f"stays at 0.5 or below up to a shift of B = {round_down(tolerable)}" in result.stdout
    assert "With confidence" not in result.stdout  # no ball, no certificate
    assert content(tmp_path) == before


@pytest.mark.parametrize(("divergence", "_", "symbol"), DIVERGENCES)
def test_the_curve_is_that_of_the_divergence_that_was_asked_for(
    quick: Pbc, folder: Path, tmp_path: Path, divergence: str, _: float, symbol: str
):
    result = quick("shift", "run", "--divergence", divergence, "--json", "c.json")
    assert result.returncode == 0, result.stderr
    assert f"What is promised where {symbol} ≤ B" in result.stdout
    record = record_in(tmp_path / "c.json")
    names = {"divergence", "radii", "bounds", "limit", "tolerable", "bound", "above"}
    assert set(record) == names
    bound = Run.load(folder).certificate.bound
    assert (record["divergence"], record["limit"]) == (divergence, 0.5)
    assert record["bound"] == record["bounds"][0] == bound
    radii, bounds = np.array(record["radii"]), np.array(record["bounds"])
    assert radii.shape == bounds.shape == (41,)
    assert radii[0] == 0
    assert radii[-1] == record["tolerable"] == float(tolerable_shift(bound, 0.5, divergence))
    assert np.all(np.diff(radii) > 0)
    assert np.all(np.diff(bounds) > 0)
    assert bounds == pytest.approx(shift_inverse(bound, radii, divergence), rel=1e-15)
    assert 0.5 - 1e-6 < bounds[-1] <= 0.5 + 1e-9


@pytest.mark.parametrize("limit", [0.2, 0.9, 1.0])
def test_the_curve_ends_where_the_promise_reaches_the_limit(
    quick: Pbc, folder: Path, tmp_path: Path, limit: float
):
    assert folder.is_dir()
    result = quick("shift", "run", "--limit", limit, "--json", "c.json")
    record = record_in(tmp_path / "c.json")
    assert f"The promise stays at {limit:g} or below" in result.stdout
    assert record["limit"] == limit
    assert record["bounds"][-1] == pytest.approx(limit, abs=1e-6)


def test_a_limit_below_the_bound_leaves_no_room_for_a_shift(
    quick: Pbc, folder: Path, tmp_path: Path
):
    result = quick("shift", "run", "--limit", 0.05, "--json", "c.json")
    assert result.returncode == 0, result.stderr
    assert "The bound is 0.05 or more without any shift." in result.stdout
    record = record_in(tmp_path / "c.json")
    assert record["tolerable"] == 0
    assert record["bounds"][0] == Run.load(folder).certificate.bound > 0.05


def test_json_can_go_to_the_terminal(quick: Pbc, folder: Path):
    result = quick("shift", "run", "--json", "-")
    record = json.loads(result.stdout)
    assert "What is promised" in result.stderr
    assert record["bound"] == Run.load(folder).certificate.bound


@pytest.mark.parametrize(("name", "signature"), [("c.svg", b"<?xml"), ("c.png", b"\x89PNG")])
def test_the_curve_is_drawn_where_a_picture_is_asked_for(
    quick: Pbc, folder: Path, tmp_path: Path, name: str, signature: bytes
):
    assert folder.is_dir()
    result = quick("shift", "run", "--plot", name)
    assert f"Picture: {name}" in result.stdout
    assert (tmp_path / name).read_bytes().startswith(signature)


def test_help_has_an_example(quick: Pbc):
    result = quick("shift", "--help")
    assert result.returncode == 0
    assert "Example: pbc shift" in result.stdout
    for option in ("--ball", "--shifted", "--training", "--cells", "--edges", "--json"):
        assert option in result.stdout


# ---- in a ball ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ball_makes_a_run_of_its_own_that_verifies(quick: Pbc, folder: Path, tmp_path: Path):
    before = content(folder)
    result = command(
        tmp_path, "shift", "run", "--ball", "kl:0.08", "--out", "robust", "--json", "r.json"
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "from any distribution D′ with KL(D′‖D) ≤ 0.08" in result.stdout
    assert "The run is in robust." in result.stdout
    base = Run.load(folder).certificate
    record = record_in(tmp_path / "r.json")
    assert record["bound"] == base.bound  # of the curve, at no shift
    stored = record_in(tmp_path / "robust" / "certificate.json")
    assert record["certificate"] == stored
    assert stored["bound"] == float(shift_inverse(base.bound, 0.08, "kl"))
    assert stored["bound_without_shift"] == base.bound
    assert stored["ball"] == {
        "divergence": "kl",
        "radius": 0.08,
        "origin": "assumed",
        "delta": 0.0,
        "samples": None,
    }
    assert (stored["delta"], stored["budget"]) == (base.delta, dict(base.budget))
    assert content(folder) == before  # the run itself is left as it was
    assert content(tmp_path / "robust")["picture.svg"] == before["picture.svg"]

    verified = quick("verify", "robust", "--json", "v.json")
    assert verified.returncode == 0, verified.stderr
    assert "verified" in verified.stdout
    assert record_in(tmp_path / "v.json")["verified"] is True


@pytest.mark.parametrize(("divergence", "radius", "symbol"), DIVERGENCES)
def test_every_divergence_can_be_that_of_the_ball(
    quick: Pbc, folder: Path, tmp_path: Path, divergence: str, radius: float, symbol: str
):
    result = quick(
        "shift", "run", "--ball", f"{divergence}:{radius}", "--out", "robust", "--json", "r.json"
    )
    assert result.returncode == 0, result.stderr
    assert f"from any distribution D′ with {symbol} ≤ {radius:g}" in result.stdout
    record = record_in(tmp_path / "r.json")
    assert record["divergence"] == divergence  # the curve is of the same kind
    expected = under_shift(Run.load(folder), Ball(divergence, radius)).certificate
    assert record["certificate"] == as_json(expected.to_dict())
    assert expected.bound > record["bound"]
    assert quick("verify", "robust").returncode == 0


def test_a_run_of_one_policy_can_be_shifted_too(quick: Pbc, tmp_path: Path):
    failed = np.random.default_rng(5).random((200, 3)) < [0.5, 0.02, 0.3]
    learn_finite(failed, 0.01, method="occam").save(tmp_path / "one")
    result = quick("shift", "one", "--ball", "total-variation:0.1", "--out", "robust")
    assert result.returncode == 0, result.stderr
    c = verify(tmp_path / "robust").certificate
    assert (c.method, c.policy) == ("occam", 1)
    assert c.bound_without_shift is not None
    assert c.bound == pytest.approx(c.bound_without_shift + 0.1, abs=1e-9)


def test_a_tampered_robust_bound_is_refused(quick: Pbc, folder: Path, tmp_path: Path):
    run = under_shift(Run.load(folder), Ball("kl", 0.08))
    low = 0.99 * run.certificate.bound
    forged = Run(
        type(run.certificate)(**{**vars(run.certificate), "bound": low}),
        run.costs,
        run.prior,
        run.posterior,
    )
    forged.save(tmp_path / "forged")
    result = quick("verify", "forged")
    assert result.returncode == 1
    assert "does not hold on every distribution with KL(D′‖D) ≤ 0.08" in result.stderr


def test_a_run_in_a_ball_still_shows_the_curve_from_its_beginning(
    quick: Pbc, folder: Path, tmp_path: Path
):
    assert quick("shift", "run", "--ball", "kl:0.08", "--out", "robust").returncode == 0
    for name in ("run", "robust"):
        assert quick("shift", name, "--json", f"{name}.json").returncode == 0
    assert record_in(tmp_path / "robust.json") == record_in(tmp_path / "run.json")
    assert record_in(tmp_path / "robust.json")["bound"] == Run.load(folder).certificate.bound


def test_a_robust_run_is_replaced_only_by_force(quick: Pbc, folder: Path, tmp_path: Path):
    assert folder.is_dir()
    assert quick("shift", "run", "--ball", "kl:0.08", "--out", "robust").returncode == 0
    before = content(tmp_path)
    again = "shift", "run", "--ball", "hellinger:0.01", "--out", "robust"
    assert "robust is not empty" in complaint(quick(*again))
    assert content(tmp_path) == before
    assert quick(*again, "--force").returncode == 0
    ball = verify(tmp_path / "robust").certificate.ball
    assert ball == Ball("hellinger", 0.01)


# ---- a ball from samples ------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["kl", "total-variation", "hellinger"])
def test_two_samples_in_cells_make_a_ball_and_pay_for_it(
    quick: Pbc, folder: Path, samples, tmp_path: Path, divergence: str
):
    options = "--cells", "dry, wet", "--divergence", divergence, "--shift-delta", 0.02
    result = quick("shift", "run", *SAMPLES, *options, "--out", "robust", "--json", "r.json")
    assert result.returncode == 0, result.stderr
    assert "With confidence 97 %" in result.stdout
    assert "drawn like the shifted sample of 400" in result.stdout
    there, here = samples
    c = verify(tmp_path / "robust").certificate
    assert c.ball == ball_of_samples(there, here, 0.02, divergence, cells=["dry", "wet"])
    assert c.ball is not None
    assert c.ball.samples == tuple((sample.count("dry"), sample.count("wet")) for sample in samples)
    assert c.budget == {**Run.load(folder).certificate.budget, "shift": 0.02}
    assert c.delta == pytest.approx(0.03, rel=1e-12)
    assert record_in(tmp_path / "r.json")["certificate"] == as_json(c.to_dict())
    assert quick("verify", "robust").returncode == 0


def test_two_samples_of_numbers_are_cut_at_edges(quick: Pbc, folder: Path, tmp_path: Path):
    assert folder.is_dir()
    rng = np.random.default_rng(2)
    there, here = rng.normal(0.1, 1, 500), rng.normal(0.0, 1, 700)
    for name, values in (("there", there), ("here", here)):
        rows = [f"site {i},{value!r}" for i, value in enumerate(values.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(["site,width", *rows]) + "\n")
    options = "--edges", "-0.5,0.5", "--column", "width", "--out", "robust"
    result = quick("shift", "run", *SAMPLES, *options)
    assert result.returncode == 0, result.stderr
    ball = verify(tmp_path / "robust").certificate.ball
    assert ball == ball_of_samples(there, here, 0.005, edges=[-0.5, 0.5])
    assert ball is not None
    assert ball.samples is not None
    assert ball.samples[0] == tuple(np.histogram(there, [-99, -0.5, 0.5, 99])[0].tolist())
    assert quick("verify", "robust").returncode == 0


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ball", "message"),
    [
        ("kl:-0.1", "B = -0.1 must be a finite number of at least 0"),
        ("kl:inf", "B = inf must be a finite number"),
        ("kl:1e999", "B = inf must be a finite number"),
        ("kl:-inf", "B = -inf must be a finite number"),
        ("kl:nan", "B = nan must be a finite number"),
        ("kl0.08", "ball 'kl0.08': write DIVERGENCE:B, such as kl:0.08"),
        ("0.08", "write DIVERGENCE:B"),
        ("kl:", "write DIVERGENCE:B"),
        ("kl:much", "write DIVERGENCE:B"),
        ("kl:0.08:0.1", "divergence 'kl:0.08' is unknown"),
        (":0.08", "divergence '' is unknown: choose from kl, reverse-kl"),
        ("magic:0.08", "divergence 'magic' is unknown: choose from kl, reverse-kl"),
        ("KL:0.08", "divergence 'KL' is unknown"),
        ("renyi:0.08", "divergence 'renyi' is unknown"),
        ("renyi-1:0.08", "that of order 1 is kl"),
        ("renyi-0:0.08", "give one from 0.01 to 100, or inf"),
        ("renyi--2:0.08", "is unknown: choose from"),
    ],
)
def test_a_ball_that_is_none_gets_one_clear_line(
    quick: Pbc, folder: Path, tmp_path: Path, ball: str, message: str
):
    assert folder.is_dir()
    before = content(tmp_path)
    result = quick("shift", "run", "--ball", ball, "--out", "robust", *WRITING)
    assert message in complaint(result)
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ball", "kl:0.1", *SAMPLES, "--cells", "dry,wet"), "not both"),
        (("--ball", "kl:0.1", "--training", "here.csv"), "not both"),
        (("--out", "robust"), "--out keeps a run that is certified in a ball: give --ball too"),
        (("--ball", "kl:0.1", "--out", "run"), "run is not empty"),
        (("--ball", "kl:0.1", "--out", "run", "--force"), "run is the run itself"),
        (("--ball", "kl:0.1", "--out", "run/../run/.", "--force"), "is the run itself"),
        (("--ball", "kl:0.1", "--out", "here.csv"), "here.csv is a file, and a run is a folder"),
        (("--ball", "kl:0.1", "--out", ".", "--force"), "holds other things than a run"),
        (("--cells", "dry,wet"), "give --shifted and --training too"),
        (("--edges", "0.5"), "give --shifted and --training too"),
        (("--ball", "kl:0.1", "--cells", "dry,wet"), "give --shifted and --training too"),
        ((*SAMPLES,), "say what the feature can be: either --cells A,B,… or --edges X,Y,…"),
        ((*SAMPLES, "--cells", "dry,wet", "--edges", "1"), "say what the feature can be"),
        (("--shifted", "there.csv", "--cells", "dry,wet"), "an estimate needs both samples"),
        (("--training", "here.csv", "--cells", "dry,wet"), "an estimate needs both samples"),
        (
            (*SAMPLES, "--cells", "dry"),
            "'wet' is not one of the cells; if it is a header, say --column wet",
        ),
        ((*SAMPLES, "--cells", "dry,wet,dry"), "must have different names"),
        ((*SAMPLES, "--cells", "dry,wet,fog"), "a cell never occurs in one of the samples"),
        ((*SAMPLES, "--edges", "1"), "is not a finite number"),
        ((*SAMPLES, "--cells", "dry,wet", "--shift-delta", "0"), "strictly between 0 and 1"),
        ((*SAMPLES, "--cells", "dry,wet", "--shift-delta", "0.995"), "strictly between 0 and 1"),
        ((*SAMPLES, "--cells", "dry,wet", "--shift-delta", "nan"), "strictly between 0 and 1"),
        ((*SAMPLES, "--cells", "dry,wet", "--divergence", "magic"), "'magic' is unknown"),
        ((*SAMPLES, "--cells", "dry,wet", "--column", "rain"), "has no column 'rain'"),
        (("--divergence", "magic"), "divergence 'magic' is unknown: choose from kl"),
        (("--limit", "0"), "a limit of 0 is not a cost: it must lie in (0, 1]"),
        (("--limit", "2"), "a limit of 2 is not a cost"),
        (("--limit", "-0.5"), "a limit of -0.5 is not a cost"),
        (("--limit", "nan"), "a limit of nan is not a cost"),
        (("--limit", "half"), "Invalid value for '--limit'"),
        (("--ball", "kl:0.1", "--out", "robust", "--limit", "2"), "a limit of 2 is not a cost"),
        (("--surprise",), "No such option"),
    ],
)
def test_bad_options_get_one_clear_line_and_nothing_is_written(
    quick: Pbc, folder: Path, samples, tmp_path: Path, options: tuple[str, ...], message: str
):
    assert folder.is_dir()
    assert samples
    before = content(tmp_path)
    assert message in complaint(quick("shift", "run", *options, *WRITING))
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("", ("--cells", "dry,wet"), "there.csv has no rows"),
        ("\n\n", ("--cells", "dry,wet"), "there.csv has no rows"),
        ("label\n", ("--cells", "dry,wet"), "'label' is not one of the cells"),
        ("width\n", ("--edges", "0.5"), "there.csv: 'width', entry 1, is not a finite number"),
        ("0.1\nnan\n", ("--edges", "0.5"), "there.csv, line 2: the value is missing"),
        ("0.1\ninf\n", ("--edges", "0.5"), "there.csv: 'inf', entry 2, is not a finite number"),
        ("0.1\n0.7\n", ("--edges", "0.5,0.2"), "edges must be increasing numbers"),
        ("0.1\n0.7\n", ("--edges", "0.5,x"), "--edges: 'x', entry 2, is not a finite number"),
        ("a,b\ndry,dry\n", ("--cells", "dry,wet"), "the first row is a, b"),
        ("a,label\nx,dry\ny\n", ("--cells", "dry,wet"), "line 3 has 1 cells"),
    ],
)
def test_a_sample_that_is_none_gets_one_clear_line(
    quick: Pbc, folder: Path, tmp_path: Path, text: str, how: tuple[str, str], message: str
):
    assert folder.is_dir()
    (tmp_path / "there.csv").write_text(text)
    numeric = how[0] == "--edges"
    (tmp_path / "here.csv").write_text("0.2\n0.8\n" if numeric else "dry\nwet\n")
    before = content(tmp_path)
    result = quick("shift", "run", *SAMPLES, *how, "--out", "robust", *WRITING)
    assert message in complaint(result)
    assert content(tmp_path) == before


@pytest.mark.parametrize("missing", ["there.csv", "here.csv"])
def test_a_sample_that_is_missing_is_named(
    quick: Pbc, folder: Path, samples, tmp_path: Path, missing: str
):
    assert folder.is_dir()
    assert samples
    (tmp_path / missing).unlink()
    before = content(tmp_path)
    result = quick("shift", "run", *SAMPLES, "--cells", "dry,wet", *WRITING)
    assert f"there is no file {missing}" in complaint(result)
    assert content(tmp_path) == before


def test_a_run_that_is_missing_is_named(quick: Pbc, tmp_path: Path):
    result = quick("shift", "none", "--ball", "kl:0.1", "--out", "robust", *WRITING)
    assert "there is no run at none" in complaint(result)
    assert content(tmp_path) == {}


def test_a_run_in_a_ball_cannot_be_shifted_again(quick: Pbc, folder: Path, tmp_path: Path):
    assert folder.is_dir()
    assert quick("shift", "run", "--ball", "kl:0.08", "--out", "robust").returncode == 0
    before = content(tmp_path)
    result = quick("shift", "robust", "--ball", "kl:0.01", "--out", "twice", *WRITING)
    assert "already holds where KL(D′‖D) ≤ 0.08: start from the run" in complaint(result)
    assert content(tmp_path) == before


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_folder_to_write_in_must_be_there(quick: Pbc, folder: Path, tmp_path: Path, option: str):
    assert folder.is_dir()
    before = content(tmp_path)
    result = quick("shift", "run", "--ball", "kl:0.1", "--out", "robust", option, "none/x.svg")
    assert "there is no folder none" in complaint(result)
    assert content(tmp_path) == before


# ---- the second table ---------------------------------------------------------------------------


@pytest.mark.slow
def test_reproduce_table2_prints_writes_and_draws(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In small without its larger sizes, which take most of its time."""
    sizes = table2.SIZES
    assert sizes == (100, 500, 1000, 5000, 10000)
    if not FULL:
        sizes = sizes[:2]
        monkeypatch.setattr(table2, "SIZES", sizes)
    options = "--draws", 1, "--test-environments", 1000, "--out", "d", "--json", "j.json"
    result = quick("reproduce", "table2", *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    rows = record_in(tmp_path / "j.json")["rows"]
    assert [(row["environments"], row["method"]) for row in rows] == [
        (n, method) for n in sizes for method in ("robust", "train", "test")
    ]
    # seed 0 unless another is given
    assert rows == [asdict(row) for row in table2.table2(1, 1000, seed=0)]
    contract = {"environments", "method", "bound", "true_cost", "paper_bound", "paper_true_cost"}
    for row in rows:
        assert row.keys() >= contract
        assert 0 < row["true_cost"] < row["bound"] < 1
        assert row["exact_above"] == 0
        assert f"{row['paper_bound']:.3f}" in result.stdout
        assert f"{row['bound']:.3f}" in result.stdout
    assert "Table 2: the vehicle under a shift, δ = 0.01" in result.stdout
    assert "KL(D′‖D) ≤ 0.08185" in result.stdout
    figures = ["d/fields.svg", "d/radii.svg", "d/table2.svg"]
    assert sorted(content(tmp_path)) == ["d/.reproduced", *figures, "j.json"]
    for path in (tmp_path / "d").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert str(path.relative_to(tmp_path)) in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table3",), "experiment 'table3' is unknown: choose continuous, "),
        (("table2", "--draws", 0), "Invalid value for '--draws'"),
        (("table2", "--test-environments", 0), "Invalid value for '--test-environments'"),
        (("table2", "--seed", -1), "Invalid value for '--seed'"),
        (("table2", "--json", "none/j.json"), "there is no folder none"),
        (("table2", "--out", "file"), "file is a file: give a folder for the figures"),
    ],
)
def test_bad_arguments_of_reproduce_get_one_clear_line_and_nothing_is_written(
    quick: Pbc, tmp_path: Path, arguments: tuple, message: str
):
    (tmp_path / "file").write_text("")
    assert message in complaint(quick("reproduce", *arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ---- once wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ball", "kl:0.08", "--divergence", "kl"), "--divergence has no use"),
        (("--ball", "kl:0.08", "--shift-delta", "0.001"), "--shift-delta is for samples"),
        (("--column", "x"), "--column is for samples"),
        (("--ball", ""), "write DIVERGENCE:B"),
        (("--ball", "kl:1_0"), "write DIVERGENCE:B"),
        (("--ball", "renyi-2.0:0.1"), "write renyi-2"),
        (("--ball", "renyi-2_0:0.1"), "is unknown"),
        (("--json", "run/certificate.json"), "lies in run, which is the input"),
        (("--plot", "run/curve.svg"), "lies in run, which is the input"),
        (
            (*SAMPLES, "--cells", "dry,wet", "--json", "there.csv"),
            "there.csv is the input",
        ),
    ],
)
def test_no_option_is_ignored_and_no_input_overwritten(
    quick: Pbc, folder: Path, tmp_path: Path, samples: Any, arguments: tuple, message: str
):
    before = content(tmp_path)
    assert message in complaint(quick("shift", folder.name, *arguments))
    assert content(tmp_path) == before
    assert samples


def test_a_promise_that_no_shift_can_break_is_null_in_json(quick: Pbc, folder: Path):
    arguments = ("--divergence", "reverse-kl", "--limit", 1, "--json", "out.json")
    assert quick("shift", folder.name, *arguments).returncode == 0
    assert record_in(folder.parent / "out.json")["tolerable"] is None


def test_certify_and_learn_take_a_ball_and_refuse_one_that_is_none(quick: Pbc, tmp_path: Path):
    (tmp_path / "costs.csv").write_text("a,b\n" + "0,1\n0.5,0\n" * 100)
    done = quick("certify", "costs.csv", "--ball", "kl:0.05", "--method", "tilted", "--out", "r")
    assert done.returncode == 0, done.stderr
    assert "on every distribution D′ with KL(D′‖D) ≤ 0.05" in done.stdout
    assert verify(tmp_path / "r").certificate.ball == Ball("kl", 0.05)
    assert "finite number" in complaint(quick("certify", "costs.csv", "--ball", "kl:-1"))
    assert "write DIVERGENCE:B" in complaint(quick("learn", "vehicle", "--ball", "0.1"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_learn_certifies_in_a_ball(quick: Pbc, tmp_path: Path):
    arguments = ("--environments", 20, "--test-environments", 0, "--ball", "hellinger:0.001")
    assert quick("learn", "vehicle", *arguments, "--out", "r").returncode == 0
    assert verify(tmp_path / "r").certificate.ball == Ball("hellinger", 0.001)
