"""Pictures of a world that shifts: they can be read, and are the same each time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.shift import Curve, curve
from pacbayes_control.certify.text import round_down, shown
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn import learn_finite
from pacbayes_control.learn.repeated import over_draws
from pacbayes_control.report.plots import (
    draw_curve,
    draw_monitor,
)
from pacbayes_control.robots.vehicle.pictures import draw_fields, draw_radii, draw_table2
from pacbayes_control.robots.vehicle.table2 import PAPER, SIZES, Table2Row

Draw = Callable[[Path], None]
Drawn = Callable[[str], Path]

COSTS = Costs(np.random.default_rng(3).random((300, 4)) < [0.3, 0.02, 0.1, 0.2])
CERTIFICATE = learn_finite(COSTS).certificate
CURVE = curve(CERTIFICATE, "kl")


def table() -> list[Table2Row]:
    return [
        Table2Row(n, method, 0.25, 0.01, 0.08, 0, 0.2, 0.01, 0.08, bound, truth,
            **over_draws([0.2, 0.4], [0.08, 0.08]))
        for method, (bounds, truths) in PAPER.items()
        for n, bound, truth in zip(SIZES, bounds, truths, strict=True)
    ]  # fmt: skip


def watched(*outcomes: float) -> Monitor:
    monitor = Monitor(CERTIFICATE)
    monitor.observe(outcomes)
    return monitor


PICTURES: dict[str, Draw] = {
    "table2": lambda path: draw_table2(table(), path),
    "radii": lambda path: draw_radii(path, seed=1, shown=5),
    "fields": lambda path: draw_fields(path, seed=1, shown=2),
    "curve": lambda path: draw_curve(CURVE, path),
    "monitor": lambda path: draw_monitor(watched(0, 0, 1, 0.5, 0), path),
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Each picture as SVG, drawn once."""
    folder = tmp_path_factory.mktemp("pictures")

    def path(name: str) -> Path:
        file = folder / f"{name}.svg"
        if not file.exists():
            PICTURES[name](file)
        return file

    return path


def texts(path: Path) -> str:
    """All words in an SVG picture."""
    return " | ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter() if _is_text(e))


def _is_text(element: ElementTree.Element) -> bool:
    return element.tag == "{http://www.w3.org/2000/svg}text"


# ---- every picture ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_an_svg_can_be_parsed_and_is_the_same_each_time(tmp_path: Path, drawn: Drawn, name: str):
    again = tmp_path / "again.svg"
    PICTURES[name](again)
    root = ElementTree.fromstring(again.read_bytes())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
    assert again.read_bytes() == drawn(name).read_bytes()
    assert list(tmp_path.iterdir()) == [again]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_png_is_written_where_the_name_says_so(tmp_path: Path, name: str):
    PICTURES[name](tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_png_is_the_same_each_time(tmp_path: Path):
    paths = [tmp_path / f"{each}.png" for each in "ab"]
    for path in paths:
        PICTURES["curve"](path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


# ---- what they say ------------------------------------------------------------------------------


def test_the_table_names_its_settings_its_methods_and_its_sizes(drawn: Drawn):
    found = texts(drawn("table2"))
    for label in (
        "robust: learnt on D, any D′ in the ball",
        "learnt on D, certified on D",
        "learnt on D′, certified on D′",
        "the paper's method",
        "as published, one draw",
        "Occam, one policy",
        "training environments, N",
        "100",
        "10,000",
    ):
        assert label in found


@pytest.mark.slow
def test_the_table_shows_the_numbers_that_it_is_given(tmp_path: Path, drawn: Drawn):
    rows = table()
    altered = [*rows[:-1], Table2Row(**{**vars(rows[-1]), "bound": 0.35})]
    draw_table2(altered, tmp_path / "b.svg")
    assert drawn("table2").read_bytes() != (tmp_path / "b.svg").read_bytes()


def test_the_radii_are_drawn_under_the_papers_densities(drawn: Drawn):
    found = texts(drawn("radii"))
    for label in (
        "training, D: Beta(0.8, 1.25)",
        "test, D′: Beta(1, 1)",
        "robot 0.27 m",
        "obstacle 0.3 m",
        "obstacles of 5 environments, sorted",
    ):
        assert label in found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "draw", "shown"), [("radii", draw_radii, 5), ("fields", draw_fields, 2)]
)
def test_another_seed_shows_other_environments(tmp_path: Path, drawn: Drawn, name, draw, shown):
    draw(tmp_path / "b.svg", seed=2, shown=shown)
    assert drawn(name).read_bytes() != (tmp_path / "b.svg").read_bytes()


def test_the_fields_are_named_after_their_distributions(drawn: Drawn):
    found = texts(drawn("fields"))
    for label in ("training, D", "test, D′", "x (m)", "y (m)"):
        assert label in found


def test_the_curve_says_up_to_where_its_promise_is_worth_something(drawn: Drawn):
    found = texts(drawn("curve"))
    assert "shift: KL(D′‖D) ≤ B" in found
    assert "limit 0.5" in found
    assert f"B = {round_down(CURVE.tolerable)}" in found


@pytest.mark.parametrize(
    "given",
    [
        curve(CERTIFICATE, "total-variation", limit=0.001),  # no shift is tolerable
        curve(CERTIFICATE, "reverse-kl", limit=1.0),  # any shift is
        curve(CERTIFICATE, "renyi-2", radii=[0.1]),
        Curve("hellinger", (0.0, 1.0), (1.0, 1.0), 0.5, 0.0),
    ],
    ids=["none", "any", "one radius", "vacuous"],
)
def test_a_curve_without_an_end_is_drawn_all_the_same(tmp_path: Path, given: Curve):
    draw_curve(given, tmp_path / "c.svg")
    found = texts(tmp_path / "c.svg")
    assert f"limit {given.limit:g}" in found
    assert ("B = " in found) == (0 < given.tolerable < np.inf)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((0.0,), "no evidence yet"),
        ((0.0, 1.0, 0.0), "no evidence yet"),
        ((1.0,) * 12, "violated at level 0.05"),
        ((0.0,) * 3000, "holding"),
    ],
    ids=["one", "few", "alarm", "holding"],
)
def test_the_monitor_is_drawn_under_its_verdict(tmp_path: Path, outcomes, verdict: str):
    draw_monitor(watched(*outcomes), tmp_path / "m.svg")
    found = texts(tmp_path / "m.svg")
    for label in (verdict, f"promised, {shown(CERTIFICATE.bound)}", "alarm, 1/α = 20", "outcomes"):
        assert label in found
