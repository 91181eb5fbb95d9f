from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pacbayes_control.learn import GaussianPrior, certify_draw, learn_finite, learn_one
from pacbayes_control.learn.repeated import over_draws
from pacbayes_control.report.pictures import drawn_policies
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.planar.pictures import draw_rollouts, draw_scene
from pacbayes_control.robots.vehicle import Arena, Linear, paper_prior
from pacbayes_control.robots.vehicle.pictures import draw_gains, draw_table1
from pacbayes_control.robots.vehicle.table1 import Table1Row
from pacbayes_control.rollouts import evaluate


@pytest.mark.slow
def test_the_vehicle_is_drawn_the_same_each_time(tmp_path: Path):
    task = Vehicle()
    train = task.environments(20, stream="picture train")
    run = learn_finite(evaluate(task, task.policies, train))
    many = task.environments(60, stream="picture test")
    failed = task.costs(drawn_policies(run, 4)[1], many[:59]).sum(axis=1)
    assert failed.any()
    environments = many[int(failed.argmax()) :][:2]  # not all of them pass
    a, b, c = (tmp_path / name for name in ("a.svg", "b.svg", "c.png"))
    for path in (a, b, c):
        draw_rollouts(task, run, environments, file=path, rollouts=4)
    assert a.read_bytes().startswith(b"<?xml")
    assert a.read_bytes() == b.read_bytes()
    assert c.read_bytes().startswith(b"\x89PNG")
    assert f"{4 - failed.max():.0f} of 4 draws pass" in a.read_text()


def test_the_table_is_drawn_with_text_that_can_be_read(tmp_path: Path):
    rows = [
        Table1Row(n, method, 0.178, 0.087, **over_draws([0.1, 0.3], [0.08, 0.08]))
        for n in (100, 1000)
        for method in ("paper", "kl", "occam")
    ]
    draw_table1(rows, tmp_path / "t.svg")
    text = (tmp_path / "t.svg").read_text()
    for label in ("bound as published", "Occam, one policy", "training environments, N"):
        assert label in text


def test_what_is_drawn_is_what_is_certified():
    task = Vehicle(controller=Linear())
    train = task.environments(20, stream="picture train")
    prior = GaussianPrior(paper_prior())
    one = learn_one(task, train, prior)
    draw = certify_draw(task, train, prior, paper_prior())
    for run in (one, draw):
        _, after = drawn_policies(run, 3)
        assert run.costs.parameters is not None
        assert (after == run.costs.parameters[0]).all()
    before, _ = drawn_policies(draw, 3)
    assert len({tuple(policy) for policy in before}) == 3


def test_a_scene_shows_what_its_arena_says_and_no_more():
    task, axis = Vehicle(), Figure().subplots()
    draw_scene(axis, task, task.environments(1, stream="picture").arrays()["obstacles"][0])
    assert (*axis.get_xlim(), *axis.get_ylim()) == Arena.view


def test_gains_are_drawn_with_their_names(tmp_path: Path):
    gains = Linear().weights(paper_prior().mean)
    draw_gains({"prior": gains, "optimised": gains * 1.1}, tmp_path / "g.svg")
    text = (tmp_path / "g.svg").read_text()
    for label in ("prior", "optimised", "angle of the ray"):
        assert label in text
