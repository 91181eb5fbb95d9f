"""What a page says and holds, without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import percent_up, round_up
from pacbayes_control.learn import (
    GaussianPrior,
    Plan,
    SearchSettings,
    certify_draw,
    learn_best,
    learn_constrained,
    learn_finite,
    learn_gaussian,
    learn_one,
    learn_tilted,
)
from pacbayes_control.learn.relative_entropy import limit_on
from pacbayes_control.report import pictures
from pacbayes_control.report.page import render, write_page
from pacbayes_control.report.plots import PLOTS, write_plots
from pacbayes_control.report.projection import project, projected_bound
from pacbayes_control.report.rendering import is_page
from pacbayes_control.report.replay import Replay, pack, pack_within, roll_out
from pacbayes_control.report.sections import posterior_values, side_by_side
from pacbayes_control.report.summary import environment_costs
from pacbayes_control.robots import Vehicle
from pacbayes_control.robots.vehicle import Linear, paper_prior
from pacbayes_control.rollouts import evaluate
from pacbayes_control.tasks import Environments, Noise
from pacbayes_control.tasks.task import Scene
from pages import Outline, Write, words

ATTACK = "</script><img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Glide:
    """Straight ahead over graded ground: the cost is how far to the side one ends up."""

    name: str = "glide"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        def draw(rng: np.random.Generator, size: int) -> dict[str, NDArray]:
            return {"wind": rng.uniform(0, 1, size)}

        return Environments(draw, self.name, stream, seed, 0, n)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.clip(environments.arrays()["wind"][:, None] * policies[:, 0], 0, 1)

    def scenes(self, environments: Environments) -> list[Scene]:
        nothing = np.empty((0, 3))
        return [Scene(nothing, np.empty((0, 4)), 0.1, 0.5) for _ in range(len(environments))]

    def paths(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> list[list[NDArray[np.float64]]]:
        assert noise is None
        along = np.linspace(0, 5, 6)
        winds = environments.arrays()["wind"]
        return [[np.column_stack([along * w * p[0], along]) for p in policies] for w in winds]


@pytest.fixture(scope="module")
def replay(vehicle: Run[Any]) -> Replay:
    task = Vehicle()
    return roll_out(vehicle, task, task.environments(30, stream="train"))


def linear() -> tuple[Vehicle, Environments]:
    task = Vehicle(controller=Linear(), wheel_slip=0.02)
    return task, task.environments(20, stream="train")


# ---- what it says -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_says_what_the_certificate_says(vehicles_page: Path, vehicle: Run[Any]):
    text = words(vehicles_page.read_text(encoding="utf-8"))
    c = vehicle.certificate
    assert c.sentence in text
    assert percent_up(c.bound) in text
    assert "pbc verify 'my run'" in text
    for digest in c.hashes.values():
        assert digest in text
    assert "drawn afresh from the posterior for each episode" in text
    assert "Every rollout that the certificate counts" in text


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(vehicles_page: Path, vehicle: Run[Any], tmp_path: Path):
    write_page(vehicle, tmp_path / "again", name="my run")
    assert (tmp_path / "again").read_bytes() == vehicles_page.read_bytes()


def test_a_page_is_known_by_its_mark(vehicles_page: Path, tmp_path: Path):
    assert is_page(vehicles_page)
    (tmp_path / "other").write_text("<html>")
    assert not is_page(tmp_path / "other")


def test_a_page_needs_nothing_from_elsewhere(vehicles_page: Path):
    outline = Outline(vehicles_page.read_text(encoding="utf-8"))
    assert outline.tags["html"] == outline.tags["main"] == outline.tags["h1"] == 1
    assert not {"img", "iframe", "object"} & set(outline.tags)
    links = [value for name, value in outline.attributes if name in ("src", "href", "xlink:href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert len(outline.ids) == len(set(outline.ids))  # of the plots too


def test_references_within_plots_lead_somewhere(vehicles_page: Path):
    text = vehicles_page.read_text(encoding="utf-8")
    ids = set(Outline(text).ids)
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    used = re.findall(r'(?:url\(#|href="#)([^")]*)', drawings)
    assert used
    assert set(used) <= ids


@pytest.mark.slow
def test_names_are_text_and_never_markup(page: Write):
    task = Vehicle()
    names = [ATTACK, "$x^$ <b>bold</b>", "slow"]
    train = task.environments(8, stream="train")
    run = learn_finite(evaluate(task, task.policies[:3], train, names), method="occam")
    text = page(run, plots=("posterior",), name="<i>&run</i>")
    assert ATTACK not in text
    assert "<b>bold</b>" not in text
    assert "<i>&run" not in text
    assert Outline(text).tags["img"] == 0
    [values] = re.findall(r'id="replay-values">(.*?)</script>', text, flags=re.DOTALL)
    assert sorted(json.loads(values)["names"]) == sorted(names)


def test_a_table_of_costs_has_no_section_for_a_replay(page: Write):
    rng = np.random.default_rng(0)
    run = learn_finite(Costs(rng.random((60, 3)) < [0.1, 0.2, 0.9], ["slow", "fast", "名前"]))
    text = page(run)
    assert "eplay" not in words(text)
    assert 'id="replay"' not in text
    assert "<canvas" not in text
    assert "<script>\n</script>" in text


def test_a_task_that_cannot_show_itself_has_no_replay(page: Write):
    class Blind:
        name = "blind"
        environments = Glide.environments
        costs = Glide.costs

    task: Any = Blind()
    train = task.environments(20, stream="train")
    run = learn_finite(evaluate(task, np.array([[0.5], [1.0]]), train))
    text = page(run)
    assert "does not say which task it is of" in words(text)
    assert 'id="replay"' not in text
    said = words(page(run, task=task, environments=train))
    assert "The task blind cannot show itself" in said


def test_a_task_needs_its_environments_and_the_right_ones(tmp_path: Path):
    task = Glide()
    train = task.environments(20, stream="train")
    run = learn_finite(evaluate(task, np.array([[0.5], [1.0]]), train))
    with pytest.raises(ValueError, match="replays need both"):
        write_page(run, tmp_path / "p.html", task=task)
    with pytest.raises(ValueError, match="12 environments were given for a run that counts 20"):
        write_page(run, tmp_path / "p.html", task=task, environments=train[:12])


@pytest.mark.slow
def test_graded_costs_and_a_task_of_ones_own(page: Write):
    task = Glide()
    train = task.environments(40, stream="train")
    run = learn_finite(evaluate(task, np.array([[0.5], [1.0], [0.1]]), train))
    text = page(run, task=task, environments=train)
    assert round_up(run.certificate.bound) in words(text)
    assert "<canvas" in text
    robust = under_shift(run, Ball("total-variation", 0.05))
    assert "TV(D′, D) ≤ 0.05" in words(page(robust, task=task, environments=train))
    tilted = words(page(learn_tilted(run.costs, Ball("kl", 0.05)), task=task, environments=train))
    assert "tilted ★ this run" in tilted


@pytest.mark.slow
def test_a_gaussian_run_says_that_its_policies_were_drawn_for_the_page(page: Write):
    task, train = linear()
    run = learn_gaussian(task, train, paper_prior(), Plan(search=SearchSettings(steps=3), draws=5))
    text = words(page(run))
    assert "These 20 were drawn for this page alone" in text
    assert "The same noise, drawn independently of the policy: “wheel slip 0.02" in text
    assert "for the same posterior and the same draws" in text
    for share in ("sampling", "what a sample of policies may miss"):
        assert share in text


@pytest.mark.parametrize("parameters", [10, 60])
def test_a_gaussian_that_has_moved_is_drawn(vehicle: Run[Any], parameters: int):
    prior = DiagonalGaussian(np.zeros(parameters), np.ones(parameters))
    moved = DiagonalGaussian(np.linspace(-1, 1, parameters), np.full(parameters, 0.5))
    file = BytesIO()
    PLOTS["posterior"](replace(vehicle, prior=prior, posterior=moved), file)
    assert b"mean moved by (standard deviations of the prior)" in file.getvalue()


def test_a_gaussian_that_has_moved_is_put_in_words(vehicle: Run[Any]):
    prior = DiagonalGaussian(np.zeros(4), np.full(4, 4.0))
    moved = DiagonalGaussian([0.2, -3.0, 0.0, 0.1], [4.0, 1.0, 4.0, 4.0])
    certificate = replace(vehicle.certificate, parameters=4)
    run = replace(vehicle, certificate=certificate, prior=prior, posterior=moved)
    text = words(render("posterior.html", run, **posterior_values(run)))
    assert "moved most in parameter 1, by 1.50 standard deviations of the prior" in text
    assert "half of the parameters moved by less than 0.075" in text
    assert "Widths are 0.50 to 1.00 times the prior's" in text


@pytest.mark.slow
def test_a_certificate_for_one_policy(page: Write):
    task, train = linear()
    drawn = words(page(certify_draw(task, train, GaussianPrior(paper_prior()), paper_prior())))
    assert "The one policy that was drawn from the posterior, used every time" in drawn
    assert "One drawn policy has one bound" in drawn
    assert "The policy failed in " in drawn
    one = words(page(learn_one(task, train, GaussianPrior(paper_prior()), Plan(candidates=3))))
    assert "The one policy “mean of the prior”, used every time" in one
    assert "policy of the mixture" not in one


@pytest.mark.slow
def test_a_robust_run_says_where_it_holds(page: Write, vehicle: Run[Any]):
    robust = under_shift(vehicle, Ball("kl", 0.05))
    text = words(page(robust, plots=("shift",)))
    assert "from any distribution D′ with KL(D′‖D) ≤ 0.05 (“assumed”)" in text
    assert "This run is certified in a ball already" in text
    assert round_up(vehicle.certificate.bound) in text


@pytest.mark.slow
def test_a_bound_that_promises_nothing_still_has_a_page(page: Write):
    text = words(page(learn_finite(np.ones((3, 2))), plots=tuple(PLOTS)))
    assert "100.00 %" in text
    assert "The bound is 0.5 or more without any shift" in text


# ---- bounds -------------------------------------------------------------------------------------


def test_methods_stand_side_by_side_with_the_runs_own_among_them(graded_costs: Costs):
    for run in (learn_finite(graded_costs), learn_finite(graded_costs, method="kl")):
        methods, _ = side_by_side(run)
        assert [m.method for m in methods] == ["occam", "kl", "kl-maurer", "pinsker", "betting"]
        [own] = [m for m in methods if m is run.certificate]
        assert own.bound == run.certificate.bound


def test_a_run_that_paid_for_a_choice_keeps_its_own_line(graded_costs: Costs):
    best = learn_best(graded_costs)
    methods, _ = side_by_side(best)
    assert [m is best.certificate for m in methods] == [True] + 5 * [False]
    paper = learn_finite(graded_costs, method="kl-maurer", objective="pinsker")
    assert side_by_side(paper)[0][0] is paper.certificate


@pytest.mark.slow
def test_constraints_are_not_compared(graded_costs: Costs, page: Write):
    limit = limit_on("0.5:3", graded_costs)
    run = learn_constrained(graded_costs, constraints=[limit])
    assert side_by_side(run)[0] == ()
    assert "chosen under constraints" in words(page(run))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kl", "kl-maurer", "pinsker", "occam"])
def test_a_projection_passes_through_the_certificate(
    method: str, binary_costs: Costs, graded_costs: Costs
):
    for costs in (binary_costs, graded_costs):
        run = learn_finite(costs, method=method)
        c = run.certificate
        for case in (run, under_shift(run, Ball("kl", 0.03))):
            own = projected_bound(case, c.environments)
            assert own == pytest.approx(case.certificate.bound, abs=1e-9)
            projection = project(case)
            assert projection.environments[0] == c.environments // 10
            assert projection.environments[-1] == c.environments * 100
            assert projection.half_way is not None
            more, bound = projection.half_way
            assert more > c.environments
            assert projection.limit < bound < case.certificate.bound
        assert project(run).limit == pytest.approx(c.empirical_cost, abs=1e-4)


# ---- the replay ---------------------------------------------------------------------------------


def unpacked(packed: Any, name: str, dtype: str) -> NDArray:
    return np.frombuffer(zlib.decompress(base64.b64decode(packed.arrays[name][1])), dtype)


@pytest.mark.slow
def test_packed_paths_are_the_paths_to_half_a_centimetre(replay: Replay):
    packed = pack(replay)
    lengths = unpacked(packed, "lengths", "<u4")
    starts, steps = (unpacked(packed, name, "<i4").reshape(-1, 2) for name in ("starts", "steps"))
    bends = unpacked(packed, "bends", "i1").reshape(2, -1)
    begin = 0
    flat = [path for row in replay.paths for path in row]
    assert len(lengths) == len(flat) == replay.costs.size
    for path, length, start, step in zip(flat, lengths, starts, steps, strict=True):
        own = bends[:, begin : begin + length - 2].T
        moves = np.cumsum(np.vstack([step, own]), axis=0)
        points = np.vstack([start, start + np.cumsum(moves, axis=0)]) * packed.values["grid"]
        begin += length - 2
        assert np.abs(points - path[:, :2]).max() < 0.00501


@pytest.mark.slow
def test_costs_in_a_page_are_those_that_were_recorded(vehicle: Run[Any], replay: Replay):
    packed = pack(replay)
    costs = unpacked(packed, "costs", "<u2").reshape(30, 50)
    order = np.lexsort((vehicle.costs.means, -vehicle.posterior.probabilities))
    assert packed.values["policies"] == order.tolist()
    assert (costs == vehicle.costs.values[:, order]).all()
    contacts = unpacked(packed, "contacts", "u1").reshape(30, 50)
    assert np.mean(contacts != costs) <= 0.001


@pytest.mark.slow
def test_noise_is_the_noise_that_was_recorded():
    task = Vehicle(wheel_slip=0.2, range_noise=0.2)
    train = task.environments(25, stream="train")[5:]
    costs = evaluate(task, task.policies, train, noise=Noise("other", 3))
    replay = roll_out(learn_finite(costs), task, train)
    assert replay.disagreements <= 1
    assert replay.costs.sum() > 50
    alone = roll_out(learn_finite(costs), task, train, most=200)
    assert alone.costs.shape == (20, 10)
    assert alone.disagreements <= 1


@pytest.mark.slow
def test_what_does_not_fit_is_the_unlikely_and_the_easy(vehicle: Run[Any], replay: Replay):
    task = Vehicle()
    few = roll_out(vehicle, task, task.environments(30, stream="train"), most=100)
    shares, means = vehicle.posterior.probabilities, environment_costs(vehicle)
    assert few.costs.shape == (20, 5)
    assert shares[few.policies].min() >= np.delete(shares, few.policies).max()
    assert means[few.environments].min() >= np.delete(means, few.environments).max()
    assert (few.environments[:-1] < few.environments[1:]).all()
    for row, environment in enumerate(few.environments):
        for column, policy in enumerate(few.policies):
            known = replay.paths[environment][replay.policies.tolist().index(policy)]
            assert (few.paths[row][column] == known).all()
        assert (few.scenes[row].circles == replay.scenes[environment].circles).all()
    whole = pack(replay).size
    kept, packed = pack_within(replay, means, most=whole // 2)
    assert packed.size <= whole // 2
    assert 8 < len(kept.environments) < 16
    assert means[kept.environments].min() >= np.delete(means, kept.environments).max()


@pytest.mark.slow
def test_what_was_left_out_is_said(page: Write, vehicle: Run[Any], monkeypatch: pytest.MonkeyPatch):
    def fewer(run: Run[Any], task: Any, environments: Environments) -> Replay:
        return roll_out(run, task, environments, most=100)

    monkeypatch.setattr("pacbayes_control.report.page.roll_out", fewer)
    text = words(page(vehicle))
    assert "Of 30 × 50 rollouts, this page has room for 100" in text
    assert "Kept are the 5 likeliest policies" in text
    assert "Of the 30 environments, the 20 with the highest cost are here" in text


def test_large_and_small_worlds_are_packed(replay: Replay):
    for scale in (1e-3, 50, 1e5):
        paths = [[scale * path for path in row] for row in replay.paths]
        packed = pack(Replay(**{**vars(replay), "paths": paths}))
        kind = {"Int8Array": "i1", "Int16Array": "<i2"}[packed.arrays["bends"][0]]
        bends = unpacked(packed, "bends", kind).reshape(2, -1)
        whole = np.rint(paths[0][0][:, :2] / packed.values["grid"])
        assert (np.diff(whole, 2, axis=0) == bends[:, : len(whole) - 2].T).all()


# ---- plots --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_plots_are_written_the_same_each_time(
    tmp_path: Path, vehicle: Run[Any], suffix: str, monkeypatch: pytest.MonkeyPatch
):
    """One of them, as all are saved alike; `pbc report` writes them all."""
    few = {"shift": PLOTS["shift"]}
    monkeypatch.setattr("pacbayes_control.report.plots.PLOTS", few)
    first, second = (write_plots(vehicle, tmp_path / name, suffix) for name in "ab")
    assert [file.stem for file in first] == list(few)
    signature = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[suffix]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes().startswith(signature)
        assert one.read_bytes() == other.read_bytes()


def test_plots_of_an_unknown_kind_are_refused(tmp_path: Path, vehicle: Run[Any]):
    with pytest.raises(ValueError, match="svg, pdf or png, not as 'gif'"):
        write_plots(vehicle, tmp_path / "p", "gif")
    assert not (tmp_path / "p").exists()


def test_the_page_has_the_colours_of_the_plots(vehicles_page: Path):
    css = vehicles_page.read_text(encoding="utf-8")
    for name in ("BLUE", "ORANGE", "GREEN", "GREY", "DARK"):
        assert f"--{name.lower()}: {getattr(pictures, name)};" in css


def test_equal_policies_with_other_costs_are_told_where_methods_would_stand_side_by_side():
    outcomes = np.random.default_rng(0).random((40, 2)) < 0.3
    run = learn_finite(Costs(outcomes, parameters=np.ones((2, 1))), method="kl")
    methods, why_not = side_by_side(run)
    assert not methods
    assert "policies 0 and 1 have equal parameters and different costs" in why_not
