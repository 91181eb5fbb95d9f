"""Continuous policies from the command line: what is learnt, how it resumes, how it fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import complaint

Pbc = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--environments", 20, "--test-environments", 20, "--out", "run")
QUICK = ("--steps", 3, "--draws", 10)
SHARED = ("--set", "shared_draws=true", "--set", "objective=pinsker")
SPLIT = ("--set", "share=0.5", "--set", "prior_steps=2")


def certificate(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "run" / "certificate.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--policy", "linear", *QUICK), {"method": "kl", "parameters": 10, "draws": 10}),
        (
            (
                "--policy",
                "linear",
                *QUICK,
                "--set",
                "shared_draws=true",
                "--set",
                "objective=pinsker",
            ),
            {"shared_draws": True, "objective": "pinsker"},
        ),
        (
            ("--policy", "linear", "--steps", 2, "--draws", 5, "--set", "family=true"),
            {"method": "kl"},
        ),
        (
            ("--policy", "linear", "--certify", "draw", "--steps", 3),
            {"method": "single-draw", "policy": 0},
        ),
        (
            ("--policy", "linear", "--prior", "split", *SPLIT, *QUICK),
            {"environments": 10, "set_aside": 10},
        ),
        (("--policy", "linear", "--prior", "imitation", *QUICK), {"parameters": 10}),
        (("--policy", "network", "--certify", "one"), {"method": "occam", "policies": 1}),
        (
            ("--policy", "network", *QUICK, "--wheel-slip", 0.05, "--range-noise", 0.02),
            {"noise": "wheel slip 0.05, range noise 0.02"},
        ),
        (("--range-noise", 0.1), {"noise": "range noise 0.1", "policies": 50}),
    ],
    ids=["posterior", "shared", "family", "draw", "split", "imitation", "one", "noise", "grid"],
)
def test_every_way_to_learn_leaves_a_run_that_verifies(
    quick: Pbc, tmp_path: Path, options: tuple, expected: dict
):
    learnt = quick("learn", "vehicle", *SMALL, *options)
    assert learnt.returncode == 0, learnt.stderr
    record = certificate(tmp_path)
    assert {key: record[key] for key in expected} == expected
    assert abs(sum(record["budget"].values()) - 0.01) < 1e-12
    verified = quick("verify", "run")
    assert verified.returncode == 0, verified.stderr
    assert record["sentence"] in verified.stdout.replace("\n", " ")
    assert not list(tmp_path.glob("run.checkpoint*"))


KILLED = """
import os, signal
from pacbayes_control.__main__ import main
from pacbayes_control.learn.search import GaussianSearch

def tell(search, *given, earlier=GaussianSearch.tell, **named):
    earlier(search, *given, **named)
    if search.step == 13:  # some steps after the first checkpoint
        os.kill(os.getpid(), signal.SIGKILL)

GaussianSearch.tell = tell
main()
"""


@pytest.mark.slow
def test_a_killed_command_is_taken_up_where_it_was(quick: Pbc, tmp_path: Path):
    options = ("learn", "vehicle", "--policy", "linear", "--environments", 20)
    options += ("--test-environments", 0, "--steps", 15, "--draws", 5)
    whole = quick(*options, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "-c", KILLED, *map(str, options), "--out", "killed"]
    killed = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed").exists()
    assert list(tmp_path.glob("killed.checkpoint*"))
    resumed = quick(*options, "--out", "killed")
    assert resumed.returncode == 0, resumed.stderr
    for name in ("certificate.json", "posterior.json", "costs.npy"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_prior_can_be_learnt_kept_and_used(quick: Pbc, tmp_path: Path):
    steps = "--steps", 2, "--per-step", 100
    learnt = quick("vehicle", "pretrain", *steps, "--out", "prior.json")
    assert learnt.returncode == 0, learnt.stderr
    assert not list(tmp_path.glob("prior.json.checkpoint*"))
    used = quick(
        *("learn", "vehicle", "--policy", "network", "--prior", "prior.json"),
        *("--certify", "one", *SMALL),
    )
    assert used.returncode == 0, used.stderr
    assert "learnt on 200 environments from elsewhere" in certificate(tmp_path)["prior"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "quadratic"), "'quadratic' is not one of 'grid', 'linear'"),
        (
            ("--policy", "network", "--prior", "paper"),
            "there is no prior 'paper': choose elsewh",
        ),
        (("--policy", "linear", "--prior", "nowhere.json"), "nowhere.json"),
        (("--policy", "linear", "--set", "sampling_delta=0.01"), "overspends"),
        (("--policy", "linear", "--set", "sampling_delta=0.5"), "overspends"),
        (("--policy", "linear", "--method", "occam"), "method 'occam' is unknown"),
        (
            ("--policy", "linear", "--certify", "mean"),
            "'mean' is not one of 'posterior', 'draw'",
        ),
        (("--policy", "linear", "--prior", "split", "--set", "share=1"), "leaves one part empty"),
        (("--policy", "linear", "--set", "estimator=guess"), "estimator = 'guess' must be"),
        (("--policy", "linear", "--wheel-slip", 2.0), "must be a number from 0 to 0.25"),
        (("--policy", "linear", "--set", "share=0.5"), "share is for prior = split"),
        (("--policy", "linear", "--set", "candidates=3"), "candidates is for certify = one"),
        (("--draws", 3), "draws is for continuous policies"),
        (("--set", "family=true"), "family is for continuous policies"),
        (
            ("--prior", "elsewhere"),
            "there is no prior elsewhere: over listed policies",
        ),
    ],
)
def test_bad_input_gets_one_clear_line(quick: Pbc, tmp_path: Path, options: tuple, message: str):
    assert message in complaint(quick("learn", "vehicle", *SMALL, *options))
    assert not (tmp_path / "run").exists()


def test_a_prior_of_another_class_of_policies_is_refused(quick: Pbc, tmp_path: Path):
    prior = {"kind": "diagonal gaussian", "mean": [0.0] * 7, "variance": [1.0] * 7, "seen": []}
    (tmp_path / "seven.json").write_text(json.dumps(prior))
    result = quick("learn", "vehicle", *SMALL, "--policy", "linear", "--prior", "seven.json")
    assert result.returncode == 2
    assert "need 10 parameters each" in result.stderr


@pytest.mark.slow
def test_a_posterior_is_refused_as_the_prior_of_what_it_learnt_from(quick: Pbc, tmp_path: Path):
    first = quick("learn", "vehicle", *SMALL, "--policy", "linear", *QUICK)
    assert first.returncode == 0, first.stderr
    options = ("--policy", "linear", *QUICK, "--prior", "run/posterior.json")
    again = quick("learn", "vehicle", *SMALL[:-1], "again", *options)
    assert again.returncode == 2
    assert "the prior has seen some of these environments" in again.stderr
    assert not (tmp_path / "again").exists()


def test_the_experiment_and_the_command_for_priors_are_there(quick: Pbc):
    assert "continuous" in str(quick("reproduce", "--help").stdout)
    result = quick("reproduce", "table9")
    assert "choose continuous, grasping, sim-to-real, swing, table1, table2" in result.stderr
    assert "prior" in str(quick("vehicle", "pretrain", "--help").stdout)
