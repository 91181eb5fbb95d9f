"""Every command that takes a run: verified first, and given as its folder or its certificate."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pacbayes_control
from commands import complaint
from pacbayes_control import verify as verification
from pacbayes_control.certify.run import Run
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.deploy.monitor.state import fingerprint
from pacbayes_control.learn import learn_finite

Pbc = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = [
    ("verify",),
    ("report", "--out", "page.html"),
    ("shift", "--ball", "kl:0.01", "--out", "robust"),
    ("monitor", "--outcome", "0", "--state", "state.json"),
    ("swing fly", "--virtual", "--out", "flights"),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Kept in the folder `run`."""
    failed = np.random.default_rng(0).random((200, 3)) < [0.3, 0.05, 0.1]
    learnt = learn_finite(failed, 0.01)
    learnt.save(tmp_path / "run")
    return learnt


def forged(run: Run, folder: Path) -> Path:
    """A run whose files are all as they were saved, and whose bound is too low."""
    return replace(run, certificate=replace(run.certificate, bound=0.06)).save(folder, True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("given", ["run", "run/certificate.json"])
def test_a_run_that_does_not_hold_is_used_by_no_command(
    quick: Pbc, run: Run, tmp_path: Path, command: tuple[str, ...], given: str
):
    forged(run, tmp_path / "run")
    name, *options = command
    result = quick(*name.split(), given, *options, "--json", "out.json")
    assert "NOT VERIFIED: the bound 0.06 is below what occam gives" in complaint(result, code=1)
    assert result.stdout == ""
    assert json.loads((tmp_path / "out.json").read_text())["verified"] is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "run"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_run_whose_files_were_altered_is_used_by_no_command(
    quick: Pbc, run: Run, tmp_path: Path, command: tuple[str, ...]
):
    np.save(tmp_path / "run" / "costs.npy", 0 * run.costs.values)
    name, *options = command
    message = complaint(quick(*name.split(), "run", *options), code=1)
    assert "NOT VERIFIED: costs.npy was altered" in message


@pytest.mark.parametrize("command", [COMMANDS[0], *COMMANDS[2:4]], ids=lambda command: command[0])
@pytest.mark.usefixtures("run")
def test_the_path_of_the_certificate_stands_for_the_run(quick: Pbc, command: tuple[str, ...]):
    name, *options = command
    result = quick(*name.split(), "run/certificate.json", *options)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.usefixtures("run")
def test_the_files_of_a_run_are_not_overwritten_by_whichever_path_it_is_given(
    quick: Pbc, tmp_path: Path, command: tuple[str, ...]
):
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    name, *options = command
    result = quick(*name.split(), "run/certificate.json", *options, "--json", "run/manifest.json")
    assert "lies in run, which is the input" in complaint(result)
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


# ---- once verified, a monitor's state knows the run again ---------------------------------------


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose bound was recomputed."""
    folders, verify = list[Path](), verification.verify

    def counted(folder: Path) -> verification.Verification:
        folders.append(folder)
        return verify(folder)

    monkeypatch.setattr(verification, "verify", counted)
    return folders


def watch(quick: Pbc, *options: object) -> None:
    result = quick("monitor", "run", *options)
    assert result.returncode == 0, result.stderr


@pytest.mark.usefixtures("run")
def test_a_run_that_has_not_changed_is_verified_once_for_a_state(
    quick: Pbc, tmp_path: Path, verifications: list[Path]
):
    for _ in range(3):
        watch(quick, "--outcome", 0, "--state", "state.json")
    assert len(verifications) == 1
    assert json.loads((tmp_path / "state.json").read_text())["verified"] == {
        "manifest": fingerprint(tmp_path / "run")["manifest"],
        "version": pacbayes_control.__version__,
    }
    for calls in (2, 3):  # and at every call without a state
        watch(quick, "--outcome", 0)
        assert len(verifications) == calls


def test_a_run_that_was_saved_anew_is_verified_again(
    quick: Pbc, run: Run, tmp_path: Path, verifications: list[Path]
):
    watch(quick, "--outcome", 0, "--state", "state.json")
    run.save(tmp_path / "run", True, {"picture.svg": b"<svg/>"})
    for calls in (2, 2):
        watch(quick, "--state", "state.json")
        assert len(verifications) == calls


@pytest.mark.usefixtures("run")
def test_another_version_of_the_library_verifies_again(
    quick: Pbc, verifications: list[Path], monkeypatch: pytest.MonkeyPatch
):
    watch(quick, "--outcome", 0, "--state", "state.json")
    monkeypatch.setattr(pacbayes_control, "__version__", "99.0")
    for calls in (2, 2):
        watch(quick, "--state", "state.json")
        assert len(verifications) == calls


def test_a_state_from_python_does_not_stand_for_a_verification(
    quick: Pbc, run: Run, tmp_path: Path, verifications: list[Path]
):
    monitor = Monitor(run.certificate)
    monitor.observe([0, 1])
    monitor.save(tmp_path / "state.json")
    watch(quick, "--state", "state.json")
    assert len(verifications) == 1


@pytest.mark.parametrize("change", ["altered", "forged"])
def test_a_run_that_was_verified_and_has_changed_since_is_refused(
    quick: Pbc, run: Run, tmp_path: Path, change: str
):
    watch(quick, "--outcome", 0, "--state", "state.json")
    before = (tmp_path / "state.json").read_bytes()
    if change == "forged":
        forged(run, tmp_path / "run")
    else:
        np.save(tmp_path / "run" / "costs.npy", 0 * run.costs.values)
    result = quick("monitor", "run", "--outcome", 0, "--state", "state.json")
    assert "NOT VERIFIED" in complaint(result, code=1)
    assert (tmp_path / "state.json").read_bytes() == before
