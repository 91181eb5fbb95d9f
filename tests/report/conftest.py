"""What tests of pages share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.learn import learn_finite
from pacbayes_control.report.page import write_page
from pacbayes_control.rollouts import evaluate
from pacbayes_control.run import Run
from pacbayes_control.tasks import Vehicle
from pages import Write, draw_only


@pytest.fixture(scope="session")
def vehicle() -> Run[Any]:
    """The paper's policies in 30 environments."""
    task = Vehicle()
    train = task.environments(30, stream="train")
    return learn_finite(evaluate(task, task.gain_grid(), train, task.gain_names()))


@pytest.fixture(scope="session")
def vehicles_page(vehicle: Run[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of this run, with all its plots."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(vehicle, path, name="my run")
    return path


@pytest.fixture
def blank_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_only((), monkeypatch)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """The text of a page; of its plots, which take longest, only those that are asked for."""

    def text(run: Run[Any], plots: tuple[str, ...] = (), **options: Any) -> str:
        with monkeypatch.context() as patch:
            draw_only(plots, patch)
            write_page(run, tmp_path / "page.html", **options)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return text
