"""The command as users meet it: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pacbayes_control
from commands import command, complaint, files
from pacbayes_control.robots.vehicle import table1
from sizes import FULL

Result = subprocess.CompletedProcess[str]
Pbc = Callable[..., Result]

KEYS = {"bound", "method", "delta", "environments", "policies", "empirical_cost", "kl"}


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A test campaign as an engineer has it: sites × controllers in a CSV file."""
    rng = np.random.default_rng(0)
    failed = (rng.random((120, 3)) < [0.3, 0.05, 0.1]).astype(int)
    rows = [f"site {i}," + ",".join(map(str, row)) for i, row in enumerate(failed)]
    path = tmp_path / "campaign.csv"
    path.write_text("\n".join(["site,slow,careful,fast", *rows]) + "\n")
    return path


# ---- what works ---------------------------------------------------------------------------------

LEARN = ("learn", "vehicle", "--environments", "60", "--test-environments", "100", "--out", "run")


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The vehicle, learnt as a user does: the folder, and what was said."""
    folder = tmp_path_factory.mktemp("learnt")
    return folder, command(folder, *LEARN, "--json", "r.json")


@pytest.mark.slow
def test_learn_vehicle_leaves_a_run_that_verifies_and_a_picture(
    quick: Pbc, learnt: tuple[Path, Result], tmp_path: Path
):
    folder, said = learnt
    assert said.returncode == 0, said.stderr
    assert "With confidence 99 %" in said.stdout
    # no progress bar in a pipe, but lines where a machine is slow
    assert all(re.match(r"(training|test) rollouts: \d", line) for line in said.stderr.splitlines())
    record = json.loads((folder / "r.json").read_text())
    assert record.keys() >= KEYS | {"true_cost", "run"}
    assert record["true_cost"] < record["bound"]
    run = folder / "run"
    assert "<svg" in (run / "picture.svg").read_text()
    stored = json.loads((run / "certificate.json").read_text())
    assert stored["bound"] == record["bound"]
    assert stored.keys() >= KEYS

    verified = quick("verify", run, "--json", "v.json")
    assert verified.returncode == 0, verified.stderr
    assert "verified" in verified.stdout
    assert json.loads((tmp_path / "v.json").read_text())["verified"] is True


@pytest.mark.slow
def test_learning_again_in_another_process_gives_the_same_bytes(
    quick: Pbc, learnt: tuple[Path, Result], tmp_path: Path
):
    assert quick(*LEARN).returncode == 0
    assert files(tmp_path / "run") == files(learnt[0] / "run")


@pytest.mark.slow
def test_learn_takes_the_best_of_two_and_pays_for_it(quick: Pbc, tmp_path: Path):
    few = "--environments", 20, "--test-environments", 0
    assert quick("learn", "vehicle", *few, "--method", "best", "--json", "r.json").returncode == 0
    assert json.loads((tmp_path / "r.json").read_text())["budget"] == {"kl": 0.005, "occam": 0.005}
    assert (tmp_path / "runs" / "vehicle" / "certificate.json").exists()  # unless told otherwise


@pytest.mark.slow
def test_certify_shows_every_method_and_keeps_the_chosen_run(campaign: Path, tmp_path: Path):
    options = "--delta", 0.05, "--out", "run", "--json", "c.json"
    result = command(tmp_path, "certify", campaign, *options)
    assert result.returncode == 0, result.stderr
    assert "careful" in result.stdout
    record = json.loads((tmp_path / "c.json").read_text())
    assert [c["method"] for c in record["certificates"]] == [
        "occam",
        "kl",
        "kl-maurer",
        "pinsker",
        "betting",
    ]
    assert record["chosen"] == record["certificates"][0]
    assert all(c.keys() >= KEYS for c in record["certificates"])
    assert command(tmp_path, "verify", "run").returncode == 0


def test_certify_best_pays_for_the_choice(quick: Pbc, campaign: Path, tmp_path: Path):
    assert quick("certify", campaign, "--method", "best", "--json", "c.json").returncode == 0
    record = json.loads((tmp_path / "c.json").read_text())
    assert record["chosen"]["budget"] == {"kl": 0.005, "occam": 0.005}
    assert record["chosen"]["delta"] == 0.01


@pytest.mark.slow
def test_certify_takes_constraints_by_name_and_number(quick: Pbc, campaign: Path, tmp_path: Path):
    options = "--at-least", "0.2:slow", "--at-most", "0.5:1-2", "--out", "run"
    result = quick("certify", campaign, *options)
    assert result.returncode == 0, result.stderr
    p = json.loads((tmp_path / "run" / "posterior.json").read_text())["probabilities"]
    assert p[0] >= 0.2 - 1e-6
    assert p[1] + p[2] <= 0.5 + 1e-6


def test_certify_takes_a_prior_file(quick: Pbc, campaign: Path, tmp_path: Path):
    (tmp_path / "prior.csv").write_text("0.1,0.8,0.1")
    assert quick("certify", campaign, "--json", "u.json").returncode == 0
    assert quick("certify", campaign, "--prior", "prior.csv", "--json", "p.json").returncode == 0
    uniform, informed = (
        json.loads((tmp_path / name).read_text())["chosen"]["bound"]
        for name in ("u.json", "p.json")
    )
    assert informed < uniform


def test_names_are_never_read_as_markup(quick: Pbc, tmp_path: Path):
    (tmp_path / "c.csv").write_text("site,slow [beta],[/]x\nA,0,1\nB,0,0\nC,0,1\n")
    result = quick("certify", "c.csv", "--method", "occam")
    assert result.returncode == 0, result.stderr
    assert "“slow [beta]” fails in at most" in result.stdout


def test_json_can_go_to_the_terminal(quick: Pbc, campaign: Path):
    result = quick("certify", campaign, "--json", "-")
    record = json.loads(result.stdout)  # alone: the words are on standard error
    assert "promises the expected cost of" in result.stderr
    assert set(record["posterior"]) == {"slow", "careful", "fast"}


def test_a_prior_in_the_file_and_another_beside_it_are_one_too_many(quick: Pbc, tmp_path: Path):
    (tmp_path / "c.csv").write_text("site,a,b\nprior,0.5,0.5\nA,0,1\nB,0,0\n")
    (tmp_path / "p.csv").write_text("0.5,0.5")
    assert "a prior of its own" in complaint(quick("certify", "c.csv", "--prior", "p.csv"))


def test_a_transposed_file_gets_a_hint(quick: Pbc, tmp_path: Path):
    np.save(tmp_path / "c.npy", np.zeros((3, 50)))
    assert "are rows and columns as they should be?" in quick("certify", "c.npy").stdout


@pytest.mark.slow
def test_reproduce_table1_prints_and_draws(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In small without its larger sizes, which take most of its time."""
    sizes = list(table1.PAPER)
    assert sizes == [100, 500, 1000, 10000]
    if not FULL:
        sizes = sizes[:2]
        monkeypatch.setattr(table1, "PAPER", {n: table1.PAPER[n] for n in sizes})
    options = "--draws", 1, "--test-environments", 2000, "--seed", 3, "--json", "t.json"
    result = quick("reproduce", "table1", *options)
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [(row["environments"], row["method"]) for row in rows] == [
        (n, method) for n in sizes for method in ("paper", "kl", "occam", "occam, pilot")
    ]
    expected = {"bound", "bound_std", "true_cost", "paper_bound", "paper_true_cost"}
    assert all(row.keys() >= expected for row in rows)
    assert rows[0]["paper_bound"] == 0.178
    for name in ("table1.svg", "vehicle.svg"):
        assert "<svg" in (tmp_path / "runs" / "table1" / name).read_text()


