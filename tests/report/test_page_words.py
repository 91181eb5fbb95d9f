"""What a page tells of a run beside its numbers, and that its numbers agree with each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate, HeldOutEstimate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.parts import CertifiedPart
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import round_down
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.held_out import held_out_words
from pacbayes_control.report.page import write_page
from pacbayes_control.report.plots import PLOTS
from pacbayes_control.report.projection import project
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate
from pacbayes_control.tasks import Environments
from pages import Outline, Write, words

HOSTILE = "a\x1b[2K\r\x9b\x7f\u202e\u200bb"
ORIGIN: dict[str, object] = {
    "cost_rule": "1 for a contact",
    "distribution": "halls by lot",
    "incidents": {"retries": 2},
}


def costs(**options: Any) -> Costs:
    failed = np.zeros((40, 2), int)
    failed[7] = failed[3, 1] = failed[9, 1] = 1
    return Costs(failed, ["slow", "fast"], **options)


def vehicle(altered: bool = False) -> Run[Any]:
    """Eight policies of the vehicle in 12 named fields, perhaps with costs that are not theirs."""
    task = Vehicle()
    rolled = evaluate(task, task.policies[:8], task.environments(12, "train"))
    values = 1 - rolled.values if altered else rolled.values
    sites = [f"field <{i}>" for i in range(12)]
    return learn_finite(Costs(values, (), rolled.origin, parameters=rolled.parameters, sites=sites))


# ---- words --------------------------------------------------------------------------------------


def test_a_page_says_what_is_certified(page: Write, tmp_path: Path):
    run = Run.load(learn_finite(costs(origin=ORIGIN), 0.05).save(tmp_path / "run"))
    estimate = HeldOutEstimate(0.06123, 20_000, "test", 0)
    run = replace(run, certificate=replace(run.certificate, test_estimate=estimate))
    text = words(page(run))
    assert run.created is not None
    assert f'<time datetime="{run.created}">' in page(run)
    for said in (
        "A rollout costs 1 for a contact",
        "Environments are drawn from halls by lot",
        "How the rollouts went 2 rollouts count that had failed before they were run again",
        "Test estimate, not a promise 0.0612 on 20,000 environments that it has never seen "
        "(standard error at most 0.0017): below the bound of ",
        f"Saved {datetime.fromisoformat(run.created):%-d %B %Y, %H:%M} UTC",
        "Environments it was learnt from 40",
        "drawn at random like those it was learnt from.",
    ):
        assert said in text


def test_what_is_not_recorded_is_said_not_to_be(page: Write):
    text = words(page(learn_finite(costs())))
    assert "Saved not recorded A rollout costs not recorded" in text
    assert "Test estimate" not in text


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        (612, "0.0612 on 10,000 environments that it has never seen (612 failures; 95 % interval "
         "0.0565 to 0.0661): below the bound of 0.2052, as is its interval."),
        (2051, "0.2051 on 10,000 environments that it has never seen (2,051 failures; 95 % "
         "interval 0.1972 to 0.2132): below the bound of 0.2052."),
        (2053, "above the bound of 0.2052. Chance alone may explain this"),
        (2500, "above the bound of 0.2052, by more than chance explains. Do not rely on the bound"),
        (612.5, "has never seen (standard error at most 0.0024): below the bound of 0.2052."),
    ],
)  # fmt: skip
def test_a_test_estimate_is_compared_with_the_bound(failures: float, said: str):
    c = learn_finite(costs(), 0.05, method="occam").certificate
    estimate = HeldOutEstimate(failures / 10_000, 10_000, "test", 0)
    c = replace(c, test_estimate=estimate, bound=0.20515)
    assert said in held_out_words(c)
    assert "failures" not in held_out_words(replace(c, policy=None))  # a mean in each environment
    assert "failures" not in held_out_words(replace(c, graded=True))


def test_a_test_estimate_is_compared_with_a_bound_on_the_same():
    c = learn_finite(costs(), 0.05, method="occam").certificate
    c = replace(c, test_estimate=HeldOutEstimate(0.3, 10, "test", 0), bound=0.9)
    shifted = replace(c, ball=Ball("kl", 0.1), bound_without_shift=0.25)
    assert "above the bound without a shift of 0.2500. Chance alone" in held_out_words(shifted)
    tail = replace(c, of="cvar:0.1")
    assert held_out_words(tail).endswith("It is of the mean cost, which the bound is not on.")
    assert held_out_words(replace(c, test_estimate=None)) == ""


def test_certified_parts_stand_in_a_table(page: Write):
    run = learn_finite(costs(), 0.05)
    found = (
        CertifiedPart("wind < 8", 30, 0.0333, 0.15021, 0.005),
        CertifiedPart("a<b = <i>x</i>", 0, None, 1.0, 0.005),
    )
    text = page(replace(run, certificate=replace(run.certificate, parts=found)))
    assert "wind < 8 30 3.33% 15.03 %" in words(text)
    assert "not tried 100.00 % (no promise)" in words(text)
    assert "the one above hold at once, with confidence 95 %" in words(text)
    assert Outline(text).tags["i"] == 0
    assert "Parts of the world" not in words(page(run))


def test_a_policy_that_was_fixed_beforehand_was_not_learnt(page: Write):
    text = words(page(learn_finite(Costs([[0], [1]] * 20), method="occam")))
    assert "drawn at random like those it was tested on." in text
    assert "learnt" not in text
    assert "training" not in text.split("If the world shifts")[0]


def test_names_of_environments_stand_where_environments_do(page: Write):
    text = page(learn_finite(costs(sites=[f"hall {i}" for i in range(40)])))
    assert "hall 7 (7)" in words(text)
    assert "hall 0" not in words(text)  # it was not hard
    assert re.search(r"<td>7</td>", page(learn_finite(costs())))


@pytest.mark.slow
def test_names_of_environments_reach_the_replay(page: Write):
    assert '"sites": ["field \\u003c0\\u003e", "field \\u003c1\\u003e"' in page(vehicle())


def test_a_name_cannot_forge_a_sentence(page: Write):
    forged = "slow”, which never fails. “"
    run = learn_finite(Costs([[0, 1]] * 40, [forged, "fast"]), method="occam")
    text = words(page(run))
    assert "The one policy “slow', which never fails. '”, used every time" in text
    for place in re.finditer("slow”, which", text):  # a cell of a table is not prose
        assert text[place.start() - 15 : place.start()].strip().endswith("Mean cost")


# ---- what cannot be seen ------------------------------------------------------------------------


def hostile(value: Any) -> Any:
    """The same, with what a terminal or a reader would trip over in every string."""
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, dict):
        return {name + HOSTILE: hostile(entry) for name, entry in value.items()}
    return value


TEXTS = ("policy_name", "noise", "prior", "objective", "hashes", "versions", "cost_rule",
         "distribution", "unit")  # fmt: skip


@pytest.mark.parametrize("name", [*TEXTS, "ball", "constraints", "names", "sites", "created"])
def test_nothing_unprintable_reaches_a_page(page: Write, name: str):
    sites = [f"hall {i}" for i in range(40)]
    run = learn_finite(costs(origin=ORIGIN, sites=sites), method="occam")
    c = replace(run.certificate, policy_name="slow", noise="gusts", unit="hall")
    if name in TEXTS:
        c = replace(c, **{name: hostile(getattr(c, name))})
    elif name == "ball":
        c = under_shift(run, Ball("kl", 0.01)).certificate
        assert c.ball is not None
        object.__setattr__(c.ball, "origin", HOSTILE)
    elif name == "constraints":
        c = replace(c, constraints=(HOSTILE,))
    elif name == "created":
        run = replace(run, created=HOSTILE)
    else:  # past the checks of names, as if they had missed it
        named = tuple(map(hostile, getattr(run.costs, name)))
        object.__setattr__(run.costs, name, named)
    plots = ("posterior",) if name == "names" else ()
    text = page(replace(run, certificate=c), plots)
    assert [mark for mark in set(text) if not mark.isprintable() and mark not in "\n\xa0"] == []
    assert r"\x1b[2K\r\x9b\x7f\u202e\u200b" in unescape(text).replace("\n", "")


ATTACK = '</script></style></svg><img src=x onerror=alert(1)>\'" id="a" &amp; {{ 7 * 7 }} {% x %}'


@dataclass(frozen=True)
class Wall:
    """Passed or not; with a change the opposite."""

    name: str
    change: bool = False

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        draw = lambda rng, size: {"x": rng.random(size)}  # noqa: E731
        return Environments(draw, self.name, stream, seed, 0, n)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return (environments.arrays()["x"][:, None] > policies[:, 0]) ^ self.change


def page_with(word: str, page: Write) -> str:
    """A page with a word in every text that comes from a run's files, a task or a folder's name."""
    task: Any = Wall(f"task {word}")
    names = [f"slow {word}", f"fast {word}"]
    rolled = evaluate(task, np.array([[0.5], [0.9]]), task.environments(20, "train"), names)
    origin = {**rolled.origin, "cost_rule": f"rule {word}", "distribution": f"drawn {word}"}
    sites = [f"hall {i} {word}" for i in range(20)]
    named = Costs(rolled.values, names, origin, parameters=rolled.parameters, sites=sites)
    run = under_shift(learn_finite(named, method="occam"), Ball("kl", 0.01, f"ball {word}"))
    c = run.certificate
    texts = {name: f"{name} {word}" for name in ("noise", "prior", "objective")}
    for name in ("hashes", "versions", "budget"):
        texts[name] = {**getattr(c, name), f"{name} {word}": 0.0 if name == "budget" else word}
    c = replace(c, **texts)
    changed: Any = Wall(f"task {word}", change=True)
    again = {"task": changed, "environments": changed.environments(20, "train")}
    return page(replace(run, certificate=c, created=f"at {word}"), tuple(PLOTS), word, **again)


@pytest.fixture(scope="module")
def plain_and_attacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    def write(run: Run[Any], _: tuple[str, ...], name: str, **options: Any) -> str:
        file = tmp_path_factory.mktemp("page") / "page.html"
        write_page(run, file, name=name, **options)
        return file.read_text(encoding="utf-8")

    return page_with("plain", write), page_with(ATTACK, write)


def test_no_text_of_a_stranger_changes_the_structure_of_a_page(plain_and_attacked: tuple[str, str]):
    plain, attacked = map(Outline, plain_and_attacked)
    assert attacked.tags.keys() == plain.tags.keys()
    assert {name for name, _ in attacked.attributes} == {name for name, _ in plain.attributes}
    # A plot has other ticks where a name takes more room.
    without = [re.sub("<svg.*?</svg>", "", page, flags=re.DOTALL) for page in plain_and_attacked]
    plain, attacked = map(Outline, without)
    assert attacked.tags == plain.tags
    assert attacked.ids == plain.ids
    assert [name for name, _ in attacked.attributes] == [name for name, _ in plain.attributes]


@pytest.mark.parametrize("section", ["promise", "budget", "methods", "posterior", "environments"])
def test_text_of_a_stranger_is_shown_as_it_is(plain_and_attacked: tuple[str, str], section: str):
    plain, attacked = (
        re.findall(rf'<section id="{section}".*?</section>', page, flags=re.DOTALL)[0]
        for page in plain_and_attacked
    )
    shown = ATTACK[:7]  # names in a sentence and in a plot are shortened
    assert unescape(attacked).count(shown) == unescape(plain).count("plain") > 0
    assert shown not in attacked


def test_the_list_of_texts_is_complete():
    """A field that is added to a certificate is to be tried too."""
    numbers = {"bound", "delta", "environments", "set_aside", "policies", "parameters", "draws",
               "empirical_cost", "training_cost_bound", "shared_draws", "kl", "policy", "binary",
               "bound_without_shift", "tilt", "format", "declared_looks", "graded", "grid", "stake",
               "threshold", "margin", "exceeded", "until", "at_most", "candidates",
               "tasks", "simulation"}  # fmt: skip
    elsewhere = {"ball", "constraints"}
    checked = {
        "method",
        "of",
        "budget",
        "incidents",
        "test_estimate",
        "looks",
        "parts",
    }  # of few known words, or sealed
    known = numbers | elsewhere | checked | set(TEXTS)
    assert {field.name for field in fields(Certificate)} == known


def test_a_name_in_a_plot_is_not_read_as_a_colour_or_an_id(page: Write):
    name = ': #000000 id="x"'
    text = page(learn_finite(Costs([[0, 1]] * 40, [name, "fast"])), ("posterior",))
    [plot] = re.findall(r"<svg[^>]*>\s*<title>The posterior.*?</svg>", text, flags=re.DOTALL)
    assert name in unescape(plot)


def test_a_name_is_not_read_as_a_formula(page: Write):
    text = page(learn_finite(Costs([[0, 1]] * 40, [r"$\frac{1}$", "a_b$x$"])), ("posterior",))
    assert r"$\frac{1}$" in text
    assert "a_b$x$" in text


# ---- numbers ------------------------------------------------------------------------------------


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d\.\d{4}\b", text))


@pytest.mark.parametrize("failures", [1, 3, 7])
def test_no_two_roundings_of_the_observed_cost_stand_on_a_page(page: Write, failures: int):
    """Of 120, also where the fifth decimal is a 5, or the cost rounds up."""
    failed = np.arange(120)[:, None] < [failures, 60]
    run = learn_finite(failed, method="occam")
    c = run.certificate
    text = page(run, ("environment-costs",))
    shown = f"{c.empirical_cost:.4f}"
    assert c.empirical_cost == failures / 120
    near = {number for number in numbers(text) if abs(float(number) - failures / 120) < 1.5e-4}
    assert near == {shown}
    assert "No number would bring it below the observed cost" in words(text)


def test_where_the_bound_ends_in_a_ball_is_rounded_down(page: Write):
    run = under_shift(learn_finite(costs()), Ball("kl", 0.0123))
    limit = project(run).limit
    said = re.search(r"No number would bring it below ([\d.]+),", words(page(run)))
    assert said is not None
    assert said[1] == round_down(limit)
    assert limit - 1e-4 < float(said[1]) <= limit


def test_the_bound_is_the_same_number_everywhere(page: Write):
    run = learn_finite(costs())
    bounds = {number for number in numbers(words(page(run)))
              if abs(float(number) - run.certificate.bound) < 2e-4}  # fmt: skip
    assert len(bounds) == 1


# ---- costs that are not reproduced, and colours -------------------------------------------------


def test_costs_that_are_not_reproduced_are_told_first(page: Write):
    text = page(vehicle(altered=True))
    said = words(text)
    assert said.index("Not reproduced: 24 of 24 rollouts") < said.index("What is promised")
    assert re.search(r"policy \d+ in environment \d+ cost [01].0 when it was recorded", said)
    assert text.count('role="alert"') == 1


@pytest.mark.slow
@pytest.mark.usefixtures("blank_plots")
def test_costs_that_are_reproduced_raise_no_alarm(tmp_path: Path):
    written = write_page(vehicle(), tmp_path / "page.html")
    assert (written.again.tried, written.again.different) == (24, 0)
    text = written.path.read_text(encoding="utf-8")
    assert 'role="alert"' not in text
    assert "Not reproduced" not in words(text)


@pytest.mark.usefixtures("blank_plots")
def test_costs_are_compared_for_tasks_that_cannot_show_themselves(tmp_path: Path):
    task: Any = Wall("blind")
    train = task.environments(10, "train")
    run = learn_finite(evaluate(task, np.array([[0.5], [0.9]]), train))
    for change, different in ((False, 0), (True, 20)):
        changed: Any = Wall("blind", change)
        options: Any = {"task": changed, "environments": changed.environments(10, "train")}
        written = write_page(run, tmp_path / "page.html", **options)
        assert (written.again.tried, written.again.different) == (20, different)
        assert ("Not reproduced" in written.path.read_text("utf-8")) == change


@pytest.mark.slow
def test_it_is_said_where_nothing_could_be_compared(page: Write, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("its noise is another")

    monkeypatch.setattr("pacbayes_control.report.page.roll_out_again", refuse)
    assert "No recorded cost was compared: its noise is another." in words(page(vehicle()))


@pytest.mark.slow
def test_plots_take_the_colours_of_the_page(page: Write):
    """A dark screen has others; a colour that is written out would stay."""
    text = page(learn_finite(costs()), tuple(PLOTS))
    plots = " ".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    css = text[: text.index("</style>")]
    used = set(re.findall(r"var\(--(\w+)\)", plots))
    assert {"blue", "orange", "ink", "paper"} <= used
    assert not re.findall(r"#[0-9a-f]{6}\b(?=[;\"])", re.sub(r'(href="|url\()#\w+', "", plots))
    dark = css[css.index("prefers-color-scheme: dark") :]
    for name in used:
        assert css.count(f"--{name}: ") == 3, name  # light, dark by the system, dark by choice
        assert f"--{name}: " in dark
