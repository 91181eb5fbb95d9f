from __future__ import annotations

from pathlib import Path

import pytest

from pacbayes_control.distributions import Categorical
from pacbayes_control.paper.table1 import Row
from pacbayes_control.report.pictures import draw_table1, draw_vehicle
from pacbayes_control.tasks import Vehicle


@pytest.mark.parametrize(("suffix", "signature"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_the_vehicle_is_drawn_the_same_each_time(tmp_path: Path, suffix: str, signature: bytes):
    task = Vehicle()
    policies = task.gain_grid()
    prior = Categorical.uniform(50)
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        environments = task.environments(2, stream="picture test")
        draw_vehicle(task, policies, prior, prior, environments, path, rollouts=4)
    assert paths[0].read_bytes().startswith(signature)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_table_is_drawn_with_text_that_can_be_read(tmp_path: Path):
    rows = [
        Row(n, method, 0.2, 0.01, 0.1, 0.3, 0.08, 0.01, 0, 5, 0.178, 0.087)
        for n in (100, 1000)
        for method in ("paper", "kl", "occam")
    ]
    draw_table1(rows, tmp_path / "t.svg")
    text = (tmp_path / "t.svg").read_text()
    for label in ("bound as published", "Occam, one policy", "training environments, N"):
        assert label in text
