"""What tests of pages share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.page import write_page
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate


@pytest.fixture(scope="session")
def vehicle() -> Run[Any]:
    """The paper's policies in 30 environments."""
    task = Vehicle()
    train = task.environments(30, stream="train")
    costs = evaluate(task, task.policies, train, task.policy_names)
    return learn_finite(costs, method="kl")


@pytest.fixture(scope="session")
def vehicles_page(vehicle: Run[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of this run, with all its plots."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(vehicle, path, name="my run")
    return path
