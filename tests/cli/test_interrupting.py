"""Ctrl-C at any moment: one line, exit code 130, and no traceback from anywhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pacbayes_control.cli.interrupting import Interruption
from pacbayes_control.learn import learn_finite
from pacbayes_control.rollouts.processes import shielded
from sizes import sized

# Interrupts itself when a module is first asked for, as a Ctrl-C at that moment would.
AT_IMPORT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r} and not hasattr(self, "done"):
            self.done = True
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
"""
AT_EXIT = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
IN_A_FINALISER = """
import os, signal
import pacbayes_control.certify.run as run

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def read(folder, earlier=run.read_manifest):
    Dying()
    return earlier(folder)
run.read_manifest = read
"""
TWICE = """
import os, signal
import pacbayes_control.certify.run as run

def read(folder):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:  # as where workers are being stopped
        os.kill(os.getpid(), signal.SIGINT)
run.read_manifest = read
"""
ONCE = """
import os, signal
import pacbayes_control.certify.run as run

run.read_manifest = lambda folder: os.kill(os.getpid(), signal.SIGINT)
"""
LOST = """
import os, signal
import pacbayes_control.certify.run as run

def read(folder):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        raise ImportError("half of a module") from None
run.read_manifest = read
"""
START = "\nfrom pacbayes_control.__main__ import main\nmain()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learn_finite([[0, 1], [1, 1], [0, 0]] * 20).save(tmp_path_factory.mktemp("runs") / "run")


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, "verify", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_of_these_tests_verifies_a_run(folder: Path):
    result = run(START, folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("verified")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["typer", "numpy", *sized((), full=("pacbayes_control.cli.app", "rich.console"))]
)
def test_while_modules_load(folder: Path, module: str):
    result = run(AT_IMPORT.format(name=module) + START, folder)
    assert (result.returncode, result.stderr) == (130, "pbc: interrupted\n")
    assert result.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "when",
    [ONCE, TWICE, LOST, IN_A_FINALISER, AT_EXIT],
    ids=["once", "twice", "lost", "in a finaliser", "at exit"],
)
def test_at_work_in_a_finaliser_and_at_the_end(folder: Path, when: str):
    result = run(when + START, folder)
    assert (result.returncode, result.stderr) == (130, "pbc: interrupted\n")


def test_the_installed_command_begins_where_ctrl_c_is_handled():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"pbc": "pacbayes_control.__main__:main"}


def test_a_process_that_was_started_to_ignore_it_does():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    hook = sys.unraisablehook
    try:
        Interruption().install()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert sys.unraisablehook is hook
    finally:
        signal.signal(signal.SIGINT, before)


def test_processes_that_are_started_under_a_shield_never_get_it():
    with shielded():
        blocked = subprocess.run(
            [sys.executable, "-c", "import signal; print(signal.pthread_sigmask(0, []))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "SIGINT" in blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