@pytest.mark.parametrize("name", ["learn", "certify", "verify", "reproduce"])
def test_help_has_an_example(quick: Pbc, name: str):
    result = quick(name, "--help")
    assert result.returncode == 0
    assert f"Example: pbc {name}" in result.stdout
    assert "--json" in result.stdout


def test_without_a_command_help_is_shown(quick: Pbc):
    result = quick()
    assert "Commands" in result.stdout + result.stderr
    assert "pbc: " not in result.stderr


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("pacbayes_control", {"numpy", "scipy", "numba", "matplotlib"}),
        ("pacbayes_control.cli.commands", {"scipy.stats", "numba", "matplotlib", "sklearn"}),
        ("pacbayes_control.rollouts.worker", {"scipy.special", "numba"}),
        ("pacbayes_control.robots.vehicle", {"scipy.special", "scipy.optimize"}),
    ],
)
def test_a_process_loads_no_library_that_it_may_not_need(module: str, spared: set[str]):
    words = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout
    assert module in loaded.split()
    assert not spared & {*loaded.split()}


def test_the_version_is_printed(tmp_path: Path):
    assert command(tmp_path, "--version").stdout.strip() == pacbayes_control.__version__


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,nan\n0,1\n", "line 1, policy 1: the cost is missing"),
        ("1,1\n0,1.5\n", "cost 1.5 at environment 1, policy 1 (line 2) is outside [0, 1]"),
        ("1,1\n-1,1\n", "cost -1 at environment 1, policy 0 (line 2) is outside [0, 1]"),
        ("", "empty"),
        ("1,1\n", "at least two rows"),
        ("0,1\n1\n", "ragged: line 2"),
        ("1,1\n1,zero\n", "line 2, policy 1: 'zero' is not a cost"),
        ("site,a,b\nprior,0.5,0.4\nx,0,1\ny,0,1\n", "prior sums to 0.9"),
    ],
)
def test_bad_costs_get_one_clear_line(quick: Pbc, tmp_path: Path, content: str, message: str):
    (tmp_path / "c.csv").write_text(content)
    assert message in complaint(quick("certify", "c.csv"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--delta", "0"), "delta = 0.0 must lie strictly between 0 and 1"),
        (("--delta", "1.5"), "delta = 1.5 must lie strictly between 0 and 1"),
        (("--delta", "nan"), "delta = nan must lie strictly between 0 and 1"),
        (("--delta", "x"), "Invalid value for '--delta'"),
        (("--method", "magic"), "'magic' is not one of 'occam', 'kl', 'betting'"),
        (("--prior", "none.csv"), "there is no file none.csv"),
        (("--at-least", "0.2:0", "--solver", "magic"), "solver 'magic' is unknown"),
        (("--solver", "magic"), "solver 'magic' is unknown"),
        (("--solver", "scs", "--method", "best"), "best takes no solver"),
        (("--at-least", "lots:0"), "write SHARE:POLICIES"),
        (("--at-least", "0.2:heavy"), "'heavy' names no policy"),
        (("--at-least", "0.9:0", "--at-most", "0.1:0"), "found no distribution"),
        (("--json", "none/c.json"), "there is no folder none"),
        (("--surprise",), "No such option"),
    ],
)
def test_bad_options_of_certify_get_one_clear_line(
    quick: Pbc, campaign: Path, options: tuple[str, ...], message: str
):
    assert message in complaint(quick("certify", campaign, *options))


