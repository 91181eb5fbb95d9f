"""What several tests share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache as kept_in_memory
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from hypothesis import settings

from commands import command, run_here
from pacbayes_control.certify.costs import Costs
from pacbayes_control.rollouts.processes import Processes
from sizes import FAST, FULL

CASES_IF_FAST = 1  # of each parametrised test
EXAMPLES_IF_FAST = 20  # of each that Hypothesis makes up

# Machines are noisy: no test may fail because it took long, nor pass by another draw of examples.
settings.register_profile(
    "steady", deadline=None, derandomize=True, max_examples=EXAMPLES_IF_FAST if FAST else 100
)
settings.load_profile("steady")
# Typer makes all the commands anew for each call, which is half the time of many tests.
typer.main.get_command = kept_in_memory(typer.main.get_command)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out `full` tests, and in a fast run `slow` ones and most cases of a table.

    Files with slow tests come first, so that all workers end with short ones; and neighbours, which
    compile the same kernels, far from each other: by the last letters of their names.
    """
    cases: Counter[str] = Counter()

    def wanted(item: pytest.Item) -> bool:
        test = item.nodeid.split("[")[0]
        cases[test] += 1
        few = cases[test] <= CASES_IF_FAST
        fast = few and not item.get_closest_marker("slow")
        return (fast or not FAST) and (FULL or not item.get_closest_marker("full"))

    kept = [item for item in items if wanted(item)]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    slow = {item.path for item in kept if item.get_closest_marker("slow")}
    items[:] = sorted(kept, key=lambda item: (item.path not in slow, str(item.path)[::-1]))


def pytest_collection_finish() -> None:
    """Write no bytecode from here on: of a test's module, changed within a second, it is stale.

    And spare the collector of garbage the modules and tests that stay to the end.
    """
    gc.freeze()
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own, for them and for the commands that they run."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def binary_costs() -> Costs:
    """200 environments × 6 policies with 0/1 costs, the third policy the best."""
    rates = np.array([0.5, 0.3, 0.05, 0.2, 0.9, 0.06])
    outcomes = np.random.default_rng(1).random((200, 6)) < rates
    return Costs(outcomes, origin={"graded": False})


@pytest.fixture
def graded_costs() -> Costs:
    """150 environments × 4 policies with costs in [0, 1]."""
    return Costs(np.random.default_rng(2).beta([1, 2, 3, 4], [9, 8, 7, 6], size=(150, 4)))


@pytest.fixture
def pbc(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command as a user does, in an empty folder."""

    return partial(command, tmp_path)


@pytest.fixture
def quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command within this process, in an empty folder, which spares the start of another."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = run_here(*arguments)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def another_process() -> Iterator[Processes]:
    """One to send tasks to, which knows nothing but what is sent."""
    with Processes(1) as pool:
        yield pool


@pytest.fixture(scope="session")
def two_processes() -> Iterator[Processes]:
    """They are replaced when they die, so that a test may kill them."""
    with Processes(2) as pool:
        yield pool


@pytest.fixture
def blank_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    from pages import draw_only

    draw_only((), monkeypatch)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The text of a page; of its plots, which take longest, only those that are asked for."""

    from pacbayes_control.report.page import write_page
    from pages import draw_only

    def text(run: Any, plots: tuple[str, ...] = (), **options: Any) -> str:
        with monkeypatch.context() as patch:
            draw_only(plots, patch)
            write_page(run, tmp_path / "page.html", **options)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return text