def test_a_prior_that_is_zero_where_the_constraint_wants_mass_is_an_error(
    quick: Pbc, campaign: Path, tmp_path: Path
):
    (tmp_path / "prior.csv").write_text("0,0.5,0.5")
    result = quick("certify", campaign, "--prior", "prior.csv", "--at-least", "0.2:0")
    assert "the prior is zero at policy 0" in complaint(result)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("0.5,0.5", "2 entries for 3 policies"),
        ("0.5,0.5,0.5", "sums to 1.5"),
        ("1.5,-0.5,0", "negative"),
        ("a,b,c", "is not a number"),
    ],
)
def test_bad_priors_get_one_clear_line(
    quick: Pbc, campaign: Path, tmp_path: Path, prior: str, message: str
):
    (tmp_path / "prior.csv").write_text(prior)
    assert message in complaint(quick("certify", campaign, "--prior", "prior.csv"))


def test_a_missing_file_gets_one_clear_line(quick: Pbc):
    assert "there is no file none.csv" in complaint(quick("certify", "none.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "submarine"), "task 'submarine' is unknown: choose grasping, swing, vehicle"),
        (("learn", "vehicle", "--environments", 1), "Invalid value for '--environments'"),
        (("learn", "vehicle", "--delta", 2), "delta = 2.0"),
        (
            ("learn", "vehicle", "--method", "magic"),
            "'magic' is not one of 'occam', 'kl', 'betting'",
        ),
        (("reproduce", "table9"), "experiment 'table9' is unknown: choose continuous"),
        (("reproduce", "table1", "--draws", 0), "Invalid value for '--draws'"),
        (("verify", "none"), "there is no run at none"),
        (("magic",), "No such command"),
    ],
)
def test_other_bad_arguments_get_one_clear_line(quick: Pbc, arguments: tuple, message: str):
    assert message in complaint(quick(*arguments))


@pytest.mark.slow
def test_a_missing_extra_says_what_to_type(tmp_path: Path, campaign: Path):
    script = (
        "import sys; sys.modules['cvxpy'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'cvxpy' else find(n, *a)\n"
        "from pacbayes_control.cli.commands import main; main()\n"
    )
    without_cvxpy = ["certify", str(campaign), "--at-least", "0.2:0"]
    result = subprocess.run(
        [sys.executable, "-c", script, *without_cvxpy],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'pacbayes-control[cvx]'" in complaint(result)


def test_a_run_in_the_way_is_not_overwritten(quick: Pbc, campaign: Path, tmp_path: Path):
    assert quick("certify", campaign, "--out", "run").returncode == 0
    before = (tmp_path / "run" / "certificate.json").read_bytes()
    assert "not empty" in complaint(quick("certify", campaign, "--delta", 0.2, "--out", "run"))
    assert (tmp_path / "run" / "certificate.json").read_bytes() == before
    assert quick("certify", campaign, "--delta", 0.2, "--out", "run", "--force").returncode == 0


# ---- verify: 1 for a certificate that does not hold, 2 for what cannot be read ------------------


@pytest.fixture
def run(quick: Pbc, campaign: Path, tmp_path: Path) -> Path:
    assert quick("certify", campaign, "--out", "run").returncode == 0
    return tmp_path / "run"


def test_verify_refuses_a_tampered_bound(quick: Pbc, run: Path, tmp_path: Path):
    path = run / "certificate.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "bound": record["bound"] / 2}))
    line = complaint(quick("verify", "run", "--json", "v.json"), code=1)
    assert "NOT VERIFIED: certificate.json was altered" in line
    assert json.loads((tmp_path / "v.json").read_text())["verified"] is False


def test_verify_refuses_tampered_costs(quick: Pbc, run: Path):
    costs = np.load(run / "costs.npy")
    costs[0] = 1 - costs[0]
    np.save(run / "costs.npy", costs)
    assert "costs.npy was altered" in complaint(quick("verify", "run"), code=1)


def test_verify_cannot_read_a_corrupt_run(quick: Pbc, run: Path):
    (run / "manifest.json").write_text("{ not json")
    assert "corrupt" in complaint(quick("verify", "run"))


def test_verify_cannot_read_an_incomplete_run(quick: Pbc, run: Path):
    (run / "posterior.json").unlink()
    assert "posterior.json is missing" in complaint(quick("verify", "run"))


@pytest.mark.slow
def test_a_reader_that_leaves_early_does_not_change_the_verdict(run: Path):
    command = [sys.executable, "-m", "pacbayes_control", "verify", str(run)]
    verifier = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert verifier.stdout is not None
    verifier.stdout.close()
    _, errors = verifier.communicate()
    assert verifier.returncode == 0, errors


def test_the_input_is_never_overwritten(quick: Pbc, campaign: Path):
    before = campaign.read_text()
    assert "is the input" in complaint(quick("certify", campaign, "--json", campaign))
    assert campaign.read_text() == before


def test_absurd_numbers_get_one_clear_line(quick: Pbc):
    result = quick("learn", "vehicle", "--environments", "9" * 30)
    assert "Invalid value for '--environments'" in complaint(result)
